//! Who may reach what.

use axum::http::StatusCode;
use engine::{Principal, SessionId};
use serde_json::json;
use testkit::server::{Setup, run};

use crate::rest::door::{CI, Door, MASTER};

/// Every route below a session, as a method, a path and a body.
fn below(id: &str) -> Vec<(&'static str, String, serde_json::Value)> {
    let (one, all) = (format!("/session/{id}"), format!("/sessions/{id}"));
    let (nothing, text) = (json!(null), json!({ "text": "hi" }));
    vec![
        ("GET", one.clone(), nothing.clone()),
        ("POST", format!("{one}/message"), text.clone()),
        ("POST", format!("{one}/message"), json!({})),
        ("POST", format!("{one}/cancel"), json!({})),
        ("POST", format!("{one}/rotate-token"), json!({})),
        ("GET", format!("{one}/events"), nothing.clone()),
        ("DELETE", one, nothing.clone()),
        ("GET", all.clone(), nothing.clone()),
        ("PATCH", all.clone(), json!({ "title": "mine" })),
        ("POST", format!("{all}/prompt"), text.clone()),
        ("POST", format!("{all}/turns"), text),
        ("POST", format!("{all}/cancel"), json!({})),
        ("POST", format!("{all}/rotate-token"), json!({})),
        ("POST", format!("{all}/fork"), json!({})),
        ("POST", format!("{all}/share"), json!({})),
        ("GET", format!("{all}/events"), nothing.clone()),
        ("GET", format!("{all}/messages"), nothing.clone()),
        ("GET", format!("{all}/transcript"), nothing.clone()),
        ("DELETE", all, nothing),
    ]
}

#[tokio::test]
async fn the_session_of_another_does_not_exist() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        for (method, path, body) in below(&id) {
            let ask = door.send(method, &path, body.clone()).by(CI).header("x-test", "1");
            let ask = if body.is_null() { ask.raw(b"") } else { ask };
            ask.answer().await.refused(404, "session_not_found");
        }
        let approve = json!({ "session_id": id, "permission_id": format!("r1.{id}"), "approved": true });
        door.post("/tool/approve", approve).by(CI).answer().await.refused(404, "session_not_found");
        let invoke = json!({ "session_id": id });
        door.post("/commands/help/invoke", invoke).by(CI).answer().await.refused(404, "session_not_found");
        let theirs = door.post("/session", json!({})).by(CI).answer().await.is(StatusCode::CREATED);
        for (token, own) in [(MASTER, json!(id)), (CI, theirs["session_id"].clone())] {
            let ids = door.get("/session").by(token).answer().await.is(StatusCode::OK);
            assert_eq!(ids, json!({ "sessions": [own] }));
            let runs = door.get("/runs").by(token).answer().await.is(StatusCode::OK);
            assert_eq!((&runs["total_runs"], &runs["runs"][0]["run_id"]), (&json!(1), &own));
        }
        assert_eq!(
            door.get(format!("/session/{id}")).answer().await.status,
            StatusCode::OK,
            "nothing was done"
        );
        door.close().await;
    })
    .await;
}

/// Whatever a body is, what is said of it is for a person.
#[tokio::test]
async fn a_body_that_is_not_understood_is_refused_in_plain_words() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let beside = [
            ("POST", "/session".to_owned()),
            ("POST", "/sessions".to_owned()),
            ("POST", "/tool/approve".to_owned()),
            ("POST", "/commands/help/invoke".to_owned()),
            ("POST", "/sessions/deep-link".to_owned()),
            ("POST", "/ui/hall".to_owned()),
        ];
        let below = below(&id).into_iter().map(|(method, path, _)| (method, path));
        let odd = [
            "{",
            "[",
            "nul",
            "[1]",
            "7",
            "\"text\"",
            "{\"text\":7}",
            "{\"text\":{}}",
            "{\"text\":[{}]}",
            "{\"title\":[]}",
            "{\"prompt\":{\"type\":\"dance\"}}",
            "{\"working_dir\":{}}",
            "{\"do\":\"dance\"}",
            "{\"do\":\"invite\"}",
            "{\"do\":7}",
            "{\n \"a\": }",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":7}",
        ];
        let mut refused = 0;
        for (method, path) in below.chain(beside).filter(|(method, _)| matches!(*method, "POST" | "PATCH")) {
            for body in odd {
                let ask = door.send(method, &path, json!({})).raw(body.as_bytes());
                let answer = ask.answer().await;
                if answer.status.is_client_error() {
                    assert!(
                        !wire::json_errors::names_internals(&answer.text),
                        "{path} {body}: {}",
                        answer.text
                    );
                    refused += 1;
                }
            }
        }
        assert!(refused > 100, "{refused}");
        door.close().await;
    })
    .await;
}

