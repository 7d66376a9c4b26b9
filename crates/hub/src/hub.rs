//! One node of a hub: what all of its doors share, and what it does by itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use engine::{Clock, SessionId, Timestamp};
use store::sql::{Db, DbError, Found, Statement, Value, log, migrate};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::Wrong;

use crate::audit::Note;
use crate::calls::Calls;
use crate::feed::Feeds;
use crate::frames::Relays;
use crate::guest::{Doorkeeper, PersonId};
use crate::ids::NodeId;
use crate::machines::Machines;
use crate::metrics::Metrics;
use crate::people::People;
use crate::polls::Polls;
use crate::reaper::Owed;
use crate::schema;
use crate::shelf::Shelves;
use crate::socket::Paces;
use crate::topics::{self, Topics};
use crate::welcome::Welcome;

/// A node that has said nothing for this long is dead.
pub const NODE_SILENCE_MS: i64 = 15_000;
/// How long the database may take to say what time it is.
const CLOCK_WAIT_MS: i64 = 1_000;
/// What a node says of its watchers holds this long.
pub const WATCH_MS: i64 = 30_000;
/// How long everything may take to end.
const FINISH_GRACE: Duration = Duration::from_secs(3);
/// What those who ask in vain are told to wait: the same as over HTTP (`Refusal`).
pub const RETRY_SECONDS: u64 = 1;

#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Where people and bridges find the hub, without a slash at its end; otherwise, where they were found to be.
    pub public_url: Option<String>,
    /// What people call it.
    pub name: String,
    pub version: String,
    /// A session whose bridge was silent for this long is stale.
    pub stale_after: Duration,
    /// After this long it is not listed any more.
    pub prune_after: Duration,
    /// After this long its mirror is forgotten; without one, never: what is mirrored may be the only copy there is.
    pub forget_after: Option<Duration>,
    /// How long the record of who did what is kept.
    pub audit_after: Duration,
    /// Opens `/metrics`, besides every machine's token.
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
    /// Who is let in.
    pub door: Arc<dyn Doorkeeper>,
    /// The same, where there are real people.
    pub people: Option<Arc<People>>,
    pub clock: Arc<dyn Clock>,
    pub node: NodeId,
    /// The database is this process's own: whatever another node has left in it is dead.
    pub alone: bool,
    pub options: HubOptions,
}

pub struct Hub {
    pub(crate) db: Arc<dyn Db>,
    pub(crate) door: Welcome,
    clock: Arc<dyn Clock>,
    /// What is to be added to this node's clock to have the database's, which is one for all nodes.
    clock_offset_ms: AtomicI64,
    /// The database is this process's own, and has no other clock.
    alone: bool,
    pub(crate) options: HubOptions,
    pub(crate) node: NodeId,
    pub(crate) topics: Topics,
    pub(crate) feeds: Feeds,
    pub(crate) shelves: Shelves,
    pub(crate) machines: Machines,
    pub(crate) calls: Calls,
    pub(crate) relays: Relays,
    pub(crate) polls: Polls,
    pub(crate) paces: Paces,
    pub(crate) metrics: Metrics,
    pub(crate) owed: Owed,
    /// Whether the database did what it was last asked for.
    answers: AtomicBool,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Hub {
    /// Brings the database to the layout that this node needs, and begins to live on it.
    pub async fn open(parts: HubParts) -> Result<Arc<Self>, DbError> {
        let HubParts { db, door, people, clock, node, alone, options } = parts;
        migrate(db.as_ref(), "logs", &log::STEPS).await?;
        migrate(db.as_ref(), schema::LAYOUT, &schema::STEPS).await?;
        // Links go with the mirrors that they lead to.
        crate::people::lay_out(db.as_ref()).await?;
        let heard = db.heard();
        let hub = Arc::new(Self {
            answers: AtomicBool::new(true),
            db,
            door: Welcome::new(door, people),
            clock,
            clock_offset_ms: AtomicI64::new(0),
            alone,
            options,
            node,
            topics: Topics::default(),
            feeds: Feeds::default(),
            shelves: Shelves::default(),
            machines: Machines::default(),
            calls: Calls::default(),
            relays: Relays::default(),
            polls: Polls::default(),
            paces: Paces::default(),
            metrics: Metrics::default(),
            owed: Owed::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        hub.look_at_clock().await?;
        let mut first = if alone { nobody_is_here() } else { Vec::new() };
        first.push(hub.beat());
        hub.run(first, Vec::new()).await?;
        let listening = Arc::clone(&hub);
        hub.start(async move { listening.topics.run(heard).await });
        let beating = Arc::clone(&hub);
        hub.start(async move { beating.live().await });
        let looking = Arc::clone(&hub);
        hub.start(async move { Feeds::look(&looking).await });
        let reading = Arc::clone(&hub);
        hub.start(async move { reading.read_mail().await });
        Ok(hub)
    }

    /// The time by which all nodes judge each other: what they write down for the others is compared by the others.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.now().0.saturating_add(self.clock_offset_ms.load(Ordering::Relaxed)))
    }

    /// Asks the database what time it is. An answer that took long says little, and changes nothing.
    pub(crate) async fn look_at_clock(&self) -> Result<(), DbError> {
        if self.alone {
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
                    "this machine's clock is not the database's; its time is taken"
                );
            }
        }
        Ok(())
    }

