//! Test clients of every dialect. [`Client`] defines what a test can do; the dialect encodes it, and the carrier transports
//! it.

mod bernstein;
mod carriers;
mod chimera;
pub mod events;
mod jsonrpc;
mod official;
mod rest;

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use serde_json::{Value, json};

use crate::doors::web::{DEADLINE, Server};

/// A permission request, as one client received it.
#[derive(Debug, Clone)]
pub struct PendingAsk {
    pub session: String,
    /// The id that this client has for it.
    pub name: Value,
    /// The whole request.
    pub request: Value,
}

/// A client of a session. A wait returns what it waits for, or fails the test.
pub trait Client {
    /// Opens a session.
    fn open(&mut self, folder: &Path) -> String;
    /// Joins an existing session.
    fn join(&mut self, session: &str, folder: &Path);
    /// Prompts in this session, or in a new one. Returns the session.
    fn prompt(&mut self, session: Option<&str>, folder: &Path, text: &str) -> String;
    /// Waits for a permission request.
    fn asked(&mut self) -> PendingAsk;
    /// Answers it. Returns whether the answer counted.
    fn answer(&mut self, asked: &PendingAsk, allow: bool) -> bool;
    /// Waits until the request is withdrawn.
    fn withdrawn(&mut self, asked: &PendingAsk);
    /// Waits until this text arrives.
    fn hears(&mut self, text: &str);
    fn cancel(&mut self, session: &str);
    /// Waits for the end of its turn.
    fn stopped(&mut self) -> String;
    fn list(&mut self) -> Vec<String>;

    /// Not every dialect has a way to change it.
    fn set_approval(&mut self, session: &str, approval: &str) {
        panic!("not asked of this client: {approval} in {session}")
    }

    /// Only for the reference client, to reach the state in which the others start.
    fn close(&mut self, session: &str) {
        panic!("not asked of this client: the end of {session}")
    }
}

/// The client that comes through this door. There is one standard input, so a second client of a dialect
/// takes a WebSocket.
pub fn client(door: &str, server: &mut Server) -> Box<dyn Client> {
    let (dialect, carrier) = door.split_once(' ').unwrap_or((door, ""));
    let link: Box<dyn carriers::Carrier> = match carrier {
        "stdio" => Box::new(carriers::Stdio::open(server)),
        "websocket" => Box::new(carriers::WebSocket::open(server.address())),
        "http" => match dialect {
            "official" => Box::new(carriers::Official::open(server.address())),
            "zeph" => Box::new(carriers::Zeph::open(server.address())),
            "bernstein" => Box::new(carriers::Posts::open(server.address())),
            _ => panic!("{dialect} has no HTTP of its own"),
        },
        _ => return Box::new(rest::Rest::open(server.address())),
    };
    let talk = jsonrpc::RpcClient::new(link);
    match dialect {
        "official" | "zeph" => Box::new(official::Official::greet(talk)),
        "ferret" => Box::new(chimera::ChimeraClient::ferret(talk)),
        "otter" => Box::new(chimera::ChimeraClient::otter(talk)),
        "bernstein" => Box::new(bernstein::Bernstein::greet(talk)),
        _ => panic!("there is no door {door:?}"),
    }
}

/// Received frames. A wait removes the frame it waited for; the others stay for later waits.
pub struct ReceivedFrames {
    incoming: Receiver<Value>,
    kept: Vec<Value>,
    /// All frames so far, as text.
    all: Vec<String>,
}

impl ReceivedFrames {
    pub fn new(incoming: Receiver<Value>) -> Self {
        Self { incoming, kept: Vec::new(), all: Vec::new() }
    }

    #[track_caller]
    pub fn until<T>(&mut self, what: &str, wanted: impl Fn(&Value) -> Option<T>) -> T {
        if let Some(at) = self.kept.iter().position(|frame| wanted(frame).is_some()) {
            return wanted(&self.kept.remove(at)).unwrap();
        }
        let began = Instant::now();
        loop {
            let frame = self.next(what, began);
            if let Some(found) = wanted(&frame) {
                return found;
            }
            self.kept.push(frame);
        }
    }

    #[track_caller]
    pub fn hears(&mut self, text: &str) {
        let quoted = json!(text).to_string();
        let inner = quoted.trim_matches('"');
        let began = Instant::now();
        while !self.all.iter().any(|frame| frame.contains(inner)) {
            let frame = self.next(text, began);
            self.kept.push(frame);
        }
    }

    #[track_caller]
    fn next(&mut self, what: &str, began: Instant) -> Value {
        let left = DEADLINE.saturating_sub(began.elapsed());
        let frame = self.incoming.recv_timeout(left);
        let frame = frame.unwrap_or_else(|error| panic!("{error}: {what}; it was told {:#?}", self.all));
        self.all.push(frame.to_string());
        frame
    }
}

/// A place for what arrives, with room for all that a test can make.
fn mailbox() -> (std::sync::mpsc::SyncSender<Value>, Receiver<Value>) {
    sync_channel(1 << 16)
}
