//! The sessions that a connection streams to its client, and what is pending in each of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Doorbell, LogReader, Seq, SessionHandle, SessionId, Subscription, SurfaceId,
    TerminalId, TurnId,
};
use metrics::LagReporter;
use wire::acp::ExpectedAnswer;
use wire::{AskFrame, Client, Cursor, RequestOutcome, RpcId, UpdateStart, Updates};

#[derive(Default)]
pub(crate) struct AttachedSessions {
    pub(super) bell: Arc<Doorbell>,
    pub(super) by_key: HashMap<u64, AttachedSession>,
    keys: HashMap<SessionId, u64>,
    last_key: u64,
}

/// A request to the client (files, terminals) that waits until the client has seen everything up to `after`.
pub(super) struct HostRequest {
    pub(super) after: Seq,
    pub(super) frame: Vec<u8>,
    /// The terminal that it releases.
    pub(super) releases: Option<TerminalId>,
}

impl HostRequest {
    /// A terminal is released only after the last update that shows it was written: the client would lose that update.
    pub(super) fn is_due(&self, seen: Seq, updates: &wire::Updates) -> bool {
        self.after <= seen && !self.releases.as_ref().is_some_and(|terminal| updates.shows_terminal(terminal))
    }
}

pub(super) struct AttachedSession {
    pub(super) handle: SessionHandle,
    pub(super) reader: LogReader,
    _subscription: Subscription,
    pub(super) updates: Updates,
    pub(super) replay: Option<HistoryReplay>,
    /// The position at which the session was attached.
    attached_at: Seq,
    /// Everything up to here was or will be sent as history.
    history: Seq,
    /// Frames of the next event that the client has already.
    pub(super) skip: u32,
    /// The cost before the client's position has to be computed again.
    pub(super) reprice: bool,
    pub(super) ended: bool,
    pub(super) lag: Option<LagReporter>,
    /// The positions of open asks that were made before the session was attached.
    pub(super) earlier_asks: Vec<Seq>,
    /// Prompts of this client, by turn.
    pub(super) pending_prompts: BTreeMap<TurnId, RpcId>,
    pub(super) after: Vec<(Seq, RpcId, RequestOutcome)>,
    pub(super) answers_at_end: Vec<(RpcId, RequestOutcome)>,
    /// Requests to the client that wait until it has seen so much.
    pub(super) calls: Vec<HostRequest>,
    /// The ids of our requests for the asks that were sent to this client.
    pub(super) sent_asks: BTreeMap<AskId, RpcId>,
}

pub(super) struct HistoryReplay {
    pub(super) until: Seq,
    /// The loads that are answered at its end, each with the rules that the reply names, or with an outcome of its own.
    pub(super) answers: Vec<(RpcId, Vec<String>, Option<RequestOutcome>)>,
    /// Asks in the history that are not answered so far.
    pub(super) open_asks: BTreeMap<AskId, OutgoingAsk>,
}

/// An ask, encoded for the client.
pub(super) struct OutgoingAsk {
    pub(super) frame: AskFrame,
    pub(super) expected: ExpectedAnswer,
}

impl OutgoingAsk {
    pub(super) fn new(updates: &Updates, ask: AskId, request: &AskRequest) -> Self {
        Self { frame: updates.ask(ask, request), expected: ExpectedAnswer::to(request) }
    }
}

impl HistoryReplay {
    pub(super) fn until(until: Seq) -> Self {
        Self { until, answers: Vec::new(), open_asks: BTreeMap::new() }
    }
}

impl AttachedSessions {
    pub(super) fn find(&mut self, id: &SessionId) -> Option<&mut AttachedSession> {
        self.keys.get(id).and_then(|key| self.by_key.get_mut(key))
    }

    pub(super) fn forget(&mut self, id: &SessionId) {
        if let Some(key) = self.keys.remove(id) {
            self.by_key.remove(&key);
        }
    }

    pub(super) fn any_ended(&self) -> bool {
        self.by_key.values().any(|attached| attached.ended)
    }

    /// The position of the one session of a stream.
    pub(super) fn only_cursor(&self) -> Seq {
        self.by_key.values().next().map_or(Seq::START, |attached| attached.reader.cursor())
    }

    pub(super) fn ring_all(&self) {
        for key in self.by_key.keys() {
            self.bell.ring(*key);
        }
    }

