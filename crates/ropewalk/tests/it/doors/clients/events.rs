//! A stream of server-sent events, read on a thread of its own.

use std::io::{Read, Write};
use std::net::SocketAddr;

use serde_json::Value;

use crate::doors::web::{Ask, connect};

/// One event.
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: Value,
}

/// Sends the request and gives the status, the head, and the events as they come. The thread that reads
/// ends with the stream.
pub fn follow(address: SocketAddr, ask: &Ask, mut each: impl FnMut(Event) + Send + 'static) -> (u16, String) {
    let mut stream = connect(address);
    stream.write_all(&ask.bytes(address.port())).unwrap();
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            break String::from_utf8(std::mem::replace(&mut bytes, rest)).unwrap();
        }
        assert!(read(&mut stream, &mut bytes), "the server hung up: {}", String::from_utf8_lossy(&bytes));
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    let head = head.to_ascii_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    std::thread::spawn(move || {
        let mut text = Vec::new();
        loop {
            if chunked {
                while let Some((chunk, rest)) = chunk(&bytes) {
                    text.extend(chunk);
                    bytes = rest;
                }
            } else {
                text.append(&mut bytes);
            }
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let rest = text.split_off(end + 2);
                let block = std::mem::replace(&mut text, rest);
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    each(event);
                }
            }
            if !read(&mut stream, &mut bytes) {
                return;
            }
        }
    });
    (status, head)
}

/// A header of a head in small letters.
pub fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
}

fn read(stream: &mut impl Read, bytes: &mut Vec<u8>) -> bool {
    let mut some = [0; 4096];
    let count = stream.read(&mut some).unwrap_or(0);
    bytes.extend(&some[..count]);
    count > 0
}

/// The first chunk of a body, and what follows it.
fn chunk(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
    let chunk = bytes.get(end + 2..end + 2 + size)?;
    Some((chunk.to_vec(), bytes.get(end + 2 + size + 2..)?.to_vec()))
}

fn parse(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let data = serde_json::from_str(&field("data: ")?).ok()?;
    Some(Event { id: field("id: "), name: field("event: "), data })
}
