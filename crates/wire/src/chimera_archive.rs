//! Sessions in the form that chimera's ferret and otter store: a folder with a summary and one file per
//! event, or all of it in one JSON envelope.
//!
//! Each event that we write carries our own event in its metadata, so that nothing is lost on the way back.
//! Beside it are the fields that chimera itself looks for (`user_message`, `agent_result`, `tool_call` ...),
//! so that its tools can show and resume the session; chimera skips kinds that it does not know.
//!
//! **Invariant:** the same session is always written the same way, names of files included.

mod read;

use std::collections::HashMap;
use std::sync::Arc;

use engine::{
    Body, Event, Family, SessionId, SessionRow, SpeechEvent, Stop, Timestamp, ToolEvent, TurnEvent, TurnId,
};
use serde_json::{Map, Value, json};

pub use self::read::{EventFile, Reader, Summary, event_file_index, position, read, read_envelope};
use crate::event_json;
use crate::ferret_otter_common::CHIMERA;
use crate::session_export_writer::DocumentFacts;
use crate::timestamp::{compact, rfc3339};
use crate::transcript_text::blocks;
use crate::turn_text::TurnText;
use crate::{ferret, otter};

pub const SCHEMA: &str = "chimera.otter.session/1";
/// Name prefixes of the session folders that are listed and imported, and of the ids of such sessions.
pub const PREFIXES: [&str; 2] = [ferret::ID_PREFIX, otter::ID_PREFIX];
/// The file that describes the session, in its folder.
pub const SUMMARY: &str = "summary.json";
/// The lock file (`flock`) for writers in the folder.
pub const LOCK: &str = ".lock";
/// The first part of a folder's name says who wrote it.
const WRITER: &str = "ropewalk";
/// The metadata field that holds our own event.
const OURS: &str = "ropewalk";

/// Limit for the text of one turn's answer. It repeats earlier events, so the beginning is enough for a very
/// long one.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A session in chimera's form.
#[derive(Debug, Clone, PartialEq)]
pub struct ChimeraFolder {
    pub name: String,
    pub summary: Value,
    /// Names and contents of the event files, in order.
    pub events: Vec<(String, Value)>,
}

pub fn write(row: &SessionRow, events: &[Arc<Event>]) -> ChimeraFolder {
    let (mut writer, mut facts) = (Writer::new(row), DocumentFacts::default());
    let files = events.iter().map(|event| {
        facts.observe(event);
        writer.file(event)
    });
    let events = files.collect();
    let summary = summary(row, &facts);
    ChimeraFolder { name: folder_name(row), summary, events }
}

/// The folder's name, always the same for a session: its id, if that is of chimera's kind.
pub fn folder_name(row: &SessionRow) -> String {
    if PREFIXES.iter().any(|prefix| row.id.as_str().starts_with(prefix)) {
        return row.id.to_string();
    }
    format!("{WRITER}-{}-{}", compact(row.created_at), eight_digits(row.id.as_str()))
}

/// Writes the events one after the other.
pub struct Writer {
    session: SessionId,
    index: usize,
    answers: TurnAnswers,
}

impl Writer {
    pub fn new(row: &SessionRow) -> Self {
        Self { session: row.id.clone(), index: 0, answers: TurnAnswers::default() }
    }

    /// The index of the next file; the files before it exist already.
    pub fn go_on_at(&mut self, index: usize) {
        self.index = index;
    }

    /// Records an event whose file exists already. Later files of its turn depend on it.
    pub fn pass(&mut self, event: &Event) {
        drop(self.answers.shape(event));
    }

    /// The name and the content of the next event's file.
    pub fn file(&mut self, event: &Event) -> (String, Value) {
        let idx = self.index;
        self.index += 1;
        let id = format!("{:08x}", hash(format!("{}/{}", self.session, event.seq).as_bytes()));
        let (mut kind, mut metadata) = self.answers.shape(event);
        if let Some(parent) = event.origin.task() {
            // This kind is ours, so chimera skips it: otherwise it would take a sub-agent's text for the
            // agent's.
            kind = crate::record::kind(&event.body);
            metadata.insert("parent".into(), json!(parent.0.as_ref()));
        }
        if let Some(user) = remote_user(event) {
            metadata.insert("bridge".into(), json!({ "origin": "bridge", "remote_user": user }));
        }
        metadata.insert("event_id".into(), json!(id));
        metadata.insert(OURS.into(), event_json::encode(event));
        let file = json!({
            "idx": idx,
            "event_id": id,
            "type": kind,
            "timestamp": seconds(event.at),
            "metadata": metadata,
        });
        (format!("event-{idx:06}-{id}.json"), file)
    }
}

impl ChimeraFolder {
    /// The same in one object.
    pub fn envelope(self, exported_at: Timestamp) -> Value {
        let events = self.events.into_iter().map(|(_, event)| event).collect();
        envelope(self.summary, events, exported_at)
    }
}

