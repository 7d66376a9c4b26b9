//! The file's layout: how it is opened, created, and brought from an older layout to this one.
//!
//! The layout's version is SQLite's `user_version`. Each step below is applied once, in order, all in
//! one transaction; a file of a later version is refused, because what this program would write into
//! it could mislead its newer owner.
//!
//! **Invariant:** a file gets its name when its tables are in it, so an empty one was never made here: it lost
//! its content, and is refused.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::StoreFault;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{database_copy, lineage, store_condition};

/// Another process may hold the write lock for a group, a checkpoint or the copy of a long session. A caller
/// that waits longer is told which process holds it.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long two processes that make the same file at once wait for each other.
const MAKING_MAX: Duration = Duration::from_secs(10);
const MAKING_PAUSE: Duration = Duration::from_millis(5);
/// Pages in the write-ahead log that cause a checkpoint: 16 MiB. The default of 4 MiB makes a flood
/// of events wait for the disk four times as often.
const CHECKPOINT_PAGES: u32 = 4096;
/// The size that the write-ahead log is truncated to after one big transaction.
const LOG_BYTES_KEPT: u32 = 32 << 20;
const WRITER_CACHE_KIB: i32 = 2048;
const READER_CACHE_KIB: i32 = 512;
/// More statements than there are in this crate, so that none is ever prepared twice.
const STATEMENTS_MAX: usize = 64;

/// Each entry leads from the layout of its index to the next.
const STEPS: [&str; 4] = [
    "CREATE TABLE acp_sessions (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        cwd ANY NOT NULL,
        roots TEXT NOT NULL,
        title TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        busy INTEGER NOT NULL DEFAULT 0,
        last_seq INTEGER NOT NULL DEFAULT 0,
        reserved_seq INTEGER NOT NULL DEFAULT 0,
        epoch INTEGER NOT NULL,
        holder TEXT,
        boot TEXT
    ) STRICT;
    CREATE INDEX acp_sessions_recent ON acp_sessions (owner, updated_at, id);
    CREATE TABLE acp_session_events (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        turn INTEGER,
        origin TEXT NOT NULL,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (session, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE blobs (
        hash TEXT PRIMARY KEY,
        text TEXT NOT NULL
    ) STRICT;
    CREATE TABLE blob_uses (
        session INTEGER NOT NULL,
        hash TEXT NOT NULL,
        PRIMARY KEY (session, hash)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX blob_uses_by_hash ON blob_uses (hash);
    CREATE TABLE rules (
        number INTEGER PRIMARY KEY,
        workspace ANY NOT NULL,
        tool TEXT NOT NULL,
        subject TEXT NOT NULL,
        allow INTEGER NOT NULL,
        UNIQUE (workspace, tool, subject)
    ) STRICT;
    CREATE TABLE deleted (
        id TEXT PRIMARY KEY,
        key INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX deleted_unswept ON deleted (key) WHERE key IS NOT NULL;",
    "ALTER TABLE acp_sessions ADD COLUMN parent TEXT;
    ALTER TABLE acp_sessions ADD COLUMN source TEXT NOT NULL DEFAULT 'acp';",
    // Remembered answers are stored in a file that people can read and change.
    "DROP TABLE rules;",
    // Checksums. Older rows have none; up to `unchecked_seq` that is no sign of damage. A running process of
    // an older version does not know them, so it must not continue. An import or a fork that is being
    // written has no row among the sessions yet.
    "ALTER TABLE acp_session_events ADD COLUMN skipped INTEGER;
    ALTER TABLE acp_session_events ADD COLUMN checksum INTEGER;
    ALTER TABLE acp_sessions ADD COLUMN unchecked_seq INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE acp_sessions ADD COLUMN row_check INTEGER;
    ALTER TABLE acp_sessions ADD COLUMN state_check INTEGER;
    ALTER TABLE acp_sessions ADD COLUMN written_seq INTEGER NOT NULL DEFAULT 0;
    UPDATE acp_sessions SET unchecked_seq = last_seq, written_seq = last_seq;
    CREATE TABLE unfinished (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, holder TEXT NOT NULL) STRICT;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO meta (name, value) VALUES ('lineage', lower(hex(randomblob(16))));
    CREATE TRIGGER acp_sessions_made BEFORE INSERT ON acp_sessions WHEN new.state_check IS NULL
    BEGIN SELECT RAISE(ABORT, 'a newer version of ropewalk has upgraded the store; restart this one'); END;
    CREATE TRIGGER acp_sessions_appended BEFORE UPDATE OF epoch, last_seq ON acp_sessions
    WHEN new.state_check IS old.state_check AND (new.epoch <> old.epoch OR new.last_seq <> old.last_seq)
    BEGIN SELECT RAISE(ABORT, 'a newer version of ropewalk has upgraded the store; restart this one'); END;
    CREATE TRIGGER acp_sessions_described BEFORE UPDATE OF title, cwd ON acp_sessions
    WHEN new.row_check IS old.row_check AND (new.title IS NOT old.title OR new.cwd IS NOT old.cwd)
    BEGIN SELECT RAISE(ABORT, 'a newer version of ropewalk has upgraded the store; restart this one'); END;",
];

pub(super) const LAYOUT: usize = STEPS.len();
/// The first layout whose store has a lineage.
pub(super) const LINEAGE_FROM: usize = 4;

/// Opens the file for the writer. `make`: a missing file is created.
pub(super) fn open_for_writing(path: &Path, make: bool) -> Result<Connection, StoreFault> {
    let failed = |error| store_condition::of_sqlite(path, &error);
    if make {
        make_file(path)?;
    } else if !path.try_exists().map_err(|error| store_condition::of_io(path, &error))? {
        return Err(store_condition::gone(path));
    }
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    // SQLite opens a file that cannot be written for reading instead, and does not say so.
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
        return Err(store_condition::read_only(path));
    }
    patiently(|| set_up(&connection)).map_err(failed)?;
    let found = layout_of(&connection).map_err(failed)?;
    if found > LAYOUT {
        return Err(store_condition::newer(path, found, LAYOUT));
    }
    if found < LAYOUT {
        if found > 0 {
            copy_before_upgrade(&connection, path, found)
                .map_err(|cause| store_condition::not_copied(path, cause))?;
        }
        migrate(&mut connection).map_err(failed)?;
    }
    if let Err(error) = lineage::sign(&connection) {
        // Nothing is appended with it, and the next who opens the file tries again.
        tracing::warn!(%error, "the lineage of the session store has no checksum yet");
    }
    Ok(connection)
}

/// Repairs a file after failed writes: everything in the write-ahead log goes into the database, synced, and
/// the log starts again. Otherwise a part of the log that never reached the disk, but can still be read from
/// memory, would make everything after it useless after a power cut.
pub(super) fn renew(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy != 0 {
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            Some("the log cannot be written back while others use it".into()),
        ));
    }
    warm(connection)
}

