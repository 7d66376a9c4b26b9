//! The tool calls of an agent that are open, and what was last said of each.
//!
//! Agents repeat themselves: with every line that a command writes they send all of its output again, and
//! with it the title, the input and the rest. So what was said is remembered, as hashes; only what is new
//! becomes an event, and output that grew becomes the piece that it grew by. The log then holds once what
//! the agent sent many times.
//!
//! **Invariant:** a call is told to begin before anything else is told of it, and nothing after its end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use engine::{
    Body, CallId, Location, Opaque, OutputStream, Said, Timestamp, ToolChange, ToolKind, ToolStart,
};
use serde_json::value::RawValue;

use super::content::{Piece, locations, tool_word};
use super::ending::Ending;
use super::raw::{Fields, cut, cut_json, digest, inside, verbatim};
use super::shown::{Change, Shown, pieces, terminals};
use crate::acp::tool_kind;

/// Calls that are remembered as open. The oldest of more is forgotten, and what is said of it then is
/// handed on without being understood.
const OPEN_MAX: usize = 256;
/// Calls that are remembered as over, so that nothing more is told of them.
const OVER_MAX: usize = 1024;
/// A longer name is replaced: it would stand in every event of the call.
const ID_BYTES_MAX: usize = 256;
const TITLE_BYTES_MAX: usize = 4 << 10;
const NAME_BYTES_MAX: usize = 128;
const INPUT_BYTES_MAX: usize = 256 << 10;
/// Different members of a call that are compared. The others always count as new.
const COMPARED_MAX: usize = 32;
const CHUNKS_MAX: usize = 64;
/// An input that is shown while it is written.
const DRAFT_BYTES_MAX: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Calls {
    open: HashMap<CallId, Call>,
    /// Hashes of the names of calls that ended.
    over: VecDeque<u64>,
    /// How many were opened.
    opened: u64,
}

/// What is known of a call.
#[derive(Default)]
pub(super) struct Call {
    nth: u64,
    started: Timestamp,
    pub(super) within: Option<CallId>,
    pub(super) tool: Option<Arc<str>>,
    pub(super) title: Option<Arc<str>>,
    pub(super) kind: Option<ToolKind>,
    pub(super) locations: Vec<Location>,
    input: Option<Opaque>,
    /// What is shown while there is no input: some agents show the input as it is written.
    draft: Option<Opaque>,
    terminals: Vec<Arc<str>>,
    /// The hash of each member, by the hash of its name.
    said: Vec<(u64, u64)>,
    shown: Shown,
}

/// One update about a call.
pub(super) struct ToolUpdate<'a> {
    pub(super) fields: &'a Fields<'a>,
    pub(super) words: &'a RawValue,
    /// It says that the call begins.
    pub(super) begins: bool,
    pub(super) within: Option<CallId>,
    pub(super) now: Timestamp,
}

/// Which of the events made from an update carries its words.
enum Carrier {
    Nobody,
    First,
    Last,
}

/// A call's name, and whether it is the agent's own.
pub(super) fn call_id(id: String) -> (CallId, bool) {
    if id.len() <= ID_BYTES_MAX {
        return (CallId(id.into()), true);
    }
    (CallId(format!("call-{:016x}", digest(id.as_bytes())).into()), false)
}

impl Calls {
    pub(super) fn get(&self, call: &CallId) -> Option<&Call> {
        self.open.get(call)
    }

    /// The call that shows a terminal.
    pub(super) fn showing(&self, terminal: &str) -> Option<&CallId> {
        let shows = |call: &Call| call.terminals.iter().any(|own| **own == *terminal);
        self.open.iter().find(|(_, call)| shows(call)).map(|(id, _)| id)
    }

    /// Whatever was open is over.
    pub(super) fn end_all(&mut self) {
        let open: Vec<_> = self.open.drain().map(|(id, _)| id).collect();
        open.iter().for_each(|id| self.ended(id));
    }

    /// Nothing if it cannot be told as something about a call.
    pub(super) fn hear(&mut self, update: &ToolUpdate<'_>, in_turn: bool) -> Option<Vec<Said>> {
        let (id, own) = call_id(update.fields.text("toolCallId").filter(|id| !id.is_empty())?);
        let hash = digest(id.0.as_bytes());
        let known = self.open.contains_key(&id);
        if !known && (!in_turn || (!update.begins && self.over.contains(&hash))) {
            return None;
        }
        let ends = Ending::of(update.fields);
        let (mut bodies, mut carrier) = if known {
            self.change(&id, update, ends.is_some())
        } else {
            self.over.retain(|over| *over != hash);
            (self.begin(&id, update, ends.is_some()), Carrier::Last)
        };
        if let Some(ends) = ends {
            let call = self.open.remove(&id).unwrap_or_default();
            self.ended(&id);
            let elapsed = update.now.0.saturating_sub(call.started.0).max(0);
            bodies.push(Body::ToolEnded(Box::new(ends.end(id, update.fields, elapsed.unsigned_abs()))));
            carrier = Carrier::Last;
        }
        if update.begins && !known {
            carrier = Carrier::First;
        }
        Some(relay(bodies, if own { carrier } else { Carrier::Nobody }, update.words))
    }

    fn begin(&mut self, id: &CallId, update: &ToolUpdate<'_>, ends: bool) -> Vec<Body> {
        if self.open.len() >= OPEN_MAX
            && let Some(oldest) = self.open.iter().min_by_key(|(_, call)| call.nth).map(|(id, _)| id.clone())
        {
            self.open.remove(&oldest);
            self.ended(&oldest);
        }
        self.opened += 1;
        let within = update.within.clone();
        let mut call = Call { nth: self.opened, started: update.now, within, ..Call::default() };
        let news = call.listen(update.fields);
        let mut bodies = vec![Body::ToolStarted(Box::new(call.start(id)))];
        let content = news.content.whole(update.fields).filter(|content| !content.is_empty() && !ends);
        if content.is_some() {
            bodies.push(Body::ToolChanged(Box::new(ToolChange { content, ..ToolChange::of(id.clone()) })));
        }
        self.open.insert(id.clone(), call);
        bodies
    }

