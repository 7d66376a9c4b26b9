//! A receiver that a test scripts: it remembers every request, and hands its sockets to the test.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use serde_json::{Value, json};
use testkit::server::DEADLINE;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use wire::tunnel::{BridgeFrame, HUB_HEADER, PROTOCOL};

/// For [`Behaviour::socket`] and [`Behaviour::register`]: no answer at all.
pub const SWALLOWED: u16 = 0;

/// A request that came.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub what: String,
    pub authorization: Option<String>,
    pub body: Value,
}

/// How the receiver is.
pub struct Behaviour {
    /// Takes the sub-protocol.
    pub mirror: bool,
    /// Says that it is a hub, as hubs do.
    pub hub: bool,
    /// What it answers to each of these, instead of what it should.
    pub register: AtomicU16,
    pub heartbeat: AtomicU16,
    pub farewell: AtomicU16,
    pub socket: AtomicU16,
    pub ws_url: Option<String>,
    pub location: Option<String>,
}

impl Behaviour {
    pub fn plain() -> Self {
        Self {
            mirror: false,
            hub: false,
            register: AtomicU16::new(200),
            heartbeat: AtomicU16::new(204),
            farewell: AtomicU16::new(204),
            socket: AtomicU16::new(101),
            ws_url: None,
            location: None,
        }
    }

    pub fn mirror() -> Self {
        Self { mirror: true, hub: true, ..Self::plain() }
    }
}

pub struct Inner {
    pub manner: Behaviour,
    pub seen: watch::Sender<Vec<ReceivedRequest>>,
    sockets: mpsc::Sender<Socket>,
    host: String,
    /// What is answered instead, once each, to a request whose path ends so.
    pub odd: Mutex<VecDeque<(&'static str, String)>>,
    /// For tunnels without sockets: what is to be said, and what was said.
    pub down: Mutex<VecDeque<Value>>,
    pub up: watch::Sender<Vec<BridgeFrame>>,
}

pub struct Receiver {
    pub url: String,
    pub inner: Arc<Inner>,
    sockets: mpsc::Receiver<Socket>,
    serving: JoinHandle<()>,
}

/// A socket of the bridge's, at the receiver.
pub struct Socket {
    pub path: String,
    pub web: WebSocket,
    mirror: bool,
}

impl Receiver {
    pub async fn start(manner: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (sockets, opened) = mpsc::channel(64);
        let inner = Arc::new(Inner {
            manner,
            seen: watch::Sender::new(Vec::new()),
            sockets,
            host: host.clone(),
            odd: Mutex::default(),
            down: Mutex::default(),
            up: watch::Sender::new(Vec::new()),
        });
        let router = Router::new().fallback(serve).with_state(Arc::clone(&inner));
        let serving = TaskTracker::new().spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url: format!("http://{host}"), inner, sockets: opened, serving }
    }

    /// The next socket of a session; those of machines are another matter.
    pub async fn socket(&mut self) -> Socket {
        loop {
            let socket = self.any_socket().await;
            if !socket.path.starts_with("/ws/machine/") {
                return socket;
            }
        }
    }

    pub async fn machine_socket(&mut self) -> Socket {
        loop {
            let socket = self.any_socket().await;
            if socket.path.starts_with("/ws/machine/") {
                return socket;
            }
        }
    }

    async fn any_socket(&mut self) -> Socket {
        tokio::time::timeout(DEADLINE, self.sockets.recv()).await.expect("a socket in time").unwrap()
    }

    /// Waits until so many requests came with this method and path, and gives them.
    pub async fn seen(&self, what: &str, count: usize) -> Vec<ReceivedRequest> {
        let mut seen = self.inner.seen.subscribe();
        let of = |seen: &Vec<ReceivedRequest>| seen.iter().filter(|seen| seen.what == what).count();
        let enough = seen.wait_for(|seen| of(seen) >= count);
        let seen = tokio::time::timeout(DEADLINE, enough).await.unwrap_or_else(|_| panic!("{count} {what}"));
        seen.unwrap().iter().filter(|seen| seen.what == what).cloned().collect()
    }

    /// Answers requests whose path ends so with these bodies first.
    pub fn answers_oddly(&self, end: &'static str, bodies: impl IntoIterator<Item = String>) -> usize {
        let mut odd = self.inner.odd.lock().unwrap();
        let before = odd.len();
        odd.extend(bodies.into_iter().map(|body| (end, body)));
        odd.len() - before
    }

