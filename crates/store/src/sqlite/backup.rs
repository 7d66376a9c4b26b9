//! Backups: one file with everything, made while servers run, and verified before it gets its name.
//!
//! The file is a SQLite database: the sessions as they are at one moment, and beside them a table with the other
//! files of a machine. A restored store gets a new lineage, so that whoever mirrors it learns that its history
//! branches off here.
//!
//! What is damaged in the store is damaged in its backup, and comes back as far as it can be read. A backup that was
//! damaged later is another matter: a digest of its pages tells one from the other, and it is refused.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use sha2::{Digest, Sha256};

use super::backup_digest;
use super::database_copy;
use super::examine::{ExamineDepth, ExamineReport, examine};
use super::lineage;
use super::salvage::salvage;
use super::schema;
use super::store_condition;
use crate::regular_file::{open_regular, read_regular};

/// The version of the tables that a backup has besides the sessions.
const FORM: &str = "1";

const TABLES: &str = "
    CREATE TABLE backup_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE backup_files (name TEXT PRIMARY KEY, sha256 BLOB NOT NULL, content BLOB NOT NULL) STRICT;";

/// A file for a backup, with the name that it has there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFile {
    /// With `/` between folders.
    pub name: String,
    pub path: PathBuf,
}

/// The contents of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupReport {
    pub bytes: u64,
    pub sessions: u64,
    pub events: u64,
    pub files: Vec<String>,
    /// Of the sessions; a backup keeps it as it is.
    pub damage: Vec<String>,
}

/// Writes a backup. An existing target is replaced only if `force` is given.
pub fn back_up(
    database: &Path,
    files: &[BackupFile],
    target: &Path,
    made_at: &str,
    force: bool,
) -> Result<BackupReport, String> {
    // Two that write to one name would write to the same unfinished file.
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _alone = schema::lock_for_making(folder).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            format!("another backup is being written in {}; try again", folder.display())
        }
        _ => format!("{}: {error}", folder.display()),
    })?;
    if !force && target.try_exists().map_err(|error| format!("{}: {error}", target.display()))? {
        return Err(format!("{} exists already; pass --force to replace it", target.display()));
    }
    let unfinished = database_copy::beside(target);
    let made =
        fill(database, files, &unfinished, made_at).and_then(|()| verify(&unfinished)).and_then(|report| {
            backup_digest::write(&open(&unfinished)?, &unfinished)?;
            fs::rename(&unfinished, target).map_err(|error| error.to_string())?;
            sync_folder(target);
            Ok(report)
        });
    made.map_err(|error| {
        drop(fs::remove_file(&unfinished));
        format!("{}: {error}", target.display())
    })
}

fn fill(database: &Path, files: &[BackupFile], unfinished: &Path, made_at: &str) -> Result<(), String> {
    let unreadable = |path: &Path, error| format!("{} cannot be read: {error}", path.display());
    // Opened and closed here, where no connection of this process has locks on it.
    let there = open_regular(database).map_err(|error| unreadable(database, error))?.is_some();
    let said = |error: rusqlite::Error| schema::say_damage(database, &error);
    if there {
        let source =
            schema::open_for_reading(database).map_err(|error| schema::say_damage(database, &error))?;
        schema::refuse_newer(database, schema::layout_of(&source).map_err(said)?)?;
        database_copy::copy_into(&source, unfinished)?;
    } else {
        schema::write_empty(unfinished).map_err(|fault| fault.to_string())?;
    }
    let connection = Connection::open(unfinished).map_err(said)?;
    connection
        .execute_batch("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; BEGIN")
        .map_err(said)?;
    connection.execute_batch(TABLES).map_err(said)?;
    let fact = "INSERT INTO backup_facts (name, value) VALUES (?1, ?2)";
    connection.execute(fact, ("form", FORM)).map_err(said)?;
    connection.execute(fact, ("made_at", made_at)).map_err(said)?;
    connection.execute(fact, (backup_digest::FACT, backup_digest::NONE)).map_err(said)?;
    for BackupFile { name, path } in files {
        let content = read_regular(path).map_err(|error| unreadable(path, error))?;
        let digest: [u8; 32] = Sha256::digest(&content).into();
        let insert = "INSERT INTO backup_files (name, sha256, content) VALUES (?1, ?2, ?3)";
        connection.execute(insert, (name, &digest[..], &content)).map_err(said)?;
    }
    connection.execute_batch("COMMIT").map_err(said)
}

fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Err(error) = File::open(folder).and_then(|folder| folder.sync_all()) {
        tracing::warn!(%error, "the folder of the backup could not be synced");
    }
}

