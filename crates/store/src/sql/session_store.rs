//! Sessions in a database that several processes share: the store for several machines.
//!
//! A session has a row, and a log whose entries are its events in the export format. The row names the session's owner, and
//! the owner's lease, which it renews, says whether that process is alive. Every append checks both, so an owner that was
//! away for too long finds its session taken over and cannot append to it.
//!
//! **Invariant:** every process locks the row of a session before its log.
//! **Invariant:** the row of a deleted session stays, so its id is never given again.
//!
//! `gone` in a row: 0 it is a session, 1 it was deleted and has events left, 2 it was deleted, 3 it is being written and
//! is not visible yet ([`imports_and_forks`]).

mod imports_and_forks;
mod lease;
mod session_rows;
mod session_tables;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    Body, BoxFuture, Claim, Epoch, Event, EventBatch, EventSource, ListQuery, NewSession, PageRequest,
    RunningTurns, Seq, SessionId, SessionRow, Store, StoreError, StoreFault, StoreResult,
};
use tokio_util::sync::DropGuard;
use wire::{event_json, record};

use self::lease::ALIVE;
use self::session_rows::{COLUMNS, OwnedRow, clean, log_of, path_value, read_row};
use super::log::{self, LogEntry};
use super::{Db, DbError, Row, SqlValue, Statement, migrate};

/// Rows that are read at once for a list.
const LISTED_AT_ONCE: u64 = 500;
/// Statements of one transaction that only looks.
const STATEMENTS_AT_ONCE: usize = 200;
/// Events that are read at once, whatever is asked for.
const READ_AT_ONCE: usize = 8192;
/// The number of events removed at once, so that nobody waits for the end of a long session.
const DELETED_AT_ONCE: u64 = 5000;

pub struct SqlStore {
    db: Arc<dyn Db>,
    /// This process, as rows name it.
    name: String,
    running: Mutex<RunningTurns>,
    /// Lets go of the lease.
    _lease: DropGuard,
}

impl SqlStore {
    pub async fn open(db: Arc<dyn Db>) -> Result<Self, StoreError> {
        for (layout, steps) in [("logs", &log::STEPS), ("log_sessions", &session_tables::STEPS)] {
            migrate(&*db, layout, steps).await.map_err(unavailable)?;
        }
        let name = uuid::Uuid::new_v4().to_string();
        let lease = lease::hold(Arc::clone(&db), name.clone()).await.map_err(unavailable)?;
        Ok(Self { db, name, running: Mutex::default(), _lease: lease })
    }

    async fn run(&self, work: Vec<Statement>) -> Result<Vec<super::StatementResult>, DbError> {
        self.db.run(work, Vec::new()).await
    }

