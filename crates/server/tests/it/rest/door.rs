//! A door with the REST routes on a test's server, and somebody who knocks.

use std::pin::Pin;
use std::sync::Arc;

use access::{AcceptedTokens, Client, Digest, Gate, GateParts, ServerNames};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use engine::Principal;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use server::http::{HttpState, OfficialConnections, ZephConnections, router};
use service::ServiceRules;
use testkit::server::{DEADLINE, Server};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::openapi;

/// Whose sessions the server's owner has.
pub const MASTER: &str = "the-master-token";
/// A client with sessions of its own.
pub const CI: &str = "the-token-of-ci";

pub struct Door {
    pub doors: Arc<HttpState>,
    routes: TowerToHyperService<Router>,
}

impl Door {
    pub fn open(server: &Server) -> Self {
        Self::at(server, "127.0.0.1:5173".parse().unwrap())
    }

    pub fn at(server: &Server, bound: std::net::SocketAddr) -> Self {
        let parts = server.connection_parts(Principal::local());
        let client = Client { id: "ci".into(), digest: Digest::of(CI) };
        let keys = AcceptedTokens::Tokens { master: Digest::of(MASTER), clients: vec![client] };
        let names = ServerNames { bound, secure: false, hosts: Vec::new(), cors: Vec::new() };
        let gate = Gate::new(GateParts { keys, names, behind_proxy: false, seed: [7; 32] });
        gate.open();
        let workspace = server.workspace();
        let doors = Arc::new(HttpState {
            started: parts.registry.clock().now(),
            registry: parts.registry,
            rules: ServiceRules {
                home_dir: workspace.clone(),
                places: Some(vec![workspace]),
                source: "http".into(),
                ..parts.rules
            },
            identity: parts.identity,
            dialect: wire::DialectSelection::default(),
            on_initialize: None,
            gate: Arc::new(gate),
            secret: [3; 32],
            official_connections: OfficialConnections::default(),
            zeph_connections: ZephConnections::default(),
            sockets: server::http::sockets(),
            devices: Arc::default(),
            app: app::AppServerSlot::default(),
            metrics: metrics::Metrics::new("1.2.3", engine::Timestamp(0)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let routes = TowerToHyperService::new(router(Arc::clone(&doors)));
        Self { doors, routes }
    }

    pub fn get(&self, path: impl Into<String>) -> Ask<'_> {
        Ask::new(self, "GET", path.into())
    }

    pub fn delete(&self, path: impl Into<String>) -> Ask<'_> {
        Ask::new(self, "DELETE", path.into())
    }

    pub fn post(&self, path: impl Into<String>, body: Value) -> Ask<'_> {
        self.send("POST", path, body)
    }

    pub fn send(&self, method: &'static str, path: impl Into<String>, body: Value) -> Ask<'_> {
        Ask { body: body.to_string().into(), ..Ask::new(self, method, path.into()) }
    }

    /// A new session's id.
    pub async fn session(&self) -> String {
        let made = self.post("/session", serde_json::json!({})).answer().await;
        made.is(StatusCode::CREATED)["session_id"].as_str().unwrap().to_owned()
    }

    /// Says something, and gives its message's id.
    pub async fn say(&self, session: &str, text: &str) -> String {
        let body = serde_json::json!({ "text": text });
        let taken = self.post(format!("/session/{session}/message"), body).answer().await;
        taken.is(StatusCode::ACCEPTED)["message_id"].as_str().unwrap().to_owned()
    }

    pub async fn close(self) {
        self.doors.stop.cancel();
        self.doors.tasks.close();
        within(self.doors.tasks.wait()).await;
    }
}

pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("it does not take so long")
}

/// A request on its way.
pub struct Ask<'a> {
    door: &'a Door,
    method: &'static str,
    path: String,
    token: Option<String>,
    headers: Vec<(&'static str, String)>,
    host: String,
    body: Vec<u8>,
}

impl<'a> Ask<'a> {
    fn new(door: &'a Door, method: &'static str, path: String) -> Self {
        let (token, host) = (Some(MASTER.into()), "127.0.0.1:5173".into());
        Self { door, method, path, token, headers: Vec::new(), host, body: Vec::new() }
    }

