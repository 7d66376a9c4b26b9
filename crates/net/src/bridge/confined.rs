//! What a receiver that speaks ferret may ask for: things about one session, and of these only what its
//! people may do.
//!
//! Whatever would reach past the session is refused, not looked at: other sessions and folders, programs
//! that run outside the sandbox, files of this machine.

use engine::{APPROVAL, Content, SessionId, full_id};
use wire::native::Role;
use wire::{Call, Fault};

use crate::remote::{self, LOCAL_ANSWERS};

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
}

#[derive(Debug)]
pub(crate) struct Confined {
    pub session: SessionId,
    pub answers: Answers,
}

impl Confined {
    /// The call as it may be carried out.
    pub fn check(&self, call: Call) -> Result<Call, Fault> {
        let answers_here = self.answers == Answers::LocalOnly;
        match call {
            // Where a session works is its machine's business.
            Call::Load { id, .. } => Ok(Call::Load { id: self.own(id)?, place: None }),
            Call::Prompt { id, content } => {
                self.drives()?;
                prompt(&content, answers_here)?;
                Ok(Call::Prompt { id: self.own(id)?, content })
            }
            Call::Message { id, content } => {
                self.drives()?;
                prompt(&content, answers_here)?;
                Ok(Call::Message { id: self.own(id)?, content })
            }
            Call::Change { id, setting, value, answer } => {
                self.drives()?;
                let setting = full_id(setting);
                if answers_here && *setting == *APPROVAL {
                    return Err(refused(LOCAL_ANSWERS));
                }
                Ok(Call::Change { id: self.own(id)?, setting, value, answer })
            }
            Call::Answer { .. } if answers_here => Err(refused(LOCAL_ANSWERS)),
            Call::Answer { id, ask, answer } => Ok(Call::Answer { id: self.own(id)?, ask, answer }),
            Call::Cancel { id } => {
                self.drives()?;
                Ok(Call::Cancel { id: self.own(id)? })
            }
            Call::CancelRequest { request } => {
                self.drives()?;
                Ok(Call::CancelRequest { request })
            }
            Call::Sandbox { id, wanted } => Ok(Call::Sandbox { id: self.own(id)?, wanted }),
            Call::Bridge { id } => Ok(Call::Bridge { id: self.own(id)? }),
            Call::Get { id, range } => Ok(Call::Get { id: self.own(id)?, range }),
            Call::Export { id, range } => Ok(Call::Export { id: self.own(id)?, range }),
            Call::Tools { id } => Ok(Call::Tools { id: self.own(id)? }),
            Call::Initialize(_) | Call::Authenticate { .. } | Call::Logout | Call::Ignore => Ok(call),
            // Answered with this session alone.
            Call::List { .. } => Ok(call),
            Call::New(_) | Call::Fork { .. } => Err(refused(
                "a bridge carries one session and begins no other; start another with `ropewalk bridge` at the agent's machine",
            )),
            Call::Replay { .. }
            | Call::Resume { .. }
            | Call::Close { .. }
            | Call::Delete { .. }
            | Call::Task { .. }
            | Call::Stop { .. }
            | Call::ListAll
            | Call::Import { .. }
            | Call::Remove { .. }
            | Call::Servers { .. }
            | Call::AddServer { .. }
            | Call::RemoveServer { .. }
            | Call::Extension { .. }
            | Call::Move { .. } => Err(refused(
                "a bridge carries one session, and this reaches past it; do it at the agent's own machine",
            )),
        }
    }

    /// Other sessions are not here, whether they exist or not.
    fn own(&self, id: SessionId) -> Result<SessionId, Fault> {
        if id == self.session { Ok(id) } else { Err(Fault::NoSuchSession { id: id.to_string() }) }
    }

    fn drives(&self) -> Result<(), Fault> {
        if self.answers.cap(Role::Driver) >= Role::Driver {
            return Ok(());
        }
        Err(refused("people elsewhere look and answer here, and do not drive (--answers approver there)"))
    }
}

fn prompt(content: &[Content], answers_here: bool) -> Result<(), Fault> {
    match content.first() {
        Some(Content::Text(text)) => remote::prompt(text, answers_here).map_err(refused),
        _ => Ok(()),
    }
}

fn refused(why: &str) -> Fault {
    Fault::InvalidRequest(why.to_owned())
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
