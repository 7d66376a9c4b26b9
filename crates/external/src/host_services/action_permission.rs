//! Decides whether an action of an external agent is allowed: assessed like actions of the built-in agent,
//! and asked about in the same way.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};

use engine::{AskRequest, Opaque, PermissionOutcome, Risk, ToolClass, ToolContent, ToolKind, TurnContext};
use guard::{
    Assessment, ProposedAction, Workplace, assess_action, assess_unsandboxed, with_git_settings,
    with_steered_programs,
};
use wire::acp::HostRequestError;

use super::Shared;

/// Grants that are kept; the oldest is dropped.
const GRANTS_MAX: usize = 64;
/// A longer command is assessed on a blocking thread.
const LINE_BYTES_ASSESSED_INLINE: usize = 512;
const TITLE_CHARS_MAX: usize = 120;

/// A permission that the agent asked for and was given before it acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub class: ToolClass,
    /// The file that it applies to.
    pub path: Option<PathBuf>,
    /// The command that it applies to.
    pub line: Option<String>,
}

#[derive(Default)]
pub(super) struct Grants(Vec<Grant>);

impl Grants {
    pub(super) fn add(&mut self, grant: Grant) {
        if self.0.len() >= GRANTS_MAX {
            self.0.remove(0);
        }
        self.0.push(grant);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a grant covers this action. Reading does not use a grant up, everything else does: it was for
    /// one action. An action outside of the sandbox is never covered, because the request did not say so.
    fn cover(&mut self, action: &HostAction) -> bool {
        if action.outside_digest.is_some() {
            return false;
        }
        let covers = |grant: &Grant| match action.class {
            ToolClass::Read => {
                matches!(grant.class, ToolClass::Read | ToolClass::Edit) && action.covers_path(grant)
            }
            ToolClass::Edit => grant.class == ToolClass::Edit && action.covers_path(grant),
            ToolClass::Execute => {
                grant.class == ToolClass::Execute
                    && grant
                        .line
                        .as_ref()
                        .is_some_and(|line| action.lines.iter().skip(1).any(|own| own == line))
            }
            ToolClass::Network => false,
        };
        let Some(at) = self.0.iter().position(covers) else { return false };
        if action.class != ToolClass::Read {
            self.0.remove(at);
        }
        true
    }
}

/// An action that an agent asks us to carry out.
pub(super) struct HostAction {
    /// The built-in agent's tool for it, so that the person's rules apply.
    pub(super) tool: &'static str,
    pub(super) title: String,
    pub(super) kind: ToolKind,
    pub(super) class: ToolClass,
    /// The paths of the file: the real one, and as the agent wrote it.
    pub(super) paths: Option<(PathBuf, PathBuf)>,
    /// The command line: first as it is assessed, then in the forms in which the agent may have been allowed
    /// it.
    pub(super) lines: Vec<String>,
    pub(super) input: Opaque,
    pub(super) default_assessment: (Risk, &'static str),
    pub(super) preview: Vec<ToolContent>,
    /// If it would run outside of an existing sandbox: a digest of what would.
    pub(super) outside_digest: Option<String>,
}

impl HostAction {
    fn covers_path(&self, grant: &Grant) -> bool {
        let Some((real, written)) = &self.paths else { return false };
        grant.path.as_ref().is_some_and(|path| path == real || path == written)
    }

    fn real(&self) -> Option<&Path> {
        self.paths.as_ref().map(|(real, _)| real.as_path())
    }
}

impl Shared {
    pub(super) fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the action may be carried out.
    pub(super) async fn permit(
        self: &Arc<Self>,
        turn: &TurnContext,
        action: HostAction,
    ) -> Result<(), HostRequestError> {
        if self.grants().cover(&action) {
            return Ok(());
        }
        let assessed = self.assess(&action).await?;
        let Assessment { risk, reason } =
            if action.outside_digest.is_some() { assess_unsandboxed(assessed) } else { assessed };
        let subject = match (action.lines.first(), action.real()) {
            (Some(line), _) => line.as_str().into(),
            (None, Some(path)) => path.to_string_lossy().into(),
            (None, None) => action.tool.into(),
        };
        let request = AskRequest {
            call: None,
            tool: action.tool.into(),
            title: one_line(&action.title).into(),
            kind: action.kind,
            class: action.class,
            path: action.real().map(Path::to_owned),
            subject,
            input: action.input,
            risk,
            reason: reason.into(),
            preview: action.preview,
            question: None,
            foreign: None,
            consent: action.outside_digest.map(Into::into),
            rule: None,
        };
        self.count(request.weight()).await?;
        // A cancel settles open permission requests; the token covers one that is not open yet.
        let verdict = tokio::select! {
            biased;
            () = turn.cancel.cancelled() => return Err(HostRequestError::Cancelled),
            verdict = turn.ask(request) => verdict,
        };
        match verdict {
            Ok(PermissionOutcome::Allowed) => Ok(()),
            // A text answer is never a permission.
            Ok(PermissionOutcome::Replied(said)) => Err(HostRequestError::Refused(said.to_string())),
            Ok(PermissionOutcome::Denied { reason, .. }) => {
                Err(HostRequestError::Refused(reason.to_string()))
            }
            Err(gone) => Err(HostRequestError::Failed(gone.to_string())),
        }
    }

