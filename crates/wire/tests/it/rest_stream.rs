//! A frame's number is a function of the log, whoever counts and from where.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use engine::{Body, Content, Event, MessageId, Origin, Seq, SessionId, Stop, Timestamp, TurnId, Usage};
use expect_test::{Expect, expect};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use wire::rest::{MessageCount, Messages, RestStream, StreamFormat};

use crate::bodies;

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn log(bodies: Vec<(u64, Body)>) -> Vec<Event> {
    let event = |(index, (turn, body)): (usize, (u64, Body))| Event {
        seq: Seq(index as u64 + 1),
        at: Timestamp(1_700_000_000_000),
        origin: Origin::Engine,
        turn: Some(TurnId(turn)),
        body,
        relayed: None,
    };
    bodies.into_iter().enumerate().map(event).collect()
}

fn told(form: StreamFormat, events: &[Event], since: u64) -> String {
    let (mut stream, mut out) = (RestStream::new(&session(), form, 0), Vec::new());
    for event in events {
        stream.write(event, since, &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// The number, the name and the data of each frame.
fn frames(text: &str) -> Vec<(u64, String, Value)> {
    let frame = |frame: &str| {
        let lines: Vec<&str> = frame.split('\n').collect();
        let [id, name, data] = lines.try_into().unwrap();
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        (id.strip_prefix("id: ").unwrap().parse().unwrap(), name, data)
    };
    text.split_terminator("\n\n").map(frame).collect()
}

fn turns() -> impl Strategy<Value = Vec<(u64, Body)>> {
    // Few turns, so that they start, end and overlap.
    vec((1..4u64, bodies::any_body()), 0..40)
}

proptest! {
    #[test]
    fn frames_are_numbered_without_gaps_and_each_is_three_lines(bodies in turns(), delta in any::<bool>()) {
        let form = if delta { StreamFormat::Delta } else { StreamFormat::Loop };
        let frames = frames(&told(form, &log(bodies), 0));
        let numbers: Vec<u64> = frames.iter().map(|frame| frame.0).collect();
        prop_assert_eq!(numbers, (1..=frames.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_client_that_comes_back_gets_exactly_the_rest(bodies in turns(), delta in any::<bool>(), cut in 0..80u64) {
        let form = if delta { StreamFormat::Delta } else { StreamFormat::Loop };
        let events = log(bodies);
        let whole = frames(&told(form, &events, 0));
        let rest = frames(&told(form, &events, cut));
        prop_assert_eq!(rest, whole.into_iter().filter(|frame| frame.0 > cut).collect::<Vec<_>>());
    }

    #[test]
    fn between_turns_the_number_is_all_that_is_needed(bodies in turns(), delta in any::<bool>()) {
        let form = if delta { StreamFormat::Delta } else { StreamFormat::Loop };
        let events = log(bodies);
        let whole = told(form, &events, 0);
        let (mut stream, mut before) = (RestStream::new(&session(), form, 0), Vec::new());
        // Names in diffs are relative to the session's working directory.
        let mut folder = Arc::default();
        for (index, event) in events.iter().enumerate() {
            if stream.is_between_turns() {
                let later = RestStream::new(&session(), form, stream.frame_count());
                let (mut later, mut after) = (later.in_folder(Arc::clone(&folder)), before.clone());
                events[index..].iter().for_each(|event| later.write(event, 0, &mut after));
                prop_assert_eq!(&String::from_utf8(after).unwrap(), &whole);
            }
            stream.write(event, 0, &mut before);
            if let Body::Moved { cwd, .. } = &event.body {
                folder = Arc::new(cwd.clone());
            }
        }
    }
}

proptest! {
    #[test]
    fn messages_are_counted_as_they_are_listed(bodies in turns()) {
        let events: Vec<_> = log(bodies).into_iter().map(Arc::new).collect();
        let mut count = MessageCount::default();
        events.iter().for_each(|event| count.observe(event));
        prop_assert_eq!(count.get(), Messages::of(&events).len() as u64);
    }
}

fn story() -> Vec<Event> {
    let text = |text: &str| Body::Text { message: MessageId(1), text: text.into() };
    log(vec![
        (1, Body::TurnStarted),
        (1, Body::UserMessage { content: vec![Content::text("hi")] }),
        (1, text("one ")),
        (1, text("two")),
        (1, Body::Usage(Usage { input: 3, output: 2, cost_usd: 0.5, ..Usage::default() })),
        (2, Body::TurnQueued { content: vec![Content::text("next")] }),
        (2, Body::TurnEnded { stop: Stop::Cancelled, error: None }),
        (1, text("!")),
        (1, Body::TurnEnded { stop: Stop::Failed, error: Some("no luck".into()) }),
    ])
}

fn check(form: StreamFormat, expected: &Expect) {
    let mut shown = String::new();
    for (number, name, data) in frames(&told(form, &story(), 0)) {
        let inner = if form == StreamFormat::Loop { &data["data"] } else { &data["metadata"] };
        let inner = if name == "loop_event" || form == StreamFormat::Delta { inner } else { &data };
        let mut inner = inner.clone();
        for same in ["message_id", "turn", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"] {
            inner.as_object_mut().unwrap().remove(same);
        }
        let kind = if name == "loop_event" { data["type"].as_str().unwrap() } else { "" };
        shown.push_str(&format!("{number} {name} {kind} {inner}\n"));
    }
    expected.assert_eq(&shown);
}

#[test]
fn the_loop_form_tells_a_turn_and_sums_it_up() {
    check(
        StreamFormat::Loop,
        &expect![[r#"
        1 loop_event stream_start {}
        2 user_message  {"text":"hi"}
        3 loop_event assistant_chunk {"text":"one "}
        4 loop_event assistant_chunk {"text":"two"}
        5 loop_event system {"input_tokens":3,"output_tokens":2,"subtype":"usage","cost_usd":0.5,"context_size":0,"context_used":0}
        6 loop_event system {"text":"next","subtype":"queued"}
        7 loop_event result {"stop_reason":"cancelled","steps":0,"cost_usd":0.0}
        8 result  {"stop_reason":"cancelled","output":"","output_truncated":false,"steps":0,"cost":0.0,"tokens":0,"success":false,"cancelled":true}
        9 loop_event assistant_chunk {"text":"!"}
        10 loop_event assistant {"text":"one two!"}
        11 error  {"exception":"AgentError","error":"no luck"}
        12 loop_event result {"stop_reason":"failed","steps":1,"cost_usd":0.5}
        13 result  {"stop_reason":"failed","output":"one two!","output_truncated":false,"steps":1,"cost":0.5,"tokens":5,"success":false,"cancelled":false}
    "#]],
    );
}

#[test]
fn the_delta_form_tells_steps_and_ends_with_what_came_of_them() {
    check(
        StreamFormat::Delta,
        &expect![[r#"
        1 turn_start  {}
        2 user_message  {"text":"hi"}
        3 step_start  {}
        4 text_delta  {"text":"one "}
        5 text_delta  {"text":"two"}
        6 step_end  {"input_tokens":3,"output_tokens":2,"cost_usd":0.5,"context_size":0,"context_used":0}
        7 system  {"text":"next","subtype":"queued"}
        8 turn_end  {"stop_reason":"cancelled"}
        9 cancelled  {"stop_reason":"cancelled","output":"","output_truncated":false,"steps":0,"cost":0.0,"tokens":0,"success":false,"cancelled":true}
        10 step_start  {}
        11 text_delta  {"text":"!"}
        12 step_end  {}
        13 turn_end  {"stop_reason":"failed"}
        14 error  {"error":"no luck","output":"one two!","output_truncated":false,"steps":1,"cost":0.5,"tokens":5,"success":false,"cancelled":false,"stop_reason":"failed"}
    "#]],
    );
}

#[test]
fn the_end_of_a_turn_is_noted_only_where_it_is_told() {
    let mut stream = RestStream::new(&session(), StreamFormat::Delta, 0);
    for event in story() {
        stream.write(&event, u64::MAX, &mut Vec::new());
    }
    assert_eq!(stream.last_turn_succeeded(), None);
    let started = log(vec![(3, Body::TurnStarted)]).remove(0);
    let ended = log(vec![(3, Body::TurnEnded { stop: Stop::EndTurn, error: None })]).remove(0);
    stream.write(&ended, 0, &mut Vec::new());
    assert_eq!(stream.last_turn_succeeded(), Some(true));
    stream.write(&started, 0, &mut Vec::new());
    assert_eq!(stream.last_turn_succeeded(), None);
}

#[test]
fn a_very_long_output_is_told_again_only_in_part() {
    let long: String = "ä".repeat(200_000);
    let text = |text: &str| Body::Text { message: MessageId(1), text: text.into() };
    let events = log(vec![
        (1, Body::TurnStarted),
        (1, text(&long)),
        (1, text("more")),
        (1, Body::TurnEnded { stop: Stop::EndTurn, error: None }),
    ]);
    let frames = frames(&told(StreamFormat::Loop, &events, 0));
    let (_, name, data) = frames.last().unwrap();
    assert_eq!(name, "result");
    assert_eq!(data["output_truncated"], true);
    assert!(data["output"].as_str().unwrap().len() <= 256 << 10);
}
