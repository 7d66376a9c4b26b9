//! The SQL database in a local SQLite file. One thread owns the connection and commits everything that is queued together.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::{Db, DbError, DbResult, Row, SqlValue, Statement, StatementResult};

/// Pieces of work that may wait.
const WAITING_MAX: usize = 1024;
/// Pieces of work that are committed together.
const GROUP_MAX: usize = 128;
const TOPICS_MAX: usize = 4096;
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const STATEMENTS_MAX: usize = 128;

/// A database in one file, for one process.
pub struct SqliteDb {
    work: mpsc::Sender<SqliteWork>,
    topics: broadcast::Sender<Arc<str>>,
}

struct SqliteWork {
    statements: Vec<Statement>,
    topics: Vec<String>,
    done: oneshot::Sender<Result<Vec<StatementResult>, DbError>>,
}

impl SqliteDb {
    /// Opens the file, or makes it.
    pub fn open(file: &Path) -> Result<Self, DbError> {
        let connection = Connection::open(file).map_err(unavailable)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(unavailable)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
            .map_err(unavailable)?;
        Self::start(connection, TransactionBehavior::Immediate)
    }

    /// Opens an existing file beside its writer, and changes nothing.
    pub fn open_to_read(file: &Path) -> Result<Self, DbError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags).map_err(unavailable)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(unavailable)?;
        Self::start(connection, TransactionBehavior::Deferred)
    }

    fn start(connection: Connection, behavior: TransactionBehavior) -> Result<Self, DbError> {
        let (work, waiting) = mpsc::channel(WAITING_MAX);
        let topics = broadcast::Sender::new(TOPICS_MAX);
        let told = topics.clone();
        std::thread::Builder::new()
            .name("hub-db".into())
            .spawn(move || run(connection, behavior, waiting, &told))
            .map_err(|error| DbError::Unavailable { reason: error.to_string() })?;
        Ok(Self { work, topics })
    }
}

impl Db for SqliteDb {
    fn run(&self, statements: Vec<Statement>, topics: Vec<String>) -> DbResult<'_, Vec<StatementResult>> {
        Box::pin(async move {
            statements.iter().try_for_each(Statement::check)?;
            let gone = || DbError::Unavailable { reason: "its thread has ended".into() };
            let (done, answer) = oneshot::channel();
            self.work.send(SqliteWork { statements, topics, done }).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        })
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.topics.subscribe()
    }
}

/// Until the queue is closed.
fn run(
    mut connection: Connection,
    behavior: TransactionBehavior,
    mut waiting: mpsc::Receiver<SqliteWork>,
    topics: &broadcast::Sender<Arc<str>>,
) {
    let mut group = Vec::new();
    while let Some(first) = waiting.blocking_recv() {
        group.push(first);
        while group.len() < GROUP_MAX
            && let Ok(next) = waiting.try_recv()
        {
            group.push(next);
        }
        commit(&mut connection, behavior, std::mem::take(&mut group), topics);
    }
}

/// Each work item has its own savepoint, so that a refused one does not affect the others.
fn commit(
    connection: &mut Connection,
    behavior: TransactionBehavior,
    group: Vec<SqliteWork>,
    topics: &broadcast::Sender<Arc<str>>,
) {
    let mut results = Vec::with_capacity(group.len());
    let committed = (|| {
        // A transaction that begins by reading and then writes cannot wait for another process: it fails at once.
        let mut transaction = connection.transaction_with_behavior(behavior)?;
        for work in &group {
            let savepoint = transaction.savepoint()?;
            let result = work.statements.iter().enumerate().map(|(at, one)| execute(&savepoint, at, one));
            let result: Result<Vec<StatementResult>, DbError> = result.collect();
            if result.is_ok() {
                savepoint.commit()?;
            } else {
                // Dropped, a savepoint takes back what was done in it.
                drop(savepoint);
            }
            results.push(result);
        }
        transaction.commit()
    })();
    for (at, work) in group.into_iter().enumerate() {
        let result = match (&committed, results.get_mut(at)) {
            (Ok(()), Some(result)) => std::mem::replace(result, Ok(Vec::new())),
            (Err(error), _) => Err(DbError::Unavailable { reason: error.to_string() }),
            (Ok(()), None) => {
                Err(DbError::Unavailable { reason: "it was not run, because its group failed".into() })
            }
        };
        if result.is_ok() {
            for topic in work.topics {
                // There may be no listener.
                drop(topics.send(topic.into()));
            }
        }
        // The caller may be gone.
        drop(work.done.send(result));
    }
}

fn execute(connection: &Connection, at: usize, statement: &Statement) -> Result<StatementResult, DbError> {
    let sql = statement.sql.replace("SERIAL_KEY", "INTEGER PRIMARY KEY AUTOINCREMENT");
    let sql = sql.replace("NOW_MS", "CAST(unixepoch('subsec') * 1000 AS INTEGER)");
    let mut prepared = connection.prepare_cached(&sql).map_err(refused)?;
    let columns = prepared.column_count();
    if prepared.parameter_count() != statement.values.len() {
        let (given, wanted) = (statement.values.len(), prepared.parameter_count());
        return Err(DbError::Failed { reason: format!("{given} values for the {wanted} of {sql}") });
    }
    // `$1` is a name here, and names are numbered as they are met.
    for (number, value) in statement.values.iter().enumerate() {
        let index = prepared.parameter_index(&format!("${}", number + 1)).map_err(refused)?;
        let index =
            index.ok_or_else(|| DbError::Failed { reason: format!("no ${} in {sql}", number + 1) })?;
        prepared.raw_bind_parameter(index, value).map_err(refused)?;
    }
    let before = connection.total_changes();
    let mut found = StatementResult::default();
    let mut rows = prepared.raw_query();
    while let Some(row) = rows.next().map_err(refused)? {
        let values = (0..columns).map(|column| row.get_ref(column).map(owned));
        found.rows.push(Row(values.collect::<Result<_, _>>().map_err(refused)?));
    }
    drop(rows);
    // The rows that the statement itself changed, without those that foreign keys took along.
    found.changed = if connection.total_changes() == before { 0 } else { connection.changes() };
    match statement.must_change {
        Some(rows) if rows != found.changed => Err(DbError::Refused { statement: at }),
        _ => Ok(found),
    }
}

fn owned(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Int(number),
        // None is ever written.
        ValueRef::Real(number) => SqlValue::Text(number.to_string().into()),
        ValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into()),
        ValueRef::Blob(bytes) => SqlValue::Bytes(bytes.into()),
    }
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Int(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

fn unavailable(error: rusqlite::Error) -> DbError {
    DbError::Unavailable { reason: error.to_string() }
}

/// A fault of the file or its disk may pass; a wrong statement stays wrong.
fn refused(error: rusqlite::Error) -> DbError {
    if matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
        )
    ) {
        return unavailable(error);
    }
    DbError::Failed { reason: error.to_string() }
}
