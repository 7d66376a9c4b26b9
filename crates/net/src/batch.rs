//! What a connection writes: whole frames, and where in a session's log each of them stands.
//!
//! A link that only moves bytes ignores the marks. One whose client can come back later tells the
//! client its position with every frame.

use std::fmt;

use engine::{Seq, SessionId};

/// Frames in order, each with its line end.
#[derive(Debug, Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    /// In the order of their offsets; each holds until the next.
    pub marks: Vec<Mark>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub offset: usize,
    /// The session that the frames are about; none for what concerns the whole connection.
    pub session: Option<SessionId>,
    pub at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Made from this event: whoever has all of these frames has seen it. So many frames of it were left
    /// out, because the client has them.
    Event(Seq, u32),
    /// An answer or a piece of state, after everything up to this event: the so-many-th there.
    Extra(Seq, u32),
}

/// How much of a stream a client has: everything up to an event, and perhaps some frames more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub seq: Seq,
    pub more: More,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum More {
    #[default]
    Nothing,
    /// So many extra frames after the event.
    Extras(u32),
    /// So many frames of the event that follows.
    Frames(u32),
}

impl Position {
    pub fn after(seq: Seq) -> Self {
        Self { seq, more: More::Nothing }
    }

    /// Frames of the next event that the client has.
    pub fn frames(self) -> u32 {
        match self.more {
            More::Frames(count) => count,
            More::Nothing | More::Extras(_) => 0,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| -> Option<u32> {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if plain { text.parse().ok() } else { None }
        };
        let seq = |text: &str| -> Option<Seq> {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if plain { text.parse().ok().map(Seq) } else { None }
        };
        Some(if let Some((first, second)) = text.split_once('.') {
            Self { seq: seq(first)?, more: More::Frames(number(second)?) }
        } else if let Some((first, second)) = text.split_once('+') {
            Self { seq: seq(first)?, more: More::Extras(number(second)?) }
        } else {
            Self::after(seq(text)?)
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.more {
            More::Nothing => write!(f, "{}", self.seq),
            More::Extras(count) => write!(f, "{}+{count}", self.seq),
            More::Frames(count) => write!(f, "{}.{count}", self.seq),
        }
    }
}

/// One frame of a batch, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    pub frame: &'a [u8],
    pub session: Option<&'a SessionId>,
    /// Where a client stands that has this frame.
    pub position: Position,
}

impl Batch {
    /// Every frame with the position it leads to.
    pub fn placed(&self) -> Vec<Placed<'_>> {
        let mut placed = Vec::new();
        for (index, mark) in self.marks.iter().enumerate() {
            let end = self.marks.get(index + 1).map_or(self.bytes.len(), |next| next.offset);
            let frames: Vec<_> = lines(self.bytes.get(mark.offset..end).unwrap_or_default()).collect();
            let count = frames.len();
            for (frame, nth) in frames.into_iter().zip(1..) {
                let position = match mark.at {
                    At::Event(seq, _) if usize::try_from(nth).is_ok_and(|nth| nth == count) => {
                        Position::after(seq)
                    }
                    At::Event(seq, left_out) => {
                        Position { seq: Seq(seq.0.saturating_sub(1)), more: More::Frames(left_out + nth) }
                    }
                    At::Extra(seq, nth) => Position { seq, more: More::Extras(nth) },
                };
                placed.push(Placed { frame, session: mark.session.as_ref(), position });
            }
        }
        placed
    }

    /// Every frame, without its line end.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.bytes)
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        assert_eq!(Position::parse(text).map(|position| position.to_string()).as_deref(), Some(text));
    }

    #[test]
    fn positions_come_back_from_their_text() {
        for good in ["0", "12", "12.3", "12+4", "18446744073709551615"] {
            check(good);
        }
        for bad in ["", "-1", "+1", "1.", "1.+2", "1.2.3", "x", "1 ", "18446744073709551616", "1.4294967296"]
        {
            assert_eq!(Position::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_the_last_frame_of_an_event_passes_it() {
        let mark = |offset, at| Mark { offset, session: None, at };
        let batch = Batch {
            bytes: b"a\nb\nc\nd\n".to_vec(),
            marks: vec![
                mark(0, At::Event(Seq(3), 0)),
                mark(0, At::Event(Seq(7), 0)),
                mark(4, At::Extra(Seq(7), 1)),
                mark(6, At::Event(Seq(8), 0)),
            ],
        };
        let shown: Vec<_> = batch.placed().iter().map(|placed| placed.position.to_string()).collect();
        assert_eq!(shown, ["6.1", "7", "7+1", "8"]);
    }
}
