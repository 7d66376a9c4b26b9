//! A machine whose state was put back, and the mirror that knows better.

use std::sync::Arc;

use access::sealed::Vault;
use engine::{Body, Clock, Event, POSITIONS_RESERVED, PageRequest, Principal, Seq, SessionId, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::server::{DEADLINE, Server, Setup, run};
use wire::Dialect;
use wire::tunnel::BridgeFrame;

use crate::test_bridge::{BridgeOptions, TestBridge};
use crate::test_receiver::{Behaviour, Receiver, Socket};

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000)
    }
}

/// What a hub keeps of a session, without reading it.
#[derive(Debug, Clone, Default)]
struct MirroredSession {
    events: Vec<(u64, String)>,
    mark: Option<String>,
    lineage: Option<String>,
}

impl MirroredSession {
    fn end(&self) -> u64 {
        self.events.last().map_or(0, |(seq, _)| *seq)
    }

    fn ready(&self) -> Value {
        let mut ready = json!({ "events": self.end(), "watched": true, "branches": true });
        for (name, value) in [("mark", &self.mark), ("lineage", &self.lineage)] {
            if let Some(value) = value {
                ready[name] = value.as_str().into();
            }
        }
        json!({ "ready": ready })
    }

    /// Takes batches until everything up to here is kept.
    async fn until(&mut self, socket: &mut Socket, seq: u64) {
        while self.end() < seq {
            let frame = socket.text().await.expect("a batch");
            let BridgeFrame::Batch(batch) = serde_json::from_str(&frame).unwrap() else { panic!("{frame}") };
            for entry in batch.events {
                assert!(entry.seq > self.end());
                self.events.push((entry.seq, entry.body.get().to_owned()));
                self.mark.clone_from(&batch.mark);
            }
            if let Some(source) = batch.source {
                self.lineage = source.lineage;
            }
            socket.send(json!({ "ack": { "events": self.end() } })).await;
        }
    }
}

/// A machine, whose keys are in this folder if it seals, and a hub.
struct MachineAndHub {
    receiver: Receiver,
    keys: Option<TempDir>,
    session: String,
}

impl MachineAndHub {
    async fn new(server: &mut Server, seals: bool) -> Self {
        let receiver = Receiver::start(Behaviour::mirror()).await;
        let keys = seals.then(|| tempfile::tempdir().unwrap());
        let mut client = server.older_client(Dialect::Ferret).await;
        let session = client.new_session().await;
        client.message(&session, "list").await;
        Self { receiver, keys, session }
    }

    /// One more turn on this machine.
    async fn turn(&self, server: &mut Server) {
        let mut client = server.older_client(Dialect::Ferret).await;
        client.call("session/load", json!({ "sessionId": self.session, "cwd": server.workspace() })).await;
        client.take_updates();
        client.message(&self.session, "list").await;
        client.take_updates();
    }

    async fn connect(&mut self, server: &Server) -> (TestBridge, Socket) {
        server.handle(&self.session).await;
        let vault = self.keys.as_ref().map(|folder| {
            let path = folder.path().join("sealed.json");
            Arc::new(Vault::open(&path, "m1", &self.receiver.url, Arc::new(FixedClock)).unwrap())
        });
        let world = TestBridge::start(
            server,
            &self.receiver.url,
            BridgeOptions { vault, ..BridgeOptions::default() },
        );
        let socket = self.receiver.socket().await;
        (world, socket)
    }

    /// Mirrors everything that there is.
    async fn mirror(&mut self, server: &Server, kept: &mut MirroredSession) {
        let (world, mut socket) = self.connect(server).await;
        socket.send(kept.ready()).await;
        kept.until(&mut socket, self.head(server).await).await;
        world.close().await;
    }

    async fn head(&self, server: &Server) -> u64 {
        server.handle(&self.session).await.read(Seq::START).head().0
    }

    async fn log(&self, server: &Server) -> Vec<(u64, Value)> {
        let id = SessionId::parse(&self.session).unwrap();
        let read = server.registry().read(&Principal::local(), &id, Seq::START, PageRequest::USUAL).await;
        read.unwrap().iter().map(|event| (event.seq.0, wire::event_json::encode(event))).collect()
    }

