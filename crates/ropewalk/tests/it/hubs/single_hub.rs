//! A single hub with a SQLite file.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use store::sql::{Db, SqliteDb};

use crate::hubs::browser::Browser;
use crate::hubs::world::World;

async fn world() -> World {
    World::new(1, &[], async |folder: &Path| {
        let file = folder.join("hub-0/state/hub.db");
        Arc::new(SqliteDb::open(&file).unwrap()) as Arc<dyn Db>
    })
    .await
}

/// O7, O8, P1, P2: driven from the hub, a turn runs on the machine, and an ask is answered from there.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_driven_and_a_permission_answered_through_a_hub() {
    let mut world = world().await;
    let (session, mut second) = world.read_by_two().await;
    world.prompt(&session, "run curl http://127.0.0.1:9/").await;
    world
        .person
        .until("it asks", |seen| seen.state["asks"].as_array().is_some_and(|asks| !asks.is_empty()))
        .await;
    let ask = world.person.state["asks"][0]["ask"].clone();
    let answer =
        json!({ "do": "answer", "session": session, "ask": ask, "decision": "denyOnce", "text": null });
    world.person.ask(answer.clone()).await.unwrap();
    second
        .until("it is withdrawn elsewhere", |seen| seen.state["asks"].as_array().is_some_and(Vec::is_empty))
        .await;
    let late = second.ask(answer).await.unwrap_err();
    assert_eq!(late["code"], "answered", "{late}");
    world.judge(&session, &mut [second]).await;
}

/// J11 and more: however the line is cut or stalled, whoever dies and comes back, nothing is lost or doubled.
#[tokio::test(flavor = "multi_thread")]
async fn cuts_stalls_and_deaths_leave_one_log_everywhere() {
    let mut world = world().await;
    let session = world.session().await;
    let mut second = world.person.window();
    second.watch(&session).await;
    world.prompt(&session, "stream 300 40").await;
    world.balancer.cut();
    world.prompt(&session, "write notes.txt: a first line").await;
    world.balancer.stall(true);
    world.person.listen(std::time::Duration::from_millis(1500)).await;
    world.balancer.stall(false);
    world.idle().await;

    world.prompt(&session, "sleep 400 && then stream 2000 40 && then sleep 400").await;
    world.person.until("it streams", |seen| !Browser::is_idle(seen)).await;
    world.hubs[0].kill();
    world.hubs[0].run();
    world.hubs[0].until_ready();
    world.idle().await;

    world.prompt(&session, "sleep 60000").await;
    world.person.until("it runs", |seen| !Browser::is_idle(seen)).await;
    world.laptop.kill();
    world
        .person
        .until("the machine is away", |seen| seen.machines.iter().all(|machine| machine["here"] == false))
        .await;
    world.laptop.run();
    world
        .person
        .until("the machine is back", |seen| seen.machines.iter().any(|machine| machine["here"] == true))
        .await;
    world.prompt(&session, "read README.md").await;
    world.judge(&session, &mut [second]).await;
    assert_eq!(world.laptop.file("notes.txt"), "a first line\n");
}
