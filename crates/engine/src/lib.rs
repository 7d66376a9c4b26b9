//! What a session is, independent of the wire, the storage and the agent.
//!
//! Read in this order: ids, content, events, the log, the state machine,
//! its task, and the registry of all sessions.
#![warn(clippy::wildcard_enum_match_arm)]

mod authority;
mod backend;
mod client_host;
mod content;
pub mod diff;
mod enum_words;
mod event;
mod event_log;
mod event_redaction;
mod follow_log;
mod function_backend;
mod ids;
mod memory_store;
mod no_such_tool;
mod permission_policy;
mod redactor_trait;
mod registry;
mod review;
mod session;
mod session_handle;
mod session_task;
mod session_title;
mod settings;
mod store;
mod stored_rules;
#[cfg(test)]
mod testing;
pub mod timestamp;
mod tool_servers;

pub use authority::{Act, CallerKind, ConsentKind, EDITOR_TERMINAL, Forbidden, Standing, may};
pub use backend::{
    Abilities, Backend, BackendReport, BackendSession, BoxFuture, Extensions, ForeignError, ForeignGreeting,
    Greeting, NewEvent, PermissionOutcome, ReportKind, SessionContext, SessionGone, SessionOffer,
    SessionSpec, ToolInfo, TurnContext, TurnError, TurnInput,
};
pub use client_host::{
    EDITOR_SILENT, Host, HostAbilities, HostCall, HostError, HostLink, HostReply, NewTerminal, TerminalId,
    TerminalOutput,
};
pub use content::{
    CommandSpec, Content, Exit, FileChange, Location, Opaque, OutputStream, PlanEntry, Priority,
    ResourceLink, StepStatus, ToolContent, ToolKind,
};
pub use event::{
    AskOption, AskRequest, Body, ContextEvent, Event, Family, ForeignAsk, NoticeLevel, Origin,
    PermissionEvent, Question, Resolution, Resolver, Risk, SetupEvent, SpeechEvent, Stop, ToolChange,
    ToolClass, ToolEnd, ToolEvent, ToolStart, TurnEvent, Usage,
};
pub use event_log::{Doorbell, LogRead, LogReader, Subscription};
pub use follow_log::follow_log;
pub use function_backend::FunctionBackend;
pub use ids::{
    AskId, BadSessionId, CallId, Clock, Epoch, MessageId, Principal, SESSION_ID_CHARS_MAX, Seq, SessionId,
    SurfaceId, SystemClock, Timestamp, TurnId,
};
pub use memory_store::MemoryStore;
pub use no_such_tool::NoSuchTool;
pub use permission_policy::{Ruling, decide};
pub use redactor_trait::{RedactedPiece, Redactor, StreamRedactor};
pub use registry::{
    FolderEntry, FolderSession, Follower, FollowerFault, History, HistoryPiece, ListedSession, MakeId,
    NewSessionRequest, OpenError, Registry, RegistryParts, SessionFolders, SessionHold, SessionLimits,
};
pub use review::{ChangedFile, ChangedHunk, Review, revert_prompt};
pub use session::{
    Effect, Input, PermissionAnswer, PromptRecord, Refusal, Sender, Session, Totals, TurnReport,
};
pub use session_handle::{InputReceipt, SendError, SessionHandle, SessionOrigin, Snapshot};
pub use session_title::{first_words, is_hidden};
pub use settings::{
    APPROVAL, Category, Choice, FULL_APPROVAL, MODE, MODEL, SettingSpec, Settings, TEMPERATURE, THINKING,
    approval_spec, full_id, full_name, sets_approval,
};
pub use store::{
    Claim, DAMAGE_NOTICE, EventBatch, EventSource, ListQuery, NewSession, POSITIONS_RESERVED,
    POSITIONS_SKIPPED_MAX, PageRequest, RunningTurns, SessionRow, Store, StoreError, StoreFault, StoreResult,
};
pub use stored_rules::{
    MemoryRules, PermissionRules, RULES_UNREADABLE, RememberedAnswer, RuleEffect, RuleHit, RuleScope,
};
pub use tool_servers::{SERVER_CONSENT, ServerState, ServerStatus, ServerTransport, ToolServer, ToolServers};
