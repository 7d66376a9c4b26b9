//! Checkpoints: positions in logs whose frame number in a stream is known, so that a client that resumes a long
//! session does not wait until all of its frames were counted again.
//!
//! They are found again whenever a stream is read that far, so losing one costs time and nothing else.

use std::collections::HashMap;

use engine::{Seq, SessionId};
use wire::rest::StreamFormat;

/// Logs whose checkpoints are kept.
const LOGS_MAX: usize = 256;
/// Checkpoints per log. When there are more, every second one is dropped.
const PLACES_MAX: usize = 64;

/// After this event so many frames had been sent, and no turn ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FrameCheckpoint {
    pub after: Seq,
    pub told: u64,
}

#[derive(Debug, Default)]
pub(super) struct FrameCheckpoints {
    logs: HashMap<(SessionId, StreamFormat), Vec<FrameCheckpoint>>,
}

impl FrameCheckpoints {
    pub fn note(&mut self, session: &SessionId, form: StreamFormat, checkpoint: FrameCheckpoint) {
        let key = (session.clone(), form);
        if self.logs.len() >= LOGS_MAX && !self.logs.contains_key(&key) {
            // Any of them: a checkpoint that is needed again comes back by itself.
            let victim = self.logs.keys().next().cloned();
            victim.and_then(|victim| self.logs.remove(&victim));
        }
        let checkpoints = self.logs.entry(key).or_default();
        if checkpoints.last().is_some_and(|last| last.after >= checkpoint.after) {
            return;
        }
        checkpoints.push(checkpoint);
        if checkpoints.len() > PLACES_MAX {
            let mut index = 0;
            checkpoints.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
    }

    /// The last checkpoint before frame `since` ends, or before `forgotten` if that is further.
    pub fn before(
        &self,
        session: &SessionId,
        form: StreamFormat,
        since: u64,
        forgotten: Seq,
    ) -> FrameCheckpoint {
        let checkpoints = self.logs.get(&(session.clone(), form)).map(Vec::as_slice).unwrap_or_default();
        let reached =
            |checkpoint: &&FrameCheckpoint| checkpoint.told <= since || checkpoint.after <= forgotten;
        checkpoints.iter().rev().find(reached).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u64) -> FrameCheckpoint {
        FrameCheckpoint { after: Seq(number * 10), told: number * 3 }
    }

    #[test]
    fn the_nearest_place_before_a_number_is_found() {
        let (mut checkpoints, session) = (FrameCheckpoints::default(), SessionId::random());
        for number in 1..=1000 {
            checkpoints.note(&session, StreamFormat::Loop, mark(number));
        }
        let found = checkpoints.before(&session, StreamFormat::Loop, 2500, Seq::START);
        assert!(found.told <= 2500 && found.told > 2300, "{found:?}");
        assert_eq!(
            checkpoints.before(&session, StreamFormat::Loop, 0, Seq::START),
            FrameCheckpoint::default()
        );
        assert_eq!(
            checkpoints.before(&session, StreamFormat::Delta, 2500, Seq::START),
            FrameCheckpoint::default()
        );
        let found = checkpoints.before(&session, StreamFormat::Loop, 0, Seq(9000));
        assert!(found.after <= Seq(9000) && found.after > Seq(8000), "{found:?}");
        assert!(checkpoints.logs.values().all(|checkpoints| checkpoints.len() <= PLACES_MAX));
    }

    #[test]
    fn the_memory_for_places_is_bounded() {
        let mut checkpoints = FrameCheckpoints::default();
        for _ in 0..3 * LOGS_MAX {
            checkpoints.note(&SessionId::random(), StreamFormat::Loop, mark(1));
        }
        assert_eq!(checkpoints.logs.len(), LOGS_MAX);
    }
}
