//! The words that stand for the engine's plain enums in a record.
//!
//! Each table is written once and gives both directions; a new variant without a word does not
//! compile.

use engine::{
    Category, NoticeLevel, OutputStream, Priority, Resolution, Risk, StepStatus, Stop, ToolClass, ToolKind,
};

use super::RecordError;

pub(crate) trait Word: Sized {
    fn word(&self) -> &'static str;
    fn of_word(word: &str) -> Result<Self, RecordError>;
}

macro_rules! words {
    ($type:ty, $field:literal, $($variant:ident = $word:literal),+ $(,)?) => {
        impl Word for $type {
            fn word(&self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            fn of_word(word: &str) -> Result<Self, RecordError> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(RecordError::UnknownWord { field: $field, word: word.to_owned() }),
                }
            }
        }
    };
}

words!(
    ToolKind,
    "kind of tool",
    Read = "read",
    Edit = "edit",
    Delete = "delete",
    Move = "move",
    Search = "search",
    Execute = "execute",
    Think = "think",
    Fetch = "fetch",
    SwitchMode = "switch_mode",
    Other = "other",
);
words!(ToolClass, "class of tool", Read = "read", Edit = "edit", Execute = "execute", Network = "network");
words!(Risk, "risk", Low = "low", Medium = "medium", High = "high", Critical = "critical");
words!(
    Category,
    "category of a setting",
    Mode = "mode",
    Model = "model",
    ModelConfig = "model_config",
    ThoughtLevel = "thought_level",
    Other = "other",
);
words!(Priority, "priority", High = "high", Medium = "medium", Low = "low");
words!(
    StepStatus,
    "status of a step",
    Pending = "pending",
    InProgress = "in_progress",
    Completed = "completed",
);
words!(OutputStream, "output stream", Stdout = "stdout", Stderr = "stderr");
words!(
    NoticeLevel,
    "level of a notice",
    Info = "info",
    Warning = "warning",
    Error = "error",
    Damage = "damage"
);
words!(
    Resolution,
    "resolution",
    AllowedOnce = "allowed_once",
    AllowedAlways = "allowed_always",
    DeniedOnce = "denied_once",
    DeniedAlways = "denied_always",
    Cancelled = "cancelled",
    TimedOut = "timed_out",
    EndedByRestart = "ended_by_restart",
);
words!(
    Stop,
    "way to stop",
    EndTurn = "end_turn",
    MaxTokens = "max_tokens",
    MaxTurnRequests = "max_turn_requests",
    Refusal = "refusal",
    Cancelled = "cancelled",
    Failed = "failed",
    Interrupted = "interrupted",
);
