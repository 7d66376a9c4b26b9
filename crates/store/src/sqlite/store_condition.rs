//! Whether the file can be used at this moment, and the fault that people are shown when it cannot.
//!
//! The writer records every change here; the reader, the doors and the readiness check read it. A fault has a cause in
//! plain words and a fix, because SQLite's own message ("disk I/O error") has neither.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::StoreFault;
use rusqlite::ErrorCode;

use crate::lock_holder::LockHolder;

/// The alternative for a person who cannot repair the store now.
const WITHOUT: &str = "or use --ephemeral to work without saving";
const EXAMINE: &str = "ropewalk doctor --store says what is wrong";
const SAVE: &str =
    "ropewalk sessions salvage recovers what is readable, ropewalk restore FILE restores a backup";

/// The cause for a file without content.
pub(super) const EMPTY: &str =
    "the file is empty (0 bytes): it was truncated, or a power cut destroyed its content";

#[derive(Default)]
pub(super) struct StoreCondition(Mutex<ConditionState>);

#[derive(Default)]
struct ConditionState {
    /// How often the file was opened.
    opened: u64,
    readable: bool,
    fault: Option<StoreFault>,
}

impl StoreCondition {
    /// Reads may be tried. A file that cannot be written may still be read.
    pub(super) fn is_readable(&self) -> bool {
        self.lock().readable
    }

    /// Changes when the file was reopened: older connections are useless.
    pub(super) fn opened(&self) -> u64 {
        self.lock().opened
    }

    pub(super) fn fault(&self) -> Option<StoreFault> {
        self.lock().fault.clone()
    }

    pub(super) fn note_opened(&self) {
        let mut current = self.lock();
        current.opened += 1;
        current.readable = true;
        if current.fault.take().is_some() {
            tracing::warn!("the session store can be used again");
        }
    }

    /// Something was written, or the file is at its place again.
    pub(super) fn note_usable(&self) {
        let mut current = self.lock();
        current.readable = true;
        if current.fault.take().is_some() {
            tracing::warn!("the session store can be used again");
        }
    }

    /// Nothing can be written. `readable`: the file can still be read.
    pub(super) fn note_fault(&self, fault: StoreFault, readable: bool) {
        let mut current = self.lock();
        current.readable = readable;
        if current.fault.as_ref() != Some(&fault) {
            tracing::error!(%fault, "the session store cannot be used");
            current.fault = Some(fault);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConditionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of an open database, as they were when it was opened. If a path leads to another file, or to
/// none, written data would not be found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatabaseFiles {
    path: PathBuf,
    database: Option<(u64, u64)>,
    /// The write-ahead log and its index, which stay as long as a process has the database open.
    beside: [Option<(u64, u64)>; 2],
}

/// The state of an open database's files on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilesStatus {
    InPlace,
    /// There is no database at its path.
    Missing,
    /// Another database is at its path.
    Replaced,
    /// The database is at its path, without content.
    Emptied,
    /// The write-ahead log is missing, or another one.
    LogMissing,
}

impl DatabaseFiles {
    pub(super) fn of(path: &Path) -> Self {
        let beside = ["-wal", "-shm"].map(|end| identity(&with_suffix(path, end)));
        Self { path: path.to_owned(), database: identity(path), beside }
    }

    pub(super) fn status(&self) -> FilesStatus {
        let now = Self::of(&self.path);
        let log_kept = self.beside.iter().zip(&now.beside).all(|(then, now)| then.is_none() || then == now);
        match now.database {
            None => FilesStatus::Missing,
            database if database != self.database => FilesStatus::Replaced,
            _ if is_empty(&self.path) => FilesStatus::Emptied,
            _ if log_kept => FilesStatus::InPlace,
            _ => FilesStatus::LogMissing,
        }
    }
}

/// Only the metadata is read: opening and closing one of the files here would release the locks that SQLite
/// holds on it in this process.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether the file exists and has no content.
pub(super) fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0)
}

pub(super) fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

pub(super) fn gone(path: &Path) -> StoreFault {
    StoreFault {
        path: Some(path.to_owned()),
        cause: "it was removed or moved away while in use, so nothing can be saved".into(),
        fix: "move it back to continue, or start ropewalk again to create a new store".into(),
    }
}

pub(super) fn emptied(path: &Path) -> StoreFault {
    StoreFault {
        path: Some(path.to_owned()),
        cause: EMPTY.into(),
        fix: format!("{SAVE}; move the file aside to create a new store, {WITHOUT}"),
    }
}