    fn change(&mut self, id: &CallId, update: &ToolUpdate<'_>, ends: bool) -> (Vec<Body>, Carrier) {
        let Some(call) = self.open.get_mut(id) else { return (Vec::new(), Carrier::Nobody) };
        let output = |(stream, text): (OutputStream, String)| Body::ToolOutput {
            call: id.clone(),
            stream,
            text: text.into(),
        };
        if let Some((live, same)) = live(id, update.fields) {
            let carrier = if same { Carrier::Nobody } else { Carrier::First };
            return (live.into_iter().map(output).collect(), carrier);
        }
        let news = call.listen(update.fields);
        if ends || !news.any() {
            return (Vec::new(), Carrier::Nobody);
        }
        if let (Change::Grown(text), false) = (&news.content, news.loud()) {
            return (vec![output((OutputStream::Stdout, text.clone()))], Carrier::Nobody);
        }
        let change = ToolChange {
            call: id.clone(),
            title: call.title.clone().filter(|_| news.title),
            kind: call.kind.filter(|_| news.kind),
            locations: news.locations.then(|| call.locations.clone()),
            input: call.input.clone().filter(|_| news.input),
            content: news.content.whole(update.fields),
        };
        (vec![Body::ToolChanged(Box::new(change))], Carrier::Last)
    }

    fn ended(&mut self, id: &CallId) {
        if self.over.len() >= OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back(digest(id.0.as_bytes()));
    }
}

/// What an update says that was not said before.
#[derive(Default)]
struct News {
    title: bool,
    kind: bool,
    locations: bool,
    input: bool,
    /// Something that has no place in our words.
    other: bool,
    /// Something that comes along with output and is worth nothing without it.
    quiet: bool,
    content: Change,
}

impl News {
    fn any(&self) -> bool {
        self.loud() || self.quiet || !matches!(self.content, Change::Same)
    }

    /// More than output is new.
    fn loud(&self) -> bool {
        self.title || self.kind || self.locations || self.input || self.other
    }
}

impl Call {
    pub(super) fn input(&self) -> Option<&Opaque> {
        self.input.as_ref().or(self.draft.as_ref())
    }

    /// Takes note of what is said.
    fn listen(&mut self, fields: &Fields<'_>) -> News {
        let mut news = News::default();
        for (name, raw) in fields.iter().filter(|(_, raw)| raw.get() != "null") {
            match name {
                "sessionUpdate" | "toolCallId" => continue,
                "content" => {
                    let pieces = pieces(raw);
                    self.terminals = terminals(&pieces);
                    self.draft = draft(&pieces);
                    news.content = self.shown.compare(pieces);
                    continue;
                }
                _ => {}
            }
            if !self.is_new(name, raw) {
                continue;
            }
            match name {
                "title" => news.title = true,
                "kind" => news.kind = true,
                "locations" => news.locations = true,
                "rawInput" => news.input = true,
                "_meta" | "rawOutput" => news.quiet = true,
                _ => news.other = true,
            }
        }
        if let Some(title) = fields.text("title").filter(|_| news.title) {
            self.title = Some(cut(title, TITLE_BYTES_MAX));
        }
        if news.kind {
            self.kind = fields.text("kind").as_deref().map(tool_kind);
        }
        if news.locations {
            self.locations = locations(fields).unwrap_or_default();
        }
        if let Some(input) = fields.get("rawInput").filter(|_| news.input) {
            let told = input.get() != "{}";
            self.input = told.then(|| cut_json(input, INPUT_BYTES_MAX));
        }
        self.tool = tool_name(fields).or_else(|| self.tool.take());
        news
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

/// The name of the tool, which agents put into different places.
pub(super) fn tool_name(fields: &Fields<'_>) -> Option<Arc<str>> {
    let meta = || fields.object("_meta");
    let name = fields.text("name").or_else(|| {
        let meta = meta()?;
        let inner = |path: &[&str]| inside(&meta, path).and_then(|fields| fields.text("toolName"));
        inner(&["claudeCode"]).or_else(|| meta.text("toolName")).or_else(|| inner(&["goose", "toolCall"]))
    });
    name.filter(|name| !name.trim().is_empty()).map(|name| cut(name, NAME_BYTES_MAX))
}

/// An input, if all that is shown is one.
fn draft(pieces: &[Piece]) -> Option<Opaque> {
    let [Piece::Text(text)] = pieces else { return None };
    let fits = text.len() <= DRAFT_BYTES_MAX && text.starts_with('{') && text.ends_with('}');
    let whole = fits && serde_json::from_str::<Fields<'_>>(text).is_ok();
    whole.then(|| Opaque(text.as_str().into()))
}

/// Output that comes in pieces, as some agents send it beside the protocol, and whether our own words for
/// it are the same.
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

/// An empty text says that nothing is to be written for an event: another one says it.
fn relay(bodies: Vec<Body>, carrier: Carrier, words: &RawValue) -> Vec<Said> {
    let last = bodies.len().saturating_sub(1);
    let relayed = |at: usize| match carrier {
        Carrier::Nobody => None,
        Carrier::First if at == 0 => Some(verbatim(words)),
        Carrier::Last if at == last => Some(verbatim(words)),
        Carrier::First | Carrier::Last => Some(Opaque("".into())),
    };
    bodies.into_iter().enumerate().map(|(at, body)| Said { body, relayed: relayed(at) }).collect()
}
