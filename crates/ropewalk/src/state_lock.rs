//! The lock on the state folder: every command shares it while it runs, and a restore has it alone.
//!
//! So nothing opens a file that a restore is about to replace, and two restores never cross. The kernel gives
//! the lock back however a process ends; the file stays and says nothing by itself.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::terminal;
use crate::trouble::Trouble;

const FILE: &str = "state.lock";
/// How often somebody who waits for the lock looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A restore copies every session once.
const RESTORE_WAIT_MAX: Duration = Duration::from_secs(60);
/// Commands that only list something end by themselves.
const COMMANDS_WAIT_MAX: Duration = Duration::from_secs(2);

/// Held until it is dropped.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// For a command that uses the state folder: waits while a backup is restored into it. Nothing where there is
    /// no such folder, or none that can be written: a restore cannot run there either.
    pub fn shared(state: &Path) -> Result<Option<Self>, Trouble> {
        let Ok(file) = open(state) else { return Ok(None) };
        if try_lock(&file, FlockOperation::NonBlockingLockShared, state)? {
            return Ok(Some(Self { _file: file }));
        }
        let restoring = match store::flock_holders(&file).as_slice() {
            [] => format!("a backup is being restored into {}", state.display()),
            pids => format!("{} restores a backup into {}", listed(pids), state.display()),
        };
        terminal::say(&format!("note: {restoring}; waiting until it has ended"));
        match wait(&file, FlockOperation::NonBlockingLockShared, RESTORE_WAIT_MAX, state)? {
            true => Ok(Some(Self { _file: file })),
            false => Err(Trouble::failed("the state folder cannot be used yet")
                .because(restoring)
                .fix("try again when the restore has ended; continue or end it if it is stopped")),
        }
    }

    /// For a restore: nobody else uses the folder, which is made if it is not there.
    pub fn alone(state: &Path) -> Result<Self, Trouble> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(state).and_then(|()| open(state));
        let file = made.map_err(|error| unusable(state, error))?;
        match wait(&file, FlockOperation::NonBlockingLockExclusive, COMMANDS_WAIT_MAX, state)? {
            true => Ok(Self { _file: file }),
            false => Err(Trouble::failed("the state folder is in use, so nothing can be restored into it")
                .because(match store::flock_holders(&file).as_slice() {
                    [] => format!("another ropewalk uses {}", state.display()),
                    pids => format!("another ropewalk uses {}: {}", state.display(), listed(pids)),
                })
                .fix("end it (ropewalk serve stop; close editors that run it), then try again")),
        }
    }
}

fn open(state: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(state.join(FILE))
}

fn wait(file: &File, kind: FlockOperation, longest: Duration, state: &Path) -> Result<bool, Trouble> {
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

fn try_lock(file: &File, kind: FlockOperation, state: &Path) -> Result<bool, Trouble> {
    match flock(file, kind) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(unusable(state, error.into())),
    }
}

fn unusable(state: &Path, error: io::Error) -> Trouble {
    Trouble::failed(format!("{} cannot be locked", state.join(FILE).display()))
        .because(error)
        .fix("check that you may write there, or choose another folder with ROPEWALK_HOME")
}

fn listed(pids: &[u32]) -> String {
    let numbers: Vec<_> = pids.iter().map(u32::to_string).collect();
    format!("{} {}", if pids.len() == 1 { "process" } else { "processes" }, numbers.join(", "))
}
