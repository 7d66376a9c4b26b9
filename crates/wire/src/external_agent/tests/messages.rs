//! Messages, plans, commands, titles, costs.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::Session;
use crate::external_agent::{SettingOffers, UpdateTranslator};

fn check(updates: &[Value], expected: Expect) {
    expected.assert_eq(&Session::default().lines(updates));
}

fn says(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

fn says_in(message: &str, text: &str) -> Value {
    json!({
        "sessionUpdate": "agent_message_chunk", "messageId": message,
        "content": { "type": "text", "text": text },
    })
}

fn thinks(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": text } })
}

#[test]
fn pieces_of_one_message_have_one_id_and_another_kind_begins_another() {
    check(
        &[says("I am "), says("going"), thinks("hm"), says("on"), says("")],
        expect![[r#"
            . text 1 "I am "
            . text 1 "going"
            . thought 2 "hm"
            . text 3 "on"
        "#]],
    );
}

#[test]
fn another_message_of_the_agents_is_another_message_of_ours() {
    check(
        &[says_in("a", "1"), says_in("a", "2"), says_in("b", "3"), says("4")],
        expect![[r#"
            . text 1 "1"
            . text 1 "2"
            . text 2 "3"
            . text 3 "4"
        "#]],
    );
}

#[test]
fn what_is_true_of_the_session_does_not_cut_a_message_and_a_tool_call_does() {
    let usage = json!({ "sessionUpdate": "usage_update", "used": 1, "size": 9 });
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls" });
    check(
        &[says("a"), usage, says("b"), call, says("c")],
        expect![[r#"
            . text 1 "a"
            + usage 1/9 in 0 out 0 $0.0000 unpriced true
            . text 1 "b"
            + started c tool "ls" Other [] {}
            . text 2 "c"
        "#]],
    );
}

/// Goose marks every piece, and the official Python SDK's example too.
#[test]
fn a_piece_with_more_than_text_carries_the_agents_words() {
    let marked = json!({
        "sessionUpdate": "agent_message_chunk", "messageId": "m", "_meta": { "goose": { "created": 1 } },
        "content": { "type": "text", "text": "a" },
    });
    let annotated = json!({
        "sessionUpdate": "agent_message_chunk",
        "content": { "type": "text", "text": "b", "annotations": { "priority": 1 } },
    });
    check(
        &[marked, annotated],
        expect![[r#"
            + text 1 "a"
            + text 2 "b"
        "#]],
    );
}

#[test]
fn what_is_no_text_is_named_and_carries_the_agents_words() {
    let image = json!({
        "sessionUpdate": "agent_message_chunk",
        "content": { "type": "image", "data": "AAAA", "mimeType": "image/png" },
    });
    let link = json!({
        "sessionUpdate": "agent_message_chunk",
        "content": { "type": "resource_link", "uri": "file:///a", "name": "a" },
    });
    let unknown = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "hologram" } });
    check(
        &[image, link, unknown],
        expect![[r#"
            + text 1 "[image, image/png, 3 bytes]"
            + text 1 "[a](file:///a)"
            . foreign {"sessionUpdate":"agent_message_chunk","content":{"type":"hologram"}}
        "#]],
    );
}

/// JavaScript cuts texts between the halves of a character.
#[test]
fn half_a_character_is_shown_as_one_and_carried_as_it_came() {
    let update = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\ud83d"}}"#;
    let params = format!(r#"{{"sessionId":"s","update":{update}}}"#);
    let params = serde_json::value::RawValue::from_string(params).unwrap();
    let heard = UpdateTranslator::default().translate(&params, &mut || engine::MessageId(1), true);
    assert_eq!(heard.len(), 1);
    assert!(super::brief(&heard[0].said.body).starts_with("text 1 \"a\u{fffd}"), "{heard:?}");
    assert_eq!(heard[0].said.relayed.as_ref().unwrap().0.as_ref(), update);
}

/// E30, AA6: what a sub-agent says is marked with its parent call.
#[test]
fn what_a_sub_agent_says_stands_within_its_call() {
    let task =
        json!({ "sessionUpdate": "tool_call", "toolCallId": "task", "title": "Look", "kind": "think" });
    let mark = json!({ "claudeCode": { "parentToolUseId": "task" } });
    let inner = |text: &str| {
        json!({
            "sessionUpdate": "agent_message_chunk", "_meta": mark,
            "content": { "type": "text", "text": text },
        })
    };
    let call = json!({
        "sessionUpdate": "tool_call", "toolCallId": "inner", "title": "ls", "kind": "execute",
        "_meta": { "claudeCode": { "parentToolUseId": "task", "toolName": "Bash" } },
    });
    let end = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "inner", "status": "completed" });
    let stray = json!({
        "sessionUpdate": "agent_message_chunk", "_meta": { "claudeCode": { "parentToolUseId": "gone" } },
        "content": { "type": "text", "text": "stray" },
    });
    check(
        &[task, says("a"), inner("x"), says("b"), inner("y"), call, end, stray],
        expect![[r#"
            + started task think "Look" Think [] {}
            . text 1 "a"
            . text 2 "x" within task
            . text 1 "b"
            . text 2 "y" within task
            + started inner Bash "ls" Execute [] {} within task
            + done inner [] None None 0 ms within task
            . text 1 "stray"
        "#]],
    );
}

#[test]
fn what_people_said_is_ours_in_a_turn_and_history_outside_one() {
    let user = json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": "hi" } });
    let mut session = Session::default();
    assert_eq!(session.lines(std::slice::from_ref(&user)), "");
    session.in_turn = false;
    assert_eq!(session.lines(&[user.clone(), user]), "");
}

#[test]
fn a_plan_carries_the_agents_words_only_if_it_says_more() {
    let entry = json!({ "content": "a", "priority": "high", "status": "in_progress" });
    let odd = json!({ "content": "b", "priority": "urgent", "status": "completed", "_meta": {} });
    check(
        &[
            json!({ "sessionUpdate": "plan", "entries": [entry] }),
            json!({ "sessionUpdate": "plan", "entries": [odd, {}] }),
            json!({ "sessionUpdate": "plan", "entries": "none" }),
        ],
        expect![[r#"
            . plan ["a High InProgress"]
            + plan ["b Medium Completed"]
            . foreign {"sessionUpdate":"plan","entries":"none"}
        "#]],
    );
}

#[test]
fn commands_are_taken_over_and_what_more_is_said_of_them_is_carried() {
    check(
        &[
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": [
                { "name": "plan", "description": "Turn plan mode on.", "input": null },
                { "name": "mcp", "description": "Servers", "input": { "hint": "[reconnect]" } },
            ] }),
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": [
                { "name": "prompts", "description": "List", "_meta": { "commandType": "Builtin" } }, {},
            ] }),
        ],
        expect![[r#"
            + commands ["plan \"Turn plan mode on.\" None", "mcp \"Servers\" Some(\"[reconnect]\")"]
            + commands ["prompts \"List\" None"]
        "#]],
    );
}

/// codex-acp and goose use the title update for other things, too.
#[test]
fn a_title_is_a_title_and_the_rest_of_it_is_handed_on() {
    check(
        &[
            json!({ "sessionUpdate": "session_info_update", "title": "A small\n task", "updatedAt": "2026-11-16T19:23:18+00:00" }),
            json!({ "sessionUpdate": "session_info_update", "_meta": { "goose": { "activeRunId": "r" } } }),
            json!({ "sessionUpdate": "session_info_update", "title": null }),
        ],
        expect![[r#"
            + title "A small task"
            . foreign {"sessionUpdate":"session_info_update","_meta":{"goose":{"activeRunId":"r"}}}
            . foreign {"sessionUpdate":"session_info_update","title":null}
        "#]],
    );
}

#[test]
fn what_it_costs_in_all_becomes_what_each_piece_costs() {
    let usage = |used: u64, cost: Value| json!({ "sessionUpdate": "usage_update", "used": used, "size": 1000, "cost": cost });
    let usd = |amount: f64| json!({ "amount": amount, "currency": "USD" });
    check(
        &[
            usage(1, Value::Null),
            usage(2, usd(0.25)),
            usage(3, usd(0.75)),
            // The agent was restarted and counts from zero.
            usage(4, usd(0.5)),
            usage(5, json!({ "amount": 4, "currency": "EUR" })),
            usage(6, usd(-1.0)),
            usage(7, usd(1e300)),
            json!({ "sessionUpdate": "usage_update", "used": "many" }),
        ],
        expect![[r#"
            + usage 1/1000 in 0 out 0 $0.0000 unpriced true
            + usage 2/1000 in 0 out 0 $0.2500 unpriced false
            + usage 3/1000 in 0 out 0 $0.5000 unpriced false
            + usage 4/1000 in 0 out 0 $0.5000 unpriced false
            + usage 5/1000 in 0 out 0 $0.0000 unpriced false
            + usage 6/1000 in 0 out 0 $0.0000 unpriced false
            + usage 7/1000 in 0 out 0 $0.0000 unpriced false
            . foreign {"sessionUpdate":"usage_update","used":"many"}
        "#]],
    );
}

#[test]
fn a_session_that_is_brought_back_is_not_paid_for_twice() {
    let update = json!({ "sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": { "amount": 1.5, "currency": "USD" } });
    let mut session = Session::default();
    session.translator.start_from(1.25);
    assert_eq!(session.lines(&[update]), "+ usage 1/9 in 0 out 0 $0.2500 unpriced false\n");
}

/// Qwen reports its tokens in an empty chunk.
#[test]
fn tokens_beside_an_empty_text_are_counted() {
    check(
        &[
            json!({
                "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "" },
                "_meta": { "usage": { "inputTokens": 100, "outputTokens": 10, "totalTokens": 110 }, "durationMs": 5 },
            }),
            json!({
                "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "" },
                "_meta": { "other": 1 },
            }),
        ],
        expect![[r#"
            + usage 0/0 in 100 out 10 $0.0000 unpriced true
            . foreign {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""},"_meta":{"other":1}}
        "#]],
    );
}

#[test]
fn notices_are_ours_and_what_nobody_knows_is_handed_on() {
    check(
        &[
            json!({ "sessionUpdate": "notice", "severity": "warning", "title": "Slow", "description": "very" }),
            json!({ "sessionUpdate": "notice" }),
            json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress" }),
            json!({ "no": "kind" }),
            json!([]),
        ],
        expect![[r#"
            . notice Warning "Slow\nvery"
            . foreign {"sessionUpdate":"notice"}
            . foreign {"sessionUpdate":"compaction_update","compactionId":"c","status":"in_progress"}
            . foreign {"no":"kind"}
            . foreign []
        "#]],
    );
}

#[test]
fn modes_and_options_become_settings_and_only_what_differs_is_told() {
    let options = |mode: &str, names: &[&str]| {
        let choices: Vec<_> = names.iter().map(|name| json!({ "value": name, "name": name })).collect();
        json!({ "sessionUpdate": "config_option_update", "configOptions": [
            { "type": "select", "id": "model", "name": "Model", "category": "model", "currentValue": "mock",
              "options": [{ "value": "mock", "name": "mock-model" }] },
            { "type": "select", "id": "mode", "name": "Mode", "category": "mode", "currentValue": mode,
              "options": choices },
        ] })
    };
    let mode = |mode: &str| json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode });
    let first = options("default", &["default", "plan"]);
    let mut session = Session {
        translator: UpdateTranslator::new(SettingOffers::of(&super::raw(&first))),
        ..Session::default()
    };
    let told = session.lines(&[
        first,
        mode("default"),
        mode("plan"),
        options("default", &["default", "plan"]),
        options("yolo", &["default", "yolo"]),
    ]);
    expect![[r#"
        + set mode plan
        + set mode default
        + offered ["model", "mode"]
        - set mode yolo
    "#]]
    .assert_eq(&told);
    session.translator.note_choice("mode", &"default".into());
    assert_eq!(session.lines(&[mode("default")]), "", "what we chose ourselves is no news");
}
