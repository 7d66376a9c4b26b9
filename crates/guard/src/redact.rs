//! Which parts of a text are secrets: keys and tokens by their shape, and values that are known.
//!
//! Nearly all text holds none, so it is only searched for marks: the beginnings that tokens are known
//! by (`ghp_`, `AKIA`), names that values are given to (`password=`), and the known values themselves.
//! Each mark that is found is judged by what stands around it. What makes a secret recognisable stays:
//! `sk-[REDACTED]`, `password=[REDACTED]`, `postgres://me:[REDACTED]@host`.
//!
//! **Invariant:** a judgement looks back less than [`engine::CONTEXT_BYTES`] from where its secret
//! begins, so text that comes in pieces is judged as if it had come at once.
//! **Invariant:** nor does it look into the secret before, so that may be left out of the context.
//! **Invariant:** what stands where a secret was is not taken for one.

mod json;
mod keyed;
mod look;
mod marks;
mod names;
mod shapes;
#[cfg(test)]
mod tests;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use engine::{Cleaned, Redactor};

pub use names::{is_secret_name, known_secrets};

use look::{Look, Verdict};
use marks::{MARKS, Mark};

/// What stands where a secret was.
pub const REDACTED: &str = "[REDACTED]";

/// Shorter values would be found in words that have nothing to do with them.
const KNOWN_BYTES_MIN: usize = 8;
/// Of a known value inside a longer word this much is let out: were it held, every text that ends like
/// the beginning of some value would be.
const SHOWN_BYTES: usize = 3;

/// Finds secrets in texts. Made once, used by everybody.
pub struct Secrets {
    marks: AhoCorasick,
    known: Known,
}

impl Secrets {
    /// `known` are values that are secret wherever they stand, whatever they look like.
    pub fn new(known: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let marks = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::DFA))
            .build(MARKS.iter().map(|(text, _)| *text))
            .map_err(|error| error.to_string())?;
        Ok(Self { marks, known: Known::new(known)? })
    }
}

impl Redactor for Secrets {
    fn clean(&self, text: &str, from: usize, more: bool) -> Cleaned {
        let mut look = Look { text, more, fresh: from == 0, floor: 0 };
        let mut hold = if more { self.known.beginning(&look, 0) } else { text.len() };
        let mut hits = Hits::new(self, text);
        let mut out: Option<String> = None;
        let mut copied = from;
        while let Some(hit) = hits.next.filter(|hit| hit.start < hold) {
            match self.judge(&look, hit) {
                Verdict::Nothing => hits.go_on(self, text, hit.start + 1),
                Verdict::Open { from } => {
                    hold = hold.min(from);
                    break;
                }
                Verdict::Secret { from: begins, to } => {
                    if to > copied {
                        let out = out.get_or_insert_default();
                        out.push_str(&text[copied..begins.max(copied)]);
                        out.push_str(REDACTED);
                        copied = to;
                    }
                    look.floor = to;
                    if more {
                        hold = self.known.beginning(&look, to);
                    }
                    hits.go_on(self, text, to);
                }
            }
        }
        let hold = hold.max(copied);
        if let Some(out) = &mut out {
            out.push_str(&text[copied..hold]);
        }
        Cleaned { text: out, held: text.len() - hold }
    }

    fn redact_json(&self, json: &str) -> Option<String> {
        json::redact(self, json)
    }
}

impl Secrets {
    fn judge(&self, look: &Look<'_>, hit: Hit) -> Verdict {
        match hit.of {
            Of::Known(value) => self.known.judge(look, hit.start, value),
            Of::Mark(mark) => match MARKS[mark].1 {
                Mark::Shape(shape) => {
                    let spelled = look.text[hit.start..hit.end] == *MARKS[mark].0;
                    shape.judge(look, spelled, hit.start, hit.end)
                }
                Mark::Key(key) => keyed::judge(look, key, hit.start, hit.end),
                Mark::Bearer => shapes::bearer(look, hit.end),
                Mark::Basic => shapes::basic(look, hit.end),
                Mark::Address => shapes::address(look, hit.end),
                Mark::UserOption => shapes::user_option(look, hit.start, hit.end),
                Mark::Jwt => shapes::jwt(look, hit.start, hit.end),
                Mark::PrivateKey => shapes::private_key(look, hit.end),
            },
        }
    }
}

