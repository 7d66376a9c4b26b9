//! The writer thread: it takes everything that is queued as one group, commits it as one transaction, and
//! only then replies.
//!
//! A group is synced to disk if anything in it asks for that or uses positions that are not reserved
//! yet; otherwise it is written but not synced, which survives the death of the process. A request
//! that is refused (a fenced writer, an unknown session) has written nothing and costs the others in
//! its group nothing. If the transaction itself fails, the whole group fails and nothing is retried.
//!
//! While the file cannot be opened, every request is refused; later requests try to open it again. If the
//! file is no longer at its path, nothing is written to it, because it would not be found again. After a
//! disk failure the file is reopened and repaired before it is written again.
//!
//! If another process holds the lock, the writer waits for it, but not for long. Then the group is refused with
//! the name of that process and nothing of it is written; a caller that must not lose its data asks again.
//!
//! **Invariant:** a write that was confirmed was in the file at its path after the commit.
//! **Invariant:** a session that was claimed before the file was reopened must be claimed again: its last
//! writes may not be in the file.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{RunningTurns, SessionId, StoreError, StoreFault};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

use super::Options;
use super::append::{self, Reservations, Scratch};
use super::boot_and_mount_id;
use super::deletion_sweep::Sweeps;
use super::imports_and_forks::{self, SessionCopyStep};
use super::live_processes::ProcessLocks;
use super::schema;
use super::session_lifecycle::{self, OwnerIdentity};
use super::store_condition::{self, DatabaseFiles, FilesStatus, StoreCondition};
use super::thread_requests::{ReplySender, RequestFailure, TransactionLoss, WriteRequest, reply};

/// A group is limited to this many requests or events, so that the first request does not wait for ever.
const GROUP_REQUESTS_MAX: usize = 256;
const GROUP_EVENTS_MAX: usize = 16 * 1024;
/// How soon a file that could not be used is tried again, at the earliest.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long to wait for a lock after the last wait failed.
const BLOCKED_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct Writer {
    connection: Connection,
    path: PathBuf,
    files: DatabaseFiles,
    condition: Arc<StoreCondition>,
    options: Options,
    /// Names the boot and the mount in which nothing that was written is lost.
    uptime: Option<String>,
    owners: ProcessLocks,
    reservations: Reservations,
    running: RunningTurns,
    scratch: Scratch,
    sweeps: Sweeps,
    /// Whether commits are being synced at present.
    syncing: bool,
    /// The file must be reopened: the disk failed, so its content is not known, or another file is at its
    /// path.
    reopen_for: Option<ReopenReason>,
    /// The last wait for the lock failed.
    blocked: bool,
    /// The file was not at its path at the last check.
    misplaced: bool,
    /// When something was last written for nothing but to see whether it can be.
    probed: Option<Instant>,
    /// Sessions that were claimed since the file was opened, and those from before.
    claimed: HashSet<SessionId>,
    outdated: HashSet<SessionId>,
}

/// Why the file has to be reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReopenReason {
    Disk,
    Replaced,
}

/// Why the writer stopped serving the queue.
enum ServeEnd {
    /// The queue is closed.
    QueueClosed,
    Reopen(ReopenReason),
}

/// Opens the file, and reopens it after a failure.
struct FileOpener {
    path: PathBuf,
    options: Options,
    condition: Arc<StoreCondition>,
    /// The last attempt.
    tried: Option<Instant>,
    /// It was open once in this process. From then on it is not made: where it was moved away, a new
    /// and empty one would only hide that.
    was_open: bool,
    disk_failed: bool,
    outdated: HashSet<SessionId>,
}

impl FileOpener {
    fn open(&mut self) -> Result<Writer, StoreFault> {
        self.tried = Some(Instant::now());
        let opened = schema::open_for_writing(&self.path, !self.was_open).and_then(|connection| {
            if self.disk_failed {
                schema::renew(&connection).map_err(|error| store_condition::of_sqlite(&self.path, &error))?;
            }
            Ok(connection)
        });
        let connection = opened.inspect_err(|fault| {
            let readable = self.disk_failed && self.condition.is_readable();
            self.condition.note_fault(fault.clone(), readable);
        })?;
        // A file that was reopened may lack the last writes, as after a power cut.
        let uptime = if self.was_open { None } else { self.uptime() };
        (self.was_open, self.disk_failed) = (true, false);
        self.condition.note_opened();
        Ok(Writer {
            connection,
            uptime,
            files: DatabaseFiles::of(&self.path),
            condition: Arc::clone(&self.condition),
            options: self.options.clone(),
            owners: ProcessLocks::beside(&self.path),
            path: self.path.clone(),
            reservations: Reservations::default(),
            running: RunningTurns::default(),
            scratch: Scratch::default(),
            sweeps: Sweeps::default(),
            syncing: false,
            reopen_for: None,
            blocked: false,
            misplaced: false,
            probed: None,
            claimed: HashSet::new(),
            outdated: std::mem::take(&mut self.outdated),
        })
    }

