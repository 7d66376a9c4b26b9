//! Responses in otter's form.

use serde_json::json;

use crate::acp::result;
use crate::client_request::RequestOutcome;
use crate::dialect::Identity;
use crate::ferret_otter_common as common;
use crate::rpc::RpcId;

pub(crate) use crate::ferret_otter_common::fault;

/// The version of builds that have `session/resume`, for clients that ask for it.
const NUMBERED_VERSION: u64 = 2;

pub(crate) fn reply(identity: &Identity, id: &RpcId, outcome: &RequestOutcome, out: &mut Vec<u8>) {
    match outcome {
        RequestOutcome::Initialized { greeting, version } => {
            let version = match version {
                Some(NUMBERED_VERSION..) => json!(NUMBERED_VERSION),
                Some(_) | None => json!("0.1"),
            };
            let hello = json!({
                "protocolVersion": version,
                "serverInfo": { "name": "otter-acp", "version": identity.version },
                "capabilities": {
                    "sessionFork": true,
                    "sessionList": true,
                    "permissionRequest": true,
                    "thinking": true,
                    "vision": greeting.images,
                },
                "agentCapabilities": {
                    "promptCapabilities": { "text": true },
                    "sessionCapabilities": { "cancel": true, "resume": true },
                    "toolApproval": true,
                    "eventIds": true,
                },
            });
            result(id, &hello, out);
        }
        RequestOutcome::Answered { applied, .. } => result(id, &json!({ "applied": applied }), out),
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
        | RequestOutcome::Moved { .. } => common::reply(id, outcome, out),
    }
}
