//! Prompts over a WebSocket, one after the other: what waits for a delayed acknowledgement shows here.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::served::Served;
use super::wire::find;
use crate::stats::{Samples, micros};

const WAIT_MAX: Duration = Duration::from_secs(20);

struct Socket {
    socket: TcpStream,
    bytes: Vec<u8>,
}

/// How long each of so many turns took, from before its prompt was sent until its answer was there.
pub fn turns_us(served: &Served, turns: usize) -> anyhow::Result<Samples> {
    let mut socket = Socket::open(served)?;
    socket.call(1, "initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
    let place = json!({"cwd": served.workspace(), "mcpServers": []});
    let opened = socket.call(2, "session/new", &place)?;
    let session = opened["result"]["sessionId"].as_str().context("no session id")?.to_owned();
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]});
    let mut samples = Samples::default();
    for id in 3..turns as u64 + 3 {
        let start = Instant::now();
        socket.call(id, "session/prompt", &prompt)?;
        samples.push(micros(start.elapsed()));
    }
    Ok(samples)
}

impl Socket {
    fn open(served: &Served) -> anyhow::Result<Self> {
        let mut socket = TcpStream::connect(served.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(WAIT_MAX))?;
        let head = format!(
            "GET /acp HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            served.address,
            Served::authorization()
        );
        socket.write_all(head.as_bytes())?;
        let mut socket = Self { socket, bytes: Vec::new() };
        let end = loop {
            match find(&socket.bytes, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => socket.read()?,
            }
        };
        ensure!(socket.bytes.starts_with(b"HTTP/1.1 101"), "the upgrade was refused");
        socket.bytes.drain(..end);
        Ok(socket)
    }

    fn call(&mut self, id: u64, method: &str, params: &Value) -> anyhow::Result<Value> {
        let text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        // Clients must mask; a mask of zeros changes nothing.
        let mut frame = vec![0x81, 0x80 | 126];
        frame.extend(u16::try_from(text.len())?.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.socket.write_all(&frame)?;
        let begins = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},");
        loop {
            let message = self.message()?;
            if message.starts_with(begins.as_bytes()) {
                let answer: Value = serde_json::from_slice(&message)?;
                ensure!(answer["error"].is_null(), "{method} was refused: {answer}");
                return Ok(answer);
            }
        }
    }

    /// The payload of the next frame. Servers do not mask, and this one does not split messages.
    fn message(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some((head, payload)) = layout(&self.bytes)
                && self.bytes.len() >= head + payload
            {
                let rest = self.bytes.split_off(head + payload);
                let frame = std::mem::replace(&mut self.bytes, rest);
                return Ok(frame.get(head..).unwrap_or_default().to_vec());
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mut bytes = [0; 16 << 10];
        let count = self.socket.read(&mut bytes)?;
        ensure!(count > 0, "the server hung up");
        self.bytes.extend(bytes.get(..count).unwrap_or_default());
        Ok(())
    }
}

/// Bytes of a frame's head and of its payload.
fn layout(bytes: &[u8]) -> Option<(usize, usize)> {
    match bytes.get(1)? & 0x7f {
        126 => Some((4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)))),
        127 => {
            let length = u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?);
            Some((10, usize::try_from(length).ok()?))
        }
        short => Some((2, usize::from(short))),
    }
}
