//! The interface of the redactor: secrets are removed before anything is in the
//! log, and therefore before anybody sees it.
//!
//! Events are redacted by `event_redaction.rs`; what finds secrets is `guard/src/secret_redactor.rs`.

/// Recognises secrets.
pub trait Redactor: Send + Sync + 'static {
    /// The text without its secrets, or none if there was nothing to take out.
    fn redact(&self, text: &str) -> Option<String>;

    /// A JSON text without its secrets, and still JSON, or none if there was nothing to take out. A
    /// text that is no JSON is redacted like any other.
    fn redact_json(&self, json: &str) -> Option<String>;

    /// Whether these bytes, given in base64, contain a known secret value.
    fn is_in_base64(&self, data: &str) -> bool;

    /// Begins a text that comes in pieces.
    fn stream(&self) -> Box<dyn StreamRedactor>;
}

/// Takes the secrets out of one text that comes in pieces of any size.
///
/// However the text is cut, what is let out is together what [`Redactor::redact`] makes of the whole. Only a
/// pause in the middle of a secret can differ: what was not known for one by then has been let out.
pub trait StreamRedactor: Send + Sync {
    /// Takes the next piece. Text that may be the beginning of a secret is held until more comes.
    fn push(&mut self, piece: &str) -> RedactedPiece;

    /// Releases the held text, judged as if the stream ended here; `None` if nothing is held. The stream may
    /// continue all the same.
    fn pause(&mut self) -> Option<String>;
}

/// The text that can be released after a piece came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedactedPiece {
    /// The piece exactly as it came, and nothing else.
    Unchanged,
    /// This, which may be empty.
    Text(String),
}
