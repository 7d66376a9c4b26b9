//! `events.md`: every kind of event in a session's log, with the names that it has elsewhere.
//!
//! Names, fields and which of them may be missing come from the encoders and decoders, which are given a sample of each
//! kind; only the sentences are written by hand.

mod kinds;
mod samples;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use engine::{
    Body, CallId, Event, NoticeLevel, Opaque, Origin, OutputStream, Priority, Resolution, Risk, Seq,
    SessionId, StepStatus, Stop, SurfaceId, Timestamp, ToolClass, ToolKind, TurnId,
};
use serde_json::{Map, Value, json};
use wire::rest::{Messages, RestStream, StreamFormat};
use wire::{event_json, record};

use super::{cell, check_page};
use kinds::{ENVELOPE, EventKind, KINDS};

const HEAD: &str = "\
# Events

Every kind of event that a session's log can have. `event_type` is its name in the store, in exports
(`ropewalk sessions export`), in imports and in `GET /sessions/ID/transcript?format=json`. Made from what the program reads and
writes (`crates/wire/src/record`).

An event is one JSON object. Fields that are marked optional may be missing; unknown fields are ignored.

";

const KINDS_HEAD: &str = "
A large text can be stored elsewhere in the store; then its place has `{\"blob\": hash}`. Exports have every text in place. A path
that is not Unicode is `{\"bytes\": its bytes in hexadecimal}`.

## All kinds

The last three columns are its names in [REST](../dialects/rest.md): the types of `loop_event` (`GET /session/ID/events`), those of the
other form (`GET /sessions/ID/events`), and those of `GET /sessions/ID/messages`. A dash means that it is not shown there. `system` events
have a `subtype`.

| `event_type` | what happened | `loop_event` | `text_delta` | messages |
|---|---|---|---|---|
";

const TURN: TurnId = TurnId(1);

fn event(seq: u64, body: Body) -> Event {
    Event {
        seq: Seq(seq),
        at: Timestamp(1_700_000_000_000),
        origin: Origin::Agent,
        turn: Some(TURN),
        body,
        relayed: None,
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let sample = samples::all().remove(0);
    let surface = Origin::Surface {
        id: SurfaceId(1),
        name: "editor".into(),
        request: Some("1".into()),
        remote: Some("anna".into()),
    };
    let value = event_json::encode(&Event { origin: surface, relayed: None, ..event(1, sample) });
    // What is in these two depends on the event.
    let mut fields = value.as_object().unwrap().clone();
    fields.extend(["origin", "payload"].map(|name| (name.to_owned(), json!({}))));
    write_fields(&mut page, ENVELOPE, &fields, |field| {
        let mut without = value.clone();
        without.as_object_mut().unwrap().remove(field);
        event_json::decode(&without.to_string()).is_ok()
    });
    page.push_str(KINDS_HEAD);
    for kind in &KINDS {
        let bodies = samples_of(kind.name);
        let rest = [StreamFormat::Loop, StreamFormat::Delta].map(|form| stream_names(form, &bodies));
        let [loops, deltas] = rest.map(|names| joined(&names));
        let messages = joined(&message_names(&bodies));
        writeln!(
            page,
            "| [`{0}`](#{0}) | {1} | {loops} | {deltas} | {messages} |",
            kind.name,
            cell(kind.meaning)
        )
        .unwrap();
    }
    for kind in &KINDS {
        write_kind(&mut page, kind);
    }
    page
}

fn write_kind(page: &mut String, kind: &EventKind) {
    write!(page, "\n## {}\n\n{}\n\n", kind.name, kind.meaning).unwrap();
    let sample = event(1, samples_of(kind.name).remove(0));
    let value = event_json::encode(&sample);
    let fields = value["payload"].as_object().unwrap();
    if fields.is_empty() {
        page.push_str("It has no fields in `payload`.\n");
        return;
    }
    write_fields(page, kind.fields, fields, |field| {
        let mut without = value.clone();
        without["payload"].as_object_mut().unwrap().remove(field);
        event_json::decode(&without.to_string()).is_ok()
    });
}

/// The table of an object's fields: exactly those that it has.
fn write_fields(
    page: &mut String,
    told: &[(&str, &str)],
    fields: &Map<String, Value>,
    is_optional: impl Fn(&str) -> bool,
) {
    let names: BTreeSet<&str> = told.iter().map(|(name, _)| *name).collect();
    let known: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, known, "the fields in events/kinds.rs and those that are written");
    page.push_str("| field | type | |\n|---|---|---|\n");
    for (name, meaning) in told {
        let optional = if is_optional(name) { ", optional" } else { "" };
        writeln!(page, "| `{name}` | {}{optional} | {} |", type_of(&fields[*name]), cell(&filled(meaning)))
            .unwrap();
    }
}

