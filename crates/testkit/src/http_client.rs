//! A plain HTTP client for tests: it sends exactly what a test gives it, and returns the response unchanged.
#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No wait of a test is longer.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client for one address and token.
#[derive(Debug, Clone)]
pub struct HttpClient {
    pub address: SocketAddr,
    pub token: Option<String>,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is not.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// One server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: String,
}

impl SseEvent {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_default()
    }
}

impl HttpClient {
    pub fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: Some(token.to_owned()), headers: Vec::new() }
    }

    /// The same with a further header.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut more = self.clone();
        more.headers.push((name.to_owned(), value.to_owned()));
        more
    }

    pub async fn get(&self, path: &str) -> HttpResponse {
        self.send("GET", path, None).await
    }

    pub async fn delete(&self, path: &str) -> HttpResponse {
        self.send("DELETE", path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.send("POST", path, Some(body.to_string().as_bytes())).await
    }

    /// Sends a request and reads its whole answer.
    pub async fn send(&self, method: &str, path: &str, body: Option<&[u8]>) -> HttpResponse {
        let mut answer = self.begin(method, path, body).await;
        let mut whole = Vec::new();
        while let Some(part) = answer.part().await {
            whole.extend(part);
        }
        HttpResponse { status: answer.status, headers: answer.headers, body: whole }
    }

    /// Sends a request and reads the head of its answer.
    pub async fn begin(&self, method: &str, path: &str, body: Option<&[u8]>) -> StreamedResponse {
        let mut socket = TcpStream::connect(self.address).await.expect("the server takes connections");
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        if let Some(token) = &self.token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                head.push_str("content-type: application/json\r\n");
            }
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        socket.write_all(head.as_bytes()).await.expect("the head is sent");
        // A server may refuse by the head alone.
        drop(socket.write_all(body.unwrap_or_default()).await);
        StreamedResponse::read(socket).await
    }

    /// Opens a stream of events.
    pub async fn events(&self, path: &str) -> SseEvents {
        let answer = self.with("accept", "text/event-stream").begin("GET", path, None).await;
        assert_eq!(answer.status, 200, "a stream: {:?}", answer.rest);
        SseEvents::of(answer)
    }
}

/// An answer whose body may still be coming.
pub struct StreamedResponse {
    socket: TcpStream,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    rest: Vec<u8>,
    body: Body,
}

enum Body {
    Length(usize),
    Chunked,
    UntilClosed,
    Over,
}

impl StreamedResponse {
    async fn read(mut socket: TcpStream) -> Self {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            let more = receive(&mut socket).await;
            assert!(!more.is_empty(), "the server hung up: {:?}", String::from_utf8_lossy(&bytes));
            bytes.extend(more);
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let find =
            |name: &str| headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
        let status = status.expect("a status");
        let body = match (
            find("transfer-encoding"),
            find("content-length").and_then(|length| length.parse().ok()),
        ) {
            (Some(_), _) => Body::Chunked,
            (None, Some(length)) => Body::Length(length),
            (None, None) if status == 204 || status == 202 => Body::Over,
            (None, None) => Body::UntilClosed,
        };
        Self { socket, status, headers, rest: bytes[end + 4..].to_vec(), body }
    }

    /// The next part of the body; none at its end.
    pub async fn part(&mut self) -> Option<Vec<u8>> {
        match self.body {
            Body::Over | Body::Length(0) => None,
            Body::Length(left) => {
                self.more().await;
                let part = self.take(left.min(self.rest.len()));
                self.body = if part.is_empty() { Body::Over } else { Body::Length(left - part.len()) };
                (!part.is_empty()).then_some(part)
            }
            Body::UntilClosed => {
                self.more().await;
                let part = self.take(self.rest.len());
                (!part.is_empty()).then_some(part)
            }
            Body::Chunked => self.chunk().await,
        }
    }

    async fn chunk(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.rest.windows(2).position(|window| window == b"\r\n") {
                let size = std::str::from_utf8(&self.rest[..at]).ok();
                let size = size
                    .and_then(|size| usize::from_str_radix(size.trim(), 16).ok())
                    .expect("a chunk's size");
                if size == 0 {
                    self.body = Body::Over;
                    return None;
                }
                if self.rest.len() >= at + 2 + size + 2 {
                    self.take(at + 2);
                    let part = self.take(size);
                    self.take(2);
                    return Some(part);
                }
            }
            let before = self.rest.len();
            self.rest.extend(receive(&mut self.socket).await);
            if self.rest.len() == before {
                // Cut off in the middle.
                self.body = Body::Over;
                return None;
            }
        }
    }

    async fn more(&mut self) {
        if self.rest.is_empty() {
            self.rest = receive(&mut self.socket).await;
        }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.rest.split_off(count);
        std::mem::replace(&mut self.rest, rest)
    }
}

async fn receive(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 16 << 10];
    let read = tokio::time::timeout(DEADLINE, socket.read(&mut bytes)).await;
    let count = read.expect("the server answers in time").unwrap_or(0);
    bytes.truncate(count);
    bytes
}

/// A stream of events that is being read.
pub struct SseEvents {
    answer: StreamedResponse,
    text: Vec<u8>,
    arrived: VecDeque<SseEvent>,
    /// The id of the last event that was taken.
    pub last: Option<String>,
}

impl SseEvents {
    pub fn of(answer: StreamedResponse) -> Self {
        Self { answer, text: Vec::new(), arrived: VecDeque::new(), last: None }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.answer.headers.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The next event; none when the stream has ended.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.arrived.pop_front() {
                self.last = event.id.clone().or(self.last.take());
                return Some(event);
            }
            self.text.extend(self.answer.part().await?);
            while let Some(end) = self.text.windows(2).position(|window| window == b"\n\n") {
                let rest = self.text.split_off(end + 2);
                let block = std::mem::replace(&mut self.text, rest);
                self.arrived.extend(parse(&String::from_utf8_lossy(&block)));
            }
        }
    }

    /// The next bytes, unlooked at; none when the stream has ended.
    pub async fn raw(&mut self) -> Option<Vec<u8>> {
        if self.text.is_empty() { self.answer.part().await } else { Some(std::mem::take(&mut self.text)) }
    }

    /// Reads until an event is wanted, and gives everything up to and including it.
    pub async fn until(&mut self, wanted: impl Fn(&SseEvent) -> bool) -> Vec<SseEvent> {
        let mut seen = Vec::new();
        while let Some(event) = self.next().await {
            let found = wanted(&event);
            seen.push(event);
            if found {
                return seen;
            }
        }
        panic!("the stream ended without what was wanted: {seen:#?}")
    }

    /// The answer to the request with this id, and everything before it.
    pub async fn reply(&mut self, id: u64) -> (Value, Vec<SseEvent>) {
        let seen = self.until(|event| event.json()["id"] == id && event.json()["method"].is_null()).await;
        (seen.last().map(SseEvent::json).unwrap_or_default(), seen)
    }
}

fn parse(block: &str) -> Option<SseEvent> {
    let mut event = SseEvent::default();
    let mut any = false;
    for line in block.lines().filter(|line| !line.starts_with(':')) {
        let (field, value) = line.split_once(": ").unwrap_or((line, ""));
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => event.event = Some(value.to_owned()),
            "data" => event.data.push_str(value),
            _ => continue,
        }
        any = true;
    }
    any.then_some(event)
}
