//! A machine whose state was restored: what was mirrored becomes a branch, and the log is mirrored from its beginning.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use store::sql::{Db, PostgresDb, Statement, log};
use testkit::postgres::Cluster;

use crate::relay::test_cluster::{Node, Socket, TestCluster, card, events, view};

/// The names that processes give themselves.
const FIRST: &str = "process-1";
const SECOND: &str = "process-2";

fn with_source(mut batch: Value, process: &str, mark: Option<&str>) -> Value {
    batch["batch"]["source"] = json!({ "process": process, "lineage": "lineage-1" });
    if let Some(mark) = mark {
        batch["batch"]["mark"] = mark.into();
    }
    batch
}

async fn ready(bridge: &mut Socket) -> Value {
    bridge.until(|frame| frame.get("ready").is_some()).await["ready"].clone()
}

fn branch(process: &str) -> Value {
    json!({ "branch": { "source": { "process": process, "lineage": "lineage-1" } } })
}

/// Mirrors five events, a view and a card, and leaves in good order.
async fn mirrored(node: &Node, session: &str) {
    node.register("ops", session, None).await;
    let mut bridge = node.bridge("ops", session).await;
    ready(&mut bridge).await;
    bridge.say(with_source(events(0, 1..=5), FIRST, Some("plain.five"))).await;
    bridge.say(card(session, "Knots", 50)).await;
    bridge.say(view(session, None, 5)).await;
    bridge.until(|frame| frame["ack"]["view"] == 5).await;
    let again = node.bridge("ops", session).await.next().await["ready"].clone();
    assert_eq!((&again["mark"], &again["lineage"]), (&json!("plain.five"), &json!("lineage-1")), "{again}");
    assert_eq!(again["branches"], true);
}

/// A request with the header that says whose it is.
async fn says(node: &Node, what: &str, process: &str, body: &str) {
    let request = format!(
        "{what} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer of-ops\r\nx-ropewalk-process: {process}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        node.address,
        body.len()
    );
    assert_eq!(node.raw(&request).await.0, 204);
}

async fn leave(node: &Node, session: &str, process: &str) {
    says(node, &format!("DELETE /api/sessions/{session}"), process, "").await;
}

async fn seqs(cluster: &TestCluster, session: &str) -> Vec<u64> {
    let found = cluster.db.run(vec![log::read(session, 0, 100)], Vec::new()).await.unwrap();
    found[0].rows.iter().map(|row| row.count(0).unwrap()).collect()
}

