//! Ferret's clients: each kind comes from the thing that it names, and each method does what it says.

use std::sync::Arc;

use engine::{Body, FileChange, Location, NoticeLevel, Stop, TurnError, Usage};
use serde_json::{Value, json};
use testkit::server::{OlderClient, Server, Setup, run};
use testkit::{Line, Script, Turns, call, fail, say, think};
use wire::Dialect::Ferret;

async fn opened(server: &mut Server) -> (OlderClient, String) {
    let mut client = server.older_client(Ferret).await;
    let session = client.new_session().await;
    (client, session)
}

fn of<'a>(updates: &'a [Value], kind: &str) -> Vec<&'a Value> {
    updates.iter().filter(|update| update["kind"] == kind).collect()
}

fn shell(command: &str) -> Line {
    call("shell", json!({ "command": command }).to_string())
}

/// B2.
#[tokio::test]
async fn an_initialize_without_a_version_is_answered_in_ferret() {
    run(Setup::offline(), async |server| {
        let mut client = server.connect();
        for params in [json!({}), json!({ "protocolVersion": "0.2" })] {
            let hello = client.call("initialize", params).await;
            assert_eq!(hello["protocolVersion"], "0.2");
            let all = json!({
                "sandbox": true, "approval": true, "streaming": true, "cancellation": true, "bridge": true,
            });
            assert_eq!(hello["capabilities"], all);
        }
    })
    .await;
}

/// A16, C7: and what is stored is listed after a restart.
#[tokio::test]
async fn nothing_is_done_before_initialize_and_what_is_stored_is_listed() {
    run(Setup::offline().on_disk(), async |server| {
        let mut early = server.connect_older(Ferret);
        assert_eq!(early.refused("session/new", json!({})).await.code, -32002);
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        drop((early, client));
        server.restart().await;
        let mut client = server.older_client(Ferret).await;
        let list = client.call("session/list", json!({})).await;
        let listed = &list["sessions"][0];
        assert_eq!(listed["sessionId"], session.as_str());
        assert_eq!((&listed["title"], &listed["status"]), (&json!("list"), &json!("idle")));
        assert!(listed["updatedAt"].is_string() && listed["cwd"].is_string());
        let elsewhere = client.call("session/list", json!({ "cwd": "/nowhere" })).await;
        assert_eq!(elsewhere["sessions"], json!([]));
    })
    .await;
}

/// A model that thinks, speaks and calls a tool, and then ends; each of the two replies has this usage.
pub fn two_replies(usage: Usage) -> Script {
    Script::new([
        vec![think("hm"), say("one "), call("list", "{}"), Line::Usage(usage)],
        vec![say("two"), Line::Usage(usage)],
    ])
}

/// What a client is told of such a turn, whose answer holds the last message.
pub async fn updates_of_two_replies(client: &mut OlderClient, session: &str) -> Vec<Value> {
    let answer = client.message(session, "go").await;
    assert_eq!(answer, json!({ "sessionId": session, "stopReason": "end_turn", "output": "two" }));
    client.take_updates()
}

/// E12, E13, E20, E24, D2: flat, in order, and the answer holds the last message of what was streamed.
#[tokio::test]
async fn a_message_streams_flat_kinds_and_answers_with_the_final_message() {
    let usage =
        Usage { input: 7, output: 3, cache_read: 1, reasoning: 2, cost_usd: 0.25, ..Usage::default() };
    let script = two_replies(usage);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let updates = updates_of_two_replies(&mut client, &session).await;
        assert!(updates.iter().all(|update| update["sessionId"] == session.as_str()));
        let text: String =
            of(&updates, "agent_message_chunk").iter().filter_map(|u| u["text"].as_str()).collect();
        assert_eq!(text, "one two");
        assert_eq!(of(&updates, "agent_thought_chunk")[0]["text"], "hm");
        let start = of(&updates, "tool_call_start")[0];
        assert_eq!((&start["tool"], &start["args"]), (&json!("LS"), &json!({})));
        let end = of(&updates, "tool_call_end")[0];
        assert!(end["id"] == start["id"] && end["duration_ms"].is_u64() && end["result"].is_string());
        let costs: Vec<_> = of(&updates, "cost_update").iter().map(|u| u["total_usd"].clone()).collect();
        assert_eq!(costs, [0.25, 0.5]);
        let last = of(&updates, "cost_update")[1];
        assert_eq!((&last["input"], &last["cache"], &last["reasoning"]), (&json!(14), &json!(2), &json!(4)));
        assert_eq!(updates.last().unwrap()["kind"], "turn_end");
        assert_eq!(updates.last().unwrap()["stop_reason"], "end_turn");
        assert_eq!(of(&updates, "turn_end").len(), 1);
        assert_eq!(client.kinds().last(), Some(&"reply"), "the answer comes last");
    })
    .await;
}