    /// Runs until it is done or the hub stops.
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

    /// Asks the database, and remembers whether it answers.
    pub(crate) async fn run(&self, work: Vec<Statement>, topics: Vec<String>) -> Result<Vec<Found>, DbError> {
        let done = self.db.run(work, topics).await;
        match &done {
            Err(error @ DbError::Unavailable { .. }) => {
                self.answers.store(false, Ordering::Relaxed);
                self.metrics.store_errors.inc();
                tracing::debug!(%error, "the database is away");
            }
            Err(error @ DbError::Failed { .. }) => {
                self.metrics.store_errors.inc();
                tracing::warn!(%error, "the database did not take something");
            }
            Ok(_) | Err(DbError::Refused { .. }) => {
                self.answers.store(true, Ordering::Relaxed);
            }
        }
        done
    }

    /// The rows of one question.
    pub(crate) async fn rows(&self, question: Statement) -> Result<Vec<store::sql::Row>, DbError> {
        let found = self.run(vec![question], Vec::new()).await?;
        Ok(found.into_iter().next().map(|found| found.rows).unwrap_or_default())
    }

    /// Whether the database did what it was last asked for.
    pub fn is_ready(&self) -> bool {
        !self.stop.is_cancelled() && self.answers.load(Ordering::Relaxed)
    }

    /// Sessions that were not heard of since are not listed.
    pub(crate) fn listed_since(&self) -> i64 {
        self.ago(self.options.prune_after)
    }

    pub(crate) fn ago(&self, time: Duration) -> i64 {
        self.now().0.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
    }

    /// Nothing of a session is kept any more: it is deleted where it came from, or was not heard of for too long. Refused,
    /// if this person has none of this id, or it was heard of since.
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
        let note = Note::new("session.forgotten", Some(&person.0)).about(session.as_str()).from(address);
        let mut work = vec![own.must_change(1)];
        work.extend(schema::forget(session));
        work.push(note.statement(self.now(), Some(self.node.as_str())));
        let news = vec![
            topics::person(&person.0),
            topics::session(session.as_str()),
            // Who came by a link to it is seen off.
            crate::people::TOPIC.to_owned(),
        ];
        self.run(work, news).await.map(drop)
    }

    /// Recorded when there is time; that it could not be is counted.
    pub(crate) fn note(self: &Arc<Self>, note: Note) {
        let (hub, at) = (Arc::clone(self), self.now());
        drop(self.tasks.spawn(async move {
            let statement = note.statement(at, Some(hub.node.as_str()));
            // Counted where the database is asked.
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

    /// Ends all connections in good order, and says that this node holds nothing any more.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(FINISH_GRACE, self.tasks.wait()).await.is_err() {
            tracing::info!("some connections did not end in time");
        }
        let node: Value = self.node.as_str().into();
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
            tracing::info!(%error, "the other nodes learn of this one's end by its silence");
        }
    }
}

/// What nodes that ended without a word have left.
fn nobody_is_here() -> Vec<Statement> {
    let work = [
        "UPDATE machines SET node = NULL WHERE node IS NOT NULL",
        "UPDATE mirrors SET node = NULL WHERE node IS NOT NULL",
        "DELETE FROM watchers",
        "DELETE FROM mail",
        "DELETE FROM nodes",
    ];
    work.into_iter().map(|sql| Statement::new(sql, [])).collect()
}

/// What a person is told when the database does not do something.
pub(crate) fn away(error: &DbError) -> Wrong {
    match error {
        DbError::Unavailable { .. } => wrong(
            "busy",
            format!("the hub's database is away; nothing is lost; try again in {RETRY_SECONDS} s"),
        ),
        DbError::Refused { .. } | DbError::Failed { .. } => {
            tracing::warn!(%error, "the database did not do what it must");
            wrong("failed", "the hub's database refused; the hub's log says why")
        }
    }
}

pub(crate) fn wrong(code: &str, message: impl Into<String>) -> Wrong {
    Wrong { code: code.to_owned(), message: message.into() }
}