async fn what_was_mirrored_is_kept_beside(cluster: &TestCluster) {
    let (node, other) = (cluster.node().await, cluster.node().await);
    mirrored(&node, "s1").await;
    leave(&node, "s1", FIRST).await;
    let mut browser = other.browser("who=ops").await;
    browser.ask(json!({ "id": 1, "do": "watch", "session": "s1", "after": null })).await;
    assert_eq!(browser.told("view").await["upto"], 5);

    // The machine comes back with three events and something else at the fourth position.
    let mut bridge = node.bridge("ops", "s1").await;
    assert_eq!(ready(&mut bridge).await["events"], 5);
    bridge.say(branch(SECOND)).await;
    let again = ready(&mut bridge).await;
    assert_eq!((&again["events"], &again["before"]["events"]), (&json!(0), &json!(5)), "{again}");
    let kept = again["before"]["session"].as_str().unwrap().to_owned();
    assert_eq!(seqs(cluster, &kept).await, [1, 2, 3, 4, 5], "all of it");
    assert_eq!(seqs(cluster, "s1").await, [0_u64; 0]);
    // Whoever lost the answer is told again, until something is mirrored.
    drop(bridge);
    let mut bridge = node.bridge("ops", "s1").await;
    let lost = ready(&mut bridge).await;
    assert_eq!((&lost["events"], &lost["before"]), (&json!(0), &again["before"]));
    bridge.say(with_source(events(0, 1..=4), SECOND, Some("plain.four"))).await;
    bridge.say(card("s1", "Knots", 60)).await;
    bridge.say(view("s1", None, 70_000)).await;
    bridge.until(|frame| frame["ack"]["view"] == 70_000).await;
    assert_eq!(seqs(cluster, "s1").await, [1, 2, 3, 4]);
    let after = node.bridge("ops", "s1").await.next().await["ready"].clone();
    assert_eq!((&after["mark"], after.get("before")), (&json!("plain.four"), None), "{after}");

    // Who looked goes on looking at the session, and finds the other one in the list.
    let next = browser.told("view").await;
    assert_eq!(
        (&next["session"], &next["upto"], &next["reset"]),
        (&json!("s1"), &json!(70_000), &json!(true))
    );
    let listed = |frame: &Value| {
        let cards = frame["cards"].as_array();
        frame["on"] == "cards"
            && cards.is_some_and(|cards| cards.iter().any(|card| card["branch"].is_object()))
    };
    browser.until(listed).await;
    let found = browser.ask(json!({ "id": 2, "do": "sessions", "before": null, "search": null })).await;
    let cards = found["ok"]["cards"].as_array().unwrap();
    let of = |session: &str| cards.iter().find(|card| card["session"] == session).unwrap();
    assert_eq!(cards.len(), 2, "{found}");
    assert!(of("s1").get("branch").is_none());
    let old = of(&kept);
    assert_eq!(
        (&old["title"], &old["state"], &old["branch"]["of"]),
        (&json!("Knots"), &json!("done"), &json!("s1"))
    );
    browser.ask(json!({ "id": 3, "do": "watch", "session": kept, "after": null })).await;
    let shown = browser.told("view").await;
    assert_eq!((&shown["session"], &shown["upto"]), (&json!(kept), &json!(5)), "{shown}");

    only_looked_at_and_deleted(&node, &mut browser, &kept).await;
    assert_eq!(seqs(cluster, &kept).await, [0_u64; 0]);
    assert_eq!(seqs(cluster, "s1").await, [1, 2, 3, 4], "and nothing else goes with it");
}

async fn only_looked_at_and_deleted(node: &Node, browser: &mut Socket, kept: &str) {
    let prompt =
        json!({ "id": 4, "do": "prompt", "session": kept, "key": "k", "text": "on", "pictures": [] });
    let refused = browser.ask(prompt).await;
    assert_eq!(refused["error"]["code"], "kept", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("session s1"), "{refused}");
    assert_eq!(node.register("ops", kept, None).await.0, 403, "nobody writes it any more");
    let deleted = browser.ask(json!({ "id": 5, "do": "delete", "session": kept })).await;
    assert_eq!(deleted["ok"]["is"], "done", "{deleted}");
}

/// Two machines that run with copies of one state.
async fn who_wrote_last_keeps_the_session_while_it_is_heard_of(cluster: &TestCluster) {
    let node = cluster.node().await;
    mirrored(&node, "s2").await;
    let beat = json!({ "sandbox": "s", "approval": "a", "cost_total_usd": 0.0 }).to_string();
    let refused = async |process: &str| {
        let mut bridge = node.bridge("ops", "s2").await;
        ready(&mut bridge).await;
        bridge.say(branch(process)).await;
        let (code, reason) = bridge.closed().await;
        assert_eq!(code, 1012);
        assert!(reason.contains("another running machine with a copy of the same state"), "{reason}");
    };
    refused(SECOND).await;
    for _ in 0..4 {
        cluster.later(Duration::from_secs(60));
        for process in [FIRST, SECOND] {
            says(&node, "POST /api/sessions/s2/heartbeat", process, &beat).await;
        }
        // Who is refused and leaves says nothing about the other.
        leave(&node, "s2", SECOND).await;
        refused(SECOND).await;
    }
    assert_eq!(seqs(cluster, "s2").await, [1, 2, 3, 4, 5], "nothing is mixed");
    // The one that wrote goes on where it was.
    let mut bridge = node.bridge("ops", "s2").await;
    assert_eq!(ready(&mut bridge).await["mark"], "plain.five");
    bridge.say(with_source(events(5, 6..=6), FIRST, Some("plain.six"))).await;
    bridge.acked(6).await;
    drop(bridge);
    // It was killed: after a while it does not count any more.
    cluster.later(Duration::from_secs(100));
    let mut bridge = node.bridge("ops", "s2").await;
    ready(&mut bridge).await;
    bridge.say(branch(SECOND)).await;
    assert_eq!(ready(&mut bridge).await["before"]["events"], 6);
}