/// E15: each piece of output comes while the command runs, for as long as the test holds it there.
#[tokio::test]
async fn output_comes_while_the_command_runs() {
    let script =
        Script::new([vec![shell("echo one; echo two >&2; while [ ! -e go ]; do :; done; echo three")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        client.call("session/setApproval", json!({ "sessionId": session, "approval": "full" })).await;
        let asked = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        let (mut out, mut err) = (String::new(), String::new());
        while (out.as_str(), err.as_str()) != ("one\n", "two\n") {
            let piece = client.next_of("tool_call_progress").await;
            out.push_str(piece["stdout"].as_str().unwrap_or_default());
            err.push_str(piece["stderr"].as_str().unwrap_or_default());
        }
        testkit::server::write(server.workspace().join("go"), "");
        assert_eq!(client.next_of("tool_call_progress").await["stdout"], "three\n");
        assert!(client.next_of("tool_call_end").await["result"].as_str().unwrap().contains("three"));
        assert_eq!(client.reply(asked).await.unwrap()["stopReason"], "end_turn");
    })
    .await;
}

/// E17, G10, G11: asked, answered, remembered.
#[tokio::test]
async fn a_question_waits_for_its_answer_and_always_is_not_asked_again() {
    let touch = || vec![shell("echo x >> made")];
    let script = Script::new([touch(), vec![], touch(), vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let asked = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        let question = client.next_of("permission_request").await;
        assert_eq!(question["id"], "perm-1");
        assert_eq!(
            (&question["tool"], &question["args"]["command"]),
            (&json!("Bash"), &json!("echo x >> made"))
        );
        assert!(question["risk"].is_string());
        assert!(!server.workspace().join("made").exists());
        let answer = json!({ "sessionId": session, "id": "perm-1", "decision": "always" });
        assert_eq!(client.call("permission/respond", answer.clone()).await, json!({ "ok": true }));
        client.reply(asked).await.unwrap();
        let late = client.refused("permission/respond", answer).await;
        assert!(late.code == -32000 && late.message.contains("already answered"), "{late:?}");
        client.take_updates();
        client.message(&session, "again").await;
        assert_eq!(of(&client.take_updates(), "permission_request").len(), 0);
        let made = std::fs::read_to_string(server.workspace().join("made")).unwrap();
        assert_eq!(made, "x\nx\n");
    })
    .await;
}

/// G11: the answers for good bind to exactly the tool and its arguments.
#[tokio::test]
async fn always_and_never_are_about_the_same_tool_with_the_same_arguments() {
    let write = |text: &str| {
        let arguments = json!({ "path": "a", "text": text });
        testkit::call("write", arguments.to_string())
    };
    let calls = [
        (shell("git branch x"), Some("always")),
        (shell("git  branch x"), None),
        (shell("git branch y"), Some("never")),
        (shell("git branch y"), None),
        (write("one"), Some("always")),
        (write("one"), None),
        (write("two"), Some("deny")),
    ];
    let replies = calls.clone().into_iter().flat_map(|(call, _)| [vec![call], vec![]]);
    let script = Script::new(replies.collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("permissions.toml");
    let paths = guard::RulePaths { user: file.clone(), ..guard::RulePaths::default() };
    let setup = Setup { permissions: Arc::new(guard::Rulebook::new(paths)), ..Setup::script(&script) };
    run(setup, async |server| {
        let (mut client, session) = opened(server).await;
        client.call("session/setApproval", json!({ "sessionId": session, "approval": "suggest" })).await;
        for (call, decision) in calls {
            client.take_updates();
            let asked =
                client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
            if let Some(decision) = decision {
                let ask = client.next_of("permission_request").await;
                let answer = json!({ "sessionId": session, "id": ask["id"], "decision": decision });
                client.call("permission/respond", answer).await;
            }
            client.reply(asked).await.unwrap();
            let left = client.take_updates();
            assert!(of(&left, "permission_request").is_empty(), "{call:?}");
        }
    })
    .await;
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(r#"deny = ["shell(git branch y)"]"#), "{text}");
    assert!(text.contains("shell(git branch x)") && text.contains("write(./a={"), "{text}");
}

/// The agent that there is points at what it changed, at the hit that it reads, at what failed and at what it names.
#[tokio::test]
async fn the_agent_points_at_places_and_a_history_does_not() {
    let write = |text: &str| vec![call("write", json!({ "path": "src/a.txt", "text": text }).to_string())];
    let script = Script::new([
        write("one\ntwo\n"),
        write("one\nTWO\n"),
        vec![call("search", r#"{"text":"TWO"}"#)],
        // Right after the change of the same line, so it is not shown again.
        vec![call("read", r#"{"path":"src/a.txt"}"#)],
        vec![call("search", r#"{"text":"beta"}"#)],
        vec![call("read", r#"{"path":"b.txt"}"#)],
        vec![shell("echo 'b.txt:1: fine'; echo 'error: src/a.txt:1:7: no'; exit 1")],
        vec![shell("echo src/a.txt:2")],
        vec![say("Look at `b.txt:1`.")],
    ]);
    run(Setup::script(&script).on_disk(), async |server| {
        testkit::server::write(server.workspace().join("b.txt"), "alpha\nbeta\n");
        let (mut client, session) = opened(server).await;
        client.call("session/setApproval", json!({ "sessionId": session, "approval": "full" })).await;
        client.message(&session, "go").await;
        let updates = client.take_updates();
        let shown: Vec<String> = of(&updates, "file_open")
            .into_iter()
            .map(|shown| {
                let path = shown["path"].as_str().unwrap();
                let path = path.rsplit_once('/').unwrap().1;
                format!("{path}:{}", shown["line"])
            })
            .collect();
        assert_eq!(shown, ["a.txt:1", "a.txt:2", "b.txt:2", "a.txt:1", "b.txt:1"]);
        let ends = of(&updates, "tool_call_end");
        assert_eq!(ends[0]["result"], "created src/a.txt (2 lines)", "a text, and not the JSON of one");
        client.call("session/load", json!({ "sessionId": session })).await;
        assert!(of(&client.take_updates(), "file_open").is_empty(), "nobody's editor jumps about");
    })
    .await;
}

#[tokio::test]
async fn never_is_remembered_and_a_strange_answer_leaves_the_question_open() {
    let touch = || vec![shell("echo x >> made")];
    let script = Script::new([touch(), vec![], touch(), vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let asked = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        client.next_of("permission_request").await;
        let answer = |decision: &str| json!({ "sessionId": session, "id": "perm-1", "decision": decision });
        assert_eq!(client.refused("permission/respond", answer("sure")).await.code, -32602);
        // A stray response answers nothing either.
        client.write(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })).await;
        client.call("permission/respond", answer("never")).await;
        client.reply(asked).await.unwrap();
        client.message(&session, "again").await;
        assert_eq!(client.kinds().iter().filter(|kind| **kind == "permission_request").count(), 1);
        assert!(!server.workspace().join("made").exists());
    })
    .await;
}

/// E17 with several clients: the first answer wins, the other sees the question withdrawn.
#[tokio::test]
async fn a_question_that_another_client_answered_is_withdrawn() {
    let script = Script::new([vec![shell("echo x >> made")], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut first, session) = opened(server).await;
        let mut second = server.client().await;
        second.load(&session).await;
        let asked = first.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        let ask = second.next_ask().await;
        first.next_of("permission_request").await;
        second.answer(&ask, "reject_once").await;
        let resolved = first.next_of("permission_resolved").await;
        assert_eq!((&resolved["id"], &resolved["decision"]), (&json!("perm-1"), &json!("deny")));
        first.reply(asked).await.unwrap();
        let late = json!({ "sessionId": session, "id": "perm-1", "decision": "allow" });
        assert_eq!(first.refused("permission/respond", late).await.code, -32000);
        assert!(!server.workspace().join("made").exists());
    })
    .await;
}

/// E18, E21: from a real write and a real refusal.
#[tokio::test]
async fn an_edit_carries_a_diff_and_a_refused_write_is_told_as_a_violation() {
    let script = Script::new([
        vec![call("edit", r#"{"path":"a.txt","old":"two","new":"2"}"#)],
        vec![call("write", r#"{"path":"/etc/ropewalk-test","text":"x"}"#)],
        vec![],
    ]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let file = server.workspace().join("a.txt");
        testkit::server::write(&file, "one\ntwo\nthree\n");
        client.message(&session, "go").await;
        let updates = client.take_updates();
        let edit = of(&updates, "file_edit")[0];
        assert_eq!(edit["path"], file.to_str().unwrap());
        let diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
        assert_eq!(edit["diff"], diff);
        let violation = of(&updates, "sandbox_violation")[0];
        assert_eq!((&violation["tool"], &violation["path"]), (&json!("Write"), &json!("/etc/ropewalk-test")));
        assert!(violation["mode"].is_string());
    })
    .await;
}

/// E22, E23.
#[tokio::test]
async fn what_the_agent_points_at_and_warns_of_has_its_own_kinds() {
    let turns = Turns::new(|_, context| async move {
        let location = Location { path: "/a.rs".into(), line: Some(12) };
        context.emit(Body::FileShown { location }).await.unwrap();
        context.emit(Body::Notice { level: NoticeLevel::Warning, text: "low".into() }).await.unwrap();
        let change = FileChange { path: "/new".into(), before: None, after: Some("x".into()) };
        context.emit(Body::FileEdited { call: None, change }).await.unwrap();
        Ok(Stop::EndTurn)
    });
    run(Setup::new(turns), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "go").await;
        let open = client.next_of("file_open").await;
        assert_eq!((&open["path"], &open["line"]), (&json!("/a.rs"), &json!(12)));
        let notice = client.next_of("notice").await;
        assert_eq!((&notice["level"], &notice["text"]), (&json!("warning"), &json!("low")));
        assert!(client.next_of("file_edit").await["diff"].as_str().unwrap().starts_with("--- /dev/null\n"));
    })
    .await;
}

/// E19, H2, H4, H14: on every surface, and in force for the next call.
#[tokio::test]
async fn settings_change_live_and_everybody_hears_of_it() {
    let script = Script::new([vec![call("write", r#"{"path":"a","text":"x"}"#)], vec![], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut other = server.older_client(Ferret).await;
        other.call("session/load", json!({ "sessionId": session })).await;
        let set = |name: &str, value: &str| json!({ "sessionId": session, name: value });
        let answer = client.call("session/setApproval", set("approval", "read-only")).await;
        assert_eq!(answer, json!({ "sessionId": session, "approval": "read-only" }));
        for surface in [&mut client, &mut other] {
            let changed = surface.next_of("approval_changed").await;
            assert_eq!((&changed["old"], &changed["new"]), (&json!("auto"), &json!("read-only")));
        }
        client.message(&session, "write it").await;
        assert_eq!(of(&client.take_updates(), "sandbox_violation").len(), 1);
        assert!(!server.workspace().join("a").exists());
        let answer = client.call("session/setMode", set("mode", "plan")).await;
        assert_eq!(answer["mode"], "plan", "by the name that was sent");
        assert_eq!(other.next_of("mode_changed").await["new"], "plan", "in the words of the dialect");
        client.call("session/setModel", set("model", "script:two")).await;
        assert_eq!(other.next_of("model_changed").await["old"], "script:one");
        client.message(&session, "go").await;
        assert_eq!(script.requests().last().unwrap().model.as_ref(), "script:two");
        assert_eq!(client.refused("session/setModel", set("model", "nobody's")).await.code, -32602);
        assert_eq!(client.refused("session/setMode", set("mode", "fly")).await.code, -32602);
    })
    .await;
}

/// H13, H15.
#[tokio::test]
async fn the_sandbox_is_told_and_never_changed_and_no_bridge_is_there() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        let named = json!({ "sessionId": session });
        assert_eq!(client.call("session/setSandbox", named.clone()).await["sandbox"], "workspace-write");
        let wider = json!({ "sessionId": session, "mode": "off" });
        let refused = client.refused("session/setSandbox", wider).await;
        assert!(refused.message.contains("restart required"), "{refused:?}");
        assert_eq!(client.call("session/setSandbox", named.clone()).await["sandbox"], "workspace-write");
        let bridge = client.call("session/bridgeStatus", named).await;
        assert_eq!(bridge, json!({ "connected": false, "status": "disconnected" }));
    })
    .await;
}

/// I1, I4 and a session that is still good afterwards.
#[tokio::test]
async fn a_cancel_by_request_or_notification_ends_the_turn_with_what_was_said() {
    let hang = || vec![say("half"), Line::Hang];
    let script = Script::new([hang(), hang(), vec![say("whole")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let named = json!({ "sessionId": session });
        for by_request in [true, false] {
            let asked = client.send("session/message", json!({ "sessionId": session, "text": "go" })).await;
            client.next_of("agent_message_chunk").await;
            if by_request {
                let cancelled = client.call("session/cancel", named.clone()).await;
                assert_eq!(cancelled, json!({ "sessionId": session, "cancelled": true }));
            } else {
                client.notify("session/cancel", named.clone()).await;
            }
            let answer = client.reply(asked).await.unwrap();
            assert_eq!((&answer["stopReason"], &answer["output"]), (&json!("cancelled"), &json!("half")));
            assert_eq!(client.next_of("turn_end").await["stop_reason"], "cancelled");
        }
        assert_eq!(client.message(&session, "go on").await["output"], "whole");
        let idle = client.call("session/cancel", named).await;
        assert_eq!(idle, json!({ "sessionId": session, "cancelled": false }));
    })
    .await;
}

/// C22.
#[tokio::test]
async fn a_second_message_waits_behind_the_first_and_both_are_answered() {
    let script = Script::new([vec![say("first")], vec![say("second")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let message = |text: &str| json!({ "sessionId": session, "message": text });
        let one = client.send("session/message", message("one")).await;
        let two = client.send("session/message", message("two")).await;
        assert_eq!(client.reply(one).await.unwrap()["output"], "first");
        assert_eq!(client.reply(two).await.unwrap()["output"], "second");
    })
    .await;
}

/// A15, A11, A13 as ferret has them.
#[tokio::test]
async fn what_goes_wrong_is_said_with_its_code() {
    let script = Script::new([vec![fail("no model")], vec![say("fine")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let message = json!({ "sessionId": session, "message": "go" });
        let failed = client.refused("session/message", message).await;
        assert_eq!(failed.code, -32000);
        assert_eq!((&failed.data["stack"], failed.data["message"].is_string()), (&json!(""), true));
        assert_eq!(client.next_of("turn_end").await["stop_reason"], "error");
        assert_eq!(client.message(&session, "again").await["output"], "fine");
        assert_eq!(client.refused("no/such", json!({})).await.code, -32601);
        assert_eq!(client.refused("session/message", json!({ "message": "x" })).await.code, -32602);
        assert_eq!(client.refused("session/load", json!({ "sessionId": "nobody" })).await.code, -32602);
        assert_eq!(client.refused("session/new", json!({ "cwd": "here" })).await.code, -32602);
    })
    .await;
}

/// C3 in ferret's kinds: history first, then the answer, then what happens.
#[tokio::test]
async fn a_load_tells_the_history_in_order_before_its_answer_also_after_a_restart() {
    let script = Script::new([vec![say("hello")], vec![say("more")]]);
    run(Setup::script(&script).on_disk(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "hi").await;
        drop(client);
        server.restart().await;
        let mut client = server.older_client(Ferret).await;
        let loaded = client.call("session/load", json!({ "session_id": session })).await;
        assert_eq!((&loaded["sessionId"], &loaded["approval"]), (&json!(session), &json!("auto")));
        let kinds: Vec<_> = client.kinds().into_iter().map(str::to_owned).collect();
        let wanted = ["reply", "user_message", "agent_message_chunk"];
        assert_eq!(kinds[..3], wanted);
        assert_eq!(kinds.last().unwrap(), "reply");
        let history = client.take_updates();
        assert_eq!(of(&history, "user_message")[0]["text"], "hi");
        assert_eq!(of(&history, "agent_message_chunk")[0]["text"], "hello");
        assert_eq!(of(&history, "turn_end").len(), 1);
        assert_eq!(client.message(&session, "more?").await["output"], "more");
    })
    .await;
}

/// D14: what others type is seen.
#[tokio::test]
async fn what_another_client_typed_is_told_with_its_name() {
    let turns = Turns::new(|_, _| async { Err::<Stop, _>(TurnError("not today".into())) });
    run(Setup::new(turns), async |server| {
        let (mut client, session) = opened(server).await;
        let mut other = server.connect_older(Ferret);
        other.call("initialize", json!({ "clientInfo": { "name": "phone" } })).await;
        other.call("session/load", json!({ "sessionId": session })).await;
        let message = json!({ "sessionId": session, "message": "hi" });
        assert_eq!(other.refused("session/message", message).await.code, -32000);
        let seen = client.next_of("user_message").await;
        assert_eq!((&seen["text"], &seen["from"]), (&json!("hi"), &json!("phone")));
        assert_eq!(of(&other.take_updates(), "user_message").len(), 0);
    })
    .await;
}
