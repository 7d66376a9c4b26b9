//! The Bernstein dialect, 2025-04-01: a prompt opens its own session and is answered at once; what happens
//! there is sent as `streamUpdate`, and permission requests as `requestPermission`.
//!
//! Its clients cannot open a session a second time, so a session stays with its client until it is cancelled
//! or leaves memory.

mod decode;
mod reply;
mod updates;

use engine::{AskId, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{Dialect, DialectSelection, select_dialect};
use crate::rpc::{RpcId, RpcMessage};

pub(crate) use decode::{notification, request};
pub(crate) use reply::{fault, reply};
pub use updates::Updates;

/// The only version, which clients ask for.
pub const VERSION: &str = "2025-04-01";
/// Limit for every frame.
pub const BERNSTEIN_FRAME_BYTES_MAX: usize = 1 << 20;

/// Methods that are requests, and methods that are notifications.
const REQUESTS: [&str; 5] = ["initialize", "prompt", "cancel", "setMode", "requestPermission"];
const NOTIFICATIONS: [&str; 2] = ["initialized", "streamUpdate"];

/// The approval setting that asks for nothing, and the one that asks for every change.
const AUTO: &str = "full";
const MANUAL: &str = "suggest";

/// Whether this message belongs to this dialect and not to another one on the same path. At a server that
/// was started for this dialect, every message does that is not recognisably another dialect's.
pub fn is_message(message: &RpcMessage<'_>, selection: DialectSelection) -> bool {
    match message {
        RpcMessage::Request { method, params, .. } | RpcMessage::Notification { method, params } => {
            is_call(method, params.filter(|params| params.get() != RpcId::NULL_TEXT), selection)
        }
        RpcMessage::Response { .. } => selection.is_for(Dialect::Bernstein),
    }
}

/// The same for a frame that is not a valid message, to choose the dialect of the error response.
pub fn is_frame(frame: &[u8], selection: DialectSelection) -> bool {
    #[derive(Deserialize)]
    struct CallFrame<'a> {
        #[serde(borrow)]
        method: std::borrow::Cow<'a, str>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    // serde would read an array as the members in order.
    let object = frame.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let Some(frame) = object.then(|| serde_json::from_slice::<CallFrame<'_>>(frame).ok()).flatten() else {
        return selection.is_for(Dialect::Bernstein);
    };
    is_call(&frame.method, frame.params, selection)
}

fn is_call(method: &str, params: Option<&RawValue>, selection: DialectSelection) -> bool {
    let ours = selection.is_for(Dialect::Bernstein);
    if method == "initialize" {
        return select_dialect(params, selection).map_or(ours, |dialect| dialect == Dialect::Bernstein);
    }
    ours || REQUESTS.iter().chain(&NOTIFICATIONS).any(|ours| method == *ours)
}

/// The session that a response to `prompt` names.
pub fn opened_session(answer: &[u8]) -> Option<SessionId> {
    #[derive(Deserialize)]
    struct PromptResponse<'a> {
        #[serde(borrow)]
        result: PromptResult<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PromptResult<'a> {
        #[serde(borrow)]
        session_id: std::borrow::Cow<'a, str>,
        // Only the response to a prompt has it.
        #[serde(rename = "role")]
        _role: serde::de::IgnoredAny,
    }
    let answer: PromptResponse<'_> = serde_json::from_slice(answer).ok()?;
    SessionId::parse(&answer.result.session_id).ok()
}

/// The mode that an approval setting is shown as. Every setting that asks at all is `manual`.
fn mode(approval: &str) -> &'static str {
    if approval == AUTO { "auto" } else { "manual" }
}

/// The id of a permission request: the same on every connection, and unique across sessions.
fn prompt_id(session: &SessionId, ask: AskId) -> String {
    format!("{session}/{}", ask.0)
}

/// The permission request that an id means in this session. Requests count from 1, so 0 means none.
fn ask_of(session: &SessionId, prompt_id: &str) -> AskId {
    let number = prompt_id.strip_prefix(session.as_str()).and_then(|rest| rest.strip_prefix('/'));
    let plain = number.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    AskId(plain.and_then(|text| text.parse().ok()).unwrap_or(0))
}
