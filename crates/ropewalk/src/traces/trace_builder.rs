//! Builds traces from session events. No I/O: events in, traces out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Body, CallId, Event, Exit, Family, MODEL, PermissionEvent, Resolution, Resolver, Seq,
    SessionId, Stop, Timestamp, ToolEnd, ToolEvent, ToolStart, TurnEvent, TurnId, Usage,
};

use super::spans::{Attribute, Span, SpanId, Trace, TraceId, name};

/// Maximum number of spans in a trace, besides that of the turn. The rest is counted.
const SPANS_MAX: usize = 256;

/// Builds the traces of one session.
pub struct TraceBuilder {
    session: SessionId,
    model: Arc<str>,
    /// When the queued prompts arrived.
    queued: HashMap<TurnId, Timestamp>,
    open: Option<OpenTurn>,
}

/// The running turn.
struct OpenTurn {
    turn: TurnId,
    root: SpanId,
    started: Timestamp,
    queued_ms: i64,
    model: Arc<str>,
    /// When the current model call began.
    thinking: Timestamp,
    tools: HashMap<CallId, OpenSpan>,
    asks: HashMap<AskId, OpenSpan>,
    done: Vec<Span>,
    left_out: u64,
}

/// A span that has not ended.
struct OpenSpan {
    id: SpanId,
    parent: SpanId,
    name: Cow<'static, str>,
    start: Timestamp,
    attributes: Vec<(&'static str, Attribute)>,
}

impl TraceBuilder {
    pub fn new(session: SessionId, model: &str) -> Self {
        Self { session, model: name(model).into(), queued: HashMap::new(), open: None }
    }

    /// Processes an event. Returns the trace if the event ends a turn.
    pub fn event(&mut self, event: &Event) -> Option<Trace> {
        if let Body::SettingChanged { id, value } = &event.body
            && **id == *MODEL
        {
            self.model = name(value).into();
        }
        let turn = event.turn?;
        match event.body.family() {
            Family::Turn(TurnEvent::Queued { .. }) => drop(self.queued.insert(turn, event.at)),
            Family::Turn(TurnEvent::Started) => self.turn_started(turn, event),
            Family::Turn(TurnEvent::Ended { stop, .. }) => return self.turn_ended(turn, stop, event.at),
            Family::Usage(usage) => self.model_called(turn, usage, event),
            Family::Tool(ToolEvent::Started(start)) => self.tool_started(turn, start, event),
            Family::Tool(ToolEvent::Ended(end)) => self.tool_ended(turn, end, event),
            Family::Permission(PermissionEvent::Asked { ask, request }) => {
                self.asked(turn, ask, request, event)
            }
            Family::Permission(PermissionEvent::Resolved { ask, resolution, by, .. }) => {
                self.resolved(turn, ask, (resolution, by), event)
            }
            Family::Turn(TurnEvent::UserMessage { .. } | TurnEvent::CancelRequested { .. })
            | Family::Speech(_)
            | Family::Tool(ToolEvent::Changed(_))
            | Family::Setup(_)
            | Family::Context(_)
            | Family::Other => {}
        }
        None
    }

    fn turn_started(&mut self, turn: TurnId, event: &Event) {
        let since = self.queued.remove(&turn).unwrap_or(event.at);
        self.open = Some(OpenTurn {
            turn,
            root: SpanId::of(&self.session, turn, Seq::START),
            started: event.at,
            queued_ms: event.at.0.saturating_sub(since.0).max(0),
            model: Arc::clone(&self.model),
            thinking: event.at,
            tools: HashMap::new(),
            asks: HashMap::new(),
            done: Vec::new(),
            left_out: 0,
        });
    }

    fn turn_ended(&mut self, turn: TurnId, stop: Stop, at: Timestamp) -> Option<Trace> {
        self.queued.remove(&turn);
        let open = self.open.take_if(|open| open.turn == turn)?;
        Some(open.end(&self.session, stop, at))
    }

    fn running(&mut self, turn: TurnId) -> Option<&mut OpenTurn> {
        self.open.as_mut().filter(|open| open.turn == turn)
    }

    /// The log has the end of a model call; it began after the previous model call or tool.
    fn model_called(&mut self, turn: TurnId, usage: &Usage, event: &Event) {
        // The id comes from the end of the call, because a tool span may have the same start.
        let id = SpanId::of(&self.session, turn, event.seq);
        let model = Arc::clone(&self.model);
        let Some(open) = self.running(turn) else { return };
        let start = std::mem::replace(&mut open.thinking, event.at);
        if !open.has_room() {
            return;
        }
        let mut attributes = vec![
            ("gen_ai.request.model", Attribute::Word(model)),
            ("gen_ai.usage.input_tokens", Attribute::count(usage.input)),
            ("gen_ai.usage.output_tokens", Attribute::count(usage.output)),
            ("ropewalk.tokens.cache_read", Attribute::count(usage.cache_read)),
            ("ropewalk.tokens.cache_write", Attribute::count(usage.cache_write)),
            ("ropewalk.tokens.reasoning", Attribute::count(usage.reasoning)),
        ];
        if usage.cost_usd.is_finite() {
            attributes.push(("ropewalk.cost_usd", Attribute::Amount(usage.cost_usd)));
        }
        let begun = OpenSpan { id, parent: open.root, name: "model call".into(), start, attributes };
        open.done.push(begun.end(event.at, false, []));
    }

