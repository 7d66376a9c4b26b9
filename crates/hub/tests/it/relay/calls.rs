//! Requests that are forwarded to a machine, and their answers.

use std::time::Duration;

use serde_json::{Value, json};

use crate::relay::test_cluster::{Node, Socket, TestCluster, view};

async fn set_up(node: &Node) -> (Socket, Socket) {
    node.register("ops", "a1", Some("box")).await;
    let mut bridge = node.bridge("ops", "a1").await;
    bridge.ready().await;
    bridge.say(view("a1", None, 1)).await;
    bridge.until(|frame| frame["ack"]["view"] == 1).await;
    (bridge, node.machine("ops", "box").await)
}

/// Waits until the hub sees the machine.
async fn here(browser: &mut Socket) {
    browser.until(|frame| frame["on"] == "machines" && frame["machines"][0]["here"] == true).await;
}

async fn answer(machine: &mut Socket, body: impl Fn(&Value) -> Value) -> Value {
    let call = machine.until(|frame| frame.get("call").is_some()).await["call"].clone();
    machine.say(json!({ "answer": { "call": call["call"], "body": body(&call) } })).await;
    call
}

fn prompt(id: u64) -> Value {
    json!({ "id": id, "do": "prompt", "session": "a1", "key": "k", "text": "hi", "pictures": [] })
}

#[tokio::test]
async fn a_request_goes_to_the_machine_with_who_asks_and_its_answer_comes_back() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let (_bridge, mut machine) = set_up(&one).await;
    // At the machine's own node, and at another one, by mail.
    for node in [&one, &other] {
        let mut browser = node.browser("who=ops").await;
        here(&mut browser).await;
        browser.say(prompt(41)).await;
        let taken = json!({ "re": 999, "ok": { "is": "taken", "turn": 3 } });
        let call = answer(&mut machine, |_| taken.clone()).await;
        assert_eq!(call["by"], json!({ "id": "ops", "name": "ops", "role": "owner" }));
        assert_eq!(call["body"], prompt(41));
        let reply = browser.until(|frame| frame.get("re").is_some()).await;
        assert_eq!(
            reply,
            json!({ "re": 41, "ok": { "is": "taken", "turn": 3 } }),
            "it answers what was asked"
        );
        browser.say(prompt(42)).await;
        answer(&mut machine, |_| json!({ "re": 42, "error": { "code": "busy", "message": "later" } })).await;
        let reply = browser.until(|frame| frame["re"] == 42).await;
        assert_eq!(reply["error"]["message"], "later");
        browser.say(json!({ "id": 43, "do": "at", "machine": "box", "request": { "do": "rules" } })).await;
        let call = answer(&mut machine, |_| json!({ "re": 43, "ok": { "is": "rules", "rules": [] } })).await;
        assert_eq!(call["body"], json!({ "id": 43, "do": "rules" }));
        assert_eq!(browser.until(|frame| frame["re"] == 43).await["ok"]["is"], "rules");
    }
    // Recorded when there is time.
    let calls = loop {
        let mut noted = hub::audit::read(cluster.db.as_ref(), 100).await.unwrap();
        noted.retain(|line| line.what == "call.relayed");
        if noted.len() == 6 {
            break noted;
        }
    };
    assert_eq!(calls[0].about.as_deref(), Some("prompt a1"));
    assert_eq!(calls[0].person.as_deref(), Some("ops"));
}