/// Reads all of a backup. The error says why it cannot be used.
pub fn verify(backup: &Path) -> Result<BackupReport, String> {
    let connection = open(backup)?;
    backup_digest::check(&connection, backup)?;
    let examined = examine(backup, ExamineDepth::Deep)?.ok_or("it is empty")?;
    let ExamineReport { sessions, events, damage, .. } = examined;
    let mut files = Vec::new();
    for_each_file(&connection, |name, _| {
        files.push(name.to_owned());
        Ok(())
    })?;
    let bytes = backup.metadata().map_err(|error| error.to_string())?.len();
    Ok(BackupReport { bytes, sessions, events, files, damage })
}

fn open(backup: &Path) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(backup, flags).map_err(|error| error.to_string())?;
    let form: Option<String> = connection
        .query_row("SELECT value FROM backup_facts WHERE name = 'form'", [], |row| row.get(0))
        .optional()
        .map_err(|error| format!("it is not a ropewalk backup, or it is damaged: {error}"))?;
    match form.as_deref() {
        Some(FORM) => Ok(connection),
        Some(other) => Err(format!("it is a backup of form {other}, but this version reads form {FORM}")),
        None => Err("it is not a ropewalk backup, or it is damaged".to_owned()),
    }
}

fn for_each_file(
    connection: &Connection,
    mut visit: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let said = |error: rusqlite::Error| error.to_string();
    let mut select =
        connection.prepare("SELECT name, sha256, content FROM backup_files ORDER BY name").map_err(said)?;
    let mut rows = select.query([]).map_err(said)?;
    while let Some(row) = rows.next().map_err(said)? {
        let name: String = row.get(0).map_err(said)?;
        let digest: Vec<u8> = row.get(1).map_err(said)?;
        let content: Vec<u8> = row.get(2).map_err(said)?;
        if digest[..] != Sha256::digest(&content)[..] {
            return Err(format!("the file {name} in it is damaged"));
        }
        if !is_plain(&name) {
            return Err(format!("the file {name:?} in it has a name that points outside the backup"));
        }
        visit(&name, &content)?;
    }
    Ok(())
}

/// A backup may come from anywhere; none of its names may lead out of the folder.
fn is_plain(name: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    name.split('/').all(plain) && !name.contains('\0')
}

/// Whether a process has the store open. A file that cannot be opened is in use by nobody.
pub fn is_in_use(database: &Path) -> bool {
    if store_condition::is_empty(database) {
        return false;
    }
    let Ok(connection) = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE) else {
        return false;
    };
    let alone = connection.busy_timeout(std::time::Duration::ZERO).and_then(|()| {
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; ROLLBACK")
    });
    alone.is_err_and(|error| error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy))
}

/// Makes the store of a backup that was verified at `database`, where nothing may be yet, and gives each of the
/// other files to `place`.
pub fn restore(
    backup: &Path,
    database: &Path,
    place: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let source = open(backup)?;
    let unfinished = database_copy::beside(database);
    let placed = database_copy::copy_into(&source, &unfinished)
        .and_then(|()| become_store(backup, &unfinished))
        .and_then(|()| for_each_file(&source, place))
        .and_then(|()| fs::rename(&unfinished, database).map_err(|error| error.to_string()));
    if placed.is_err() {
        drop(fs::remove_file(&unfinished));
    }
    placed
}

/// Makes a store of a copy of a backup. Where its pages are damaged, what can be read of them is put into a new one.
fn become_store(backup: &Path, copy: &Path) -> Result<(), String> {
    let damaged = match begin_lineage(copy) {
        Ok(()) => return Ok(()),
        Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseCorrupt) => {
            return Err(error.to_string());
        }
        Err(error) => error,
    };
    tracing::warn!(%damaged, "pages of the sessions are damaged in the backup; what can be read is restored");
    database_copy::remove(copy).map_err(|error| error.to_string())?;
    salvage(backup, copy)?;
    let restored = Connection::open(copy).and_then(|connection| mark_restored(&connection));
    restored.map_err(|error| error.to_string())
}

/// Starts a new history, different from that of the machine it was copied from. No position is assigned that
/// may have been shown there after the backup: each session continues after the reserved ones.
fn begin_lineage(database: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(database)?;
    connection.execute_batch(
        "PRAGMA secure_delete = ON;
         DROP TABLE backup_files;
         DROP TABLE backup_facts;",
    )?;
    if schema::layout_of(&connection)? >= schema::LINEAGE_FROM {
        lineage::begin(&connection)?;
        mark_restored(&connection)?;
    }
    connection.execute_batch("VACUUM")
}

fn mark_restored(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("UPDATE acp_sessions SET holder = 'restored', boot = NULL;")
}
