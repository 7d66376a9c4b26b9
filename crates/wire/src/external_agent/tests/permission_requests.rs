//! Permission requests as recorded from agents.

use engine::{AskRequest, Resolution, Risk};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{Session, raw};
use crate::external_agent::{BadPermissionRequest, permission_outcome, permission_request};

fn check(call: Value, expected: Expect) {
    let request = permission_request(&raw(&asked(&call))).unwrap();
    expected.assert_eq(&brief(&request));
}

fn asked(call: &Value) -> Value {
    json!({
        "sessionId": "theirs", "toolCall": call,
        "options": [
            { "optionId": "proceed_always", "name": "Allow All Edits", "kind": "allow_always" },
            { "optionId": "proceed_once", "name": "Allow", "kind": "allow_once" },
            { "optionId": "cancel", "name": "Reject", "kind": "reject_once" },
        ],
    })
}

fn brief(request: &AskRequest) -> String {
    format!(
        "{} {:?} {:?} {:?} {:?}\n{:?} about {:?} of {:?}\n{} pieces, {}\n",
        request.tool,
        request.title,
        request.kind,
        request.class,
        request.risk,
        request.call.as_ref().map(|call| call.0.as_ref()),
        request.subject,
        request.path,
        request.preview.len(),
        request.input.0
    )
}

