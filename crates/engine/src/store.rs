//! The wall between a session's log and where it is kept.
//!
//! A store knows no policy. It appends, reads after a cursor, lists, and fences stale owners. Its
//! promises are checked by one conformance suite (`testkit::store_suite`) for every engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::BoxFuture;
use crate::event::Event;
use crate::ids::{Epoch, Principal, Seq, SessionId, Timestamp};

/// Positions that a store reserves at once, durably, before it gives the first of them to an event. After
/// a power cut it leaves out the rest of them and as many again, so the gap is longer than this. Shorter
/// gaps are those of versions that left out the rest alone.
pub const POSITIONS_RESERVED: u64 = 1 << 16;

/// Positions that are left out at once, at most, on the word of somebody else.
pub const POSITIONS_SKIPPED_MAX: u64 = 1 << 28;

/// How the text begins that a store shows in the place of events that it cannot read.
pub const DAMAGE_NOTICE: &str = "This part of the session is damaged in the store";

pub type StoreResult<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

pub trait Store: Send + Sync + 'static {
    /// Creates a session and claims it. An id that exists, or existed, is refused.
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim>;

    /// Takes the right to append. Whoever had it is fenced off. Refused while a living owner is in
    /// the middle of a turn.
    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim>;

    /// Whether the right to append that was claimed with this epoch still holds: nobody else claimed the session since.
    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool>;

    /// Gives the right to append back. A later claim then needs nobody's death.
    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()>;

    /// Appends events, all or none, in the order given. When this returns, they survive the death
    /// of the process; with `sync` also a power cut, together with everything appended before.
    fn append(&self, batch: Batch) -> StoreResult<'_, ()>;

    /// Events after `after`, oldest first, at most `count_max` and, past the first, `bytes_max`.
    fn read(&self, id: &SessionId, after: Seq, page: Page) -> StoreResult<'_, Vec<Arc<Event>>>;

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow>;

    /// Those of these ids that no session has, or had. An import that came to nothing leaves its id free.
    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>>;

    /// Those of these sessions in which nothing but their set-up happened: nobody ever prompted them. One that cannot be
    /// read is not among them.
    fn never_used(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for id in ids {
                // Whoever changed more settings than this used it.
                let page = Page { count_max: 256, bytes_max: usize::MAX, outline: false };
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

    /// Creates a session with these events, whose positions ascend from 1, and claims it. Whoever is killed when,
    /// there is the whole session or none. Its folder is the one that is given, whatever the events say, and so is its
    /// title if there is one.
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

    /// Removes a session and its events for good. Unknown ids are not an error: says what happened.
    /// Refused while a living owner elsewhere is in the middle of a turn.
    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool>;

    /// Names the history that this store has. A store that was restored from a backup has another one, because its
    /// positions may be given a second time. Nothing where stores are not restored.
    fn lineage(&self) -> StoreResult<'_, Option<Arc<str>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Sets the title of a session nobody has open.
    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()>;

    /// Whether sessions can be kept at this moment. A store that could not be used tries again here, but
    /// not more often than makes sense. A store that has nothing to fail is always well.
    fn check(&self) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Events that come in pieces, in order.
pub trait EventSource: Send {
    /// The next ones; none if that was all. The error says why there are no more although there should be.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Event>>, String>>;
}

/// Why a store cannot be used, in parts: whoever may ask about readiness need not know where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    pub path: Option<PathBuf>,
    pub cause: String,
    /// What to do about it.
    pub fix: String,
}

impl StoreFault {
    /// The fault without the place where the store is.
    pub fn brief(&self) -> String {
        let text = format!("{}; {}", self.cause, self.fix);
        // What other libraries say may have it in it.
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
    /// The door it came through: `acp`, `run`, `import`.
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
    /// The next event gets this position. After a power cut it is past everything that may have been
    /// shown to anybody, so a position is never given twice.
    pub next_seq: Seq,
}

impl Claim {
    /// Events that were shown to somebody may be missing: positions are left out after the last one.
    pub fn leaves_gap(&self) -> bool {
        self.next_seq > self.row.last_seq.next()
    }
}

#[derive(Debug, Clone)]
pub struct Batch {
    pub session: SessionId,
    pub epoch: Epoch,
    pub events: Vec<Arc<Event>>,
    pub sync: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub count_max: usize,
    pub bytes_max: usize,
    /// Leaves out what was streamed (text, thoughts, tool output): the session's state does not
    /// depend on it, and it is nearly all there is.
    pub outline: bool,
}

impl Page {
    pub const USUAL: Page = Page { count_max: 512, bytes_max: 1 << 20, outline: false };
    pub const OUTLINE: Page = Page { count_max: 4096, bytes_max: 4 << 20, outline: true };
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
    #[error("another process took the session over")]
    Fenced,
    #[error("the session is in the middle of a turn in another process")]
    BusyElsewhere,
    /// Another process holds the store's lock. Nothing was written, and it can be tried again.
    #[error("the session store is busy: {reason}")]
    Busy { reason: String },
    #[error("the session log could not be written: {reason}")]
    Write { reason: String },
    #[error("the stored session cannot be read: {reason}")]
    Damaged { reason: String },
}
