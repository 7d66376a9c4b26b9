//! What every dialect's messages mean: the vocabulary between the wire and the connections.
//!
//! A dialect turns a message into a [`Call`] and an [`Outcome`] into a message. The connection that
//! carries a call out knows neither method names nor JSON.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Content, Event, Listed, SessionHandle, SessionId, SettingSpec, Settings, Stop, Totals};

use crate::rpc::RpcId;

/// What a client wants.
#[derive(Debug)]
pub enum Call {
    Initialize(Hello),
    Authenticate {
        method: String,
    },
    Logout,
    New(Place),
    /// Opens a session and tells its history before answering.
    Load {
        id: SessionId,
        place: Place,
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
    Cancel {
        id: SessionId,
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
    },
    Export {
        id: SessionId,
    },
    Import {
        events: Vec<Event>,
    },
    /// Deletes, and says whether there was anything to delete.
    Remove {
        id: SessionId,
    },
    Tools {
        id: SessionId,
    },
    Move {
        id: SessionId,
        path: PathBuf,
    },
    /// A notification that nobody needs to act on.
    Ignore,
}

/// How a changed setting is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeAnswer {
    Nothing,
    AllSettings,
}

/// Who is on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub name: Arc<str>,
    pub version: Option<u64>,
}

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub cwd: PathBuf,
    pub roots: Vec<PathBuf>,
    /// Names of tool servers the client wants connected.
    pub servers: Vec<String>,
}

/// A session as an answer shows it.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub id: SessionId,
    pub specs: Arc<[SettingSpec]>,
    pub settings: Arc<Settings>,
    /// Instruction files that the agent follows there.
    pub rules: Vec<String>,
}

impl SessionView {
    pub fn of(handle: &SessionHandle, rules: Vec<String>) -> Self {
        let settings = Arc::clone(&handle.snapshot().settings);
        Self { id: handle.id().clone(), specs: Arc::clone(handle.specs()), settings, rules }
    }
}

/// What came of a call.
#[derive(Debug)]
pub enum Outcome {
    Initialized {
        images: bool,
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
    TurnEnded {
        stop: Stop,
        error: Option<Arc<str>>,
        usage: Totals,
    },
    /// The end of a turn together with everything the agent said in it.
    Said {
        id: SessionId,
        stop: Stop,
        error: Option<Arc<str>>,
        output: String,
    },
    Cancelled {
        id: SessionId,
    },
    ListedAll(Vec<Listed>),
    Got {
        session: Listed,
        events: Vec<Arc<Event>>,
    },
    Exported {
        session: Listed,
        events: Vec<Arc<Event>>,
        at: engine::Timestamp,
    },
    Imported {
        id: SessionId,
    },
    Removed(bool),
    Tools(Vec<engine::ToolInfo>),
    Moved {
        id: SessionId,
        cwd: PathBuf,
    },
}

/// Why a call was not carried out. The text says what was wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Parse(String),
    FrameTooLong { limit_bytes: usize },
    InvalidRequest(String),
    UnknownMethod(String),
    InvalidParams(String),
    NoSuchSession { id: String },
    Internal(String),
}
