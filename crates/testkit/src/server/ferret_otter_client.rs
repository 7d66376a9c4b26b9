//! A client of a dialect in which everything the server says by itself is a `session/update`.
//!
//! Like its official sibling it reads only while it waits for something.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use serde_json::{Value, json};
use server::memory::LinkPeer;
use tokio::io::DuplexStream;
use wire::Frame;

use super::{DEADLINE, Refused, byte_stream_peer};

/// Frames shown when a wait fails.
const SHOWN_MAX: usize = 40;

pub struct OlderClient {
    peer: LinkPeer,
    workspace: PathBuf,
    arrived: VecDeque<Value>,
    seen: Vec<Value>,
    updates: VecDeque<Value>,
    replies: HashMap<u64, Value>,
    last_id: u64,
}

impl OlderClient {
    pub(super) fn new(peer: LinkPeer, workspace: PathBuf) -> Self {
        Self {
            peer,
            workspace,
            arrived: VecDeque::new(),
            seen: Vec::new(),
            updates: VecDeque::new(),
            replies: HashMap::new(),
            last_id: 0,
        }
    }

    /// A client at the other end of a stream.
    pub fn over(stream: DuplexStream, workspace: PathBuf) -> Self {
        Self::new(byte_stream_peer::peer(stream), workspace)
    }

    /// A new session in the workspace.
    pub async fn new_session(&mut self) -> String {
        let opened = self.call("session/new", json!({ "cwd": self.workspace })).await;
        opened["sessionId"].as_str().expect("a session id").to_owned()
    }

    /// Sends a message and waits for its answer.
    pub async fn message(&mut self, session: &str, text: &str) -> Value {
        self.call("session/message", json!({ "sessionId": session, "message": text })).await
    }

    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.reply(id)
            .await
            .unwrap_or_else(|refused| self.fail(&format!("{method} was refused: {refused:?}")))
    }

    /// A call that must be refused.
    pub async fn refused(&mut self, method: &str, params: Value) -> Refused {
        let id = self.send(method, params).await;
        match self.reply(id).await {
            Err(refused) => refused,
            Ok(result) => self.fail(&format!("{method} was not refused: {result}")),
        }
    }

    /// Sends a request and returns its id.
    pub async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// Sends any message as it is.
    pub async fn write(&mut self, message: &Value) {
        let line = Frame::Line(message.to_string().into_bytes());
        let sent = tokio::time::timeout(DEADLINE, self.peer.frames.send(line)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.fail("the server does not read");
        }
    }

    pub async fn reply(&mut self, id: u64) -> Result<Value, Refused> {
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return super::client::outcome(&reply);
            }
            self.look(&format!("the answer to {id}")).await;
        }
    }

    /// The next update that nobody has taken: the whole `params`.
    pub async fn next_update(&mut self) -> Value {
        loop {
            if let Some(update) = self.updates.pop_front() {
                return update;
            }
            self.look("an update").await;
        }
    }

    /// Takes updates until one is of this kind.
    pub async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let update = self.next_update().await;
            if kind_of(&update) == kind {
                return update;
            }
        }
    }

    /// The updates that arrived and nobody has taken.
    pub fn take_updates(&mut self) -> Vec<Value> {
        self.updates.drain(..).collect()
    }

    /// Every frame so far: the kind of an update, or `reply`.
    pub fn kinds(&self) -> Vec<&str> {
        let kind = |frame: &'_ Value| frame.get("method").is_some();
        self.seen.iter().map(|frame| if kind(frame) { kind_of(&frame["params"]) } else { "reply" }).collect()
    }

    async fn look(&mut self, wanted: &str) {
        if self.arrived.is_empty() {
            match tokio::time::timeout(DEADLINE, self.peer.batches.recv()).await {
                Ok(Some(batch)) => self.split(&batch.bytes),
                Ok(None) => self.fail(&format!("the server hung up while {wanted} was waited for")),
                Err(_) => self.fail(&format!("{wanted} did not come")),
            }
        }
        if let Some(frame) = self.arrived.pop_front() {
            self.take(frame);
        }
    }

    fn split(&mut self, bytes: &[u8]) {
        assert!(bytes.ends_with(b"\n"), "a frame was cut");
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.arrived.push_back(serde_json::from_slice(line).expect("every line is JSON"));
        }
    }

    fn take(&mut self, frame: Value) {
        assert_eq!(frame["jsonrpc"], "2.0", "{frame}");
        self.seen.push(frame.clone());
        match (frame["method"].as_str(), frame.get("id")) {
            (Some("session/update"), None) => self.updates.push_back(frame["params"].clone()),
            (None, Some(id)) => {
                let id = id.as_u64().expect("an id of ours");
                let twice = self.replies.insert(id, frame);
                assert!(id <= self.last_id && twice.is_none(), "an answer to nothing, or a second one");
            }
            _ => self.fail(&format!("no client expects {frame}")),
        }
    }

    fn fail(&self, what: &str) -> ! {
        let seen: Vec<_> = self.seen.iter().rev().take(SHOWN_MAX).rev().map(Value::to_string).collect();
        panic!("{what}; the client has seen\n{}", seen.join("\n"))
    }
}

impl Drop for OlderClient {
    fn drop(&mut self) {
        assert!(
            self.replies.is_empty() || std::thread::panicking(),
            "answers were left unread: {:?}",
            self.replies
        );
    }
}

fn kind_of(params: &Value) -> &str {
    params["kind"].as_str().or(params["update"]["sessionUpdate"].as_str()).unwrap_or("update")
}
