//! A connection to the receiver, as the rest of the bridge has it: frames out, frames in, and how it ended.
//!
//! Whether it is a WebSocket or a pair of long polls makes no difference behind this. Both queues are
//! short: a receiver that does not read stops its own session's tunnel and nothing else.

mod poll;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;

use super::post::{Post, Socket, Whose};
use super::trouble::Trouble;

/// Frames on their way to the receiver.
const OUT_MAX: usize = 4;
/// Frames from it that were not looked at.
const IN_MAX: usize = 16;

/// What the slowest line that is put up with carries.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// How long so many bytes may be under way, besides what an answer may take anyway.
pub(super) fn time_for(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / BYTES_PER_SECOND_MIN)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    Frame(Vec<u8>),
    /// Asks the receiver to confirm that it has everything up to here, by this number.
    Mark(u64),
}

pub(super) struct Pipe {
    /// The receiver keeps a mirror.
    pub mirror: bool,
    /// Everything is written, and the connection closed, when this is dropped.
    pub out: mpsc::Sender<Outgoing>,
    pub incoming: mpsc::Receiver<Vec<u8>>,
    /// The last mark that the receiver confirmed.
    pub confirmed: watch::Receiver<u64>,
    /// Why there is nothing more to come.
    pub over: oneshot::Receiver<Trouble>,
}

/// The other end of a pipe, for whoever moves the frames.
struct Ends {
    out: mpsc::Receiver<Outgoing>,
    incoming: mpsc::Sender<Vec<u8>>,
    confirmed: watch::Sender<u64>,
}

impl Pipe {
    fn make(mirror: bool) -> (Self, Ends, oneshot::Sender<Trouble>) {
        let (out, taken) = mpsc::channel(OUT_MAX);
        let (given, incoming) = mpsc::channel(IN_MAX);
        let (confirming, confirmed) = watch::channel(0);
        let (end, over) = oneshot::channel();
        let pipe = Self { mirror, out, incoming, confirmed, over };
        (pipe, Ends { out: taken, incoming: given, confirmed: confirming }, end)
    }

    pub fn over_socket(socket: Socket, silence: Duration, tasks: &TaskTracker) -> Self {
        let (pipe, ends, end) = Self::make(socket.mirror);
        drop(tasks.spawn(async move {
            let how = socket::run(socket.stream, ends, silence).await;
            // Whoever had the pipe may be gone.
            drop(end.send(how));
        }));
        pipe
    }

    /// For receivers that keep a mirror, where sockets do not get through.
    pub async fn over_polls(post: &Arc<Post>, whose: Whose, tasks: &TaskTracker) -> Result<Self, Trouble> {
        let connection = post.open(&whose).await?;
        let (pipe, ends, end) = Self::make(true);
        let post = Arc::clone(post);
        drop(tasks.spawn(async move {
            let how = poll::run(&post, &whose, &connection, ends).await;
            post.close(&whose, &connection).await;
            drop(end.send(how));
        }));
        Ok(pipe)
    }
}
