//! Mirrors: batches are stored once, wherever a bridge continues, and shown to browsers that watch.

use serde_json::{Value, json};

use crate::relay::test_cluster::{Socket, TestCluster, events, view};

async fn watch(browser: &mut Socket, id: u64, session: &str, after: Option<u64>) {
    let answer = browser.ask(json!({ "id": id, "do": "watch", "session": session, "after": after })).await;
    assert_eq!(answer["ok"]["is"], "done", "{answer}");
}

async fn views(browser: &mut Socket, count: usize) -> Vec<u64> {
    let mut upto = Vec::new();
    for _ in 0..count {
        upto.push(browser.told("view").await["upto"].as_u64().unwrap());
    }
    upto
}

#[tokio::test]
async fn a_bridge_goes_on_wherever_it_was_cut_and_nothing_is_kept_twice() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    assert_eq!(node.register("ops", "s1", None).await.0, 200);
    for cut in 1..=5u64 {
        let mut bridge = node.bridge("ops", "s1").await;
        let (head, _) = bridge.ready().await;
        assert_eq!(head, (cut - 1) * 3);
        // Some of it was sent before and is sent again.
        let again = head.saturating_sub(2);
        bridge.say(events(again, again + 1..=head + 3)).await;
        bridge.acked(head + 3).await;
        bridge.say(events(head, head + 1..=head + 3)).await;
        bridge.say(events(head + 3, head + 4..=head + 3)).await;
    }
    let mut bridge = node.bridge("ops", "s1").await;
    assert_eq!(bridge.ready().await, (15, None));
    let read = store::sql::log::read("s1", 0, 100);
    let found = store::sql::Db::run(cluster.db.as_ref(), vec![read], Vec::new()).await.unwrap();
    let seqs: Vec<u64> = found[0].rows.iter().map(|row| row.count(0).unwrap()).collect();
    assert_eq!(seqs, (1..=15).collect::<Vec<_>>());
    let body: Value = serde_json::from_str(&found[0].rows[6].text(1).unwrap()).unwrap();
    assert_eq!(body, json!({ "seq": 7, "text": "x" }), "as it came");
}

#[tokio::test]
async fn a_gap_closes_the_socket_and_the_bridge_learns_where_to_go_on() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    bridge.say(events(0, 1..=2)).await;
    bridge.acked(2).await;
    bridge.say(events(5, 6..=7)).await;
    let (code, reason) = bridge.closed().await;
    assert_eq!(code, 1012);
    assert!(reason.contains("ends at 2"), "{reason}");
    assert_eq!(node.bridge("ops", "s1").await.ready().await.0, 2);
}

#[tokio::test]
async fn who_takes_a_session_over_fences_off_who_had_it() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    one.register("ops", "s1", None).await;
    let mut old = one.bridge("ops", "s1").await;
    old.ready().await;
    let mut new = other.bridge("ops", "s1").await;
    new.ready().await;
    new.say(events(0, 1..=1)).await;
    new.acked(1).await;
    old.say(events(0, 1..=3)).await;
    assert_eq!(old.closed().await.0, 1012);
    assert_eq!(one.bridge("ops", "s1").await.ready().await.0, 1);
}

#[tokio::test]
async fn who_looks_gets_a_whole_view_and_then_what_changes_at_every_node() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    one.register("ops", "s1", None).await;
    let mut bridge = one.bridge("ops", "s1").await;
    assert_eq!(bridge.ready().await, (0, None));
    bridge.say(view("s1", None, 4)).await;
    bridge.say(view("s1", Some(4), 6)).await;
    bridge.until(|frame| frame["ack"]["view"] == 6).await;
    for node in [&one, &other] {
        let mut browser = node.browser("who=ops").await;
        watch(&mut browser, 1, "s1", None).await;
        assert_eq!(views(&mut browser, 2).await, [4, 6]);
        let watched = bridge.until(|frame| frame.get("watched").is_some()).await;
        assert_eq!(watched["watched"], json!({ "watched": true, "anew": false }));
        bridge.say(view("s1", Some(6), 6)).await;
        bridge.until(|frame| frame["ack"]["view"] == 6).await;
        assert_eq!(views(&mut browser, 1).await, [6]);
        drop(browser);
        let left = bridge.until(|frame| frame.get("watched").is_some()).await;
        assert_eq!(left["watched"]["watched"], false);
        let mut again = node.browser("who=ops").await;
        watch(&mut again, 1, "s1", Some(4)).await;
        assert_eq!(again.told("view").await["upto"], 6, "what follows what it had");
        watch(&mut again, 2, "s1", Some(99)).await;
        assert_eq!(again.until(|frame| frame["reset"] == true).await["upto"], 4);
        drop(again);
        // The next node is looked from only when nobody looks here any more.
        bridge.until(|frame| frame["watched"]["watched"] == true).await;
        bridge.until(|frame| frame["watched"]["watched"] == false).await;
    }
}

#[tokio::test]
async fn a_view_that_stands_for_itself_is_asked_for_when_the_others_grow_too_large_or_do_not_fit() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    bridge.say(view("s1", None, 1)).await;
    bridge.say(view("s1", Some(3), 4)).await;
    bridge.until(|frame| frame["watched"]["anew"] == true).await;
    bridge.say(view("s1", None, 4)).await;
    for upto in 5..=8 {
        let mut large = view("s1", Some(upto - 1), upto);
        large["batch"]["view"]["body"]["rows"] = json!(["x".repeat(200 << 10)]);
        bridge.say(large).await;
    }
    bridge.until(|frame| frame["watched"]["anew"] == true).await;
    drop(bridge);
    // Too much follows the last whole one to go on with it.
    let mut bridge = node.bridge("ops", "s1").await;
    assert_eq!(bridge.ready().await.1, None);
    for upto in [9, 10] {
        bridge.say(view("s1", None, upto)).await;
        bridge.until(|frame| frame["ack"]["view"] == upto).await;
    }
    let count = store::sql::Statement::new("SELECT COUNT(*) FROM views WHERE session = 's1'", []);
    let found = store::sql::Db::run(cluster.db.as_ref(), vec![count], Vec::new()).await.unwrap();
    assert_eq!(found[0].rows[0].count(0).unwrap(), 2, "what the last two whole ones do not need is gone");
}

#[tokio::test]
async fn a_revoked_token_ends_the_sockets_that_it_opened() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    let mut machine = node.machine("ops", "m1").await;
    cluster.accounts.token("ops").cancel();
    assert_eq!(bridge.closed().await.0, 1008);
    assert_eq!(machine.closed().await.0, 1008);
    let token = [("authorization", "Bearer of-ops"), ("sec-websocket-protocol", "ropewalk.tunnel.v1")];
    assert_eq!(node.socket("/ws/s1", &token).await.err(), Some(401));
}

#[tokio::test]
async fn what_was_done_although_it_was_not_said_is_not_done_again() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "s1", None).await;
    let mut bridge = node.bridge("ops", "s1").await;
    bridge.ready().await;
    cluster.db.lose_next_answer.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut batch = events(0, 1..=3);
    batch["batch"]["view"] = view("s1", None, 3)["batch"]["view"].clone();
    bridge.say(batch).await;
    bridge.acked(3).await;
    bridge.say(events(3, 4..=5)).await;
    bridge.acked(5).await;
    let mut browser = node.browser("who=ops").await;
    watch(&mut browser, 1, "s1", None).await;
    assert_eq!(views(&mut browser, 1).await, [3]);
}
