//! Reads chimera's form: events of ours come back unchanged, chimera's own become turns of ours.
//!
//! Chimera's times are seconds of a clock with an arbitrary start (`time.monotonic`), so they are counted
//! from the summary's `started_at`; only values that can be dates of this century are read as dates.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Body, CallId, Content, Event, MessageId, NoticeLevel, Opaque, Origin, PlanEntry, Priority, Seq,
    SessionId, StepStatus, Stop, SurfaceId, Timestamp, ToolContent, ToolEnd, ToolStart, TurnId, Usage,
};
use serde_json::Value;

use super::{OURS, SCHEMA};
use crate::event_json::LAST_AT;
use crate::ferret_otter_common::CHIMERA;
use crate::record::EventLoss;
use crate::session_archive::{ArchiveError, ImportedSession};
use crate::timestamp::parse;

/// From here on a number of seconds is a date; less is a clock that started with the machine.
const FIRST_DATE_SECONDS: f64 = 1e9;
/// Leaves room for the messages of a turn, as the engine does.
const MESSAGES_PER_TURN: u64 = 1 << 20;
/// How many gaps a warning lists.
const GAPS_NAMED_MAX: usize = 8;

/// An event file of a session's folder, or an event of an envelope.
#[derive(Debug, Clone)]
pub struct EventFile {
    pub name: String,
    pub index: u64,
    /// The content, or why it could not be read.
    pub content: Result<String, String>,
}

