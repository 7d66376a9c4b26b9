//! The interface between a session's log and its storage.
//!
//! A store knows no policy. It appends, reads after a cursor, lists, and fences stale owners. One conformance suite
//! (`testkit::store_suite`) checks these promises for every engine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::BoxFuture;
use crate::event::{Body, Event};
use crate::ids::{Epoch, Principal, Seq, SessionId, Timestamp, TurnId};

/// Positions that a store reserves at once, durably, before it gives the first of them to an event. After
/// a power cut it leaves out the rest of them and as many again, so the gap is longer than this. Shorter
/// gaps are those of versions that left out the rest alone.
pub const POSITIONS_RESERVED: u64 = 1 << 16;

/// The most positions that are skipped at once because somebody else claims to have seen them.
pub const POSITIONS_SKIPPED_MAX: u64 = 1 << 28;

/// How the text begins that a store shows in the place of events that it cannot read.
pub const DAMAGE_NOTICE: &str = "This part of the session is damaged in the store";

pub type StoreResult<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

pub trait Store: Send + Sync + 'static {
    /// Creates a session and claims it. An id that exists, or existed, is refused.
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim>;

    /// Takes the right to append and fences off the previous owner. Refused while a living owner is in the
    /// middle of a turn.
    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim>;

    /// Whether the right to append that was claimed with this epoch still holds: nobody else claimed the session since.
    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool>;

    /// Gives the right to append back, so that a later claim need not wait for this process to die.
    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()>;

    /// Appends events, all or none, in the order given. When this returns, they survive the death
    /// of the process; with `sync` also a power cut, together with everything appended before.
    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()>;

    /// Events after `after`, oldest first, at most `count_max` and, past the first, `bytes_max`.
    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>>;

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow>;

    /// Those of these ids that no session has or had. A failed import leaves its id free.
    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>>;

    /// Those of these sessions that contain nothing but their set-up: nobody ever prompted them. A session
    /// that cannot be read is not among them.
    fn never_used(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for id in ids {
                // A session with more changed settings than this counts as used.
                let page = PageRequest { count_max: 256, bytes_max: usize::MAX, outline: false };
                let Ok(events) = self.read(&id, Seq::START, page).await else { continue };
                let is_setup = |event: &Arc<Event>| event.turn.is_none() && event.body.is_setup();
                if events.len() < page.count_max && events.iter().all(is_setup) {
                    found.push(id);
                }
            }
            Ok(found)
        })
    }

    /// Newest activity first.
    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>>;

    /// Copies `source`'s events up to its head into a new session and claims it: whole or not at all.
    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim>;

    /// Creates a session with these events, whose positions ascend from 1, and claims it. Even if a process
    /// is killed, the session exists completely or not at all. Its folder is the given one, whatever the
    /// events say, and so is its title if one is given.
    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim>;

    /// The same with events that come in pieces. If their source fails, there is no session.
    fn import_from(&self, session: NewSession, mut source: Box<dyn EventSource>) -> StoreResult<'_, Claim> {
        Box::pin(async move {
            let mut events = Vec::new();
            loop {
                let piece = source.next().await.map_err(|reason| StoreError::Write { reason })?;
                if piece.is_empty() {
                    return self.import(session, events).await;
                }
                events.extend(piece);
            }
        })
    }

    /// Removes a session and its events for good. Returns whether it existed: an unknown id is no error.
    /// Refused while a living owner elsewhere is in the middle of a turn.
    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool>;

    /// The name of this store's history. A store that was restored from a backup has another name, because
    /// its positions may be assigned a second time. `None` for stores that cannot be restored.
    fn lineage(&self) -> StoreResult<'_, Option<Arc<str>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Sets the title of a session that nobody has open.
    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()>;

    /// Whether sessions can be stored at this moment. A store that could not be used tries again here, at a
    /// bounded rate. A store that cannot fail is always usable.
    fn check(&self) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Events that come in pieces, in order.
pub trait EventSource: Send {
    /// The next ones; none if that was all. The error says why there are no more although there should be.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Event>>, String>>;
}

/// Why a store cannot be used. The path is separate, because clients that may ask about readiness need not
/// know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    pub path: Option<PathBuf>,
    pub cause: String,
    /// What to do about the fault.
    pub fix: String,
}

impl StoreFault {
    /// The fault without the place where the store is.
    pub fn brief(&self) -> String {
        let text = format!("{}; {}", self.cause, self.fix);
        // The error texts of other libraries may contain it.
        match self.path.as_deref().and_then(std::path::Path::parent) {
            Some(folder) if folder.parent().is_some() => text.replace(&format!("{}/", folder.display()), ""),
            _ => text,
        }
    }
}

