//! A hub in this process, on a real address, with scripted bridges, machines and browsers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::{BoundListener, Refusal, ServerNames};
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, StatusCode};
use engine::{BoxFuture, Clock, Timestamp};
use futures_util::{SinkExt, StreamExt};
use hub::authenticator::{HubAuthenticator, HubVisitor, MachineToken, PersonId, VisitorKind};
use hub::{Hub, HubOptions, HubParts, NodeId, RouterOptions};
use serde_json::{Value, json};
use store::sql::{Db, DbError, DbResult, SqliteDb, Statement, StatementResult};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;
use wire::native::hub_requests::{HubReplyBody, HubRequest};
use wire::native::{ReplyError, Role};

/// Until something is there that must come.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A clock that the test sets.
pub struct TestClock(pub AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// A database that a test can make unavailable.
pub struct UnreliableDb {
    inner: Arc<dyn Db>,
    /// Its own clock.
    clock: Arc<TestClock>,
    pub away: AtomicBool,
    /// Does the next write, and answers that the database is unavailable.
    pub lose_next_answer: AtomicBool,
}

impl Db for UnreliableDb {
    fn run(&self, mut work: Vec<Statement>, topics: Vec<String>) -> DbResult<'_, Vec<StatementResult>> {
        for statement in &mut work {
            if statement.sql.contains("NOW_MS") {
                statement.sql = statement.sql.replace("NOW_MS", &self.clock.now().0.to_string()).into();
            }
        }
        Box::pin(async move {
            let gone = || DbError::Unavailable { reason: "the test says so".into() };
            if self.away.load(Ordering::Relaxed) {
                return Err(gone());
            }
            let writes = work.iter().any(|one| one.sql.starts_with("INSERT INTO log_entries"));
            let done = self.inner.run(work, topics).await;
            if writes && self.lose_next_answer.swap(false, Ordering::Relaxed) {
                return Err(gone());
            }
            done
        })
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.inner.subscribe()
    }
}

/// Accounts that believe every request: `Bearer of-NAME`, `who=NAME`, `share=SESSION.ROLE` (made by ops).
#[derive(Default)]
pub struct TestAccounts {
    revoked: Mutex<HashMap<String, CancellationToken>>,
}

impl TestAccounts {
    pub fn token(&self, name: &str) -> CancellationToken {
        self.revoked.lock().unwrap().entry(name.to_owned()).or_default().clone()
    }
}

fn unknown() -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", "who are you?")
}

impl HubAuthenticator for TestAccounts {
    fn visitor<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<HubVisitor, Refusal>> {
        Box::pin(async move {
            let cookie = headers.get(COOKIE).and_then(|cookie| cookie.to_str().ok()).ok_or_else(unknown)?;
            let who = if let Some(name) = cookie.strip_prefix("who=") {
                VisitorKind::Person { id: PersonId(name.into()), name: name.into(), admin: false }
            } else {
                let share = cookie.strip_prefix("share=").and_then(|share| share.split_once('.'));
                let (session, role) = share.ok_or_else(unknown)?;
                let role: Role = serde_json::from_value(role.into()).map_err(|_| unknown())?;
                let (owner, until) = (PersonId("ops".into()), Timestamp(9_000));
                VisitorKind::ShareLink { share: "link".into(), session: session.into(), owner, role, until }
            };
            Ok(HubVisitor { kind: who, device: cookie.into(), revoked: self.token(cookie) })
        })
    }

    fn machine<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<MachineToken, Refusal>> {
        Box::pin(async move {
            let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            let name = shown.and_then(|shown| shown.strip_prefix("Bearer of-")).ok_or_else(unknown)?;
            if self.token(name).is_cancelled() {
                return Err(unknown());
            }
            Ok(MachineToken { person: PersonId(name.into()), token: name.into() })
        })
    }

    fn revoked(&self, machine_token: &MachineToken) -> CancellationToken {
        self.token(&machine_token.token)
    }

    fn answer<'a>(
        &'a self,
        _: &'a HubVisitor,
        request: HubRequest,
    ) -> BoxFuture<'a, Result<Result<HubReplyBody, ReplyError>, HubRequest>> {
        Box::pin(async move { Err(request) })
    }
}

