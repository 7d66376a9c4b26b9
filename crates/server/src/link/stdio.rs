//! Standard input and output, each on a thread of its own.
//!
//! Plain blocking calls work the same for pipes, files and terminals, and leave the descriptors'
//! flags alone: setting them to non-blocking would change them for whoever shares them with us.

use std::io::{ErrorKind, Read, Write};
use std::thread;

use tokio::sync::{mpsc, oneshot};
use wire::{Frame, FrameBuffer, LINE_FRAME_BYTES_MAX};

use crate::frame_batch::FrameBatch;

use super::{INCOMING_MAX, Link, OUTGOING_MAX};

const READ_BYTES: usize = 64 << 10;

/// The link, and a promise that is kept when everything was written and the output closed.
pub fn open() -> std::io::Result<(Link, oneshot::Receiver<()>)> {
    over(std::io::stdin(), std::io::stdout())
}

/// The same over any pair of blocking streams.
pub fn over(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> std::io::Result<(Link, oneshot::Receiver<()>)> {
    let (frames, incoming) = mpsc::channel(INCOMING_MAX);
    let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
    let (done, written) = oneshot::channel();
    thread::Builder::new().name("stdin".into()).spawn(move || read_all(input, &frames))?;
    thread::Builder::new().name("stdout".into()).spawn(move || {
        write_all(output, batches);
        if done.send(()).is_err() {
            tracing::debug!("the reader is gone before the last byte");
        }
    })?;
    Ok((Link { incoming, outgoing }, written))
}

fn read_all(mut input: impl Read, frames: &mpsc::Sender<Frame>) {
    let mut buffer = FrameBuffer::new(LINE_FRAME_BYTES_MAX);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => buffer.push(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "could not read standard input");
                break;
            }
        }
        while let Some(frame) = buffer.next_frame() {
            if frames.blocking_send(frame).is_err() {
                return;
            }
        }
    }
    if let Some(frame) = buffer.finish() {
        // The connection may be gone already.
        drop(frames.blocking_send(frame));
    }
}

fn write_all(mut output: impl Write, mut batches: mpsc::Receiver<FrameBatch>) {
    while let Some(batch) = batches.blocking_recv() {
        if let Err(error) = output.write_all(&batch.bytes).and_then(|()| output.flush()) {
            tracing::info!(%error, "the client no longer reads");
            return;
        }
    }
}
