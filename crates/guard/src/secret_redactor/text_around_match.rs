//! Reads the text around a mark: what stands before it, and how far a run of characters goes.
//!
//! A streamed text may end in the middle of what is being read. So every read at the end of the text is recorded here,
//! and a verdict that needed one is not final yet. The code that judges a mark need not think of it.

use std::cell::Cell;
use std::ops::Range;

use super::token_shapes::is_word;

/// The judgement about a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MarkVerdict {
    Nothing,
    Secret(Range<usize>),
    /// The text that follows decides. If it is a secret, it does not begin before `from`.
    Open {
        from: usize,
    },
}

#[derive(Debug)]
pub(super) struct TextContext<'a> {
    pub(super) text: &'a str,
    /// More text may follow.
    more: bool,
    /// The offsets at which known values ended, in ascending order: text behind one begins a word.
    ends: &'a [usize],
    /// The judgement read past the end of the text so far.
    at_end: Cell<bool>,
    /// The offset at which the secret may begin.
    begins: Cell<usize>,
}

/// A run of characters of one sort.
#[derive(Debug, Clone, Copy)]
pub(super) struct CharRun<'a> {
    pub(super) text: &'a str,
    pub(super) end: usize,
}

/// How far back a judgement looks from its mark.
pub(super) const LOOK_BACK_BYTES: usize = 32;
/// How far back an escape sequence that colours a terminal is looked for.
const COLOUR_BYTES_MAX: usize = 12;

impl<'a> TextContext<'a> {
    pub(super) fn new(text: &'a str, more: bool, ends: &'a [usize]) -> Self {
        Self { text, more, ends, at_end: Cell::new(false), begins: Cell::new(text.len()) }
    }

    /// Runs a judgement. Its verdict is open if it read past the end of a text that goes on.
    pub(super) fn verdict(&self, judge: impl FnOnce(&Self) -> Option<Range<usize>>) -> MarkVerdict {
        self.at_end.set(false);
        self.begins.set(self.text.len());
        let secret = judge(self);
        match secret {
            _ if self.more && self.at_end.get() => MarkVerdict::Open { from: self.begins.get() },
            Some(secret) => MarkVerdict::Secret(secret),
            None => MarkVerdict::Nothing,
        }
    }

    /// From this offset on the text may be the secret, whatever follows. Call it before reading anything behind.
    pub(super) fn may_begin(&self, at: usize) {
        self.begins.set(at);
    }

    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        let byte = self.text.as_bytes().get(at).copied();
        if byte.is_none() {
            self.at_end.set(true);
        }
        byte
    }

    /// The run of such characters from here, at most `max` bytes of it. What ends a run is ASCII, or
    /// the run is, so it ends between characters.
    pub(super) fn run(&self, from: usize, max: usize, belongs: impl Fn(u8) -> bool) -> CharRun<'a> {
        let rest = self.text.as_bytes().get(from..).unwrap_or_default();
        let within = &rest[..rest.len().min(max)];
        let length = within.iter().position(|byte| !belongs(*byte)).unwrap_or(within.len());
        if length < max && length == rest.len() {
            self.at_end.set(true);
        }
        let end = self.text.floor_char_boundary(from + length);
        CharRun { text: self.text.get(from..end).unwrap_or_default(), end }
    }

    /// Whether this word stands at the offset, ignoring case.
    pub(super) fn has_word(&self, at: usize, word: &str) -> bool {
        word.bytes().enumerate().all(|(index, wanted)| {
            self.byte(at + index).is_some_and(|byte| byte.eq_ignore_ascii_case(&wanted))
        })
    }

    /// Whether a word begins here: no letter, digit or underscore stands before, or it belongs to
    /// something that only looks like one.
    pub(super) fn begins_word(&self, at: usize) -> bool {
        let before = self.before(at);
        let Some(last) = before.last() else { return true };
        !is_word(*last) || ends_escape(before) || self.ends.binary_search(&at).is_ok()
    }

    /// The text before the offset that a judgement may read.
    pub(super) fn before(&self, at: usize) -> &'a [u8] {
        &self.text.as_bytes()[at.saturating_sub(LOOK_BACK_BYTES)..at]
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
