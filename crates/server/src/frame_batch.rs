//! What a connection writes: whole frames, and the position in a session's log that each of them leads to.
//!
//! A link that only moves bytes ignores the marks. A transport whose client can reconnect tells the
//! client its position with every frame.

use axum::body::Bytes;
use engine::{Seq, SessionId};
use wire::Cursor;

/// Frames in order, each with its line end.
#[derive(Debug, Default)]
pub struct FrameBatch {
    pub bytes: Vec<u8>,
    /// In the order of their offsets; each holds until the next.
    pub marks: Vec<FrameMark>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameMark {
    pub offset: usize,
    /// The session that the frames are about; none for what concerns the whole connection.
    pub session: Option<SessionId>,
    pub at: FramePosition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramePosition {
    /// Frames of this event: a client that has all of them has seen the event. The number counts the frames that were left
    /// out, because the client has them.
    Event(Seq, u32),
    /// A reply or a piece of state, after everything up to this event; with its number among those there.
    Extra(Seq, u32),
}

/// One frame of a batch, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub struct PositionedFrame<'a> {
    pub frame: &'a [u8],
    pub session: Option<&'a SessionId>,
    /// The position of a client that has this frame.
    pub position: Cursor,
}

impl FrameBatch {
    /// Every frame with the position that it leads to.
    pub fn positioned(&self) -> Vec<PositionedFrame<'_>> {
        let mut positioned = Vec::new();
        for (index, mark) in self.marks.iter().enumerate() {
            let end = self.marks.get(index + 1).map_or(self.bytes.len(), |next| next.offset);
            let frames: Vec<_> = lines(self.bytes.get(mark.offset..end).unwrap_or_default()).collect();
            let count = frames.len();
            for (frame, nth) in frames.into_iter().zip(1..) {
                let position = match mark.at {
                    FramePosition::Event(seq, _) if usize::try_from(nth).is_ok_and(|nth| nth == count) => {
                        Cursor::after(seq)
                    }
                    FramePosition::Event(seq, left_out) => Cursor::within(seq, left_out + nth),
                    FramePosition::Extra(seq, nth) => Cursor::extra(seq, nth),
                };
                positioned.push(PositionedFrame { frame, session: mark.session.as_ref(), position });
            }
        }
        positioned
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
        let mark = |offset, at| FrameMark { offset, session: None, at };
        let batch = FrameBatch {
            bytes: b"a\nb\nc\nd\n".to_vec(),
            marks: vec![
                mark(0, FramePosition::Event(Seq(3), 0)),
                mark(0, FramePosition::Event(Seq(7), 0)),
                mark(4, FramePosition::Extra(Seq(7), 1)),
                mark(6, FramePosition::Event(Seq(8), 0)),
            ],
        };
        let shown: Vec<_> =
            batch.positioned().iter().map(|positioned| positioned.position.to_string()).collect();
        assert_eq!(shown, ["6.1", "7", "7+1", "8"]);
        assert_eq!(batch.frames().collect::<Vec<_>>(), [b"a", b"b", b"c", b"d"]);
        assert_eq!(batch.into_frames().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn frames_are_taken_out_of_a_batch_as_they_are_looked_at() {
        for bytes in ["", "\n", "a", "a\n", "\n\na\n\nbc\nd"] {
            let batch = FrameBatch { bytes: bytes.into(), marks: Vec::new() };
            let looked: Vec<_> = batch.frames().map(<[u8]>::to_vec).collect();
            assert_eq!(batch.into_frames().collect::<Vec<_>>(), looked, "{bytes:?}");
        }
    }
}
