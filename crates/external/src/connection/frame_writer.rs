//! Encodes outgoing frames, and the task that writes them to the agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use wire::RpcId;

use super::{ConnectionError, RpcError, Shared};

/// Small frames that wait together are written together.
const BATCH_BYTES: usize = 64 << 10;

/// A request if it has a number, else a notification.
pub(super) fn message(
    number: Option<u64>,
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, ConnectionError> {
    let mut out = br#"{"jsonrpc":"2.0""#.to_vec();
    if let Some(number) = number {
        out.extend_from_slice(format!(r#","id":{number}"#).as_bytes());
    }
    out.extend_from_slice(br#","method":"#);
    put(&mut out, &method)?;
    let before = out.len();
    out.extend_from_slice(br#","params":"#);
    let from = out.len();
    put(&mut out, params)?;
    if &out[from..] == RpcId::NULL_TEXT.as_bytes() {
        // Parameters are a structure or absent.
        out.truncate(before);
    }
    Ok(finish_frame(out))
}

pub(super) fn answer(id: &RpcId, result: &impl Serialize) -> Result<Vec<u8>, ConnectionError> {
    let mut out = response_start(id);
    out.extend_from_slice(br#","result":"#);
    put(&mut out, result)?;
    Ok(finish_frame(out))
}

pub(super) fn refusal(id: &RpcId, error: &RpcError) -> Result<Vec<u8>, ConnectionError> {
    #[derive(Serialize)]
    struct ErrorObject<'a> {
        code: i64,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
    }
    let mut out = response_start(id);
    out.extend_from_slice(br#","error":"#);
    put(&mut out, &ErrorObject { code: error.code, message: &error.message, data: error.data.as_deref() })?;
    Ok(finish_frame(out))
}

fn response_start(id: &RpcId) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{}"#, id.as_json()).into_bytes()
}

fn put(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), ConnectionError> {
    // Only a map with keys that are not strings can fail; a partial frame must never be sent.
    serde_json::to_writer(out, value).map_err(|_| ConnectionError::Malformed)
}

/// Raw JSON of others may contain line breaks between its tokens, but a message must be one line.
fn finish_frame(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.contains(&b'\n') || frame.contains(&b'\r') {
        frame.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    frame.extend_from_slice(b"}\n");
    frame
}

/// Writes frames until the channel is closed, or until the agent has not read for too long.
pub(super) async fn write(
    shared: Arc<Shared>,
    mut frames: mpsc::Receiver<Vec<u8>>,
    mut output: impl AsyncWrite + Send + Unpin,
) {
    while let Some(mut batch) = frames.recv().await {
        while batch.len() < BATCH_BYTES
            && let Ok(more) = frames.try_recv()
        {
            batch.extend_from_slice(&more);
        }
        let written = write_all(&shared, &batch, &mut output).await;
        shared.unsent_bytes.fetch_sub(batch.len(), Ordering::AcqRel);
        shared.written.notify_waiters();
        if !written {
            shared.close_output();
            shared.stopped_reading.cancel();
            return;
        }
    }
    // The agent may be gone already.
    timeout(shared.limits.write_wait, output.shutdown()).await.ok();
}

async fn write_all(shared: &Shared, mut bytes: &[u8], output: &mut (impl AsyncWrite + Unpin)) -> bool {
    while !bytes.is_empty() {
        match timeout(shared.limits.write_wait, output.write(bytes)).await {
            Ok(Ok(count)) if count > 0 => bytes = &bytes[count..],
            Ok(Ok(_)) => return false,
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not write to the agent's input");
                return false;
            }
            Err(_) => {
                tracing::warn!(unread_bytes = bytes.len(), "the agent does not read its input");
                return false;
            }
        }
    }
    matches!(timeout(shared.limits.write_wait, output.flush()).await, Ok(Ok(())))
}
