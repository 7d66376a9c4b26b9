//! Transports. Each sends messages one by one and collects everything it receives, from any stream, in one queue.

use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::events::{Event, follow, header};
use super::mailbox;
use crate::doors::web::{Ask, Server, Socket, TOKEN};

pub trait Carrier {
    fn send(&mut self, message: &Value);
    /// Where everything arrives. Taken once.
    fn incoming(&mut self) -> Receiver<Value>;
}

pub struct Stdio {
    input: ChildStdin,
    incoming: Option<Receiver<Value>>,
}

impl Stdio {
    pub fn open(server: &mut Server) -> Self {
        let lines = std::mem::replace(&mut server.lines, sync_channel(1).1);
        let (sender, incoming) = mailbox();
        std::thread::spawn(move || {
            for line in lines {
                sender.send(serde_json::from_str(&line).unwrap()).ok();
            }
        });
        Self { input: server.input.take().unwrap(), incoming: Some(incoming) }
    }
}

impl Carrier for Stdio {
    fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn incoming(&mut self) -> Receiver<Value> {
        self.incoming.take().unwrap()
    }
}

pub struct WebSocket {
    socket: Socket,
    incoming: Option<Receiver<Value>>,
}

impl WebSocket {
    pub fn open(address: SocketAddr) -> Self {
        let mut reading = Socket::to(address, TOKEN);
        let socket = reading.writing_end();
        let (sender, incoming) = mailbox();
        std::thread::spawn(move || {
            while let Some(message) = reading.frame() {
                sender.send(message).ok();
            }
        });
        Self { socket, incoming: Some(incoming) }
    }
}

impl Carrier for WebSocket {
    fn send(&mut self, message: &Value) {
        self.socket.send(message);
    }

    fn incoming(&mut self) -> Receiver<Value> {
        self.incoming.take().unwrap()
    }
}

/// The official remote transport: one stream for the connection, one for each session.
pub struct Official {
    address: SocketAddr,
    connection: Option<String>,
    streams: Arc<Mutex<HashSet<String>>>,
    sender: SyncSender<Value>,
    incoming: Option<Receiver<Value>>,
}

impl Official {
    pub fn open(address: SocketAddr) -> Self {
        let (sender, incoming) = mailbox();
        Self { address, connection: None, streams: Arc::default(), sender, incoming: Some(incoming) }
    }

    fn ask(&self, ask: Ask) -> Ask {
        match &self.connection {
            Some(connection) => ask.header("acp-connection-id", connection),
            None => ask,
        }
    }

    /// Reads a stream; a session that is named in an answer gets its own before the answer is seen.
    fn follow(&self, session: Option<&str>) {
        let ask = self.ask(Ask::get("/acp").header("accept", "text/event-stream"));
        let connection = self.connection.clone().unwrap();
        let (address, sender, streams) = (self.address, self.sender.clone(), Arc::clone(&self.streams));
        let ask = match session {
            Some(session) if !streams.lock().unwrap().insert(session.to_owned()) => return,
            Some(session) => ask.header("acp-session-id", session),
            None => ask,
        };
        let each = move |event: Event| {
            if let Some(session) = event.data["result"]["sessionId"].as_str() {
                let sender = sender.clone();
                let of = Self {
                    address,
                    connection: Some(connection.clone()),
                    streams: Arc::clone(&streams),
                    sender,
                    incoming: None,
                };
                of.follow(Some(session));
            }
            sender.send(event.data).ok();
        };
        let (status, head) = follow(self.address, &ask, each);
        assert_eq!(status, 200, "{head}");
    }
}

impl Carrier for Official {
    fn send(&mut self, message: &Value) {
        if let Some(session) = message["params"]["sessionId"].as_str() {
            self.follow(Some(session));
        }
        let answer = self.ask(Ask::post("/acp", &message.to_string())).send_to(self.address);
        if self.connection.is_none() {
            assert_eq!(answer.status, 200, "{answer:?}");
            self.connection = answer.header("acp-connection-id").map(str::to_owned);
            self.follow(None);
            self.sender.send(answer.json()).unwrap();
        } else {
            assert_eq!(answer.status, 202, "{answer:?}");
        }
    }

    fn incoming(&mut self) -> Receiver<Value> {
        self.incoming.take().unwrap()
    }
}

/// zeph's shape: the answer to a message is a stream, and a further one tells what happens in between.
/// Events are numbered, and one that comes on both is one.
pub struct Zeph {
    address: SocketAddr,
    connection: Option<String>,
    seen: Arc<Mutex<HashSet<String>>>,
    sender: SyncSender<Value>,
    incoming: Option<Receiver<Value>>,
}

impl Zeph {
    pub fn open(address: SocketAddr) -> Self {
        let (sender, incoming) = mailbox();
        Self { address, connection: None, seen: Arc::default(), sender, incoming: Some(incoming) }
    }

    fn follow(&self, ask: Ask) -> (u16, String) {
        let ask = ask.header("accept", "text/event-stream");
        let ask = match &self.connection {
            Some(connection) => ask.header("acp-session-id", connection),
            None => ask,
        };
        let (seen, sender) = (Arc::clone(&self.seen), self.sender.clone());
        follow(self.address, &ask, move |event| {
            if seen.lock().unwrap().insert(event.id.unwrap()) {
                sender.send(event.data).ok();
            }
        })
    }
}

impl Carrier for Zeph {
    fn send(&mut self, message: &Value) {
        let (status, head) = self.follow(Ask::post("/acp", &message.to_string()));
        let expected = if message["id"].is_null() || message["method"].is_null() { 202 } else { 200 };
        assert_eq!(status, expected, "{head}");
        if self.connection.is_none() {
            self.connection = header(&head, "acp-session-id");
            assert_eq!(self.follow(Ask::get("/acp")).0, 200);
        }
    }

    fn incoming(&mut self) -> Receiver<Value> {
        self.incoming.take().unwrap()
    }
}

/// Bernstein's: each message stands alone; the answer to a prompt is a stream.
pub struct Posts {
    address: SocketAddr,
    sender: SyncSender<Value>,
    incoming: Option<Receiver<Value>>,
}

impl Posts {
    pub fn open(address: SocketAddr) -> Self {
        let (sender, incoming) = mailbox();
        Self { address, sender, incoming: Some(incoming) }
    }
}

impl Carrier for Posts {
    fn send(&mut self, message: &Value) {
        let ask = Ask::post("/acp", &message.to_string());
        if message["method"] != "prompt" {
            let answer = ask.send_to(self.address);
            assert_eq!(answer.status, 200, "{answer:?}");
            return self.sender.send(answer.json()).unwrap();
        }
        let sender = self.sender.clone();
        let each = move |event: Event| {
            assert!(matches!(event.name.as_deref(), Some("response" | "notification")));
            sender.send(event.data).ok();
        };
        let (status, head) = follow(self.address, &ask.header("accept", "text/event-stream"), each);
        assert_eq!(status, 200, "{head}");
    }

    fn incoming(&mut self) -> Receiver<Value> {
        self.incoming.take().unwrap()
    }
}
