//! Answers: what came of a request, or why nothing did.

use serde_json::{Value, json};

use super::{VERSION, mode, prompt_id};
use crate::acp;
use crate::call::{Fault, Outcome};
use crate::dialect::Identity;
use crate::rpc::RpcId;

const NO_SUCH_SESSION: i64 = -32001;
const PERMISSION: i64 = -32002;
const MODE: i64 = -32003;

/// What a cancel without a reason is answered with.
const DEFAULT_REASON: &str = "client_cancel";

pub(crate) fn reply(identity: &Identity, id: &RpcId, outcome: &Outcome, out: &mut Vec<u8>) {
    match outcome {
        Outcome::Initialized { .. } => acp::result(id, &initialized(identity), out),
        Outcome::Tasked { id: session, cwd, role, approval } => {
            let cwd = cwd.to_string_lossy();
            let tasked =
                json!({ "sessionId": session.as_str(), "mode": mode(approval), "cwd": cwd, "role": role });
            acp::result(id, &tasked, out);
        }
        Outcome::Stopped { id: session, reason } => {
            let reason = reason.as_deref().unwrap_or(DEFAULT_REASON);
            let stopped = json!({ "sessionId": session.as_str(), "cancelled": true, "reason": reason });
            acp::result(id, &stopped, out);
        }
        Outcome::Set { id: session, value, .. } => {
            acp::result(id, &json!({ "sessionId": session.as_str(), "mode": mode(value) }), out);
        }
        Outcome::Answered { id: session, ask, applied: true, allowed } => {
            let decision = if *allowed { "approved" } else { "rejected" };
            let prompt = prompt_id(session, *ask);
            let answered = json!({ "sessionId": session.as_str(), "promptId": prompt, "decision": decision });
            acp::result(id, &answered, out);
        }
        Outcome::Answered { id: session, applied: false, .. } => {
            let text = format!("session {session} has no open question of this promptId: unknown or settled");
            acp::write_error(id, PERMISSION, &text, None, out);
        }
        // Answers to calls that this dialect does not have.
        Outcome::Done
        | Outcome::Extended(_)
        | Outcome::Created(_)
        | Outcome::Opened(_)
        | Outcome::Listed { .. }
        | Outcome::Settings(_)
        | Outcome::Replayed { .. }
        | Outcome::Sandbox { .. }
        | Outcome::Bridge(_)
        | Outcome::TurnEnded { .. }
        | Outcome::Said { .. }
        | Outcome::Cancelled { .. }
        | Outcome::ListedAll(_)
        | Outcome::Got { .. }
        | Outcome::Exported { .. }
        | Outcome::Imported { .. }
        | Outcome::Removed(_)
        | Outcome::Tools(_)
        | Outcome::Servers(_)
        | Outcome::ServerAdded { .. }
        | Outcome::ServerRemoved { .. }
        | Outcome::Moved { .. } => acp::result(id, &json!({}), out),
    }
}

pub(crate) fn fault(id: &RpcId, fault: &Fault, out: &mut Vec<u8>) {
    let (code, text) = match fault {
        Fault::Parse(_) | Fault::FrameTooLong { .. } => (-32700, fault.text()),
        Fault::InvalidRequest(_) | Fault::NotInitialized { .. } => (-32600, fault.text()),
        Fault::UnknownMethod(_) => (-32601, fault.text()),
        Fault::InvalidParams(_) => (-32602, fault.text()),
        Fault::Internal(_) | Fault::Foreign(_) => (-32603, fault.text()),
        Fault::NoSuchSession { id } | Fault::NotOpen { id } => {
            (NO_SUCH_SESSION, format!("session not found: {id}; it was cancelled or ended, or never was"))
        }
        Fault::NoSuchAsk { .. } => (PERMISSION, fault.text()),
        Fault::UnknownChoice(_) => (MODE, fault.text()),
    };
    acp::write_error(id, code, &text, None, out);
}

fn initialized(identity: &Identity) -> Value {
    json!({
        "protocolVersion": VERSION,
        "negotiatedProtocolVersion": VERSION,
        // No other version gets as far as here.
        "clientRequestedVersion": VERSION,
        "serverInfo": {
            "name": identity.name,
            "description": format!("{}: many clients, one coding session", identity.title),
            "version": identity.version,
        },
        "capabilities": {
            "prompts": true,
            "streaming": true,
            "cancellation": true,
            "modes": ["auto", "manual"],
            "permissions": true,
        },
        "adapters": identity.adapters,
        "sandboxBackends": identity.sandbox_backends.names(),
    })
}