    fn tool_started(&mut self, turn: TurnId, start: &ToolStart, event: &Event) {
        let id = SpanId::of(&self.session, turn, event.seq);
        let Some(open) = self.running(turn) else { return };
        if open.tools.contains_key(&start.call) || !open.has_room() {
            return;
        }
        let tool = name(&start.tool);
        let begun = OpenSpan {
            id,
            parent: open.root,
            name: format!("tool {tool}").into(),
            start: event.at,
            attributes: vec![("ropewalk.tool", Attribute::Word(tool.into()))],
        };
        open.tools.insert(start.call.clone(), begun);
    }

    fn tool_ended(&mut self, turn: TurnId, end: &ToolEnd, event: &Event) {
        let Some(open) = self.running(turn) else { return };
        open.thinking = event.at;
        let Some(begun) = open.tools.remove(&end.call) else { return };
        let code = end.exit.as_ref().and_then(|Exit { code, .. }| *code);
        let code = code.map(|code| ("ropewalk.exit_code", Attribute::Number(code.into())));
        let failed = [("ropewalk.failed", Attribute::Truth(end.failed))];
        open.done.push(begun.end(event.at, end.failed, failed.into_iter().chain(code)));
    }

    fn asked(&mut self, turn: TurnId, ask: AskId, request: &AskRequest, event: &Event) {
        let id = SpanId::of(&self.session, turn, event.seq);
        let Some(open) = self.running(turn) else { return };
        if !open.has_room() {
            return;
        }
        let tool = request.call.as_ref().and_then(|call| open.tools.get(call));
        let parent = tool.map_or(open.root, |tool| tool.id);
        let attributes = vec![("ropewalk.risk", Attribute::Word(request.risk.as_str().into()))];
        open.asks.insert(ask, OpenSpan { id, parent, name: "ask".into(), start: event.at, attributes });
    }

    fn resolved(&mut self, turn: TurnId, ask: AskId, how: (Resolution, &Resolver), event: &Event) {
        let Some(open) = self.running(turn) else { return };
        // A request that the policy decided at once was never open.
        let Some(begun) = open.asks.remove(&ask) else { return };
        let (resolution, by) = how;
        let attributes = [
            ("ropewalk.decision", Attribute::Word(resolution.as_str().into())),
            ("ropewalk.by", Attribute::Word(resolver(by).into())),
        ];
        open.done.push(begun.end(event.at, false, attributes));
    }
}

impl OpenTurn {
    fn has_room(&mut self) -> bool {
        let room = self.done.len() + self.tools.len() + self.asks.len() < SPANS_MAX;
        self.left_out += u64::from(!room);
        room
    }

    fn end(mut self, session: &SessionId, stop: Stop, at: Timestamp) -> Trace {
        // Spans still open end with the turn. Sorted, so that a trace is the same each time.
        let mut open: Vec<_> = self.tools.into_values().chain(self.asks.into_values()).collect();
        open.sort_by(|one, other| (one.start, &one.name).cmp(&(other.start, &other.name)));
        self.done.extend(open.into_iter().map(|begun| begun.end(at, true, [])));
        let mut attributes = vec![
            ("ropewalk.session", Attribute::Word(session.as_str().into())),
            ("ropewalk.turn", Attribute::count(self.turn.0)),
            ("ropewalk.stop", Attribute::Word(stop.as_str().into())),
            ("ropewalk.queued_ms", Attribute::Number(self.queued_ms)),
            ("gen_ai.request.model", Attribute::Word(self.model)),
        ];
        if self.left_out > 0 {
            attributes.push(("ropewalk.spans_left_out", Attribute::count(self.left_out)));
        }
        let failed = matches!(stop, Stop::Failed | Stop::Interrupted);
        self.done.push(Span {
            id: self.root,
            parent: None,
            name: "turn".into(),
            start: self.started,
            end: at.max(self.started),
            failed,
            attributes,
        });
        Trace { id: TraceId::of(session, self.turn), spans: self.done, left_out: self.left_out }
    }
}

impl OpenSpan {
    fn end(
        mut self,
        at: Timestamp,
        failed: bool,
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) -> Span {
        self.attributes.extend(attributes);
        Span {
            id: self.id,
            parent: Some(self.parent),
            name: self.name,
            start: self.start,
            // A clock that was set back must not make a span end before it started.
            end: at.max(self.start),
            failed,
            attributes: self.attributes,
        }
    }
}

fn resolver(by: &Resolver) -> &'static str {
    match by {
        Resolver::Policy { .. } => "policy",
        Resolver::Rule { .. } => "rule",
        Resolver::Surface { .. } => "surface",
        Resolver::Engine => "engine",
    }
}
