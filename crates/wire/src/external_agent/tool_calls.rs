//! An agent's open tool calls, and what was last sent about each.
//!
//! Agents repeat themselves: with every line that a command writes they send all of its output again,
//! together with the title, the input and the rest. So hashes of what was sent are kept; only new values
//! become events, and output that grew becomes the appended piece. The log then stores once what the agent
//! sent many times.
//!
//! **Invariant:** a call's start event comes before all its other events, and none comes after its end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use engine::{
    Body, CallId, Location, NewEvent, Opaque, OutputStream, Timestamp, ToolChange, ToolKind, ToolStart,
};
use serde_json::value::RawValue;

use super::content::{ContentPiece, locations, tool_word};
use super::content_hashes::{ContentChange, ContentHashes, pieces, terminals};
use super::raw_json::{Fields, digest, nested_object, shortened, shortened_json, verbatim};
use super::tool_end::ToolEnding;
use crate::acp::tool_kind;

/// Limit for open calls. The oldest one is forgotten first; later updates about it are passed on without
/// being understood.
const OPEN_MAX: usize = 256;
/// Limit for ended calls that are remembered, so that no later event is made for them.
const OVER_MAX: usize = 1024;
/// A longer id is replaced, because it would be in every event of the call.
const ID_BYTES_MAX: usize = 256;
const TITLE_BYTES_MAX: usize = 4 << 10;
const NAME_BYTES_MAX: usize = 128;
const INPUT_BYTES_MAX: usize = 256 << 10;
/// How many members of a call are compared. Further members always count as changed.
const COMPARED_MAX: usize = 32;
const CHUNKS_MAX: usize = 64;
/// Limit for an input that is shown while it is written.
const DRAFT_BYTES_MAX: usize = 16 << 10;

#[derive(Default)]
pub(super) struct OpenCalls {
    open: HashMap<CallId, OpenCall>,
    /// Hashes of the ids of ended calls.
    over: VecDeque<u64>,
    /// How many calls were opened.
    opened: u64,
}

/// The known state of a call.
#[derive(Default)]
pub(super) struct OpenCall {
    nth: u64,
    started: Timestamp,
    pub(super) parent: Option<CallId>,
    pub(super) tool: Option<Arc<str>>,
    pub(super) title: Option<Arc<str>>,
    pub(super) kind: Option<ToolKind>,
    pub(super) locations: Vec<Location>,
    input: Option<Opaque>,
    /// Shown while there is no input: some agents show the input as content while it is written.
    draft: Option<Opaque>,
    terminals: Vec<Arc<str>>,
    /// The hash of each member, by the hash of its name.
    said: Vec<(u64, u64)>,
    shown: ContentHashes,
}

/// One update about a call.
pub(super) struct ToolUpdate<'a> {
    pub(super) fields: &'a Fields<'a>,
    pub(super) words: &'a RawValue,
    /// The update starts the call.
    pub(super) begins: bool,
    pub(super) parent: Option<CallId>,
    pub(super) now: Timestamp,
}

/// Which of the events made from an update carries the verbatim update.
enum WordsOn {
    Nobody,
    First,
    Last,
}

/// A call's id, and whether it is the agent's own.
pub(super) fn call_id(id: String) -> (CallId, bool) {
    if id.len() <= ID_BYTES_MAX {
        return (CallId(id.into()), true);
    }
    (CallId(format!("call-{:016x}", digest(id.as_bytes())).into()), false)
}

impl OpenCalls {
    pub(super) fn get(&self, call: &CallId) -> Option<&OpenCall> {
        self.open.get(call)
    }

    /// The call that shows a terminal.
    pub(super) fn call_showing(&self, terminal: &str) -> Option<&CallId> {
        let shows = |call: &OpenCall| call.terminals.iter().any(|own| **own == *terminal);
        self.open.iter().find(|(_, call)| shows(call)).map(|(id, _)| id)
    }

    /// Ends all open calls.
    pub(super) fn end_all(&mut self) {
        let open: Vec<_> = self.open.drain().map(|(id, _)| id).collect();
        open.iter().for_each(|id| self.remember_end(id));
    }

