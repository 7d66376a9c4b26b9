//! What a trace consists of, and the names of its parts.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Seq, SessionId, Timestamp, TurnId};
use sha2::{Digest, Sha256};

/// A name that is longer is not a name.
const NAME_BYTES_MAX: usize = 64;
/// Stands for a name that may be a text.
const NO_NAME: &str = "other";

/// The spans of one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub id: TraceId,
    /// The turn's own span is the last.
    pub spans: Vec<Span>,
    /// Spans for which there was no room.
    pub left_out: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub name: Cow<'static, str>,
    pub start: Timestamp,
    pub end: Timestamp,
    pub failed: bool,
    pub facts: Vec<(&'static str, Fact)>,
}

/// What is told of a span beside its name and its times.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    Word(Arc<str>),
    Number(i64),
    Amount(f64),
    Truth(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

impl Trace {
    pub fn count(&self) -> u64 {
        u64::try_from(self.spans.len()).unwrap_or(u64::MAX)
    }
}

impl TraceId {
    /// The same for everybody who reads this session's log.
    pub fn of(session: &SessionId, turn: TurnId) -> Self {
        Self(first(&digest(session, turn, None)))
    }

    pub fn hex(self) -> String {
        hex(&self.0)
    }
}

impl SpanId {
    /// The span that begins with the event at this position.
    pub fn of(session: &SessionId, turn: TurnId, at: Seq) -> Self {
        Self(first(&digest(session, turn, Some(at))))
    }

    pub fn hex(self) -> String {
        hex(&self.0)
    }
}

impl Fact {
    pub fn count(count: u64) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// A name that an agent or a client chose, if it looks like one. Anything else could be a text.
pub fn name(text: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    let is_name = !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_plain);
    if is_name { text } else { NO_NAME }
}

/// Session ids have no colons, so no two things give the same text.
fn digest(session: &SessionId, turn: TurnId, at: Option<Seq>) -> [u8; 32] {
    let at = at.map_or_else(String::new, |at| at.to_string());
    Sha256::digest(format!("{session}:{}:{at}", turn.0)).into()
}

fn first<const N: usize>(digest: &[u8; 32]) -> [u8; N] {
    let mut id = [0; N];
    id.copy_from_slice(&digest[..N]);
    // All zeros means "no id" to a collector.
    id[N - 1] |= 1;
    id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
