//! Removing what deleted sessions leave behind, a little at a time, so that the end of a long session
//! does not hold up the others.
//!
//! The session is out of sight as soon as its row is gone. Its key stays in `deleted` until the last
//! of its events and blobs is removed, so a sweep that a crash interrupts is taken up at the next
//! start.

use std::collections::VecDeque;

use engine::StoreError;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::thread_requests::{ReplySender, TransactionLoss, reply};

/// Events removed per transaction: a few milliseconds.
const EVENTS_PER_STEP: i64 = 2000;

#[derive(Default)]
pub(super) struct Sweeps {
    waiting: VecDeque<(i64, Option<ReplySender<bool>>)>,
}

impl Sweeps {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The caller gets the answer when nothing of the session is left.
    pub(super) fn add(&mut self, key: i64, answer: ReplySender<bool>) {
        self.waiting.push_back((key, Some(answer)));
    }

    /// Continues the sweeps of an earlier process, and those that were interrupted in this one.
    pub(super) fn resume(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut select = connection.prepare("SELECT key FROM deleted WHERE key IS NOT NULL")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let key = row.get(0)?;
            if self.waiting.iter().all(|(waiting, _)| *waiting != key) {
                self.waiting.push_back((key, None));
            }
        }
        Ok(())
    }

    /// One transaction's worth of work.
    pub(super) fn step(&mut self, connection: &Connection) -> Result<(), TransactionLoss> {
        let Some((key, answer)) = self.waiting.pop_front() else {
            return Ok(());
        };
        let done = step(connection, key);
        match done {
            Ok(false) => self.waiting.push_front((key, answer)),
            Ok(true) => {
                if let Some(answer) = answer {
                    reply(answer, Ok(true));
                }
            }
            Err(error) => {
                let loss = TransactionLoss::from(error);
                if loss.busy {
                    // The session is out of sight; the rest goes when the lock is free.
                    self.waiting.push_back((key, None));
                    if let Some(answer) = answer {
                        reply(answer, Ok(true));
                    }
                    return Err(loss);
                }
                if let Some(answer) = answer {
                    reply(answer, Err(StoreError::Write { reason: loss.reason.clone() }));
                }
                return Err(loss);
            }
        }
        Ok(())
    }
}

/// Whether nothing is left.
fn step(connection: &Connection, key: i64) -> rusqlite::Result<bool> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let rest: Option<i64> = transaction
        .prepare_cached(
            "SELECT seq FROM acp_session_events WHERE session = ?1 ORDER BY seq LIMIT 1 OFFSET ?2",
        )?
        .query_row((key, EVENTS_PER_STEP), |row| row.get(0))
        .optional()?;
    transaction
        .prepare_cached("DELETE FROM acp_session_events WHERE session = ?1 AND seq < ?2")?
        .execute((key, rest.unwrap_or(i64::MAX)))?;
    if rest.is_none() {
        transaction
            .prepare_cached(
                "DELETE FROM blobs WHERE hash IN (SELECT hash FROM blob_uses WHERE session = ?1) AND NOT EXISTS
                    (SELECT 1 FROM blob_uses AS other WHERE other.hash = blobs.hash AND other.session <> ?1)",
            )?
            .execute([key])?;
        transaction.prepare_cached("DELETE FROM blob_uses WHERE session = ?1")?.execute([key])?;
        transaction.prepare_cached("UPDATE deleted SET key = NULL WHERE key = ?1")?.execute([key])?;
    }
    transaction.commit()?;
    Ok(rest.is_none())
}
