//! Wake-ups between the processes that share one database.
//!
//! A wake-up is sent after the commit, not in it: a transaction that notifies holds a server-wide lock until it is on
//! disk. So one connection only notifies, and its commits need not be on disk. Topics that are published while a
//! notification is on its way are sent together. If a process dies between its commit and its wake-up, the others find
//! the change by polling, as after any lost wake-up.
//!
//! If NATS is configured, it carries the wake-ups; NOTIFY is the fallback. Every process listens to both. A process that
//! uses NOTIFY cannot be reached by NATS and announces that every few seconds; a process that receives such an
//! announcement sends its wake-ups both ways.

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

use super::address::{DatabaseAddress, cause};
use super::{PAUSE_MAX, PAUSE_MIN, nats};
use crate::sql::EVERYWHERE;

/// PostgreSQL takes less than 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;
/// With more topics than that, "look everywhere" is sent.
const PENDING_MAX: usize = 1024;
/// Messages on their way to one carrier.
const PAYLOADS_MAX: usize = 16;
/// How often a process says that NATS does not reach it, and how long that counts.
const UNREACHED_EVERY: Duration = Duration::from_secs(5);
const UNREACHED_FOR: Duration = Duration::from_secs(15);
/// A server that does not confirm a notification by then is treated as gone.
const NOTIFY_MAX: Duration = Duration::from_secs(5);

pub(super) struct Bus {
    topics: broadcast::Sender<Arc<str>>,
    /// Identifies this process, so that it ignores its own messages.
    node: String,
    pending: Mutex<PendingTopics>,
    wake: Notify,
    /// NATS carries messages in both directions.
    on_nats: AtomicBool,
    /// When another process last used NOTIFY.
    unreached: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct PendingTopics {
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

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.topics.subscribe()
    }

    /// Publishes topics. Listeners in this process get them at once.
    pub(super) fn publish(&self, topics: Vec<String>) {
        if topics.is_empty() {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in topics {
            self.notify_local(&topic);
            if pending.topics.len() < PENDING_MAX {
                pending.topics.insert(topic);
            } else {
                pending.everywhere = true;
            }
        }
        drop(pending);
        self.wake.notify_one();
    }

    fn notify_local(&self, topic: &str) {
        // There may be no listener.
        drop(self.topics.send(topic.into()));
    }

    /// A message of another process. Anything else is ignored.
    fn receive(&self, payload: &[u8], by_notify: bool) {
        let Ok(message) = serde_json::from_slice::<Vec<String>>(payload) else { return };
        let Some((node, topics)) = message.split_first() else { return };
        if *node == self.node {
            return;
        }
        if by_notify {
            *self.unreached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        topics.iter().for_each(|topic| self.notify_local(topic));
    }

    /// Wake-ups may have been lost.
    fn notify_missed(&self) {
        self.notify_local(EVERYWHERE);
    }

    fn has_unreached_process(&self) -> bool {
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
    address: DatabaseAddress,
    nats: Option<(nats::BusAddress, String)>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let spawn = |task: engine::BoxFuture<'static, ()>| {
        let stop = stop.clone();
        tasks.spawn(async move { stop.run_until_cancelled(task).await });
    };
    let (notify, to_notify) = mpsc::channel(PAYLOADS_MAX);
    spawn(Box::pin(run_notify(Arc::clone(bus), address, to_notify, tasks.clone())));
    let mut publish = None;
    if let Some((server, subject)) = nats {
        let (sender, to_publish) = mpsc::channel(PAYLOADS_MAX);
        publish = Some(sender);
        spawn(Box::pin(run_nats(Arc::clone(bus), server, subject, to_publish)));
    }
    spawn(Box::pin(run_carrier(Arc::clone(bus), notify, publish)));
}

/// Passes pending messages to a carrier that can deliver them.
async fn run_carrier(bus: Arc<Bus>, notify: mpsc::Sender<String>, publish: Option<mpsc::Sender<String>>) {
    // A process that is not on NATS announces that first.
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
            } else if bus.has_unreached_process() {
                // Most processes have it already, so this does not wait for the others.
                drop(notify.try_send(message));
            }
        }
    }
}

