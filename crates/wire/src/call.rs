//! What every dialect's messages mean: the vocabulary between the wire and the connections.
//!
//! A dialect turns a message into a [`Call`] and an [`Outcome`] into a message. The connection that
//! carries a call out knows neither method names nor JSON.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Answer, AskId, Content, Event, ForeignError, Greeting, Listed, Opaque, Seq, ServerView, SessionHandle,
    SessionId, SettingSpec, Settings, Stop, Timestamp, ToolServer, Totals,
};
use serde_json::value::{RawValue, to_raw_value};

use crate::portable;
use crate::rpc::RpcId;
use crate::turn_text::TurnText;

/// Which events of a session a reply should have. Without any of it: all, if they fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventRange {
    pub after: Option<Seq>,
    pub limit: Option<usize>,
}

impl EventRange {
    /// The client goes on by itself, so a reply may have fewer events than there are.
    pub fn in_parts(self) -> bool {
        self.after.is_some() || self.limit.is_some()
    }
}

/// Events of a session in their portable form, encoded one by one as they are read: as values in
/// memory they would be many times as large.
#[derive(Debug, Default)]
pub struct EventsPart {
    list: Vec<Box<RawValue>>,
    bytes: usize,
    /// There are more events, and they follow this one.
    pub next: Option<Seq>,
}

impl EventsPart {
    pub fn push(&mut self, event: &Event) {
        // An event that cannot be written as JSON would not be in a log.
        let Ok(text) = to_raw_value(&portable::encode(event)) else { return };
        self.bytes += text.get().len() + 1;
        self.list.push(text);
    }

    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// How long the list is as text.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn list(&self) -> &[Box<RawValue>] {
        &self.list
    }
}

/// What a client wants.
#[derive(Debug)]
pub enum Call {
    Initialize(Hello),
    Authenticate {
        method: String,
    },
    Logout,
    New(Place),
    /// Opens a session and tells its history before answering. Without a place, where it was.
    Load {
        id: SessionId,
        place: Option<Place>,
    },
    /// Opens a session, tells what came after the update with this number, then answers.
    Replay {
        id: SessionId,
        since: u64,
    },
    /// Opens a session and answers at once; with a cursor, what was missed follows the answer.
    Resume {
        id: SessionId,
        place: Place,
        cursor: Option<String>,
    },
    Fork {
        id: SessionId,
        place: Place,
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
    /// A prompt whose answer carries the whole text.
    Message {
        id: SessionId,
        content: Vec<Content>,
    },
    /// A prompt in a session of its own, answered as soon as the session exists.
    Task {
        cwd: Option<PathBuf>,
        role: String,
        /// The approval it begins with.
        approval: Arc<str>,
        content: Vec<Content>,
    },
    Cancel {
        id: SessionId,
    },
    /// Ends what runs, and with it the session.
    Stop {
        id: SessionId,
        reason: Option<String>,
    },
    /// Answers a question that was asked as a notification. Without a session, in the only one that the client has open.
    Answer {
        id: Option<SessionId>,
        ask: AskId,
        answer: Answer,
    },
    /// How far the tools and commands reach, the same in every session. Nobody may change that while the server runs.
    Sandbox {
        id: Option<SessionId>,
        wanted: Option<String>,
    },
    /// Whether somebody elsewhere sees the session through a bridge. Without one, any that the client has open.
    Bridge {
        id: Option<SessionId>,
    },
    /// Gives up one request of the client's own.
    CancelRequest {
        request: RpcId,
    },
    Change {
        id: SessionId,
        setting: Arc<str>,
        value: Arc<str>,
        answer: ChangeAnswer,
    },
    /// All sessions, in the older extension's form.
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
    /// Deletes, and says whether there was anything to delete.
    Remove {
        id: SessionId,
    },
    /// The tools of a session. Without one, of the only session that the client has open.
    Tools {
        id: Option<SessionId>,
    },
    /// The tool servers of a session. Without one, of the only session that the client has open.
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
    /// Something that only the agent may understand. A notice is not answered.
    Extension {
        id: Option<SessionId>,
        method: Arc<str>,
        params: Opaque,
        notice: bool,
    },
    /// A notification that nobody needs to act on.
    Ignore,
}

impl Call {
    /// The session that it is about, as far as it names one.
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

/// How a changed setting is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeAnswer {
    Nothing,
    AllSettings,
    /// The value it has afterwards.
    Value,
    /// The word that was sent, where it is a name of the value that the setting has afterwards; otherwise that value.
    Word,
}

/// Who is on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub name: Arc<str>,
    pub version: Option<u64>,
}

