//! Pages that were read a moment ago, for the next reader of the same session.
//!
//! Readers that are behind what the session keeps in memory read the same rows one after the other. To
//! fetch and decode them costs more than all that is done with them, so it is done once for those that
//! go on side by side.
//!
//! **Invariant:** events never change and are only ever added at the end, so what was true of a page
//! stays true for as long as its session is there.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Event, Page, Seq};

/// Of all sessions together.
const PAGES_MAX: usize = 16;
const BYTES_MAX: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Recent {
    pages: VecDeque<Kept>,
    bytes: usize,
}

struct Kept {
    session: i64,
    id: Arc<str>,
    /// Everything after this is in it, up to its last event.
    after: Seq,
    last: Seq,
    events: Vec<Arc<Event>>,
    bytes: usize,
}

impl Recent {
    /// The next events, as many as are kept; none if the store has to be asked.
    pub(super) fn find(&self, session: i64, id: &str, after: Seq, page: Page) -> Option<Vec<Arc<Event>>> {
        if page.outline {
            return None;
        }
        let holds = |kept: &&Kept| {
            kept.session == session && *kept.id == *id && kept.after <= after && after < kept.last
        };
        let kept = self.pages.iter().rev().find(holds)?;
        let start = kept.events.partition_point(|event| event.seq <= after);
        let mut bytes = 0;
        let fits = |event: &&Arc<Event>| {
            let fits = bytes < page.bytes_max.max(1);
            bytes += event.body.weight();
            fits
        };
        Some(kept.events.iter().skip(start).take(page.count_max).take_while(fits).cloned().collect())
    }

    pub(super) fn keep(&mut self, session: i64, id: &str, after: Seq, page: Page, events: &[Arc<Event>]) {
        let Some(last) = events.last().map(|event| event.seq).filter(|_| !page.outline) else { return };
        let bytes = events.iter().map(|event| event.body.weight()).sum();
        self.bytes += bytes;
        let events = events.to_vec();
        self.pages.push_back(Kept { session, id: id.into(), after, last, events, bytes });
        while self.pages.len() > PAGES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.pages.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::{Body, MessageId, Origin, Timestamp};

    use super::*;

    fn events(seqs: std::ops::RangeInclusive<u64>) -> Vec<Arc<Event>> {
        let event = |seq| Event {
            seq: Seq(seq),
            at: Timestamp(0),
            origin: Origin::Agent,
            turn: None,
            body: Body::Text { message: MessageId(1), text: "x".repeat(100).into() },
        };
        seqs.map(|seq| Arc::new(event(seq))).collect()
    }

    fn found(recent: &Recent, after: u64, page: Page) -> Option<Vec<u64>> {
        let found = recent.find(1, "a", Seq(after), page)?;
        Some(found.iter().map(|event| event.seq.0).collect())
    }

    #[test]
    fn a_reader_gets_the_rest_of_a_page_that_another_has_read() {
        let mut recent = Recent::default();
        recent.keep(1, "a", Seq(10), Page::USUAL, &events(11..=14));
        assert_eq!(found(&recent, 10, Page::USUAL), Some(vec![11, 12, 13, 14]));
        assert_eq!(found(&recent, 12, Page::USUAL), Some(vec![13, 14]));
        assert_eq!(found(&recent, 12, Page { count_max: 1, ..Page::USUAL }), Some(vec![13]));
        assert_eq!(found(&recent, 11, Page { bytes_max: 1, ..Page::USUAL }), Some(vec![12]));
        for outside in [0, 9, 14, 15] {
            assert_eq!(found(&recent, outside, Page::USUAL), None, "after {outside}");
        }
        assert_eq!(found(&recent, 12, Page::OUTLINE), None);
        assert!(recent.find(2, "a", Seq(12), Page::USUAL).is_none());
        assert!(recent.find(1, "b", Seq(12), Page::USUAL).is_none());
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let mut recent = Recent::default();
        for page in 0..2 * PAGES_MAX as u64 {
            recent.keep(1, "a", Seq(page * 2), Page::USUAL, &events(page * 2 + 1..=page * 2 + 2));
        }
        assert_eq!(recent.pages.len(), PAGES_MAX);
        assert_eq!(found(&recent, 0, Page::USUAL), None);
        assert!(found(&recent, 4 * PAGES_MAX as u64 - 2, Page::USUAL).is_some());
        recent.keep(1, "a", Seq(0), Page::OUTLINE, &events(1..=2));
        assert_eq!(found(&recent, 0, Page::USUAL), None, "a page with gaps is not kept");
        let large = events(1000..=1000 + BYTES_MAX as u64 / 100);
        recent.keep(1, "a", Seq(999), Page::USUAL, &large);
        assert!(recent.bytes <= BYTES_MAX);
    }
}
