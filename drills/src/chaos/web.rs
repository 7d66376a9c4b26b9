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
pub struct Web {
    pub address: SocketAddr,
    /// The name that the server knows itself by, also where a proxy stands before it.
    pub host: SocketAddr,
    pub headers: Vec<(String, String)>,
}

pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Body,
}

/// A body whose bytes may still be coming.
pub struct Body {
    socket: TcpStream,
    raw: Vec<u8>,
    left: Left,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Length(usize),
    /// So many bytes of the chunk that is being read, its line end included.
    Chunk(usize),
    Over,
}

pub enum Piece {
    Bytes(Vec<u8>),
    /// Nothing came for a moment.
    Quiet,
    /// The end, whether it was meant or not.
    Over,
}

impl Web {
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut more = self.clone();
        more.headers.push((name.to_owned(), value.to_owned()));
        more
    }

    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.with("content-type", "application/json").send("POST", path, body.to_string().as_bytes())
    }

    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send("GET", path, b"")
    }

    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Answer> {
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
        Answer::read(socket)
    }
}

impl Answer {
    fn read(mut socket: TcpStream) -> anyhow::Result<Self> {
        let deadline = Instant::now() + ANSWER_MAX;
        let mut raw = Vec::new();
        let end = loop {
            if let Some(end) = find(&raw, b"\r\n\r\n") {
                break end;
            }
            match receive(&mut socket) {
                Piece::Bytes(bytes) => raw.extend(bytes),
                Piece::Quiet if Instant::now() < deadline => {}
                Piece::Quiet => bail!("no answer in time"),
                Piece::Over => bail!("cut off before the answer"),
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
            (Some(_), _) => Left::Chunk(0),
            (None, length) => Left::Length(length.unwrap_or(0)),
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
        while self.body.left != Left::Over {
            match self.body.next()? {
                Piece::Bytes(bytes) => whole.extend(bytes),
                Piece::Quiet if Instant::now() < deadline => {}
                Piece::Quiet => bail!("the answer did not end in time"),
                Piece::Over if self.body.left == Left::Over => {}
                Piece::Over => bail!("cut off in the answer"),
            }
        }
        Ok(String::from_utf8(whole)?)
    }
}

impl Body {
    pub fn next(&mut self) -> anyhow::Result<Piece> {
        loop {
            match self.left {
                Left::Over | Left::Length(0) => {
                    self.left = Left::Over;
                    return Ok(Piece::Over);
                }
                Left::Length(left) if !self.raw.is_empty() => {
                    let bytes = self.take(left);
                    self.left = Left::Length(left - bytes.len());
                    return Ok(Piece::Bytes(bytes));
                }
                Left::Chunk(left) if left > 2 && !self.raw.is_empty() => {
                    let bytes = self.take(left - 2);
                    self.left = Left::Chunk(left - bytes.len());
                    return Ok(Piece::Bytes(bytes));
                }
                Left::Chunk(left @ 1..=2) if !self.raw.is_empty() => {
                    self.left = Left::Chunk(left - self.take(left).len());
                    continue;
                }
                Left::Chunk(0) => {
                    if self.chunk()? {
                        continue;
                    }
                }
                Left::Length(_) | Left::Chunk(_) => {}
            }
            match receive(&mut self.socket) {
                Piece::Bytes(bytes) => self.raw.extend(bytes),
                other => return Ok(other),
            }
        }
    }

    /// Reads the head of the next chunk, if it is there.
    fn chunk(&mut self) -> anyhow::Result<bool> {
        let Some(end) = find(&self.raw, b"\r\n") else { return Ok(false) };
        let line = self.take(end + 2);
        let size = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16).context("a chunk's size")?;
        self.left = if size == 0 { Left::Over } else { Left::Chunk(size + 2) };
        Ok(true)
    }

    fn take(&mut self, most: usize) -> Vec<u8> {
        let rest = self.raw.split_off(most.min(self.raw.len()));
        std::mem::replace(&mut self.raw, rest)
    }
}

/// One server-sent event.
#[derive(Debug, Clone, Default)]
pub struct Event {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_default()
    }
}

pub enum Next {
    Event(Event),
    Quiet,
    Over,
}

/// The events of a body.
pub struct Events {
    body: Body,
    text: Vec<u8>,
}

impl Events {
    pub fn of(answer: Answer) -> Self {
        Self { body: answer.body, text: Vec::new() }
    }

    pub fn next(&mut self) -> anyhow::Result<Next> {
        loop {
            if let Some(end) = find(&self.text, b"\n\n") {
                let rest = self.text.split_off(end + 2);
                let block = std::mem::replace(&mut self.text, rest);
                match parse(std::str::from_utf8(&block).context("an event that is no text")?)? {
                    Some(event) => return Ok(Next::Event(event)),
                    None => continue,
                }
            }
            match self.body.next()? {
                Piece::Bytes(bytes) => self.text.extend(bytes),
                Piece::Quiet => return Ok(Next::Quiet),
                Piece::Over => return Ok(Next::Over),
            }
        }
    }
}

fn parse(block: &str) -> anyhow::Result<Option<Event>> {
    let mut event = Event::default();
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
pub fn receive(socket: &mut TcpStream) -> Piece {
    let mut bytes = vec![0; 16 << 10];
    match socket.read(&mut bytes) {
        Ok(0) => Piece::Over,
        Ok(count) => {
            bytes.truncate(count);
            Piece::Bytes(bytes)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Piece::Quiet,
        Err(_) => Piece::Over,
    }
}

pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
