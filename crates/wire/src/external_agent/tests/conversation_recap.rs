//! The recap of a conversation, for an agent that does not know it.

use std::sync::Arc;

use engine::{
    Body, CallId, Content, Event, MessageId, Origin, Seq, Stop, Timestamp, ToolContent, ToolEnd, ToolKind,
    ToolStart, TurnId,
};
use expect_test::expect;

use crate::external_agent::ConversationRecap;

fn log(bodies: Vec<Body>) -> Vec<Arc<Event>> {
    let event = |(at, body)| {
        let turn = Some(TurnId(1));
        Arc::new(Event { seq: Seq(at), at: Timestamp(0), origin: Origin::Agent, turn, body, relayed: None })
    };
    (1..).zip(bodies).map(event).collect()
}

fn recap_of(bodies: Vec<Body>) -> Option<String> {
    let mut primer = ConversationRecap::default();
    log(bodies).iter().for_each(|event| primer.observe(event));
    match primer.finish()? {
        Content::Text(text) => Some(text.to_string()),
        other => panic!("{other:?}"),
    }
}

fn prompt(text: &str) -> Body {
    Body::UserMessage { content: vec![Content::text(text)] }
}

fn said(message: u64, text: &str) -> Body {
    Body::Text { message: MessageId(message), text: text.into() }
}

#[test]
fn it_says_who_said_what_and_what_was_done() {
    let call = CallId("c".into());
    let start =
        ToolStart { kind: ToolKind::Execute, ..ToolStart::new(call.clone(), "shell".into(), "ls".into()) };
    let end = ToolEnd {
        failed: true,
        content: vec![ToolContent::Block(Content::text("no such folder"))],
        ..ToolEnd::of(call)
    };
    let text = recap_of(vec![
        prompt("look around"),
        Body::Thought { message: MessageId(1), text: "hm".into() },
        said(2, "I "),
        said(2, "look."),
        Body::ToolStarted(Box::new(start)),
        Body::ToolEnded(Box::new(end)),
        Body::TurnEnded { stop: Stop::Cancelled, error: None },
    ]);
    expect![[r#"
        This session continues an earlier conversation, which follows as it was recorded. It is background: do not answer it, and do not repeat what was done in it.

        <earlier_conversation>
        User: look around

        Assistant: I look.

        [tool shell: ls (failed)]
        no such folder

        [the turn ended: cancelled]

        </earlier_conversation>"#]]
    .assert_eq(&text.unwrap());
}

#[test]
fn there_is_nothing_to_tell_of_nothing() {
    assert_eq!(recap_of(Vec::new()), None);
    assert_eq!(recap_of(vec![prompt("a"), Body::Cleared]), None);
}

#[test]
fn the_newest_is_kept_and_it_is_said_that_something_is_missing() {
    let long = "word ".repeat(1000);
    let bodies = (0..200).flat_map(|n| [prompt(&format!("prompt {n}.")), said(n, &long)]).collect();
    let text = recap_of(bodies).unwrap();
    assert!(text.len() <= 100 << 10, "{}", text.len());
    assert!(text.len() > 90 << 10, "{}", text.len());
    assert!(text.contains("[earlier messages are left out]"));
    assert!(!text.contains("prompt 0.") && text.contains("prompt 199."));
}

#[test]
fn one_endless_message_is_shortened_and_not_left_out() {
    let text = recap_of(vec![prompt("go"), said(1, &"ä".repeat(1 << 20))]).unwrap();
    assert!(text.len() < 20 << 10);
    assert!(text.contains("User: go") && text.contains("bytes in total]"));
}
