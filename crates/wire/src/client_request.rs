//! What the messages of every dialect mean: the common vocabulary of dialects and connections.
//!
//! A dialect decodes a message into a [`ClientRequest`] and encodes a [`RequestOutcome`] as a message. The
//! connection that carries a request out knows neither method names nor JSON.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    AskId, Content, Event, ForeignError, Greeting, ListedSession, Opaque, PermissionAnswer, Seq,
    ServerStatus, SessionHandle, SessionId, SettingSpec, Settings, Stop, Timestamp, ToolServer, Totals,
};
use serde_json::value::{RawValue, to_raw_value};

use crate::event_json;
use crate::rpc::RpcId;
use crate::turn_text::TurnText;

/// The events of a session that a response should contain. Without limits: all, if they fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventRange {
    pub after: Option<Seq>,
    pub limit: Option<usize>,
}

impl EventRange {
    /// The client pages by itself, so a response may have fewer events than there are.
    pub fn in_parts(self) -> bool {
        self.after.is_some() || self.limit.is_some()
    }
}

/// Events of a session in their portable form, encoded one by one as they are read: as values in memory they
/// would be many times larger.
#[derive(Debug, Default)]
pub struct EventPage {
    list: Vec<Box<RawValue>>,
    bytes: usize,
    /// There are more events; they follow this one.
    pub next: Option<Seq>,
}

impl EventPage {
    pub fn push(&mut self, event: &Event) {
        // An event that cannot be written as JSON would not be in a log.
        let Ok(text) = to_raw_value(&event_json::encode(event)) else { return };
        self.bytes += text.get().len() + 1;
        self.list.push(text);
    }

    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The length of the list as text.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn list(&self) -> &[Box<RawValue>] {
        &self.list
    }
}

/// A request or notification from a client.
#[derive(Debug)]
pub enum ClientRequest {
    Initialize(ClientInfo),
    Authenticate {
        method: String,
    },
    Logout,
    New(WorkspaceParams),
    /// Opens a session and replays its history before the response. Without a workspace, the session keeps
    /// its own.
    Load {
        id: SessionId,
        workspace: Option<WorkspaceParams>,
    },
    /// Opens a session, sends the updates after this number, then the response.
    Replay {
        id: SessionId,
        since: u64,
    },
    /// Opens a session and responds at once; with a cursor, the missed updates follow the response.
    Resume {
        id: SessionId,
        workspace: WorkspaceParams,
        cursor: Option<String>,
    },
    Fork {
        id: SessionId,
        workspace: WorkspaceParams,
    },
    List {
        cwd: Option<PathBuf>,
        cursor: Option<String>,
    },
    Close {
        id: SessionId,
    },
    Delete {
        id: SessionId,
    },
    Prompt {
        id: SessionId,
        content: Vec<Content>,
    },
    /// A prompt whose response carries the whole answer.
    Message {
        id: SessionId,
        content: Vec<Content>,
    },
    /// A prompt in a new session, answered as soon as the session exists.
    Task {
        cwd: Option<PathBuf>,
        role: String,
        /// The session's initial approval setting.
        approval: Arc<str>,
        content: Vec<Content>,
    },
    Cancel {
        id: SessionId,
    },
    /// Cancels the running turn and closes the session.
    Stop {
        id: SessionId,
        reason: Option<String>,
    },
    /// Answers a permission request that was sent as a notification. Without a session, the only one that
    /// the client has open.
    Answer {
        id: Option<SessionId>,
        ask: AskId,
        answer: PermissionAnswer,
    },
    /// Asks for the sandbox mode, which is the same in every session and cannot be changed while the server
    /// runs.
    Sandbox {
        id: Option<SessionId>,
        wanted: Option<String>,
    },
    /// Asks whether a bridge shows the session elsewhere. Without a session, any that the client has open.
    Bridge {
        id: Option<SessionId>,
    },
    /// Cancels one of the client's own requests.
    CancelRequest {
        request: RpcId,
    },
    Change {
        id: SessionId,
        setting: Arc<str>,
        value: Arc<str>,
        answer: SettingReply,
    },
    /// All sessions, in the form of the older extension.
    ListAll,
    Get {
        id: SessionId,
        range: EventRange,
    },
    Export {
        id: SessionId,
        range: EventRange,
    },
    Import {
        events: Vec<Event>,
    },
    /// Deletes a session; the response says whether it existed.
    Remove {
        id: SessionId,
    },
    /// The tools of a session. Without a session, of the only one that the client has open.
    Tools {
        id: Option<SessionId>,
    },
    /// The tool servers of a session. Without a session, of the only one that the client has open.
    Servers {
        id: Option<SessionId>,
    },
    AddServer {
        id: Option<SessionId>,
        server: ToolServer,
    },
    RemoveServer {
        id: Option<SessionId>,
        name: String,
    },
    Move {
        id: SessionId,
        path: PathBuf,
    },
    /// A method that only the agent may understand. A notification (`notice`) has no response.
    Extension {
        id: Option<SessionId>,
        method: Arc<str>,
        params: Opaque,
        notice: bool,
    },
    /// A notification that needs no action.
    Ignore,
}

