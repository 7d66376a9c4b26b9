//! The life cycle of a turn: accepted, perhaps queued, started, reported on, ended exactly once.

use std::sync::Arc;

use super::{
    Effect, QUEUE_BYTES_MAX, QUEUE_MAX, QueuedPrompt, Refusal, RunningTurn, Sender, Session, TurnReport,
};
use crate::backend::NewEvent;
use crate::content::{Content, ToolContent};
use crate::event::{
    Body, Family, NoticeLevel, Origin, Resolution, Resolver, SetupEvent, SpeechEvent, Stop, ToolEnd,
    ToolEvent,
};
use crate::ids::{CallId, TurnId};
use crate::settings::APPROVAL;

impl Session {
    pub(super) fn prompt(
        &mut self,
        by: Sender,
        content: Vec<Content>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.closing {
            return Err(Refusal::Closing);
        }
        if self.running.is_some() && !self.may_wait(&content) {
            return Err(Refusal::QueueFull);
        }
        let turn = TurnId(self.next_turn);
        self.next_turn += 1;
        effects.push(Effect::Accepted { turn });
        if self.running.is_some() {
            self.record(by.origin(), Some(turn), Body::TurnQueued { content: content.clone() }, effects);
            self.queue.push_back(QueuedPrompt { turn, by, content });
        } else {
            self.start(turn, &by, content, effects);
        }
        Ok(())
    }

    fn may_wait(&self, content: &[Content]) -> bool {
        let waiting = self.queue.iter().flat_map(|queued| &queued.content);
        let bytes: usize = waiting.chain(content).map(Content::weight).sum();
        self.queue.len() < QUEUE_MAX && bytes <= QUEUE_BYTES_MAX
    }

    fn start(&mut self, turn: TurnId, by: &Sender, content: Vec<Content>, effects: &mut Vec<Effect>) {
        let remote = by.remote.is_some().then(|| Sender { request: None, ..by.clone() });
        self.running = Some(RunningTurn { turn, cancelling: false, prompter: by.surface, remote });
        self.record(by.origin(), Some(turn), Body::TurnStarted, effects);
        self.record(by.origin(), Some(turn), Body::UserMessage { content: content.clone() }, effects);
        effects.push(Effect::StartTurn { turn, content, standing: by.standing });
    }

    pub(super) fn cancel(&mut self, by: &Sender, only: Option<TurnId>, effects: &mut Vec<Effect>) {
        let dropped = |queued: &QueuedPrompt| match only {
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
            self.record(by.origin(), Some(turn), Body::CancelRequested { reason: None }, effects);
            self.cancel_running(turn, effects);
        }
    }

    /// The turn whose request was answered by ending it, if this sender may end it. A client that only
    /// watches sends that answer too when it disconnects.
    pub(super) fn ends_by(&self, by: &Sender, turn: Option<TurnId>) -> Option<TurnId> {
        let running = self.running.as_ref()?;
        (Some(running.turn) == turn && running.prompter == by.surface).then_some(running.turn)
    }

    /// Open asks first: a tool that waits for one must see the answer, not only the token.
    fn cancel_running(&mut self, turn: TurnId, effects: &mut Vec<Effect>) {
        let asks: Vec<_> = self.asks_of(Some(turn));
        for (ask, open) in asks {
            self.resolve(ask, &open, Resolution::Cancelled.into(), Resolver::Engine, effects);
        }
        effects.push(Effect::CancelTurn { turn });
    }

    /// A client that closes the session in the middle of a turn cancels that turn, and the log records it. A
    /// client that gives a reason asked for a cancel, which is recorded even if no turn runs.
    pub(super) fn close(&mut self, by: Option<&Sender>, reason: Option<Arc<str>>, effects: &mut Vec<Effect>) {
        self.closing = true;
        for queued in std::mem::take(&mut self.queue) {
            self.end(queued.turn, by.map_or(Origin::Engine, Sender::origin), Stop::Cancelled, None, effects);
        }
        let running = self.running.as_mut().map(|running| {
            let first = !std::mem::replace(&mut running.cancelling, true);
            (running.turn, first)
        });
        let is_told = running.map_or(reason.is_some(), |(_, first)| first);
        if let Some(by) = by.filter(|_| is_told) {
            let turn = running.map(|(turn, _)| turn);
            self.record(by.origin(), turn, Body::CancelRequested { reason }, effects);
        }
        match running {
            Some((turn, _)) => self.cancel_running(turn, effects),
            None => effects.push(Effect::Stop),
        }
    }

