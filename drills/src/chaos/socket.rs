//! A plain WebSocket client: text frames out, whole messages in.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::http_client::{BodyPiece, HttpClient, find, receive};

const LOOK_EVERY: Duration = Duration::from_millis(20);
const ANSWER_MAX: Duration = Duration::from_secs(5);

pub struct WebSocketClient {
    socket: TcpStream,
    raw: Vec<u8>,
    text: Vec<u8>,
}

pub enum SocketEvent {
    Message(Value),
    Quiet,
    Over,
}

/// One frame of the server, as the standard lays it out.
pub struct FrameLayout {
    pub code: u8,
    pub last: bool,
    /// Bytes before the payload.
    pub head: usize,
    pub payload: usize,
}

impl FrameLayout {
    /// None while the head of the frame is not there yet.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (first, second) = (*bytes.first()?, *bytes.get(1)?);
        let (head, payload) = match second & 0x7f {
            126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
            127 => {
                let length = u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?);
                (10, usize::try_from(length).unwrap_or(usize::MAX / 2))
            }
            short => (2, usize::from(short)),
        };
        Some(Self { code: first & 0x0f, last: first & 0x80 != 0, head, payload })
    }
}

impl WebSocketClient {
    pub fn open(web: &HttpClient, path: &str) -> anyhow::Result<Self> {
        let mut socket = TcpStream::connect_timeout(&web.address, ANSWER_MAX)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        let mut head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
            web.host
        );
        for (name, value) in &web.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        socket.write_all(head.as_bytes())?;
        let deadline = Instant::now() + ANSWER_MAX;
        let mut raw = Vec::new();
        let end = loop {
            if let Some(end) = find(&raw, b"\r\n\r\n") {
                break end + 4;
            }
            match receive(&mut socket) {
                BodyPiece::Bytes(bytes) => raw.extend(bytes),
                BodyPiece::Quiet if Instant::now() < deadline => {}
                BodyPiece::Quiet => bail!("no answer to the upgrade in time"),
                BodyPiece::Over => bail!("cut off before the upgrade was answered"),
            }
        };
        let rest = raw.split_off(end);
        ensure!(raw.starts_with(b"HTTP/1.1 101"), "not upgraded: {}", String::from_utf8_lossy(&raw));
        Ok(Self { socket, raw: rest, text: Vec::new() })
    }

    pub fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        self.write(1, message.to_string().as_bytes())
    }

    /// Clients must mask what they send; a mask of zeros leaves it readable.
    fn write(&mut self, code: u8, payload: &[u8]) -> anyhow::Result<()> {
        let mut frame = vec![0x80 | code];
        match u16::try_from(payload.len()) {
            Ok(length @ 0..=125) => frame.push(0x80 | u8::try_from(length)?),
            Ok(length) => {
                frame.push(0x80 | 126);
                frame.extend(length.to_be_bytes());
            }
            Err(_) => {
                frame.push(0x80 | 127);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        Ok(self.socket.write_all(&frame)?)
    }

    pub fn next(&mut self) -> anyhow::Result<SocketEvent> {
        loop {
            if let Some(layout) = FrameLayout::of(&self.raw)
                && self.raw.len() >= layout.head + layout.payload
            {
                let rest = self.raw.split_off(layout.head + layout.payload);
                let frame = std::mem::replace(&mut self.raw, rest);
                let payload = frame.get(layout.head..).unwrap_or_default();
                match layout.code {
                    0 | 1 => {
                        self.text.extend(payload);
                        if layout.last {
                            let text = std::mem::take(&mut self.text);
                            let message =
                                serde_json::from_slice(&text).context("a message that is no JSON")?;
                            return Ok(SocketEvent::Message(message));
                        }
                    }
                    8 => return Ok(SocketEvent::Over),
                    // Whether the answer arrives shows when the next one is asked for.
                    9 => drop(self.write(10, payload)),
                    _ => {}
                }
                continue;
            }
            match receive(&mut self.socket) {
                BodyPiece::Bytes(bytes) => self.raw.extend(bytes),
                BodyPiece::Quiet => return Ok(SocketEvent::Quiet),
                BodyPiece::Over => return Ok(SocketEvent::Over),
            }
        }
    }
}
