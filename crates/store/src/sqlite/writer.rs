//! The thread that writes: takes what is queued as one group, commits it as one transaction, and
//! only then answers.
//!
//! A group is synced to disk if anything in it asks for that or uses positions that are not reserved
//! yet; otherwise it is written but not synced, which survives the death of the process. A request
//! that is refused (a fenced writer, an unknown session) has written nothing and costs the others in
//! its group nothing. If the transaction itself fails, the whole group fails and nothing is retried.

use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use engine::StoreError;
use rusqlite::Connection;
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

use super::Options;
use super::append::{Reservations, Scratch, append};
use super::owner::Owners;
use super::request::{Answer, Failure, Loss, Write, reply};
use super::schema;
use super::session::{self, Identity};
use super::sweep::Sweeps;
use super::uptime;

/// A group is closed at so many requests or events: whoever came first should not wait for ever.
const GROUP_REQUESTS_MAX: usize = 256;
const GROUP_EVENTS_MAX: usize = 16 * 1024;

pub(super) struct Writer {
    connection: Connection,
    options: Options,
    /// Names the boot and the mount in which nothing that was written is lost.
    uptime: Option<String>,
    owners: Owners,
    reservations: Reservations,
    scratch: Scratch,
    sweeps: Sweeps,
    /// Whether commits are being synced at present.
    syncing: bool,
    /// The disk failed. What it holds is unknown, so nothing more is written.
    failed: Option<String>,
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
        opened: SyncSender<Result<(), String>>,
    ) {
        let connection = match schema::open_for_writing(&path) {
            Ok(connection) => connection,
            Err(reason) => {
                tracing::error!(reason, "the session store cannot be opened");
                drop(opened.send(Err(reason.clone())));
                while let Some(request) = queue.blocking_recv() {
                    request.refuse(StoreError::Unavailable { reason: reason.clone() });
                }
                return;
            }
        };
        drop(opened.send(Ok(())));
        let mount = options.mount.as_deref().map(str::to_owned).or_else(|| uptime::mount_of(&path));
        let mut writer = Self {
            connection,
            uptime: uptime::name(options.boot.as_deref(), mount.as_deref()),
            options,
            owners: Owners::beside(&path),
            reservations: Reservations::default(),
            scratch: Scratch::default(),
            sweeps: Sweeps::default(),
            syncing: false,
            failed: None,
        };
        writer.serve(&mut queue);
    }

    fn serve(&mut self, queue: &mut Receiver<Write>) {
        let mut settled = false;
        if self.options.warm
            && let Err(error) = schema::warm(&self.connection)
        {
            tracing::warn!(%error, "the session store cannot be written");
        }
        while let Some(first) = queue.blocking_recv() {
            self.commit(group_after(first, queue));
            if !settled {
                settled = true;
                self.take_up_leftovers();
            }
            while !self.sweeps.is_empty() {
                self.sweep();
                match queue.try_recv() {
                    Ok(first) => self.commit(group_after(first, queue)),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
    }

    /// What dead processes left behind. Done after the first group, so that no start waits for it.
    fn take_up_leftovers(&mut self) {
        self.owners.sweep();
        if let Err(error) = self.sweeps.resume(&self.connection) {
            tracing::warn!(%error, "cannot look for remains of deleted sessions");
        }
    }

    fn sweep(&mut self) {
        let swept =
            self.set_syncing(false).map_err(Loss::from).and_then(|()| self.sweeps.step(&self.connection));
        if let Err(loss) = swept {
            tracing::warn!(reason = loss.reason, "cannot remove what is left of a deleted session");
            self.note_loss(loss);
        }
    }

    fn commit(&mut self, group: Vec<Write>) {
        if let Some(reason) = &self.failed {
            for request in group {
                request.refuse(StoreError::Write { reason: reason.clone() });
            }
            return;
        }
        let mut requests = group.into_iter();
        let mut finishes = Vec::with_capacity(requests.len());
        let outcome = self.transact(&mut requests, &mut finishes);
        let error = match outcome {
            Ok(()) => None,
            Err(loss) => {
                drop(self.connection.execute_batch("ROLLBACK"));
                tracing::error!(reason = loss.reason, "a group of writes is lost");
                let error = StoreError::Write { reason: loss.reason.clone() };
                self.note_loss(loss);
                Some(error)
            }
        };
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

    fn note_loss(&mut self, loss: Loss) {
        self.reservations.forget_all();
        if loss.disk {
            self.failed = Some(format!("an earlier write failed: {}", loss.reason));
        }
    }

    fn transact(
        &mut self,
        requests: &mut std::vec::IntoIter<Write>,
        finishes: &mut Vec<Finish>,
    ) -> Result<(), Loss> {
        let sync = requests.as_slice().iter().any(|request| self.needs_sync(request));
        self.set_syncing(sync)?;
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
            Write::Create { .. } | Write::Claim { .. } => false,
            Write::Release { .. } | Write::Fork { .. } | Write::Delete { .. } | Write::Rename { .. } => true,
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
                settle(answer, created.inspect(|claim| self.reservations.note_new(claim)))
            }
            Write::Claim { id, answer } => settle(answer, session::claim(connection, identity, &id)),
            Write::Release { id, epoch, answer } => {
                self.reservations.forget(&id);
                settle(answer, session::release(connection, &id, epoch))
            }
            Write::Append { batch, answer } => {
                let appended = append(connection, &batch, sync, &mut self.scratch);
                // If the group is lost in the end, all reservations are forgotten.
                let noted = appended.map(|upto| self.reservations.note(batch.session, batch.epoch, upto));
                settle(answer, noted)
            }
            Write::Fork { source, session, answer } => {
                let forked = session::fork(connection, identity, &source, &session);
                settle(answer, forked.inspect(|claim| self.reservations.note_new(claim)))
            }
            Write::Delete { id, answer } => {
                self.reservations.forget(&id);
                match session::delete(connection, identity, &id) {
                    Ok(Some(key)) => (Finish::Sweep { key, answer }, None),
                    Ok(None) => settle(answer, Ok(false)),
                    Err(failure) => settle(answer, Err(failure)),
                }
            }
            Write::Rename { id, title, answer } => settle(answer, session::rename(connection, &id, &title)),
        }
    }
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
