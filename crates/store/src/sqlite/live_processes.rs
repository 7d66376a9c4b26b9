//! Which processes are alive: each holds a lock on a file of its own, which the kernel releases
//! when the process dies, however it dies.
//!
//! The file is created when the process first owns a session, and removed when the store is closed or
//! when another process finds it unlocked.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::regular_file::is_there;

/// Many tries fail only if somebody keeps emptying the directory.
const TRIES_MAX: usize = 16;

pub(super) struct ProcessLocks {
    directory: PathBuf,
    name: String,
    held: Option<File>,
}

impl ProcessLocks {
    /// The files are in `owners` beside the database.
    pub(super) fn beside(database: &Path) -> Self {
        let directory = database.with_file_name("owners");
        Self { directory, name: uuid::Uuid::new_v4().to_string(), held: None }
    }

    /// The name of this process as an owner; from here on it counts as alive.
    pub(super) fn own_name(&mut self) -> io::Result<&str> {
        if self.held.is_none() {
            self.held = Some(self.take_own_lock()?);
        }
        Ok(&self.name)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether this process could be marked as alive.
    pub(super) fn check(&self) -> io::Result<()> {
        if !is_there(&self.directory)? {
            return Ok(());
        }
        if !self.directory.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder; move it aside"));
        }
        access(&self.directory, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
    }

    /// Whether the owner is another process, or another store in this one, that still lives.
    pub(super) fn lives_elsewhere(&self, name: &str) -> bool {
        name != self.name && is_plain(name) && !remove_if_dead(&self.directory.join(name))
    }

    /// Whether the owner is this store.
    pub(super) fn is_own(&self, name: &str) -> bool {
        name == self.name
    }

    /// Removes the files of all dead owners.
    pub(super) fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes() != self.name.as_bytes() {
                remove_if_dead(&entry.path());
            }
        }
    }

    /// Another process's sweep may remove the file between its creation and its lock. A lock counts only if
    /// the file still exists afterwards: then no sweep can remove it.
    fn take_own_lock(&self) -> io::Result<File> {
        let mut directory = DirBuilder::new();
        directory.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
        directory.create(&self.directory)?;
        let path = self.directory.join(&self.name);
        for _ in 0..TRIES_MAX {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
            file.lock()?;
            if path.try_exists()? {
                return Ok(file);
            }
        }
        Err(io::Error::other("the owner's file keeps disappearing"))
    }
}

impl Drop for ProcessLocks {
    fn drop(&mut self) {
        if self.held.is_some() {
            // A file that stays is found unlocked and removed by the next process.
            drop(fs::remove_file(self.directory.join(&self.name)));
        }
    }
}

/// Names are made here, but they come from a file that others can write.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// When in doubt, the owner counts as alive: a refusal can be retried, two writers cannot be undone.
fn remove_if_dead(path: &Path) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    match file.try_lock() {
        Ok(()) => {
            drop(fs::remove_file(path));
            true
        }
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}
