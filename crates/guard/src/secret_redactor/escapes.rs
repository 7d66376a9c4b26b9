//! Reads a text with its escapes undone: percent encoding, JSON backslashes, line ends inside long base64. Any mixture
//! of escaped and plain characters reads the same.
//!
//! A view starts only at an escape, and lives only while a known value may have begun before or in it: otherwise it
//! reads like the text itself.

use aho_corasick::automaton::StateID;

use super::known_values::{KnownValues, MatchPosition};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeKind {
    Percent,
    Json,
    /// Lines that were broken, and perhaps indented.
    Wrapped,
}

/// How the first bytes of the remaining text read.
#[derive(Debug, PartialEq, Eq)]
enum EscapeRead {
    Plain,
    /// More is needed to tell.
    Unfinished,
    Escape {
        bytes: usize,
        means: Unescaped,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Unescaped {
    Nothing,
    Byte(u8),
    Char(char),
}

/// The unescaped text from one escape on, and the state of the search for known values in it.
#[derive(Debug, Clone)]
pub(super) struct UnescapedView {
    pub(super) kind: EscapeKind,
    state: StateID,
    /// The offset in the text at which the view begins.
    begun: usize,
    /// For each byte of the view: its offset in the text.
    places: Vec<usize>,
    /// How many bytes at the end of the view are not escapes.
    plain: usize,
    /// The offset of an escape whose end has not arrived yet.
    unfinished: Option<usize>,
    /// The last byte means nothing and was skipped.
    left_out: bool,
}

impl EscapeKind {
    /// Which escapes begin with this byte.
    pub(super) fn of(byte: u8) -> Option<Self> {
        match byte {
            b'%' => Some(Self::Percent),
            b'\\' => Some(Self::Json),
            b'\n' | b'\r' => Some(Self::Wrapped),
            _ => None,
        }
    }

    fn read(self, text: &[u8], after_left_out: bool) -> EscapeRead {
        match self {
            Self::Percent => percent(text),
            Self::Json => json(text),
            Self::Wrapped => match text {
                [b'\n' | b'\r', ..] => EscapeRead::Escape { bytes: 1, means: Unescaped::Nothing },
                [b' ' | b'\t', ..] if after_left_out => {
                    EscapeRead::Escape { bytes: 1, means: Unescaped::Nothing }
                }
                _ => EscapeRead::Plain,
            },
        }
    }
}

impl UnescapedView {
    /// Begins at an escape; `state` is what the text before it ends with.
    pub(super) fn new(kind: EscapeKind, state: StateID, begun: usize) -> Self {
        Self { kind, state, begun, places: Vec::new(), plain: 0, unfinished: None, left_out: false }
    }

    /// Reads the byte at this offset. Calls `found` with the start and end of known values in the text.
    pub(super) fn step(
        &mut self,
        known: &KnownValues,
        text: &[u8],
        at: usize,
        found: &mut impl FnMut(MatchPosition, usize),
    ) {
        let mut next = self.unfinished.take().unwrap_or(at);
        while next <= at {
            match self.kind.read(&text[next..=at], self.left_out) {
                EscapeRead::Unfinished => {
                    self.unfinished = Some(next);
                    return;
                }
                EscapeRead::Plain => {
                    self.take_plain(known, text, next, found);
                    next += 1;
                }
                EscapeRead::Escape { bytes, means } => {
                    self.take_escape(known, next..next + bytes, &means, found);
                    next += bytes;
                }
            }
        }
    }

    /// The text ends here: an unfinished escape is read as plain text.
    pub(super) fn finish(
        &mut self,
        known: &KnownValues,
        text: &[u8],
        found: &mut impl FnMut(MatchPosition, usize),
    ) {
        while let Some(next) = self.unfinished.take() {
            self.take_plain(known, text, next, found);
            for at in next + 1..text.len() {
                self.step(known, text, at, found);
            }
        }
    }

    /// Whether it differs from the text itself in anything that may be part of a known value.
    pub(super) fn is_needed(&self, known: &KnownValues) -> bool {
        self.unfinished.is_some() || self.plain < known.beginning(self.state).bytes
    }

    /// Where a known value may have begun that has not ended yet.
    pub(super) fn begun(&self, known: &KnownValues) -> Option<MatchPosition> {
        let beginning = known.beginning(self.state);
        (beginning.bytes > 0).then(|| beginning.at(self.place(beginning.bytes)))
    }

    /// The offset of an escape whose end has not arrived yet.
    pub(super) fn unfinished(&self) -> Option<usize> {
        self.unfinished
    }

    /// Adjusts all offsets after the first bytes of the text were dropped.
    pub(super) fn shift(&mut self, by: usize) {
        self.begun = self.begun.saturating_sub(by);
        self.places.iter_mut().for_each(|place| *place = place.saturating_sub(by));
        self.unfinished = self.unfinished.map(|at| at - by);
    }

    fn take_plain(
        &mut self,
        known: &KnownValues,
        text: &[u8],
        at: usize,
        found: &mut impl FnMut(MatchPosition, usize),
    ) {
        self.plain += 1;
        self.left_out = false;
        self.feed(known, text[at], at..at + 1, found);
    }

    fn take_escape(
        &mut self,
        known: &KnownValues,
        place: std::ops::Range<usize>,
        means: &Unescaped,
        found: &mut impl FnMut(MatchPosition, usize),
    ) {
        self.plain = 0;
        self.left_out = *means == Unescaped::Nothing;
        match means {
            Unescaped::Nothing => {}
            Unescaped::Byte(byte) => self.feed(known, *byte, place, found),
            Unescaped::Char(c) => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    self.feed(known, byte, place.clone(), found);
                }
            }
        }
    }

