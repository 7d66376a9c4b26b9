//! Which sessions and machines people see, and for how long.

use std::time::Duration;

use serde_json::{Value, json};

use crate::relay::test_cluster::{Node, Socket, TestCluster, card, view};

async fn mirrored(node: &Node, person: &str, session: &str, title: &str, at: i64) -> Socket {
    node.register(person, session, Some(&format!("{person}-box"))).await;
    let mut bridge = node.bridge(person, session).await;
    bridge.ready().await;
    bridge.say(card(session, title, at)).await;
    bridge.say(view(session, None, 1)).await;
    bridge.until(|frame| frame["ack"]["view"] == 1).await;
    bridge
}

fn sessions(cards: &Value) -> Vec<&str> {
    cards.as_array().unwrap().iter().map(|card| card["session"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn everybody_sees_their_own_sessions_newest_first_and_finds_them() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let _bridges = [
        mirrored(&node, "ops", "a1", "Old checkout", 10).await,
        mirrored(&node, "ops", "a2", "New basket", 20).await,
        mirrored(&node, "dev", "b1", "Checkout of others", 30).await,
    ];
    let mut browser = node.browser("who=ops").await;
    let cards = browser.told("cards").await;
    assert_eq!(sessions(&cards["cards"]), ["a2", "a1"]);
    assert_eq!(cards["cards"][0]["title"], "New basket", "as it was mirrored");
    let found =
        browser.ask(json!({ "id": 7, "do": "sessions", "before": null, "search": "CHECKout shop" })).await;
    assert_eq!(sessions(&found["ok"]["cards"]), ["a1"]);
    let page = browser.ask(json!({ "id": 8, "do": "sessions", "before": "20.a2", "search": null })).await;
    assert_eq!(sessions(&page["ok"]["cards"]), ["a1"]);
    let wrong = browser.ask(json!({ "id": 9, "do": "sessions", "before": "x", "search": null })).await;
    assert_eq!(wrong["error"]["code"], "badRequest");
}

#[tokio::test]
async fn a_card_that_changes_is_told_at_every_node() {
    let cluster = TestCluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let mut bridge = mirrored(&one, "ops", "a1", "First", 10).await;
    let mut browser = other.browser("who=ops").await;
    browser.told("cards").await;
    bridge.say(card("a1", "Second", 11)).await;
    let cards = browser.told("cards").await;
    assert_eq!(cards["cards"][0]["title"], "Second");
}

#[tokio::test]
async fn who_came_by_a_link_sees_one_session_and_asks_about_no_other() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let _bridges = [
        mirrored(&node, "ops", "a1", "Shared", 10).await,
        mirrored(&node, "ops", "a2", "Not shared", 20).await,
    ];
    let _machine = node.machine("ops", "ops-box").await;
    cluster.wait_for_machine("ops-box").await;
    let mut visitor = node.browser("share=a1.viewer").await;
    let machines = visitor.told("machines").await;
    let cards = visitor.told("cards").await;
    assert_eq!(sessions(&cards["cards"]), ["a1"]);
    assert_eq!(machines["machines"][0]["sessions"], json!(["a1"]));
    assert_eq!(machines["machines"][0]["own"], false);
    let listed = visitor.ask(json!({ "id": 1, "do": "sessions", "before": null, "search": null })).await;
    assert_eq!(sessions(&listed["ok"]["cards"]), ["a1"]);
    for request in [
        json!({ "id": 2, "do": "watch", "session": "a2", "after": null }),
        json!({ "id": 2, "do": "whole", "session": "a2", "row": 1 }),
        json!({ "id": 2, "do": "watch", "session": "none", "after": null }),
        json!({ "id": 2, "do": "watch", "session": "../x", "after": null }),
        json!({ "id": 2, "do": "at", "machine": "ops-box", "request": { "do": "rules" } }),
        json!({ "id": 2, "do": "forgetMachine", "machine": "ops-box" }),
        json!({ "id": 2, "do": "sealed", "machine": "ops-box", "session": null, "sealed": "x" }),
        json!({ "id": 2, "do": "sealed", "machine": "ops-box", "session": "a2", "sealed": "x" }),
    ] {
        let answer = visitor.ask(request.clone()).await;
        assert_eq!(answer["error"]["code"], "notFound", "{request}: {answer}");
    }
    let prompt = json!({ "id": 3, "do": "prompt", "session": "a1", "key": "k", "text": "x", "pictures": [] });
    assert_eq!(visitor.ask(prompt).await["error"]["code"], "forbidden");
    let watched = visitor.ask(json!({ "id": 4, "do": "watch", "session": "a1", "after": null })).await;
    assert_eq!(watched["ok"]["is"], "done");
    assert_eq!(visitor.told("view").await["session"], "a1");
    cluster.accounts.token("share=a1.viewer").cancel();
    assert_eq!(visitor.closed().await.0, 1008, "the link has ended");
}

#[tokio::test]
async fn another_persons_session_is_not_there() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let _bridges = mirrored(&node, "ops", "a1", "Mine", 10).await;
    let mut browser = node.browser("who=dev").await;
    assert_eq!(sessions(&browser.told("cards").await["cards"]), Vec::<&str>::new());
    let answer = browser.ask(json!({ "id": 1, "do": "watch", "session": "a1", "after": null })).await;
    let none = browser.ask(json!({ "id": 1, "do": "watch", "session": "zz", "after": null })).await;
    assert_eq!(answer, none, "nothing says that it exists");
}

