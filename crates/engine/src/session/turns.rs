//! A turn's way: accepted, perhaps queued, started, reported on, ended exactly once.

use std::sync::Arc;

use super::{Effect, QUEUE_BYTES_MAX, QUEUE_MAX, Queued, Refusal, Running, Sender, Session, TurnReport};
use crate::backend::Said;
use crate::content::{Content, ToolContent};
use crate::event::{Body, NoticeLevel, Origin, Resolution, Resolver, Stop, ToolEnd};
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
            self.queue.push_back(Queued { turn, by, content });
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
        self.running = Some(Running { turn, cancelling: false, prompter: by.surface, remote });
        self.record(by.origin(), Some(turn), Body::TurnStarted, effects);
        self.record(by.origin(), Some(turn), Body::UserMessage { content: content.clone() }, effects);
        effects.push(Effect::StartTurn { turn, content, standing: by.standing });
    }

    pub(super) fn cancel(&mut self, by: &Sender, only: Option<TurnId>, effects: &mut Vec<Effect>) {
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

    /// The turn whose ask was answered with its end, if it is this sender's to end. Somebody who only looks on
    /// gives that answer too when their client goes away.
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

    pub(super) fn close(&mut self, effects: &mut Vec<Effect>) {
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
            None => effects.push(Effect::Stop),
        }
    }

    pub(super) fn reported(
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
            TurnReport::Emit(said) => {
                self.check_emit(&said.body)?;
                self.record(origin, Some(turn), said, effects);
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

    /// What an external agent says between turns belongs to none.
    pub(super) fn told(&mut self, said: Said, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        self.check_emit(&said.body)?;
        if let Body::ToolStarted(_) = said.body {
            return Err(Refusal::NotATurnsBusiness);
        }
        self.record(Origin::Agent, None, said, effects);
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
            | Body::Compacting { .. }
            | Body::Compacted { .. }
            | Body::Joined { .. }
            | Body::Foreign { .. } => true,
            Body::Offered { .. } => self.joined,
            // What an external agent chose by itself; a person's choice comes as a wish to change.
            Body::SettingChanged { id, .. } => self.joined && **id != *APPROVAL,
            Body::ToolChanged(change) => self.open_calls.contains_key(&change.call),
            Body::ToolStarted(start) => !self.open_calls.contains_key(&start.call),
            Body::ToolOutput { call, .. } | Body::ToolTerminal { call, .. } => {
                self.open_calls.contains_key(call)
            }
            Body::ToolEnded(end) => self.open_calls.contains_key(&end.call),
            Body::TurnQueued { .. }
            | Body::TurnStarted
            | Body::UserMessage { .. }
            | Body::Asked { .. }
            | Body::Resolved { .. }
            | Body::CancelRequested
            | Body::Moved { .. }
            | Body::TurnEnded { .. } => false,
        };
        if allowed { Ok(()) } else { Err(Refusal::NotATurnsBusiness) }
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
                plain_text: false,
                call,
                failed: true,
                content: vec![ToolContent::Block(Content::text(why))],
                locations: Vec::new(),
                raw: None,
                exit: None,
                elapsed_ms: 0,
            };
            self.record(Origin::Engine, turn, Body::ToolEnded(Box::new(end)), effects);
        }
    }
}
