//! Tool servers (MCP): programs and addresses, named by a client or a person, that add tools to a session.
//!
//! The engine only passes them to the backend. They are stored nowhere: their variables and headers may be secret.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::ToolInfo;

/// The tool name of a request to start a tool server that a project names. No real tool has this name. Only
/// the owner at the machine can allow it, by [`crate::Act::Consent`].
pub const SERVER_CONSENT: &str = "mcp_server";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServer {
    pub name: Arc<str>,
    pub transport: ServerTransport,
}

/// How a tool server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerTransport {
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

/// Values of variables and headers are not printed.
impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Child { command, .. } => f.debug_tuple("Child").field(command).finish(),
            Self::Http { .. } => f.debug_tuple("Http").finish(),
        }
    }
}

/// The status of a session's tool server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    pub name: Arc<str>,
    /// `stdio` or `http`.
    pub transport: &'static str,
    pub state: ServerState,
    /// Its tools, under the names that the model knows.
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
    fn list(&self) -> Vec<ServerStatus>;

    /// Adds one, or replaces the one of the same name. The error says what is wrong with it.
    fn add(&self, server: ToolServer) -> Result<(), String>;

    /// Ends one. Says whether there was one.
    fn remove(&self, name: &str) -> bool;
}
