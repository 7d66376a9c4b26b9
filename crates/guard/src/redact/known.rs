//! Values that are secret wherever they stand and however they are written.
//!
//! One automaton knows all forms of all values and reads each byte once. What it remembers of a text is the
//! longest beginning of a form that the text ends with, so pieces make no difference to it.

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::noncontiguous::NFA;

use super::REDACTED;
use super::filter::{Filter, NextEscapes};
use super::forms::{Form, forms};
use super::look::Look;
use super::views::{Kind, View};

/// Shorter values would be found in words that have nothing to do with them.
pub(super) const BYTES_MIN: usize = 8;
/// Of a known value inside a longer word this much is let out: were it held, every text that ends like
/// the beginning of some form would be.
const SHOWN_BYTES: usize = 3;

/// All forms of all values.
pub(super) struct Known {
    forms: NFA,
    start: StateID,
    /// For each form whether it never begins a word.
    inside: Vec<bool>,
    /// For each state what the text ends with.
    beginnings: Vec<Beginning>,
    bytes_max: usize,
    filter: Filter,
}

/// The longest beginning of a form that goes on, at the end of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning {
    pub(super) bytes: usize,
    /// Whatever form it is, that never begins a word.
    inside: bool,
}

/// A form at its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub(super) bytes: usize,
    inside: bool,
}

/// A form in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    begins: usize,
    inside: bool,
}

impl Beginning {
    pub(super) fn at(self, begins: usize) -> Place {
        Place { begins, inside: self.inside }
    }
}

impl Ending {
    pub(super) fn at(self, begins: usize) -> Place {
        Place { begins, inside: self.inside }
    }
}

const NO_BEGINNING: Beginning = Beginning { bytes: 0, inside: true };

impl Known {
    /// None if nothing is known that is long enough.
    pub(super) fn new(values: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let is_long = |value: &&str| value.len() >= BYTES_MIN && **value != *REDACTED;
        let values: Vec<String> = values.into_iter().collect();
        let mut all: Vec<_> =
            values.iter().map(|value| value.trim()).filter(is_long).flat_map(forms).collect();
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
        let inside = all.iter().map(|form| form.inside).collect();
        Ok(Some(Self { forms, start, inside, beginnings, bytes_max, filter: Filter::new(&all) }))
    }

    pub(super) fn next(&self, state: StateID, byte: u8) -> StateID {
        self.forms.next_state(Anchored::No, state, byte)
    }

    pub(super) fn beginning(&self, state: StateID) -> Beginning {
        self.beginnings.get(state.as_usize()).copied().unwrap_or(NO_BEGINNING)
    }

    /// The forms that end here.
    pub(super) fn ending(&self, state: StateID) -> impl Iterator<Item = Ending> {
        let count = if self.forms.is_match(state) { self.forms.match_len(state) } else { 0 };
        (0..count).map(move |index| {
            let form = self.forms.match_pattern(state, index);
            Ending { bytes: self.forms.pattern_len(form), inside: self.inside[form.as_usize()] }
        })
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether some form stands in a text.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let mut is_in = false;
        Progress::new(self).read(self, text, false, |_, _| is_in = true);
        is_in
    }
}

/// The beginning of a form leads to the state that stands for it. Where no form goes on, less of the text may
/// still be the beginning of another.
fn beginnings(forms: &NFA, start: StateID, all: &[Form]) -> Vec<Beginning> {
    let step = |state: StateID, byte: &u8| forms.next_state(Anchored::No, state, *byte);
    let mut beginnings: Vec<Beginning> = Vec::new();
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
            beginnings[at] = Beginning { bytes: index + 1, inside: beginnings[at].inside && form.inside };
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

/// How far a text was read.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    at: usize,
    state: StateID,
    views: Vec<View>,
    /// Where values ended, in order.
    pub(super) ends: Vec<usize>,
}

impl Progress {
    pub(super) fn new(known: &Known) -> Self {
        Self { at: 0, state: known.start, views: Vec::new(), ends: Vec::new() }
    }

    /// Reads on, and tells of each secret where it begins and ends. It may tell of parts of one as well.
    pub(super) fn read(
        &mut self,
        known: &Known,
        text: &str,
        more: bool,
        mut found: impl FnMut(usize, usize),
    ) {
        let bytes = text.as_bytes();
        let mut state = self.state;
        let ends = &mut self.ends;
        let mut note = |place: Place, end: usize| {
            let look = Look::new(text, false, ends);
            found(place.hidden_from(&look), end);
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
            let kind = Kind::of(*byte);
            if kind.is_some() || !self.views.is_empty() {
                if let Some(kind) = kind
                    && (kind != Kind::Wrapped || known.beginning(state).bytes > 0)
                    && !self.views.iter().any(|view| view.kind == kind)
                {
                    self.views.push(View::new(kind, state, at));
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

    /// Where a value may have begun that is not at its end yet.
    pub(super) fn begins(&self, known: &Known) -> usize {
        let begun = self.begun(known).map(|place| place.begins);
        begun.chain(self.unfinished()).min().unwrap_or(self.at)
    }

    /// From where on the text must be held because of it.
    pub(super) fn hold(&self, known: &Known, look: &Look<'_>) -> usize {
        let hold = self.begun(known).map(|place| {
            let hidden_from = place.hidden_from(look);
            // Another value may begin a word in what is shown of this one.
            let mut shown = place.begins + 1..hidden_from;
            let word = shown.find(|at| look.text.is_char_boundary(*at) && look.begins_word(*at));
            word.unwrap_or(hidden_from)
        });
        hold.chain(self.unfinished()).min().unwrap_or(self.at)
    }

    /// The first bytes of the text are forgotten.
    pub(super) fn shift(&mut self, by: usize) {
        self.at -= by;
        self.views.iter_mut().for_each(|view| view.shift(by));
        self.ends.retain_mut(|end| {
            let kept = *end >= by;
            *end = end.saturating_sub(by);
            kept
        });
    }

    fn begun(&self, known: &Known) -> impl Iterator<Item = Place> {
        let own = known.beginning(self.state);
        let own = (own.bytes > 0).then(|| own.at(self.at - own.bytes));
        own.into_iter().chain(self.views.iter().filter_map(|view| view.begun(known)))
    }

    fn unfinished(&self) -> impl Iterator<Item = usize> {
        self.views.iter().filter_map(View::unfinished)
    }
}

impl Place {
    /// A form is hidden from its beginning on, unless that is in the middle of a word.
    fn hidden_from(self, look: &Look<'_>) -> usize {
        if !self.inside && look.begins_word(self.begins) {
            return self.begins;
        }
        look.text.floor_char_boundary(self.begins + SHOWN_BYTES)
    }
}
