//! The connections of the official remote transport that this process knows.
//!
//! A client that reconnects after its connection was dropped here, or after a restart, is recognised
//! by its connection id and continues as if nothing had happened: all state that matters is in the logs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine::Principal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection_id::ConnectionId;
use super::streams::{ConnectionStreams, locked};
use crate::connection::{ConnectionParts, ConnectionSetup, ParsedMessage};
use crate::link::INCOMING_MAX;
use crate::writer_command_sender::CommandSender;

/// Connections at once, and those of one owner. The least recently used one that nobody reads
/// makes room.
const VISITS_MAX: usize = 1024;
const OWN_MAX: usize = 512;
/// A connection that nobody reads and nobody uses is dropped after this; its client may reconnect.
const IDLE_MAX: Duration = Duration::from_secs(1800);
/// How long a call waits for room among those before it.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// Ids of connections that their clients closed and that are remembered, so that they cannot be resumed.
const CLOSED_MAX: usize = 4096;

#[derive(Default)]
pub struct OfficialConnections {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    live: HashMap<ConnectionId, Arc<OfficialConnection>>,
    closed: Vec<ConnectionId>,
}

pub(super) struct OfficialConnection {
    pub(super) streams: Arc<ConnectionStreams>,
    incoming: mpsc::Sender<ParsedMessage>,
    stop: CancellationToken,
    used: Mutex<Instant>,
    owner: Principal,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// There are as many connections as allowed, and all of them are read.
    OfficialConnections,
    /// The client's own calls have to wait too long.
    Calls,
}

impl OfficialConnections {
    pub(super) fn find(&self, id: ConnectionId) -> Option<Arc<OfficialConnection>> {
        let connection = self.lock().live.get(&id).cloned();
        connection.inspect(|connection| *locked(&connection.used) = Instant::now())
    }

    pub(super) fn was_closed(&self, id: ConnectionId) -> bool {
        self.lock().closed.contains(&id)
    }

    pub(super) fn open(
        &self,
        id: ConnectionId,
        parts: ConnectionParts,
        tasks: &TaskTracker,
    ) -> Result<Arc<OfficialConnection>, LimitReached> {
        let mut inner = self.lock();
        if let Some(connection) = inner.live.get(&id) {
            return Ok(Arc::clone(connection));
        }
        inner.make_room(&parts.principal)?;
        let connection = Arc::new(OfficialConnection::start(id, parts, tasks));
        inner.live.insert(id, Arc::clone(&connection));
        Ok(connection)
    }

    /// Gives whether there was such a connection.
    pub(super) fn close(&self, id: ConnectionId) -> bool {
        let mut inner = self.lock();
        if inner.closed.contains(&id) {
            return false;
        }
        if inner.closed.len() == CLOSED_MAX {
            inner.closed.remove(0);
        }
        inner.closed.push(id);
        if let Some(connection) = inner.live.remove(&id) {
            connection.stop.cancel();
            connection.streams.close();
        }
        true
    }

    pub(in crate::http) fn close_all(&self) {
        for (_, connection) in self.lock().live.drain() {
            connection.stop.cancel();
            connection.streams.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
    }
}

impl Inner {
    /// An owner with too many connections loses one of their own; nobody evicts another's.
    fn make_room(&mut self, owner: &Principal) -> Result<(), LimitReached> {
        let now = Instant::now();
        self.live.retain(|_, connection| {
            connection.streams.is_read() || now - *locked(&connection.used) < IDLE_MAX
        });
        let own = self.live.values().filter(|connection| connection.owner == *owner).count();
        if own < OWN_MAX && self.live.len() < VISITS_MAX {
            return Ok(());
        }
        let own = self.live.iter().filter(|(_, connection)| connection.owner == *owner);
        let unread = own.filter(|(_, connection)| !connection.streams.is_read());
        let oldest = unread.min_by_key(|(_, connection)| *locked(&connection.used)).map(|(id, _)| *id);
        match oldest.and_then(|id| self.live.remove(&id)) {
            Some(_) => Ok(()),
            None => Err(LimitReached::OfficialConnections),
        }
    }
}

impl OfficialConnection {
    fn start(id: ConnectionId, parts: ConnectionParts, tasks: &TaskTracker) -> Self {
        let stop = CancellationToken::new();
        let (incoming, frames) = mpsc::channel(INCOMING_MAX);
        let owner = parts.principal.clone();
        let setup = ConnectionSetup::new(parts, id.surface());
        let streams = ConnectionStreams::new(setup.writers.clone(), tasks.clone());
        let reader = setup.reader(CommandSender::Many(Arc::clone(&streams)), tasks);
        drop(tasks.spawn(reader.run(frames, stop.clone())));
        Self { streams, incoming, stop, used: Mutex::new(Instant::now()), owner }
    }

    /// Hands a call over and waits until it was carried out, so that a prompt of a client that gets "accepted" is
    /// in the log, whatever becomes of this process.
    pub(super) async fn take(&self, posted: ParsedMessage) -> Result<(), LimitReached> {
        let (on_done, carried_out) = oneshot::channel();
        let posted = ParsedMessage { on_done: Some(on_done), ..posted };
        self.incoming.send_timeout(posted, ROOM_WAIT).await.map_err(|_| LimitReached::Calls)?;
        // The signal is dropped unsent. A call that takes longer was accepted all the same.
        drop(tokio::time::timeout(ROOM_WAIT, carried_out).await);
        Ok(())
    }
}

impl Drop for OfficialConnection {
    /// The reader holds the streams, and with them their writers, until it is told to stop.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
