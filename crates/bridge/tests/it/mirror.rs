//! A receiver that keeps a mirror.

use engine::{PageRequest, Principal, Seq, SessionId};
use serde_json::{Value, json};
use testkit::server::{OlderClient, Server, Setup, run};
use testkit::{Script, call, say};
use wire::Dialect;
use wire::native::{SessionCard, ViewUpdate};
use wire::tunnel::{BridgeFrame, MirrorBatch};

use super::test_bridge::{BridgeOptions, TestBridge};
use super::test_receiver::{Behaviour, Receiver, Socket};

async fn opened(server: &mut Server) -> (OlderClient, String) {
    let mut client = server.older_client(Dialect::Ferret).await;
    let session = client.new_session().await;
    (client, session)
}

/// What a hub keeps of a session.
#[derive(Default)]
pub struct Mirror {
    pub events: Vec<(u64, Value)>,
    pub views: Vec<(Option<u64>, ViewUpdate)>,
    pub card: Option<SessionCard>,
}

impl Mirror {
    pub fn end(&self) -> u64 {
        self.events.last().map_or(0, |(seq, _)| *seq)
    }

    pub async fn batch(&mut self, socket: &mut Socket) -> MirrorBatch {
        let frame = socket.text().await.expect("a batch");
        let BridgeFrame::Batch(batch) = serde_json::from_str(&frame).unwrap() else { panic!("{frame}") };
        self.take(&batch);
        batch
    }

    pub fn take(&mut self, batch: &MirrorBatch) {
        for entry in &batch.events {
            if entry.seq > self.end() {
                self.events.push((entry.seq, serde_json::from_str(entry.body.get()).unwrap()));
            }
        }
        if let Some(view) = &batch.view {
            let last = self.views.last().map(|(_, view)| view.upto);
            assert!(view.from.is_none() || view.from == last, "a view continues the one before it");
            let body: ViewUpdate = serde_json::from_str(view.body.get()).unwrap();
            assert_eq!((body.upto, body.reset), (view.upto, view.from.is_none()));
            self.views.push((view.from, body));
        }
        if let Some(card) = &batch.card {
            let body: SessionCard = serde_json::from_str(card.body.get()).unwrap();
            assert_eq!((body.state, body.updated_at), (card.state, card.updated_at));
            self.card = Some(body);
        }
    }

    /// Takes batches until everything up to here is kept, and acknowledges each.
    pub async fn until(&mut self, socket: &mut Socket, seq: u64) {
        while self.end() < seq || self.views.last().is_none_or(|(_, view)| view.upto < seq) {
            self.batch(socket).await;
            socket.send(json!({ "ack": { "events": self.end() } })).await;
        }
    }
}

async fn log(server: &Server, session: &str) -> Vec<(u64, Value)> {
    let id = SessionId::parse(session).unwrap();
    let events =
        server.registry().read(&Principal::local(), &id, Seq::START, PageRequest::USUAL).await.unwrap();
    events.iter().map(|event| (event.seq.0, wire::event_json::encode(event))).collect()
}

#[tokio::test]
async fn the_log_the_views_and_the_card_are_mirrored_and_go_on_after_a_cut() {
    let script = Script::new([vec![say("one"), call("list", "{}")], vec![say("two")], vec![say("three")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "first").await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let mut mirror = Mirror::default();
        socket.send(json!({ "ready": { "events": 0, "watched": true } })).await;
        let whole = log(server, &session).await;
        mirror.until(&mut socket, whole.last().unwrap().0).await;
        assert_eq!(mirror.events, whole);
        assert!(mirror.views[0].0.is_none() && mirror.views[0].1.state.is_some());
        assert!(mirror.views[0].1.state.as_ref().unwrap().others.is_empty(), "the mirror is nobody");
        assert_eq!(mirror.card.as_ref().unwrap().session, session);
        // Nobody is told twice, however the connection ended, and nothing is left out.
        drop(socket);
        world.said("bridge: WS closed", 1).await;
        client.message(&session, "second").await;
        let whole = log(server, &session).await;
        let mut socket = receiver.socket().await;
        let upto = mirror.views.last().unwrap().1.upto;
        let ready = json!({ "ready": { "events": mirror.end(), "view": upto, "watched": false } });
        socket.send(ready).await;
        let (known, seen) = (mirror.end(), mirror.views.len());
        let first = mirror.batch(&mut socket).await;
        assert!(first.events.iter().all(|entry| entry.seq > known), "{first:?}");
        mirror.until(&mut socket, whole.last().unwrap().0).await;
        assert_eq!(mirror.views[seen].0, Some(upto), "the view goes on");
        assert_eq!(mirror.events, whole);
        world.close().await;
        receiver.seen(&format!("DELETE /api/sessions/{session}"), 1).await;
    })
    .await;
}

