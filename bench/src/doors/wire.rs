//! HTTP as the measuring clients speak it: by hand, and reading without looking.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READ_BYTES: usize = 64 << 10;
/// The last update of a turn is followed by little.
const TAIL_BYTES: usize = 2 << 10;
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The answer to a request, whose body may still be coming.
pub struct Reading {
    socket: TcpStream,
    pub head: String,
    body: Vec<u8>,
}

pub struct Received {
    pub at: Instant,
    pub kept: Option<Vec<u8>>,
}

pub async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> anyhow::Result<Reading> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    socket.write_all(text.as_bytes()).await?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end + 4;
        }
        ensure!(read(&mut socket, &mut bytes).await? > 0, "the server hung up");
    };
    let body = bytes.split_off(end);
    let head = String::from_utf8(bytes)?;
    ensure!(head.starts_with("HTTP/1.1 2"), "{method} {path} was refused: {head}");
    Ok(Reading { socket, head, body })
}

impl Reading {
    pub fn header(&self, name: &str) -> anyhow::Result<String> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(given, _)| given.eq_ignore_ascii_case(name));
        Ok(found.with_context(|| format!("no header {name}"))?.1.to_owned())
    }

    /// Reads until the text has come, and gives what came up to then.
    pub async fn wait_for(&mut self, wanted: &[u8]) -> anyhow::Result<String> {
        while find(&self.body, wanted).is_none() {
            ensure!(read(&mut self.socket, &mut self.body).await? > 0, "the stream ended");
        }
        // The rest of the frame that has it.
        while find(&self.body, b"\n\n").is_none() {
            ensure!(read(&mut self.socket, &mut self.body).await? > 0, "the stream ended");
        }
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.body)).into_owned())
    }

    /// Reads to where the text is. Only the end of what has come is looked at.
    pub async fn until(mut self, wanted: &'static [u8], keep: bool) -> anyhow::Result<Received> {
        let reading = async {
            loop {
                let from = self.body.len().saturating_sub(TAIL_BYTES);
                if find(self.body.get(from..).unwrap_or_default(), wanted).is_some() {
                    return Ok(Received {
                        at: Instant::now(),
                        kept: keep.then(|| std::mem::take(&mut self.body)),
                    });
                }
                if !keep {
                    self.body.drain(..from);
                }
                ensure!(read(&mut self.socket, &mut self.body).await? > 0, "the stream ended");
            }
        };
        match tokio::time::timeout(WAIT_MAX, reading).await {
            Ok(received) => received,
            Err(_) => bail!("a reader did not get everything in time"),
        }
    }
}

/// The sizes of the events in a body.
pub fn frames(body: &[u8]) -> Vec<usize> {
    let mut frames = Vec::new();
    let mut rest = body;
    while let Some(end) = find(rest, b"\n\n") {
        frames.push(end + 2);
        rest = rest.get(end + 2..).unwrap_or_default();
    }
    frames
}

pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

async fn read(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> anyhow::Result<usize> {
    bytes.reserve(READ_BYTES);
    match tokio::time::timeout(WAIT_MAX, socket.read_buf(bytes)).await {
        Ok(count) => Ok(count?),
        Err(_) => bail!("nothing came in time"),
    }
}
