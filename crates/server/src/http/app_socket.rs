//! `/ui/socket`: our own clients over a WebSocket, one JSON object per text frame.
//!
//! A socket that breaks ends its app connection and nothing else: the client reconnects and names, for every session
//! that it watches, the last position it has.

use std::sync::Arc;
use std::time::Duration;

use access::websocket_pump::{self, NOT_WELCOME, SocketRules, TextReceiver, TextReceiverClosed};
use axum::Router;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics::DoorLabel;
use serde::Deserialize;
use tokio::sync::mpsc;
use wire::json_errors::{self, JsonError};
use wire::native::{ReplyError, RequestEnvelope, RequestReply, Role, ServerFrame};

use super::acp::stopping;
use super::{HttpCaller, HttpState, Refusal, UI_PROTOCOL};
use app::{AppConnection, open_with};

/// A frame of a client: a prompt with a few pictures.
const APP_FRAME_BYTES_MAX: usize = 24 << 20;
/// The same for clients that cannot prompt.
const SMALL_BYTES_MAX: usize = 256 << 10;

const RULES: SocketRules = SocketRules {
    ping_every: Duration::from_secs(25),
    silence_max: Duration::from_secs(75),
    waiting_is_silence: true,
    not_text: Some("send text: one request per frame"),
    unreadable: "a message was too long, or could not be read",
    pace: None,
    over: Some((NOT_WELCOME, "this device no longer has access")),
};

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new().route("/ui/socket", get(socket))
}

async fn socket(
    State(state): State<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    // A page cannot read why its handshake failed, so it asks with a plain request: a caller that gets here may connect.
    let Ok(socket) = socket else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let Ok(slot) = Arc::clone(&state.sockets).try_acquire_owned() else {
        let message = "connection limit reached; close a connection first";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
    };
    // Only clients that can send images send large frames.
    let draws = caller.visitor().role >= Role::Driver;
    let bytes_max = if draws { APP_FRAME_BYTES_MAX } else { SMALL_BYTES_MAX };
    let socket = socket.protocols([UI_PROTOCOL]).max_message_size(bytes_max).max_frame_size(bytes_max);
    let upgraded = socket.on_upgrade(move |socket| async move {
        let _counted = state.metrics.connection(DoorLabel::WebSocket);
        serve(socket, &state, &caller).await;
        drop(slot);
    });
    Ok(upgraded.into_response())
}

async fn serve(socket: WebSocket, state: &HttpState, caller: &HttpCaller) {
    let (AppConnection { requests, frames }, replies) = open_with(state.app(), caller.visitor());
    websocket_pump::pump(socket, &RULES, RequestReceiver { requests, replies }, frames, stopping(state))
        .await;
}

struct RequestReceiver {
    requests: mpsc::Sender<RequestEnvelope>,
    /// Sends the reply to a text that is not a request.
    replies: mpsc::WeakSender<ServerFrame>,
}

impl TextReceiver for RequestReceiver {
    async fn take(&mut self, text: Utf8Bytes) -> Result<(), TextReceiverClosed> {
        let line = text.trim_ascii();
        match json_errors::read(line, "the request") {
            Ok(envelope) => self.requests.send(envelope).await.map_err(|_| TextReceiverClosed),
            Err(error) => {
                let replies = self.replies.upgrade().ok_or(TextReceiverClosed)?;
                replies
                    .send(ServerFrame::Reply(no_request(line, &error)))
                    .await
                    .map_err(|_| TextReceiverClosed)
            }
        }
    }
}

/// The reply to a text that is not a request: to its id, if that at least can be parsed.
fn no_request(line: &str, error: &JsonError) -> RequestReply {
    #[derive(Deserialize)]
    struct RequestId {
        id: u64,
    }
    let request = serde_json::from_str::<RequestId>(line).ok();
    let message = format!("unknown request: {error}; reload the page");
    let wrong = ReplyError { code: "badRequest".into(), message };
    RequestReply { re: request.map_or(0, |request| request.id), ok: None, error: Some(wrong) }
}
