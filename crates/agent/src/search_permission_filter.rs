//! Which files a search skips: everything that would be refused, or asked about, if it were read by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::guard::{FileAccess, Rulebook, assess_path};
use engine::{AskRequest, PermissionRules as _, Risk, RuleEffect, ToolClass, ToolKind};

use crate::tools::ToolJob;

pub(crate) struct SearchFilter {
    rules: Option<Arc<Rulebook>>,
    workspace: Arc<PathBuf>,
    request: AskRequest,
    /// The "ask" rule that was already answered for the start of the search.
    settled: Option<Arc<str>>,
}

impl SearchFilter {
    /// For a tool that was allowed to search `start` and everything below.
    pub(crate) fn new(tool: &str, start: &Path, job: &ToolJob) -> Self {
        let request =
            AskRequest { path: Some(start.to_owned()), ..read_request(tool, &start.to_string_lossy()) };
        let (rules, workspace) = (job.session.shared.config.rules.clone(), job.context.cwd());
        let settled = rules.as_ref().and_then(|rules| rules.find(&workspace, &request)).map(|hit| hit.rule);
        Self { rules, workspace, request, settled }
    }

    /// Whether a file below the start is skipped.
    pub(crate) fn hides(&mut self, path: &Path) -> bool {
        let secret =
            assess_path(FileAccess::Read, path).is_some_and(|assessment| assessment.risk >= Risk::High);
        secret || self.forbids(path)
    }

    /// Whether a rule denies it, so that not even its name is shown.
    pub(crate) fn forbids(&mut self, path: &Path) -> bool {
        let Some(rules) = &self.rules else { return false };
        self.request.path = Some(path.to_owned());
        self.request.subject = path.to_string_lossy().into();
        rules.find(&self.workspace, &self.request).is_some_and(|hit| match hit.effect {
            RuleEffect::Deny => true,
            RuleEffect::Ask => self.settled.as_ref() != Some(&hit.rule),
            RuleEffect::Allow => false,
        })
    }
}

/// The rule that denies this, if there is one. Nobody is asked about what comes with a prompt, but deny rules
/// apply.
pub(crate) fn denied_by(
    rules: Option<&Arc<Rulebook>>,
    workspace: &Path,
    request: &AskRequest,
) -> Option<Arc<str>> {
    let hit = rules?.find(workspace, request)?;
    (hit.effect == RuleEffect::Deny).then_some(hit.rule)
}

/// A permission request for reading something, to match it against rules.
pub(crate) fn read_request(tool: &str, subject: &str) -> AskRequest {
    AskRequest {
        kind: ToolKind::Search,
        subject: subject.into(),
        ..AskRequest::new(tool, tool, ToolClass::Read)
    }
}
