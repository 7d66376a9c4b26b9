//! Where WebSockets are blocked.

use std::sync::atomic::Ordering;
use std::time::Duration;

use net::bridge::Pace;
use serde_json::json;
use testkit::server::{DEADLINE, Setup, run};
use wire::Dialect;
use wire::tunnel::Up;

use super::mirror::Mirror;
use super::receiver::{Manner, Receiver, SWALLOWED};
use super::world::{PACE, Wish, World};

#[tokio::test]
async fn after_two_upgrades_that_something_else_answered_the_mirror_is_kept_by_polling() {
    falls_back(400, PACE).await;
}

#[tokio::test]
async fn after_two_upgrades_that_nobody_answered_the_mirror_is_kept_by_polling() {
    falls_back(SWALLOWED, Pace { answer: Duration::from_millis(300), ..PACE }).await;
}

async fn falls_back(upgrade: u16, pace: Pace) {
    run(Setup::offline(), async |server| {
        let mut client = server.older_client(Dialect::Ferret).await;
        let session = client.new_session().await;
        client.message(&session, "list").await;
        let receiver = Receiver::start(Manner::mirror()).await;
        receiver.inner.manner.socket.store(upgrade, Ordering::SeqCst);
        receiver.inner.down.lock().unwrap().push_back(json!({ "ready": { "events": 0, "watched": true } }));
        let world = World::start(server, &receiver.url, Wish { pace, ..Wish::default() });
        receiver.seen(&format!("GET /ws/{session}"), 2).await;
        receiver.seen(&format!("POST /api/tunnel/{session}/open"), 1).await;
        let head = server.handle(&session).await.read(engine::Seq::START).head().0;
        let mut up = receiver.inner.up.subscribe();
        let mirrored = |frames: &Vec<Up>| {
            let mut mirror = Mirror::default();
            for frame in frames {
                if let Up::Batch(batch) = frame {
                    mirror.take(batch);
                }
            }
            mirror.end() == head && mirror.views.last().is_some_and(|(_, view)| view.upto == head)
        };
        tokio::time::timeout(DEADLINE, up.wait_for(mirrored)).await.expect("the mirror").unwrap();
        receiver.inner.down.lock().unwrap().push_back(json!({ "ack": { "events": head } }));
        world.close().await;
        receiver.seen(&format!("DELETE /api/tunnel/{session}"), 1).await;
        receiver.seen(&format!("DELETE /api/sessions/{session}"), 1).await;
        client.take_updates();
    })
    .await;
}
