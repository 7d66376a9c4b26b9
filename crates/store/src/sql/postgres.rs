//! The PostgreSQL database, for several machines.
//!
//! A few connections write and a few read. Each is served by a worker that takes everything that is queued and commits it
//! together ([`connection`]). Lost connections are reopened automatically; while there are none, work is refused after a
//! short wait. The bus ([`bus`]) forwards wake-ups to the other processes.
//!
//! **Invariant:** work that a worker has taken is answered within [`GROUP_MAX_TIME`], whatever the server does.

mod address;
mod bus;
mod connection;
mod nats;
mod statement_kind;
mod tls;
mod value;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::address::DatabaseAddress;
pub use self::address::PostgresAddress;
use self::bus::Bus;
use self::connection::{ConnectionLost, PgConnection, WorkItem, WorkResult, conflict};
use self::statement_kind::StatementKind;
use super::{Db, DbError, DbResult, SqlValue, Statement, StatementResult, migrate};

const WRITERS: usize = 2;
const READERS: usize = 2;
/// Pieces of work that may wait for the writers, and as many for the readers.
const WAITING_MAX: usize = 1024;
/// Pieces that are committed together. A transaction with more than 64 savepoints slows down every reader.
const GROUP_MAX: usize = 60;
const TOPICS_MAX: usize = 4096;
/// Work that no worker has taken by then is refused.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A group that is not done by then is given up together with its connection.
const GROUP_MAX_TIME: Duration = Duration::from_secs(10);
const MIGRATION_MAX_TIME: Duration = Duration::from_secs(15 * 60);
/// How often work is tried again by itself after a conflict.
const TRIES: usize = 3;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A database that several processes share.
pub struct PostgresDb {
    writes: mpsc::Sender<QueuedWork>,
    reads: mpsc::Sender<QueuedWork>,
    bus: Arc<Bus>,
    health: Arc<ConnectionHealth>,
    /// Everything that was started for it ends with it.
    _stop: DropGuard,
}

struct QueuedWork {
    statements: Vec<Statement>,
    topics: Vec<String>,
    taken: oneshot::Sender<()>,
    done: oneshot::Sender<WorkResult>,
}

/// What the workers share about failing connections.
#[derive(Default)]
struct ConnectionHealth {
    /// Why there is no connection, for those who are refused meanwhile.
    reason: Mutex<Option<String>>,
    /// Counts the connections that broke. What broke one has usually broken the others too, and a silent one
    /// is only noticed late, so connections that were opened before a break are not used again.
    breaks: AtomicU64,
}

impl PostgresDb {
    /// Connects once, so that a wrong URL or password is reported at once; from then on connections are
    /// reopened as needed. `bus` is the URL of a NATS server that carries wake-ups faster than the database
    /// does.
    pub async fn connect(url: &str, bus: Option<&str>) -> Result<Self, DbError> {
        let address = DatabaseAddress::parse(url)?;
        let bus_address = bus.map(nats::BusAddress::parse).transpose()?;
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let health = Arc::<ConnectionHealth>::default();
        let bus = Arc::new(Bus::new(broadcast::Sender::new(TOPICS_MAX)));
        let first = open(&address, &tasks).await?;
        let start = |kind, count, first: Option<PgConnection>| {
            let (sender, queue) = mpsc::channel(WAITING_MAX);
            let queue = Arc::new(tokio::sync::Mutex::new(queue));
            let mut first = first;
            for _ in 0..count {
                let worker = Worker {
                    kind,
                    queue: Arc::clone(&queue),
                    address: address.clone(),
                    session: first.take(),
                    breaks: 0,
                    bus: Arc::clone(&bus),
                    health: Arc::clone(&health),
                    tasks: tasks.clone(),
                };
                let stopped = stop.clone();
                tasks.spawn(async move { stopped.run_until_cancelled(worker.serve()).await });
            }
            sender
        };
        let writes = start(StatementKind::Write, WRITERS, Some(first));
        let reads = start(StatementKind::Read, READERS, None);
        let db = Self { writes, reads, bus, health, _stop: stop.clone().drop_guard() };
        let nats = match bus_address {
            Some(nats) => Some((nats, subject(&db).await?)),
            None => None,
        };
        bus::start(&db.bus, address, nats, &tasks, &stop);
        Ok(db)
    }
}

