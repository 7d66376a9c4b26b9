//! The words for the engine's plain enums.
//!
//! They are the words of the stored form, so none of them ever changes. Code that shows or counts such a value
//! uses them too, unless its contract names another word. Each table is written once and gives both
//! directions; a new variant without a word does not compile.

use crate::content::{OutputStream, Priority, StepStatus, ToolKind};
use crate::event::{NoticeLevel, Resolution, Risk, Stop, ToolClass};
use crate::settings::Category;
use crate::stored_rules::RuleEffect;

macro_rules! words {
    ($type:ty, $($variant:ident = $word:literal),+ $(,)?) => {
        impl $type {
            /// Every value, in the order of the variants.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value that this is the word for.
            pub fn of_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

words!(
    ToolKind,
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
words!(ToolClass, Read = "read", Edit = "edit", Execute = "execute", Network = "network");
words!(Risk, Low = "low", Medium = "medium", High = "high", Critical = "critical");
words!(
    Category,
    Mode = "mode",
    Model = "model",
    ModelConfig = "model_config",
    ThoughtLevel = "thought_level",
    Other = "other",
);
words!(Priority, High = "high", Medium = "medium", Low = "low");
words!(StepStatus, Pending = "pending", InProgress = "in_progress", Completed = "completed");
words!(OutputStream, Stdout = "stdout", Stderr = "stderr");
words!(NoticeLevel, Info = "info", Warning = "warning", Error = "error", Damage = "damage");
words!(
    Resolution,
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
    EndTurn = "end_turn",
    MaxTokens = "max_tokens",
    MaxTurnRequests = "max_turn_requests",
    Refusal = "refusal",
    Cancelled = "cancelled",
    Failed = "failed",
    Interrupted = "interrupted",
);
words!(RuleEffect, Allow = "allow", Ask = "ask", Deny = "deny");

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! round {
        ($($type:ty: $words:literal),+ $(,)?) => {
            $({
                let words: Vec<&str> = <$type>::ALL.iter().map(|value| value.as_str()).collect();
                assert_eq!(words.join(" "), $words, stringify!($type));
                for value in <$type>::ALL {
                    assert_eq!(<$type>::of_word(value.as_str()), Some(*value));
                }
                assert_eq!(<$type>::of_word("of no use"), None);
            })+
        };
    }

    /// They stand in stores of every version, so this list is only ever added to.
    #[test]
    fn each_word_is_read_back_and_none_has_changed() {
        round!(
            ToolKind: "read edit delete move search execute think fetch switch_mode other",
            ToolClass: "read edit execute network",
            Risk: "low medium high critical",
            Category: "mode model model_config thought_level other",
            Priority: "high medium low",
            StepStatus: "pending in_progress completed",
            OutputStream: "stdout stderr",
            NoticeLevel: "info warning error damage",
            Resolution: "allowed_once allowed_always denied_once denied_always cancelled timed_out ended_by_restart",
            Stop: "end_turn max_tokens max_turn_requests refusal cancelled failed interrupted",
            RuleEffect: "allow ask deny",
        );
    }
}
