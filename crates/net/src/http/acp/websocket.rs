//! WebSocket on the same address: one message per text frame, both ways, all of one connection.
//!
//! A socket that breaks ends its connection and nothing else: the sessions go on, and the client comes
//! back to them by `session/resume` with the position of the last update it has.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use wire::{FRAME_BYTES_MAX, Frame};

use super::names::ConnectionId;
use super::{CONNECTION, Official};
use crate::batch::Batch;
use crate::connection::{Connection, ConnectionParts};
use crate::http::{Doors, Refusal, WS_PROTOCOL};
use crate::link::memory;
use crate::metrics::Door;

const PING_EVERY: Duration = Duration::from_secs(30);
/// A peer that is silent for this long, although it is asked, is gone.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long one frame may take to leave.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// Sockets at once.
pub(in crate::http) const SOCKETS_MAX: u32 = 512;
/// The reason of a close for data that is not text.
const NOT_TEXT: u16 = 1003;
/// The reason of a close for a message that is too long.
const TOO_BIG: u16 = 1009;
/// The reason of a close that answers the peer's.
const NORMAL: u16 = 1000;
/// The reason of a close because the server ends: the client may come back.
const GOING_AWAY: u16 = 1001;
/// How long the last words to a client may take when the server ends.
const FAREWELL_WAIT: Duration = Duration::from_millis(500);
/// What zeph's clients may send in one frame.
const ZEPH_BYTES_MAX: usize = 1 << 20;

/// Which of the two addresses the socket is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Official,
    Zeph,
}

impl Official<'_> {
    pub(super) fn upgrade(&self, socket: WebSocketUpgrade, shape: Shape) -> Result<Response, Refusal> {
        let Ok(seat) = Arc::clone(&self.doors.sockets).try_acquire_owned() else {
            let message = "as many sockets are open as may be; close one";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
        };
        let doors = Arc::clone(self.doors);
        let parts = ConnectionParts {
            dialect: doors.dialect,
            zeph: shape == Shape::Zeph,
            client: None,
            any_session: false,
            metrics: Some((Arc::clone(&doors.metrics), Door::WebSocket)),
            greeted: doors.greeted.clone(),
            ..self.parts(wire::Client::default())
        };
        let id = ConnectionId::new(
            &doors.secret,
            &self.caller.connections(),
            wire::acp::ClientAbilities::default(),
        );
        let limit = match shape {
            Shape::Official => FRAME_BYTES_MAX,
            Shape::Zeph => ZEPH_BYTES_MAX,
        };
        let socket = socket.protocols([WS_PROTOCOL]).max_message_size(limit).max_frame_size(limit);
        let mut response = socket
            .on_upgrade(move |socket| async move {
                serve(socket, parts, &doors, shape).await;
                drop(seat);
            })
            .into_response();
        let header = HeaderValue::from_str(&id.to_string());
        response.headers_mut().extend(header.ok().map(|value| (CONNECTION, value)));
        Ok(response)
    }
}

async fn serve(socket: WebSocket, parts: ConnectionParts, doors: &Doors, shape: Shape) {
    let (link, peer) = memory::pair();
    let mut connection = Connection::start(parts, link);
    let (sink, stream) = socket.split();
    let (heard, last_heard) = watch::channel(Instant::now());
    let (closing, close) = mpsc::channel(1);
    let reading = read(stream, peer.frames, heard, closing.clone(), shape);
    let mut writing = std::pin::pin!(write(sink, peer.batches, last_heard, close));
    let said = tokio::select! {
        () = reading => true,
        () = &mut writing => false,
        () = connection.input_ended() => false,
        () = doors.stop.cancelled() => true,
    };
    if said {
        let stopping = doors.stop.is_cancelled();
        let reason = if stopping { "the server is stopping; come back" } else { "" }.into();
        let code = if stopping { GOING_AWAY } else { NORMAL };
        // A writer that is closing for another reason has said it already.
        drop(closing.try_send(CloseFrame { code, reason }));
        drop(tokio::time::timeout(FAREWELL_WAIT, writing).await);
    }
    connection.finish().await;
}

async fn read(
    mut stream: SplitStream<WebSocket>,
    frames: mpsc::Sender<Frame>,
    heard: watch::Sender<Instant>,
    closing: mpsc::Sender<CloseFrame>,
    shape: Shape,
) {
    while let Some(message) = stream.next().await {
        heard.send_replace(Instant::now());
        let Ok(message) = message else {
            // What cannot be read is too long, or no WebSocket's at all. Either way the peer is told.
            let reason = "a message was too long for this server, or could not be read".into();
            drop(closing.send(CloseFrame { code: TOO_BIG, reason }).await);
            return std::future::pending().await;
        };
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) if shape == Shape::Zeph => {
                let reason = "send text: one JSON-RPC message per frame".into();
                // The writer closes the socket; without one it is closed.
                drop(closing.send(CloseFrame { code: NOT_TEXT, reason }).await);
                return std::future::pending().await;
            }
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return,
        };
        // Some clients end their messages like lines, or send empty ones to keep the line open.
        let line = text.trim_ascii();
        if !line.is_empty() && frames.send(Frame::Line(line.as_bytes().to_vec())).await.is_err() {
            return;
        }
    }
}

enum Wake {
    Batch(Option<Batch>),
    Ping,
    Close(CloseFrame),
}

async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut batches: mpsc::Receiver<Batch>,
    last_heard: watch::Receiver<Instant>,
    mut close: mpsc::Receiver<CloseFrame>,
) {
    let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wake = tokio::select! {
            biased;
            Some(reason) = close.recv() => Wake::Close(reason),
            _ = ping.tick() => Wake::Ping,
            batch = batches.recv() => Wake::Batch(batch),
        };
        let written = match wake {
            Wake::Batch(Some(batch)) => send(&mut sink, &batch).await,
            Wake::Ping if last_heard.borrow().elapsed() > SILENCE_MAX => return,
            Wake::Ping => {
                let ping = sink.send(Message::Ping("ropewalk".into()));
                match tokio::time::timeout(WRITE_WAIT, ping).await {
                    Ok(sent) => sent,
                    Err(elapsed) => Err(axum::Error::new(elapsed)),
                }
            }
            Wake::Close(reason) => {
                // The peer may be gone already.
                drop(tokio::time::timeout(WRITE_WAIT, sink.send(Message::Close(Some(reason)))).await);
                return;
            }
            Wake::Batch(None) => {
                drop(tokio::time::timeout(WRITE_WAIT, sink.close()).await);
                return;
            }
        };
        if written.is_err() {
            return;
        }
    }
}

/// All frames of a batch leave together.
async fn send(sink: &mut SplitSink<WebSocket, Message>, batch: &Batch) -> Result<(), axum::Error> {
    let sending = async {
        for frame in batch.frames() {
            let text = String::from_utf8_lossy(frame).into_owned();
            sink.feed(Message::Text(text.into())).await?;
        }
        sink.flush().await
    };
    match tokio::time::timeout(WRITE_WAIT, sending).await {
        Ok(sent) => sent,
        Err(elapsed) => Err(axum::Error::new(elapsed)),
    }
}

pub(in crate::http) fn seats() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(usize::try_from(SOCKETS_MAX).unwrap_or(usize::MAX)))
}
