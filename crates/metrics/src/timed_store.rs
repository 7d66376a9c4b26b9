//! A store that measures how long appends take, and otherwise passes every call through.

use std::sync::Arc;
use std::time::Instant;

use engine::{
    BoxFuture, Claim, Epoch, Event, EventBatch, EventSource, ListQuery, NewSession, PageRequest, Seq,
    SessionId, SessionRow, Store, StoreFault, StoreResult,
};

use super::Metrics;

pub(super) struct TimedStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) metrics: Arc<Metrics>,
}

impl Store for TimedStore {
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim> {
        self.store.create(session)
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        self.store.claim(id)
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        self.store.owns(id, epoch)
    }

    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()> {
        self.store.release(id, epoch)
    }

    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()> {
        let events = batch.events.len();
        Box::pin(async move {
            let began = Instant::now();
            let outcome = self.store.append(batch).await;
            self.metrics.appended(events, began.elapsed(), outcome.is_ok());
            outcome
        })
    }

    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>> {
        self.store.read(id, after, page)
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        self.store.find(id)
    }

    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        self.store.unused(ids)
    }

    fn never_used(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        self.store.never_used(ids)
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        self.store.list(query)
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        self.store.fork(source, session)
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        let count = events.len();
        Box::pin(async move {
            let began = Instant::now();
            let outcome = self.store.import(session, events).await;
            self.metrics.appended(count, began.elapsed(), outcome.is_ok());
            outcome
        })
    }

    fn import_from(&self, session: NewSession, source: Box<dyn EventSource>) -> StoreResult<'_, Claim> {
        Box::pin(async move {
            let began = Instant::now();
            let outcome = self.store.import_from(session, source).await;
            let count = outcome.as_ref().map_or(0, |claim| claim.row.last_seq.0);
            self.metrics.appended(
                usize::try_from(count).unwrap_or(usize::MAX),
                began.elapsed(),
                outcome.is_ok(),
            );
            outcome
        })
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        self.store.delete(id)
    }

    fn lineage(&self) -> StoreResult<'_, Option<Arc<str>>> {
        self.store.lineage()
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        self.store.rename(id, title)
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreFault>> {
        self.store.check()
    }
}