#[tokio::test]
async fn a_machine_is_told_to_be_here_and_then_away_and_is_forgotten_with_all_it_has() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let mut bridge = mirrored(&node, "ops", "a1", "Mine", 10).await;
    let mut machine = node.machine("ops", "ops-box").await;
    let mut browser = node.browser("who=ops").await;
    let here = |here: bool| {
        move |frame: &Value| {
            frame["on"] == "machines"
                && frame["machines"].as_array().is_some_and(|all| all.iter().any(|one| one["here"] == here))
        }
    };
    let told = browser.until(here(true)).await;
    assert_eq!(told["machines"][0]["name"], "ops's ops-box");
    drop(machine);
    let told = browser.until(here(false)).await;
    assert_eq!(told["machines"][0]["seenAt"], 1_000_000_000);
    machine = node.machine("ops", "ops-box").await;
    browser.until(here(true)).await;
    let asked = browser.ask(json!({ "id": 5, "do": "machines" })).await;
    assert_eq!(asked["ok"]["machines"][0]["sessions"], json!(["a1"]));
    let forgotten = browser.ask(json!({ "id": 6, "do": "forgetMachine", "machine": "ops-box" })).await;
    assert_eq!(forgotten["ok"]["is"], "done", "{forgotten}");
    assert_eq!(machine.closed().await.0, 1012);
    let gone = browser.until(|frame| frame["gone"] == json!(["a1"])).await;
    assert_eq!(gone["on"], "cards");
    bridge.say(card("a1", "Again", 11)).await;
    assert_eq!(bridge.closed().await.0, 1008, "its log is gone");
}

#[tokio::test]
async fn a_silent_session_is_stale_after_a_while_and_not_listed_after_a_week() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "a1", None).await;
    let beat = json!({ "sandbox": "read-only", "approval": "auto", "cost_total_usd": 0.5 });
    assert_eq!(node.http("POST", "/api/sessions/a1/heartbeat", "of-ops", Some(beat.clone())).await.0, 204);
    cluster.later(Duration::from_secs(89));
    let mut browser = node.browser("who=ops").await;
    assert_eq!(browser.told("cards").await["cards"][0]["line"], "its bridge is not connected");
    cluster.later(Duration::from_secs(2));
    let stale = browser.told("cards").await;
    assert_eq!(stale["cards"][0]["line"], "its bridge no longer responds");
    assert_eq!(node.http("POST", "/api/sessions/a1/heartbeat", "of-ops", Some(beat)).await.0, 204);
    assert_eq!(browser.told("cards").await["cards"][0]["line"], "its bridge is not connected");
    cluster.later(Duration::from_secs(8 * 24 * 3600));
    assert_eq!(browser.until(|frame| frame["gone"] == json!(["a1"])).await["on"], "cards");
    // The log is kept, and comes back with its bridge.
    assert_eq!(node.register("ops", "a1", None).await.0, 200);
    assert_eq!(sessions(&browser.told("cards").await["cards"]), ["a1"]);
}

