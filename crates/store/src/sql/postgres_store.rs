//! Sessions on PostgreSQL, connected lazily: on the first request.
//!
//! So a server starts even while its database is down, reports that when it is asked, and works as soon as the database
//! does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::{
    BoxFuture, Claim, Epoch, Event, EventBatch, EventSource, ListQuery, NewSession, PageRequest, Seq,
    SessionId, SessionRow, Store, StoreError, StoreFault, StoreResult,
};
use tokio::sync::OnceCell;

use super::postgres::{PostgresAddress, PostgresDb};
use super::session_store::{SqlStore, fault};

/// How long an unreachable database is not tried again: callers in that time get the last error.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

pub struct PostgresStore {
    address: PostgresAddress,
    opened: OnceCell<SqlStore>,
    failed: Mutex<Option<(Instant, StoreError)>>,
}

impl PostgresStore {
    pub fn new(address: PostgresAddress) -> Self {
        Self { address, opened: OnceCell::new(), failed: Mutex::new(None) }
    }

    async fn opened(&self) -> Result<&SqlStore, StoreError> {
        self.opened.get_or_try_init(|| self.open()).await.map_err(|error| match error {
            StoreError::Unavailable { reason } => {
                StoreError::Unavailable { reason: format!("{}: {reason}", self.address.shown) }
            }
            error => error,
        })
    }

    async fn open(&self) -> Result<SqlStore, StoreError> {
        if let Some((at, error)) = &*self.failed.lock().unwrap_or_else(PoisonError::into_inner)
            && at.elapsed() < TRY_AGAIN_AFTER
        {
            return Err(error.clone());
        }
        let opened = async {
            let db = PostgresDb::connect(self.address.url(), None).await;
            let db =
                db.map_err(|error| StoreError::Unavailable { reason: super::session_store::reason(error) })?;
            SqlStore::open(Arc::new(db)).await
        };
        let opened = opened.await;
        if let Err(error) = &opened {
            let failed = Some((Instant::now(), error.clone()));
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        }
        opened
    }
}

impl Store for PostgresStore {
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim> {
        Box::pin(async move { self.opened().await?.create(session).await })
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        let id = id.clone();
        Box::pin(async move { self.opened().await?.claim(&id).await })
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        let id = id.clone();
        Box::pin(async move { self.opened().await?.owns(&id, epoch).await })
    }

    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()> {
        let id = id.clone();
        Box::pin(async move { self.opened().await?.release(&id, epoch).await })
    }

    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()> {
        Box::pin(async move { self.opened().await?.append(batch).await })
    }

    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>> {
        let id = id.clone();
        Box::pin(async move { self.opened().await?.read(&id, after, page).await })
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        let id = id.clone();
        Box::pin(async move { self.opened().await?.find(&id).await })
    }

    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        Box::pin(async move { self.opened().await?.unused(ids).await })
    }

    fn never_used(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        Box::pin(async move { self.opened().await?.never_used(ids).await })
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        Box::pin(async move { self.opened().await?.list(query).await })
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        let source = source.clone();
        Box::pin(async move { self.opened().await?.fork(&source, session).await })
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        Box::pin(async move { self.opened().await?.import(session, events).await })
    }

    fn import_from(&self, session: NewSession, source: Box<dyn EventSource>) -> StoreResult<'_, Claim> {
        Box::pin(async move { self.opened().await?.import_from(session, source).await })
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        let id = id.clone();
        Box::pin(async move { self.opened().await?.delete(&id).await })
    }

    fn lineage(&self) -> StoreResult<'_, Option<Arc<str>>> {
        Box::pin(async move { self.opened().await?.lineage().await })
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        let (id, title) = (id.clone(), title.to_owned());
        Box::pin(async move { self.opened().await?.rename(&id, &title).await })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(async move {
            // Without the address: clients that may ask about readiness need not know it.
            match self.opened.get_or_try_init(|| self.open()).await {
                Ok(store) => store.check().await,
                Err(error) => Err(fault(&error)),
            }
        })
    }
}
