//! The REST API: JSON bodies, and a session's events as server-sent events.
//!
//! Two families of clients use it. Where both mean the same by a name, there is one function;
//! `docs/dialects/rest.md` lists the differences.

mod event_data;
mod event_stream;
mod messages;
mod new_session_link;
mod run_summary;
mod session;
mod stream_frames;
mod turns;

use engine::{AskId, SessionId, TurnId};

use crate::ferret_otter_common::CHIMERA;

pub use event_stream::{FRAMES_PER_EVENT_MAX, RestStream, StreamFormat};
pub use messages::{MessageCount, Messages};
pub use new_session_link::{DeepLink, DeepLinkError};
pub use run_summary::{RunFilter, RunSummary, cost, list};
pub use session::{RunStatus, created, info, listed, seconds, snapshot};
pub use turns::TurnList;

/// A tool's name in the REST API.
pub fn tool_name(ours: &str) -> &str {
    CHIMERA.name(ours)
}

/// The id of a prompt: the same in the response, in the stream, and after a restart.
pub fn message_id(session: &SessionId, turn: TurnId) -> String {
    format!("m{}.{session}", turn.0)
}

/// The id of a permission request. It contains its session, so it is unique on the server.
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
