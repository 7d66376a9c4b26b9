//! Tool calls as recorded from agents.

use engine::{Body, CallId, OutputStream, Timestamp};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Session, raw};
use crate::external_agent::UpdateTranslator;

fn check(updates: &[Value], expected: Expect) {
    expected.assert_eq(&Session::default().lines(updates));
}

fn call(more: Value) -> Value {
    with(json!({ "sessionUpdate": "tool_call", "toolCallId": "c" }), more)
}

fn update(more: Value) -> Value {
    with(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c" }), more)
}

fn with(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}

fn text(text: &str) -> Value {
    json!([{ "type": "content", "content": { "type": "text", "text": text } }])
}

#[test]
fn claude_writes_a_file() {
    let meta = json!({ "claudeCode": { "toolName": "Write" } });
    let diff = json!([{ "type": "diff", "path": "/p/note.txt", "oldText": null, "newText": "hello" }]);
    check(
        &[
            call(json!({
                "_meta": meta, "name": "Write", "rawInput": {}, "status": "pending", "title": "Preparing file…",
                "kind": "edit", "content": [], "locations": [],
            })),
            update(json!({ "_meta": meta, "rawInput": { "content": "hello" } })),
            update(json!({
                "_meta": meta, "rawInput": { "file_path": "/p/note.txt", "content": "hello" },
                "title": "Write note.txt", "content": diff, "locations": [{ "path": "/p/note.txt" }],
            })),
            update(
                json!({ "_meta": { "claudeCode": { "toolResponse": { "type": "create" }, "toolName": "Write" } } }),
            ),
            update(json!({ "_meta": meta, "status": "completed", "rawOutput": "File created" })),
        ],
        expect![[r#"
            + started c Write "Preparing file…" Edit [] {}
            + changed c None None None Some("{\"content\":\"hello\"}") None
            + changed c Some("Write note.txt") None Some(1) Some("{\"file_path\":\"/p/note.txt\",\"content\":\"hello\"}") Some("diff of /p/note.txt None to Some(\"hello\")")
            + changed c None None None None None
            + done c [] Some("\"File created\"") None 0 ms
        "#]],
    );
}

#[test]
fn opencode_runs_a_command_that_goes_on_writing() {
    let more = json!({
        "status": "in_progress", "kind": "execute", "title": "make", "locations": [{ "path": "/p" }],
        "rawInput": { "command": "make" },
    });
    let grown = |shown: &str| update(with(more.clone(), json!({ "content": text(shown) })));
    check(
        &[
            call(
                json!({ "title": "bash", "kind": "execute", "status": "pending", "locations": [], "rawInput": {} }),
            ),
            update(more.clone()),
            update(more.clone()),
            grown("one\n"),
            grown("one\n"),
            grown("one\ntwo\n"),
            grown("three\n"),
            update(json!({
                "status": "completed", "title": "make", "content": text("three\n"),
                "rawOutput": { "output": "three\n" },
            })),
        ],
        expect![[r#"
            + started c shell "bash" Execute [] {}
            + changed c Some("make") None Some(1) Some("{\"command\":\"make\"}") None
            . output c Stdout "one\n"
            . output c Stdout "two\n"
            + changed c None None None None Some("\"three\\n\"")
            + done c ["three\n"] Some("{\"output\":\"three\\n\"}") None 0 ms
        "#]],
    );
}

/// Some agents append one piece per line instead.
#[test]
fn a_text_that_is_added_is_output_and_another_picture_is_not() {
    let line = |text: &str| json!({ "type": "content", "content": { "type": "text", "text": text } });
    let diff = json!({ "type": "diff", "path": "/p/a", "newText": "b" });
    check(
        &[
            call(json!({ "title": "ls", "content": [diff] })),
            update(json!({ "content": [diff, line("one")] })),
            update(json!({ "content": [diff, line("one"), line("two")] })),
            update(json!({ "content": [line("one"), line("two")] })),
        ],
        expect![[r#"
            + started c tool "ls" Other [] {}
            - changed c None None None None Some("diff of /p/a None to Some(\"b\")")
            . output c Stdout "one"
            . output c Stdout "two"
            + changed c None None None None Some("\"one\", \"two\"")
        "#]],
    );
}

/// Timestamps and the like come with every piece of output.
#[test]
fn output_that_grows_is_stored_once_though_something_else_beside_it_changes() {
    let grown = |shown: &str, n: u32| {
        update(
            json!({ "content": text(shown), "_meta": { "timestamp": n }, "rawOutput": { "output": shown } }),
        )
    };
    check(
        &[call(json!({ "title": "ls" })), grown("a", 1), grown("ab", 2), grown("ab", 3)],
        expect![[r#"
            + started c tool "ls" Other [] {}
            . output c Stdout "a"
            . output c Stdout "b"
            + changed c None None None None None
        "#]],
    );
}

#[test]
fn output_in_a_fence_grows_before_the_end_of_the_fence() {
    check(
        &[
            call(json!({ "title": "ls", "content": text("```sh\na\n```\n") })),
            update(json!({ "content": text("```sh\na\nb\n```\n") })),
            update(json!({ "content": text("```sh\na\nbc\n```\n") })),
        ],
        expect![[r#"
            + started c tool "ls" Other [] {}
            - changed c None None None None Some("\"```sh\\na\\n```\\n\"")
            . output c Stdout "\nb"
            . output c Stdout "c"
        "#]],
    );
}

#[test]
fn kimi_streams_the_input_as_content() {
    check(
        &[
            call(json!({ "title": "Write", "kind": "edit", "status": "pending", "content": text("") })),
            update(json!({ "status": "in_progress", "content": text("{\"co") })),
            update(json!({ "status": "in_progress", "content": text("{\"content\":1}") })),
            update(json!({
                "title": "Writing /p/a", "kind": "edit", "status": "in_progress", "rawInput": { "content": 1 },
                "locations": [{ "path": "/p/a" }], "content": text("{\"content\":1}"),
            })),
            update(json!({ "status": "completed", "content": text("Wrote"), "rawOutput": "Wrote" })),
        ],
        expect![[r#"
            + started c edit "Write" Edit [] {}
            + changed c None None None None Some("\"{\\\"co\"")
            . output c Stdout "ntent\":1}"
            + changed c Some("Writing /p/a") None Some(1) Some("{\"content\":1}") None
            + done c ["Wrote"] Some("\"Wrote\"") None 0 ms
        "#]],
    );
}

#[test]
fn codex_sends_output_beside_the_protocol() {
    let output =
        |data: &str| update(json!({ "_meta": { "terminal_output": { "terminal_id": "c", "data": data } } }));
    check(
        &[
            call(json!({
                "kind": "execute", "title": "ls", "status": "in_progress",
                "content": [{ "type": "terminal", "terminalId": "c" }],
                "rawInput": { "command": "ls" }, "_meta": { "terminal_info": { "terminal_id": "c" } },
            })),
            output("a\n"),
            output("a\n"),
            update(json!({ "_meta": { "terminal_output": { "terminal_id": "t", "data": "b" } } })),
            update(json!({
                "status": "failed",
                "_meta": { "terminal_exit": { "exit_code": 2, "signal": null, "terminal_id": "c" } },
            })),
        ],
        expect![[r#"
            + started c shell "ls" Execute [] {"command":"ls"}
            . output c Stdout "a\n"
            . output c Stdout "a\n"
            + output c Stdout "b"
            + failed c [] None Some((Some(2), None)) 0 ms
        "#]],
    );
}

#[test]
fn goose_sends_output_beside_the_protocol_too() {
    let chunks = json!([
        { "stream": "stdout", "output": "one\n" }, { "stream": "stderr", "output": "two\n" },
    ]);
    let live = json!({ "toolNotification": { "type": "live_output", "params": { "sequence": 1, "chunks": chunks } } });
    check(
        &[
            call(json!({
                "title": "shell", "_meta": { "goose": { "toolCall": { "toolName": "shell" } } },
            })),
            update(json!({ "status": "in_progress", "_meta": live })),
            update(json!({ "status": "completed", "rawOutput": { "exit_code": 0, "signal": 15 } })),
        ],
        expect![[r#"
            + started c shell "shell" Other [] {}
            + output c Stdout "one\n"
            - output c Stderr "two\n"
            + done c [] Some("{\"exit_code\":0,\"signal\":15}") Some((Some(0), Some("15"))) 0 ms
        "#]],
    );
}

/// Gemini reports a call only when it is over.
#[test]
fn a_call_that_was_never_begun_is_begun_first() {
    check(
        &[
            update(json!({
                "status": "completed", "title": "Writing to note.txt", "kind": "edit",
                "locations": [{ "path": "/p/note.txt" }],
                "content": [{ "type": "diff", "path": "/p/note.txt", "oldText": "", "newText": "hello", "_meta": { "kind": "add" } }],
            })),
            update(json!({ "title": "late" })),
        ],
        expect![[r#"
            - started c edit "Writing to note.txt" Edit ["/p/note.txt"] {}
            + done c [diff of /p/note.txt Some("") to Some("hello")] None None 0 ms
            . foreign {"sessionUpdate":"tool_call_update","toolCallId":"c","title":"late"}
        "#]],
    );
}

/// Some models number their calls from the start in every message.
#[test]
fn a_name_that_is_used_again_is_another_call() {
    let begin = || call(json!({ "title": "ls", "status": "completed" }));
    check(
        &[begin(), begin(), call(json!({ "title": "a" })), call(json!({ "title": "b" }))],
        expect![[r#"
            + started c tool "ls" Other [] {}
            - done c [] None None 0 ms
            + started c tool "ls" Other [] {}
            - done c [] None None 0 ms
            + started c tool "a" Other [] {}
            + changed c Some("b") None None None None
        "#]],
    );
}

#[test]
fn a_call_outside_a_turn_or_after_it_is_only_handed_on() {
    let mut session = Session::default();
    session.lines(&[call(json!({ "title": "ls" }))]);
    session.translator.end_turn();
    session.in_turn = false;
    let told = session.lines(&[update(json!({ "status": "completed" })), call(json!({ "title": "ls" }))]);
    expect![[r#"
        . foreign {"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}
        . foreign {"sessionUpdate":"tool_call","toolCallId":"c","title":"ls"}
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_call_takes_as_long_as_the_clock_says() {
    let mut session = Session::default();
    session.translator.set_time(Timestamp(1000));
    session.lines(&[call(json!({ "title": "ls" }))]);
    session.translator.set_time(Timestamp(3500));
    let told = session.lines(&[update(json!({ "status": "completed" }))]);
    assert_eq!(told, "+ done c [] None None 2500 ms\n");
}

#[test]
fn the_call_that_shows_a_terminal_can_be_found() {
    let mut session = Session::default();
    session.lines(&[
        call(json!({ "title": "ls" })),
        update(json!({ "content": [{ "type": "terminal", "terminalId": "terminal-1" }] })),
    ]);
    assert_eq!(session.translator.call_showing("terminal-1"), Some(&CallId("c".into())));
    assert_eq!(session.translator.call_showing("terminal-2"), None);
}

#[test]
fn a_long_name_is_replaced_and_then_our_own_words_are_shown() {
    let long = "x".repeat(300);
    let begin = json!({ "sessionUpdate": "tool_call", "toolCallId": long, "title": "ls" });
    let end = json!({ "sessionUpdate": "tool_call_update", "toolCallId": long, "status": "completed" });
    let mut session = Session::default();
    let heard: Vec<_> = [begin, end].iter().flat_map(|update| session.translate(update)).collect();
    let names: Vec<_> = heard
        .iter()
        .map(|heard| {
            assert_eq!(heard.said.relayed, None);
            match &heard.said.body {
                Body::ToolStarted(start) => start.call.0.to_string(),
                Body::ToolEnded(end) => end.call.0.to_string(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], names[1]);
    assert!(names[0].len() < 32, "{}", names[0]);
}

#[test]
fn calls_without_number_are_forgotten_from_the_oldest_on() {
    let named =
        |n: u32| json!({ "sessionUpdate": "tool_call", "toolCallId": format!("c{n}"), "title": "ls" });
    let end = |n: u32| json!({ "sessionUpdate": "tool_call_update", "toolCallId": format!("c{n}"), "status": "completed" });
    let mut session = Session::default();
    session.lines(&(0..300).map(named).collect::<Vec<_>>());
    assert_eq!(session.lines(&[end(299)]), "+ done c299 [] None None 0 ms\n");
    assert!(session.lines(&[end(0)]).contains("foreign"));
}

/// Agents send a command's whole output again with every line: 35 000 lines are 890 MB of JSON.
#[test]
fn a_flood_of_cumulative_output_is_stored_once() {
    let mut session = Session::default();
    session.lines(&[call(json!({ "title": "yes", "kind": "execute" }))]);
    let (mut shown, mut stored, mut sent) = (String::new(), 0, 0);
    for line in 0..1000 {
        shown.push_str(&format!("line {line} of the output\n"));
        let update = update(json!({ "status": "in_progress", "content": text(&shown) }));
        sent += update.to_string().len();
        for heard in session.translate(&update) {
            stored += heard.said.body.weight() + heard.said.relayed.map_or(0, |words| words.0.len());
        }
    }
    assert!(sent > 10_000_000, "{sent}");
    assert!(stored < 1000 * 200 + shown.len(), "{stored} of {sent}");
}

#[test]
fn a_title_and_an_input_without_end_are_cut() {
    let heard = Session::default().translate(&call(json!({
        "title": "ä".repeat(100_000), "name": "n".repeat(1000), "rawInput": { "x": "y".repeat(1 << 20) },
        "locations": (0..1000).map(|n| json!({ "path": format!("/{n}") })).collect::<Vec<_>>(),
    })));
    let Body::ToolStarted(start) = &heard[0].said.body else { panic!("{heard:?}") };
    assert!(start.title.len() < 5000 && start.tool.len() < 200 && start.input.0.len() <= 256 << 10);
    assert!(serde_json::from_str::<Value>(&start.input.0).is_ok());
    assert_eq!(start.locations.len(), 64);
}

proptest! {
    /// However it grows, the pieces together are the whole output.
    #[test]
    fn the_pieces_of_output_together_are_the_output(pieces in prop::collection::vec(".{0,12}", 1..20)) {
        let mut session = Session::default();
        session.lines(&[call(json!({ "title": "ls" }))]);
        let (mut shown, mut told) = (String::new(), String::new());
        for piece in &pieces {
            shown.push_str(piece);
            // A fence has rules of its own.
            prop_assume!(!shown.starts_with("```"));
            for heard in session.translate(&update(json!({ "content": text(&shown) }))) {
                let Body::ToolOutput { stream: OutputStream::Stdout, text, .. } = &heard.said.body else {
                    return Err(TestCaseError::fail(format!("{heard:?}")));
                };
                prop_assert_eq!(&heard.said.relayed, &None);
                told.push_str(text);
            }
        }
        prop_assert_eq!(told, shown);
    }
}

#[test]
fn nothing_is_made_of_parameters_without_an_update() {
    for params in [json!({}), json!([]), json!(null), json!({ "update": 1 })] {
        let heard = UpdateTranslator::default().translate(&raw(&params), &mut || engine::MessageId(1), true);
        assert!(
            heard.len() <= 1 && heard.iter().all(|heard| matches!(heard.said.body, Body::Foreign { .. }))
        );
    }
}
