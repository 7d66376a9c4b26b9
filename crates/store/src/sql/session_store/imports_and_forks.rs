//! Sessions that are being written and are not visible yet: imports and forks.
//!
//! They are written in pieces, each a short transaction, so that a long one needs little memory and blocks nobody. The row
//! is marked as unfinished until the last piece clears the mark, so the session becomes visible complete or not at all. A
//! failed import is removed with its row, which frees the id; the next process removes what a dead process left.

use std::sync::Arc;

use engine::{
    BoxFuture, Claim, Epoch, Event, EventBatch, EventSource, NewSession, RunningTurns, SessionId, StoreError,
};

use super::lease::ALIVE;
use super::session_rows::{log_of, path_value};
use super::{DELETED_AT_ONCE, SqlStore, clean, entries, log, read, row_after, write};
use crate::sql::{Db, DbError, SqlValue, Statement};

/// The value of `gone` in the row of such a session.
const UNFINISHED: i64 = 3;
/// Events that are written at once.
const PIECE: usize = 512;
/// Events that are copied at once: they stay within the database.
const COPIED_AT_ONCE: u64 = 5000;

/// An event source whose events are all in memory.
pub(super) struct AllEvents(pub(super) Vec<Arc<Event>>);

impl EventSource for AllEvents {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Event>>, String>> {
        Box::pin(std::future::ready(Ok(std::mem::take(&mut self.0))))
    }
}

impl SqlStore {
    pub(super) async fn do_import(
        &self,
        session: NewSession,
        source: Box<dyn EventSource>,
    ) -> Result<Claim, StoreError> {
        self.begin(&session).await?;
        let filled = self.fill(&session, source).await;
        self.finish(&session.id, filled).await
    }

    pub(super) async fn do_fork(&self, source: &SessionId, session: NewSession) -> Result<Claim, StoreError> {
        self.row(source).await?;
        self.begin(&session).await?;
        let copied = self.copy(source, &session.id).await;
        self.finish(&session.id, copied).await
    }

    async fn begin(&self, session: &NewSession) -> Result<(), StoreError> {
        let work = vec![self.insert_row(session, UNFINISHED)?, log::take(&log_of(&session.id))];
        self.run(work).await.map(drop).map_err(|error| match error {
            DbError::Refused { .. } => StoreError::Exists,
            error => write(error),
        })
    }

    /// Shows the session if this succeeds, else removes what was written of it.
    async fn finish(
        &self,
        id: &SessionId,
        last: Result<Vec<Statement>, StoreError>,
    ) -> Result<Claim, StoreError> {
        let finished = match last {
            Ok(work) => self.run(work).await.map(drop).map_err(fenced_off),
            Err(error) => Err(error),
        };
        if let Err(error) = finished {
            if let Err(left) = remove(&*self.db, id.as_str()).await {
                tracing::debug!(%left, session = %id, "an unfinished session stays until the next start");
            }
            return Err(error);
        }
        self.first_claim(id).await
    }

    async fn fill(
        &self,
        session: &NewSession,
        mut source: Box<dyn EventSource>,
    ) -> Result<Vec<Statement>, StoreError> {
        let (log, mut running) = (log_of(&session.id), RunningTurns::default());
        loop {
            let events = source.next().await.map_err(|reason| StoreError::Write { reason })?;
            if events.is_empty() {
                break;
            }
            for piece in events.chunks(PIECE) {
                let batch = EventBatch {
                    session: session.id.clone(),
                    epoch: Epoch(1),
                    events: piece.to_vec(),
                    sync: true,
                };
                let Some(last) = piece.last() else { continue };
                let mut work = vec![row_after(&batch, last, running.after(&batch), UNFINISHED)];
                work.extend(log::append_on(&log, 1, entries(&batch)?));
                self.run(work).await.map_err(fenced_off)?;
            }
        }
        let show = Statement::new(
            "UPDATE log_sessions SET gone = 0, cwd = $3, title = coalesce($4, title)
             WHERE id = $1 AND holder = $2 AND gone = 3",
            [
                session.id.as_str().into(),
                self.name.as_str().into(),
                path_value(&session.cwd),
                session.title.as_deref().map_or(SqlValue::Null, clean),
            ],
        );
        Ok(vec![show.must_change(1)])
    }

