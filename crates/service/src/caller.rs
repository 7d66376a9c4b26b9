//! The caller of a command: who sends it, and what they may do.

use engine::{Act, CallerKind, Forbidden, Principal, Sender, SessionId, sets_approval};

/// The refusal for callers that want to answer, or to change what is asked, where only the machine's owner
/// may.
const LOCAL_ANSWERS: &str =
    "permission requests can be answered only on the agent's own machine (it runs with --answers local-only)";

/// Somebody who uses sessions. Made where a connection or a request comes in, only from who they are.
#[derive(Debug, Clone)]
pub struct Caller {
    pub kind: CallerKind,
    /// Whose sessions these are.
    pub principal: Principal,
    /// The one session that they were let into, for the kinds that have one.
    pub session: Option<SessionId>,
    /// Whatever they send goes into the log under this name. Its standing is that of the kind.
    pub sender: Sender,
    /// Requests of the agent are answered only at the machine, whatever this caller's role is. A caller that
    /// may not answer may not change what is asked either.
    pub local_answers: bool,
}

impl Caller {
    pub fn new(kind: CallerKind, principal: Principal, sender: Sender) -> Self {
        let sender = Sender { standing: kind.standing(), ..sender };
        Self { kind, principal, session: None, sender, local_answers: false }
    }

    /// The same for one session alone.
    #[must_use]
    pub fn of_session(self, session: SessionId) -> Self {
        Self { session: Some(session), ..self }
    }

    /// Whether they may do this at all. A caller that acts for a named client may do no more than the
    /// client.
    pub fn may(&self, act: Act) -> Result<(), Forbidden> {
        if self.local_answers && matches!(act, Act::Allow | Act::Deny | Act::SetApproval) {
            return Err(Forbidden(LOCAL_ANSWERS.into()));
        }
        if self.principal != Principal::local() {
            CallerKind::NamedClient.may(act)?;
        }
        self.kind.may(act)
    }

    /// Whether they may do this to the session. A session that is not theirs does not exist for them.
    pub(crate) fn reaches(&self, act: Act, session: &SessionId) -> bool {
        !self.kind.is_for_one_session(act) || self.session.as_ref() == Some(session)
    }

    /// Whether they may give this prompt: one that is a command may change what the agent asks.
    pub(crate) fn may_prompt(&self, text: &str) -> Result<(), Forbidden> {
        if sets_approval(text) { self.may(Act::SetApproval) } else { Ok(()) }
    }

    /// Whether they see sessions that are in another program's folders, and whether the folders of a session are
    /// theirs to choose.
    pub(crate) fn is_owner(&self) -> bool {
        self.kind == CallerKind::Owner && self.principal == Principal::local()
    }
}

#[cfg(test)]
mod tests {
    use engine::SurfaceId;

    use super::*;

    fn operator(local_answers: bool) -> Caller {
        let sender = Sender::new(SurfaceId(1), "phone");
        Caller { local_answers, ..Caller::new(CallerKind::Driver, Principal::local(), sender) }
    }

    #[test]
    fn where_the_owner_alone_answers_nobody_else_changes_what_is_asked() {
        let (free, bound) = (operator(false), operator(true));
        for fine in ["/permissions", "/permissions list", " /status", "/approval", "say /approval full"] {
            assert_eq!(bound.may_prompt(fine), Ok(()), "{fine}");
        }
        for asked in ["/approval full", "  /approval\tauto", "/approval x y", "/yolo", " /yolo now"] {
            assert_eq!(free.may_prompt(asked), Ok(()), "{asked}");
            assert!(bound.may_prompt(asked).is_err(), "{asked}");
        }
        assert!(bound.may(Act::Allow).is_err() && bound.may(Act::Prompt).is_ok());
    }

    #[test]
    fn a_device_of_a_client_may_do_no_more_than_the_client() {
        let sender = Sender::new(SurfaceId(1), "tablet");
        let client = Caller::new(CallerKind::Driver, Principal("acme".into()), sender);
        assert!(client.may(Act::ReadRules).is_err() && client.may(Act::Prompt).is_ok());
        assert!(operator(false).may(Act::ReadRules).is_ok());
    }
}
