//! The thread that writes: takes what is queued as one group, commits it as one transaction, and
//! only then answers.
//!
//! A group is synced to disk if anything in it asks for that or uses positions that are not reserved
//! yet; otherwise it is written but not synced, which survives the death of the process. A request
//! that is refused (a fenced writer, an unknown session) has written nothing and costs the others in
//! its group nothing. If the transaction itself fails, the whole group fails and nothing is retried.
//!
//! A file that cannot be opened refuses every request, and is tried again with those that come later. A
//! file that is no longer at its path takes nothing: what went into it would not be found again. After a
//! failure of the disk the file is opened anew and made whole before it is written again.
//!
//! A lock that another process holds is waited for, not for long: then the group is refused with the name of
//! that process, nothing of it is written, and whoever has something that must not be lost asks again.
//!
//! **Invariant:** what is answered with success was in the file at its path after the commit.
//! **Invariant:** a session that was claimed before the file was opened anew must be claimed again: what it
//! wrote last may not be there.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{SessionId, StoreError, StoreFault};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

use super::Options;
use super::append::{self, Reservations, Scratch};
use super::condition::{self, Condition, Files, Place};
use super::owner::Owners;
use super::request::{Answer, Failure, Loss, Write, reply};
use super::schema;
use super::session::{self, Identity};
use super::sweep::Sweeps;
use super::unfinished::{self, Step};
use super::uptime;

/// A group is closed at so many requests or events: whoever came first should not wait for ever.
const GROUP_REQUESTS_MAX: usize = 256;
const GROUP_EVENTS_MAX: usize = 16 * 1024;
/// How soon a file that could not be used is tried again, at the earliest.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a lock is waited for that was waited for in vain just before.
const BLOCKED_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct Writer {
    connection: Connection,
    path: PathBuf,
    files: Files,
    condition: Arc<Condition>,
    options: Options,
    /// Names the boot and the mount in which nothing that was written is lost.
    uptime: Option<String>,
    owners: Owners,
    reservations: Reservations,
    scratch: Scratch,
    sweeps: Sweeps,
    /// Whether commits are being synced at present.
    syncing: bool,
    /// The file must be opened anew: the disk failed, so what it holds is not known, or another file is there.
    lost: Option<Lost>,
    /// The last wait for the lock was in vain.
    blocked: bool,
    /// The file was not at its path at the last look.
    misplaced: bool,
    /// When something was last written for nothing but to see whether it can be.
    probed: Option<Instant>,
    /// Sessions that were claimed since the file was opened, and those from before.
    claimed: HashSet<SessionId>,
    outdated: HashSet<SessionId>,
}

/// Why the file is opened anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Disk,
    Replaced,
}

/// How serving ended.
enum Ended {
    /// Nobody can ask any more.
    Asked,
    Lost(Lost),
}

/// Opens the file, again if need be.
struct Opening {
    path: PathBuf,
    options: Options,
    condition: Arc<Condition>,
    /// The last attempt.
    tried: Option<Instant>,
    /// It was open once in this process. From then on it is not made: where it was moved away, a new
    /// and empty one would only hide that.
    was_open: bool,
    disk_failed: bool,
    outdated: HashSet<SessionId>,
}

impl Opening {
    fn open(&mut self) -> Result<Writer, StoreFault> {
        self.tried = Some(Instant::now());
        let opened = schema::open_for_writing(&self.path, !self.was_open).and_then(|connection| {
            if self.disk_failed {
                schema::renew(&connection).map_err(|error| condition::of_sqlite(&self.path, &error))?;
            }
            Ok(connection)
        });
        let connection = opened.inspect_err(|fault| {
            let readable = self.disk_failed && self.condition.is_readable();
            self.condition.note_fault(fault.clone(), readable);
        })?;
        // Whatever was opened anew may lack what was written last, as after a power cut.
        let uptime = if self.was_open { None } else { self.uptime() };
        (self.was_open, self.disk_failed) = (true, false);
        self.condition.note_opened();
        Ok(Writer {
            connection,
            uptime,
            files: Files::of(&self.path),
            condition: Arc::clone(&self.condition),
            options: self.options.clone(),
            owners: Owners::beside(&self.path),
            path: self.path.clone(),
            reservations: Reservations::default(),
            scratch: Scratch::default(),
            sweeps: Sweeps::default(),
            syncing: false,
            lost: None,
            blocked: false,
            misplaced: false,
            probed: None,
            claimed: HashSet::new(),
            outdated: std::mem::take(&mut self.outdated),
        })
    }

