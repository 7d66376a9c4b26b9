//! End to end, against a hub that does what it likes: it reads nothing, and nothing is done that a device did
//! not say, or said once and had done twice.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use access::sealed::{self, Vault};
use bridge::BridgeError;
use engine::{Clock, Timestamp};
use seal::{
    ContentKeys, ContentPosition, DeviceLane, DevicePairing, MachineId, PairedMachine, PairingLink,
    PrivateKey, SystemRandom,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::server::{Server, Setup, run};
use wire::native::Role;

use crate::test_bridge::{BridgeOptions, TestBridge};
use crate::test_receiver::{Behaviour, Receiver, Socket};

const MACHINE: &str = "m1";
const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Said in the conversation, and by nobody else.
const PLANTED: &str = "zanzibar-periwinkle";

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

/// A machine that seals, and a hub that keeps every byte.
struct MachineAndHub {
    world: TestBridge,
    receiver: Receiver,
    machine: Socket,
    folder: TempDir,
    /// Every frame of the machine's socket.
    kept: Vec<String>,
    calls: u64,
}

impl MachineAndHub {
    async fn start(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sealed.json");
        let mut receiver = Receiver::start(Behaviour::mirror()).await;
        let vault = Vault::open(&path, MACHINE, &receiver.url, Arc::new(FixedClock)).unwrap();
        let world = TestBridge::start(
            server,
            &receiver.url,
            BridgeOptions { vault: Some(Arc::new(vault)), ..BridgeOptions::default() },
        );
        let machine = receiver.machine_socket().await;
        let mut setup = Self { world, receiver, machine, folder, kept: Vec::new(), calls: 0 };
        let hello = setup.next().await;
        assert_eq!(hello["machine"]["sealed"], true);
        setup
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("sealed.json")
    }

    async fn next(&mut self) -> Value {
        let text = self.machine.text().await.expect("the machine is connected");
        self.kept.push(text.clone());
        serde_json::from_str(&text).unwrap()
    }

    /// What the machine answers to this body, whoever the hub says it is from.
    async fn call(&mut self, body: Value) -> Value {
        self.calls += 1;
        let by = json!({ "id": "p1", "name": "who the hub says", "role": "owner" });
        let call = self.calls;
        self.machine.send(json!({ "call": { "call": call, "by": by, "body": body } })).await;
        loop {
            let mut frame = self.next().await;
            if frame["answer"]["call"] == call {
                return frame["answer"]["body"].take();
            }
        }
    }

    async fn pass(&mut self, bytes: &[u8]) -> Value {
        self.call(json!({ "sealed": seal::to_text(bytes) })).await
    }

    async fn keys(&mut self, generation: u64) -> Value {
        loop {
            let frame = self.next().await;
            if frame["keys"]["generation"] == generation
                && frame["keys"]["wrapped"].as_array().is_some_and(|all| !all.is_empty())
            {
                return frame["keys"].clone();
            }
        }
    }

    async fn pair(&mut self, role: Role) -> Phone {
        let invited = sealed::invite(&self.path(), role, NOW).unwrap();
        let (_, link) = invited.url.split_once('#').unwrap();
        let key = PrivateKey::generate(&mut SystemRandom).unwrap();
        let joining = DevicePairing::new(PairingLink::parse(link).unwrap(), key, "Phone").unwrap();
        let answer = self.pass(&joining.offer()).await;
        let paired = joining.answered(&bytes(&answer)).unwrap();
        let keys = self.keys(1).await;
        let keys = unwrapped(&paired, &keys);
        let caller = self.lane(&paired).await;
        Phone { paired, caller, keys }
    }

    async fn lane(&mut self, paired: &PairedMachine) -> DeviceLane {
        let (ask, asked) = paired.bond.ask_lane(&mut SystemRandom).unwrap();
        let answer = self.pass(&ask).await;
        asked.answered(&bytes(&answer)).unwrap()
    }

    /// What a device asks, and what it is answered.
    async fn ask(&mut self, phone: &mut Phone, request: Value) -> Value {
        let (counter, sealed) = phone.caller.seal(request.to_string().as_bytes()).unwrap();
        let answer = self.pass(&sealed).await;
        let (answered, reply) = phone.caller.open(&bytes(&answer)).unwrap();
        assert_eq!(answered, counter);
        serde_json::from_slice(&reply).unwrap()
    }

    async fn open_session(&mut self, phone: &mut Phone) -> (String, Socket) {
        let opened = self.ask(phone, json!({ "id": 1, "do": "open", "folder": null, "settings": {} })).await;
        let session = opened["ok"]["session"].as_str().expect("it is opened").to_owned();
        let mut socket = self.receiver.socket().await;
        socket.send(json!({ "ready": { "events": 0, "watched": true } })).await;
        (session, socket)
    }

    async fn close(self) {
        self.world.close().await;
    }
}

struct Phone {
    paired: PairedMachine,
    caller: DeviceLane,
    keys: ContentKeys,
}

impl Phone {
    /// What stands in a part of a batch, at its place.
    fn open(&self, session: &str, part: &Value, place: &ContentPosition<'_>) -> (u64, Value) {
        let machine = MachineId::parse(MACHINE).unwrap();
        let (generation, plain) = self.keys.open(&machine, session, place, &bytes(&part["body"])).unwrap();
        (generation, serde_json::from_slice(&plain).unwrap())
    }

    fn view(&self, session: &str, view: &Value) -> (u64, Value) {
        let place =
            ContentPosition::View { from: view["from"].as_u64(), upto: view["upto"].as_u64().unwrap() };
        self.open(session, view, &place)
    }

    fn card(&self, session: &str, card: &Value) -> (u64, Value) {
        let asks: Vec<u64> =
            card["asks"].as_array().unwrap().iter().map(|ask| ask.as_u64().unwrap()).collect();
        let (state, updated_at) = (card["state"].as_str().unwrap(), card["updated_at"].as_i64().unwrap());
        self.open(session, card, &ContentPosition::Card { state, asks: &asks, updated_at })
    }
}

fn unwrapped(paired: &PairedMachine, keys: &Value) -> ContentKeys {
    let id = paired.bond.device().to_string();
    let mine = keys["wrapped"].as_array().unwrap().iter().find(|key| key["device"] == id.as_str());
    let wrapped = seal::from_text(mine.expect("a key for this device")["key"].as_str().unwrap()).unwrap();
    paired.bond.unwrap(keys["generation"].as_u64().unwrap(), &wrapped).unwrap()
}

fn bytes(body: &Value) -> Vec<u8> {
    let text = body["sealed"].as_str().unwrap_or_else(|| panic!("it is sealed: {body}"));
    seal::from_text(text).unwrap()
}

fn prompt(session: &str, key: &str, text: &str) -> Value {
    json!({ "id": 2, "do": "prompt", "session": session, "key": key, "text": text, "pictures": [] })
}

/// Batches up to the first whose events end the turn, as a device reads them.
async fn turn(phone: &Phone, session: &str, socket: &mut Socket) -> (Vec<String>, Vec<Value>) {
    let (mut kept, mut events) = (Vec::new(), Vec::new());
    loop {
        let text = socket.text().await.expect("the session is mirrored");
        let batch: Value = serde_json::from_str(&text).unwrap();
        kept.push(text);
        for event in batch["batch"]["events"].as_array().into_iter().flatten() {
            let seq = event["seq"].as_u64().unwrap();
            let (_, line) = phone.open(session, event, &ContentPosition::Event { seq });
            socket.send(json!({ "ack": { "events": seq } })).await;
            events.push(line);
        }
        if events.iter().any(|event| event.to_string().contains("turn_ended")) {
            return (kept, events);
        }
    }
}

#[tokio::test]
async fn a_hub_that_keeps_every_byte_holds_no_word_of_the_conversation_and_a_device_reads_all_of_it() {
    run(Setup::offline(), async |server| {
        let mut setup = MachineAndHub::start(server).await;
        let mut phone = setup.pair(Role::Owner).await;
        let (session, mut socket) = setup.open_session(&mut phone).await;
        let taken = setup.ask(&mut phone, prompt(&session, "k1", &format!("say {PLANTED} twice"))).await;
        assert_eq!(taken["ok"]["is"], "taken", "{taken}");
        let (mut kept, events) = turn(&phone, &session, &mut socket).await;
        assert!(events.iter().any(|event| event.to_string().contains(PLANTED)), "the device reads it");
        // The card and the view come with the events, or follow them.
        let (mut carded, mut viewed, mut read) = (false, false, 0);
        while !(carded && viewed) {
            if read == kept.len() {
                kept.push(socket.text().await.expect("the session is mirrored"));
            }
            let batch: Value = serde_json::from_str::<Value>(&kept[read]).unwrap()["batch"].take();
            let of_session = |(_, told): (u64, Value)| told["session"] == session.as_str();
            carded |= batch["card"].is_object() && of_session(phone.card(&session, &batch["card"]));
            viewed |= batch["view"].is_object() && of_session(phone.view(&session, &batch["view"]));
            read += 1;
        }

        kept.append(&mut setup.kept);
        kept.extend(setup.receiver.all().iter().map(|seen| seen.body.to_string()));
        let workspace = server.workspace().display().to_string();
        for secret in [PLANTED, "say ", "prompt", "taken", "twice", &workspace] {
            let found: Vec<_> = kept.iter().filter(|text| text.contains(secret)).collect();
            assert!(found.is_empty(), "the hub keeps {secret:?}: {found:?}");
        }
        setup.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_a_hub_repeats_reorders_swaps_or_makes_up_is_not_done() {
    run(Setup::offline(), async |server| {
        let mut setup = MachineAndHub::start(server).await;
        let mut phone = setup.pair(Role::Owner).await;
        let (session, mut socket) = setup.open_session(&mut phone).await;
        let calls: Vec<_> = ["k1", "k2", "k3"]
            .iter()
            .map(|key| {
                phone
                    .caller
                    .seal(prompt(&session, key, &format!("{PLANTED} {key}")).to_string().as_bytes())
                    .unwrap()
                    .1
            })
            .collect();
        // The second comes first: from then on the first is never taken, nor the second again.
        let reply = setup.pass(&calls[1]).await;
        let (counter, reply) = phone.caller.open(&bytes(&reply)).unwrap();
        assert!(String::from_utf8(reply).unwrap().contains("taken"), "call {counter} is done");
        for late in [&calls[0], &calls[1]] {
            assert_eq!(setup.pass(late).await["error"]["code"], "stale");
        }
        // A plain request is refused, whoever the hub says it is from.
        let refused = setup.call(prompt(&session, "k4", PLANTED)).await;
        assert_eq!(refused["error"]["code"], "forbidden", "{refused}");
        // Changed on its way.
        let mut changed = calls[2].clone();
        if let Some(last) = changed.last_mut() {
            *last ^= 1;
        }
        assert_eq!(setup.pass(&changed).await["error"]["code"], "badRequest");
        let (_, events) = turn(&phone, &session, &mut socket).await;
        let done: HashSet<_> = ["k1", "k2", "k3", "k4"]
            .into_iter()
            .filter(|key| events.iter().any(|event| event.to_string().contains(&format!("{PLANTED} {key}"))))
            .collect();
        assert_eq!(done, HashSet::from(["k2"]), "one was done, and once");
        setup.close().await;
    })
    .await;
}

#[tokio::test]
async fn who_looks_cannot_drive_whatever_the_hub_says_of_their_role() {
    run(Setup::offline(), async |server| {
        let mut setup = MachineAndHub::start(server).await;
        let mut owner = setup.pair(Role::Owner).await;
        let (session, _socket) = setup.open_session(&mut owner).await;
        let invited = sealed::invite(&setup.path(), Role::Viewer, NOW).unwrap();
        let (_, link) = invited.url.split_once('#').unwrap();
        let key = PrivateKey::generate(&mut SystemRandom).unwrap();
        let joining = DevicePairing::new(PairingLink::parse(link).unwrap(), key, "Guest").unwrap();
        let answer = setup.pass(&joining.offer()).await;
        let paired = joining.answered(&bytes(&answer)).unwrap();
        let caller = setup.lane(&paired).await;
        let mut viewer = Phone { paired, caller, keys: owner.keys.clone() };
        let refused = setup.ask(&mut viewer, prompt(&session, "k1", "no")).await;
        assert_eq!(refused["error"]["code"], "forbidden", "{refused}");
        setup.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_a_sealed_request_is_said_sealed_too() {
    run(Setup::offline(), async |server| {
        let mut setup = MachineAndHub::start(server).await;
        let mut phone = setup.pair(Role::Owner).await;
        for request in [
            json!({ "id": 4, "do": PLANTED }),
            json!({ "id": 5, "do": "watch", "session": format!("../{PLANTED}"), "after": null }),
        ] {
            let refused = setup.ask(&mut phone, request).await;
            assert_eq!(refused["error"]["code"], "badRequest", "{refused}");
        }
        assert!(!setup.kept.iter().any(|text| text.contains(PLANTED) || text.contains("badRequest")));
        setup.close().await;
    })
    .await;
}

#[tokio::test]
async fn after_a_revocation_everything_to_be_seen_is_sealed_anew_with_a_key_that_the_device_has_not() {
    run(Setup::offline(), async |server| {
        let mut setup = MachineAndHub::start(server).await;
        let mut kept_on = setup.pair(Role::Owner).await;
        let (session, mut socket) = setup.open_session(&mut kept_on).await;
        let lost = {
            let invited = sealed::invite(&setup.path(), Role::Owner, NOW).unwrap();
            let (_, link) = invited.url.split_once('#').unwrap();
            let key = PrivateKey::generate(&mut SystemRandom).unwrap();
            let joining = DevicePairing::new(PairingLink::parse(link).unwrap(), key, "Lost").unwrap();
            let answer = setup.pass(&joining.offer()).await;
            joining.answered(&bytes(&answer)).unwrap()
        };
        assert!(sealed::revoke(&setup.path(), &lost.bond.device().to_string()).unwrap());
        let keys = setup.keys(2).await;
        assert_eq!(keys["wrapped"].as_array().unwrap().len(), 1, "one device is left");
        kept_on.keys = unwrapped(&kept_on.paired, &keys);
        let (mut card, mut view) = (None, None);
        while card.is_none() || view.is_none() {
            let batch = socket.json().await["batch"].take();
            let sealed_anew = |told: (u64, Value)| (told.0 == 2).then_some(told.1);
            if batch["card"].is_object() {
                card = card.or(sealed_anew(kept_on.card(&session, &batch["card"])));
            }
            if batch["view"].is_object() && batch["view"]["from"].is_null() {
                view = view.or(sealed_anew(kept_on.view(&session, &batch["view"])));
            }
        }
        let (ask, _) = lost.bond.ask_lane(&mut SystemRandom).unwrap();
        assert_eq!(setup.pass(&ask).await["error"]["code"], "forbidden");
        setup.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_keeps_no_mirror_is_told_nothing_and_the_bridge_says_why_it_ends() {
    run(Setup::offline(), async |server| {
        let folder = tempfile::tempdir().unwrap();
        let receiver = Receiver::start(Behaviour::plain()).await;
        let vault =
            Vault::open(&folder.path().join("sealed.json"), MACHINE, &receiver.url, Arc::new(FixedClock))
                .unwrap();
        let mut world = TestBridge::start(
            server,
            &receiver.url,
            BridgeOptions { vault: Some(Arc::new(vault)), ..BridgeOptions::default() },
        );
        let mut client = server.client().await;
        client.new_session().await;
        assert_eq!(world.failed().await, BridgeError::Unsealable);
        let registered = receiver.seen("POST /api/sessions", 1).await;
        assert_eq!((&registered[0].body["cwd"], &registered[0].body["sealed"]), (&json!(""), &json!(true)));
        world.close().await;
    })
    .await;
}
