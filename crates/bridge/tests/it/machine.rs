//! The machine's own connection: what people elsewhere ask for.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use bridge::RemoteAnswers;
use engine::{Abilities, Backend, BackendSession, SessionContext, SessionOffer, SessionSpec};
use serde_json::{Value, json};
use testkit::server::{OlderClient, Server, Setup, run};
use testkit::{Script, Turns, call, say};
use wire::Dialect;

use super::test_bridge::{BridgeOptions, TestBridge};
use super::test_receiver::{Behaviour, Receiver, Socket};

async fn opened(server: &mut Server) -> (OlderClient, String) {
    let mut client = server.older_client(Dialect::Ferret).await;
    let session = client.new_session().await;
    (client, session)
}

async fn ask(machine: &mut Socket, call: u64, role: &str, body: Value) -> Value {
    let by = json!({ "id": "p1", "name": "dev", "role": role });
    machine.send(json!({ "call": { "call": call, "by": by, "body": body } })).await;
    let answer = machine.json().await;
    assert_eq!(answer["answer"]["call"], call, "{answer}");
    answer["answer"]["body"].clone()
}

#[tokio::test]
async fn people_elsewhere_are_clients_whose_role_this_machine_caps() {
    let shell = call("shell", json!({ "command": "echo x >> made" }).to_string());
    let script = Script::new([vec![shell], vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut machine = receiver.machine_socket().await;
        let hello = json!({ "machine": { "id": "m1", "name": "laptop", "version": "1.2.3", "sealed": false } });
        assert_eq!(machine.json().await, hello);
        // An owner over there is a driver here: devices and rules are this machine's own.
        for body in [json!({ "id": 3, "do": "devices" }), json!({ "id": 3, "do": "forget", "rule": "x" })] {
            let refused = ask(&mut machine, 1, "owner", body).await;
            assert_eq!((&refused["re"], &refused["error"]["code"]), (&json!(3), &json!("forbidden")));
        }
        let viewer = json!({ "id": 4, "do": "prompt", "session": session, "key": "k0", "text": "go", "pictures": [] });
        assert_eq!(ask(&mut machine, 2, "viewer", viewer).await["error"]["code"], "forbidden");
        let prompt = json!({ "id": 5, "do": "prompt", "session": session, "key": "k1", "text": "go", "pictures": [] });
        let taken = ask(&mut machine, 3, "owner", prompt.clone()).await;
        assert_eq!((&taken["re"], &taken["ok"]["is"]), (&json!(5), &json!("taken")));
        // Sent again it is done once.
        assert_eq!(ask(&mut machine, 4, "owner", prompt).await["ok"], taken["ok"]);
        assert_eq!(client.next_of("user_message").await["from"], "dev (bridge)");
        let question = client.next_of("permission_request").await;
        assert_eq!(question["id"], "perm-1");
        // For good is said at the machine: from here it holds for the session.
        let answer = json!({ "id": 6, "do": "answer", "session": session, "ask": 1, "decision": "allowAlways", "text": null });
        assert_eq!(ask(&mut machine, 5, "owner", answer).await["ok"]["is"], "done");
        client.next_of("permission_resolved").await;
        client.next_of("turn_end").await;
        let id = engine::SessionId::parse(&session).unwrap();
        let owner = engine::Principal::local();
        let read = server.registry().read(&owner, &id, engine::Seq::START, engine::PageRequest::USUAL);
        let events = read.await.unwrap();
        let by = events.iter().find_map(|event| {
            if let engine::Body::Resolved { by, .. } = &event.body { Some(by.clone()) } else { None }
        });
        assert!(by.unwrap().for_session());
        world.close().await;
    })
    .await;
}

