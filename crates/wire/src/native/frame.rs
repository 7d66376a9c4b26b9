//! What a client is told.

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use super::card::{Card, SessionState, Setting, SlashCommand};
use super::request::Role;
use super::row::{Append, Diff, Row};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(untagged)]
pub enum Frame {
    Reply(Reply),
    Told(Box<Told>),
}

/// Answers the envelope of this id: with `ok` or with `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
pub struct Reply {
    pub re: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub ok: Option<Answered>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub error: Option<Wrong>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
pub struct Wrong {
    /// `notFound`, `forbidden`, `badRequest`, `stale`, `busy`, `answered`, `failed`.
    pub code: String,
    /// For a person: what is wrong, and what can be done.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Answered {
    Done,
    Sessions {
        cards: Vec<Card>,
        /// What continues the list, if there is more.
        older: Option<String>,
    },
    Rows {
        rows: Vec<Row>,
        /// There are rows before these.
        earlier: bool,
    },
    Offer {
        folder: String,
        settings: Vec<Setting>,
        commands: Vec<SlashCommand>,
    },
    Opened {
        session: String,
    },
    Taken {
        turn: u64,
    },
    Changes {
        files: Vec<Diff>,
    },
    Files {
        files: Vec<FoundFile>,
    },
    Rules {
        rules: Vec<RuleView>,
    },
    Devices {
        devices: Vec<Device>,
        knocks: Vec<Knock>,
    },
    Invited(Invitation),
}

/// What happens, unasked. `Hello` comes first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(tag = "on", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Told {
    Hello(Hello),
    /// Cards that are new or changed, and sessions that are gone. The first time it is the newest page.
    Cards {
        cards: Vec<Card>,
        gone: Vec<String>,
        /// What continues the list, said the first time.
        older: Option<String>,
    },
    View(View),
    /// What is wrong with the machine now, in whole sentences: its store or its permission rules cannot be used.
    /// Said whenever it changes; after `Hello` nothing is wrong.
    Faults {
        faults: Vec<String>,
    },
    /// A session that is watched cannot be shown on: it was deleted, or another process took it.
    Over {
        session: String,
        message: String,
    },
    /// Who can come in, and who knocks, changed. For owners.
    Devices {
        devices: Vec<Device>,
        knocks: Vec<Knock>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub version: String,
    /// The name of the machine.
    pub host: String,
    pub role: Role,
    /// This client's own device, if it came in by one.
    pub device: Option<String>,
    /// What this client answers for good becomes a rule of the machine. Otherwise it holds in the session alone.
    #[serde(default)]
    pub makes_rules: bool,
    /// The folder that sessions are opened in, and the others that may be named.
    pub folder: String,
    pub folders: Vec<String>,
    pub sandbox: String,
    /// The server's key for pushes, base64url; nothing if there are none here.
    pub push_key: Option<String>,
    /// The server's clock, in milliseconds since 1970.
    pub now: i64,
}

/// What is new in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct View {
    pub session: String,
    /// Everything up to this position is told: what to come back with.
    pub upto: u64,
    /// The rows are all that the client should have: it forgets the others.
    pub reset: bool,
    /// With `reset`: there are rows before these.
    pub earlier: bool,
    /// New and changed rows, whole.
    pub rows: Vec<Row>,
    pub appends: Vec<Append>,
    /// If it changed.
    pub state: Option<SessionState>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct FoundFile {
    /// Below the session's folder.
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct RuleView {
    pub id: String,
    pub rule: String,
    /// `allow`, `deny` or `ask`.
    pub effect: String,
    /// Where it stands, in words.
    pub source: String,
    /// It can be forgotten from here.
    pub forgettable: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct Device {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub created_at: i64,
    pub seen_at: Option<i64>,
    /// It is told when it does not look.
    pub push: bool,
    pub muted_until: Option<i64>,
}

/// Somebody with a good code who waits to be let in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct Knock {
    pub id: String,
    /// What the device calls itself.
    pub name: String,
    pub role: Role,
    /// Two words that stand on both screens.
    pub words: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct Invitation {
    /// With the code after `#`, so that it stands in no log.
    pub url: String,
    /// The same, to be typed.
    pub code: String,
    pub expires_at: i64,
    /// The QR code of the address: rows of `0` and `1`.
    pub qr: Vec<String>,
}
