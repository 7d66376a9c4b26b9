//! A look at a text around a mark: what stands before it, and how far a run of characters goes.
//!
//! A text that comes in pieces may end in the middle of what is looked at. So every look at its end is noticed
//! here, and a judgement that needed one is no judgement yet. Whoever judges need not think of it.

use std::cell::Cell;
use std::ops::Range;

use super::shapes::is_word;

/// What a mark turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Nothing,
    Secret(Range<usize>),
    /// What comes next decides. If it is a secret, then that does not begin before here.
    Open {
        from: usize,
    },
}

#[derive(Debug)]
pub(super) struct Look<'a> {
    pub(super) text: &'a str,
    /// The text is not at its end.
    more: bool,
    /// Where known values ended, in order: what stands behind one begins a word.
    ends: &'a [usize],
    /// Somebody looked where the text is not known yet.
    at_end: Cell<bool>,
    /// Where the secret that is looked for may begin.
    begins: Cell<usize>,
}

/// A run of characters of one sort.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) text: &'a str,
    pub(super) end: usize,
}

/// How far back a judgement looks from its mark.
pub(super) const LOOK_BACK_BYTES: usize = 32;
/// How far back an escape sequence that colours a terminal is looked for.
const COLOUR_BYTES_MAX: usize = 12;

impl<'a> Look<'a> {
    pub(super) fn new(text: &'a str, more: bool, ends: &'a [usize]) -> Self {
        Self { text, more, ends, at_end: Cell::new(false), begins: Cell::new(text.len()) }
    }

    /// A judgement, which is open if it looked at the end of a text that goes on.
    pub(super) fn verdict(&self, judge: impl FnOnce(&Self) -> Option<Range<usize>>) -> Verdict {
        self.at_end.set(false);
        self.begins.set(self.text.len());
        let secret = judge(self);
        match secret {
            _ if self.more && self.at_end.get() => Verdict::Open { from: self.begins.get() },
            Some(secret) => Verdict::Secret(secret),
            None => Verdict::Nothing,
        }
    }

    /// From here on the text may be the secret, whatever comes. To be said before anything behind is looked at.
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
    pub(super) fn run(&self, from: usize, max: usize, belongs: impl Fn(u8) -> bool) -> Run<'a> {
        let rest = self.text.as_bytes().get(from..).unwrap_or_default();
        let within = &rest[..rest.len().min(max)];
        let length = within.iter().position(|byte| !belongs(*byte)).unwrap_or(within.len());
        if length < max && length == rest.len() {
            self.at_end.set(true);
        }
        let end = self.text.floor_char_boundary(from + length);
        Run { text: self.text.get(from..end).unwrap_or_default(), end }
    }

    /// Whether these words stand here, in any case of letters.
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

    /// What may be looked back at from here.
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