    pub(super) fn turn_reported(
        &mut self,
        turn: TurnId,
        within: Option<CallId>,
        report: TurnReport,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let origin = within.map_or(Origin::Agent, |call| Origin::Task { call });
        if self.running.as_ref().is_none_or(|running| running.turn != turn) {
            return Err(Refusal::StaleTurn(turn));
        }
        match report {
            TurnReport::Emit(event) => {
                self.check_emit(&event.body)?;
                self.record(origin, Some(turn), event, effects);
            }
            TurnReport::Ask { request, hit } => self.ask(turn, origin, request, hit.as_ref(), effects),
            TurnReport::Change { id, value } => {
                let remote = self.running.as_ref().and_then(|running| running.remote.as_ref());
                let origin = remote.map_or(origin, Sender::origin);
                self.change(origin, Some(turn), id, value, effects)?;
            }
            TurnReport::Ended { stop, error } => self.turn_ended(turn, stop, error, effects),
        }
        Ok(())
    }

    /// Events that an external agent reports between turns belong to no turn.
    pub(super) fn agent_reported(
        &mut self,
        event: NewEvent,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.check_emit(&event.body)?;
        if let Body::ToolStarted(_) = event.body {
            return Err(Refusal::NotATurnsBusiness);
        }
        self.record(Origin::Agent, None, event, effects);
        Ok(())
    }

    fn check_emit(&self, body: &Body) -> Result<(), Refusal> {
        let open = |call: &CallId| self.open_calls.contains_key(call);
        let allowed = match body.family() {
            Family::Speech(SpeechEvent::Text { .. } | SpeechEvent::Thought { .. })
            | Family::Usage(_)
            | Family::Context(_)
            | Family::Setup(
                SetupEvent::Commands { .. } | SetupEvent::Title { .. } | SetupEvent::Joined { .. },
            ) => true,
            Family::Setup(SetupEvent::Offered { .. }) => self.joined,
            // An external agent chose this by itself; a person's choice comes as a request to change.
            Family::Setup(SetupEvent::Setting { id, .. }) => self.joined && **id != *APPROVAL,
            Family::Speech(SpeechEvent::Output { call, .. }) => open(call),
            Family::Tool(ToolEvent::Changed(change)) => open(&change.call),
            Family::Tool(ToolEvent::Started(start)) => !open(&start.call),
            Family::Tool(ToolEvent::Ended(end)) => open(&end.call),
            Family::Turn(_) | Family::Permission(_) | Family::Setup(SetupEvent::Moved { .. }) => false,
            Family::Other => self.may_show(body),
        };
        if allowed { Ok(()) } else { Err(Refusal::NotATurnsBusiness) }
    }

    /// Of the kinds that nobody follows, those that a turn may report are listed here, so that no kind is
    /// allowed by accident.
    fn may_show(&self, body: &Body) -> bool {
        if let Body::ToolTerminal { call, .. } = body {
            return self.open_calls.contains_key(call);
        }
        matches!(
            body,
            Body::Plan { .. }
                | Body::FileEdited { .. }
                | Body::FileShown { .. }
                | Body::PolicyBlocked { .. }
                | Body::Notice { .. }
                | Body::Foreign { .. }
        )
    }

    fn turn_ended(&mut self, turn: TurnId, stop: Stop, error: Option<Arc<str>>, effects: &mut Vec<Effect>) {
        let (stop, error) = if self.cancelling() { (Stop::Cancelled, None) } else { (stop, error) };
        self.running = None;
        self.end(turn, Origin::Agent, stop, error, effects);
        if self.closing {
            effects.push(Effect::Stop);
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
        self.finish_turn(Some(turn), resolution, "the turn ended before the tool did", effects);
        if let Some(text) = &error {
            let notice = Body::Notice { level: NoticeLevel::Error, text: Arc::clone(text) };
            self.record(Origin::Engine, Some(turn), notice, effects);
        }
        self.record(origin, Some(turn), Body::TurnEnded { stop, error }, effects);
    }

    /// Gives every open ask and tool call of a turn its end.
    pub(super) fn finish_turn(
        &mut self,
        turn: Option<TurnId>,
        resolution: Resolution,
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        for (ask, open) in self.asks_of(turn) {
            self.resolve(ask, &open, resolution.into(), Resolver::Engine, effects);
        }
        let calls: Vec<_> = self
            .open_calls
            .iter()
            .filter(|(_, of)| Some(**of) == turn)
            .map(|(call, _)| call.clone())
            .collect();
        for call in calls {
            let end = ToolEnd {
                failed: true,
                content: vec![ToolContent::Block(Content::text(why))],
                ..ToolEnd::of(call)
            };
            self.record(Origin::Engine, turn, Body::ToolEnded(Box::new(end)), effects);
        }
    }
}
