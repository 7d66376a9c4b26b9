//! Who may do what: the one table of callers and acts, for every door and for everything inside a turn.
//!
//! The kind of a caller ([`CallerKind`]) is decided when the connection is made, only from who it is. Whether that is
//! the owner at the machine ([`Standing`]) travels with every input and with the turn that a prompt starts. Every
//! decision asks [`CallerKind::may`] or, inside a turn, [`may`]; both read the same table.
//!
//! **Invariant:** no preset, no pattern rule and no stored answer raises anybody's standing.

use std::borrow::Cow;

use crate::tool_servers::SERVER_CONSENT;

/// Who sends an input, as far as this machine's authority is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    OwnerAtMachine,
    /// Known, and not the owner, or not at the machine.
    Other,
    /// Also the value for logs that were written before standings were recorded; the answers in them become
    /// no rules.
    #[default]
    Unknown,
}

impl Standing {
    pub const ALL: [Self; 3] = [Self::OwnerAtMachine, Self::Other, Self::Unknown];

    /// `OwnerAtMachine` if `owner` holds, else `Other`.
    pub fn owner_if(owner: bool) -> Self {
        if owner { Self::OwnerAtMachine } else { Self::Other }
    }

    pub fn is_owner(self) -> bool {
        self == Self::OwnerAtMachine
    }
}

/// How the digest of a command begins that would run in an editor's terminal, outside the fence.
pub const EDITOR_TERMINAL: &str = "editor-terminal:";

/// Things that take the owner's consent to exactly one program or command, identified by a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentKind {
    /// A program that a project names starts.
    ProjectProgram,
    /// A command runs outside the fence although there is one.
    LeaveFence,
}

impl ConsentKind {
    /// The kind of consent that an action with this tool and digest takes, if any.
    pub fn of(tool: &str, digest: Option<&str>) -> Option<Self> {
        match digest {
            Some(digest) if digest.starts_with(EDITOR_TERMINAL) => Some(Self::LeaveFence),
            Some(_) => Some(Self::ProjectProgram),
            None => (tool == SERVER_CONSENT).then_some(Self::ProjectProgram),
        }
    }

    /// What to do where nobody at the machine can be asked. `subject` is the command or program.
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

/// Something that a caller wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// List sessions.
    List,
    /// Read a session: its row, its events, a transcript, an export; follow it.
    Read,
    /// Ask what the agent offers in a folder, before there is a session.
    ReadOffer,
    /// See what the agent changed, by file and hunk.
    ReviewChanges,
    /// Look for files by name below a session's folder.
    FindFiles,
    /// Read the machine's rules.
    ReadRules,
    /// Begin a session.
    Create,
    /// Begin a session that is a copy of another.
    Fork,
    /// Begin a session with a history from elsewhere.
    Import,
    /// Load or resume a session: it is brought back to memory and shown.
    Open,
    Prompt,
    Cancel,
    /// Change a setting of a session other than its approval.
    ChangeSetting,
    Rename,
    /// Let a session work in another folder.
    Move,
    /// Take a session out of memory.
    Close,
    Delete,
    /// Keep what the agent changed, or take it back.
    ChangeFiles,
    /// Ask the agent something in words of its own.
    Extension,
    /// List the tool servers of a session, or take one out.
    ManageServers,
    /// Make a new token for a session; the old one stops working.
    RotateToken,
    /// List devices.
    ListDevices,
    /// Sign a device out.
    RevokeDevice,
    /// Manage how the caller's own device is notified.
    OwnDevice,
    /// Let another device in, or give one a role.
    AdmitDevice,
    /// Write a rule or take one out; answer always or never, so that it holds in other sessions.
    ChangeRules,
    /// Give a session a tool server, which runs outside the fence.
    NameServer,
    /// Read the record of who did what on this machine.
    ReadAudit,
    /// Let a program start that a project names, or a command run outside the fence.
    Consent(ConsentKind),
    /// Choose the approval preset, for the session.
    SetApproval,
    /// Allow what the agent asks, once or for the session.
    Allow,
    /// Refuse what the agent asks.
    Deny,
}

