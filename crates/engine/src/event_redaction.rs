//! Redaction of everything on its way into the log: secrets are removed here, once, for all readers.
//!
//! The state machine, the model and the tools work with the original text: an agent that edits a
//! file with a key in it must not destroy the key. The log, and so every surface, the store and every
//! export, get the redacted text.
//!
//! Streamed text comes in pieces, and a secret may be split between them. What may be the
//! beginning of a secret is held back, per stream, until more comes or the stream pauses.
//!
//! **Invariant:** nothing is lost or reordered within a stream, and held text goes into the log
//! before whatever ends the stream: another message, the end of the call, the end of the turn.
//!
//! What a redactor is, is in `redactor_trait.rs`; the one of the product, which finds the secrets, is in `guard/src/secret_redactor.rs`.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::NewEvent;
use crate::content::{
    CommandSpec, Content, FileChange, Location, Opaque, OutputStream, PlanEntry, ResourceLink, ToolContent,
};
use crate::event::{
    AskOption, AskRequest, Body, Event, Family, ForeignAsk, Origin, Question, Resolver, SpeechEvent,
    ToolChange, ToolEnd, ToolEvent, ToolStart, TurnEvent,
};
use crate::ids::{CallId, MessageId, Seq, Timestamp, TurnId};
use crate::redactor_trait::{RedactedPiece, Redactor, StreamRedactor};
use crate::settings::SettingSpec;

/// Replaces binary data that contains a secret: `[REDACTED]` in base64, as all binary data is. Removing a
/// part of it would leave no valid picture or archive.
const REDACTED_BYTES: &str = "W1JFREFDVEVEXQ==";

/// An event without secrets, ready for the log.
#[derive(Debug, PartialEq)]
pub(crate) struct RedactedEvent {
    pub origin: Origin,
    pub turn: Option<TurnId>,
    pub body: Body,
}

impl RedactedEvent {
    /// The position is a placeholder: an import numbers its events anew.
    fn into_event(self, at: Timestamp) -> Event {
        Event { seq: Seq::START, at, origin: self.origin, turn: self.turn, body: self.body, relayed: None }
    }
}

/// The redactor of one session, with the text that it holds back.
pub(crate) struct Redaction {
    redactor: Arc<dyn Redactor>,
    streams: Vec<RedactionStream>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum StreamId {
    Text(MessageId),
    Thought(MessageId),
    Output(CallId, OutputStream),
}

/// One streamed text.
struct RedactionStream {
    id: StreamId,
    origin: Origin,
    turn: Option<TurnId>,
    redactor: Box<dyn StreamRedactor>,
}

impl Redaction {
    pub(crate) fn new(redactor: Arc<dyn Redactor>) -> Self {
        Self { redactor, streams: Vec::new() }
    }

    /// Held text that must be in the log before this event.
    pub(crate) fn before(
        &mut self,
        origin: &Origin,
        turn: Option<TurnId>,
        body: &Body,
    ) -> Vec<RedactedEvent> {
        let mut records = Vec::new();
        if self.streams.is_empty() {
            return records;
        }
        for stream in &mut self.streams {
            if concerns(stream, origin, body) && pauses(stream, turn, body) {
                records.extend(stream.pause());
            }
        }
        self.streams.retain(|stream| !(concerns(stream, origin, body) && ends(stream, turn, body)));
        records
    }

    /// A message of an external agent goes into the log as a whole, so all held text is released before it.
    pub(crate) fn relayed(&mut self, event: NewEvent) -> (Vec<RedactedEvent>, NewEvent) {
        let held = self.streams.iter_mut().filter_map(RedactionStream::pause).collect();
        let redactor = self.redactor.as_ref();
        let relayed = event.relayed.map(|relayed| clean_opaque(redactor, relayed));
        (held, NewEvent { body: clean_body(redactor, event.body), relayed })
    }

