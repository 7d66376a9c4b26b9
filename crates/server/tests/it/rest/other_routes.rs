//! Commands, costs, what the server offers, transcripts.

use axum::http::StatusCode;
use engine::Usage;
use serde_json::{Value, json};
use testkit::server::{Setup, run};
use testkit::{Line, Script, call, say};

use crate::rest::door::Door;

#[tokio::test]
async fn a_command_is_listed_and_runs_as_a_message() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let list = door.get("/commands").answer().await.is(StatusCode::OK);
        let commands = list["commands"].as_array().unwrap();
        let names: Vec<&str> = commands.iter().map(|command| command["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"help") && names.is_sorted(), "{names:?}");
        assert!(commands.iter().all(|command| command["args"].is_array() && command["source"] == "built-in"));
        let mut stream = door.get(format!("/session/{id}/events")).stream().await;
        let body = json!({ "session_id": id, "args": ["offline:terse"] });
        let taken = door.post("/commands/model/invoke", body).answer().await.is(StatusCode::ACCEPTED);
        assert_eq!((&taken["name"], &taken["rendered"]), (&json!("model"), &json!("/model offline:terse")));
        let told = stream.until("result").await;
        assert_eq!(told.last().unwrap().data["message_id"], taken["message_id"]);
        assert_eq!(server.handle(&id).await.snapshot().settings.get("model"), "offline:terse");
        let unknown = door.post("/commands/no-such/invoke", json!({ "session_id": id })).answer().await;
        unknown.refused(404, "command_not_found");
        let nowhere = door.post("/commands/help/invoke", json!({ "session_id": "none" })).answer().await;
        nowhere.refused(404, "session_not_found");
        drop(stream);
        door.close().await;
    })
    .await;
}

fn spent(input: u64, output: u64, cost_usd: f64) -> Line {
    Line::Usage(Usage { input, output, cost_usd, cache_read: 1, ..Usage::default() })
}

