//! The official Agent Client Protocol, version 1, on the official schema's types.
//!
//! One value of [`Acp`] belongs to one connection: it knows what the client can do. Updates are
//! encoded by [`Updates`], one per session that the connection shows.

mod decode;
mod ext;
mod reply;
mod settings;
mod tools;
mod updates;

use agent_client_protocol_schema::v1 as schema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::call::{Call, Fault, Outcome};
use crate::rpc::RpcId;

pub use reply::AUTH_METHOD;
pub use updates::{AskFrame, Piece, Updates, View};

/// Text in one prompt, all its blocks together.
pub const PROMPT_TEXT_BYTES_MAX: usize = 1 << 20;
/// Any frame but those that may carry images or histories.
const PLAIN_FRAME_BYTES_MAX: usize = 1 << 20;
/// Events that one import takes.
pub const IMPORT_EVENTS_MAX: usize = 10_000;

/// How we introduce ourselves.
#[derive(Debug, Clone)]
pub struct Identity {
    pub name: String,
    pub title: String,
    pub version: String,
    /// How far the tools and commands of this server reach.
    pub sandbox: String,
}

/// The reading half of a connection.
#[derive(Default)]
pub struct Acp {
    client: ClientAbilities,
    initialized: bool,
}

/// The answering half of a connection.
pub struct Replies {
    identity: Identity,
}

impl Replies {
    pub fn new(identity: Identity) -> Self {
        Self { identity }
    }

    pub fn write(&self, id: &RpcId, outcome: Result<&Outcome, &Fault>, out: &mut Vec<u8>) {
        match outcome {
            Ok(outcome) => reply::encode(&self.identity, id, outcome, out),
            Err(fault) => reply::encode_fault(id, fault, out),
        }
    }
}

/// What the client said it can do, as far as it changes what we send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientAbilities {
    pub notices: bool,
    pub compaction: bool,
    /// Shows a command's output from `_meta.terminal_output`.
    pub terminal_output: bool,
}

impl Acp {
    pub fn client(&self) -> ClientAbilities {
        self.client
    }

    /// What a request wants. `frame_bytes` is the size of the frame it came in.
    pub fn request(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
        frame_bytes: usize,
    ) -> Result<Call, Fault> {
        let large = matches!(method, "session/prompt" | "session/message" | "_session/import");
        if !large && frame_bytes > PLAIN_FRAME_BYTES_MAX {
            return Err(Fault::FrameTooLong { limit_bytes: PLAIN_FRAME_BYTES_MAX });
        }
        if !self.initialized && method != "initialize" {
            return Err(Fault::InvalidRequest(format!(
                "{method} came before initialize: send initialize first"
            )));
        }
        let call = decode::request(method, params)?;
        if let Call::Initialize(_) = call {
            self.client = decode::abilities(params);
            self.initialized = true;
        }
        Ok(call)
    }

    /// What a notification wants. Unknown ones are ignored, as the protocol demands.
    pub fn notification(&mut self, method: &str, params: Option<&RawValue>) -> Result<Call, Fault> {
        decode::notification(method, params)
    }
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

fn write_notification(out: &mut Vec<u8>, method: &str, params: impl Serialize) {
    write_frame(out, &NotificationFrame { jsonrpc: "2.0", method, params });
}

/// The client no longer needs to answer a request of ours.
pub fn write_cancel_request(out: &mut Vec<u8>, request: u64) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        request_id: u64,
    }
    write_notification(out, "$/cancel_request", Params { request_id: request });
}

/// What the answer to a permission request says.
pub fn permission_answer(result: Result<&RawValue, &RawValue>) -> engine::Answer {
    let response =
        result.ok().and_then(|raw| serde_json::from_str::<schema::RequestPermissionResponse>(raw.get()).ok());
    match response.map(|response| response.outcome) {
        Some(schema::RequestPermissionOutcome::Selected(selected)) => match selected.option_id.0.as_ref() {
            "allow_once" => engine::Answer::AllowOnce,
            "allow_always" => engine::Answer::AllowAlways,
            "reject_always" => engine::Answer::DenyAlways,
            // Anything we did not offer must not be taken for a yes.
            _ => engine::Answer::DenyOnce,
        },
        Some(schema::RequestPermissionOutcome::Cancelled) => engine::Answer::Withdraw,
        Some(_) | None => engine::Answer::DenyOnce,
    }
}