    pub fn by(self, token: &str) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Where the door says it is.
    pub fn to(self, address: std::net::SocketAddr) -> Self {
        Self { host: address.to_string(), ..self }
    }

    pub fn by_nobody(self) -> Self {
        Self { token: None, ..self }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Bytes that are no JSON.
    pub fn raw(self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self }
    }

    pub async fn response(self) -> Response<Body> {
        let mut request = Request::builder().method(self.method).uri(&self.path).header("host", &self.host);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !self.body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(self.body)).unwrap();
        within(self.door.routes.call(request)).await.unwrap()
    }

    pub async fn answer(self) -> Answer {
        let (method, path, request) = (self.method, self.path.clone(), self.body.clone());
        let (parts, body) = self.response().await.into_parts();
        let bytes = within(axum::body::to_bytes(body, usize::MAX)).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let media_type = parts.headers.get("content-type").map_or("", |value| value.to_str().unwrap());
        openapi::check(method, &path, &request, parts.status.as_u16(), media_type, &text);
        let asked = format!("{method} {path}");
        Answer { asked, status: parts.status, headers: parts.headers, text }
    }

    pub async fn stream(self) -> Frames {
        assert!(openapi::may_stream(self.method, &self.path), "no stream at {}", self.path);
        let response = self.response().await;
        assert_eq!(response.status(), StatusCode::OK);
        Frames { headers: response.headers().clone(), body: response.into_body(), buffer: String::new() }
    }
}

#[derive(Debug)]
pub struct Answer {
    asked: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    /// The body, if the status is this.
    #[track_caller]
    pub fn is(&self, status: StatusCode) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.asked, self.text);
        if self.text.is_empty() { Value::Null } else { serde_json::from_str(&self.text).unwrap() }
    }

    /// Fails unless this was refused with these.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) {
        let body = self.is(StatusCode::from_u16(status).unwrap());
        assert_eq!(body["error"], code, "{}: {}", self.asked, self.text);
        assert!(!body["message"].as_str().unwrap().is_empty(), "{}", self.asked);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub id: Option<u64>,
    pub event: String,
    pub data: Value,
}

impl Frame {
    /// The text it carries, in whichever form.
    pub fn text(&self) -> &str {
        let inner = ["data", "metadata"].iter().find_map(|part| self.data.get(part));
        inner.unwrap_or(&self.data)["text"].as_str().unwrap_or_default()
    }

    pub fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or(&self.event)
    }
}

/// A stream that is being read.
pub struct Frames {
    pub headers: HeaderMap,
    body: Body,
    buffer: String,
}

impl Frames {
    /// The next frame or comment; nothing at the end.
    pub async fn piece(&mut self) -> Option<String> {
        loop {
            if let Some((piece, rest)) = self.buffer.split_once("\n\n") {
                let (piece, rest) = (piece.to_owned(), rest.to_owned());
                self.buffer = rest;
                return Some(piece);
            }
            let next = std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let Some(frame) = within(next).await else {
                assert_eq!(self.buffer, "", "a frame that is cut off");
                return None;
            };
            let data = frame.unwrap().into_data().unwrap();
            self.buffer.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// The next frame.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let piece = self.piece().await?;
            if piece.starts_with(':') {
                continue;
            }
            let field = |name: &str| piece.lines().find_map(|line| line.strip_prefix(name));
            return Some(Frame {
                id: field("id: ").map(|id| id.parse().unwrap()),
                event: field("event: ").unwrap().to_owned(),
                data: serde_json::from_str(field("data: ").unwrap()).unwrap(),
            });
        }
    }

    /// All frames up to the first of this event.
    pub async fn until(&mut self, event: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("no {event} after {frames:?}"));
            let last = frame.event == event;
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    /// All frames to the end of the stream.
    pub async fn all(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

/// Fails unless the numbers go up by one from `first`.
#[track_caller]
pub fn dense(frames: &[Frame], first: u64) {
    let numbers: Vec<u64> = frames.iter().filter_map(|frame| frame.id).collect();
    assert_eq!(numbers, (first..).take(numbers.len()).collect::<Vec<_>>());
}
