//! One node of a hub: the state that all of its routes share, and its background tasks.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use engine::{Clock, SessionId, Timestamp};
use store::sql::{Db, DbError, SqlValue, Statement, StatementResult, log, migrate};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::ReplyError;

use crate::audit::AuditEntry;
use crate::authenticator::{HubAuthenticator, PersonId};
use crate::frame_relay::FrameRelays;
use crate::hub_tables;
use crate::ids::NodeId;
use crate::long_polls::LongPolls;
use crate::machine_calls::PendingCalls;
use crate::machine_sockets::MachineSockets;
use crate::metrics::HubMetrics;
use crate::node_upkeep::PendingDisconnects;
use crate::people::People;
use crate::people_facade::PeopleApi;
use crate::session_list::SessionLists;
use crate::topics::{self, Topics};
use crate::view_feed::ViewFeeds;
use crate::websocket_queues::RequestRates;

/// A node that was silent for this long counts as dead.
pub const NODE_SILENCE_MS: i64 = 15_000;
/// How long the database may take to answer with its time.
const CLOCK_WAIT_MS: i64 = 1_000;
/// How long a node's entry in `watchers` is valid.
pub const WATCH_MS: i64 = 30_000;
/// How long connections may take to end.
const FINISH_GRACE: Duration = Duration::from_secs(3);
/// How long clients are told to wait before they try again: the same as over HTTP (`Refusal`).
pub const RETRY_SECONDS: u64 = 1;

#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Where people and bridges reach the hub, without a final slash. Without one, the address that a request was sent to.
    pub public_url: Option<String>,
    /// The name that people see.
    pub name: String,
    pub version: String,
    /// A session whose bridge was silent for this long is stale.
    pub stale_after: Duration,
    /// After this long it is no longer listed.
    pub prune_after: Duration,
    /// After this long its mirror is deleted; without a value, never: the mirror may be the only copy there is.
    pub forget_after: Option<Duration>,
    /// How long audit entries are kept.
    pub audit_after: Duration,
    /// A token for `/metrics`; every machine's token is accepted there too.
    pub metrics_token: Option<String>,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            public_url: None,
            name: "hub".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            stale_after: Duration::from_secs(90),
            prune_after: Duration::from_secs(7 * 24 * 3600),
            forget_after: None,
            audit_after: Duration::from_secs(90 * 24 * 3600),
            metrics_token: None,
        }
    }
}

pub struct HubParts {
    pub db: Arc<dyn Db>,
    /// Authenticates browsers and machines.
    pub accounts: Arc<dyn HubAuthenticator>,
    /// The same accounts, where they are kept in the hub's database.
    pub people: Option<Arc<People>>,
    pub clock: Arc<dyn Clock>,
    pub node: NodeId,
    /// The database is this process's own: whatever another node left in it is of a dead node.
    pub owns_database: bool,
    pub options: HubOptions,
}

