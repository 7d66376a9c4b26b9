//! Identifiers: one newtype per kind, so that they cannot be mixed up.
//!
//! **Invariant:** a [`SessionId`] holds 1 to 128 characters of `[A-Za-z0-9_-]`, so it is safe in a
//! path, a header, a log line and an SQL parameter without further checks.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest session id that is accepted from anybody.
pub const SESSION_ID_CHARS_MAX: usize = 128;

/// The id of a session, for ever: it survives restarts and is never given to another session.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a session id has 1 to {SESSION_ID_CHARS_MAX} characters of A-Z, a-z, 0-9, '_' and '-'")]
pub struct BadSessionId;

impl SessionId {
    /// A fresh random id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }

    pub fn parse(text: &str) -> Result<Self, BadSessionId> {
        let well_formed = !text.is_empty()
            && text.len() <= SESSION_ID_CHARS_MAX
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if well_formed { Ok(Self(text.into())) } else { Err(BadSessionId) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.0)
    }
}

/// Position of an event in its session's log. Dense from 1, but for the gap that a power
/// cut may leave; 0 means "before the first".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(pub u64);

impl Seq {
    pub const START: Seq = Seq(0);

    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A turn within a session: counted from 1, in the order the prompts were accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

/// A permission request within a session, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AskId(pub u64);

/// A message within a session: chunks with the same id belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub u64);

/// One invocation of a tool. Unique across sessions, because editors index by it alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub Arc<str>);

impl CallId {
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }
}

/// One connection. Ids are random, not counted: ids of an earlier process are in the log, and a new
/// connection must not be taken for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SurfaceId(pub u64);

impl SurfaceId {
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().as_u64_pair().0)
    }
}

/// Fences writers: the last process that claimed the session has the highest epoch, and all others are
/// refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Who a connection acts for. Sessions belong to a principal and are invisible to all others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(pub Arc<str>);

impl Principal {
    /// The person who started this process.
    pub fn local() -> Self {
        Self("local".into())
    }
}

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

/// The time of day. Injected, because tests own the time.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_are_bounded_and_plain() {
        for good in ["a", "ferret-20260101T000000-0123abcd", "A_b-9", &"x".repeat(128)] {
            assert!(SessionId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "../x", "a\n", "ä", "a\0", &"x".repeat(129)] {
            assert!(SessionId::parse(bad).is_err(), "{bad:?}");
        }
    }
}
