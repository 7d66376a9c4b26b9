//! What each request takes: the only place that says so.

use engine::{APPROVAL, Act, full_id, may};
use wire::native::{Request, Role, Wrong};

use super::wrong::wrong;
use crate::hall::Visitor;
use crate::remote::{self, LOCAL_ANSWERS};

/// The least role that may ask for this.
pub fn needed(request: &Request) -> Role {
    match request {
        Request::Sessions { .. }
        | Request::Watch { .. }
        | Request::Unwatch { .. }
        | Request::Earlier { .. }
        | Request::Whole { .. }
        | Request::Offer { .. }
        | Request::Changes { .. }
        | Request::Find { .. }
        | Request::Rules
        | Request::Push { .. }
        | Request::Mute { .. }
        | Request::TryPush
        | Request::Looking { .. } => Role::Viewer,
        Request::Answer { .. } => Role::Approver,
        Request::Open { .. }
        | Request::Prompt { .. }
        | Request::Cancel { .. }
        | Request::Set { .. }
        | Request::Rename { .. }
        | Request::Delete { .. }
        | Request::Keep { .. }
        | Request::Revert { .. } => Role::Driver,
        Request::Forget { .. }
        | Request::Devices
        | Request::Invite { .. }
        | Request::Admit { .. }
        | Request::Revoke { .. } => Role::Owner,
    }
}

pub(super) fn check(visitor: &Visitor, request: &Request) -> Result<(), Wrong> {
    if let Some(remote) = &visitor.remote {
        rails(request, remote.answers_here).map_err(|why| wrong("forbidden", why))?;
    }
    let own = |device: &String| visitor.device.as_deref() == Some(device);
    if let Request::Revoke { device } = request
        && own(device)
    {
        // Everybody may leave.
        return Ok(());
    }
    let needed = needed(request);
    if visitor.role >= needed {
        return owners(request).map_or(Ok(()), |act| {
            may(visitor.standing, act).map_err(|why| wrong("forbidden", why.to_string()))
        });
    }
    let word = |role: Role| match role {
        Role::Viewer => "a viewer",
        Role::Approver => "an approver",
        Role::Driver => "a driver",
        Role::Owner => "the owner",
    };
    let message = format!(
        "this takes {}, and this device is {}; the owner can give it another role",
        word(needed),
        word(visitor.role)
    );
    Err(wrong("forbidden", message))
}

/// What outlives a session is its owner's at the machine, whatever the role is.
fn owners(request: &Request) -> Option<Act> {
    match request {
        Request::Forget { .. } => Some(Act::ChangeRules),
        Request::Invite { .. } | Request::Admit { role: Some(_), .. } => Some(Act::AdmitDevice),
        _ => None,
    }
}

/// What somebody at another machine may not do here, whatever their role is.
fn rails(request: &Request, answers_here: bool) -> Result<(), &'static str> {
    match request {
        Request::Answer { .. } if answers_here => Err(LOCAL_ANSWERS),
        // Which has another name besides.
        Request::Set { setting, .. } if answers_here && *full_id(setting.as_str().into()) == *APPROVAL => {
            Err(LOCAL_ANSWERS)
        }
        Request::Open { settings, .. } if answers_here && settings.contains_key(APPROVAL) => {
            Err(LOCAL_ANSWERS)
        }
        Request::Prompt { text, .. } => remote::prompt(text, answers_here),
        _ => Ok(()),
    }
}
