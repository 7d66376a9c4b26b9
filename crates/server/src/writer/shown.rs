//! The sessions that a connection shows, and what it owes its client in each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Doorbell, LogReader, Seq, SessionHandle, SessionId, Subscription, SurfaceId,
    TerminalId, TurnId,
};
use metrics::LagHandle;
use wire::acp::ExpectedAnswer;
use wire::{AskFrame, Client, Cursor, Outcome, RpcId, UpdateStart, Updates};

#[derive(Default)]
pub(crate) struct Shown {
    pub(super) bell: Arc<Doorbell>,
    pub(super) sessions: HashMap<u64, Attached>,
    keys: HashMap<SessionId, u64>,
    last_key: u64,
}

/// Something that the client is to do, when it has been told enough.
pub(super) struct HostRequest {
    pub(super) after: Seq,
    pub(super) frame: Vec<u8>,
    /// The terminal that it gives back.
    pub(super) releases: Option<TerminalId>,
}

impl HostRequest {
    /// A client that has given a terminal back loses the update that shows it once more.
    pub(super) fn is_due(&self, seen: Seq, updates: &wire::Updates) -> bool {
        self.after <= seen && !self.releases.as_ref().is_some_and(|terminal| updates.shows_terminal(terminal))
    }
}

pub(super) struct Attached {
    pub(super) handle: SessionHandle,
    pub(super) reader: LogReader,
    _subscription: Subscription,
    pub(super) updates: Updates,
    pub(super) replay: Option<Replay>,
    /// Where the client began to see the session.
    begun: Seq,
    /// Everything up to here was or will be told as history.
    history: Seq,
    /// Frames of the next event that the client has already.
    pub(super) skip: u32,
    /// What was used before the client's place is not known yet.
    pub(super) reprice: bool,
    pub(super) ended: bool,
    pub(super) lag: Option<LagHandle>,
    /// Where questions stand that were asked before the client began to see the session.
    pub(super) missed: Vec<Seq>,
    /// Prompts of this client, by turn.
    pub(super) owed: BTreeMap<TurnId, RpcId>,
    pub(super) after: Vec<(Seq, RpcId, Outcome)>,
    pub(super) finish: Vec<(RpcId, Outcome)>,
    /// What the client is asked to do when it has seen so much.
    pub(super) calls: Vec<HostRequest>,
    /// Questions sent to this client, by our request's id.
    pub(super) sent: BTreeMap<AskId, RpcId>,
}

pub(super) struct Replay {
    pub(super) until: Seq,
    /// Each load that is answered at its end, with the rules that it names, or with an answer of its own.
    pub(super) answers: Vec<(RpcId, Vec<String>, Option<Outcome>)>,
    /// Questions in the history that nobody has answered so far.
    pub(super) held: BTreeMap<AskId, Asking>,
}

/// A question, as the client is asked it.
pub(super) struct Asking {
    pub(super) frame: AskFrame,
    pub(super) expected: ExpectedAnswer,
}

impl Asking {
    pub(super) fn new(updates: &Updates, ask: AskId, request: &AskRequest) -> Self {
        Self { frame: updates.ask(ask, request), expected: ExpectedAnswer::to(request) }
    }
}

impl Replay {
    pub(super) fn until(until: Seq) -> Self {
        Self { until, answers: Vec::new(), held: BTreeMap::new() }
    }
}

impl Shown {
    pub(super) fn find(&mut self, id: &SessionId) -> Option<&mut Attached> {
        self.keys.get(id).and_then(|key| self.sessions.get_mut(key))
    }

    pub(super) fn forget(&mut self, id: &SessionId) {
        if let Some(key) = self.keys.remove(id) {
            self.sessions.remove(&key);
        }
    }

    pub(super) fn any_ended(&self) -> bool {
        self.sessions.values().any(|attached| attached.ended)
    }

    /// Where the one session stands that a stream shows.
    pub(super) fn only_cursor(&self) -> Seq {
        self.sessions.values().next().map_or(Seq::START, |attached| attached.reader.cursor())
    }

    pub(super) fn ring_all(&self) {
        for key in self.sessions.keys() {
            self.bell.ring(*key);
        }
    }