    /// Connects, finds that the mirror is of another log, and mirrors this one from its beginning. What the session is
    /// told is the last of it.
    async fn branches_off(&mut self, server: &Server, before: &MirroredSession) -> Vec<(u64, Value)> {
        let (world, mut socket) = self.connect(server).await;
        socket.send(before.ready()).await;
        let asked = socket.json().await;
        assert!(asked["branch"]["source"]["process"].is_string(), "{asked}");
        let kept_as = json!({ "session": "kept-1", "events": before.end() });
        socket
            .send(json!({ "ready": { "events": 0, "watched": true, "branches": true, "before": kept_as } }))
            .await;
        world.said("the hub keeps them as a separate session, kept-1", 1).await;
        let mut anew = MirroredSession::default();
        let mut reader = server.handle(&self.session).await.read(Seq::START);
        let is_notice = |event: &Arc<Event>| matches!(&event.body, Body::Notice { text, .. } if text.contains("state was restored"));
        while !reader.next().await.unwrap().unwrap().iter().any(is_notice) {}
        let head = self.head(server).await;
        anew.until(&mut socket, head).await;
        let log = self.log(server).await;
        let (positions, mirrored): (Vec<u64>, Vec<u64>) =
            (log.iter().map(|(seq, _)| *seq).collect(), anew.events.iter().map(|(seq, _)| *seq).collect());
        assert_eq!(positions, mirrored);
        if self.keys.is_none() {
            let text: Vec<Value> =
                anew.events.iter().map(|(_, body)| serde_json::from_str(body).unwrap()).collect();
            assert_eq!(log.iter().map(|(_, event)| event.clone()).collect::<Vec<_>>(), text);
        }
        let (last, notice) = log.last().unwrap();
        assert!(notice.to_string().contains("this machine's state was restored"), "{notice}");
        assert!(*last > before.end(), "{last} was not seen before");
        world.close().await;
        // From here on the two agree.
        self.goes_on(server, &anew).await;
        log
    }

    /// Connects, and is mirrored on without a word.
    async fn goes_on(&mut self, server: &Server, kept: &MirroredSession) {
        let (world, mut socket) = self.connect(server).await;
        socket.send(kept.ready()).await;
        let first = socket.json().await;
        assert!(first["batch"].is_object(), "{first}");
        // Everything that was sent is kept: nobody waits for it at the end.
        socket.send(json!({ "ack": { "events": 1_u64 << 50 } })).await;
        assert!(world.lines().iter().all(|line| !line.contains("put back")), "{:?}", world.lines());
        world.close().await;
    }
}

/// A copy of the state folder, put back after more was mirrored: with nothing new in it, and with other events at the
/// same positions.
async fn put_back(seals: bool) {
    run(Setup::offline().on_disk(), async |server| {
        let mut setup = MachineAndHub::new(server, seals).await;
        server.restart().await;
        let disk = server.disk();
        let mut kept = MirroredSession::default();
        setup.turn(server).await;
        setup.mirror(server, &mut kept).await;
        assert!(kept.mark.is_some() && kept.lineage.is_some());
        setup.goes_on(server, &kept).await;

        server.put_back(&disk).await;
        assert!(setup.head(server).await < kept.end(), "the mirror is ahead");
        let log = setup.branches_off(server, &kept).await;
        assert!(log.last().unwrap().0 > kept.end() + POSITIONS_RESERVED, "a gap that every dialect counts");

        server.put_back(&disk).await;
        setup.turn(server).await;
        setup.turn(server).await;
        assert!(setup.head(server).await > kept.end(), "positions mean something else");
        setup.branches_off(server, &kept).await;
        // A turn after it is mirrored like every other.
        setup.turn(server).await;
    })
    .await;
}

#[tokio::test]
async fn a_state_folder_that_was_put_back_branches_off_and_goes_on_after_what_was_seen() {
    put_back(false).await;
}

#[tokio::test]
async fn a_sealed_session_whose_state_was_put_back_branches_off_too() {
    put_back(true).await;
}

#[tokio::test]
async fn a_restored_backup_branches_off_if_something_is_missing_and_only_then() {
    run(Setup::offline().on_disk(), async |server| {
        let mut setup = MachineAndHub::new(server, false).await;
        server.restart().await;
        let mut kept = MirroredSession::default();
        setup.mirror(server, &mut kept).await;
        let all = server.back_up();
        server.restore(&all).await;
        setup.goes_on(server, &kept).await;

        let older = server.back_up();
        let mut kept = MirroredSession::default();
        setup.turn(server).await;
        setup.mirror(server, &mut kept).await;
        server.restore(&older).await;
        setup.branches_off(server, &kept).await;
    })
    .await;
}

