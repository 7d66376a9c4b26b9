//! One database connection and the groups of work that it commits.
//!
//! A group is sent in one pipeline, without waiting for answers: a savepoint and the statements of each work item. If an
//! item is refused, the items before it stand, the refused one is rolled back, and the items after it are sent once
//! more. A refusal costs its group one more round trip and nothing else.
//!
//! **Invariant:** a work item is done if and only if its savepoint was kept and the commit was answered.

use std::collections::HashMap;
use std::pin::pin;
use std::task::Poll;

use engine::BoxFuture;
use futures_util::TryStreamExt;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement as Prepared};

use super::address::cause;
use super::statement_kind::{StatementKind, dialect};
use crate::sql::{DbError, Row, SqlValue, Statement, StatementResult};

/// Statements that a connection keeps prepared. Past that, all are dropped.
const PREPARED_MAX: usize = 512;
/// Who migrates a database holds this lock of its.
const MIGRATION_LOCK: i64 = 0x726f_7065;

pub(super) type WorkResult = Result<Vec<StatementResult>, DbError>;

/// Work that is being done. Without a result after a commit, it is tried again by itself.
pub(super) struct WorkItem {
    pub(super) statements: Vec<Statement>,
    prepared: Vec<Prepared>,
    pub(super) result: Option<WorkResult>,
}

impl WorkItem {
    pub(super) fn new(statements: Vec<Statement>) -> Self {
        Self { statements, prepared: Vec::new(), result: None }
    }
}

/// The connection cannot be used any more; whether the work under way was done is not known.
pub(super) struct ConnectionLost(pub(super) String);

/// Why a statement was not done.
enum StatementError {
    Refused {
        statement: usize,
    },
    Failed(String),
    /// A conflict: somebody else was faster, or a table changed. The statement itself is fine.
    Again,
    TooLong,
    Broken(String),
}

type StatementFuture<'a> = BoxFuture<'a, Result<StatementResult, StatementError>>;

pub(super) struct PgConnection {
    client: Client,
    prepared: HashMap<String, Prepared>,
}

