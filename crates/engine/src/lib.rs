//! What a session is, independent of the wire, the storage and the agent.
//!
//! Read in this order: ids, content, events, the log, the state machine,
//! its task, and the registry of all sessions.
#![warn(clippy::wildcard_enum_match_arm)]

mod authority;
mod backend;
mod content;
pub mod diff;
mod event;
mod follow_log;
mod function_backend;
mod handle;
mod host;
mod ids;
mod log;
mod memory;
mod no_such_tool;
mod policy;
mod redaction;
mod redactor;
mod registry;
mod review;
mod rules;
mod session;
mod settings;
mod store;
mod task;
#[cfg(test)]
mod testing;
pub mod timestamp;
mod title;
mod tool_servers;
mod words;

pub use authority::{Act, CallerKind, ConsentKind, EDITOR_TERMINAL, Forbidden, Standing, may};
pub use backend::{
    Abilities, Backend, BackendReport, BackendSession, BoxFuture, Extensions, ForeignError, ForeignGreeting,
    Greeting, NewEvent, PermissionOutcome, ReportKind, SessionContext, SessionGone, SessionOffer,
    SessionSpec, ToolInfo, TurnContext, TurnError, TurnInput,
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
pub use follow_log::follow_log;
pub use function_backend::FunctionBackend;
pub use handle::{InputReceipt, SendError, SessionHandle, SessionOrigin, Snapshot};
pub use host::{
    EDITOR_SILENT, Host, HostAbilities, HostCall, HostError, HostLink, HostReply, NewTerminal, TerminalId,
    TerminalOutput,
};
pub use ids::{
    AskId, BadSessionId, CallId, Clock, Epoch, MessageId, Principal, SESSION_ID_CHARS_MAX, Seq, SessionId,
    SurfaceId, SystemClock, Timestamp, TurnId,
};
pub use log::{Doorbell, LogRead, LogReader, Subscription};
pub use memory::MemoryStore;
pub use no_such_tool::NoSuchTool;
pub use policy::{Ruling, decide};
pub use redactor::{RedactedPiece, Redactor, StreamRedactor};
pub use registry::{
    FolderEntry, FolderSession, Follower, FollowerFault, History, HistoryPiece, ListedSession, MakeId,
    NewSessionRequest, OpenError, Registry, RegistryParts, SessionFolders, SessionHold, SessionLimits,
};
pub use review::{ChangedFile, ChangedHunk, Review, revert_prompt};
pub use rules::{
    MemoryRules, PermissionRules, RULES_UNREADABLE, RememberedAnswer, RuleEffect, RuleHit, RuleScope,
};
pub use session::{
    Effect, Input, PermissionAnswer, PromptRecord, Refusal, Sender, Session, Totals, TurnReport,
};
pub use settings::{
    APPROVAL, Category, Choice, FULL_APPROVAL, MODE, MODEL, SettingSpec, Settings, TEMPERATURE, THINKING,
    approval_spec, full_id, full_name, sets_approval,
};
pub use store::{
    Claim, DAMAGE_NOTICE, EventBatch, EventSource, ListQuery, NewSession, POSITIONS_RESERVED,
    POSITIONS_SKIPPED_MAX, PageRequest, SessionRow, Store, StoreError, StoreFault, StoreResult,
};
pub use title::{first_words, is_hidden};
pub use tool_servers::{SERVER_CONSENT, ServerState, ServerStatus, ServerTransport, ToolServer, ToolServers};