#[tokio::test]
async fn where_answers_are_local_a_driver_elsewhere_answers_nothing() {
    let shell = call("shell", json!({ "command": "echo x >> made" }).to_string());
    let script = Script::new([vec![shell], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let options = BridgeOptions { answers: RemoteAnswers::LocalOnly, ..BridgeOptions::default() };
        let world = TestBridge::start(server, &receiver.url, options);
        let mut machine = receiver.machine_socket().await;
        machine.json().await;
        let asked = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        client.next_of("permission_request").await;
        let refused = [
            json!({ "id": 1, "do": "answer", "session": session, "ask": 1, "decision": "allowOnce", "text": null }),
            json!({ "id": 1, "do": "set", "session": session, "setting": "approval", "value": "full" }),
            json!({ "id": 1, "do": "set", "session": session, "setting": "auto_approve", "value": "full" }),
            json!({ "id": 1, "do": "open", "folder": null, "settings": { "approval": "full" } }),
            json!({ "id": 1, "do": "prompt", "session": session, "key": "k", "text": "/approval full", "pictures": [] }),
        ];
        for (number, body) in refused.into_iter().enumerate() {
            let refused = ask(&mut machine, number as u64 + 1, "owner", body).await;
            assert_eq!(refused["error"]["code"], "forbidden", "{refused}");
            assert!(refused["error"]["message"].as_str().unwrap().contains("local-only"), "{refused}");
        }
        let answer = json!({ "sessionId": session, "id": "perm-1", "decision": "allow" });
        client.call("permission/respond", answer).await;
        client.reply(asked).await.unwrap();
        world.close().await;
        client.take_updates();
    })
    .await;
}

#[tokio::test]
async fn a_call_that_is_none_is_answered_and_the_next_one_works() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut machine = receiver.machine_socket().await;
        machine.json().await;
        for body in [json!(7), json!({}), json!({ "id": 1, "do": "explode" }), json!({ "do": "rules" })] {
            assert_eq!(ask(&mut machine, 1, "driver", body).await["error"]["code"], "badRequest");
        }
        let elsewhere = json!({ "id": 2, "do": "open", "folder": "/", "settings": {} });
        assert_eq!(ask(&mut machine, 2, "owner", elsewhere).await["error"]["code"], "forbidden");
        let nobody = json!({ "id": "", "name": "x", "role": "driver" });
        machine
            .send(json!({ "call": { "call": 3, "by": nobody, "body": { "id": 1, "do": "rules" } } }))
            .await;
        assert_eq!(machine.json().await["answer"]["body"]["error"]["code"], "badRequest");
        let find = json!({ "id": 9, "do": "find", "session": session, "text": "" });
        assert_eq!(ask(&mut machine, 4, "viewer", find).await["ok"]["is"], "files");
        world.close().await;
    })
    .await;
}

/// `serve --bridge` before anybody opened a session.
#[tokio::test]
async fn without_a_session_heartbeats_have_the_approval_that_a_new_one_would_get() {
    run(Setup::offline(), async |server| {
        let receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let early = receiver.seen("POST /api/sessions/m1/heartbeat", 2).await;
        let (_client, session) = opened(server).await;
        let own = receiver.seen(&format!("POST /api/sessions/{session}/heartbeat"), 1).await.remove(0).body;
        assert!(own["approval"].as_str().is_some_and(|approval| !approval.is_empty()), "{own}");
        for beat in early {
            assert_eq!(
                beat.body,
                json!({ "sandbox": own["sandbox"], "approval": own["approval"], "cost_total_usd": 0.0 })
            );
        }
        world.close().await;
    })
    .await;
}

/// What its sessions offer lies on a disk that does not answer until the gate goes.
struct SlowDisk {
    turns: Turns,
    asked: tokio::sync::mpsc::Sender<()>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Backend for SlowDisk {
    fn abilities(&self) -> &Abilities {
        self.turns.abilities()
    }

    fn offer(&self, cwd: &Path) -> SessionOffer {
        self.asked.try_send(()).unwrap();
        assert!(self.gate.lock().unwrap().recv().is_err(), "nobody sends anything through the gate");
        self.turns.offer(cwd)
    }

    fn open(&self, spec: SessionSpec, context: SessionContext) -> Arc<dyn BackendSession> {
        self.turns.open(spec, context)
    }

    fn project_rules(&self, cwd: &Path) -> Vec<String> {
        self.turns.project_rules(cwd)
    }
}

/// A thread that reads a disk cannot be stopped. It keeps neither the bridge nor the sessions from ending.
#[tokio::test]
async fn a_bridge_ends_while_a_disk_is_still_read_for_it() {
    let (asked, mut was_asked) = tokio::sync::mpsc::channel(1);
    let (open, gate) = mpsc::channel();
    let turns = Turns::new(async |_, _| panic!("there is no session"));
    run(Setup::new(SlowDisk { turns, asked, gate: Mutex::new(gate) }), async |server| {
        let receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        was_asked.recv().await.unwrap();
        world.close().await;
    })
    .await;
    drop(open);
}
