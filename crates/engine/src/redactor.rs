//! The wall between what is said and what is written: secrets are taken out before anything is in the
//! log, and therefore before anybody sees it.

/// Knows secrets when it sees them.
pub trait Redactor: Send + Sync + 'static {
    /// The text without its secrets, or none if there was nothing to take out.
    fn redact(&self, text: &str) -> Option<String>;

    /// How many bytes at the end of a text that is still growing may be the beginning of a secret. They
    /// are held back until more is known.
    fn unfinished(&self, text: &str) -> usize;
}
