//! Packs events, views and cards into batches that are no larger than a frame may be.
//!
//! A page of the log is measured in memory; sealed and encoded it may be several times as large. So the
//! size is taken from the encoded bodies, and what does not fit goes into one more batch.

use wire::tunnel::{CardEntry, EventEntry, MirrorBatch, TUNNEL_FRAME_BYTES_MAX, ViewEntry};

/// Room in a frame for everything besides the bodies of events, views and cards.
const FRAME_ROOM: usize = 64 << 10;
/// Room for what is encoded around one body.
const ENTRY_ROOM: usize = 128;
/// The largest body.
pub(super) const BODY_BYTES_MAX: usize = TUNNEL_FRAME_BYTES_MAX - FRAME_ROOM - ENTRY_ROOM;

/// Packs batches in their order. The view and the card come with the last events, or alone if they do not fit there.
pub(super) fn pack(
    after: u64,
    events: Vec<EventEntry>,
    view: Option<ViewEntry>,
    card: Option<CardEntry>,
) -> Vec<MirrorBatch> {
    let mut packer = BatchPacker { full: Vec::new(), batch: empty(after), bytes: 0 };
    let mut last = after;
    for event in events {
        packer.make_room(event.body.get().len(), last);
        last = event.seq;
        packer.batch.events.push(event);
    }
    if let Some(view) = view {
        packer.make_room(view.body.get().len(), last);
        packer.batch.view = Some(view);
    }
    if let Some(card) = card {
        packer.make_room(card.body.get().len(), last);
        packer.batch.card = Some(card);
    }
    let BatchPacker { mut full, batch, bytes } = packer;
    if bytes > 0 {
        full.push(batch);
    }
    full
}

struct BatchPacker {
    full: Vec<MirrorBatch>,
    batch: MirrorBatch,
    bytes: usize,
}

impl BatchPacker {
    fn make_room(&mut self, body_bytes: usize, after: u64) {
        let bytes = body_bytes + ENTRY_ROOM;
        if self.bytes > 0 && self.bytes + bytes > TUNNEL_FRAME_BYTES_MAX - FRAME_ROOM {
            self.full.push(std::mem::replace(&mut self.batch, empty(after)));
            self.bytes = 0;
        }
        self.bytes += bytes;
    }
}

fn empty(after: u64) -> MirrorBatch {
    MirrorBatch { after, events: Vec::new(), view: None, card: None, mark: None, source: None }
}

#[cfg(test)]
mod tests {
    use serde_json::value::{RawValue, to_raw_value};
    use wire::tunnel::BridgeFrame;

    use super::*;

    fn body(bytes: usize) -> Box<RawValue> {
        to_raw_value(&"x".repeat(bytes - 2)).unwrap()
    }

    #[test]
    fn no_batch_is_larger_than_a_frame_and_none_is_lost() {
        let sizes = [BODY_BYTES_MAX, 9 << 20, 9 << 20, 9 << 20, 100, 100];
        let events = (8..).zip(sizes).map(|(seq, bytes)| EventEntry { seq, body: body(bytes) }).collect();
        let view = ViewEntry { from: None, upto: 13, body: body(BODY_BYTES_MAX) };
        let packed = pack(7, events, Some(view), None);
        let shape = |batch: &MirrorBatch| (batch.after, batch.events.len(), batch.view.is_some());
        let shapes: Vec<_> = packed.iter().map(shape).collect();
        assert_eq!(shapes, [(7, 1, false), (8, 2, false), (10, 3, false), (13, 0, true)]);
        for batch in packed {
            assert!(serde_json::to_vec(&BridgeFrame::Batch(batch)).unwrap().len() <= TUNNEL_FRAME_BYTES_MAX);
        }
        assert!(pack(7, Vec::new(), None, None).is_empty());
    }
}
