//! The database is unavailable: bridges stay connected, browsers of this node see what happens, nothing is acknowledged,
//! and afterwards everything is stored once.

use serde_json::json;

use crate::relay::test_cluster::{Node, TestCluster, events, view};

/// Waits until the node's metrics contain this line.
async fn counts(node: &Node, line: &str) {
    let numbers = || async {
        node.raw(&format!(
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer numbers\r\nConnection: close\r\n\r\n",
            node.address
        ))
        .await
        .1
    };
    while !numbers().await.contains(line) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn views_are_shown_and_nothing_is_acknowledged_until_the_database_is_back() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", Some("box")).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    bridge.say(view("s1", None, 1)).await;
    bridge.until(|frame| frame["ack"]["view"] == 1).await;
    let mut browser = node.browser("who=ops").await;
    browser.ask(json!({ "id": 1, "do": "watch", "session": "s1", "after": null })).await;
    assert_eq!(browser.told("view").await["upto"], 1);
    cluster.away(true);
    bridge.say(events(0, 1..=2)).await;
    bridge.say(view("s1", Some(1), 2)).await;
    bridge.say(view("s1", Some(2), 3)).await;
    assert_eq!(browser.told("view").await["upto"], 2);
    assert_eq!(browser.told("view").await["upto"], 3);
    let prompt = json!({ "id": 2, "do": "prompt", "session": "s1", "key": "k", "text": "x", "pictures": [] });
    let refused = browser.ask(prompt).await;
    assert_eq!(refused["error"]["code"], "busy");
    assert!(refused["error"]["message"].as_str().unwrap().contains("try again in 1 s"), "{refused}");
    let (status, body) = node.register("ops", "s2", None).await;
    assert_eq!((status, body["error"].as_str()), (503, Some("database_away")));
    assert_eq!(node.http("GET", "/ready", "", None).await.0, 503);
    cluster.away(false);
    let ack = bridge.until(|frame| frame.get("ack").is_some()).await;
    assert_eq!(ack["ack"], json!({ "events": 2, "view": 3 }), "the first word since");
    // What was shown is what is kept.
    bridge.say(view("s1", Some(3), 4)).await;
    assert_eq!(browser.told("view").await["upto"], 4);
    assert_eq!(node.register("ops", "s2", None).await.0, 200);
    assert_eq!(node.http("GET", "/ready", "", None).await.0, 200);
}

#[tokio::test]
async fn what_was_shown_and_never_kept_is_taken_back() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    one.register("ops", "s1", None).await;
    let mut bridge = one.bridge("ops", "s1").await;
    bridge.ready().await;
    bridge.say(view("s1", None, 1)).await;
    bridge.until(|frame| frame["ack"]["view"] == 1).await;
    let mut browser = one.browser("who=ops").await;
    browser.ask(json!({ "id": 1, "do": "watch", "session": "s1", "after": null })).await;
    browser.told("view").await;
    cluster.away(true);
    bridge.say(view("s1", Some(1), 5)).await;
    assert_eq!(browser.told("view").await["upto"], 5);
    drop(bridge);
    // It must be seen to be gone before somebody else goes on.
    counts(&one, "ropewalk_hub_bridges 0").await;
    cluster.away(false);
    let mut bridge = other.bridge("ops", "s1").await;
    assert_eq!(bridge.ready().await.1, Some(1));
    bridge.say(view("s1", Some(1), 3)).await;
    bridge.until(|frame| frame["ack"]["view"] == 3).await;
    let whole = browser.told("view").await;
    assert_eq!((whole["upto"].as_u64(), whole["reset"].as_bool()), (Some(1), Some(true)));
    assert_eq!(browser.told("view").await["upto"], 3);
}

#[tokio::test]
async fn a_line_that_grows_too_long_is_dropped_and_sent_again() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    cluster.away(true);
    // More than fits into the line and all that is before it.
    for seq in 1..=40u64 {
        let mut large = events(seq - 1, seq..=seq);
        large["batch"]["events"][0]["body"]["text"] = "x".repeat(1 << 20).into();
        bridge.say(large).await;
    }
    cluster.away(false);
    let (code, reason) = loop {
        match bridge.next_text().await {
            // Some of it may have been kept before it was too much.
            Ok(_) => {}
            Err(closed) => break closed,
        }
    };
    assert_eq!(code, 1012, "{reason}");
    let mut bridge = node.bridge("ops", "s1").await;
    let (head, _) = bridge.ready().await;
    bridge.say(events(head, head + 1..=45)).await;
    bridge.acked(45).await;
}

#[tokio::test]
async fn who_left_while_the_database_was_away_is_not_here_when_it_is_back() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    one.register("ops", "s1", Some("box")).await;
    let mut bridge = one.bridge("ops", "s1").await;
    bridge.ready().await;
    let machine = one.machine("ops", "box").await;
    cluster.wait_for_machine("box").await;
    let mut browser = other.browser("who=ops").await;
    browser.until(|frame| frame["on"] == "machines" && frame["machines"][0]["here"] == true).await;
    cluster.away(true);
    drop((machine, bridge));
    counts(&one, "ropewalk_hub_machines 0").await;
    counts(&one, "ropewalk_hub_bridges 0").await;
    cluster.away(false);
    browser.until(|frame| frame["on"] == "machines" && frame["machines"][0]["here"] == false).await;
    let left = |card: &serde_json::Value| card["line"] == "its bridge is not connected";
    browser
        .until(|frame| frame["on"] == "cards" && frame["cards"].as_array().unwrap().iter().any(left))
        .await;
}