/// One node.
pub struct Node {
    pub hub: Arc<Hub>,
    pub address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl Node {
    pub async fn stop(self) {
        self.hub.finish().await;
        self.serving.await.unwrap();
    }

    pub async fn socket(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, u16> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(self.address).await.unwrap();
        match client_async(request, stream).await {
            Ok((socket, _)) => Ok(Socket { socket, skipped: Vec::new() }),
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The socket of a browser, after its first frames.
    pub async fn browser(&self, cookie: &str) -> Socket {
        let origin = format!("http://{}", self.address);
        let headers =
            [("cookie", cookie), ("origin", origin.as_str()), ("sec-websocket-protocol", "ropewalk.v1")];
        let mut socket = self.socket("/ui/socket", &headers).await.unwrap();
        let hello = socket.next().await;
        assert_eq!(hello["on"], "hello", "{hello}");
        let at = socket.next().await;
        assert_eq!(at["on"], "at", "{at}");
        socket
    }

    /// The socket of a session that was registered.
    pub async fn bridge(&self, person: &str, session: &str) -> Socket {
        let token = format!("Bearer of-{person}");
        let headers = [("authorization", token.as_str()), ("sec-websocket-protocol", "ropewalk.tunnel.v1")];
        self.socket(&format!("/ws/{session}"), &headers).await.unwrap()
    }

    /// A machine that has said its name.
    pub async fn machine(&self, person: &str, id: &str) -> Socket {
        let token = format!("Bearer of-{person}");
        let headers = [("authorization", token.as_str()), ("sec-websocket-protocol", "ropewalk.tunnel.v1")];
        let mut socket = self.socket(&format!("/ws/machine/{id}"), &headers).await.unwrap();
        let name = format!("{person}'s {id}");
        socket.say(json!({ "machine": { "id": id, "name": name, "version": "1", "sealed": false } })).await;
        socket
    }

    pub async fn http(&self, method: &str, path: &str, token: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let (status, text) = self.raw(&head).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// A request as it is written.
    pub async fn raw(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, body.to_owned())
    }

    pub async fn register(&self, person: &str, session: &str, machine: Option<&str>) -> (u16, Value) {
        let mut body = json!({
            "session_id": session, "model": "m", "sandbox": "workspace-write", "approval": "auto", "cwd": "/home/me",
        });
        if let Some(machine) = machine {
            body["machine"] = machine.into();
        }
        self.http("POST", "/api/sessions", &format!("of-{person}"), Some(body)).await
    }
}

pub struct TestCluster {
    pub db: Arc<UnreliableDb>,
    pub clock: Arc<TestClock>,
    pub accounts: Arc<TestAccounts>,
    _folder: Option<tempfile::TempDir>,
}

impl TestCluster {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inner = SqliteDb::open(&folder.path().join("hub.db")).unwrap();
        Self { _folder: Some(folder), ..Self::on(Arc::new(inner)) }
    }

    /// On a database that is there.
    pub fn on(inner: Arc<dyn Db>) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(1_000_000_000)));
        let db = UnreliableDb {
            inner,
            clock: Arc::clone(&clock),
            away: AtomicBool::new(false),
            lose_next_answer: AtomicBool::new(false),
        };
        Self { db: Arc::new(db), clock, accounts: Arc::new(TestAccounts::default()), _folder: None }
    }

    /// One more node on the same database.
    pub async fn node(&self) -> Node {
        self.begin(false, Arc::clone(&self.clock)).await
    }

    /// One more node, with a clock that is off by this much.
    pub async fn node_off_by(&self, millis: i64) -> Node {
        let clock = TestClock(AtomicI64::new(self.clock.now().0 + millis));
        self.begin(false, Arc::new(clock)).await
    }

    /// The only node, on a database of its own.
    pub async fn alone(&self) -> Node {
        self.begin(true, Arc::clone(&self.clock)).await
    }

    async fn begin(&self, owns_database: bool, clock: Arc<TestClock>) -> Node {
        let parts = HubParts {
            db: Arc::clone(&self.db) as Arc<dyn Db>,
            accounts: Arc::clone(&self.accounts) as Arc<dyn HubAuthenticator>,
            people: None,
            clock,
            node: NodeId::fresh().unwrap(),
            owns_database,
            options: HubOptions {
                metrics_token: Some("numbers".into()),
                forget_after: Some(Duration::from_secs(100 * 24 * 3600)),
                ..HubOptions::default()
            },
        };
        let hub = Hub::open(parts).await.unwrap();
        let listening = BoundListener::bind("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let address = listening.local_addr();
        let names = ServerNames { bound: address, secure: false, hosts: Vec::new(), cors: Vec::new() };
        let router = hub::router(&hub, RouterOptions { names, behind_proxy: false }, None);
        let serving = hub.spawn(listening.serve(router, hub.stopping()));
        Node { hub, address, serving }
    }

    /// Waits until a node holds the socket of a machine.
    pub async fn wait_for_machine(&self, machine: &str) {
        loop {
            let question = "SELECT id FROM machines WHERE id = $1 AND node IS NOT NULL";
            let found =
                self.db.run(vec![Statement::new(question, [machine.into()])], Vec::new()).await.unwrap();
            if !found[0].rows.is_empty() {
                return;
            }
        }
    }

    pub fn away(&self, away: bool) {
        self.db.away.store(away, Ordering::Relaxed);
    }

    pub fn later(&self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).unwrap();
        self.clock.0.fetch_add(millis, Ordering::Relaxed);
    }
}

