//! Sessions in one SQLite file: the default store.
//!
//! Two threads do all the work. The writer owns the only connection that writes and commits whatever
//! is queued as one group; the reader has a read-only connection of its own, so a long read never
//! delays a commit. Opening returns at once: the file is opened on the writer's thread, and if that
//! fails, every call says why, and the calls that come later try again.
//!
//! **Invariant:** a call is answered after its transaction is committed, never before.
//! **Invariant:** several processes may share the file; what one may append is fenced by the epoch in
//! the session's row, inside the same transaction as the append.

mod append;
mod backup;
mod blob;
mod checksum;
mod condition;
mod copy;
mod events;
mod examine;
mod lineage;
mod owner;
mod page_digest;
mod reader;
mod recent;
mod request;
pub(crate) mod row;
mod salvage;
mod schema;
mod session;
mod sweep;
mod unfinished;
mod uptime;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use engine::{
    Batch, BoxFuture, Claim, Epoch, Event, EventSource, ListQuery, NewSession, Page, Seq, SessionId,
    SessionRow, Store, StoreError, StoreFault, StoreResult,
};
use tokio::sync::{mpsc, oneshot};

pub use self::backup::{
    BackupFile, BackupReport, back_up, is_in_use, restore as restore_backup, verify as verify_backup,
};
pub use self::examine::{Depth, Examined, examine, last_positions};
pub use self::salvage::{Salvaged, salvage};

use self::condition::Condition;
use self::reader::Reader;
use self::request::{Answer, Read, Write};
use self::writer::Writer;

/// Calls that may wait for the writer, and as many for the reader. Past that, callers wait to queue.
const QUEUE_MAX: usize = 256;

/// What a test may want otherwise; everybody else takes the default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names the machine's current boot. Within one boot, and for as long as the file system stays
    /// mounted, nothing that was written is lost, so a session goes on without a gap even after its
    /// process was killed. `None` where the system does not tell.
    pub boot: Option<Arc<str>>,
    /// Names the mount, if the system is not to be asked.
    pub mount: Option<Arc<str>>,
    /// Pays for the first write at once, before anybody waits for it.
    pub warm: bool,
}

impl Default for Options {
    fn default() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Self { boot: boot.ok().map(|id| id.trim().into()), mount: None, warm: false }
    }
}

pub struct SqliteStore {
    writes: Option<mpsc::Sender<Write>>,
    reads: Option<mpsc::Sender<Read>>,
    writer: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
    condition: Arc<Condition>,
}

impl SqliteStore {
    /// Returns at once; the file is opened, and if need be created or migrated, in the background.
    pub fn open(path: PathBuf, options: Options) -> Self {
        let (writes, write_queue) = mpsc::channel(QUEUE_MAX);
        let (reads, read_queue) = mpsc::channel(QUEUE_MAX);
        let condition = Arc::<Condition>::default();
        let (reader_path, shared) = (path.clone(), Arc::clone(&condition));
        let writer = spawn("store-writer", move || Writer::run(path, options, write_queue, shared));
        let shared = Arc::clone(&condition);
        let reader = spawn("store-reader", move || Reader::run(reader_path, read_queue, &shared));
        Self { writes: Some(writes), reads: Some(reads), writer, reader, condition }
    }

    fn write<T: Send + 'static>(&self, make: impl FnOnce(Answer<T>) -> Write) -> StoreResult<'static, T> {
        let (answer, answered) = oneshot::channel();
        ask(self.writes.clone(), make(answer), answered)
    }

    fn read<T: Send + 'static>(&self, make: impl FnOnce(Answer<T>) -> Read) -> StoreResult<'static, T> {
        let (answer, answered) = oneshot::channel();
        let read = ask(self.reads.clone(), make(answer), answered);
        if self.condition.is_readable() {
            return read;
        }
        // The writer opens the file, and tries again if it could not.
        let opened = self.write(|answer| Write::Check { answer });
        let condition = Arc::clone(&self.condition);
        Box::pin(async move {
            let outcome = opened.await;
            if condition.is_readable() { read.await } else { Err(outcome.err().unwrap_or_else(gone)) }
        })
    }
}

/// Ends the threads and waits for them, so that the file is closed and this process is no longer
/// anybody's owner when the store is gone. The writer goes last: only it can fold the log beside the
/// file back into the file, which makes the next start fast.
impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.reads.take());
        join(self.reader.take());
        drop(self.writes.take());
        join(self.writer.take());
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("a thread of the session store ended by a panic");
    }
}

/// A thread that cannot be started drops its end of the queue, and every call says so.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    match std::thread::Builder::new().name(name.to_owned()).spawn(work) {
        Ok(thread) => Some(thread),
        Err(error) => {
            tracing::error!(%error, name, "cannot start a thread of the session store");
            None
        }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable { reason: "its thread has ended".to_owned() }
}

fn ask<R: Send + 'static, T: Send + 'static>(
    queue: Option<mpsc::Sender<R>>,
    request: R,
    answered: oneshot::Receiver<Result<T, StoreError>>,
) -> StoreResult<'static, T> {
    Box::pin(async move {
        let queue = queue.ok_or_else(gone)?;
        queue.send(request).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    })
}

impl Store for SqliteStore {
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim> {
        self.write(|answer| Write::Create { session, answer })
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        self.write(|answer| Write::Claim { id: id.clone(), answer })
    }

    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()> {
        self.write(|answer| Write::Release { id: id.clone(), epoch, answer })
    }

    fn append(&self, batch: Batch) -> StoreResult<'_, ()> {
        self.write(|answer| Write::Append { batch, answer })
    }

    fn read(&self, id: &SessionId, after: Seq, page: Page) -> StoreResult<'_, Vec<Arc<Event>>> {
        self.read(|answer| Read::Events { id: id.clone(), after, page, answer })
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        self.read(|answer| Read::Session { id: id.clone(), answer })
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        self.read(|answer| Read::Owns { id: id.clone(), epoch, answer })
    }

    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        self.read(|answer| Read::Unused { ids, answer })
    }

    fn never_used(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        self.read(|answer| Read::NeverUsed { ids, answer })
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        self.read(|answer| Read::Sessions { query, answer })
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        Box::pin(unfinished::fork(self.writes.clone(), source.clone(), session))
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        self.import_from(session, Box::new(unfinished::Whole(events)))
    }

    fn import_from(&self, session: NewSession, source: Box<dyn EventSource>) -> StoreResult<'_, Claim> {
        Box::pin(unfinished::import(self.writes.clone(), session, source))
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        self.write(|answer| Write::Delete { id: id.clone(), answer })
    }

    fn lineage(&self) -> StoreResult<'_, Option<Arc<str>>> {
        self.read(|answer| Read::Lineage { answer })
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        self.write(|answer| Write::Rename { id: id.clone(), title: title.to_owned(), answer })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(async move {
            let outcome = self.write(|answer| Write::Check { answer }).await;
            match (outcome, self.condition.fault()) {
                (Ok(()), _) => Ok(()),
                (Err(_), Some(fault)) => Err(fault),
                (Err(error), None) => Err(StoreFault {
                    path: None,
                    cause: error.to_string(),
                    fix: "start ropewalk again".to_owned(),
                }),
            }
        })
    }
}
