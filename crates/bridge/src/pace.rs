//! How often and how patiently: the seed's numbers, which tests may make smaller.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
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
    /// How long the last words may take when the bridge ends.
    pub farewell: Duration,
}

impl Default for Pace {
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
    pace: Pace,
    next: Duration,
}

impl Backoff {
    pub fn new(pace: Pace) -> Self {
        Self { pace, next: pace.first }
    }

    pub fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.pace.longest);
        wait
    }

    /// A connection lasted this long. One that held begins the waiting anew.
    pub fn lasted(&mut self, long: Duration) {
        if long >= self.pace.first {
            self.next = self.pace.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_begin_anew_after_a_connection_that_held() {
        let mut backoff = Backoff::new(Pace::default());
        let mut waits = |count| (0..count).map(|_| backoff.next().as_secs()).collect::<Vec<_>>();
        assert_eq!(waits(7), [5, 10, 20, 40, 60, 60, 60]);
        backoff.lasted(Duration::from_secs(1));
        assert_eq!(backoff.next().as_secs(), 60, "one that did not hold changes nothing");
        backoff.lasted(Duration::from_secs(5));
        assert_eq!((backoff.next().as_secs(), backoff.next().as_secs()), (5, 10));
    }

    #[test]
    fn a_heartbeat_comes_twice_a_minute() {
        assert_eq!(Pace::default().heartbeat, Duration::from_secs(30));
    }
}