    pub(super) async fn assess(
        self: &Arc<Self>,
        action: &HostAction,
    ) -> Result<Assessment, HostRequestError> {
        let (services, class, default_assessment) =
            (Arc::clone(self), action.class, action.default_assessment);
        let (line, path) = (action.lines.first().cloned(), action.real().map(Path::to_owned));
        let long = line.as_ref().is_some_and(|line| line.len() > LINE_BYTES_ASSESSED_INLINE);
        let assess = move || {
            let policy = services.policy();
            let home = policy.homes.first().map(PathBuf::as_path);
            let workplace = Workplace { cwd: &services.spec.cwd, roots: &policy.roots, home };
            let deed = ProposedAction { class, line: line.as_deref(), path: path.as_deref() };
            let assessed = assess_action(
                deed,
                Assessment { risk: default_assessment.0, reason: default_assessment.1.into() },
                &workplace,
            );
            let assessed = with_git_settings(assessed, deed, || sandbox::git_program_setting(&policy.roots));
            with_steered_programs(assessed, deed, &workplace, |program| {
                sandbox::steered_program(
                    program,
                    &services.spec.environment,
                    &services.spec.cwd,
                    &policy.roots,
                )
            })
        };
        let long = long || (class == ToolClass::Execute && !action.lines.is_empty());
        // Some microseconds for what people write; what is made to be hard takes longer, and so does looking
        // at the settings of repositories and at where programs lie.
        if long { self.run_blocking(move || Ok(assess())).await } else { Ok(assess()) }
    }
}

fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(TITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(class: ToolClass, path: Option<&str>, line: Option<&str>) -> HostAction {
        HostAction {
            tool: "t",
            title: String::new(),
            kind: ToolKind::Other,
            class,
            paths: path.map(|path| (path.into(), "/as/written".into())),
            lines: line.map(|line| vec![format!("sh -c '{line}'"), line.to_owned()]).unwrap_or_default(),
            input: Opaque("{}".into()),
            default_assessment: (Risk::Low, ""),
            preview: Vec::new(),
            outside_digest: None,
        }
    }

    #[test]
    fn a_grant_is_for_the_same_thing_and_for_one_deed() {
        use ToolClass::{Edit, Execute, Read};
        let grant = |class, path: Option<&str>, line: Option<&str>| Grant {
            class,
            path: path.map(Into::into),
            line: line.map(Into::into),
        };
        let mut grants = Grants::default();
        grants.add(grant(Edit, Some("/w/a"), None));
        grants.add(grant(Execute, None, Some("make")));
        assert!(!grants.cover(&action(Edit, Some("/w/b"), None)));
        assert!(!grants.cover(&action(Execute, None, Some("make clean"))));
        assert!(grants.cover(&action(Read, Some("/w/a"), None)));
        assert!(grants.cover(&action(Edit, Some("/w/a"), None)));
        assert!(!grants.cover(&action(Edit, Some("/w/a"), None)), "it was used up");
        assert!(grants.cover(&action(Execute, None, Some("make"))));
        assert!(!grants.cover(&action(Execute, None, Some("make"))), "it was used up");
        grants.add(grant(Execute, None, Some("make")));
        let outside =
            HostAction { outside_digest: Some("digest".into()), ..action(Execute, None, Some("make")) };
        assert!(!grants.cover(&outside), "leaving the fence was not asked");
        for n in 0..1000 {
            grants.add(grant(Edit, Some(&format!("/w/{n}")), None));
        }
        assert_eq!(grants.0.len(), GRANTS_MAX);
        grants.clear();
        assert!(!grants.cover(&action(Edit, Some("/w/999"), None)));
    }
}
