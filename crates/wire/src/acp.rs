//! The official Agent Client Protocol (ACP), version 1, built on the types of the official schema crate.
//!
//! [`Updates`] encodes a session's events; a connection has one for each session that it shows.

mod code_fence;
mod decode;
mod host_calls;
mod questions;
mod relayed_updates;
mod reply;
mod settings;
mod sub_agent_calls;
mod terminal_output;
mod tool_calls;
mod tool_servers;
mod updates;
mod zeph_import;
mod zeph_methods;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::client_request::{ClientRequest, RequestError};
use crate::rpc::RpcId;

pub(crate) use decode::{abilities, block as content_block, blocks, check_text, prompt};
pub use host_calls::{
    AgentHostRequest, HostRequestError, HostResultKind, foreign_error, host_reply, host_request, host_result,
    write_host_call,
};
pub use questions::{ExpectedAnswer, ask_answer};
pub use relayed_updates::SERVER_TERMINAL;
pub use reply::AUTH_METHOD;
pub(crate) use reply::{encode as reply, encode_fault as fault, result, write_error};
pub(crate) use tool_calls::{block as schema_block, tool_kind};
pub use updates::{AskFrame, Updates};

/// Limit for the text of one prompt, summed over all its blocks.
pub const PROMPT_TEXT_BYTES_MAX: usize = 1 << 20;
/// Limit for every frame that cannot carry images or histories.
const PLAIN_FRAME_BYTES_MAX: usize = 1 << 20;
/// Limit for the events of one import.
pub const IMPORT_EVENTS_MAX: usize = 10_000;

/// The client capabilities that change what we send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientAbilities {
    pub notices: bool,
    pub compaction: bool,
    /// Shows a command's output from `_meta.terminal_output`.
    pub terminal_output: bool,
    /// The client wants each update to carry its position in the log.
    pub cursors: bool,
    /// The client can show forms (elicitation).
    pub forms: bool,
    /// The file and terminal methods that the client implements for the agent.
    pub host: engine::HostAbilities,
    /// The client is connected over zeph's transport.
    pub zeph: bool,
}

/// Decodes a request. `frame_bytes` is the size of the frame that it came in.
pub(crate) fn request(
    method: &str,
    params: Option<&RawValue>,
    frame_bytes: usize,
) -> Result<ClientRequest, RequestError> {
    check_size(method, frame_bytes)?;
    decode::request(method, params)
}

/// Refuses large frames for methods that never need one.
pub(crate) fn check_size(method: &str, frame_bytes: usize) -> Result<(), RequestError> {
    let large = matches!(method, "session/prompt" | "session/message" | "_session/import");
    if !large && frame_bytes > PLAIN_FRAME_BYTES_MAX {
        return Err(RequestError::FrameTooLong { limit_bytes: PLAIN_FRAME_BYTES_MAX });
    }
    Ok(())
}

/// Decodes a notification. Unknown notifications are ignored, as the protocol requires.
pub(crate) fn notification(method: &str, params: Option<&RawValue>) -> Result<ClientRequest, RequestError> {
    decode::notification(method, params)
}

/// Appends one JSON-RPC message and its line end.
fn write_frame(out: &mut Vec<u8>, frame: &impl Serialize) {
    let before = out.len();
    match serde_json::to_writer(&mut *out, frame) {
        Ok(()) => out.push(b'\n'),
        // Serialization fails only for a map whose keys are not text, and none of our types has one.
        Err(_) => out.truncate(before),
    }
}

#[derive(Serialize)]
struct NotificationFrame<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    params: P,
}

pub(crate) fn write_notification(out: &mut Vec<u8>, method: &str, params: impl Serialize) {
    write_frame(out, &NotificationFrame { jsonrpc: "2.0", method, params });
}

/// Appends a request from us to the client.
fn write_request(id: &RpcId, method: &str, params: &impl Serialize, out: &mut Vec<u8>) {
    let before = out.len();
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(br#","method":"#);
    // The method name may come from an external agent, so it is escaped like any other text.
    let named = serde_json::to_writer(&mut *out, method);
    out.extend_from_slice(br#","params":"#);
    match named.and_then(|()| serde_json::to_writer(&mut *out, params)) {
        Ok(()) => out.extend_from_slice(b"}\n"),
        // Cannot happen with these types; a partial frame must never be sent.
        Err(_) => out.truncate(before),
    }
}

/// Tells the client that it need not answer a request of ours any more.
pub fn write_cancel_request(out: &mut Vec<u8>, request: &RpcId) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"#);
    out.extend_from_slice(request.as_json().as_bytes());
    out.extend_from_slice(b"}}\n");
}