/// No machine has what is kept, so it does not go with the session; whoever may delete the session deletes it, by a
/// browser or by the person's token.
async fn what_is_kept_outlives_its_session_and_can_be_deleted(cluster: &TestCluster) {
    let node = cluster.node().await;
    for (session, by_browser) in [("s5", true), ("s6", false)] {
        mirrored(&node, session).await;
        leave(&node, session, FIRST).await;
        let mut bridge = node.bridge("ops", session).await;
        ready(&mut bridge).await;
        bridge.say(branch(SECOND)).await;
        let kept = ready(&mut bridge).await["before"]["session"].as_str().unwrap().to_owned();
        bridge.say(with_source(events(0, 1..=2), SECOND, Some("plain.two"))).await;
        bridge.acked(2).await;
        says(&node, &format!("DELETE /api/sessions/{session}?deleted=true"), SECOND, "").await;
        assert_eq!(seqs(cluster, session).await, [0_u64; 0]);
        assert_eq!(seqs(cluster, &kept).await, [1, 2, 3, 4, 5]);

        let delete = json!({ "id": 1, "do": "delete", "session": kept });
        let mut stranger = node.browser("who=dev").await;
        assert_eq!(stranger.ask(delete.clone()).await["error"]["code"], "notFound");
        let path = format!("/api/sessions/{kept}?deleted=true");
        assert!(node.http("DELETE", &path, "of-dev", None).await.0 >= 400);
        assert_eq!(seqs(cluster, &kept).await, [1, 2, 3, 4, 5], "it is nobody else's");

        let mut browser = node.browser("who=ops").await;
        let look = json!({ "id": 2, "do": "watch", "session": kept, "after": null });
        browser.ask(look.clone()).await;
        assert_eq!(browser.told("view").await["upto"], 5);
        if by_browser {
            assert_eq!(browser.ask(delete).await["ok"]["is"], "done");
        } else {
            says(&node, &format!("DELETE {path}"), SECOND, "").await;
        }
        for table in
            ["mirrors WHERE session", "views WHERE session", "log_entries WHERE log", "logs WHERE id"]
        {
            let count = Statement::new(format!("SELECT COUNT(*) FROM {table} = $1"), [kept.as_str().into()]);
            let found = cluster.db.run(vec![count], Vec::new()).await.unwrap();
            assert_eq!(found[0].rows[0].count(0).unwrap(), 0, "{table}");
        }
        let mut browser = node.browser("who=ops").await;
        assert_eq!(browser.ask(look).await["error"]["code"], "notFound");
    }
}

async fn a_branch_comes_first_and_of_something(cluster: &TestCluster) {
    let node = cluster.node().await;
    node.register("ops", "s3", None).await;
    let mut bridge = node.bridge("ops", "s3").await;
    ready(&mut bridge).await;
    bridge.say(branch(FIRST)).await;
    let again = ready(&mut bridge).await;
    assert_eq!((&again["events"], again.get("before")), (&json!(0), None), "there is nothing to keep");
    // A mark of another event than the last says nothing: older bridges send none.
    bridge.say(with_source(events(0, 1..=1), FIRST, Some("plain.one"))).await;
    bridge.say(events(1, 2..=2)).await;
    bridge.acked(2).await;
    bridge.say(branch(FIRST)).await;
    let (code, reason) = bridge.closed().await;
    assert_eq!(code, 1008);
    assert!(reason.contains("before the first batch"), "{reason}");
    let after = node.bridge("ops", "s3").await.next().await["ready"].clone();
    assert_eq!((&after["events"], after.get("mark")), (&json!(2), None));
    for broken in ["", "a b", &"x".repeat(200)] {
        let mut bridge = node.bridge("ops", "s3").await;
        ready(&mut bridge).await;
        bridge.say(branch(broken)).await;
        assert_eq!(bridge.closed().await.0, 1008, "{broken:?}");
    }
}