impl PgConnection {
    pub(super) fn new(client: Client) -> Self {
        Self { client, prepared: HashMap::new() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Does what is not done yet of a group, as one transaction.
    pub(super) async fn write(&mut self, group: &mut [WorkItem]) -> Result<(), ConnectionLost> {
        self.prepare_all(group).await?;
        let mut open: Vec<&mut WorkItem> = group.iter_mut().filter(|piece| piece.result.is_none()).collect();
        let mut kept: Vec<Option<Vec<StatementResult>>> = Vec::with_capacity(open.len());
        let mut first = Some("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
        while kept.len() < open.len() {
            let from = kept.len();
            let (found, error) = self.send(first.take(), &open[from..], from).await?;
            kept.extend(found.into_iter().map(Some));
            let Some(error) = error else { break };
            let at = kept.len();
            self.command(&format!("ROLLBACK TO p{at}")).await?;
            open[at].result = self.result_after(error)?;
            kept.push(None);
        }
        if !open.is_empty() {
            self.command("COMMIT").await?;
        }
        for (piece, found) in open.into_iter().zip(kept) {
            if let Some(found) = found {
                piece.result = Some(Ok(found));
            }
        }
        Ok(())
    }

    /// Reads. All statements of one item see the same snapshot.
    pub(super) async fn read(&mut self, group: &mut [WorkItem]) -> Result<(), ConnectionLost> {
        self.prepare_all(group).await?;
        let client = &self.client;
        let mut answers: Vec<StatementFuture<'_>> = Vec::new();
        for piece in group.iter().filter(|piece| piece.result.is_none()) {
            let several = piece.statements.len() != 1;
            if several {
                answers
                    .push(simple_command(client, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".into()));
            }
            answers.extend(queries_of(client, piece));
            if several {
                answers.push(simple_command(client, "COMMIT".into()));
            }
        }
        let mut answered = pipelined(answers).await.into_iter();
        for piece in group.iter_mut().filter(|piece| piece.result.is_none()) {
            let several = usize::from(piece.statements.len() != 1);
            let answers = answered.by_ref().take(piece.statements.len() + 2 * several);
            // All answers are taken, also after one that failed.
            let answers: Vec<_> = answers.collect();
            let found: Result<Vec<StatementResult>, StatementError> = answers.into_iter().collect();
            piece.result = match found {
                Ok(mut found) => {
                    if several == 1 {
                        found.pop();
                        found.remove(0);
                    }
                    Some(Ok(found))
                }
                Err(error) => result_after(&mut self.prepared, error)?,
            };
        }
        Ok(())
    }

    /// Makes or changes tables: one statement after the other, because each may need the one before, and one
    /// process after the other.
    pub(super) async fn migrate(&mut self, piece: &mut WorkItem) -> Result<(), ConnectionLost> {
        // Prepared statements may be about tables that are about to change.
        self.prepared.clear();
        self.command("BEGIN").await?;
        self.command("SET LOCAL statement_timeout = '10min'").await?;
        self.command("SET LOCAL lock_timeout = '5min'").await?;
        self.command(&format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).await?;
        let mut found = Vec::new();
        for (at, statement) in piece.statements.iter().enumerate() {
            let done = match prepare(&self.client, statement).await {
                Ok(prepared) => execute(&self.client, &prepared, at, statement).await,
                Err(error) => Err(error),
            };
            match done {
                Ok(one) => found.push(one),
                Err(error) => {
                    self.command("ROLLBACK").await?;
                    piece.result = self.result_after(error)?;
                    return Ok(());
                }
            }
        }
        self.command("COMMIT").await?;
        piece.result = Some(Ok(found));
        Ok(())
    }

    /// Sends pieces, the first of which has this number. Answers with what those before the first trouble found.
    async fn send(
        &self,
        before: Option<&str>,
        pieces: &[&mut WorkItem],
        number: usize,
    ) -> Result<(Vec<Vec<StatementResult>>, Option<StatementError>), ConnectionLost> {
        let client = &self.client;
        let mut answers: Vec<StatementFuture<'_>> = Vec::new();
        answers.extend(before.map(|command| simple_command(client, command.to_owned())));
        for (number, piece) in (number..).zip(pieces) {
            answers.push(simple_command(client, format!("SAVEPOINT p{number}")));
            answers.extend(queries_of(client, piece));
        }
        let mut answered = pipelined(answers).await.into_iter();
        if before.is_some()
            && let Some(Err(error)) = answered.next()
        {
            return Err(error.into_lost());
        }
        let mut results = Vec::new();
        for piece in pieces {
            let answers: Vec<_> = answered.by_ref().take(1 + piece.statements.len()).collect();
            match answers.into_iter().collect::<Result<Vec<StatementResult>, StatementError>>() {
                Ok(mut found) => {
                    found.remove(0);
                    results.push(found);
                }
                Err(error) => return Ok((results, Some(error))),
            }
        }
        Ok((results, None))
    }

    async fn command(&self, command: &str) -> Result<(), ConnectionLost> {
        self.client.batch_execute(command).await.map_err(|error| ConnectionLost(cause(&error)))
    }

    /// A piece that cannot be prepared is refused before anything is begun.
    async fn prepare_all(&mut self, group: &mut [WorkItem]) -> Result<(), ConnectionLost> {
        for piece in group.iter_mut().filter(|piece| piece.result.is_none()) {
            piece.prepared.clear();
            for statement in &piece.statements {
                match self.prepared_for(statement).await {
                    Ok(prepared) => piece.prepared.push(prepared),
                    Err(error) => {
                        piece.result = self.result_after(error)?.or_else(|| Some(Err(conflict())));
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    async fn prepared_for(&mut self, statement: &Statement) -> Result<Prepared, StatementError> {
        if let Some(prepared) = self.prepared.get(&*statement.sql)
            && fits(prepared, statement).is_ok()
        {
            return Ok(prepared.clone());
        }
        let prepared = prepare(&self.client, statement).await?;
        if self.prepared.len() >= PREPARED_MAX {
            self.prepared.clear();
        }
        self.prepared.insert(statement.sql.clone().into_owned(), prepared.clone());
        Ok(prepared)
    }

    fn result_after(&mut self, error: StatementError) -> Result<Option<WorkResult>, ConnectionLost> {
        result_after(&mut self.prepared, error)
    }
}

/// The result for the caller; `None` if the work is to be tried again.
fn result_after(
    prepared: &mut HashMap<String, Prepared>,
    error: StatementError,
) -> Result<Option<WorkResult>, ConnectionLost> {
    match error {
        StatementError::Refused { statement } => Ok(Some(Err(DbError::Refused { statement }))),
        StatementError::Failed(reason) => Ok(Some(Err(DbError::Failed { reason }))),
        StatementError::Again => {
            prepared.clear();
            Ok(None)
        }
        StatementError::TooLong => Ok(Some(Err(DbError::Unavailable {
            reason: "a statement took too long and was cancelled".into(),
        }))),
        StatementError::Broken(reason) => Err(ConnectionLost(reason)),
    }
}

pub(super) fn conflict() -> DbError {
    DbError::Unavailable { reason: "the rows are locked by others; try again".into() }
}

impl StatementError {
    fn of(error: &Error) -> Self {
        let reason = cause(error);
        let Some(said) = error.as_db_error() else { return Self::Broken(reason) };
        let code = said.code();
        let again = [
            &SqlState::T_R_DEADLOCK_DETECTED,
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::LOCK_NOT_AVAILABLE,
            &SqlState::INVALID_SQL_STATEMENT_NAME,
        ];
        // The last is how the server says that a prepared statement is about a table as it was.
        if again.contains(&code) || said.routine() == Some("RevalidateCachedQuery") {
            return Self::Again;
        }
        if *code == SqlState::QUERY_CANCELED {
            return Self::TooLong;
        }
        match code.code().get(..2) {
            // No connection, a read-only transaction, no space, shutdown, a failing disk, or a bug of the
            // server.
            Some("08" | "25" | "53" | "57" | "58" | "XX") => Self::Broken(reason),
            _ => Self::Failed(reason),
        }
    }

    fn into_lost(self) -> ConnectionLost {
        match self {
            Self::Failed(reason) | Self::Broken(reason) => ConnectionLost(reason),
            Self::Refused { .. } | Self::Again | Self::TooLong => {
                ConnectionLost("a transaction cannot be begun".into())
            }
        }
    }
}

/// Sends everything in the given order, and then waits for the answers, which come in the same order.
async fn pipelined(mut waiting: Vec<StatementFuture<'_>>) -> Vec<Result<StatementResult, StatementError>> {
    let mut early: Vec<Option<Result<StatementResult, StatementError>>> = Vec::with_capacity(waiting.len());
    std::future::poll_fn(|context| {
        // A request leaves when it is asked about for the first time.
        early.extend(waiting.iter_mut().map(|answer| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }));
        Poll::Ready(())
    })
    .await;
    let mut answers = Vec::with_capacity(waiting.len());
    for (early, waiting) in early.into_iter().zip(waiting) {
        answers.push(match early {
            Some(answer) => answer,
            None => waiting.await,
        });
    }
    answers
}

fn simple_command(client: &Client, command: String) -> StatementFuture<'_> {
    Box::pin(async move {
        client.batch_execute(&command).await.map_err(|error| StatementError::of(&error))?;
        Ok(StatementResult::default())
    })
}

fn queries_of<'a>(client: &'a Client, piece: &'a WorkItem) -> impl Iterator<Item = StatementFuture<'a>> {
    let both = piece.prepared.iter().zip(&piece.statements).enumerate();
    both.map(|(at, (prepared, statement))| -> StatementFuture<'a> {
        Box::pin(execute(client, prepared, at, statement))
    })
}

async fn prepare(client: &Client, statement: &Statement) -> Result<Prepared, StatementError> {
    let types: Vec<Type> = statement.values.iter().map(SqlValue::wire_type).collect();
    let sql = dialect(&statement.sql);
    let prepared = client.prepare_typed(&sql, &types).await.map_err(|error| StatementError::of(&error))?;
    fits(&prepared, statement).map_err(StatementError::Failed)?;
    Ok(prepared)
}

fn fits(prepared: &Prepared, statement: &Statement) -> Result<(), String> {
    let (wanted, given) = (prepared.params(), &statement.values);
    if wanted.len() != given.len() {
        return Err(format!("{} values for the {} of {}", given.len(), wanted.len(), statement.sql));
    }
    match given.iter().zip(wanted).position(|(value, kind)| !value.fits(kind)) {
        Some(at) => Err(format!("${} of {} is of another type", at + 1, statement.sql)),
        None => Ok(()),
    }
}

async fn execute(
    client: &Client,
    prepared: &Prepared,
    at: usize,
    statement: &Statement,
) -> Result<StatementResult, StatementError> {
    let broken = |error: Error| StatementError::of(&error);
    let mut rows = pin!(client.query_raw(prepared, &statement.values).await.map_err(broken)?);
    let mut found = StatementResult::default();
    let mut unread = None;
    while let Some(row) = rows.try_next().await.map_err(broken)? {
        let values = (0..row.len()).map(|column| row.try_get(column));
        match values.collect::<Result<Vec<SqlValue>, Error>>() {
            Ok(values) => found.rows.push(Row(values)),
            Err(error) => unread = Some(cause(&error)),
        }
    }
    if let Some(reason) = unread {
        return Err(StatementError::Failed(reason));
    }
    if StatementKind::of(&statement.sql) == StatementKind::Write {
        found.changed = rows.rows_affected().unwrap_or_default();
    }
    match statement.must_change {
        Some(rows) if rows != found.changed => Err(StatementError::Refused { statement: at }),
        _ => Ok(found),
    }
}
