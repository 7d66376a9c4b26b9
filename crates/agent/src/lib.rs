//! The built-in coding agent: takes a prompt, calls a model, and runs the tools that the model calls.
//!
//! Reading order: the agent and its sessions, a turn, what the model remembers, the prompt, the models, the
//! guard that every tool call passes, the tools.

mod agent;
mod background;
mod budget;
mod certificate;
mod commands;
mod compaction;
mod context;
mod guard;
mod host;
mod image_fallback;
mod injection_markers;
mod knowledge;
mod links;
mod mcp;
mod model;
mod prompt;
mod read_versions;
mod reveal_hints;
mod review;
mod role;
mod search_filter;
mod summary;
mod title;
mod tools;
mod turn;
mod turn_loop;
mod undo;
mod walk;
mod web;
mod workspace;

pub use agent::{AccessConfig, Agent, AgentConfig, BridgeView, ReadAudit, ReadBridge};
pub use budget::{Budget, Costs, DailySpending};
pub use knowledge::KnowledgeConfig;
pub use mcp::{McpConfig, ProjectServer, ReadProject, check_servers, consent_digest, consent_subject};
pub use model::{
    Decoder, Image, LongPrice, Message, Model, ModelError, ModelErrorKind, ModelEvent, ModelInfo,
    ModelRequest, ModelStop, ModelStream, NativeReply, Offline, Omit, Price, Provider, ProviderConfig,
    Secret, Thinking, Timeouts, ToolCall, ToolSpec, Wire, WireOptions, catalog,
};
pub use role::AgentInfo;
pub use tools::tools_named;
pub use undo::UndoCleanup;
pub use web::{HostResolver, WebAccess, is_public};
