//! What a client is shown of a turn while it runs, and in which order.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Stop, Usage};
use serde_json::{Value, json};
use testkit::server::{Client, Server, Setup, run, run_with_session, write};
use testkit::{Line, Script, Turns};
use tokio::sync::Semaphore;

/// Runs a test with one client that has a session, both shown nothing so far.
async fn check(setup: Setup, test: impl AsyncFnOnce(&mut Server, Client, String)) {
    run_with_session(setup, async |server, mut client, session| {
        client.catch_up(&session).await;
        client.forget_updates();
        test(server, client, session).await;
    })
    .await;
}

fn script(replies: impl IntoIterator<Item = Vec<Line>>) -> Setup {
    Setup::script(&Script::new(replies))
}

/// E1: the second piece is not even made before the first was seen.
#[tokio::test]
async fn text_is_seen_piece_by_piece_while_it_is_made() {
    let gate = Arc::new(Semaphore::new(0));
    let go = Arc::clone(&gate);
    let slow = Turns::new(move |_, context| {
        let gate = Arc::clone(&gate);
        async move {
            for piece in ["one ", "two ", "three"] {
                context.text(context.message(0), piece).await.unwrap();
                gate.acquire().await.unwrap().forget();
            }
            Ok(Stop::EndTurn)
        }
    });
    check(Setup::new(slow), async |_, mut client, session| {
        let turn = client.send_prompt(&session, "go").await;
        let mut ids = BTreeSet::new();
        for piece in ["one ", "two ", "three"] {
            let update = client.next_update_of("agent_message_chunk").await;
            assert_eq!(update["content"], json!({ "type": "text", "text": piece }));
            ids.insert(update["messageId"].to_string());
            go.add_permits(1);
        }
        assert_eq!((client.stop_reason(turn).await.as_str(), ids.len()), ("end_turn", 1));
    })
    .await;
}

/// E2.
#[tokio::test]
async fn thoughts_are_shown_as_thoughts() {
    let setup = script([vec![testkit::think("let me "), testkit::think("see"), testkit::say("yes")]]);
    check(setup, async |_, mut client, session| {
        client.prompt(&session, "think").await;
        assert_eq!(client.story().texts("agent_thought_chunk"), ["let me see"]);
        assert_eq!(client.said(), "yes");
    })
    .await;
}

/// E3.
#[tokio::test]
async fn a_plan_is_shown_in_each_of_its_states() {
    check(Setup::offline(), async |_, mut client, session| {
        client.prompt(&session, "plan").await;
        let states: Vec<String> = client
            .updates_of("plan")
            .iter()
            .map(|plan| {
                let entries = plan["entries"].as_array().unwrap().iter();
                entries.map(|entry| entry["status"].as_str().unwrap().chars().next().unwrap()).collect()
            })
            .collect();
        assert_eq!(states, ["ppp", "ipp", "cip", "cci", "ccc"]);
    })
    .await;
}

/// E4, FF12.
#[tokio::test]
async fn commands_are_announced_once_the_session_has_a_name() {
    check(Setup::offline(), async |server, mut client, session| {
        let mut params = client.open_params(&session);
        for method in ["session/new", "session/load", "session/fork", "session/resume"] {
            let before = client.frames().len();
            let opened = client.call(method, params.clone()).await;
            let id = opened["sessionId"].as_str().unwrap_or(&session).to_owned();
            client.catch_up(&id).await;
            let kinds = &client.kinds()[before..];
            // Who loads knows the session's name already, and everything comes before the answer.
            let expected = match method {
                "session/load" => ["available_commands_update", "reply", "reply"],
                _ => ["reply", "available_commands_update", "reply"],
            };
            assert_eq!(kinds, expected, "{method}");
            let commands = client.updates_of("available_commands_update");
            let names = commands.last().unwrap()["availableCommands"].as_array().unwrap().iter();
            assert!(names.map(|command| &command["name"]).eq([
                "help",
                "model",
                "mode",
                "approval",
                "sandbox",
                "status",
                "cost",
                "clear",
                "compact",
                "review",
                "undo",
                "redo",
                "revert",
                "keep",
                "init",
                "permissions",
                "diff",
                "rename",
                "agent",
                "plan",
                "exec",
                "yolo",
                "max-cost",
                "force-send",
                "tools",
                "mcp",
                "config",
                "doctor",
                "audit",
                "share",
                "bridge",
            ]));
            params["cwd"] = json!(server.workspace());
        }
    })
    .await;
}

/// E5.
#[tokio::test]
async fn a_mode_change_is_seen_by_every_client() {
    check(Setup::offline(), async |server, mut client, session| {
        let mut other = server.client().await;
        other.load(&session).await;
        let before = client.frames().len();
        assert_eq!(
            client.call("session/set_mode", json!({ "sessionId": session, "modeId": "ask" })).await,
            json!({})
        );
        assert_eq!(client.kinds()[before..], ["current_mode_update", "config_option_update", "reply"]);
        assert_eq!(other.next_update_of("current_mode_update").await["currentModeId"], "ask");
        client.prompt(&session, "/mode architect").await;
        assert_eq!(other.next_update_of("current_mode_update").await["currentModeId"], "architect");
    })
    .await;
}

