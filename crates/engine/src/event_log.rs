//! The session's event log: one writer, any number of readers, each with its own cursor.
//!
//! Live streaming and replay are the same operation here: a reader that joins late, reconnects or is
//! simply slow asks for everything after its cursor. Nobody pushes events at it, so the log needs no
//! queue per reader and no policy for slow clients. What readers are given is a ring of recent
//! events, bounded by count and bytes; older ones come from the store.
//!
//! **Invariant:** positions ascend and are dense, except that a power cut may leave one gap.
//! **Invariant:** an event is visible to readers only after the store has it.
//! **Invariant:** only the session task holds an [`EventLog`]; it is not `Clone`.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::backend::NewEvent;
use crate::event::{Event, Origin};
use crate::ids::{Seq, SessionId, Timestamp, TurnId};
use crate::store::{POSITIONS_RESERVED, POSITIONS_SKIPPED_MAX, PageRequest, Store, StoreError};

/// Recent events kept in memory per session. A reader further behind reads from the store.
const RING_EVENTS_MAX: usize = 2048;
const RING_BYTES_MAX: usize = 2 << 20;
/// The same for a log that is closed.
const CLOSED_EVENTS_MAX: usize = 64;
const CLOSED_BYTES_MAX: usize = 64 << 10;
/// Events that may wait for the store before their source has to wait.
const PENDING_EVENTS_MAX: usize = 2048;
const PENDING_BYTES_MAX: usize = 8 << 20;

/// How much of the log is kept in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingLimits {
    pub events_max: usize,
    pub bytes_max: usize,
}

impl Default for RingLimits {
    fn default() -> Self {
        Self { events_max: RING_EVENTS_MAX, bytes_max: RING_BYTES_MAX }
    }
}

/// The writing end of a log.
pub(crate) struct EventLog {
    shared: Arc<LogShared>,
    pending: Vec<Arc<Event>>,
    pending_bytes: usize,
    next: Seq,
}

impl EventLog {
    pub(crate) fn new(session: SessionId, store: Arc<dyn Store>, next: Seq, limits: RingLimits) -> Self {
        let floor = Seq(next.0.saturating_sub(1));
        let ring = EventRing {
            limits,
            events: VecDeque::new(),
            bytes: 0,
            floor,
            head: floor,
            closed: None,
            links: Vec::new(),
        };
        Self {
            shared: Arc::new(LogShared { session, store, ring: Mutex::new(ring) }),
            pending: Vec::new(),
            pending_bytes: 0,
            next,
        }
    }

    /// Gives the event its position. It stays invisible until [`publish`](Self::publish).
    pub(crate) fn push(
        &mut self,
        at: Timestamp,
        origin: Origin,
        turn: Option<TurnId>,
        event: impl Into<NewEvent>,
    ) -> Seq {
        let seq = self.next;
        self.next = seq.next();
        let NewEvent { body, relayed } = event.into();
        let event = Event { seq, at, origin, turn, body, relayed };
        self.pending_bytes += event.weight();
        self.pending.push(Arc::new(event));
        seq
    }

    /// Assigns no position up to this one any more. The gap is longer than a block, as after a power cut,
    /// and is bounded, because the claim about what was seen may be wrong.
    pub(crate) fn go_on_after(&mut self, seen: Seq) {
        let ahead = seen.0.checked_sub(self.next.0);
        if ahead.is_some_and(|ahead| ahead < POSITIONS_SKIPPED_MAX) {
            self.next = Seq(seen.0 + POSITIONS_RESERVED + 1);
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Events that wait to be handed to the store.
    pub(crate) fn pending(&self) -> &[Arc<Event>] {
        &self.pending
    }

    /// As much waits for the store as may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_EVENTS_MAX || self.pending_bytes >= PENDING_BYTES_MAX
    }

    /// Everything pushed and not yet handed to the store.
    pub(crate) fn take_pending(&mut self) -> Vec<Arc<Event>> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending)
    }

    /// The store has these: readers may see them.
    pub(crate) fn publish(&self, events: &[Arc<Event>]) {
        let Some(last) = events.last() else { return };
        let mut ring = self.shared.lock();
        for event in events {
            ring.bytes += event.weight();
            ring.events.push_back(Arc::clone(event));
        }
        ring.head = last.seq;
        ring.shrink();
        ring.wake();
    }

    /// Tells the readers that nothing more will come from this log, and why if that is bad news.
    pub(crate) fn close(&self, trouble: Option<Arc<str>>) {
        let mut ring = self.shared.lock();
        ring.closed = Some(trouble);
        // Clients may keep their place in a closed log for days; what they have not read is stored.
        ring.limits = RingLimits { events_max: CLOSED_EVENTS_MAX, bytes_max: CLOSED_BYTES_MAX };
        ring.shrink();
        ring.wake();
    }

    pub(crate) fn shared(&self) -> Arc<LogShared> {
        Arc::clone(&self.shared)
    }
}

impl Drop for EventLog {
    /// A writer that is gone without a word has failed; its readers must not wait for it for ever.
    fn drop(&mut self) {
        if self.shared.lock().closed.is_none() {
            self.close(Some("the session failed unexpectedly; open it again to continue".into()));
        }
    }
}

/// What the writer and the readers of one log share.
pub(crate) struct LogShared {
    session: SessionId,
    store: Arc<dyn Store>,
    ring: Mutex<EventRing>,
}

