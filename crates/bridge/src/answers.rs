//! What people elsewhere may do here, whatever a receiver says they may.

use engine::CallerKind;
use wire::native::Role;

/// Who answers what the agent asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answers {
    /// Whoever is first, here or elsewhere; and whoever may, drives.
    #[default]
    Anyone,
    /// People elsewhere look and answer; they do not drive.
    Approver,
    /// What is asked is shown elsewhere, and answered here alone.
    LocalOnly,
}

impl Answers {
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

    /// What somebody elsewhere may do here, whatever a receiver says they may. What belongs to the machine
    /// itself, its devices and rules, is nobody's who is elsewhere.
    pub(super) fn cap(self, role: Role) -> Role {
        role.min(match self {
            Self::Anyone | Self::LocalOnly => Role::Driver,
            Self::Approver => Role::Approver,
        })
    }

    /// Who is behind a receiver that is shown one session.
    pub(super) fn kind(self) -> CallerKind {
        match self {
            Self::Anyone | Self::LocalOnly => CallerKind::BridgeDriver,
            Self::Approver => CallerKind::BridgeApprover,
        }
    }

    /// What the agent asks is answered at its own machine alone.
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
        let caps = |answers: Answers| [Viewer, Approver, Driver, Owner].map(|role| answers.cap(role));
        assert_eq!(caps(Answers::Anyone), [Viewer, Approver, Driver, Driver]);
        assert_eq!(caps(Answers::LocalOnly), [Viewer, Approver, Driver, Driver]);
        assert_eq!(caps(Answers::Approver), [Viewer, Approver, Approver, Approver]);
    }
}
