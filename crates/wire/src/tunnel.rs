//! The protocol between a bridge and a hub: the registration, and the frames of the socket.
//!
//! Registration, heartbeat and farewell have the seed's own HTTP bodies. The socket has two languages. A
//! receiver that accepts no sub-protocol gets ferret frames, unchanged, and may send ferret requests. One
//! that accepts [`PROTOCOL`] keeps a **mirror**: the bridge replicates the log, and beside it the views of
//! our own clients (`native` views), folded where the agent is. So the receiver need not understand either,
//! and it makes no difference to it whether they are sealed.
//!
//! Positions are those of the agent's own log. [`HubFrame::Ready`] says how far the mirror has come;
//! everything after that is sent, in order, and each [`HubFrame::Ack`] says how much of it is stored.
//! Everything may arrive twice, and is stored once.
//!
//! A machine whose state was restored from a backup uses positions a second time. So a mirror also says what
//! its last entry was ([`MirrorReady::mark`]) and which store it came from. A bridge whose log has something
//! else there asks for a [`BranchRequest`]: what is mirrored becomes a session of its own, and the log is
//! mirrored from its beginning.
//!
//! Requests travel in the other direction, on the machine's own socket: the native requests of people at the
//! hub, each with the person who sent it. Frames are JSON objects with one member, whose name says what it
//! is; one per message.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::native::{CardState, Role};

/// The sub-protocol of a socket that carries [`BridgeFrame`] and [`HubFrame`].
pub const PROTOCOL: &str = "ropewalk.tunnel.v1";
/// The header with [`LogSource::process`] in heartbeats and the farewell, whose bodies are the seed's.
pub const PROCESS_HEADER: &str = "x-ropewalk-process";
/// If its value is [`PROTOCOL`], a response below `/api/sessions` is a hub's. Only then does a bridge use
/// more than the seed's four endpoints.
pub const HUB_HEADER: &str = "x-ropewalk-hub";
/// Limit for a frame in either direction.
pub const TUNNEL_FRAME_BYTES_MAX: usize = 24 << 20;
/// Limits for the log entries of one batch: their count, and their bytes after the first.
pub const BATCH_EVENTS_MAX: usize = 512;
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// `POST /api/sessions`. The first five are the seed's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub session_id: String,
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub sandbox: String,
    #[serde(default)]
    pub approval: String,
    #[serde(default)]
    pub cwd: String,
    /// The machine's id, if it also has a socket of its own. Only sent to a hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The hub cannot read what is mirrored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sealed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationReply {
    /// Where people see the session.
    pub ui_url: String,
    /// The URL of the bridge's socket.
    pub ws_url: String,
}

/// `POST /api/sessions/ID/heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub sandbox: String,
    pub approval: String,
    pub cost_total_usd: f64,
}

/// A frame from a bridge. The socket of a session carries batches and branches, that of a machine the
/// others.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BridgeFrame {
    Batch(MirrorBatch),
    /// What is mirrored is not this log. Sent before the first batch, and only if [`MirrorReady::branches`]
    /// says that it is understood; the reply is another [`HubFrame::Ready`].
    Branch(BranchRequest),
    /// The first frame on a machine's socket.
    Machine(MachineInfo),
    /// The content key of a machine's sealed sessions, wrapped for each of its devices.
    Keys(WrappedKeys),
    Answer(OperatorCallReply),
}

/// A frame from a hub.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HubFrame {
    Ready(MirrorReady),
    Ack(MirrorAck),
    Watched(WatchState),
    Call(OperatorCall),
}

/// Changes of a session. Each part is omitted if nothing changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MirrorBatch {
    /// The position before the first of `events`.
    pub after: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardEntry>,
    /// Belongs to the last of `events`: opaque to a receiver, which returns it in [`MirrorReady::mark`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// With the first batch of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<LogSource>,
}

/// The log that a mirror is a copy of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSource {
    /// A random id of the process that holds the log.
    pub process: String,
    /// The store's lineage, if it is known: a store that was restored from a backup has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchRequest {
    pub source: LogSource,
}

/// An event of the log: a line of an export ([`crate::event_json`]), or a sealed one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventEntry {
    pub seq: u64,
    pub body: Box<RawValue>,
}

/// A change of what watching clients see: a `native` view, or a sealed one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ViewEntry {
    /// The position that the view continues from. Without it the view is complete in itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    pub upto: u64,
    pub body: Box<RawValue>,
}

/// The session in the list: a `native` card, or a sealed one. The other fields are what a hub must know
/// itself: whether somebody has to be notified, and the order of sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CardEntry {
    pub state: CardState,
    /// The numbers of the permission requests that wait for a person.
    #[serde(default)]
    pub asks: Vec<u64>,
    pub updated_at: i64,
    pub body: Box<RawValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    pub id: String,
    /// The name that people know it by.
    pub name: String,
    pub version: String,
    /// The hub cannot read what is mirrored, and requests must be sealed.
    #[serde(default)]
    pub sealed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKeys {
    /// Increases whenever the key changes.
    pub generation: u64,
    pub wrapped: Vec<WrappedKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKey {
    pub device: String,
    /// Base64url.
    pub key: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperatorCallReply {
    pub call: u64,
    /// A `native` reply, or a sealed one.
    pub body: Box<RawValue>,
}

/// How far the mirror has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorReady {
    /// The last event that is stored; 0 if there is none.
    pub events: u64,
    /// The position of the last view, if it can be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
    pub watched: bool,
    /// [`BridgeFrame::Branch`] is understood.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub branches: bool,
    /// The mark that came with the last event, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// The lineage of the store that the mirror came from, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    /// What was mirrored before the branch, until something is mirrored after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BranchedMirror>,
}

/// A session as it was before its machine's state was restored: now a session of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchedMirror {
    pub session: String,
    /// Its last event.
    pub events: u64,
}

/// Everything up to here is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorAck {
    pub events: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
}

/// Whether anybody watches the session: if not, views may be sent less often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchState {
    pub watched: bool,
    /// The next view must be complete in itself.
    #[serde(default)]
    pub anew: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperatorCall {
    pub call: u64,
    pub by: Operator,
    /// A `native` envelope, or a sealed one.
    pub body: Box<RawValue>,
}

/// A person at the hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// Stable for the same person.
    pub id: String,
    pub name: String,
    /// What the hub lets them do here; the machine may allow less.
    pub role: Role,
}
