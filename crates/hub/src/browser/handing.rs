//! How a request is handed to a machine, and its answer to the browser.

use access::roles;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use wire::native::hub::HubTold;
use wire::native::{Request, Role, Wrong};
use wire::tunnel::Operator;

use super::{Hung, reply, send};
use crate::feed::sealed;
use crate::guest::{Guest, Who};
use crate::hub::wrong;
use crate::socket::Go;

/// Who may not is told so here, also while the machine is away. The machine looks for itself. A link to a session lends
/// it, and what is deleted cannot be given back: that is for its owner, whatever a driver may do on the machine itself.
pub(super) fn check(role: Role, request: &Request) -> Result<(), Wrong> {
    let needed = match request {
        Request::Delete { .. } => Role::Owner,
        _ => roles::needed(request),
    };
    if role >= needed {
        return Ok(());
    }
    Err(wrong("forbidden", "this link does not let you do this; ask whoever gave it to you"))
}

pub(super) fn operator(guest: &Guest, role: Role) -> Operator {
    match &guest.who {
        Who::Person { id, name, .. } => Operator { id: id.0.to_string(), name: name.to_string(), role },
        Who::Bearer { share, .. } => {
            Operator { id: format!("share.{share}.{}", guest.device), name: "guest".into(), role }
        }
    }
}

/// What can be read of a machine's answer.
#[derive(Deserialize)]
struct Read {
    ok: Option<Box<RawValue>>,
    error: Option<Wrong>,
}

/// Whether the machine did what it was asked for.
pub(super) fn is_done(body: &RawValue) -> bool {
    serde_json::from_str::<Read>(body.get()).is_ok_and(|read| read.ok.is_some() && read.error.is_none())
}

/// A machine's answer, as the browser gets it: whatever else it says, it answers this request and no other.
pub(super) async fn pass_on(
    go: &mpsc::Sender<Go>,
    re: u64,
    answer: Result<Box<RawValue>, Wrong>,
) -> Result<(), Hung> {
    #[derive(Serialize)]
    struct Passed<'a> {
        re: u64,
        ok: &'a RawValue,
    }
    let body = match answer {
        Ok(body) => body,
        Err(wrong) => return send(go, &reply(re, Err(wrong))).await,
    };
    if let Some(sealed) = sealed(body.get()) {
        return send(go, &HubTold::SealedReply { re, sealed }).await;
    }
    match serde_json::from_str::<Read>(body.get()) {
        Ok(Read { ok: Some(ok), error: None }) if ok.get().starts_with('{') => {
            send(go, &Passed { re, ok: &ok }).await
        }
        Ok(Read { error: Some(wrong), .. }) => send(go, &reply(re, Err(wrong))).await,
        Ok(_) | Err(_) => {
            let message = "the machine's answer cannot be read; is it a newer ropewalk?";
            send(go, &reply(re, Err(wrong("failed", message)))).await
        }
    }
}

/// The session that a request is about, if it is about one.
pub(super) fn session_of(request: &Request) -> Option<&str> {
    match request {
        Request::Watch { session, .. }
        | Request::Unwatch { session }
        | Request::Earlier { session, .. }
        | Request::Whole { session, .. }
        | Request::Prompt { session, .. }
        | Request::Cancel { session, .. }
        | Request::Answer { session, .. }
        | Request::Set { session, .. }
        | Request::Rename { session, .. }
        | Request::Delete { session }
        | Request::Changes { session }
        | Request::Keep { session, .. }
        | Request::Revert { session, .. }
        | Request::Find { session, .. } => Some(session),
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
        | Request::TryPush
        | Request::Looking { .. } => None,
    }
}

/// What the record calls a request.
pub(super) fn word_of(request: &Request) -> &'static str {
    match request {
        Request::Earlier { .. } => "earlier",
        Request::Whole { .. } => "whole",
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
        Request::Find { .. } => "find",
        Request::Rules => "rules",
        Request::Forget { .. } => "forget",
        _ => "other",
    }
}
