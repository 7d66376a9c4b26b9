//! The extension methods for the administration of sessions.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::{Principal, Stop};
use expect_test::expect;
use serde_json::{Value, json};
use service::ServiceRules;
use testkit::server::{Client, Server, Setup, run, run_with_session, write};
use testkit::{Line, Script, Turns};

/// Runs a test with one client whose session has had a turn.
async fn check(setup: Setup, test: impl AsyncFnOnce(&mut Server, Client, String)) {
    run_with_session(setup, async |server, mut client, session| {
        client.prompt(&session, "hello").await;
        test(server, client, session).await;
    })
    .await;
}

fn of(session: &str) -> Value {
    json!({ "session_id": session })
}

fn event_types(answer: &Value) -> Vec<&str> {
    answer["events"].as_array().unwrap().iter().map(|event| event["event_type"].as_str().unwrap()).collect()
}

fn event(text: &str) -> Value {
    json!({ "event_type": "text", "payload": { "message": 1, "text": text } })
}

/// Y1.
#[tokio::test]
async fn all_sessions_are_listed_with_whether_they_are_busy() {
    let script = Script::new([vec![], vec![Line::Hang]]);
    check(Setup::script(&script), async |_, mut client, session| {
        let listed = client.call("_session/list", json!({})).await;
        let entry = &listed["sessions"][0];
        assert_eq!((&entry["session_id"], &entry["busy"]), (&json!(session), &json!(false)));
        assert_eq!(entry["created_at"], "2023-11-14T22:13:20.000Z");
        let turn = client.send_prompt(&session, "go").await;
        client.catch_up(&session).await;
        assert_eq!(client.call("_session/list", json!({})).await["sessions"][0]["busy"], true);
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        client.stop_reason(turn).await;
    })
    .await;
}

/// Y2.
#[tokio::test]
async fn a_session_is_shown_with_its_events() {
    let script = Script::new([vec![testkit::say("hi")]]);
    check(Setup::script(&script).on_disk(), async |_, mut client, session| {
        let got = client.call("_session/get", of(&session)).await;
        assert_eq!((&got["session_id"], &got["busy"]), (&json!(session), &json!(false)));
        assert!(got["created_at"].is_string());
        expect!["turn_started user_message text usage title turn_ended"]
            .assert_eq(&event_types(&got).join(" "));
        let said = got["events"].as_array().unwrap().iter().find(|event| event["event_type"] == "text");
        assert_eq!(said.unwrap()["payload"]["text"], "hi");
    })
    .await;
}

/// Y3.
#[tokio::test]
async fn a_session_is_deleted_and_the_answer_says_whether_it_was_there() {
    check(Setup::offline().on_disk(), async |_, mut client, session| {
        assert_eq!(client.call("_session/delete", of(&session)).await, json!({ "deleted": true }));
        assert_eq!(client.call("_session/delete", of(&session)).await, json!({ "deleted": false }));
        let params = client.open_params(&session);
        assert_eq!(client.refused("session/load", params).await.code, -32002);
    })
    .await;
}

/// Y4.
#[tokio::test]
async fn an_export_has_every_event() {
    check(Setup::offline().on_disk(), async |_, mut client, session| {
        let exported = client.call("_session/export", of(&session)).await;
        let got = client.call("_session/get", of(&session)).await;
        assert_eq!(exported["session_id"], session);
        assert!(exported["exported_at"].as_str().unwrap().starts_with("2023-11-14T22:13:2"));
        assert_eq!(exported["events"], got["events"]);
        assert!(!exported["events"].as_array().unwrap().is_empty());
    })
    .await;
}