    fn uptime(&self) -> Option<String> {
        let mount = self.options.mount.as_deref().map(str::to_owned).or_else(|| uptime::mount_of(&self.path));
        uptime::name(self.options.boot.as_deref(), mount.as_deref())
    }

    fn take_back(&mut self, mut writer: Writer, lost: Lost) {
        self.outdated = std::mem::take(&mut writer.outdated);
        self.outdated.extend(writer.claimed.drain());
        self.disk_failed = lost == Lost::Disk;
        // Another file is there already; a disk needs a moment.
        self.tried = self.disk_failed.then(Instant::now);
    }

    /// Refuses what comes until it is time to try again; then the request that is to be tried with.
    fn refuse_until_due(&self, queue: &mut Receiver<Write>) -> Option<Write> {
        while let Some(request) = queue.blocking_recv() {
            if self.tried.is_none_or(|tried| tried.elapsed() >= RETRY_AFTER) {
                return Some(request);
            }
            let fault = self.condition.fault().unwrap_or_else(|| condition::gone(&self.path));
            request.refuse(fault.into());
        }
        None
    }
}

/// The log beside a file that is not ours any more must not be removed with the last connection.
impl Drop for Writer {
    fn drop(&mut self) {
        let ours = match self.files.place() {
            Place::Kept => true,
            Place::Gone | Place::Replaced | Place::Emptied => false,
            Place::LogGone => !condition::with_end(&self.path, "-wal").exists(),
        };
        if !ours {
            let kept = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            if let Err(error) = kept {
                tracing::warn!(%error, "the log beside the session store may be removed");
            }
        }
    }
}

/// Answers a request; told an error if its group was lost.
type Tell = dyn FnOnce(Option<&StoreError>);

/// What is left to do for a request after its group is committed or lost.
enum Finish {
    Tell(Box<Tell>),
    Sweep { key: i64, answer: Answer<bool> },
}

