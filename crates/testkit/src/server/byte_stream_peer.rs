//! The client's end of a byte stream, as if it were one of a memory link.

use server::memory::LinkPeer;
use server::{FrameBatch, Incoming, Link};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use wire::Frame;

/// A client that is slow to read is so for the server too: nothing is kept in between but this.
const BETWEEN_MAX: usize = 1;

pub(super) fn peer(stream: DuplexStream) -> LinkPeer {
    let tasks = TaskTracker::new();
    let (input, output) = tokio::io::split(stream);
    let (Link { incoming, outgoing }, written) = server::byte_stream::over(input, output, &tasks);
    let (frames, lines) = mpsc::channel(BETWEEN_MAX);
    let (arrived, batches) = mpsc::channel(BETWEEN_MAX);
    drop(tasks.spawn(carry(incoming, arrived)));
    drop(tasks.spawn(async move {
        carry(lines, outgoing).await;
        drop(written.await);
    }));
    LinkPeer { frames, batches }
}

async fn carry(mut from: Incoming, to: mpsc::Sender<FrameBatch>) {
    while let Some(Frame::Line(mut bytes)) = from.recv().await {
        bytes.push(b'\n');
        if to.send(FrameBatch { bytes, marks: Vec::new() }).await.is_err() {
            return;
        }
    }
}
