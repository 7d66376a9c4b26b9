//! `vectors.json`: one of everything, made from given randomness. The web app's tests open what a machine
//! sealed here, and must come to the same bytes for what a device seals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use expect_test::expect_file;
use seal::{
    ContentKeys, ContentPosition, DeviceMessage, DevicePairing, MachineId, PairingInvitation, PairingLink,
    PairingSecret, PrivateKey, Random, SealError, SharedSecret, to_text,
};
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000_000;
const SESSION: &str = "0192-a session/ä";

/// 1, 2, 3: nothing of it is secret.
struct CountingRandom(u8);

impl Random for CountingRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SealError> {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
        Ok(())
    }
}

#[test]
fn one_of_everything_comes_out_byte_for_byte() {
    let mut random = CountingRandom(0);
    let machine = MachineId::parse("laptop-1.home").unwrap();
    let own = PrivateKey::generate(&mut random).unwrap();
    let device = PrivateKey::generate(&mut random).unwrap();
    let link = PairingLink {
        machine: machine.clone(),
        secret: PairingSecret::generate(&mut random).unwrap(),
        fingerprint: own.public().fingerprint(),
    };
    let joining = DevicePairing::new(link.clone(), device.clone(), "Télephone").unwrap();
    let mut invitation = PairingInvitation::new(link.clone(), "owner", NOW).unwrap();
    let Ok(DeviceMessage::Offer(offer)) = DeviceMessage::parse(&joining.offer()) else { panic!("an offer") };
    let enrolment = invitation.take(&offer, &own, NOW + 1).unwrap();
    let paired = joining.answered(&enrolment.answer).unwrap();
    assert_eq!(paired.words, enrolment.words);
    let bond = SharedSecret::at_machine(&machine, &own, &enrolment.device).unwrap();

    let vectors = json!({
        "machine": {
            "id": machine.as_str(),
            "private": to_text(own.to_bytes().as_slice()),
            "public": to_text(own.public().as_slice()),
            "fingerprint": own.public().fingerprint().to_string(),
        },
        "device": {
            "id": bond.device().to_string(),
            "private": to_text(device.to_bytes().as_slice()),
            "public": to_text(device.public().as_slice()),
            "name": "Télephone",
        },
        "pairing": {
            "link": link.to_text().as_str(),
            "offer": to_text(&joining.offer()),
            "answer": to_text(&enrolment.answer),
            "role": enrolment.role,
            "words": enrolment.words,
        },
        "contents": contents(&machine, &bond, &mut random),
        "lane": lane(&bond, &paired.bond, &mut random),
    });
    let text = serde_json::to_string_pretty(&sorted(vectors)).unwrap();
    expect_file!["../../vectors.json"].assert_eq(&format!("{text}\n"));
}

/// The same text whether or not something else in the build has objects keep the order of their members.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Two generations: what the first one sealed can be opened by who has the second.
fn contents(machine: &MachineId, bond: &SharedSecret, random: &mut CountingRandom) -> Value {
    let asks = [3, 17];
    let places = [
        (json!({ "event": { "seq": 7 } }), ContentPosition::Event { seq: 7 }),
        (json!({ "view": { "from": null, "upto": 40 } }), ContentPosition::View { from: None, upto: 40 }),
        (
            json!({ "view": { "from": 40, "upto": 9_007_199_254_740_991_u64 } }),
            ContentPosition::View { from: Some(40), upto: 9_007_199_254_740_991 },
        ),
        (
            json!({ "card": { "state": "waiting", "asks": asks, "updatedAt": NOW } }),
            ContentPosition::Card { state: "waiting", asks: &asks, updated_at: NOW },
        ),
        (
            json!({ "card": { "state": "idle", "asks": [], "updatedAt": -1 } }),
            ContentPosition::Card { state: "idle", asks: &[], updated_at: -1 },
        ),
    ];
    let mut keys = ContentKeys::generate(random).unwrap();
    let mut sealed = Vec::new();
    for generation in 1..=2 {
        for (told, place) in &places {
            let plain = format!("generation {generation}: ¡{}!", sorted(told.clone()));
            let bytes = keys.seal(machine, SESSION, place, plain.as_bytes(), random).unwrap();
            sealed.push(
                json!({ "generation": generation, "place": told, "plain": plain, "sealed": to_text(&bytes) }),
            );
        }
        if generation == 1 {
            keys.renew(random).unwrap();
        }
    }
    let shown = shown(machine, &keys, random);
    let wrapped = bond.wrap(&keys, random).unwrap();
    json!({ "shown": shown, "session": SESSION, "generation": keys.generation(), "wrapped": to_text(&wrapped), "sealed": sealed })
}

