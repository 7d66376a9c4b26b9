//! A text as it reads when what escapes single characters in it is undone: percent signs, the backslashes of
//! JSON, the line ends inside of long base64. Any mixture of escaped and plain characters reads the same.
//!
//! A view is taken only from an escape on, and only as long as a known value may have begun before or in it:
//! otherwise it reads like the text itself.

use aho_corasick::automaton::StateID;

use super::known::{Known, Place};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Percent,
    Json,
    /// Lines that were broken, and perhaps indented.
    Wrapped,
}

/// What the first bytes of an unread text are.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Plain,
    /// More is needed to tell.
    Unfinished,
    Escape {
        bytes: usize,
        means: Meaning,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Nothing,
    Byte(u8),
    Char(char),
}

/// A view of a text, and how much of a known value it ends with.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) kind: Kind,
    state: StateID,
    /// Where in the text the view begins.
    begun: usize,
    /// For each byte of the view where it stands in the text.
    places: Vec<usize>,
    /// So many bytes at the end of the view are no escapes.
    plain: usize,
    /// Where an escape begins of which the end is not known yet.
    unfinished: Option<usize>,
    /// The last byte was left out.
    left_out: bool,
}

impl Kind {
    /// Which escapes begin with this byte.
    pub(super) fn of(byte: u8) -> Option<Self> {
        match byte {
            b'%' => Some(Self::Percent),
            b'\\' => Some(Self::Json),
            b'\n' | b'\r' => Some(Self::Wrapped),
            _ => None,
        }
    }

    fn read(self, text: &[u8], after_left_out: bool) -> Read {
        match self {
            Self::Percent => percent(text),
            Self::Json => json(text),
            Self::Wrapped => match text {
                [b'\n' | b'\r', ..] => Read::Escape { bytes: 1, means: Meaning::Nothing },
                [b' ' | b'\t', ..] if after_left_out => Read::Escape { bytes: 1, means: Meaning::Nothing },
                _ => Read::Plain,
            },
        }
    }
}

impl View {
    /// Begins at an escape; `state` is what the text before it ends with.
    pub(super) fn new(kind: Kind, state: StateID, begun: usize) -> Self {
        Self { kind, state, begun, places: Vec::new(), plain: 0, unfinished: None, left_out: false }
    }

    /// Takes the byte at this place. `found` is told where known values begin and end in the text.
    pub(super) fn step(
        &mut self,
        known: &Known,
        text: &[u8],
        at: usize,
        found: &mut impl FnMut(Place, usize),
    ) {
        let mut next = self.unfinished.take().unwrap_or(at);
        while next <= at {
            match self.kind.read(&text[next..=at], self.left_out) {
                Read::Unfinished => {
                    self.unfinished = Some(next);
                    return;
                }
                Read::Plain => {
                    self.take_plain(known, text, next, found);
                    next += 1;
                }
                Read::Escape { bytes, means } => {
                    self.take_escape(known, next..next + bytes, &means, found);
                    next += bytes;
                }
            }
        }
    }

    /// The text ends here: an escape that is unfinished is none.
    pub(super) fn finish(&mut self, known: &Known, text: &[u8], found: &mut impl FnMut(Place, usize)) {
        while let Some(next) = self.unfinished.take() {
            self.take_plain(known, text, next, found);
            for at in next + 1..text.len() {
                self.step(known, text, at, found);
            }
        }
    }

    /// Whether it differs from the text itself in anything that may be part of a known value.
    pub(super) fn is_needed(&self, known: &Known) -> bool {
        self.unfinished.is_some() || self.plain < known.beginning(self.state).bytes
    }

    /// Where a known value may have begun that is not at its end yet.
    pub(super) fn begun(&self, known: &Known) -> Option<Place> {
        let beginning = known.beginning(self.state);
        (beginning.bytes > 0).then(|| beginning.at(self.place(beginning.bytes)))
    }

    /// Where an escape begins of which the end is not known yet.
    pub(super) fn unfinished(&self) -> Option<usize> {
        self.unfinished
    }

