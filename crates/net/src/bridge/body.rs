//! The one place where something becomes a body for the receiver, and where a body from it is read.
//!
//! Plain bodies are the JSON itself. Whoever wants them sealed seals them here, and nothing else of the
//! bridge has to know.

use engine::SessionId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use super::trouble::Trouble;

/// What a body is about: what is sealed for one place must not pass for something else in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About<'a> {
    Event { session: &'a SessionId, seq: u64 },
    View { session: &'a SessionId, upto: u64 },
    Card { session: &'a SessionId },
    Call { call: u64, operator: &'a str },
    Answer { call: u64, operator: &'a str },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Bodies;

impl Bodies {
    /// The receiver cannot read what these make.
    pub fn are_sealed(&self) -> bool {
        false
    }

    pub fn body(&self, _about: &About<'_>, json: &impl Serialize) -> Result<Box<RawValue>, Trouble> {
        to_raw_value(json).map_err(Trouble::malformed)
    }

    pub fn read<T: DeserializeOwned>(&self, _about: &About<'_>, body: &RawValue) -> Result<T, Trouble> {
        serde_json::from_str(body.get()).map_err(Trouble::malformed)
    }
}
