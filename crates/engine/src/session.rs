//! The session's state machine: what may happen next, decided without I/O, clock or tasks.
//!
//! [`Session::apply`] takes one input and answers with effects in the order they must be carried
//! out, or refuses and changes nothing. Races between editors, phones and the agent become orders of
//! inputs, which a test can write down. The same [`Session::observe`] keeps the state in step while
//! the session lives and rebuilds it from the log afterwards, so the two cannot differ.
//!
//! **Invariant:** every turn that was accepted ends exactly once, every tool call and every ask too.
//! **Invariant:** no input widens the sandbox; there is none to send.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use crate::content::{Content, ToolContent};
use crate::event::{AskRequest, Body, NoticeLevel, Origin, Resolution, Resolver, Stop, ToolEnd, Usage};
use crate::ids::{AskId, CallId, SurfaceId, Timestamp, TurnId};
use crate::policy::{Ruling, decide};
use crate::settings::{SettingSpec, Settings};

/// Prompts that may wait behind a running turn.
pub(crate) const QUEUE_MAX: usize = 32;

/// A connection that sends something, with the name its client gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    pub surface: SurfaceId,
    pub name: Arc<str>,
}

impl Sender {
    fn origin(&self) -> Origin {
        Origin::Surface { id: self.surface, name: Arc::clone(&self.name) }
    }

    fn resolver(&self) -> Resolver {
        Resolver::Surface { id: self.surface, name: Arc::clone(&self.name) }
    }
}

#[derive(Debug)]
pub enum Input {
    Prompt {
        by: Sender,
        content: Vec<Content>,
    },
    /// Ends one turn, running or queued; without `only`, the running turn and what the sender queued.
    Cancel {
        by: Sender,
        only: Option<TurnId>,
    },
    Answer {
        by: Sender,
        ask: AskId,
        answer: Answer,
    },
    Change {
        by: Sender,
        id: Arc<str>,
        value: Arc<str>,
    },
    Rename {
        by: Sender,
        title: Arc<str>,
    },
    Move {
        by: Sender,
        cwd: PathBuf,
    },
    /// Ends the session in good order: the running turn is cancelled first.
    Close,
    FromTurn {
        turn: TurnId,
        report: TurnReport,
    },
    /// Nobody answered in time.
    AskExpired {
        ask: AskId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    AllowOnce,
    AllowAlways,
    DenyOnce,
    DenyAlways,
    /// The client gave the question up.
    Withdraw,
}

#[derive(Debug)]
pub enum TurnReport {
    Emit(Body),
    /// `remembered` is what a stored rule says of this wish.
    Ask {
        request: Box<AskRequest>,
        remembered: Option<bool>,
    },
    Change {
        id: Arc<str>,
        value: Arc<str>,
    },
    Ended {
        stop: Stop,
        error: Option<Arc<str>>,
    },
}

/// What must be done next, in order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    Record {
        origin: Origin,
        turn: Option<TurnId>,
        body: Body,
    },
    StartTurn {
        turn: TurnId,
        content: Vec<Content>,
    },
    CancelTurn {
        turn: TurnId,
    },
    /// The ask now waits for a person.
    Wait {
        ask: AskId,
    },
    /// The wish that was just made was settled without anybody waiting.
    Settle {
        resolution: Resolution,
        reason: Arc<str>,
    },
    /// A waiting ask was settled.
    Wake {
        ask: AskId,
        resolution: Resolution,
        reason: Arc<str>,
    },
    Remember {
        tool: Arc<str>,
        subject: Arc<str>,
        allow: bool,
    },
    /// A prompt was accepted as this turn.
    Accepted {
        turn: TurnId,
    },
    /// The session is over: release what it holds.
    Stop,
}