#[tokio::test]
async fn a_guest_asks_with_the_role_of_the_link() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let (_bridge, mut machine) = set_up(&node).await;
    let mut visitor = node.browser("share=a1.approver").await;
    here(&mut visitor).await;
    visitor.say(json!({ "id": 1, "do": "answer", "session": "a1", "ask": 1, "decision": "allowOnce", "text": null })).await;
    let call = answer(&mut machine, |_| json!({ "re": 1, "ok": { "is": "done" } })).await;
    assert_eq!(call["by"]["role"], "approver");
    assert_eq!(call["by"]["id"], "share.link.share=a1.approver");
    assert_eq!(visitor.until(|frame| frame["re"] == 1).await["ok"]["is"], "done");
    // Recorded when there is time.
    let noted = async {
        loop {
            let lines = hub::audit::read(cluster.db.as_ref(), 100).await.unwrap();
            if let Some(line) = lines.into_iter().find(|line| line.what == "call.relayed") {
                return line;
            }
        }
    };
    let noted = tokio::time::timeout(crate::relay::test_cluster::DEADLINE, noted)
        .await
        .expect("a line of the record");
    assert_eq!((noted.person, noted.about.as_deref()), (None, Some("answer a1 by share link")));
    let lines = hub::audit::read(cluster.db.as_ref(), 100).await.unwrap();
    assert!(lines.iter().all(|line| !line.what.contains(' ')), "one vocabulary: {lines:?}");
}

#[tokio::test]
async fn who_drives_by_a_link_does_not_delete_the_session() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let (_bridge, mut machine) = set_up(&node).await;
    let mut visitor = node.browser("share=a1.driver").await;
    here(&mut visitor).await;
    let delete = json!({ "id": 1, "do": "delete", "session": "a1" });
    assert_eq!(visitor.ask(delete.clone()).await["error"]["code"], "forbidden");
    let mut owner = node.browser("who=ops").await;
    here(&mut owner).await;
    owner.say(delete).await;
    let call = answer(&mut machine, |_| json!({ "re": 1, "ok": { "is": "done" } })).await;
    assert_eq!(call["by"]["id"], "ops", "the first that it hears of it");
    assert_eq!(owner.until(|frame| frame["re"] == 1).await["ok"]["is"], "done");
}

#[tokio::test]
async fn requests_leave_in_the_order_they_were_made_and_need_not_wait_for_each_other() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let (_bridge, mut machine) = set_up(&one).await;
    for node in [&one, &other] {
        let mut browser = node.browser("who=ops").await;
        here(&mut browser).await;
        for id in 1..=20 {
            browser.say(prompt(id)).await;
        }
        let mut calls = Vec::new();
        for _ in 0..20 {
            calls.push(machine.until(|frame| frame.get("call").is_some()).await["call"].clone());
        }
        let ids: Vec<_> = calls.iter().map(|call| call["body"]["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, (1..=20).collect::<Vec<_>>());
        for call in calls.iter().rev() {
            let body = json!({ "re": 0, "ok": { "is": "done" } });
            machine.say(json!({ "answer": { "call": call["call"], "body": body } })).await;
        }
        for id in 1..=20 {
            browser.until(|frame| frame["re"] == id).await;
        }
    }
}

#[tokio::test]
async fn a_machine_that_is_away_is_said_to_be_and_since_when() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let (_bridge, machine) = set_up(&node).await;
    let mut browser = node.browser("who=ops").await;
    here(&mut browser).await;
    drop(machine);
    browser.until(|frame| frame["on"] == "machines" && frame["machines"][0]["here"] == false).await;
    cluster.later(Duration::from_secs(180));
    let reply = browser.ask(prompt(1)).await;
    assert_eq!(reply["error"]["code"], "busy");
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.contains("offline for 3 min"), "{message}");
    let mut stranger = node.browser("who=dev").await;
    let reply =
        stranger.ask(json!({ "id": 1, "do": "at", "machine": "box", "request": { "do": "rules" } })).await;
    assert_eq!(reply["error"]["code"], "notFound");
}

#[tokio::test]
async fn a_machine_that_goes_in_the_middle_of_a_call_leaves_nobody_waiting() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    for node in [&one, &other] {
        let (_bridge, mut machine) = set_up(&one).await;
        let mut browser = node.browser("who=ops").await;
        here(&mut browser).await;
        browser.say(prompt(1)).await;
        machine.until(|frame| frame.get("call").is_some()).await;
        drop(machine);
        let reply = browser.until(|frame| frame["re"] == 1).await;
        assert_eq!(reply["error"]["code"], "busy");
    }
}

