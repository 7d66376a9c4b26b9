//! One connection and the groups of work that it commits.
//!
//! A group goes to the server in one breath, without waiting for answers: a savepoint and the statements of each
//! piece. If one is refused, what came before it stands, it is taken back, and what comes after is sent once
//! more: a refusal costs its group one more round trip and nothing else.
//!
//! **Invariant:** a piece is done if and only if its savepoint was kept and the commit was answered.

use std::collections::HashMap;
use std::pin::pin;
use std::task::Poll;

use engine::BoxFuture;
use futures_util::TryStreamExt;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement as Prepared};

use super::address::cause;
use super::kind::{Kind, dialect};
use crate::sql::{DbError, Found, Row, Statement, Value};

/// Statements that a connection keeps prepared. Past that it begins anew.
const PREPARED_MAX: usize = 512;
/// Who migrates a database holds this lock of its.
const MIGRATION_LOCK: i64 = 0x726f_7065;

pub(super) type Done = Result<Vec<Found>, DbError>;

/// Work on its way. Without a result after a commit, it is to be tried again by itself.
pub(super) struct Piece {
    pub(super) statements: Vec<Statement>,
    prepared: Vec<Prepared>,
    pub(super) result: Option<Done>,
}

impl Piece {
    pub(super) fn new(statements: Vec<Statement>) -> Self {
        Self { statements, prepared: Vec::new(), result: None }
    }
}

/// The connection is worth nothing any more; what was under way may be done or not.
pub(super) struct Broken(pub(super) String);

/// Why something was not done.
enum Trouble {
    Refused {
        statement: usize,
    },
    Failed(String),
    /// Nothing is wrong with it: somebody was in the way, or a table changed.
    Again,
    TooLong,
    Broken(String),
}

type Answer<'a> = BoxFuture<'a, Result<Found, Trouble>>;

pub(super) struct Session {
    client: Client,
    prepared: HashMap<String, Prepared>,
}