#[tokio::test]
async fn runs_are_summed_up_by_model_and_by_run() {
    let script = Script::new([
        vec![call("list", "{}"), spent(10, 1, 0.25)],
        vec![say("done"), spent(20, 2, 0.25)],
        vec![say("done"), spent(30, 3, 1.0)],
        vec![Line::Error("no".into())],
    ]);
    run(Setup::script(&script), async |server| {
        let door = Door::open(server);
        let mut ids = Vec::new();
        for (prompt, model) in [("first", "script:one"), ("second", "script:two"), ("third", "script:two")] {
            let body = json!({ "prompt": prompt, "model": model });
            let made = door.post("/sessions", body).answer().await.is(StatusCode::CREATED);
            let id = made["id"].as_str().unwrap().to_owned();
            server.idle(&id).await;
            ids.push(id);
        }
        let runs = door.get("/runs").answer().await.is(StatusCode::OK);
        assert_eq!(runs["total_runs"], 3);
        let first = &runs["runs"][2];
        for (field, value) in [
            ("run_id", json!(ids[0])),
            ("model", json!("script:one")),
            ("prompt", json!("first")),
            ("success", json!(true)),
            ("cost_usd", json!(0.5)),
            ("steps", json!(2)),
            ("tool_calls", json!(1)),
            ("source", json!("http")),
        ] {
            assert_eq!(first[field], value, "{field}");
        }
        assert_eq!(runs["runs"][0]["success"], false);
        let cost = door.get("/runs/cost").answer().await.is(StatusCode::OK);
        assert_eq!(
            (&cost["total_runs"], &cost["total_cost"], &cost["total_tokens"]),
            (&json!(3), &json!(1.5), &json!(66))
        );
        assert_eq!(cost["by_model"]["script:one"], json!({ "runs": 1, "cost_usd": 0.5, "tokens": 33 }));
        assert_eq!(cost["by_model"]["script:two"], json!({ "runs": 2, "cost_usd": 1.0, "tokens": 33 }));
        let totals = &cost["totals"];
        for (field, value) in [
            ("successful_runs", json!(2)),
            ("failed_runs", json!(1)),
            ("cache_tokens", json!(3)),
            ("avg_cost_usd", json!(0.5)),
            ("p50_cost_usd", json!(0.5)),
            ("p95_cost_usd", json!(1.0)),
        ] {
            assert_eq!(totals[field], value, "{field}");
        }
        assert_eq!(cost["by_run"].as_array().unwrap().len(), 3);
        for (query, count) in [
            ("model=ONE", 1),
            ("model=all", 3),
            ("model=none", 0),
            ("limit=2", 2),
            ("limit=0", 3),
            ("since=2000-01-01", 3),
        ] {
            let runs = door.get(format!("/runs?{query}")).answer().await.is(StatusCode::OK);
            assert_eq!(runs["total_runs"], count, "{query}");
        }
        server.clock().advance(std::time::Duration::from_secs(7200));
        let runs = door.get("/runs/cost?since=1h").answer().await.is(StatusCode::OK);
        assert_eq!((&runs["total_runs"], &runs["filters"]["since"]), (&json!(0), &json!("1h")));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_server_says_what_it_offers() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let info = door.get("/info").answer().await.is(StatusCode::OK);
        assert_eq!((&info["version"], &info["model"]), (&json!("1.2.3"), &json!("offline:plain")));
        assert_eq!((&info["provider"], &info["cwd"]), (&json!("offline"), &json!(server.workspace())));
        let tools = door.get("/tools").answer().await.is(StatusCode::OK);
        let names: Vec<&Value> =
            tools["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, info["tools"].as_array().unwrap().iter().collect::<Vec<_>>());
        assert!(!names.is_empty());
        let providers = door.get("/providers").answer().await.is(StatusCode::OK);
        assert_eq!(providers["active"], json!({ "provider": "offline", "model": "offline:plain" }));
        assert_eq!(providers["available"][0]["models"], json!(["offline:plain", "offline:terse"]));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_transcript_is_given_in_three_forms_and_can_do_nothing_in_a_browser() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        door.say(&id, "<script>alert(1)</script>").await;
        server.idle(&id).await;
        for (query, kind) in [
            ("", "text/html; charset=utf-8"),
            ("?format=html", "text/html; charset=utf-8"),
            ("?format=md", "text/markdown; charset=utf-8"),
            ("?format=json", "application/json"),
        ] {
            let answer = door.get(format!("/sessions/{id}/transcript{query}")).answer().await;
            assert_eq!(
                (answer.status, answer.headers["content-type"].to_str().unwrap()),
                (StatusCode::OK, kind)
            );
            assert!(answer.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
            assert_eq!(answer.headers["x-content-type-options"], "nosniff");
            assert!(answer.text.contains("alert(1)"));
            assert!(!kind.contains("html") || !answer.text.contains("<script>"));
        }
        door.get(format!("/sessions/{id}/transcript?format=pdf"))
            .answer()
            .await
            .refused(400, "invalid_query");
        let shared = door
            .post(format!("/sessions/{id}/share"), json!({ "sink": "stdout", "format": "md" }))
            .answer()
            .await;
        let shared = shared.is(StatusCode::OK);
        assert!(shared["body"].as_str().unwrap().contains("alert(1)"));
        for sink in ["http", "file"] {
            let body = json!({ "sink": sink, "url": "http://127.0.0.1:1/", "path": "/tmp/x" });
            door.post(format!("/sessions/{id}/share"), body)
                .answer()
                .await
                .refused(501, "sink_not_supported");
        }
        door.post(format!("/sessions/{id}/share"), json!({ "sink": "mail" }))
            .answer()
            .await
            .refused(400, "bad_sink");
        door.close().await;
    })
    .await;
}

/// D5: what is longer than the beginning of an answer comes as a stream, with everything in it.
#[tokio::test]
async fn a_long_session_is_streamed_whole() {
    run(Setup::offline(), async |server| {
        let wish = engine::NewSessionRequest::new(engine::Principal::local(), server.workspace(), "import");
        let events = testkit::long_log(12_000, None);
        let count = events.len();
        let handle = server.registry().import(wish, None, events).await.unwrap();
        let id = handle.id().to_string();
        drop(handle);
        let door = Door::open(server);
        let answer = door.get(format!("/sessions/{id}/transcript?format=json")).answer().await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.text.len() > 3 << 19 && !answer.headers.contains_key("content-length"));
        let whole: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(whole["events"].as_array().unwrap().len(), count);
        let answer = door.get(format!("/sessions/{id}/messages")).answer().await;
        let messages: Vec<serde_json::Value> = serde_json::from_str(&answer.text).unwrap();
        let one = door.get(format!("/sessions/{id}")).answer().await.is(StatusCode::OK);
        assert_eq!(one["message_count"], messages.len());
        let page = door.get(format!("/sessions/{id}/transcript")).answer().await;
        assert!(page.text.starts_with("<!doctype html>") && page.text.ends_with("</html>\n"));
        door.close().await;
    })
    .await;
}
