//! Answers as ferret's clients read them.

use serde_json::json;

use crate::acp::{result, write_error};
use crate::call::Outcome;
use crate::dialect::Identity;
use crate::rpc::RpcId;
use crate::siblings;
use crate::timestamp::rfc3339;

pub(crate) use crate::siblings::fault;

/// What was asked for cannot be done as things stand.
const REFUSED: i64 = -32000;

pub(crate) fn reply(identity: &Identity, id: &RpcId, outcome: &Outcome, out: &mut Vec<u8>) {
    match outcome {
        Outcome::Initialized { .. } => {
            let hello = json!({
                "protocolVersion": "0.2",
                "capabilities": {
                    "sandbox": true,
                    "approval": true,
                    "streaming": true,
                    "cancellation": true,
                    "bridge": true,
                },
                "serverInfo": { "name": identity.name, "version": identity.version },
            });
            result(id, &hello, out);
        }
        Outcome::Answered { applied: true, .. } => result(id, &json!({ "ok": true }), out),
        Outcome::Answered { applied: false, .. } => {
            let text = "the permission request is unknown or already answered; nothing was changed";
            write_error(id, REFUSED, text, None, out);
        }
        Outcome::Sandbox { wanted: None } => {
            result(id, &json!({ "sandbox": identity.sandbox, "mode": identity.sandbox }), out);
        }
        Outcome::Sandbox { wanted: Some(_) } => {
            let text = format!(
                "restart required: the sandbox is {} for as long as the server runs; start it with another --sandbox",
                identity.sandbox
            );
            write_error(id, REFUSED, &text, Some(json!({ "sandbox": identity.sandbox })), out);
        }
        Outcome::Bridge(bridge) => {
            let status = if bridge.connected { "connected" } else { "disconnected" };
            let mut told = json!({ "connected": bridge.connected, "status": status });
            if let Some(url) = &bridge.url {
                told["queued"] = json!(bridge.queued);
                told["url"] = json!(url);
                told["uiUrl"] = json!(bridge.ui_url);
                told["since"] = json!(bridge.since.map(rfc3339));
            }
            result(id, &told, out);
        }
        Outcome::Done
        | Outcome::Extended(_)
        | Outcome::Created(_)
        | Outcome::Opened(_)
        | Outcome::Listed { .. }
        | Outcome::Settings(_)
        | Outcome::Set { .. }
        | Outcome::Replayed { .. }
        | Outcome::Tasked { .. }
        | Outcome::Stopped { .. }
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
        | Outcome::Moved { .. } => siblings::reply(id, outcome, out),
    }
}
