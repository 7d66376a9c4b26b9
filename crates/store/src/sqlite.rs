//! Sessions in one SQLite file: the default store.
//!
//! Two threads do all the work. The writer owns the only connection that writes and commits everything
//! that is queued as one group. The reader has a read-only connection of its own, so a long read never
//! delays a commit. Opening returns at once: the writer's thread opens the file. If that fails, every call
//! returns the reason, and later calls try again.
//!
//! **Invariant:** a call is answered after its transaction is committed, never before.
//! **Invariant:** several processes may share the file. The epoch in the session's row fences appends, inside
//! the same transaction as the append.

mod append;
mod backup;
mod backup_digest;
mod blob;
mod boot_and_mount_id;
mod checksum;
mod database_copy;
mod deletion_sweep;
mod event_page_cache;
mod events;
mod examine;
mod imports_and_forks;
mod lineage;
mod live_processes;
mod reader;
mod salvage;
mod schema;
mod session_lifecycle;
pub(crate) mod session_row;
mod store_condition;
mod thread_requests;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use engine::{
    BoxFuture, Claim, Epoch, Event, EventBatch, EventSource, ListQuery, NewSession, PageRequest, Seq,
    SessionId, SessionRow, Store, StoreError, StoreFault, StoreResult,
};
use tokio::sync::{mpsc, oneshot};

pub use self::backup::{
    BackupFile, BackupReport, back_up, is_in_use, restore as restore_backup, verify as verify_backup,
};
pub use self::examine::{ExamineDepth, ExamineReport, examine, last_positions};
pub use self::salvage::{SalvagedSession, salvage};

use self::reader::Reader;
use self::store_condition::StoreCondition;
use self::thread_requests::{ReadRequest, ReplySender, WriteRequest};
use self::writer::Writer;

/// Calls that may wait for the writer, and as many for the reader. Past that, callers wait to queue.
const QUEUE_MAX: usize = 256;

/// Options that tests change; everything else uses the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// Identifies the machine's current boot. Within one boot, and as long as the file system stays mounted,
    /// nothing that was written is lost, so a session continues without a gap even after its process was
    /// killed. `None` where the system does not say.
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
    writes: Option<mpsc::Sender<WriteRequest>>,
    reads: Option<mpsc::Sender<ReadRequest>>,
    writer: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
    condition: Arc<StoreCondition>,
}

impl SqliteStore {
    /// Returns at once; the file is opened, and if need be created or migrated, in the background.
    pub fn open(path: PathBuf, options: Options) -> Self {
        let (writes, write_queue) = mpsc::channel(QUEUE_MAX);
        let (reads, read_queue) = mpsc::channel(QUEUE_MAX);
        let condition = Arc::<StoreCondition>::default();
        let (reader_path, shared) = (path.clone(), Arc::clone(&condition));
        let writer = spawn("store-writer", move || Writer::run(path, options, write_queue, shared));
        let shared = Arc::clone(&condition);
        let reader = spawn("store-reader", move || Reader::run(reader_path, read_queue, &shared));
        Self { writes: Some(writes), reads: Some(reads), writer, reader, condition }
    }

    fn write<T: Send + 'static>(
        &self,
        make: impl FnOnce(ReplySender<T>) -> WriteRequest,
    ) -> StoreResult<'static, T> {
        let (answer, answered) = oneshot::channel();
        ask(self.writes.clone(), make(answer), answered)
    }

    fn read<T: Send + 'static>(
        &self,
        make: impl FnOnce(ReplySender<T>) -> ReadRequest,
    ) -> StoreResult<'static, T> {
        let (answer, answered) = oneshot::channel();
        let read = ask(self.reads.clone(), make(answer), answered);
        if self.condition.is_readable() {
            return read;
        }
        // The writer opens the file, and tries again if it could not.
        let opened = self.write(|answer| WriteRequest::Check { answer });
        let condition = Arc::clone(&self.condition);
        Box::pin(async move {
            let outcome = opened.await;
            if condition.is_readable() { read.await } else { Err(outcome.err().unwrap_or_else(gone)) }
        })
    }
}

/// Stops the threads and waits for them, so that the file is closed and this process owns no session any
/// more when the store is dropped. The writer stops last: only it can merge the write-ahead log into the
/// file, which makes the next start fast.
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
        self.write(|answer| WriteRequest::Create { session, answer })
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        self.write(|answer| WriteRequest::Claim { id: id.clone(), answer })
    }

    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()> {
        self.write(|answer| WriteRequest::Release { id: id.clone(), epoch, answer })
    }

    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()> {
        self.write(|answer| WriteRequest::Append { batch, answer })
    }

    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>> {
        self.read(|answer| ReadRequest::Events { id: id.clone(), after, page, answer })
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        self.read(|answer| ReadRequest::Session { id: id.clone(), answer })
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        self.read(|answer| ReadRequest::Owns { id: id.clone(), epoch, answer })
    }

    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        self.read(|answer| ReadRequest::Unused { ids, answer })
    }

    fn never_used(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        self.read(|answer| ReadRequest::NeverUsed { ids, answer })
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        self.read(|answer| ReadRequest::Sessions { query, answer })
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        Box::pin(imports_and_forks::fork(self.writes.clone(), source.clone(), session))
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        self.import_from(session, Box::new(imports_and_forks::AllEvents(events)))
    }

    fn import_from(&self, session: NewSession, source: Box<dyn EventSource>) -> StoreResult<'_, Claim> {
        Box::pin(imports_and_forks::import(self.writes.clone(), session, source))
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        self.write(|answer| WriteRequest::Delete { id: id.clone(), answer })
    }

    fn lineage(&self) -> StoreResult<'_, Option<Arc<str>>> {
        self.read(|answer| ReadRequest::Lineage { answer })
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        self.write(|answer| WriteRequest::Rename { id: id.clone(), title: title.to_owned(), answer })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(async move {
            let outcome = self.write(|answer| WriteRequest::Check { answer }).await;
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
