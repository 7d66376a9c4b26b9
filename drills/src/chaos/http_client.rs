//! A plain HTTP client that reads a body as its bytes come, so that what was cut off in the middle of a
//! chunk still counts as received up to the cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

/// How often a reader looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// No answer takes longer; whoever waits for one has lost its connection.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Where to, as whom, and what to send with every request.
#[derive(Debug, Clone)]
pub struct HttpClient {
    pub address: SocketAddr,
    /// The name that the server knows itself by, also where a proxy stands before it.
    pub host: SocketAddr,
    pub headers: Vec<(String, String)>,
}

pub struct HttpResponse {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Body,
}

/// A body whose bytes may still be coming.
pub struct Body {
    socket: TcpStream,
    raw: Vec<u8>,
    left: BodyLength,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyLength {
    Length(usize),
    /// So many bytes of the chunk that is being read, its line end included.
    Chunk(usize),
    Over,
}

pub enum BodyPiece {
    Bytes(Vec<u8>),
    /// Nothing came for a moment.
    Quiet,
    /// The end, whether it was meant or not.
    Over,
}

impl HttpClient {
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut more = self.clone();
        more.headers.push((name.to_owned(), value.to_owned()));
        more
    }

    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<HttpResponse> {
        self.with("content-type", "application/json").send("POST", path, body.to_string().as_bytes())
    }

    pub fn get(&self, path: &str) -> anyhow::Result<HttpResponse> {
        self.send("GET", path, b"")
    }

    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<HttpResponse> {
        let mut socket = TcpStream::connect_timeout(&self.address, ANSWER_MAX)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        socket.write_all(&[head.as_bytes(), body].concat())?;
        HttpResponse::read(socket)
    }
}

impl HttpResponse {
    fn read(mut socket: TcpStream) -> anyhow::Result<Self> {
        let deadline = Instant::now() + ANSWER_MAX;
        let mut raw = Vec::new();
        let end = loop {
            if let Some(end) = find(&raw, b"\r\n\r\n") {
                break end;
            }
            match receive(&mut socket) {
                BodyPiece::Bytes(bytes) => raw.extend(bytes),
                BodyPiece::Quiet if Instant::now() < deadline => {}
                BodyPiece::Quiet => bail!("no answer in time"),
                BodyPiece::Over => bail!("cut off before the answer"),
            }
        };
        let rest = raw.split_off(end + 4);
        let head = String::from_utf8(raw)?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let status = status.context("an answer without a status")?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let find =
            |name: &str| headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
        let length = find("content-length").and_then(|length| length.parse().ok());
        let left = match (find("transfer-encoding"), length) {
            (Some(_), _) => BodyLength::Chunk(0),
            (None, length) => BodyLength::Length(length.unwrap_or(0)),
        };
        Ok(Self { status, headers, body: Body { socket, raw: rest, left } })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The rest of the answer.
    pub fn text(mut self) -> anyhow::Result<String> {
        let deadline = Instant::now() + ANSWER_MAX;
        let mut whole = Vec::new();
        while self.body.left != BodyLength::Over {
            match self.body.next()? {
                BodyPiece::Bytes(bytes) => whole.extend(bytes),
                BodyPiece::Quiet if Instant::now() < deadline => {}
                BodyPiece::Quiet => bail!("the answer did not end in time"),
                BodyPiece::Over if self.body.left == BodyLength::Over => {}
                BodyPiece::Over => bail!("cut off in the answer"),
            }
        }
        Ok(String::from_utf8(whole)?)
    }
}

impl Body {
    pub fn next(&mut self) -> anyhow::Result<BodyPiece> {
        loop {
            match self.left {
                BodyLength::Over | BodyLength::Length(0) => {
                    self.left = BodyLength::Over;
                    return Ok(BodyPiece::Over);
                }
                BodyLength::Length(left) if !self.raw.is_empty() => {
                    let bytes = self.take(left);
                    self.left = BodyLength::Length(left - bytes.len());
                    return Ok(BodyPiece::Bytes(bytes));
                }
                BodyLength::Chunk(left) if left > 2 && !self.raw.is_empty() => {
                    let bytes = self.take(left - 2);
                    self.left = BodyLength::Chunk(left - bytes.len());
                    return Ok(BodyPiece::Bytes(bytes));
                }
                BodyLength::Chunk(left @ 1..=2) if !self.raw.is_empty() => {
                    self.left = BodyLength::Chunk(left - self.take(left).len());
                    continue;
                }
                BodyLength::Chunk(0) => {
                    if self.chunk()? {
                        continue;
                    }
                }
                BodyLength::Length(_) | BodyLength::Chunk(_) => {}
            }
            match receive(&mut self.socket) {
                BodyPiece::Bytes(bytes) => self.raw.extend(bytes),
                other => return Ok(other),
            }
        }
    }

    /// Reads the head of the next chunk, if it is there.
    fn chunk(&mut self) -> anyhow::Result<bool> {
        let Some(end) = find(&self.raw, b"\r\n") else { return Ok(false) };
        let line = self.take(end + 2);
        let size = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16).context("a chunk's size")?;
        self.left = if size == 0 { BodyLength::Over } else { BodyLength::Chunk(size + 2) };
        Ok(true)
    }

    fn take(&mut self, most: usize) -> Vec<u8> {
        let rest = self.raw.split_off(most.min(self.raw.len()));
        std::mem::replace(&mut self.raw, rest)
    }
}

/// One server-sent event.
#[derive(Debug, Clone, Default)]
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

pub enum NextEvent {
    Event(SseEvent),
    Quiet,
    Over,
}

/// The events of a body.
pub struct SseEvents {
    body: Body,
    text: Vec<u8>,
}

impl SseEvents {
    pub fn of(answer: HttpResponse) -> Self {
        Self { body: answer.body, text: Vec::new() }
    }

    pub fn next(&mut self) -> anyhow::Result<NextEvent> {
        loop {
            if let Some(end) = find(&self.text, b"\n\n") {
                let rest = self.text.split_off(end + 2);
                let block = std::mem::replace(&mut self.text, rest);
                match parse(std::str::from_utf8(&block).context("an event that is no text")?)? {
                    Some(event) => return Ok(NextEvent::Event(event)),
                    None => continue,
                }
            }
            match self.body.next()? {
                BodyPiece::Bytes(bytes) => self.text.extend(bytes),
                BodyPiece::Quiet => return Ok(NextEvent::Quiet),
                BodyPiece::Over => return Ok(NextEvent::Over),
            }
        }
    }
}

fn parse(block: &str) -> anyhow::Result<Option<SseEvent>> {
    let mut event = SseEvent::default();
    let mut any = false;
    for line in block.lines().filter(|line| !line.starts_with(':') && !line.is_empty()) {
        let (field, value) = line.split_once(": ").unwrap_or((line, ""));
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => event.event = Some(value.to_owned()),
            "data" => event.data.push_str(value),
            "retry" => continue,
            other => bail!("an event with the field {other:?}"),
        }
        any = true;
    }
    Ok(any.then_some(event))
}

/// What has come, or that nothing has for a moment.
pub fn receive(socket: &mut TcpStream) -> BodyPiece {
    let mut bytes = vec![0; 16 << 10];
    match socket.read(&mut bytes) {
        Ok(0) => BodyPiece::Over,
        Ok(count) => {
            bytes.truncate(count);
            BodyPiece::Bytes(bytes)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => BodyPiece::Quiet,
        Err(_) => BodyPiece::Over,
    }
}

pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
