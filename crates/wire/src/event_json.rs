//! An event outside its log: one JSON object, as in exports and imports.
//!
//! The body is in its stored form ([`crate::record`]), with every large text inline, so a file of
//! these is self-contained.

use engine::{Body, Event, Origin, Seq, Timestamp, TurnId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::json_errors;
use crate::record::{self, RecordError};

/// Turns and permission requests are numbered on from the highest number of a history, so an import must not
/// use up the numbers.
const NUMBER_MAX: u64 = 1 << 40;
/// The end of the year 9999. No clock shows a later time, and arithmetic with it would overflow.
pub(crate) const LAST_AT: Timestamp = Timestamp(253_402_300_799_999);

#[derive(Deserialize)]
struct Portable<'a> {
    event_type: String,
    #[serde(default = "first_version")]
    version: u32,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    at: i64,
    #[serde(default)]
    turn: Option<u64>,
    #[serde(default, borrow)]
    origin: Option<&'a RawValue>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

fn first_version() -> u32 {
    1
}

pub fn encode(event: &Event) -> Value {
    let parts =
        record::event_value(event).and_then(|payload| Ok((record::origin_value(&event.origin)?, payload)));
    // An event that cannot be stored would not be in a log.
    let Ok((origin, payload)) = parts else { return Value::Null };
    json!({
        "event_type": record::kind(&event.body),
        "version": record::VERSION,
        "seq": event.seq.0,
        "at": event.at.0,
        "turn": event.turn.map(|turn| turn.0),
        "origin": origin,
        "payload": payload,
    })
}

/// The same as [`encode`], directly as text: for writing many events.
pub fn line(event: &Event) -> Result<String, RecordError> {
    let (kind, version, seq, at) = (record::kind(&event.body), record::VERSION, event.seq.0, event.at.0);
    let turn = event.turn.map_or("null".to_owned(), |turn| turn.0.to_string());
    let mut line = format!(
        r#"{{"event_type":"{kind}","version":{version},"seq":{seq},"at":{at},"turn":{turn},"origin":"#
    )
    .into_bytes();
    record::encode_origin(&event.origin, &mut line)?;
    line.extend_from_slice(br#","payload":"#);
    record::encode_event(event, &mut |_| None, &mut line)?;
    line.push(b'}');
    // JSON is written as UTF-8, so nothing is lost.
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Reads an event from an untrusted source.
pub fn decode(text: &str) -> Result<Event, RecordError> {
    let event = decode_own(text)?;
    let ask = if let Body::Asked { ask, .. } | Body::Resolved { ask, .. } = &event.body { ask.0 } else { 0 };
    for (field, number) in [("turn", event.turn.map_or(0, |turn| turn.0)), ("ask", ask)] {
        if number > NUMBER_MAX {
            return Err(RecordError::TooHigh { field, number });
        }
    }
    if !(Timestamp(0)..=LAST_AT).contains(&event.at) {
        return Err(RecordError::BadTime);
    }
    Ok(event)
}

/// Why an event could not be read, and which field is wrong, for people who write events by hand.
pub(crate) fn what_is_wrong(text: &str, error: &RecordError) -> String {
    let RecordError::Malformed(source) = error else { return error.to_string() };
    match json_errors::read::<Portable<'_>>(text, "the event") {
        Err(wrong) => wrong.to_string(),
        Ok(_) => json_errors::in_words(source, "`payload`").to_string(),
    }
}

/// Reads an event that our own log wrote, without the limits for imports.
pub fn decode_own(text: &str) -> Result<Event, RecordError> {
    let portable: Portable<'_> = serde_json::from_str(text)?;
    let body =
        record::decode(&portable.event_type, portable.version, portable.payload.get().as_bytes(), &|_| None)?;
    let origin = match portable.origin {
        Some(raw) => record::decode_origin(raw.get().as_bytes())?,
        None => Origin::Engine,
    };
    let turn = portable.turn.map(TurnId);
    let relayed = record::decode_relayed(portable.payload.get().as_bytes(), &|_| None)?;
    Ok(Event { seq: Seq(portable.seq), at: Timestamp(portable.at), origin, turn, body, relayed })
}
