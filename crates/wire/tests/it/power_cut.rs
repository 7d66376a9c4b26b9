//! A number that a client got before a power cut never means anything else afterwards, whatever the cut
//! took.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Body, Event, Origin, POSITIONS_RESERVED, Seq, SessionId, Timestamp, TurnId};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use wire::rest::{FRAMES_PER_EVENT_MAX, RestStream, StreamFormat};
use wire::{UpdateCount, otter};

use crate::bodies;

/// What each number means.
type Meanings = BTreeMap<u64, String>;

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn events(first: u64, bodies: Vec<(u64, Body)>) -> Vec<Arc<Event>> {
    let event = |(seq, (turn, body))| Event {
        seq: Seq(seq),
        at: Timestamp(1_700_000_000_000),
        origin: Origin::Agent,
        turn: Some(TurnId(turn)),
        body,
        relayed: None,
    };
    (first..).zip(bodies).map(event).map(Arc::new).collect()
}

fn rest(form: StreamFormat, events: &[Arc<Event>]) -> Meanings {
    let (mut stream, mut out) = (RestStream::new(&session(), form, 0), Vec::new());
    events.iter().for_each(|event| stream.write(event, 0, &mut out));
    let text = String::from_utf8(out).unwrap();
    let frame = |frame: &str| {
        let (id, rest) = frame.strip_prefix("id: ").unwrap().split_once('\n').unwrap();
        (id.parse().unwrap(), rest.to_owned())
    };
    text.split_terminator("\n\n").map(frame).collect()
}

fn otter(events: &[Arc<Event>]) -> Meanings {
    let (mut updates, mut out) = (otter::Updates::new(&session(), UpdateCount::default().into()), Vec::new());
    let mut rest = events;
    while !rest.is_empty() {
        let (taken, _) = updates.encode(rest, &mut Vec::new(), &mut out);
        rest = &rest[taken..];
    }
    let text = String::from_utf8(out).unwrap();
    let update = |line: &str| {
        let frame: Value = serde_json::from_str(line).unwrap();
        (frame["params"]["eventId"].as_u64().unwrap(), frame["params"]["update"].to_string())
    };
    text.split_terminator('\n').map(update).collect()
}

fn all(events: &[Arc<Event>]) -> [Meanings; 3] {
    [rest(StreamFormat::Loop, events), rest(StreamFormat::Delta, events), otter(events)]
}

fn turns() -> impl Strategy<Value = Vec<(u64, Body)>> {
    vec((1..4u64, bodies::any_body()), 0..40)
}

/// The log as clients saw it, and the remaining log with the events after the power cut.
fn cut(seen: &[Arc<Event>], kept: usize, next: u64, later: Vec<(u64, Body)>) -> Vec<Arc<Event>> {
    let kept = kept.min(seen.len());
    [&seen[..kept], &events(next, later)].concat()
}

proptest! {
    #[test]
    fn no_number_gets_a_second_meaning(
        before in turns(), kept in 0..40usize, unused in 1..=POSITIONS_RESERVED, later in turns(),
    ) {
        let seen = events(1, before);
        // The reservation reaches beyond what was written, and the store leaves out as much again.
        let reserved = seen.len() as u64 + unused;
        let left = cut(&seen, kept, reserved + POSITIONS_RESERVED + 1, later);
        for (given, after) in all(&seen).into_iter().zip(all(&left)) {
            for (number, meaning) in &after {
                prop_assert!(given.get(number).is_none_or(|before| before == meaning), "{number}");
            }
            // A client with the newest number gets everything that is new.
            let newest = given.keys().last().copied().unwrap_or_default();
            let unknown = after.iter().filter(|(number, _)| !given.contains_key(number));
            prop_assert!(unknown.clone().all(|(number, _)| *number > newest));
        }
    }

    /// Numbers that clients have from before this rule stay valid: such logs have shorter gaps.
    #[test]
    fn the_frames_of_a_log_with_an_older_gap_keep_their_numbers(
        before in turns(), gap in 1..=POSITIONS_RESERVED, later in turns(),
    ) {
        let first = before.len() as u64 + 1;
        let without = [events(1, before.clone()), events(first, later.clone())].concat();
        let with = [events(1, before), events(first + gap, later)].concat();
        for form in [StreamFormat::Loop, StreamFormat::Delta] {
            prop_assert_eq!(rest(form, &without), rest(form, &with));
        }
    }

    #[test]
    fn no_event_becomes_more_frames_than_are_left_out_for_it(bodies in turns(), delta in any::<bool>()) {
        let form = if delta { StreamFormat::Delta } else { StreamFormat::Loop };
        let mut stream = RestStream::new(&session(), form, 0);
        for event in events(1, bodies) {
            let before = stream.frame_count();
            stream.write(&event, 0, &mut Vec::new());
            prop_assert!(stream.frame_count() - before <= FRAMES_PER_EVENT_MAX);
            // Events that are synced before anybody sees them are not lost.
            prop_assert!(otter::updates_of(&event) <= 1 || event.body.must_sync());
        }
    }
}
