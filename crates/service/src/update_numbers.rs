//! Numbers of updates, for dialects that count them, and their positions in the log.
//!
//! Such a dialect numbers the updates it shows from 1, without gaps, and shows the same updates to every client. So the
//! number of an update is a function of the log, and survives whatever the log survives. Events that a
//! power cut took leave a gap in the log's positions, and one as long in the numbers.
//!
//! Counting needs the log from its beginning, which is slow for a long session. So the count is cached at a few marks
//! along the log, the same number for every session however long, and only for the sessions that were recently asked
//! about. Losing the cache costs time, never correctness.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{Event, LogRead, PageRequest, Seq, SessionHandle, SessionId, StoreError, Timestamp};
use wire::{UpdateCount, UpdateStart};

/// Sessions whose marks are cached.
const SESSIONS_MAX: usize = 64;
/// Places that are remembered of one session.
const PLACES_MAX: usize = 128;
/// Positions between two places, before there are too many.
const STRIDE_MIN: u64 = 256;

/// How a dialect counts its updates.
#[derive(Clone, Copy)]
pub struct UpdateCounting {
    pub name: &'static str,
    pub updates_of: fn(&Event) -> u64,
}

pub const OTTER: UpdateCounting = UpdateCounting { name: "otter", updates_of: wire::otter::updates_of };

/// The cached update numbers of this server's sessions. Clones share the cache.
#[derive(Clone, Default)]
pub struct UpdateNumbers {
    cached: Arc<Mutex<NumberCache>>,
}

#[derive(Default)]
struct NumberCache {
    sessions: HashMap<(&'static str, SessionId), CountMarks>,
    uses: u64,
}

/// The counts at a few positions of one log, in order.
#[derive(Clone)]
struct CountMarks {
    /// A session that was made later under the same id has another log.
    created_at: Timestamp,
    marks: Vec<UpdateCount>,
    stride: u64,
    /// As far as anybody has counted.
    head: UpdateCount,
    used: u64,
}

/// Where the updates begin for a client that has everything up to a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdatesStart {
    /// Everything after this has to be sent.
    pub from: UpdateCount,
    /// The number that the client has, or is taken to have. It is beyond `from` where the client has the
    /// first of an event's updates and not the second.
    pub since: u64,
    /// The client asked for older updates than those that are kept.
    pub truncated: bool,
}

impl UpdateNumbers {
    /// Finds the update with the number `since`, or the first of the last `history_max`.
    pub async fn find(
        &self,
        session: &SessionHandle,
        counting: UpdateCounting,
        since: u64,
        history_max: u64,
    ) -> Result<UpdatesStart, StoreError> {
        // Cleared updates are not sent again.
        let cleared = self.at(session, counting, session.snapshot().replay_from).await?;
        let count_marks = self.count_to_head(session, counting).await?;
        let last = count_marks.head.updates;
        let forgotten = self.kept_after(session, counting, &count_marks, history_max).await?;
        let beyond = count_marks.head.count().saturating_sub(history_max);
        let kept_after = (forgotten.updates + beyond.saturating_sub(forgotten.count())).max(cleared.updates);
        let wanted = since.max(kept_after).min(last.max(cleared.updates));
        let known = count_marks.before(|mark| mark.updates <= wanted);
        let begin = if cleared.seq > known.seq { cleared } else { known };
        let from = count_while(session, counting, begin, count_marks.head.seq, |next| next.updates <= wanted)
            .await?;
        Ok(UpdatesStart { from, since: wanted, truncated: since < kept_after })
    }

    /// The position after which as many updates remain as are kept. Numbers that a power cut took do not
    /// count.
    async fn kept_after(
        &self,
        session: &SessionHandle,
        counting: UpdateCounting,
        count_marks: &CountMarks,
        history_max: u64,
    ) -> Result<UpdateCount, StoreError> {
        let beyond = count_marks.head.count().saturating_sub(history_max);
        if beyond == 0 {
            return Ok(UpdateCount::default());
        }
        let begin = count_marks.before(|mark| mark.count() <= beyond);
        count_while(session, counting, begin, count_marks.head.seq, |next| next.count() <= beyond).await
    }

    /// A client that begins at this place, and has the updates up to `since`.
    pub async fn start(
        session: &SessionHandle,
        from: UpdateCount,
        since: u64,
    ) -> Result<UpdateStart, StoreError> {
        let mut start = UpdateStart { since, ..from.into() };
        let Some((_, mut at)) = from.turn else { return Ok(start) };
        let mut reader = session.read(at);
        while at < from.seq {
            let LogRead::Events(events) = reader.take(PageRequest::USUAL).await? else { break };
            for event in events.iter().filter(|event| event.seq <= from.seq) {
                start.observe(event);
            }
            at = events.last().map_or(from.seq, |last| last.seq);
        }
        Ok(start)
    }

    /// The count up to and including the event at `seq`.
    pub async fn at(
        &self,
        session: &SessionHandle,
        counting: UpdateCounting,
        seq: Seq,
    ) -> Result<UpdateCount, StoreError> {
        if seq == Seq::START {
            return Ok(UpdateCount::default());
        }
        let count_marks = self.count_to_head(session, counting).await?;
        let begin = count_marks.before(|mark| mark.seq <= seq);
        count_while(session, counting, begin, seq, |next| next.seq <= seq).await
    }

