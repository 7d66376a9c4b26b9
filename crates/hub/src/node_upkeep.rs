//! The upkeep of a node: it writes its heartbeat, and deletes what is too old.
//!
//! Every node does all of it. Each deletes a little at a time, so that none keeps the database busy; rows that another
//! node has deleted already are no problem.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::SessionId;
use store::sql::{DbError, SqlValue, Statement};

use crate::authenticator::PersonId;
use crate::hub::{Hub, WATCH_MS};
use crate::topics;

/// How often a node writes its heartbeat.
const BEAT_EVERY: Duration = Duration::from_secs(4);
/// Mail that was not read for this long is deleted.
const MAIL_MS: i64 = 120_000;
/// Disconnects that wait for the database.
const PENDING_DISCONNECTS_MAX: usize = 16_384;
/// How often rows that are kept for days are checked.
const REAP_EVERY_MS: i64 = 600_000;
/// Audit entries, and mirrors, that are deleted at once.
const LINES_AT_ONCE: u64 = 10_000;
const MIRRORS_AT_ONCE: u64 = 32;

/// Disconnects that could not be written while the database was unavailable. Each must be written sooner or later, or a
/// machine or session would be shown as connected for ever.
#[derive(Default)]
pub struct PendingDisconnects(Mutex<VecDeque<Disconnect>>);

struct Disconnect {
    work: Vec<Statement>,
    topic: String,
}

impl PendingDisconnects {
    fn put(&self, disconnect: Disconnect) {
        let mut pending_disconnects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pending_disconnects.len() >= PENDING_DISCONNECTS_MAX {
            tracing::warn!("more connections ended than can be remembered while the database is away");
            pending_disconnects.pop_front();
        }
        pending_disconnects.push_back(disconnect);
    }

    fn take(&self) -> Option<Disconnect> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Hub {
    /// Records that a connection has ended; if the database is unavailable, with a later heartbeat. The statements apply
    /// to one epoch only, so they do no harm if the machine has reconnected meanwhile.
    pub(crate) async fn report_disconnect(&self, work: Vec<Statement>, topic: String) {
        let done = self.run(work.clone(), vec![topic.clone()]).await;
        if let Err(DbError::Unavailable { .. }) = done {
            self.pending_disconnects.put(Disconnect { work, topic });
        }
    }

    async fn flush_disconnects(&self) {
        while let Some(Disconnect { work, topic }) = self.pending_disconnects.take() {
            let done = self.run(work.clone(), vec![topic.clone()]).await;
            if let Err(DbError::Unavailable { .. }) = done {
                return self.pending_disconnects.put(Disconnect { work, topic });
            }
        }
    }

    /// Writes heartbeats, renews the node's `watchers`, and deletes what dead nodes left.
    pub(crate) async fn keep_alive(&self) {
        let mut reap_at = self.now().0;
        loop {
            tokio::time::sleep(topics::jittered(BEAT_EVERY)).await;
            self.long_polls.sweep();
            // Without an answer, the offset from before stays.
            drop(self.sync_clock().await);
            let now = self.now().0;
            let watching = Statement::new(
                "UPDATE watchers SET until = $2 WHERE node = $1",
                [self.node.as_str().into(), (now + WATCH_MS).into()],
            );
            let old = |table: &str, column: &str, before: i64| {
                Statement::new(format!("DELETE FROM {table} WHERE {column} < $1"), [SqlValue::Int(before)])
            };
            let work = vec![
                self.beat(),
                watching,
                old("watchers", "until", now - WATCH_MS),
                old("mail", "at", now - MAIL_MS),
                old("nodes", "seen_at", now - 24 * 3_600_000),
            ];
            // Tried again with the next heartbeat.
            if self.run(work, Vec::new()).await.is_ok() {
                self.flush_disconnects().await;
            }
            // If there is more to delete, the next heartbeat continues.
            if now >= reap_at && !matches!(self.reap().await, Ok(true)) {
                reap_at = now + REAP_EVERY_MS;
            }
        }
    }

    /// Deletes some of what is too old. Returns whether there may be more.
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
                // Another node deleted it, or its bridge reconnected.
                Ok(()) | Err(DbError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(more_lines || rows.len() as u64 == MIRRORS_AT_ONCE)
    }
}