    /// It is not known that the client has anything.
    pub(super) fn rewind_all(&mut self, surface: SurfaceId) {
        for attached in self.sessions.values_mut() {
            // What it has to be asked still is not in the log after its place.
            let missed = std::mem::take(&mut attached.missed);
            attached.rewind(Cursor::after(attached.begun), surface);
            attached.missed = missed;
        }
    }

    /// The client has everything up to the position, and nothing after it.
    pub(super) fn rewind(&mut self, position: Cursor, surface: SurfaceId) {
        for attached in self.sessions.values_mut() {
            attached.rewind(position, surface);
        }
    }

    /// A session left memory and came back: the same log goes on under another handle.
    pub(super) fn go_on(&mut self, handle: SessionHandle, client: Client, surface: SurfaceId) {
        if let Some(attached) = self.find(handle.id())
            && !attached.handle.is_same(&handle)
            && (attached.ended || !handle.is_closed())
        {
            let reader = handle.read(attached.reader.cursor());
            // What it has counted so far is taken over from the encoder before it.
            let updates = Updates::new(client, &handle, UpdateStart::default());
            self.show(handle, reader, updates, None, surface);
        }
    }

    /// Shows the session with this reader.
    pub(super) fn show(
        &mut self,
        handle: SessionHandle,
        reader: LogReader,
        updates: Updates,
        replay: Option<Replay>,
        surface: SurfaceId,
    ) -> &mut Attached {
        self.last_key += 1;
        let key = self.last_key;
        let before = self.keys.insert(handle.id().clone(), key).and_then(|old| self.sessions.remove(&old));
        let mut attached = Attached {
            _subscription: reader.subscribe(&self.bell, key),
            history: replay.as_ref().map_or(Seq::START, |replay| replay.until),
            owed: prompts_of(&handle, surface),
            begun: reader.cursor(),
            handle,
            reader,
            updates,
            replay,
            skip: 0,
            reprice: false,
            ended: false,
            lag: None,
            missed: Vec::new(),
            after: Vec::new(),
            finish: Vec::new(),
            calls: Vec::new(),
            sent: BTreeMap::new(),
        };
        if let Some(before) = before {
            attached.inherit(before);
        }
        self.sessions.entry(key).insert_entry(attached).into_mut()
    }
}

impl Attached {
    /// Takes over what the client is owed from the reader that showed it the session so far.
    fn inherit(&mut self, before: Self) {
        let goes_on = self.replay.is_none() || self.updates.last().is_some();
        if goes_on && self.reader.cursor() == before.reader.cursor() {
            // The same stream goes on, and with it what was counted so far. Numbers do that also where
            // history is told: what was on its way to the client comes first.
            self.updates = before.updates;
            self.skip = before.skip;
            self.reprice = before.reprice;
        }
        self.begun = self.begun.min(before.begun);
        self.history = self.history.max(before.history);
        self.lag = before.lag;
        self.missed = before.missed;
        self.owed = before.owed;
        self.after = before.after;
        self.finish = before.finish;
        self.calls = before.calls;
        self.sent = before.sent;
        match (&mut self.replay, before.replay) {
            (Some(replay), Some(old)) => {
                replay.until = replay.until.max(old.until);
                replay.answers.splice(..0, old.answers);
            }
            (replay @ None, old) => *replay = old,
            (Some(_), None) => {}
        }
    }

    /// Says how far the client is behind.
    pub(super) fn measure(&self) {
        if let Some(lag) = &self.lag {
            lag.set(self.reader.head().0.saturating_sub(self.reader.cursor().0));
        }
    }

    fn rewind(&mut self, position: Cursor, surface: SurfaceId) {
        self.reader.skip_to(position.seq);
        self.skip = position.frames();
        self.reprice = true;
        self.owed = prompts_of(&self.handle, surface);
        self.missed.clear();
        if self.replay.is_none() && position.seq < self.history {
            self.replay = Some(Replay::until(self.history));
        }
    }
}

/// The client's prompts that the log remembers. Those that end before its place in the log were
/// answered; they cannot end once more.
pub(super) fn prompts_of(handle: &SessionHandle, surface: SurfaceId) -> BTreeMap<TurnId, RpcId> {
    let snapshot = handle.snapshot();
    let own = snapshot.prompts.iter().filter(|prompted| prompted.surface == surface);
    own.filter_map(|prompted| Some((prompted.turn, RpcId::from_json(&prompted.request)?))).collect()
}
