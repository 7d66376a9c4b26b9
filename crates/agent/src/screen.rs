//! What is left out when files are looked through in passing: whatever would be refused or asked for if
//! it were read by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::guard::{Rulebook, Want, assess_path};
use engine::{AskRequest, Risk, RuleEffect, Rules as _, ToolClass, ToolKind};

use crate::tools::Job;

pub(crate) struct Screen {
    rules: Option<Arc<Rulebook>>,
    workspace: Arc<PathBuf>,
    request: AskRequest,
    /// The rule that was asked about already, for the place where the looking begins.
    settled: Option<Arc<str>>,
}

impl Screen {
    /// For a tool that was allowed to look at `start` and what is below.
    pub(crate) fn new(tool: &str, start: &Path, job: &Job) -> Self {
        let request = AskRequest { path: Some(start.to_owned()), ..look(tool, &start.to_string_lossy()) };
        let (rules, workspace) = (job.session.shared.config.rules.clone(), job.context.cwd());
        let settled = rules.as_ref().and_then(|rules| rules.find(&workspace, &request)).map(|hit| hit.rule);
        Self { rules, workspace, request, settled }
    }

    /// Whether a file below the start is not to be looked into.
    pub(crate) fn hides(&mut self, path: &Path) -> bool {
        let secret = assess_path(Want::Read, path).is_some_and(|assessment| assessment.risk >= Risk::High);
        secret || self.forbids(path)
    }

    /// Whether a rule speaks against it, even against its name.
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

/// The rule that denies this, if one does: what came with a prompt is asked of nobody, but a rule that denies holds.
pub(crate) fn denied_by(
    rules: Option<&Arc<Rulebook>>,
    workspace: &Path,
    request: &AskRequest,
) -> Option<Arc<str>> {
    let hit = rules?.find(workspace, request)?;
    (hit.effect == RuleEffect::Deny).then_some(hit.rule)
}

/// Somebody wants to look at something.
pub(crate) fn look(tool: &str, subject: &str) -> AskRequest {
    AskRequest {
        kind: ToolKind::Search,
        subject: subject.into(),
        ..AskRequest::new(tool, tool, ToolClass::Read)
    }
}
