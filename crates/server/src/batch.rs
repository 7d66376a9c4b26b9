//! What a connection writes: whole frames, and where in a session's log each of them stands.
//!
//! A link that only moves bytes ignores the marks. One whose client can come back later tells the
//! client its position with every frame.

use axum::body::Bytes;
use engine::{Seq, SessionId};
use wire::Cursor;

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

/// One frame of a batch, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    pub frame: &'a [u8],
    pub session: Option<&'a SessionId>,
    /// Where a client stands that has this frame.
    pub position: Cursor,
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
                        Cursor::after(seq)
                    }
                    At::Event(seq, left_out) => Cursor::within(seq, left_out + nth),
                    At::Extra(seq, nth) => Cursor::extra(seq, nth),
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

    /// The same, without copying any of them.
    pub fn into_frames(self) -> impl Iterator<Item = Bytes> {
        let mut rest = Bytes::from(self.bytes);
        std::iter::from_fn(move || {
            while !rest.is_empty() {
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                let frame = rest.split_to(length);
                drop(rest.split_to(rest.len().min(1)));
                if !frame.is_empty() {
                    return Some(frame);
                }
            }
            None
        })
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(batch.frames().collect::<Vec<_>>(), [b"a", b"b", b"c", b"d"]);
        assert_eq!(batch.into_frames().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn frames_are_taken_out_of_a_batch_as_they_are_looked_at() {
        for bytes in ["", "\n", "a", "a\n", "\n\na\n\nbc\nd"] {
            let batch = Batch { bytes: bytes.into(), marks: Vec::new() };
            let looked: Vec<_> = batch.frames().map(<[u8]>::to_vec).collect();
            assert_eq!(batch.into_frames().collect::<Vec<_>>(), looked, "{bytes:?}");
        }
    }
}