/// Y5, at the limit and one past it.
#[tokio::test]
async fn an_import_makes_a_new_session_of_at_most_ten_thousand_events() {
    check(Setup::offline(), async |_, mut client, session| {
        let events = vec![event("x"); 10_001];
        let refused = client.refused("_session/import", json!({ "events": events })).await;
        assert_eq!(refused.code, -32600, "{refused:?}");
        let imported = client.call("_session/import", json!({ "events": events[1..] })).await;
        let id = imported["session_id"].as_str().unwrap().to_owned();
        assert!(id.len() == 36 && id != session);
        client.forget_updates();
        client.load(&id).await;
        assert_eq!(client.said().len(), 10_000);
        for bad in [json!([1]), json!([{}]), json!([{ "event_type": "nonsense", "payload": {} }]), json!("x")]
        {
            assert_eq!(
                client.refused("_session/import", json!({ "events": bad })).await.code,
                -32602,
                "{bad}"
            );
        }
    })
    .await;
}

/// Y6, T7.
#[tokio::test]
async fn an_import_of_an_export_has_the_same_history() {
    let script = Script::new([
        vec![testkit::think("hm"), testkit::say("ok"), testkit::call("write", r#"{"path":"a","text":"x"}"#)],
        vec![testkit::call("shell", r#"{"command":"echo y"}"#)],
        vec![testkit::say("done")],
    ]);
    run(Setup::script(&script).on_disk(), async |server| {
        let mut client = server.client().await;
        client.answer_all("allow_once");
        let session = client.new_session().await;
        client.prompt(&session, "go").await;
        client.hang_up().await;
        let mut client = server.client().await;
        client.load(&session).await;
        let exported = client.call("_session/export", of(&session)).await;
        let imported = client.call("_session/import", json!({ "events": exported["events"] })).await;
        let copy = imported["session_id"].as_str().unwrap().to_owned();
        server.restart().await;
        let mut reader = server.client().await;
        reader.load(&copy).await;
        assert_eq!(reader.story(), client.story());
        assert_eq!(reader.story().texts("user_message_chunk"), ["go"]);
        let again = reader.call("_session/export", of(&copy)).await;
        assert_eq!(event_types(&again)[..event_types(&exported).len()], event_types(&exported));
        script.then(vec![testkit::say("I remember")]);
        reader.prompt(&copy, "go on").await;
        let told = format!("{:?}", script.requests().pop().unwrap().messages);
        assert!(told.contains("done") && told.contains("echo y"), "{told}");
    })
    .await;
}

/// Y7.
#[tokio::test]
async fn the_tools_are_those_that_the_model_has() {
    let script = Script::new([]);
    check(Setup::script(&script), async |_, mut client, session| {
        let answer = client.call("_agent/tools", of(&session)).await;
        let listed = answer["tools"].as_array().unwrap().iter();
        let listed: Vec<_> = listed
            .map(|tool| (tool["name"].as_str().unwrap(), tool["description"].as_str().unwrap()))
            .collect();
        let given = &script.requests()[0].tools;
        assert!(listed.into_iter().eq(given.iter().map(|tool| (&*tool.name, &*tool.description))));
        assert_eq!(given.len(), 14);
    })
    .await;
}

/// Y8.
#[tokio::test]
async fn a_session_moves_within_its_folders_and_its_tools_with_it() {
    let extra = tempfile::tempdir().unwrap();
    let script = Script::new([vec![], vec![testkit::call("shell", r#"{"command":"pwd"}"#)]]);
    let rules = ServiceRules { allowed_dirs: Some(vec![extra.path().to_owned()]), ..ServiceRules::default() };
    check(Setup { rules, ..Setup::script(&script) }, async |server, mut client, session| {
        client.answer_all("allow_once");
        let inside = server.workspace().join("deep/er");
        std::fs::create_dir_all(&inside).unwrap();
        write(server.workspace().join("file"), "");
        std::os::unix::fs::symlink("/", server.workspace().join("link")).unwrap();
        let to = |path: &str| json!({ "session_id": session, "path": path });
        for (bad, code) in [
            ("..", -32600),
            ("deep/../..", -32600),
            ("/", -32602),
            ("link", -32602),
            ("file", -32602),
            ("none", -32602),
        ] {
            assert_eq!(client.refused("_agent/working_dir/update", to(bad)).await.code, code, "{bad}");
        }
        let moved = client.call("_agent/working_dir/update", to("deep/er")).await;
        assert_eq!(moved["working_dir"], json!(inside));
        client.prompt(&session, "where?").await;
        let call = client.story().calls.into_values().next().unwrap();
        assert_eq!(call["content"][0]["content"]["text"], format!("```console\n{}\n```", inside.display()));
        let extra = extra.path().canonicalize().unwrap();
        let moved = client.call("_agent/working_dir/update", to(&extra.to_string_lossy())).await;
        assert_eq!(moved["working_dir"], json!(extra));
        // Back to where it was opened, and from there by a short way.
        let home = server.workspace().to_string_lossy().into_owned();
        assert_eq!(client.call("_agent/working_dir/update", to(&home)).await["working_dir"], home);
        let again = client.call("_agent/working_dir/update", to("deep/er")).await;
        assert_eq!(again["working_dir"], json!(inside));
        assert_eq!(client.refused("_agent/working_dir/update", to("/")).await.code, -32602);
    })
    .await;
}

const METHODS: [&str; 5] =
    ["_session/get", "_session/delete", "_session/export", "_agent/tools", "_agent/working_dir/update"];

fn params(session: &str) -> Value {
    json!({ "session_id": session, "path": "." })
}

/// Y9.
#[tokio::test]
async fn extension_methods_check_session_ids_too() {
    check(Setup::offline(), async |_, mut client, _| {
        for method in METHODS {
            for bad in ["", "a/b", "a b", &"x".repeat(129)] {
                assert_eq!(client.refused(method, params(bad)).await.code, -32600, "{method} {bad:?}");
            }
            let longest = "x".repeat(128);
            match method {
                "_session/delete" => drop(client.call(method, params(&longest)).await),
                _ => assert_eq!(client.refused(method, params(&longest)).await.code, -32002, "{method}"),
            }
            match method {
                // Without an id, those of the only session that is open.
                "_agent/tools" => assert!(client.call(method, json!({})).await["tools"].is_array()),
                _ => assert_eq!(client.refused(method, json!({})).await.code, -32602, "{method}"),
            }
        }
    })
    .await;
}

/// Y10, FF6.
#[tokio::test]
async fn nobody_sees_or_touches_a_session_of_somebody_else() {
    check(Setup::offline(), async |server, mut client, session| {
        let mut stranger = server.connect_as(Principal("stranger".into()));
        stranger.initialize().await;
        assert_eq!(stranger.call("_session/list", json!({})).await, json!({ "sessions": [] }));
        assert_eq!(stranger.call("session/list", json!({})).await["sessions"], json!([]));
        for method in METHODS {
            if method == "_session/delete" {
                assert_eq!(stranger.call(method, params(&session)).await, json!({ "deleted": false }));
            } else {
                assert_eq!(stranger.refused(method, params(&session)).await.code, -32002, "{method}");
            }
        }
        for method in ["session/load", "session/resume", "session/fork"] {
            let params = stranger.open_params(&session);
            assert_eq!(stranger.refused(method, params).await.code, -32002, "{method}");
        }
        assert_eq!(stranger.refused("session/close", json!({ "sessionId": session })).await.code, -32002);
        stranger.call("session/delete", json!({ "sessionId": session })).await;
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "hi" }] });
        assert_eq!(stranger.refused("session/prompt", prompt).await.code, -32002);
        assert_eq!(client.prompt(&session, "still there").await, "end_turn");
    })
    .await;
}

/// Y5: numbers that no server would give are refused, not believed.
#[tokio::test]
async fn an_import_with_impossible_numbers_is_refused() {
    check(Setup::offline().on_disk(), async |_, mut client, _| {
        let events = |number: u64| {
            json!({ "events": [{ "event_type": "turn_started", "turn": number, "payload": {} }] })
        };
        for number in [u64::MAX, 1 << 45, (1 << 40) + 1] {
            assert_eq!(client.refused("_session/import", events(number)).await.code, -32602, "{number}");
        }
        let imported = client.call("_session/import", events(1 << 40)).await;
        let id = imported["session_id"].as_str().unwrap().to_owned();
        client.load(&id).await;
        assert_eq!(client.prompt(&id, "hello").await, "end_turn");
    })
    .await;
}

/// What was allowed elsewhere is not allowed here, and the folder is ours.
#[tokio::test]
async fn an_import_cannot_widen_what_is_allowed() {
    check(Setup::offline(), async |_, mut client, _| {
        let grant =
            json!({ "event_type": "setting_changed", "payload": { "id": "approval", "value": "full" } });
        let imported = client.call("_session/import", json!({ "events": [grant, event("hello")] })).await;
        let copy = imported["session_id"].as_str().unwrap().to_owned();
        let loaded = client.load(&copy).await;
        let approval =
            loaded["configOptions"].as_array().unwrap().iter().find(|option| option["id"] == "approval");
        assert_eq!(approval.unwrap()["currentValue"], "auto");
    })
    .await;
}

/// A server that says nothing: what is asked of it is only whether it is there.
fn silent(name: &str) -> Value {
    json!({ "name": name, "command": "/bin/cat", "args": [], "env": [{ "name": "KEY", "value": "hush" }] })
}

fn states(listed: &Value) -> Vec<(&str, &str)> {
    let servers = listed["servers"].as_array().unwrap().iter();
    servers.map(|server| (server["name"].as_str().unwrap(), server["state"].as_str().unwrap())).collect()
}

/// X1, X3.
#[tokio::test]
async fn tool_servers_are_named_listed_added_and_removed() {
    run(Setup::offline(), async |server| {
        let mut client = server.client().await;
        let place = json!({ "cwd": server.workspace(), "mcpServers": [silent("one")] });
        let session = client.call("session/new", place).await["sessionId"].as_str().unwrap().to_owned();
        // The only session of the connection need not be named.
        let listed = client.call("_agent/mcp/list", json!({})).await;
        assert_eq!(states(&listed), [("one", "idle")]);
        assert!(!listed.to_string().contains("hush"), "{listed}");
        let mut two = silent("two");
        two["session_id"] = json!(session);
        assert_eq!(client.call("_agent/mcp/add", two).await, json!({ "added": "two" }));
        assert_eq!(
            states(&client.call("_agent/mcp/list", of(&session)).await),
            [("one", "idle"), ("two", "idle")]
        );
        let removed = client.call("_agent/mcp/remove", json!({ "session_id": session, "id": "one" })).await;
        assert_eq!(removed, json!({ "removed": "one" }));
        let refused = client.refused("_agent/mcp/remove", json!({ "name": "one" })).await;
        assert_eq!(refused.code, -32602);
        // Whoever loads the session adds to what it has.
        let mut load = client.open_params(&session);
        load["mcpServers"] = json!([silent("three")]);
        client.call("session/load", load).await;
        assert_eq!(
            states(&client.call("_agent/mcp/list", json!({})).await),
            [("two", "idle"), ("three", "idle")]
        );
        client.new_session().await;
        assert_eq!(client.refused("_agent/mcp/list", json!({})).await.code, -32602);
    })
    .await;
}

/// X3.
#[tokio::test]
async fn without_an_agent_that_takes_them_tool_servers_are_refused() {
    let without = Turns::new(|_, _| std::future::ready(Ok(Stop::EndTurn)));
    run(Setup::new(without), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        assert_eq!(client.refused("_agent/mcp/list", of(&session)).await.code, -32603);
        assert_eq!(client.refused("_agent/mcp/add", silent("x")).await.code, -32603);
    })
    .await;
}

/// A client that is confined to folders must not start programs.
#[tokio::test]
async fn a_client_with_a_token_of_its_own_may_not_name_tool_servers() {
    run(Setup::offline(), async |server| {
        let mut stranger = server.connect_as(Principal("stranger".into()));
        stranger.initialize().await;
        let place = json!({ "cwd": server.workspace(), "mcpServers": [silent("x")] });
        assert!(
            stranger.refused("session/new", place).await.message.contains("only the owner at the machine")
        );
        stranger.new_session().await;
        assert!(
            stranger
                .refused("_agent/mcp/add", silent("x"))
                .await
                .message
                .contains("only the owner at the machine")
        );
        assert_eq!(states(&stranger.call("_agent/mcp/list", json!({})).await), []);
    })
    .await;
}
