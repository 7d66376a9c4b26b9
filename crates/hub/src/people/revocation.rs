//! Revocation: ends the connections of browsers and machines whose cookie or token is no longer valid.
//!
//! Each admitted visitor and machine holds a `CancellationToken` that is cancelled on revocation. All credentials in use
//! are looked up in the database: at once after a change on this node, on a notification of another node, every few
//! seconds without one, and at the moment at which one expires. While the database is unavailable, only expiry is noticed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::Timestamp;
use store::sql::{DbError, EVERYWHERE, SqlValue, Statement};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::{People, web_push};

/// The topic of every change that may revoke a credential.
pub(crate) const TOPIC: &str = "people";
/// How long a change of another node goes unnoticed if its notification is lost.
const POLL_EVERY: Duration = Duration::from_secs(3);
/// How often presence is written for the other nodes; they count it for longer (`LOOK_LIFE_MS`).
const PUBLISH_PRESENCE_EVERY_MS: i64 = 10 * 1000;
/// Ids of one statement.
pub(super) const IDS_AT_ONCE: usize = 256;
/// How often expired rows are deleted.
const SWEEP_EVERY_MS: i64 = 60 * 60 * 1000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Credential {
    Browser(Arc<str>),
    Token(Arc<str>),
}

#[derive(Debug, Default)]
struct ActiveCredential {
    revoked: CancellationToken,
    until: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Revocations(Mutex<HashMap<Credential, ActiveCredential>>);

impl Revocations {
    /// Registers a credential, with its expiry if it has one. The token is cancelled when the credential is revoked.
    pub(super) fn register(&self, credential: Credential, until: Option<Timestamp>) -> CancellationToken {
        let mut credentials = self.locked();
        let active = credentials.entry(credential).or_default();
        active.until = until;
        active.revoked.clone()
    }

    /// The token of a credential that was registered before; a cancelled one, if it was revoked meanwhile.
    pub(super) fn existing(&self, credential: &Credential) -> CancellationToken {
        match self.locked().get(credential) {
            Some(active) => active.revoked.clone(),
            None => {
                let revoked = CancellationToken::new();
                revoked.cancel();
                revoked
            }
        }
    }

    fn revoke_where(&self, over: impl Fn(&Credential, &ActiveCredential) -> bool) {
        self.locked().retain(|credential, active| {
            let over = over(credential, active);
            if over {
                active.revoked.cancel();
            }
            !over
        });
    }

    /// When the next credential expires.
    fn next(&self) -> Option<Timestamp> {
        self.locked().values().filter_map(|active| active.until).min()
    }