/// The request cannot be met right now, and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{QUEUE_MAX} prompts are waiting already; wait for one to finish or cancel")]
    QueueFull,
    #[error("the session is closing")]
    Closing,
    #[error("permission request {} is unknown or already answered", .0.0)]
    UnknownAsk(AskId),
    #[error("there is no setting {0:?}; the settings are {1}")]
    UnknownSetting(Arc<str>, String),
    #[error("{value:?} is not a choice for {id}; choose one of {choices}")]
    UnknownChoice { id: Arc<str>, value: Arc<str>, choices: String },
    #[error("turn {} is not running", .0.0)]
    StaleTurn(TurnId),
    #[error("a turn cannot report this")]
    NotATurnsBusiness,
}

/// Tokens and money so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// The last call's view of the context.
    pub context_used: u64,
    pub context_size: u64,
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub reasoning: u64,
    pub cost_usd: f64,
}

impl Totals {
    /// Adds one call. The numbers are somebody else's: more than there can be stays the most there is.
    pub fn add(&mut self, usage: &Usage) {
        self.context_used = usage.context_used;
        self.context_size = usage.context_size;
        self.input = self.input.saturating_add(usage.input);
        self.output = self.output.saturating_add(usage.output);
        self.cache_read = self.cache_read.saturating_add(usage.cache_read);
        self.cache_write = self.cache_write.saturating_add(usage.cache_write);
        self.reasoning = self.reasoning.saturating_add(usage.reasoning);
        self.cost_usd += usage.cost_usd;
    }
}

pub struct Session {
    specs: Arc<[SettingSpec]>,
    settings: Settings,
    title: Option<Arc<str>>,
    cwd: PathBuf,
    totals: Totals,
    /// Nobody can answer: what would be asked is refused.
    unattended: bool,
    running: Option<Running>,
    queue: VecDeque<Queued>,
    closing: bool,
    /// Accepted and not ended, running or queued.
    open_turns: BTreeSet<TurnId>,
    open_calls: BTreeMap<CallId, TurnId>,
    open_asks: BTreeMap<AskId, OpenAsk>,
    next_turn: u64,
    next_ask: u64,
}

struct Running {
    turn: TurnId,
    cancelling: bool,
}

struct Queued {
    turn: TurnId,
    by: Sender,
    content: Vec<Content>,
}

#[derive(Clone)]
struct OpenAsk {
    turn: Option<TurnId>,
    call: Option<CallId>,
    tool: Arc<str>,
    subject: Arc<str>,
}

impl Session {
    pub fn new(specs: Arc<[SettingSpec]>, cwd: PathBuf, title: Option<Arc<str>>, unattended: bool) -> Self {
        Self {
            settings: Settings::defaults(&specs),
            specs,
            title,
            cwd,
            totals: Totals::default(),
            unattended,
            running: None,
            queue: VecDeque::new(),
            closing: false,
            open_turns: BTreeSet::new(),
            open_calls: BTreeMap::new(),
            open_asks: BTreeMap::new(),
            next_turn: 1,
            next_ask: 1,
        }
    }

    pub fn apply(&mut self, _now: Timestamp, input: Input) -> Result<Vec<Effect>, Refusal> {
        let mut effects = Vec::new();
        match input {
            Input::Prompt { by, content } => self.prompt(by, content, &mut effects)?,
            Input::Cancel { by, only } => self.cancel(&by, only, &mut effects),
            Input::Answer { by, ask, answer } => self.answer(&by, ask, answer, &mut effects)?,
            Input::Change { by, id, value } => self.change(by.origin(), None, id, value, &mut effects)?,
            Input::Rename { by, title } => {
                self.record(by.origin(), None, Body::Title { title }, &mut effects)
            }
            Input::Move { by, cwd } => self.record(by.origin(), None, Body::Moved { cwd }, &mut effects),
            Input::Close => self.close(&mut effects),
            Input::FromTurn { turn, report } => self.reported(turn, report, &mut effects)?,
            Input::AskExpired { ask } => {
                let open = self.open_asks.get(&ask).cloned().ok_or(Refusal::UnknownAsk(ask))?;
                self.resolve(ask, &open, Resolution::TimedOut, Resolver::Engine, &mut effects);
            }
        }
        Ok(effects)
    }

