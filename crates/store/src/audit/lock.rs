//! The lock `audit/lock`, which every process holds while it writes or verifies the chain.
//!
//! It is held for milliseconds, longer only while a long chain is verified. Waiting for it is always bounded: a process
//! that was stopped while it held the lock would otherwise stop all others.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::lock_holder::LockHolder;

const LOCK: &str = "lock";
/// How long to wait for a process that is stopped or cannot be seen.
const STOPPED_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long to wait for a running process: it may be verifying.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often a waiting process tries again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) struct ChainLock {
    file: File,
    /// The last attempt failed. The next one does not wait again.
    refused: bool,
}

impl ChainLock {
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Ok(Self { file: options.open(folder.join(LOCK))?, refused: false })
    }

    /// Takes the lock for writing: no other process writes or verifies.
    pub fn exclusive(&mut self) -> io::Result<()> {
        self.wait(File::try_lock)
    }

    /// Takes the lock for verifying: no process writes.
    pub fn shared(&mut self) -> io::Result<()> {
        self.wait(File::try_lock_shared)
    }

    pub fn unlock(&self) {
        // Where this fails the lock ends with the process.
        drop(self.file.unlock());
    }

    fn wait(&mut self, try_lock: impl Fn(&File) -> Result<(), TryLockError>) -> io::Result<()> {
        let began = Instant::now();
        loop {
            match try_lock(&self.file) {
                Ok(()) => {
                    self.refused = false;
                    return Ok(());
                }
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            if self.refused || began.elapsed() >= STOPPED_WAIT_MAX {
                let holder = LockHolder::of_file(&self.file);
                let runs = holder.as_ref().is_some_and(|holder| !holder.stopped);
                if self.refused || !runs || began.elapsed() >= BUSY_WAIT_MAX {
                    self.refused = true;
                    return Err(held_by(holder.as_ref()));
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The error for a lock that another process holds; it is recognised by its kind.
fn held_by(holder: Option<&LockHolder>) -> io::Error {
    let (cause, fix) = holder.map_or_else(
        || ("the audit is locked by another process".into(), "wait until it is done, or end it".into()),
        |holder| holder.described("the audit"),
    );
    io::Error::new(io::ErrorKind::WouldBlock, format!("{cause}; {fix}"))
}
