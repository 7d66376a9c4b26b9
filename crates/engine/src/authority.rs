//! Who may do what: the one table of callers and acts that reach past a session or out of the fence.
//!
//! Where a connection is made it is decided who sends on it, from who they are alone: the owner at the
//! machine (a terminal, a client on standard input, the server's own token or an owner's device over
//! loopback), or anybody else (a named client, a session's token, a device of another role, an owner's
//! phone, whoever comes over a bridge). That standing travels with every input and with the turn that a
//! prompt starts. Everything that decides by it asks [`may`], so the table can be read, tested and moved as
//! one.
//!
//! **Invariant:** no preset, no pattern rule and no stored answer raises anybody's standing.

use crate::servers::SERVER_CONSENT;

/// Who somebody is to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    OwnerAtMachine,
    /// Known, and not the owner, or not at the machine.
    Other,
    /// A log that was written before standings were kept does not say. It counts as [`Self::Other`], and
    /// nothing is made of its answers.
    #[default]
    Unknown,
}

impl Standing {
    pub const ALL: [Self; 3] = [Self::OwnerAtMachine, Self::Other, Self::Unknown];

    /// The owner at the machine where `owner` holds, else somebody else.
    pub fn owner_if(owner: bool) -> Self {
        if owner { Self::OwnerAtMachine } else { Self::Other }
    }

    pub fn is_owner(self) -> bool {
        self == Self::OwnerAtMachine
    }
}

/// How the digest of a command begins that would run in an editor's terminal, outside the fence.
pub const EDITOR_TERMINAL: &str = "editor-terminal:";

/// What takes the owner's consent to that very thing, by a digest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentKind {
    /// A program that a project names starts.
    ProjectProgram,
    /// A command runs outside the fence although there is one.
    LeaveFence,
}

impl ConsentKind {
    /// What a wish with this tool and digest takes, if it takes consent at all.
    pub fn of(tool: &str, digest: Option<&str>) -> Option<Self> {
        match digest {
            Some(digest) if digest.starts_with(EDITOR_TERMINAL) => Some(Self::LeaveFence),
            Some(_) => Some(Self::ProjectProgram),
            None => (tool == SERVER_CONSENT).then_some(Self::ProjectProgram),
        }
    }

    /// What to do where nobody at the machine can be asked. `subject` is what the wish is about.
    pub(crate) fn unattended(self, subject: &str) -> String {
        match self {
            Self::ProjectProgram => {
                let name = subject.split_once(": ").map_or("NAME", |(name, _)| name);
                let name = quoted(name);
                format!("run `ropewalk mcp trust {name}` in its folder at this machine to allow it")
            }
            Self::LeaveFence => LEAVE_FENCE_UNATTENDED.to_owned(),
        }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@' | '+');
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    let dashes = if word.starts_with('-') { "-- " } else { "" };
    format!("{dashes}'{}'", word.replace('\'', r"'\''"))
}

/// Something that somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Let a program start that a project names, or a command run outside the fence.
    Consent(ConsentKind),
    /// Write a rule or take one out; answer always or never, so that it holds in other sessions.
    ChangeRules,
    /// Give a session a tool server, which runs outside the fence.
    NameServer,
    /// Let another device in, or give one a role.
    AdmitDevice,
    /// Read the record of who did what on this machine.
    ReadAudit,
    /// Choose the approval preset, for the session.
    SetApproval,
    /// Allow what the agent asks, once or for the session.
    Allow,
    /// Refuse what the agent asks.
    Deny,
}

impl Act {
    pub const ALL: [Self; 9] = [
        Self::Consent(ConsentKind::ProjectProgram),
        Self::Consent(ConsentKind::LeaveFence),
        Self::ChangeRules,
        Self::NameServer,
        Self::AdmitDevice,
        Self::ReadAudit,
        Self::SetApproval,
        Self::Allow,
        Self::Deny,
    ];
}

/// What this takes, said to whoever may not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub &'static str);

