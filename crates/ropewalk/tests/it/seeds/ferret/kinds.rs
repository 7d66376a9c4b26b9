//! "Notification kinds".

use serde_json::{Value, json};

use super::{greeted, kinds_of};
use crate::seeds::program::Program;

/// "Notification kinds": the payload of each that a turn of the offline model has.
#[test]
fn every_kind_has_the_payload_of_the_table() {
    let (mut ferret, session) = greeted(&["ferret", "serve", "--approval", "full"]);
    let mut updates = Vec::new();
    let mut number = 2;
    for message in [
        "hello",
        "write a.txt: one",
        "edit a.txt: one=>two",
        "run echo out; echo err >&2",
        "write /etc/x: no",
    ] {
        number += 1;
        let params = json!({ "sessionId": session, "message": message });
        updates.extend(ferret.call(number, "session/message", &params).0);
    }
    let all = |kind: &str| -> Vec<&Value> {
        updates.iter().map(|update| &update["params"]).filter(|params| params["kind"] == kind).collect()
    };
    for (kind, members) in [
        ("agent_message_chunk", &["text"][..]),
        ("tool_call_start", &["id", "tool", "args"]),
        ("tool_call_end", &["id", "result", "duration_ms"]),
        ("cost_update", &["input", "output", "cache", "reasoning", "total_usd"]),
        ("file_edit", &["path", "diff"]),
        ("turn_end", &["id", "stop_reason"]),
    ] {
        assert!(!all(kind).is_empty(), "{kind}");
        for update in all(kind) {
            assert_eq!(update["sessionId"], session);
            assert!(members.iter().all(|member| update.get(member).is_some()), "{kind}: {update}");
        }
    }
    let names: Vec<_> = all("tool_call_start").iter().map(|start| start["tool"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["Write", "Edit", "Bash"]);
    assert_eq!(all("tool_call_start")[2]["args"], json!({ "command": "echo out; echo err >&2" }));
    let progress = all("tool_call_progress");
    assert!(progress.iter().any(|update| update["stdout"] == "out\n"), "{progress:?}");
    assert!(progress.iter().any(|update| update["stderr"] == "err\n"), "{progress:?}");
    let diff = all("file_edit").last().unwrap()["diff"].as_str().unwrap();
    assert!(diff.contains("-one") && diff.contains("+two"), "{diff}");
    // The history has the same cards again.
    let (history, _) = ferret.call(20, "session/load", &json!({ "sessionId": session }));
    let again: Vec<_> =
        history.iter().filter(|update| update["params"]["kind"] == "tool_call_start").collect();
    assert_eq!(again[2]["params"]["args"], json!({ "command": "echo out; echo err >&2" }));
    assert_eq!(again[0]["params"]["tool"], "Write");
}

/// Kinds beyond the twelve: each is on the page, and whoever passes over it has the whole conversation.
#[test]
fn differs_more_kinds_are_told() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    let params = |message: &str| json!({ "sessionId": session, "message": message });
    let (mut updates, _) = ferret.call(3, "session/message", &params("think"));
    updates.extend(ferret.call(4, "session/message", &params("plan")).0);
    updates.extend(ferret.call(5, "session/setMode", &json!({ "sessionId": session, "mode": "plan" })).0);
    updates.extend(ferret.call(6, "session/load", &json!({ "sessionId": session })).0);
    let twelve = [
        "agent_message_chunk",
        "tool_call_start",
        "tool_call_progress",
        "tool_call_end",
        "permission_request",
        "sandbox_violation",
        "approval_changed",
        "cost_update",
        "file_edit",
        "file_open",
        "notice",
        "turn_end",
    ];
    let kinds = kinds_of(&updates);
    for ours in ["agent_thought_chunk", "plan", "mode_changed", "user_message"] {
        assert!(kinds.contains(&ours), "{ours}: {kinds:?}");
    }
    let page = include_str!("../../../../../../docs/dialects/ferret.md");
    for kind in kinds {
        assert!(twelve.contains(&kind) || page.contains(&format!("`{kind}")), "{kind} is not on the page");
    }
}

