//! What the server says it can do, and that it can.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::Stop;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use testkit::server::{Setup, run};
use testkit::{Script, Turns};

/// Shows one part of the answer to `initialize`.
async fn check(pointer: &str, expected: Expect) {
    run(Setup::offline(), async |server| {
        let mut client = server.connect();
        let hello = client.initialize().await;
        let part = hello.pointer(pointer).unwrap_or(&Value::Null);
        expected.assert_eq(&serde_json::to_string_pretty(part).unwrap());
    })
    .await;
}

/// B1.
#[tokio::test]
async fn initialize_is_answered_as_the_official_protocol_wants() {
    check(
        "",
        expect![[r#"
            {
              "protocolVersion": 1,
              "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {
                  "image": true,
                  "embeddedContext": true
                },
                "sessionCapabilities": {
                  "list": {},
                  "delete": {},
                  "additionalDirectories": {},
                  "fork": {},
                  "resume": {},
                  "close": {}
                },
                "auth": {
                  "logout": {}
                },
                "_meta": {
                  "config_options": true,
                  "ext_methods": true
                },
                "mcpCapabilities": {
                  "http": true,
                  "sse": true
                }
              },
              "authMethods": [
                {
                  "id": "local",
                  "name": "This machine",
                  "description": "You started this server, so no sign-in is needed."
                }
              ],
              "agentInfo": {
                "name": "ropewalk",
                "title": "Ropewalk",
                "version": "1.2.3"
              },
              "_meta": {
                "auth_hint": "authentication required",
                "sandbox": {
                  "mode": "workspace-write"
                }
              }
            }"#]],
    )
    .await;
}

/// B1: a version we do not speak is not echoed.
#[tokio::test]
async fn a_version_of_the_future_is_answered_with_ours() {
    run(Setup::offline(), async |server| {
        let mut client = server.connect();
        for version in [0, 1, 2, 65535] {
            let hello = client.call("initialize", json!({ "protocolVersion": version })).await;
            assert_eq!(hello["protocolVersion"], 1);
        }
        for version in [json!("1"), json!(-1), json!(65536), json!(1.5), json!(true)] {
            let refused = client.refused("initialize", json!({ "protocolVersion": version })).await;
            assert_eq!(refused.code, -32602);
        }
    })
    .await;
}

/// B8.
#[tokio::test]
async fn sessions_can_be_loaded() {
    check("/agentCapabilities/loadSession", expect!["true"]).await;
}

/// B9.
#[tokio::test]
async fn prompts_may_have_images_and_resources() {
    check(
        "/agentCapabilities/promptCapabilities",
        expect![[r#"
        {
          "image": true,
          "embeddedContext": true
        }"#]],
    )
    .await;
}

/// B10.
#[tokio::test]
async fn without_tool_servers_nothing_is_said_of_them() {
    let without = Turns::new(|_, _| std::future::ready(Ok(Stop::EndTurn)));
    run(Setup::new(without), async |server| {
        let hello = server.connect().initialize().await;
        assert_eq!(hello.pointer("/agentCapabilities/mcpCapabilities"), None);
    })
    .await;
    let both = expect![[r#"
        {
          "http": true,
          "sse": true
        }"#]];
    check("/agentCapabilities/mcpCapabilities", both).await;
}

/// B11.
#[tokio::test]
async fn every_session_ability_that_is_offered_works() {
    run(Setup::offline(), async |server| {
        let extra = server.folder("extra");
        let mut client = server.connect();
        let hello = client.initialize().await;
        let offered = hello["agentCapabilities"]["sessionCapabilities"].as_object().unwrap().clone();
        let session = client.new_session().await;
        let (closed, deleted) = (client.new_session().await, client.new_session().await);
        for ability in offered.keys() {
            let open = client.open_params(&session);
            match ability.as_str() {
                "list" => assert!(client.call("session/list", json!({})).await["sessions"].is_array()),
                "resume" | "fork" => drop(client.call(&format!("session/{ability}"), open).await),
                "close" => drop(client.call("session/close", json!({ "sessionId": closed })).await),
                "delete" => drop(client.call("session/delete", json!({ "sessionId": deleted })).await),
                "additionalDirectories" => {
                    let mut open = open;
                    open["additionalDirectories"] = json!([extra]);
                    client.call("session/load", open).await;
                }
                other => panic!("{other} is offered and not tested"),
            }
        }
        assert_eq!(offered.len(), 6);
    })
    .await;
}

/// B12.
#[tokio::test]
async fn config_options_and_extension_methods_are_announced() {
    check(
        "/agentCapabilities/_meta",
        expect![[r#"
        {
          "config_options": true,
          "ext_methods": true
        }"#]],
    )
    .await;
}

/// B13.
#[tokio::test]
async fn a_hint_about_authentication_has_no_secrets() {
    check(
        "/_meta",
        expect![[r#"
            {
              "auth_hint": "authentication required",
              "sandbox": {
                "mode": "workspace-write"
              }
            }"#]],
    )
    .await;
}

/// B14.
#[tokio::test]
async fn logout_is_offered_and_answered() {
    check(
        "/agentCapabilities/auth",
        expect![[r#"
        {
          "logout": {}
        }"#]],
    )
    .await;
    run(Setup::offline(), async |server| {
        let mut client = server.client().await;
        assert_eq!(client.call("logout", json!({})).await, json!({}));
        let session = client.new_session().await;
        assert_eq!(client.prompt(&session, "hello").await, "end_turn");
    })
    .await;
}

/// B15.
#[tokio::test]
async fn authenticate_takes_the_method_that_was_offered_and_no_other() {
    run(Setup::offline(), async |server| {
        let mut client = server.connect();
        let hello = client.initialize().await;
        let method = &hello["authMethods"][0]["id"];
        assert_eq!(client.call("authenticate", json!({ "methodId": method })).await, json!({}));
        let refused = client.refused("authenticate", json!({ "methodId": "wrong" })).await;
        assert_eq!(refused.code, -32602);
    })
    .await;
}

/// B16.
#[tokio::test]
async fn a_client_without_files_and_terminal_is_never_asked_for_them() {
    let read = r#"{"path":"a.txt"}"#;
    let write = r#"{"path":"b.txt","text":"b"}"#;
    let script = Script::new([vec![
        testkit::call("read", read),
        testkit::call("write", write),
        testkit::call("shell", r#"{"command":"touch made"}"#),
    ]]);
    run(Setup::script(&script), async |server| {
        testkit::server::write(server.workspace().join("a.txt"), "a");
        let mut client = server.client().await;
        client.answer_all("allow_once");
        let session = client.new_session().await;
        // The client fails the test on any request but permissions.
        assert_eq!(client.prompt(&session, "go").await, "end_turn");
        let done = client.story().calls.into_values().map(|call| call["status"].clone());
        assert_eq!(done.collect::<Vec<_>>(), ["completed"; 3]);
        assert!(server.workspace().join("b.txt").exists());
    })
    .await;
}
