//! A text that comes in pieces.

use std::sync::Arc;

use engine::{Released, StreamRedactor};

use super::Tables;
use super::scan::Scan;

/// From here on it is worth the copying to forget what is needed no more.
const FORGET_BYTES_MIN: usize = 2048;
/// After a long piece the room for it is given back.
const ROOM_BYTES_MAX: usize = 64 << 10;

pub(super) struct Stream {
    tables: Arc<Tables>,
    scan: Scan,
    /// The text as it came: what is held, and before it what judgements may still look at.
    text: String,
}

impl Stream {
    pub(super) fn new(tables: Arc<Tables>) -> Self {
        Self { scan: Scan::new(&tables), tables, text: String::new() }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.text.len() - self.scan.let_out()
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

impl StreamRedactor for Stream {
    fn push(&mut self, piece: &str) -> Released {
        let (begins, let_out) = (self.text.len(), self.scan.let_out());
        self.text.push_str(piece);
        let hold = self.scan.read(&self.tables, &self.text, true);
        let released = match self.scan.release(&self.text, hold) {
            Some(text) => Released::Text(text),
            None if let_out == begins && hold == self.text.len() => Released::Unchanged,
            None => Released::Text(self.text[let_out..self.scan.let_out()].to_owned()),
        };
        self.forget();
        released
    }

    fn pause(&mut self) -> Option<String> {
        let let_out = self.scan.let_out();
        if let_out == self.text.len() {
            return None;
        }
        let released = self.scan.release_all(&self.tables, &self.text);
        Some(released.unwrap_or_else(|| self.text[let_out..].to_owned()))
    }
}