impl Session {
    pub(super) fn new(client: Client) -> Self {
        Self { client, prepared: HashMap::new() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Does what is not done yet of a group, as one transaction.
    pub(super) async fn write(&mut self, group: &mut [Piece]) -> Result<(), Broken> {
        self.prepare_all(group).await?;
        let mut open: Vec<&mut Piece> = group.iter_mut().filter(|piece| piece.result.is_none()).collect();
        let mut kept: Vec<Option<Vec<Found>>> = Vec::with_capacity(open.len());
        let mut first = Some("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
        while kept.len() < open.len() {
            let from = kept.len();
            let (found, trouble) = self.send(first.take(), &open[from..], from).await?;
            kept.extend(found.into_iter().map(Some));
            let Some(trouble) = trouble else { break };
            let at = kept.len();
            self.command(&format!("ROLLBACK TO p{at}")).await?;
            open[at].result = self.settled(trouble)?;
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

    /// Looks. What one piece asks is answered from one moment.
    pub(super) async fn read(&mut self, group: &mut [Piece]) -> Result<(), Broken> {
        self.prepare_all(group).await?;
        let client = &self.client;
        let mut answers: Vec<Answer<'_>> = Vec::new();
        for piece in group.iter().filter(|piece| piece.result.is_none()) {
            let several = piece.statements.len() != 1;
            if several {
                answers.push(told(client, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".into()));
            }
            answers.extend(asked(client, piece));
            if several {
                answers.push(told(client, "COMMIT".into()));
            }
        }
        let mut answered = pipelined(answers).await.into_iter();
        for piece in group.iter_mut().filter(|piece| piece.result.is_none()) {
            let several = usize::from(piece.statements.len() != 1);
            let answers = answered.by_ref().take(piece.statements.len() + 2 * several);
            // All of them are taken off, also after one that went wrong.
            let answers: Vec<_> = answers.collect();
            let found: Result<Vec<Found>, Trouble> = answers.into_iter().collect();
            piece.result = match found {
                Ok(mut found) => {
                    if several == 1 {
                        found.pop();
                        found.remove(0);
                    }
                    Some(Ok(found))
                }
                Err(trouble) => settled(&mut self.prepared, trouble)?,
            };
        }
        Ok(())
    }

    /// Makes or changes tables: one statement after the other, because each may need the one before, and one
    /// process after the other.
    pub(super) async fn migrate(&mut self, piece: &mut Piece) -> Result<(), Broken> {
        // What is prepared may be about tables that look different in a moment.
        self.prepared.clear();
        self.command("BEGIN").await?;
        self.command("SET LOCAL statement_timeout = '10min'").await?;
        self.command("SET LOCAL lock_timeout = '5min'").await?;
        self.command(&format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).await?;
        let mut found = Vec::new();
        for (at, statement) in piece.statements.iter().enumerate() {
            let done = match prepare(&self.client, statement).await {
                Ok(prepared) => execute(&self.client, &prepared, at, statement).await,
                Err(trouble) => Err(trouble),
            };
            match done {
                Ok(one) => found.push(one),
                Err(trouble) => {
                    self.command("ROLLBACK").await?;
                    piece.result = self.settled(trouble)?;
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
        pieces: &[&mut Piece],
        number: usize,
    ) -> Result<(Vec<Vec<Found>>, Option<Trouble>), Broken> {
        let client = &self.client;
        let mut answers: Vec<Answer<'_>> = Vec::new();
        answers.extend(before.map(|command| told(client, command.to_owned())));
        for (number, piece) in (number..).zip(pieces) {
            answers.push(told(client, format!("SAVEPOINT p{number}")));
            answers.extend(asked(client, piece));
        }
        let mut answered = pipelined(answers).await.into_iter();
        if before.is_some()
            && let Some(Err(trouble)) = answered.next()
        {
            return Err(trouble.broken());
        }
        let mut results = Vec::new();
        for piece in pieces {
            let answers: Vec<_> = answered.by_ref().take(1 + piece.statements.len()).collect();
            match answers.into_iter().collect::<Result<Vec<Found>, Trouble>>() {
                Ok(mut found) => {
                    found.remove(0);
                    results.push(found);
                }
                Err(trouble) => return Ok((results, Some(trouble))),
            }
        }
        Ok((results, None))
    }

    async fn command(&self, command: &str) -> Result<(), Broken> {
        self.client.batch_execute(command).await.map_err(|error| Broken(cause(&error)))
    }

    /// A piece that cannot be prepared is refused before anything is begun.
    async fn prepare_all(&mut self, group: &mut [Piece]) -> Result<(), Broken> {
        for piece in group.iter_mut().filter(|piece| piece.result.is_none()) {
            piece.prepared.clear();
            for statement in &piece.statements {
                match self.prepared_for(statement).await {
                    Ok(prepared) => piece.prepared.push(prepared),
                    Err(trouble) => {
                        piece.result = self.settled(trouble)?.or_else(|| Some(Err(in_the_way())));
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    async fn prepared_for(&mut self, statement: &Statement) -> Result<Prepared, Trouble> {
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

    fn settled(&mut self, trouble: Trouble) -> Result<Option<Done>, Broken> {
        settled(&mut self.prepared, trouble)
    }
}

/// What is answered to whom this happened; nothing if it is to be tried again.
fn settled(prepared: &mut HashMap<String, Prepared>, trouble: Trouble) -> Result<Option<Done>, Broken> {
    match trouble {
        Trouble::Refused { statement } => Ok(Some(Err(DbError::Refused { statement }))),
        Trouble::Failed(reason) => Ok(Some(Err(DbError::Failed { reason }))),
        Trouble::Again => {
            prepared.clear();
            Ok(None)
        }
        Trouble::TooLong => Ok(Some(Err(DbError::Unavailable {
            reason: "a statement took too long and was given up".into(),
        }))),
        Trouble::Broken(reason) => Err(Broken(reason)),
    }
}

pub(super) fn in_the_way() -> DbError {
    DbError::Unavailable { reason: "others hold what this needs; try again".into() }
}

impl Trouble {
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
            // No connection, a transaction that cannot write, no room, shutdown, a disk that fails, a bug of its own.
            Some("08" | "25" | "53" | "57" | "58" | "XX") => Self::Broken(reason),
            _ => Self::Failed(reason),
        }
    }

    fn broken(self) -> Broken {
        match self {
            Self::Failed(reason) | Self::Broken(reason) => Broken(reason),
            Self::Refused { .. } | Self::Again | Self::TooLong => {
                Broken("a transaction cannot be begun".into())
            }
        }
    }
}

/// Sends everything in the order given, and then waits for the answers, which come in the same order.
async fn pipelined(mut waiting: Vec<Answer<'_>>) -> Vec<Result<Found, Trouble>> {
    let mut early: Vec<Option<Result<Found, Trouble>>> = Vec::with_capacity(waiting.len());
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

fn told(client: &Client, command: String) -> Answer<'_> {
    Box::pin(async move {
        client.batch_execute(&command).await.map_err(|error| Trouble::of(&error))?;
        Ok(Found::default())
    })
}

fn asked<'a>(client: &'a Client, piece: &'a Piece) -> impl Iterator<Item = Answer<'a>> {
    let both = piece.prepared.iter().zip(&piece.statements).enumerate();
    both.map(|(at, (prepared, statement))| -> Answer<'a> {
        Box::pin(execute(client, prepared, at, statement))
    })
}

async fn prepare(client: &Client, statement: &Statement) -> Result<Prepared, Trouble> {
    let types: Vec<Type> = statement.values.iter().map(Value::told_type).collect();
    let sql = dialect(&statement.sql);
    let prepared = client.prepare_typed(&sql, &types).await.map_err(|error| Trouble::of(&error))?;
    fits(&prepared, statement).map_err(Trouble::Failed)?;
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
) -> Result<Found, Trouble> {
    let broken = |error: Error| Trouble::of(&error);
    let mut rows = pin!(client.query_raw(prepared, &statement.values).await.map_err(broken)?);
    let mut found = Found::default();
    let mut unread = None;
    while let Some(row) = rows.try_next().await.map_err(broken)? {
        let values = (0..row.len()).map(|column| row.try_get(column));
        match values.collect::<Result<Vec<Value>, Error>>() {
            Ok(values) => found.rows.push(Row(values)),
            Err(error) => unread = Some(cause(&error)),
        }
    }
    if let Some(reason) = unread {
        return Err(Trouble::Failed(reason));
    }
    if Kind::of(&statement.sql) == Kind::Write {
        found.changed = rows.rows_affected().unwrap_or_default();
    }
    match statement.must_change {
        Some(rows) if rows != found.changed => Err(Trouble::Refused { statement: at }),
        _ => Ok(found),
    }
}