impl Writer {
    /// Serves the queue until nobody can write to it any more.
    pub(super) fn run(
        path: PathBuf,
        options: Options,
        mut queue: Receiver<Write>,
        condition: Arc<Condition>,
    ) {
        let outdated = HashSet::new();
        let mut opening =
            Opening { path, options, condition, tried: None, was_open: false, disk_failed: false, outdated };
        let mut first = None;
        loop {
            match opening.open() {
                Ok(mut writer) => match writer.serve(first.take(), &mut queue) {
                    Ended::Asked => return,
                    Ended::Lost(lost) => opening.take_back(writer, lost),
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

    fn serve(&mut self, first: Option<Write>, queue: &mut Receiver<Write>) -> Ended {
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
            self.commit(group_after(first, queue));
            if !settled && self.lost.is_none() {
                settled = true;
                self.take_up_leftovers();
            }
            while !self.sweeps.is_empty() && self.lost.is_none() {
                self.sweep();
                match queue.try_recv() {
                    Ok(first) => self.commit(group_after(first, queue)),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return Ended::Asked,
                }
            }
            if let Some(lost) = self.lost {
                return Ended::Lost(lost);
            }
            next = queue.blocking_recv();
        }
        Ended::Asked
    }

    /// What dead processes left behind. Done after the first group, so that no start waits for it.
    fn take_up_leftovers(&mut self) {
        self.owners.sweep();
        let given_up = unfinished::abandon_orphans(&self.connection, &self.owners);
        if let Err(error) = given_up.and_then(|()| self.sweeps.resume(&self.connection)) {
            tracing::warn!(%error, "cannot look for remains of deleted sessions");
        }
    }

    fn sweep(&mut self) {
        let waited = if self.blocked { BLOCKED_TIMEOUT } else { schema::BUSY_TIMEOUT };
        let ready = self.wait_for_locks(waited).and_then(|()| self.set_syncing(false));
        let swept = ready.map_err(Loss::from).and_then(|()| self.sweeps.step(&self.connection));
        if let Err(loss) = swept {
            if loss.busy {
                // What is left is in the queue again.
                drop(self.lose(loss));
                return;
            }
            tracing::warn!(reason = loss.reason, "cannot remove what is left of a deleted session");
            self.note_loss(loss);
        }
    }

    fn commit(&mut self, mut group: Vec<Write>) {
        if let Err(fault) = self.look() {
            group.into_iter().for_each(|request| request.refuse(fault.clone().into()));
            return;
        }
        for check in group.extract_if(.., |request| matches!(request, Write::Check { .. })) {
            match self.look_at_owners().and_then(|()| self.probe()) {
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
            // What was written into a file that is not at its path is not kept.
            Ok(()) => self.look().err().map(StoreError::from),
            Err(loss) => {
                drop(self.connection.execute_batch("ROLLBACK"));
                Some(self.lose(loss))
            }
        };
        if error.is_none() {
            self.blocked = false;
            self.condition.note_well();
        }
        for finish in finishes {
            match (finish, &error) {
                (Finish::Tell(tell), error) => tell(error.as_ref()),
                (Finish::Sweep { key, answer }, None) => self.sweeps.add(key, answer),
                (Finish::Sweep { answer, .. }, Some(error)) => reply(answer, Err(error.clone())),
            }
        }
        if let Some(error) = error {
            requests.for_each(|request| request.refuse(error.clone()));
        }
    }

    fn lose(&mut self, loss: Loss) -> StoreError {
        if loss.busy {
            let fault = condition::busy(&self.path);
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
    fn look(&mut self) -> Result<(), StoreFault> {
        let fault = match self.files.place() {
            Place::Kept => {
                if std::mem::take(&mut self.misplaced) {
                    self.condition.note_well();
                }
                return Ok(());
            }
            Place::Gone => condition::gone(&self.path),
            Place::Emptied => condition::emptied(&self.path),
            Place::LogGone => condition::log_gone(&self.path),
            Place::Replaced => {
                self.lost = Some(Lost::Replaced);
                condition::replaced(&self.path)
            }
        };
        self.misplaced = true;
        self.reservations.forget_all();
        self.condition.note_fault(fault.clone(), false);
        Err(fault)
    }

    /// Whether sessions could be claimed.
    fn look_at_owners(&mut self) -> Result<(), StoreFault> {
        self.owners.check().map_err(|error| {
            let fault = condition::of_io(self.owners.directory(), &error);
            self.condition.note_fault(fault.clone(), true);
            fault
        })
    }

    /// Where the last write failed, whether another one does.
    fn probe(&mut self) -> Result<(), StoreFault> {
        let Some(fault) = self.condition.fault() else { return Ok(()) };
        if self.lost.is_some() || self.probed.is_some_and(|probed| probed.elapsed() < RETRY_AFTER) {
            return Err(fault);
        }
        self.probed = Some(Instant::now());
        let written = self.wait_for_locks(BLOCKED_TIMEOUT).and_then(|()| self.set_syncing(true));
        match written.and_then(|()| schema::warm(&self.connection)) {
            Ok(()) => {
                self.blocked = false;
                self.condition.note_well();
                Ok(())
            }
            Err(error) => {
                self.note_loss(error.into());
                Err(self.condition.fault().unwrap_or(fault))
            }
        }
    }

    /// Notes what a failure means for what comes after it, and answers what to tell.
    fn note_loss(&mut self, loss: Loss) -> String {
        self.reservations.forget_all();
        if loss.disk {
            self.lost = Some(Lost::Disk);
        }
        let Some(error) = loss.error.filter(is_of_the_store) else { return loss.reason };
        let fault = condition::of_sqlite(&self.path, &error);
        let told = fault.to_string();
        self.condition.note_fault(fault, true);
        told
    }

    fn transact(
        &mut self,
        requests: &mut std::vec::IntoIter<Write>,
        finishes: &mut Vec<Finish>,
    ) -> Result<(), Loss> {
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

    fn needs_sync(&self, request: &Write) -> bool {
        match request {
            Write::Append { batch, .. } => batch.sync || !self.reservations.cover(batch),
            // A lost creation takes its id along, and the first append after a claim is synced, and the
            // claim with it.
            Write::Create { .. } | Write::Claim { .. } | Write::Check { .. } => false,
            // What is not finished is nobody's yet; the last piece is synced, and those before it with it.
            Write::Unseen(step) => matches!(step, Step::Finish { .. }),
            Write::Release { .. } | Write::Delete { .. } | Write::Rename { .. } => true,
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

    fn perform(&mut self, request: Write, sync: bool) -> (Finish, Option<Loss>) {
        let connection = &self.connection;
        let identity = Identity { owners: &mut self.owners, uptime: self.uptime.as_deref() };
        match request {
            Write::Create { session, answer } => {
                let created = session::create(connection, identity, &session);
                self.claimed.insert(session.id);
                settle(answer, created.inspect(|claim| self.reservations.note_new(claim)))
            }
            Write::Claim { id, answer } => {
                let claimed = session::claim(connection, identity, &id);
                if claimed.is_ok() {
                    self.outdated.remove(&id);
                    self.claimed.insert(id);
                }
                settle(answer, claimed)
            }
            Write::Release { id, epoch, answer } => {
                self.reservations.forget(&id);
                self.claimed.remove(&id);
                settle(answer, session::release(connection, &id, epoch))
            }
            Write::Append { batch, answer } if self.outdated.contains(&batch.session) => {
                let reason = "the session store was opened anew; open the session again".to_owned();
                settle(answer, Err(StoreError::Write { reason }.into()))
            }
            Write::Append { batch, answer } => {
                let appended = append::append(connection, &batch, sync, &mut self.scratch);
                // If the group is lost in the end, all reservations are forgotten.
                let noted = appended.map(|upto| self.reservations.note(batch.session, batch.epoch, upto));
                settle(answer, noted)
            }
            Write::Unseen(step) => self.write_unseen(step),
            Write::Delete { id, answer } => {
                self.reservations.forget(&id);
                match session::delete(connection, identity, &id) {
                    Ok(Some(key)) => (Finish::Sweep { key, answer }, None),
                    Ok(None) => settle(answer, Ok(false)),
                    Err(failure) => settle(answer, Err(failure)),
                }
            }
            Write::Rename { id, title, answer } => settle(answer, session::rename(connection, &id, &title)),
            Write::Check { answer } => settle(answer, Ok(())),
        }
    }
}

impl Writer {
    /// A piece of a session that nobody sees yet.
    fn write_unseen(&mut self, step: Step) -> (Finish, Option<Loss>) {
        let connection = &self.connection;
        let identity = Identity { owners: &mut self.owners, uptime: self.uptime.as_deref() };
        match step {
            Step::Begin { session, source, answer } => {
                settle(answer, unfinished::begin(connection, identity, &session, source.as_ref()))
            }
            Step::Write { key, before, events, answer } => {
                settle(answer, append::insert(connection, key, before, &events, &mut self.scratch))
            }
            Step::Copy { source, name, key, after, answer } => {
                settle(answer, unfinished::copy(connection, (source, &name), key, after, &mut self.scratch))
            }
            Step::Finish { key, outcome, source, answer } => {
                let finished = unfinished::finish(connection, identity, key, &outcome, source.as_ref());
                self.claimed.insert(outcome.session.id);
                settle(answer, finished.inspect(|claim| self.reservations.note_new(claim)))
            }
            Step::Abandon { key } => {
                let abandoned = unfinished::abandon(connection, key);
                let swept = abandoned.and_then(|()| self.sweeps.resume(connection));
                (Finish::Tell(Box::new(|_| {})), swept.err().map(Loss::from))
            }
        }
    }
}

/// Whether the store is to blame, not what it was asked to write.
fn is_of_the_store(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        None | Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    )
}

fn group_after(first: Write, queue: &mut Receiver<Write>) -> Vec<Write> {
    let mut events = first.weight();
    let mut group = vec![first];
    while group.len() < GROUP_REQUESTS_MAX && events < GROUP_EVENTS_MAX {
        let Ok(next) = queue.try_recv() else { break };
        events += next.weight();
        group.push(next);
    }
    group
}

/// Holds the answer back until it is known whether the group was committed.
fn settle<T: 'static>(answer: Answer<T>, outcome: Result<T, Failure>) -> (Finish, Option<Loss>) {
    let (outcome, loss) = match outcome {
        Ok(value) => (Ok(value), None),
        Err(Failure::Refused(error)) => (Err(error), None),
        Err(Failure::Lost(loss)) => (Err(StoreError::Write { reason: loss.reason.clone() }), Some(loss)),
    };
    let tell =
        move |lost: Option<&StoreError>| reply(answer, lost.map_or(outcome, |error| Err(error.clone())));
    (Finish::Tell(Box::new(tell)), loss)
}
