//! PostgreSQL, for several machines.
//!
//! A few connections write and a few read, each served by a worker that takes whatever waits and commits it
//! together ([`session`]). Connections come back by themselves; while there are none, work is refused after a
//! short wait. What was told to a listener here is told to the other processes by the bus ([`bus`]).
//!
//! **Invariant:** work that was taken is answered within [`GROUP_MAX_TIME`], whatever the server does.

mod address;
mod bus;
mod kind;
mod nats;
mod session;
mod tls;
mod value;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::address::Address;
pub use self::address::PostgresAddress;
use self::bus::Bus;
use self::kind::Kind;
use self::session::{Broken, Done, Piece, Session, in_the_way};
use super::{Db, DbError, DbResult, Found, Statement, Value, migrate};

const WRITERS: usize = 2;
const READERS: usize = 2;
/// Pieces of work that may wait for the writers, and as many for the readers.
const WAITING_MAX: usize = 1024;
/// Pieces that are committed together. A transaction with more than 64 savepoints slows down every reader.
const GROUP_MAX: usize = 60;
const TOPICS_MAX: usize = 4096;
/// Work that nobody has taken by then is refused.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A group that is not done by then is given up together with its connection.
const GROUP_MAX_TIME: Duration = Duration::from_secs(10);
const MIGRATION_MAX_TIME: Duration = Duration::from_secs(15 * 60);
/// Work that somebody was in the way of is tried so often by itself.
const TRIES: usize = 3;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A database that other processes use too.
pub struct PostgresDb {
    writes: mpsc::Sender<Work>,
    reads: mpsc::Sender<Work>,
    bus: Arc<Bus>,
    trouble: Arc<Trouble>,
    /// Everything that was started for it ends with it.
    _stop: DropGuard,
}

struct Work {
    statements: Vec<Statement>,
    topics: Vec<String>,
    taken: oneshot::Sender<()>,
    done: oneshot::Sender<Done>,
}

/// What the workers know of each other's trouble.
#[derive(Default)]
struct Trouble {
    /// Why there is no connection, for those who are refused meanwhile.
    reason: Mutex<Option<String>>,
    /// Counts the connections that broke. What ended one has mostly ended the others too, and one that is silent
    /// takes long to be found out: so those that were opened before are not used again.
    breaks: AtomicU64,
}

impl PostgresDb {
    /// Connects once, so that a wrong URL or password is told at once; from then on connections come and go by
    /// themselves. `bus` is the URL of a NATS server that carries wake-ups faster than the database does.
    pub async fn connect(url: &str, bus: Option<&str>) -> Result<Self, DbError> {
        let address = Address::parse(url)?;
        let bus_address = bus.map(nats::Address::parse).transpose()?;
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let trouble = Arc::<Trouble>::default();
        let bus = Arc::new(Bus::new(broadcast::Sender::new(TOPICS_MAX)));
        let first = open(&address, &tasks).await?;
        let start = |kind, count, first: Option<Session>| {
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
                    trouble: Arc::clone(&trouble),
                    tasks: tasks.clone(),
                };
                let stopped = stop.clone();
                tasks.spawn(async move { stopped.run_until_cancelled(worker.serve()).await });
            }
            sender
        };
        let writes = start(Kind::Write, WRITERS, Some(first));
        let reads = start(Kind::Read, READERS, None);
        let db = Self { writes, reads, bus, trouble, _stop: stop.clone().drop_guard() };
        let nats = match bus_address {
            Some(nats) => Some((nats, subject(&db).await?)),
            None => None,
        };
        bus::start(&db.bus, address, nats, &tasks, &stop);
        Ok(db)
    }
}

/// What those who share this database say to each other on a bus that others may use as well.
async fn subject(db: &PostgresDb) -> Result<String, DbError> {
    migrate(db, "bus", &["CREATE TABLE bus_subject (one BIGINT PRIMARY KEY, subject TEXT NOT NULL)"]).await?;
    let new = format!("ropewalk.{}", uuid::Uuid::new_v4());
    let insert = "INSERT INTO bus_subject (one, subject) VALUES (1, $1) ON CONFLICT (one) DO NOTHING";
    db.run(vec![Statement::new(insert, [Value::from(new)])], Vec::new()).await?;
    let found = db.run(vec![Statement::new("SELECT subject FROM bus_subject", [])], Vec::new()).await?;
    let row = found.first().and_then(|found| found.rows.first());
    let row = row.ok_or_else(|| DbError::Failed { reason: "the name of the bus is gone".into() })?;
    Ok(row.text(0)?.to_string())
}

impl Db for PostgresDb {
    fn run(&self, statements: Vec<Statement>, topics: Vec<String>) -> DbResult<'_, Vec<Found>> {
        Box::pin(async move {
            statements.iter().try_for_each(Statement::check)?;
            let reads = Kind::of_all(&statements) == Kind::Read && topics.is_empty();
            let queue = if reads { &self.reads } else { &self.writes };
            let (taken, mut when_taken) = oneshot::channel();
            let (done, answer) = oneshot::channel();
            let work = Work { statements, topics, taken, done };
            let gone = || DbError::Unavailable { reason: "it was closed".into() };
            let queued = queue.send_timeout(work, WAIT_MAX).await;
            queued.map_err(|_| self.trouble.refusal())?;
            if tokio::time::timeout(WAIT_MAX, &mut when_taken).await.is_err() {
                // From here on nobody can take it, unless somebody just has.
                when_taken.close();
                if when_taken.try_recv().is_err() {
                    return Err(self.trouble.refusal());
                }
            }
            answer.await.map_err(|_| gone())?
        })
    }

    fn heard(&self) -> broadcast::Receiver<Arc<str>> {
        self.bus.heard()
    }
}

