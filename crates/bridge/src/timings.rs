//! The intervals and timeouts of a bridge: those of the seed's contract, which tests may make smaller.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeTimings {
    /// The first wait before a connection is tried again; each further one is twice as long.
    pub first: Duration,
    pub longest: Duration,
    pub heartbeat: Duration,
    /// How long an answer may take.
    pub answer: Duration,
    /// Between two batches of a session that somebody looks at, and of one that nobody does.
    pub watched: Duration,
    pub unwatched: Duration,
    /// A peer that is silent for this long, although it is asked, is gone.
    pub silence: Duration,
    /// How long the last frames and the deregistration may take when the bridge ends.
    pub farewell: Duration,
}

impl Default for BridgeTimings {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(5),
            longest: Duration::from_secs(60),
            heartbeat: Duration::from_secs(30),
            answer: Duration::from_secs(20),
            watched: Duration::from_millis(33),
            unwatched: Duration::from_secs(1),
            silence: Duration::from_secs(60),
            farewell: Duration::from_secs(4),
        }
    }
}

/// How long to wait before the next try.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    timings: BridgeTimings,
    next: Duration,
}

impl Backoff {
    pub fn new(timings: BridgeTimings) -> Self {
        Self { timings, next: timings.first }
    }

    pub fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.timings.longest);
        wait
    }

    /// A connection lasted this long. One that held resets the backoff.
    pub fn lasted(&mut self, long: Duration) {
        if long >= self.timings.first {
            self.next = self.timings.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_begin_anew_after_a_connection_that_held() {
        let mut backoff = Backoff::new(BridgeTimings::default());
        let mut waits = |count| (0..count).map(|_| backoff.next().as_secs()).collect::<Vec<_>>();
        assert_eq!(waits(7), [5, 10, 20, 40, 60, 60, 60]);
        backoff.lasted(Duration::from_secs(1));
        assert_eq!(backoff.next().as_secs(), 60, "one that did not hold changes nothing");
        backoff.lasted(Duration::from_secs(5));
        assert_eq!((backoff.next().as_secs(), backoff.next().as_secs()), (5, 10));
    }

    #[test]
    fn a_heartbeat_comes_twice_a_minute() {
        assert_eq!(BridgeTimings::default().heartbeat, Duration::from_secs(30));
    }
}
