//! The common loop of dialect encoders whose updates are not numbered: event by event.

use std::sync::Arc;

use engine::Event;

use crate::dialect::{ConnectionEvent, EncodeContext, FrameOffset};

/// How many events were encoded, and the event that the connection itself must act on.
pub type EncodeStep<'a> = (usize, Option<ConnectionEvent<'a>>);

pub trait Encoder {
    /// Encodes the first of these events, and the events after it that are merged into the same update.
    /// There is at least one event.
    fn step<'a>(
        &mut self,
        rest: &'a [Arc<Event>],
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> EncodeStep<'a>;

    /// Called when all available events were encoded.
    fn finish(&mut self, _context: EncodeContext, _out: &mut Vec<u8>) {}

    /// Encodes events up to and including the first that needs the connection. `positions` receives the log
    /// positions of the frames.
    fn encode<'a>(
        &mut self,
        events: &'a [Arc<Event>],
        context: EncodeContext,
        positions: &mut Vec<FrameOffset>,
        out: &mut Vec<u8>,
    ) -> EncodeStep<'a> {
        let mut at = 0;
        while let Some(event) = events.get(at) {
            let offset = out.len();
            let (taken, piece) = self.step(events.get(at..).unwrap_or_default(), context, out);
            at += taken;
            // A client that has a merged update has seen the last of its events.
            let seq = events.get(at - 1).map_or(event.seq, |last| last.seq);
            positions.push(FrameOffset { offset, seq });
            if piece.is_some() {
                return (at, piece);
            }
        }
        self.finish(context, out);
        (at, None)
    }
}