    /// `None` if the update cannot be expressed as events of a call.
    pub(super) fn translate(&mut self, update: &ToolUpdate<'_>, in_turn: bool) -> Option<Vec<NewEvent>> {
        let (id, own) = call_id(update.fields.text("toolCallId").filter(|id| !id.is_empty())?);
        let hash = digest(id.0.as_bytes());
        let known = self.open.contains_key(&id);
        if !known && (!in_turn || (!update.begins && self.over.contains(&hash))) {
            return None;
        }
        let ends = ToolEnding::of(update.fields);
        let (mut bodies, mut words_on) = if known {
            self.change(&id, update, ends.is_some())
        } else {
            self.over.retain(|over| *over != hash);
            (self.begin(&id, update, ends.is_some()), WordsOn::Last)
        };
        if let Some(ends) = ends {
            let call = self.open.remove(&id).unwrap_or_default();
            self.remember_end(&id);
            let elapsed = update.now.0.saturating_sub(call.started.0).max(0);
            bodies.push(Body::ToolEnded(Box::new(ends.end(id, update.fields, elapsed.unsigned_abs()))));
            words_on = WordsOn::Last;
        }
        if update.begins && !known {
            words_on = WordsOn::First;
        }
        Some(relay(bodies, if own { words_on } else { WordsOn::Nobody }, update.words))
    }

    fn begin(&mut self, id: &CallId, update: &ToolUpdate<'_>, ends: bool) -> Vec<Body> {
        if self.open.len() >= OPEN_MAX
            && let Some(oldest) = self.open.iter().min_by_key(|(_, call)| call.nth).map(|(id, _)| id.clone())
        {
            self.open.remove(&oldest);
            self.remember_end(&oldest);
        }
        self.opened += 1;
        let parent = update.parent.clone();
        let mut call = OpenCall { nth: self.opened, started: update.now, parent, ..OpenCall::default() };
        let changes = call.update(update.fields);
        let mut bodies = vec![Body::ToolStarted(Box::new(call.start(id)))];
        let content = changes.content.whole(update.fields).filter(|content| !content.is_empty() && !ends);
        if content.is_some() {
            bodies.push(Body::ToolChanged(Box::new(ToolChange { content, ..ToolChange::of(id.clone()) })));
        }
        self.open.insert(id.clone(), call);
        bodies
    }

    fn change(&mut self, id: &CallId, update: &ToolUpdate<'_>, ends: bool) -> (Vec<Body>, WordsOn) {
        let Some(call) = self.open.get_mut(id) else { return (Vec::new(), WordsOn::Nobody) };
        let output = |(stream, text): (OutputStream, String)| Body::ToolOutput {
            call: id.clone(),
            stream,
            text: text.into(),
        };
        if let Some((live, same)) = live(id, update.fields) {
            let words_on = if same { WordsOn::Nobody } else { WordsOn::First };
            return (live.into_iter().map(output).collect(), words_on);
        }
        let changes = call.update(update.fields);
        if ends || !changes.any() {
            return (Vec::new(), WordsOn::Nobody);
        }
        if let (ContentChange::Grown(text), false) = (&changes.content, changes.beyond_output()) {
            return (vec![output((OutputStream::Stdout, text.clone()))], WordsOn::Nobody);
        }
        let change = ToolChange {
            call: id.clone(),
            title: call.title.clone().filter(|_| changes.title),
            kind: call.kind.filter(|_| changes.kind),
            locations: changes.locations.then(|| call.locations.clone()),
            input: call.input.clone().filter(|_| changes.input),
            content: changes.content.whole(update.fields),
        };
        (vec![Body::ToolChanged(Box::new(change))], WordsOn::Last)
    }

    fn remember_end(&mut self, id: &CallId) {
        if self.over.len() >= OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back(digest(id.0.as_bytes()));
    }
}

/// What changed with an update.
#[derive(Default)]
struct CallChanges {
    title: bool,
    kind: bool,
    locations: bool,
    input: bool,
    /// A member that our events cannot express.
    other: bool,
    /// Only members that accompany output and mean nothing without it.
    only_with_output: bool,
    content: ContentChange,
}

impl CallChanges {
    fn any(&self) -> bool {
        self.beyond_output() || self.only_with_output || !matches!(self.content, ContentChange::Same)
    }

    /// Whether more than the output changed.
    fn beyond_output(&self) -> bool {
        self.title || self.kind || self.locations || self.input || self.other
    }
}

impl OpenCall {
    pub(super) fn input(&self) -> Option<&Opaque> {
        self.input.as_ref().or(self.draft.as_ref())
    }

    /// Applies an update and returns what changed.
    fn update(&mut self, fields: &Fields<'_>) -> CallChanges {
        let mut changes = CallChanges::default();
        for (name, raw) in fields.iter().filter(|(_, raw)| raw.get() != "null") {
            match name {
                "sessionUpdate" | "toolCallId" => continue,
                "content" => {
                    let pieces = pieces(raw);
                    self.terminals = terminals(&pieces);
                    self.draft = draft(&pieces);
                    changes.content = self.shown.compare(pieces);
                    continue;
                }
                _ => {}
            }
            if !self.is_new(name, raw) {
                continue;
            }
            match name {
                "title" => changes.title = true,
                "kind" => changes.kind = true,
                "locations" => changes.locations = true,
                "rawInput" => changes.input = true,
                "_meta" | "rawOutput" => changes.only_with_output = true,
                _ => changes.other = true,
            }
        }
        if let Some(title) = fields.text("title").filter(|_| changes.title) {
            self.title = Some(shortened(title, TITLE_BYTES_MAX));
        }
        if changes.kind {
            self.kind = fields.text("kind").as_deref().map(tool_kind);
        }
        if changes.locations {
            self.locations = locations(fields).unwrap_or_default();
        }
        if let Some(input) = fields.get("rawInput").filter(|_| changes.input) {
            let told = input.get() != "{}";
            self.input = told.then(|| shortened_json(input, INPUT_BYTES_MAX));
        }
        self.tool = tool_name(fields).or_else(|| self.tool.take());
        changes
    }