impl Hello {
    /// What a client is called that does not say who it is.
    pub const UNNAMED: &str = "client";

    pub fn is_named(&self) -> bool {
        !self.name.trim().is_empty() && *self.name != *Self::UNNAMED
    }
}

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Without it, the server's own folder.
    pub cwd: Option<PathBuf>,
    pub roots: Vec<PathBuf>,
    /// Tool servers the client wants connected.
    pub servers: Vec<ToolServer>,
}

/// A session as an answer shows it.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub id: SessionId,
    pub specs: Arc<[SettingSpec]>,
    pub settings: Arc<Settings>,
    /// Instruction files that the agent follows there.
    pub rules: Vec<String>,
    /// What else an external agent said of it.
    pub extra: Option<Opaque>,
}

impl SessionView {
    pub fn of(handle: &SessionHandle, rules: Vec<String>) -> Self {
        let snapshot = handle.snapshot();
        let (settings, extra) = (Arc::clone(&snapshot.settings), snapshot.extra.clone());
        Self { id: handle.id().clone(), specs: handle.specs(), settings, rules, extra }
    }
}

/// How a session is seen elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BridgeStatus {
    pub connected: bool,
    /// Where the receiver is.
    pub url: Option<String>,
    /// Where people see it.
    pub ui_url: Option<String>,
    /// When it was connected, or lost.
    pub since: Option<Timestamp>,
    /// Events that the receiver does not have yet.
    pub queued: u64,
}

/// What came of a call.
#[derive(Debug)]
pub enum Outcome {
    /// What the agent answered to something that only it understands.
    Extended(Opaque),
    Initialized {
        greeting: Greeting,
        /// The number that the client asked for, if it asked for a number.
        version: Option<u64>,
    },
    Done,
    Created(SessionView),
    /// Loaded or resumed: the client knows the id.
    Opened(SessionView),
    Listed {
        sessions: Vec<Listed>,
        next: Option<String>,
    },
    Settings(SessionView),
    /// A setting has this value.
    Set {
        id: SessionId,
        setting: Arc<str>,
        value: Arc<str>,
    },
    /// What was missed has been told.
    Replayed {
        id: SessionId,
        replayed: u64,
        last: u64,
        /// Older updates than those that are kept were asked for.
        truncated: bool,
    },
    /// The session exists and works on its prompt.
    Tasked {
        id: SessionId,
        cwd: PathBuf,
        role: String,
        approval: Arc<str>,
    },
    Stopped {
        id: SessionId,
        reason: Option<String>,
    },
    /// Whether the answer was the first.
    Answered {
        id: SessionId,
        ask: AskId,
        applied: bool,
        allowed: bool,
    },
    /// The sandbox mode is what it is; somebody wished for another.
    Sandbox {
        wanted: Option<String>,
    },
    Bridge(BridgeStatus),
    TurnEnded {
        stop: Stop,
        error: Option<Arc<str>>,
        usage: Totals,
        /// What an external agent answered besides.
        words: Option<Opaque>,
    },
    /// The end of a turn together with everything the agent said in it.
    Said {
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
    ListedAll(Vec<Listed>),
    Got {
        session: Listed,
        events: EventsPart,
    },
    Exported {
        session: Listed,
        events: EventsPart,
        at: engine::Timestamp,
    },
    Imported {
        id: SessionId,
    },
    Removed(bool),
    Tools(Vec<engine::ToolInfo>),
    Servers(Vec<ServerView>),
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

/// Why a call was not carried out. The text says what was wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
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
    /// A session that this client has not opened, whether or not it is there.
    NotOpen {
        id: String,
    },
    /// The question is unknown or answered already.
    NoSuchAsk {
        ask: String,
    },
    /// The value is none of those that can be chosen.
    UnknownChoice(String),
    Internal(String),
    /// What an external agent answered.
    Foreign(ForeignError),
}

impl Fault {
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
                format!("session not found: {id}; session/list shows what there is")
            }
            Self::NotOpen { id } => format!(
                "session {id} is not open on this connection; open it with session/load, or make one with session/new"
            ),
            Self::NoSuchAsk { ask } => format!("permission request {ask} is unknown or already answered"),
        }
    }
}
