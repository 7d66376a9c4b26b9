//! Answers as otter's clients read them.

use serde_json::json;

use crate::acp::result;
use crate::call::Outcome;
use crate::dialect::Identity;
use crate::rpc::RpcId;
use crate::siblings;

pub(crate) use crate::siblings::fault;

/// The version of builds that have `session/resume`, for clients that ask for it.
const NUMBERED_VERSION: u64 = 2;

pub(crate) fn reply(identity: &Identity, id: &RpcId, outcome: &Outcome, out: &mut Vec<u8>) {
    match outcome {
        Outcome::Initialized { greeting, version } => {
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
        Outcome::Answered { applied, .. } => result(id, &json!({ "applied": applied }), out),
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
        | Outcome::Moved { .. } => siblings::reply(id, outcome, out),
    }
}
