//! The REST surface: JSON bodies, and a session's events as server-sent events.
//!
//! Two families of clients meet here. What they call by one name and mean by it the same is one
//! function; `docs/dialects/rest.md` says where they differ.

mod facts;
mod forms;
mod link;
mod messages;
mod runs;
mod session;
mod stream;
mod turns;

use engine::{AskId, SessionId, TurnId};

use crate::siblings::CHIMERA;

pub use link::{BadLink, DeepLink};
pub use messages::{MessageCount, Messages};
pub use runs::{Filter, Run, cost, list};
pub use session::{Status, created, info, listed, seconds, snapshot};
pub use stream::{FRAMES_PER_EVENT_MAX, Form, Stream};
pub use turns::Turns;

/// What a tool is called here.
pub fn tool_name(ours: &str) -> &str {
    CHIMERA.name(ours)
}

/// What a prompt is called: the same in the answer to it, in the stream, and after a restart.
pub fn message_id(session: &SessionId, turn: TurnId) -> String {
    format!("m{}.{session}", turn.0)
}

/// What a question is called. It names its session, so it is unique on the whole server.
pub fn permission_id(session: &SessionId, ask: AskId) -> String {
    format!("r{}.{session}", ask.0)
}

pub fn parse_permission(text: &str) -> Option<(AskId, SessionId)> {
    let (number, session) = text.strip_prefix('r')?.split_once('.')?;
    Some((AskId(number.parse().ok()?), SessionId::parse(session).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_named_in_one_way_only() {
        let session = SessionId::parse("s-1").unwrap();
        let text = permission_id(&session, AskId(7));
        assert_eq!(parse_permission(&text), Some((AskId(7), session)));
        for bad in
            ["", "r", "r7", "7.s-1", "r.s-1", "rx.s-1", "r7.", "r7.a/b", "r-7.s-1", "r99999999999999999999.s"]
        {
            assert_eq!(parse_permission(bad), None, "{bad}");
        }
    }
}