    /// The first bytes of the text are forgotten.
    pub(super) fn shift(&mut self, by: usize) {
        self.begun = self.begun.saturating_sub(by);
        self.places.iter_mut().for_each(|place| *place = place.saturating_sub(by));
        self.unfinished = self.unfinished.map(|at| at - by);
    }

    fn take_plain(&mut self, known: &Known, text: &[u8], at: usize, found: &mut impl FnMut(Place, usize)) {
        self.plain += 1;
        self.left_out = false;
        self.feed(known, text[at], at..at + 1, found);
    }

    fn take_escape(
        &mut self,
        known: &Known,
        place: std::ops::Range<usize>,
        means: &Meaning,
        found: &mut impl FnMut(Place, usize),
    ) {
        self.plain = 0;
        self.left_out = *means == Meaning::Nothing;
        match means {
            Meaning::Nothing => {}
            Meaning::Byte(byte) => self.feed(known, *byte, place, found),
            Meaning::Char(c) => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    self.feed(known, byte, place.clone(), found);
                }
            }
        }
    }

    fn feed(
        &mut self,
        known: &Known,
        byte: u8,
        place: std::ops::Range<usize>,
        found: &mut impl FnMut(Place, usize),
    ) {
        self.state = known.next(self.state, byte);
        if self.places.len() > 2 * known.bytes_max() {
            self.places.drain(..self.places.len() - known.bytes_max());
        }
        self.places.push(place.start);
        for ending in known.ending(self.state) {
            found(ending.at(self.place(ending.bytes)), place.end);
        }
    }

    /// Where the last so many bytes of the view begin in the text.
    fn place(&self, bytes: usize) -> usize {
        match self.places.len().checked_sub(bytes) {
            Some(index) => self.places[index],
            None => self.begun.saturating_sub(bytes - self.places.len()),
        }
    }
}

fn percent(text: &[u8]) -> Read {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match text {
        [b'%'] => Read::Unfinished,
        [b'%', high] if digit(*high).is_some() => Read::Unfinished,
        [b'%', high, low, ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Read::Escape { bytes: 3, means: Meaning::Byte(high << 4 | low) },
            _ => Read::Plain,
        },
        _ => Read::Plain,
    }
}

fn json(text: &[u8]) -> Read {
    let short = |c| Read::Escape { bytes: 2, means: Meaning::Byte(c) };
    match text {
        [b'\\'] => Read::Unfinished,
        [b'\\', b'n', ..] => short(b'\n'),
        [b'\\', b'r', ..] => short(b'\r'),
        [b'\\', b't', ..] => short(b'\t'),
        [b'\\', b'b', ..] => short(8),
        [b'\\', b'f', ..] => short(12),
        [b'\\', c @ (b'"' | b'\\' | b'/' | b'\''), ..] => short(*c),
        [b'\\', b'u', digits @ ..] => unicode(digits),
        _ => Read::Plain,
    }
}

/// Four digits, or twice four with `\u` between for a character that takes two.
fn unicode(digits: &[u8]) -> Read {
    let (first, rest) = match code_unit(digits) {
        Ok(first) => (first, &digits[4..]),
        Err(read) => return read,
    };
    if !(0xD800..0xDC00).contains(&first) {
        let means = char::from_u32(first).map(Meaning::Char);
        return means.map_or(Read::Plain, |means| Read::Escape { bytes: 6, means });
    }
    let digits = match rest {
        [] | [b'\\'] => return Read::Unfinished,
        [b'\\', b'u', digits @ ..] => digits,
        _ => return Read::Plain,
    };
    let second = match code_unit(digits) {
        Ok(second) if (0xDC00..0xE000).contains(&second) => second,
        Ok(_) => return Read::Plain,
        Err(read) => return read,
    };
    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    let means = char::from_u32(code).map(Meaning::Char);
    means.map_or(Read::Plain, |means| Read::Escape { bytes: 12, means })
}

fn code_unit(digits: &[u8]) -> Result<u32, Read> {
    let mut code = 0;
    for index in 0..4 {
        let Some(digit) = digits.get(index) else { return Err(Read::Unfinished) };
        code = code << 4 | char::from(*digit).to_digit(16).ok_or(Read::Plain)?;
    }
    Ok(code)
}
