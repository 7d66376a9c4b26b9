//! WebSocket on the same address: one message per text frame, both ways, all of one connection.
//!
//! A socket that breaks ends its connection and nothing else: the sessions go on, and the client comes
//! back to them by `session/resume` with the position of the last update it has.

use std::sync::Arc;
use std::time::Duration;

use access::websocket::{self, GOING_AWAY, Hung, Leave, Leaving, SocketRules, TakesText};
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use metrics::Door;
use tokio::sync::mpsc;
use wire::{FRAME_BYTES_MAX, Frame};

use super::names::ConnectionId;
use super::{CONNECTION, Official};
use crate::batch::Batch;
use crate::connection::{Connection, ConnectionParts};
use crate::http::{Doors, Refusal, WS_PROTOCOL};
use crate::link::memory;

/// Sockets at once.
pub(in crate::http) const SOCKETS_MAX: u32 = 512;
/// What zeph's clients may send in one frame.
const ZEPH_BYTES_MAX: usize = 1 << 20;

const OFFICIAL: SocketRules = SocketRules {
    ping_every: Duration::from_secs(30),
    silence_max: Duration::from_secs(90),
    waiting_is_silence: true,
    not_text: None,
    unreadable: "a message was too long for this server, or could not be read",
    pace: None,
    over: None,
};
const ZEPH: SocketRules =
    SocketRules { not_text: Some("send text: one JSON-RPC message per frame"), ..OFFICIAL };

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
    let rules = match shape {
        Shape::Official => &OFFICIAL,
        Shape::Zeph => &ZEPH,
    };
    let pumping = websocket::pump(socket, rules, Lines(peer.frames), peer.batches, stopping(doors));
    tokio::select! {
        biased;
        () = pumping => {}
        () = connection.input_ended() => {}
    }
    connection.finish().await;
}

/// The last words of a server that ends.
pub(in crate::http) async fn stopping(doors: &Doors) -> CloseFrame {
    doors.stop.cancelled().await;
    websocket::close(GOING_AWAY, "the server is stopping; come back")
}

struct Lines(mpsc::Sender<Frame>);

impl TakesText for Lines {
    async fn take(&mut self, text: Utf8Bytes) -> Result<(), Hung> {
        // Some clients end their messages like lines.
        let line = text.trim_ascii().as_bytes().to_vec();
        self.0.send(Frame::Line(line)).await.map_err(|_| Hung)
    }
}

impl Leaving for Batch {
    fn leave(self) -> Leave<impl Iterator<Item = Utf8Bytes> + Send> {
        Leave::Texts(self.into_frames().map(text))
    }
}

/// Our own frames are Unicode.
fn text(frame: Bytes) -> Utf8Bytes {
    Utf8Bytes::try_from(frame.clone()).unwrap_or_else(|_| String::from_utf8_lossy(&frame).into_owned().into())
}

pub(in crate::http) fn seats() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(usize::try_from(SOCKETS_MAX).unwrap_or(usize::MAX)))
}
