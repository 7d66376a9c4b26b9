//! A client that speaks raw JSON lines and reads only while it waits for something, so a test that
//! does not look at a client has a client that does not read.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use serde_json::{Value, json};
use server::memory::LinkPeer;
use tokio::io::DuplexStream;
use wire::Frame;

use super::{DEADLINE, UpdateSummary, byte_stream_peer};

/// Frames shown when a wait fails.
const SHOWN_MAX: usize = 40;
const SHOWN_CHARS_MAX: usize = 240;

pub struct Client {
    peer: Option<LinkPeer>,
    workspace: PathBuf,
    unparsed: Vec<u8>,
    arrived: VecDeque<Value>,
    /// Every frame that was looked at, in order.
    seen: Vec<Value>,
    updates: Vec<Value>,
    updates_read: usize,
    replies: HashMap<u64, Result<Value, Refused>>,
    asks: VecDeque<Value>,
    /// What the client itself is asked to do.
    calls: VecDeque<Value>,
    withdrawn: VecDeque<u64>,
    /// The option chosen for every question; without one, questions wait for the test.
    answer: Option<&'static str>,
    last_id: u64,
}

/// An error as the server sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

impl Client {
    pub(super) fn new(peer: LinkPeer, workspace: PathBuf) -> Self {
        Self {
            peer: Some(peer),
            workspace,
            unparsed: Vec::new(),
            arrived: VecDeque::new(),
            seen: Vec::new(),
            updates: Vec::new(),
            updates_read: 0,
            replies: HashMap::new(),
            asks: VecDeque::new(),
            calls: VecDeque::new(),
            withdrawn: VecDeque::new(),
            answer: None,
            last_id: 0,
        }
    }

    /// A client at the other end of a stream.
    pub fn over(stream: DuplexStream, workspace: PathBuf) -> Self {
        Self::new(byte_stream_peer::peer(stream), workspace)
    }

    /// From here on every permission request is answered with this option.
    pub fn answer_all(&mut self, option: &'static str) {
        self.answer = Some(option);
    }

    pub async fn initialize(&mut self) -> Value {
        self.call("initialize", json!({ "protocolVersion": 1 })).await
    }

    /// The same for a client that can do more.
    pub async fn initialize_with(&mut self, capabilities: Value) -> Value {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        self.call("initialize", params).await
    }

    /// A new session in the workspace.
    pub async fn new_session(&mut self) -> String {
        let cwd = self.workspace.clone();
        let opened = self.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        opened["sessionId"].as_str().expect("a session id").to_owned()
    }

    pub async fn load(&mut self, session: &str) -> Value {
        let params = self.open_params(session);
        self.call("session/load", params).await
    }

    /// What load, resume and fork of a session in the workspace are given.
    pub fn open_params(&self, session: &str) -> Value {
        json!({ "sessionId": session, "cwd": self.workspace, "mcpServers": [] })
    }

    /// Prompts with a text and waits for the stop reason.
    pub async fn prompt(&mut self, session: &str, text: &str) -> String {
        let id = self.send_prompt(session, text).await;
        self.stop_reason(id).await
    }

