//! Searches for values that are secret wherever they stand and however they are encoded.
//!
//! One automaton holds all encodings of all values and reads each byte once. Its state is the longest prefix of an
//! encoded value that the text ends with, so it does not matter how the text is split into pieces.

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::noncontiguous::NFA;

use super::REDACTED;
use super::encodings::{EncodedForm, encodings_of};
use super::escapes::{EscapeKind, UnescapedView};
use super::prefilter::{NextEscapes, Prefilter};
use super::text_around_match::TextContext;

/// Shorter values would be found in words that have nothing to do with them.
pub(super) const BYTES_MIN: usize = 8;
/// How much of a known value inside a longer word is released: if it were held back, every text that ends like
/// the beginning of some encoded value would be held back.
const SHOWN_BYTES: usize = 3;

/// All encodings of all known values.
pub(super) struct KnownValues {
    forms: NFA,
    start: StateID,
    /// For each encoded value: whether it never begins a word.
    mid_word: Vec<bool>,
    /// For each state: the partial match that the text ends with.
    beginnings: Vec<PartialMatch>,
    bytes_max: usize,
    filter: Prefilter,
}

/// The longest incomplete prefix of an encoded value at the end of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartialMatch {
    pub(super) bytes: usize,
    /// No encoded value that it may become begins a word.
    mid_word: bool,
}

/// An encoded value that ends at the current offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct FullMatch {
    pub(super) bytes: usize,
    mid_word: bool,
}

/// Where an encoded value stands in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchPosition {
    begins: usize,
    mid_word: bool,
}

impl PartialMatch {
    pub(super) fn at(self, begins: usize) -> MatchPosition {
        MatchPosition { begins, mid_word: self.mid_word }
    }
}

impl FullMatch {
    pub(super) fn at(self, begins: usize) -> MatchPosition {
        MatchPosition { begins, mid_word: self.mid_word }
    }
}

const NO_BEGINNING: PartialMatch = PartialMatch { bytes: 0, mid_word: true };

impl KnownValues {
    /// `None` if no known value is long enough.
    pub(super) fn new(values: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let is_long = |value: &&str| value.len() >= BYTES_MIN && **value != *REDACTED;
        let values: Vec<String> = values.into_iter().collect();
        let mut all: Vec<_> =
            values.iter().map(|value| value.trim()).filter(is_long).flat_map(encodings_of).collect();
        all.sort();
        // Of two that are written the same the one that may begin a word is first.
        all.dedup_by(|second, first| second.text == first.text);
        if all.is_empty() {
            return Ok(None);
        }
        let texts = all.iter().map(|form| &form.text);
        let forms = NFA::builder().prefilter(false).build(texts).map_err(|error| error.to_string())?;
        let start = forms.start_state(Anchored::No).map_err(|error| error.to_string())?;
        let beginnings = beginnings(&forms, start, &all);
        let bytes_max = forms.max_pattern_len();
        let mid_word = all.iter().map(|form| form.mid_word).collect();
        Ok(Some(Self { forms, start, mid_word, beginnings, bytes_max, filter: Prefilter::new(&all) }))
    }

    pub(super) fn next(&self, state: StateID, byte: u8) -> StateID {
        self.forms.next_state(Anchored::No, state, byte)
    }

    pub(super) fn beginning(&self, state: StateID) -> PartialMatch {
        self.beginnings.get(state.as_usize()).copied().unwrap_or(NO_BEGINNING)
    }

    /// The encoded values that end in this state.
    pub(super) fn ending(&self, state: StateID) -> impl Iterator<Item = FullMatch> {
        let count = if self.forms.is_match(state) { self.forms.match_len(state) } else { 0 };
        (0..count).map(move |index| {
            let form = self.forms.match_pattern(state, index);
            FullMatch { bytes: self.forms.pattern_len(form), mid_word: self.mid_word[form.as_usize()] }
        })
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether a text contains an encoded value.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let mut is_in = false;
        KnownValueScan::new(self).read(self, text, false, |_, _| is_in = true);
        is_in
    }
}

/// The beginning of a form leads to the state that stands for it. Where no form goes on, less of the text may
/// still be the beginning of another.
fn beginnings(forms: &NFA, start: StateID, all: &[EncodedForm]) -> Vec<PartialMatch> {
    let step = |state: StateID, byte: &u8| forms.next_state(Anchored::No, state, *byte);
    let mut beginnings: Vec<PartialMatch> = Vec::new();
    let mut goes_on: Vec<bool> = Vec::new();
    for form in all {
        let mut state = start;
        for (index, byte) in form.text.iter().enumerate() {
            state = step(state, byte);
            let at = state.as_usize();
            if at >= beginnings.len() {
                beginnings.resize(at + 1, NO_BEGINNING);
                goes_on.resize(at + 1, false);
            }
            beginnings[at] =
                PartialMatch { bytes: index + 1, mid_word: beginnings[at].mid_word && form.mid_word };
            goes_on[at] |= index + 1 < form.text.len();
        }
    }
    let ends: Vec<_> = all.iter().map(|form| (form, form.text.iter().fold(start, step))).collect();
    let open = ends.iter().map(|(form, end)| {
        let (mut rest, mut state) = (&form.text[..], *end);
        // Each state stands for a rest of the text, and the next shorter one is behind its first byte.
        while state != start && !goes_on[state.as_usize()] {
            rest = &rest[rest.len() - beginnings[state.as_usize()].bytes + 1..];
            state = rest.iter().fold(start, step);
        }
        if state == start { NO_BEGINNING } else { beginnings[state.as_usize()] }
    });
    let open: Vec<_> = open.collect();
    for ((_, end), open) in ends.iter().zip(open) {
        beginnings[end.as_usize()] = open;
    }
    beginnings
}