/// Frames as a hub tells them: a card, views that continue each other, and ones that are older.
fn shown(machine: &MachineId, keys: &ContentKeys, random: &mut CountingRandom) -> Vec<Value> {
    let mut frames = Vec::new();
    for updated_at in [NOW, NOW - 1] {
        let card = json!({
            "session": SESSION, "title": format!("at {updated_at}"), "folder": "/home/me", "source": "web",
            "createdAt": 1, "updatedAt": updated_at, "state": "done", "line": null, "costUsd": null, "asks": [],
        });
        let place = ContentPosition::Card { state: "done", asks: &[], updated_at };
        let sealed =
            keys.seal(machine, SESSION, &place, sorted(card).to_string().as_bytes(), random).unwrap();
        frames.push(json!({
            "on": "sealedCard", "session": SESSION, "machine": machine.as_str(), "state": "done", "asks": [],
            "updatedAt": updated_at, "sealed": to_text(&sealed),
        }));
    }
    for (from, upto) in [(None, 40), (Some(40), 50), (None, 30), (Some(50), 60), (Some(60), 70)] {
        let view = json!({
            "session": SESSION, "upto": upto, "reset": from.is_none(), "earlier": false, "rows": [], "appends": [],
            "state": null,
        });
        let place = ContentPosition::View { from, upto };
        let sealed =
            keys.seal(machine, SESSION, &place, sorted(view).to_string().as_bytes(), random).unwrap();
        frames.push(json!({
            "on": "sealedView", "session": SESSION, "machine": machine.as_str(), "from": from, "upto": upto,
            "sealed": to_text(&sealed),
        }));
    }
    frames
}

fn lane(bond: &SharedSecret, device: &SharedSecret, random: &mut CountingRandom) -> Value {
    let mut id = CountingRandom(random.0);
    let mut lane_id = [0; 16];
    id.fill(&mut lane_id).unwrap();
    let (ask, asked) = device.ask_lane(random).unwrap();
    let Ok(DeviceMessage::LaneAsk(opened)) = DeviceMessage::parse(&ask) else {
        panic!("a lane is asked for")
    };
    let (mut lane, answer) = bond.answer_lane(&opened, random).unwrap();
    let mut caller = asked.answered(&answer).unwrap();
    let mut calls = Vec::new();
    for plain in [r#"{"id":1,"do":"rules"}"#, r#"{"id":2,"do":"devices"}"#, "¿qué?", ""] {
        let (counter, call) = caller.seal(plain.as_bytes()).unwrap();
        let Ok(DeviceMessage::Call(incoming)) = DeviceMessage::parse(&call) else { panic!("a call") };
        let (heard, answering) = lane.open(&incoming).unwrap();
        assert_eq!(heard, plain.as_bytes());
        let said = format!(r#"{{"re":{counter},"ok":{{"is":"done"}}}}"#);
        let reply = answering.seal(said.as_bytes()).unwrap();
        assert_eq!(caller.open(&reply).unwrap(), (counter, said.clone().into_bytes()));
        calls.push(json!({
            "counter": counter, "plain": plain, "call": to_text(&call), "said": said, "reply": to_text(&reply),
        }));
    }
    json!({ "lane": to_text(&lane_id), "ask": to_text(&ask), "answer": to_text(&answer), "calls": calls })
}
