//! The wall between what is said and what is written: secrets are taken out before anything is in the
//! log, and therefore before anybody sees it.

/// Knows secrets when it sees them.
///
/// A text may come in pieces of any size. Then `text` is a little of what was let out before, preceded by
/// a line end if it is from the beginning, followed by what is new, and `from` says where the new part
/// begins. Whatever the pieces, what is let out is together the same.
pub trait Redactor: Send + Sync + 'static {
    /// Takes the secrets out of `text[from..]`. With `more` to come, what may be the beginning of a
    /// secret is held at the end.
    fn clean(&self, text: &str, from: usize, more: bool) -> Cleaned;

    /// A JSON text without its secrets, and still JSON, or none if there was nothing to take out. A
    /// text that is no JSON is redacted like any other.
    fn redact_json(&self, json: &str) -> Option<String>;

    /// The text without its secrets, or none if there was nothing to take out.
    fn redact(&self, text: &str) -> Option<String> {
        self.clean(text, 0, false).text
    }

    /// How many bytes at the end of a text that is still growing may be the beginning of a secret.
    fn unfinished(&self, text: &str) -> usize {
        self.clean(text, 0, true).held
    }
}

/// What came of a piece of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// What may be let out, or none if that is the piece just as it was, but for its end that is held.
    pub text: Option<String>,
    /// Bytes at the end that are to be given again, with more behind them.
    pub held: usize,
}

/// How much of what was let out must be given as context, at most and in bytes.
pub const CONTEXT_BYTES: usize = 128;