impl Trouble {
    fn note(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Acquire)
    }

    fn refusal(&self) -> DbError {
        let noted = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        DbError::Unavailable { reason: noted.unwrap_or_else(|| "more waits for it than it can do".into()) }
    }
}

async fn open(address: &Address, tasks: &TaskTracker) -> Result<Session, DbError> {
    let (client, connection) = address.open().await?;
    tasks.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = address::cause(&error), "a connection to the database ended");
        }
    });
    Address::settle(&client).await?;
    Ok(Session::new(client))
}

struct Worker {
    kind: Kind,
    queue: Arc<tokio::sync::Mutex<mpsc::Receiver<Work>>>,
    address: Address,
    session: Option<Session>,
    /// How many connections had broken when this one was opened.
    breaks: u64,
    bus: Arc<Bus>,
    trouble: Arc<Trouble>,
    tasks: TaskTracker,
}

impl Worker {
    /// Until nobody can ask any more. A worker without a connection takes no work, so that those who have one do
    /// it, and nobody waits longer than for being refused.
    async fn serve(mut self) {
        loop {
            self.connect().await;
            let Some(group) = self.take().await else { return };
            let (layouts, mut group): (Vec<_>, Vec<_>) =
                group.into_iter().partition(|work| Kind::of_all(&work.statements) == Kind::Layout);
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
                self.trouble.note(Some(reason));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn is_connected(&self) -> bool {
        let good = |session: &Session| !session.is_closed() && self.breaks == self.trouble.breaks();
        self.session.as_ref().is_some_and(good)
    }

    async fn open(&mut self) -> Result<(), DbError> {
        self.breaks = self.trouble.breaks();
        self.session = None;
        self.session = Some(open(&self.address, &self.tasks).await?);
        self.trouble.note(None);
        Ok(())
    }

    /// As much as waits. Whoever is tired of waiting is left out.
    async fn take(&self) -> Option<Vec<Running>> {
        let mut queue = self.queue.lock().await;
        let mut group = Vec::new();
        while group.is_empty() {
            group.extend(Running::take(queue.recv().await?));
        }
        while group.len() < GROUP_MAX
            && let Ok(next) = queue.try_recv()
        {
            group.extend(Running::take(next));
        }
        Some(group)
    }

    async fn commit(&mut self, group: Vec<Running>) {
        let (mut pieces, rest): (Vec<Piece>, Vec<_>) =
            group.into_iter().map(|work| (Piece::new(work.statements), (work.topics, work.done))).unzip();
        let outcome = self.attempt(&mut pieces).await;
        if let Err(Broken(reason)) = &outcome {
            tracing::debug!(reason, "a group of work is given up");
            self.trouble.breaks.fetch_add(1, Ordering::AcqRel);
        }
        for (piece, (topics, done)) in pieces.into_iter().zip(rest) {
            let result = match (&outcome, piece.result) {
                // One that was not even begun has its answer already.
                (_, Some(result @ Err(DbError::Failed { .. }))) => result,
                (Ok(()), Some(result)) => result,
                (Ok(()), None) => Err(in_the_way()),
                (Err(Broken(reason)), _) => Err(DbError::Unavailable { reason: reason.clone() }),
            };
            if result.is_ok() {
                self.bus.tell(topics);
            }
            // Who asked may be gone.
            drop(done.send(result));
        }
    }

    /// All together, and then one by one what somebody was in the way of.
    async fn attempt(&mut self, pieces: &mut [Piece]) -> Result<(), Broken> {
        if pieces.is_empty() {
            return Ok(());
        }
        if !self.is_connected() {
            self.open().await.map_err(|error| Broken(reason_of(error)))?;
        }
        let kind = self.kind;
        let Some(session) = &mut self.session else { return Err(Broken("there is no connection".into())) };
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

async fn within(session: &mut Session, kind: Kind, pieces: &mut [Piece]) -> Result<(), Broken> {
    let layout = |piece: &Piece| Kind::of_all(&piece.statements) == Kind::Layout;
    let (limit, done) = match pieces {
        [piece] if layout(piece) => {
            (MIGRATION_MAX_TIME, tokio::time::timeout(MIGRATION_MAX_TIME, session.migrate(piece)).await)
        }
        pieces if kind == Kind::Read => {
            (GROUP_MAX_TIME, tokio::time::timeout(GROUP_MAX_TIME, session.read(pieces)).await)
        }
        pieces => (GROUP_MAX_TIME, tokio::time::timeout(GROUP_MAX_TIME, session.write(pieces)).await),
    };
    done.unwrap_or_else(|_| Err(Broken(format!("it did not answer for {} seconds", limit.as_secs()))))
}

fn reason_of(error: DbError) -> String {
    match error {
        DbError::Unavailable { reason } | DbError::Failed { reason } => reason,
        DbError::Refused { .. } => error.to_string(),
    }
}

/// Work that somebody waits for and a worker has taken.
struct Running {
    statements: Vec<Statement>,
    topics: Vec<String>,
    done: oneshot::Sender<Done>,
}

impl Running {
    fn take(work: Work) -> Option<Self> {
        let Work { statements, topics, taken, done } = work;
        taken.send(()).ok().map(|()| Self { statements, topics, done })
    }
}

/// What a piece locks first, as far as one can tell: nearly always the row that its first value names.
fn key(work: &Running) -> Option<&str> {
    work.statements.first()?.values.iter().find_map(|value| match value {
        Value::Text(text) => Some(&**text),
        Value::Null | Value::Int(_) | Value::Bytes(_) => None,
    })
}
