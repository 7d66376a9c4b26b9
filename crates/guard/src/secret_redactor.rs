//! Finds secrets in texts: keys and tokens by their shape, and values that are known to be secret.
//!
//! Nearly all text holds none, so it is only searched for marks: the prefixes that tokens are known by (`ghp_`,
//! `AKIA`), names that values are assigned to (`password=`), and the known values themselves, plain and encoded. Each
//! mark that is found is judged by the text around it. The part that identifies a secret stays: `sk-[REDACTED]`,
//! `password=[REDACTED]`, `postgres://me:[REDACTED]@host`.
//!
//! A complete text and a stream of pieces are read by the same [`secret_scan::SecretScan`], so their results cannot
//! differ.
//!
//! **Invariant:** the placeholder that replaces a secret is not taken for a secret.
//!
//! Where events pass it on their way into the log: `engine/src/event_redaction.rs`.

mod encodings;
mod escapes;
mod json;
mod known_values;
mod named_values;
mod prefilter;
mod secret_indicators;
mod secret_scan;
mod secret_stream;
#[cfg(test)]
mod tests;
mod text_around_match;
mod token_shapes;
mod variable_names;

use std::sync::Arc;

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, MatchKind};
use engine::{Redactor, StreamRedactor};

pub use variable_names::{is_secret_name, known_secrets};

use known_values::KnownValues;
use secret_indicators::MARKS;
use secret_scan::SecretScan;
use secret_stream::SecretStream;

/// The placeholder that replaces a secret.
pub const REDACTED: &str = "[REDACTED]";

/// Finds secrets in texts and replaces them. Created once and shared.
pub struct SecretRedactor(Arc<Tables>);

struct Tables {
    marks: DFA,
    start: StateID,
    known: Option<KnownValues>,
}

impl SecretRedactor {
    /// `known` are values that are secret wherever they occur, whatever they look like.
    pub fn new(known: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let marks = DFA::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .prefilter(false)
            .build(MARKS.iter().map(|(text, _)| *text))
            .map_err(|error| error.to_string())?;
        let start = marks.start_state(Anchored::No).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(Tables { marks, start, known: KnownValues::new(known)? })))
    }
}

impl Redactor for SecretRedactor {
    fn redact(&self, text: &str) -> Option<String> {
        let mut scan = SecretScan::new(&self.0);
        let end = scan.read(&self.0, text, false);
        scan.release(text, end)
    }

    fn redact_json(&self, json: &str) -> Option<String> {
        json::redact(self, json)
    }

    fn is_in_base64(&self, data: &str) -> bool {
        self.0.known.as_ref().is_some_and(|known| known.is_in(data))
    }

    fn stream(&self) -> Box<dyn StreamRedactor> {
        Box::new(SecretStream::new(Arc::clone(&self.0)))
    }
}
