//! A question reaches the stream, and one answer decides it.

use axum::http::StatusCode;
use serde_json::{Value, json};
use testkit::server::{Setup, run};

use crate::rest::door::{Door, Frames};

async fn asked(door: &Door, id: &str) -> (Frames, Value) {
    let mut stream = door.get(format!("/session/{id}/events")).stream().await;
    door.say(id, "run echo hi | tee out").await;
    let frames = stream.until("permission_request").await;
    let question = frames.last().unwrap().data.clone();
    (stream, question)
}

fn answer(id: &str, question: &Value, approved: bool) -> Value {
    json!({ "session_id": id, "permission_id": question["permission_id"], "approved": approved })
}

#[tokio::test]
async fn a_question_is_asked_in_the_stream_and_answered_by_a_request() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let (mut stream, question) = asked(&door, &id).await;
        assert_eq!(question["session_id"], json!(id));
        assert_eq!(question["permission_id"], json!(format!("r1.{id}")));
        assert_eq!(question["input"]["command"], "echo hi | tee out");
        let elsewhere = answer(&door.session().await, &question, true);
        door.post("/tool/approve", elsewhere).answer().await.refused(404, "permission_not_found");
        for unknown in ["r9", "1", "r2.x"] {
            let body = json!({ "session_id": id, "permission_id": unknown, "approved": true });
            door.post("/tool/approve", body).answer().await.refused(404, "permission_not_found");
        }
        let resolved = door.post("/tool/approve", answer(&id, &question, true)).answer().await;
        assert_eq!(resolved.is(StatusCode::OK), json!({ "resolved": true, "approved": true }));
        let told = stream.until("result").await;
        let system =
            told.iter().find(|frame| frame.data["data"]["subtype"] == "permission_resolved").unwrap();
        assert_eq!(system.data["data"]["approved"], true);
        assert_eq!(system.data["data"]["by"], "local");
        assert!(server.workspace().join("out").exists());
        let late = door.post("/tool/approve", answer(&id, &question, false)).answer().await;
        late.refused(404, "permission_not_found");
        drop(stream);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn of_many_answers_at_once_exactly_one_decides() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let (mut stream, question) = asked(&door, &id).await;
        let ask = |approved| door.post("/tool/approve", answer(&id, &question, approved)).answer();
        let (a, b, c, d) = tokio::join!(ask(true), ask(false), ask(true), ask(false));
        let answers = [a, b, c, d];
        let winners: Vec<_> = answers.iter().filter(|answer| answer.status == StatusCode::OK).collect();
        assert_eq!(winners.len(), 1);
        let approved = winners[0].is(StatusCode::OK)["approved"].clone();
        for loser in answers.iter().filter(|answer| answer.status != StatusCode::OK) {
            loser.refused(404, "permission_not_found");
        }
        let told = stream.until("result").await;
        let decided: Vec<_> =
            told.iter().filter(|frame| frame.data["data"]["subtype"] == "permission_resolved").collect();
        assert_eq!(decided.len(), 1);
        assert_eq!(decided[0].data["data"]["approved"], approved);
        assert_eq!(json!(server.workspace().join("out").exists()), approved);
        drop(stream);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_refused_question_stops_the_tool_and_a_deleted_session_leaves_none_open() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let (mut stream, question) = asked(&door, &id).await;
        door.post("/tool/approve", answer(&id, &question, false)).answer().await.is(StatusCode::OK);
        let told = stream.until("result").await;
        let tool = told.iter().find(|frame| frame.kind() == "tool_result").unwrap();
        assert_eq!(tool.data["data"]["is_error"], true);
        assert!(!server.workspace().join("out").exists());
        let other = door.session().await;
        let (stream, question) = asked(&door, &other).await;
        door.delete(format!("/session/{other}")).answer().await.is(StatusCode::NO_CONTENT);
        let told = stream.all().await;
        assert_eq!(told.last().unwrap().event, "end");
        assert!(told.iter().any(|frame| frame.data["data"]["decision"] == "cancelled"));
        let late = door.post("/tool/approve", answer(&other, &question, true)).answer().await;
        late.refused(404, "session_not_found");
        door.close().await;
    })
    .await;
}
