//! A position in a session's log, as a client names it: everything up to an event, and perhaps some frames
//! beyond it.
//!
//! Every connection type whose clients resume converts what they send into a [`Cursor`], or says why it
//! cannot: see the table "Where resume is decided" in `ARCHITECTURE.md`. As text it is `12`, `12.3` (three
//! frames of the event after 12) or `12+4` (four frames after 12 that are not in the log).
//!
//! It says where a client resumes after a cut, a reload or a restart.

use std::fmt;

use engine::Seq;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub seq: Seq,
    pub more: PartialFrames,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartialFrames {
    #[default]
    Nothing,
    /// This many extra frames after the event.
    Extras(u32),
    /// This many frames of the event that follows.
    Frames(u32),
}

impl Cursor {
    /// Everything up to this event, and nothing of the next.
    pub fn after(seq: Seq) -> Self {
        Self { seq, more: PartialFrames::Nothing }
    }

    /// This many frames of this event, without its last.
    pub fn within(seq: Seq, frames: u32) -> Self {
        Self { seq: Seq(seq.0.saturating_sub(1)), more: PartialFrames::Frames(frames) }
    }

    /// This many of the frames that follow this event and are not made from the log.
    pub fn extra(seq: Seq, nth: u32) -> Self {
        Self { seq, more: PartialFrames::Extras(nth) }
    }

    /// How many frames of the next event the client has.
    pub fn frames(self) -> u32 {
        match self.more {
            PartialFrames::Frames(count) => count,
            PartialFrames::Nothing | PartialFrames::Extras(_) => 0,
        }
    }

    /// Whether the log does not reach this far: the position never existed, or was lost.
    pub fn is_beyond(self, head: Seq) -> bool {
        self.seq > head
    }

    /// Moves the cursor past a clear: what was cleared is not sent again.
    pub fn not_before(self, cleared: Seq) -> Self {
        self.max(Self::after(cleared))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let seq = |text: &str| number(text).map(Seq);
        let count = |text: &str| number(text).and_then(|count| u32::try_from(count).ok());
        Some(if let Some((first, second)) = text.split_once('.') {
            Self { seq: seq(first)?, more: PartialFrames::Frames(count(second)?) }
        } else if let Some((first, second)) = text.split_once('+') {
            Self { seq: seq(first)?, more: PartialFrames::Extras(count(second)?) }
        } else {
            Self::after(seq(text)?)
        })
    }
}

/// A number of digits only.
pub fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.more {
            PartialFrames::Nothing => write!(f, "{}", self.seq),
            PartialFrames::Extras(count) => write!(f, "{}+{count}", self.seq),
            PartialFrames::Frames(count) => write!(f, "{}.{count}", self.seq),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str) {
        assert_eq!(Cursor::parse(text).map(|cursor| cursor.to_string()).as_deref(), Some(text));
    }

    #[test]
    fn cursors_come_back_from_their_text() {
        for good in ["0", "12", "12.3", "12+4", "18446744073709551615"] {
            check(good);
        }
        for bad in ["", "-1", "+1", "1.", "1.+2", "1.2.3", "x", "1 ", "18446744073709551616", "1.4294967296"]
        {
            assert_eq!(Cursor::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_was_cleared_is_passed_over_and_what_is_not_there_yet_is_seen() {
        let within = Cursor::within(Seq(5), 2);
        assert_eq!((within.to_string(), within.frames()), ("4.2".into(), 2));
        assert_eq!(within.not_before(Seq(3)), within);
        assert_eq!(within.not_before(Seq(4)), within);
        assert_eq!(within.not_before(Seq(5)), Cursor::after(Seq(5)));
        assert!(within.is_beyond(Seq(3)) && !within.is_beyond(Seq(4)));
        assert_eq!(Cursor::within(Seq(0), 1).seq, Seq::START);
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_as_the_same(seq: u64, count: u32, kind in 0_usize..3) {
            let more = [PartialFrames::Nothing, PartialFrames::Extras(count), PartialFrames::Frames(count)][kind];
            let cursor = Cursor { seq: Seq(seq), more };
            prop_assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        }
    }
}
