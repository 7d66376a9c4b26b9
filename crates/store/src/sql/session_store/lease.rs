//! Leases of processes: each process has a row with an expiry time, by the database's clock, and renews it in time.
//!
//! The other processes treat a process that stops renewing its lease as dead, even if it was only unreachable. Its old epoch
//! keeps it from appending to sessions that were taken over.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::{imports_and_forks, sweep};
use crate::sql::{Db, DbError, Statement};

/// Whether the owner of a session's row `s` lives: 1 or 0.
pub(super) const ALIVE: &str =
    "(SELECT count(*) FROM log_owners WHERE log_owners.name = s.holder AND log_owners.alive_until > NOW_MS)";

const LEASE: Duration = Duration::from_secs(15);
const RENEW_EVERY: Duration = Duration::from_secs(4);

/// Keeps the process alive in the eyes of the others until the guard is dropped.
pub(super) async fn hold(db: Arc<dyn Db>, name: String) -> Result<DropGuard, DbError> {
    renew(&*db, &name).await?;
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let tasks = TaskTracker::new();
    tasks.spawn(async move {
        if let Err(error) = clean_up(&*db).await {
            tracing::debug!(%error, "could not clean up after dead processes; trying again later");
        }
        while stop.run_until_cancelled(tokio::time::sleep(RENEW_EVERY)).await.is_some() {
            if let Err(error) = renew(&*db, &name).await {
                tracing::warn!(%error, "could not renew the lease of this process");
            }
        }
        let goodbye = Statement::new("DELETE FROM log_owners WHERE name = $1", [name.into()]);
        if let Err(error) = db.run(vec![goodbye], Vec::new()).await {
            tracing::debug!(%error, "could not end the lease of this process; the others notice when it expires");
        }
    });
    tasks.close();
    Ok(guard)
}

async fn renew(db: &dyn Db, name: &str) -> Result<(), DbError> {
    let lease = i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX);
    let renew = "INSERT INTO log_owners (name, alive_until) VALUES ($1, NOW_MS + $2)
        ON CONFLICT (name) DO UPDATE SET alive_until = excluded.alive_until";
    db.run(vec![Statement::new(renew, [name.into(), lease.into()])], Vec::new()).await.map(drop)
}

/// Takes up what dead processes left: leases long over, sessions half deleted, and sessions half written.
async fn clean_up(db: &dyn Db) -> Result<(), DbError> {
    let old = "DELETE FROM log_owners WHERE alive_until < NOW_MS - 3600000";
    db.run(vec![Statement::new(old, [])], Vec::new()).await?;
    let half = Statement::new("SELECT id FROM log_sessions WHERE gone = 1", []);
    for row in db.run(vec![half], Vec::new()).await?.into_iter().flat_map(|found| found.rows) {
        sweep(db, &row.text(0)?).await?;
    }
    imports_and_forks::clean_up(db).await
}
