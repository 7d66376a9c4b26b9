//! Tool servers: programs and addresses, named by a client or a person, that bring tools of their own to a
//! session.
//!
//! The engine only carries them to the backend. They are written nowhere: what they are given may be secret.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::ToolInfo;

/// What a wish to start a tool server that a project names calls its tool. No name of a tool is like it.
/// The owner at the machine alone allows it, by [`crate::Act::Consent`].
pub const SERVER_CONSENT: &str = "mcp_server";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServer {
    pub name: Arc<str>,
    pub way: ServerWay,
}

/// How a tool server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerWay {
    /// A program that is started for the session and spoken to through its pipes.
    Child {
        command: PathBuf,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    },
    Http {
        url: Arc<str>,
        headers: Vec<(String, String)>,
    },
}

/// Values of variables and headers are nobody's business.
impl fmt::Debug for ServerWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Child { command, .. } => f.debug_tuple("Child").field(command).finish(),
            Self::Http { .. } => f.debug_tuple("Http").finish(),
        }
    }
}

/// A tool server of a session at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerView {
    pub name: Arc<str>,
    /// `stdio` or `http`.
    pub transport: &'static str,
    pub state: ServerState,
    /// What it brings, under the names that the model knows.
    pub tools: Vec<ToolInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// Connected when a turn first needs it.
    Idle,
    Starting,
    Ready,
    /// Tried again later.
    Failed {
        reason: Arc<str>,
    },
    /// Named by the project, and the person has not allowed it.
    Refused,
}

/// The tool servers of one session.
pub trait ToolServers: Send + Sync + 'static {
    fn list(&self) -> Vec<ServerView>;

    /// Adds one, or replaces the one of the same name. The error says what is wrong with it.
    fn add(&self, server: ToolServer) -> Result<(), String>;

    /// Ends one. Says whether there was one.
    fn remove(&self, name: &str) -> bool;
}
