//! One row of the chain: how it is written and verified.
//!
//! `hmac = HMAC-SHA256(key, prev_hmac + row without hmac)`, over the very bytes in the file.
//! So every byte of a line is covered: the signature by comparison, all other bytes by being signed.

use engine::Timestamp;
use memchr::memmem;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::canonical_json;
use super::key::AuditKey;

/// The predecessor of the first row.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Characters of a text that is quoted in a row.
const TEXT_CHARS_MAX: usize = 512;
/// Items of a list in a row.
const ITEMS_MAX: usize = 8;
const HMAC_CHARS: usize = 64;
const HMAC_FIELD: &[u8] = b", \"hmac\": \"";
const PREV_FIELD: &[u8] = b", \"prev_hmac\": \"";
const ID_FIELD: &[u8] = b"\", \"resource_id\": \"";

/// Something that happened, to be written as a row.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// `session.created`, `tool.call`.
    pub event_type: &'static str,
    pub actor: String,
    pub resource_type: &'static str,
    pub resource_id: String,
    /// No fractions. `seq` is reserved for positions in a session's log.
    pub details: Map<String, Value>,
}

impl AuditEntry {
    /// The same with nothing in it that is longer than a row should quote: names come from clients.
    pub(super) fn bounded(mut self) -> Self {
        cut(&mut self.actor);
        cut(&mut self.resource_id);
        self.details.values_mut().for_each(cut_all);
        self
    }
}

fn cut_all(value: &mut Value) {
    match value {
        Value::String(text) => cut(text),
        Value::Array(items) => {
            items.truncate(ITEMS_MAX);
            items.iter_mut().for_each(cut_all);
        }
        Value::Object(fields) => fields.values_mut().for_each(cut_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
}

/// A row as it is stored in a file.
#[derive(Debug, Clone, Deserialize)]
pub struct AuditRow {
    pub timestamp: String,
    pub event_type: String,
    pub actor: String,
    pub resource_type: String,
    pub resource_id: String,
    pub details: Map<String, Value>,
    pub prev_hmac: String,
    pub hmac: String,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowFlaw {
    #[error("this is not a row of the chain")]
    NotARow,
    #[error("this row does not follow the one before it: rows were removed, repeated, moved or put in")]
    WrongPlace,
    #[error("this row was changed after it was written")]
    Changed,
}

impl AuditRow {
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// The position in a session's log that this row is about.
    pub(super) fn seq(&self) -> Option<u64> {
        if self.resource_type == "session" { self.details.get("seq")?.as_u64() } else { None }
    }
}

/// Appends the entry's line to `out`; its signature is what the next one follows.
pub(super) fn write(key: &AuditKey, prev: &str, entry: &AuditEntry, out: &mut Vec<u8>) -> String {
    let mut head = String::from("{\"actor\": ");
    canonical_json::string(&entry.actor, &mut head);
    head.push_str(", \"details\": ");
    canonical_json::write(&Value::Object(entry.details.clone()), &mut head);
    head.push_str(", \"event_type\": ");
    canonical_json::string(entry.event_type, &mut head);
    let mut tail = String::from(", \"prev_hmac\": \"");
    tail.push_str(prev);
    tail.push_str("\", \"resource_id\": ");
    canonical_json::string(&entry.resource_id, &mut tail);
    tail.push_str(", \"resource_type\": ");
    canonical_json::string(entry.resource_type, &mut tail);
    tail.push_str(", \"timestamp\": ");
    canonical_json::string(&wire::timestamp::rfc3339(entry.at), &mut tail);
    tail.push('}');
    let hmac = key.sign(&[prev.as_bytes(), head.as_bytes(), tail.as_bytes()]);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(HMAC_FIELD);
    out.extend_from_slice(hmac.as_bytes());
    out.push(b'"');
    out.extend_from_slice(tail.as_bytes());
    out.push(b'\n');
    hmac
}

/// The row on this line, if it is genuine and follows `prev`.
pub(super) fn read(key: &AuditKey, prev: &str, line: &[u8]) -> Result<AuditRow, RowFlaw> {
    let Some(hmac) = signature(key, prev, line) else { return Err(diagnose(key, prev, line)) };
    // The place of the signature in the line is not signed; there is only one possible place.
    let row = AuditRow::parse(line).ok_or(RowFlaw::NotARow)?;
    if row.prev_hmac == prev && row.hmac.as_bytes() == hmac { Ok(row) } else { Err(RowFlaw::Changed) }
}

/// The line's signature, if it is correct for the rest of the line and the line follows `prev`. It is right
/// before the predecessor's signature, because keys are sorted.
pub(super) fn signature<'l>(key: &AuditKey, prev: &str, line: &'l [u8]) -> Option<&'l [u8]> {
    let (head, rest) = line.split_at_checked(memmem::rfind(line, HMAC_FIELD)?)?;
    let (stated, tail) = rest.get(HMAC_FIELD.len()..)?.split_at_checked(HMAC_CHARS)?;
    let tail = tail.strip_prefix(b"\"")?;
    let after = tail.strip_prefix(PREV_FIELD)?.strip_prefix(prev.as_bytes())?;
    let fits = after.starts_with(ID_FIELD) && key.sign(&[prev.as_bytes(), head, tail]).as_bytes() == stated;
    fits.then_some(stated)
}

fn diagnose(key: &AuditKey, prev: &str, line: &[u8]) -> RowFlaw {
    let Some(row) = AuditRow::parse(line) else { return RowFlaw::NotARow };
    if row.prev_hmac != prev && signature(key, &row.prev_hmac, line).is_some() {
        return RowFlaw::WrongPlace;
    }
    RowFlaw::Changed
}
