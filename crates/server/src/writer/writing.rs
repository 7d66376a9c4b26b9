//! One page of a session, as its client is to see it.

use std::sync::Arc;

use engine::{
    AskId, Body, CallId, Event, Opaque, Origin, Page, Resolution, Seq, Stop, SurfaceId, Taken, Totals, TurnId,
};
use wire::{Fault, Outcome, Piece, Replies, RpcId, SessionView, Stand, View};

use super::shown::{Asking, HostRequest, prompts_of};
use super::{Attached, Out};
use crate::batch::{At, Mark};
use crate::debts::{Debts, Owed};

/// What encoding a page needs of its connection.
pub(super) struct Writing<'a> {
    pub(super) replies: &'a Replies,
    pub(super) debts: &'a Debts,
    pub(super) surface: SurfaceId,
    pub(super) durable: bool,
    pub(super) out: &'a mut Out,
}

struct TurnResult {
    turn: TurnId,
    stop: Stop,
    error: Option<Arc<str>>,
    usage: Totals,
    words: Option<Opaque>,
}

struct Settled<'a> {
    ask: AskId,
    call: Option<&'a CallId>,
    resolution: Resolution,
    by: Option<SurfaceId>,
    was_asked: bool,
}

impl Writing<'_> {
    pub(super) fn events(&mut self, attached: &mut Attached, mut events: &[Arc<Event>]) {
        let until = attached.replay.as_ref().map_or(Seq::START, |replay| replay.until);
        while let Some(first) = events.first() {
            let session = attached.handle.id().clone();
            self.out.again(Some(&session), Seq(first.seq.0.saturating_sub(1)));
            // What is told again comes in its place, and history ends where it ends.
            let again = self.out.extras.next_at().unwrap_or(Seq(u64::MAX));
            let replay = first.seq <= until;
            let stop = if replay { again.min(until) } else { again };
            let count = events.partition_point(|event| event.seq <= stop);
            let (part, rest) = events.split_at(count.max(1));
            if attached.skip > 0 {
                let skip = std::mem::take(&mut attached.skip);
                let (one, others) = part.split_at(1);
                let before = self.out.batch.bytes.len();
                self.part(attached, one, replay);
                self.drop_frames(before, skip);
                self.part(attached, others, replay);
            } else {
                self.part(attached, part, replay);
            }
            events = rest;
        }
        let session = attached.handle.id().clone();
        self.out.again(Some(&session), attached.reader.cursor());
    }

    /// The client has the first frames of this event already.
    fn drop_frames(&mut self, from: usize, count: u32) {
        let written = self.out.batch.bytes.split_off(from);
        let kept =
            written.split_inclusive(|byte| *byte == b'\n').skip(usize::try_from(count).unwrap_or(usize::MAX));
        let kept: Vec<u8> = kept.flatten().copied().collect();
        self.out.batch.bytes.extend_from_slice(&kept);
        if let Some(Mark { at: At::Event(_, left_out), .. }) = self.out.batch.marks.last_mut() {
            *left_out = count;
        }
    }

    fn part(&mut self, attached: &mut Attached, mut events: &[Arc<Event>], replay: bool) {
        // What stands in the history that a client asks for was answered when it happened.
        if !replay {
            events.iter().for_each(|event| self.owe(attached, event));
        }
        let mut stands = Vec::new();
        while !events.is_empty() {
            let view = View { replay, own: self.surface };
            let (taken, piece) =
                attached.updates.encode(events, view, &mut stands, &mut self.out.batch.bytes);
            events = events.get(taken..).unwrap_or_default();
            let session = attached.handle.id();
            let mark = |stand: Stand| Mark {
                offset: stand.offset,
                session: Some(session.clone()),
                at: At::Event(stand.seq, 0),
            };
            self.out.batch.marks.extend(stands.drain(..).map(mark));
            match piece {
                Some(Piece::Asked { ask, request }) => {
                    let asking = Asking::new(&attached.updates, ask, request);
                    match &mut attached.replay {
                        Some(replay) => drop(replay.held.insert(ask, asking)),
                        None => self.ask(attached, ask, &asking),
                    }
                }
                Some(Piece::Resolved { ask, call, resolution, by, was_asked }) => {
                    self.resolved(attached, &Settled { ask, call, resolution, by, was_asked }, replay);
                }
                Some(Piece::TurnEnded { turn, stop, error, usage, words })
                    if !replay || self.is_unanswered(attached, turn) =>
                {
                    self.turn_ended(attached, &TurnResult { turn, stop, error, usage, words });
                }
                Some(Piece::TurnEnded { .. }) | None => {}
            }
        }
    }

    /// Whether the turn of a history is one that this client waits for: it ended before it could be told.
    fn is_unanswered(&self, attached: &mut Attached, turn: TurnId) -> bool {
        let Some(request) = prompts_of(&attached.handle, self.surface).remove(&turn) else { return false };
        let waits = self.debts.prompt(&request).is_some_and(|(_, owed)| owed == turn);
        if waits {
            attached.owed.insert(turn, request);
        }
        waits
    }

    /// A prompt of this client is to be answered when its turn ends.
    fn owe(&self, attached: &mut Attached, event: &Event) {
        let prompted = matches!(event.body, Body::TurnQueued { .. } | Body::TurnStarted);
        if let Origin::Surface { id, request: Some(request), .. } = &event.origin
            && prompted
            && *id == self.surface
            && let Some(turn) = event.turn
            && let Some(request) = RpcId::from_json(request)
        {
            attached.owed.insert(turn, request);
        }
    }

    /// A client that was away is told what was used in its place: money is counted from there.
    pub(super) async fn reprice(&mut self, attached: &mut Attached) {
        if !std::mem::take(&mut attached.reprice) {
            return;
        }
        let mut cost_usd = attached.handle.snapshot().totals.cost_usd;
        let mut reader = attached.handle.read(attached.reader.cursor());
        while let Ok(Taken::Events(events)) = reader.take(Page::USUAL).await {
            for event in events {
                if let Body::Usage(usage) = &event.body {
                    cost_usd -= usage.cost_usd;
                }
            }
        }
        attached.updates.count_from(cost_usd.max(0.0));
    }

    /// Asks what is open and was asked before the client began to see the session.
    pub(super) async fn missed(&mut self, attached: &mut Attached, seq: Seq) {
        let page = Page { count_max: 1, ..Page::USUAL };
        let found = attached.handle.read(Seq(seq.0.saturating_sub(1))).take(page).await;
        if let Ok(Taken::Events(events)) = found
            && let Some(Body::Asked { ask, request }) = events.first().map(|event| &event.body)
        {
            let asking = Asking::new(&attached.updates, *ask, request);
            self.ask_beside(attached, *ask, &asking);
        }
    }

    /// Asks in the question's own place in the log.
    fn ask(&mut self, attached: &mut Attached, ask: AskId, asking: &Asking) {
        if let Some(request) = self.request(attached, ask, asking) {
            asking.frame.write(&request, &mut self.out.batch.bytes);
        }
    }

    /// Asks later than the question's place in the log.
    fn ask_beside(&mut self, attached: &mut Attached, ask: AskId, asking: &Asking) {
        if let Some(request) = self.request(attached, ask, asking) {
            let at = attached.reader.cursor();
            self.out.extra(Some(attached.handle.id()), at, |out| asking.frame.write(&request, out));
        }
    }

    /// The id of our request. A client that comes back is asked under the same id as before.
    fn request(&self, attached: &mut Attached, ask: AskId, asking: &Asking) -> Option<RpcId> {
        if !self.durable && attached.sent.contains_key(&ask) {
            return None;
        }
        let stable = self.durable.then(|| RpcId::text(&format!("{}/{}", attached.handle.id(), ask.0)));
        let owed = Owed { session: attached.handle.clone(), ask, expected: asking.expected.clone() };
        let request = self.debts.asked(owed, stable);
        attached.sent.insert(ask, request.clone());
        Some(request)
    }

    fn resolved(&mut self, attached: &mut Attached, settled: &Settled<'_>, replay: bool) {
        if let Some(replay) = &mut attached.replay {
            replay.held.remove(&settled.ask);
        }
        let was_answering = self.debts.was_answering(attached.handle.id(), settled.ask);
        let request = match attached.sent.remove(&settled.ask) {
            Some(request) => request,
            // A client that comes back may have been asked before its place in the log.
            None if self.durable && settled.was_asked && !replay => {
                RpcId::text(&format!("{}/{}", attached.handle.id(), settled.ask.0))
            }
            None => return,
        };
        // A client that settled the question without answering it, by choosing an approval, still shows it.
        let other = settled.by != Some(self.surface);
        let answered_it = was_answering && !other;
        let unanswered = self.debts.answered(&request).is_some() && !answered_it;
        let out = &mut self.out.batch.bytes;
        if unanswered || attached.updates.tells_own_answer() || self.durable && other {
            attached.updates.withdraw(settled.ask, &request, settled.resolution, out);
        }
        if let Some(call) = settled.call
            && settled.resolution.allows()
        {
            attached.updates.in_progress(call, out);
        }
    }

    fn turn_ended(&mut self, attached: &mut Attached, result: &TurnResult) {
        if let Some(id) = attached.owed.remove(&result.turn) {
            self.debts.prompt_answered(&id);
            // A client that was away has not seen all that the turn used.
            let snapshot = attached.handle.snapshot();
            let prompted = snapshot.prompts.iter().find(|prompted| prompted.turn == result.turn);
            let usage = prompted.map_or(result.usage, |prompted| prompted.usage);
            let (stop, error, words) = (result.stop, result.error.clone(), result.words.clone());
            let outcome = Outcome::TurnEnded { stop, error, usage, words };
            self.debts.tally(|tally| tally.answered(&id, Ok(&outcome)));
            let client = self.debts.client();
            self.replies.write(client, &id, Ok(&outcome), &mut self.out.batch.bytes);
        }
    }

    /// The history is told: the client gets its answer, then the questions that are still open.
    pub(super) fn end_replay(&mut self, attached: &mut Attached) {
        let Some(replay) = attached.replay.take() else { return };
        let (session, at) = (attached.handle.id().clone(), attached.reader.cursor());
        self.out.extra(Some(&session), at, |out| attached.updates.flush(out));
        if !replay.answers.is_empty() {
            self.out
                .extra(Some(&session), at, |out| attached.updates.commands(attached.handle.commands(), out));
        }
        let totals = attached.handle.snapshot().totals;
        if totals.context_size > 0 {
            self.out.extra(Some(&session), at, |out| attached.updates.totals(&totals, out));
        }
        for (id, rules, outcome) in replay.answers {
            let mut outcome =
                outcome.unwrap_or_else(|| Outcome::Opened(SessionView::of(&attached.handle, rules)));
            if let (Outcome::Replayed { replayed, last, .. }, Some(now)) =
                (&mut outcome, attached.updates.resumed_up_to())
            {
                *replayed = now.saturating_sub(*last);
                *last = now;
            }
            self.answer(attached, &id, Ok(&outcome));
        }
        for (ask, asking) in replay.held {
            self.ask_beside(attached, ask, &asking);
        }
    }

    pub(super) fn release(&mut self, attached: &mut Attached) {
        let cursor = attached.reader.cursor();
        let due: Vec<_> = attached.after.extract_if(.., |(seq, _, _)| *seq <= cursor).collect();
        for (_, id, outcome) in due {
            self.answer(attached, &id, Ok(&outcome));
        }
        let updates = &attached.updates;
        let due: Vec<_> = attached.calls.extract_if(.., |call| call.is_due(cursor, updates)).collect();
        self.call(attached, due);
    }

    /// Asks the client to do what waited until it has seen so much.
    fn call(&mut self, attached: &Attached, due: Vec<HostRequest>) {
        for call in due {
            self.out.once(attached.handle.id(), attached.reader.cursor(), &call.frame);
        }
    }

    /// No more will come from this log: everything still owed is answered.
    pub(super) fn end(&mut self, attached: &mut Attached, trouble: Option<&str>) {
        attached.ended = true;
        let rest = std::mem::take(&mut attached.calls);
        self.call(attached, rest);
        let text = trouble.unwrap_or("the session was closed before this was done");
        let fault = Fault::Internal(text.into());
        for (id, _, _) in attached.replay.take().into_iter().flat_map(|replay| replay.answers) {
            self.answer(attached, &id, Err(&fault));
        }
        let snapshot = attached.handle.snapshot();
        for (turn, id) in std::mem::take(&mut attached.owed) {
            self.debts.prompt_answered(&id);
            // A turn that ended before the client's place in the log was answered there.
            if snapshot.prompts.iter().any(|prompted| prompted.turn == turn && !prompted.ended) {
                self.answer(attached, &id, Err(&fault));
            }
        }
        for (_, id, outcome) in std::mem::take(&mut attached.after) {
            self.answer(attached, &id, if trouble.is_some() { Err(&fault) } else { Ok(&outcome) });
        }
        let finish = std::mem::take(&mut attached.finish);
        if !finish.is_empty() {
            let at = attached.reader.cursor();
            self.out
                .extra(Some(attached.handle.id()), at, |out| attached.updates.totals(&snapshot.totals, out));
        }
        for (id, outcome) in finish {
            self.answer(attached, &id, Ok(&outcome));
        }
    }

    fn answer(&mut self, attached: &Attached, id: &RpcId, outcome: Result<&Outcome, &Fault>) {
        self.debts.tally(|tally| tally.answered(id, outcome));
        let client = self.debts.client();
        let at = attached.reader.cursor();
        self.out.extra(Some(attached.handle.id()), at, |out| self.replies.write(client, id, outcome, out));
    }
}
