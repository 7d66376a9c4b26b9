//! Where in a log the updates stand that a dialect counts.
//!
//! Such a dialect numbers what it shows from 1, without gaps, and shows the same to everybody. So the
//! number of an update is a function of the log, and survives whatever the log survives. Events that a
//! power cut took leave a gap in the log's positions, and one as long in the numbers.
//!
//! Counting needs the log from its beginning, which for a long session is much to read. So what was
//! counted is remembered at places along the way, the same few for every session however long, and only
//! for the sessions that somebody asked about lately. Forgetting costs time, never correctness.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{Event, Page, Seq, SessionHandle, SessionId, StoreError, Taken, Timestamp};
use wire::{Counted, UpdateStart};

/// Sessions whose places are remembered.
const SESSIONS_MAX: usize = 64;
/// Places that are remembered of one session.
const PLACES_MAX: usize = 128;
/// Positions between two places, before there are too many.
const STRIDE_MIN: u64 = 256;

/// How a dialect counts: the name says which one it is.
#[derive(Clone, Copy)]
pub struct Counting {
    pub name: &'static str,
    pub updates_of: fn(&Event) -> u64,
}

pub const OTTER: Counting = Counting { name: "otter", updates_of: wire::otter::updates_of };

/// What is known of the numbers in this server's sessions. Clones share it.
#[derive(Clone, Default)]
pub struct Numbers {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    sessions: HashMap<(&'static str, SessionId), Places>,
    uses: u64,
}

/// What was counted at places of one log, in their order.
#[derive(Clone)]
struct Places {
    /// A session that was made later under the same id has another log.
    created_at: Timestamp,
    marks: Vec<Counted>,
    stride: u64,
    /// As far as anybody has counted.
    head: Counted,
    used: u64,
}

/// Where a client that has everything up to a number begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Everything after this is to be told.
    pub from: Counted,
    /// The number that the client has, or is taken to have. It is beyond that place where the client has the first of an
    /// event's updates and not the second.
    pub since: u64,
    /// Older updates were asked for than those that are kept.
    pub truncated: bool,
}

impl Numbers {
    /// Finds the update with the number `since`, or the first of the last `history_max`.
    pub async fn find(
        &self,
        session: &SessionHandle,
        counting: Counting,
        since: u64,
        history_max: u64,
    ) -> Result<Found, StoreError> {
        // What was cleared is not told again.
        let cleared = self.at(session, counting, session.snapshot().replay_from).await?;
        let places = self.counted(session, counting).await?;
        let last = places.head.updates;
        let forgotten = self.forgotten(session, counting, &places, history_max).await?;
        let beyond = places.head.shown().saturating_sub(history_max);
        let kept_after = (forgotten.updates + beyond.saturating_sub(forgotten.shown())).max(cleared.updates);
        let wanted = since.max(kept_after).min(last.max(cleared.updates));
        let known = places.before(|mark| mark.updates <= wanted);
        let begin = if cleared.seq > known.seq { cleared } else { known };
        let from = walk(session, counting, begin, places.head.seq, |next| next.updates <= wanted).await?;
        Ok(Found { from, since: wanted, truncated: since < kept_after })
    }

    /// The place after which as many updates stand as are kept. Numbers that a power cut took are none.
    async fn forgotten(
        &self,
        session: &SessionHandle,
        counting: Counting,
        places: &Places,
        history_max: u64,
    ) -> Result<Counted, StoreError> {
        let beyond = places.head.shown().saturating_sub(history_max);
        if beyond == 0 {
            return Ok(Counted::default());
        }
        let begin = places.before(|mark| mark.shown() <= beyond);
        walk(session, counting, begin, places.head.seq, |next| next.shown() <= beyond).await
    }

    /// A client that begins at this place, and has the updates up to `since`.
    pub async fn start(
        session: &SessionHandle,
        from: Counted,
        since: u64,
    ) -> Result<UpdateStart, StoreError> {
        let mut start = UpdateStart { since, ..from.into() };
        let Some((_, mut at)) = from.turn else { return Ok(start) };
        let mut reader = session.read(at);
        while at < from.seq {
            let Taken::Events(events) = reader.take(Page::USUAL).await? else { break };
            for event in events.iter().filter(|event| event.seq <= from.seq) {
                start.take(event);
            }
            at = events.last().map_or(from.seq, |last| last.seq);
        }
        Ok(start)
    }