/// The kind of a caller, which decides what it may do. Known when the connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// The owner at the machine: a terminal, a client on standard input, the server's own token or an owner's device
    /// over loopback, a program that embeds the server.
    Owner,
    /// The owner elsewhere: the server's own token or an owner's device over a network.
    OwnerElsewhere,
    /// A client with its own token, limited to its own sessions and to the folders that are open to it.
    NamedClient,
    /// A client with the token of one session.
    SessionToken,
    /// A device, or an operator at a hub, with the role that it was given.
    Driver,
    Approver,
    Viewer,
    /// The people behind a receiver that a bridge shows one session to, where they may drive it.
    BridgeDriver,
    /// The same where they look and answer only.
    BridgeApprover,
}

/// How far a caller may go with an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActReach {
    /// Every session of the caller's principal.
    All,
    /// The one session that the caller was let into.
    One,
    No,
}

/// The table. A row is an act; its columns are the kinds of callers, in the order of [`CallerKind::ALL`].
#[rustfmt::skip]
const fn row(act: Act) -> [ActReach; 9] {
    use ActReach::{All as A, No as N, One as O};
    match act {
        //                     Owner Elsewhere Client Token Driver Approver Viewer BridgeDriver BridgeApprover
        Act::List =>            [A,    A,       A,     N,    A,     A,       A,     O,           O],
        Act::Read =>            [A,    A,       A,     O,    A,     A,       A,     O,           O],
        Act::ReadOffer =>       [A,    A,       A,     N,    A,     A,       A,     N,           N],
        Act::ReviewChanges =>   [A,    A,       A,     N,    A,     A,       A,     N,           N],
        Act::FindFiles =>       [A,    A,       A,     N,    A,     A,       A,     N,           N],
        Act::ReadRules =>       [A,    A,       N,     N,    A,     A,       A,     N,           N],
        Act::Create =>          [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::Fork =>            [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::Import =>          [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::Open =>            [A,    A,       A,     O,    A,     A,       A,     O,           O],
        Act::Prompt =>          [A,    A,       A,     O,    A,     N,       N,     O,           N],
        Act::Cancel =>          [A,    A,       A,     O,    A,     N,       N,     O,           N],
        Act::ChangeSetting =>   [A,    A,       A,     O,    A,     N,       N,     O,           N],
        Act::Rename =>          [A,    A,       A,     O,    A,     N,       N,     N,           N],
        Act::Move =>            [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::Close =>           [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::Delete =>          [A,    A,       A,     O,    A,     N,       N,     N,           N],
        Act::ChangeFiles =>     [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::Extension =>       [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::ManageServers =>   [A,    A,       A,     N,    A,     N,       N,     N,           N],
        Act::RotateToken =>     [A,    A,       A,     N,    N,     N,       N,     N,           N],
        Act::ListDevices =>     [A,    A,       A,     N,    N,     N,       N,     N,           N],
        Act::RevokeDevice =>    [A,    A,       A,     N,    N,     N,       N,     N,           N],
        Act::OwnDevice =>       [A,    A,       A,     N,    A,     A,       A,     N,           N],
        Act::SetApproval =>     [A,    A,       A,     N,    A,     N,       N,     O,           N],
        Act::Allow | Act::Deny =>
                                [A,    A,       A,     N,    A,     A,       N,     O,           O],
        // Acts that outlive a session or leave the sandbox.
        Act::AdmitDevice | Act::ChangeRules | Act::NameServer | Act::ReadAudit | Act::Consent(_) =>
                                [A,    N,       N,     N,    N,     N,       N,     N,           N],
    }
}

impl CallerKind {
    pub const ALL: [Self; 9] = [
        Self::Owner,
        Self::OwnerElsewhere,
        Self::NamedClient,
        Self::SessionToken,
        Self::Driver,
        Self::Approver,
        Self::Viewer,
        Self::BridgeDriver,
        Self::BridgeApprover,
    ];

    pub fn standing(self) -> Standing {
        Standing::owner_if(self == Self::Owner)
    }

    /// Whether this kind of caller may do this, in at least one session.
    pub fn may(self, act: Act) -> Result<(), Forbidden> {
        match self.reach(act) {
            ActReach::All | ActReach::One => Ok(()),
            ActReach::No => Err(Forbidden(self.refusal(act))),
        }
    }

    /// Whether that is for one session only.
    pub fn is_for_one_session(self, act: Act) -> bool {
        self.reach(act) == ActReach::One
    }

    fn reach(self, act: Act) -> ActReach {
        let [owner, elsewhere, client, token, driver, approver, viewer, bridge_driver, bridge_approver] =
            row(act);
        match self {
            Self::Owner => owner,
            Self::OwnerElsewhere => elsewhere,
            Self::NamedClient => client,
            Self::SessionToken => token,
            Self::Driver => driver,
            Self::Approver => approver,
            Self::Viewer => viewer,
            Self::BridgeDriver => bridge_driver,
            Self::BridgeApprover => bridge_approver,
        }
    }

    fn refusal(self, act: Act) -> Cow<'static, str> {
        match self {
            Self::Driver | Self::Approver | Self::Viewer => format!(
                "this needs {}, but this device is {}; the owner can change its role",
                least_role(act),
                self.role_name()
            )
            .into(),
            _ if let Some(why) = owner_alone(act) => why.into(),
            Self::BridgeDriver | Self::BridgeApprover if makes_session(act) => BRIDGE_BEGINS_NONE.into(),
            Self::BridgeDriver | Self::BridgeApprover if Self::BridgeDriver.reach(act) != ActReach::No => {
                BRIDGE_ONLY_ANSWERS.into()
            }
            Self::BridgeDriver | Self::BridgeApprover => BRIDGE_ONE_SESSION.into(),
            Self::SessionToken if makes_session(act) => TOKEN_MAKES_NONE.into(),
            Self::SessionToken if act == Act::RotateToken => TOKEN_ROTATES_NONE.into(),
            Self::SessionToken => TOKEN_ONE_SESSION.into(),
            Self::Owner | Self::OwnerElsewhere | Self::NamedClient => SERVER_OWNER.into(),
        }
    }

    fn role_name(self) -> &'static str {
        match self {
            Self::Viewer => "a viewer",
            Self::Approver => "an approver",
            Self::Driver => "a driver",
            Self::Owner
            | Self::OwnerElsewhere
            | Self::NamedClient
            | Self::SessionToken
            | Self::BridgeDriver
            | Self::BridgeApprover => "the owner",
        }
    }
}

fn makes_session(act: Act) -> bool {
    matches!(act, Act::Create | Act::Fork | Act::Import)
}

/// The text for a caller whose role is too low.
fn least_role(act: Act) -> &'static str {
    let roles = [CallerKind::Viewer, CallerKind::Approver, CallerKind::Driver];
    let least = roles.into_iter().find(|role| role.reach(act) != ActReach::No);
    least.unwrap_or(CallerKind::Owner).role_name()
}

/// The refusal of an act: the text says what it would take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub Cow<'static, str>);

/// The same check inside a turn, where only the standing is known. It reads the same table and covers what
/// only the owner may do. A role may forbid more; nothing else allows more.
pub fn may(standing: Standing, act: Act) -> Result<(), Forbidden> {
    match owner_alone(act) {
        Some(why) if !standing.is_owner() => Err(Forbidden(why.into())),
        Some(_) | None => Ok(()),
    }
}

/// Why only the owner at the machine may do this, for acts where that is so.
fn owner_alone(act: Act) -> Option<&'static str> {
    match act {
        Act::Consent(ConsentKind::ProjectProgram) => Some(PROJECT_PROGRAM),
        Act::Consent(ConsentKind::LeaveFence) => Some(LEAVE_FENCE),
        Act::ChangeRules => Some(CHANGE_RULES),
        Act::NameServer => Some(NAME_SERVER),
        Act::AdmitDevice => Some(ADMIT_DEVICE),
        Act::ReadAudit => Some(READ_AUDIT),
        Act::List
        | Act::Read
        | Act::ReadOffer
        | Act::ReviewChanges
        | Act::FindFiles
        | Act::ReadRules
        | Act::Create
        | Act::Fork
        | Act::Import
        | Act::Open
        | Act::Prompt
        | Act::Cancel
        | Act::ChangeSetting
        | Act::Rename
        | Act::Move
        | Act::Close
        | Act::Delete
        | Act::ChangeFiles
        | Act::Extension
        | Act::ManageServers
        | Act::RotateToken
        | Act::ListDevices
        | Act::RevokeDevice
        | Act::OwnDevice
        | Act::SetApproval
        | Act::Allow
        | Act::Deny => None,
    }
}

impl Act {
    pub const ALL: [Self; 33] = [
        Self::List,
        Self::Read,
        Self::ReadOffer,
        Self::ReviewChanges,
        Self::FindFiles,
        Self::ReadRules,
        Self::Create,
        Self::Fork,
        Self::Import,
        Self::Open,
        Self::Prompt,
        Self::Cancel,
        Self::ChangeSetting,
        Self::Rename,
        Self::Move,
        Self::Close,
        Self::Delete,
        Self::ChangeFiles,
        Self::Extension,
        Self::ManageServers,
        Self::RotateToken,
        Self::ListDevices,
        Self::RevokeDevice,
        Self::OwnDevice,
        Self::AdmitDevice,
        Self::ChangeRules,
        Self::NameServer,
        Self::ReadAudit,
        Self::Consent(ConsentKind::ProjectProgram),
        Self::Consent(ConsentKind::LeaveFence),
        Self::SetApproval,
        Self::Allow,
        Self::Deny,
    ];
}

const BRIDGE_BEGINS_NONE: &str = "a bridge gives access to one session and cannot start another; to share one more, run `ropewalk bridge` on the agent's machine";
const BRIDGE_ONE_SESSION: &str =
    "a bridge gives access to one session only; do this on the agent's own machine";
const BRIDGE_ONLY_ANSWERS: &str = "remote people can watch and answer permission requests, but not steer the session (its machine runs with --answers approver)";
const TOKEN_ONE_SESSION: &str =
    "a session token gives access to that session only; use the token of a client or of the server";
const TOKEN_MAKES_NONE: &str = "a session token gives access to that session only and cannot create another";
/// A token that has got into the wrong hands must not be able to make itself a successor.
const TOKEN_ROTATES_NONE: &str = "only the server's own token can rotate a session token";
const SERVER_OWNER: &str = "only the server's owner can see or change its rules";
const PROJECT_PROGRAM: &str = "only the owner at the machine can allow a program that a project configures: answer in a terminal or browser there, or run `ropewalk mcp trust NAME` there";
const LEAVE_FENCE: &str = "only the owner at the machine can allow a command in the editor's terminal, outside the sandbox: answer in a terminal or browser there, or remove `terminal = \"editor\"` from the settings there to run it inside the sandbox";
const LEAVE_FENCE_UNATTENDED: &str = "it would run in the editor's terminal, outside the sandbox, and nobody at this machine can be asked; remove `terminal = \"editor\"` from this machine's settings to run it inside the sandbox";
const CHANGE_RULES: &str =
    "only the owner at the machine can change its rules: ropewalk permissions, or /permissions there";
const NAME_SERVER: &str = "MCP servers run outside the sandbox, so only the owner at the machine can add them; leave mcpServers empty, or run `ropewalk mcp add` there";
const ADMIT_DEVICE: &str =
    "only the owner at the machine can pair devices: in a browser there, or with `ropewalk pair`";
const READ_AUDIT: &str =
    "only the owner at the machine can read the audit log: /audit or `ropewalk audit` there";

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
    fn what_the_owner_alone_does_is_the_same_inside_a_turn() {
        for act in Act::ALL {
            let others = CallerKind::ALL.into_iter().filter(|kind| *kind != CallerKind::Owner);
            let nobody_else = others.into_iter().all(|kind| kind.may(act).is_err());
            assert_eq!(owner_alone(act).is_some(), nobody_else, "{act:?}");
            assert_eq!(CallerKind::Owner.may(act), Ok(()), "{act:?}");
            assert_eq!(may(Standing::OwnerAtMachine, act), Ok(()), "{act:?}");
            for other in [Standing::Other, Standing::Unknown] {
                assert_eq!(may(other, act).is_err(), nobody_else, "{act:?} {other:?}");
            }
        }
    }

    /// Each may do what those before it may.
    #[test]
    fn a_higher_role_may_do_more() {
        let roles = [
            CallerKind::Viewer,
            CallerKind::Approver,
            CallerKind::Driver,
            CallerKind::OwnerElsewhere,
            CallerKind::Owner,
        ];
        for act in Act::ALL {
            for pair in roles.windows(2) {
                assert!(pair[0].may(act).is_err() || pair[1].may(act).is_ok(), "{act:?} {pair:?}");
            }
        }
    }

    #[test]
    fn whoever_has_too_small_a_role_is_told_which_it_takes() {
        let said = CallerKind::Viewer.may(Act::Prompt).unwrap_err().to_string();
        assert_eq!(said, "this needs a driver, but this device is a viewer; the owner can change its role");
        let said = CallerKind::Driver.may(Act::ListDevices).unwrap_err().to_string();
        assert_eq!(said, "this needs the owner, but this device is a driver; the owner can change its role");
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
