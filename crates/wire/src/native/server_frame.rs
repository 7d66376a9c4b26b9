//! What the server sends to a client of ours.

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use super::card_and_state::{SessionCard, SessionState, SettingView, SlashCommand};
use super::request::Role;
use super::transcript_row::{DiffView, Row, TextAppend};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Frame"))]
#[serde(untagged)]
pub enum ServerFrame {
    Reply(RequestReply),
    Notification(Box<ServerNotification>),
}

/// Replies to the envelope with this id: with `ok` or with `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Reply"))]
pub struct RequestReply {
    pub re: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub ok: Option<ReplyBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub error: Option<ReplyError>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Wrong"))]
pub struct ReplyError {
    /// `notFound`, `forbidden`, `badRequest`, `stale`, `busy`, `answered`, `failed`.
    pub code: String,
    /// For a person: what is wrong, and what can be done.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Answered"))]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ReplyBody {
    Done,
    Sessions {
        cards: Vec<SessionCard>,
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
        settings: Vec<SettingView>,
        commands: Vec<SlashCommand>,
    },
    #[serde(rename = "opened")]
    SessionOpened {
        session: String,
    },
    #[serde(rename = "taken")]
    PromptAccepted {
        turn: u64,
    },
    Changes {
        files: Vec<DiffView>,
    },
    Files {
        files: Vec<FileMatch>,
    },
    Rules {
        rules: Vec<RuleView>,
    },
    Devices {
        devices: Vec<DeviceView>,
        knocks: Vec<PairingRequest>,
    },
    Invited(Invitation),
}

/// What the server sends without being asked. `Hello` comes first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Told"))]
#[serde(tag = "on", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ServerNotification {
    Hello(ServerHello),
    /// Cards that are new or changed, and sessions that are gone. The first time it is the newest page.
    Cards {
        cards: Vec<SessionCard>,
        gone: Vec<String>,
        /// What continues the list, said the first time.
        older: Option<String>,
    },
    View(ViewUpdate),
    /// What is wrong with the machine now, in whole sentences: its store or its permission rules cannot be used.
    /// Said whenever it changes; after `ServerHello` nothing is wrong.
    Faults {
        faults: Vec<String>,
    },
    /// A session that is watched cannot be shown on: it was deleted, or another process took it.
    #[serde(rename = "over")]
    WatchEnded {
        session: String,
        message: String,
    },
    /// Who can come in, and who knocks, changed. For owners.
    Devices {
        devices: Vec<DeviceView>,
        knocks: Vec<PairingRequest>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Hello"))]
#[serde(rename_all = "camelCase")]
pub struct ServerHello {
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

/// Changes of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "View"))]
#[serde(rename_all = "camelCase")]
pub struct ViewUpdate {
    pub session: String,
    /// Everything up to this position is told: what to come back with.
    pub upto: u64,
    /// The rows are all that the client should have: it forgets the others.
    pub reset: bool,
    /// With `reset`: there are rows before these.
    pub earlier: bool,
    /// New and changed rows, whole.
    pub rows: Vec<Row>,
    pub appends: Vec<TextAppend>,
    /// If it changed.
    pub state: Option<SessionState>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "FoundFile"))]
#[serde(rename_all = "camelCase")]
pub struct FileMatch {
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
#[cfg_attr(test, ts(rename = "Device"))]
#[serde(rename_all = "camelCase")]
pub struct DeviceView {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub created_at: i64,
    pub seen_at: Option<i64>,
    /// It is told when it does not look.
    pub push: bool,
    pub muted_until: Option<i64>,
}

/// A device with a valid code that waits to be admitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Knock"))]
#[serde(rename_all = "camelCase")]
pub struct PairingRequest {
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
