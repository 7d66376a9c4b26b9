//! The lock on the state folder: every command holds it shared, and a restore holds it exclusively.
//!
//! So nothing opens a file that a restore is about to replace, and two restores never overlap. The kernel releases the lock
//! however a process ends; the lock file itself stays and means nothing.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::cli_error::CliError;
use crate::output;

const FILE: &str = "state.lock";
/// How often to retry while waiting for the lock.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long to wait for a restore, which copies every session.
const RESTORE_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a restore waits for short commands to end.
const COMMANDS_WAIT_MAX: Duration = Duration::from_secs(2);

/// Held until it is dropped.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// For a command that uses the state folder: waits while a restore runs. `None` if the folder does not exist or is
    /// not writable: a restore cannot run there either.
    pub fn shared(state: &Path) -> Result<Option<Self>, CliError> {
        let Ok(file) = open(state) else { return Ok(None) };
        if try_lock(&file, FlockOperation::NonBlockingLockShared, state)? {
            return Ok(Some(Self { _file: file }));
        }
        let restoring = match store::flock_holders(&file).as_slice() {
            [] => format!("a backup is being restored into {}", state.display()),
            pids => format!("{} is restoring a backup into {}", pid_list(pids), state.display()),
        };
        output::say(&format!("note: {restoring}; waiting for it to finish"));
        match wait(&file, FlockOperation::NonBlockingLockShared, RESTORE_WAIT_MAX, state)? {
            true => Ok(Some(Self { _file: file })),
            false => Err(CliError::failed("the state folder is locked")
                .because(restoring)
                .fix("try again when the restore has finished; if it is suspended, resume or end it")),
        }
    }

    /// For a restore: exclusive use of the folder, which is created if it is missing.
    pub fn alone(state: &Path) -> Result<Self, CliError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(state).and_then(|()| open(state));
        let file = made.map_err(|error| unusable(state, error))?;
        match wait(&file, FlockOperation::NonBlockingLockExclusive, COMMANDS_WAIT_MAX, state)? {
            true => Ok(Self { _file: file }),
            false => Err(CliError::failed("cannot restore while the state folder is in use")
                .because(match store::flock_holders(&file).as_slice() {
                    [] => format!("another ropewalk process uses {}", state.display()),
                    pids => format!("another ropewalk process uses {}: {}", state.display(), pid_list(pids)),
                })
                .fix("stop it (ropewalk serve stop, or close the editors that run it), then try again")),
        }
    }
}

fn open(state: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(state.join(FILE))
}

fn wait(file: &File, kind: FlockOperation, longest: Duration, state: &Path) -> Result<bool, CliError> {
    let began = Instant::now();
    loop {
        if try_lock(file, kind, state)? {
            return Ok(true);
        }
        if began.elapsed() >= longest {
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn try_lock(file: &File, kind: FlockOperation, state: &Path) -> Result<bool, CliError> {
    match flock(file, kind) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(unusable(state, error.into())),
    }
}

fn unusable(state: &Path, error: io::Error) -> CliError {
    CliError::failed(format!("could not lock {}", state.join(FILE).display()))
        .because(error)
        .fix("check the permissions of the folder, or choose another one with ROPEWALK_HOME")
}

fn pid_list(pids: &[u32]) -> String {
    let numbers: Vec<_> = pids.iter().map(u32::to_string).collect();
    format!("{} {}", if pids.len() == 1 { "process" } else { "processes" }, numbers.join(", "))
}
