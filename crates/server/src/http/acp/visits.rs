//! The connections of the official remote transport that this process knows.
//!
//! A client that comes back after its connection was dropped here, or after a restart, is recognised
//! by its id and goes on as if nothing had happened: all that matters is in the logs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine::Principal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::names::ConnectionId;
use super::streams::{Streams, locked};
use crate::connection::{ConnectionParts, Desk, Posted};
use crate::link::INCOMING_MAX;
use crate::outlet::Outlet;

/// Connections at once, and those of one owner. The one that was used longest ago and that nobody reads
/// makes room.
const VISITS_MAX: usize = 1024;
const OWN_MAX: usize = 512;
/// A connection that nobody reads and nobody uses is dropped after this; its client may come back.
const IDLE_MAX: Duration = Duration::from_secs(1800);
/// How long a call waits for room among those before it.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// Ids of connections that their clients closed, so that nobody brings them back.
const CLOSED_MAX: usize = 4096;

#[derive(Default)]
pub struct Visits {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    live: HashMap<ConnectionId, Arc<Visit>>,
    closed: Vec<ConnectionId>,
}

pub(super) struct Visit {
    pub(super) streams: Arc<Streams>,
    incoming: mpsc::Sender<Posted>,
    stop: CancellationToken,
    used: Mutex<Instant>,
    owner: Principal,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// As many connections as may be, and all of them are read.
    Visits,
    /// The client's own calls have to wait too long.
    Calls,
}

impl Visits {
    pub(super) fn find(&self, id: ConnectionId) -> Option<Arc<Visit>> {
        let visit = self.lock().live.get(&id).cloned();
        visit.inspect(|visit| *locked(&visit.used) = Instant::now())
    }

    pub(super) fn was_closed(&self, id: ConnectionId) -> bool {
        self.lock().closed.contains(&id)
    }

    pub(super) fn open(
        &self,
        id: ConnectionId,
        parts: ConnectionParts,
        tasks: &TaskTracker,
    ) -> Result<Arc<Visit>, Full> {
        let mut inner = self.lock();
        if let Some(visit) = inner.live.get(&id) {
            return Ok(Arc::clone(visit));
        }
        inner.make_room(&parts.principal)?;
        let visit = Arc::new(Visit::start(id, parts, tasks));
        inner.live.insert(id, Arc::clone(&visit));
        Ok(visit)
    }

    /// Says whether there was such a connection.
    pub(super) fn close(&self, id: ConnectionId) -> bool {
        let mut inner = self.lock();
        if inner.closed.contains(&id) {
            return false;
        }
        if inner.closed.len() == CLOSED_MAX {
            inner.closed.remove(0);
        }
        inner.closed.push(id);
        if let Some(visit) = inner.live.remove(&id) {
            visit.stop.cancel();
            visit.streams.close();
        }
        true
    }

    pub(in crate::http) fn close_all(&self) {
        for (_, visit) in self.lock().live.drain() {
            visit.stop.cancel();
            visit.streams.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
    }
}

impl Inner {
    /// Whoever has too many makes room among their own; nobody pushes another out.
    fn make_room(&mut self, owner: &Principal) -> Result<(), Full> {
        let now = Instant::now();
        self.live.retain(|_, visit| visit.streams.is_read() || now - *locked(&visit.used) < IDLE_MAX);
        let own = self.live.values().filter(|visit| visit.owner == *owner).count();
        if own < OWN_MAX && self.live.len() < VISITS_MAX {
            return Ok(());
        }
        let own = self.live.iter().filter(|(_, visit)| visit.owner == *owner);
        let unread = own.filter(|(_, visit)| !visit.streams.is_read());
        let oldest = unread.min_by_key(|(_, visit)| *locked(&visit.used)).map(|(id, _)| *id);
        match oldest.and_then(|id| self.live.remove(&id)) {
            Some(_) => Ok(()),
            None => Err(Full::Visits),
        }
    }
}

impl Visit {
    fn start(id: ConnectionId, parts: ConnectionParts, tasks: &TaskTracker) -> Self {
        let stop = CancellationToken::new();
        let (incoming, frames) = mpsc::channel(INCOMING_MAX);
        let owner = parts.principal.clone();
        let desk = Desk::new(parts, id.surface());
        let streams = Streams::new(desk.writers.clone(), tasks.clone());
        let reader = desk.reader(Outlet::Many(Arc::clone(&streams)), tasks);
        drop(tasks.spawn(reader.run(frames, stop.clone())));
        Self { streams, incoming, stop, used: Mutex::new(Instant::now()), owner }
    }

    /// Hands a call over and waits until it was carried out, so that whoever is told "accepted" has its
    /// prompt in the log, whatever becomes of this process.
    pub(super) async fn take(&self, posted: Posted) -> Result<(), Full> {
        let (taken, carried_out) = oneshot::channel();
        let posted = Posted { taken: Some(taken), ..posted };
        self.incoming.send_timeout(posted, ROOM_WAIT).await.map_err(|_| Full::Calls)?;
        // It is dropped unsent. A call that takes longer was accepted all the same.
        drop(tokio::time::timeout(ROOM_WAIT, carried_out).await);
        Ok(())
    }
}

impl Drop for Visit {
    /// The reader holds the streams, and with them their writers, until it is told to stop.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
