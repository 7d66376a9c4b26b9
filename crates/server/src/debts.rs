//! What a connection owes and is owed, shared by its reading and its writing half.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{AskId, SessionHandle, SessionId, SurfaceId, TurnId};
use metrics::{Deferred, Door, Guard, LagHandle, Metrics, Tally};
use wire::acp::ExpectedAnswer;
use wire::{Client, RpcId};

pub(crate) struct Debts {
    inner: Mutex<Inner>,
    counted: Option<Counted>,
}

/// Where this connection is counted, for as long as it lives.
struct Counted {
    metrics: Arc<Metrics>,
    tally: Arc<Tally>,
    _open: Guard,
}

#[derive(Default)]
struct Inner {
    client: Client,
    /// Sessions that this client opened and did not close.
    sessions: HashSet<SessionId>,
    /// The client may name any session of its own: its dialect has no way to open one, or it opened
    /// them on an earlier connection.
    any_session: bool,
    /// Prompts that are not answered yet: a client may give one up by its request's id.
    prompts: HashMap<RpcId, (SessionHandle, TurnId)>,
    /// Questions that we sent, by the id of our request.
    asks: HashMap<RpcId, Owed>,
    /// Questions that the client is answering by a method that names them, and not our request.
    answering: HashSet<(SessionId, AskId)>,
    last_request: u64,
}

/// A question that a client was sent.
#[derive(Clone)]
pub(crate) struct Owed {
    pub(crate) session: SessionHandle,
    pub(crate) ask: AskId,
    pub(crate) expected: ExpectedAnswer,
}

impl Debts {
    pub(crate) fn new(metrics: Option<(Arc<Metrics>, Door)>, surface: SurfaceId) -> Self {
        let counted = metrics.map(|(metrics, door)| {
            let open = metrics.connection(door);
            open.surface(surface);
            Counted { tally: Tally::new(Arc::clone(&metrics)), metrics, _open: open }
        });
        Self { inner: Mutex::default(), counted }
    }

    pub(crate) fn tally(&self, count: impl FnOnce(&Tally)) {
        if let Some(counted) = &self.counted {
            count(&counted.tally);
        }
    }

    /// Takes a request out of those that are counted by their answer.
    pub(crate) fn deferred(&self, id: &RpcId) -> Option<Deferred> {
        self.counted.as_ref().and_then(|counted| counted.tally.deferred(id))
    }

    /// One more reader of a log, for this client.
    pub(crate) fn reader(&self) -> Option<LagHandle> {
        self.counted.as_ref().map(|counted| counted.metrics.reader())
    }

    pub(crate) fn client(&self) -> Client {
        self.lock().client
    }

    pub(crate) fn set_client(&self, client: Client) {
        self.lock().client = client;
    }

    pub(crate) fn opened(&self, id: &SessionId) {
        self.lock().sessions.insert(id.clone());
    }

    pub(crate) fn closed(&self, id: &SessionId) {
        self.lock().sessions.remove(id);
    }

    pub(crate) fn has_open(&self, id: &SessionId) -> bool {
        let inner = self.lock();
        inner.any_session || inner.sessions.contains(id)
    }

    /// The session that is open, if it is the only one.
    pub(crate) fn only_session(&self) -> Option<SessionId> {
        let inner = self.lock();
        let mut sessions = inner.sessions.iter();
        sessions.next().filter(|_| sessions.next().is_none()).cloned()
    }

    /// The sessions that the client has open.
    pub(crate) fn open_sessions(&self) -> Vec<SessionId> {
        self.lock().sessions.iter().cloned().collect()
    }

    pub(crate) fn allow_any_session(&self) {
        self.lock().any_session = true;
    }

    pub(crate) fn owe_prompt(&self, request: RpcId, session: SessionHandle, turn: TurnId) {
        self.lock().prompts.insert(request, (session, turn));
    }

    pub(crate) fn prompt(&self, request: &RpcId) -> Option<(SessionHandle, TurnId)> {
        self.lock().prompts.get(request).cloned()
    }

    pub(crate) fn prompt_answered(&self, request: &RpcId) {
        self.lock().prompts.remove(request);
    }

    /// The id for a question that is about to be sent, unless it has one that stays the same.
    pub(crate) fn asked(&self, owed: Owed, stable: Option<RpcId>) -> RpcId {
        let id = stable.unwrap_or_else(|| self.next_request());
        self.lock().asks.insert(id.clone(), owed);
        id
    }

    /// The id of the next request of ours.
    pub(crate) fn next_request(&self) -> RpcId {
        let mut inner = self.lock();
        inner.last_request += 1;
        RpcId::number(inner.last_request)
    }

    pub(crate) fn answered(&self, request: &RpcId) -> Option<Owed> {
        self.lock().asks.remove(request)
    }

    /// The client answers this question by a method of its own.
    pub(crate) fn answers(&self, session: &SessionId, ask: AskId) {
        self.lock().answering.insert((session.clone(), ask));
    }

    /// Whether it was the client's own answer that settled this question, or is no longer on its way.
    pub(crate) fn was_answering(&self, session: &SessionId, ask: AskId) -> bool {
        self.lock().answering.remove(&(session.clone(), ask))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
