//! Sessions with titles, forks, messages and links, and what is public about the server.

use axum::http::StatusCode;
use serde_json::{Value, json};
use testkit::server::{Setup, run};

use crate::rest::door::Door;

#[tokio::test]
async fn a_session_is_made_renamed_and_deleted() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let body = json!({ "working_dir": server.workspace(), "model": "offline:terse", "mode": "ask" });
        let made = door.post("/sessions", body).answer().await.is(StatusCode::CREATED);
        let id = made["id"].as_str().unwrap();
        assert_eq!((&made["session_id"], &made["status"]), (&json!(id), &json!("idle")));
        assert!(made["created_at"].as_str().unwrap().ends_with('Z'));
        let settings = server.handle(id).await.snapshot().settings.clone();
        assert_eq!((settings.get("model"), settings.get("mode")), ("offline:terse", "ask"));
        let path = format!("/sessions/{id}");
        let longest = "ä".repeat(60);
        let renamed =
            door.send("PATCH", &path, json!({ "title": longest })).answer().await.is(StatusCode::OK);
        assert_eq!(renamed["title"], json!(longest));
        for title in ["ä".repeat(61), String::new(), " ".into(), "two\nlines".into()] {
            door.send("PATCH", &path, json!({ "title": title })).answer().await.refused(400, "bad_title");
        }
        assert_eq!(door.get(&path).answer().await.is(StatusCode::OK)["title"], json!(longest));
        assert_eq!(door.delete(&path).answer().await.is(StatusCode::NO_CONTENT), Value::Null);
        door.get(&path).answer().await.refused(404, "session_not_found");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_had_is_refused_before_a_session_is_made() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        for (body, code) in [
            (json!({ "model": "no-such" }), "unknown_model"),
            (json!({ "mode": "no-such" }), "unknown_mode"),
            (json!({ "prompt": "hi", "allowed_tools": ["read"] }), "unsupported_field"),
            (json!({ "prompt": 7 }), "invalid_field"),
        ] {
            door.post("/sessions", body).answer().await.refused(400, code);
        }
        let all = door.get("/sessions").answer().await.is(StatusCode::OK);
        assert_eq!(all, json!({ "sessions": [] }));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_list_comes_in_either_shape() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let (older, newer) = (door.session().await, door.session().await);
        let list = door.get("/sessions?format=array").answer().await.is(StatusCode::OK);
        let ids: Vec<&Value> = list.as_array().unwrap().iter().map(|row| &row["id"]).collect();
        assert_eq!(ids, [&json!(newer), &json!(older)]);
        assert!(list[0]["created_at"].is_string());
        let list = door.get("/sessions?limit=1").answer().await.is(StatusCode::OK);
        assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
        assert!(list["sessions"][0]["created_at"].is_number());
        server.clock().advance(std::time::Duration::from_secs(7200));
        let list = door.get("/sessions?since=1h").answer().await.is(StatusCode::OK);
        assert_eq!(list, json!({ "sessions": [] }));
        door.get("/sessions?since=soon").answer().await.refused(400, "invalid_query");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_prompt_is_taken_and_its_messages_can_be_read() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        std::fs::write(server.workspace().join("a.txt"), "a line\n").unwrap();
        for (path, text) in [("prompt", "read a.txt"), ("turns", "stream 3 10")] {
            let taken = door.post(format!("/sessions/{id}/{path}"), json!({ "prompt": text })).answer().await;
            let taken = taken.is(StatusCode::ACCEPTED);
            assert_eq!((&taken["session_id"], &taken["status"]), (&json!(id), &json!("running")));
            assert!(taken["message_id"].as_str().unwrap().ends_with(&id));
        }
        door.post(format!("/sessions/{id}/prompt"), json!({})).answer().await.refused(400, "missing_prompt");
        server.idle(&id).await;
        let messages = door.get(format!("/sessions/{id}/messages")).answer().await.is(StatusCode::OK);
        let messages = messages.as_array().unwrap();
        let kinds: Vec<&str> =
            messages.iter().map(|message| message["event_type"].as_str().unwrap()).collect();
        let told =
            ["user_message", "tool_call", "tool_result", "agent_message", "user_message", "agent_message"];
        assert_eq!(kinds.iter().filter(|kind| told.contains(*kind)).count(), kinds.len(), "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| **kind == "user_message").count(), 2);
        let payload: Value = serde_json::from_str(messages[0]["payload"].as_str().unwrap()).unwrap();
        assert_eq!(payload, json!({ "text": "read a.txt" }));
        assert_eq!(kinds.last(), Some(&"agent_message"), "chunks are one message again");
        let count =
            door.get(format!("/sessions/{id}")).answer().await.is(StatusCode::OK)["message_count"].clone();
        assert_eq!(count, json!(messages.len()));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_fork_goes_its_own_way_from_the_same_past() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        door.say(&id, "list").await;
        server.idle(&id).await;
        let made =
            door.post(format!("/sessions/{id}/fork"), json!({})).answer().await.is(StatusCode::CREATED);
        let fork = made["id"].as_str().unwrap();
        assert_eq!(made["parent_id"], json!(id));
        let read =
            async |id: &str| door.get(format!("/sessions/{id}/messages")).answer().await.is(StatusCode::OK);
        assert_eq!(read(fork).await, read(&id).await);
        door.say(fork, "stream 1").await;
        server.idle(fork).await;
        assert_ne!(read(fork).await, read(&id).await);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_link_is_only_looked_at() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let outside = server.folder("outside");
        let ask = async |uri: String| door.post("/deep-link", json!({ "uri": uri })).answer().await;
        let cwd = server.workspace();
        let good =
            ask(format!("zeph://new-session?cwd={}&prompt=hi%20there&model=offline:plain", cwd.display()))
                .await;
        assert_eq!(
            good.is(StatusCode::OK),
            json!({
                "working_dir": cwd, "prompt": "hi there", "model": "offline:plain",
                "prompt_trust_level": "external_untrusted",
            })
        );
        let empty = ask("ropewalk://new-session".into()).await.is(StatusCode::OK);
        assert_eq!((&empty["working_dir"], &empty["prompt"]), (&Value::Null, &Value::Null));
        for bad in [
            "http://x",
            "zeph://unknown-action",
            "zeph://new-session?cwd=%2F%00x",
            "zeph://new-session?cwd=%",
        ] {
            ask(bad.into()).await.refused(400, "bad_link");
        }
        door.post("/deep-link", json!({})).answer().await.refused(400, "bad_link");
        for folder in [outside.clone(), outside.join("none"), cwd.join("none"), "/etc".into()] {
            let asked = ask(format!("zeph://new-session?cwd={}", folder.display())).await;
            asked.refused(403, "working_dir_not_allowed");
        }
        ask("zeph://new-session?model=no-such".into()).await.refused(422, "unknown_model");
        assert_eq!(door.get("/session").answer().await.is(StatusCode::OK), json!({ "sessions": [] }));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn everybody_may_ask_what_this_is_and_nothing_more() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let found = door.get("/.well-known/acp.json").by_nobody().answer().await;
        let body = found.is(StatusCode::OK);
        assert_eq!((&body["protocol"], &body["protocol_version"]), (&json!("acp"), &json!(1)));
        assert_eq!(body["authentication"], json!({ "type": "bearer" }));
        assert!(!found.text.contains(&id) && !found.text.contains(server.workspace().to_str().unwrap()));
        for path in ["/agent.json", "/.well-known/agent.json"] {
            let body = door.get(path).by_nobody().answer().await.is(StatusCode::OK);
            assert_eq!((&body["id"], &body["version"]), (&json!("ropewalk"), &json!("1.2.3")));
        }
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_nothing_to_strangers_has_no_discovery() {
    let mut setup = Setup::offline();
    setup.rules.discovery = false;
    run(setup, async |server| {
        let door = Door::open(server);
        for path in ["/.well-known/acp.json", "/.well-known/agent.json", "/agent.json"] {
            door.get(path).by_nobody().answer().await.refused(404, "not_found");
        }
        door.close().await;
    })
    .await;
}
