//! One connection: a request comes in, an answer goes out, byte for byte as it was wished.

use std::io;
use std::sync::Arc;

use engine::Usage;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Fault, Frame, ProviderApi, ReceivedRequest, Shared, request};
use crate::{Line, say};

/// How the request for a session's name begins.
const NAMING: &str = "You name conversations";
const HTML: &str = "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n<body><h1>Bad Gateway</h1></body></html>\n";
const GARBAGE: &[u8] =
    b"\x00\xff\xfe{{{ not an event \x80\x80\n\ndata: {\"unfinished\": \n\ndata: ]]\n\n{\"a\":\n";

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(answer(stream, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(mut stream: TcpStream, shared: Arc<Shared>) {
    let Some(seen) = request::read(&mut stream).await else { return };
    let (read, mut write) = stream.into_split();
    let written = write_answer(&mut write, &seen, &shared);
    let whole = tokio::select! {
        biased;
        written = written => written.is_ok(),
        () = hung_up(read) => false,
    };
    if !whole {
        shared.hung_up.send_modify(|times| *times += 1);
    }
}

async fn hung_up(mut read: OwnedReadHalf) {
    let mut byte = [0];
    while read.read(&mut byte).await.is_ok_and(|bytes| bytes > 0) {}
}

async fn write_answer(write: &mut OwnedWriteHalf, seen: &ReceivedRequest, shared: &Shared) -> io::Result<()> {
    if seen.method == "GET" {
        let body = offers(&seen.path, shared);
        return plain(
            write,
            if body.is_some() { 200 } else { 404 },
            &[],
            "application/json",
            &body.unwrap_or_default(),
        )
        .await;
    }
    let Some(tongue) = ProviderApi::of_path(&seen.path) else {
        return plain(write, 404, &[], "application/json", "{}").await;
    };
    if seen.body.to_string().contains(NAMING) {
        // What a session is called is no part of a script.
        let named = vec![say("A session"), Line::Usage(Usage::default())];
        return sent(write, tongue, tongue.frames(&named, &seen.model()), None).await;
    }
    let answer = shared.answer_to(seen);
    let number = {
        let mut state = shared.lock();
        state.requests.push(seen.clone());
        state.requests.len()
    };
    let frames = tongue.frames(&answer.lines, &seen.model());
    let frames = if shared.follows() { distinct(frames, number) } else { frames };
    sent(write, tongue, frames, answer.fault).await
}

fn offers(path: &str, shared: &Shared) -> Option<String> {
    if path == "/requests" {
        // For those who run it as a program of its own.
        let state = shared.lock();
        let seen = state.requests.iter().map(|seen| json!({ "path": seen.path, "body": seen.body }));
        return Some(serde_json::Value::Array(seen.collect()).to_string());
    }
    let models = shared.lock().models.clone();
    if path.ends_with("/api/tags") {
        let models: Vec<_> = models.iter().map(|name| json!({ "name": name, "model": name })).collect();
        return Some(json!({ "models": models }).to_string());
    }
    if path.ends_with("/models") {
        let models: Vec<_> = models.iter().map(|id| json!({ "id": id, "object": "model" })).collect();
        return Some(json!({ "object": "list", "data": models }).to_string());
    }
    None
}

/// Real agents know calls and messages by their ids, so the ids of two answers must not be the same.
fn distinct(frames: Vec<Frame>, number: usize) -> Vec<Frame> {
    let own = |text: String| {
        text.replace("Mock", &format!("Mock{number}n")).replace("_mock", &format!("_mock{number}n"))
    };
    let distinct = |frame| match frame {
        Frame::Event(text) => Frame::Event(own(text)),
        Frame::Terminator(text) => Frame::Terminator(own(text)),
        Frame::Hang => Frame::Hang,
    };
    frames.into_iter().map(distinct).collect()
}

async fn sent(
    write: &mut OwnedWriteHalf,
    tongue: ProviderApi,
    frames: Vec<Frame>,
    fault: Option<Fault>,
) -> io::Result<()> {
    match fault {
        Some(Fault::Refuse { status, headers }) => {
            let body = tongue.error_body(status, &format!("the mock refuses with {status}"));
            plain(write, status, &headers, "application/json", &body).await
        }
        Some(Fault::Html { status }) => plain(write, status, &[], "text/html", HTML).await,
        Some(Fault::Garbage) => {
            begin(write, tongue).await?;
            chunk(write, GARBAGE).await?;
            end(write).await
        }
        Some(Fault::EndlessLine) => {
            begin(write, tongue).await?;
            chunk(write, b"data: {\"text\": \"").await?;
            let line = vec![b'x'; 64 * 1024];
            loop {
                chunk(write, &line).await?;
            }
        }
        Some(Fault::Cut { event }) => {
            begin(write, tongue).await?;
            for (at, frame) in frames.iter().enumerate() {
                let (Frame::Event(text) | Frame::Terminator(text)) = frame else { break };
                if at == event {
                    chunk(write, &text.as_bytes()[..text.len() / 2]).await?;
                    break;
                }
                chunk(write, text.as_bytes()).await?;
            }
            // Without the last chunk the answer is cut, not over.
            Ok(())
        }
        Some(Fault::NoTerminator) => {
            let frames = frames.into_iter().filter(|frame| !matches!(frame, Frame::Terminator(_)));
            spoken(write, tongue, frames.collect(), None).await
        }
        Some(Fault::Split(bytes)) => spoken(write, tongue, frames, Some(bytes)).await,
        Some(Fault::Late(time)) => {
            tokio::time::sleep(time).await;
            spoken(write, tongue, frames, None).await
        }
        None => spoken(write, tongue, frames, None).await,
    }
}

async fn spoken(
    write: &mut OwnedWriteHalf,
    tongue: ProviderApi,
    frames: Vec<Frame>,
    split: Option<usize>,
) -> io::Result<()> {
    begin(write, tongue).await?;
    let mut waiting = String::new();
    for frame in frames {
        match frame {
            Frame::Event(text) | Frame::Terminator(text) if split.is_some() => waiting.push_str(&text),
            Frame::Event(text) | Frame::Terminator(text) => chunk(write, text.as_bytes()).await?,
            Frame::Hang => std::future::pending().await,
        }
    }
    for piece in waiting.as_bytes().chunks(split.unwrap_or(1).max(1)) {
        chunk(write, piece).await?;
        write.flush().await?;
        // So that the next piece is another read on the other side, mostly.
        tokio::task::yield_now().await;
    }
    end(write).await
}

async fn plain(
    write: &mut OwnedWriteHalf,
    status: u16,
    headers: &[(String, String)],
    content_type: &str,
    body: &str,
) -> io::Result<()> {
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "HTTP/1.1 {status} Mock\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\nrequest-id: req_mock\r\n{more}\r\n",
        body.len()
    );
    write.write_all(head.as_bytes()).await?;
    write.write_all(body.as_bytes()).await?;
    write.shutdown().await
}

async fn begin(write: &mut OwnedWriteHalf, tongue: ProviderApi) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\nconnection: close\r\nrequest-id: req_mock\r\n\r\n",
        tongue.content_type()
    );
    write.write_all(head.as_bytes()).await
}

async fn chunk(write: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    write.write_all(&framed).await
}

async fn end(write: &mut OwnedWriteHalf) -> io::Result<()> {
    write.write_all(b"0\r\n\r\n").await?;
    write.shutdown().await
}