impl ClientRequest {
    /// The session that the request names, if it names one.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Load { id, .. }
            | Self::Replay { id, .. }
            | Self::Resume { id, .. }
            | Self::Fork { id, .. }
            | Self::Close { id }
            | Self::Delete { id }
            | Self::Prompt { id, .. }
            | Self::Message { id, .. }
            | Self::Cancel { id }
            | Self::Stop { id, .. }
            | Self::Change { id, .. }
            | Self::Get { id, .. }
            | Self::Export { id, .. }
            | Self::Remove { id }
            | Self::Move { id, .. } => Some(id),
            Self::Answer { id, .. }
            | Self::Sandbox { id, .. }
            | Self::Bridge { id }
            | Self::Tools { id }
            | Self::Servers { id }
            | Self::AddServer { id, .. }
            | Self::RemoveServer { id, .. }
            | Self::Extension { id, .. } => id.as_ref(),
            Self::Initialize(_)
            | Self::Authenticate { .. }
            | Self::Logout
            | Self::New(_)
            | Self::List { .. }
            | Self::Task { .. }
            | Self::CancelRequest { .. }
            | Self::ListAll
            | Self::Import { .. }
            | Self::Ignore => None,
        }
    }
}

/// How the change of a setting is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingReply {
    Nothing,
    AllSettings,
    /// With the new value.
    Value,
    /// With the word that was sent, if it is a name of the new value; otherwise with the new value.
    Word,
}

/// The client's name and protocol version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    pub name: Arc<str>,
    pub version: Option<u64>,
}

impl ClientInfo {
    /// The name of a client that does not give one.
    pub const UNNAMED: &str = "client";

    pub fn is_named(&self) -> bool {
        !self.name.trim().is_empty() && *self.name != *Self::UNNAMED
    }
}

/// The workspace of a session that is created or opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceParams {
    /// Without it, the server's own working directory.
    pub cwd: Option<PathBuf>,
    pub roots: Vec<PathBuf>,
    /// Tool servers that the client wants connected.
    pub servers: Vec<ToolServer>,
}

/// A session as responses show it.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub id: SessionId,
    pub specs: Arc<[SettingSpec]>,
    pub settings: Arc<Settings>,
    /// Instruction files that the agent follows there.
    pub rules: Vec<String>,
    /// Other members of an external agent's response.
    pub extra: Option<Opaque>,
}

impl SessionView {
    pub fn of(handle: &SessionHandle, rules: Vec<String>) -> Self {
        let snapshot = handle.snapshot();
        let (settings, extra) = (Arc::clone(&snapshot.settings), snapshot.extra.clone());
        Self { id: handle.id().clone(), specs: handle.specs(), settings, rules, extra }
    }
}

/// The state of the bridge that shows a session elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BridgeStatus {
    pub connected: bool,
    /// The receiver's URL.
    pub url: Option<String>,
    /// The URL where people see the session.
    pub ui_url: Option<String>,
    /// When the bridge connected or lost its connection.
    pub since: Option<Timestamp>,
    /// Events that the receiver does not have yet.
    pub queued: u64,
}

