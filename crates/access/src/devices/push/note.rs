//! The content of a push: that something happened, and in which session; never what.
//!
//! Push services belong to others, and a locked screen shows a notification to whoever holds the phone.
//! So there is no title, command, path or text in a note. The device asks for those itself, with its own
//! cookie, when somebody unlocks it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::{AskId, SessionId};
use serde::Serialize;
use sha2::{Digest, Sha256};
use wire::native::Role;

/// The version in every note, so that a service worker that is older or newer knows what it reads.
const VERSION: u8 = 1;
/// The standard's longest topic.
const TOPIC_CHARS: usize = 32;
/// An ask waits for its person, who may be asleep; after a day a person looks anyway.
const ASK_TTL_SECONDS: u32 = 24 * 60 * 60;
const ENDED_TTL_SECONDS: u32 = 4 * 60 * 60;
const TEST_TTL_SECONDS: u32 = 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushNote {
    /// Something waits for a person.
    Ask {
        session: SessionId,
        ask: AskId,
    },
    /// The ask of an earlier note is settled.
    Clear {
        session: SessionId,
        ask: AskId,
    },
    /// A turn has ended.
    Ended {
        session: SessionId,
    },
    Failed {
        session: SessionId,
    },
    /// A test push.
    Test,
}

#[derive(Serialize)]
struct Payload<'a> {
    v: u8,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ask: Option<u64>,
}

impl PushNote {
    pub(super) fn payload(&self) -> Vec<u8> {
        let session = self.session().map(SessionId::as_str);
        let payload = Payload { v: VERSION, kind: self.kind(), session, ask: self.ask().map(|ask| ask.0) };
        // A struct of words and numbers has nothing in it that JSON cannot say.
        serde_json::to_vec(&payload).unwrap_or_default()
    }

    /// The least role that gets this note: a device that may not answer need not know of an ask.
    pub(super) fn takes(&self) -> Role {
        match self {
            Self::Ask { .. } => Role::Approver,
            Self::Clear { .. } | Self::Ended { .. } | Self::Failed { .. } | Self::Test => Role::Viewer,
        }
    }

    /// How long the push service keeps it for a device that is offline. The note that clears an ask lasts as long as
    /// the ask's note: it replaces it there.
    pub(super) fn ttl_seconds(&self) -> u32 {
        match self {
            Self::Ask { .. } | Self::Clear { .. } => ASK_TTL_SECONDS,
            Self::Ended { .. } | Self::Failed { .. } => ENDED_TTL_SECONDS,
            Self::Test => TEST_TTL_SECONDS,
        }
    }

    pub(super) fn urgency(&self) -> &'static str {
        match self {
            Self::Ask { .. } | Self::Test => "high",
            Self::Clear { .. } | Self::Ended { .. } | Self::Failed { .. } => "normal",
        }
    }

    /// Of two notes with the same topic the push service keeps only the later one for a device that is
    /// away. Each ask has a topic of its own, which it shares with what clears it: with one topic for
    /// the session, clearing one ask would take away another. The topic is a digest, so that the push
    /// service does not learn the session's id.
    pub(super) fn topic(&self) -> Option<String> {
        let (session, about) = match self {
            Self::Ask { session, ask } | Self::Clear { session, ask } => (session, format!("ask {}", ask.0)),
            Self::Ended { session } | Self::Failed { session } => (session, "ended".to_owned()),
            Self::Test => return None,
        };
        let digest = Sha256::digest(format!("ropewalk push {session} {about}"));
        let mut topic = URL_SAFE_NO_PAD.encode(digest);
        topic.truncate(TOPIC_CHARS);
        Some(topic)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Ask { .. } => "ask",
            Self::Clear { .. } => "clear",
            Self::Ended { .. } => "ended",
            Self::Failed { .. } => "failed",
            Self::Test => "test",
        }
    }

    fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Ask { session, .. }
            | Self::Clear { session, .. }
            | Self::Ended { session }
            | Self::Failed { session } => Some(session),
            Self::Test => None,
        }
    }

    fn ask(&self) -> Option<AskId> {
        match self {
            Self::Ask { ask, .. } | Self::Clear { ask, .. } => Some(*ask),
            Self::Ended { .. } | Self::Failed { .. } | Self::Test => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionId {
        SessionId::parse("s-1").unwrap()
    }

    fn text(note: &PushNote) -> String {
        String::from_utf8(note.payload()).unwrap()
    }

    #[test]
    fn a_note_says_what_kind_of_thing_and_where_and_nothing_else() {
        let ask = AskId(7);
        for (note, payload) in [
            (PushNote::Ask { session: session(), ask }, r#"{"v":1,"kind":"ask","session":"s-1","ask":7}"#),
            (
                PushNote::Clear { session: session(), ask },
                r#"{"v":1,"kind":"clear","session":"s-1","ask":7}"#,
            ),
            (PushNote::Ended { session: session() }, r#"{"v":1,"kind":"ended","session":"s-1"}"#),
            (PushNote::Failed { session: session() }, r#"{"v":1,"kind":"failed","session":"s-1"}"#),
            (PushNote::Test, r#"{"v":1,"kind":"test"}"#),
        ] {
            assert_eq!(text(&note), payload);
        }
    }

    #[test]
    fn what_clears_an_ask_takes_its_place_and_no_other_asks() {
        let topic = |note: PushNote| note.topic().unwrap();
        let ask = |ask| topic(PushNote::Ask { session: session(), ask: AskId(ask) });
        assert_eq!(ask(1), topic(PushNote::Clear { session: session(), ask: AskId(1) }));
        assert_ne!(ask(1), ask(2));
        assert_eq!(
            topic(PushNote::Ended { session: session() }),
            topic(PushNote::Failed { session: session() })
        );
        assert_ne!(ask(1), topic(PushNote::Ended { session: session() }));
        let url_safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        assert!(ask(1).len() <= 32 && ask(1).bytes().all(url_safe) && !ask(1).contains("s-1"));
    }
}
