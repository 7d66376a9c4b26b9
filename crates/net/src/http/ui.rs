//! `/ui/socket`: our own clients over a WebSocket, one JSON object per text frame.
//!
//! A socket that breaks ends its line and nothing else: the client comes back and names, for every session
//! that it watches, the last position it has.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use wire::json::{self, JsonError};
use wire::native::{Envelope, Frame, Reply, Role, Wrong};

use super::{Caller, Doors, Refusal};
use crate::metrics::Door;
use crate::native::{Line, open_with};

/// The WebSocket sub-protocol of our own clients.
pub const UI_PROTOCOL: &str = "ropewalk.v1";

/// A frame of a client: a prompt with a few pictures.
const FRAME_BYTES_MAX: usize = 24 << 20;
/// The same for those who cannot prompt.
const SMALL_BYTES_MAX: usize = 256 << 10;
const PING_EVERY: Duration = Duration::from_secs(25);
/// A peer that is silent for this long, although it is asked, is gone.
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// How long one frame may take to leave.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// How long the last words to a client may take when the server ends.
const FAREWELL_WAIT: Duration = Duration::from_millis(500);

/// Reasons of a close: all is well, come back, not welcome, not text, too long.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const NOT_WELCOME: u16 = 1008;
const NOT_TEXT: u16 = 1003;
const TOO_BIG: u16 = 1009;

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
    let (sink, stream) = socket.split();
    let (heard, last_heard) = watch::channel(Instant::now());
    let (closing, close) = mpsc::channel(1);
    let reading = Reading { requests, told, closing: closing.clone(), heard };
    let mut writing = std::pin::pin!(write(sink, frames, last_heard, close));
    let closed = tokio::select! {
        biased;
        () = doors.stop.cancelled() => Some((GOING_AWAY, "the server is stopping; come back")),
        () = reading.run(stream) => Some((NORMAL, "")),
        () = &mut writing => None,
    };
    if let Some((code, reason)) = closed {
        // A writer that is closing for another reason has said it already.
        drop(closing.try_send(CloseFrame { code, reason: reason.into() }));
        drop(tokio::time::timeout(FAREWELL_WAIT, writing).await);
    }
}

struct Reading {
    requests: mpsc::Sender<Envelope>,
    /// Says what is wrong with what is no request.
    told: mpsc::WeakSender<Frame>,
    closing: mpsc::Sender<CloseFrame>,
    heard: watch::Sender<Instant>,
}

impl Reading {
    async fn run(self, mut stream: SplitStream<WebSocket>) {
        while let Some(message) = stream.next().await {
            self.heard.send_replace(Instant::now());
            let Ok(message) = message else {
                return self.close(TOO_BIG, "a message was too long, or could not be read").await;
            };
            let text = match message {
                Message::Text(text) => text,
                Message::Binary(_) => return self.close(NOT_TEXT, "send text: one request per frame").await,
                Message::Ping(_) | Message::Pong(_) => continue,
                Message::Close(_) => return,
            };
            let line = text.trim_ascii();
            if !line.is_empty() && self.take(line).await.is_err() {
                return;
            }
        }
    }

    async fn take(&self, line: &str) -> Result<(), Hung> {
        match json::read(line, "the request") {
            Ok(envelope) => self.requests.send(envelope).await.map_err(|_| Hung),
            Err(error) => {
                let told = self.told.upgrade().ok_or(Hung)?;
                told.send(Frame::Reply(no_request(line, &error))).await.map_err(|_| Hung)
            }
        }
    }

    /// The writer closes the socket, and this ends with it.
    async fn close(&self, code: u16, reason: &'static str) {
        drop(self.closing.send(CloseFrame { code, reason: reason.into() }).await);
        std::future::pending().await
    }
}

/// The line has ended.
struct Hung;

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

enum Wake {
    Frame(Option<Frame>),
    Ping,
    Close(CloseFrame),
}

async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut frames: mpsc::Receiver<Frame>,
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
            frame = frames.recv() => Wake::Frame(frame),
        };
        let (message, last) = match wake {
            Wake::Frame(Some(frame)) => match serde_json::to_string(&frame) {
                Ok(text) => (Message::Text(text.into()), false),
                Err(error) => {
                    tracing::error!(%error, "a frame cannot be written");
                    return;
                }
            },
            Wake::Ping if last_heard.borrow().elapsed() > SILENCE_MAX => return,
            Wake::Ping => (Message::Ping("ropewalk".into()), false),
            Wake::Close(reason) => (Message::Close(Some(reason)), true),
            Wake::Frame(None) => {
                let reason = "this device is not welcome any more".into();
                (Message::Close(Some(CloseFrame { code: NOT_WELCOME, reason })), true)
            }
        };
        let sent = tokio::time::timeout(WRITE_WAIT, sink.send(message)).await;
        if last || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}
