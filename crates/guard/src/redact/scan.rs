//! One text, read once from its beginning to its end, in pieces or at once.
//!
//! What is a secret is a set of places in the text: those of known values, and for each mark what stands behind
//! it. Each is judged alone, by the text as it came and never by what was made of it, and where places
//! overlap they become one. So neither the order of judgements nor the pieces can make a difference, as long as
//! these hold:
//!
//! **Invariant:** a judgement is made when nothing that may still come can change it (`look`).
//! **Invariant:** text is let out when no judgement that is open can begin in it.

use std::ops::Range;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton as _, StateID};

use super::look::{LOOK_BACK_BYTES, Look, Verdict};
use super::marks::{MARKS, Mark};
use super::{REDACTED, Tables, keyed, known, shapes};

/// A mark in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    start: usize,
    end: usize,
    mark: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Scan {
    /// How far the text was searched for marks, and what was found there.
    at: usize,
    state: StateID,
    /// The longest mark so far at one place. A longer one may be at the same.
    found: Option<Hit>,
    known: Option<known::Progress>,
    /// Marks that are not judged yet, in order.
    open: Vec<Hit>,
    /// Secrets that are not let out yet, in order of where they begin.
    secrets: Vec<Range<usize>>,
    let_out: usize,
    /// Where the last secret that was let out ends.
    covered: usize,
}

impl Scan {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            at: 0,
            state: tables.start,
            found: None,
            known: tables.known.as_ref().map(known::Progress::new),
            open: Vec::new(),
            secrets: Vec::new(),
            let_out: 0,
            covered: 0,
        }
    }

    pub(super) fn let_out(&self) -> usize {
        self.let_out
    }

    /// Reads what is new at the end of the text, and says how far it can be let out.
    pub(super) fn read(&mut self, tables: &Tables, text: &str, more: bool) -> usize {
        let mut hold = text.len();
        if let (Some(known), Some(progress)) = (&tables.known, &mut self.known) {
            progress.read(known, text, more, |from, to| insert(&mut self.secrets, from..to));
            if more {
                hold = progress.hold(known, &Look::new(text, more, &progress.ends));
            }
        }
        self.find_marks(tables, text.as_bytes(), more);
        if self.open.is_empty() && self.found.is_none() {
            return hold;
        }
        let look = Look::new(text, more, self.known.as_ref().map_or(&[], |known| &known.ends));
        let secrets = &mut self.secrets;
        self.open.retain(|hit| {
            if hit.start >= hold {
                return true;
            }
            match hit.judge(&look) {
                Verdict::Nothing => false,
                Verdict::Secret(secret) => {
                    insert(secrets, secret);
                    false
                }
                Verdict::Open { from } => {
                    hold = hold.min(from);
                    true
                }
            }
        });
        if let Some(hit) = self.found.filter(|hit| hit.start < hold) {
            match hit.judge(&look) {
                Verdict::Nothing => {}
                Verdict::Secret(Range { start: from, .. }) | Verdict::Open { from } => hold = hold.min(from),
            }
        }
        hold
    }

    /// Lets the text out up to here, or none if that is the text as it was.
    pub(super) fn release(&mut self, text: &str, upto: usize) -> Option<String> {
        let upto = upto.max(self.let_out);
        let mut out: Option<String> = None;
        let mut at = self.let_out;
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
            // After a pause text of the same secret may have been let out since.
            if secret.start >= self.covered || self.covered < at {
                out.push_str(&text[at..secret.start.max(at)]);
                out.push_str(REDACTED);
            }
            self.covered = secret.end;
            at = self.covered.min(upto);
        }
        self.let_out = upto;
        if let Some(out) = &mut out {
            out.push_str(&text[at..upto]);
        }
        out
    }

    /// Lets all of the text out although it may go on: judged as if it ended here, which later judgements know
    /// nothing of.
    pub(super) fn release_all(&mut self, tables: &Tables, text: &str) -> Option<String> {
        let mut last = self.clone();
        last.read(tables, text, false);
        let out = last.release(text, text.len());
        self.let_out = text.len();
        self.covered = last.covered;
        out
    }

    /// So many bytes at the beginning of the text are needed no more.
    pub(super) fn needed_from(&self, tables: &Tables) -> usize {
        let open = self.open.first().map_or(self.at, |hit| hit.start);
        let known = tables.known.as_ref().zip(self.known.as_ref());
        let known = known.map_or(self.at, |(known, progress)| progress.begins(known));
        let mark = self.at.saturating_sub(tables.marks.max_pattern_len());
        self.let_out.min(open).min(known).min(mark).saturating_sub(LOOK_BACK_BYTES)
    }

    /// The first bytes of the text are forgotten.
    pub(super) fn shift(&mut self, by: usize) {
        let moved = |hit: &mut Hit| {
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
        self.let_out -= by;
        self.covered = self.covered.saturating_sub(by);
    }

    /// At each place the longest mark that begins there.
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
                        Some(Hit { start: at - marks.pattern_len(mark), end: at, mark: mark.as_usize() });
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

impl Hit {
    fn judge(self, look: &Look<'_>) -> Verdict {
        let Self { start, end, mark } = self;
        look.verdict(|look| match MARKS[mark].1 {
            Mark::Shape(shape) => {
                let spelled = look.text[start..end] == *MARKS[mark].0;
                shape.judge(look, spelled, start, end)
            }
            Mark::Key(key) => keyed::judge(look, key, start, end),
            Mark::Bearer => shapes::bearer(look, end),
            Mark::Basic => shapes::basic(look, end),
            Mark::Address => shapes::address(look, end),
            Mark::UserOption => shapes::user_option(look, start, end),
            Mark::Jwt => shapes::jwt(look, start, end),
            Mark::PrivateKey => shapes::private_key(look, end),
            Mark::Pass => keyed::pass(look, start, end),
            Mark::Cookie => shapes::cookie(look, start, end),
            Mark::PasswordOption => shapes::password_option(look, start, end),
        })
    }
}

fn insert(secrets: &mut Vec<Range<usize>>, secret: Range<usize>) {
    let index = secrets.partition_point(|other| other.start <= secret.start);
    secrets.insert(index, secret);
}
