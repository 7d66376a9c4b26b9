//! A link over any pair of asynchronous byte streams: a socket, the pipes of a child, two ends in one process.

use std::io::ErrorKind;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;
use wire::{Frame, FrameBuffer, LINE_FRAME_BYTES_MAX};

use crate::frame_batch::FrameBatch;

use super::{INCOMING_MAX, Link, OUTGOING_MAX};

const READ_BYTES: usize = 64 << 10;

/// The link, and a receiver that completes when everything was written and the output closed. Dropping
/// the receiver gives up what the peer has not taken by then.
pub fn over(
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    tasks: &TaskTracker,
) -> (Link, oneshot::Receiver<()>) {
    let (frames, incoming) = mpsc::channel(INCOMING_MAX);
    let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
    let (mut done, written) = oneshot::channel();
    drop(tasks.spawn(read_all(input, frames)));
    drop(tasks.spawn(async move {
        tokio::select! {
            biased;
            () = done.closed() => return,
            () = write_all(output, batches) => {}
        }
        if done.send(()).is_err() {
            tracing::debug!("the reader is gone before the last byte");
        }
    }));
    (Link { incoming, outgoing }, written)
}

async fn read_all(mut input: impl AsyncRead + Unpin, frames: mpsc::Sender<Frame>) {
    let mut buffer = FrameBuffer::new(LINE_FRAME_BYTES_MAX);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let read = tokio::select! {
            biased;
            () = frames.closed() => return,
            read = input.read(&mut bytes) => read,
        };
        match read {
            Ok(0) => break,
            Ok(count) => buffer.push(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::info!(%error, "could not read from a client");
                break;
            }
        }
        while let Some(frame) = buffer.next_frame() {
            if frames.send(frame).await.is_err() {
                return;
            }
        }
    }
    if let Some(frame) = buffer.finish() {
        // The connection may be gone already.
        drop(frames.send(frame).await);
    }
}

async fn write_all(mut output: impl AsyncWrite + Unpin, mut batches: mpsc::Receiver<FrameBatch>) {
    while let Some(batch) = batches.recv().await {
        let written = async {
            output.write_all(&batch.bytes).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            tracing::info!(%error, "the client no longer reads");
            return;
        }
    }
    if let Err(error) = output.shutdown().await {
        tracing::debug!(%error, "the client disconnected before the end");
    }
}
