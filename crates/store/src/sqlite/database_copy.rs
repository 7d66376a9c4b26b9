//! A consistent copy of the whole database, made while others read and write.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use super::store_condition::with_suffix;

/// Pages copied at a time: all, so that the copy is consistent even while others write.
const ALL_PAGES: i32 = -1;

/// Copies into a file beside `target` that only its owner can read, and renames it when it is complete. An
/// existing file of that name is replaced.
pub(super) fn copy_to(source: &Connection, target: &Path) -> Result<(), String> {
    let unfinished = beside(target);
    let copied = copy_into(source, &unfinished)
        .and_then(|()| std::fs::rename(&unfinished, target).map_err(|error| error.to_string()));
    if copied.is_err() {
        drop(std::fs::remove_file(&unfinished));
    }
    copied
}

/// The name of a copy that is not whole yet.
pub(super) fn beside(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    target.with_file_name(name)
}

/// Copies into a new file.
pub(super) fn copy_into(source: &Connection, target: &Path) -> Result<(), String> {
    make_private(target).map_err(|error| error.to_string())?;
    fill(source, target).map_err(|error| error.to_string())?;
    sync(target).map_err(|error| error.to_string())
}

/// Copies into an existing empty file.
pub(super) fn fill(source: &Connection, target: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(target, flags)?;
    Backup::new(source, &mut copy)?.step(ALL_PAGES)?;
    // One file without a write-ahead log, complete on the disk before it gets its name.
    copy.execute_batch("PRAGMA journal_mode = DELETE")
}

pub(super) fn sync(target: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).open(target).and_then(|file| file.sync_all())
}

pub(super) fn make_private(path: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new();
    file.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    file.open(path).map(drop)
}

/// Removes what a killed process left under the name of a copy that is not whole.
pub(super) fn remove(unfinished: &Path) -> std::io::Result<()> {
    for end in ["", "-wal", "-shm", "-journal"] {
        match std::fs::remove_file(with_suffix(unfinished, end)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}