    fn uptime(&self) -> Option<String> {
        let mount = self
            .options
            .mount
            .as_deref()
            .map(str::to_owned)
            .or_else(|| boot_and_mount_id::mount_of(&self.path));
        boot_and_mount_id::name(self.options.boot.as_deref(), mount.as_deref())
    }

    fn reopen_after(&mut self, mut writer: Writer, lost: ReopenReason) {
        self.outdated = std::mem::take(&mut writer.outdated);
        self.outdated.extend(writer.claimed.drain());
        self.disk_failed = lost == ReopenReason::Disk;
        // Another file can be opened at once; a failing disk needs a moment.
        self.tried = self.disk_failed.then(Instant::now);
    }

    /// Refuses what comes until it is time to try again; then the request that is to be tried with.
    fn refuse_until_due(&self, queue: &mut Receiver<WriteRequest>) -> Option<WriteRequest> {
        while let Some(request) = queue.blocking_recv() {
            if self.tried.is_none_or(|tried| tried.elapsed() >= RETRY_AFTER) {
                return Some(request);
            }
            let fault = self.condition.fault().unwrap_or_else(|| store_condition::gone(&self.path));
            request.refuse(fault.into());
        }
        None
    }
}

/// Closing the last connection must not remove the write-ahead log of a file that is not ours any more.
impl Drop for Writer {
    fn drop(&mut self) {
        let ours = match self.files.status() {
            FilesStatus::InPlace => true,
            FilesStatus::Missing | FilesStatus::Replaced | FilesStatus::Emptied => false,
            FilesStatus::LogMissing => !store_condition::with_suffix(&self.path, "-wal").exists(),
        };
        if !ours {
            let kept = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            if let Err(error) = kept {
                tracing::warn!(%error, "the log beside the session store may be removed");
            }
        }
    }
}

/// Replies to a request; gets an error if its group was lost.
type ReplyFn = dyn FnOnce(Option<&StoreError>);

/// What is left to do for a request after its group is committed or lost.
enum DeferredReply {
    Reply(Box<ReplyFn>),
    Sweep { key: i64, answer: ReplySender<bool> },
}

impl Writer {
    /// Serves the queue until it is closed.
    pub(super) fn run(
        path: PathBuf,
        options: Options,
        mut queue: Receiver<WriteRequest>,
        condition: Arc<StoreCondition>,
    ) {
        let outdated = HashSet::new();
        let mut opening = FileOpener {
            path,
            options,
            condition,
            tried: None,
            was_open: false,
            disk_failed: false,
            outdated,
        };
        let mut first = None;
        loop {
            match opening.open() {
                Ok(mut writer) => match writer.serve(first.take(), &mut queue) {
                    ServeEnd::QueueClosed => return,
                    ServeEnd::Reopen(lost) => opening.reopen_after(writer, lost),
                },
                Err(fault) => {
                    if let Some(request) = first.take() {
                        request.refuse(fault.into());
                    }
                }
            }
            first = opening.refuse_until_due(&mut queue);
            if first.is_none() {
                return;
            }
        }
    }

