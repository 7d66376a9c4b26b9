//! Presence: which devices have the app in view. A device that somebody looks at needs no push.
//!
//! Every connection has a [`PresenceHandle`] for as long as it lasts, so a tab that is closed or a phone that lost
//! its network stops being present by itself, and one hidden tab does not speak for another.
//!
//! Who is looking at a session, its viewers, is in `app/src/feed.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a client without a connection counts as present: nobody says when it is closed.
const UNCONNECTED_LIFE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct VisibleClients {
    last: u64,
    /// The device of every connection that has the app in view.
    connections: HashMap<u64, Arc<str>>,
    unconnected: HashMap<Arc<str>, Instant>,
}

/// Which devices have the app in view.
#[derive(Debug, Clone, Default)]
pub struct Presence(Arc<Mutex<VisibleClients>>);

impl Presence {
    fn with<T>(&self, work: impl FnOnce(&mut VisibleClients) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn open(&self, device: Option<Arc<str>>, ended: CancellationToken) -> PresenceHandle {
        let number = self.with(|clients| {
            clients.last += 1;
            clients.last
        });
        PresenceHandle { presence: self.clone(), number, device, ended }
    }

    /// Reported by a client that has no connection.
    pub fn look(&self, device: &Arc<str>, visible: bool, now: Instant) {
        self.with(|clients| {
            clients.unconnected.retain(|_, until| *until > now);
            if visible {
                clients.unconnected.insert(Arc::clone(device), now + UNCONNECTED_LIFE);
            } else {
                clients.unconnected.remove(device);
            }
        });
    }

    /// The devices with a connection that has the app in view.
    pub fn visible_devices(&self) -> Vec<Arc<str>> {
        self.with(|clients| clients.connections.values().cloned().collect())
    }

    pub fn are_on(&self, device: &str, now: Instant) -> bool {
        self.with(|clients| {
            let seated = clients.connections.values().any(|seated| **seated == *device);
            seated || clients.unconnected.get(device).is_some_and(|until| *until > now)
        })
    }
}

/// One connection of a visitor. Dropped, it is not present any more.
#[derive(Debug)]
pub struct PresenceHandle {
    presence: Presence,
    number: u64,
    device: Option<Arc<str>>,
    ended: CancellationToken,
}

impl PresenceHandle {
    /// Cancelled when the visitor's device is revoked.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Whether this client has the app in view.
    pub fn look(&self, visible: bool) {
        let Some(device) = &self.device else { return };
        self.presence.with(|clients| {
            if visible {
                clients.connections.insert(self.number, Arc::clone(device));
            } else {
                clients.connections.remove(&self.number);
            }
        });
    }
}

impl Drop for PresenceHandle {
    fn drop(&mut self) {
        self.presence.with(|clients| clients.connections.remove(&self.number));
    }
}