    fn ids(&self, browsers: bool) -> Vec<Arc<str>> {
        let id = |credential: &Credential| match credential {
            Credential::Browser(id) => browsers.then(|| Arc::clone(id)),
            Credential::Token(id) => (!browsers).then(|| Arc::clone(id)),
        };
        self.locked().keys().filter_map(id).collect()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Credential, ActiveCredential>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Wake {
    Look,
    Settled(Arc<str>),
    Stop,
}

impl People {
    /// Revokes credentials, writes presence for the other nodes, and sends pushes, until `stop` is cancelled. One task of
    /// every node.
    pub async fn run_upkeep(self: Arc<Self>, stop: CancellationToken) {
        let office = self.office.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sending = async {
            if let Some(office) = office {
                office.run(Arc::clone(&self), stop.clone()).await;
            }
        };
        tokio::join!(self.watch(&stop), sending);
    }

    async fn watch(&self, stop: &CancellationToken) {
        let mut wakeups = self.db.subscribe();
        let (mut swept, mut published) = (Timestamp(0), Timestamp(0));
        loop {
            match self.wake(&mut wakeups, stop).await {
                Wake::Look => self.check_revocations().await,
                Wake::Settled(topic) => self.settled(&topic),
                Wake::Stop => return,
            }
            let now = self.clock.now();
            if now.0 - published.0 > PUBLISH_PRESENCE_EVERY_MS {
                published = now;
                self.publish_presence().await;
            }
            if now.0 - swept.0 > SWEEP_EVERY_MS {
                swept = now;
                self.sweep().await;
            }
        }
    }

    async fn wake(&self, wakeups: &mut broadcast::Receiver<Arc<str>>, stop: &CancellationToken) -> Wake {
        let news = async {
            loop {
                match wakeups.recv().await {
                    Ok(topic) if *topic == *TOPIC || *topic == *EVERYWHERE => return Wake::Look,
                    Ok(topic) if topic.starts_with(web_push::TOPIC) => return Wake::Settled(topic),
                    Err(RecvError::Lagged(_)) => return Wake::Look,
                    Ok(_) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let wait = self.until_next_expiry().min(POLL_EVERY);
        tokio::select! {
            biased;
            () = stop.cancelled() => Wake::Stop,
            wake = news => wake,
            () = tokio::time::sleep(wait) => Wake::Look,
        }
    }

    fn until_next_expiry(&self) -> Duration {
        let left = self.revocations.next().map(|next| next.0.saturating_sub(self.clock.now().0));
        left.map_or(POLL_EVERY, |left| Duration::from_millis(u64::try_from(left).unwrap_or_default()))
    }

    /// Cancels the tokens of all credentials that have expired or were deleted.
    pub(super) async fn check_revocations(&self) {
        let now = self.clock.now();
        self.revocations.revoke_where(|_, active| active.until.is_some_and(|until| until <= now));
        if let Err(error) = self.check_credentials().await {
            tracing::warn!(%error, "could not look up who still has access");
        }
    }

    async fn check_credentials(&self) -> Result<(), DbError> {
        for (browsers, sql) in
            [(true, "SELECT id FROM browsers WHERE id IN"), (false, "SELECT id FROM tokens WHERE id IN")]
        {
            let ids = self.revocations.ids(browsers);
            for some in ids.chunks(IDS_AT_ONCE) {
                let found = self.db.run(vec![among(sql, Vec::new(), some)], Vec::new()).await?;
                let rows = found.into_iter().flat_map(|found| found.rows);
                let mut gone: HashSet<Arc<str>> = some.iter().cloned().collect();
                for row in rows {
                    gone.remove(&row.text(0)?);
                }
                self.revocations.revoke_where(|credential, _| match credential {
                    Credential::Browser(id) => browsers && gone.contains(id),
                    Credential::Token(id) => !browsers && gone.contains(id),
                });
            }
        }
        Ok(())
    }

    /// Deletes expired rows.
    async fn sweep(&self) {
        let now = self.clock.now().0;
        let absent = now - super::browsers::ABSENCE_MAX_MS;
        let day = 24 * 60 * 60 * 1000;
        let old = |sql: &'static str, before: i64| Statement::new(sql, [before.into()]);
        let work = vec![
            old("DELETE FROM browsers WHERE seen_at < $1", absent),
            old("DELETE FROM browsers WHERE share IN (SELECT id FROM shares WHERE until <= $1)", now),
            old("DELETE FROM shares WHERE until <= $1", now),
            // A used or expired code is remembered for a while, so that its refusal can say which.
            old("DELETE FROM joins WHERE until <= $1", now - 30 * day),
            old("DELETE FROM challenges_used WHERE until <= $1", now),
            old("DELETE FROM pushes WHERE at <= $1", now - 2 * day),
        ];
        if let Err(error) = self.db.run(work, Vec::new()).await {
            tracing::warn!(%error, "could not delete expired entries");
        }
    }
}

/// A statement with a list of ids, which follow its other values.
pub(super) fn among(sql: &str, mut values: Vec<SqlValue>, ids: &[Arc<str>]) -> Statement {
    let first = values.len() + 1;
    let placeholders: Vec<String> = (first..first + ids.len()).map(|number| format!("${number}")).collect();
    values.extend(ids.iter().map(|id| SqlValue::from(Arc::clone(id))));
    Statement::new(format!("{sql} ({})", placeholders.join(", ")), values)
}
