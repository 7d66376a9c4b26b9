//! Scans one text for secrets, once from beginning to end, in pieces or at once.
//!
//! The secrets are a set of ranges in the text: those of known values, and for each mark what stands behind it. Each
//! range is judged alone, by the original text and never by the redacted one, and ranges that overlap are merged. So
//! neither the order of judgements nor the split into pieces makes a difference, as long as these hold:
//!
//! **Invariant:** a judgement is made only when no text that may still come can change it (`text_context`).
//! **Invariant:** text is released only when no pending judgement can begin in it.

use std::ops::Range;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton as _, StateID};

use super::secret_indicators::{MARKS, SecretMark};
use super::text_around_match::{LOOK_BACK_BYTES, MarkVerdict, TextContext};
use super::{REDACTED, Tables, known_values, named_values, token_shapes};

/// A mark in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkHit {
    start: usize,
    end: usize,
    mark: usize,
}

#[derive(Debug, Clone)]
pub(super) struct SecretScan {
    /// How far the text was searched for marks, and the state of that search.
    at: usize,
    state: StateID,
    /// The longest mark so far at one offset. A longer one may still begin at the same offset.
    found: Option<MarkHit>,
    known: Option<known_values::KnownValueScan>,
    /// Marks without a final verdict, in order.
    open: Vec<MarkHit>,
    /// Secrets that are not released yet, ordered by their start.
    secrets: Vec<Range<usize>>,
    released_upto: usize,
    /// Where the last secret that was released ends.
    covered: usize,
}