/// What a write of `b.txt` shows of its refusal, by the message that asks for it.
fn violation(ferret: &mut Program, session: &Value, message: &str) -> Value {
    let (updates, _) =
        ferret.call(22, "session/message", &json!({ "sessionId": session, "message": message }));
    let violation = updates.iter().find(|update| update["params"]["kind"] == "sandbox_violation");
    violation.unwrap_or_else(|| panic!("{updates:?}"))["params"].clone()
}

/// "sandbox_violation": `{"tool", "path", "mode"}`, and in `reason` why.
#[test]
fn what_the_sandbox_refuses_names_the_tool_the_path_and_the_sandbox() {
    for (sandbox, message, path) in
        [("read-only", "write b.txt: no", "b.txt"), ("workspace-write", "write /etc/b.txt: no", "/etc/b.txt")]
    {
        let (mut ferret, session) = greeted(&["ferret", "serve", "--sandbox", sandbox, "--approval", "full"]);
        let violation = violation(&mut ferret, &session, message);
        assert_eq!(
            (&violation["tool"], &violation["mode"]),
            (&json!("Write"), &json!(sandbox)),
            "{violation}"
        );
        assert!(violation["path"].as_str().unwrap().ends_with(path), "{violation}");
    }
}

/// The sandbox would have let it through: `mode` is the approval, or the mode of the agent, and `reason` says which.
#[test]
fn differs_the_mode_of_a_violation_is_the_one_that_refused() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    ferret.call(21, "session/setApproval", &json!({ "sessionId": session, "approval": "read-only" }));
    let refused = violation(&mut ferret, &session, "write b.txt: no");
    assert_eq!(refused["mode"], "read-only", "{refused}");
    assert!(refused["reason"].as_str().unwrap().contains("approval"), "{refused}");
    ferret.call(23, "session/setApproval", &json!({ "sessionId": session, "approval": "full" }));
    ferret.call(24, "session/setMode", &json!({ "sessionId": session, "mode": "explore" }));
    let refused = violation(&mut ferret, &session, "write b.txt: no");
    assert_eq!(refused["mode"], "explore", "{refused}");
}

/// "file_open": "agent says: look at this line".
#[test]
fn file_open_names_the_file_and_the_line() {
    let (mut ferret, session) = greeted(&["ferret", "serve", "--approval", "full"]);
    let file = ferret.home.path().canonicalize().unwrap().join("work/a.txt");
    std::fs::write(&file, "one\ntwo\nthree\n").unwrap();
    let params = json!({ "sessionId": session, "message": "edit a.txt: three=>3" });
    let (updates, _) = ferret.call(3, "session/message", &params);
    let opened: Vec<_> = updates.iter().filter(|update| update["params"]["kind"] == "file_open").collect();
    let [opened] = opened[..] else { panic!("{updates:?}") };
    let expected = json!({ "sessionId": session, "kind": "file_open", "path": file, "line": 3 });
    assert_eq!(opened["params"], expected);
    // An editor that loads the session does not jump.
    let (history, _) = ferret.call(4, "session/load", &json!({ "sessionId": session }));
    assert!(!kinds_of(&history).contains(&"file_open"), "{history:?}");
}

/// "notice": `{"level", "text"}`.
#[test]
fn a_notice_has_a_level_and_a_text() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    let (mut updates, _) =
        ferret.call(3, "session/setApproval", &json!({ "sessionId": session, "approval": "full" }));
    updates.extend(ferret.call(4, "session/message", &json!({ "sessionId": session, "message": "hello" })).0);
    let notices: Vec<_> = updates.iter().filter(|update| update["params"]["kind"] == "notice").collect();
    let [notice] = notices[..] else { panic!("{updates:?}") };
    let notice = &notice["params"];
    assert_eq!(notice["sessionId"], session);
    assert!(["info", "warning", "error"].contains(&notice["level"].as_str().unwrap()), "{notice}");
    assert!(notice["text"].as_str().unwrap().starts_with("approval is full"), "{notice}");
}