#[tokio::test]
async fn what_is_sealed_is_shown_as_it_is_and_asked_for_as_it_is() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    // It was mirrored in the open before.
    drop(mirrored(&node, "ops", "a1", "In the open", 10).await);
    let registration = json!({ "session_id": "a1", "machine": "ops-box", "sealed": true });
    assert_eq!(node.http("POST", "/api/sessions", "of-ops", Some(registration)).await.0, 200);
    let mut bridge = node.bridge("ops", "a1").await;
    assert_eq!(bridge.ready().await, (0, None), "nothing of it is left");
    let sealed = |text: &str| json!({ "sealed": text });
    let entry = json!({ "state": "waiting", "asks": [4], "updated_at": 20, "body": sealed("card") });
    let view = json!({ "upto": 1, "body": sealed("view") });
    let events = json!([{ "seq": 1, "body": sealed("event") }]);
    bridge.say(json!({ "batch": { "after": 0, "events": events, "view": view, "card": entry } })).await;
    bridge.acked(1).await;
    let mut machine = node.machine("ops", "ops-box").await;
    machine.say(json!({ "keys": { "generation": 1, "wrapped": [{ "device": "d1", "key": "k1" }] } })).await;
    let mut browser = node.browser("who=ops").await;
    let told = browser.told("sealedCard").await;
    assert_eq!(
        (&told["sealed"], &told["state"], &told["asks"]),
        (&json!("card"), &json!("waiting"), &json!([4]))
    );
    assert_eq!(browser.told("key").await["key"], "k1");
    browser.ask(json!({ "id": 1, "do": "watch", "session": "a1", "after": null })).await;
    let told = browser.told("sealedView").await;
    assert_eq!((&told["sealed"], &told["upto"]), (&json!("view"), &json!(1)));
    let plain = json!({ "id": 2, "do": "changes", "session": "a1" });
    assert_eq!(browser.ask(plain).await["error"]["code"], "badRequest");
    browser
        .say(json!({ "id": 3, "do": "sealed", "machine": "ops-box", "session": "a1", "sealed": "ask" }))
        .await;
    let call = machine.until(|frame| frame.get("call").is_some()).await["call"].clone();
    assert_eq!(call["body"], sealed("ask"));
    machine.say(json!({ "answer": { "call": call["call"], "body": sealed("answer") } })).await;
    let reply = browser.told("sealedReply").await;
    assert_eq!(reply, json!({ "on": "sealedReply", "re": 3, "sealed": "answer" }));
}

#[tokio::test]
async fn who_looks_at_a_session_that_begins_anew_is_told_to_look_again() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    drop(mirrored(&node, "ops", "a1", "In the open", 10).await);
    let mut browser = node.browser("who=ops").await;
    let watch = |id| json!({ "id": id, "do": "watch", "session": "a1", "after": null });
    browser.ask(watch(1)).await;
    browser.told("view").await;
    let registration = json!({ "session_id": "a1", "machine": "ops-box", "sealed": true });
    assert_eq!(node.http("POST", "/api/sessions", "of-ops", Some(registration)).await.0, 200);
    assert_eq!(browser.told("over").await["session"], "a1");
    browser.ask(watch(2)).await;
    let mut bridge = node.bridge("ops", "a1").await;
    bridge.ready().await;
    let view = json!({ "upto": 1, "body": { "sealed": "view" } });
    bridge.say(json!({ "batch": { "after": 0, "view": view } })).await;
    assert_eq!(browser.told("sealedView").await["sealed"], "view");
}

async fn count(cluster: &TestCluster, question: &'static str) -> u64 {
    let question = store::sql::Statement::new(question, []);
    let found = store::sql::Db::run(cluster.db.as_ref(), vec![question], Vec::new()).await.unwrap();
    found[0].rows[0].count(0).unwrap()
}

/// Counts everything that is stored of sessions.
const KEPT: &str =
    "SELECT (SELECT COUNT(*) FROM mirrors) + (SELECT COUNT(*) FROM views) + (SELECT COUNT(*) FROM logs)
     + (SELECT COUNT(*) FROM log_entries) + (SELECT COUNT(*) FROM shares)";

#[tokio::test]
async fn a_session_that_its_machine_deletes_is_forgotten_with_all_that_was_kept_of_it() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let mut bridge = mirrored(&node, "ops", "a1", "Mine", 10).await;
    bridge.say(crate::relay::test_cluster::events(0, 1..=3)).await;
    bridge.acked(3).await;
    let mut machine = node.machine("ops", "ops-box").await;
    cluster.wait_for_machine("ops-box").await;
    let mut browser = node.browser("who=ops").await;
    browser.ask(json!({ "id": 1, "do": "watch", "session": "a1", "after": null })).await;
    let mut delete = async |id: u64, answer: Value| {
        browser.say(json!({ "id": id, "do": "delete", "session": "a1" })).await;
        let call = machine.until(|frame| frame.get("call").is_some()).await["call"]["call"].clone();
        machine.say(json!({ "answer": { "call": call, "body": answer } })).await;
        browser.until(|frame| frame["re"] == id).await
    };
    let refused = delete(2, json!({ "re": 2, "error": { "code": "failed", "message": "no" } })).await;
    assert_eq!(refused["error"]["code"], "failed");
    assert!(count(&cluster, KEPT).await > 0, "nothing was deleted");
    assert_eq!(delete(3, json!({ "re": 3, "ok": { "is": "done" } })).await["ok"]["is"], "done");
    assert_eq!(count(&cluster, KEPT).await, 0);
    assert_eq!(browser.told("over").await["session"], "a1");
    bridge.say(card("a1", "Again", 11)).await;
    assert_eq!(bridge.closed().await.0, 1008, "its log is gone");
}