impl std::fmt::Display for StoreFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}; {}", self.cause, self.fix)
    }
}

impl From<StoreFault> for StoreError {
    fn from(fault: StoreFault) -> Self {
        Self::Unavailable { reason: fault.to_string() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    pub id: SessionId,
    pub owner: Principal,
    pub cwd: PathBuf,
    pub roots: Vec<PathBuf>,
    pub parent: Option<SessionId>,
    /// The door through which it was created: `acp`, `run`, `import`.
    pub source: Arc<str>,
    pub created_at: Timestamp,
    pub title: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub id: SessionId,
    pub owner: Principal,
    pub cwd: PathBuf,
    pub roots: Vec<PathBuf>,
    pub parent: Option<SessionId>,
    pub source: Arc<str>,
    pub title: Option<Arc<str>>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// A turn was started and not ended.
    pub busy: bool,
    pub last_seq: Seq,
}

/// The right to append to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub epoch: Epoch,
    pub row: SessionRow,
    /// The position of the next event. After a power cut it is past everything that may have been shown to
    /// anybody, so a position is never assigned twice.
    pub next_seq: Seq,
}

impl Claim {
    /// Whether events that somebody saw may be missing: positions are skipped after the last one.
    pub fn leaves_gap(&self) -> bool {
        self.next_seq > self.row.last_seq.next()
    }
}

#[derive(Debug, Clone)]
pub struct EventBatch {
    pub session: SessionId,
    pub epoch: Epoch,
    pub events: Vec<Arc<Event>>,
    pub sync: bool,
}

/// The turn that runs in each session, as far as a store has seen it start since the session was claimed. A queued turn
/// may end without having started: that ends no other one.
#[derive(Debug, Default)]
pub struct RunningTurns(HashMap<SessionId, TurnId>);

impl RunningTurns {
    /// Whether a turn runs after this batch; `None` if nothing in it says so.
    pub fn after(&mut self, batch: &EventBatch) -> Option<bool> {
        let mut busy = None;
        for event in &batch.events {
            if matches!(event.body, Body::TurnStarted) {
                self.0.extend(event.turn.map(|turn| (batch.session.clone(), turn)));
                busy = Some(true);
            } else if matches!(event.body, Body::TurnEnded { .. }) {
                let other = |running: &TurnId| event.turn.is_some_and(|ended| ended != *running);
                if !self.0.get(&batch.session).is_some_and(other) {
                    self.0.remove(&batch.session);
                    busy = Some(false);
                }
            }
        }
        busy
    }

    /// The session was claimed, released or deleted.
    pub fn forget(&mut self, session: &SessionId) {
        self.0.remove(session);
    }
}

#[derive(Debug, Clone, Copy)]
pub struct PageRequest {
    pub count_max: usize,
    pub bytes_max: usize,
    /// Leaves out what was streamed (text, thoughts, tool output): the session's state does not
    /// depend on it, and it is nearly all there is.
    pub outline: bool,
}

impl PageRequest {
    pub const USUAL: PageRequest = PageRequest { count_max: 512, bytes_max: 1 << 20, outline: false };
    pub const OUTLINE: PageRequest = PageRequest { count_max: 4096, bytes_max: 4 << 20, outline: true };
}

#[derive(Debug, Clone)]
pub struct ListQuery {
    pub owner: Principal,
    pub cwd: Option<PathBuf>,
    /// Continue after the session that was active at this time and had this id.
    pub before: Option<(Timestamp, SessionId)>,
    pub limit: usize,
}

impl ListQuery {
    pub fn all(owner: Principal) -> Self {
        Self { owner, cwd: None, before: None, limit: usize::MAX }
    }

    /// Whether a row belongs to the answer, leaving the limit aside. Rows come newest first, and by
    /// descending id where the times are equal.
    pub fn admits(&self, row: &SessionRow) -> bool {
        row.owner == self.owner
            && self.cwd.as_deref().is_none_or(|cwd: &Path| cwd == row.cwd)
            && self.before.as_ref().is_none_or(|(at, id)| (row.updated_at, &row.id) < (*at, id))
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the session store cannot be used: {reason}")]
    Unavailable { reason: String },
    #[error("there is no such session")]
    NotFound,
    #[error("a session with this id exists already, or was deleted")]
    Exists,
    #[error("another process took over the session")]
    Fenced,
    #[error("the session is running a turn in another process")]
    BusyElsewhere,
    /// Another process holds the store's lock. Nothing was written, and it can be tried again.
    #[error("the session store is busy: {reason}")]
    Busy { reason: String },
    #[error("the session log could not be written: {reason}")]
    Write { reason: String },
    #[error("the stored session cannot be read: {reason}")]
    Damaged { reason: String },
}
