//! Which acts (`engine::Act`, the table of who may do what) each request of our own clients needs.

use engine::{APPROVAL, Act, CallerKind, full_id};
use wire::native::{Request, Role};

/// The least role that may ask for this.
pub fn needed(request: &Request) -> Role {
    let may = |kind: CallerKind| acts(request).into_iter().all(|act| kind.may(act).is_ok());
    let roles = [
        (CallerKind::Viewer, Role::Viewer),
        (CallerKind::Approver, Role::Approver),
        (CallerKind::Driver, Role::Driver),
    ];
    roles.into_iter().find(|(kind, _)| may(*kind)).map_or(Role::Owner, |(_, role)| role)
}

/// What the caller must be allowed, all of it.
pub fn acts(request: &Request) -> Vec<Act> {
    let act = match request {
        Request::Sessions { .. } => Act::List,
        Request::Watch { .. }
        | Request::Unwatch { .. }
        | Request::EarlierRows { .. }
        | Request::FullRow { .. } => Act::Read,
        Request::Offer { .. } => Act::ReadOffer,
        Request::Changes { .. } => Act::ReviewChanges,
        Request::FindFiles { .. } => Act::FindFiles,
        Request::Rules => Act::ReadRules,
        Request::Push { .. } | Request::Mute { .. } | Request::TestPush | Request::Presence { .. } => {
            Act::OwnDevice
        }
        Request::Answer { .. } => Act::Allow,
        Request::Open { settings, .. } => {
            let sets = settings.keys().map(|setting| change(setting));
            return std::iter::once(Act::Create).chain(sets).collect();
        }
        Request::Prompt { .. } => Act::Prompt,
        Request::Cancel { .. } => Act::Cancel,
        Request::Set { setting, .. } => change(setting),
        Request::Rename { .. } => Act::Rename,
        Request::Delete { .. } => Act::Delete,
        Request::Keep { .. } | Request::Revert { .. } => Act::ChangeFiles,
        Request::Forget { .. } => Act::ChangeRules,
        Request::Devices | Request::Admit { role: None, .. } => Act::ListDevices,
        Request::Invite { .. } | Request::Admit { role: Some(_), .. } => Act::AdmitDevice,
        Request::Revoke { .. } => Act::RevokeDevice,
    };
    vec![act]
}

/// The approval has another name besides.
fn change(setting: &str) -> Act {
    if *full_id(setting.into()) == *APPROVAL { Act::SetApproval } else { Act::ChangeSetting }
}
