//! Forwarding a browser's request to a machine, and the machine's answer to the browser.

use access::required_acts;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use wire::native::hub_requests::HubNotification;
use wire::native::{ReplyError, Request, Role};
use wire::tunnel::Operator;

use super::{BrowserGone, reply, send};
use crate::authenticator::{HubVisitor, VisitorKind};
use crate::hub::wrong;
use crate::view_feed::sealed;
use crate::websocket_queues::OutgoingFrame;

/// Refuses a request that the role does not allow, also while the machine is away; the machine checks again. Deleting a
/// session takes its owner, whatever a driver may do on the machine itself: it cannot be undone.
pub(super) fn check_role(role: Role, request: &Request) -> Result<(), ReplyError> {
    let needed = match request {
        Request::Delete { .. } => Role::Owner,
        _ => required_acts::needed(request),
    };
    if role >= needed {
        return Ok(());
    }
    Err(wrong("forbidden", "this link does not allow that; ask whoever sent it for a higher role"))
}

pub(super) fn operator(visitor: &HubVisitor, role: Role) -> Operator {
    match &visitor.kind {
        VisitorKind::Person { id, name, .. } => {
            Operator { id: id.0.to_string(), name: name.to_string(), role }
        }
        VisitorKind::ShareLink { share, .. } => {
            Operator { id: format!("share.{share}.{}", visitor.device), name: "guest".into(), role }
        }
    }
}

/// The members of a machine's reply that are read here.
#[derive(Deserialize)]
struct MachineReply {
    ok: Option<Box<RawValue>>,
    error: Option<ReplyError>,
}

/// Whether the machine carried out the request.
pub(super) fn is_done(body: &RawValue) -> bool {
    serde_json::from_str::<MachineReply>(body.get())
        .is_ok_and(|read| read.ok.is_some() && read.error.is_none())
}

/// Sends a machine's answer to the browser, with the id of this request whatever id the answer has.
pub(super) async fn forward_reply(
    outgoing: &mpsc::Sender<OutgoingFrame>,
    re: u64,
    answer: Result<Box<RawValue>, ReplyError>,
) -> Result<(), BrowserGone> {
    #[derive(Serialize)]
    struct ForwardedReply<'a> {
        re: u64,
        ok: &'a RawValue,
    }
    let body = match answer {
        Ok(body) => body,
        Err(wrong) => return send(outgoing, &reply(re, Err(wrong))).await,
    };
    if let Some(sealed) = sealed(body.get()) {
        return send(outgoing, &HubNotification::SealedReply { re, sealed }).await;
    }
    match serde_json::from_str::<MachineReply>(body.get()) {
        Ok(MachineReply { ok: Some(ok), error: None }) if ok.get().starts_with('{') => {
            send(outgoing, &ForwardedReply { re, ok: &ok }).await
        }
        Ok(MachineReply { error: Some(wrong), .. }) => send(outgoing, &reply(re, Err(wrong))).await,
        Ok(_) | Err(_) => {
            let message = "could not read the machine's answer; it may run a newer ropewalk: update this hub";
            send(outgoing, &reply(re, Err(wrong("failed", message)))).await
        }
    }
}

/// The session that a request is about, if it is about one.
pub(super) fn session_of(request: &Request) -> Option<&str> {
    match request {
        Request::Watch { session, .. }
        | Request::Unwatch { session }
        | Request::EarlierRows { session, .. }
        | Request::FullRow { session, .. }
        | Request::Prompt { session, .. }
        | Request::Cancel { session, .. }
        | Request::Answer { session, .. }
        | Request::Set { session, .. }
        | Request::Rename { session, .. }
        | Request::Delete { session }
        | Request::Changes { session }
        | Request::Keep { session, .. }
        | Request::Revert { session, .. }
        | Request::FindFiles { session, .. } => Some(session),
        Request::Sessions { .. }
        | Request::Offer { .. }
        | Request::Open { .. }
        | Request::Rules
        | Request::Forget { .. }
        | Request::Devices
        | Request::Invite { .. }
        | Request::Admit { .. }
        | Request::Revoke { .. }
        | Request::Push { .. }
        | Request::Mute { .. }
        | Request::TestPush
        | Request::Presence { .. } => None,
    }
}

/// The name of a request in the audit.
pub(super) fn audit_word(request: &Request) -> &'static str {
    match request {
        Request::EarlierRows { .. } => "earlier",
        Request::FullRow { .. } => "whole",
        Request::Offer { .. } => "offer",
        Request::Open { .. } => "open",
        Request::Prompt { .. } => "prompt",
        Request::Cancel { .. } => "cancel",
        Request::Answer { .. } => "answer",
        Request::Set { .. } => "set",
        Request::Rename { .. } => "rename",
        Request::Delete { .. } => "delete",
        Request::Changes { .. } => "changes",
        Request::Keep { .. } => "keep",
        Request::Revert { .. } => "revert",
        Request::FindFiles { .. } => "find",
        Request::Rules => "rules",
        Request::Forget { .. } => "forget",
        _ => "other",
    }
}
