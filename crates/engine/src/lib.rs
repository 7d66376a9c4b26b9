//! What a session is, apart from how it is spoken to, stored or thought about.
//!
//! Read in this order: the names, what can be said, what can happen, the log, the state machine,
//! its task, and the house that keeps all sessions.
#![warn(clippy::wildcard_enum_match_arm)]

mod authority;
mod backend;
mod content;
pub mod diff;
mod event;
mod follow_log;
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
mod servers;
mod session;
mod settings;
mod store;
mod task;
#[cfg(test)]
mod testing;
mod title;
mod turns;
mod words;

pub use authority::{Act, CallerKind, ConsentKind, EDITOR_TERMINAL, Forbidden, Standing, may};
pub use backend::{
    Abilities, Backend, BackendSession, BoxFuture, Extensions, ForeignError, ForeignGreeting, Greeting,
    Offer, Report, ReportKind, Said, SessionContext, SessionGone, SessionSpec, ToolInfo, TurnContext,
    TurnError, TurnInput, Verdict,
};
pub use content::{
    CommandSpec, Content, Exit, FileChange, Link, Location, Opaque, OutputStream, PlanEntry, Priority,
    StepStatus, ToolContent, ToolKind,
};
pub use event::{
    AskOption, AskRequest, Body, ContextEvent, Event, Family, ForeignAsk, NoticeLevel, Origin,
    PermissionEvent, Question, Resolution, Resolver, Risk, SetupEvent, SpeechEvent, Stop, ToolChange,
    ToolClass, ToolEnd, ToolEvent, ToolStart, TurnEvent, Usage,
};
pub use follow_log::follow_log;
pub use handle::{Accepted, Birth, SendError, SessionHandle, Snapshot};
pub use host::{
    EDITOR_SILENT, Host, HostAbilities, HostCall, HostError, HostLink, HostReply, NewTerminal, TerminalId,
    TerminalOutput,
};
pub use ids::{
    AskId, BadSessionId, CallId, Clock, Epoch, MessageId, Principal, SESSION_ID_CHARS_MAX, Seq, SessionId,
    SurfaceId, SystemClock, Timestamp, TurnId,
};
pub use log::{Doorbell, LogReader, Subscription, Taken};
pub use memory::MemoryStore;
pub use no_such_tool::NoSuchTool;
pub use policy::{Ruling, decide};
pub use redactor::{Redactor, Released, StreamRedactor};
pub use registry::{
    FolderEntry, FolderSession, Follower, FollowerFault, History, HistoryPiece, Limits, Listed, MakeId,
    OpenError, Registry, RegistryParts, SessionFolders, SessionHold, Wish,
};
pub use review::{Changed, ChangedHunk, Review, revert_prompt};
pub use rules::{MemoryRules, RULES_UNREADABLE, Remembered, RuleEffect, RuleHit, RuleScope, Rules};
pub use servers::{SERVER_CONSENT, ServerState, ServerView, ServerWay, ToolServer, ToolServers};
pub use session::{Answer, Effect, Input, Prompted, Refusal, Sender, Session, Totals, TurnReport};
pub use settings::{
    APPROVAL, Category, Choice, FULL_APPROVAL, MODE, MODEL, SettingSpec, Settings, TEMPERATURE, THINKING,
    approval_spec, full_id, full_name, sets_approval,
};
pub use store::{
    Batch, Claim, DAMAGE_NOTICE, EventSource, ListQuery, NewSession, POSITIONS_RESERVED,
    POSITIONS_SKIPPED_MAX, Page, SessionRow, Store, StoreError, StoreFault, StoreResult,
};
pub use title::{first_words, is_hidden};
pub use turns::Turns;