pub struct Hub {
    pub(crate) db: Arc<dyn Db>,
    pub(crate) people_api: PeopleApi,
    clock: Arc<dyn Clock>,
    /// Added to this node's clock to get the database's time, which all nodes share.
    clock_offset_ms: AtomicI64,
    /// The database is this process's own, so it has the same clock.
    owns_database: bool,
    pub(crate) options: HubOptions,
    pub(crate) node: NodeId,
    pub(crate) topics: Topics,
    pub(crate) feeds: ViewFeeds,
    pub(crate) session_lists: SessionLists,
    pub(crate) machine_sockets: MachineSockets,
    pub(crate) pending_calls: PendingCalls,
    pub(crate) frame_relays: FrameRelays,
    pub(crate) long_polls: LongPolls,
    pub(crate) request_rates: RequestRates,
    pub(crate) metrics: HubMetrics,
    pub(crate) pending_disconnects: PendingDisconnects,
    /// Whether the database was available for the last query.
    database_answers: AtomicBool,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Hub {
    /// Migrates the database to the layout that this node needs, and starts the background tasks.
    pub async fn open(parts: HubParts) -> Result<Arc<Self>, DbError> {
        let HubParts { db, accounts, people, clock, node, owns_database, options } = parts;
        migrate(db.as_ref(), "logs", &log::STEPS).await?;
        migrate(db.as_ref(), hub_tables::LAYOUT, &hub_tables::STEPS).await?;
        // Share links are deleted together with their mirrors, so their tables must exist.
        crate::people::lay_out(db.as_ref()).await?;
        let wakeups = db.subscribe();
        let hub = Arc::new(Self {
            database_answers: AtomicBool::new(true),
            db,
            people_api: PeopleApi::new(accounts, people),
            clock,
            clock_offset_ms: AtomicI64::new(0),
            owns_database,
            options,
            node,
            topics: Topics::default(),
            feeds: ViewFeeds::default(),
            session_lists: SessionLists::default(),
            machine_sockets: MachineSockets::default(),
            pending_calls: PendingCalls::default(),
            frame_relays: FrameRelays::default(),
            long_polls: LongPolls::default(),
            request_rates: RequestRates::default(),
            metrics: HubMetrics::default(),
            pending_disconnects: PendingDisconnects::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        hub.sync_clock().await?;
        let mut first = if owns_database { clear_dead_nodes() } else { Vec::new() };
        first.push(hub.beat());
        hub.run(first, Vec::new()).await?;
        let topics_hub = Arc::clone(&hub);
        hub.start(async move { topics_hub.topics.run(wakeups).await });
        let beating = Arc::clone(&hub);
        hub.start(async move { beating.keep_alive().await });
        let polling = Arc::clone(&hub);
        hub.start(async move { ViewFeeds::poll(&polling).await });
        let reading = Arc::clone(&hub);
        hub.start(async move { reading.read_mail().await });
        Ok(hub)
    }

    /// The database's time, which all nodes share: they compare times that other nodes wrote.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.now().0.saturating_add(self.clock_offset_ms.load(Ordering::Relaxed)))
    }

    /// Asks the database for its time. An answer that took too long is not precise, and is ignored.
    pub(crate) async fn sync_clock(&self) -> Result<(), DbError> {
        if self.owns_database {
            return Ok(());
        }
        let before = self.clock.now().0;
        let rows = self.rows(Statement::new("SELECT NOW_MS", [])).await?;
        let took = self.clock.now().0.saturating_sub(before);
        if let Some(row) = rows.first()
            && (0..CLOCK_WAIT_MS).contains(&took)
        {
            let offset = row.int(0)?.saturating_sub(before.saturating_add(took / 2));
            let known = self.clock_offset_ms.swap(offset, Ordering::Relaxed);
            if (offset - known).abs() > CLOCK_WAIT_MS {
                tracing::warn!(
                    offset_ms = offset,
                    "this machine's clock differs from the database's; using the time of the database"
                );
            }
        }
        Ok(())
    }

    /// Runs a task until it is done or the hub stops.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        drop(self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = work => {}
            }
        }));
    }

    /// Cancelled when the hub stops.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Work that [`Hub::finish`] waits for.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
        self.tasks.spawn(work)
    }

    /// Runs statements, and remembers whether the database was available.
    pub(crate) async fn run(
        &self,
        work: Vec<Statement>,
        topics: Vec<String>,
    ) -> Result<Vec<StatementResult>, DbError> {
        let done = self.db.run(work, topics).await;
        match &done {
            Err(error @ DbError::Unavailable { .. }) => {
                self.database_answers.store(false, Ordering::Relaxed);
                self.metrics.store_errors.inc();
                tracing::debug!(%error, "the database is not reachable");
            }
            Err(error @ DbError::Failed { .. }) => {
                self.metrics.store_errors.inc();
                tracing::warn!(%error, "a write to the database failed");
            }
            Ok(_) | Err(DbError::Refused { .. }) => {
                self.database_answers.store(true, Ordering::Relaxed);
            }
        }
        done
    }

    /// The rows of one query.
    pub(crate) async fn rows(&self, question: Statement) -> Result<Vec<store::sql::Row>, DbError> {
        let found = self.run(vec![question], Vec::new()).await?;
        Ok(found.into_iter().next().map(|found| found.rows).unwrap_or_default())
    }

    /// Whether the database was available for the last query.
    pub fn is_ready(&self) -> bool {
        !self.stop.is_cancelled() && self.database_answers.load(Ordering::Relaxed)
    }

    /// Sessions whose bridge was silent since then are not listed.
    pub(crate) fn listed_since(&self) -> i64 {
        self.ago(self.options.prune_after)
    }

    pub(crate) fn ago(&self, time: Duration) -> i64 {
        self.now().0.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
    }

    /// Deletes everything of a session: because its machine deleted it, or its bridge was silent for too long. Refused
    /// if this person has no such session, or its bridge was heard of at or after `heard_before`.
    pub(crate) async fn forget(
        &self,
        session: &SessionId,
        person: &PersonId,
        address: Option<IpAddr>,
        heard_before: i64,
    ) -> Result<(), DbError> {
        let own = Statement::new(
            "UPDATE mirrors SET detached = 1 WHERE session = $1 AND person = $2 AND heard_at < $3",
            [session.as_str().into(), person.0.as_ref().into(), heard_before.into()],
        );
        let entry =
            AuditEntry::new("session.forgotten", Some(&person.0)).about(session.as_str()).from(address);
        let mut work = vec![own.must_change(1)];
        work.extend(hub_tables::forget(session));
        work.push(entry.statement(self.now(), Some(self.node.as_str())));
        let news = vec![
            topics::person(&person.0),
            topics::session(session.as_str()),
            // Visitors with a link to it are signed out.
            crate::people::TOPIC.to_owned(),
        ];
        self.run(work, news).await.map(drop)
    }

    /// Writes an audit entry in the background. A failure is counted.
    pub(crate) fn record(self: &Arc<Self>, entry: AuditEntry) {
        let (hub, at) = (Arc::clone(self), self.now());
        drop(self.tasks.spawn(async move {
            let statement = entry.statement(at, Some(hub.node.as_str()));
            // Counted by `run`.
            drop(hub.run(vec![statement], Vec::new()).await);
        }));
    }

    pub(crate) fn beat(&self) -> Statement {
        Statement::new(
            "INSERT INTO nodes (id, seen_at) VALUES ($1, $2)
             ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at",
            [self.node.as_str().into(), self.now().0.into()],
        )
    }

    /// Closes all connections, and records that this node holds nothing any more.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(FINISH_GRACE, self.tasks.wait()).await.is_err() {
            tracing::info!("some connections did not end in time");
        }
        let node: SqlValue = self.node.as_str().into();
        let now = self.now().0;
        let work = vec![
            Statement::new(
                "UPDATE machines SET node = NULL, seen_at = $2 WHERE node = $1",
                [node.clone(), now.into()],
            ),
            Statement::new("UPDATE mirrors SET node = NULL WHERE node = $1", [node.clone()]),
            Statement::new("DELETE FROM watchers WHERE node = $1", [node.clone()]),
            Statement::new("DELETE FROM nodes WHERE id = $1", [node]),
        ];
        if let Err(error) = self.run(work, Vec::new()).await {
            tracing::info!(%error, "could not announce that this node ends; the others notice its silence");
        }
    }
}

/// Clears what nodes left that ended without `finish`.
fn clear_dead_nodes() -> Vec<Statement> {
    let work = [
        "UPDATE machines SET node = NULL WHERE node IS NOT NULL",
        "UPDATE mirrors SET node = NULL WHERE node IS NOT NULL",
        "DELETE FROM watchers",
        "DELETE FROM mail",
        "DELETE FROM nodes",
    ];
    work.into_iter().map(|sql| Statement::new(sql, [])).collect()
}

/// The error reply for a failed query.
pub(crate) fn database_error(error: &DbError) -> ReplyError {
    match error {
        DbError::Unavailable { .. } => wrong(
            "busy",
            format!("the hub's database is not reachable; nothing is lost; try again in {RETRY_SECONDS} s"),
        ),
        DbError::Refused { .. } | DbError::Failed { .. } => {
            tracing::warn!(%error, "the database did not do what it must");
            wrong("failed", "the hub's database refused the request; the hub's log says why")
        }
    }
}

pub(crate) fn wrong(code: &str, message: impl Into<String>) -> ReplyError {
    ReplyError { code: code.to_owned(), message: message.into() }
}