pub struct Socket {
    socket: WebSocketStream<TcpStream>,
    /// Frames that came before the one that a test waited for.
    skipped: Vec<Value>,
}

impl Socket {
    pub async fn say(&mut self, frame: Value) {
        self.say_text(&frame.to_string()).await;
    }

    pub async fn say_text(&mut self, text: &str) {
        self.try_say(text).await.unwrap();
    }

    pub async fn try_say(&mut self, text: &str) -> Result<(), String> {
        self.socket.send(Message::text(text)).await.map_err(|error| error.to_string())
    }

    /// The next frame, as text; nothing, if it was closed.
    pub async fn next_text(&mut self) -> Result<String, (u16, String)> {
        let next = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
                    Some(Ok(Message::Close(Some(frame)))) => {
                        return Err((u16::from(frame.code), frame.reason.to_string()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err((1006, error.to_string())),
                    None => return Err((1006, String::new())),
                }
            }
        };
        tokio::time::timeout(DEADLINE, next).await.expect("nothing came")
    }

    pub async fn next(&mut self) -> Value {
        if !self.skipped.is_empty() {
            return self.skipped.remove(0);
        }
        let text = self.next_text().await.unwrap_or_else(|closed| panic!("closed: {closed:?}"));
        serde_json::from_str(&text).unwrap()
    }

    /// The next frame of a kind; others are kept.
    pub async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.skipped.iter().position(&wanted) {
            return self.skipped.remove(at);
        }
        loop {
            let text = self.next_text().await.unwrap_or_else(|closed| panic!("closed: {closed:?}"));
            let frame: Value = serde_json::from_str(&text).unwrap();
            if wanted(&frame) {
                return frame;
            }
            self.skipped.push(frame);
        }
    }

    /// Waits until it is closed, and says how.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Err(closed) = self.next_text().await {
                return closed;
            }
        }
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&mut self, request: Value) -> Value {
        let id = request["id"].clone();
        self.say(request).await;
        self.until(|frame| frame["re"] == id).await
    }

    pub async fn told(&mut self, on: &str) -> Value {
        self.until(|frame| frame["on"] == on).await
    }

    /// What a hub says first on a session's socket.
    pub async fn ready(&mut self) -> (u64, Option<u64>) {
        let ready = self.until(|frame| frame.get("ready").is_some()).await["ready"].clone();
        (ready["events"].as_u64().unwrap(), ready["view"].as_u64())
    }

    /// Waits until everything up to here is kept.
    pub async fn acked(&mut self, events: u64) {
        self.until(|frame| frame["ack"]["events"] == events).await;
    }
}

/// A batch of events after a position.
pub fn events(after: u64, seqs: std::ops::RangeInclusive<u64>) -> Value {
    let entries: Vec<_> =
        seqs.map(|seq| json!({ "seq": seq, "body": { "seq": seq, "text": "x" } })).collect();
    json!({ "batch": { "after": after, "events": entries } })
}

/// A batch with a view.
pub fn view(session: &str, from: Option<u64>, upto: u64) -> Value {
    let body = json!({
        "session": session, "upto": upto, "reset": from.is_none(), "earlier": false, "rows": [], "appends": [],
        "state": null,
    });
    let mut view = json!({ "upto": upto, "body": body });
    if let Some(from) = from {
        view["from"] = from.into();
    }
    json!({ "batch": { "after": 0, "view": view } })
}

/// A batch with a card.
pub fn card(session: &str, title: &str, updated_at: i64) -> Value {
    let body = json!({
        "session": session, "title": title, "folder": "/home/me/shop", "source": "acp", "createdAt": 1,
        "updatedAt": updated_at, "state": "working", "line": null, "costUsd": null, "asks": [],
    });
    json!({ "batch": { "after": 0, "card": { "state": "working", "asks": [], "updated_at": updated_at, "body": body } } })
}
