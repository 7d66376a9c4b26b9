//! Modes, models and slash commands: what a person can choose, and that it holds at once.

use serde_json::json;
use testkit::Script;
use testkit::server::{Client, Setup, run_with_session as check, write};

/// What the agent says to a prompt.
async fn said(client: &mut Client, session: &str, text: &str) -> String {
    client.forget_updates();
    client.prompt(session, text).await;
    client.said()
}

/// H1.
#[tokio::test]
async fn a_mode_holds_at_once_and_an_unknown_one_is_refused() {
    let write_call = testkit::call("write", r#"{"path":"a.txt","text":"a"}"#);
    let run_call = testkit::call("shell", r#"{"command":"echo b > b.txt"}"#);
    let calls = vec![write_call, run_call];
    let script = Script::new([calls.clone(), vec![], calls.clone(), vec![], calls, vec![]]);
    check(Setup::script(&script), async |server, mut client, session| {
        client.answer_all("allow_once");
        for mode in ["ask", "architect"] {
            client.call("session/set_mode", json!({ "sessionId": session, "modeId": mode })).await;
            client.forget_updates();
            assert_eq!(client.prompt(&session, "write").await, "end_turn");
            let calls = client.story().calls;
            assert!(calls.len() == 2 && calls.values().all(|call| call["status"] == "failed"), "{calls:?}");
            assert!(!server.workspace().join("a.txt").exists() && !server.workspace().join("b.txt").exists());
            assert!(script.requests().last().unwrap().system.contains(&format!("{mode} mode")));
        }
        client.call("session/set_mode", json!({ "sessionId": session, "modeId": "code" })).await;
        client.prompt(&session, "write").await;
        assert!(server.workspace().join("a.txt").exists() && server.workspace().join("b.txt").exists());
        let unknown = json!({ "sessionId": session, "modeId": "nonsense" });
        assert_eq!(client.refused("session/set_mode", unknown).await.code, -32602);
        let nobody = json!({ "sessionId": "nobody", "modeId": "ask" });
        assert_eq!(client.refused("session/set_mode", nobody).await.code, -32002);
    })
    .await;
}

/// H6, FF8.
#[tokio::test]
async fn a_model_is_used_from_the_very_next_prompt_and_an_unknown_one_is_refused() {
    let script = Script::new([]);
    check(Setup::script(&script), async |_, mut client, session| {
        client.prompt(&session, "a").await;
        let change = |id: &str, value: &str| json!({ "sessionId": session, "configId": id, "value": value });
        client.call("session/set_config_option", change("model", "script:two")).await;
        client.prompt(&session, "b").await;
        for (id, value) in [("model", "script:three"), ("nonsense", "x"), ("approval", "whatever")] {
            let refused = client.refused("session/set_config_option", change(id, value)).await;
            assert_eq!(refused.code, -32602, "{refused:?}");
        }
        let unknown = json!({ "sessionId": session, "modelId": "script:three" });
        assert_eq!(client.refused("session/set_model", unknown).await.code, -32602);
        let unknown = json!({ "methodId": "nonsense" });
        assert_eq!(client.refused("authenticate", unknown).await.code, -32602);
        client.prompt(&session, "c").await;
        let models: Vec<_> = script.requests().iter().map(|request| request.model.to_string()).collect();
        assert_eq!(models, ["script:one", "script:two", "script:two"]);
    })
    .await;
}

/// H6: also in the middle of a turn, for the next model call.
#[tokio::test]
async fn a_model_changed_in_mid_turn_is_used_by_the_next_call() {
    let script = Script::new([vec![testkit::call("shell", r#"{"command":"touch made"}"#)], vec![]]);
    check(Setup::script(&script), async |_, mut client, session| {
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        let change = json!({ "sessionId": session, "configId": "model", "value": "script:two" });
        client.call("session/set_config_option", change).await;
        client.answer(&ask, "allow_once").await;
        client.stop_reason(turn).await;
        assert_eq!(script.requests()[1].model.as_ref(), "script:two");
    })
    .await;
}

/// H11.
#[tokio::test]
async fn every_slash_command_is_answered_without_the_model() {
    let script = Script::new([]);
    check(Setup::script(&script), async |_, mut client, session| {
        let help = said(&mut client, &session, "/help").await;
        for command in ["/help", "/model", "/mode", "/clear", "/compact", "/review"] {
            assert!(help.contains(command), "{help}");
        }
        assert!(said(&mut client, &session, "/model").await.contains("`script:one` (current)"));
        assert!(said(&mut client, &session, "/model refresh").await.contains("`script:one` (current)"));
        assert!(said(&mut client, &session, "/model script:two").await.contains("now script:two"));
        assert!(said(&mut client, &session, "/model script").await.contains("matches several"));
        assert!(said(&mut client, &session, "/model nope").await.contains("There is no model"));
        assert!(said(&mut client, &session, "/mode").await.contains("architect"));
        assert!(said(&mut client, &session, "/mode ask").await.contains("now ask"));
        assert!(said(&mut client, &session, "/compact").await.contains("nothing to compact"));
        assert!(said(&mut client, &session, "/clear").await.contains("cleared"));
        assert!(said(&mut client, &session, "/cost").await.contains("Nothing has been spent"));
        assert!(said(&mut client, &session, "/status").await.contains("- mode: ask"));
        assert!(script.requests().is_empty());
        script.then(vec![testkit::say("told")]);
        script.then(vec![testkit::say("it was long")]);
        client.prompt(&session, "a long story").await;
        assert!(said(&mut client, &session, "/compact").await.contains("it was long"));
        client.prompt(&session, "/nonsense").await;
        let told = &script.requests()[2].messages;
        assert!(
            matches!(&told[..], [agent::Message::User { .. }, agent::Message::Summary(text), agent::Message::User { text: last, .. }]
                if **text == *"it was long" && **last == *"/nonsense"),
            "{told:?}"
        );
    })
    .await;
}

/// H11: a review changes nothing, whatever the model wants, at the longest path and one past it.
#[tokio::test]
async fn a_review_only_reads() {
    let tries = vec![
        testkit::call("read", r#"{"path":"a.rs"}"#),
        testkit::call("write", r#"{"path":"b.rs","text":"b"}"#),
        testkit::call("shell", r#"{"command":"echo c > c.rs"}"#),
    ];
    let script = Script::new([tries, vec![testkit::say("fine")], vec![testkit::say("fine")]]);
    check(Setup::script(&script), async |server, mut client, session| {
        write(server.workspace().join("a.rs"), "fn a() {}\n");
        assert!(said(&mut client, &session, "/review a.rs").await.contains("fine"));
        let story = client.story();
        let ends: Vec<_> = story.order.iter().filter_map(|id| story.calls.get(id)).collect();
        assert!(ends.iter().map(|call| &call["status"]).eq(["completed", "failed", "failed"]), "{ends:?}");
        assert!(!server.workspace().join("b.rs").exists() && !server.workspace().join("c.rs").exists());
        assert!(
            script.requests()[0].tools.iter().all(|tool| !["write", "edit", "shell"].contains(&&*tool.name))
        );
        let longest = format!("/review {}", "x".repeat(512));
        assert!(said(&mut client, &session, &longest).await.contains("fine"));
        for bad in [format!("{longest}x"), "/review a; rm -rf b".into(), "/review $(x)".into()] {
            assert!(said(&mut client, &session, &bad).await.contains("Nothing was reviewed"));
        }
        assert_eq!(script.requests().len(), 3);
    })
    .await;
}

/// H14, R6: the call that waits is allowed by whoever chose the new preset, the next one is decided by it, and every
/// client is told. What runs already is not touched.
#[tokio::test]
async fn a_preset_changed_in_mid_turn_decides_the_next_call() {
    let made = |name: &str| vec![testkit::call("shell", format!(r#"{{"command":"touch {name}"}}"#))];
    let script = Script::new([made("one"), made("two"), vec![]]);
    check(Setup::script(&script), async |server, mut client, session| {
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        let change = json!({ "sessionId": session, "configId": "approval", "value": "yolo" });
        client.call("session/set_config_option", change).await;
        assert_eq!(client.next_withdrawn().await, ask["id"]);
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        let made = ["one", "two"].map(|name| server.workspace().join(name).exists());
        assert_eq!(made, [true, true], "the second is not asked for");
        let told = client.updates_of("config_option_update");
        assert!(
            told.iter().any(|update| update.to_string().contains(r#""currentValue":"full""#)),
            "{told:?}"
        );
    })
    .await;
}
