//! Notifications by topic. One task receives all notifications of the database, and wakes the listeners of each topic.
//!
//! A wake-up only says that there may be a change: it may be missed, and it may be for nothing. So a listener reads past
//! its own cursor, and polls from time to time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

/// The topic that is sent when notifications were lost.
const EVERYTHING: &str = "*";
/// Topics without listeners are removed when there are this many topics.
const SWEEP_AT: usize = 1024;

pub type TopicReceiver = watch::Receiver<u64>;

#[derive(Default)]
pub struct Topics {
    senders: Mutex<HashMap<Arc<str>, watch::Sender<u64>>>,
}

/// The mirror of a session changed.
pub fn session(id: &str) -> String {
    format!("s/{id}")
}

/// A session has more relayed frames.
pub fn frames(id: &str) -> String {
    format!("f/{id}")
}

/// A session is watched, or no longer.
pub fn watched(id: &str) -> String {
    format!("w/{id}")
}

/// Sessions or machines of a person changed.
pub fn person(id: &str) -> String {
    format!("c/{id}")
}

/// A node has mail.
pub fn node(id: &str) -> String {
    format!("n/{id}")
}

/// A machine has a new socket, on some node.
pub fn machine(id: &str) -> String {
    format!("m/{id}")
}

impl Topics {
    pub fn listen(&self, topic: &str) -> TopicReceiver {
        let mut senders = self.senders();
        if senders.len() >= SWEEP_AT {
            senders.retain(|_, sender| sender.receiver_count() > 0);
        }
        if let Some(sender) = senders.get(topic) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(0);
        senders.insert(topic.into(), sender);
        receiver
    }

    pub fn tell(&self, topic: &str) {
        match topic {
            EVERYTHING => self.tell_all(),
            topic => {
                if let Some(sender) = self.senders().get(topic) {
                    sender.send_modify(|count| *count += 1);
                }
            }
        }
    }

    fn tell_all(&self) {
        self.senders().values().for_each(|sender| sender.send_modify(|count| *count += 1));
    }

    /// Runs until the database sends no more notifications.
    pub async fn run(&self, mut receiver: broadcast::Receiver<Arc<str>>) {
        loop {
            match receiver.recv().await {
                Ok(topic) => self.tell(&topic),
                Err(RecvError::Lagged(_)) => self.tell_all(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn senders(&self) -> MutexGuard<'_, HashMap<Arc<str>, watch::Sender<u64>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// About this duration, at random, so that nodes do not all poll at the same moment.
pub fn jittered(time: Duration) -> Duration {
    let random = access::random().map_or(128, |bytes| bytes[0]);
    time.mul_f64(0.75 + f64::from(random) / 512.0)
}

/// Waits for a notification, or for about this long.
pub async fn wait_or_timeout(wakeups: &mut TopicReceiver, time: Duration) {
    tokio::select! {
        changed = wakeups.changed() => {
            if changed.is_err() {
                tokio::time::sleep(jittered(time)).await;
            }
        }
        () = tokio::time::sleep(jittered(time)) => {}
    }
}
