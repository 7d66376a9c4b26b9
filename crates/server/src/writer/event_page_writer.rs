//! Encodes one page of a session's events for the client.

use std::sync::Arc;

use engine::{
    AskId, Body, CallId, Event, LogRead, Opaque, Origin, PageRequest, Resolution, Seq, Stop, SurfaceId,
    Totals, TurnId,
};
use wire::{
    ConnectionEvent, EncodeContext, FrameOffset, Replies, RequestError, RequestOutcome, RpcId, SessionView,
};

use super::attached_sessions::{HostRequest, OutgoingAsk, prompts_of};
use super::{AttachedSession, OutgoingFrames};
use crate::frame_batch::{FrameMark, FramePosition};
use crate::pending_replies::{PendingAsk, PendingReplies};

/// The parts of a connection that encoding a page needs.
pub(super) struct PageWriter<'a> {
    pub(super) replies: &'a Replies,
    pub(super) pending_replies: &'a PendingReplies,
    pub(super) surface: SurfaceId,
    pub(super) resumable: bool,
    pub(super) out: &'a mut OutgoingFrames,
}

struct TurnResult {
    turn: TurnId,
    stop: Stop,
    error: Option<Arc<str>>,
    usage: Totals,
    words: Option<Opaque>,
}

struct AskResolution<'a> {
    ask: AskId,
    call: Option<&'a CallId>,
    resolution: Resolution,
    by: Option<SurfaceId>,
    was_asked: bool,
}