/// After a power cut, or with the disk of a backup, the machine has less than its mirror. No position means two things,
/// so the mirror keeps what it has and goes on.
#[tokio::test]
async fn a_machine_that_comes_back_with_an_older_disk_is_mirrored_on() {
    run(Setup::offline().on_disk(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        let disk = server.disk();
        client.message(&session, "list").await;
        client.take_updates();
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let mut mirror = Mirror::default();
        socket.send(json!({ "ready": { "events": 0, "watched": true } })).await;
        let before = log(server, &session).await;
        mirror.until(&mut socket, before.last().unwrap().0).await;
        world.close().await;
        drop((client, socket));
        server.power_cut(&disk).await;

        let handle = server.handle(&session).await;
        let head = handle.read(Seq::START).head().0;
        assert!(head > mirror.end(), "{head} is after everything that anybody has seen");
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        mirror.views.clear();
        socket.send(json!({ "ready": { "events": mirror.end(), "watched": true } })).await;
        mirror.until(&mut socket, head).await;
        let after = log(server, &session).await;
        let new: Vec<_> = after.into_iter().filter(|(seq, _)| *seq > before.last().unwrap().0).collect();
        assert!(new[0].1.to_string().contains("may be missing"), "{new:?}");
        assert_eq!(mirror.events, [before, new].concat());
        world.close().await;
    })
    .await;
}

#[tokio::test]
async fn whoever_comes_to_look_gets_a_view_that_stands_for_itself() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        socket.send(json!({ "ready": { "events": 0, "watched": false } })).await;
        let mut mirror = Mirror::default();
        let end = log(server, &session).await.last().unwrap().0;
        mirror.until(&mut socket, end).await;
        // A frame of a later version is passed over.
        socket.send(json!({ "weather": { "sunny": true } })).await;
        socket.send(json!({ "watched": { "watched": true, "anew": true } })).await;
        let batch = mirror.batch(&mut socket).await;
        assert!(batch.view.is_some_and(|view| view.from.is_none() && view.upto == end));
        world.close().await;
    })
    .await;
}

/// A mirror that does not acknowledge holds up its own session, by a bounded amount, and no turn.
#[tokio::test]
async fn a_mirror_that_keeps_nothing_is_sent_only_so_much() {
    let lines: Vec<_> =
        (0..40).map(|_| vec![say("x".repeat(400_000).as_str()), call("list", "{}")]).collect();
    let script = Script::new(lines);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        client.call("session/setApproval", json!({ "sessionId": session, "approval": "full" })).await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        socket.send(json!({ "ready": { "events": 0, "watched": false } })).await;
        client.message(&session, "go").await;
        let whole = log(server, &session).await;
        let mut mirror = Mirror::default();
        let end = server.handle(&session).await.read(Seq::START).head().0;
        // Views come without acknowledgements; events stop after a while.
        while mirror.views.last().is_none_or(|(_, view)| view.upto < end) {
            mirror.batch(&mut socket).await;
        }
        assert!(mirror.end() < end, "{} of {end}", mirror.end());
        let status = client.call("session/bridgeStatus", json!({ "sessionId": session })).await;
        assert!(status["queued"].as_u64().unwrap() >= end - mirror.end(), "{status}");
        socket.send(json!({ "ack": { "events": mirror.end() } })).await;
        mirror.until(&mut socket, end).await;
        assert_eq!(mirror.events[..whole.len()], whole);
        client.take_updates();
        world.close().await;
    })
    .await;
}

#[tokio::test]
async fn only_the_chosen_session_is_bridged_where_only_one_is() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        let other = client.new_session().await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let only = Some(SessionId::parse(&session).unwrap());
        let world =
            TestBridge::start(server, &receiver.url, BridgeOptions { only, ..BridgeOptions::default() });
        let mut machine = receiver.machine_socket().await;
        assert!(machine.json().await["machine"]["id"] == "m1");
        let by = json!({ "id": "p1", "name": "dev", "role": "driver" });
        let watch = json!({ "id": 7, "do": "watch", "session": other, "after": null });
        machine.send(json!({ "call": { "call": 1, "by": by, "body": watch } })).await;
        assert_eq!(machine.json().await["answer"]["body"], json!({ "re": 7, "ok": { "is": "done" } }));
        // Somebody over there opened the other one, so it is bridged too. The first was registered twice: a hub is told of
        // the machine when it said that it is one.
        receiver.seen("POST /api/sessions", 3).await;
        let bodies: Vec<_> =
            receiver.all().into_iter().filter(|seen| seen.what == "POST /api/sessions").collect();
        let ids: Vec<_> = bodies.iter().map(|seen| seen.body["session_id"].as_str().unwrap()).collect();
        assert_eq!(ids, [session.as_str(), session.as_str(), other.as_str()]);
        let machines: Vec<_> = bodies.iter().map(|seen| seen.body["machine"].clone()).collect();
        assert_eq!(machines, [Value::Null, json!("m1"), json!("m1")]);
        world.close().await;
    })
    .await;
}

#[tokio::test]
async fn that_a_session_was_deleted_is_said_until_the_receiver_has_heard_it() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        receiver.inner.manner.farewell.store(503, std::sync::atomic::Ordering::SeqCst);
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        socket.send(json!({ "ready": { "events": 0, "watched": true } })).await;
        let id = SessionId::parse(&session).unwrap();
        assert!(server.registry().delete(&Principal::local(), &id).await.unwrap());
        let deleted = format!("DELETE /api/sessions/{session}?deleted=true");
        receiver.seen(&deleted, 2).await;
        receiver.inner.manner.farewell.store(204, std::sync::atomic::Ordering::SeqCst);
        let said = receiver.seen(&deleted, 3).await.len();
        world.close().await;
        let all = receiver.all();
        let farewells = all.iter().filter(|seen| seen.what.starts_with("DELETE /api/sessions/"));
        assert!(farewells.count() <= said + 1, "it is said once more at most, and nothing else is");
    })
    .await;
}
