//! A look at a text around a mark: what stands before it, and how far a run of characters goes.

use super::shapes::is_word;

/// What a mark turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Nothing,
    Secret {
        from: usize,
        to: usize,
    },
    /// What comes next decides; from here on the text is held.
    Open {
        from: usize,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) text: &'a str,
    /// The text is not at its end.
    pub(super) more: bool,
    /// Nothing stands before the text.
    pub(super) fresh: bool,
    /// Where the last secret ended. What is in it is not looked at again, just as if it were not there.
    pub(super) floor: usize,
}

/// A run of characters of one sort.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) text: &'a str,
    pub(super) end: usize,
    /// It may go on with what is still to come.
    pub(super) open: bool,
    /// The byte behind it.
    pub(super) next: Option<u8>,
}

/// How far back an escape sequence that colours a terminal is looked for.
const COLOUR_BYTES_MAX: usize = 12;

impl<'a> Look<'a> {
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.bytes().get(at).copied()
    }

    /// The run of such characters from here, at most `max` bytes of it. What ends a run is ASCII, or
    /// the run is, so it ends between characters.
    pub(super) fn run(&self, from: usize, max: usize, belongs: impl Fn(u8) -> bool) -> Run<'a> {
        let rest = &self.bytes()[from..];
        let within = &rest[..rest.len().min(max)];
        let length = within.iter().position(|byte| !belongs(*byte)).unwrap_or(within.len());
        let end = self.text.floor_char_boundary(from + length);
        let open = self.more && from + length == self.text.len() && length < max;
        Run { text: &self.text[from..end], end, open, next: self.byte(end) }
    }

    /// Whether a word begins here: no letter, digit or underscore stands before, or it belongs to
    /// something that only looks like one.
    pub(super) fn begins_word(&self, at: usize) -> bool {
        let before = self.before(at);
        let Some(last) = before.last() else { return at > 0 || self.fresh };
        !is_word(*last) || ends_escape(before)
    }

    /// What may be looked back at from here.
    pub(super) fn before(&self, at: usize) -> &'a [u8] {
        &self.bytes()[self.floor.min(at)..at]
    }
}

/// Whether the text ends with `\n`, `%3D` or the colour of a terminal, spelled out.
fn ends_escape(before: &[u8]) -> bool {
    match before {
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
        [rest @ .., b'm' | b'K'] => {
            let numbers =
                rest.iter().rev().take(COLOUR_BYTES_MAX).take_while(|byte| is_number(**byte)).count();
            rest[..rest.len() - numbers].ends_with(b"\x1b[")
        }
        _ => false,
    }
}

fn is_number(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b';'
}
