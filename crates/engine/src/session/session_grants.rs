//! Remembered answers that hold in one session alone.
//!
//! When the owner at the machine answers "always" or "never", the answer becomes a rule of the machine. From anybody
//! else it holds for the same action, in the same folder, until the session is deleted. Such answers are in the log, and
//! are rebuilt from it after a restart. If the person was shown no rule, the answer holds for exactly the arguments that
//! were asked about; otherwise for everything with the same subject.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::asks::ActionKey;
use super::{OpenAsk, Session};
use crate::content::Opaque;
use crate::event::{AskRequest, Resolution, Resolver};
use crate::stored_rules::{PermissionRules, RuleEffect, RuleHit};

/// The most remembered actions of either kind; beyond that, people are asked again.
const GRANTS_MAX: usize = 256;

#[derive(Default)]
pub(super) struct SessionGrants {
    /// Whether an action in a folder is allowed or refused, whatever its arguments are.
    by_subject: BTreeMap<(PathBuf, ActionKey), bool>,
    /// The latest is the last.
    by_arguments: Vec<ArgumentsGrant>,
}

/// A remembered answer about exactly these arguments.
struct ArgumentsGrant {
    folder: PathBuf,
    action: ActionKey,
    input: Opaque,
    allow: bool,
}

impl SessionGrants {
    /// Allowed actions are asked again; refused ones stay refused.
    pub(super) fn drop_allowed(&mut self) {
        self.by_subject.retain(|_, allow| !*allow);
        self.by_arguments.retain(|grant| !grant.allow);
    }

    fn insert(&mut self, folder: PathBuf, action: ActionKey, allow: bool) {
        let key = (folder, action);
        if self.by_subject.len() < GRANTS_MAX || self.by_subject.contains_key(&key) {
            self.by_subject.insert(key, allow);
        }
    }

    fn insert_exactly(&mut self, new: ArgumentsGrant) {
        let same = |old: &ArgumentsGrant| {
            old.folder == new.folder && old.action == new.action && old.input == new.input
        };
        self.by_arguments.retain(|old| !same(old));
        if self.by_arguments.len() >= GRANTS_MAX {
            // A refusal makes no room for others: what was allowed longest ago is asked again.
            let Some(oldest) = self.by_arguments.iter().position(|old| old.allow) else { return };
            self.by_arguments.remove(oldest);
        }
        self.by_arguments.push(new);
    }
}

impl Session {
    /// The remembered answer of this session to an action. `rules` decide which arguments are the same.
    pub fn granted(&self, request: &AskRequest, rules: &dyn PermissionRules) -> Option<RuleHit> {
        // A refusal holds wherever the command would run; a permission does not hold outside the sandbox.
        let about_subject = self
            .granted_subject(request, request.consent.clone())
            .or_else(|| self.granted_subject(request, None));
        let about_arguments = self.granted_arguments(request, rules);
        let refused = [about_subject, about_arguments].contains(&Some(false));
        about_subject.or(about_arguments).map(|_| RuleHit {
            effect: if refused { RuleEffect::Deny } else { RuleEffect::Allow },
            rule: format!("{}({})", request.tool, request.subject).into(),
            source: "an answer for this session".into(),
            exact: true,
            consent: false,
        })
    }

    fn granted_subject(&self, request: &AskRequest, consent: Option<Arc<str>>) -> Option<bool> {
        if self.grants.by_subject.is_empty() {
            return None;
        }
        let action = (Arc::clone(&request.tool), Arc::clone(&request.subject), consent);
        self.grants.by_subject.get(&(self.cwd.clone(), action)).copied()
    }

    fn granted_arguments(&self, request: &AskRequest, rules: &dyn PermissionRules) -> Option<bool> {
        let mut of_tool =
            self.grants.by_arguments.iter().filter(|grant| grant.action.0 == request.tool).peekable();
        of_tool.peek()?;
        let key = rules.arguments_key(&request.tool, &request.subject, &request.input);
        let same = |grant: &&ArgumentsGrant| {
            grant.folder == self.cwd
                && rules.arguments_key(&grant.action.0, &grant.action.1, &grant.input) == key
        };
        let same: Vec<_> = of_tool.filter(same).collect();
        let latest = |consent: Option<&Arc<str>>| {
            same.iter().rev().find(|grant| grant.action.2.as_ref() == consent).map(|grant| grant.allow)
        };
        latest(request.consent.as_ref()).or_else(|| latest(None))
    }