/// The type of a sample's value, with the fields of objects.
fn type_of(value: &Value) -> String {
    match value {
        Value::Null => "text".into(),
        Value::Bool(_) => "true or false".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => format!("list of {}", items.first().map_or("values".into(), type_of)),
        Value::Object(fields) if fields.is_empty() => "object".into(),
        Value::Object(fields) => {
            // Sorted: their order would depend on how serde_json is built.
            let names: BTreeSet<String> = fields.keys().map(|name| format!("`{name}`")).collect();
            format!("object: {}", joined(&names))
        }
    }
}

/// Words of the engine in place of `{Stop}` and the like.
fn filled(text: &str) -> String {
    let words = |all: Vec<&str>| all.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    macro_rules! fill {
        ($text:expr, $($type:ident),+) => {{
            let mut text = $text.to_owned();
            $(
                let all = $type::ALL.iter().map(|value| value.as_str()).collect();
                text = text.replace(concat!("{", stringify!($type), "}"), &words(all));
            )+
            text
        }};
    }
    fill!(text, Stop, Risk, Resolution, ToolKind, ToolClass, NoticeLevel, OutputStream, Priority, StepStatus)
}

fn samples_of(name: &str) -> Vec<Body> {
    let bodies: Vec<Body> = samples::all().into_iter().filter(|body| record::kind(body) == name).collect();
    assert!(!bodies.is_empty(), "no sample of {name} in events/samples.rs");
    bodies
}

/// The types of the frames that events of this kind become, each in the middle of a turn.
fn stream_names(form: StreamFormat, bodies: &[Body]) -> BTreeSet<String> {
    let session = SessionId::parse("s-1").unwrap();
    let mut names = BTreeSet::new();
    for body in bodies {
        let mut stream = RestStream::new(&session, form, 0);
        let mut out = Vec::new();
        if !matches!(body, Body::TurnStarted) {
            stream.write(&event(1, Body::TurnStarted), 0, &mut Vec::new());
            let message = engine::MessageId(1);
            stream.write(&event(2, Body::Text { message, text: "a".into() }), 0, &mut Vec::new());
        }
        stream.write(&event(3, body.clone()), 0, &mut out);
        let text = String::from_utf8(out).unwrap();
        let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
        names.extend(frames.map(frame_name));
    }
    names
}

fn frame_name(frame: &str) -> String {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let data: Value = serde_json::from_str(field("data: ")).unwrap();
    let event = field("event: ");
    let inner = ["data", "metadata"].iter().find_map(|part| data.get(part));
    let subtype = inner.and_then(|inner| inner["subtype"].as_str());
    match (event, subtype) {
        ("loop_event" | "system", Some(subtype)) => format!("`system` `{subtype}`"),
        ("loop_event", None) => format!("`{}`", data["type"].as_str().unwrap()),
        (event, None) if data.get("type").is_none() => format!("event `{event}`"),
        (event, _) => format!("`{event}`"),
    }
}

fn message_names(bodies: &[Body]) -> BTreeSet<String> {
    let events: Vec<Arc<Event>> = bodies.iter().map(|body| Arc::new(event(1, body.clone()))).collect();
    let messages = Messages::of(&events);
    messages.iter().map(|message| format!("`{}`", message["event_type"].as_str().unwrap())).collect()
}

fn joined(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return "-".to_owned();
    }
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}

#[test]
fn the_reference_has_every_event() {
    check_page("events.md", &page());
}

/// The kinds that the store writes and those of the page.
#[test]
fn the_reference_and_the_store_know_the_same_events() {
    let source = include_str!("../../../wire/src/record/body.rs");
    let kinds = source.split_once("pub fn kind(").unwrap().1.split_once("\n}\n").unwrap().0;
    let written: Vec<&str> = kinds.split('"').skip(1).step_by(2).collect();
    assert_eq!(KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>(), written);
}

/// What an agent said word for word stands beside the fields of any kind.
#[test]
fn an_agents_own_words_are_beside_the_fields_of_any_event() {
    for body in samples::all() {
        let event = Event { relayed: Some(Opaque("{}".into())), ..event(1, body) };
        assert_eq!(event_json::encode(&event)["payload"]["relayed"], json!("{}"));
    }
    let task = Origin::Task { call: CallId("c1".into()) };
    assert_eq!(
        event_json::encode(&Event { origin: task, ..event(1, Body::Cleared) })["origin"]["task"]["call"],
        "c1"
    );
}
