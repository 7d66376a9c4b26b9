//! Where WebSockets are blocked.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bridge::BridgeTimings;
use serde_json::json;
use testkit::server::{DEADLINE, Setup, run};
use wire::Dialect;
use wire::tunnel::{BridgeFrame, TUNNEL_FRAME_BYTES_MAX};

use super::mirror::Mirror;
use super::test_bridge::{BridgeOptions, PACE, TestBridge};
use super::test_receiver::{Behaviour, Receiver, SWALLOWED};

/// Whether all of a session is there.
fn is_mirrored(frames: &[BridgeFrame], head: u64) -> bool {
    let mut mirror = Mirror::default();
    for frame in frames {
        if let BridgeFrame::Batch(batch) = frame {
            mirror.take(batch);
        }
    }
    mirror.end() == head && mirror.views.last().is_some_and(|(_, view)| view.upto == head)
}

#[tokio::test]
async fn after_two_upgrades_that_something_else_answered_the_mirror_is_kept_by_polling() {
    falls_back(400, PACE).await;
}

#[tokio::test]
async fn after_two_upgrades_that_nobody_answered_the_mirror_is_kept_by_polling() {
    falls_back(SWALLOWED, BridgeTimings { answer: Duration::from_millis(300), ..PACE }).await;
}

async fn falls_back(upgrade: u16, pace: BridgeTimings) {
    run(Setup::offline(), async |server| {
        let mut client = server.older_client(Dialect::Ferret).await;
        let session = client.new_session().await;
        client.message(&session, "list").await;
        let receiver = Receiver::start(Behaviour::mirror()).await;
        receiver.inner.manner.socket.store(upgrade, Ordering::SeqCst);
        receiver.inner.down.lock().unwrap().push_back(json!({ "ready": { "events": 0, "watched": true } }));
        let world =
            TestBridge::start(server, &receiver.url, BridgeOptions { pace, ..BridgeOptions::default() });
        receiver.seen(&format!("GET /ws/{session}"), 2).await;
        receiver.seen(&format!("POST /api/tunnel/{session}/open"), 1).await;
        let head = server.handle(&session).await.read(engine::Seq::START).head().0;
        let mut up = receiver.inner.up.subscribe();
        let mirrored = up.wait_for(|frames| is_mirrored(frames, head));
        tokio::time::timeout(DEADLINE, mirrored).await.expect("the mirror").unwrap();
        receiver.inner.down.lock().unwrap().push_back(json!({ "ack": { "events": head } }));
        world.close().await;
        receiver.seen(&format!("DELETE /api/tunnel/{session}"), 1).await;
        receiver.seen(&format!("DELETE /api/sessions/{session}"), 1).await;
        client.take_updates();
    })
    .await;
}

/// A hostile receiver costs itself a connection, and the bridge neither memory nor its senses.
#[tokio::test]
async fn a_poll_that_is_answered_with_nonsense_or_too_much_ends_its_own_connection_only() {
    run(Setup::offline(), async |server| {
        let mut client = server.older_client(Dialect::Ferret).await;
        let session = client.new_session().await;
        client.message(&session, "list").await;
        let receiver = Receiver::start(Behaviour::mirror()).await;
        receiver.inner.manner.socket.store(400, Ordering::SeqCst);
        let name = |connection: &str| json!({ "connection": connection }).to_string();
        let names = ["", "../../sessions", "a b", "x\u{1b}[2J", &"x".repeat(129)].map(name);
        receiver.answers_oddly("/open", names.into_iter().chain(["{}".into(), "x".into()]));
        let large = format!("[\"{}\"]", "x".repeat(TUNNEL_FRAME_BYTES_MAX));
        let frames = ["", "{", "{\"ready\":{}}", "[1", "[1]", "[\"\u{1b}[2J\"]"].map(str::to_owned);
        let count = receiver.answers_oddly("/down", frames.into_iter().chain(["[".repeat(100_000), large]));
        receiver.inner.down.lock().unwrap().push_back(json!({ "ready": { "events": 0, "watched": true } }));
        let pace = BridgeTimings { longest: Duration::from_millis(40), ..PACE };
        let world =
            TestBridge::start(server, &receiver.url, BridgeOptions { pace, ..BridgeOptions::default() });
        let lines = world.said("sent something unexpected", count).await;
        assert!(lines.iter().all(|line| !line.contains('\u{1b}') && line.len() < 1000), "{lines:?}");
        assert!(receiver.inner.odd.lock().unwrap().is_empty(), "everything odd was said");
        let head = server.handle(&session).await.read(engine::Seq::START).head().0;
        let mut up = receiver.inner.up.subscribe();
        let mirrored = up.wait_for(|frames| is_mirrored(frames, head));
        tokio::time::timeout(DEADLINE, mirrored).await.expect("the mirror").unwrap();
        world.close().await;
        client.take_updates();
    })
    .await;
}