/// A folder that becomes a way out after its session was made is open no more.
#[tokio::test]
async fn a_client_does_not_follow_its_folder_out_of_those_that_are_open() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let inner = server.workspace().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let made = door.post("/session", json!({ "working_dir": inner })).by(CI).answer().await;
        let made = made.is(StatusCode::CREATED);
        let id = made["session_id"].as_str().unwrap();
        let say = || door.post(format!("/session/{id}/message"), json!({ "text": "list" })).by(CI);
        say().answer().await.is(StatusCode::ACCEPTED);
        let ci = engine::Principal("ci".into());
        let session = engine::SessionId::parse(id).unwrap();
        server.registry().close(&ci, &session).await.unwrap();
        std::fs::remove_dir(&inner).unwrap();
        std::os::unix::fs::symlink(server.folder("outside"), &inner).unwrap();
        say().answer().await.refused(403, "working_dir_not_allowed");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn without_a_token_nothing_is_told() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        for path in
            ["/session", "/sessions", "/runs", "/runs/cost", "/commands", "/info", "/providers", "/tools"]
        {
            door.get(path).by_nobody().answer().await.refused(401, "unauthorized");
        }
        for (method, path, body) in below(&id) {
            door.send(method, path, body).by_nobody().answer().await.refused(401, "unauthorized");
        }
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_sessions_token_opens_that_session_and_cannot_renew_itself() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let made = door.post("/session", json!({})).answer().await.is(StatusCode::CREATED);
        let (id, token) = (made["session_id"].as_str().unwrap(), made["session_token"].as_str().unwrap());
        let other = door.session().await;
        let say = |id: &str| door.post(format!("/session/{id}/message"), json!({ "text": "list" })).by(token);
        say(id).answer().await.is(StatusCode::ACCEPTED);
        server.idle(id).await;
        door.get(format!("/sessions/{id}/messages")).by(token).answer().await.is(StatusCode::OK);
        say(&other).answer().await.refused(401, "unauthorized");
        for path in ["/session", "/sessions", "/runs", "/commands", "/info"] {
            door.get(path).by(token).answer().await.refused(401, "unauthorized");
        }
        let approve = json!({ "session_id": id, "permission_id": format!("r1.{id}"), "approved": true });
        door.post("/tool/approve", approve).by(token).answer().await.refused(401, "unauthorized");
        let rotate = || door.post(format!("/session/{id}/rotate-token"), json!({}));
        rotate().by(token).answer().await.refused(403, "admin_only");
        let fork = door.post(format!("/sessions/{id}/fork"), json!({})).by(token);
        fork.answer().await.refused(403, "admin_only");
        let mut watched = door.get(format!("/session/{id}/events?from=live")).by(token).stream().await;
        let fresh = rotate().answer().await.is(StatusCode::OK);
        let fresh = fresh["session_token"].as_str().unwrap();
        say(id).answer().await.refused(401, "unauthorized");
        assert_eq!(watched.next().await, None, "a stream of the old token ends");
        door.get(format!("/session/{id}")).by(fresh).answer().await.is(StatusCode::OK);
        let unknown = door.post("/session/no-such/rotate-token", json!({})).answer().await;
        unknown.refused(404, "session_not_found");
        door.delete(format!("/session/{id}")).by(fresh).answer().await.is(StatusCode::NO_CONTENT);
        door.get(format!("/session/{id}")).by(fresh).answer().await.refused(401, "unauthorized");
        door.close().await;
    })
    .await;
}

/// Over ACP, by the terminal, by the bridge, or by what tidies up: there is one place where sessions end.
#[tokio::test]
async fn by_whichever_way_a_session_is_deleted_its_token_goes_with_it() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let made = door.post("/session", json!({})).answer().await.is(StatusCode::CREATED);
        let (id, token) = (made["session_id"].as_str().unwrap(), made["session_token"].as_str().unwrap());
        door.get(format!("/session/{id}")).by(token).answer().await.is(StatusCode::OK);
        let session = SessionId::parse(id).unwrap();
        assert!(door.doors.registry.delete(&Principal::local(), &session).await.unwrap());
        door.get(format!("/session/{id}")).by(token).answer().await.refused(401, "unauthorized");
        let made = door.post("/session", json!({})).answer().await.is(StatusCode::CREATED);
        let (id, token) = (made["session_id"].as_str().unwrap(), made["session_token"].as_str().unwrap());
        let mut line = server.client().await;
        line.call("session/delete", json!({ "sessionId": id })).await;
        door.get(format!("/session/{id}")).by(token).answer().await.refused(401, "unauthorized");
        drop(line);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_is_not_taken_up_again_in_a_folder_that_became_a_way_out() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let inner = server.workspace().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let made = door.post("/session", json!({ "working_dir": inner })).by(CI).answer().await;
        let id = made.is(StatusCode::CREATED)["session_id"].as_str().unwrap().to_owned();
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": { "protocolVersion": 1, "clientCapabilities": {} } });
        let hello = door.post("/acp", hello).by(CI).answer().await;
        hello.is(StatusCode::OK);
        let connection = hello.headers["acp-connection-id"].to_str().unwrap().to_owned();
        let back = || {
            let ask = door.get("/acp").by(CI).header("acp-connection-id", connection.clone());
            let ask = ask.header("acp-session-id", id.clone()).header("last-event-id", "0");
            ask.header("accept", "text/event-stream")
        };
        drop(back().stream().await);
        std::fs::remove_dir(&inner).unwrap();
        std::os::unix::fs::symlink(server.folder("outside"), &inner).unwrap();
        back().answer().await.refused(403, "working_dir_not_allowed");
        // The connection is still open, and ends with the server.
        door.doors.finish().await;
    })
    .await;
}
