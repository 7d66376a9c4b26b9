//! Which parts of a text are secrets: keys and tokens by their shape, and values that are known.
//!
//! Nearly all text holds none, so it is only searched for marks: the beginnings that tokens are known
//! by (`ghp_`, `AKIA`), names that values are given to (`password=`), and the known values themselves,
//! as they are and encoded. Each mark that is found is judged by what stands around it. What makes a secret
//! recognisable stays: `sk-[REDACTED]`, `password=[REDACTED]`, `postgres://me:[REDACTED]@host`.
//!
//! A whole text and one in pieces are read by the same [`scan::Scan`], so they cannot differ.
//!
//! **Invariant:** what stands where a secret was is not taken for one.

mod filter;
mod forms;
mod json;
mod keyed;
mod known;
mod look;
mod marks;
mod names;
mod scan;
mod shapes;
mod stream;
#[cfg(test)]
mod tests;
mod views;

use std::sync::Arc;

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, MatchKind};
use engine::{Redactor, StreamRedactor};

pub use names::{is_secret_name, known_secrets};

use known::Known;
use marks::MARKS;
use scan::Scan;
use stream::Stream;

/// What stands where a secret was.
pub const REDACTED: &str = "[REDACTED]";

/// Finds secrets in texts. Made once, used by everybody.
pub struct Secrets(Arc<Tables>);

struct Tables {
    marks: DFA,
    start: StateID,
    known: Option<Known>,
}

impl Secrets {
    /// `known` are values that are secret wherever they stand, whatever they look like.
    pub fn new(known: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let marks = DFA::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .prefilter(false)
            .build(MARKS.iter().map(|(text, _)| *text))
            .map_err(|error| error.to_string())?;
        let start = marks.start_state(Anchored::No).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(Tables { marks, start, known: Known::new(known)? })))
    }
}

impl Redactor for Secrets {
    fn redact(&self, text: &str) -> Option<String> {
        let mut scan = Scan::new(&self.0);
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
        Box::new(Stream::new(Arc::clone(&self.0)))
    }
}