/// A place where a secret may begin.
#[derive(Debug, Clone, Copy)]
struct Hit {
    start: usize,
    end: usize,
    of: Of,
}

#[derive(Debug, Clone, Copy)]
enum Of {
    Mark(usize),
    Known(usize),
}

/// The hits of a text, by where they start; of two that start together the known value is first.
struct Hits {
    next: Option<Hit>,
    mark: Option<Hit>,
    known: Option<Hit>,
}

impl Hits {
    fn new(secrets: &Secrets, text: &str) -> Self {
        let mut hits = Self { next: None, mark: None, known: None };
        hits.mark = find(&secrets.marks, text, 0, Of::Mark);
        hits.known = secrets.known.finder.as_ref().and_then(|finder| find(finder, text, 0, Of::Known));
        hits.choose();
        hits
    }

    fn go_on(&mut self, secrets: &Secrets, text: &str, at: usize) {
        if self.mark.is_some_and(|hit| hit.start < at) {
            self.mark = find(&secrets.marks, text, at, Of::Mark);
        }
        if let Some(finder) = &secrets.known.finder
            && self.known.is_some_and(|hit| hit.start < at)
        {
            self.known = find(finder, text, at, Of::Known);
        }
        self.choose();
    }

    fn choose(&mut self) {
        self.next = match (self.known, self.mark) {
            (Some(known), Some(mark)) if mark.start < known.start => Some(mark),
            (known, mark) => known.or(mark),
        };
    }
}

fn find(finder: &AhoCorasick, text: &str, at: usize, of: fn(usize) -> Of) -> Option<Hit> {
    let found = finder.find(Input::new(text).range(at.min(text.len())..))?;
    Some(Hit { start: found.start(), end: found.end(), of: of(found.pattern().as_usize()) })
}

/// Values that are secret wherever they stand.
struct Known {
    values: Vec<String>,
    finder: Option<AhoCorasick>,
    /// For each byte, which values have it where: value and how many bytes end with it, longest first.
    ends: Vec<Vec<(usize, usize)>>,
}

impl Known {
    fn new(known: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut values: Vec<_> =
            known.into_iter().filter(|value| value.len() >= KNOWN_BYTES_MIN && *value != *REDACTED).collect();
        values.sort();
        values.dedup();
        let mut ends = vec![Vec::new(); 256];
        for (index, value) in values.iter().enumerate() {
            for (at, byte) in value.bytes().enumerate().take(value.len() - 1) {
                ends[usize::from(byte)].push((index, at + 1));
            }
        }
        for places in &mut ends {
            places.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&values)
            .map_err(|error| error.to_string())?;
        let finder = (!values.is_empty()).then_some(finder);
        Ok(Self { values, finder, ends })
    }

    fn judge(&self, look: &Look<'_>, start: usize, value: usize) -> Verdict {
        let value = &self.values[value];
        let shown = if look.begins_word(start) { 0 } else { shown(value) };
        Verdict::Secret { from: start + shown, to: start + value.len() }
    }

    /// Where the text ends with the beginning of a known value, not before `earliest`; its length if
    /// it does not.
    fn beginning(&self, look: &Look<'_>, earliest: usize) -> usize {
        let text = look.text;
        let Some(last) = text.as_bytes().last() else { return 0 };
        let is_beginning = |(value, length): &&(usize, usize)| {
            let value = &self.values[*value];
            let beginning = &value.as_bytes()[..*length];
            text.len() >= earliest + length
                && text.as_bytes().ends_with(beginning)
                && (*length > shown(value) || look.begins_word(text.len() - length))
        };
        let longest = self.ends[usize::from(*last)].iter().find(is_beginning);
        longest.map_or(text.len(), |(_, length)| text.len() - length)
    }
}

fn shown(value: &str) -> usize {
    value.floor_char_boundary(SHOWN_BYTES)
}
