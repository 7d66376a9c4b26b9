//! Updates of a dialect, one event after the other: the same walk for all that need no count of them.

use std::sync::Arc;

use engine::Event;

use crate::dialect::{Piece, Stand, View};

/// How many events were taken, and what the connection itself must act on.
pub type Step<'a> = (usize, Option<Piece<'a>>);

pub trait Encoder {
    /// Encodes the first of these events, and those after it that become one update with it. There is at least one.
    fn step<'a>(&mut self, rest: &'a [Arc<Event>], view: View, out: &mut Vec<u8>) -> Step<'a>;

    /// All events there are were taken.
    fn rest(&mut self, _view: View, _out: &mut Vec<u8>) {}

    /// Encodes events up to and including the first that needs the connection. `stands` says where in the log the
    /// frames are.
    fn encode<'a>(
        &mut self,
        events: &'a [Arc<Event>],
        view: View,
        stands: &mut Vec<Stand>,
        out: &mut Vec<u8>,
    ) -> Step<'a> {
        let mut at = 0;
        while let Some(event) = events.get(at) {
            let offset = out.len();
            let (taken, piece) = self.step(events.get(at..).unwrap_or_default(), view, out);
            at += taken;
            // Whoever has a merged update has seen the last of its pieces.
            let seq = events.get(at - 1).map_or(event.seq, |last| last.seq);
            stands.push(Stand { offset, seq });
            if piece.is_some() {
                return (at, piece);
            }
        }
        self.rest(view, out);
        (at, None)
    }
}
