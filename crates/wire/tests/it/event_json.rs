//! An exported event is imported unchanged.

use engine::{AskId, Body, CallId, Event, Opaque, Origin, Seq, SurfaceId, Timestamp, TurnId};
use proptest::prelude::*;
use wire::event_json;

use crate::bodies;

fn any_origin() -> impl Strategy<Value = Origin> {
    prop_oneof![
        Just(Origin::Engine),
        Just(Origin::Agent),
        ".*".prop_map(|call| Origin::Task { call: CallId(call.into()) }),
        (any::<u64>(), ".*", proptest::option::of(".*"), proptest::option::of(".*")).prop_map(
            |(id, name, request, remote)| Origin::Surface {
                id: SurfaceId(id),
                name: name.into(),
                request: request.map(Into::into),
                remote: remote.map(Into::into),
            }
        ),
    ]
}

/// Imports refuse ask numbers that would use up the counter.
fn with_small_ask(body: Body) -> Body {
    if let Body::Asked { request, ask } = body {
        return Body::Asked { request, ask: AskId(ask.0 >> 24) };
    }
    if let Body::Resolved { ask, call, resolution, by, reply, exactly } = body {
        return Body::Resolved { ask: AskId(ask.0 >> 24), call, resolution, by, reply, exactly };
    }
    body
}

proptest! {
    #[test]
    fn every_event_comes_back(
        body in bodies::any_body().prop_map(with_small_ask),
        origin in any_origin(),
        relayed in proptest::option::of(".*"),
        (seq, at, turn) in (any::<u64>(), 0..=253_402_300_799_999i64, proptest::option::of(0..=1u64 << 40)),
    ) {
        let relayed = relayed.map(|words| Opaque(words.into()));
        let event = Event { seq: Seq(seq), at: Timestamp(at), origin, turn: turn.map(TurnId), body, relayed };
        let line = event_json::line(&event).unwrap();
        prop_assert_eq!(&event_json::decode_own(&line).unwrap(), &event);
        let stored = serde_json::from_str::<serde_json::Value>(&line).unwrap();
        prop_assert_eq!(event_json::encode(&event).to_string(), stored.to_string());
        prop_assert_eq!(&stored, &event_json::encode(&event));
        prop_assert_eq!(event_json::decode(&event_json::encode(&event).to_string()).unwrap(), event);
    }
}

#[test]
fn numbers_that_would_use_a_counter_up_are_refused() {
    let turn = |turn: u64| format!(r#"{{"event_type":"turn_started","turn":{turn},"payload":{{}}}}"#);
    assert!(event_json::decode(&turn(1 << 40)).is_ok());
    let refused = event_json::decode(&turn((1 << 40) + 1)).unwrap_err();
    assert_eq!(refused.to_string(), "turn 1099511627777 is too high");
    assert!(event_json::decode(&turn(u64::MAX)).is_err());
    let by = r#""call":null,"resolution":"allowed_once","by":"engine""#;
    let ask = |ask: u64| format!(r#"{{"event_type":"resolved","payload":{{"ask":{ask},{by}}}}}"#);
    assert!(event_json::decode(&ask(1 << 40)).is_ok(), "{:?}", event_json::decode(&ask(1)));
    assert!(event_json::decode(&ask(u64::MAX)).is_err());
}
