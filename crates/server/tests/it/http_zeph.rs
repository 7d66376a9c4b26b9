//! Zeph's transport at its edges: every status that it has, and connections that nobody uses.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use serde_json::{Value, json};
use testkit::http_client::{HttpClient, HttpResponse, SseEvents};
use testkit::server::{Door, Server, Setup, run};
use testkit::{Script, say};

/// No wait of a test is longer.
const DEADLINE: Duration = Duration::from_secs(60);
/// Connections at once.
const CONNECTIONS_MAX: usize = 64;

fn request(id: usize, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A new connection.
async fn open(door: &Door) -> HttpResponse {
    let web = door.web().with("accept", "text/event-stream");
    web.post("/acp", &request(1, "initialize", &json!({ "protocolVersion": 1 }))).await
}

/// A client with a connection, and its id.
async fn connect(door: &Door) -> HttpClient {
    let reply = open(door).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.header("acp-session-id").unwrap();
    assert_eq!(id.parse::<uuid::Uuid>().unwrap().hyphenated().to_string(), id);
    door.web().with("acp-session-id", id)
}

#[track_caller]
fn refused(reply: &HttpResponse, status: u16, code: &str) {
    assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(code)), "{}", reply.text());
}

/// K3: 400 and 404.
#[tokio::test]
async fn an_id_that_is_no_uuid_is_400_and_one_that_nobody_has_is_404() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let list = request(2, "session/list", &json!({}));
        for (id, status, code) in [
            ("nonsense", 400, "bad_connection"),
            ("6b1f5c8e-3c5f-4a49-9a2b-000000000000", 404, "unknown_connection"),
        ] {
            let web = door.web().with("acp-session-id", id).with("accept", "text/event-stream");
            refused(&web.post("/acp", &list).await, status, code);
            refused(&web.get("/acp").await, status, code);
            refused(&web.delete("/acp").await, status, code);
        }
        door.close().await;
    })
    .await;
}

/// K3: 503 while as many connections are read as there may be. One that nobody reads makes room.
#[tokio::test]
async fn more_connections_than_there_may_be_are_503() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut streams: Vec<SseEvents> = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            streams.push(connect(&door).await.events("/acp").await);
        }
        refused(&open(&door).await, 503, "too_many_connections");
        assert_eq!(door.doors.zeph_connections.count(), CONNECTIONS_MAX);
        streams.pop();
        let began = tokio::time::Instant::now();
        while open(&door).await.status != 200 {
            assert!(began.elapsed() < DEADLINE, "a connection that nobody reads makes no room");
        }
        drop(streams);
        door.close().await;
    })
    .await;
}

/// K3: 500 when a connection takes no more, because its client reads nothing of what it asked for.
#[tokio::test]
async fn a_connection_that_takes_no_more_is_500() {
    let long = "x".repeat(1 << 20);
    run(Setup::script(&Script::new([vec![say(&long)]])), async |server| {
        let door = server.door(0).await;
        let web = connect(&door).await;
        let session = prompted(server, &web).await;
        let get = |id| request(id, "_session/get", &json!({ "session_id": session }));
        let mut unread = Vec::new();
        tokio::time::pause();
        for batch in 0..100 {
            let calls: Vec<Value> = (0..64).map(|call| get(100 + batch * 64 + call)).collect();
            let answer = web.begin("POST", "/acp", Some(json!(calls).to_string().as_bytes())).await;
            if answer.status != 200 {
                assert_eq!(answer.status, 500);
                tokio::time::resume();
                drop((answer, unread));
                door.close().await;
                return;
            }
            unread.push(answer);
        }
        panic!("it takes whatever comes");
    })
    .await;
}

async fn prompted(server: &Server, web: &HttpClient) -> String {
    let new = request(2, "session/new", &json!({ "cwd": server.workspace(), "mcpServers": [] }));
    let new = last_event(&web.post("/acp", &new).await);
    let session = new["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
    let ended = last_event(&web.post("/acp", &request(3, "session/prompt", &prompt)).await);
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    session
}

/// The answer, which ends the stream.
fn last_event(reply: &HttpResponse) -> Value {
    let text = reply.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    serde_json::from_str(data.unwrap()).unwrap()
}

/// K7: looked at every minute, given up after half an hour without use; not while somebody reads.
#[tokio::test]
async fn an_idle_connection_is_given_up_by_itself_and_one_that_is_read_is_not() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let (idle, read) = (connect(&door).await, connect(&door).await);
        let stream = read.events("/acp").await;
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(1790)).await;
        assert_eq!(door.doors.zeph_connections.count(), 2, "half an hour is not over");
        tokio::time::sleep(Duration::from_secs(71)).await;
        assert_eq!(door.doors.zeph_connections.count(), 1, "nobody asked for anything, and it is gone");
        tokio::time::resume();
        let list = request(9, "session/list", &json!({}));
        refused(&idle.post("/acp", &list).await, 404, "unknown_connection");
        assert_eq!(read.post("/acp", &list).await.status, 200);
        drop(stream);
        door.close().await;
    })
    .await;
}