/// Whether somebody of this standing may do this. A role may forbid more; nothing else allows more.
pub fn may(standing: Standing, act: Act) -> Result<(), Forbidden> {
    match (act, standing) {
        (_, Standing::OwnerAtMachine) => Ok(()),
        (Act::SetApproval | Act::Allow | Act::Deny, Standing::Other | Standing::Unknown) => Ok(()),
        (Act::Consent(ConsentKind::ProjectProgram), Standing::Other | Standing::Unknown) => {
            Err(Forbidden(PROJECT_PROGRAM))
        }
        (Act::Consent(ConsentKind::LeaveFence), Standing::Other | Standing::Unknown) => {
            Err(Forbidden(LEAVE_FENCE))
        }
        (Act::ChangeRules, Standing::Other | Standing::Unknown) => Err(Forbidden(CHANGE_RULES)),
        (Act::NameServer, Standing::Other | Standing::Unknown) => Err(Forbidden(NAME_SERVER)),
        (Act::AdmitDevice, Standing::Other | Standing::Unknown) => Err(Forbidden(ADMIT_DEVICE)),
        (Act::ReadAudit, Standing::Other | Standing::Unknown) => Err(Forbidden(READ_AUDIT)),
    }
}

const PROJECT_PROGRAM: &str = "a program that a project names is allowed by the owner at the machine alone: answer in a terminal or a browser there, or run `ropewalk mcp trust NAME` there";
const LEAVE_FENCE: &str = "a command that runs in the editor's terminal, outside the sandbox, is allowed by the owner at the machine alone: answer in a terminal or a browser there, or take `terminal = \"editor\"` out of the settings there, so that it runs inside the sandbox";
const LEAVE_FENCE_UNATTENDED: &str = "it would run in the editor's terminal, outside the sandbox, and nobody at this machine can be asked; take `terminal = \"editor\"` out of the settings of this machine, so that it runs inside the sandbox";
const CHANGE_RULES: &str = "the rules of a machine are changed by its owner at the machine itself: ropewalk permissions, or /permissions there";
const NAME_SERVER: &str = "MCP servers run outside the sandbox, so they are added by the owner at the machine alone; leave mcpServers empty, or run `ropewalk mcp add` there";
const ADMIT_DEVICE: &str = "devices are let in by the owner at the machine itself: in a browser there, or with `ropewalk pair` there";
const READ_AUDIT: &str =
    "the audit is read by the owner at the machine itself: /audit or `ropewalk audit` there";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_allows_a_program_is_told_as_it_is_typed() {
        for (subject, told) in [
            ("e: npx a", "`ropewalk mcp trust e`"),
            ("my server: npx a: b", "`ropewalk mcp trust 'my server'`"),
            ("it's; rm: npx a", r"`ropewalk mcp trust 'it'\''s; rm'`"),
            ("-C: npx a", "`ropewalk mcp trust -- '-C'`"),
        ] {
            let text = ConsentKind::ProjectProgram.unattended(subject);
            assert!(text.contains(told), "{subject}: {text}");
        }
    }

    #[test]
    fn who_may_do_what() {
        let allowed = |standing: Standing| Act::ALL.map(|act| may(standing, act).is_ok());
        assert_eq!(allowed(Standing::OwnerAtMachine), [true; 9]);
        for other in [Standing::Other, Standing::Unknown] {
            assert_eq!(
                allowed(other),
                [false, false, false, false, false, false, true, true, true],
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_digest_says_what_is_consented_to() {
        let kind = ConsentKind::of;
        assert_eq!(kind("shell", Some("editor-terminal:00")), Some(ConsentKind::LeaveFence));
        assert_eq!(kind(SERVER_CONSENT, Some("sha256:00")), Some(ConsentKind::ProjectProgram));
        // A log that was written before there were digests has none.
        assert_eq!(kind(SERVER_CONSENT, None), Some(ConsentKind::ProjectProgram));
        assert_eq!(kind("shell", None), None);
    }

    #[test]
    fn whoever_may_not_is_told_where_it_is_done() {
        for act in Act::ALL {
            if let Err(Forbidden(text)) = may(Standing::Other, act) {
                assert!(text.contains("at the machine") && text.contains("there"), "{act:?}: {text}");
            }
        }
    }
}