#[test]
fn claude_wants_to_write_a_file() {
    check(
        json!({
            "toolCallId": "t1", "name": "Write", "status": "pending", "kind": "edit", "title": "Write note.txt",
            "rawInput": { "file_path": "/p/note.txt", "content": "hello" },
            "content": [{ "type": "diff", "path": "/p/note.txt", "oldText": null, "newText": "hello" }],
            "locations": [{ "path": "/p/note.txt" }],
        }),
        expect![[r#"
            Write "Write note.txt" Edit Edit Medium
            Some("t1") about "/p/note.txt" of Some("/p/note.txt")
            1 pieces, {"file_path":"/p/note.txt","content":"hello"}
        "#]],
    );
}

#[test]
fn codex_wants_to_run_a_command_that_is_a_list() {
    check(
        json!({
            "toolCallId": "t", "kind": "execute", "status": "pending", "title": "touch a",
            "rawInput": { "command": ["/bin/bash", "-lc", "printf '%s' 'hello' > note.txt"], "cwd": "/p" },
        }),
        expect![[r#"
            shell "touch a" Execute Execute Medium
            Some("t") about "printf '%s' 'hello' > note.txt" of None
            0 pieces, {"command":["/bin/bash","-lc","printf '%s' 'hello' > note.txt"],"cwd":"/p"}
        "#]],
    );
}

#[test]
fn a_command_is_what_a_shell_would_be_given() {
    for (input, subject) in [
        (json!({ "command": "git push" }), "git push"),
        (json!({ "cmd": "git push" }), "git push"),
        (json!({ "command": "git", "args": ["commit", "-m", "it's done"] }), r"git commit -m 'it'\''s done'"),
        (json!({ "command": ["rm", "-rf", "a b"] }), "rm -rf 'a b'"),
        (json!({ "command": ["bash", "-x", "run"] }), "bash -x run"),
        (json!("make all"), "make all"),
        (json!({}), "the title"),
        (json!({ "server": 1, "tool": 2 }), "the title"),
        (json!(7), "the title"),
    ] {
        let call = json!({ "toolCallId": "t", "kind": "execute", "title": "the title", "rawInput": input });
        let request = permission_request(&raw(&asked(&call))).unwrap();
        assert_eq!(*request.subject, *subject, "{input}");
    }
}

#[test]
fn an_address_is_what_a_fetch_is_about() {
    check(
        json!({ "toolCallId": "t", "kind": "fetch", "title": "Fetch", "rawInput": { "url": "https://example.org/" } }),
        expect![[r#"
            fetch "Fetch" Fetch Network Medium
            Some("t") about "https://example.org/" of None
            0 pieces, {"url":"https://example.org/"}
        "#]],
    );
}

#[test]
fn what_nobody_can_judge_is_a_command() {
    for kind in [json!("switch_mode"), json!("other"), json!("teleport"), Value::Null] {
        let call = json!({ "toolCallId": "t", "kind": kind, "title": "Leave the plan" });
        let request = permission_request(&raw(&asked(&call))).unwrap();
        assert_eq!(request.class, engine::ToolClass::Execute);
        assert_eq!(*request.subject, *"Leave the plan");
    }
}

/// A tool of ours would name the file: then a rule for it, and the workspace, could be checked.
#[test]
fn an_edit_of_a_file_that_is_not_plainly_named_is_a_high_risk() {
    for (places, risk) in [
        (json!([]), Risk::High),
        (json!([{ "path": "/p/a" }]), Risk::Medium),
        (json!([{ "path": "/p/../etc/passwd" }]), Risk::High),
        (json!([{ "path": "a" }]), Risk::High),
        (json!([{ "path": "/p/a" }, { "path": "/etc/passwd" }]), Risk::High),
    ] {
        let call = json!({ "toolCallId": "t", "kind": "edit", "title": "Edit", "locations": places });
        assert_eq!(permission_request(&raw(&asked(&call))).unwrap().risk, risk, "{places}");
    }
}

/// Kimi sends the call's id and little more.
#[test]
fn what_was_said_of_the_call_before_counts() {
    let mut session = Session::default();
    session.lines(&[json!({
        "sessionUpdate": "tool_call", "toolCallId": "0:c", "title": "Write", "kind": "edit",
        "rawInput": { "path": "/p/note.txt" }, "locations": [{ "path": "/p/note.txt" }],
    })]);
    let call = json!({ "toolCallId": "0:c", "title": "Write" });
    let request = session.translator.permission(&raw(&asked(&call))).unwrap();
    expect![[r#"
        edit "Write" Edit Edit Medium
        Some("0:c") about "/p/note.txt" of Some("/p/note.txt")
        0 pieces, {"path":"/p/note.txt"}
    "#]]
    .assert_eq(&brief(&request));
    assert_eq!(permission_request(&raw(&asked(&call))).unwrap().class, engine::ToolClass::Execute);
}

/// Kimi also shows the input as content while it is written, instead of sending `rawInput`.
#[test]
fn an_input_that_was_only_shown_counts_too() {
    let mut session = Session::default();
    let shown = |text: &str| json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
    session.lines(&[
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Bash", "kind": "execute", "content": shown("") }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": shown("{\"command\":\"tou") }),
    ]);
    let call = json!({ "toolCallId": "c", "title": "Bash" });
    let request = session.translator.permission(&raw(&asked(&call))).unwrap();
    expect![[r#"
        shell "Bash" Execute Execute High
        Some("c") about "Bash [c]" of None
        0 pieces, {}
    "#]]
    .assert_eq(&brief(&request));
    session.lines(&[
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": shown("{\"command\":\"touch a\"}") }),
    ]);
    let request = session.translator.permission(&raw(&asked(&call))).unwrap();
    expect![[r#"
        shell "Bash" Execute Execute Medium
        Some("c") about "touch a" of None
        0 pieces, {"command":"touch a"}
    "#]]
    .assert_eq(&brief(&request));
}

/// What people allow for good must be known.
#[test]
fn what_is_not_said_can_only_be_allowed_for_this_call() {
    for (kind, title, subject) in [
        ("execute", "Terminal", "Terminal [t]"),
        ("edit", "Write", "Write [t]"),
        ("execute", "ls -l", "ls -l"),
        ("other", "Leave", "Leave"),
    ] {
        let call = json!({ "toolCallId": "t", "kind": kind, "title": title });
        assert_eq!(*permission_request(&raw(&asked(&call))).unwrap().subject, *subject);
    }
}

/// Codex shows the tool of an MCP server as a command.
#[test]
fn the_tool_of_a_server_has_the_name_that_rules_have_for_it() {
    let mut session = Session::default();
    session.lines(&[json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "mcp.rig.mark", "kind": "execute",
        "rawInput": { "server": "rig", "tool": "mark", "arguments": { "name": "a" } },
    })]);
    let call = json!({ "toolCallId": "c", "kind": "execute", "status": "pending" });
    let request = session.translator.permission(&raw(&asked(&call))).unwrap();
    expect![[r#"
        mcp__rig__mark "mcp.rig.mark" Other Execute Medium
        Some("c") about "mcp__rig__mark" of None
        0 pieces, {"server":"rig","tool":"mark","arguments":{"name":"a"}}
    "#]]
    .assert_eq(&brief(&request));
    let titled = json!({ "toolCallId": "d", "title": "mcp__rig__mark" });
    assert_eq!(*permission_request(&raw(&asked(&titled))).unwrap().tool, *"mcp__rig__mark");
}

/// Goose sends the kind "other", and the tool's name with the call.
#[test]
fn a_tool_is_known_by_its_name_where_its_kind_says_nothing() {
    let mut session = Session::default();
    session.lines(&[json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "write · /p/note.txt",
        "_meta": { "goose": { "toolCall": { "toolName": "write" } } },
    })]);
    let call = json!({
        "toolCallId": "c", "kind": "other", "title": "write · /p/note.txt", "rawInput": { "path": "/p/note.txt" },
    });
    let request = session.translator.permission(&raw(&asked(&call))).unwrap();
    expect![[r#"
        write "write · /p/note.txt" Edit Edit Medium
        Some("c") about "/p/note.txt" of Some("/p/note.txt")
        0 pieces, {"path":"/p/note.txt"}
    "#]]
    .assert_eq(&brief(&request));
}

#[test]
fn the_agents_options_are_kept_and_what_is_not_known_to_allow_does_not() {
    let params = raw(&json!({
        "sessionId": "theirs", "_meta": { "x": 1 }, "toolCall": { "toolCallId": "t" },
        "options": [
            { "optionId": "a", "name": "Yes", "kind": "allow_once" },
            { "optionId": "b", "kind": "allow_always" },
            { "optionId": "c", "name": "Never", "kind": "reject_always" },
            { "optionId": "d", "name": "Perhaps", "kind": "allow_twice" },
            { "name": "no id" },
        ],
    }));
    let foreign = permission_request(&params).unwrap().foreign.unwrap();
    let options: Vec<_> = foreign.options.iter().map(|o| (o.id.as_ref(), o.name.as_ref(), o.means)).collect();
    assert_eq!(
        options,
        [
            ("a", "Yes", Resolution::AllowedOnce),
            ("b", "b", Resolution::AllowedAlways),
            ("c", "Never", Resolution::DeniedAlways),
            ("d", "Perhaps", Resolution::DeniedOnce),
        ]
    );
    let mut kept: Value = serde_json::from_str(params.get()).unwrap();
    kept.as_object_mut().unwrap().remove("sessionId");
    assert_eq!(serde_json::from_str::<Value>(&foreign.params.0).unwrap(), kept);
}

#[test]
fn a_question_that_cannot_be_answered_is_refused() {
    for (params, error) in [
        (json!({}), BadPermissionRequest::NoCall),
        (json!([]), BadPermissionRequest::NoCall),
        (json!({ "toolCall": {} }), BadPermissionRequest::NoOptions),
        (json!({ "toolCall": {}, "options": [{}] }), BadPermissionRequest::NoOptions),
        (
            json!({ "toolCall": { "title": "x".repeat(5 << 20) }, "options": [] }),
            BadPermissionRequest::TooLong,
        ),
    ] {
        assert_eq!(permission_request(&raw(&params)), Err(error));
    }
}

#[test]
fn the_answer_is_an_option_or_that_the_turn_was_cancelled() {
    let read = |option| serde_json::from_str::<Value>(permission_outcome(option).get()).unwrap();
    let selected = json!({ "outcome": { "outcome": "selected", "optionId": "a\"b" } });
    assert_eq!(read(Some("a\"b")), selected);
    assert_eq!(read(None), json!({ "outcome": { "outcome": "cancelled" } }));
}
