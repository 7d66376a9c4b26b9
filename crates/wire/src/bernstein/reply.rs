//! Responses: results and errors.

use serde_json::{Value, json};

use super::{VERSION, mode, prompt_id};
use crate::acp;
use crate::client_request::{RequestError, RequestOutcome};
use crate::dialect::Identity;
use crate::rpc::RpcId;

const NO_SUCH_SESSION: i64 = -32001;
const PERMISSION: i64 = -32002;
const MODE: i64 = -32003;

/// The reason in the response to a cancel that gave none.
const DEFAULT_REASON: &str = "client_cancel";

pub(crate) fn reply(identity: &Identity, id: &RpcId, outcome: &RequestOutcome, out: &mut Vec<u8>) {
    match outcome {
        RequestOutcome::Initialized { .. } => acp::result(id, &initialized(identity), out),
        RequestOutcome::TaskStarted { id: session, cwd, role, approval } => {
            let cwd = cwd.to_string_lossy();
            let tasked =
                json!({ "sessionId": session.as_str(), "mode": mode(approval), "cwd": cwd, "role": role });
            acp::result(id, &tasked, out);
        }
        RequestOutcome::Stopped { id: session, reason } => {
            let reason = reason.as_deref().unwrap_or(DEFAULT_REASON);
            let stopped = json!({ "sessionId": session.as_str(), "cancelled": true, "reason": reason });
            acp::result(id, &stopped, out);
        }
        RequestOutcome::SettingValue { id: session, value, .. } => {
            acp::result(id, &json!({ "sessionId": session.as_str(), "mode": mode(value) }), out);
        }
        RequestOutcome::Answered { id: session, ask, applied: true, allowed } => {
            let decision = if *allowed { "approved" } else { "rejected" };
            let prompt = prompt_id(session, *ask);
            let answered = json!({ "sessionId": session.as_str(), "promptId": prompt, "decision": decision });
            acp::result(id, &answered, out);
        }
        RequestOutcome::Answered { id: session, applied: false, .. } => {
            let text = format!("session {session} has no open question of this promptId: unknown or settled");
            acp::write_error(id, PERMISSION, &text, None, out);
        }
        // Outcomes of requests that this dialect does not have.
        RequestOutcome::Done
        | RequestOutcome::ExtensionAnswer(_)
        | RequestOutcome::Created(_)
        | RequestOutcome::Opened(_)
        | RequestOutcome::Listed { .. }
        | RequestOutcome::Settings(_)
        | RequestOutcome::Replayed { .. }
        | RequestOutcome::Sandbox { .. }
        | RequestOutcome::Bridge(_)
        | RequestOutcome::TurnEnded { .. }
        | RequestOutcome::MessageAnswer { .. }
        | RequestOutcome::Cancelled { .. }
        | RequestOutcome::ListedAll(_)
        | RequestOutcome::SessionEvents { .. }
        | RequestOutcome::Exported { .. }
        | RequestOutcome::Imported { .. }
        | RequestOutcome::Removed(_)
        | RequestOutcome::Tools(_)
        | RequestOutcome::Servers(_)
        | RequestOutcome::ServerAdded { .. }
        | RequestOutcome::ServerRemoved { .. }
        | RequestOutcome::Moved { .. } => acp::result(id, &json!({}), out),
    }
}

pub(crate) fn fault(id: &RpcId, fault: &RequestError, out: &mut Vec<u8>) {
    let (code, text) = match fault {
        RequestError::Parse(_) | RequestError::FrameTooLong { .. } => (-32700, fault.text()),
        RequestError::InvalidRequest(_) | RequestError::NotInitialized { .. } => (-32600, fault.text()),
        RequestError::UnknownMethod(_) => (-32601, fault.text()),
        RequestError::InvalidParams(_) => (-32602, fault.text()),
        RequestError::Internal(_) | RequestError::Foreign(_) => (-32603, fault.text()),
        RequestError::NoSuchSession { id } | RequestError::NotOpen { id } => {
            (NO_SUCH_SESSION, format!("session not found: {id}; it was cancelled or ended, or never was"))
        }
        RequestError::NoSuchAsk { .. } => (PERMISSION, fault.text()),
        RequestError::UnknownChoice(_) => (MODE, fault.text()),
    };
    acp::write_error(id, code, &text, None, out);
}

fn initialized(identity: &Identity) -> Value {
    json!({
        "protocolVersion": VERSION,
        "negotiatedProtocolVersion": VERSION,
        // No other version gets this far.
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