/// E6, with the complete list as the official protocol wants.
#[tokio::test]
async fn a_changed_option_is_announced_with_the_complete_list() {
    check(Setup::offline(), async |server, mut client, session| {
        let mut other = server.client().await;
        other.load(&session).await;
        let change = json!({ "sessionId": session, "configId": "model", "value": "offline:terse" });
        let answer = client.call("session/set_config_option", change).await;
        let values = |options: &Value| -> Vec<String> {
            let options = options["configOptions"].as_array().unwrap().iter();
            options.map(|option| option["currentValue"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(values(&answer), ["code", "offline:terse", "off", "default", "auto"]);
        for client in [&mut client, &mut other] {
            assert_eq!(values(&client.next_update_of("config_option_update").await), values(&answer));
        }
    })
    .await;
}

/// E7.
#[tokio::test]
async fn the_title_and_the_current_model_are_announced() {
    check(Setup::offline(), async |_, mut client, session| {
        client.prompt(&session, "hello there").await;
        assert_eq!(client.next_update_of("session_info_update").await["title"], "hello there");
        client.prompt(&session, "/model terse").await;
        let info = client.next_update_of("session_info_update").await;
        assert_eq!(info["_meta"]["currentModel"], "offline:terse");
        assert_eq!(info.get("title"), None);
    })
    .await;
}

fn usage(input: u64, output: u64, cost_usd: f64) -> Usage {
    Usage {
        context_used: input + output,
        context_size: 1000,
        input,
        output,
        cache_read: 3,
        cost_usd,
        ..Usage::default()
    }
}

/// E8.
#[tokio::test]
async fn usage_is_told_after_each_model_call_in_the_answer_and_on_close() {
    let setup = script([
        vec![testkit::call("list", "{}"), Line::Usage(usage(100, 10, 0.5))],
        vec![testkit::say("done"), Line::Usage(usage(200, 20, 0.25))],
        vec![testkit::say("more"), Line::Usage(usage(300, 30, 1.0))],
    ]);
    check(setup, async |server, mut client, session| {
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
        let answer = client.call("session/prompt", prompt.clone()).await;
        let tokens =
            json!({ "totalTokens": 330, "inputTokens": 300, "outputTokens": 30, "cachedReadTokens": 6 });
        assert_eq!(answer["usage"], tokens);
        client.call("session/prompt", prompt).await;
        let mut late = server.client().await;
        late.load(&session).await;
        late.catch_up(&session).await;
        client.call("session/close", json!({ "sessionId": session })).await;
        let told = |client: &Client| -> Vec<(Value, Value, Value)> {
            let updates = client.updates_of("usage_update").into_iter();
            updates
                .map(|usage| (usage["used"].clone(), usage["size"].clone(), usage["cost"]["amount"].clone()))
                .collect()
        };
        let line = |used: u64, cost: f64| (json!(used), json!(1000), json!(cost));
        assert_eq!(told(&client), [line(110, 0.5), line(220, 0.75), line(330, 1.75), line(330, 1.75)]);
        assert_eq!(told(&late), [line(330, 1.75)]);
    })
    .await;
}

/// E9.
#[tokio::test]
async fn a_tool_call_is_shown_before_it_has_any_effect() {
    let setup = script([vec![testkit::call("shell", r#"{"command":"echo x > made"}"#)]]);
    check(setup, async |server, mut client, session| {
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        let call = client.updates_of("tool_call")[0].clone();
        assert_eq!(call["status"], "in_progress");
        assert_eq!((&call["title"], &call["kind"]), (&json!("echo x > made"), &json!("execute")));
        assert_eq!(call["rawInput"], json!({ "command": "echo x > made" }));
        assert!(!server.workspace().join("made").exists());
        client.answer(&ask, "allow_once").await;
        client.stop_reason(turn).await;
        assert!(server.workspace().join("made").exists());
    })
    .await;
}

/// E9: the title is cut at 120 characters, a file's call says where.
#[tokio::test]
async fn a_tool_call_has_a_short_title_and_a_place() {
    let long: &'static str = Box::leak(format!(r#"{{"path":"{}"}}"#, "x".repeat(200)).into_boxed_str());
    let setup = script([vec![testkit::call("read", r#"{"path":"a.txt"}"#), testkit::call("read", long)]]);
    check(setup, async |server, mut client, session| {
        write(server.workspace().join("a.txt"), "a\n");
        client.prompt(&session, "go").await;
        let calls = client.updates_of("tool_call");
        assert_eq!(calls[0]["locations"][0]["path"], json!(server.workspace().join("a.txt")));
        assert_eq!(calls[0]["kind"], "read");
        assert!(calls.iter().all(|call| call["title"].as_str().unwrap().chars().count() <= 120));
        assert_eq!(calls[1]["title"].as_str().unwrap().chars().count(), 120);
    })
    .await;
}

/// E10.
#[tokio::test]
async fn a_tool_call_ends_completed_or_failed_with_what_came_of_it() {
    let setup = script([vec![
        testkit::call("write", r#"{"path":"a.txt","text":"new\n"}"#),
        testkit::call("shell", r#"{"command":"echo out; exit 3"}"#),
        testkit::call("read", r#"{"path":"none"}"#),
        testkit::call("nothing", "{}"),
    ]]);
    check(setup, async |server, mut client, session| {
        client.answer_all("allow_once");
        client.prompt(&session, "go").await;
        let story = client.story();
        let calls: Vec<_> = story.order.iter().filter_map(|id| story.calls.get(id)).collect();
        assert!(
            calls.iter().map(|call| &call["status"]).eq(["completed", "failed", "failed", "failed"]),
            "{calls:?}"
        );
        let file = json!(server.workspace().join("a.txt"));
        let diff = &calls[0]["content"][0];
        assert_eq!(
            (&diff["type"], &diff["path"], &diff["newText"]),
            (&json!("diff"), &file, &json!("new\n"))
        );
        assert_eq!(calls[0]["locations"][0]["path"], file);
        assert_eq!(calls[1]["content"][0]["content"]["text"], "```console\nout\n```");
        assert_eq!(calls[1]["_meta"]["exitCode"], 3);
    })
    .await;
}

/// E32: what a command writes comes while it runs, for as long as the test holds it there, and its exit
/// code is its own.
#[tokio::test]
async fn a_client_with_a_terminal_is_shown_the_output_live_and_the_exit_as_it_was() {
    let line = "echo one; while [ ! -e go ]; do :; done; echo two >&2; exit 3";
    let setup = script([vec![testkit::call("shell", json!({ "command": line }).to_string())]]);
    run(setup, async |server| {
        let mut client = server.connect();
        let abilities = json!({ "_meta": { "terminal_output": true } });
        client.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": abilities })).await;
        let session = client.new_session().await;
        client.answer_all("allow_once");
        let turn = client.send_prompt(&session, "go").await;
        let call = client.next_update_of("tool_call").await;
        let terminal = call["_meta"]["terminal_info"]["terminal_id"].clone();
        assert_eq!(terminal, call["toolCallId"]);
        assert_eq!(call["_meta"]["terminal_info"]["cwd"], json!(server.workspace()));
        let embedded = json!([{ "type": "terminal", "terminalId": terminal }]);
        assert_eq!(call["content"], embedded);
        let mut shown = String::new();
        let mut exit = Value::Null;
        while exit.is_null() {
            let update = client.next_update_of("tool_call_update").await;
            let output = &update["_meta"]["terminal_output"];
            if let Some(data) = output["data"].as_str() {
                assert_eq!(output["terminal_id"], terminal);
                shown.push_str(data);
            }
            if shown == "one\n" {
                write(server.workspace().join("go"), "");
            }
            if let Some(content) = update.get("content") {
                assert_eq!(content, &embedded, "whatever comes later keeps the terminal");
            }
            exit = update["_meta"]["terminal_exit"].clone();
        }
        assert_eq!(shown, "one\ntwo\n");
        assert_eq!(exit, json!({ "terminal_id": terminal, "exit_code": 3, "signal": null }));
        client.stop_reason(turn).await;
    })
    .await;
}

/// E11.
#[tokio::test]
async fn one_id_ties_what_is_said_of_one_call_together() {
    let reads = vec![testkit::call("list", "{}"); 3];
    let setup = script([reads.clone(), reads]);
    check(setup, async |_, mut client, session| {
        client.prompt(&session, "go").await;
        let id = |update: &&Value| update["toolCallId"].as_str().unwrap().to_owned();
        let started: BTreeSet<_> = client.updates_of("tool_call").iter().map(id).collect();
        let ended: BTreeSet<_> = client.updates_of("tool_call_update").iter().map(id).collect();
        assert_eq!(started.len(), 6);
        assert_eq!(started, ended);
        assert!(started.iter().all(|id| id.len() == 36), "{started:?}");
    })
    .await;
}

/// The answer to a prompt is the last word of its turn.
#[tokio::test]
async fn nothing_of_a_turn_comes_after_its_answer() {
    check(Setup::offline(), async |_, mut client, session| {
        for text in ["hello", "stream 2000 10", "list", "think"] {
            client.prompt(&session, text).await;
            let before = client.frames().len();
            client.catch_up(&session).await;
            assert_eq!(client.kinds()[before..], ["reply"], "{text}");
        }
    })
    .await;
}