    /// What is counted up to and with the event at `seq`.
    pub async fn at(
        &self,
        session: &SessionHandle,
        counting: Counting,
        seq: Seq,
    ) -> Result<Counted, StoreError> {
        if seq == Seq::START {
            return Ok(Counted::default());
        }
        let places = self.counted(session, counting).await?;
        let begin = places.before(|mark| mark.seq <= seq);
        walk(session, counting, begin, seq, |next| next.seq <= seq).await
    }

    /// Counts on to where the log ends at this moment.
    async fn counted(&self, session: &SessionHandle, counting: Counting) -> Result<Places, StoreError> {
        let mut places = self.known(session, counting);
        let mut reader = session.read(places.head.seq);
        let until = reader.head();
        while places.head.seq < until {
            let Taken::Events(events) = reader.take(Page::USUAL).await? else { break };
            for event in events {
                places.add(&event, counting);
            }
        }
        self.remember(session.id(), counting, &places);
        Ok(places)
    }

    fn known(&self, session: &SessionHandle, counting: Counting) -> Places {
        let created_at = session.birth().created_at;
        let known = self.lock();
        let places = known.sessions.get(&(counting.name, session.id().clone()));
        places.filter(|places| places.created_at == created_at).cloned().unwrap_or(Places {
            created_at,
            marks: vec![Counted::default()],
            stride: STRIDE_MIN,
            head: Counted::default(),
            used: 0,
        })
    }

    /// Two may have counted at once; who came further is right about everything before.
    fn remember(&self, session: &SessionId, counting: Counting, places: &Places) {
        let mut known = self.lock();
        known.uses += 1;
        let used = known.uses;
        let key = (counting.name, session.clone());
        let entry = known.sessions.entry(key).or_insert_with(|| places.clone());
        if entry.created_at != places.created_at || entry.head.seq < places.head.seq {
            *entry = places.clone();
        }
        entry.used = used;
        if known.sessions.len() > SESSIONS_MAX {
            let oldest = known.sessions.iter().min_by_key(|(_, places)| places.used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                known.sessions.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").field("sessions", &self.lock().sessions.len()).finish()
    }
}

impl Places {
    fn add(&mut self, event: &Event, counting: Counting) {
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
    fn before(&self, is_before: impl Fn(&Counted) -> bool) -> Counted {
        if is_before(&self.head) {
            return self.head;
        }
        let at = self.marks.partition_point(is_before);
        self.marks.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// Counts on from a place for as long as this is true, at most to `until`.
async fn walk(
    session: &SessionHandle,
    counting: Counting,
    begin: Counted,
    until: Seq,
    goes_on: impl Fn(&Counted) -> bool,
) -> Result<Counted, StoreError> {
    let mut at = begin;
    let mut reader = session.read(begin.seq);
    while at.seq < until {
        let Taken::Events(events) = reader.take(Page::USUAL).await? else { break };
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

    fn places_after(count: u64) -> Places {
        let mut places = Places {
            created_at: Timestamp(0),
            marks: vec![Counted::default()],
            stride: STRIDE_MIN,
            head: Counted::default(),
            used: 0,
        };
        for seq in 1..=count {
            // Every third event is no update.
            let body = if seq % 3 == 0 { Body::CancelRequested { reason: None } } else { Body::TurnStarted };
            places.add(
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
        places
    }

    #[test]
    fn however_long_a_log_is_its_places_are_few_and_right() {
        for count in [1, 255, 256, 10_000, 300_000] {
            let places = places_after(count);
            assert!(places.marks.len() <= PLACES_MAX, "{count}: {}", places.marks.len());
            assert_eq!(places.head.updates, count - count / 3);
            for mark in &places.marks {
                assert_eq!(mark.updates, mark.seq.0 - mark.seq.0 / 3, "{count}");
            }
            let gaps = places.marks.windows(2).map(|pair| pair[1].seq.0 - pair[0].seq.0);
            let widest = gaps.chain([count - places.marks.last().unwrap().seq.0]).max().unwrap();
            assert!(widest <= 2 * places.stride.max(STRIDE_MIN), "{count}: {widest}");
            assert!(places.stride <= STRIDE_MIN.max(4 * count / 100), "{count}: {}", places.stride);
        }
    }

    #[test]
    fn a_place_is_the_last_before_what_is_wanted() {
        let places = places_after(2000);
        for wanted in [0, 1, 170, 171, 172, 1000, 1334, 5000] {
            let found = places.before(|mark| mark.updates <= wanted);
            assert!(found.updates <= wanted);
            let later = places.marks.iter().chain([&places.head]).filter(|mark| mark.seq > found.seq);
            assert!(later.into_iter().all(|mark| mark.updates > wanted), "{wanted}");
        }
    }
}
