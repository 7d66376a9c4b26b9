//! What people elsewhere may do here, whatever a receiver says they may.

use engine::CallerKind;
use wire::native::Role;

/// Who may answer permission requests, and what people elsewhere may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RemoteAnswers {
    /// Anybody, here or elsewhere, whoever is first; people elsewhere may drive, as their roles allow.
    #[default]
    Anyone,
    /// People elsewhere watch and answer; they do not drive.
    Approver,
    /// Permission requests are shown elsewhere, and answered here alone.
    LocalOnly,
}

impl RemoteAnswers {
    pub const ALL: [Self; 3] = [Self::Anyone, Self::Approver, Self::LocalOnly];

    pub fn name(self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Approver => "approver",
            Self::LocalOnly => "local-only",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answers| answers.name() == text)
    }

    /// Caps the role of somebody elsewhere, whatever role the receiver gives them. The machine's own
    /// devices and rules are never managed from elsewhere.
    pub(super) fn cap(self, role: Role) -> Role {
        role.min(match self {
            Self::Anyone | Self::LocalOnly => Role::Driver,
            Self::Approver => Role::Approver,
        })
    }

    /// The kind of caller that a receiver of one session is.
    pub(super) fn kind(self) -> CallerKind {
        match self {
            Self::Anyone | Self::LocalOnly => CallerKind::BridgeDriver,
            Self::Approver => CallerKind::BridgeApprover,
        }
    }

    /// Whether permission requests are answered at the agent's own machine alone.
    pub(super) fn are_local(self) -> bool {
        self == Self::LocalOnly
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_elsewhere_becomes_an_owner_and_an_approver_does_not_drive() {
        use Role::{Approver, Driver, Owner, Viewer};
        let caps = |answers: RemoteAnswers| [Viewer, Approver, Driver, Owner].map(|role| answers.cap(role));
        assert_eq!(caps(RemoteAnswers::Anyone), [Viewer, Approver, Driver, Driver]);
        assert_eq!(caps(RemoteAnswers::LocalOnly), [Viewer, Approver, Driver, Driver]);
        assert_eq!(caps(RemoteAnswers::Approver), [Viewer, Approver, Approver, Approver]);
    }
}
