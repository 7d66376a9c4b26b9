//! A stream tells everything once, wherever it is taken up again.

use std::sync::Arc;

use axum::http::StatusCode;
use engine::{MemoryStore, SessionLimits};
use serde_json::json;
use testkit::server::{Keep, Server, Setup, run};

use crate::rest::door::{Door, Frame, dense, within};

#[tokio::test]
async fn a_stream_has_its_headers_and_numbers_what_it_tells() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        std::fs::write(server.workspace().join("a.txt"), "a line\n").unwrap();
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("connection", "keep-alive"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(stream.headers[name], value);
        }
        door.say(&id, "read a.txt").await;
        let frames = stream.until("result").await;
        dense(&frames, 1);
        let kinds: Vec<&str> = frames.iter().map(Frame::kind).collect();
        for kind in
            ["stream_start", "user_message", "tool_use", "tool_result", "assistant_chunk", "assistant"]
        {
            assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
        }
        let tool = frames.iter().find(|frame| frame.kind() == "tool_use").unwrap();
        for field in ["message_id", "type", "data", "turn", "timestamp"] {
            assert!(tool.data.get(field).is_some(), "{field}");
        }
        let last = &frames.last().unwrap().data;
        for field in ["message_id", "output", "steps", "cost", "success", "cancelled"] {
            assert!(last.get(field).is_some(), "{field}");
        }
        drop(stream);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_a_failed_turn_says_stands_in_the_stream() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        let message = door.say(&id, "fail").await;
        let error = stream.until("error").await.pop().unwrap();
        assert_eq!(
            (&error.data["message_id"], &error.data["exception"]),
            (&json!(message), &json!("AgentError"))
        );
        assert!(!error.data["error"].as_str().unwrap().is_empty());
        let result = stream.until("result").await.pop().unwrap();
        assert_eq!((&result.data["success"], &result.data["cancelled"]), (&json!(false), &json!(false)));
        drop(stream);
        door.close().await;
    })
    .await;
}

/// The numbers that a client is told of an idle session's past, and the number of what comes next.
async fn told_to(door: &Door, id: &str, query: &str, last: Option<&str>) -> (Vec<u64>, u64) {
    let ask = door.get(format!("/session/{id}/events{query}"));
    let ask = if let Some(last) = last { ask.header("last-event-id", last) } else { ask };
    let mut stream = ask.stream().await;
    // Something live ends what is told of the past.
    let renamed = door.send("PATCH", format!("/sessions/{id}"), json!({ "title": "live" })).answer().await;
    renamed.is(StatusCode::OK);
    let mut numbers = Vec::new();
    loop {
        let frame = stream.next().await.unwrap();
        let number = frame.id.unwrap();
        if frame.data["data"]["title"] == "live" {
            return (numbers, number);
        }
        numbers.push(number);
    }
}

#[tokio::test]
async fn a_client_that_comes_back_is_told_the_rest() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        for (query, last, from) in [
            ("", None, Some(1)),
            ("", Some("0"), Some(1)),
            ("", Some("5"), Some(6)),
            ("", Some(" 5 "), Some(6)),
            ("", Some("garbage"), Some(1)),
            ("", Some("-1"), Some(1)),
            ("", Some("5.5"), Some(1)),
            ("", Some(""), Some(1)),
            ("", Some("1000000"), None),
            ("", Some("99999999999999999999999999"), None),
            ("?from=live", None, None),
            ("?from=start", None, Some(1)),
            // A browser that comes back repeats the address and adds what it has.
            ("?from=live", Some("5"), Some(6)),
        ] {
            let id = door.session().await;
            door.say(&id, "stream 4 10").await;
            server.idle(&id).await;
            let (numbers, live) = told_to(&door, &id, query, last).await;
            let all: Vec<u64> = from.map(|from| (from..live).collect()).unwrap_or_default();
            assert_eq!(numbers, all, "{query} {last:?}");
            assert!(live > 8, "{query} {last:?}");
            door.delete(format!("/session/{id}")).answer().await.is(StatusCode::NO_CONTENT);
        }
        door.close().await;
    })
    .await;
}

