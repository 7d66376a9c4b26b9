//! Frames over a WebSocket: one per text message; from the receiver one or several, each on a line of its own.
//!
//! This end dials. The pump of the sockets that are accepted (`access::websocket_pump`) is of another library's type, has no
//! marks that a pong confirms, waits for a write as long as its bytes may take, and says how it ended to nobody.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::Upgraded;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use wire::tunnel::TUNNEL_FRAME_BYTES_MAX;

use super::{Outgoing, PipeEnds, time_for};
use crate::bridge_error::{BridgeError, quoted};

/// How long writing a frame may take, besides the time for its bytes.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// A write that takes so long had to wait for the receiver, so its end is a sign of life. One that ends at once
/// shows only that there was room in our own buffers.
const WAITED: Duration = Duration::from_secs(1);
/// How long the close handshake may take.
const CLOSE_WAIT: Duration = Duration::from_millis(500);
const MARK_BYTES: usize = 8;
const TOO_BIG: u16 = 1009;

type ReceiverWebSocket = WebSocketStream<Upgraded>;

/// Moves frames until one of both sides closes, and says how it ended.
pub(super) async fn run(stream: Upgraded, pipe_ends: PipeEnds, silence: Duration) -> BridgeError {
    let config = WebSocketConfig::default()
        .max_message_size(Some(TUNNEL_FRAME_BYTES_MAX))
        .max_frame_size(Some(TUNNEL_FRAME_BYTES_MAX));
    let socket = ReceiverWebSocket::from_raw_socket(stream, Role::Client, Some(config)).await;
    let (sink, stream) = socket.split();
    let PipeEnds { out, incoming, confirmed } = pipe_ends;
    let last_heard = watch::Sender::new(Instant::now());
    let mut reading = std::pin::pin!(read(stream, incoming, confirmed, &last_heard));
    let said_all = tokio::select! {
        how = &mut reading => return how,
        written = write(sink, out, &last_heard, silence) => written.is_ok(),
    };
    if said_all {
        // The receiver answers a close frame with its own.
        return tokio::time::timeout(CLOSE_WAIT, reading).await.unwrap_or_else(|_| BridgeError::closed());
    }
    BridgeError::closed()
}

async fn read(
    mut stream: SplitStream<ReceiverWebSocket>,
    incoming: mpsc::Sender<Vec<u8>>,
    confirmed: watch::Sender<u64>,
    last_heard: &watch::Sender<Instant>,
) -> BridgeError {
    while let Some(message) = stream.next().await {
        last_heard.send_replace(Instant::now());
        let bytes = match message {
            Ok(Message::Text(text)) => Bytes::from(text),
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Pong(pong)) => {
                confirm(&confirmed, &pong);
                continue;
            }
            Ok(Message::Close(frame)) => {
                let (code, reason) = frame.map_or((1005, None), |frame| {
                    (u16::from(frame.code), Some(quoted(&frame.reason)).filter(|reason| !reason.is_empty()))
                });
                return BridgeError::Closed { code, reason };
            }
            Ok(Message::Ping(_) | Message::Frame(_)) => continue,
            Err(Error::Capacity(error)) => {
                return BridgeError::Closed { code: TOO_BIG, reason: Some(quoted(&error.to_string())) };
            }
            Err(error) => {
                tracing::debug!(%error, "the bridge's socket broke");
                return BridgeError::closed();
            }
        };
        for line in bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            if !line.is_empty() && incoming.send(line.to_vec()).await.is_err() {
                // Nobody reads the incoming frames any more; outgoing ones are still written.
                return std::future::pending().await;
            }
        }
    }
    BridgeError::closed()
}

/// Confirmed marks only go up, whatever a receiver sends back.
fn confirm(confirmed: &watch::Sender<u64>, pong: &[u8]) {
    let Ok(bytes) = <[u8; MARK_BYTES]>::try_from(pong) else { return };
    let mark = u64::from_be_bytes(bytes);
    confirmed.send_if_modified(|last| {
        let newer = mark > *last;
        if newer {
            *last = mark;
        }
        newer
    });
}

struct SocketBroken;

enum Wake {
    Out(Option<Outgoing>),
    Ask,
}

async fn write(
    mut sink: SplitSink<ReceiverWebSocket, Message>,
    mut out: mpsc::Receiver<Outgoing>,
    last_heard: &watch::Sender<Instant>,
    silence: Duration,
) -> Result<(), SocketBroken> {
    let every = silence / 3;
    let mut asks = tokio::time::interval_at(Instant::now() + every, every);
    asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wake = tokio::select! {
            biased;
            _ = asks.tick() => Wake::Ask,
            outgoing = out.recv() => Wake::Out(outgoing),
        };
        let message = match wake {
            Wake::Ask if last_heard.borrow().elapsed() > silence => return Err(SocketBroken),
            Wake::Ask => Message::Ping(Bytes::new()),
            Wake::Out(Some(Outgoing::Frame(frame))) => match String::from_utf8(frame) {
                Ok(text) => Message::Text(text.into()),
                Err(error) => {
                    tracing::error!(%error, "a frame of the bridge is not Unicode");
                    return Err(SocketBroken);
                }
            },
            Wake::Out(Some(Outgoing::Mark(mark))) => {
                Message::Ping(Bytes::copy_from_slice(&mark.to_be_bytes()))
            }
            Wake::Out(None) => {
                drop(tokio::time::timeout(CLOSE_WAIT, sink.close()).await);
                return Ok(());
            }
        };
        let (began, timeout) = (Instant::now(), WRITE_WAIT + time_for(message.len()));
        match tokio::time::timeout(timeout, sink.send(message)).await {
            Ok(Ok(())) if began.elapsed() >= WAITED => drop(last_heard.send_replace(Instant::now())),
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(SocketBroken),
        }
    }
}