    fn running(&self) -> MutexGuard<'_, RunningTurns> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn row(&self, id: &SessionId) -> Result<OwnedRow, StoreError> {
        let select = format!("SELECT {COLUMNS}, {ALIVE} FROM log_sessions s WHERE id = $1 AND gone = 0");
        let found =
            self.run(vec![Statement::new(select, [id.as_str().into()])]).await.map_err(unavailable)?;
        let row = found.first().and_then(|found| found.rows.first()).ok_or(StoreError::NotFound)?;
        read_row(row)
    }

    async fn do_create(&self, session: NewSession) -> Result<Claim, StoreError> {
        let work = vec![self.insert_row(&session, 0)?, log::take(&log_of(&session.id))];
        self.run(work).await.map_err(|error| match error {
            DbError::Refused { .. } => StoreError::Exists,
            error => write(error),
        })?;
        self.first_claim(&session.id).await
    }

    /// Refused if there is, or was, a session with this id.
    fn insert_row(&self, session: &NewSession, gone: i64) -> Result<Statement, StoreError> {
        let roots = record::encode_paths(&session.roots).map_err(|error| damaged(&error))?;
        let insert = Statement::new(
            "INSERT INTO log_sessions (id, owner, cwd, roots, parent, source, title, created_at, updated_at, busy,
                 epoch, holder, gone)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, 0, 1, $9, $10) ON CONFLICT (id) DO NOTHING",
            [
                session.id.as_str().into(),
                clean(&session.owner.0),
                path_value(&session.cwd),
                roots.into(),
                session.parent.as_ref().map(SessionId::as_str).into(),
                clean(&session.source),
                session.title.as_deref().map_or(SqlValue::Null, clean),
                session.created_at.0.into(),
                self.name.as_str().into(),
                gone.into(),
            ],
        );
        Ok(insert.must_change(1))
    }

    /// The claim of the process that created the session.
    async fn first_claim(&self, id: &SessionId) -> Result<Claim, StoreError> {
        let row = self.row(id).await?.row;
        Ok(Claim { epoch: Epoch(1), next_seq: row.last_seq.next(), row })
    }

    async fn do_claim(&self, id: &SessionId) -> Result<Claim, StoreError> {
        self.running().forget(id);
        let take = format!(
            "UPDATE log_sessions AS s SET epoch = epoch + 1, holder = $2 WHERE id = $1 AND gone = 0
             AND (busy = 0 OR holder IS NULL OR holder = $2 OR {ALIVE} = 0)"
        );
        let values = [id.as_str().into(), self.name.as_str().into()];
        let select = format!("SELECT {COLUMNS}, 1 FROM log_sessions s WHERE id = $1");
        let work = vec![
            Statement::new(take, values).must_change(1),
            log::take(&log_of(id)),
            Statement::new(select, [id.as_str().into()]),
        ];
        let found = match self.run(work).await {
            Ok(found) => found,
            Err(DbError::Refused { .. }) => {
                self.row(id).await?;
                return Err(StoreError::BusyElsewhere);
            }
            Err(error) => return Err(write(error)),
        };
        let row = |at: usize| found.get(at).and_then(|found: &super::StatementResult| found.rows.first());
        let (Some(taken), Some(row)) = (row(1), row(2)) else { return Err(StoreError::NotFound) };
        let (epoch, head) = (taken.count(0).map_err(read)?, taken.count(1).map_err(read)?);
        Ok(Claim { epoch: Epoch(epoch), row: read_row(row)?.row, next_seq: Seq(head).next() })
    }

    async fn do_append(&self, batch: EventBatch) -> Result<(), StoreError> {
        let Some(last) = batch.events.last() else {
            let found = self.row(&batch.session).await?;
            return if found.is_owned(batch.epoch) { Ok(()) } else { Err(StoreError::Fenced) };
        };
        let entries = entries(&batch)?;
        let log = log_of(&batch.session);
        let busy = self.running().after(&batch);
        let mut work = vec![row_after(&batch, last, busy, 0)];
        work.extend(log::append_on(&log, batch.epoch.0, entries.clone()));
        match self.run(work).await {
            Ok(_) => Ok(()),
            Err(DbError::Refused { .. }) => {
                let found = self.row(&batch.session).await.map_err(again)?;
                if !found.is_owned(batch.epoch) {
                    return Err(StoreError::Fenced);
                }
                if self.has(&log, &entries).await.map_err(again)? {
                    return Ok(());
                }
                Err(StoreError::Write { reason: format!("position {} was already used", last.seq) })
            }
            Err(error) => Err(again(write(error))),
        }
    }

    /// Whether exactly these entries are in the log: then an append whose answer was lost had been done.
    async fn has(&self, log: &str, entries: &[LogEntry]) -> Result<bool, StoreError> {
        let Some(first) = entries.first() else { return Ok(true) };
        let select = log::read(log, first.seq.saturating_sub(1), entries.len());
        let found = self.run(vec![select]).await.map_err(read)?;
        let rows = found.into_iter().next().unwrap_or_default().rows;
        if rows.len() != entries.len() {
            return Ok(false);
        }
        for (row, entry) in rows.iter().zip(entries) {
            if row.count(0).map_err(read)? != entry.seq || *row.text(1).map_err(read)? != *entry.body {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn do_read(
        &self,
        id: &SessionId,
        after: Seq,
        page: PageRequest,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let kinds = if page.outline {
            "AND (kind IS NULL OR kind NOT IN ('text', 'thought', 'tool_output'))"
        } else {
            ""
        };
        let events = log::page(&log_of(id), after.0, page.count_max.min(READ_AT_ONCE), page.bytes_max, kinds);
        let there =
            Statement::new("SELECT 1 FROM log_sessions WHERE id = $1 AND gone = 0", [id.as_str().into()]);
        let found = self.run(vec![there, events]).await.map_err(read)?;
        let [there, events] = found.as_slice() else { return Err(StoreError::NotFound) };
        if there.rows.is_empty() {
            return Err(StoreError::NotFound);
        }
        events.rows.iter().map(event_of).collect()
    }

    async fn do_unused(&self, ids: Vec<SessionId>) -> Result<Vec<SessionId>, StoreError> {
        let mut unused = Vec::new();
        for ids in ids.chunks(STATEMENTS_AT_ONCE) {
            // The row of a deleted session stays.
            let select = |id: &SessionId| {
                Statement::new("SELECT id FROM log_sessions WHERE id = $1", [id.as_str().into()])
            };
            let found = self.run(ids.iter().map(select).collect()).await.map_err(read)?;
            let free = ids.iter().zip(&found).filter(|(_, found)| found.rows.is_empty());
            unused.extend(free.map(|(id, _)| id.clone()));
        }
        Ok(unused)
    }

    /// Events of a turn are accompanied by events of other kinds.
    async fn do_never_used(&self, ids: Vec<SessionId>) -> Result<Vec<SessionId>, StoreError> {
        let select = format!(
            "SELECT id FROM log_sessions WHERE id = $1 AND gone = 0 AND NOT EXISTS (
                 SELECT 1 FROM log_entries WHERE log = $2 AND (kind IS NULL OR kind NOT IN ({})))",
            crate::quoted_setup_kinds()
        );
        let mut never_used = Vec::new();
        for ids in ids.chunks(STATEMENTS_AT_ONCE) {
            let ask =
                |id: &SessionId| Statement::new(select.clone(), [id.as_str().into(), log_of(id).into()]);
            let found = self.run(ids.iter().map(ask).collect()).await.map_err(read)?;
            let empty = ids.iter().zip(&found).filter(|(_, found)| !found.rows.is_empty());
            never_used.extend(empty.map(|(id, _)| id.clone()));
        }
        Ok(never_used)
    }

    async fn do_list(&self, query: ListQuery) -> Result<Vec<SessionRow>, StoreError> {
        let select = format!(
            "SELECT {COLUMNS}, {ALIVE} FROM log_sessions s WHERE owner = $1 AND gone = 0 AND (updated_at, id) < ($2, $3)
             ORDER BY updated_at DESC, id DESC LIMIT $4"
        );
        let mut listed = Vec::new();
        let mut from = match &query.before {
            Some((at, id)) => (at.0, SqlValue::from(id.as_str())),
            None => (i64::MAX, SqlValue::from("")),
        };
        while listed.len() < query.limit {
            let values = [clean(&query.owner.0), from.0.into(), from.1.clone(), LISTED_AT_ONCE.into()];
            let found = self.run(vec![Statement::new(select.clone(), values)]).await.map_err(read)?;
            let rows = found.into_iter().next().unwrap_or_default().rows;
            let Some(last) = rows.last() else { break };
            from = (last.int(session_rows::UPDATED_AT).map_err(read)?, last.text(0).map_err(read)?.into());
            for row in &rows {
                match read_row(row).map(OwnedRow::shown) {
                    Ok(row) if query.admits(&row) && listed.len() < query.limit => listed.push(row),
                    Ok(_) => {}
                    // One row that cannot be read must not hide all the others.
                    Err(error) => tracing::warn!(%error, "a session is left out of a list"),
                }
            }
        }
        Ok(listed)
    }

    async fn do_delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        let take = format!(
            "UPDATE log_sessions AS s SET gone = 1, holder = NULL, title = NULL, epoch = epoch + 1
             WHERE id = $1 AND gone = 0 AND (busy = 0 OR holder IS NULL OR holder = $2 OR {ALIVE} = 0)"
        );
        let values = [id.as_str().into(), self.name.as_str().into()];
        let log = Statement::new("DELETE FROM logs WHERE id = $1", [log_of(id).into()]);
        match self.run(vec![Statement::new(take, values).must_change(1), log]).await {
            Ok(_) => sweep(&*self.db, id.as_str()).await.map_err(write).map(|()| true),
            Err(DbError::Refused { .. }) => match self.row(id).await {
                Ok(_) => Err(StoreError::BusyElsewhere),
                Err(StoreError::NotFound) => Ok(false),
                Err(error) => Err(error),
            },
            Err(error) => Err(write(error)),
        }
    }
}

