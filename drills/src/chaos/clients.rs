//! The clients: each follows one session over its own transport, comes back whenever its connection is
//! cut, and folds what it is told.

pub mod official;
pub mod rest;
pub mod websocket;
pub mod zeph;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::proxy::locked;
use super::view::View;

/// A client that hears nothing for this long takes its connection for lost.
pub const QUIET_MAX: Duration = Duration::from_millis(400);
/// Between two tries to connect.
pub const RETRY: Duration = Duration::from_millis(4);

/// What a client has seen so far.
#[derive(Default)]
pub struct ClientRecord {
    pub view: View,
    /// What no server may do, whatever happens to connections.
    pub faults: Vec<String>,
    pub frames: u64,
    pub connections: u64,
    /// The server could not serve the client's place and said so; it began again with a load.
    pub restarts: u64,
    /// Questions that were asked and not answered by this client yet, as requests.
    pub asked: Vec<Value>,
}

/// Shared by a client's threads and by whoever judges it.
#[derive(Clone, Default)]
pub struct Shared {
    record: Arc<Mutex<ClientRecord>>,
    stop: Arc<AtomicBool>,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, ClientRecord> {
        locked(&self.record)
    }

    pub fn take(&self, message: &Value) {
        let mut seen = self.lock();
        seen.frames += 1;
        if message["method"] == "session/request_permission" {
            seen.asked.push(message.clone());
        }
        seen.view.take(message);
    }

    pub fn fault(&self, text: impl Into<String>) {
        self.lock().faults.push(text.into());
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// A client at work.
pub struct Follower {
    pub name: &'static str,
    pub shared: Shared,
    /// It sees its own prompts only when it loads the session.
    pub prompts: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Follower {
    pub fn new(name: &'static str, shared: &Shared, threads: Vec<JoinHandle<()>>) -> Self {
        Self { name, shared: shared.clone(), prompts: false, threads }
    }

    pub fn finish(self) {
        self.shared.stop();
        for thread in self.threads {
            // A client that panicked has left its view unfinished, which was judged before.
            drop(thread.join());
        }
    }
}

pub fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}
