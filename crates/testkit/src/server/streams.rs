//! The client's end of a byte stream, as if it were one of a memory link.

use server::memory::Peer;
use server::{Batch, Incoming, Link};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use wire::Frame;

/// A client that is slow to read is so for the server too: nothing is kept in between but this.
const BETWEEN_MAX: usize = 1;

pub(super) fn peer(stream: DuplexStream) -> Peer {
    let tasks = TaskTracker::new();
    let (input, output) = tokio::io::split(stream);
    let (Link { incoming, outgoing }, written) = server::stream::over(input, output, &tasks);
    let (frames, lines) = mpsc::channel(BETWEEN_MAX);
    let (arrived, batches) = mpsc::channel(BETWEEN_MAX);
    drop(tasks.spawn(carry(incoming, arrived)));
    drop(tasks.spawn(async move {
        carry(lines, outgoing).await;
        drop(written.await);
    }));
    Peer { frames, batches }
}

async fn carry(mut from: Incoming, to: mpsc::Sender<Batch>) {
    while let Some(Frame::Line(mut bytes)) = from.recv().await {
        bytes.push(b'\n');
        if to.send(Batch { bytes, marks: Vec::new() }).await.is_err() {
            return;
        }
    }
}