    /// The body as it goes into the log, if anything of it goes there already.
    pub(crate) fn clean(&mut self, origin: &Origin, turn: Option<TurnId>, body: Body) -> Option<Body> {
        let (id, text) = match body.family() {
            Family::Speech(SpeechEvent::Text { message, text }) => (StreamId::Text(message), text),
            Family::Speech(SpeechEvent::Thought { message, text }) => (StreamId::Thought(message), text),
            Family::Speech(SpeechEvent::Output { call, stream, text }) => {
                (StreamId::Output(call.clone(), stream), text)
            }
            Family::Turn(_)
            | Family::Tool(_)
            | Family::Permission(_)
            | Family::Usage(_)
            | Family::Setup(_)
            | Family::Context(_)
            | Family::Other => return Some(clean_body(self.redactor.as_ref(), body)),
        };
        let text = Arc::clone(text);
        let index = self.streams.iter().position(|stream| stream.id == id).unwrap_or_else(|| {
            self.streams.push(RedactionStream {
                id,
                origin: origin.clone(),
                turn,
                redactor: self.redactor.stream(),
            });
            self.streams.len() - 1
        });
        let stream = &mut self.streams[index];
        stream.push(text).map(|text| stream.id.body(text))
    }

    /// A whole history, without its secrets.
    #[cfg(test)]
    pub(crate) fn history(mut self, events: Vec<Event>) -> Vec<Event> {
        let last = events.last().map_or(Timestamp(0), |event| event.at);
        let mut clean = self.history_piece(events);
        clean.extend(self.history_rest(last));
        clean
    }

    /// The next piece of a history, as much of it as can be let out.
    pub(crate) fn history_piece(&mut self, events: Vec<Event>) -> Vec<Event> {
        let mut clean = Vec::with_capacity(events.len());
        for Event { seq, at, origin, turn, body, relayed } in events {
            if relayed.is_some() {
                let (held, NewEvent { body, relayed }) = self.relayed(NewEvent { body, relayed });
                clean.extend(held.into_iter().map(|record| record.into_event(at)));
                clean.push(Event { seq, at, origin, turn, body, relayed });
                continue;
            }
            clean.extend(self.before(&origin, turn, &body).into_iter().map(|record| record.into_event(at)));
            let body = self.clean(&origin, turn, body);
            clean.extend(body.map(|body| Event { seq, at, origin, turn, body, relayed: None }));
        }
        clean
    }

    /// The rest of a history's held text, at its end.
    pub(crate) fn history_rest(&mut self, at: Timestamp) -> Vec<Event> {
        let rest = self.streams.iter_mut().filter_map(RedactionStream::pause);
        rest.map(|record| record.into_event(at)).collect()
    }

    /// A text that is no event.
    pub(crate) fn text(&self, text: Arc<str>) -> Arc<str> {
        clean(self.redactor.as_ref(), text)
    }

    pub(crate) fn has_secret(&self, text: &str) -> bool {
        self.redactor.redact(text).is_some()
    }
}

impl StreamId {
    fn body(&self, text: Arc<str>) -> Body {
        match self {
            Self::Text(message) => Body::Text { message: *message, text },
            Self::Thought(message) => Body::Thought { message: *message, text },
            Self::Output(call, stream) => Body::ToolOutput { call: call.clone(), stream: *stream, text },
        }
    }
}

impl RedactionStream {
    /// Takes a piece and says what of the stream can be let out. A piece without secrets is not copied.
    fn push(&mut self, piece: Arc<str>) -> Option<Arc<str>> {
        let released = match self.redactor.push(&piece) {
            RedactedPiece::Unchanged => piece,
            RedactedPiece::Text(text) => text.into(),
        };
        (!released.is_empty()).then_some(released)
    }

