//! A cache of recently read pages, for other readers of the same session.
//!
//! Readers that are behind the session's in-memory events read the same rows one after the other. Fetching and decoding a
//! page costs more than everything that is done with it, so readers that advance side by side share it.
//!
//! **Invariant:** events never change and are only added at the end, so a page that was full stays
//! the answer to the same query for as long as its session exists.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Event, PageRequest, Seq};

/// Of all sessions together.
const PAGES_MAX: usize = 16;
const BYTES_MAX: usize = 4 << 20;

#[derive(Default)]
pub(super) struct PageCache {
    pages: VecDeque<CachedPage>,
    bytes: usize,
}

struct CachedPage {
    session: i64,
    id: Arc<str>,
    after: Seq,
    count_max: usize,
    bytes_max: usize,
    events: Vec<Arc<Event>>,
    bytes: usize,
}

impl PageCache {
    /// The cached page for exactly this query.
    pub(super) fn find(
        &self,
        session: i64,
        id: &str,
        after: Seq,
        page: PageRequest,
    ) -> Option<Vec<Arc<Event>>> {
        let same = |kept: &&CachedPage| {
            kept.session == session
                && *kept.id == *id
                && kept.after == after
                && (kept.count_max, kept.bytes_max) == (page.count_max, page.bytes_max)
        };
        let kept = self.pages.iter().rev().filter(|_| !page.outline).find(same)?;
        Some(kept.events.clone())
    }

    /// Keeps a page that holds as much as was asked for; another one may grow.
    pub(super) fn keep(
        &mut self,
        session: i64,
        id: &str,
        after: Seq,
        page: PageRequest,
        events: &[Arc<Event>],
    ) {
        let bytes: usize = events.iter().map(|event| event.weight()).sum();
        let full = events.len() >= page.count_max || bytes >= page.bytes_max;
        if page.outline || events.is_empty() || !full {
            return;
        }
        self.bytes += bytes;
        let PageRequest { count_max, bytes_max, .. } = page;
        let events = events.to_vec();
        self.pages.push_back(CachedPage {
            session,
            id: id.into(),
            after,
            count_max,
            bytes_max,
            events,
            bytes,
        });
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
            relayed: None,
        };
        seqs.map(|seq| Arc::new(event(seq))).collect()
    }

    const FOUR: PageRequest = PageRequest { count_max: 4, ..PageRequest::USUAL };

    fn found(recent: &PageCache, after: u64, page: PageRequest) -> Option<Vec<u64>> {
        let found = recent.find(1, "a", Seq(after), page)?;
        Some(found.iter().map(|event| event.seq.0).collect())
    }

    #[test]
    fn the_same_question_has_the_same_answer_and_another_one_none() {
        let mut recent = PageCache::default();
        recent.keep(1, "a", Seq(10), FOUR, &events(11..=14));
        assert_eq!(found(&recent, 10, FOUR), Some(vec![11, 12, 13, 14]));
        for outside in [0, 9, 11, 14, 15] {
            assert_eq!(found(&recent, outside, FOUR), None, "after {outside}");
        }
        assert_eq!(found(&recent, 10, PageRequest::USUAL), None);
        assert_eq!(found(&recent, 10, PageRequest { outline: true, ..FOUR }), None);
        assert!(recent.find(2, "a", Seq(10), FOUR).is_none());
        assert!(recent.find(1, "b", Seq(10), FOUR).is_none());
    }

    #[test]
    fn a_page_that_may_grow_is_not_kept() {
        let mut recent = PageCache::default();
        recent.keep(1, "a", Seq(10), FOUR, &events(11..=13));
        assert_eq!(found(&recent, 10, FOUR), None);
        let small = PageRequest { bytes_max: 100, ..PageRequest::USUAL };
        recent.keep(1, "a", Seq(10), small, &events(11..=11));
        assert_eq!(found(&recent, 10, small), Some(vec![11]), "full by its bytes");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let mut recent = PageCache::default();
        for page in 0..2 * PAGES_MAX as u64 {
            recent.keep(1, "a", Seq(page * 4), FOUR, &events(page * 4 + 1..=page * 4 + 4));
        }
        assert_eq!(recent.pages.len(), PAGES_MAX);
        assert_eq!(found(&recent, 0, FOUR), None);
        assert!(found(&recent, 8 * PAGES_MAX as u64 - 4, FOUR).is_some());
        let large = PageRequest { count_max: 1, ..PageRequest::USUAL };
        for _ in 0..3 {
            let body = Body::Text { message: MessageId(1), text: "x".repeat(BYTES_MAX / 2).into() };
            let mut one = events(1..=1);
            one[0] = Arc::new(Event { body, ..(*one[0]).clone() });
            recent.keep(1, "a", Seq(0), large, &one);
        }
        assert!(recent.bytes <= BYTES_MAX);
    }
}
