//! What a child may reach: the one place where a policy is turned into restrictions.
//!
//! **Invariant:** a policy is enforced whole or the command is refused. That is why only what can be
//! enforced has a variant here.

use crate::run::StartError;

/// What a child may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Everything that the user may reach. Only a decision to run the command stands before it.
    Unconfined,
}

/// Puts the policy's restrictions on a command that is about to start.
pub(crate) fn confine(policy: &Policy, _command: &mut std::process::Command) -> Result<(), StartError> {
    match policy {
        Policy::Unconfined => Ok(()),
    }
}
