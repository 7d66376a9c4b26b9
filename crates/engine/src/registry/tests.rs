//! Many sessions in one house, with a store, an agent and a clock of the tests' own.

mod answers;
mod failing;
mod folders;
mod races;
mod rooms;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use super::{Limits, Registry, RegistryParts, Wish};
use crate::event::{Body, Event, Stop};
use crate::handle::SessionHandle;
use crate::ids::{Principal, Seq, TurnId};
use crate::store::{ListQuery, Page, Store};
use crate::testing::{DEADLINE, Obedient, Switched, TestClock, brief, prompt, until};

struct House {
    store: Arc<Switched>,
    registry: Arc<Registry>,
}

impl House {
    fn new(limits: Limits) -> Self {
        Self::on(Arc::new(Switched::default()), limits)
    }

    fn on(store: Arc<Switched>, limits: Limits) -> Self {
        let parts = RegistryParts::new(Arc::<Switched>::clone(&store), Obedient::new(), TestClock::new());
        let parts = RegistryParts { limits, ..parts };
        Self { store, registry: Registry::new(parts) }
    }

    fn with_room_for(sessions_max: usize) -> Self {
        Self::new(Limits { sessions_max, ..Limits::default() })
    }

    async fn create(&self) -> SessionHandle {
        self.registry.create(wish()).await.unwrap()
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
        let page = Page { count_max: usize::MAX, bytes_max: usize::MAX, outline: false };
        self.store.inner.read(handle.id(), Seq::START, page).await.unwrap()
    }

    async fn stored_brief(&self, handle: &SessionHandle) -> String {
        brief(&self.stored(handle).await)
    }
}

fn me() -> Principal {
    Principal::local()
}

fn wish() -> Wish {
    Wish::new(me(), "/project".into(), "test")
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
