//! Who looks: a client that somebody looks at needs no push.
//!
//! Every connection has a [`Seat`] for as long as it lasts, so a tab that is closed or a phone that lost
//! its network stops looking by itself, and one hidden tab does not speak for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a client without a seat is believed: nobody says when it goes.
const LOOSE_LIFE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Looks {
    last: u64,
    /// The device of every seat that somebody looks at.
    seats: HashMap<u64, Arc<str>>,
    loose: HashMap<Arc<str>, Instant>,
}

/// Who looks, by device.
#[derive(Debug, Clone, Default)]
pub struct Presence(Arc<Mutex<Looks>>);

impl Presence {
    fn with<T>(&self, work: impl FnOnce(&mut Looks) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn seat(&self, device: Option<Arc<str>>, ended: CancellationToken) -> Seat {
        let number = self.with(|looks| {
            looks.last += 1;
            looks.last
        });
        Seat { presence: self.clone(), number, device, ended }
    }

    /// Said by a client that has no seat.
    pub fn look(&self, device: &Arc<str>, visible: bool, now: Instant) {
        self.with(|looks| {
            looks.loose.retain(|_, until| *until > now);
            if visible {
                looks.loose.insert(Arc::clone(device), now + LOOSE_LIFE);
            } else {
                looks.loose.remove(device);
            }
        });
    }

    /// The devices of seats that somebody looks at.
    pub fn seated(&self) -> Vec<Arc<str>> {
        self.with(|looks| looks.seats.values().cloned().collect())
    }

    pub fn are_on(&self, device: &str, now: Instant) -> bool {
        self.with(|looks| {
            let seated = looks.seats.values().any(|seated| **seated == *device);
            seated || looks.loose.get(device).is_some_and(|until| *until > now)
        })
    }
}

/// One connection of a visitor. Dropped, it looks no more.
#[derive(Debug)]
pub struct Seat {
    presence: Presence,
    number: u64,
    device: Option<Arc<str>>,
    ended: CancellationToken,
}

impl Seat {
    /// Cancelled when the visitor is not welcome any more.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Somebody looks at this client, or nobody.
    pub fn look(&self, visible: bool) {
        let Some(device) = &self.device else { return };
        self.presence.with(|looks| {
            if visible {
                looks.seats.insert(self.number, Arc::clone(device));
            } else {
                looks.seats.remove(&self.number);
            }
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.presence.with(|looks| looks.seats.remove(&self.number));
    }
}
