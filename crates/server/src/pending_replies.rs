//! The replies that a connection and its client still owe each other, shared by the connection's reading and writing half:
//! prompts that are not answered yet, permission requests that were sent, and the sessions that the client has open.
//!
//! That is both directions: what we still have to answer, and what we asked and the client has not answered.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{AskId, SessionHandle, SessionId, SurfaceId, TurnId};
use metrics::{ConnectionGuard, DeferredRequest, DoorLabel, LagReporter, Metrics, RequestTally};
use wire::acp::ExpectedAnswer;
use wire::{Client, RpcId};

pub(crate) struct PendingReplies {
    inner: Mutex<Inner>,
    connection_metrics: Option<ConnectionMetrics>,
}

/// The metrics of this connection, for as long as it lives.
struct ConnectionMetrics {
    metrics: Arc<Metrics>,
    tally: Arc<RequestTally>,
    _open: ConnectionGuard,
}

#[derive(Default)]
struct Inner {
    client: Client,
    /// Sessions that this client opened and did not close.
    sessions: HashSet<SessionId>,
    /// The client may name any session of its own: its dialect has no way to open one, or it opened
    /// them on an earlier connection.
    any_session: bool,
    /// Prompts that are not answered yet, by the client's request id: a client may cancel one by it.
    prompts: HashMap<RpcId, (SessionHandle, TurnId)>,
    /// Asks that we sent, by the id of our request.
    asks: HashMap<RpcId, PendingAsk>,
    /// Asks that the client is answering by a method that names the ask, and not by a response to our request.
    answering: HashSet<(SessionId, AskId)>,
    last_request: u64,
}

/// An ask that was sent to the client.
#[derive(Clone)]
pub(crate) struct PendingAsk {
    pub(crate) session: SessionHandle,
    pub(crate) ask: AskId,
    pub(crate) expected: ExpectedAnswer,
}

impl PendingReplies {
    pub(crate) fn new(metrics: Option<(Arc<Metrics>, DoorLabel)>, surface: SurfaceId) -> Self {
        let connection_metrics = metrics.map(|(metrics, door)| {
            let open = metrics.connection(door);
            open.surface(surface);
            ConnectionMetrics { tally: RequestTally::new(Arc::clone(&metrics)), metrics, _open: open }
        });
        Self { inner: Mutex::default(), connection_metrics }
    }

    pub(crate) fn tally(&self, count: impl FnOnce(&RequestTally)) {
        if let Some(connection_metrics) = &self.connection_metrics {
            count(&connection_metrics.tally);
        }
    }

    /// Takes a request out of those that are counted by their reply, to count it later.
    pub(crate) fn deferred(&self, id: &RpcId) -> Option<DeferredRequest> {
        self.connection_metrics.as_ref().and_then(|connection_metrics| connection_metrics.tally.deferred(id))
    }

    /// One more reader of a log, for this client.
    pub(crate) fn reader(&self) -> Option<LagReporter> {
        self.connection_metrics.as_ref().map(|connection_metrics| connection_metrics.metrics.reader())
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

    pub(crate) fn add_prompt(&self, request: RpcId, session: SessionHandle, turn: TurnId) {
        self.lock().prompts.insert(request, (session, turn));
    }

    pub(crate) fn prompt(&self, request: &RpcId) -> Option<(SessionHandle, TurnId)> {
        self.lock().prompts.get(request).cloned()
    }

    pub(crate) fn prompt_answered(&self, request: &RpcId) {
        self.lock().prompts.remove(request);
    }

    /// The id for an ask that is about to be sent: `stable`, or else a new one.
    pub(crate) fn asked(&self, owed: PendingAsk, stable: Option<RpcId>) -> RpcId {
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

    pub(crate) fn answered(&self, request: &RpcId) -> Option<PendingAsk> {
        self.lock().asks.remove(request)
    }

    /// The client answers this ask by a method that names it.
    pub(crate) fn answers(&self, session: &SessionId, ask: AskId) {
        self.lock().answering.insert((session.clone(), ask));
    }

    /// Whether the client was answering this ask by a method that names it. It is not afterwards.
    pub(crate) fn was_answering(&self, session: &SessionId, ask: AskId) -> bool {
        self.lock().answering.remove(&(session.clone(), ask))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