/// Removes the events of a session that is out of sight, and then notes that nothing is left.
async fn sweep(db: &dyn Db, id: &str) -> Result<(), DbError> {
    remove_entries(db, &format!("{}{id}", session_rows::LOG), DELETED_AT_ONCE).await?;
    let swept = Statement::new("UPDATE log_sessions SET gone = 2 WHERE id = $1 AND gone = 1", [id.into()]);
    db.run(vec![swept], Vec::new()).await.map(drop)
}

async fn remove_entries(db: &dyn Db, log: &str, at_once: u64) -> Result<(), DbError> {
    let step = "DELETE FROM log_entries WHERE log = $1 AND seq <= (SELECT max(seq) FROM
        (SELECT seq FROM log_entries WHERE log = $1 ORDER BY seq LIMIT $2) AS next)";
    loop {
        let step = Statement::new(step, [log.into(), at_once.into()]);
        let found = db.run(vec![step], Vec::new()).await?;
        if found.first().is_none_or(|found| found.changed == 0) {
            return Ok(());
        }
    }
}

/// Keeps the columns of a list in step with the events.
fn row_after(batch: &EventBatch, last: &Event, busy: Option<bool>, gone: i64) -> Statement {
    let busy = busy.map_or(SqlValue::Null, SqlValue::from);
    let (mut title, mut cwd) = (SqlValue::Null, SqlValue::Null);
    for event in &batch.events {
        if let Body::Title { title: given } = &event.body {
            title = clean(given);
        } else if let Body::Moved { cwd: entered, .. } = &event.body {
            cwd = path_value(entered);
        }
    }
    let update =
        "UPDATE log_sessions SET updated_at = $3, busy = coalesce($4, busy), title = coalesce($5, title),
            cwd = coalesce($6, cwd)
        WHERE id = $1 AND epoch = $2 AND holder IS NOT NULL AND gone = $7";
    let (id, epoch) = (batch.session.as_str().into(), batch.epoch.0.into());
    let values = [id, epoch, last.at.0.into(), busy, title, cwd, gone.into()];
    Statement::new(update, values).must_change(1)
}