/// The progress of the search for known values in one text.
#[derive(Debug, Clone)]
pub(super) struct KnownValueScan {
    at: usize,
    state: StateID,
    views: Vec<UnescapedView>,
    /// The offsets at which values ended, in ascending order.
    pub(super) ends: Vec<usize>,
}

impl KnownValueScan {
    pub(super) fn new(known: &KnownValues) -> Self {
        Self { at: 0, state: known.start, views: Vec::new(), ends: Vec::new() }
    }

    /// Reads the new text and reports the start and end of each secret. It may also report parts of a secret.
    pub(super) fn read(
        &mut self,
        known: &KnownValues,
        text: &str,
        more: bool,
        mut found: impl FnMut(usize, usize),
    ) {
        let bytes = text.as_bytes();
        let mut state = self.state;
        let ends = &mut self.ends;
        let mut note = |place: MatchPosition, end: usize| {
            let context = TextContext::new(text, false, ends);
            found(place.hidden_from(&context), end);
            if let Err(index) = ends.binary_search(&end) {
                ends.insert(index, end);
            }
        };
        let (mut at, mut escapes) = (self.at, NextEscapes::default());
        while at < bytes.len() {
            if state == known.start && self.views.is_empty() {
                at = known.filter.skip(bytes, at, &mut escapes);
            }
            let Some(byte) = bytes.get(at) else { break };
            let kind = EscapeKind::of(*byte);
            if kind.is_some() || !self.views.is_empty() {
                if let Some(kind) = kind
                    && (kind != EscapeKind::Wrapped || known.beginning(state).bytes > 0)
                    && !self.views.iter().any(|view| view.kind == kind)
                {
                    self.views.push(UnescapedView::new(kind, state, at));
                }
                self.views.iter_mut().for_each(|view| view.step(known, bytes, at, &mut note));
                self.views.retain(|view| view.is_needed(known));
            }
            state = known.next(state, *byte);
            at += 1;
            for ending in known.ending(state) {
                note(ending.at(at - ending.bytes), at);
            }
            if known.beginning(state).bytes == 0 {
                state = known.start;
            }
        }
        if !more {
            self.views.iter_mut().for_each(|view| view.finish(known, bytes, &mut note));
        }
        self.state = state;
        self.at = bytes.len();
    }

    /// The offset at which a value may have begun that has not ended yet.
    pub(super) fn begins(&self, known: &KnownValues) -> usize {
        let begun = self.begun(known).map(|place| place.begins);
        begun.chain(self.unfinished()).min().unwrap_or(self.at)
    }

    /// The offset from which the text must be held back because of that value.
    pub(super) fn hold(&self, known: &KnownValues, context: &TextContext<'_>) -> usize {
        let hold = self.begun(known).map(|place| {
            let hidden_from = place.hidden_from(context);
            // Another value may begin a word in the part of this one that is released.
            let mut shown = place.begins + 1..hidden_from;
            let word = shown.find(|at| context.text.is_char_boundary(*at) && context.begins_word(*at));
            word.unwrap_or(hidden_from)
        });
        hold.chain(self.unfinished()).min().unwrap_or(self.at)
    }

    /// Adjusts all offsets after the first bytes of the text were dropped.
    pub(super) fn shift(&mut self, by: usize) {
        self.at -= by;
        self.views.iter_mut().for_each(|view| view.shift(by));
        self.ends.retain_mut(|end| {
            let kept = *end >= by;
            *end = end.saturating_sub(by);
            kept
        });
    }

    fn begun(&self, known: &KnownValues) -> impl Iterator<Item = MatchPosition> {
        let own = known.beginning(self.state);
        let own = (own.bytes > 0).then(|| own.at(self.at - own.bytes));
        own.into_iter().chain(self.views.iter().filter_map(|view| view.begun(known)))
    }

    fn unfinished(&self) -> impl Iterator<Item = usize> {
        self.views.iter().filter_map(UnescapedView::unfinished)
    }
}

impl MatchPosition {
    /// A value is hidden from its first byte on, unless that is in the middle of a word.
    fn hidden_from(self, context: &TextContext<'_>) -> usize {
        if !self.mid_word && context.begins_word(self.begins) {
            return self.begins;
        }
        context.text.floor_char_boundary(self.begins + SHOWN_BYTES)
    }
}
