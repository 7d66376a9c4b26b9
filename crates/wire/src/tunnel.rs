//! Between a bridge and a hub: what is registered, and what the socket carries.
//!
//! Registration, heartbeat and farewell are the seed's own HTTP bodies. The socket has two languages. A
//! receiver that takes no sub-protocol gets ferret frames, unchanged, and may send ferret requests. One that
//! takes [`PROTOCOL`] keeps a **mirror**: the bridge replicates the log, and beside it what our own clients
//! show of it (`native` views), folded where the agent is. So the receiver has to understand neither, and it
//! makes no difference to it whether they are sealed.
//!
//! Positions are those of the agent's own log. [`Down::Ready`] says how far the mirror has come; whatever
//! follows that is sent, in order, and each [`Down::Ack`] says how much of it is kept. Everything may come
//! twice, and is kept once.
//!
//! A machine whose state was put back gives positions a second time. So a mirror also says what its last entry
//! was ([`Ready::mark`]) and which store it came from. A bridge that finds something else in its log asks for a
//! [`Branch`]: what is mirrored becomes a session of its own, and the log is mirrored from its beginning.
//!
//! Calls travel the other way on the machine's own socket: the native requests of people at the hub, each
//! with who asks. Frames are JSON objects with one member, whose name says what it is; one per message.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::native::{CardState, Role};

/// The sub-protocol of a socket that carries [`Up`] and [`Down`].
pub const PROTOCOL: &str = "ropewalk.tunnel.v1";
/// Names [`Source::process`] with heartbeats and the farewell, whose bodies are the seed's.
pub const PROCESS_HEADER: &str = "x-ropewalk-process";
/// With [`PROTOCOL`] as its value, an answer below `/api/sessions` is a hub's. Only then does a bridge use more than the
/// seed's four endpoints.
pub const HUB_HEADER: &str = "x-ropewalk-hub";
/// A frame of either side.
pub const FRAME_BYTES_MAX: usize = 24 << 20;
/// Log entries of one batch, by count and by bytes past the first.
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
    /// The machine's id, if it also holds a socket of its own. Only a hub is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// What is mirrored cannot be read by the hub.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sealed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Where people see the session.
    pub ui_url: String,
    /// The bridge's socket.
    pub ws_url: String,
}

/// `POST /api/sessions/ID/heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub sandbox: String,
    pub approval: String,
    pub cost_total_usd: f64,
}

/// What a bridge says. The socket of a session carries batches and branches, that of a machine the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Up {
    Batch(Batch),
    /// What is mirrored is not this log. Before the first batch, and only if [`Ready::branches`] says that it is
    /// understood; answered with another [`Down::Ready`].
    Branch(Branch),
    /// The first frame on a machine's socket.
    Machine(Machine),
    /// The content key of a machine's sealed sessions, wrapped for each of its devices.
    Keys(Keys),
    Answer(CallAnswer),
}

/// What a hub says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Down {
    Ready(Ready),
    Ack(Ack),
    Watched(Watched),
    Call(Call),
}

/// More of a session. Each part is left out when there is nothing new.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Batch {
    /// The position before the first of `events`.
    pub after: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardEntry>,
    /// Of the last of `events`: says nothing to a receiver, and comes back in [`Ready::mark`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// With the first batch of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// The log that a mirror is a copy of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// A random name of the process that holds the log.
    pub process: String,
    /// The store's, if it is known: a store that was restored from a backup has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    pub source: Source,
}

/// An event of the log: a line of an export ([`crate::portable`]), or a sealed one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    pub seq: u64,
    pub body: Box<RawValue>,
}

/// What changed on the screens of those who watch: a `native` view, or a sealed one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ViewEntry {
    /// The position that it continues. Without one it stands for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    pub upto: u64,
    pub body: Box<RawValue>,
}

/// The session in the list: a `native` card, or a sealed one. What stands beside it, a hub must know to do
/// its work: whether somebody has to be called, and in which order sessions are shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CardEntry {
    pub state: CardState,
    /// The asks that wait for a person, by number.
    #[serde(default)]
    pub asks: Vec<u64>,
    pub updated_at: i64,
    pub body: Box<RawValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub id: String,
    /// What people call it.
    pub name: String,
    pub version: String,
    /// What is mirrored cannot be read by the hub, and calls must be sealed.
    #[serde(default)]
    pub sealed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Goes up whenever the key changes.
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
pub struct CallAnswer {
    pub call: u64,
    /// A `native` reply, or a sealed one.
    pub body: Box<RawValue>,
}

/// How far the mirror has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The last event that is kept; 0 if there is none.
    pub events: u64,
    /// Where the last view led to, if it can be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
    pub watched: bool,
    /// [`Up::Branch`] is understood.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub branches: bool,
    /// What came with the last event, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Of the store that the mirror came from, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    /// What was mirrored before the branch, until something is mirrored after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// What a session was before its machine's state was put back: a session of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    pub session: String,
    /// Its last event.
    pub events: u64,
}

/// Everything up to here is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    pub events: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
}

/// Somebody looks at the session, or nobody: views may come slowly then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    pub watched: bool,
    /// The next view must stand for itself.
    #[serde(default)]
    pub anew: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    pub call: u64,
    pub by: Operator,
    /// A `native` envelope, or a sealed one.
    pub body: Box<RawValue>,
}

/// Somebody at the hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// The same person always has the same.
    pub id: String,
    pub name: String,
    /// What the hub lets them do here; the machine may allow less.
    pub role: Role,
}