    fn serve(&mut self, first: Option<WriteRequest>, queue: &mut Receiver<WriteRequest>) -> ServeEnd {
        let mut settled = false;
        if self.options.warm {
            // The first request need not wait for a lock that this would wait for.
            let warmed = self.wait_for_locks(Duration::ZERO).and_then(|()| schema::warm(&self.connection));
            if let Err(error) = warmed {
                self.note_loss(error.into());
            }
        }
        let mut next = first.or_else(|| queue.blocking_recv());
        while let Some(first) = next {
            self.commit(gather_group(first, queue));
            if !settled && self.reopen_for.is_none() {
                settled = true;
                self.resume_sweeps();
            }
            while !self.sweeps.is_empty() && self.reopen_for.is_none() {
                self.sweep();
                match queue.try_recv() {
                    Ok(first) => self.commit(gather_group(first, queue)),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return ServeEnd::QueueClosed,
                }
            }
            if let Some(lost) = self.reopen_for {
                return ServeEnd::Reopen(lost);
            }
            next = queue.blocking_recv();
        }
        ServeEnd::QueueClosed
    }

    /// Continues what dead processes left behind. Done after the first group, so that no start waits for it.
    fn resume_sweeps(&mut self) {
        self.owners.sweep();
        let given_up = imports_and_forks::abandon_orphans(&self.connection, &self.owners);
        if let Err(error) = given_up.and_then(|()| self.sweeps.resume(&self.connection)) {
            tracing::warn!(%error, "could not look for leftovers of deleted sessions");
        }
    }

    fn sweep(&mut self) {
        let waited = if self.blocked { BLOCKED_TIMEOUT } else { schema::BUSY_TIMEOUT };
        let ready = self.wait_for_locks(waited).and_then(|()| self.set_syncing(false));
        let swept = ready.map_err(TransactionLoss::from).and_then(|()| self.sweeps.step(&self.connection));
        if let Err(loss) = swept {
            if loss.busy {
                // The rest stays in the queue of sweeps.
                drop(self.note_failed_group(loss));
                return;
            }
            tracing::warn!(reason = loss.reason, "could not remove the leftovers of a deleted session");
            self.note_loss(loss);
        }
    }

    fn commit(&mut self, mut group: Vec<WriteRequest>) {
        if let Err(fault) = self.check_in_place() {
            group.into_iter().for_each(|request| request.refuse(fault.clone().into()));
            return;
        }
        for check in group.extract_if(.., |request| matches!(request, WriteRequest::Check { .. })) {
            match self.check_owners().and_then(|()| self.probe()) {
                Ok(()) => check.approve(),
                Err(fault) => check.refuse(fault.into()),
            }
        }
        if group.is_empty() {
            return;
        }
        let mut requests = group.into_iter();
        let mut finishes = Vec::with_capacity(requests.len());
        let outcome = self.transact(&mut requests, &mut finishes);
        let error = match outcome {
            // What was written into a file that is no longer at its path is lost.
            Ok(()) => self.check_in_place().err().map(StoreError::from),
            Err(loss) => {
                drop(self.connection.execute_batch("ROLLBACK"));
                Some(self.note_failed_group(loss))
            }
        };
        if error.is_none() {
            self.blocked = false;
            self.condition.note_usable();
        }
        for finish in finishes {
            match (finish, &error) {
                (DeferredReply::Reply(tell), error) => tell(error.as_ref()),
                (DeferredReply::Sweep { key, answer }, None) => self.sweeps.add(key, answer),
                (DeferredReply::Sweep { answer, .. }, Some(error)) => reply(answer, Err(error.clone())),
            }
        }
        if let Some(error) = error {
            requests.for_each(|request| request.refuse(error.clone()));
        }
    }

    fn note_failed_group(&mut self, loss: TransactionLoss) -> StoreError {
        if loss.busy {
            let fault = store_condition::busy(&self.path);
            let reason = fault.brief();
            self.blocked = true;
            self.condition.note_fault(fault, true);
            return StoreError::Busy { reason };
        }
        tracing::error!(reason = loss.reason, "a group of writes is lost");
        StoreError::Write { reason: self.note_loss(loss) }
    }

    fn wait_for_locks(&self, at_most: Duration) -> rusqlite::Result<()> {
        self.connection.busy_timeout(at_most)
    }

    /// Whether the file is still at its path.
    fn check_in_place(&mut self) -> Result<(), StoreFault> {
        let fault = match self.files.status() {
            FilesStatus::InPlace => {
                if std::mem::take(&mut self.misplaced) {
                    self.condition.note_usable();
                }
                return Ok(());
            }
            FilesStatus::Missing => store_condition::gone(&self.path),
            FilesStatus::Emptied => store_condition::emptied(&self.path),
            FilesStatus::LogMissing => store_condition::log_gone(&self.path),
            FilesStatus::Replaced => {
                self.reopen_for = Some(ReopenReason::Replaced);
                store_condition::replaced(&self.path)
            }
        };
        self.misplaced = true;
        self.reservations.forget_all();
        self.condition.note_fault(fault.clone(), false);
        Err(fault)
    }

