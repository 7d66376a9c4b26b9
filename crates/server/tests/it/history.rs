//! What a session remembers, and what those who come back or come late are told of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use testkit::server::{Client, Server, Setup, run_with_client as check, write};
use testkit::{Line, Script};

/// A server that restarts, and the client that comes back to it.
async fn restarted(server: &mut Server, client: Client) -> Client {
    client.hang_up().await;
    server.restart().await;
    server.client().await
}

fn current(opened: &Value, option: &str) -> Value {
    let options = opened["configOptions"].as_array().unwrap().iter();
    options.clone().find(|known| known["id"] == option).unwrap()["currentValue"].clone()
}

/// C3.
#[tokio::test]
async fn a_load_after_a_restart_tells_everything_in_order_before_it_answers() {
    let script = Script::new([
        vec![
            testkit::think("hm"),
            testkit::say("I "),
            testkit::say("write."),
            testkit::call("write", r#"{"path":"a","text":"x\n"}"#),
        ],
        vec![testkit::say("Done.")],
        vec![testkit::say("Again.")],
    ]);
    check(Setup::script(&script).on_disk(), async |server, mut client| {
        let mut witness = server.client().await;
        let id = client.new_session().await;
        witness.load(&id).await;
        client.prompt(&id, "write it").await;
        client.prompt(&id, "and again").await;
        witness.catch_up(&id).await;
        let told = witness.story();
        assert_eq!(told.texts("user_message_chunk"), ["write it", "and again"]);
        assert_eq!(told.texts("agent_message_chunk"), ["I write.", "Done.", "Again."]);
        assert_eq!(told.texts("agent_thought_chunk"), ["hm"]);
        assert_eq!(told.calls.len(), 1);
        witness.hang_up().await;
        let mut client = restarted(server, client).await;
        client.load(&id).await;
        assert_eq!(client.story(), told);
        let told = client.frames().len();
        client.catch_up(&id).await;
        assert_eq!(client.kinds()[told..], ["reply"]);
        assert_eq!(client.kinds()[told - 3..told], ["available_commands_update", "usage_update", "reply"]);
    })
    .await;
}

/// C5, FF10: the second client joins while the first one's turn is running.
#[tokio::test]
async fn a_second_client_of_a_live_session_gets_its_history_and_then_what_happens() {
    let script = Script::new([
        vec![testkit::say("before")],
        vec![testkit::say("during"), Line::Hang],
        vec![testkit::say("after")],
    ]);
    check(Setup::script(&script), async |server, mut client| {
        let id = client.new_session().await;
        client.prompt(&id, "one").await;
        let turn = client.send_prompt(&id, "two").await;
        let mut second = server.client().await;
        second.load(&id).await;
        while !second.said().contains("during") {
            second.next_update().await;
        }
        client.notify("session/cancel", json!({ "sessionId": id })).await;
        client.stop_reason(turn).await;
        client.prompt(&id, "three").await;
        second.catch_up(&id).await;
        let story = second.story();
        assert_eq!(story.texts("agent_message_chunk"), ["before", "during", "after"]);
        assert_eq!(story.texts("user_message_chunk"), ["one", "two", "three"]);
    })
    .await;
}

/// C9.
#[tokio::test]
async fn a_resume_tells_nothing_and_the_next_prompt_remembers() {
    check(Setup::offline().on_disk(), async |server, mut client| {
        let id = client.new_session().await;
        client.prompt(&id, "remember the sea").await;
        let mut client = restarted(server, client).await;
        for _ in 0..2 {
            let opened =
                client.call("session/resume", json!({ "sessionId": id, "cwd": server.workspace() })).await;
            assert_eq!(opened["modes"]["currentModeId"], "code");
        }
        client.catch_up(&id).await;
        let told: Vec<_> = client.updates().map(|update| update["sessionUpdate"].clone()).collect();
        assert_eq!(told, ["available_commands_update"; 2]);
        client.prompt(&id, "what did I say?").await;
        assert!(client.said().contains("remember the sea"), "{}", client.said());
    })
    .await;
}

/// C10, in the official form: the cursor of the durable-transport draft.
#[tokio::test]
async fn a_resume_with_a_cursor_tells_what_was_missed_after_its_answer() {
    let script = Script::new([vec![testkit::say("one")], vec![testkit::say("two")]]);
    check(Setup::script(&script), async |server, mut client| {
        let id = client.new_session().await;
        client.prompt(&id, "a").await;
        let cursor = server.handle(&id).await.read(engine::Seq::START).head();
        client.prompt(&id, "b").await;
        let cwd = server.workspace();
        let resume = |cursor: &str| json!({ "sessionId": id, "cwd": cwd, "_meta": { "acp/cursor": cursor } });
        for (cursor, texts) in [(cursor.0, vec!["two"]), (0, vec!["one", "two"])] {
            let mut second = server.client().await;
            second.call("session/resume", resume(&cursor.to_string())).await;
            assert!(second.updates().next().is_none());
            second.catch_up(&id).await;
            assert_eq!(second.story().texts("agent_message_chunk"), texts);
        }
        for bad in ["999999", "x", "-1"] {
            assert_eq!(client.refused("session/resume", resume(bad)).await.code, -32602, "{bad}");
        }
        for bad in [json!(5), json!(true), json!({})] {
            let params = json!({ "sessionId": id, "cwd": cwd, "_meta": { "acp/cursor": bad } });
            assert_eq!(client.refused("session/resume", params).await.code, -32602, "{bad}");
        }
    })
    .await;
}

/// A client that goes back on its own connection is told the updates again, and no answer a second time.
#[tokio::test]
async fn a_resume_further_back_on_the_same_connection_answers_no_prompt_again() {
    let script =
        Script::new([vec![testkit::say("one")], vec![testkit::say("two")], vec![testkit::say("three")]]);
    check(Setup::script(&script), async |server, mut client| {
        let id = client.new_session().await;
        client.prompt(&id, "a").await;
        client.prompt(&id, "b").await;
        let before = client.frames().len();
        let place = json!({ "sessionId": id, "cwd": server.workspace(), "_meta": { "acp/cursor": "0" } });
        client.call("session/resume", place).await;
        client.catch_up(&id).await;
        client.prompt(&id, "c").await;
        let since = &client.frames()[before..];
        let mut answered = std::collections::BTreeSet::new();
        for frame in client.frames().iter().filter(|frame| frame.get("result").is_some()) {
            assert!(answered.insert(frame["id"].as_u64()), "a second answer: {frame}");
        }
        let said =
            since.iter().filter(|frame| frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
        let said: Vec<_> = said.map(|frame| &frame["params"]["update"]["content"]["text"]).collect();
        assert_eq!(said, ["one", "two", "three"]);
    })
    .await;
}

/// What one event says may take several frames, and a connection may break between any two of them.
#[tokio::test]
async fn a_cursor_between_two_frames_of_an_event_is_taken_up_there() {
    let cursors = json!({ "protocolVersion": 1, "clientCapabilities": { "_meta": { "acp/cursor": true } } });
    check(Setup::script(&Script::new([vec![testkit::say("yes")]])), async |server, mut client| {
        let id = client.new_session().await;
        let mut watcher = server.client().await;
        watcher.call("initialize", cursors.clone()).await;
        watcher.load(&id).await;
        let blocks = ["one", "two"].map(|text| json!({ "type": "text", "text": text }));
        client.call("session/prompt", json!({ "sessionId": id, "prompt": blocks })).await;
        watcher.catch_up(&id).await;
        let said: Vec<_> = watcher
            .frames()
            .iter()
            .filter(|frame| frame["params"]["update"]["sessionUpdate"] == "user_message_chunk")
            .map(|frame| frame["params"]["_meta"]["acp/cursor"].as_str().unwrap().to_owned())
            .collect();
        let cwd = server.workspace();
        for (cursor, rest) in said.iter().zip([vec!["two"], vec![]]) {
            let mut late = server.client().await;
            late.call("initialize", cursors.clone()).await;
            let place = json!({ "sessionId": id, "cwd": cwd, "_meta": { "acp/cursor": cursor } });
            late.call("session/resume", place).await;
            late.catch_up(&id).await;
            assert_eq!(late.story().texts("user_message_chunk"), rest, "after {cursor}");
            assert_eq!(late.said(), "yes");
        }
        assert_eq!(said.len(), 2);
    })
    .await;
}

/// C11.
#[tokio::test]
async fn a_fork_begins_with_the_history_and_leaves_the_source_alone() {
    check(Setup::offline().on_disk(), async |server, mut client| {
        let source = client.new_session().await;
        client.prompt(&source, "one").await;
        client.prompt(&source, "two").await;
        // The source is only in the store now.
        let mut client = restarted(server, client).await;
        let params = client.open_params(&source);
        let forked = client.call("session/fork", params).await;
        let fork = forked["sessionId"].as_str().unwrap().to_owned();
        assert_ne!(fork, source);
        assert_eq!(current(&forked, "mode"), "code");
        assert!(client.updates().all(|update| update["sessionUpdate"] == "available_commands_update"));
        client.load(&source).await;
        client.prompt(&source, "three of the source").await;
        client.prompt(&fork, "three of the fork").await;
        for (id, last) in [(&source, "three of the source"), (&fork, "three of the fork")] {
            let mut reader = server.client().await;
            reader.load(id).await;
            assert_eq!(reader.story().texts("user_message_chunk"), ["one", "two", last]);
        }
        client.forget_updates();
        client.prompt(&fork, "what did I say?").await;
        assert!(
            client.said().contains("two") && !client.said().contains("of the source"),
            "{}",
            client.said()
        );
    })
    .await;
}

/// C12.
#[tokio::test]
async fn a_fork_and_a_resume_keep_the_settings() {
    check(Setup::offline().on_disk(), async |server, mut client| {
        let id = client.new_session().await;
        for (option, value) in [("model", "offline:terse"), ("approval", "full"), ("mode", "architect")] {
            let change = json!({ "sessionId": id, "configId": option, "value": value });
            client.call("session/set_config_option", change).await;
        }
        for _ in 0..2 {
            let params = client.open_params(&id);
            for method in ["session/fork", "session/resume", "session/load"] {
                let opened = client.call(method, params.clone()).await;
                assert_eq!(current(&opened, "model"), "offline:terse", "{method}");
                assert_eq!(current(&opened, "approval"), "full", "{method}");
                assert_eq!(opened["modes"]["currentModeId"], "architect", "{method}");
            }
            client = restarted(server, client).await;
        }
    })
    .await;
}

/// C28.
#[tokio::test]
async fn clear_keeps_the_session_and_drops_its_history() {
    check(Setup::offline().on_disk(), async |server, mut client| {
        let id = client.new_session().await;
        client.prompt(&id, "a secret word").await;
        client.prompt(&id, "/clear").await;
        client.forget_updates();
        client.prompt(&id, "what did I say?").await;
        assert!(client.said().contains("You said nothing before this."), "{}", client.said());
        let mut client = restarted(server, client).await;
        client.load(&id).await;
        assert_eq!(client.story().texts("user_message_chunk"), ["what did I say?"]);
        client.prompt(&id, "what did I say?").await;
        assert!(!client.said().contains("a secret word"), "{}", client.said());
    })
    .await;
}

/// FF14: what was in the middle of something has an end in the history, and the model is told so.
#[tokio::test]
async fn a_turn_that_a_restart_cut_short_is_told_as_ended() {
    let call = testkit::call("shell", r#"{"command":"touch made"}"#);
    let script = Script::new([vec![testkit::say("I run it."), call], vec![testkit::say("Well.")]]);
    check(Setup::script(&script).on_disk(), async |server, mut client| {
        let id = client.new_session().await;
        let turn = client.send_prompt(&id, "run it").await;
        client.next_ask().await;
        let ((), stop) = tokio::join!(server.restart(), client.stop_reason(turn));
        assert_eq!(stop, "cancelled");
        client.next_withdrawn().await;
        client.hang_up().await;
        let mut client = server.client().await;
        client.load(&id).await;
        let story = client.story();
        assert_eq!(story.texts("agent_message_chunk"), ["I run it."]);
        assert!(story.calls.values().all(|call| call["status"] == "failed"), "{story:?}");
        assert_eq!(client.prompt(&id, "go on").await, "end_turn");
        let told = script.requests().pop().unwrap().messages;
        let results =
            told.iter().filter(|message| matches!(message, agent::Message::ToolResult { failed: true, .. }));
        assert_eq!(results.count(), 1, "{told:?}");
    })
    .await;
}

/// A load from another folder moves the session there; the history stays.
#[tokio::test]
async fn a_load_from_another_folder_works_there() {
    let script = Script::new([vec![], vec![testkit::call("read", r#"{"path":"here.txt"}"#)]]);
    check(Setup::script(&script), async |server, mut client| {
        let elsewhere = server.folder("elsewhere");
        write(elsewhere.join("here.txt"), "found\n");
        let id = client.new_session().await;
        client.prompt(&id, "one").await;
        client.call("session/load", json!({ "sessionId": id, "cwd": elsewhere, "mcpServers": [] })).await;
        client.prompt(&id, "read it").await;
        let call = client.story().calls.into_values().next().unwrap();
        assert_eq!(call["status"], "completed");
        let listed = client.call("session/list", json!({ "cwd": elsewhere })).await;
        assert_eq!(listed["sessions"][0]["sessionId"], id);
    })
    .await;
}