#[tokio::test]
async fn what_a_power_cut_lost_and_what_is_not_known_is_no_branch() {
    run(Setup::offline().on_disk(), async |server| {
        let mut setup = MachineAndHub::new(server, false).await;
        server.restart().await;
        let mut kept = MirroredSession::default();
        setup.turn(server).await;
        let disk = server.disk();
        setup.turn(server).await;
        setup.mirror(server, &mut kept).await;
        server.power_cut(&disk).await;
        assert!(setup.head(server).await > kept.end());
        setup.goes_on(server, &kept).await;
        // A mirror of an earlier version says neither mark nor lineage.
        setup.goes_on(server, &MirroredSession { mark: None, lineage: None, ..kept.clone() }).await;
        // One that was marked with another key says nothing that can be compared.
        let other = MirroredSession { mark: Some("another.mark".into()), ..kept.clone() };
        setup.goes_on(server, &other).await;
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_knows_no_branches_keeps_what_it_has() {
    run(Setup::offline().on_disk(), async |server| {
        let mut setup = MachineAndHub::new(server, false).await;
        server.restart().await;
        let disk = server.disk();
        let mut kept = MirroredSession::default();
        setup.turn(server).await;
        setup.mirror(server, &mut kept).await;
        server.put_back(&disk).await;
        let (world, mut socket) = setup.connect(server).await;
        socket.send(json!({ "ready": { "events": kept.end(), "watched": true } })).await;
        let first = socket.json().await;
        assert!(first["batch"].is_object(), "{first}");
        world.close().await;
    })
    .await;
}

/// Two copies of one running machine would branch for ever; so would whoever believes a hub that makes positions up.
#[tokio::test]
async fn a_session_branches_off_only_so_often_and_says_what_is_wrong() {
    run(Setup::offline().on_disk(), async |server| {
        let mut setup = MachineAndHub::new(server, false).await;
        let (world, mut socket) = setup.connect(server).await;
        // What the hub refuses does not count.
        for _ in 0..4 {
            let end = setup.head(server).await + 10;
            socket.send(json!({ "ready": { "events": end, "watched": true, "branches": true } })).await;
            assert!(socket.json().await["branch"].is_object());
            drop(socket);
            socket = setup.receiver.socket().await;
        }
        for number in 1..=3 {
            let end = setup.head(server).await + 10;
            socket.send(json!({ "ready": { "events": end, "watched": true, "branches": true } })).await;
            assert!(socket.json().await["branch"].is_object());
            let kept_as = json!({ "session": "kept-1", "events": end });
            let ready = json!({ "events": 0, "watched": true, "branches": true, "before": kept_as });
            socket.send(json!({ "ready": ready })).await;
            world.said("the hub keeps them as a separate session", number).await;
            // It is said before the session is told, which goes on after what the hub has.
            let told = async {
                while setup.head(server).await <= end {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(DEADLINE, told).await.unwrap();
            drop(socket);
            socket = setup.receiver.socket().await;
        }
        socket.send(json!({ "ready": { "events": 1_u64 << 40, "watched": true, "branches": true } })).await;
        let said = world.said("keeps differing from the log", 1).await;
        assert!(said[0].contains("stop one of the two"), "{said:?}");
        assert!(setup.head(server).await < 1 << 30, "whoever makes positions up uses few of them up");
        world.close().await;
    })
    .await;
}

/// The process that asked for the branch was killed before its session was told.
#[tokio::test]
async fn a_session_that_was_not_told_is_told_at_the_next_connection() {
    run(Setup::offline().on_disk(), async |server| {
        let mut setup = MachineAndHub::new(server, false).await;
        let (world, mut socket) = setup.connect(server).await;
        let seen = setup.head(server).await + 10;
        let kept_as = json!({ "session": "kept-1", "events": seen });
        let ready = json!({ "events": 0, "watched": true, "branches": true, "before": kept_as });
        socket.send(json!({ "ready": ready })).await;
        world.said("the hub keeps them as a separate session", 1).await;
        // It goes on at a position that nobody has seen.
        MirroredSession::default().until(&mut socket, seen + 1).await;
        world.close().await;
    })
    .await;
}
