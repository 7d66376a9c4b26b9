//! Three hubs on one PostgreSQL database, notified by it or by NATS.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::sql::{Db, PostgresDb};
use testkit::nats::Server as Nats;
use testkit::postgres::Cluster;

use crate::hubs::browser::{Browser, DEADLINE};
use crate::hubs::world::World;

pub async fn world(cluster: &Cluster, nats: Option<&Nats>) -> World {
    let url = cluster.database();
    let bus = nats.map(Nats::url);
    let mut arguments = vec!["--store", url.as_str()];
    if let Some(bus) = &bus {
        arguments.extend(["--bus", bus.as_str()]);
    }
    World::new(3, &arguments, async |_: &Path| {
        Arc::new(PostgresDb::connect(&url, None).await.unwrap()) as Arc<dyn Db>
    })
    .await
}

/// Every browser comes to another hub than the bridge sooner or later, and each hub dies once in mid-turn.
async fn each_hub_may_die(mut world: World) {
    let session = world.session().await;
    let mut others: Vec<Browser> = (0..3).map(|_| world.person.window()).collect();
    for other in &mut others {
        other.watch(&session).await;
    }
    for number in 0..3 {
        world.prompt(&session, "sleep 400 && then stream 1500 40 && then sleep 400").await;
        world.person.until("it streams", |seen| !Browser::is_idle(seen)).await;
        world.hubs[number].kill();
        world.idle().await;
        world.hubs[number].run();
        world.hubs[number].until_ready();
    }
    world.judge(&session, &mut others).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hubs_on_postgresql_are_one() {
    let cluster = Cluster::start();
    each_hub_may_die(world(&cluster, None).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hubs_with_nats_are_one_and_need_it_only_to_be_quick() {
    let (cluster, mut nats) = (Cluster::start(), Nats::start());
    let mut world = world(&cluster, Some(&nats)).await;
    let session = world.session().await;
    world.prompt(&session, "read README.md").await;
    world.idle().await;
    nats.stop();
    world.prompt(&session, "stream 200 40").await;
    world.idle().await;
    nats.restart();
    each_hub_may_die(world).await;
}

/// The agent goes on without the database, and what it did meanwhile is told afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_database_a_hub_keeps_nothing_and_loses_nothing() {
    let mut cluster = Cluster::start();
    let mut world = world(&cluster, None).await;
    let session = world.session().await;
    world.prompt(&session, "sleep 3000 && then read README.md").await;
    world.person.until("it runs", |seen| !Browser::is_idle(seen)).await;
    cluster.stop();
    let request = serde_json::json!({ "do": "cancel", "session": session, "turn": null });
    let refused = world.person.ask_once(request).await;
    assert!(matches!(&refused, Ok(Err(error)) if error["code"] == "busy"), "{refused:?}");
    let deadline = Instant::now() + DEADLINE;
    while !world.laptop.export(&session).iter().any(|event| event["event_type"] == "turn_ended") {
        assert!(Instant::now() < deadline, "the agent does not go on without the hubs' database");
        world.person.listen(Duration::from_millis(200)).await;
    }
    cluster.restart();
    world.judge(&session, &mut []).await;
    assert!(world.person.said().contains("A small library of knots"));
}
