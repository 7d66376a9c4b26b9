//! Requests and notifications of our own clients that only a hub has.
//!
//! A hub answers these itself. Everything else about a session goes to its machine.

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use super::request::{Request, Role};

/// Comes in an envelope, like every request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HubRequest {
    /// Something that names no session, asked of one of my machines.
    #[serde(rename = "at")]
    ToMachine {
        machine: String,
        request: Box<Request>,
    },
    /// Something that the hub cannot read, for a machine of mine or that of a shared session.
    Sealed {
        machine: String,
        session: Option<String>,
        sealed: String,
    },
    /// Machines that I have or see. Also told unasked.
    Machines,
    /// A machine and what is mirrored of it is forgotten. Takes its owner.
    ForgetMachine {
        machine: String,
    },
    /// A link to a session, for somebody else. Takes its owner.
    Share {
        session: String,
        role: Role,
        /// Milliseconds since 1970.
        until: i64,
    },
    /// The links to a session. Takes its owner.
    Shares {
        session: String,
    },
    Unshare {
        share: String,
    },
    /// My tokens for machines.
    Tokens,
    MakeToken {
        name: String,
        /// Milliseconds since 1970; for ever without.
        until: Option<i64>,
    },
    DropToken {
        token: String,
    },
    /// Everybody at this hub. Takes an admin.
    People,
    /// A link with which somebody joins. Takes an admin.
    InvitePerson {
        name: String,
        admin: bool,
    },
    /// Takes an admin; nobody removes themselves.
    RemovePerson {
        person: String,
    },
    /// My passkeys.
    Passkeys,
    DropPasskey {
        passkey: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "HubAnswered"))]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HubReplyBody {
    Machines {
        machines: Vec<MachineView>,
    },
    Shared {
        url: String,
        share: ShareView,
    },
    Shares {
        shares: Vec<ShareView>,
    },
    Tokens {
        tokens: Vec<TokenView>,
    },
    /// Shown this once.
    Token {
        secret: String,
        token: TokenView,
    },
    People {
        people: Vec<PersonView>,
    },
    InvitedPerson {
        url: String,
        expires_at: i64,
    },
    Passkeys {
        passkeys: Vec<PasskeyView>,
    },
}

/// In addition to every server's notifications. `at` follows the hello.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "HubTold"))]
#[serde(tag = "on", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HubNotification {
    /// This is a hub, and this is who you are here.
    #[serde(rename = "at")]
    Hello {
        /// Nobody, for who came by a link to one session.
        person: Option<PersonView>,
        /// The only session that can be seen, for who came by a link.
        session: Option<String>,
        until: Option<i64>,
    },
    Machines {
        machines: Vec<MachineView>,
    },
    /// A view that only a device of the machine can read.
    SealedView {
        session: String,
        machine: String,
        from: Option<u64>,
        upto: u64,
        sealed: String,
        /// The session that it was sealed for, if this one is what is kept of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        of: Option<String>,
    },
    /// A card that only a device of the machine can read. The state may be told.
    SealedCard {
        session: String,
        machine: String,
        state: super::CardState,
        asks: Vec<u64>,
        updated_at: i64,
        sealed: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        branch: Option<super::BranchOrigin>,
    },
    /// The key of a machine's sealed sessions, wrapped for a device.
    Key {
        machine: String,
        generation: u64,
        device: String,
        key: String,
    },
    /// The answer to something sealed.
    SealedReply {
        re: u64,
        sealed: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct MachineView {
    pub id: String,
    pub name: String,
    pub version: String,
    pub sealed: bool,
    /// It is mine, and not only shared with me.
    pub own: bool,
    /// It holds a socket to the hub.
    pub here: bool,
    /// When it was last heard of.
    pub seen_at: i64,
    /// The sessions of it that I see.
    pub sessions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct ShareView {
    pub id: String,
    pub session: String,
    pub role: Role,
    pub created_at: i64,
    pub until: i64,
    /// How many came in by it.
    pub uses: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct TokenView {
    pub id: String,
    pub name: String,
    pub created_at: i64,
    pub until: Option<i64>,
    pub used_at: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct PersonView {
    pub id: String,
    pub name: String,
    pub admin: bool,
    pub created_at: i64,
    pub seen_at: Option<i64>,
    pub passkeys: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct PasskeyView {
    pub id: String,
    pub name: String,
    pub created_at: i64,
    pub used_at: Option<i64>,
}
