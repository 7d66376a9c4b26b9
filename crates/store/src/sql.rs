//! One SQL database with two engines: a local file (SQLite), or PostgreSQL for several machines.
//!
//! All statements are written once, in the SQL that both engines understand; the engines differ in the cost of a
//! transaction and in which other processes see it. No transaction stays open between calls: work is a list of statements
//! that is done completely or not at all. A statement may say how many rows it must change; that is how a stale owner is
//! fenced off and a repeated write is not stored twice.
//!
//! Changes are announced by **topic**. A commit names the topics that it concerns, and every process on the same database
//! is woken. A wake-up may be lost, so a listener reads everything after its cursor when it is woken, and polls from time
//! to time.

pub mod log;
mod postgres;
mod postgres_store;
mod session_store;
mod sqlite;

use std::borrow::Cow;
use std::sync::Arc;

use engine::BoxFuture;
use tokio::sync::broadcast;

pub use postgres::{PostgresAddress, PostgresDb};
pub use postgres_store::PostgresStore;
pub use session_store::SqlStore;
pub use sqlite::SqliteDb;

/// The topic that means "look everywhere": it is sent when the real topics are not known.
pub const EVERYWHERE: &str = "*";

pub type DbResult<'a, T> = BoxFuture<'a, Result<T, DbError>>;

pub trait Db: Send + Sync + 'static {
    /// Does all statements or none, in the given order, and returns the result of each. When this returns,
    /// the work is durable. The topics are sent to every listener of the database, in this process and in
    /// others.
    ///
    /// Work that waits at the same time is done in any order. Read-only work sees one snapshot. Work that
    /// changes something sees, in each statement, what is committed by then, so a decision belongs into the
    /// `WHERE` of the statement that it is about.
    fn run(&self, work: Vec<Statement>, topics: Vec<String>) -> DbResult<'_, Vec<StatementResult>>;

    /// Subscribes to topics. A slow listener misses some (`Lagged`) and then has to look everywhere; so it
    /// does on [`EVERYWHERE`], which means that wake-ups were lost or too many.
    fn subscribe(&self) -> broadcast::Receiver<Arc<str>>;
}

/// One statement, with `$1`, `$2`, ... for its values.
///
/// The SQL must be understood by both engines. When creating tables, use `BIGINT`, `TEXT`, `BYTEA`, and
/// `SERIAL_KEY` for a column that numbers its rows. Elsewhere `NOW_MS` is the database's clock in
/// milliseconds, the same for all processes. A value that may be null must be in a place where its type can
/// be inferred: not `$1 IS NULL` but `CAST($1 AS TEXT) IS NULL`. Texts compare byte by byte and contain no
/// NUL.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub sql: Cow<'static, str>,
    pub values: Vec<SqlValue>,
    /// If it changes another number of rows than this, nothing at all is done.
    pub must_change: Option<u64>,
}

impl Statement {
    pub fn new(sql: impl Into<Cow<'static, str>>, values: impl Into<Vec<SqlValue>>) -> Self {
        Self { sql: sql.into(), values: values.into(), must_change: None }
    }

    pub fn must_change(self, rows: u64) -> Self {
        Self { must_change: Some(rows), ..self }
    }

