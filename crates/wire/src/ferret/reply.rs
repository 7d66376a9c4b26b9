//! Responses in ferret's form.

use serde_json::json;

use crate::acp::{result, write_error};
use crate::client_request::RequestOutcome;
use crate::dialect::Identity;
use crate::ferret_otter_common as common;
use crate::rpc::RpcId;
use crate::timestamp::rfc3339;

pub(crate) use crate::ferret_otter_common::fault;

/// The request is not possible in the current state.
const REFUSED: i64 = -32000;

pub(crate) fn reply(identity: &Identity, id: &RpcId, outcome: &RequestOutcome, out: &mut Vec<u8>) {
    match outcome {
        RequestOutcome::Initialized { .. } => {
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
        RequestOutcome::Answered { applied: true, .. } => result(id, &json!({ "ok": true }), out),
        RequestOutcome::Answered { applied: false, .. } => {
            let text = "the permission request is unknown or already answered; nothing was changed";
            write_error(id, REFUSED, text, None, out);
        }
        RequestOutcome::Sandbox { wanted: None } => {
            result(id, &json!({ "sandbox": identity.sandbox, "mode": identity.sandbox }), out);
        }
        RequestOutcome::Sandbox { wanted: Some(_) } => {
            let text = format!(
                "restart required: the sandbox stays {} while the server runs; restart it with another --sandbox",
                identity.sandbox
            );
            write_error(id, REFUSED, &text, Some(json!({ "sandbox": identity.sandbox })), out);
        }
        RequestOutcome::Bridge(bridge) => {
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
        RequestOutcome::Done
        | RequestOutcome::ExtensionAnswer(_)
        | RequestOutcome::Created(_)
        | RequestOutcome::Opened(_)
        | RequestOutcome::Listed { .. }
        | RequestOutcome::Settings(_)
        | RequestOutcome::SettingValue { .. }
        | RequestOutcome::Replayed { .. }
        | RequestOutcome::TaskStarted { .. }
        | RequestOutcome::Stopped { .. }
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
        | RequestOutcome::Moved { .. } => common::reply(id, outcome, out),
    }
}
