//! The official Agent Client Protocol, version 1, on the official schema's types.
//!
//! Updates are encoded by [`Updates`], one per session that a connection shows.

mod calls;
mod consoles;
mod decode;
mod ext;
mod fence;
mod host;
mod questions;
mod relay;
mod reply;
mod servers;
mod settings;
mod tools;
mod updates;
mod zeph_events;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::call::{Call, Fault};
use crate::rpc::RpcId;

pub(crate) use decode::{abilities, block as content_block, blocks, check_text, prompt};
pub use host::{
    HostAnswer, HostWish, Unserved, foreign_error, host_reply, host_result, host_wish, write_host_call,
};
pub use questions::{ExpectedAnswer, ask_answer};
pub use relay::SERVER_TERMINAL;
pub use reply::AUTH_METHOD;
pub(crate) use reply::{encode as reply, encode_fault as fault, result, write_error};
pub(crate) use tools::{block as schema_block, tool_kind};
pub use updates::{AskFrame, Updates};

/// Text in one prompt, all its blocks together.
pub const PROMPT_TEXT_BYTES_MAX: usize = 1 << 20;
/// Any frame but those that may carry images or histories.
const PLAIN_FRAME_BYTES_MAX: usize = 1 << 20;
/// Events that one import takes.
pub const IMPORT_EVENTS_MAX: usize = 10_000;

/// What the client said it can do, as far as it changes what we send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientAbilities {
    pub notices: bool,
    pub compaction: bool,
    /// Shows a command's output from `_meta.terminal_output`.
    pub terminal_output: bool,
    /// Wants to know with every update where in the log it stands.
    pub cursors: bool,
    /// Shows forms.
    pub forms: bool,
    /// What it does for the agent.
    pub host: engine::HostAbilities,
    /// It came by zeph's transport.
    pub zeph: bool,
}

/// What a request wants. `frame_bytes` is the size of the frame it came in.
pub(crate) fn request(method: &str, params: Option<&RawValue>, frame_bytes: usize) -> Result<Call, Fault> {
    check_size(method, frame_bytes)?;
    decode::request(method, params)
}

/// Most methods have no use for a large frame.
pub(crate) fn check_size(method: &str, frame_bytes: usize) -> Result<(), Fault> {
    let large = matches!(method, "session/prompt" | "session/message" | "_session/import");
    if !large && frame_bytes > PLAIN_FRAME_BYTES_MAX {
        return Err(Fault::FrameTooLong { limit_bytes: PLAIN_FRAME_BYTES_MAX });
    }
    Ok(())
}

/// What a notification wants. Unknown ones are ignored, as the protocol demands.
pub(crate) fn notification(method: &str, params: Option<&RawValue>) -> Result<Call, Fault> {
    decode::notification(method, params)
}

/// Appends one JSON-RPC message and its line end.
fn write_frame(out: &mut Vec<u8>, frame: &impl Serialize) {
    let before = out.len();
    match serde_json::to_writer(&mut *out, frame) {
        Ok(()) => out.push(b'\n'),
        // Only a map with keys that are not text can fail here, and none of ours has such keys.
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

/// Appends a request of ours.
fn write_request(id: &RpcId, method: &str, params: &impl Serialize, out: &mut Vec<u8>) {
    let before = out.len();
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(br#","method":"#);
    // An external agent may have chosen it: it must not end its own quotes.
    let named = serde_json::to_writer(&mut *out, method);
    out.extend_from_slice(br#","params":"#);
    match named.and_then(|()| serde_json::to_writer(&mut *out, params)) {
        Ok(()) => out.extend_from_slice(b"}\n"),
        // Cannot happen with these types; half a frame must never leave.
        Err(_) => out.truncate(before),
    }
}

/// The client no longer needs to answer a request of ours.
pub fn write_cancel_request(out: &mut Vec<u8>, request: &RpcId) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"#);
    out.extend_from_slice(request.as_json().as_bytes());
    out.extend_from_slice(b"}}\n");
}