    /// Keeps the state in step with an event, new or read back from the log.
    pub fn observe(&mut self, turn: Option<TurnId>, body: &Body) {
        match body {
            Body::TurnQueued { .. } | Body::TurnStarted => {
                if let Some(turn) = turn {
                    self.open_turns.insert(turn);
                    self.next_turn = self.next_turn.max(turn.0 + 1);
                }
            }
            Body::ToolStarted(start) => {
                if let Some(turn) = turn {
                    self.open_calls.insert(start.call.clone(), turn);
                }
            }
            Body::ToolEnded(end) => drop(self.open_calls.remove(&end.call)),
            Body::Asked { ask, request } => {
                let open = OpenAsk {
                    turn,
                    call: request.call.clone(),
                    tool: Arc::clone(&request.tool),
                    subject: Arc::clone(&request.subject),
                };
                self.open_asks.insert(*ask, open);
                self.next_ask = self.next_ask.max(ask.0 + 1);
            }
            Body::Resolved { ask, .. } => {
                self.open_asks.remove(ask);
                self.next_ask = self.next_ask.max(ask.0 + 1);
            }
            Body::SettingChanged { id, value } => self.settings.set(Arc::clone(id), Arc::clone(value)),
            Body::Usage(usage) => self.totals.add(usage),
            Body::Title { title } => self.title = Some(Arc::clone(title)),
            Body::Moved { cwd } => self.cwd.clone_from(cwd),
            Body::TurnEnded { .. } => {
                if let Some(turn) = turn {
                    self.open_turns.remove(&turn);
                }
            }
            Body::UserMessage { .. }
            | Body::Text { .. }
            | Body::Thought { .. }
            | Body::Plan { .. }
            | Body::ToolOutput { .. }
            | Body::FileEdited { .. }
            | Body::FileShown { .. }
            | Body::CancelRequested
            | Body::PolicyBlocked { .. }
            | Body::Commands { .. }
            | Body::Notice { .. }
            | Body::Cleared
            | Body::Compacted { .. }
            | Body::Foreign { .. } => {}
        }
    }

