//! A machine whose state folder was restored from a copy by hand.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use store::sql::{Db, SqliteDb};

use crate::hubs::browser::Browser;
use crate::hubs::world::World;

fn says(log: &[Value], text: &str) -> bool {
    log.iter().any(|event| event["payload"].to_string().contains(text))
}

async fn restart(world: &mut World, between: impl FnOnce(&mut World)) {
    world.laptop.end();
    world
        .person
        .until("the machine is away", |seen| seen.machines.iter().all(|machine| machine["here"] == false))
        .await;
    between(world);
    world.laptop.run();
    world
        .person
        .until("the machine is back", |seen| seen.machines.iter().any(|machine| machine["here"] == true))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_folder_that_was_put_back_leaves_two_sessions_at_the_hub_that_can_both_be_read() {
    let mut world = World::new(1, &[], async |folder: &Path| {
        Arc::new(SqliteDb::open(&folder.join("hub-0/state/hub.db")).unwrap()) as Arc<dyn Db>
    })
    .await;
    let session = world.session().await;
    world.prompt(&session, "write one.txt: the first turn").await;
    world.idle().await;
    restart(&mut world, |world| world.laptop.copy_state("state", "copy")).await;
    world.prompt(&session, "write two.txt: the lost turn").await;
    world.idle().await;
    world.judge(&session, &mut []).await;
    let old = world.mirrored(&session).await;

    restart(&mut world, |world| world.laptop.copy_state("copy", "state")).await;
    world.taken.retain(|(_, text, _)| !text.contains("the lost turn"));
    world.prompt(&session, "write three.txt: the new turn").await;
    let find = |seen: &Browser| {
        let kept = seen.cards.values().find(|card| card["branch"]["of"] == session.as_str());
        kept.map(|card| card["session"].as_str().unwrap().to_owned())
    };
    world.person.until("what was mirrored is kept", |seen| find(seen).is_some()).await;
    let kept = find(&world.person).unwrap();
    assert_eq!(world.mirrored(&kept).await, old, "all of it");
    world
        .person
        .until("people are told", |seen| seen.said().contains("this machine's state was restored"))
        .await;
    assert!(world.person.said().contains(&kept));
    world.judge(&session, &mut []).await;
    let new = world.mirrored(&session).await;
    assert!(says(&new, "the first turn") && says(&new, "the new turn") && !says(&new, "the lost turn"));
    let seq = |log: &[Value]| log.last().unwrap()["seq"].as_u64().unwrap();
    assert!(seq(&new) > seq(&old), "no position means two things from here on");

    let mut other = world.person.window();
    other.watch(&kept).await;
    assert!(
        other.said().contains("the lost turn") && !other.said().contains("the new turn"),
        "{}",
        other.said()
    );
    assert_eq!(other.cards[&kept]["state"], "done");
    assert!(other.cards[&session].get("branch").is_none());
    let prompt = json!({ "do": "prompt", "session": kept, "key": "k", "text": "go on", "pictures": [] });
    assert_eq!(other.ask(prompt).await.unwrap_err()["code"], "kept");
}