async fn whole(door: &Door, id: &str, query: &str) -> Vec<Frame> {
    let mut stream = door.get(format!("/session/{id}/events{query}")).stream().await;
    let mut frames = stream.until("result").await;
    while frames.iter().filter(|frame| frame.event == "result").count() < 3 {
        frames.extend(stream.until("result").await);
    }
    frames
}

#[tokio::test]
async fn a_number_leads_to_the_same_place_after_a_restart_and_from_everywhere() {
    run(Setup::offline().on_disk(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        for text in ["stream 5 10", "list", "stream 7 3"] {
            door.say(&id, text).await;
        }
        let first = whole(&door, &id, "").await;
        dense(&first, 1);
        server.idle(&id).await;
        door.close().await;
        server.restart().await;
        let door = Door::open(server);
        assert_eq!(whole(&door, &id, "").await, first);
        // In the middle of turns and between them, also when places are known already.
        for cut in 1..first.len() as u64 {
            let ask = door.get(format!("/session/{id}/events")).header("last-event-id", cut.to_string());
            let next = ask.stream().await.next().await.unwrap();
            assert_eq!(next, first[usize::try_from(cut).unwrap()], "after {cut}");
        }
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_outlasts_that_its_session_leaves_memory() {
    let limits = SessionLimits { sessions_max: 1, ..SessionLimits::default() };
    run(Setup { limits, ..Setup::offline() }, async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        door.say(&id, "stream 1").await;
        let before = stream.until("result").await;
        server.idle(&id).await;
        // There is a place for one, and the next one takes it.
        let other = door.session().await;
        assert_eq!(door.get(format!("/session/{other}")).answer().await.status, StatusCode::OK);
        door.say(&id, "stream 2").await;
        let after = stream.until("result").await;
        dense(&[before, after].concat(), 1);
        server.idle(&id).await;
        drop(stream);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_deleted_session_ends_its_streams_in_memory_or_not() {
    let limits = SessionLimits { sessions_max: 1, ..SessionLimits::default() };
    run(Setup { limits, ..Setup::offline() }, async |server| {
        let door = Door::open(server);
        let (first, second);
        {
            first = door.session().await;
            let stream = door.get(format!("/session/{first}/events")).stream().await;
            second = door.session().await;
            // The first one is not in memory.
            door.delete(format!("/session/{first}")).answer().await.is(StatusCode::NO_CONTENT);
            let end = stream.all().await.pop().unwrap();
            assert_eq!((end.id, end.event.as_str(), &end.data["session_id"]), (None, "end", &json!(first)));
        }
        let stream = door.get(format!("/session/{second}/events")).stream().await;
        door.say(&second, "sleep 600000").await;
        door.delete(format!("/session/{second}")).answer().await.is(StatusCode::NO_CONTENT);
        let told = stream.all().await;
        let ends: Vec<&str> = told.iter().rev().take(2).map(|frame| frame.event.as_str()).collect();
        assert_eq!(ends, ["end", "result"], "the running turn is cancelled first");
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_documented_form_tells_steps_and_ends_when_nothing_is_left_to_do() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let made = door.post("/sessions", json!({ "prompt": "list" })).answer().await.is(StatusCode::CREATED);
        assert_eq!(made["status"], "running");
        let id = made["session_id"].as_str().unwrap();
        let told = door.get(format!("/sessions/{id}/events")).stream().await.all().await;
        let kinds: Vec<&str> = told.iter().map(|frame| frame.event.as_str()).collect();
        for kind in [
            "turn_start",
            "user_message",
            "step_start",
            "text_delta",
            "tool_call",
            "tool_result",
            "step_end",
            "turn_end",
        ] {
            assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
        }
        let starts = kinds.iter().filter(|kind| **kind == "step_start").count();
        assert_eq!(starts, kinds.iter().filter(|kind| **kind == "step_end").count());
        let end = told.last().unwrap();
        assert_eq!((end.event.as_str(), &end.data), ("end", &json!({ "session_id": id, "success": true })));
        let result = told.iter().find(|frame| frame.event == "agent_result").unwrap();
        for field in ["id", "type", "metadata", "ts"] {
            assert!(result.data.get(field).is_some(), "{field}");
        }
        assert_eq!(result.data["id"], json!(format!("evt-{}", result.id.unwrap())));
        // The same words on the other path, and the other words on this one.
        let same = door.get(format!("/session/{id}/events?format=text_delta")).stream().await.all().await;
        assert_eq!(same, told);
        let mut other = door.get(format!("/sessions/{id}/events?format=loop_event")).stream().await;
        other.until("result").await;
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_documented_form_says_how_it_ended_and_follows_if_it_is_asked_to() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let events = |query: &str| door.get(format!("/sessions/{id}/events{query}"));
        let mut follows = events("?follow=1").stream().await;
        let stream = events("").stream().await;
        door.say(&id, "sleep 600000").await;
        door.post(format!("/session/{id}/cancel"), json!({})).answer().await.is(StatusCode::NO_CONTENT);
        let told = stream.all().await;
        assert!(told.iter().any(|frame| frame.event == "cancelled"));
        assert_eq!(told.last().unwrap().data["success"], false);
        let stream = events("?from=live").stream().await;
        door.say(&id, "fail").await;
        let told = stream.all().await;
        assert!(told.iter().any(|frame| frame.event == "error"));
        follows.until("cancelled").await;
        follows.until("error").await;
        drop(follows);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_was_cleared_is_not_told_again() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        door.say(&id, "list").await;
        let first = stream.until("result").await;
        let invoked = door.post("/commands/clear/invoke", json!({ "session_id": id })).answer().await;
        invoked.is(StatusCode::ACCEPTED);
        let mut all = first.clone();
        all.extend(stream.until("result").await);
        dense(&all, 1);
        server.idle(&id).await;
        let again = door.get(format!("/session/{id}/events")).stream().await.until("result").await;
        assert!(again[0].id.unwrap() > first.last().unwrap().id.unwrap());
        assert!(all.ends_with(&again), "and what is told has the same numbers");
        drop(stream);
        door.close().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_kept_alive() {
    let setup = Setup { keep: Keep::Memory(Arc::new(MemoryStore::default())), ..Setup::offline() };
    let server = Server::start(setup);
    let door = Door::open(&server);
    let id = door.session().await;
    let mut stream = door.get(format!("/session/{id}/events?from=live")).stream().await;
    for _ in 0..3 {
        let before = tokio::time::Instant::now();
        assert_eq!(within(stream.piece()).await.unwrap(), ": keep-alive");
        assert_eq!(before.elapsed().as_secs(), 15);
    }
    drop(stream);
    door.close().await;
    server.stop().await;
}

#[tokio::test]
async fn edits_output_and_refusals_are_told_as_they_happen() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let outside = server.folder("outside").join("x.txt");
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        door.say(&id, "write a.txt: one\n\nrun echo from the shell").await;
        let frames = stream.until("result").await;
        let system = |name: &str| frames.iter().find(|frame| frame.data["data"]["subtype"] == name);
        let edit = system("file_edit").unwrap();
        assert_eq!(edit.data["data"]["path"], json!(server.workspace().join("a.txt")));
        assert!(edit.data["data"]["diff"].as_str().unwrap().contains("+one\n"));
        assert!(system("usage").is_some());
        let at = |kind: &str| frames.iter().position(|frame| frame.kind() == kind);
        let output = frames.iter().find(|frame| frame.kind() == "tool_progress").unwrap();
        assert_eq!((output.text(), &output.data["data"]["stream"]), ("from the shell\n", &json!("stdout")));
        assert!(at("tool_use") < at("tool_progress"));
        door.say(&id, &format!("write {}: no", outside.display())).await;
        let frames = stream.until("result").await;
        let refused =
            frames.iter().find(|frame| frame.data["data"]["subtype"] == "sandbox_violation").unwrap();
        assert!(!refused.data["data"]["reason"].as_str().unwrap().is_empty());
        assert!(!outside.exists());
        drop(stream);
        door.close().await;
    })
    .await;
}
