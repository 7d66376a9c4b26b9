//! Wake-ups between the processes of one database.
//!
//! Told after the commit, not in it: a transaction that notifies holds a lock of the whole server until it is on
//! disk, so one connection does nothing else, and its commits need not be on disk. What is told while it is on
//! its way is told together. A process that dies between its commit and its telling leaves others to look by
//! themselves, as after any wake-up that was lost.
//!
//! With NATS, that carries them, and NOTIFY where it cannot. Every process hears both. A process that tells by
//! NOTIFY cannot be reached by NATS, and says so every few seconds; who hears that tells it both ways.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, broadcast, mpsc};
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::{Address, cause};
use super::{PAUSE_MAX, PAUSE_MIN, nats};
use crate::sql::EVERYWHERE;

/// PostgreSQL takes less than 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;
/// More topics than that are told as "look everywhere".
const PENDING_MAX: usize = 1024;
/// Messages on their way to one carrier.
const PAYLOADS_MAX: usize = 16;
/// How often a process says that NATS does not reach it, and how long that counts.
const UNREACHED_EVERY: Duration = Duration::from_secs(5);
const UNREACHED_FOR: Duration = Duration::from_secs(15);
/// The carrier does nothing but answer; if it does not, it is not there.
const NOTIFY_MAX: Duration = Duration::from_secs(5);

pub(super) struct Bus {
    topics: broadcast::Sender<Arc<str>>,
    /// Names this process, so that it does not hear itself twice.
    node: String,
    pending: Mutex<Pending>,
    wake: Notify,
    /// NATS carries what is told and brings what others tell.
    on_nats: AtomicBool,
    /// When somebody last told something by NOTIFY.
    unreached: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Pending {
    topics: BTreeSet<String>,
    everywhere: bool,
}

impl Bus {
    pub(super) fn new(topics: broadcast::Sender<Arc<str>>) -> Self {
        Self {
            topics,
            node: uuid::Uuid::new_v4().to_string(),
            pending: Mutex::default(),
            wake: Notify::new(),
            on_nats: AtomicBool::new(false),
            unreached: Mutex::default(),
        }
    }

    pub(super) fn heard(&self) -> broadcast::Receiver<Arc<str>> {
        self.topics.subscribe()
    }

