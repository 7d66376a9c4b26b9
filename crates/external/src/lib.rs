//! External agents: other programs that speak the Agent Client Protocol (ACP), used as backends of our
//! sessions.
//!
//! A [`ChildProcess`] is a running agent program, an [`AgentConnection`] is the JSON-RPC conversation with
//! it, and [`HostServices`] are the files and terminals that we offer it.

mod agent_journal;
mod agent_process;
mod backend;
mod child_process;
mod connection;
mod host_services;
mod process_pool;
mod session;

pub use agent_journal::{AgentJournal, JournalSender};
pub use backend::{AgentTimeouts, ExternalBackend, ExternalConfig, Folders, PolicyFactory};
pub use child_process::{ChildProcess, LaunchError, LaunchSpec, ProcessEnd, ProcessEvent, environment};
pub use connection::{
    AgentConnection, AgentMessage, ConnectionEnd, ConnectionError, ConnectionLimits, DeferredReply,
    InvalidOutput, MessageReceiver, RequestOptions, RpcError,
};
pub use host_services::{ByteCounter, Grant, HostServices, HostServicesSpec};
pub use session::OutputLimits;
