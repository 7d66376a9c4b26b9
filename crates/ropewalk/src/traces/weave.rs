//! A log as traces: which events begin and end which span. Pure: events in, traces out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Body, CallId, Event, Exit, Family, MODEL, PermissionEvent, Resolution, Resolver, Seq,
    SessionId, Stop, Timestamp, ToolEnd, ToolEvent, ToolStart, TurnEvent, TurnId, Usage,
};

use super::spans::{Fact, Span, SpanId, Trace, TraceId, name};

/// Spans in one trace, the turn's own aside. A turn with more tells how many are missing.
const SPANS_MAX: usize = 256;

/// Reads one session.
pub struct Weave {
    session: SessionId,
    model: Arc<str>,
    /// When the prompts came that wait.
    queued: HashMap<TurnId, Timestamp>,
    open: Option<Open>,
}

/// The turn that runs.
struct Open {
    turn: TurnId,
    root: SpanId,
    started: Timestamp,
    queued_ms: i64,
    model: Arc<str>,
    /// Since when it is the model's move.
    thinking: Timestamp,
    tools: HashMap<CallId, Begun>,
    asks: HashMap<AskId, Begun>,
    done: Vec<Span>,
    left_out: u64,
}

/// A span that has not ended.
struct Begun {
    id: SpanId,
    parent: SpanId,
    name: Cow<'static, str>,
    start: Timestamp,
    facts: Vec<(&'static str, Fact)>,
}

impl Weave {
    pub fn new(session: SessionId, model: &str) -> Self {
        Self { session, model: name(model).into(), queued: HashMap::new(), open: None }
    }

    /// The trace of the turn that this event ends.
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
        self.open = Some(Open {
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

    fn running(&mut self, turn: TurnId) -> Option<&mut Open> {
        self.open.as_mut().filter(|open| open.turn == turn)
    }

    /// The log says when a call to the model was over; it began when the model was last given the word.
    fn model_called(&mut self, turn: TurnId, usage: &Usage, event: &Event) {
        // Named by where it ends: it may begin where a tool ended that has a span too.
        let id = SpanId::of(&self.session, turn, event.seq);
        let model = Arc::clone(&self.model);
        let Some(open) = self.running(turn) else { return };
        let start = std::mem::replace(&mut open.thinking, event.at);
        if !open.has_room() {
            return;
        }
        let mut facts = vec![
            ("gen_ai.request.model", Fact::Word(model)),
            ("gen_ai.usage.input_tokens", Fact::count(usage.input)),
            ("gen_ai.usage.output_tokens", Fact::count(usage.output)),
            ("ropewalk.tokens.cache_read", Fact::count(usage.cache_read)),
            ("ropewalk.tokens.cache_write", Fact::count(usage.cache_write)),
            ("ropewalk.tokens.reasoning", Fact::count(usage.reasoning)),
        ];
        if usage.cost_usd.is_finite() {
            facts.push(("ropewalk.cost_usd", Fact::Amount(usage.cost_usd)));
        }
        let begun = Begun { id, parent: open.root, name: "model call".into(), start, facts };
        open.done.push(begun.end(event.at, false, []));
    }

    fn tool_started(&mut self, turn: TurnId, start: &ToolStart, event: &Event) {
        let id = SpanId::of(&self.session, turn, event.seq);
        let Some(open) = self.running(turn) else { return };
        if open.tools.contains_key(&start.call) || !open.has_room() {
            return;
        }
        let tool = name(&start.tool);
        let begun = Begun {
            id,
            parent: open.root,
            name: format!("tool {tool}").into(),
            start: event.at,
            facts: vec![("ropewalk.tool", Fact::Word(tool.into()))],
        };
        open.tools.insert(start.call.clone(), begun);
    }

    fn tool_ended(&mut self, turn: TurnId, end: &ToolEnd, event: &Event) {
        let Some(open) = self.running(turn) else { return };
        open.thinking = event.at;
        let Some(begun) = open.tools.remove(&end.call) else { return };
        let code = end.exit.as_ref().and_then(|Exit { code, .. }| *code);
        let code = code.map(|code| ("ropewalk.exit_code", Fact::Number(code.into())));
        let failed = [("ropewalk.failed", Fact::Truth(end.failed))];
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
        let facts = vec![("ropewalk.risk", Fact::Word(request.risk.as_str().into()))];
        open.asks.insert(ask, Begun { id, parent, name: "ask".into(), start: event.at, facts });
    }

    fn resolved(&mut self, turn: TurnId, ask: AskId, how: (Resolution, &Resolver), event: &Event) {
        let Some(open) = self.running(turn) else { return };
        // What the policy decided at once was never open.
        let Some(begun) = open.asks.remove(&ask) else { return };
        let (resolution, by) = how;
        let facts = [
            ("ropewalk.decision", Fact::Word(resolution.as_str().into())),
            ("ropewalk.by", Fact::Word(resolver(by).into())),
        ];
        open.done.push(begun.end(event.at, false, facts));
    }
}

impl Open {
    fn has_room(&mut self) -> bool {
        let room = self.done.len() + self.tools.len() + self.asks.len() < SPANS_MAX;
        self.left_out += u64::from(!room);
        room
    }

    fn end(mut self, session: &SessionId, stop: Stop, at: Timestamp) -> Trace {
        // What the turn left behind ended with it. By position, so that a trace is the same each time.
        let mut open: Vec<_> = self.tools.into_values().chain(self.asks.into_values()).collect();
        open.sort_by(|one, other| (one.start, &one.name).cmp(&(other.start, &other.name)));
        self.done.extend(open.into_iter().map(|begun| begun.end(at, true, [])));
        let mut facts = vec![
            ("ropewalk.session", Fact::Word(session.as_str().into())),
            ("ropewalk.turn", Fact::count(self.turn.0)),
            ("ropewalk.stop", Fact::Word(stop.as_str().into())),
            ("ropewalk.queued_ms", Fact::Number(self.queued_ms)),
            ("gen_ai.request.model", Fact::Word(self.model)),
        ];
        if self.left_out > 0 {
            facts.push(("ropewalk.spans_left_out", Fact::count(self.left_out)));
        }
        let failed = matches!(stop, Stop::Failed | Stop::Interrupted);
        self.done.push(Span {
            id: self.root,
            parent: None,
            name: "turn".into(),
            start: self.started,
            end: at.max(self.started),
            failed,
            facts,
        });
        Trace { id: TraceId::of(session, self.turn), spans: self.done, left_out: self.left_out }
    }
}

impl Begun {
    fn end(
        mut self,
        at: Timestamp,
        failed: bool,
        facts: impl IntoIterator<Item = (&'static str, Fact)>,
    ) -> Span {
        self.facts.extend(facts);
        Span {
            id: self.id,
            parent: Some(self.parent),
            name: self.name,
            start: self.start,
            // A clock that was set back must not make a span end before it began.
            end: at.max(self.start),
            failed,
            facts: self.facts,
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