    pub async fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let block = json!({ "type": "text", "text": text });
        self.send("session/prompt", json!({ "sessionId": session, "prompt": [block] })).await
    }

    pub async fn stop_reason(&mut self, prompt: u64) -> String {
        let reply = self.reply(prompt).await;
        let reply = reply.unwrap_or_else(|refused| self.fail(&format!("the prompt failed: {refused:?}")));
        reply["stopReason"].as_str().expect("a stop reason").to_owned()
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

    pub async fn reply(&mut self, id: u64) -> Result<Value, Refused> {
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.look("an answer").await;
        }
    }

    /// The next update nobody has taken: the whole `params`.
    pub async fn next_update(&mut self) -> Value {
        while self.updates_read == self.updates.len() {
            self.look("an update").await;
        }
        self.updates_read += 1;
        self.updates[self.updates_read - 1].clone()
    }

    /// Takes updates until one is of this kind.
    pub async fn next_update_of(&mut self, kind: &str) -> Value {
        loop {
            let update = self.next_update().await["update"].take();
            if update["sessionUpdate"] == kind {
                return update;
            }
        }
    }

    /// The next permission request that waits for the test: the whole frame.
    pub async fn next_ask(&mut self) -> Value {
        loop {
            if let Some(ask) = self.asks.pop_front() {
                return ask;
            }
            self.look("a permission request").await;
        }
    }

    /// The next thing that the client itself is asked to do: the whole frame.
    pub async fn next_call(&mut self) -> Value {
        loop {
            if let Some(call) = self.calls.pop_front() {
                return call;
            }
            self.look("something to do").await;
        }
    }

    /// Does what the client is asked to do until the prompt is answered. `None` leaves a call unanswered.
    pub async fn serve(
        &mut self,
        prompt: u64,
        mut act: impl FnMut(&str, &Value) -> Option<Result<Value, &'static str>>,
    ) -> String {
        while !self.replies.contains_key(&prompt) {
            let Some(call) = self.calls.pop_front() else {
                self.look("the end of the turn").await;
                continue;
            };
            let method = call["method"].as_str().expect("a method");
            match act(method, &call["params"]) {
                Some(Ok(result)) => self.respond(&call, result).await,
                Some(Err(reason)) => self.respond_error(&call, reason).await,
                None => {}
            }
        }
        self.stop_reason(prompt).await
    }

    pub async fn respond(&mut self, call: &Value, result: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": call["id"], "result": result })).await;
    }

    pub async fn respond_error(&mut self, call: &Value, reason: &str) {
        let error = json!({ "code": -32603, "message": reason });
        self.write(&json!({ "jsonrpc": "2.0", "id": call["id"], "error": error })).await;
    }

    /// The request that the server no longer wants answered.
    pub async fn next_withdrawn(&mut self) -> u64 {
        loop {
            if let Some(request) = self.withdrawn.pop_front() {
                return request;
            }
            self.look("a withdrawn question").await;
        }
    }

    pub async fn answer(&mut self, ask: &Value, option: &str) {
        let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
        self.write(&json!({ "jsonrpc": "2.0", "id": ask["id"], "result": outcome })).await;
    }

    pub async fn answer_cancelled(&mut self, ask: &Value) {
        let outcome = json!({ "outcome": { "outcome": "cancelled" } });
        self.write(&json!({ "jsonrpc": "2.0", "id": ask["id"], "result": outcome })).await;
    }

    pub async fn reply_with_error(&mut self, ask: &Value) {
        let error = json!({ "code": -32603, "message": "the client cannot ask" });
        self.write(&json!({ "jsonrpc": "2.0", "id": ask["id"], "error": error })).await;
    }

    /// Forgets the questions that somebody else was asked too.
    pub fn drain_asks(&mut self) {
        self.asks.clear();
    }

    /// Answers what is still asked of the client with nothing, until nothing more comes.
    pub async fn catch_up_all(&mut self) {
        for _ in 0..64 {
            self.glance().await;
            while let Some(call) = self.calls.pop_front() {
                self.respond(&call, json!({})).await;
            }
        }
    }

    /// Forgets which questions were withdrawn, where a race decides it.
    pub fn drain_withdrawn(&mut self) {
        self.withdrawn.clear();
    }

    /// Reads everything that the session has said so far: a change that changes nothing is answered
    /// behind it.
    pub async fn catch_up(&mut self, session: &str) {
        self.call("session/set_mode", json!({ "sessionId": session, "modeId": "code" })).await;
    }

    /// Every update so far, as the protocol's `update` object.
    pub fn updates(&self) -> impl Iterator<Item = &Value> {
        self.updates.iter().map(|params| &params["update"])
    }

    pub fn updates_of(&self, kind: &str) -> Vec<&Value> {
        self.updates().filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// Forgets the updates so far.
    pub fn forget_updates(&mut self) {
        self.updates.clear();
        self.updates_read = 0;
    }

    /// What the agent said, all messages together.
    pub fn said(&self) -> String {
        let texts = self.updates_of("agent_message_chunk").into_iter();
        texts.filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// What the updates so far add up to.
    pub fn story(&self) -> UpdateSummary {
        UpdateSummary::of(self.updates())
    }

    /// One word per frame so far: the kind of update, `reply`, `ask`, `withdrawn`.
    pub fn kinds(&self) -> Vec<&str> {
        self.seen.iter().map(kind).collect()
    }

    /// Every frame so far.
    pub fn frames(&self) -> &[Value] {
        &self.seen
    }

    /// Bytes that the server has handed over and this client has not read.
    pub fn unread_bytes(&mut self) -> usize {
        let before = self.unparsed.len();
        let Some(peer) = &mut self.peer else { return 0 };
        while let Ok(batch) = peer.batches.try_recv() {
            self.unparsed.extend(batch.bytes);
        }
        self.unparsed.len() - before
    }

    /// Closes the input, reads to the end and checks that nothing was left unread.
    pub async fn hang_up(mut self) {
        let Some(LinkPeer { frames, mut batches }) = self.peer.take() else { return };
        drop(frames);
        let rest = async {
            while let Some(more) = batches.recv().await {
                self.unparsed.extend(more.bytes);
            }
        };
        if tokio::time::timeout(DEADLINE, rest).await.is_err() {
            self.fail("the connection did not end");
        }
        self.split();
        while let Some(frame) = self.arrived.pop_front() {
            self.take(frame);
        }
    }

    /// Goes away in the middle of whatever there is.
    pub fn vanish(mut self) {
        self.peer = None;
        self.arrived.clear();
        self.replies.clear();
        self.asks.clear();
        self.calls.clear();
        self.withdrawn.clear();
    }

    /// Reads one frame if there is one, after giving everybody else a chance.
    pub async fn glance(&mut self) {
        tokio::task::yield_now().await;
        let more = self.unread_bytes() > 0;
        if more || !self.arrived.is_empty() {
            self.look("what is there").await;
        }
    }

    /// Reads one frame.
    pub async fn look(&mut self, wanted: &str) {
        while self.arrived.is_empty() {
            let Some(peer) = &mut self.peer else { self.fail("the client closed the connection") };
            if self.unparsed.is_empty() {
                match tokio::time::timeout(DEADLINE, peer.batches.recv()).await {
                    Ok(Some(batch)) => self.unparsed = batch.bytes,
                    Ok(None) => self.fail(&format!("the server hung up while {wanted} was waited for")),
                    Err(_) => self.fail(&format!("{wanted} did not come")),
                }
            }
            self.split();
        }
        if let Some(frame) = self.arrived.pop_front()
            && let Some(ask) = self.take(frame)
        {
            match self.answer {
                Some(option) => self.answer(&ask, option).await,
                None => self.asks.push_back(ask),
            }
        }
    }

    async fn write(&mut self, message: &Value) {
        let Some(peer) = &self.peer else { self.fail("the client closed the connection") };
        let line = Frame::Line(message.to_string().into_bytes());
        match tokio::time::timeout(DEADLINE, peer.frames.send(line)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.fail("the server no longer reads"),
            Err(_) => self.fail("the server does not read"),
        }
    }

    /// The writer hands over whole frames, so what arrived has no half line at its end.
    fn split(&mut self) {
        let bytes = std::mem::take(&mut self.unparsed);
        assert!(bytes.is_empty() || bytes.ends_with(b"\n"), "a frame was cut");
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.arrived.push_back(serde_json::from_slice(line).expect("every line is JSON"));
        }
    }

    /// Files a frame where it belongs. A question comes back: it may need an answer.
    fn take(&mut self, frame: Value) -> Option<Value> {
        assert_eq!(frame["jsonrpc"], "2.0", "{frame}");
        self.seen.push(frame.clone());
        match (frame["method"].as_str(), &frame["id"]) {
            (Some("session/update"), Value::Null) => self.updates.push(frame["params"].clone()),
            (Some("session/request_permission"), Value::Number(_)) => return Some(frame),
            (Some(method), Value::Number(_))
                if method.starts_with("fs/")
                    || method.starts_with("terminal/")
                    || method == "elicitation/create" =>
            {
                self.calls.push_back(frame);
            }
            (Some("$/cancel_request"), Value::Null) => {
                let request = frame["params"]["requestId"].as_u64().expect("a request's id");
                self.asks.retain(|ask| ask["id"] != request);
                self.calls.retain(|call| call["id"] != request);
                self.withdrawn.push_back(request);
            }
            (None, Value::Number(id)) => {
                let id = id.as_u64().expect("an id of ours");
                let known = id <= self.last_id && !self.replies.contains_key(&id);
                assert!(known, "an answer to nothing, or a second one: {frame}");
                self.replies.insert(id, outcome(&frame));
            }
            _ => self.fail(&format!("no client expects {frame}")),
        }
        None
    }

    fn fail(&self, what: &str) -> ! {
        let seen = self.seen.iter().rev().take(SHOWN_MAX).rev();
        let lines: Vec<String> =
            seen.map(|frame| frame.to_string().chars().take(SHOWN_CHARS_MAX).collect()).collect();
        panic!("{what}; the client has seen {} frames, at last\n{}", self.seen.len(), lines.join("\n"))
    }

    fn check_nothing_unread(&mut self) {
        if let Some(peer) = &mut self.peer {
            while let Ok(batch) = peer.batches.try_recv() {
                self.unparsed.extend(batch.bytes);
            }
        }
        self.split();
        while let Some(frame) = self.arrived.pop_front() {
            let ask = self.take(frame);
            self.asks.extend(ask);
        }
        assert!(self.replies.is_empty(), "answers were left unread: {:?}", self.replies);
        assert!(self.asks.is_empty(), "questions were left unanswered: {:?}", self.asks);
        assert!(self.calls.is_empty(), "calls were left undone: {:?}", self.calls);
        assert!(self.withdrawn.is_empty(), "withdrawn questions were left unread: {:?}", self.withdrawn);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_nothing_unread();
        }
    }
}

pub(super) fn outcome(frame: &Value) -> Result<Value, Refused> {
    match (frame.get("result"), frame.get("error")) {
        (Some(result), None) => Ok(result.clone()),
        (None, Some(error)) => Err(Refused {
            code: error["code"].as_i64().expect("a code"),
            message: error["message"].as_str().expect("a message").to_owned(),
            data: error["data"].clone(),
        }),
        _ => panic!("an answer has either a result or an error: {frame}"),
    }
}

fn kind(frame: &Value) -> &str {
    match frame["method"].as_str() {
        Some("session/update") => frame["params"]["update"]["sessionUpdate"].as_str().unwrap_or("update"),
        Some("session/request_permission") => "ask",
        Some("$/cancel_request") => "withdrawn",
        Some(other) => other,
        None => "reply",
    }
}