    pub(super) fn grant(&mut self, open: &OpenAsk, resolution: Resolution, by: &Resolver, exactly: bool) {
        let allow = match resolution {
            Resolution::AllowedAlways => true,
            Resolution::DeniedAlways => false,
            Resolution::AllowedOnce
            | Resolution::DeniedOnce
            | Resolution::Cancelled
            | Resolution::TimedOut
            | Resolution::EndedByRestart => return,
        };
        if !by.for_session() || open.request.subject.is_empty() || open.consent_kind().is_some() && allow {
            return;
        }
        let folder = self.cwd.clone();
        let AskRequest { tool, subject, consent, input, .. } = open.request.as_ref();
        let action = |subject| (Arc::clone(tool), subject, consent.clone());
        if !exactly {
            return self.grants.insert(folder, action(Arc::clone(subject)), allow);
        }
        let subjects: Vec<_> = open.subjects().collect();
        if subjects.len() > GRANTS_MAX {
            // Kept in part, it would be asked again all the same.
            return;
        }
        for subject in subjects {
            let (folder, action, input) = (folder.clone(), action(subject), input.clone());
            self.grants.insert_exactly(ArgumentsGrant { folder, action, input, allow });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Standing;
    use crate::content::{FileChange, ToolContent};
    use crate::event::{Body, Origin, ToolClass};
    use crate::ids::{AskId, SurfaceId, TurnId};
    use crate::stored_rules::MemoryRules;

    fn session() -> Session {
        Session::new(Arc::new([]), "/w".into(), None, false)
    }

    /// A patch of two files.
    fn patch(input: &str) -> AskRequest {
        let diff = |path: &str| FileChange { path: path.into(), before: None, after: Some("x".into()) };
        AskRequest {
            path: Some("/w/a".into()),
            input: Opaque(input.into()),
            preview: ["/w/a", "/w/b"].map(|path| ToolContent::Diff(diff(path))).to_vec(),
            ..AskRequest::new("patch", "/w/a", ToolClass::Edit)
        }
    }

    /// Somebody is asked this, and answers it for good.
    fn answer(session: &mut Session, number: u64, request: &AskRequest, resolution: Resolution) {
        let by = Resolver::Surface {
            id: SurfaceId(1),
            name: "phone".into(),
            remote: None,
            standing: Standing::Other,
        };
        let (ask, request) = (AskId(number), Box::new(request.clone()));
        session.observe(&Origin::Agent, Some(TurnId(1)), &Body::Asked { ask, request });
        let body = Body::Resolved { ask, call: None, resolution, by, reply: None, exactly: true };
        session.observe(&Origin::Engine, Some(TurnId(1)), &body);
    }

    fn granted(session: &Session, request: &AskRequest) -> Vec<Option<RuleEffect>> {
        let effect =
            |action: &AskRequest| session.granted(action, &MemoryRules::default()).map(|hit| hit.effect);
        request.by_file().iter().map(|action| effect(action)).collect()
    }

    #[test]
    fn an_answer_about_several_files_holds_for_each_of_them() {
        let mut session = session();
        answer(&mut session, 1, &patch("1"), Resolution::AllowedAlways);
        assert_eq!(granted(&session, &patch("1")), [Some(RuleEffect::Allow); 2]);
        assert_eq!(granted(&session, &patch("2")), [None; 2]);
        answer(&mut session, 2, &patch("1"), Resolution::DeniedAlways);
        assert_eq!(granted(&session, &patch("1")), [Some(RuleEffect::Deny); 2]);
    }

    #[test]
    fn as_many_are_kept_as_may_be_and_no_refusal_is_forgotten() {
        let mut session = session();
        let action = |number: u64| AskRequest {
            input: Opaque(number.to_string().into()),
            ..AskRequest::new("tool", "tool", ToolClass::Execute)
        };
        answer(&mut session, 0, &action(0), Resolution::DeniedAlways);
        let most = GRANTS_MAX as u64;
        for number in 1..=most {
            answer(&mut session, number, &action(number), Resolution::AllowedAlways);
        }
        assert_eq!(session.grants.by_arguments.len(), GRANTS_MAX);
        assert_eq!(granted(&session, &action(0)), [Some(RuleEffect::Deny)]);
        assert_eq!(granted(&session, &action(1)), [None]);
        assert_eq!(granted(&session, &action(2)), [Some(RuleEffect::Allow)]);
        assert_eq!(granted(&session, &action(most)), [Some(RuleEffect::Allow)]);
    }
}
