//! The built-in coding agent: takes a prompt, calls a model, and runs the tools that the model calls.
//!
//! Reading order: the agent and its sessions, a turn, what the model remembers, the prompt, the models, the
//! guard that every tool call passes, the tools.

mod agent;
mod background_commands;
mod budget;
mod certificate_refusal;
mod commands;
mod compaction;
mod context;
mod editor_files;
mod editor_reveal_hints;
mod file_walk;
mod image_fallback;
mod injection_markers;
mod knowledge;
mod last_read_versions;
mod linked_pages;
mod mcp;
mod model;
mod review_for_clients;
mod role;
mod search_permission_filter;
mod summary_without_model;
mod title;
mod tool_guard;
mod tools;
mod turn;
mod turn_loop;
mod undo;
mod user_prompt;
mod web_fetch;
mod workspace;

pub use agent::{Agent, AgentConfig, BridgeView, ReadAudit, ReadBridge, ToolAccess};
pub use budget::{Budget, DailySpending, TurnCosts};
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
pub use web_fetch::{HostResolver, WebAccess, is_public};
