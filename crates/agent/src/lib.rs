//! The built-in agent: takes a prompt, lets a model think, carries out the tools it calls.
//!
//! Read in this order: the agent and its sessions, a turn, what the model remembers, what it is
//! given, the models, the guard that every tool call passes, the tools.

mod agent;
mod commands;
mod context;
mod guard;
mod mcp;
mod model;
mod place;
mod prompt;
mod role;
mod rules;
mod seen;
mod summary;
mod thinker;
mod tools;
mod turn;
mod walk;

pub use agent::{Agent, AgentConfig, Reach};
pub use mcp::{McpConfig, ProjectServer, ReadProject, check_servers};
pub use model::{
    Image, Message, Model, ModelError, ModelErrorKind, ModelEvent, ModelInfo, ModelRequest, ModelStop,
    ModelStream, Native, Offline, Price, Thinking, ToolCall, ToolSpec,
};
