//! Who waits for which news. One task hears everything that the database tells, and wakes whoever listens.
//!
//! A wake-up says only that there may be something: it may be missed, and it may be for nothing. So who listens
//! reads past its own cursor, and looks from time to time untold.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

/// Told when it is not known what was told.
const EVERYTHING: &str = "*";
/// Those whom nobody listens to any more are forgotten when there are this many.
const SWEEP_AT: usize = 1024;

pub type Ear = watch::Receiver<u64>;

#[derive(Default)]
pub struct Topics {
    ears: Mutex<HashMap<Arc<str>, watch::Sender<u64>>>,
}

/// A session's mirror has more.
pub fn session(id: &str) -> String {
    format!("s/{id}")
}

/// A session's frames have more.
pub fn frames(id: &str) -> String {
    format!("f/{id}")
}

/// Somebody looks at a session, or nobody.
pub fn watched(id: &str) -> String {
    format!("w/{id}")
}

/// Cards or machines of a person changed.
pub fn person(id: &str) -> String {
    format!("c/{id}")
}

/// A node has mail.
pub fn node(id: &str) -> String {
    format!("n/{id}")
}

/// A machine has a new socket, somewhere.
pub fn machine(id: &str) -> String {
    format!("m/{id}")
}

impl Topics {
    pub fn listen(&self, topic: &str) -> Ear {
        let mut ears = self.ears();
        if ears.len() >= SWEEP_AT {
            ears.retain(|_, ear| ear.receiver_count() > 0);
        }
        if let Some(ear) = ears.get(topic) {
            return ear.subscribe();
        }
        let (ear, heard) = watch::channel(0);
        ears.insert(topic.into(), ear);
        heard
    }

    pub fn tell(&self, topic: &str) {
        match topic {
            EVERYTHING => self.tell_all(),
            topic => {
                if let Some(ear) = self.ears().get(topic) {
                    ear.send_modify(|count| *count += 1);
                }
            }
        }
    }

    fn tell_all(&self) {
        self.ears().values().for_each(|ear| ear.send_modify(|count| *count += 1));
    }

    /// Until the database tells nothing any more.
    pub async fn run(&self, mut heard: broadcast::Receiver<Arc<str>>) {
        loop {
            match heard.recv().await {
                Ok(topic) => self.tell(&topic),
                Err(RecvError::Lagged(_)) => self.tell_all(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn ears(&self) -> MutexGuard<'_, HashMap<Arc<str>, watch::Sender<u64>>> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// About this long: who waits for the same does not come at the same moment.
pub fn about(time: Duration) -> Duration {
    let random = access::random().map_or(128, |bytes| bytes[0]);
    time.mul_f64(0.75 + f64::from(random) / 512.0)
}

/// Waits until something is told, or for about this long.
pub async fn heard_or(ear: &mut Ear, time: Duration) {
    tokio::select! {
        changed = ear.changed() => {
            if changed.is_err() {
                tokio::time::sleep(about(time)).await;
            }
        }
        () = tokio::time::sleep(about(time)) => {}
    }
}