#[tokio::test]
async fn a_dead_nodes_machine_is_away() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let (_bridge, _machine) = set_up(&one).await;
    let mut browser = other.browser("who=ops").await;
    here(&mut browser).await;
    // A node of which nothing was heard for long has the socket.
    let work = vec![
        store::sql::Statement::new("INSERT INTO nodes (id, seen_at) VALUES ('dead', 999000000)", []),
        store::sql::Statement::new("UPDATE machines SET node = 'dead'", []),
    ];
    store::sql::Db::run(cluster.db.as_ref(), work, Vec::new()).await.unwrap();
    let reply = browser.ask(prompt(1)).await;
    assert_eq!(reply["error"]["code"], "busy", "{reply}");
}

#[tokio::test]
async fn who_waits_for_a_node_that_dies_is_told_soon() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let (_bridge, mut machine) = set_up(&one).await;
    let mut browser = other.browser("who=ops").await;
    here(&mut browser).await;
    browser.say(prompt(1)).await;
    machine.until(|frame| frame.get("call").is_some()).await;
    let work = vec![store::sql::Statement::new("UPDATE machines SET node = 'dead'", [])];
    store::sql::Db::run(cluster.db.as_ref(), work, Vec::new()).await.unwrap();
    let reply = browser.until(|frame| frame["re"] == 1).await;
    assert_eq!(reply["error"]["code"], "busy");
    assert!(
        reply["error"]["message"].as_str().unwrap().contains("disconnected before it answered"),
        "{reply}"
    );
}

#[tokio::test]
async fn a_hub_that_begins_alone_believes_nothing_that_a_dead_one_left() {
    let cluster = TestCluster::new();
    let left = cluster.node().await;
    let (_bridge, _machine) = set_up(&left).await;
    cluster.wait_for_machine("box").await;
    // The other is as good as killed: it has said nothing, and its last beat is a moment old.
    let node = cluster.alone().await;
    let mut browser = node.browser("who=ops").await;
    let machines = browser.told("machines").await;
    assert_eq!(machines["machines"][0]["here"], false, "{machines}");
    let reply = browser.ask(prompt(1)).await;
    assert_eq!(reply["error"]["code"], "busy");
    assert!(reply["error"]["message"].as_str().unwrap().contains("offline for"), "{reply}");
}

#[tokio::test]
async fn the_newest_socket_of_a_machine_counts_whichever_node_has_it() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let (_bridge, mut old) = set_up(&one).await;
    let mut browser = one.browser("who=ops").await;
    here(&mut browser).await;
    let mut new = other.machine("ops", "box").await;
    assert_eq!(old.closed().await.0, 1012);
    browser.say(prompt(1)).await;
    answer(&mut new, |_| json!({ "re": 1, "ok": { "is": "taken", "turn": 1 } })).await;
    assert_eq!(browser.until(|frame| frame["re"] == 1).await["ok"]["turn"], 1);
}

#[tokio::test]
async fn an_answer_that_is_none_harms_nobody() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let (_bridge, mut machine) = set_up(&node).await;
    let mut browser = node.browser("who=ops").await;
    here(&mut browser).await;
    for (id, odd) in [json!("x"), json!({ "on": "hello" }), json!({ "re": 1, "ok": 5 }), json!([1])]
        .into_iter()
        .enumerate()
    {
        let id = id as u64 + 1;
        browser.say(prompt(id)).await;
        answer(&mut machine, |_| odd.clone()).await;
        let reply = browser.until(|frame| frame["re"] == id).await;
        assert_eq!(reply["error"]["code"], "failed", "{odd}");
    }
    // An answer that nobody waits for.
    machine.say(json!({ "answer": { "call": 77, "body": {} } })).await;
    browser.say(prompt(9)).await;
    answer(&mut machine, |_| json!({ "re": 9, "ok": { "is": "done" } })).await;
    assert_eq!(browser.until(|frame| frame["re"] == 9).await["ok"]["is"], "done");
}
