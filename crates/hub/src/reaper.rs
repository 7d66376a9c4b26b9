//! What a node does by itself for as long as it lives: it says so, and clears away what nobody needs any more.
//!
//! Every node does all of it. What one deletes the others find gone, and each deletes a little at a time, so that none
//! keeps the database from its work.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::SessionId;
use store::sql::{DbError, Statement, Value};

use crate::guest::PersonId;
use crate::hub::{Hub, WATCH_MS};
use crate::topics;

/// A node says this often that it lives.
const BEAT_EVERY: Duration = Duration::from_secs(4);
/// Letters that nobody took are thrown away.
const MAIL_MS: i64 = 120_000;
/// Connections that ended while the database was away.
const OWED_MAX: usize = 16_384;
/// What is kept for days is looked through this often.
const REAP_EVERY_MS: i64 = 600_000;
/// Lines of the record, and mirrors, that are deleted at once.
const LINES_AT_ONCE: u64 = 10_000;
const MIRRORS_AT_ONCE: u64 = 32;

/// What must be said to the database sooner or later: that a connection has ended. Said once and lost, somebody would
/// be here for ever.
#[derive(Default)]
pub struct Owed(Mutex<VecDeque<Farewell>>);

struct Farewell {
    work: Vec<Statement>,
    topic: String,
}

impl Owed {
    fn put(&self, farewell: Farewell) {
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if owed.len() >= OWED_MAX {
            tracing::warn!("more connections ended than can be remembered while the database is away");
            owed.pop_front();
        }
        owed.push_back(farewell);
    }

    fn take(&self) -> Option<Farewell> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Hub {
    /// Says that a connection has ended, and if that cannot be said now, with the next beats. The work holds for one
    /// epoch only, so it does no harm when somebody has come back meanwhile.
    pub(crate) async fn take_leave(&self, work: Vec<Statement>, topic: String) {
        let done = self.run(work.clone(), vec![topic.clone()]).await;
        if let Err(DbError::Unavailable { .. }) = done {
            self.owed.put(Farewell { work, topic });
        }
    }

    async fn say_what_is_owed(&self) {
        while let Some(Farewell { work, topic }) = self.owed.take() {
            let done = self.run(work.clone(), vec![topic.clone()]).await;
            if let Err(DbError::Unavailable { .. }) = done {
                return self.owed.put(Farewell { work, topic });
            }
        }
    }

    /// Says that the node lives and what it watches, and clears away what dead ones left.
    pub(crate) async fn live(&self) {
        let mut reap_at = self.now().0;
        loop {
            tokio::time::sleep(topics::about(BEAT_EVERY)).await;
            self.polls.sweep();
            // What it was found to be before holds until it is known again.
            drop(self.look_at_clock().await);
            let now = self.now().0;
            let watching = Statement::new(
                "UPDATE watchers SET until = $2 WHERE node = $1",
                [self.node.as_str().into(), (now + WATCH_MS).into()],
            );
            let old = |table: &str, column: &str, before: i64| {
                Statement::new(format!("DELETE FROM {table} WHERE {column} < $1"), [Value::Int(before)])
            };
            let work = vec![
                self.beat(),
                watching,
                old("watchers", "until", now - WATCH_MS),
                old("mail", "at", now - MAIL_MS),
                old("nodes", "seen_at", now - 24 * 3_600_000),
            ];
            // Tried again at the next beat.
            if self.run(work, Vec::new()).await.is_ok() {
                self.say_what_is_owed().await;
            }
            // Where there is more to delete, the next beat goes on with it.
            if now >= reap_at && !matches!(self.reap().await, Ok(true)) {
                reap_at = now + REAP_EVERY_MS;
            }
        }
    }

    /// Deletes some of what is too old. Whether there may be more.
    async fn reap(&self) -> Result<bool, DbError> {
        let lines = Statement::new(
            "DELETE FROM hub_audit WHERE at < $1
             AND at <= COALESCE((SELECT at FROM hub_audit ORDER BY at LIMIT 1 OFFSET $2), $1)",
            [self.ago(self.options.audit_after).into(), LINES_AT_ONCE.into()],
        );
        let done = self.run(vec![lines], Vec::new()).await?;
        let more_lines = done.first().is_some_and(|done| done.changed > LINES_AT_ONCE);
        let Some(forget_after) = self.options.forget_after else { return Ok(more_lines) };
        let before = self.ago(forget_after.max(self.options.prune_after));
        let silent = Statement::new(
            "SELECT session, person FROM mirrors WHERE heard_at < $1 ORDER BY heard_at LIMIT $2",
            [before.into(), MIRRORS_AT_ONCE.into()],
        );
        let rows = self.rows(silent).await?;
        for row in &rows {
            let Ok(session) = SessionId::parse(&row.text(0)?) else { continue };
            match self.forget(&session, &PersonId(row.text(1)?), None, before).await {
                // Another node did it, or its bridge came back.
                Ok(()) | Err(DbError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(more_lines || rows.len() as u64 == MIRRORS_AT_ONCE)
    }
}
