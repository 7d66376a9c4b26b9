//! Traces, spans and their ids.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Seq, SessionId, Timestamp, TurnId};
use sha2::{Digest, Sha256};

/// Longer names are replaced.
const NAME_BYTES_MAX: usize = 64;
/// Replaces a name that may be text.
const NO_NAME: &str = "other";

/// The spans of one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub id: TraceId,
    /// The span of the turn itself is the last one.
    pub spans: Vec<Span>,
    /// Number of spans that were left out.
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
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// An attribute value of a span.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
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
    /// Derived from the session and turn, so every reader of the log gets the same id.
    pub fn of(session: &SessionId, turn: TurnId) -> Self {
        Self(first(&digest(session, turn, None)))
    }

    pub fn hex(self) -> String {
        hex(&self.0)
    }
}

impl SpanId {
    /// The id of the span that starts with the event at this position.
    pub fn of(session: &SessionId, turn: TurnId, at: Seq) -> Self {
        Self(first(&digest(session, turn, Some(at))))
    }

    pub fn hex(self) -> String {
        hex(&self.0)
    }
}

impl Attribute {
    pub fn count(count: u64) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// A name from an agent or client, if it looks like a name. Anything else could be text and is replaced.
pub fn name(text: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    let is_name = !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_plain);
    if is_name { text } else { NO_NAME }
}

/// Session ids contain no colons, so the input is unambiguous.
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