/// Data of this version in a file of a later version could mislead the newer program.
pub(super) fn refuse_newer(path: &Path, found: usize) -> Result<(), String> {
    if found <= LAYOUT {
        return Ok(());
    }
    Err(format!(
        "{}: the file has layout {found}, written by a newer version; this version supports layouts up to {LAYOUT}",
        path.display()
    ))
}

/// Why a file cannot be used, and what to do where it is damaged.
pub(super) fn say_damage(path: &Path, error: &rusqlite::Error) -> String {
    let damaged =
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
    let next = "; the file is damaged: `ropewalk sessions salvage` recovers what is readable, `ropewalk restore FILE` restores a backup";
    format!("{}: {error}{}", path.display(), if damaged { next } else { "" })
}

/// Where the copy of a file of an older layout is.
fn copy_path(path: &Path, layout: usize) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".layout-{layout}"));
    path.with_file_name(name)
}

/// Keeps a copy of the file beside it before it is changed. A copy of an earlier attempt is replaced.
fn copy_before_upgrade(connection: &Connection, path: &Path, layout: usize) -> Result<(), String> {
    let copy = copy_path(path, layout);
    let failed =
        |cause: String| format!("could not copy it to {} before the upgrade: {cause}", copy.display());
    database_copy::copy_to(connection, &copy).map_err(failed)?;
    let copy = copy.display();
    tracing::warn!(%copy, layout, "the session store is upgraded to layout {LAYOUT}; the copy has it as it was");
    Ok(())
}

