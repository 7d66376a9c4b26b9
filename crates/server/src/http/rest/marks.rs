//! Places in logs whose number in a stream is known, so that a client that comes back to a long
//! session does not wait until all of it was counted again.
//!
//! They are found again whenever somebody reads that far, so losing one costs time and nothing else.

use std::collections::HashMap;

use engine::{Seq, SessionId};
use wire::rest::Form;

/// Logs whose places are kept.
const LOGS_MAX: usize = 256;
/// Places per log. When there are more, every second one is forgotten.
const PLACES_MAX: usize = 64;

/// After this event so many frames were told, and no turn ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    pub after: Seq,
    pub told: u64,
}

#[derive(Debug, Default)]
pub(super) struct Marks {
    logs: HashMap<(SessionId, Form), Vec<Mark>>,
}

impl Marks {
    pub fn note(&mut self, session: &SessionId, form: Form, mark: Mark) {
        let key = (session.clone(), form);
        if self.logs.len() >= LOGS_MAX && !self.logs.contains_key(&key) {
            // Any of them: the one that is missed comes back by itself.
            let victim = self.logs.keys().next().cloned();
            victim.and_then(|victim| self.logs.remove(&victim));
        }
        let marks = self.logs.entry(key).or_default();
        if marks.last().is_some_and(|last| last.after >= mark.after) {
            return;
        }
        marks.push(mark);
        if marks.len() > PLACES_MAX {
            let mut index = 0;
            marks.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
    }

    /// The last place before frame `since` ends, or before `forgotten` if that is further.
    pub fn before(&self, session: &SessionId, form: Form, since: u64, forgotten: Seq) -> Mark {
        let marks = self.logs.get(&(session.clone(), form)).map(Vec::as_slice).unwrap_or_default();
        let reached = |mark: &&Mark| mark.told <= since || mark.after <= forgotten;
        marks.iter().rev().find(reached).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u64) -> Mark {
        Mark { after: Seq(number * 10), told: number * 3 }
    }

    #[test]
    fn the_nearest_place_before_a_number_is_found() {
        let (mut marks, session) = (Marks::default(), SessionId::random());
        for number in 1..=1000 {
            marks.note(&session, Form::Loop, mark(number));
        }
        let found = marks.before(&session, Form::Loop, 2500, Seq::START);
        assert!(found.told <= 2500 && found.told > 2300, "{found:?}");
        assert_eq!(marks.before(&session, Form::Loop, 0, Seq::START), Mark::default());
        assert_eq!(marks.before(&session, Form::Delta, 2500, Seq::START), Mark::default());
        let found = marks.before(&session, Form::Loop, 0, Seq(9000));
        assert!(found.after <= Seq(9000) && found.after > Seq(8000), "{found:?}");
        assert!(marks.logs.values().all(|marks| marks.len() <= PLACES_MAX));
    }

    #[test]
    fn the_memory_for_places_is_bounded() {
        let mut marks = Marks::default();
        for _ in 0..3 * LOGS_MAX {
            marks.note(&SessionId::random(), Form::Loop, mark(1));
        }
        assert_eq!(marks.logs.len(), LOGS_MAX);
    }
}
