//! The Bernstein dialect, 2025-04-01: a prompt opens a session of its own and is answered at once; what
//! happens there is told as `streamUpdate`, and what is asked as `requestPermission`.
//!
//! Its clients cannot open a session a second time, so a session is theirs until it is cancelled or
//! leaves memory.

mod decode;
mod reply;
mod updates;

use engine::{AskId, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{Dialect, Spoken, chosen};
use crate::rpc::{Message, RpcId};

pub(crate) use decode::{notification, request};
pub(crate) use reply::{fault, reply};
pub use updates::Updates;

/// The version that a client asks for, and the only one there is.
pub const VERSION: &str = "2025-04-01";
/// Any frame.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Methods with an answer, and those without.
const REQUESTS: [&str; 5] = ["initialize", "prompt", "cancel", "setMode", "requestPermission"];
const NOTIFICATIONS: [&str; 2] = ["initialized", "streamUpdate"];

/// The approval that nothing is asked in, and the one that whatever changes something is asked in.
const AUTO: &str = "full";
const MANUAL: &str = "suggest";

/// Whether this is one message of this dialect, as opposed to one of another on the same path. At a server that was
/// started for this dialect, it is whatever is not recognisably another's.
pub fn is_message(message: &Message<'_>, spoken: Spoken) -> bool {
    match message {
        Message::Request { method, params, .. } | Message::Notification { method, params } => {
            is_call(method, params.filter(|params| params.get() != RpcId::NULL_TEXT), spoken)
        }
        Message::Response { .. } => spoken.is_for(Dialect::Bernstein),
    }
}

/// The same of what is no message: whose words the answer to it is in.
pub fn is_frame(frame: &[u8], spoken: Spoken) -> bool {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        method: std::borrow::Cow<'a, str>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    // An array would be read as the members in order.
    let object = frame.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let Some(envelope) = object.then(|| serde_json::from_slice::<Envelope<'_>>(frame).ok()).flatten() else {
        return spoken.is_for(Dialect::Bernstein);
    };
    is_call(&envelope.method, envelope.params, spoken)
}

fn is_call(method: &str, params: Option<&RawValue>, spoken: Spoken) -> bool {
    let ours = spoken.is_for(Dialect::Bernstein);
    if method == "initialize" {
        return chosen(params, spoken).map_or(ours, |dialect| dialect == Dialect::Bernstein);
    }
    ours || REQUESTS.iter().chain(&NOTIFICATIONS).any(|ours| method == *ours)
}

/// The session that this answer to a `prompt` names.
pub fn opened(answer: &[u8]) -> Option<SessionId> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        result: Named<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named<'a> {
        #[serde(borrow)]
        session_id: std::borrow::Cow<'a, str>,
        // Only the answer to a prompt has it.
        #[serde(rename = "role")]
        _role: serde::de::IgnoredAny,
    }
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    SessionId::parse(&answer.result.session_id).ok()
}

/// The mode that an approval is shown as. Whatever asks at all is `manual`.
fn mode(approval: &str) -> &'static str {
    if approval == AUTO { "auto" } else { "manual" }
}

/// A question's name is the same on every connection, and no other session has it.
fn prompt_id(session: &SessionId, ask: AskId) -> String {
    format!("{session}/{}", ask.0)
}

/// The question that the name means in this session. Questions count from 1, so 0 is none.
fn ask_of(session: &SessionId, prompt_id: &str) -> AskId {
    let number = prompt_id.strip_prefix(session.as_str()).and_then(|rest| rest.strip_prefix('/'));
    let plain = number.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    AskId(plain.and_then(|text| text.parse().ok()).unwrap_or(0))
}