/// The NATS subject that the processes of this database share; others may use the same server.
async fn subject(db: &PostgresDb) -> Result<String, DbError> {
    migrate(db, "bus", &["CREATE TABLE bus_subject (one BIGINT PRIMARY KEY, subject TEXT NOT NULL)"]).await?;
    let new = format!("ropewalk.{}", uuid::Uuid::new_v4());
    let insert = "INSERT INTO bus_subject (one, subject) VALUES (1, $1) ON CONFLICT (one) DO NOTHING";
    db.run(vec![Statement::new(insert, [SqlValue::from(new)])], Vec::new()).await?;
    let found = db.run(vec![Statement::new("SELECT subject FROM bus_subject", [])], Vec::new()).await?;
    let row = found.first().and_then(|found| found.rows.first());
    let row = row.ok_or_else(|| DbError::Failed { reason: "the name of the bus is gone".into() })?;
    Ok(row.text(0)?.to_string())
}

impl Db for PostgresDb {
    fn run(&self, statements: Vec<Statement>, topics: Vec<String>) -> DbResult<'_, Vec<StatementResult>> {
        Box::pin(async move {
            statements.iter().try_for_each(Statement::check)?;
            let reads = StatementKind::of_all(&statements) == StatementKind::Read && topics.is_empty();
            let queue = if reads { &self.reads } else { &self.writes };
            let (taken, mut when_taken) = oneshot::channel();
            let (done, answer) = oneshot::channel();
            let work = QueuedWork { statements, topics, taken, done };
            let gone = || DbError::Unavailable { reason: "it was closed".into() };
            let queued = queue.send_timeout(work, WAIT_MAX).await;
            queued.map_err(|_| self.health.refusal())?;
            if tokio::time::timeout(WAIT_MAX, &mut when_taken).await.is_err() {
                // From here on no worker can take it, unless one just has.
                when_taken.close();
                if when_taken.try_recv().is_err() {
                    return Err(self.health.refusal());
                }
            }
            answer.await.map_err(|_| gone())?
        })
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.bus.subscribe()
    }
}

impl ConnectionHealth {
    fn note(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Acquire)
    }

    fn refusal(&self) -> DbError {
        let noted = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        DbError::Unavailable {
            reason: noted.unwrap_or_else(|| "too many requests are waiting for it".into()),
        }
    }
}

async fn open(address: &DatabaseAddress, tasks: &TaskTracker) -> Result<PgConnection, DbError> {
    let (client, connection) = address.open().await?;
    tasks.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = address::cause(&error), "a connection to the database ended");
        }
    });
    DatabaseAddress::settle(&client).await?;
    Ok(PgConnection::new(client))
}

struct Worker {
    kind: StatementKind,
    queue: Arc<tokio::sync::Mutex<mpsc::Receiver<QueuedWork>>>,
    address: DatabaseAddress,
    session: Option<PgConnection>,
    /// How many connections had broken when this one was opened.
    breaks: u64,
    bus: Arc<Bus>,
    health: Arc<ConnectionHealth>,
    tasks: TaskTracker,
}

impl Worker {
    /// Runs until the queue is closed. A worker without a connection takes no work, so that connected
    /// workers do it, and nobody waits longer than until the refusal.
    async fn serve(mut self) {
        loop {
            self.connect().await;
            let Some(group) = self.take().await else { return };
            let (layouts, mut group): (Vec<_>, Vec<_>) = group
                .into_iter()
                .partition(|work| StatementKind::of_all(&work.statements) == StatementKind::Layout);
            // Everybody locks in the same order, so that hardly anybody waits for each other.
            group.sort_by(|one, other| key(one).cmp(&key(other)));
            self.commit(group).await;
            for layout in layouts {
                self.commit(vec![layout]).await;
            }
        }
    }

