//! Frames that are not made from the log, kept for clients that may ask for them again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use engine::Seq;

use wire::cursor::{Cursor, PartialFrames};

/// Frames that are kept of each stream. A client that missed more was disconnected during hundreds of its own calls.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
pub(super) struct ExtraFrames {
    kept: VecDeque<ExtraFrame>,
    bytes: usize,
    /// The last one that was counted.
    last: (Seq, u32),
    /// The last one that was dropped.
    lost: Arc<Mutex<Option<Cursor>>>,
    /// Sent again when the reader has come to their position.
    again: VecDeque<ExtraFrame>,
}

#[derive(Clone)]
pub(super) struct ExtraFrame {
    pub(super) at: Seq,
    pub(super) nth: u32,
    pub(super) frame: Vec<u8>,
}

impl ExtraFrames {
    /// `lost` gets the position of the last frame that was dropped.
    pub(super) fn new(lost: Arc<Mutex<Option<Cursor>>>) -> Self {
        Self { lost, ..Self::default() }
    }

    /// Keeps a frame that belongs after the event `at`. Returns its number among those there.
    pub(super) fn keep(&mut self, at: Seq, frame: &[u8]) -> u32 {
        let nth = self.count(at) + 1;
        self.last = (at, nth);
        self.bytes += frame.len();
        self.kept.push_back(ExtraFrame { at, nth, frame: frame.to_vec() });
        // The newest is kept however large it is: it may be unread.
        while self.kept.len() > 1 && (self.kept.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX) {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.frame.len();
            let position = Cursor::extra(oldest.at, oldest.nth);
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
        }
        nth
    }

    /// How many there are after the event `at` so far.
    pub(super) fn count(&self, at: Seq) -> u32 {
        let found = self.kept.iter().rev().find(|extra| extra.at == at).map(|extra| extra.nth);
        found.or_else(|| (self.last.0 == at).then_some(self.last.1)).unwrap_or(0)
    }

    /// The client has everything up to here and nothing after it.
    pub(super) fn rewind(&mut self, position: Cursor) {
        let seen = |extra: &&ExtraFrame| match position.more {
            PartialFrames::Nothing => extra.at < position.seq,
            PartialFrames::Extras(count) => (extra.at, extra.nth) <= (position.seq, count),
            PartialFrames::Frames(_) => extra.at <= position.seq,
        };
        self.again = self.kept.iter().filter(|extra| !seen(extra)).cloned().collect();
    }

    /// The position of the next frame to send again.
    pub(super) fn next_at(&self) -> Option<Seq> {
        self.again.front().map(|extra| extra.at)
    }

    /// The next frame to send again, once the reader is there.
    pub(super) fn due(&mut self, cursor: Seq) -> Option<ExtraFrame> {
        self.again.pop_front_if(|extra| extra.at <= cursor)
    }
}