/// The index in `event-000012-0123abcd.json`; the digits after it may be missing.
pub fn event_file_index(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("event-")?.strip_suffix(".json")?;
    let (digits, id) = rest.split_once('-').unwrap_or((rest, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits.len() >= 6 && plain(id) { digits.parse().ok() } else { None }
}

pub fn read_envelope(text: &str) -> Result<ImportedSession, ArchiveError> {
    let mut envelope: Value = serde_json::from_str(text).map_err(ArchiveError::Malformed)?;
    if envelope["schema"] != SCHEMA {
        return Err(ArchiveError::UnknownSchema(envelope["schema"].as_str().unwrap_or_default().to_owned()));
    }
    let summary = envelope["summary"].take();
    let events = if let Value::Array(events) = envelope["events"].take() { events } else { Vec::new() };
    let files = events.into_iter().zip(0..).map(|(event, at)| EventFile {
        name: format!("event {at}"),
        index: event["idx"].as_u64().unwrap_or(at),
        content: Ok(event.to_string()),
    });
    Ok(read(&summary, files.collect()))
}

/// Builds a session from its summary and its events. What cannot be read is left out and named in a warning.
pub fn read(summary: &Value, mut files: Vec<EventFile>) -> ImportedSession {
    files.sort_by(|a, b| (a.index, &a.name).cmp(&(b.index, &b.name)));
    let mut reader = Reader::new(summary);
    for file in &files {
        reader.take(file);
    }
    reader.finish()
}

/// A session's summary.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    pub title: Option<String>,
    /// The first prompt.
    pub prompt: Option<String>,
    pub cwd: Option<PathBuf>,
    pub parent: Option<SessionId>,
    pub started_at: Option<Timestamp>,
    pub model: Option<String>,
    pub cost_usd: Option<f64>,
}

impl Summary {
    pub fn of(summary: &Value) -> Self {
        let text = |key: &str| summary[key].as_str().filter(|text| !text.is_empty());
        Self {
            title: text("title").map(Into::into),
            prompt: text("prompt").map(Into::into),
            cwd: text("cwd").map(PathBuf::from),
            parent: text("parent_id").and_then(|id| SessionId::parse(id).ok()),
            started_at: time_of(&summary["started_at"]),
            model: text("model").map(Into::into),
            cost_usd: summary["cost_usd"].as_f64().filter(|usd| usd.is_finite() && *usd >= 0.0),
        }
    }
}

/// The position of this file's event in our log, if it is one of ours.
pub fn position(file: &str) -> Option<Seq> {
    let event: Value = serde_json::from_str(file).ok()?;
    event["metadata"][OURS]["seq"].as_u64().map(Seq)
}

/// Indexes without a file.
#[derive(Default)]
struct IndexGaps {
    last: Option<u64>,
    count: u64,
    named: Vec<String>,
}

impl IndexGaps {
    fn observe(&mut self, index: u64) {
        let last = self.last.replace(index).unwrap_or(index);
        self.count = self.count.saturating_add(index.saturating_sub(last).saturating_sub(1));
        let missing = last.saturating_add(1)..index;
        self.named
            .extend(missing.take(GAPS_NAMED_MAX.saturating_sub(self.named.len())).map(|at| at.to_string()));
    }

    fn warning(&self) -> Option<String> {
        let more = if self.count > self.named.len() as u64 { " and more" } else { "" };
        let named = self.named.join(", ");
        (self.count > 0).then(|| format!("{} events are missing: {named}{more}", self.count))
    }
}

/// A time as text, or as seconds since 1970.
fn time_of(value: &Value) -> Option<Timestamp> {
    match value.as_f64() {
        Some(seconds) if seconds >= FIRST_DATE_SECONDS => Some(milliseconds(seconds)),
        Some(_) => None,
        None => value.as_str().and_then(parse),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float that is out of range becomes the nearest time")]
fn milliseconds(seconds: f64) -> Timestamp {
    Timestamp(((seconds * 1000.0).round() as i64).clamp(0, LAST_AT.0))
}

/// Reads a session file by file, in the order of their indexes, so that few of them are in memory at once.
pub struct Reader {
    imported: ImportedSession,
    prompt: Option<String>,
    gaps: IndexGaps,
    run: String,
    started: Timestamp,
    /// The value of chimera's clock at the first event.
    clock_start: Option<f64>,
    at: Timestamp,
    /// The last turn's number.
    turn: u64,
    open: Option<OpenTurn>,
    skipped: usize,
    /// Something was read.
    any: bool,
}

/// A turn that is not over.
#[derive(Default)]
struct OpenTurn {
    /// A part of the answer came as chunks already.
    spoke: bool,
}

impl Reader {
    pub fn new(summary: &Value) -> Self {
        let Summary { title, prompt, cwd, started_at, .. } = Summary::of(summary);
        let run = summary["run_id"].as_str().filter(|run| !run.is_empty()).unwrap_or("chimera").to_owned();
        let (title, at) = (title.map(Into::into), started_at.unwrap_or_default());
        Self {
            imported: ImportedSession {
                title,
                cwd,
                events: Vec::new(),
                warnings: Vec::new(),
                at: Timestamp(0),
            },
            prompt,
            gaps: IndexGaps::default(),
            run,
            started: at,
            clock_start: None,
            at,
            turn: 0,
            open: None,
            skipped: 0,
            any: false,
        }
    }

    /// The events that were read since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        self.imported.at = self.imported.events.last().map_or(self.imported.at, |event| event.at);
        std::mem::take(&mut self.imported.events)
    }

    /// The remaining events, and the warnings.
    pub fn finish(mut self) -> ImportedSession {
        if !self.any
            && let Some(prompt) = self.prompt.take()
        {
            self.begin(&prompt);
        }
        self.end(Stop::EndTurn, None);
        if self.skipped > 0 {
            let warning =
                format!("{} events are left out, because their kinds have no counterpart here", self.skipped);
            self.imported.warnings.push(warning);
        }
        self.imported.warnings.splice(0..0, self.gaps.warning());
        self.imported
    }

    pub fn take(&mut self, file: &EventFile) {
        self.gaps.observe(file.index);
        self.read(file);
        self.any |= !self.imported.events.is_empty();
    }

    fn read(&mut self, file: &EventFile) {
        let parsed = match &file.content {
            Ok(text) => serde_json::from_str::<Value>(text).map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        let event = match parsed {
            Ok(event) if event["type"].is_string() => event,
            Ok(_) => return self.imported.leave_out(&file.name, &"it has no type", EventLoss::default()),
            // It may have been an event of ours.
            Err(reason) => return self.imported.leave_out(&file.name, &reason, EventLoss::ANY),
        };
        let metadata = &event["metadata"];
        if metadata[OURS].is_object() {
            return self.imported.take(&file.name, &metadata[OURS].to_string());
        }
        self.at = self.time(&event["timestamp"]);
        self.translate(event["type"].as_str().unwrap_or_default(), metadata);
    }

    fn time(&mut self, value: &Value) -> Timestamp {
        match (time_of(value), value.as_f64()) {
            (Some(at), _) => at,
            (None, Some(clock)) => {
                let start = *self.clock_start.get_or_insert(clock);
                Timestamp(self.started.0.saturating_add(milliseconds(clock - start).0).min(LAST_AT.0))
            }
            (None, None) => self.at,
        }
    }

    fn translate(&mut self, kind: &str, data: &Value) {
        let text = |key: &str| data[key].as_str().unwrap_or_default();
        match kind {
            "user_message" => self.begin(text("content")),
            "agent_result" => self.result(data),
            "text_delta" => self.say(text("content")),
            "tool_call" => self.tool_started(text("tool_name"), text("call_id"), &data["arguments"]),
            "tool_result" => {
                self.tool_ended(text("call_id"), text("output"), data["success"].as_bool() == Some(false));
            }
            "todo_write" => self.plan(&data["todos"]),
            "error" => {
                let body = Body::Notice { level: NoticeLevel::Error, text: text("error").into() };
                self.push(Origin::Agent, body);
            }
            _ => self.skipped += 1,
        }
    }

    fn push(&mut self, origin: Origin, body: Body) {
        let turn = self.open.as_ref().map(|_| TurnId(self.turn));
        self.imported.events.push(Event { seq: Seq::START, at: self.at, origin, turn, body, relayed: None });
    }

    fn begin(&mut self, prompt: &str) {
        self.end(Stop::EndTurn, None);
        self.turn += 1;
        self.open = Some(OpenTurn::default());
        let by = Origin::Surface { id: SurfaceId(0), name: "chimera".into(), request: None, remote: None };
        self.push(by.clone(), Body::TurnStarted);
        self.push(by, Body::UserMessage { content: vec![Content::text(prompt)] });
    }

    fn say(&mut self, text: &str) {
        if let Some(open) = &mut self.open
            && !text.is_empty()
        {
            open.spoke = true;
            let message = MessageId(self.turn * MESSAGES_PER_TURN);
            self.push(Origin::Agent, Body::Text { message, text: text.into() });
        }
    }

    fn result(&mut self, data: &Value) {
        if !self.open.as_ref().is_some_and(|open| open.spoke) {
            self.say(data["output"].as_str().unwrap_or_default());
        }
        if let Some(cost_usd) = data["cost"].as_f64().filter(|cost| *cost > 0.0) {
            self.push(Origin::Agent, Body::Usage(Usage { cost_usd, ..Usage::default() }));
        }
        let stop = if data["success"].as_bool() == Some(false) { Stop::Failed } else { Stop::EndTurn };
        self.end(stop, data["error"].as_str());
    }

    fn end(&mut self, stop: Stop, error: Option<&str>) {
        if self.open.is_some() {
            self.push(Origin::Agent, Body::TurnEnded { stop, error: error.map(Into::into) });
            self.open = None;
        }
    }

    /// Chimera's call ids are short; ours must differ between sessions.
    fn call(&self, id: &str) -> CallId {
        CallId(format!("{}:{id}", self.run).into())
    }

    fn tool_started(&mut self, tool: &str, id: &str, arguments: &Value) {
        let (ours, input) = CHIMERA.ours(tool, arguments.clone());
        let start = ToolStart {
            input: Opaque(input.to_string().into()),
            ..ToolStart::new(
                self.call(id),
                ours.into(),
                format!("{tool} {arguments}").chars().take(120).collect::<String>().into(),
            )
        };
        self.push(Origin::Agent, Body::ToolStarted(Box::new(start)));
    }

    fn tool_ended(&mut self, id: &str, output: &str, failed: bool) {
        let end = ToolEnd {
            failed,
            content: vec![ToolContent::Block(Content::text(output))],
            ..ToolEnd::of(self.call(id))
        };
        self.push(Origin::Agent, Body::ToolEnded(Box::new(end)));
    }

    fn plan(&mut self, todos: &Value) {
        let entry = |todo: &Value| {
            let content: Arc<str> = todo["content"].as_str().or_else(|| todo["title"].as_str())?.into();
            let status = match todo["status"].as_str() {
                Some("completed" | "done") => StepStatus::Completed,
                Some("in_progress") => StepStatus::InProgress,
                Some(_) | None => StepStatus::Pending,
            };
            Some(PlanEntry { content, priority: Priority::Medium, status })
        };
        let entries: Vec<_> = todos.as_array().into_iter().flatten().filter_map(entry).collect();
        self.push(Origin::Agent, Body::Plan { entries });
    }
}

/// A tool's content as text.
pub(super) fn content_text(content: &ToolContent) -> Option<String> {
    match content {
        ToolContent::Block(block) => Some(crate::transcript::block_text(block)),
        ToolContent::Diff(change) => Some(format!("{} was changed", change.path.display())),
    }
}