/// Tries again while another process makes the same file: to change the journal's mode needs the file
/// alone, and SQLite does not wait for that.
fn patiently<T>(mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && began.elapsed() < MAKING_MAX =>
            {
                std::thread::sleep(MAKING_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Writes without changing anything. The first write into a fresh log syncs the log's header, which
/// takes as long as a sync does.
pub(super) fn warm(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!("PRAGMA user_version = {LAYOUT}"))
}

/// Opens a file that the writer has opened before.
pub(super) fn open_for_reading(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(connection)
}

/// Creates a missing file, completely or not at all. The transcript is private: nobody else may read the
/// file or list its directory. SQLite gives the write-ahead log the same mode.
fn make_file(path: &Path) -> Result<(), StoreFault> {
    let of_io = |error| store_condition::of_io(path, &error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_private_folder(folder).map_err(of_io)?;
    // A link counts as a file, wherever it leads.
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let folder = lock_for_making(folder).map_err(of_io)?;
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    set_aside_logs(path).map_err(of_io)?;
    // One maker at a time, so what a killed one left has no owner.
    let unfinished = store_condition::with_suffix(path, ".new");
    write_empty(&unfinished)?;
    rename_to_new(&unfinished, path).and_then(|()| folder.sync_all()).map_err(of_io)
}

/// Writes a store without sessions, over what has the name.
pub(super) fn write_empty(path: &Path) -> Result<(), StoreFault> {
    let of_io = |error| store_condition::of_io(path, &error);
    let of_sqlite = |error| store_condition::of_sqlite(path, &error);
    let mut made = Connection::open_in_memory().map_err(of_sqlite)?;
    migrate(&mut made).map_err(of_sqlite)?;
    database_copy::remove(path).and_then(|()| database_copy::make_private(path)).map_err(of_io)?;
    database_copy::fill(&made, path).map_err(of_sqlite)?;
    database_copy::sync(path).map_err(of_io)
}

/// A file that another program put there meanwhile, without the lock, stays.
fn rename_to_new(file: &Path, name: &Path) -> io::Result<()> {
    match renameat_with(CWD, file, CWD, name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => fs::remove_file(file),
        // Not every file system can do that.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(file, name),
        Err(error) => Err(error.into()),
    }
}

fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut directory = DirBuilder::new();
    directory.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
    directory.create(folder)
}

/// The folder itself is locked: a lock file would stay behind.
pub(super) fn lock_for_making(folder: &Path) -> io::Result<File> {
    let locked = File::open(folder)?;
    let began = Instant::now();
    loop {
        match locked.try_lock() {
            Ok(()) => return Ok(locked),
            Err(TryLockError::WouldBlock) if began.elapsed() < MAKING_MAX => {
                std::thread::sleep(MAKING_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Write-ahead logs of a database that does not exist any more: SQLite would read them into the new one.
/// They may contain the last writes, so they are kept under another name.
fn set_aside_logs(path: &Path) -> io::Result<()> {
    for end in ["-wal", "-journal"] {
        let log = store_condition::with_suffix(path, end);
        let mut aside = (1..).map(|number| store_condition::with_suffix(&log, &format!(".left-{number}")));
        if let (true, Some(aside)) = (log.exists(), aside.find(|aside| aside.symlink_metadata().is_err())) {
            fs::rename(&log, &aside)?;
            tracing::warn!(aside = %aside.display(), "the log of a session store that is gone was moved aside");
        }
    }
    match fs::remove_file(store_condition::with_suffix(path, "-shm")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    if store_condition::is_empty(path) {
        return Err(empty());
    }
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // A page that makes no sense is refused before it is used.
    connection.execute_batch("PRAGMA cell_size_check = ON")?;
    Ok(connection)
}

/// SQLite would take it for a new database, and remove the write-ahead log.
fn empty() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB),
        Some(store_condition::EMPTY.to_owned()),
    )
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = NORMAL;
         PRAGMA fullfsync = 1;
         PRAGMA checkpoint_fullfsync = 1;
         PRAGMA secure_delete = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {LOG_BYTES_KEPT};
         PRAGMA cache_size = -{WRITER_CACHE_KIB};"
    ))
}

pub(super) fn layout_of(connection: &Connection) -> rusqlite::Result<usize> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done the work while this one waited for the lock.
    let found = layout_of(&transaction)?;
    for step in STEPS.iter().skip(found) {
        transaction.execute_batch(step)?;
    }
    if found < LAYOUT {
        transaction.pragma_update(None, "user_version", i64::try_from(LAYOUT).unwrap_or(i64::MAX))?;
    }
    transaction.commit()
}
