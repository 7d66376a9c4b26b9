//! A store in memory, lost with the process: for tests, and for sessions on a machine whose
//! real store cannot be used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::{Body, Event};
use crate::ids::{Epoch, Seq, SessionId};
use crate::store::{
    Claim, EventBatch, ListQuery, NewSession, PageRequest, RunningTurns, SessionRow, Store, StoreError,
    StoreResult,
};

#[derive(Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sessions: BTreeMap<SessionId, MemorySession>,
    deleted: BTreeSet<SessionId>,
    running: RunningTurns,
}

struct MemorySession {
    row: SessionRow,
    epoch: Epoch,
    events: Vec<Arc<Event>>,
}

impl MemorySession {
    fn claim(&mut self) -> Claim {
        self.epoch = Epoch(self.epoch.0 + 1);
        Claim { epoch: self.epoch, row: self.row.clone(), next_seq: self.row.last_seq.next() }
    }
}

impl Inner {
    fn find_mut(&mut self, id: &SessionId) -> Result<&mut MemorySession, StoreError> {
        self.sessions.get_mut(id).ok_or(StoreError::NotFound)
    }

    fn create(&mut self, session: NewSession, events: Vec<Arc<Event>>) -> Result<Claim, StoreError> {
        if self.sessions.contains_key(&session.id) || self.deleted.contains(&session.id) {
            return Err(StoreError::Exists);
        }
        let row = SessionRow {
            id: session.id.clone(),
            owner: session.owner,
            cwd: session.cwd,
            roots: session.roots,
            parent: session.parent,
            source: session.source,
            title: session.title,
            created_at: session.created_at,
            updated_at: session.created_at,
            busy: false,
            last_seq: events.last().map_or(Seq::START, |event| event.seq),
        };
        let mut kept = MemorySession { row, epoch: Epoch(0), events };
        let claim = kept.claim();
        self.sessions.insert(session.id, kept);
        Ok(claim)
    }

    fn append(&mut self, batch: EventBatch) -> Result<(), StoreError> {
        if self.find_mut(&batch.session)?.epoch != batch.epoch {
            return Err(StoreError::Fenced);
        }
        let busy = self.running.after(&batch);
        let kept = self.find_mut(&batch.session)?;
        kept.row.busy = busy.unwrap_or(kept.row.busy);
        for event in &batch.events {
            kept.row.last_seq = event.seq;
            kept.row.updated_at = event.at;
            note_in_row(&mut kept.row, &event.body);
        }
        kept.events.extend(batch.events);
        Ok(())
    }
}

/// Keeps the listing's columns in step with what was appended.
fn note_in_row(row: &mut SessionRow, body: &Body) {
    if let Body::Title { title } = body {
        row.title = Some(Arc::clone(title));
    } else if let Body::Moved { cwd, .. } = body {
        row.cwd.clone_from(cwd);
    }
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ready<'a, T: Send + 'a>(value: Result<T, StoreError>) -> StoreResult<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Store for MemoryStore {
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim> {
        ready(self.lock().create(session, Vec::new()))
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        let mut inner = self.lock();
        inner.running.forget(id);
        ready(inner.find_mut(id).map(MemorySession::claim))
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        ready(self.lock().find_mut(id).map(|session| session.epoch == epoch))
    }

    fn release(&self, _id: &SessionId, _epoch: Epoch) -> StoreResult<'_, ()> {
        ready(Ok(()))
    }

    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()> {
        ready(self.lock().append(batch))
    }

    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>> {
        ready(self.lock().find_mut(id).map(|kept| {
            let start = kept.events.partition_point(|event| event.seq <= after);
            let mut bytes = 0;
            let fits = |event: &&Arc<Event>| {
                let fits = bytes == 0 || bytes < page.bytes_max;
                bytes += event.weight();
                fits
            };
            let wanted = |event: &&Arc<Event>| !(page.outline && event.body.is_streamed());
            kept.events[start..]
                .iter()
                .filter(wanted)
                .take(page.count_max)
                .take_while(fits)
                .cloned()
                .collect()
        }))
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        ready(self.lock().find_mut(id).map(|kept| kept.row.clone()))
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        let mut rows: Vec<_> = self
            .lock()
            .sessions
            .values()
            .map(|kept| kept.row.clone())
            .filter(|row| query.admits(row))
            .collect();
        rows.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        rows.truncate(query.limit);
        ready(Ok(rows))
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        let mut inner = self.lock();
        let copied = inner.find_mut(source).map(|kept| kept.events.clone());
        ready(copied.and_then(|events| inner.create(session, events)))
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        let mut inner = self.lock();
        let (cwd, title) = (session.cwd.clone(), session.title.clone());
        let imported = inner.create(session, Vec::new()).and_then(|mut claim| {
            let session = claim.row.id.clone();
            inner.append(EventBatch { session, epoch: claim.epoch, events, sync: true })?;
            let row = &mut inner.find_mut(&claim.row.id)?.row;
            row.cwd = cwd;
            row.title = title.or(row.title.take());
            claim.row = row.clone();
            claim.next_seq = claim.row.last_seq.next();
            Ok(claim)
        });
        ready(imported)
    }

    fn unused(&self, mut ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        let inner = self.lock();
        ids.retain(|id| !inner.sessions.contains_key(id) && !inner.deleted.contains(id));
        ready(Ok(ids))
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        let mut inner = self.lock();
        let existed = inner.sessions.remove(id).is_some();
        if existed {
            inner.deleted.insert(id.clone());
        }
        ready(Ok(existed))
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        ready(self.lock().find_mut(id).map(|kept| kept.row.title = Some(title.into())))
    }
}
