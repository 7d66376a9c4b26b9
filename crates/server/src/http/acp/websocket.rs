//! WebSocket on the same address: one message per text frame, both ways, all of one connection.
//!
//! A socket that breaks ends its connection and nothing else: the sessions continue, and the client returns
//! to them by `session/resume` with the position of the last update it has.

use std::sync::Arc;
use std::time::Duration;

use access::websocket_pump::{
    self, GOING_AWAY, SocketItem, SocketOutput, SocketRules, TextReceiver, TextReceiverClosed,
};
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use metrics::DoorLabel;
use tokio::sync::mpsc;
use wire::{Frame, LINE_FRAME_BYTES_MAX};

use super::connection_id::ConnectionId;
use super::{AcpRequest, CONNECTION};
use crate::connection::{Connection, ConnectionParts};
use crate::frame_batch::FrameBatch;
use crate::http::{HttpState, Refusal, WS_PROTOCOL};
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
pub(super) enum SocketRoute {
    Official,
    Zeph,
}

impl AcpRequest<'_> {
    pub(super) fn upgrade(&self, socket: WebSocketUpgrade, route: SocketRoute) -> Result<Response, Refusal> {
        let Ok(slot) = Arc::clone(&self.state.sockets).try_acquire_owned() else {
            let message = "connection limit reached; close a connection first";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
        };
        let state = Arc::clone(self.state);
        let parts = ConnectionParts {
            dialect: state.dialect,
            zeph: route == SocketRoute::Zeph,
            client: None,
            any_session: false,
            metrics: Some((Arc::clone(&state.metrics), DoorLabel::WebSocket)),
            on_initialize: state.on_initialize.clone(),
            ..self.parts(wire::Client::default())
        };
        let id = ConnectionId::new(
            &state.secret,
            &self.caller.connections(),
            wire::acp::ClientAbilities::default(),
        );
        let limit = match route {
            SocketRoute::Official => LINE_FRAME_BYTES_MAX,
            SocketRoute::Zeph => ZEPH_BYTES_MAX,
        };
        let socket = socket.protocols([WS_PROTOCOL]).max_message_size(limit).max_frame_size(limit);
        let mut response = socket
            .on_upgrade(move |socket| async move {
                serve(socket, parts, &state, route).await;
                drop(slot);
            })
            .into_response();
        let header = HeaderValue::from_str(&id.to_string());
        response.headers_mut().extend(header.ok().map(|value| (CONNECTION, value)));
        Ok(response)
    }
}

async fn serve(socket: WebSocket, parts: ConnectionParts, state: &HttpState, route: SocketRoute) {
    let (link, peer) = memory::pair();
    let mut connection = Connection::start(parts, link);
    let rules = match route {
        SocketRoute::Official => &OFFICIAL,
        SocketRoute::Zeph => &ZEPH,
    };
    let pumping =
        websocket_pump::pump(socket, rules, LineReceiver(peer.frames), peer.batches, stopping(state));
    tokio::select! {
        biased;
        () = pumping => {}
        () = connection.input_ended() => {}
    }
    connection.finish().await;
}

/// The close frame of a server that stops.
pub(in crate::http) async fn stopping(state: &HttpState) -> CloseFrame {
    state.stop.cancelled().await;
    websocket_pump::close(GOING_AWAY, "the server is stopping; reconnect when it is back")
}

struct LineReceiver(mpsc::Sender<Frame>);

impl TextReceiver for LineReceiver {
    async fn take(&mut self, text: Utf8Bytes) -> Result<(), TextReceiverClosed> {
        // Some clients end their messages like lines.
        let line = text.trim_ascii().as_bytes().to_vec();
        self.0.send(Frame::Line(line)).await.map_err(|_| TextReceiverClosed)
    }
}

impl SocketItem for FrameBatch {
    fn into_output(self) -> SocketOutput<impl Iterator<Item = Utf8Bytes> + Send> {
        SocketOutput::Texts(self.into_frames().map(text))
    }
}

/// Our own frames are Unicode.
fn text(frame: Bytes) -> Utf8Bytes {
    Utf8Bytes::try_from(frame.clone()).unwrap_or_else(|_| String::from_utf8_lossy(&frame).into_owned().into())
}

pub(in crate::http) fn socket_slots() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(usize::try_from(SOCKETS_MAX).unwrap_or(usize::MAX)))
}
