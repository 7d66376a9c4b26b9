//! `/ui/socket`: our own clients over a WebSocket, one JSON object per text frame.
//!
//! A socket that breaks ends its line and nothing else: the client comes back and names, for every session
//! that it watches, the last position it has.

use std::sync::Arc;
use std::time::Duration;

use access::websocket::{self, Hung, NOT_WELCOME, SocketRules, TakesText};
use axum::Router;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics::Door;
use serde::Deserialize;
use tokio::sync::mpsc;
use wire::json::{self, JsonError};
use wire::native::{Envelope, Frame, Reply, Role, Wrong};

use super::acp::stopping;
use super::{Caller, Doors, Refusal, UI_PROTOCOL};
use app::{Line, open_with};

/// A frame of a client: a prompt with a few pictures.
const FRAME_BYTES_MAX: usize = 24 << 20;
/// The same for those who cannot prompt.
const SMALL_BYTES_MAX: usize = 256 << 10;

const RULES: SocketRules = SocketRules {
    ping_every: Duration::from_secs(25),
    silence_max: Duration::from_secs(75),
    waiting_is_silence: true,
    not_text: Some("send text: one request per frame"),
    unreadable: "a message was too long, or could not be read",
    pace: None,
    over: Some((NOT_WELCOME, "this device is not welcome any more")),
};

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new().route("/ui/socket", get(socket))
}

async fn socket(
    State(doors): State<Arc<Doors>>,
    Extension(caller): Extension<Caller>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    // A page cannot read why its handshake failed. It asks plainly, and who gets here is welcome.
    let Ok(socket) = socket else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let Ok(seat) = Arc::clone(&doors.sockets).try_acquire_owned() else {
        let message = "as many sockets are open as may be; close one";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
    };
    // Only who can send pictures sends much.
    let draws = caller.visitor().role >= Role::Driver;
    let bytes_max = if draws { FRAME_BYTES_MAX } else { SMALL_BYTES_MAX };
    let socket = socket.protocols([UI_PROTOCOL]).max_message_size(bytes_max).max_frame_size(bytes_max);
    let upgraded = socket.on_upgrade(move |socket| async move {
        let _counted = doors.metrics.connection(Door::WebSocket);
        serve(socket, &doors, &caller).await;
        drop(seat);
    });
    Ok(upgraded.into_response())
}

async fn serve(socket: WebSocket, doors: &Doors, caller: &Caller) {
    let (Line { requests, frames }, told) = open_with(doors.desk(), caller.visitor());
    websocket::pump(socket, &RULES, Requests { requests, told }, frames, stopping(doors)).await;
}

struct Requests {
    requests: mpsc::Sender<Envelope>,
    /// Says what is wrong with what is no request.
    told: mpsc::WeakSender<Frame>,
}

impl TakesText for Requests {
    async fn take(&mut self, text: Utf8Bytes) -> Result<(), Hung> {
        let line = text.trim_ascii();
        match json::read(line, "the request") {
            Ok(envelope) => self.requests.send(envelope).await.map_err(|_| Hung),
            Err(error) => {
                let told = self.told.upgrade().ok_or(Hung)?;
                told.send(Frame::Reply(no_request(line, &error))).await.map_err(|_| Hung)
            }
        }
    }
}

/// Answers what cannot be understood: by its id, if that at least can be read.
fn no_request(line: &str, error: &JsonError) -> Reply {
    #[derive(Deserialize)]
    struct Named {
        id: u64,
    }
    let named = serde_json::from_str::<Named>(line).ok();
    let message = format!("this is no request that this server knows: {error}; reload the page");
    let wrong = Wrong { code: "badRequest".into(), message };
    Reply { re: named.map_or(0, |named| named.id), ok: None, error: Some(wrong) }
}