    async fn copy(&self, source: &SessionId, id: &SessionId) -> Result<Vec<Statement>, StoreError> {
        let (from, to) = (log_of(source), log_of(id));
        let head = Statement::new("SELECT head FROM logs WHERE id = $1", [from.as_str().into()]);
        let head = self.number(head).await?.ok_or(StoreError::NotFound)?;
        let mut after = 0;
        while after < head {
            let next = Statement::new(
                "SELECT max(seq) FROM (SELECT seq FROM log_entries WHERE log = $1 AND seq > $2 AND seq <= $3
                     ORDER BY seq LIMIT $4) AS next",
                [from.as_str().into(), after.into(), head.into(), COPIED_AT_ONCE.into()],
            );
            let Some(upto) = self.number(next).await? else { break };
            let ours = Statement::new(
                "UPDATE log_sessions SET gone = 3 WHERE id = $1 AND holder = $2 AND gone = 3",
                [id.as_str().into(), self.name.as_str().into()],
            );
            let copy = Statement::new(
                "INSERT INTO log_entries (log, seq, kind, body) SELECT $2, seq, kind, body FROM log_entries
                 WHERE log = $1 AND seq > $3 AND seq <= $4",
                [from.as_str().into(), to.as_str().into(), after.into(), upto.into()],
            );
            self.run(vec![ours.must_change(1), copy]).await.map_err(fenced_off)?;
            after = upto;
        }
        // Events are removed after their session, so a source that still exists was copied completely.
        let show = Statement::new(
            "UPDATE log_sessions SET gone = 0 WHERE id = $1 AND holder = $2 AND gone = 3
             AND EXISTS (SELECT 1 FROM log_sessions AS source WHERE source.id = $3 AND source.gone = 0)",
            [id.as_str().into(), self.name.as_str().into(), source.as_str().into()],
        );
        let ends = Statement::new("UPDATE logs SET head = $2 WHERE id = $1", [to.into(), head.into()]);
        Ok(vec![show.must_change(1), ends.must_change(1)])
    }

    async fn number(&self, select: Statement) -> Result<Option<u64>, StoreError> {
        let found = self.run(vec![select]).await.map_err(read)?;
        let row = found.first().and_then(|found| found.rows.first());
        let number = row.map(|row| row.maybe_int(0)).transpose().map_err(read)?.flatten();
        Ok(number.and_then(|number| u64::try_from(number).ok()))
    }
}

/// Removes what processes that are dead had begun to write.
pub(super) async fn clean_up(db: &dyn Db) -> Result<(), DbError> {
    let left = format!("SELECT id FROM log_sessions s WHERE gone = 3 AND {ALIVE} = 0");
    for row in
        db.run(vec![Statement::new(left, [])], Vec::new()).await?.into_iter().flat_map(|found| found.rows)
    {
        remove(db, &row.text(0)?).await?;
    }
    Ok(())
}

/// The events first: as long as the row exists, the removal can be continued.
async fn remove(db: &dyn Db, id: &str) -> Result<(), DbError> {
    // Fences off a process that still writes it.
    let take = "UPDATE log_sessions SET holder = NULL, epoch = epoch + 1 WHERE id = $1 AND gone = 3";
    let taken = db.run(vec![Statement::new(take, [id.into()])], Vec::new()).await?;
    if taken.first().is_none_or(|taken| taken.changed == 0) {
        return Ok(());
    }
    let log = format!("{}{id}", super::session_rows::LOG);
    super::remove_entries(db, &log, DELETED_AT_ONCE).await?;
    let rows = vec![
        Statement::new("DELETE FROM logs WHERE id = $1", [log.into()]),
        Statement::new("DELETE FROM log_sessions WHERE id = $1 AND gone = 3", [id.into()]),
    ];
    db.run(rows, Vec::new()).await.map(drop)
}

/// Another process took this one for dead, or the source was deleted meanwhile.
fn fenced_off(error: DbError) -> StoreError {
    match error {
        DbError::Refused { .. } => StoreError::NotFound,
        error => write(error),
    }
}