impl SecretScan {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            at: 0,
            state: tables.start,
            found: None,
            known: tables.known.as_ref().map(known_values::KnownValueScan::new),
            open: Vec::new(),
            secrets: Vec::new(),
            released_upto: 0,
            covered: 0,
        }
    }

    pub(super) fn released_upto(&self) -> usize {
        self.released_upto
    }

    /// Reads the new end of the text and returns how far the text can be released.
    pub(super) fn read(&mut self, tables: &Tables, text: &str, more: bool) -> usize {
        let mut hold = text.len();
        if let (Some(known), Some(progress)) = (&tables.known, &mut self.known) {
            progress.read(known, text, more, |from, to| insert(&mut self.secrets, from..to));
            if more {
                hold = progress.hold(known, &TextContext::new(text, more, &progress.ends));
            }
        }
        self.find_marks(tables, text.as_bytes(), more);
        if self.open.is_empty() && self.found.is_none() {
            return hold;
        }
        let context = TextContext::new(text, more, self.known.as_ref().map_or(&[], |known| &known.ends));
        let secrets = &mut self.secrets;
        self.open.retain(|hit| {
            if hit.start >= hold {
                return true;
            }
            match hit.judge(&context) {
                MarkVerdict::Nothing => false,
                MarkVerdict::Secret(secret) => {
                    insert(secrets, secret);
                    false
                }
                MarkVerdict::Open { from } => {
                    hold = hold.min(from);
                    true
                }
            }
        });
        if let Some(hit) = self.found.filter(|hit| hit.start < hold) {
            match hit.judge(&context) {
                MarkVerdict::Nothing => {}
                MarkVerdict::Secret(Range { start: from, .. }) | MarkVerdict::Open { from } => {
                    hold = hold.min(from)
                }
            }
        }
        hold
    }

    /// Releases the text up to this offset. `None` if it is unchanged.
    pub(super) fn release(&mut self, text: &str, upto: usize) -> Option<String> {
        let upto = upto.max(self.released_upto);
        let mut out: Option<String> = None;
        let mut at = self.released_upto;
        if self.covered > at && upto > at {
            at = self.covered.min(upto);
            out = Some(String::new());
        }
        let due = self.secrets.partition_point(|secret| secret.start < upto);
        for secret in self.secrets.drain(..due) {
            if secret.end <= self.covered.max(at) {
                continue;
            }
            let out = out.get_or_insert_default();
            // After a pause, text of the same secret may have been released since.
            if secret.start >= self.covered || self.covered < at {
                out.push_str(&text[at..secret.start.max(at)]);
                out.push_str(REDACTED);
            }
            self.covered = secret.end;
            at = self.covered.min(upto);
        }
        self.released_upto = upto;
        if let Some(out) = &mut out {
            out.push_str(&text[at..upto]);
        }
        out
    }

    /// Releases all of the text although it may go on. It is judged as if it ended here; later judgements do not
    /// see this.
    pub(super) fn release_all(&mut self, tables: &Tables, text: &str) -> Option<String> {
        let mut last = self.clone();
        last.read(tables, text, false);
        let out = last.release(text, text.len());
        self.released_upto = text.len();
        self.covered = last.covered;
        out
    }

    /// How many bytes at the beginning of the text are no longer needed.
    pub(super) fn needed_from(&self, tables: &Tables) -> usize {
        let open = self.open.first().map_or(self.at, |hit| hit.start);
        let known = tables.known.as_ref().zip(self.known.as_ref());
        let known = known.map_or(self.at, |(known, progress)| progress.begins(known));
        let mark = self.at.saturating_sub(tables.marks.max_pattern_len());
        self.released_upto.min(open).min(known).min(mark).saturating_sub(LOOK_BACK_BYTES)
    }

    /// Adjusts all offsets after the first bytes of the text were dropped.
    pub(super) fn shift(&mut self, by: usize) {
        let moved = |hit: &mut MarkHit| {
            hit.start -= by;
            hit.end -= by;
        };
        self.at -= by;
        self.found.iter_mut().for_each(moved);
        self.open.iter_mut().for_each(moved);
        self.known.iter_mut().for_each(|known| known.shift(by));
        self.secrets.iter_mut().for_each(|secret| {
            *secret = secret.start.saturating_sub(by)..secret.end.saturating_sub(by);
        });
        self.released_upto -= by;
        self.covered = self.covered.saturating_sub(by);
    }

    /// Finds at each offset the longest mark that begins there.
    fn find_marks(&mut self, tables: &Tables, bytes: &[u8], more: bool) {
        let marks = &tables.marks;
        loop {
            let (mut state, mut at) = (self.state, self.at);
            for byte in bytes.get(self.at..).unwrap_or_default() {
                state = marks.next_state(Anchored::No, state, *byte);
                at += 1;
                if !marks.is_special(state) {
                    continue;
                }
                if marks.is_dead(state) {
                    break;
                }
                if marks.is_match(state) {
                    let mark = marks.match_pattern(state, 0);
                    self.found =
                        Some(MarkHit { start: at - marks.pattern_len(mark), end: at, mark: mark.as_usize() });
                }
            }
            (self.state, self.at) = (state, at);
            let is_longest = marks.is_dead(state) || !more;
            let Some(hit) = self.found.take_if(|_| is_longest) else { return };
            self.open.push(hit);
            self.at = hit.start + 1;
            self.state = tables.start;
        }
    }
}

impl MarkHit {
    fn judge(self, context: &TextContext<'_>) -> MarkVerdict {
        let Self { start, end, mark } = self;
        context.verdict(|context| match MARKS[mark].1 {
            SecretMark::Token(shape) => {
                let spelled = context.text[start..end] == *MARKS[mark].0;
                shape.judge(context, spelled, start, end)
            }
            SecretMark::NamedValue(key) => named_values::judge(context, key, start, end),
            SecretMark::Bearer => token_shapes::bearer(context, end),
            SecretMark::Basic => token_shapes::basic(context, end),
            SecretMark::Address => token_shapes::address(context, end),
            SecretMark::UserOption => token_shapes::user_option(context, start, end),
            SecretMark::Jwt => token_shapes::jwt(context, start, end),
            SecretMark::PrivateKey => token_shapes::private_key(context, end),
            SecretMark::Pass => named_values::pass(context, start, end),
            SecretMark::Cookie => token_shapes::cookie(context, start, end),
            SecretMark::PasswordOption => token_shapes::password_option(context, start, end),
        })
    }
}

fn insert(secrets: &mut Vec<Range<usize>>, secret: Range<usize>) {
    let index = secrets.partition_point(|other| other.start <= secret.start);
    secrets.insert(index, secret);
}
