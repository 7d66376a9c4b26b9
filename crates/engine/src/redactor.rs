//! The wall between what is said and what is written: secrets are taken out before anything is in the
//! log, and therefore before anybody sees it.

/// Knows secrets when it sees them.
pub trait Redactor: Send + Sync + 'static {
    /// The text without its secrets, or none if there was nothing to take out.
    fn redact(&self, text: &str) -> Option<String>;

    /// A JSON text without its secrets, and still JSON, or none if there was nothing to take out. A
    /// text that is no JSON is redacted like any other.
    fn redact_json(&self, json: &str) -> Option<String>;

    /// Whether a value that is known to be secret stands in these bytes, which are given in base64.
    fn is_in_base64(&self, data: &str) -> bool;

    /// Begins a text that comes in pieces.
    fn stream(&self) -> Box<dyn StreamRedactor>;
}

/// Takes the secrets out of one text that comes in pieces of any size.
///
/// However the text is cut, what is let out is together what [`Redactor::redact`] makes of the whole. Only a
/// pause in the middle of a secret can differ: what was not known for one by then has been let out.
pub trait StreamRedactor: Send + Sync {
    /// Takes the next piece. What may be the beginning of a secret is held until more comes.
    fn push(&mut self, piece: &str) -> Released;

    /// Lets out what is held, judged as if the text ended here, or none if nothing is held. The text may go
    /// on all the same.
    fn pause(&mut self) -> Option<String>;
}

/// What can be let out after a piece came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The piece just as it came, and nothing else.
    Unchanged,
    /// This, which may be empty.
    Text(String),
}
