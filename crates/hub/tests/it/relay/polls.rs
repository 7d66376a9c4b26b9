//! Bridges without WebSockets.

use serde_json::{Value, json};

use crate::relay::test_cluster::{Node, TestCluster, events, view};

async fn open(node: &Node, path: &str, person: &str) -> String {
    let (status, body) =
        node.http("POST", &format!("/api/tunnel/{path}/open"), &format!("of-{person}"), None).await;
    assert_eq!(status, 200, "{body}");
    body["connection"].as_str().unwrap().to_owned()
}

/// Everything that is said until something is.
async fn down(node: &Node, path: &str, connection: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let path = format!("/api/tunnel/{path}/down?connection={connection}&wait=20");
        let (status, frames) = node.http("GET", &path, "of-ops", None).await;
        assert_eq!(status, 200, "{frames}");
        if let Some(found) = frames.as_array().unwrap().iter().find(|frame| wanted(frame)) {
            return found.clone();
        }
    }
}

#[tokio::test]
async fn a_session_is_mirrored_and_a_machine_called_by_polling() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", Some("box")).await;
    let session = open(&node, "s1", "ops").await;
    let machine = open(&node, "machine/box", "ops").await;
    let ready = down(&node, "s1", &session, |frame| frame.get("ready").is_some()).await;
    assert_eq!(ready["ready"]["events"], 0);
    let up = |path: &str, connection: &str| format!("/api/tunnel/{path}/up?connection={connection}");
    let batches = json!([events(0, 1..=3), view("s1", None, 3)]);
    let (status, said) = node.http("POST", &up("s1", &session), "of-ops", Some(batches)).await;
    assert_eq!(status, 200);
    if !said.as_array().unwrap().iter().any(|frame| frame["ack"]["view"] == 3) {
        down(&node, "s1", &session, |frame| frame["ack"]["view"] == 3).await;
    }
    let name = json!([{ "machine": { "id": "box", "name": "box", "version": "1", "sealed": false } }]);
    assert_eq!(node.http("POST", &up("machine/box", &machine), "of-ops", Some(name)).await.0, 200);
    let mut browser = node.browser("who=ops").await;
    browser.until(|frame| frame["on"] == "machines" && frame["machines"][0]["here"] == true).await;
    browser.say(json!({ "id": 5, "do": "changes", "session": "s1" })).await;
    let call = down(&node, "machine/box", &machine, |frame| frame.get("call").is_some()).await;
    let answer =
        json!([{ "answer": { "call": call["call"]["call"], "body": { "re": 5, "ok": { "is": "done" } } } }]);
    node.http("POST", &up("machine/box", &machine), "of-ops", Some(answer)).await;
    assert_eq!(browser.until(|frame| frame["re"] == 5).await["ok"]["is"], "done");
    let close = format!("/api/tunnel/machine/box?connection={machine}");
    assert_eq!(node.http("DELETE", &close, "of-ops", None).await.0, 204);
    browser.until(|frame| frame["on"] == "machines" && frame["machines"][0]["here"] == false).await;
}

#[tokio::test]
async fn a_connection_opens_nothing_to_anybody_else_and_says_why_it_was_closed() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    node.register("ops", "s2", None).await;
    let connection = open(&node, "s1", "ops").await;
    let asked = |path: &str| format!("/api/tunnel/{path}/down?connection={connection}&wait=1");
    assert_eq!(node.http("GET", &asked("s1"), "of-dev", None).await.0, 410);
    assert_eq!(node.http("GET", &asked("s2"), "of-ops", None).await.0, 410);
    assert_eq!(node.http("POST", "/api/tunnel/s1/open", "of-dev", None).await.0, 404);
    down(&node, "s1", &connection, |frame| frame.get("ready").is_some()).await;
    let up = format!("/api/tunnel/s1/up?connection={connection}");
    assert_eq!(node.http("POST", &up, "of-ops", Some(json!({ "not": "an array" }))).await.0, 400);
    node.http("POST", &up, "of-ops", Some(json!([{ "batch": { "after": 1 } }, { "odd": 1 }]))).await;
    let (status, closed) = node.http("GET", &asked("s1"), "of-ops", None).await;
    assert_eq!((status, closed["error"].as_str()), (410, Some("closed")), "{closed}");
}

/// A hostile bridge without a socket: what is too large is not even read, and what are no frames are taken from nobody.
#[tokio::test]
async fn a_body_that_is_too_large_or_no_frames_is_refused_and_the_next_one_is_taken() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let connection = open(&node, "s1", "ops").await;
    down(&node, "s1", &connection, |frame| frame.get("ready").is_some()).await;
    let up = format!("/api/tunnel/s1/up?connection={connection}");
    let sent = async |length: usize, body: &str| {
        let head = format!("POST {up} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer of-ops", node.address);
        let kind = "Content-Type: application/json\r\nConnection: close";
        node.raw(&format!("{head}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}")).await
    };
    assert_eq!(sent(wire::tunnel::TUNNEL_FRAME_BYTES_MAX + 1, "").await.0, 413);
    for nonsense in ["", "x", "7", "\"batch\"", "{\"batch\":{}}", "[1", &"[".repeat(100_000)] {
        let (status, said) = sent(nonsense.len(), nonsense).await;
        assert_eq!(status, 400, "{}", &nonsense[..nonsense.len().min(20)]);
        assert!(!wire::json_errors::names_internals(&said), "{said}");
    }
    let (status, said) = node.http("POST", &up, "of-ops", Some(json!([events(0, 1..=1)]))).await;
    assert_eq!(status, 200, "{said}");
    if !said.as_array().unwrap().iter().any(|frame| frame["ack"]["events"] == 1) {
        down(&node, "s1", &connection, |frame| frame["ack"]["events"] == 1).await;
    }
}

#[tokio::test]
async fn who_finds_no_place_for_a_poll_cuts_nobody_off() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    // All places of one person.
    while node.http("POST", "/api/tunnel/machine/box/open", "of-ops", None).await.0 == 200 {}
    let (status, refused) = node.http("POST", "/api/tunnel/s1/open", "of-ops", None).await;
    assert_eq!((status, refused["error"].as_str()), (429, Some("too_many_connections")), "{refused}");
    bridge.say(events(0, 1..=2)).await;
    bridge.acked(2).await;
    node.register("dev", "d1", None).await;
    open(&node, "d1", "dev").await;
}
