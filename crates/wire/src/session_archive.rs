//! A whole session in one JSON object: `sessions export` writes it and `sessions import` reads it.

use std::fmt;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{Body, Event, NoticeLevel, Origin, Seq, SessionRow, Timestamp};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::event_json;
use crate::record::EventLoss;
use crate::timestamp::rfc3339;

pub const SCHEMA: &str = "ropewalk.session/1";

/// The schema of an export whose events only the holder of the machine's key can read: what a hub exports.
pub const SEALED_SCHEMA: &str = "ropewalk.session.sealed/1";

/// A session that was read from outside, in whatever form.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportedSession {
    pub title: Option<Arc<str>>,
    pub cwd: Option<PathBuf>,
    pub events: Vec<Event>,
    /// What was left out, and why.
    pub warnings: Vec<String>,
    /// The time of the last event, also if that event is not in `events`.
    pub at: Timestamp,
}

/// Everything in the file besides its events.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ArchiveHead {
    pub schema: String,
    pub title: Option<Arc<str>>,
    pub cwd: Option<PathBuf>,
    pub sealed: Option<SealingSession>,
}

/// The machine that sealed the file's events, and the session that they were sealed for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SealingSession {
    pub machine: String,
    pub session: String,
}

/// The sealed event in this text. `None` if the event is not sealed.
pub fn sealed_event(text: &str) -> Option<SealedEvent> {
    serde_json::from_str(text).ok()
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SealedEvent {
    /// It is sealed for this position alone.
    pub seq: u64,
    pub sealed: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it is not JSON, or not an exported session")]
    Malformed(#[source] serde_json::Error),
    #[error("its format is {0:?}, which this version cannot read")]
    UnknownSchema(String),
}

#[derive(Deserialize)]
struct ArchiveRecord<'a> {
    schema: String,
    #[serde(default)]
    session: SessionPart,
    #[serde(borrow, default)]
    events: Vec<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct SessionPart {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
}

pub fn encode(row: &SessionRow, events: &[Arc<Event>], exported_at: Timestamp) -> Value {
    envelope(row, events.iter().map(|event| event_json::encode(event)).collect(), exported_at)
}

pub(crate) fn envelope(row: &SessionRow, events: Vec<Value>, exported_at: Timestamp) -> Value {
    json!({
        "schema": SCHEMA,
        "session": session(row),
        "events": events,
        "exported_at": rfc3339(exported_at),
    })
}

/// A session's metadata, without its events.
pub fn session(row: &SessionRow) -> Value {
    json!({
        "id": row.id.as_str(),
        "title": row.title.as_deref(),
        "cwd": row.cwd.to_string_lossy(),
        "source": row.source.as_ref(),
        "parent_id": row.parent.as_ref().map(engine::SessionId::as_str),
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
        "status": status(row),
        "events": row.last_seq.0,
    })
}

pub fn status(row: &SessionRow) -> &'static str {
    if row.busy { "running" } else { "idle" }
}

/// Reads an export of ours. An event that cannot be read is left out and named in a warning.
pub fn decode(text: &str) -> Result<ImportedSession, ArchiveError> {
    let envelope: ArchiveRecord<'_> = serde_json::from_str(text).map_err(ArchiveError::Malformed)?;
    if envelope.schema != SCHEMA {
        return Err(ArchiveError::UnknownSchema(envelope.schema));
    }
    let mut imported = ImportedSession {
        title: envelope.session.title.map(Into::into),
        cwd: envelope.session.cwd,
        ..ImportedSession::default()
    };
    for (at, raw) in envelope.events.iter().enumerate() {
        imported.take(&format!("event {at}"), raw.get());
    }
    Ok(imported)
}

/// Reads a file from beginning to end with one event in memory, and passes each event's original text to
/// `each`. Stops when `each` says so.
pub fn scan(
    source: impl Read,
    each: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<ArchiveHead, ArchiveError> {
    let mut reader = serde_json::Deserializer::from_reader(source);
    let mut scanning = Scanning { head: ArchiveHead::default(), each, stopped: false };
    let scanned = Scan(&mut scanning).deserialize(&mut reader).and_then(|()| reader.end());
    match scanned {
        Err(error) if !scanning.stopped => Err(ArchiveError::Malformed(error)),
        Ok(()) | Err(_) => Ok(scanning.head),
    }
}

struct Scanning<'a> {
    head: ArchiveHead,
    each: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
    stopped: bool,
}

/// The top-level object of a file.
struct Scan<'a, 'b>(&'a mut Scanning<'b>);

impl<'de> DeserializeSeed<'de> for Scan<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Scan<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an exported session")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "schema" => self.0.head.schema = map.next_value()?,
                "session" => {
                    let SessionPart { title, cwd } = map.next_value()?;
                    (self.0.head.title, self.0.head.cwd) = (title.map(Into::into), cwd);
                }
                "sealed" => self.0.head.sealed = map.next_value()?,
                "events" => map.next_value_seed(ScanEvents(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct ScanEvents<'a, 'b>(&'a mut Scanning<'b>);

impl<'de> DeserializeSeed<'de> for ScanEvents<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ScanEvents<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of events")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some(raw) = list.next_element::<Box<RawValue>>()? {
            if (self.0.each)(raw.get()).is_break() {
                self.0.stopped = true;
                return Err(S::Error::custom("it was not read to its end"));
            }
        }
        Ok(())
    }
}

impl ImportedSession {
    /// Adds an event in its portable form, or leaves it out with a warning.
    pub fn take(&mut self, name: &str, text: &str) {
        match event_json::decode(text) {
            Ok(event) => {
                self.at = event.at;
                self.events.push(event);
            }
            Err(error) => self.leave_out(name, &error, loss(text)),
        }
    }

    /// Leaves an event out and names it. If the loss matters beyond the missing row, a notice takes the
    /// event's place. If the event may have decided what the agent may do, the session continues with the
    /// stricter of the possible states.
    pub(crate) fn leave_out(&mut self, name: &str, reason: &dyn std::fmt::Display, loss: EventLoss) {
        let warning = format!("{name} is left out: {reason}");
        if loss != EventLoss::default() {
            let at = self.events.last().map_or(self.at, |event| event.at);
            let text =
                format!("A part of this session could not be imported ({warning}).{}", loss.sentence());
            let level = if loss.decides { NoticeLevel::Damage } else { NoticeLevel::Error };
            let body = Body::Notice { level, text: text.into() };
            let (seq, origin) = (Seq::START, Origin::Engine);
            self.events.push(Event { seq, at, origin, turn: None, body, relayed: None });
        }
        self.warnings.push(warning);
    }
}

/// What an unreadable event may have contained.
fn loss(text: &str) -> EventLoss {
    #[derive(Deserialize)]
    struct Kind {
        event_type: String,
    }
    serde_json::from_str::<Kind>(text).map_or(EventLoss::ANY, |named| EventLoss::of(&named.event_type))
}
