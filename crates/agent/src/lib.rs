//! The built-in agent: takes a prompt, lets a model think, carries out the tools it calls.
//!
//! Read in this order: the agent and its sessions, a turn, what the model remembers, what it is
//! given, the models, the guard that every tool call passes, the tools.

mod agent;
mod background;
mod budget;
mod certificate;
mod commands;
mod compaction;
mod context;
mod guard;
mod host;
mod knowledge;
mod links;
mod mcp;
mod model;
mod place;
mod pointing;
mod prompt;
mod review;
mod role;
mod screen;
mod seen;
mod sight;
mod summary;
mod suspicion;
mod thinker;
mod title;
mod tools;
mod turn;
mod undo;
mod walk;
mod web;

pub use agent::{Agent, AgentConfig, BridgeView, Reach, ReadAudit, ReadBridge};
pub use budget::{Budget, Costs, Spending};
pub use knowledge::KnowledgeConfig;
pub use mcp::{McpConfig, ProjectServer, ReadProject, check_servers, consent_digest, consent_subject};
pub use model::{
    Asking, Decoder, Image, LongPrice, Message, Model, ModelError, ModelErrorKind, ModelEvent, ModelInfo,
    ModelRequest, ModelStop, ModelStream, Native, Offline, Omit, Price, Provider, ProviderConfig, Secret,
    Thinking, Timeouts, ToolCall, ToolSpec, Wire, catalog,
};
pub use role::AgentInfo;
pub use tools::tools_named;
pub use undo::ForgetsUndo;
pub use web::{Names, WebReach, is_public};