    /// One engine cannot keep a NUL in a text, so none does.
    fn check(&self) -> Result<(), DbError> {
        match self
            .values
            .iter()
            .position(|value| matches!(value, SqlValue::Text(text) if text.contains('\0')))
        {
            Some(at) => {
                Err(DbError::Failed { reason: format!("${} of {} has a NUL in it", at + 1, self.sql) })
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    Null,
    Int(i64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for SqlValue {
    /// No count and no position of ours comes near the end.
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for SqlValue {
    fn from(yes: bool) -> Self {
        Self::Int(i64::from(yes))
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Arc<str>> for SqlValue {
    fn from(text: Arc<str>) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for SqlValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The number of rows that a statement changed, and the rows that it returned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatementResult {
    pub changed: u64,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row(pub Vec<SqlValue>);

impl Row {
    pub fn int(&self, column: usize) -> Result<i64, DbError> {
        match self.0.get(column) {
            Some(SqlValue::Int(number)) => Ok(*number),
            _ => Err(DbError::unexpected(column, "a number")),
        }
    }

    /// A position or a count, which is never negative.
    pub fn count(&self, column: usize) -> Result<u64, DbError> {
        u64::try_from(self.int(column)?).map_err(|_| DbError::unexpected(column, "a count"))
    }

    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>, DbError> {
        match self.0.get(column) {
            Some(SqlValue::Null) => Ok(None),
            _ => self.int(column).map(Some),
        }
    }

    pub fn text(&self, column: usize) -> Result<Arc<str>, DbError> {
        match self.0.get(column) {
            Some(SqlValue::Text(text)) => Ok(Arc::clone(text)),
            _ => Err(DbError::unexpected(column, "a text")),
        }
    }

    pub fn maybe_text(&self, column: usize) -> Result<Option<Arc<str>>, DbError> {
        match self.0.get(column) {
            Some(SqlValue::Null) => Ok(None),
            _ => self.text(column).map(Some),
        }
    }

    pub fn bytes(&self, column: usize) -> Result<Arc<[u8]>, DbError> {
        match self.0.get(column) {
            Some(SqlValue::Bytes(bytes)) => Ok(Arc::clone(bytes)),
            _ => Err(DbError::unexpected(column, "bytes")),
        }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum DbError {
    /// It may be there again later; nothing was done, or it is not known whether something was.
    #[error("the database cannot be used: {reason}")]
    Unavailable { reason: String },
    /// Nothing was done: a statement did not change what it must.
    #[error("the statement {statement} changed an unexpected number of rows")]
    Refused { statement: usize },
    /// Nothing was done: the database does not take this.
    #[error("the database refused: {reason}")]
    Failed { reason: String },
}

impl DbError {
    fn unexpected(column: usize, what: &str) -> Self {
        Self::Failed { reason: format!("column {column} does not contain {what}") }
    }
}

/// Brings a database to the layout that these steps lead to. Each is done once, in order; several processes may
/// try at the same time. `name` keeps the counts of different layouts in one database apart.
pub async fn migrate(db: &dyn Db, name: &'static str, steps: &[&'static str]) -> Result<(), DbError> {
    let table = "CREATE TABLE IF NOT EXISTS layouts (name TEXT PRIMARY KEY, version BIGINT NOT NULL)";
    let begin = "INSERT INTO layouts (name, version) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING";
    db.run(vec![Statement::new(table, []), Statement::new(begin, [name.into()])], Vec::new()).await?;
    loop {
        let found = db
            .run(
                vec![Statement::new("SELECT version FROM layouts WHERE name = $1", [name.into()])],
                Vec::new(),
            )
            .await?;
        let version = found.first().and_then(|found| found.rows.first()).map(|row| row.count(0));
        let version = version.transpose()?.unwrap_or_default();
        let Some(step) = usize::try_from(version).ok().and_then(|version| steps.get(version)) else {
            if version > steps.len() as u64 {
                let reason = format!(
                    "its tables of {name} have version {version}, but this ropewalk supports versions up to {}: a newer one has used the database. Use that version, or give this one another database",
                    steps.len()
                );
                return Err(DbError::Failed { reason });
            }
            return Ok(());
        };
        let next = Statement::new(
            "UPDATE layouts SET version = version + 1 WHERE name = $1 AND version = $2",
            [name.into(), version.into()],
        );
        let mut work = vec![next.must_change(1)];
        work.extend(
            step.split(';').map(str::trim).filter(|one| !one.is_empty()).map(|one| Statement::new(one, [])),
        );
        match db.run(work, Vec::new()).await {
            // Another process was faster.
            Ok(_) | Err(DbError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}
