//! What the fold makes of a log.

use engine::{CallId, Exit, MessageId, Stop, ToolKind, ToolStart, Usage};
use expect_test::{Expect, expect};

use super::*;

fn text(text: &str) -> Body {
    Body::Text { message: MessageId(1), text: text.into() }
}

fn started(call: &str) -> Body {
    Body::ToolStarted(Box::new(ToolStart {
        kind: ToolKind::Read,
        locations: vec![],
        ..ToolStart::new(CallId(call.into()), "read".into(), call.into())
    }))
}

fn ended(call: &str, text: &str) -> Body {
    Body::ToolEnded(Box::new(ToolEnd {
        content: vec![ToolContent::Block(Content::text(text))],
        locations: vec![],
        exit: (call == "x").then_some(Exit { code: Some(3), signal: None }),
        ..ToolEnd::of(CallId(call.into()))
    }))
}

fn usage() -> Body {
    Body::Usage(Usage::default())
}

fn turn_ended() -> Body {
    Body::TurnEnded { stop: Stop::EndTurn, error: None }
}

/// Each turn is a prompt (a leading slash makes it local) and its events.
fn check(turns: Vec<(&str, Vec<Body>)>, expected: Expect) {
    let mut conversation = Conversation::default();
    for (id, (prompt, bodies)) in (1..).map(TurnId).zip(turns) {
        let opening = if prompt.starts_with('/') {
            TurnOpening::Local
        } else {
            TurnOpening::Prompt(Prompt::text(prompt.to_owned()))
        };
        conversation.open(id, opening);
        for body in bodies {
            conversation.apply(Some(id), &body);
        }
    }
    let line = |message: &Message| match message {
        Message::Summary(text) => format!("summary: {text}\n"),
        Message::User { text, .. } => format!("user: {text}\n"),
        Message::Assistant { text, calls, .. } => {
            let calls: Vec<_> = calls.iter().map(|call| call.id.to_string()).collect();
            format!("assistant: {text} {calls:?}\n")
        }
        Message::ToolResult { call, text, failed, .. } => {
            format!("result {call}: {text:?} failed={failed}\n")
        }
    };
    expected.assert_eq(&conversation.messages().iter().map(line).collect::<String>());
}

#[test]
fn a_turn_with_parallel_calls_keeps_each_reply_and_its_results_together() {
    check(
        vec![(
            "hi",
            vec![
                text("I "),
                text("look"),
                usage(),
                started("a"),
                started("b"),
                ended("b", "B"),
                ended("a", "A"),
                usage(),
                started("x"),
                ended("x", "X"),
                text("done"),
                usage(),
                turn_ended(),
            ],
        )],
        expect![[r#"
            user: hi
            assistant: I look ["a", "b"]
            result a: "A" failed=false
            result b: "B" failed=false
            assistant:  ["x"]
            result x: "X\n[exit code 3]" failed=false
            assistant: done []
        "#]],
    );
}

#[test]
fn a_call_that_never_ended_gets_a_failed_result() {
    check(
        vec![("one", vec![text("t"), usage(), started("a")]), ("two", vec![])],
        expect![[r#"
            user: one
            assistant: t ["a"]
            result a: "the tool call was interrupted; whether it took effect is not known" failed=true
            user: two
        "#]],
    );
}

#[test]
fn clearing_forgets_everything_and_compacting_keeps_the_summary() {
    check(
        vec![
            ("old", vec![text("answer"), turn_ended()]),
            ("/clear", vec![Body::Cleared, text("cleared"), turn_ended()]),
            ("/help", vec![text("help"), turn_ended()]),
            ("new", vec![text("fresh"), turn_ended()]),
        ],
        expect![[r#"
            user: new
            assistant: fresh []
        "#]],
    );
    check(
        vec![
            ("old", vec![text("answer"), turn_ended()]),
            ("/compact", vec![Body::Compacted { summary: "S".into() }, text("done"), turn_ended()]),
            ("new", vec![turn_ended()]),
        ],
        expect![[r#"
            user: old
            summary: S
            user: new
        "#]],
    );
}

#[test]
fn a_prompt_that_was_dropped_from_the_queue_does_not_end_the_reply() {
    let mut conversation = Conversation::default();
    conversation.open(TurnId(1), TurnOpening::Prompt(Prompt::text("hi".into())));
    conversation.apply(Some(TurnId(1)), &text("a"));
    conversation.apply(Some(TurnId(2)), &turn_ended());
    conversation.apply(Some(TurnId(1)), &text("b"));
    assert_eq!(
        conversation.messages().last(),
        Some(&Message::Assistant { text: "ab".into(), calls: vec![], native: None })
    );
}

/// Something that a turn may put into the log, well formed or not.
fn any_body() -> impl proptest::strategy::Strategy<Value = Body> {
    use proptest::prelude::*;
    let call = proptest::sample::select(vec!["a", "b", "c", "x"]);
    prop_oneof![
        Just(text("t")),
        Just(usage()),
        call.clone().prop_map(started),
        call.prop_map(|call| ended(call, "r")),
        Just(turn_ended()),
        Just(Body::Compacted { summary: "s".into() }),
        Just(Body::Cleared),
    ]
}

proptest::proptest! {
    #[test]
    fn whatever_the_log_holds_every_call_is_followed_by_its_result(
        turns in proptest::collection::vec(proptest::collection::vec(any_body(), 0..12), 0..5)
    ) {
        let mut conversation = Conversation::default();
        for (id, bodies) in (1..).map(TurnId).zip(turns) {
            conversation.open(id, TurnOpening::Prompt(Prompt::text("go".into())));
            for body in bodies {
                conversation.apply(Some(id), &body);
                let mut owed: std::collections::VecDeque<Arc<str>> = Default::default();
                for message in &conversation.messages() {
                    if let Message::ToolResult { call, .. } = message {
                        proptest::prop_assert_eq!(owed.pop_front(), Some(Arc::clone(call)));
                    } else {
                        proptest::prop_assert!(owed.is_empty());
                    }
                    if let Message::Assistant { calls, .. } = message {
                        owed.extend(calls.iter().map(|call| Arc::clone(&call.id)));
                    }
                }
                proptest::prop_assert!(owed.is_empty());
            }
        }
    }
}
