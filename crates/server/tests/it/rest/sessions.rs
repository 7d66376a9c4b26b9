//! Sessions are made, spoken to, cancelled and deleted.

use axum::http::StatusCode;
use serde_json::{Value, json};
use testkit::server::{Setup, run};

use crate::rest::door::Door;

#[tokio::test]
async fn a_session_is_made_listed_looked_at_and_deleted() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let made = door.post("/session", json!({ "working_dir": server.workspace() })).answer().await;
        let made = made.is(StatusCode::CREATED);
        let id = made["session_id"].as_str().unwrap();
        assert_eq!(made["working_dir"], json!(server.workspace()));
        assert!(made["created_at"].as_f64().unwrap() >= 1_700_000_000.0);
        assert!(made["session_token"].as_str().unwrap().len() >= 43);
        let later = door.session().await;
        let ids = door.get("/session").answer().await.is(StatusCode::OK);
        assert_eq!(ids, json!({ "sessions": [later, id] }));
        door.say(id, "hello").await;
        server.idle(id).await;
        let all = door.get("/sessions").answer().await.is(StatusCode::OK);
        let row = &all["sessions"][0];
        assert_eq!((&row["session_id"], &row["id"]), (&json!(id), &json!(id)), "the latest used comes first");
        assert!(row["last_touched"].as_f64() > row["created_at"].as_f64());
        assert!(row["event_count"].as_u64().unwrap() > 3);
        let one = door.get(format!("/session/{id}")).answer().await.is(StatusCode::OK);
        assert_eq!(one["session_id"], id);
        assert_eq!(one["status"], "idle");
        let gone = door.delete(format!("/session/{id}")).answer().await;
        assert_eq!(gone.is(StatusCode::NO_CONTENT), Value::Null);
        door.get(format!("/session/{id}")).answer().await.refused(404, "session_not_found");
        door.delete(format!("/session/{id}")).answer().await.refused(404, "session_not_found");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_message_is_named_by_its_answer_as_in_the_stream_and_carries_what_was_said() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        let message = door.say(&id, "stream 3 10").await;
        let frames = stream.until("result").await;
        let said: String = frames
            .iter()
            .filter(|frame| frame.kind() == "assistant_chunk")
            .map(|frame| frame.text())
            .collect();
        let result = frames.last().unwrap();
        assert_eq!(result.data["message_id"], json!(message));
        assert_eq!(result.data["output"], json!(said));
        assert_eq!(result.data["success"], true);
        assert!(said.len() >= 30);
        let user = frames.iter().find(|frame| frame.event == "user_message").unwrap();
        assert_eq!(user.data, json!({ "message_id": message, "text": "stream 3 10" }));
        drop(stream);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused_with_its_reason() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let path = |rest: &str| format!("/session/{id}/{rest}");
        for (body, code) in [
            (&b"{nonsense"[..], "invalid_json"),
            (b"[1]", "invalid_json"),
            (b"\"text\"", "invalid_json"),
            (b"\xff", "invalid_json"),
            (b"{}", "missing_text"),
            (b"{\"text\":\"\"}", "missing_text"),
            (b"{\"text\":\" \\n\"}", "missing_text"),
            (b"{\"text\":null}", "missing_text"),
            (b"{\"text\":7}", "invalid_field"),
        ] {
            door.post(path("message"), json!({})).raw(body).answer().await.refused(400, code);
        }
        for (body, code) in [
            (json!({}), "missing_session_id_or_permission_id"),
            (json!({ "session_id": id }), "missing_session_id_or_permission_id"),
            (json!({ "permission_id": "r1.x" }), "missing_session_id_or_permission_id"),
            (json!({ "session_id": id, "permission_id": "r1.x" }), "missing_approved"),
            (json!({ "session_id": id, "permission_id": "r1.x", "approved": "yes" }), "missing_approved"),
            (json!({ "session_id": id, "permission_id": "r1.x", "decision": "perhaps" }), "missing_approved"),
        ] {
            door.post("/tool/approve", body).answer().await.refused(400, code);
        }
        for (body, code) in [
            (json!({}), "missing_session_id"),
            (json!({ "session_id": id, "args": "x" }), "args_must_be_list"),
            (json!({ "session_id": id, "kwargs": [] }), "kwargs_must_be_object"),
        ] {
            door.post("/commands/help/invoke", body).answer().await.refused(400, code);
        }
        for query in ["since=yesterday", "limit=many", "limit=-1"] {
            door.get(format!("/runs?{query}")).answer().await.refused(400, "invalid_query");
            door.get(format!("/runs/cost?{query}")).answer().await.refused(400, "invalid_query");
        }
        for query in ["format=xml", "from=yesterday"] {
            door.get(format!("/session/{id}/events?{query}")).answer().await.refused(400, "invalid_query");
        }
        door.get("/nothing/here").answer().await.refused(404, "not_found");
        door.get(path("nothing")).answer().await.refused(404, "not_found");
        door.post(path("events"), json!({})).answer().await.refused(405, "method_not_allowed");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn an_id_that_is_none_leads_nowhere() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let long = "x".repeat(129);
        for id in ["no-such", "..%2f..%2fetc", "a%20b", "%ff", "a%00b", &long] {
            for path in [format!("/session/{id}"), format!("/sessions/{id}"), format!("/session/{id}/events")]
            {
                door.get(path).answer().await.refused(404, "session_not_found");
            }
            let body = json!({ "text": "hi" });
            door.post(format!("/session/{id}/message"), body)
                .answer()
                .await
                .refused(404, "session_not_found");
            door.post(format!("/session/{id}/cancel"), json!({}))
                .answer()
                .await
                .refused(404, "session_not_found");
        }
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_folder_must_be_one_that_the_server_opens_to_its_clients() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let (inside, outside) = (server.workspace().join("inside"), server.folder("outside"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(server.workspace().join("file"), "").unwrap();
        std::os::unix::fs::symlink(&outside, server.workspace().join("way-out")).unwrap();
        let made = door.post("/session", json!({ "working_dir": inside })).answer().await;
        assert_eq!(made.is(StatusCode::CREATED)["working_dir"], json!(inside));
        let usual = door.post("/session", json!({})).answer().await.is(StatusCode::CREATED);
        assert_eq!(
            usual["working_dir"],
            json!(server.workspace()),
            "without a folder it is the server's own"
        );
        let forbidden = [
            json!(outside),
            json!(outside.join("not-there")),
            json!("/"),
            json!("/etc"),
            json!("inside"),
            json!(inside.join("../../outside")),
            json!(server.workspace().join("way-out")),
            json!(format!("{}-beside", server.workspace().display())),
        ];
        for folder in forbidden {
            for path in ["/session", "/sessions"] {
                let asked = door.post(path, json!({ "working_dir": folder })).answer().await;
                asked.refused(403, "working_dir_not_allowed");
            }
        }
        for missing in ["file", "not-there"] {
            let asked = door.post("/session", json!({ "working_dir": server.workspace().join(missing) }));
            asked.answer().await.refused(400, "bad_working_dir");
        }
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_session_can_be_used_again() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        let (running, waiting) = (door.say(&id, "sleep 600000").await, door.say(&id, "list").await);
        stream.until("user_message").await;
        let cancelled = door.post(format!("/session/{id}/cancel"), json!({})).answer().await;
        cancelled.is(StatusCode::NO_CONTENT);
        for _ in [&running, &waiting] {
            let frames = stream.until("result").await;
            let result = frames.last().unwrap();
            assert!([json!(running), json!(waiting)].contains(&result.data["message_id"]));
            assert_eq!((&result.data["cancelled"], &result.data["success"]), (&json!(true), &json!(false)));
        }
        let again = door.post(format!("/sessions/{id}/cancel"), json!({})).answer().await;
        again.is(StatusCode::NO_CONTENT);
        let message = door.say(&id, "stream 1").await;
        let frames = stream.until("result").await;
        let result = &frames.last().unwrap().data;
        assert_eq!((&result["message_id"], &result["success"]), (&json!(message), &json!(true)));
        drop(stream);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn messages_wait_behind_the_running_one_up_to_a_limit() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        door.say(&id, "sleep 600000").await;
        for _ in 0..32 {
            door.say(&id, "list").await;
        }
        let one_more = door.post(format!("/session/{id}/message"), json!({ "text": "list" })).answer().await;
        one_more.refused(429, "queue_full");
        door.post(format!("/session/{id}/cancel"), json!({})).answer().await.is(StatusCode::NO_CONTENT);
        server.idle(&id).await;
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn sessions_run_beside_each_other_without_a_word_of_another() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let mut sessions = Vec::new();
        for number in 0..4 {
            let id = door.session().await;
            let stream = door.get(format!("/session/{id}/events")).stream().await;
            std::fs::write(server.workspace().join(format!("{number}.txt")), format!("marker-{number}\n"))
                .unwrap();
            sessions.push((number, id, stream));
        }
        for (number, id, _) in &sessions {
            door.say(id, &format!("read {number}.txt")).await;
        }
        for (number, id, mut stream) in sessions {
            let told = format!("{:?}", stream.until("result").await);
            assert!(told.contains(&format!("marker-{number}")));
            assert!(
                (0..4)
                    .filter(|other| *other != number)
                    .all(|other| !told.contains(&format!("marker-{other}")))
            );
            server.idle(&id).await;
        }
        door.close().await;
    })
    .await;
}
