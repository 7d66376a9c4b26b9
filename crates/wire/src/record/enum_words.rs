//! Reads the words that stand for the engine's plain enums in a record.
//!
//! The words themselves are defined by the engine ([`engine::Stop::as_str`] and the like). This module has
//! the field names for errors about unknown words.

use engine::{
    Category, NoticeLevel, OutputStream, Priority, Resolution, Risk, StepStatus, Stop, ToolClass, ToolKind,
};

use super::RecordError;

pub(super) trait Word: Sized {
    fn read(word: &str) -> Result<Self, RecordError>;
}

macro_rules! words {
    ($($type:ty, $field:literal;)+) => {
        $(impl Word for $type {
            fn read(word: &str) -> Result<Self, RecordError> {
                Self::of_word(word)
                    .ok_or_else(|| RecordError::UnknownWord { field: $field, word: word.to_owned() })
            }
        })+
    };
}

words! {
    ToolKind, "kind of tool";
    ToolClass, "class of tool";
    Risk, "risk";
    Category, "category of a setting";
    Priority, "priority";
    StepStatus, "status of a step";
    OutputStream, "output stream";
    NoticeLevel, "level of a notice";
    Resolution, "resolution";
    Stop, "way to stop";
}
