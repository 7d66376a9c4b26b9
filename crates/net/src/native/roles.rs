//! What each request takes: the only place that says so.

use wire::native::{Request, Role, Wrong};

use super::wrong::wrong;
use crate::hall::Visitor;

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
    let own = |device: &String| visitor.device.as_deref() == Some(device);
    if let Request::Revoke { device } = request
        && own(device)
    {
        // Everybody may leave.
        return Ok(());
    }
    let needed = needed(request);
    if visitor.role >= needed {
        return Ok(());
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