fn entries(batch: &EventBatch) -> Result<Vec<LogEntry>, StoreError> {
    let mut before = None;
    let entry = |event: &Arc<Event>| {
        if before.replace(event.seq).is_some_and(|before| event.seq <= before) {
            return Err(StoreError::Write { reason: format!("position {} was already used", event.seq) });
        }
        let body =
            event_json::line(event).map_err(|error| StoreError::Write { reason: error.to_string() })?;
        Ok(LogEntry { seq: event.seq.0, kind: Some(record::kind(&event.body)), body })
    };
    batch.events.iter().map(entry).collect()
}

fn event_of(row: &Row) -> Result<Arc<Event>, StoreError> {
    let (seq, body) = (row.count(0).map_err(read)?, row.text(1).map_err(read)?);
    let event =
        event_json::decode_own(&body).map_err(|error| damaged(&format_args!("event {seq}: {error}")))?;
    Ok(Arc::new(event))
}

fn unavailable(error: DbError) -> StoreError {
    StoreError::Unavailable { reason: reason(error) }
}

pub(super) fn reason(error: DbError) -> String {
    match error {
        DbError::Unavailable { reason } | DbError::Failed { reason } => reason,
        DbError::Refused { .. } => error.to_string(),
    }
}

fn write(error: DbError) -> StoreError {
    match error {
        DbError::Unavailable { reason } => StoreError::Unavailable { reason },
        error => StoreError::Write { reason: error.to_string() },
    }
}