pub(crate) fn envelope(summary: Value, events: Vec<Value>, exported_at: Timestamp) -> Value {
    json!({
        "schema": SCHEMA,
        "summary": summary,
        "events": events,
        "exported_at": rfc3339(exported_at),
    })
}

/// What chimera shows of a session without reading its events.
pub fn summary(row: &SessionRow, facts: &DocumentFacts) -> Value {
    let (name, transcript) = (folder_name(row), facts.transcript());
    let tokens = transcript.totals.input.saturating_add(transcript.totals.output);
    json!({
        "run_id": name,
        "session_id": name,
        "started_at": rfc3339(transcript.first_at.unwrap_or(row.created_at)),
        "ended_at": rfc3339(transcript.last_at.unwrap_or(row.updated_at)),
        "model": facts.model.as_deref(),
        "prompt": facts.prompt.as_deref().unwrap_or_default(),
        "cwd": row.cwd.to_string_lossy(),
        "agent": WRITER,
        "steps": transcript.turns,
        "tool_calls_total": facts.tool_calls,
        "success": facts.end.as_ref().is_none_or(|(stop, _)| *stop == Stop::EndTurn),
        "cost_usd": transcript.totals.known_usd(),
        "total_tokens": tokens,
        "error": facts.end.as_ref().and_then(|(_, error)| error.as_deref()),
        "title": row.title.as_deref(),
        "parent_id": row.parent.as_ref().map(engine::SessionId::as_str),
    })
}

/// The user of another machine who caused the event over a bridge.
fn remote_user(event: &Event) -> Option<&str> {
    let resolver = if let Body::Resolved { by, .. } = &event.body { by.remote() } else { None };
    event.origin.remote().or(resolver).map(|user| &**user)
}

/// The agent's text in the turns that are not over, for chimera's `agent_result`.
#[derive(Default)]
struct TurnAnswers {
    open: HashMap<Option<TurnId>, TurnAnswer>,
}

#[derive(Default)]
struct TurnAnswer {
    said: TurnText,
    tool_calls: u64,
    spent: engine::Totals,
}

impl TurnAnswers {
    /// The kind and the fields of this event in chimera's form, if it has one.
    fn shape(&mut self, event: &Event) -> (&'static str, Map<String, Value>) {
        let fields = match event.body.family() {
            Family::Turn(TurnEvent::UserMessage { content }) => json!({ "content": blocks(content) }),
            Family::Speech(SpeechEvent::Text { text, .. }) => {
                self.open.entry(event.turn).or_default().said.observe(event, ANSWER_BYTES_MAX);
                json!({ "content": text.as_ref() })
            }
            Family::Tool(ToolEvent::Started(start)) => {
                self.open.entry(event.turn).or_default().tool_calls += 1;
                // Input that is not JSON becomes empty arguments.
                let arguments =
                    Some(CHIMERA.input(&start.tool, &start.input)).filter(|input| !input.is_string());
                json!({ "tool_name": CHIMERA.name(&start.tool), "arguments": arguments, "call_id": start.call.0.as_ref() })
            }
            Family::Tool(ToolEvent::Ended(end)) => {
                let output: Vec<_> = end.content.iter().filter_map(read::content_text).collect();
                json!({ "call_id": end.call.0.as_ref(), "output": output.join("\n"), "success": !end.failed })
            }
            Family::Usage(usage) => {
                self.open.entry(event.turn).or_default().spent.add(usage);
                json!({})
            }
            Family::Turn(TurnEvent::Ended { stop, error }) => {
                let answer = self.open.remove(&event.turn).unwrap_or_default();
                json!({
                    "output": answer.said.text,
                    "steps": 1,
                    "tool_calls_total": answer.tool_calls,
                    "cost": answer.spent.known_usd(),
                    "success": stop == Stop::EndTurn,
                    "error": error.map(AsRef::<str>::as_ref),
                })
            }
            Family::Turn(
                TurnEvent::Queued { .. } | TurnEvent::Started | TurnEvent::CancelRequested { .. },
            )
            | Family::Speech(SpeechEvent::Thought { .. } | SpeechEvent::Output { .. })
            | Family::Tool(ToolEvent::Changed(_))
            | Family::Permission(_)
            | Family::Setup(_)
            | Family::Context(_)
            | Family::Other => json!({}),
        };
        let Value::Object(fields) = fields else { return (name_of(&event.body), Map::new()) };
        (name_of(&event.body), fields)
    }
}

/// Chimera's name if it has one, otherwise ours.
fn name_of(body: &Body) -> &'static str {
    match crate::record::kind(body) {
        "text" => "text_delta",
        "tool_started" => "tool_call",
        "tool_ended" => "tool_result",
        "turn_ended" => "agent_result",
        kind => kind,
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of this era fit 53 bits")]
fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1000.0
}

/// The beginning of the session's id if it is hexadecimal, as in random ids.
fn eight_digits(id: &str) -> String {
    let start =
        id.get(..8).filter(|start| start.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    start.map_or_else(|| format!("{:08x}", hash(id.as_bytes())), str::to_owned)
}

/// FNV-1a: eight hexadecimal digits that only have to differ.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
