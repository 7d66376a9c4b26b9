//! Which events of a session's log are worth a push: a cursor like any other, which turns events into notes.
//!
//! A permission request that waits for a person; one that no longer does; a turn that ended and either failed or
//! took long enough for a person to have gone away. Who is notified, and whether, is decided elsewhere.

use std::collections::{HashMap, HashSet};

use engine::{AskId, Body, Event, SessionId, Stop, Timestamp, TurnId};

use super::note::PushNote;

/// A person who waits for less than this has not gone away.
const LONG_TURN_MS: i64 = 10_000;

/// The open turns and asks of one session, from which notes are made.
pub(super) struct SessionNotes {
    session: SessionId,
    started: HashMap<TurnId, Timestamp>,
    asks: HashSet<AskId>,
}

impl SessionNotes {
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, started: HashMap::new(), asks: HashSet::new() }
    }

    pub(super) fn event(&mut self, event: &Event) -> Option<PushNote> {
        let session = || self.session.clone();
        if let Body::Asked { ask, .. } = &event.body {
            self.asks.insert(*ask);
            return Some(PushNote::Ask { session: session(), ask: *ask });
        }
        if let Body::Resolved { ask, .. } = &event.body {
            // Most are settled by rules, and nobody was asked.
            return self.asks.remove(ask).then(|| PushNote::Clear { session: session(), ask: *ask });
        }
        if let Body::TurnStarted = &event.body {
            self.started.extend(event.turn.map(|turn| (turn, event.at)));
            return None;
        }
        let Body::TurnEnded { stop, .. } = &event.body else { return None };
        // A turn that was withdrawn while it waited, or that an earlier server began, never ran here.
        let began = self.started.remove(&event.turn?)?;
        let long = event.at.0.saturating_sub(began.0) > LONG_TURN_MS;
        match stop {
            Stop::Failed | Stop::Interrupted => Some(PushNote::Failed { session: session() }),
            Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal if long => {
                Some(PushNote::Ended { session: session() })
            }
            // Somebody cancelled it, and so knows; or nobody had the time to go away.
            Stop::Cancelled | Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::{Origin, Resolution, Resolver, Seq};

    use super::*;

    /// The kinds that come of a turn which ends like this after so many milliseconds.
    fn ended(stop: Stop, after_ms: i64) -> Option<String> {
        let mut seen = SessionNotes::new(SessionId::parse("s").unwrap());
        let event = |at, body| Event {
            seq: Seq(1),
            at: Timestamp(at),
            origin: Origin::Engine,
            turn: Some(TurnId(1)),
            body,
            relayed: None,
        };
        assert_eq!(seen.event(&event(1000, Body::TurnStarted)), None);
        let note = seen.event(&event(1000 + after_ms, Body::TurnEnded { stop, error: None }));
        let again = seen.event(&event(99_000, Body::TurnEnded { stop, error: None }));
        assert_eq!(again, None, "a turn that nobody saw begin");
        note.map(|note| String::from_utf8(note.payload()).unwrap())
    }

    #[test]
    fn what_a_rule_settles_is_not_worth_a_word() {
        let mut seen = SessionNotes::new(SessionId::parse("s").unwrap());
        let body = Body::Resolved {
            ask: AskId(1),
            call: None,
            resolution: Resolution::AllowedOnce,
            by: Resolver::Policy { reason: "it only reads".into() },
            reply: None,
            exactly: false,
        };
        let event = Event {
            seq: Seq(1),
            at: Timestamp(1),
            origin: Origin::Engine,
            turn: Some(TurnId(1)),
            body,
            relayed: None,
        };
        assert_eq!(seen.event(&event), None);
    }

    #[test]
    fn a_turn_is_told_if_it_took_long_or_failed() {
        let ended_text = Some(r#"{"v":1,"kind":"ended","session":"s"}"#.to_owned());
        let failed_text = Some(r#"{"v":1,"kind":"failed","session":"s"}"#.to_owned());
        assert_eq!(ended(Stop::EndTurn, LONG_TURN_MS), None);
        assert_eq!(ended(Stop::EndTurn, LONG_TURN_MS + 1), ended_text);
        assert_eq!(ended(Stop::MaxTokens, LONG_TURN_MS + 1), ended_text);
        assert_eq!(ended(Stop::Failed, 1), failed_text);
        assert_eq!(ended(Stop::Interrupted, 1), failed_text);
        assert_eq!(ended(Stop::Cancelled, LONG_TURN_MS * 2), None);
    }
}