/// The one connection that sends and receives by NOTIFY.
async fn run_notify(
    bus: Arc<Bus>,
    address: DatabaseAddress,
    mut messages: mpsc::Receiver<String>,
    tasks: TaskTracker,
) {
    let mut pause = PAUSE_MIN;
    let mut before = false;
    loop {
        match listen(&bus, &address, &mut messages, &tasks, &mut before).await {
            Ok(ListenEnd::ForGood) => return,
            Ok(ListenEnd::Lost) => pause = PAUSE_MIN,
            Err(reason) => tracing::debug!(reason, "could not listen for wake-ups"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

enum ListenEnd {
    Lost,
    ForGood,
}

async fn listen(
    bus: &Arc<Bus>,
    address: &DatabaseAddress,
    messages: &mut mpsc::Receiver<String>,
    tasks: &TaskTracker,
    before: &mut bool,
) -> Result<ListenEnd, String> {
    let (client, mut connection) = address.open().await.map_err(|error| error.to_string())?;
    let listener = Arc::clone(bus);
    let gone = CancellationToken::new();
    let ended = gone.clone().drop_guard();
    tasks.spawn(async move {
        // Held until the connection has ended.
        let _ended = ended;
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(told) = message {
                listener.receive(told.payload().as_bytes(), true);
            }
        }
    });
    DatabaseAddress::settle(&client).await.map_err(|error| error.to_string())?;
    let begin = client.batch_execute("SET synchronous_commit = off; LISTEN ropewalk");
    begin.await.map_err(|error| cause(&error))?;
    if std::mem::replace(before, true) {
        bus.notify_missed();
    }
    loop {
        let message = tokio::select! {
            biased;
            () = gone.cancelled() => return Ok(ListenEnd::Lost),
            message = messages.recv() => message,
        };
        let Some(message) = message else { return Ok(ListenEnd::ForGood) };
        if tokio::time::timeout(NOTIFY_MAX, notify(&client, &message)).await != Ok(true) {
            // It may concern anything, and is sent when there is a connection.
            bus.publish(vec![EVERYWHERE.to_owned()]);
            return Ok(ListenEnd::Lost);
        }
    }
}

async fn notify(client: &Client, message: &str) -> bool {
    let told = client.query_typed("SELECT pg_notify('ropewalk', $1)", &[(&message, Type::TEXT)]).await;
    if let Err(error) = &told {
        tracing::debug!(reason = cause(error), "could not send a wake-up");
    }
    told.is_ok()
}

/// A connection to NATS that lasted for this long was a good one: the next is opened at once.
const SETTLED: Duration = Duration::from_secs(10);

/// Holds a connection to NATS as well as it can.
async fn run_nats(
    bus: Arc<Bus>,
    server: nats::BusAddress,
    subject: String,
    mut messages: mpsc::Receiver<String>,
) {
    let mut pause = PAUSE_MIN;
    let mut before = false;
    let mut warned = false;
    loop {
        match nats::BusConnection::open(&server, &subject).await {
            Ok(mut line) => {
                let opened = Instant::now();
                bus.on_nats.store(true, Ordering::Release);
                if std::mem::replace(&mut before, true) {
                    bus.notify_missed();
                }
                let reason = line.serve(&mut messages, |payload| bus.receive(payload, false)).await;
                bus.on_nats.store(false, Ordering::Release);
                // A server that refuses our subscription says so only once the connection stands.
                if opened.elapsed() >= SETTLED {
                    (pause, warned) = (PAUSE_MIN, false);
                }
                if std::mem::replace(&mut warned, true) {
                    tracing::debug!(reason, "lost the connection to the bus again");
                } else {
                    tracing::warn!(
                        reason,
                        "lost the connection to the bus; wake-ups go through the database"
                    );
                }
                // The lost messages may concern anything.
                while messages.try_recv().is_ok() {}
                bus.publish(vec![EVERYWHERE.to_owned()]);
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