/// An append can be tried again when the database is back: what was done already is found there.
fn again(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { reason } => StoreError::Busy { reason },
        error => error,
    }
}

fn read(error: DbError) -> StoreError {
    match error {
        DbError::Unavailable { reason } => StoreError::Unavailable { reason },
        error => damaged(&error),
    }
}

fn damaged(reason: &dyn std::fmt::Display) -> StoreError {
    StoreError::Damaged { reason: reason.to_string() }
}

impl Store for SqlStore {
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim> {
        Box::pin(self.do_create(session))
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        let id = id.clone();
        Box::pin(async move { self.do_claim(&id).await })
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        let id = id.clone();
        Box::pin(async move { self.row(&id).await.map(|found| found.is_owned(epoch)) })
    }

    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()> {
        self.running().forget(id);
        let update = "UPDATE log_sessions SET holder = NULL WHERE id = $1 AND epoch = $2";
        let release = Statement::new(update, [id.as_str().into(), epoch.0.into()]);
        Box::pin(async move { self.run(vec![release]).await.map(drop).map_err(write) })
    }

    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()> {
        Box::pin(self.do_append(batch))
    }

    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>> {
        let id = id.clone();
        Box::pin(async move { self.do_read(&id, after, page).await })
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        let id = id.clone();
        Box::pin(async move { self.row(&id).await.map(OwnedRow::shown) })
    }

    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        Box::pin(self.do_unused(ids))
    }

    fn never_used(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        Box::pin(self.do_never_used(ids))
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        Box::pin(self.do_list(query))
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        let source = source.clone();
        Box::pin(async move { self.do_fork(&source, session).await })
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        self.import_from(session, Box::new(imports_and_forks::AllEvents(events)))
    }

    fn import_from(&self, session: NewSession, source: Box<dyn EventSource>) -> StoreResult<'_, Claim> {
        Box::pin(self.do_import(session, source))
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        let id = id.clone();
        Box::pin(async move { self.do_delete(&id).await })
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        let update = "UPDATE log_sessions SET title = $2 WHERE id = $1 AND gone = 0";
        let rename = Statement::new(update, [id.as_str().into(), clean(title)]).must_change(1);
        Box::pin(async move {
            self.run(vec![rename]).await.map(drop).map_err(|error| match error {
                DbError::Refused { .. } => StoreError::NotFound,
                error => write(error),
            })
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(async move {
            let looked = self.run(vec![Statement::new("SELECT count(*) FROM log_owners", [])]).await;
            looked.map(drop).map_err(|error| fault(&unavailable(error)))
        })
    }
}

/// Readiness need not say where the database is.
pub(super) fn fault(error: &StoreError) -> StoreFault {
    let cause = match error {
        StoreError::Unavailable { reason } => format!("the database cannot be used: {reason}"),
        error => error.to_string(),
    };
    let fix = "check that PostgreSQL is running and accepts this user".to_owned();
    StoreFault { path: None, cause, fix }
}