    /// Listeners here hear it at once.
    pub(super) fn tell(&self, topics: Vec<String>) {
        if topics.is_empty() {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in topics {
            self.here(&topic);
            if pending.topics.len() < PENDING_MAX {
                pending.topics.insert(topic);
            } else {
                pending.everywhere = true;
            }
        }
        drop(pending);
        self.wake.notify_one();
    }

    fn here(&self, topic: &str) {
        // Nobody may be listening.
        drop(self.topics.send(topic.into()));
    }

    /// A message of another process. What is none is nobody's.
    fn hear(&self, payload: &[u8], by_notify: bool) {
        let Ok(message) = serde_json::from_slice::<Vec<String>>(payload) else { return };
        let Some((node, topics)) = message.split_first() else { return };
        if *node == self.node {
            return;
        }
        if by_notify {
            *self.unreached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        topics.iter().for_each(|topic| self.here(topic));
    }

    /// Nothing is known of what was told meanwhile.
    fn missed(&self) {
        self.here(EVERYWHERE);
    }

    fn somebody_is_unreached(&self) -> bool {
        let last = *self.unreached.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < UNREACHED_FOR)
    }

    fn take_pending(&self) -> Vec<String> {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        if pending.everywhere {
            return vec![self.message(&[EVERYWHERE])];
        }
        let mut messages = Vec::new();
        let mut topics: Vec<&str> = Vec::new();
        let mut bytes = 0;
        for topic in &pending.topics {
            // As JSON a byte may become six, and there are quotes and a comma.
            let room = 6 * topic.len() + 3;
            if bytes + room > PAYLOAD_BYTES_MAX - 64 {
                messages.push(self.message(&topics));
                topics.clear();
                bytes = 0;
            }
            bytes += room;
            topics.push(if room > PAYLOAD_BYTES_MAX - 64 { EVERYWHERE } else { topic });
        }
        if !topics.is_empty() {
            messages.push(self.message(&topics));
        }
        messages.retain(|message| message.len() <= PAYLOAD_BYTES_MAX);
        if messages.len() > PAYLOADS_MAX { vec![self.message(&[EVERYWHERE])] } else { messages }
    }

    fn message(&self, topics: &[&str]) -> String {
        let all: Vec<&str> = std::iter::once(&*self.node).chain(topics.iter().copied()).collect();
        serde_json::to_string(&all).unwrap_or_default()
    }
}

/// Starts what carries.
pub(super) fn start(
    bus: &Arc<Bus>,
    address: Address,
    nats: Option<(nats::Address, String)>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let spawn = |task: engine::BoxFuture<'static, ()>| {
        let stop = stop.clone();
        tasks.spawn(async move { stop.run_until_cancelled(task).await });
    };
    let (notify, to_notify) = mpsc::channel(PAYLOADS_MAX);
    spawn(Box::pin(by_notify(Arc::clone(bus), address, to_notify, tasks.clone())));
    let mut publish = None;
    if let Some((server, subject)) = nats {
        let (sender, to_publish) = mpsc::channel(PAYLOADS_MAX);
        publish = Some(sender);
        spawn(Box::pin(by_nats(Arc::clone(bus), server, subject, to_publish)));
    }
    spawn(Box::pin(carry(Arc::clone(bus), notify, publish)));
}

/// Takes what is to be told to whoever can carry it.
async fn carry(bus: Arc<Bus>, notify: mpsc::Sender<String>, publish: Option<mpsc::Sender<String>>) {
    // Whoever is not on NATS says so first of all.
    bus.wake.notify_one();
    loop {
        // Woken or not, there may be something to say.
        drop(tokio::time::timeout(UNREACHED_EVERY, bus.wake.notified()).await);
        let reached = |message: &String| {
            let on_nats = bus.on_nats.load(Ordering::Acquire);
            on_nats && publish.as_ref().is_some_and(|publish| publish.try_send(message.clone()).is_ok())
        };
        let mut messages = bus.take_pending();
        if messages.is_empty() && !bus.on_nats.load(Ordering::Acquire) {
            messages.push(bus.message(&[]));
        }
        for message in messages {
            if !reached(&message) {
                if notify.send(message).await.is_err() {
                    return;
                }
            } else if bus.somebody_is_unreached() {
                // Most are woken; nobody waits here for the others' sake.
                drop(notify.try_send(message));
            }
        }
    }
}

/// The one connection that tells and hears by NOTIFY.
async fn by_notify(
    bus: Arc<Bus>,
    address: Address,
    mut messages: mpsc::Receiver<String>,
    tasks: TaskTracker,
) {
    let mut pause = PAUSE_MIN;
    let mut before = false;
    loop {
        match listen(&bus, &address, &mut messages, &tasks, &mut before).await {
            Ok(Ended::ForGood) => return,
            Ok(Ended::Lost) => pause = PAUSE_MIN,
            Err(reason) => tracing::debug!(reason, "wake-ups cannot be heard"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

enum Ended {
    Lost,
    ForGood,
}

async fn listen(
    bus: &Arc<Bus>,
    address: &Address,
    messages: &mut mpsc::Receiver<String>,
    tasks: &TaskTracker,
    before: &mut bool,
) -> Result<Ended, String> {
    let (client, mut connection) = address.open().await.map_err(|error| error.to_string())?;
    let listener = Arc::clone(bus);
    let gone = CancellationToken::new();
    let ended = gone.clone().drop_guard();
    tasks.spawn(async move {
        // Held until the connection has ended.
        let _ended = ended;
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(told) = message {
                listener.hear(told.payload().as_bytes(), true);
            }
        }
    });
    Address::settle(&client).await.map_err(|error| error.to_string())?;
    let begin = client.batch_execute("SET synchronous_commit = off; LISTEN ropewalk");
    begin.await.map_err(|error| cause(&error))?;
    if std::mem::replace(before, true) {
        bus.missed();
    }
    loop {
        let message = tokio::select! {
            biased;
            () = gone.cancelled() => return Ok(Ended::Lost),
            message = messages.recv() => message,
        };
        let Some(message) = message else { return Ok(Ended::ForGood) };
        if tokio::time::timeout(NOTIFY_MAX, notify(&client, &message)).await != Ok(true) {
            // It may concern anything, and is told when there is a connection.
            bus.tell(vec![EVERYWHERE.to_owned()]);
            return Ok(Ended::Lost);
        }
    }
}

async fn notify(client: &Client, message: &str) -> bool {
    let told = client.query_typed("SELECT pg_notify('ropewalk', $1)", &[(&message, Type::TEXT)]).await;
    if let Err(error) = &told {
        tracing::debug!(reason = cause(error), "a wake-up could not be told");
    }
    told.is_ok()
}

/// A connection to NATS that lasted for this long was a good one: the next is opened at once.
const SETTLED: Duration = Duration::from_secs(10);

/// Holds a connection to NATS as well as it can.
async fn by_nats(
    bus: Arc<Bus>,
    server: nats::Address,
    subject: String,
    mut messages: mpsc::Receiver<String>,
) {
    let mut pause = PAUSE_MIN;
    let mut before = false;
    let mut warned = false;
    loop {
        match nats::Line::open(&server, &subject).await {
            Ok(mut line) => {
                let opened = Instant::now();
                bus.on_nats.store(true, Ordering::Release);
                if std::mem::replace(&mut before, true) {
                    bus.missed();
                }
                let reason = line.serve(&mut messages, |payload| bus.hear(payload, false)).await;
                bus.on_nats.store(false, Ordering::Release);
                // A server that refuses what we ask for says so once the connection stands.
                if opened.elapsed() >= SETTLED {
                    (pause, warned) = (PAUSE_MIN, false);
                }
                if std::mem::replace(&mut warned, true) {
                    tracing::debug!(reason, "the bus is gone again");
                } else {
                    tracing::warn!(reason, "the bus is gone; wake-ups go through the database");
                }
                // What was on its way may concern anything.
                while messages.try_recv().is_ok() {}
                bus.tell(vec![EVERYWHERE.to_owned()]);
            }
            Err(reason) if std::mem::replace(&mut warned, true) => {
                tracing::debug!(reason, "the bus cannot be reached");
                before = true;
            }
            Err(reason) => {
                tracing::warn!(reason, "the bus cannot be reached; wake-ups go through the database");
                before = true;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX * 4);
    }
}
