//! What a connection owes and is owed, shared by its reading and its writing half.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{AskId, SessionHandle, SessionId, TurnId};
use wire::RpcId;
use wire::acp::ClientAbilities;

#[derive(Default)]
pub(crate) struct Debts {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    client: ClientAbilities,
    /// Sessions that this client opened and did not close.
    sessions: HashSet<SessionId>,
    /// Prompts that are not answered yet: a client may give one up by its request's id.
    prompts: HashMap<RpcId, (SessionHandle, TurnId)>,
    /// Questions that we sent, by the id of our request.
    asks: HashMap<u64, (SessionHandle, AskId)>,
    last_request: u64,
}

impl Debts {
    pub(crate) fn client(&self) -> ClientAbilities {
        self.lock().client
    }

    pub(crate) fn set_client(&self, client: ClientAbilities) {
        self.lock().client = client;
    }

    pub(crate) fn opened(&self, id: &SessionId) {
        self.lock().sessions.insert(id.clone());
    }

    pub(crate) fn closed(&self, id: &SessionId) {
        self.lock().sessions.remove(id);
    }

    pub(crate) fn has_open(&self, id: &SessionId) -> bool {
        self.lock().sessions.contains(id)
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

    /// The id for a question that is about to be sent.
    pub(crate) fn asked(&self, session: SessionHandle, ask: AskId) -> u64 {
        let mut inner = self.lock();
        inner.last_request += 1;
        let id = inner.last_request;
        inner.asks.insert(id, (session, ask));
        id
    }

    pub(crate) fn answered(&self, request: u64) -> Option<(SessionHandle, AskId)> {
        self.lock().asks.remove(&request)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