#[tokio::test]
async fn a_bridge_says_that_a_session_was_deleted_and_nobody_else_can() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let _bridges = mirrored(&node, "ops", "a1", "Mine", 10).await;
    let deleted = "/api/sessions/a1?deleted=true";
    assert_eq!(node.http("DELETE", deleted, "of-dev", None).await.0, 404);
    assert_eq!(node.http("DELETE", "/api/sessions/a1", "of-ops", None).await.0, 204);
    assert!(count(&cluster, KEPT).await > 0, "it was only detached");
    assert_eq!(node.http("DELETE", deleted, "of-ops", None).await.0, 204);
    assert_eq!(count(&cluster, KEPT).await, 0);
    assert_eq!(node.http("DELETE", deleted, "of-ops", None).await.0, 404);
    assert_eq!(node.register("dev", "a1", None).await.0, 200, "the id is free");
}

#[tokio::test]
async fn sessions_that_are_not_listed_any_more_take_nobodys_place() {
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    node.register("ops", "a1", None).await;
    let many = store::sql::Statement::new(
        "INSERT INTO mirrors (session, person, sealed, model, sandbox, approval, cwd, created_at, updated_at, heard_at,
         changed_at, detached, epoch, view_number, view_bytes, snapshot, snapshot_before)
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 4999)
         SELECT 'old' || n, person, sealed, model, sandbox, approval, cwd, created_at, updated_at, heard_at, changed_at,
         detached, epoch, view_number, view_bytes, snapshot, snapshot_before FROM mirrors, numbers
         WHERE mirrors.session = 'a1'",
        [],
    );
    store::sql::Db::run(cluster.db.as_ref(), vec![many], Vec::new()).await.unwrap();
    assert_eq!(node.register("ops", "a2", None).await.0, 429);
    cluster.later(Duration::from_secs(8 * 24 * 3600));
    assert_eq!(node.register("ops", "a2", None).await.0, 200);
}

#[tokio::test]
async fn the_record_and_mirrors_that_nobody_continues_are_kept_for_so_many_days_and_no_longer() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let cluster = TestCluster::new();
    let node = cluster.node().await;
    let gone = async |question: &'static str| {
        let gone = async { while count(&cluster, question).await > 0 {} };
        tokio::time::timeout(crate::relay::test_cluster::DEADLINE, gone).await.expect("it stays");
    };
    drop(mirrored(&node, "ops", "a1", "Mine", 10).await);
    // It was heard of when it left.
    gone("SELECT COUNT(*) FROM mirrors WHERE node IS NOT NULL").await;
    cluster.later(60 * DAY);
    assert_eq!(node.register("dev", "b1", None).await.0, 200);
    cluster.later(31 * DAY);
    gone("SELECT COUNT(*) FROM hub_audit WHERE about = 'a1'").await;
    assert_eq!(
        count(&cluster, "SELECT COUNT(*) FROM hub_audit WHERE about = 'b1'").await,
        1,
        "it is younger"
    );
    assert_eq!(count(&cluster, "SELECT COUNT(*) FROM mirrors").await, 2);
    cluster.later(10 * DAY);
    gone("SELECT COUNT(*) FROM mirrors WHERE session = 'a1'").await;
    assert_eq!(count(&cluster, "SELECT COUNT(*) FROM views").await, 0);
    assert_eq!(count(&cluster, "SELECT COUNT(*) FROM mirrors").await, 1);
}

#[tokio::test]
async fn nodes_whose_clocks_are_wrong_take_nobody_for_dead() {
    const HOUR_MS: i64 = 3_600_000;
    let cluster = TestCluster::new();
    let (early, late) = (cluster.node_off_by(-HOUR_MS).await, cluster.node_off_by(HOUR_MS).await);
    for (one, other, session) in [(&early, &late, "a1"), (&late, &early, "a2")] {
        let _bridges = mirrored(one, "ops", session, "Mine", 10).await;
        let mut machine = one.machine("ops", "ops-box").await;
        cluster.wait_for_machine("ops-box").await;
        let mut browser = other.browser("who=ops").await;
        let machines = browser.told("machines").await;
        assert_eq!(
            (&machines["machines"][0]["here"], &machines["machines"][0]["seenAt"]),
            (&json!(true), &json!(1_000_000_000))
        );
        browser.say(json!({ "id": 5, "do": "changes", "session": session })).await;
        let call = machine.until(|frame| frame.get("call").is_some()).await["call"]["call"].clone();
        let done = json!({ "re": 5, "ok": { "is": "done" } });
        machine.say(json!({ "answer": { "call": call, "body": done } })).await;
        assert_eq!(browser.until(|frame| frame["re"] == 5).await["ok"]["is"], "done");
    }
    assert_eq!(early.register("ops", "fresh", None).await.0, 200);
    let mut browser = late.browser("who=ops").await;
    let cards = browser.told("cards").await["cards"].clone();
    let fresh = cards.as_array().unwrap().iter().find(|card| card["session"] == "fresh").unwrap();
    assert_eq!(fresh["line"], "its bridge is not connected", "it was heard of a moment ago");
}