    /// Starts again: nothing is known of what the client has.
    pub(super) fn rewind_all(&mut self, surface: SurfaceId) {
        for attached in self.by_key.values_mut() {
            // The asks that are still to be sent are not in the log after its position.
            let earlier_asks = std::mem::take(&mut attached.earlier_asks);
            attached.rewind(Cursor::after(attached.attached_at), surface);
            attached.earlier_asks = earlier_asks;
        }
    }

    /// The client has everything up to the position, and nothing after it.
    pub(super) fn rewind(&mut self, position: Cursor, surface: SurfaceId) {
        for attached in self.by_key.values_mut() {
            attached.rewind(position, surface);
        }
    }

    /// A session left memory and was loaded again: the same log continues under another handle.
    pub(super) fn switch_handle(&mut self, handle: SessionHandle, client: Client, surface: SurfaceId) {
        if let Some(attached) = self.find(handle.id())
            && !attached.handle.is_same(&handle)
            && (attached.ended || !handle.is_closed())
        {
            let reader = handle.read(attached.reader.cursor());
            // Its counts are taken over from the encoder before it.
            let updates = Updates::new(client, &handle, UpdateStart::default());
            self.show(handle, reader, updates, None, surface);
        }
    }

    /// Attaches the session with this reader.
    pub(super) fn show(
        &mut self,
        handle: SessionHandle,
        reader: LogReader,
        updates: Updates,
        replay: Option<HistoryReplay>,
        surface: SurfaceId,
    ) -> &mut AttachedSession {
        self.last_key += 1;
        let key = self.last_key;
        let before = self.keys.insert(handle.id().clone(), key).and_then(|old| self.by_key.remove(&old));
        let mut attached = AttachedSession {
            _subscription: reader.subscribe(&self.bell, key),
            history: replay.as_ref().map_or(Seq::START, |replay| replay.until),
            pending_prompts: prompts_of(&handle, surface),
            attached_at: reader.cursor(),
            handle,
            reader,
            updates,
            replay,
            skip: 0,
            reprice: false,
            ended: false,
            lag: None,
            earlier_asks: Vec::new(),
            after: Vec::new(),
            answers_at_end: Vec::new(),
            calls: Vec::new(),
            sent_asks: BTreeMap::new(),
        };
        if let Some(before) = before {
            attached.inherit(before);
        }
        self.by_key.entry(key).insert_entry(attached).into_mut()
    }
}

impl AttachedSession {
    /// Takes over the pending replies and counts of the attachment before this one.
    fn inherit(&mut self, before: Self) {
        let goes_on = self.replay.is_none() || self.updates.last().is_some();
        if goes_on && self.reader.cursor() == before.reader.cursor() {
            // The same stream continues, and with it the counts so far. Numbered updates do that also where
            // history is sent: updates that were on their way to the client come first.
            self.updates = before.updates;
            self.skip = before.skip;
            self.reprice = before.reprice;
        }
        self.attached_at = self.attached_at.min(before.attached_at);
        self.history = self.history.max(before.history);
        self.lag = before.lag;
        self.earlier_asks = before.earlier_asks;
        self.pending_prompts = before.pending_prompts;
        self.after = before.after;
        self.answers_at_end = before.answers_at_end;
        self.calls = before.calls;
        self.sent_asks = before.sent_asks;
        match (&mut self.replay, before.replay) {
            (Some(replay), Some(old)) => {
                replay.until = replay.until.max(old.until);
                replay.answers.splice(..0, old.answers);
            }
            (replay @ None, old) => *replay = old,
            (Some(_), None) => {}
        }
    }

    /// Reports how far the client is behind.
    pub(super) fn measure(&self) {
        if let Some(lag) = &self.lag {
            lag.set(self.reader.head().0.saturating_sub(self.reader.cursor().0));
        }
    }

    fn rewind(&mut self, position: Cursor, surface: SurfaceId) {
        self.reader.skip_to(position.seq);
        self.skip = position.frames();
        self.reprice = true;
        self.pending_prompts = prompts_of(&self.handle, surface);
        self.earlier_asks.clear();
        if self.replay.is_none() && position.seq < self.history {
            self.replay = Some(HistoryReplay::until(self.history));
        }
    }
}

/// The client's prompts that the log remembers. Prompts whose turn ended before its position in the log were
/// answered; they cannot end once more.
pub(super) fn prompts_of(handle: &SessionHandle, surface: SurfaceId) -> BTreeMap<TurnId, RpcId> {
    let snapshot = handle.snapshot();
    let own = snapshot.prompts.iter().filter(|prompted| prompted.surface == surface);
    own.filter_map(|prompted| Some((prompted.turn, RpcId::from_json(&prompted.request)?))).collect()
}