    /// Counts on to where the log ends at this moment.
    async fn count_to_head(
        &self,
        session: &SessionHandle,
        counting: UpdateCounting,
    ) -> Result<CountMarks, StoreError> {
        let mut count_marks = self.cached(session, counting);
        let mut reader = session.read(count_marks.head.seq);
        let until = reader.head();
        while count_marks.head.seq < until {
            let LogRead::Events(events) = reader.take(PageRequest::USUAL).await? else { break };
            for event in events {
                count_marks.add(&event, counting);
            }
        }
        self.remember(session.id(), counting, &count_marks);
        Ok(count_marks)
    }

    fn cached(&self, session: &SessionHandle, counting: UpdateCounting) -> CountMarks {
        let created_at = session.origin().created_at;
        let known = self.lock();
        let count_marks = known.sessions.get(&(counting.name, session.id().clone()));
        count_marks.filter(|count_marks| count_marks.created_at == created_at).cloned().unwrap_or(
            CountMarks {
                created_at,
                marks: vec![UpdateCount::default()],
                stride: STRIDE_MIN,
                head: UpdateCount::default(),
                used: 0,
            },
        )
    }

    /// Two callers may have counted at once; the one that came further is right about everything before.
    fn remember(&self, session: &SessionId, counting: UpdateCounting, count_marks: &CountMarks) {
        let mut known = self.lock();
        known.uses += 1;
        let used = known.uses;
        let key = (counting.name, session.clone());
        let entry = known.sessions.entry(key).or_insert_with(|| count_marks.clone());
        if entry.created_at != count_marks.created_at || entry.head.seq < count_marks.head.seq {
            *entry = count_marks.clone();
        }
        entry.used = used;
        if known.sessions.len() > SESSIONS_MAX {
            let oldest = known.sessions.iter().min_by_key(|(_, count_marks)| count_marks.used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                known.sessions.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, NumberCache> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for UpdateNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").field("sessions", &self.lock().sessions.len()).finish()
    }
}

impl CountMarks {
    fn add(&mut self, event: &Event, counting: UpdateCounting) {
        self.head.add(event, (counting.updates_of)(event));
        let passed = self.marks.last().map_or(Seq::START, |mark| mark.seq);
        if self.head.seq.0.saturating_sub(passed.0) >= self.stride {
            self.marks.push(self.head);
        }
        if self.marks.len() > PLACES_MAX {
            // Every second place is enough for a log that is twice as long.
            self.stride = self.stride.saturating_mul(2);
            let mut nth = 0_usize;
            self.marks.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
    }

    /// The last place of which this is true, as it is of all before it.
    fn before(&self, is_before: impl Fn(&UpdateCount) -> bool) -> UpdateCount {
        if is_before(&self.head) {
            return self.head;
        }
        let at = self.marks.partition_point(is_before);
        self.marks.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// Counts on from a place for as long as this is true, at most to `until`.
async fn count_while(
    session: &SessionHandle,
    counting: UpdateCounting,
    begin: UpdateCount,
    until: Seq,
    goes_on: impl Fn(&UpdateCount) -> bool,
) -> Result<UpdateCount, StoreError> {
    let mut at = begin;
    let mut reader = session.read(begin.seq);
    while at.seq < until {
        let LogRead::Events(events) = reader.take(PageRequest::USUAL).await? else { break };
        for event in events {
            let mut next = at;
            next.add(&event, (counting.updates_of)(&event));
            if !goes_on(&next) || next.seq > until {
                return Ok(at);
            }
            at = next;
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use engine::{Body, Origin};

    use super::*;

    fn count_marks_after(count: u64) -> CountMarks {
        let mut count_marks = CountMarks {
            created_at: Timestamp(0),
            marks: vec![UpdateCount::default()],
            stride: STRIDE_MIN,
            head: UpdateCount::default(),
            used: 0,
        };
        for seq in 1..=count {
            // Every third event is no update.
            let body = if seq % 3 == 0 { Body::CancelRequested { reason: None } } else { Body::TurnStarted };
            count_marks.add(
                &Event {
                    seq: Seq(seq),
                    at: Timestamp(0),
                    origin: Origin::Engine,
                    turn: None,
                    body,
                    relayed: None,
                },
                OTTER,
            );
        }
        count_marks
    }

    #[test]
    fn however_long_a_log_is_its_places_are_few_and_right() {
        for count in [1, 255, 256, 10_000, 300_000] {
            let count_marks = count_marks_after(count);
            assert!(count_marks.marks.len() <= PLACES_MAX, "{count}: {}", count_marks.marks.len());
            assert_eq!(count_marks.head.updates, count - count / 3);
            for mark in &count_marks.marks {
                assert_eq!(mark.updates, mark.seq.0 - mark.seq.0 / 3, "{count}");
            }
            let gaps = count_marks.marks.windows(2).map(|pair| pair[1].seq.0 - pair[0].seq.0);
            let widest = gaps.chain([count - count_marks.marks.last().unwrap().seq.0]).max().unwrap();
            assert!(widest <= 2 * count_marks.stride.max(STRIDE_MIN), "{count}: {widest}");
            assert!(count_marks.stride <= STRIDE_MIN.max(4 * count / 100), "{count}: {}", count_marks.stride);
        }
    }

    #[test]
    fn a_place_is_the_last_before_what_is_wanted() {
        let count_marks = count_marks_after(2000);
        for wanted in [0, 1, 170, 171, 172, 1000, 1334, 5000] {
            let found = count_marks.before(|mark| mark.updates <= wanted);
            assert!(found.updates <= wanted);
            let later =
                count_marks.marks.iter().chain([&count_marks.head]).filter(|mark| mark.seq > found.seq);
            assert!(later.into_iter().all(|mark| mark.updates > wanted), "{wanted}");
        }
    }
}
