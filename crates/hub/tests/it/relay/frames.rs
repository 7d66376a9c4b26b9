//! Bridges that send frames instead of a mirror: the frames are shown unchanged.

use serde_json::json;

use crate::relay::test_cluster::{Node, Socket, TestCluster};

const FRAMES: [&str; 3] = [
    "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"text\":\"a  b\\u0041\"}}",
    "  {\"jsonrpc\": \"2.0\",\n \"method\":\"session/update\"}\n",
    "{\"method\":\"session/update\",\"params\":{\"n\":1.50e1,\"ä\":\"ö\"}}",
];

async fn bridge(node: &Node) -> Socket {
    assert_eq!(node.register("ops", "s1", None).await.0, 200);
    node.socket("/ws/s1", &[("authorization", "Bearer of-ops")]).await.unwrap()
}

async fn looks(node: &Node, cookie: &str, path: &str) -> Socket {
    let origin = format!("http://{}", node.address);
    node.socket(path, &[("cookie", cookie), ("origin", origin.as_str())]).await.unwrap()
}

#[tokio::test]
async fn frames_are_shown_byte_for_byte_before_and_after_and_at_every_node() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let mut bridge = bridge(&one).await;
    let mut early = looks(&one, "who=ops", "/ws/s1").await;
    for frame in FRAMES {
        bridge.say_text(frame).await;
    }
    for frame in FRAMES {
        assert_eq!(early.next_text().await.unwrap(), frame);
    }
    let mut late = looks(&other, "share=s1.viewer", "/ws/s1").await;
    for frame in FRAMES {
        assert_eq!(late.next_text().await.unwrap(), frame);
    }
    let mut behind = looks(&other, "who=ops", "/ws/s1?after=2").await;
    assert_eq!(behind.next_text().await.unwrap(), FRAMES[2]);
}

#[tokio::test]
async fn who_comes_late_sees_the_last_fifty() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let mut bridge = bridge(&node).await;
    let mut early = looks(&node, "who=ops", "/ws/s1").await;
    for number in 1..=60 {
        bridge.say(json!({ "n": number })).await;
    }
    for number in 1..=60 {
        assert_eq!(early.next().await["n"], number);
    }
    let mut late = looks(&node, "who=ops", "/ws/s1").await;
    assert_eq!(late.next().await["n"], 11);
}

#[tokio::test]
async fn what_people_say_goes_back_to_the_bridge_wherever_it_is_if_they_may_say_it() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let mut bridge = bridge(&one).await;
    let message = "{\"jsonrpc\":\"2.0\",  \"id\":1,\"method\":\"session/message\",\"params\":{}}";
    let answer = "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"permission/respond\",\"params\":{}}";
    for node in [&one, &other] {
        let mut owner = looks(node, "who=ops", "/ws/s1").await;
        owner.say_text(message).await;
        assert_eq!(bridge.next_text().await.unwrap(), format!("{message}\n"));
        let mut approver = looks(node, "share=s1.approver", "/ws/s1").await;
        approver.say_text(&format!("{answer}\n")).await;
        assert_eq!(bridge.next_text().await.unwrap(), format!("{answer}\n"));
        approver.say_text(message).await;
        assert_eq!(approver.closed().await.0, 1008);
        let mut viewer = looks(node, "share=s1.viewer", "/ws/s1").await;
        viewer.say_text(answer).await;
        assert_eq!(viewer.closed().await.0, 1008);
    }
}

#[tokio::test]
async fn what_is_no_json_ends_the_bridge_and_nothing_of_it_is_kept() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let mut first = bridge(&node).await;
    first.say_text("{\"a\":1").await;
    assert_eq!(first.closed().await.0, 1008);
    let mut second = bridge(&node).await;
    second.say_text("{\"a\":2}").await;
    let mut browser = looks(&node, "who=ops", "/ws/s1?after=0").await;
    assert_eq!(browser.next_text().await.unwrap(), "{\"a\":2}");
}

#[tokio::test]
async fn frames_wait_for_the_database_and_are_kept_once() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let mut bridge = bridge(&node).await;
    let mut browser = looks(&node, "who=ops", "/ws/s1").await;
    bridge.say_text("{\"a\":1}").await;
    assert_eq!(browser.next_text().await.unwrap(), "{\"a\":1}");
    cluster.away(true);
    bridge.say_text("{\"a\":2}").await;
    bridge.say_text("{\"a\":3}").await;
    cluster.away(false);
    cluster.db.lose_next_answer.store(true, std::sync::atomic::Ordering::Relaxed);
    bridge.say_text("{\"a\":4}").await;
    for number in 2..=4 {
        assert_eq!(browser.next_text().await.unwrap(), format!("{{\"a\":{number}}}"));
    }
}