    async fn connect(&mut self) {
        let mut pause = PAUSE_MIN;
        while !self.is_connected() {
            if let Err(error) = self.open().await {
                let reason = reason_of(error);
                tracing::warn!(reason, "the database cannot be reached");
                self.health.note(Some(reason));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn is_connected(&self) -> bool {
        let good = |session: &PgConnection| !session.is_closed() && self.breaks == self.health.breaks();
        self.session.as_ref().is_some_and(good)
    }

    async fn open(&mut self) -> Result<(), DbError> {
        self.breaks = self.health.breaks();
        self.session = None;
        self.session = Some(open(&self.address, &self.tasks).await?);
        self.health.note(None);
        Ok(())
    }

    /// Takes all waiting work. Work whose caller has given up is left out.
    async fn take(&self) -> Option<Vec<ClaimedWork>> {
        let mut queue = self.queue.lock().await;
        let mut group = Vec::new();
        while group.is_empty() {
            group.extend(ClaimedWork::take(queue.recv().await?));
        }
        while group.len() < GROUP_MAX
            && let Ok(next) = queue.try_recv()
        {
            group.extend(ClaimedWork::take(next));
        }
        Some(group)
    }

    async fn commit(&mut self, group: Vec<ClaimedWork>) {
        let (mut pieces, rest): (Vec<WorkItem>, Vec<_>) =
            group.into_iter().map(|work| (WorkItem::new(work.statements), (work.topics, work.done))).unzip();
        let outcome = self.attempt(&mut pieces).await;
        if let Err(ConnectionLost(reason)) = &outcome {
            tracing::debug!(reason, "dropped a group of writes");
            self.health.breaks.fetch_add(1, Ordering::AcqRel);
        }
        for (piece, (topics, done)) in pieces.into_iter().zip(rest) {
            let result = match (&outcome, piece.result) {
                // One that was not even begun has its answer already.
                (_, Some(result @ Err(DbError::Failed { .. }))) => result,
                (Ok(()), Some(result)) => result,
                (Ok(()), None) => Err(conflict()),
                (Err(ConnectionLost(reason)), _) => Err(DbError::Unavailable { reason: reason.clone() }),
            };
            if result.is_ok() {
                self.bus.publish(topics);
            }
            // The caller may be gone.
            drop(done.send(result));
        }
    }

    /// Runs all items together, and then those that had a conflict one by one.
    async fn attempt(&mut self, pieces: &mut [WorkItem]) -> Result<(), ConnectionLost> {
        if pieces.is_empty() {
            return Ok(());
        }
        if !self.is_connected() {
            self.open().await.map_err(|error| ConnectionLost(reason_of(error)))?;
        }
        let kind = self.kind;
        let Some(session) = &mut self.session else {
            return Err(ConnectionLost("not connected".into()));
        };
        within(session, kind, pieces).await?;
        for piece in pieces {
            for _ in 0..TRIES {
                if piece.result.is_none() {
                    within(session, kind, std::slice::from_mut(piece)).await?;
                }
            }
        }
        Ok(())
    }
}

async fn within(
    session: &mut PgConnection,
    kind: StatementKind,
    pieces: &mut [WorkItem],
) -> Result<(), ConnectionLost> {
    let layout = |piece: &WorkItem| StatementKind::of_all(&piece.statements) == StatementKind::Layout;
    let (limit, done) = match pieces {
        [piece] if layout(piece) => {
            (MIGRATION_MAX_TIME, tokio::time::timeout(MIGRATION_MAX_TIME, session.migrate(piece)).await)
        }
        pieces if kind == StatementKind::Read => {
            (GROUP_MAX_TIME, tokio::time::timeout(GROUP_MAX_TIME, session.read(pieces)).await)
        }
        pieces => (GROUP_MAX_TIME, tokio::time::timeout(GROUP_MAX_TIME, session.write(pieces)).await),
    };
    done.unwrap_or_else(|_| Err(ConnectionLost(format!("it did not answer for {} seconds", limit.as_secs()))))
}

fn reason_of(error: DbError) -> String {
    match error {
        DbError::Unavailable { reason } | DbError::Failed { reason } => reason,
        DbError::Refused { .. } => error.to_string(),
    }
}

/// Queued work that a worker has taken and whose caller still waits.
struct ClaimedWork {
    statements: Vec<Statement>,
    topics: Vec<String>,
    done: oneshot::Sender<WorkResult>,
}

impl ClaimedWork {
    fn take(work: QueuedWork) -> Option<Self> {
        let QueuedWork { statements, topics, taken, done } = work;
        taken.send(()).ok().map(|()| Self { statements, topics, done })
    }
}

/// What a work item locks first, as far as can be told: nearly always the row that its first value names.
fn key(work: &ClaimedWork) -> Option<&str> {
    work.statements.first()?.values.iter().find_map(|value| match value {
        SqlValue::Text(text) => Some(&**text),
        SqlValue::Null | SqlValue::Int(_) | SqlValue::Bytes(_) => None,
    })
}
