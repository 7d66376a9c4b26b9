//! Sessions as chimera's ferret and otter keep them: a folder with a summary and one file per event,
//! or all of it in one JSON envelope.
//!
//! What we write carries our own event in each event's metadata, so that it comes back whole. Beside
//! it stands what chimera itself looks for (`user_message`, `agent_result`, `tool_call` ...), so that
//! its tools can show and resume the session; kinds it does not know it skips.
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
use crate::document::Facts;
use crate::plain::blocks;
use crate::portable;
use crate::siblings::CHIMERA;
use crate::timestamp::{compact, rfc3339};
use crate::turn_text::TurnText;
use crate::{ferret, otter};

pub const SCHEMA: &str = "chimera.otter.session/1";
/// How the names of folders begin whose sessions are listed and taken in, and the ids of such sessions.
pub const PREFIXES: [&str; 2] = [ferret::ID_PREFIX, otter::ID_PREFIX];
/// The file that describes the session, in its folder.
pub const SUMMARY: &str = "summary.json";
/// The file that whoever writes in the folder locks (`flock`).
pub const LOCK: &str = ".lock";
/// The first part of a folder's name says who wrote it.
const WRITER: &str = "ropewalk";
/// The metadata field that holds our own event.
const OURS: &str = "ropewalk";

/// What is put together of one turn's answer. It repeats what the events before it say, so of a very long one the
/// beginning will do.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A session in chimera's form.
#[derive(Debug, Clone, PartialEq)]
pub struct Folder {
    pub name: String,
    pub summary: Value,
    /// Names of files and what is in them, in order.
    pub events: Vec<(String, Value)>,
}

pub fn write(row: &SessionRow, events: &[Arc<Event>]) -> Folder {
    let (mut writer, mut facts) = (Writer::new(row), Facts::default());
    let files = events.iter().map(|event| {
        facts.observe(event);
        writer.file(event)
    });
    let events = files.collect();
    let summary = summary(row, &facts);
    Folder { name: folder_name(row), summary, events }
}

/// The folder's name, the same for a session every time: its id, where that is of chimera's kind.
pub fn folder_name(row: &SessionRow) -> String {
    if PREFIXES.iter().any(|prefix| row.id.as_str().starts_with(prefix)) {
        return row.id.to_string();
    }
    format!("{WRITER}-{}-{}", compact(row.created_at), eight_digits(row.id.as_str()))
}

/// Writes one event after the other.
pub struct Writer {
    session: SessionId,
    index: usize,
    answers: Answers,
}

impl Writer {
    pub fn new(row: &SessionRow) -> Self {
        Self { session: row.id.clone(), index: 0, answers: Answers::default() }
    }

    /// The next file has this position: those before it are written already.
    pub fn go_on_at(&mut self, index: usize) {
        self.index = index;
    }

    /// An event whose file is written already. What later files say of its turn depends on it.
    pub fn pass(&mut self, event: &Event) {
        drop(self.answers.shape(event));
    }

    /// The name of the next event's file, and what is in it.
    pub fn file(&mut self, event: &Event) -> (String, Value) {
        let idx = self.index;
        self.index += 1;
        let id = format!("{:08x}", hash(format!("{}/{}", self.session, event.seq).as_bytes()));
        let (mut kind, mut metadata) = self.answers.shape(event);
        if let Some(parent) = event.origin.task() {
            // Under a name of ours, which chimera skips: it would take a sub-agent's words for the agent's.
            kind = crate::record::kind(&event.body);
            metadata.insert("parent".into(), json!(parent.0.as_ref()));
        }
        if let Some(user) = remote_user(event) {
            metadata.insert("bridge".into(), json!({ "origin": "bridge", "remote_user": user }));
        }
        metadata.insert("event_id".into(), json!(id));
        metadata.insert(OURS.into(), portable::encode(event));
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

impl Folder {
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
pub fn summary(row: &SessionRow, facts: &Facts) -> Value {
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

/// Who caused it from another machine, if somebody did.
fn remote_user(event: &Event) -> Option<&str> {
    let resolver = if let Body::Resolved { by, .. } = &event.body { by.remote() } else { None };
    event.origin.remote().or(resolver).map(|user| &**user)
}

/// What the agent has said in the turns that are not over, for chimera's `agent_result`.
#[derive(Default)]
struct Answers {
    open: HashMap<Option<TurnId>, Answer>,
}

#[derive(Default)]
struct Answer {
    said: TurnText,
    tool_calls: u64,
    spent: engine::Totals,
}

impl Answers {
    /// The name and the fields by which chimera knows an event of this kind, if it does.
    fn shape(&mut self, event: &Event) -> (&'static str, Map<String, Value>) {
        let fields = match event.body.family() {
            Family::Turn(TurnEvent::UserMessage { content }) => json!({ "content": blocks(content) }),
            Family::Speech(SpeechEvent::Text { text, .. }) => {
                self.open.entry(event.turn).or_default().said.take(event, ANSWER_BYTES_MAX);
                json!({ "content": text.as_ref() })
            }
            Family::Tool(ToolEvent::Started(start)) => {
                self.open.entry(event.turn).or_default().tool_calls += 1;
                // What is no JSON are no arguments.
                let arguments =
                    Some(CHIMERA.input(&start.tool, &start.input)).filter(|input| !input.is_string());
                json!({ "tool_name": CHIMERA.name(&start.tool), "arguments": arguments, "call_id": start.call.0.as_ref() })
            }
            Family::Tool(ToolEvent::Ended(end)) => {
                let output: Vec<_> = end.content.iter().filter_map(read::shown).collect();
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

/// Chimera's name where it has one, ours otherwise.
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

/// The beginning of the session's id where it is hexadecimal, as a random one is.
fn eight_digits(id: &str) -> String {
    let start =
        id.get(..8).filter(|start| start.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    start.map_or_else(|| format!("{:08x}", hash(id.as_bytes())), str::to_owned)
}

/// FNV-1a: eight hexadecimal digits that only have to differ.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