/// The result of a [`ClientRequest`].
#[derive(Debug)]
pub enum RequestOutcome {
    /// An agent's response to an [`ClientRequest::Extension`].
    ExtensionAnswer(Opaque),
    Initialized {
        greeting: Greeting,
        /// The version number that the client asked for, if it was a number.
        version: Option<u64>,
    },
    Done,
    Created(SessionView),
    /// Loaded or resumed: the client knows the id already.
    Opened(SessionView),
    Listed {
        sessions: Vec<ListedSession>,
        next: Option<String>,
    },
    Settings(SessionView),
    /// The current value of a setting.
    SettingValue {
        id: SessionId,
        setting: Arc<str>,
        value: Arc<str>,
    },
    /// The missed updates were sent.
    Replayed {
        id: SessionId,
        replayed: u64,
        last: u64,
        /// Updates were requested that are not stored any more.
        truncated: bool,
    },
    /// The session exists and works on its prompt.
    TaskStarted {
        id: SessionId,
        cwd: PathBuf,
        role: String,
        approval: Arc<str>,
    },
    Stopped {
        id: SessionId,
        reason: Option<String>,
    },
    /// Whether the answer came first.
    Answered {
        id: SessionId,
        ask: AskId,
        applied: bool,
        allowed: bool,
    },
    /// The sandbox mode, which stays as it is; the client may have asked for another.
    Sandbox {
        wanted: Option<String>,
    },
    Bridge(BridgeStatus),
    TurnEnded {
        stop: Stop,
        error: Option<Arc<str>>,
        usage: Totals,
        /// Other members of an external agent's response.
        words: Option<Opaque>,
    },
    /// The end of a turn, with everything the agent said in it.
    MessageAnswer {
        id: SessionId,
        stop: Stop,
        error: Option<Arc<str>>,
        said: TurnText,
    },
    Cancelled {
        id: SessionId,
        /// There was something to cancel.
        was_busy: bool,
    },
    ListedAll(Vec<ListedSession>),
    SessionEvents {
        session: ListedSession,
        events: EventPage,
    },
    Exported {
        session: ListedSession,
        events: EventPage,
        at: engine::Timestamp,
    },
    Imported {
        id: SessionId,
    },
    Removed(bool),
    Tools(Vec<engine::ToolInfo>),
    Servers(Vec<ServerStatus>),
    ServerAdded {
        name: Arc<str>,
    },
    ServerRemoved {
        name: String,
    },
    Moved {
        id: SessionId,
        cwd: PathBuf,
    },
}

/// Why a request failed. The text says what was wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    Parse(String),
    FrameTooLong {
        limit_bytes: usize,
    },
    InvalidRequest(String),
    UnknownMethod(String),
    InvalidParams(String),
    NotInitialized {
        method: String,
    },
    NoSuchSession {
        id: String,
    },
    /// A session that this client has not opened, whether or not it exists.
    NotOpen {
        id: String,
    },
    /// The permission request is unknown or was answered already.
    NoSuchAsk {
        ask: String,
    },
    /// The value is not among the choices.
    UnknownChoice(String),
    Internal(String),
    /// An external agent's own error.
    Foreign(ForeignError),
}

impl RequestError {
    /// What went wrong and what to do, for a person.
    pub fn text(&self) -> String {
        match self {
            Self::Parse(text)
            | Self::InvalidRequest(text)
            | Self::InvalidParams(text)
            | Self::UnknownChoice(text)
            | Self::Internal(text) => text.clone(),
            Self::Foreign(error) => error.message.to_string(),
            Self::FrameTooLong { limit_bytes } => {
                format!(
                    "frame exceeds size limit: the limit is {limit_bytes} bytes; send less in one message"
                )
            }
            Self::UnknownMethod(method) => format!("method not found: {method}"),
            Self::NotInitialized { method } => {
                format!("{method} came before initialize: send initialize first")
            }
            Self::NoSuchSession { id } => {
                format!("session not found: {id}; list the sessions with session/list")
            }
            Self::NotOpen { id } => format!(
                "session {id} is not open on this connection; open it with session/load, or make one with session/new"
            ),
            Self::NoSuchAsk { ask } => format!("permission request {ask} is unknown or already answered"),
        }
    }
}
