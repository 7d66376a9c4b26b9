//! Many sessions in one registry, with the tests' own store, agent and clock.

mod capacity;
mod durable_inputs;
mod failures;
mod folders;
mod owners_and_copies;
mod races;

use std::sync::Arc;
use std::time::Duration;

use super::{NewSessionRequest, Registry, RegistryParts, SessionLimits};
use crate::event::{Body, Event, Stop};
use crate::ids::{Principal, Seq, TurnId};
use crate::session_handle::SessionHandle;
use crate::store::{ListQuery, PageRequest, Store};
use crate::testing::{DEADLINE, FailingStore, ScriptedBackend, TestClock, brief, prompt, until};

struct TestRegistry {
    store: Arc<FailingStore>,
    registry: Arc<Registry>,
}

impl TestRegistry {
    fn new(limits: SessionLimits) -> Self {
        Self::on(Arc::new(FailingStore::default()), limits)
    }

    fn on(store: Arc<FailingStore>, limits: SessionLimits) -> Self {
        let parts =
            RegistryParts::new(Arc::<FailingStore>::clone(&store), ScriptedBackend::new(), TestClock::new());
        let parts = RegistryParts { limits, ..parts };
        Self { store, registry: Registry::new(parts) }
    }

    fn with_room_for(sessions_max: usize) -> Self {
        Self::new(SessionLimits { sessions_max, ..SessionLimits::default() })
    }

    async fn create(&self) -> SessionHandle {
        self.registry.create(new_session()).await.unwrap()
    }

    async fn open(&self, handle: &SessionHandle) -> SessionHandle {
        self.registry.open(&me(), handle.id()).await.unwrap()
    }

    async fn live(&self) -> usize {
        let listed = self.registry.list(ListQuery::all(me())).await.unwrap();
        listed.iter().filter(|session| session.live).count()
    }

    async fn is_live(&self, handle: &SessionHandle) -> bool {
        let listed = self.registry.list(ListQuery::all(me())).await.unwrap();
        listed.iter().any(|session| session.row.id == *handle.id() && session.live)
    }

    /// What the store has of a session.
    async fn stored(&self, handle: &SessionHandle) -> Vec<Arc<Event>> {
        let page = PageRequest { count_max: usize::MAX, bytes_max: usize::MAX, outline: false };
        self.store.inner.read(handle.id(), Seq::START, page).await.unwrap()
    }

    async fn stored_brief(&self, handle: &SessionHandle) -> String {
        brief(&self.stored(handle).await)
    }
}

fn me() -> Principal {
    Principal::local()
}

fn new_session() -> NewSessionRequest {
    NewSessionRequest::new(me(), "/project".into(), "test")
}

/// Prompts, and waits until the turn's end is in the log.
async fn run(handle: &SessionHandle, script: &str) -> Stop {
    let turn = start(handle, script).await;
    end_of(handle, turn).await
}

/// Prompts, and waits until the turn has begun.
async fn start(handle: &SessionHandle, script: &str) -> TurnId {
    let turn = handle.send(prompt(script)).await.unwrap().turn.unwrap();
    until(handle, |event| event.turn == Some(turn)).await;
    turn
}

async fn end_of(handle: &SessionHandle, turn: TurnId) -> Stop {
    let events = until(handle, |event| event.turn == Some(turn) && is_end(event)).await;
    let Body::TurnEnded { stop, .. } = events.last().unwrap().body else { panic!("not an end") };
    stop
}

fn is_end(event: &Event) -> bool {
    matches!(event.body, Body::TurnEnded { .. })
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it takes for ever")
}

/// Lets that much of the tests' time pass.
async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}
