//! What the offline model says to which messages.

use expect_test::{Expect, expect};

use super::*;
use crate::model::{Thinking, ToolCall};

fn user(text: &str) -> Message {
    Message::User { text: text.into(), images: vec![] }
}

fn said(text: &str) -> Message {
    Message::Assistant { text: text.into(), calls: vec![], native: None }
}

fn used(tool: &str, arguments: &str, result: &str, failed: bool) -> [Message; 2] {
    let call = ToolCall { id: tool.into(), name: tool.into(), arguments: arguments.into() };
    [
        Message::Assistant { text: "".into(), calls: vec![call], native: None },
        Message::ToolResult {
            call: tool.into(),
            tool: tool.into(),
            text: result.into(),
            images: vec![],
            failed,
        },
    ]
}

async fn answer(model: &str, messages: Vec<Message>, output_tokens_max: Option<u64>) -> String {
    let request = ModelRequest {
        model: model.into(),
        system: "".into(),
        messages,
        tools: [].into(),
        output_tokens_max,
        thinking: Thinking::Off,
        temperature: None,
        conversation: "c".into(),
    };
    let mut stream = Offline.stream(request);
    let mut text = String::new();
    loop {
        match stream.next().await {
            Ok(ModelEvent::Text(piece)) => text.push_str(&piece),
            Ok(ModelEvent::Thinking(piece)) => text.push_str(&format!("(thinks: {piece})")),
            Ok(ModelEvent::ToolCall { name, arguments, .. }) => {
                text.push_str(&format!("\n-> {name} {arguments}"))
            }
            Ok(ModelEvent::Usage(usage)) => assert!(usage.context_used > 0 && usage.context_size == 128_000),
            Ok(ModelEvent::Done { stop }) => return format!("{text}\n{stop:?}\n"),
            Ok(event @ (ModelEvent::Native(_) | ModelEvent::Notice(_))) => panic!("{event:?}"),
            Err(error) => return format!("{text}\n! {error}\n"),
        }
    }
}

/// Answers as if the model had introduced itself already.
async fn check(messages: Vec<Message>, expected: Expect) {
    let mut known = vec![said("This is the offline model: no model key is configured. Hi")];
    known.extend(messages);
    expected.assert_eq(&answer("offline:plain", known, None).await);
}

#[tokio::test]
async fn the_first_answer_says_what_it_is() {
    let first = answer("offline:plain", vec![user("hello")], None).await;
    let line = first.lines().next().unwrap();
    assert!(
        line.starts_with("This is the offline model: no model key is configured. I can do: `read FILE`"),
        "{line}"
    );
    let again = answer("offline:plain", vec![user("hello"), said(line), user("think")], None).await;
    assert_eq!(
        again,
        "(thinks: Let me see. )(thinks: There is a question, )(thinks: and it wants an answer.)I thought about it.\n\nFinished\n"
    );
}

#[tokio::test]
async fn several_requests_become_several_calls_of_one_reply() {
    check(
        vec![user("read a && then run ls\nsearch x")],
        expect![[r#"
            I will do these 3 things.

            -> read {"path":"a"}
            -> shell {"command":"ls"}
            -> search {"text":"x"}
            Finished
        "#]],
    )
    .await;
}

#[tokio::test]
async fn results_are_told_in_a_sentence_each() {
    let mut messages = vec![user("go")];
    messages.extend(used("read", r#"{"path":"a.txt"}"#, "one\ntwo\n", false));
    messages.extend(used("list", "{}", "a\nsrc/\n", false));
    messages.extend(used("search", r#"{"text":"x"}"#, "a.txt:1: x\n", false));
    messages.extend(used("shell", r#"{"command":"make"}"#, "cc\nbroken\n[exit code 3]", true));
    messages.extend(used("edit", r#"{"path":"a.txt"}"#, "edited a.txt at line 1", false));
    messages.extend(used("write", r#"{"path":"b"}"#, "not allowed: the user refused it", true));
    check(
        messages,
        expect![[r#"
            I read a.txt: 2 lines; it begins with `one`.
            . has 2 entries: a, src/.
            I found "x" in 1 place; the first is `a.txt:1: x`.
            `make`: exit code 3; its last line is `broken`.
            I edited a.txt at line 1.
            `write b` did not work: not allowed: the user refused it.
            Finished
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_review_reports_facts() {
    let mut messages = vec![user("review a.rs\nOnly read.")];
    messages.extend(used(
        "read",
        r#"{"path":"a.rs"}"#,
        &format!("x // TODO\n{}\ny \n", "z".repeat(121)),
        false,
    ));
    check(
        messages,
        expect![[r#"
            Review of a.rs: 3 lines.
            - 1 lines longer than 120 characters: 2
            - 1 lines with TODO, FIXME or XXX: 1
            - 1 lines ending in blanks: 3
            The offline model sees such facts only; a real model judges the code.
            Finished
        "#]],
    )
    .await;
}

#[tokio::test]
async fn it_remembers_exactly_what_it_is_given() {
    check(
        vec![
            Message::Summary("The user asked: x".into()),
            user("first"),
            said("ok"),
            user("what did I say?"),
        ],
        expect![[r#"
            You said:
            - (summed up) The user asked: x
            - first

            Finished
        "#]],
    )
    .await;
    check(
        vec![user("what did I say?")],
        expect![[r#"
        You said nothing before this.

        Finished
    "#]],
    )
    .await;
}

#[tokio::test]
async fn floods_failures_and_limits() {
    check(
        vec![user("stream 2 12")],
        expect![[r#"
        chunk 1 ...
        chunk 2 ...

        Finished
    "#]],
    )
    .await;
    check(
        vec![user("fail")],
        expect![[r#"

        ! the offline model failed, as it was asked to
    "#]],
    )
    .await;
    let cut = answer(
        "offline:terse",
        vec![said("This is the offline model: no model key is configured. "), user("stream 9")],
        Some(50),
    )
    .await;
    assert_eq!(cut.lines().filter(|line| line.starts_with("chunk")).count(), 2);
    assert!(cut.ends_with("MaxTokens\n"));
}
