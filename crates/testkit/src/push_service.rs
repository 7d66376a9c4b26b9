//! A push service for tests: it takes what a server sends for browsers, and believes none of it.
//!
//! Each push is verified and decrypted as the browser behind its subscription would do it, with another
//! implementation of the curve than the server's. What is wrong with one stands in [`Received::wrong`].
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod browser;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use wire::native::PushSubscription;

use crate::mock_provider::request::{RawRequest, read_raw};

pub use browser::Browser;

/// No wait of a test is longer.
const DEADLINE: Duration = Duration::from_secs(60);
/// Pushes that a test has not looked at.
const RECEIVED_MAX: usize = 1024;

/// What is answered to a push.
#[derive(Debug, Clone)]
pub enum PushServiceReply {
    Status(u16),
    /// With a header.
    With(u16, &'static str, String),
    /// A body without an end.
    Endless,
}

/// One push as it came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Received {
    pub path: String,
    pub ttl: Option<String>,
    pub urgency: Option<String>,
    pub topic: Option<String>,
    /// What the browser would be given; null if it could not read it.
    pub payload: Value,
    /// Bytes of the encrypted body.
    pub bytes: usize,
    /// Of the token.
    pub claims: Value,
    /// With which key the token was signed.
    pub key: String,
    pub wrong: Option<String>,
}

pub struct PushService {
    address: SocketAddr,
    shared: Arc<Shared>,
    received: mpsc::Receiver<Received>,
    _serving: JoinSet<()>,
}

struct Shared {
    origin: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    browsers: HashMap<String, Arc<Browser>>,
    answers: VecDeque<PushServiceReply>,
}

impl PushService {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port on loopback");
        let address = listener.local_addr().expect("the port's address");
        let shared = Arc::new(Shared { origin: format!("http://{address}"), state: Mutex::default() });
        let (sender, received) = mpsc::channel(RECEIVED_MAX);
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, Arc::clone(&shared), sender));
        Self { address, shared, received, _serving: serving }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a new browser would give the server.
    pub fn subscribe(&self) -> PushSubscription {
        let browser = Browser::new();
        let mut state = self.shared.lock();
        let path = format!("/push/{}", state.browsers.len() + 1);
        let (p256dh, auth) = browser.keys();
        state.browsers.insert(path.clone(), Arc::new(browser));
        PushSubscription { endpoint: format!("{}{path}", self.shared.origin), p256dh, auth }
    }

    /// Answers like this, after everything else that was said before. Then pushes are taken again.
    pub fn then(&self, answer: PushServiceReply) {
        self.shared.lock().answers.push_back(answer);
    }

    /// The next push, whatever was answered to it. Fails if it was not in order.
    pub async fn next(&mut self) -> Received {
        let next = tokio::time::timeout(DEADLINE, self.received.recv()).await;
        let received = next.expect("a push arrives in time").expect("the service runs");
        assert_eq!(received.wrong, None, "{received:?}");
        received
    }

    /// A push that has arrived already, if there is one.
    pub fn arrived(&mut self) -> Option<Received> {
        self.received.try_recv().ok()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, received: mpsc::Sender<Received>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, Arc::clone(&shared), received.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>, received: mpsc::Sender<Received>) {
    let Some(request) = read_raw(&mut stream).await else { return };
    let (browser, answer) = {
        let mut state = shared.lock();
        let answer = state.answers.pop_front().unwrap_or(PushServiceReply::Status(201));
        (state.browsers.get(&request.path).cloned(), answer)
    };
    let seen = look_at(&request, browser.as_deref(), &shared.origin);
    received.send(seen).await.expect("the test takes what arrives");
    // Whoever hangs up has read what it wanted.
    drop(respond(&mut stream, answer).await);
}

fn look_at(request: &RawRequest, browser: Option<&Browser>, origin: &str) -> Received {
    let header = |name: &str| {
        let found = request.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.clone())
    };
    let mut received = Received {
        path: request.path.clone(),
        ttl: header("ttl"),
        urgency: header("urgency"),
        topic: header("topic"),
        bytes: request.body.len(),
        ..Received::default()
    };
    let read = || -> Result<(String, Value, Value), String> {
        let browser = browser.ok_or("nobody subscribed here")?;
        if request.method != "POST" || header("content-encoding").as_deref() != Some("aes128gcm") {
            return Err(format!("{} with {:?}", request.method, header("content-encoding")));
        }
        let authorization = header("authorization").ok_or("no authorization")?;
        let (key, claims) = browser::verify(&authorization, origin)?;
        let text = browser.open(&request.body)?;
        let payload = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        Ok((key, claims, payload))
    };
    match read() {
        Ok((key, claims, payload)) => Received { key, claims, payload, ..received },
        Err(wrong) => {
            received.wrong = Some(wrong);
            received
        }
    }
}

async fn respond(stream: &mut TcpStream, answer: PushServiceReply) -> std::io::Result<()> {
    let (status, more) = match &answer {
        PushServiceReply::Status(status) => (*status, String::new()),
        PushServiceReply::With(status, name, value) => (*status, format!("{name}: {value}\r\n")),
        PushServiceReply::Endless => (201, "transfer-encoding: chunked\r\n".to_owned()),
    };
    let length = if let PushServiceReply::Endless = answer { "" } else { "content-length: 0\r\n" };
    let head = format!("HTTP/1.1 {status} Mock\r\n{length}connection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await?;
    if let PushServiceReply::Endless = answer {
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        loop {
            stream.write_all(chunk.as_bytes()).await?;
        }
    }
    stream.shutdown().await
}