/// A sealed session: the hub changes nothing of what it cannot read, and says for which session it was sealed.
async fn a_sealed_session_is_kept_as_it_was_sealed(cluster: &TestCluster) {
    let node = cluster.node().await;
    let register = json!({ "session_id": "s4", "machine": "vault", "sealed": true });
    assert_eq!(node.http("POST", "/api/sessions", "of-ops", Some(register)).await.0, 200);
    let mut bridge = node.bridge("ops", "s4").await;
    ready(&mut bridge).await;
    let body = |text: &str| json!({ "sealed": text });
    let batch = json!({
        "after": 0, "events": [{ "seq": 1, "body": body("event") }], "view": { "upto": 1, "body": body("view") },
        "card": { "state": "waiting", "asks": [7], "updated_at": 50, "body": body("card") },
    });
    bridge.say(with_source(json!({ "batch": batch }), FIRST, Some("key.one"))).await;
    bridge.acked(1).await;
    leave(&node, "s4", FIRST).await;
    let mut bridge = node.bridge("ops", "s4").await;
    ready(&mut bridge).await;
    bridge.say(branch(SECOND)).await;
    let kept = ready(&mut bridge).await["before"]["session"].as_str().unwrap().to_owned();
    let mut browser = node.browser("who=ops").await;
    let card = browser.until(|frame| frame["on"] == "sealedCard" && frame["session"] == kept.as_str()).await;
    assert_eq!(
        (&card["sealed"], &card["state"], &card["asks"]),
        (&json!("card"), &json!("waiting"), &json!([7]))
    );
    assert_eq!((&card["branch"]["of"], &card["updatedAt"]), (&json!("s4"), &json!(50)));
    browser.ask(json!({ "id": 1, "do": "watch", "session": kept, "after": null })).await;
    let view = browser.told("sealedView").await;
    assert_eq!(
        (&view["sealed"], &view["of"], &view["session"]),
        (&json!("view"), &json!("s4"), &json!(kept))
    );
    let asked = json!({ "id": 2, "do": "sealed", "machine": "vault", "session": kept, "sealed": "x" });
    assert_eq!(browser.ask(asked).await["error"]["code"], "kept");
    let deleted = browser.ask(json!({ "id": 3, "do": "delete", "session": kept })).await;
    assert_eq!(deleted["ok"]["is"], "done", "{deleted}");
}

#[tokio::test]
async fn what_was_mirrored_before_a_state_was_put_back_is_a_session_of_its_own() {
    what_was_mirrored_is_kept_beside(&TestCluster::new()).await;
}

#[tokio::test]
async fn of_two_machines_with_one_state_the_one_that_wrote_last_keeps_the_session() {
    who_wrote_last_keeps_the_session_while_it_is_heard_of(&TestCluster::new()).await;
}

#[tokio::test]
async fn what_is_kept_of_a_deleted_session_can_be_deleted_by_its_owner_and_nobody_else() {
    what_is_kept_outlives_its_session_and_can_be_deleted(&TestCluster::new()).await;
}

#[tokio::test]
async fn a_branch_is_asked_for_before_the_first_batch() {
    a_branch_comes_first_and_of_something(&TestCluster::new()).await;
}

#[tokio::test]
async fn what_is_kept_of_a_sealed_session_says_for_which_it_was_sealed() {
    a_sealed_session_is_kept_as_it_was_sealed(&TestCluster::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_are_the_same_on_postgresql() {
    let postgres = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let cluster = TestCluster::on(Arc::new(PostgresDb::connect(&postgres.database(), None).await.unwrap()));
    what_was_mirrored_is_kept_beside(&cluster).await;
    who_wrote_last_keeps_the_session_while_it_is_heard_of(&cluster).await;
    what_is_kept_outlives_its_session_and_can_be_deleted(&cluster).await;
    a_branch_comes_first_and_of_something(&cluster).await;
    a_sealed_session_is_kept_as_it_was_sealed(&cluster).await;
    let layout = Statement::new("SELECT version FROM layouts WHERE name = 'relay'", []);
    assert_eq!(cluster.db.run(vec![layout], Vec::new()).await.unwrap()[0].rows[0].count(0).unwrap(), 2);
}