    /// Whether sessions could be claimed.
    fn check_owners(&mut self) -> Result<(), StoreFault> {
        self.owners.check().map_err(|error| {
            let fault = store_condition::of_io(self.owners.directory(), &error);
            self.condition.note_fault(fault.clone(), true);
            fault
        })
    }

    /// Where the last write failed, whether another one does.
    fn probe(&mut self) -> Result<(), StoreFault> {
        let Some(fault) = self.condition.fault() else { return Ok(()) };
        if self.reopen_for.is_some() || self.probed.is_some_and(|probed| probed.elapsed() < RETRY_AFTER) {
            return Err(fault);
        }
        self.probed = Some(Instant::now());
        let written = self.wait_for_locks(BLOCKED_TIMEOUT).and_then(|()| self.set_syncing(true));
        match written.and_then(|()| schema::warm(&self.connection)) {
            Ok(()) => {
                self.blocked = false;
                self.condition.note_usable();
                Ok(())
            }
            Err(error) => {
                self.note_loss(error.into());
                Err(self.condition.fault().unwrap_or(fault))
            }
        }
    }

    /// Records what a failure means for later requests, and returns the reason for the callers.
    fn note_loss(&mut self, loss: TransactionLoss) -> String {
        self.reservations.forget_all();
        if loss.disk {
            self.reopen_for = Some(ReopenReason::Disk);
        }
        let Some(error) = loss.error.filter(is_store_fault) else { return loss.reason };
        let fault = store_condition::of_sqlite(&self.path, &error);
        let told = fault.to_string();
        self.condition.note_fault(fault, true);
        told
    }