pub(super) fn log_gone(path: &Path) -> StoreFault {
    StoreFault {
        path: Some(path.to_owned()),
        cause: "its -wal or -shm file was removed or replaced while in use".into(),
        fix: "stop every ropewalk that uses it, and start again".into(),
    }
}

pub(super) fn replaced(path: &Path) -> StoreFault {
    StoreFault {
        path: Some(path.to_owned()),
        cause: "another file took its place while it was in use".into(),
        fix: "it is opened with the next request".into(),
    }
}

pub(super) fn newer(path: &Path, found: usize, known: usize) -> StoreFault {
    StoreFault {
        path: Some(path.to_owned()),
        cause: format!(
            "the file has layout {found}, written by a newer version; this version supports layouts up to {known}"
        ),
        fix: format!("use a ropewalk that supports layout {found}, {WITHOUT}"),
    }
}

/// The file is of an older layout, and stays as it is.
pub(super) fn not_copied(path: &Path, cause: String) -> StoreFault {
    let fix = format!("free some space, or make its folder writable for you, {WITHOUT}");
    StoreFault { path: Some(path.to_owned()), cause, fix }
}

pub(super) fn read_only(path: &Path) -> StoreFault {
    StoreFault {
        path: Some(path.to_owned()),
        cause: "it is readable but not writable".into(),
        fix: format!(
            "make the file and its folder writable for you, choose another with ROPEWALK_HOME, {WITHOUT}"
        ),
    }
}

/// Another process holds the lock.
pub(super) fn busy(path: &Path) -> StoreFault {
    let (cause, fix) = LockHolder::of_database(&with_suffix(path, "-shm")).map_or_else(
        || ("the database is locked by another process".into(), "wait until it is done, or end it".into()),
        |holder| holder.described("the database"),
    );
    StoreFault { path: Some(path.to_owned()), cause, fix }
}

/// A file could not be created or examined.
pub(super) fn of_io(path: &Path, error: &io::Error) -> StoreFault {
    let fix = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("free some space, {WITHOUT}"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("make its folder writable for you, choose another with ROPEWALK_HOME, {WITHOUT}")
        }
        _ if out_of_descriptors().is_some() => "raise the limit of open files (ulimit -n)".into(),
        _ => format!("repair that, choose another folder with ROPEWALK_HOME, {WITHOUT}"),
    };
    StoreFault { path: Some(path.to_owned()), cause: error.to_string(), fix }
}

/// SQLite failed. Its message alone does not distinguish a full disk from a broken one.
pub(super) fn of_sqlite(path: &Path, error: &rusqlite::Error) -> StoreFault {
    let fault = |cause: String, fix: String| StoreFault { path: Some(path.to_owned()), cause, fix };
    if let Some(cause) = out_of_descriptors() {
        return fault(cause, "raise the limit of open files (ulimit -n), or close sessions".into());
    }
    let full =
        || is_full(path).then(|| fault("the disk is full".into(), format!("free some space, {WITHOUT}")));
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => busy(path),
        Some(ErrorCode::DiskFull) => fault("the disk is full".into(), format!("free some space, {WITHOUT}")),
        Some(ErrorCode::SystemIoFailure) => full().unwrap_or_else(|| {
            fault(error.to_string(), "check the disk; it is tried again with every request".into())
        }),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => fault(
            error.to_string(),
            format!(
                "make the file and its folder writable for you, choose another with ROPEWALK_HOME, {WITHOUT}"
            ),
        ),
        Some(ErrorCode::CannotOpen) => full().unwrap_or_else(|| {
            fault(
                error.to_string(),
                format!("make the file and its folder readable and writable for you, {WITHOUT}"),
            )
        }),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => fault(
            error.to_string(),
            format!("{EXAMINE}; {SAVE}; move the file aside to create a new store, {WITHOUT}"),
        ),
        _ => fault(error.to_string(), format!("{EXAMINE}; it is tried again with every request")),
    }
}

/// Whether this process has run out of file descriptors, which SQLite reports as other errors.
fn out_of_descriptors() -> Option<String> {
    let error = File::open("/dev/null").err()?;
    // ENFILE and EMFILE: of the system, and of this process.
    matches!(error.raw_os_error(), Some(23 | 24)).then(|| error.to_string())
}

fn is_full(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new("."));
    rustix::fs::statvfs(folder).is_ok_and(|found| found.f_bavail == 0)
}
