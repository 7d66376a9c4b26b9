//! A connection to the receiver, as the rest of the bridge sees it: frames out, frames in, and why it ended.
//!
//! Whether it is a WebSocket or a pair of long polls makes no difference to the users of this module. Both queues are
//! short: a receiver that does not read stops its own session's tunnel and nothing else.

mod long_poll;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;

use super::bridge_error::BridgeError;
use super::receiver_client::{ReceiverClient, ReceiverSocket, TunnelTarget};

/// Frames on their way to the receiver.
const OUT_MAX: usize = 4;
/// Frames from it that were not handled yet.
const IN_MAX: usize = 16;

/// The slowest network that is supported.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// How long so many bytes may take, in addition to the time for an answer.
pub(super) fn time_for(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / BYTES_PER_SECOND_MIN)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    Frame(Vec<u8>),
    /// Asks the receiver to confirm everything up to here, by this number.
    Mark(u64),
}

pub(super) struct TunnelConnection {
    /// The receiver keeps a mirror.
    pub mirror: bool,
    /// Everything is written, and the connection closed, when this is dropped.
    pub out: mpsc::Sender<Outgoing>,
    pub incoming: mpsc::Receiver<Vec<u8>>,
    /// The last mark that the receiver confirmed.
    pub confirmed: watch::Receiver<u64>,
    /// Why the connection has ended.
    pub over: oneshot::Receiver<BridgeError>,
}

/// The other ends of a pipe's queues, for the task that moves the frames.
struct PipeEnds {
    out: mpsc::Receiver<Outgoing>,
    incoming: mpsc::Sender<Vec<u8>>,
    confirmed: watch::Sender<u64>,
}

impl TunnelConnection {
    fn make(mirror: bool) -> (Self, PipeEnds, oneshot::Sender<BridgeError>) {
        let (out, outgoing) = mpsc::channel(OUT_MAX);
        let (given, incoming) = mpsc::channel(IN_MAX);
        let (confirming, confirmed) = watch::channel(0);
        let (end, over) = oneshot::channel();
        let pipe = Self { mirror, out, incoming, confirmed, over };
        (pipe, PipeEnds { out: outgoing, incoming: given, confirmed: confirming }, end)
    }

    pub fn over_socket(socket: ReceiverSocket, silence: Duration, tasks: &TaskTracker) -> Self {
        let (pipe, pipe_ends, end) = Self::make(socket.mirror);
        drop(tasks.spawn(async move {
            let reason = websocket::run(socket.stream, pipe_ends, silence).await;
            // The user of the pipe may be gone.
            drop(end.send(reason));
        }));
        pipe
    }

    /// For receivers that keep a mirror, where sockets do not get through.
    pub async fn over_polls(
        receiver: &Arc<ReceiverClient>,
        target: TunnelTarget,
        tasks: &TaskTracker,
    ) -> Result<Self, BridgeError> {
        let connection = receiver.open(&target).await?;
        let (pipe, pipe_ends, end) = Self::make(true);
        let receiver = Arc::clone(receiver);
        drop(tasks.spawn(async move {
            let reason = long_poll::run(&receiver, &target, &connection, pipe_ends).await;
            receiver.close(&target, &connection).await;
            drop(end.send(reason));
        }));
        Ok(pipe)
    }
}