    fn feed(
        &mut self,
        known: &KnownValues,
        byte: u8,
        place: std::ops::Range<usize>,
        found: &mut impl FnMut(MatchPosition, usize),
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

fn percent(text: &[u8]) -> EscapeRead {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match text {
        [b'%'] => EscapeRead::Unfinished,
        [b'%', high] if digit(*high).is_some() => EscapeRead::Unfinished,
        [b'%', high, low, ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => {
                EscapeRead::Escape { bytes: 3, means: Unescaped::Byte(high << 4 | low) }
            }
            _ => EscapeRead::Plain,
        },
        _ => EscapeRead::Plain,
    }
}

fn json(text: &[u8]) -> EscapeRead {
    let short = |c| EscapeRead::Escape { bytes: 2, means: Unescaped::Byte(c) };
    match text {
        [b'\\'] => EscapeRead::Unfinished,
        [b'\\', b'n', ..] => short(b'\n'),
        [b'\\', b'r', ..] => short(b'\r'),
        [b'\\', b't', ..] => short(b'\t'),
        [b'\\', b'b', ..] => short(8),
        [b'\\', b'f', ..] => short(12),
        [b'\\', c @ (b'"' | b'\\' | b'/' | b'\''), ..] => short(*c),
        [b'\\', b'u', digits @ ..] => unicode(digits),
        _ => EscapeRead::Plain,
    }
}

/// Four digits, or twice four with `\u` between for a character that takes two.
fn unicode(digits: &[u8]) -> EscapeRead {
    let (first, rest) = match code_unit(digits) {
        Ok(first) => (first, &digits[4..]),
        Err(read) => return read,
    };
    if !(0xD800..0xDC00).contains(&first) {
        let means = char::from_u32(first).map(Unescaped::Char);
        return means.map_or(EscapeRead::Plain, |means| EscapeRead::Escape { bytes: 6, means });
    }
    let digits = match rest {
        [] | [b'\\'] => return EscapeRead::Unfinished,
        [b'\\', b'u', digits @ ..] => digits,
        _ => return EscapeRead::Plain,
    };
    let second = match code_unit(digits) {
        Ok(second) if (0xDC00..0xE000).contains(&second) => second,
        Ok(_) => return EscapeRead::Plain,
        Err(read) => return read,
    };
    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    let means = char::from_u32(code).map(Unescaped::Char);
    means.map_or(EscapeRead::Plain, |means| EscapeRead::Escape { bytes: 12, means })
}

fn code_unit(digits: &[u8]) -> Result<u32, EscapeRead> {
    let mut code = 0;
    for index in 0..4 {
        let Some(digit) = digits.get(index) else { return Err(EscapeRead::Unfinished) };
        code = code << 4 | char::from(*digit).to_digit(16).ok_or(EscapeRead::Plain)?;
    }
    Ok(code)
}