    /// Ends what a stopped server left open. Called once, after the whole log was observed.
    pub fn recover(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for turn in std::mem::take(&mut self.open_turns) {
            self.finish_turn(
                turn,
                Resolution::EndedByRestart,
                "the server stopped; whether this took effect is not known",
                &mut effects,
            );
            let error = Some("the server stopped before the turn was finished".into());
            self.record(
                Origin::Engine,
                Some(turn),
                Body::TurnEnded { stop: Stop::Interrupted, error },
                &mut effects,
            );
        }
        effects
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn specs(&self) -> &Arc<[SettingSpec]> {
        &self.specs
    }

    pub fn title(&self) -> Option<&Arc<str>> {
        self.title.as_ref()
    }

    pub fn cwd(&self) -> &PathBuf {
        &self.cwd
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn running(&self) -> Option<TurnId> {
        self.running.as_ref().map(|running| running.turn)
    }

    pub fn busy(&self) -> bool {
        self.running.is_some()
    }

    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub fn cancelling(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.cancelling)
    }

    fn prompt(
        &mut self,
        by: Sender,
        content: Vec<Content>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.closing {
            return Err(Refusal::Closing);
        }
        if self.running.is_some() && self.queue.len() >= QUEUE_MAX {
            return Err(Refusal::QueueFull);
        }
        let turn = TurnId(self.next_turn);
        self.next_turn += 1;
        effects.push(Effect::Accepted { turn });
        if self.running.is_some() {
            self.record(by.origin(), Some(turn), Body::TurnQueued { content: content.clone() }, effects);
            self.queue.push_back(Queued { turn, by, content });
        } else {
            self.start(turn, &by, content, effects);
        }
        Ok(())
    }

    fn start(&mut self, turn: TurnId, by: &Sender, content: Vec<Content>, effects: &mut Vec<Effect>) {
        self.running = Some(Running { turn, cancelling: false });
        self.record(by.origin(), Some(turn), Body::TurnStarted, effects);
        self.record(by.origin(), Some(turn), Body::UserMessage { content: content.clone() }, effects);
        effects.push(Effect::StartTurn { turn, content });
    }

    fn cancel(&mut self, by: &Sender, only: Option<TurnId>, effects: &mut Vec<Effect>) {
        let dropped = |queued: &Queued| match only {
            Some(turn) => queued.turn == turn,
            None => queued.by.surface == by.surface,
        };
        let (gone, kept): (Vec<_>, Vec<_>) = self.queue.drain(..).partition(dropped);
        self.queue = kept.into();
        for queued in gone {
            self.end(queued.turn, by.origin(), Stop::Cancelled, None, effects);
        }
        if let Some(running) = &mut self.running
            && only.is_none_or(|turn| turn == running.turn)
            && !running.cancelling
        {
            running.cancelling = true;
            let turn = running.turn;
            self.record(by.origin(), Some(turn), Body::CancelRequested, effects);
            self.cancel_running(turn, effects);
        }
    }

    /// Open asks first: a tool that waits for one must see the answer, not only the token.
    fn cancel_running(&mut self, turn: TurnId, effects: &mut Vec<Effect>) {
        let asks: Vec<_> = self.asks_of(turn);
        for (ask, open) in asks {
            self.resolve(ask, &open, Resolution::Cancelled, Resolver::Engine, effects);
        }
        effects.push(Effect::CancelTurn { turn });
    }

    fn answer(
        &mut self,
        by: &Sender,
        ask: AskId,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let open = self.open_asks.get(&ask).cloned().ok_or(Refusal::UnknownAsk(ask))?;
        let (resolution, remember) = match answer {
            Answer::AllowOnce => (Resolution::AllowedOnce, None),
            Answer::AllowAlways => (Resolution::AllowedAlways, Some(true)),
            Answer::DenyOnce => (Resolution::DeniedOnce, None),
            Answer::DenyAlways => (Resolution::DeniedAlways, Some(false)),
            Answer::Withdraw => (Resolution::Cancelled, None),
        };
        if let Some(allow) = remember {
            effects.push(Effect::Remember {
                tool: Arc::clone(&open.tool),
                subject: Arc::clone(&open.subject),
                allow,
            });
        }
        self.resolve(ask, &open, resolution, by.resolver(), effects);
        Ok(())
    }

    fn resolve(
        &mut self,
        ask: AskId,
        open: &OpenAsk,
        resolution: Resolution,
        by: Resolver,
        effects: &mut Vec<Effect>,
    ) {
        let reason = reason_of(resolution, &by);
        let body = Body::Resolved { ask, call: open.call.clone(), resolution, by };
        self.record(Origin::Engine, open.turn, body, effects);
        effects.push(Effect::Wake { ask, resolution, reason });
    }

    fn change(
        &mut self,
        origin: Origin,
        turn: Option<TurnId>,
        id: Arc<str>,
        value: Arc<str>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let Some(spec) = self.specs.iter().find(|spec| spec.id == id) else {
            let known: Vec<_> = self.specs.iter().map(|spec| spec.id.as_ref()).collect();
            return Err(Refusal::UnknownSetting(id, known.join(", ")));
        };
        if !spec.choices.iter().any(|choice| choice.value == value) {
            let choices: Vec<_> = spec.choices.iter().map(|choice| choice.value.as_ref()).collect();
            return Err(Refusal::UnknownChoice { id, value, choices: choices.join(", ") });
        }
        if self.settings.get(&id) != value.as_ref() {
            self.record(origin, turn, Body::SettingChanged { id, value }, effects);
        }
        Ok(())
    }

    fn close(&mut self, effects: &mut Vec<Effect>) {
        self.closing = true;
        for queued in std::mem::take(&mut self.queue) {
            self.end(queued.turn, Origin::Engine, Stop::Cancelled, None, effects);
        }
        match &mut self.running {
            Some(running) => {
                running.cancelling = true;
                let turn = running.turn;
                self.cancel_running(turn, effects);
            }
            None => self.stop(effects),
        }
    }

    /// The last word of a session: what it cost in all.
    fn stop(&mut self, effects: &mut Vec<Effect>) {
        effects.push(Effect::Stop);
    }

    fn reported(
        &mut self,
        turn: TurnId,
        report: TurnReport,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.running.as_ref().is_none_or(|running| running.turn != turn) {
            return Err(Refusal::StaleTurn(turn));
        }
        match report {
            TurnReport::Emit(body) => {
                self.check_emit(&body)?;
                self.record(Origin::Agent, Some(turn), body, effects);
            }
            TurnReport::Ask { request, remembered } => self.ask(turn, request, remembered, effects),
            TurnReport::Change { id, value } => self.change(Origin::Agent, Some(turn), id, value, effects)?,
            TurnReport::Ended { stop, error } => self.turn_ended(turn, stop, error, effects),
        }
        Ok(())
    }

    fn check_emit(&self, body: &Body) -> Result<(), Refusal> {
        let allowed = match body {
            Body::Text { .. }
            | Body::Thought { .. }
            | Body::Plan { .. }
            | Body::FileEdited { .. }
            | Body::FileShown { .. }
            | Body::PolicyBlocked { .. }
            | Body::Usage(_)
            | Body::Commands { .. }
            | Body::Title { .. }
            | Body::Notice { .. }
            | Body::Cleared
            | Body::Compacted { .. }
            | Body::Foreign { .. } => true,
            Body::ToolStarted(start) => !self.open_calls.contains_key(&start.call),
            Body::ToolOutput { call, .. } => self.open_calls.contains_key(call),
            Body::ToolEnded(end) => self.open_calls.contains_key(&end.call),
            Body::TurnQueued { .. }
            | Body::TurnStarted
            | Body::UserMessage { .. }
            | Body::Asked { .. }
            | Body::Resolved { .. }
            | Body::CancelRequested
            | Body::SettingChanged { .. }
            | Body::Moved { .. }
            | Body::TurnEnded { .. } => false,
        };
        if allowed { Ok(()) } else { Err(Refusal::NotATurnsBusiness) }
    }

    fn ask(
        &mut self,
        turn: TurnId,
        request: Box<AskRequest>,
        remembered: Option<bool>,
        effects: &mut Vec<Effect>,
    ) {
        let ask = AskId(self.next_ask);
        self.next_ask += 1;
        let (resolution, by) = match self.ruling(&request, remembered) {
            Ruling::Ask => {
                self.record(Origin::Agent, Some(turn), Body::Asked { ask, request }, effects);
                effects.push(Effect::Wait { ask });
                return;
            }
            Ruling::Allow { reason } => (Resolution::AllowedOnce, Resolver::Policy { reason }),
            Ruling::Remembered { allow } => {
                let resolution = if allow { Resolution::AllowedAlways } else { Resolution::DeniedAlways };
                let word = if allow { "allowed" } else { "refused" };
                (
                    resolution,
                    Resolver::Rule {
                        reason: format!("{word} by an earlier answer for {}", request.subject).into(),
                    },
                )
            }
            Ruling::Deny { mode, reason } => {
                let blocked = Body::PolicyBlocked {
                    call: request.call.clone(),
                    tool: Arc::clone(&request.tool),
                    path: request.path.clone(),
                    mode,
                    reason: Arc::clone(&reason),
                };
                self.record(Origin::Engine, Some(turn), blocked, effects);
                (Resolution::DeniedOnce, Resolver::Policy { reason })
            }
        };
        let reason = reason_of(resolution, &by);
        let body = Body::Resolved { ask, call: request.call, resolution, by };
        self.record(Origin::Engine, Some(turn), body, effects);
        effects.push(Effect::Settle { resolution, reason });
    }

    fn ruling(&self, request: &AskRequest, remembered: Option<bool>) -> Ruling {
        if self.cancelling() {
            return Ruling::Deny { mode: "cancelled".into(), reason: "the turn was cancelled".into() };
        }
        match decide(&self.settings, request, remembered) {
            Ruling::Ask if self.unattended => Ruling::Deny {
                mode: "unattended".into(),
                reason: "nobody is here to ask; allow it beforehand with --approval full or a rule".into(),
            },
            ruling @ (Ruling::Allow { .. }
            | Ruling::Remembered { .. }
            | Ruling::Deny { .. }
            | Ruling::Ask) => ruling,
        }
    }

    fn turn_ended(&mut self, turn: TurnId, stop: Stop, error: Option<Arc<str>>, effects: &mut Vec<Effect>) {
        let (stop, error) = if self.cancelling() { (Stop::Cancelled, None) } else { (stop, error) };
        self.running = None;
        self.end(turn, Origin::Agent, stop, error, effects);
        if self.closing {
            self.stop(effects);
        } else if let Some(next) = self.queue.pop_front() {
            self.start(next.turn, &next.by, next.content, effects);
        }
    }

    fn end(
        &mut self,
        turn: TurnId,
        origin: Origin,
        stop: Stop,
        error: Option<Arc<str>>,
        effects: &mut Vec<Effect>,
    ) {
        let resolution = Resolution::Cancelled;
        self.finish_turn(turn, resolution, "the turn ended before the tool did", effects);
        if let Some(text) = &error {
            let notice = Body::Notice { level: NoticeLevel::Error, text: Arc::clone(text) };
            self.record(Origin::Engine, Some(turn), notice, effects);
        }
        self.record(origin, Some(turn), Body::TurnEnded { stop, error }, effects);
    }

    /// Gives every open ask and tool call of a turn its end.
    fn finish_turn(&mut self, turn: TurnId, resolution: Resolution, why: &str, effects: &mut Vec<Effect>) {
        for (ask, open) in self.asks_of(turn) {
            self.resolve(ask, &open, resolution, Resolver::Engine, effects);
        }
        let calls: Vec<_> =
            self.open_calls.iter().filter(|(_, of)| **of == turn).map(|(call, _)| call.clone()).collect();
        for call in calls {
            let end = ToolEnd {
                call,
                failed: true,
                content: vec![ToolContent::Block(Content::text(why))],
                locations: Vec::new(),
                raw: None,
                exit: None,
                elapsed_ms: 0,
            };
            self.record(Origin::Engine, Some(turn), Body::ToolEnded(Box::new(end)), effects);
        }
    }

    fn asks_of(&self, turn: TurnId) -> Vec<(AskId, OpenAsk)> {
        self.open_asks
            .iter()
            .filter(|(_, open)| open.turn == Some(turn))
            .map(|(ask, open)| (*ask, open.clone()))
            .collect()
    }

    fn record(&mut self, origin: Origin, turn: Option<TurnId>, body: Body, effects: &mut Vec<Effect>) {
        self.observe(turn, &body);
        effects.push(Effect::Record { origin, turn, body });
    }
}

/// What the model is told about a decision.
fn reason_of(resolution: Resolution, by: &Resolver) -> Arc<str> {
    if let Resolver::Policy { reason } | Resolver::Rule { reason } = by {
        return Arc::clone(reason);
    }
    match resolution {
        Resolution::AllowedOnce | Resolution::AllowedAlways => "the user allowed it".into(),
        Resolution::DeniedOnce => "the user refused it".into(),
        Resolution::DeniedAlways => "the user refused it and never wants to be asked again".into(),
        Resolution::Cancelled => "the turn was cancelled".into(),
        Resolution::TimedOut => "nobody answered in time".into(),
        Resolution::EndedByRestart => "the server stopped".into(),
    }
}