    /// The held text, when nothing more is expected.
    fn pause(&mut self) -> Option<RedactedEvent> {
        let text = self.redactor.pause()?;
        Some(RedactedEvent { origin: self.origin.clone(), turn: self.turn, body: self.id.body(text.into()) })
    }
}

/// Sub-agents speak at the same time: what one does says nothing about how far the others have spoken.
fn concerns(stream: &RedactionStream, origin: &Origin, body: &Body) -> bool {
    if let Body::ToolEnded(end) = body
        && (is_output_of(stream, &end.call) || is_of_sub_agent(stream, &end.call))
    {
        return true;
    }
    match (&stream.origin, origin) {
        (Origin::Task { call }, Origin::Task { call: other }) => call == other,
        (Origin::Task { .. }, Origin::Engine | Origin::Agent | Origin::Surface { .. })
        | (Origin::Engine | Origin::Agent | Origin::Surface { .. }, Origin::Task { .. }) => {
            matches!(body, Body::TurnEnded { .. })
        }
        (Origin::Engine | Origin::Agent | Origin::Surface { .. }, _) => true,
    }
}

/// Whether what is held of a stream must not wait until after this event.
fn pauses(stream: &RedactionStream, turn: Option<TurnId>, body: &Body) -> bool {
    let spoken = !matches!(stream.id, StreamId::Output(..));
    match body {
        Body::Text { message, .. } => spoken && stream.id != StreamId::Text(*message),
        Body::Thought { message, .. } => spoken && stream.id != StreamId::Thought(*message),
        Body::ToolEnded(end) => spoken || is_output_of(stream, &end.call),
        Body::TurnEnded { .. } => stream.turn == turn,
        // The agent's next action: it has finished speaking for now.
        Body::Plan { .. }
        | Body::ToolStarted(_)
        | Body::ToolChanged(_)
        | Body::FileEdited { .. }
        | Body::FileShown { .. }
        | Body::Asked { .. }
        | Body::Resolved { .. }
        | Body::PolicyBlocked { .. }
        | Body::Usage(_)
        | Body::Notice { .. }
        | Body::Cleared
        | Body::Compacting { .. }
        | Body::Compacted { .. }
        | Body::Foreign { .. } => spoken,
        // Things that others do meanwhile, perhaps in the middle of a word.
        Body::TurnQueued { .. }
        | Body::TurnStarted
        | Body::UserMessage { .. }
        | Body::ToolOutput { .. }
        | Body::ToolTerminal { .. }
        | Body::CancelRequested { .. }
        | Body::SettingChanged { .. }
        | Body::Offered { .. }
        | Body::Joined { .. }
        | Body::Commands { .. }
        | Body::Title { .. }
        | Body::Moved { .. } => false,
    }
}

/// Whether nothing more of a stream can come after this event, so that it can be forgotten.
fn ends(stream: &RedactionStream, turn: Option<TurnId>, body: &Body) -> bool {
    match body.family() {
        Family::Speech(SpeechEvent::Text { message, .. }) => {
            matches!(stream.id, StreamId::Text(other) if other != message)
        }
        Family::Speech(SpeechEvent::Thought { message, .. }) => {
            matches!(stream.id, StreamId::Thought(other) if other != message)
        }
        Family::Tool(ToolEvent::Ended(end)) => {
            is_output_of(stream, &end.call) || is_of_sub_agent(stream, &end.call)
        }
        Family::Turn(event) => matches!(event, TurnEvent::Ended { .. }) && stream.turn == turn,
        Family::Speech(SpeechEvent::Output { .. })
        | Family::Tool(ToolEvent::Started(_) | ToolEvent::Changed(_))
        | Family::Permission(_)
        | Family::Usage(_)
        | Family::Setup(_)
        | Family::Context(_)
        | Family::Other => false,
    }
}

/// Whether the stream comes from the sub-agent that works for a call.
fn is_of_sub_agent(stream: &RedactionStream, call: &CallId) -> bool {
    matches!(&stream.origin, Origin::Task { call: own } if own == call)
}

fn is_output_of(stream: &RedactionStream, call: &CallId) -> bool {
    matches!(&stream.id, StreamId::Output(of, _) if of == call)
}

/// A body without its secrets. A streamed piece is treated as a whole text here.
fn clean_body(redactor: &dyn Redactor, body: Body) -> Body {
    let text = |text| clean(redactor, text);
    let optional = |text: Option<Arc<str>>| text.map(|text| clean(redactor, text));
    match body {
        Body::TurnQueued { content } => Body::TurnQueued { content: clean_contents(redactor, content) },
        Body::UserMessage { content } => Body::UserMessage { content: clean_contents(redactor, content) },
        Body::Text { message, text: said } => Body::Text { message, text: text(said) },
        Body::Thought { message, text: said } => Body::Thought { message, text: text(said) },
        Body::ToolOutput { call, stream, text: said } => Body::ToolOutput { call, stream, text: text(said) },
        Body::Plan { entries } => {
            let clean = |entry: PlanEntry| PlanEntry { content: text(entry.content), ..entry };
            Body::Plan { entries: entries.into_iter().map(clean).collect() }
        }
        Body::ToolStarted(start) => Body::ToolStarted(Box::new(clean_start(redactor, *start))),
        Body::ToolChanged(change) => Body::ToolChanged(Box::new(clean_tool_change(redactor, *change))),
        Body::ToolEnded(end) => Body::ToolEnded(Box::new(clean_end(redactor, *end))),
        Body::FileEdited { call, change } => {
            Body::FileEdited { call, change: clean_change(redactor, change) }
        }
        Body::FileShown { location } => Body::FileShown { location: clean_location(redactor, location) },
        Body::Asked { ask, request } => {
            Body::Asked { ask, request: Box::new(clean_request(redactor, *request)) }
        }
        Body::Resolved { ask, call, resolution, by, reply, exactly } => {
            let by = clean_resolver(redactor, by);
            Body::Resolved { ask, call, resolution, by, reply: optional(reply), exactly }
        }
        Body::PolicyBlocked { call, tool, path, mode, reason } => Body::PolicyBlocked {
            call,
            tool: text(tool),
            path: path.map(|path| clean_path(redactor, path)),
            mode,
            reason: text(reason),
        },
        Body::Commands { commands } => {
            let clean = |command: CommandSpec| CommandSpec {
                name: text(command.name),
                description: text(command.description),
                hint: optional(command.hint),
            };
            Body::Commands { commands: commands.into_iter().map(clean).collect() }
        }
        Body::Title { title } => Body::Title { title: text(title) },
        Body::Notice { level, text: said } => Body::Notice { level, text: text(said) },
        Body::Compacted { summary } => Body::Compacted { summary: text(summary) },
        Body::Foreign { payload } => Body::Foreign { payload: clean_opaque(redactor, payload) },
        Body::Offered { settings } => {
            let clean = |spec: SettingSpec| SettingSpec {
                words: spec.words.map(|words| clean_opaque(redactor, words)),
                ..spec
            };
            Body::Offered { settings: settings.into_iter().map(clean).collect() }
        }
        Body::Joined { agent, session, of, extra } => {
            let extra = extra.map(|extra| clean_opaque(redactor, extra));
            Body::Joined { agent, session, of, extra }
        }
        Body::CancelRequested { reason } => Body::CancelRequested { reason: optional(reason) },
        Body::TurnEnded { stop, error } => Body::TurnEnded { stop, error: optional(error) },
        // One of a fixed list of words, numbers, names that clients give, what can be chosen, or the
        // session's folder.
        body @ (Body::TurnStarted
        | Body::ToolTerminal { .. }
        | Body::SettingChanged { .. }
        | Body::Usage(_)
        | Body::Cleared
        | Body::Compacting { .. }
        | Body::Moved { .. }) => body,
    }
}

fn clean_start(redactor: &dyn Redactor, start: ToolStart) -> ToolStart {
    ToolStart {
        tool: clean(redactor, start.tool),
        title: clean(redactor, start.title),
        locations: clean_locations(redactor, start.locations),
        input: clean_opaque(redactor, start.input),
        ..start
    }
}

fn clean_tool_change(redactor: &dyn Redactor, change: ToolChange) -> ToolChange {
    ToolChange {
        title: change.title.map(|title| clean(redactor, title)),
        locations: change.locations.map(|locations| clean_locations(redactor, locations)),
        input: change.input.map(|input| clean_opaque(redactor, input)),
        content: change.content.map(|content| clean_tool_contents(redactor, content)),
        ..change
    }
}

fn clean_end(redactor: &dyn Redactor, end: ToolEnd) -> ToolEnd {
    ToolEnd {
        plain_text: end.plain_text,
        content: clean_tool_contents(redactor, end.content),
        locations: clean_locations(redactor, end.locations),
        raw: end.raw.map(|raw| clean_opaque(redactor, raw)),
        ..end
    }
}

fn clean_request(redactor: &dyn Redactor, request: AskRequest) -> AskRequest {
    AskRequest {
        tool: clean(redactor, request.tool),
        title: clean(redactor, request.title),
        path: request.path.map(|path| clean_path(redactor, path)),
        subject: clean(redactor, request.subject),
        input: clean_opaque(redactor, request.input),
        reason: clean(redactor, request.reason),
        preview: clean_tool_contents(redactor, request.preview),
        question: request.question.map(|question| Question {
            text: clean(redactor, question.text),
            choices: question.choices.into_iter().map(|choice| clean(redactor, choice)).collect(),
            ..question
        }),
        foreign: request.foreign.map(|foreign| {
            let clean_option = |option: AskOption| AskOption { name: clean(redactor, option.name), ..option };
            Box::new(ForeignAsk {
                params: clean_opaque(redactor, foreign.params),
                options: foreign.options.into_iter().map(clean_option).collect(),
            })
        }),
        rule: request.rule.map(|rule| clean(redactor, rule)),
        ..request
    }
}

/// A rule that decided may be spelled like the action.
fn clean_resolver(redactor: &dyn Redactor, by: Resolver) -> Resolver {
    match by {
        Resolver::Policy { reason } => Resolver::Policy { reason: clean(redactor, reason) },
        Resolver::Rule { reason } => Resolver::Rule { reason: clean(redactor, reason) },
        by @ (Resolver::Surface { .. } | Resolver::Engine) => by,
    }
}

fn clean_contents(redactor: &dyn Redactor, contents: Vec<Content>) -> Vec<Content> {
    contents.into_iter().map(|content| clean_content(redactor, content)).collect()
}

/// Pictures, sound and other bytes have no recognisable secrets; they stay as they are unless they contain a
/// known secret value.
fn clean_content(redactor: &dyn Redactor, content: Content) -> Content {
    let text = |text| clean(redactor, text);
    let optional = |text: Option<Arc<str>>| text.map(|text| clean(redactor, text));
    let bytes = |data: Arc<str>| if redactor.is_in_base64(&data) { REDACTED_BYTES.into() } else { data };
    match content {
        Content::Text(said) => Content::Text(text(said)),
        Content::Image { mime, data, uri } => Content::Image { mime, data: bytes(data), uri: optional(uri) },
        Content::Audio { mime, data } => Content::Audio { mime, data: bytes(data) },
        Content::Link(link) => Content::Link(ResourceLink {
            uri: text(link.uri),
            name: text(link.name),
            title: optional(link.title),
            description: optional(link.description),
            mime: link.mime,
            size_bytes: link.size_bytes,
        }),
        Content::Resource { uri, mime, text: said } => {
            Content::Resource { uri: text(uri), mime, text: text(said) }
        }
        Content::Binary { uri, mime, data } => Content::Binary { uri: text(uri), mime, data: bytes(data) },
    }
}

fn clean_tool_contents(redactor: &dyn Redactor, contents: Vec<ToolContent>) -> Vec<ToolContent> {
    let clean = |content| match content {
        ToolContent::Block(content) => ToolContent::Block(clean_content(redactor, content)),
        ToolContent::Diff(change) => ToolContent::Diff(clean_change(redactor, change)),
    };
    contents.into_iter().map(clean).collect()
}

fn clean_change(redactor: &dyn Redactor, change: FileChange) -> FileChange {
    FileChange {
        path: clean_path(redactor, change.path),
        before: change.before.map(|text| clean(redactor, text)),
        after: change.after.map(|text| clean(redactor, text)),
    }
}

fn clean_locations(redactor: &dyn Redactor, locations: Vec<Location>) -> Vec<Location> {
    locations.into_iter().map(|location| clean_location(redactor, location)).collect()
}

fn clean_location(redactor: &dyn Redactor, location: Location) -> Location {
    Location { path: clean_path(redactor, location.path), line: location.line }
}

fn clean_path(redactor: &dyn Redactor, path: PathBuf) -> PathBuf {
    redactor.redact(&path.to_string_lossy()).map_or(path, PathBuf::from)
}

fn clean_opaque(redactor: &dyn Redactor, opaque: Opaque) -> Opaque {
    redactor.redact_json(&opaque.0).map_or(opaque, |text| Opaque(text.into()))
}

fn clean(redactor: &dyn Redactor, text: Arc<str>) -> Arc<str> {
    redactor.redact(&text).map_or(text, Into::into)
}