    pub fn all(&self) -> Vec<ReceivedRequest> {
        self.inner.seen.borrow().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let hub = inner.manner.hub;
    let mut response = answered(inner, request).await;
    if hub {
        response.headers_mut().insert(HUB_HEADER, PROTOCOL.parse().unwrap());
    }
    response
}

async fn answered(inner: Arc<Inner>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &inner).await.ok();
    let body = axum::body::to_bytes(body, 32 << 20).await.unwrap_or_default();
    let authorization = parts.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let told = serde_json::from_slice(&body).unwrap_or_default();
    // The names of connections are not what somebody waits for.
    let query = parts.uri.query().filter(|query| !query.starts_with("connection="));
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let what = format!("{} {path}{query}", parts.method);
    inner.seen.send_modify(|seen| seen.push(ReceivedRequest { what, authorization, body: told }));
    if let Some(body) = odd(&inner, &path) {
        return body.into_response();
    }
    if path.starts_with("/api/tunnel/") {
        return tunnel(&inner, &path, &body).await;
    }
    if let Some(upgrade) = upgrade {
        if inner.manner.socket.load(Ordering::SeqCst) == SWALLOWED {
            // As a proxy that waits for the end of a request which has none.
            return std::future::pending().await;
        }
        return opened(&inner, upgrade, path);
    }
    let answer = |status: &AtomicU16, body: Value| {
        let status = StatusCode::from_u16(status.load(Ordering::SeqCst)).unwrap();
        let location = inner.manner.location.clone().unwrap_or_default();
        (status, [("location", location)], body.to_string()).into_response()
    };
    match path.strip_prefix("/api/sessions") {
        Some("") => {
            if inner.manner.register.load(Ordering::SeqCst) == SWALLOWED {
                return std::future::pending().await;
            }
            let session = serde_json::from_slice::<Value>(&body).unwrap()["session_id"].clone();
            let session = session.as_str().unwrap();
            let ws_url = format!("ws://{}/ws/{session}", inner.host);
            let ws_url = inner.manner.ws_url.clone().unwrap_or(ws_url);
            let ui_url = format!("http://{}/s/{session}", inner.host);
            answer(&inner.manner.register, json!({ "ui_url": ui_url, "ws_url": ws_url }))
        }
        Some(rest) if rest.ends_with("/heartbeat") => answer(&inner.manner.heartbeat, json!({})),
        Some(_) => answer(&inner.manner.farewell, json!({})),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn odd(inner: &Inner, path: &str) -> Option<String> {
    let mut odd = inner.odd.lock().unwrap();
    let next = odd.iter().position(|(end, _)| path.ends_with(end) && !path.contains("/machine/"))?;
    odd.remove(next).map(|(_, body)| body)
}

fn opened(inner: &Arc<Inner>, upgrade: WebSocketUpgrade, path: String) -> Response {
    let status = inner.manner.socket.load(Ordering::SeqCst);
    if status != 101 {
        return StatusCode::from_u16(status).unwrap().into_response();
    }
    if path.starts_with("/ws/machine/") && !inner.manner.mirror {
        return StatusCode::NOT_FOUND.into_response();
    }
    let upgrade = if inner.manner.mirror { upgrade.protocols([PROTOCOL]) } else { upgrade };
    let (sockets, mirror) = (inner.sockets.clone(), inner.manner.mirror);
    upgrade.max_message_size(32 << 20).on_upgrade(move |web| async move {
        drop(sockets.send(Socket { path, web, mirror }).await);
    })
}

/// A tunnel without sockets.
async fn tunnel(inner: &Inner, path: &str, body: &Bytes) -> Response {
    let all = || -> Vec<Value> { inner.down.lock().unwrap().drain(..).collect() };
    if path.contains("/machine/") {
        return StatusCode::NOT_FOUND.into_response();
    }
    if path.ends_with("/open") {
        return json!({ "connection": "c-1" }).to_string().into_response();
    }
    if path.ends_with("/up") {
        let frames: Vec<BridgeFrame> = serde_json::from_slice(body).unwrap();
        inner.up.send_modify(|up| up.extend(frames));
        return Value::from(all()).to_string().into_response();
    }
    if path.ends_with("/down") {
        for _ in 0..2500 {
            let said = all();
            if !said.is_empty() {
                return Value::from(said).to_string().into_response();
            }
            // A receiver answers when it has something to say, or after a while.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        return "[]".into_response();
    }
    StatusCode::NO_CONTENT.into_response()
}

impl Socket {
    /// The next text frame, without the newline that ends it where there is no mirror; pings are answered on the way.
    pub async fn text(&mut self) -> Option<String> {
        // Pings keep coming: they are no reason to wait on.
        let deadline = Instant::now() + DEADLINE;
        loop {
            let message = tokio::time::timeout_at(deadline, self.web.recv()).await.expect("a frame in time");
            match message {
                Some(Ok(Message::Text(text))) if self.mirror => return Some(text.to_string()),
                Some(Ok(Message::Text(text))) => {
                    let line = text.strip_suffix('\n').expect("a frame ends with a newline");
                    assert!(!line.contains('\n'), "one frame per message: {line}");
                    return Some(line.to_owned());
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            }
        }
    }

    pub async fn json(&mut self) -> Value {
        serde_json::from_str(&self.text().await.expect("a frame")).unwrap()
    }

    /// Frames up to the first that is like this, as they came.
    pub async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            let frame = self.text().await.unwrap_or_else(|| panic!("the socket closed after {frames:#?}"));
            let last = is(&serde_json::from_str(&frame).unwrap());
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    pub async fn kind(&mut self, kind: &str) -> Value {
        let frames = self.until(|frame| frame["params"]["kind"] == kind).await;
        serde_json::from_str::<Value>(frames.last().unwrap()).unwrap()["params"].take()
    }

    /// Waits for the ping that follows the frames which were read, so that its answer confirms them.
    pub async fn confirm(&mut self) {
        loop {
            let message = tokio::time::timeout(DEADLINE, self.web.recv()).await.expect("a ping in time");
            if let Some(Ok(Message::Ping(ping))) = message
                && ping.len() == 8
            {
                break;
            }
        }
        // The answer to a ping leaves with the next thing that is read or written.
        self.web.send(Message::Ping("x".into())).await.unwrap();
        while let Some(Ok(message)) = self.web.recv().now_or_never().flatten() {
            assert!(!matches!(message, Message::Text(_)), "nothing was to follow: {message:?}");
        }
    }

    pub async fn send(&mut self, value: Value) {
        self.raw(&value.to_string()).await;
    }

    pub async fn raw(&mut self, text: &str) {
        self.web.send(Message::Text(text.to_owned().into())).await.unwrap();
    }

    /// Sends a request and gives its answer, with what came before it.
    pub async fn call(&mut self, id: u64, method: &str, params: Value) -> (Value, Vec<String>) {
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let mut frames = self.until(|frame| frame["id"] == id).await;
        let answer = serde_json::from_str(&frames.pop().unwrap()).unwrap();
        (answer, frames)
    }
}