    fn transact(
        &mut self,
        requests: &mut std::vec::IntoIter<WriteRequest>,
        finishes: &mut Vec<DeferredReply>,
    ) -> Result<(), TransactionLoss> {
        let sync = requests.as_slice().iter().any(|request| self.needs_sync(request));
        self.set_syncing(sync)?;
        self.wait_for_locks(if self.blocked { BLOCKED_TIMEOUT } else { schema::BUSY_TIMEOUT })?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for request in requests.by_ref() {
            let (finish, loss) = self.perform(request, sync);
            finishes.push(finish);
            loss.map_or(Ok(()), Err)?;
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn needs_sync(&self, request: &WriteRequest) -> bool {
        match request {
            WriteRequest::Append { batch, .. } => batch.sync || !self.reservations.cover(batch),
            // A lost creation takes its id along, and the first append after a claim is synced, and the
            // claim with it.
            WriteRequest::Create { .. } | WriteRequest::Claim { .. } | WriteRequest::Check { .. } => false,
            // An unfinished session belongs to nobody yet; the last piece is synced, and those before it
            // with it.
            WriteRequest::Unfinished(step) => matches!(step, SessionCopyStep::Finish { .. }),
            WriteRequest::Release { .. } | WriteRequest::Delete { .. } | WriteRequest::Rename { .. } => true,
        }
    }

    fn set_syncing(&mut self, sync: bool) -> rusqlite::Result<()> {
        if self.syncing != sync {
            let level = if sync { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.connection.execute_batch(level)?;
            self.syncing = sync;
        }
        Ok(())
    }

    fn perform(&mut self, request: WriteRequest, sync: bool) -> (DeferredReply, Option<TransactionLoss>) {
        let connection = &self.connection;
        let identity = OwnerIdentity { owners: &mut self.owners, uptime: self.uptime.as_deref() };
        match request {
            WriteRequest::Create { session, answer } => {
                let created = session_lifecycle::create(connection, identity, &session);
                self.claimed.insert(session.id);
                deferred_reply(answer, created.inspect(|claim| self.reservations.note_new(claim)))
            }
            WriteRequest::Claim { id, answer } => {
                self.running.forget(&id);
                let claimed = session_lifecycle::claim(connection, identity, &id);
                if claimed.is_ok() {
                    self.outdated.remove(&id);
                    self.claimed.insert(id);
                }
                deferred_reply(answer, claimed)
            }
            WriteRequest::Release { id, epoch, answer } => {
                self.reservations.forget(&id);
                self.running.forget(&id);
                self.claimed.remove(&id);
                deferred_reply(answer, session_lifecycle::release(connection, &id, epoch))
            }
            WriteRequest::Append { batch, answer } if self.outdated.contains(&batch.session) => {
                let reason = "the session store was reopened; open the session again".to_owned();
                deferred_reply(answer, Err(StoreError::Write { reason }.into()))
            }
            WriteRequest::Append { batch, answer } => {
                let appended = append::append(connection, &batch, sync, &mut self.running, &mut self.scratch);
                // If the group is lost in the end, all reservations are forgotten.
                let noted = appended.map(|upto| self.reservations.note(batch.session, batch.epoch, upto));
                deferred_reply(answer, noted)
            }
            WriteRequest::Unfinished(step) => self.write_unfinished(step),
            WriteRequest::Delete { id, answer } => {
                self.reservations.forget(&id);
                self.running.forget(&id);
                match session_lifecycle::delete(connection, identity, &id) {
                    Ok(Some(key)) => (DeferredReply::Sweep { key, answer }, None),
                    Ok(None) => deferred_reply(answer, Ok(false)),
                    Err(failure) => deferred_reply(answer, Err(failure)),
                }
            }
            WriteRequest::Rename { id, title, answer } => {
                deferred_reply(answer, session_lifecycle::rename(connection, &id, &title))
            }
            WriteRequest::Check { answer } => deferred_reply(answer, Ok(())),
        }
    }
}

impl Writer {
    /// Writes a piece of a session that is not visible yet.
    fn write_unfinished(&mut self, step: SessionCopyStep) -> (DeferredReply, Option<TransactionLoss>) {
        let connection = &self.connection;
        let identity = OwnerIdentity { owners: &mut self.owners, uptime: self.uptime.as_deref() };
        match step {
            SessionCopyStep::Begin { session, source, answer } => deferred_reply(
                answer,
                imports_and_forks::begin(connection, identity, &session, source.as_ref()),
            ),
            SessionCopyStep::Write { key, before, events, answer } => {
                deferred_reply(answer, append::insert(connection, key, before, &events, &mut self.scratch))
            }
            SessionCopyStep::Copy { source, name, key, after, answer } => deferred_reply(
                answer,
                imports_and_forks::copy(connection, (source, &name), key, after, &mut self.scratch),
            ),
            SessionCopyStep::Finish { key, outcome, source, answer } => {
                let finished =
                    imports_and_forks::finish(connection, identity, key, &outcome, source.as_ref());
                self.claimed.insert(outcome.session.id);
                deferred_reply(answer, finished.inspect(|claim| self.reservations.note_new(claim)))
            }
            SessionCopyStep::Abandon { key } => {
                let abandoned = imports_and_forks::abandon(connection, key);
                let swept = abandoned.and_then(|()| self.sweeps.resume(connection));
                (DeferredReply::Reply(Box::new(|_| {})), swept.err().map(TransactionLoss::from))
            }
        }
    }
}

/// Whether the store is to blame, not what it was asked to write.
fn is_store_fault(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        None | Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    )
}

fn gather_group(first: WriteRequest, queue: &mut Receiver<WriteRequest>) -> Vec<WriteRequest> {
    let mut events = first.weight();
    let mut group = vec![first];
    while group.len() < GROUP_REQUESTS_MAX && events < GROUP_EVENTS_MAX {
        let Ok(next) = queue.try_recv() else { break };
        events += next.weight();
        group.push(next);
    }
    group
}

/// Holds the reply back until it is known whether the group was committed.
fn deferred_reply<T: 'static>(
    answer: ReplySender<T>,
    outcome: Result<T, RequestFailure>,
) -> (DeferredReply, Option<TransactionLoss>) {
    let (outcome, loss) = match outcome {
        Ok(value) => (Ok(value), None),
        Err(RequestFailure::Refused(error)) => (Err(error), None),
        Err(RequestFailure::Lost(loss)) => {
            (Err(StoreError::Write { reason: loss.reason.clone() }), Some(loss))
        }
    };
    let tell =
        move |lost: Option<&StoreError>| reply(answer, lost.map_or(outcome, |error| Err(error.clone())));
    (DeferredReply::Reply(Box::new(tell)), loss)
}