struct EventRing {
    limits: RingLimits,
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Everything after this position is in `events`.
    floor: Seq,
    /// The last visible position.
    head: Seq,
    closed: Option<Option<Arc<str>>>,
    links: Vec<Weak<BellLink>>,
}

impl EventRing {
    fn shrink(&mut self) {
        while self.events.len() > self.limits.events_max || self.bytes > self.limits.bytes_max {
            let Some(oldest) = self.events.pop_front() else {
                return;
            };
            self.bytes -= oldest.weight();
            self.floor = oldest.seq;
        }
    }

    fn wake(&mut self) {
        self.links.retain(|link| match link.upgrade() {
            Some(link) => {
                link.bell.ring(link.key);
                true
            }
            None => false,
        });
    }
}

impl LogShared {
    pub(crate) fn reader(self: &Arc<Self>, after: Seq) -> LogReader {
        LogReader { shared: Arc::clone(self), cursor: after }
    }

    pub(crate) fn head(&self) -> Seq {
        self.lock().head
    }

    fn lock(&self) -> MutexGuard<'_, EventRing> {
        // A panic while holding the lock leaves at worst a batch published in part; readers then
        // still see ascending positions.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cursor into a log.
#[derive(Clone)]
pub struct LogReader {
    shared: Arc<LogShared>,
    cursor: Seq,
}

/// The result of reading after a cursor.
#[derive(Debug)]
pub enum LogRead {
    Events(Vec<Arc<Event>>),
    /// Nothing yet; the doorbell rings when there is more.
    UpToDate,
    /// Nothing, and this log is closed: the session may be opened again later, as another log.
    Ended {
        trouble: Option<Arc<str>>,
    },
}

impl LogReader {
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The last position that is visible now.
    pub fn head(&self) -> Seq {
        self.shared.head()
    }

    /// Another cursor into the same log.
    pub fn after(&self, after: Seq) -> Self {
        Self { shared: Arc::clone(&self.shared), cursor: after }
    }

    pub fn skip_to(&mut self, after: Seq) {
        self.cursor = after;
    }

    /// Rings `bell` with `key` whenever there may be something to take, until the answer is dropped.
    #[must_use = "the bell is silent as soon as this is dropped"]
    pub fn subscribe(&self, bell: &Arc<Doorbell>, key: u64) -> Subscription {
        let link = Arc::new(BellLink { bell: Arc::clone(bell), key });
        self.shared.lock().links.push(Arc::downgrade(&link));
        bell.ring(key);
        Subscription { _link: link }
    }

    /// Takes at most a page of events and moves past them. Waits for the store, never for the writer.
    pub async fn take(&mut self, page: PageRequest) -> Result<LogRead, StoreError> {
        loop {
            let floor = match self.take_from_ring(page) {
                Ok(taken) => return Ok(taken),
                Err(floor) => floor,
            };
            let events = self.shared.store.read(&self.shared.session, self.cursor, page).await?;
            if let Some(last) = events.last() {
                self.cursor = last.seq;
                return Ok(LogRead::Events(events));
            }
            // The gap that a power cut leaves: nothing is stored up to where the ring began before
            // the store was asked. The ring may have moved on meanwhile.
            self.cursor = floor;
        }
    }

    /// Waits for the next events; `None` once the log is closed and everything was read.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<Event>>>, StoreError> {
        let bell = Arc::new(Doorbell::default());
        let _subscription = self.subscribe(&bell, 0);
        loop {
            match self.take(PageRequest::USUAL).await? {
                LogRead::Events(events) => return Ok(Some(events)),
                LogRead::Ended { .. } => return Ok(None),
                LogRead::UpToDate => drop(bell.wait().await),
            }
        }
    }

    /// Says where the ring begins when the events after the cursor are not, or not wholly, in it.
    fn take_from_ring(&mut self, page: PageRequest) -> Result<LogRead, Seq> {
        let ring = self.shared.lock();
        if self.cursor < ring.floor {
            return Err(ring.floor);
        }
        let start = ring.events.partition_point(|event| event.seq <= self.cursor);
        let mut bytes = 0;
        let events: Vec<_> = ring
            .events
            .iter()
            .skip(start)
            .take(page.count_max)
            .take_while(|event| {
                let fits = bytes == 0 || bytes < page.bytes_max;
                bytes += event.weight();
                fits
            })
            .cloned()
            .collect();
        Ok(match events.last() {
            Some(last) => {
                self.cursor = last.seq;
                LogRead::Events(events)
            }
            None => match &ring.closed {
                Some(trouble) => LogRead::Ended { trouble: trouble.clone() },
                None => LogRead::UpToDate,
            },
        })
    }
}

/// Keeps a log connected to a doorbell. Dropping it ends the subscription.
pub struct Subscription {
    _link: Arc<BellLink>,
}

struct BellLink {
    bell: Arc<Doorbell>,
    key: u64,
}

/// Wakes one waiter for any number of logs. Rings are remembered, so none is lost between two waits.
#[derive(Default)]
pub struct Doorbell {
    rung: Mutex<Vec<u64>>,
    notify: Notify,
}

impl Doorbell {
    pub fn ring(&self, key: u64) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !rung.contains(&key) {
            rung.push(key);
        }
        drop(rung);
        self.notify.notify_one();
    }

    /// The keys that rang since the last time, at least one. Safe to drop while waiting.
    pub async fn wait(&self) -> Vec<u64> {
        loop {
            let rung = std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner));
            if !rung.is_empty() {
                return rung;
            }
            self.notify.notified().await;
        }
    }
}