impl PageWriter<'_> {
    pub(super) fn events(&mut self, attached: &mut AttachedSession, mut events: &[Arc<Event>]) {
        let until = attached.replay.as_ref().map_or(Seq::START, |replay| replay.until);
        while let Some(first) = events.first() {
            let session = attached.handle.id().clone();
            self.out.again(Some(&session), Seq(first.seq.0.saturating_sub(1)));
            // Extra frames that are sent again come at their position, and history ends at its end.
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
        if let Some(FrameMark { at: FramePosition::Event(_, left_out), .. }) = self.out.batch.marks.last_mut()
        {
            *left_out = count;
        }
    }

    fn part(&mut self, attached: &mut AttachedSession, mut events: &[Arc<Event>], replay: bool) {
        // Prompts in the history that a client asks for were answered when they ended.
        if !replay {
            events.iter().for_each(|event| self.note_prompt(attached, event));
        }
        let mut stands = Vec::new();
        while !events.is_empty() {
            let view = EncodeContext { replay, own: self.surface };
            let (taken, piece) =
                attached.updates.encode(events, view, &mut stands, &mut self.out.batch.bytes);
            events = events.get(taken..).unwrap_or_default();
            let session = attached.handle.id();
            let mark = |stand: FrameOffset| FrameMark {
                offset: stand.offset,
                session: Some(session.clone()),
                at: FramePosition::Event(stand.seq, 0),
            };
            self.out.batch.marks.extend(stands.drain(..).map(mark));
            match piece {
                Some(ConnectionEvent::Asked { ask, request }) => {
                    let asking = OutgoingAsk::new(&attached.updates, ask, request);
                    match &mut attached.replay {
                        Some(replay) => drop(replay.open_asks.insert(ask, asking)),
                        None => self.ask(attached, ask, &asking),
                    }
                }
                Some(ConnectionEvent::Resolved { ask, call, resolution, by, was_asked }) => {
                    self.resolved(attached, &AskResolution { ask, call, resolution, by, was_asked }, replay);
                }
                Some(ConnectionEvent::TurnEnded { turn, stop, error, usage, words })
                    if !replay || self.is_unanswered(attached, turn) =>
                {
                    self.turn_ended(attached, &TurnResult { turn, stop, error, usage, words });
                }
                Some(ConnectionEvent::TurnEnded { .. }) | None => {}
            }
        }
    }

    /// Whether a turn in the history is one whose reply this client still waits for: it ended before the reply was sent.
    fn is_unanswered(&self, attached: &mut AttachedSession, turn: TurnId) -> bool {
        let Some(request) = prompts_of(&attached.handle, self.surface).remove(&turn) else { return false };
        let waits = self.pending_replies.prompt(&request).is_some_and(|(_, owed)| owed == turn);
        if waits {
            attached.pending_prompts.insert(turn, request);
        }
        waits
    }

    /// Notes a prompt of this client, to answer it when its turn ends.
    fn note_prompt(&self, attached: &mut AttachedSession, event: &Event) {
        let prompted = matches!(event.body, Body::TurnQueued { .. } | Body::TurnStarted);
        if let Origin::Surface { id, request: Some(request), .. } = &event.origin
            && prompted
            && *id == self.surface
            && let Some(turn) = event.turn
            && let Some(request) = RpcId::from_json(request)
        {
            attached.pending_prompts.insert(turn, request);
        }
    }

    /// Computes the cost up to the client's position again: a client that reconnects gets costs counted from there.
    pub(super) async fn reprice(&mut self, attached: &mut AttachedSession) {
        if !std::mem::take(&mut attached.reprice) {
            return;
        }
        let mut cost_usd = attached.handle.snapshot().totals.cost_usd;
        let mut reader = attached.handle.read(attached.reader.cursor());
        while let Ok(LogRead::Events(events)) = reader.take(PageRequest::USUAL).await {
            for event in events {
                if let Body::Usage(usage) = &event.body {
                    cost_usd -= usage.cost_usd;
                }
            }
        }
        attached.updates.count_from(cost_usd.max(0.0));
    }

    /// Sends an open ask that was made before the session was attached.
    pub(super) async fn missed(&mut self, attached: &mut AttachedSession, seq: Seq) {
        let page = PageRequest { count_max: 1, ..PageRequest::USUAL };
        let found = attached.handle.read(Seq(seq.0.saturating_sub(1))).take(page).await;
        if let Ok(LogRead::Events(events)) = found
            && let Some(Body::Asked { ask, request }) = events.first().map(|event| &event.body)
        {
            let asking = OutgoingAsk::new(&attached.updates, *ask, request);
            self.ask_beside(attached, *ask, &asking);
        }
    }

    /// Sends an ask at its own position in the log.
    fn ask(&mut self, attached: &mut AttachedSession, ask: AskId, asking: &OutgoingAsk) {
        if let Some(request) = self.request(attached, ask, asking) {
            asking.frame.write(&request, &mut self.out.batch.bytes);
        }
    }

    /// Sends an ask later than its position in the log.
    fn ask_beside(&mut self, attached: &mut AttachedSession, ask: AskId, asking: &OutgoingAsk) {
        if let Some(request) = self.request(attached, ask, asking) {
            let at = attached.reader.cursor();
            self.out.extra(Some(attached.handle.id()), at, |out| asking.frame.write(&request, out));
        }
    }

    /// The id of our request. A client that reconnects gets the ask under the same id as before.
    fn request(&self, attached: &mut AttachedSession, ask: AskId, asking: &OutgoingAsk) -> Option<RpcId> {
        if !self.resumable && attached.sent_asks.contains_key(&ask) {
            return None;
        }
        let stable = self.resumable.then(|| RpcId::text(&format!("{}/{}", attached.handle.id(), ask.0)));
        let owed = PendingAsk { session: attached.handle.clone(), ask, expected: asking.expected.clone() };
        let request = self.pending_replies.asked(owed, stable);
        attached.sent_asks.insert(ask, request.clone());
        Some(request)
    }

    fn resolved(&mut self, attached: &mut AttachedSession, settled: &AskResolution<'_>, replay: bool) {
        if let Some(replay) = &mut attached.replay {
            replay.open_asks.remove(&settled.ask);
        }
        let was_answering = self.pending_replies.was_answering(attached.handle.id(), settled.ask);
        let request = match attached.sent_asks.remove(&settled.ask) {
            Some(request) => request,
            // A client that reconnects may have got the ask before its position in the log.
            None if self.resumable && settled.was_asked && !replay => {
                RpcId::text(&format!("{}/{}", attached.handle.id(), settled.ask.0))
            }
            None => return,
        };
        // A client that settled the ask without answering it, by choosing an approval preset, still shows it.
        let other = settled.by != Some(self.surface);
        let answered_it = was_answering && !other;
        let unanswered = self.pending_replies.answered(&request).is_some() && !answered_it;
        let out = &mut self.out.batch.bytes;
        if unanswered || attached.updates.tells_own_answer() || self.resumable && other {
            attached.updates.withdraw(settled.ask, &request, settled.resolution, out);
        }
        if let Some(call) = settled.call
            && settled.resolution.allows()
        {
            attached.updates.in_progress(call, out);
        }
    }

    fn turn_ended(&mut self, attached: &mut AttachedSession, result: &TurnResult) {
        if let Some(id) = attached.pending_prompts.remove(&result.turn) {
            self.pending_replies.prompt_answered(&id);
            // A client that was disconnected has not seen all usage of the turn.
            let snapshot = attached.handle.snapshot();
            let prompted = snapshot.prompts.iter().find(|prompted| prompted.turn == result.turn);
            let usage = prompted.map_or(result.usage, |prompted| prompted.usage);
            let (stop, error, words) = (result.stop, result.error.clone(), result.words.clone());
            let outcome = RequestOutcome::TurnEnded { stop, error, usage, words };
            self.pending_replies.tally(|tally| tally.answered(&id, Ok(&outcome)));
            let client = self.pending_replies.client();
            self.replies.write(client, &id, Ok(&outcome), &mut self.out.batch.bytes);
        }
    }

    /// The history is complete: the client gets its reply, then the asks that are still open.
    pub(super) fn end_replay(&mut self, attached: &mut AttachedSession) {
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
                outcome.unwrap_or_else(|| RequestOutcome::Opened(SessionView::of(&attached.handle, rules)));
            if let (RequestOutcome::Replayed { replayed, last, .. }, Some(now)) =
                (&mut outcome, attached.updates.resumed_up_to())
            {
                *replayed = now.saturating_sub(*last);
                *last = now;
            }
            self.answer(attached, &id, Ok(&outcome));
        }
        for (ask, asking) in replay.open_asks {
            self.ask_beside(attached, ask, &asking);
        }
    }

    pub(super) fn release(&mut self, attached: &mut AttachedSession) {
        let cursor = attached.reader.cursor();
        let due: Vec<_> = attached.after.extract_if(.., |(seq, _, _)| *seq <= cursor).collect();
        for (_, id, outcome) in due {
            self.answer(attached, &id, Ok(&outcome));
        }
        let updates = &attached.updates;
        let due: Vec<_> = attached.calls.extract_if(.., |call| call.is_due(cursor, updates)).collect();
        self.call(attached, due);
    }

    /// Sends the requests to the client that waited until it has seen so much.
    fn call(&mut self, attached: &AttachedSession, due: Vec<HostRequest>) {
        for call in due {
            self.out.once(attached.handle.id(), attached.reader.cursor(), &call.frame);
        }
    }

    /// The log has ended: everything that is still pending is answered.
    pub(super) fn end(&mut self, attached: &mut AttachedSession, trouble: Option<&str>) {
        attached.ended = true;
        let rest = std::mem::take(&mut attached.calls);
        self.call(attached, rest);
        let text = trouble.unwrap_or("the session was closed before this was done");
        let fault = RequestError::Internal(text.into());
        for (id, _, _) in attached.replay.take().into_iter().flat_map(|replay| replay.answers) {
            self.answer(attached, &id, Err(&fault));
        }
        let snapshot = attached.handle.snapshot();
        for (turn, id) in std::mem::take(&mut attached.pending_prompts) {
            self.pending_replies.prompt_answered(&id);
            // A turn that ended before the client's position in the log was answered there.
            if snapshot.prompts.iter().any(|prompted| prompted.turn == turn && !prompted.ended) {
                self.answer(attached, &id, Err(&fault));
            }
        }
        for (_, id, outcome) in std::mem::take(&mut attached.after) {
            self.answer(attached, &id, if trouble.is_some() { Err(&fault) } else { Ok(&outcome) });
        }
        let finish = std::mem::take(&mut attached.answers_at_end);
        if !finish.is_empty() {
            let at = attached.reader.cursor();
            self.out
                .extra(Some(attached.handle.id()), at, |out| attached.updates.totals(&snapshot.totals, out));
        }
        for (id, outcome) in finish {
            self.answer(attached, &id, Ok(&outcome));
        }
    }

    fn answer(
        &mut self,
        attached: &AttachedSession,
        id: &RpcId,
        outcome: Result<&RequestOutcome, &RequestError>,
    ) {
        self.pending_replies.tally(|tally| tally.answered(id, outcome));
        let client = self.pending_replies.client();
        let at = attached.reader.cursor();
        self.out.extra(Some(attached.handle.id()), at, |out| self.replies.write(client, id, outcome, out));
    }
}
