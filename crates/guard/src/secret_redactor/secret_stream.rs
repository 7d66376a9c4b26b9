//! Redacts a text that arrives in pieces.

use std::sync::Arc;

use engine::{RedactedPiece, StreamRedactor};

use super::Tables;
use super::secret_scan::SecretScan;

/// Text that is no longer needed is dropped from this size on; below it the copying is not worth it.
const FORGET_BYTES_MIN: usize = 2048;
/// A buffer that a long piece made larger than this is shrunk again.
const ROOM_BYTES_MAX: usize = 64 << 10;

pub(super) struct SecretStream {
    tables: Arc<Tables>,
    scan: SecretScan,
    /// The original text: the part that is held back, and before it the part that judgements may still read.
    text: String,
}

impl SecretStream {
    pub(super) fn new(tables: Arc<Tables>) -> Self {
        Self { scan: SecretScan::new(&tables), tables, text: String::new() }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.text.len() - self.scan.released_upto()
    }

    fn forget(&mut self) {
        let needed = self.text.floor_char_boundary(self.scan.needed_from(&self.tables));
        if needed < FORGET_BYTES_MIN {
            return;
        }
        self.text.drain(..needed);
        self.scan.shift(needed);
        if self.text.capacity() > ROOM_BYTES_MAX {
            self.text.shrink_to(FORGET_BYTES_MIN);
        }
    }
}

impl StreamRedactor for SecretStream {
    fn push(&mut self, piece: &str) -> RedactedPiece {
        let (begins, released_upto) = (self.text.len(), self.scan.released_upto());
        self.text.push_str(piece);
        let hold = self.scan.read(&self.tables, &self.text, true);
        let released = match self.scan.release(&self.text, hold) {
            Some(text) => RedactedPiece::Text(text),
            None if released_upto == begins && hold == self.text.len() => RedactedPiece::Unchanged,
            None => RedactedPiece::Text(self.text[released_upto..self.scan.released_upto()].to_owned()),
        };
        self.forget();
        released
    }

    fn pause(&mut self) -> Option<String> {
        let released_upto = self.scan.released_upto();
        if released_upto == self.text.len() {
            return None;
        }
        let released = self.scan.release_all(&self.tables, &self.text);
        Some(released.unwrap_or_else(|| self.text[released_upto..].to_owned()))
    }
}
