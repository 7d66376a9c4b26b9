//! Frames without a WebSocket: a long poll that waits at the receiver, and requests that carry frames to it.
//!
//! Only one of each is under way, so nothing overtakes. Frames that wait are sent together.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::json_errors;
use wire::tunnel::TUNNEL_FRAME_BYTES_MAX;

use super::{Outgoing, PipeEnds};
use crate::bridge_error::BridgeError;
use crate::receiver_client::{ReceiverClient, TunnelTarget};

/// How long is waited after an answer without frames that came sooner than this.
const EMPTY_REST: Duration = Duration::from_secs(1);
/// Of frames that are handed over together, past the first.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

pub(super) async fn run(
    receiver: &ReceiverClient,
    target: &TunnelTarget,
    connection: &str,
    pipe_ends: PipeEnds,
) -> BridgeError {
    let PipeEnds { out, incoming, .. } = pipe_ends;
    tokio::select! {
        trouble = give(receiver, target, connection, out, incoming.clone()) => trouble,
        trouble = take(receiver, target, connection, incoming) => trouble,
    }
}

async fn take(
    receiver: &ReceiverClient,
    target: &TunnelTarget,
    connection: &str,
    incoming: mpsc::Sender<Vec<u8>>,
) -> BridgeError {
    loop {
        let began = Instant::now();
        let told = match receiver.down(target, connection).await {
            Ok(body) => hand_on(&body, &incoming).await,
            Err(trouble) => return trouble,
        };
        match told {
            // A receiver that does not wait would be asked without end.
            Ok(Some(0)) if began.elapsed() < EMPTY_REST => tokio::time::sleep(EMPTY_REST).await,
            Ok(Some(_)) => {}
            // Nobody listens any more; what there is to say is still handed over.
            Ok(None) => return std::future::pending().await,
            Err(trouble) => return trouble,
        }
    }
}

async fn give(
    receiver: &ReceiverClient,
    target: &TunnelTarget,
    connection: &str,
    mut out: mpsc::Receiver<Outgoing>,
    incoming: mpsc::Sender<Vec<u8>>,
) -> BridgeError {
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(frame) => Some(frame),
            None => frame(&mut out).await,
        };
        let Some(first) = first else { return BridgeError::closed() };
        let mut body = Vec::with_capacity(first.len() + 2);
        body.push(b'[');
        body.extend_from_slice(&first);
        while let Ok(outgoing) = out.try_recv() {
            let Outgoing::Frame(frame) = outgoing else { continue };
            if body.len() + frame.len() > TOGETHER_BYTES_MAX {
                next = Some(frame);
                break;
            }
            body.push(b',');
            body.extend_from_slice(&frame);
        }
        body.push(b']');
        let told = match receiver.up(target, connection, body).await {
            Ok(body) => hand_on(&body, &incoming).await,
            Err(trouble) => return trouble,
        };
        if let Err(trouble) = told {
            return trouble;
        }
    }
}

async fn frame(out: &mut mpsc::Receiver<Outgoing>) -> Option<Vec<u8>> {
    loop {
        match out.recv().await? {
            Outgoing::Frame(frame) => return Some(frame),
            // A receiver that keeps a mirror says by itself what it has.
            Outgoing::Mark(_) => {}
        }
    }
}

/// Says how many frames there were; nothing, if nobody listens.
async fn hand_on(body: &[u8], incoming: &mpsc::Sender<Vec<u8>>) -> Result<Option<usize>, BridgeError> {
    debug_assert!(body.len() <= TUNNEL_FRAME_BYTES_MAX, "the answer was read under a limit");
    let frames: Vec<&RawValue> =
        json_errors::read_bytes(body, "the answer").map_err(BridgeError::malformed)?;
    let count = frames.len();
    for frame in frames {
        if incoming.send(frame.get().as_bytes().to_vec()).await.is_err() {
            return Ok(None);
        }
    }
    Ok(Some(count))
}
