//! What a client of ours can request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Envelope"))]
pub struct RequestEnvelope {
    pub id: u64,
    #[serde(flatten)]
    pub request: Request,
}

/// Each one names the role that it requires; the others only require that the device was admitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    /// A page of cards, newest first. The newest page is told unasked, and whatever changes in it.
    Sessions {
        /// Where the page before ended.
        before: Option<String>,
        /// Words of titles and folders.
        search: Option<String>,
    },
    /// From here on the client is told of the session, beginning with its last rows, or with what
    /// changed after a position. Brings the session back if it is not in memory.
    Watch {
        session: String,
        after: Option<u64>,
    },
    Unwatch {
        session: String,
    },
    /// Rows before one.
    #[serde(rename = "earlier")]
    EarlierRows {
        session: String,
        before: u64,
    },
    /// A row with all of its text.
    #[serde(rename = "whole")]
    FullRow {
        session: String,
        row: u64,
    },
    /// What a new session in this folder offers.
    Offer {
        folder: Option<String>,
    },
    /// A new session. Takes a driver.
    Open {
        folder: Option<String>,
        settings: BTreeMap<String, String>,
    },
    /// Takes a driver. Sent again with the same key it is done once.
    Prompt {
        session: String,
        /// Made up by the client.
        key: String,
        text: String,
        pictures: Vec<ImageAttachment>,
    },
    /// Ends the running turn, or one that waits. Takes a driver.
    Cancel {
        session: String,
        turn: Option<u64>,
    },
    /// Takes an approver.
    Answer {
        session: String,
        ask: u64,
        decision: Decision,
        /// The reply to a question, or why something is denied.
        text: Option<String>,
    },
    /// Takes a driver.
    Set {
        session: String,
        setting: String,
        value: String,
    },
    /// Takes a driver.
    Rename {
        session: String,
        title: String,
    },
    /// For good. Takes a driver.
    Delete {
        session: String,
    },
    /// Files that the session has changed and nobody has reviewed.
    Changes {
        session: String,
    },
    /// A hunk, or all of a file, is as it should be. Takes a driver.
    Keep {
        session: String,
        path: String,
        hunk: Option<String>,
    },
    /// A hunk, or all of a file, goes back to what it was, when the running turn has ended. Takes a driver.
    Revert {
        session: String,
        path: String,
        hunk: Option<String>,
    },
    /// Files of the session's folder whose names are like this.
    #[serde(rename = "find")]
    FindFiles {
        session: String,
        text: String,
    },
    /// The rules that earlier answers wrote.
    Rules,
    /// Takes the owner.
    Forget {
        rule: String,
    },
    /// Everybody who can come in. Takes the owner.
    Devices,
    /// A code with which one more device can knock. Takes the owner.
    Invite {
        role: Role,
    },
    /// Lets in who knocked, or not. Takes the owner.
    Admit {
        knock: String,
        /// Nothing refuses.
        role: Option<Role>,
    },
    /// Takes the owner; everybody may revoke themselves.
    Revoke {
        device: String,
    },
    /// This device wants to be told when it does not look, or no longer.
    Push {
        subscription: Option<PushSubscription>,
    },
    /// This device is told nothing until then (milliseconds since 1970), or again from here on.
    Mute {
        until: Option<i64>,
    },
    /// This device is told something now, to try it.
    #[serde(rename = "tryPush")]
    TestPush,
    /// Somebody looks at this client, or nobody: who looks needs no push.
    #[serde(rename = "looking")]
    Presence {
        at: Option<String>,
        visible: bool,
    },
}

/// What a client may do. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Looks.
    Viewer,
    /// Answers what is asked.
    Approver,
    /// Says what is to be done.
    Driver,
    /// Lets others in. Who sits at the machine.
    Owner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    AllowOnce,
    AllowAlways,
    DenyOnce,
    DenyAlways,
    /// To a question.
    Reply,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Picture"))]
#[serde(rename_all = "camelCase")]
pub struct ImageAttachment {
    pub mime: String,
    /// Base64.
    pub data: String,
}

/// A push subscription, as browsers provide it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Subscription"))]
pub struct PushSubscription {
    pub endpoint: String,
    /// Base64url.
    pub p256dh: String,
    /// Base64url.
    pub auth: String,
}
