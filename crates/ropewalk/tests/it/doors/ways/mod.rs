//! Clients of every dialect, each behind the door it comes through. What a test wants is said once, in
//! [`Client`]; how it is put into words is the dialect's business, and how it travels the carrier's.

mod bernstein;
mod carriers;
pub mod events;
mod jsonrpc;
mod official;
mod rest;
mod siblings;

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use serde_json::{Value, json};

use crate::doors::web::{DEADLINE, Server};

/// A question, as one client was asked it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub session: String,
    /// What this client calls it.
    pub name: Value,
    /// All that it was told with it.
    pub told: Value,
}

/// Somebody who works in a session. Waits end with what is waited for, or fail the test.
pub trait Client {
    /// Opens a session.
    fn open(&mut self, folder: &Path) -> String;
    /// Takes part in a session that is there.
    fn join(&mut self, session: &str, folder: &Path);
    /// Says something, in a session of its own if none is named; gives the session.
    fn prompt(&mut self, session: Option<&str>, folder: &Path, text: &str) -> String;
    /// Waits to be asked.
    fn asked(&mut self) -> Asked;
    /// Answers; whether that decided the question.
    fn answer(&mut self, asked: &Asked, allow: bool) -> bool;
    /// Waits until the question is taken back.
    fn withdrawn(&mut self, asked: &Asked);
    /// Waits until it was told this.
    fn hears(&mut self, text: &str);
    fn cancel(&mut self, session: &str);
    /// Waits for the end of what it prompted.
    fn stopped(&mut self) -> String;
    fn list(&mut self) -> Vec<String>;

    /// Not every dialect has a way to change it.
    fn set_approval(&mut self, session: &str, approval: &str) {
        panic!("not asked of this client: {approval} in {session}")
    }

    /// What only the measure does, to be in the place that others begin in.
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
    let talk = jsonrpc::Talk::new(link);
    match dialect {
        "official" | "zeph" => Box::new(official::Official::greet(talk)),
        "ferret" => Box::new(siblings::Sibling::ferret(talk)),
        "otter" => Box::new(siblings::Sibling::otter(talk)),
        "bernstein" => Box::new(bernstein::Bernstein::greet(talk)),
        _ => panic!("there is no door {door:?}"),
    }
}

/// What a client was told. A wait takes what it waited for; the rest stays for other waits.
pub struct Told {
    incoming: Receiver<Value>,
    kept: Vec<Value>,
    /// Everything ever, as text.
    all: Vec<String>,
}

impl Told {
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