    fn is_new(&mut self, name: &str, raw: &RawValue) -> bool {
        let (name, value) = (digest(name.as_bytes()), digest(raw.get().as_bytes()));
        match self.said.iter_mut().find(|(own, _)| *own == name) {
            Some((_, old)) => std::mem::replace(old, value) != value,
            None => {
                if self.said.len() < COMPARED_MAX {
                    self.said.push((name, value));
                }
                true
            }
        }
    }

    fn start(&self, id: &CallId) -> ToolStart {
        let kind = self.kind.unwrap_or(ToolKind::Other);
        let tool = self.tool.clone().unwrap_or_else(|| tool_word(kind).into());
        ToolStart {
            call: id.clone(),
            title: self.title.clone().unwrap_or_else(|| Arc::clone(&tool)),
            tool,
            kind,
            locations: self.locations.clone(),
            input: self.input.clone().unwrap_or_else(|| Opaque("{}".into())),
            client_terminal: None,
        }
    }
}

/// The name of the tool, which agents put in different places.
pub(super) fn tool_name(fields: &Fields<'_>) -> Option<Arc<str>> {
    let meta = || fields.object("_meta");
    let name = fields.text("name").or_else(|| {
        let meta = meta()?;
        let inner = |path: &[&str]| nested_object(&meta, path).and_then(|fields| fields.text("toolName"));
        inner(&["claudeCode"]).or_else(|| meta.text("toolName")).or_else(|| inner(&["goose", "toolCall"]))
    });
    name.filter(|name| !name.trim().is_empty()).map(|name| shortened(name, NAME_BYTES_MAX))
}

/// The input, if the content is nothing but a JSON object.
fn draft(pieces: &[ContentPiece]) -> Option<Opaque> {
    let [ContentPiece::Text(text)] = pieces else { return None };
    let fits = text.len() <= DRAFT_BYTES_MAX && text.starts_with('{') && text.ends_with('}');
    let whole = fits && serde_json::from_str::<Fields<'_>>(text).is_ok();
    whole.then(|| Opaque(text.as_str().into()))
}

/// Output that comes in pieces, as some agents send it in an extension, and whether our own encoding of it
/// would be identical.
fn live(id: &CallId, fields: &Fields<'_>) -> Option<(Vec<(OutputStream, String)>, bool)> {
    let meta = fields.object("_meta")?;
    if let Some(output) = meta.object("terminal_output") {
        let data = output.text("data")?;
        let same = output.text("terminal_id").as_deref() == Some(&id.0)
            && meta.has_only(&["terminal_output"])
            && fields.has_only(&["sessionUpdate", "toolCallId", "_meta"]);
        return Some((vec![(OutputStream::Stdout, data)], same));
    }
    let note = meta.object("toolNotification")?;
    note.text("type").filter(|kind| kind == "live_output")?;
    let chunks = note.object("params")?.list("chunks", CHUNKS_MAX)?;
    let chunk = |raw: &RawValue| {
        let chunk = Fields::of(raw)?;
        let stderr = chunk.text("stream").as_deref() == Some("stderr");
        let stream = if stderr { OutputStream::Stderr } else { OutputStream::Stdout };
        Some((stream, chunk.text("output")?))
    };
    let chunks: Vec<_> = chunks.into_iter().filter_map(chunk).collect();
    (!chunks.is_empty()).then_some((chunks, false))
}

/// An empty text means that nothing is sent for an event, because another event carries the update.
fn relay(bodies: Vec<Body>, words_on: WordsOn, words: &RawValue) -> Vec<NewEvent> {
    let last = bodies.len().saturating_sub(1);
    let relayed = |at: usize| match words_on {
        WordsOn::Nobody => None,
        WordsOn::First if at == 0 => Some(verbatim(words)),
        WordsOn::Last if at == last => Some(verbatim(words)),
        WordsOn::First | WordsOn::Last => Some(Opaque("".into())),
    };
    bodies.into_iter().enumerate().map(|(at, body)| NewEvent { body, relayed: relayed(at) }).collect()
}
