//! The hub is the one who attacks: whatever it changes, moves, repeats, cuts or makes up is refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use seal::{
    ContentKeys, ContentPosition, DeviceLane, DeviceMessage, DevicePairing, Lane, Lanes, MachineId,
    PairingInvitation, PairingLink, PairingSecret, Point, PrivateKey, SealError, SharedSecret, SystemRandom,
};

const NOW: i64 = 1_800_000_000_000;

struct TestPairing {
    machine: MachineId,
    own: PrivateKey,
    device: PrivateKey,
}

impl TestPairing {
    fn new() -> Self {
        let key = || PrivateKey::generate(&mut SystemRandom).unwrap();
        Self { machine: MachineId::parse("laptop").unwrap(), own: key(), device: key() }
    }

    fn at_machine(&self) -> SharedSecret {
        SharedSecret::at_machine(&self.machine, &self.own, &self.device.public()).unwrap()
    }

    fn at_device(&self) -> SharedSecret {
        SharedSecret::at_device(&self.machine, &self.device, &self.own.public()).unwrap()
    }

    fn lane(&self) -> (DeviceLane, Lane) {
        let (ask, asked) = self.at_device().ask_lane(&mut SystemRandom).unwrap();
        let (lane, answer) = self.answer(&ask).unwrap();
        (asked.answered(&answer).unwrap(), lane)
    }

    fn answer(&self, ask: &[u8]) -> Result<(Lane, Vec<u8>), SealError> {
        let DeviceMessage::LaneAsk(ask) = DeviceMessage::parse(ask)? else {
            return Err(SealError::Malformed);
        };
        if ask.device != self.device.public().device() {
            return Err(SealError::UnknownDevice);
        }
        self.at_machine().answer_lane(&ask, &mut SystemRandom)
    }

    fn link(&self) -> PairingLink {
        let secret = PairingSecret::generate(&mut SystemRandom).unwrap();
        PairingLink { machine: self.machine.clone(), secret, fingerprint: self.own.public().fingerprint() }
    }
}

fn call(lane: &mut Lane, bytes: &[u8]) -> Result<Vec<u8>, SealError> {
    match DeviceMessage::parse(bytes)? {
        DeviceMessage::Call(sealed) => lane.open(&sealed).map(|(plain, _)| plain),
        DeviceMessage::Offer(_) | DeviceMessage::LaneAsk(_) => Err(SealError::Malformed),
    }
}

fn offered(
    invitation: &mut PairingInvitation,
    bytes: &[u8],
    own: &PrivateKey,
    now: i64,
) -> Result<seal::Enrolment, SealError> {
    match DeviceMessage::parse(bytes)? {
        DeviceMessage::Offer(offer) => invitation.take(&offer, own, now),
        DeviceMessage::Call(_) | DeviceMessage::LaneAsk(_) => Err(SealError::Malformed),
    }
}

/// Every bit flipped, every length that is shorter, one byte more.
fn damaged(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let flipped = (0..bytes.len() * 8).map(|bit| {
        let mut changed = bytes.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        changed
    });
    let cut = (0..bytes.len()).map(|length| bytes[..length].to_vec());
    flipped.chain(cut).chain([[bytes, &[0]].concat()])
}

#[test]
fn nothing_that_was_damaged_is_opened() {
    let pairing = TestPairing::new();
    let keys = ContentKeys::generate(&mut SystemRandom).unwrap();
    let place = ContentPosition::View { from: Some(3), upto: 9 };
    let content = keys.seal(&pairing.machine, "s", &place, b"hello", &mut SystemRandom).unwrap();
    let wrapped = pairing.at_machine().wrap(&keys, &mut SystemRandom).unwrap();
    for bytes in damaged(&content) {
        keys.open(&pairing.machine, "s", &place, &bytes).unwrap_err();
    }
    for bytes in damaged(&wrapped) {
        pairing.at_device().unwrap(1, &bytes).unwrap_err();
    }
    assert_eq!(keys.open(&pairing.machine, "s", &place, &content).unwrap(), (1, b"hello".to_vec()));
    assert_eq!(pairing.at_device().unwrap(1, &wrapped).unwrap().to_bytes(), keys.to_bytes());
}

#[test]
fn no_damaged_call_reply_or_lane_is_taken_and_the_whole_one_still_is() {
    let pairing = TestPairing::new();
    let (ask, asked) = pairing.at_device().ask_lane(&mut SystemRandom).unwrap();
    assert!(damaged(&ask).all(|bytes| pairing.answer(&bytes).is_err()));
    let (mut lane, answer) = pairing.answer(&ask).unwrap();
    assert!(damaged(&answer).all(|bytes| asked.answered(&bytes).is_err()));
    let mut caller = asked.answered(&answer).unwrap();
    let (_, sealed) = caller.seal(b"prompt").unwrap();
    assert!(damaged(&sealed).all(|bytes| call(&mut lane, &bytes).is_err()));
    let Ok(DeviceMessage::Call(incoming)) = DeviceMessage::parse(&sealed) else { panic!("a call") };
    let (_, answering) = lane.open(&incoming).unwrap();
    let reply = answering.seal(b"taken").unwrap();
    assert!(damaged(&reply).all(|bytes| caller.open(&bytes).is_err()));
    assert_eq!(caller.open(&reply).unwrap(), (1, b"taken".to_vec()));
}

#[test]
fn no_damaged_offer_or_answer_pairs_anybody() {
    let pairing = TestPairing::new();
    let link = pairing.link();
    let joining = DevicePairing::new(link.clone(), pairing.device.clone(), "phone").unwrap();
    let offer = joining.offer();
    for bytes in damaged(&offer) {
        let mut invitation = PairingInvitation::new(link.clone(), "viewer", NOW).unwrap();
        offered(&mut invitation, &bytes, &pairing.own, NOW).unwrap_err();
    }
    let mut invitation = PairingInvitation::new(link, "viewer", NOW).unwrap();
    let enrolment = offered(&mut invitation, &offer, &pairing.own, NOW).unwrap();
    assert!(damaged(&enrolment.answer).all(|bytes| joining.answered(&bytes).is_err()));
    let paired = joining.answered(&enrolment.answer).unwrap();
    assert_eq!((paired.role.as_str(), &paired.words), ("viewer", &enrolment.words));
    assert_eq!(enrolment.device, pairing.device.public());
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BoundFields {
    machine: String,
    session: String,
    kind: u8,
    from: Option<u64>,
    upto: u64,
    asks: Vec<u64>,
    state: String,
}

impl BoundFields {
    fn place(&self) -> ContentPosition<'_> {
        match self.kind {
            0 => ContentPosition::Event { seq: self.upto },
            1 => ContentPosition::View { from: self.from, upto: self.upto },
            _ => ContentPosition::Card {
                state: &self.state,
                asks: &self.asks,
                updated_at: self.upto.cast_signed(),
            },
        }
    }

    fn same(&self, other: &Self) -> bool {
        (&self.machine, &self.session, self.place()) == (&other.machine, &other.session, other.place())
    }
}

fn spot() -> impl Strategy<Value = BoundFields> {
    let number = || prop_oneof![0..4_u64, any::<u64>()];
    (
        ("[ab]{1,2}", "[ab]{0,2}", 0..3_u8),
        (proptest::option::of(number()), number(), proptest::collection::vec(number(), 0..3), "[ab]{0,2}"),
    )
        .prop_map(|((machine, session, kind), (from, upto, asks, state))| BoundFields {
            machine,
            session,
            kind,
            from,
            upto,
            asks,
            state,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_sealed_for_one_place_is_read_at_that_place_and_no_other(
        here in spot(), there in spot(), text in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let keys = ContentKeys::generate(&mut SystemRandom).unwrap();
        let machine = |spot: &BoundFields| MachineId::parse(&spot.machine).unwrap();
        let sealed = keys.seal(&machine(&here), &here.session, &here.place(), &text, &mut SystemRandom).unwrap();
        let opened = keys.open(&machine(&here), &here.session, &here.place(), &sealed);
        prop_assert_eq!(opened, Ok((1, text)));
        let moved = keys.open(&machine(&there), &there.session, &there.place(), &sealed);
        prop_assert_eq!(moved.is_ok(), here.same(&there));
    }

    #[test]
    fn in_any_order_and_any_number_of_times_each_call_is_taken_once_and_none_after_a_later_one(
        order in proptest::collection::vec(0..6_usize, 0..24),
    ) {
        let pairing = TestPairing::new();
        let (mut caller, mut lane) = pairing.lane();
        let calls: Vec<_> = (0..6).map(|_| caller.seal(b"do it").unwrap().1).collect();
        let mut highest = None;
        for which in order {
            let taken = call(&mut lane, &calls[which]);
            if Some(which) > highest {
                prop_assert!(taken.is_ok());
                highest = Some(which);
            } else {
                prop_assert_eq!(taken, Err(SealError::Replayed));
            }
        }
    }

    #[test]
    fn whatever_bytes_come_nothing_breaks(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in any::<u8>()) {
        let pairing = TestPairing::new();
        let (mut caller, mut lane) = pairing.lane();
        for bytes in [bytes.clone(), [&[kind][..], &bytes].concat(), [&[0x30][..], &bytes].concat()] {
            prop_assert!(call(&mut lane, &bytes).is_err());
            prop_assert!(caller.open(&bytes).is_err());
            prop_assert!(pairing.at_device().unwrap(1, &bytes).is_err());
            prop_assert!(pairing.answer(&bytes).is_err());
        }
        prop_assert!(PairingLink::parse(&String::from_utf8_lossy(&bytes)).is_err());
    }
}

#[test]
fn what_was_said_in_one_lane_is_nothing_in_another_nor_after_a_restart() {
    let pairing = TestPairing::new();
    let (mut caller, mut lane) = pairing.lane();
    let (mut other_caller, mut other_lane) = pairing.lane();
    let (_, sealed) = caller.seal(b"do it").unwrap();
    let mut lanes = Lanes::default();
    let Ok(DeviceMessage::Call(incoming)) = DeviceMessage::parse(&sealed) else { panic!("a call") };
    assert_eq!(lanes.open(&incoming).err(), Some(SealError::UnknownLane));
    assert_eq!(call(&mut other_lane, &sealed), Err(SealError::UnknownLane));
    let reply = lane.open(&incoming).unwrap().1.seal(b"done").unwrap();
    assert_eq!(other_caller.open(&reply), Err(SealError::UnknownLane));
    assert_eq!(caller.open(&reply).unwrap().0, 1);
    assert_eq!(caller.open(&reply), Err(SealError::Replayed));
}

#[test]
fn a_lane_that_is_asked_for_twice_is_another_one() {
    let pairing = TestPairing::new();
    let (ask, asked) = pairing.at_device().ask_lane(&mut SystemRandom).unwrap();
    let (mut first, answer) = pairing.answer(&ask).unwrap();
    let mut caller = asked.answered(&answer).unwrap();
    let (_, sealed) = caller.seal(b"do it").unwrap();
    call(&mut first, &sealed).unwrap();
    // The hub says the same ask once more and would have everything since taken again.
    let (mut second, _) = pairing.answer(&ask).unwrap();
    assert_eq!(call(&mut second, &sealed), Err(SealError::Forged));
}

#[test]
fn replies_cannot_be_swapped() {
    let pairing = TestPairing::new();
    let (mut caller, mut lane) = pairing.lane();
    let mut reply_to = |text: &[u8]| {
        let (counter, sealed) = caller.seal(text).unwrap();
        let Ok(DeviceMessage::Call(incoming)) = DeviceMessage::parse(&sealed) else { panic!("a call") };
        (counter, lane.open(&incoming).unwrap().1.seal(text).unwrap())
    };
    let ((one, first), (two, second)) = (reply_to(b"yes"), reply_to(b"no"));
    assert_eq!(caller.open(&second).unwrap(), (two, b"no".to_vec()));
    assert_eq!(caller.open(&first).unwrap(), (one, b"yes".to_vec()));
}

#[test]
fn a_device_has_its_own_lanes_and_cannot_push_out_those_of_another() {
    let mut lanes = Lanes::default();
    let (quiet, busy) = (TestPairing::new(), TestPairing::new());
    let (mut caller, lane) = quiet.lane();
    lanes.insert(lane);
    for _ in 0..40 {
        lanes.insert(busy.lane().1);
    }
    let open = |lanes: &mut Lanes, bytes: &[u8]| match DeviceMessage::parse(bytes).unwrap() {
        DeviceMessage::Call(sealed) => lanes.open(&sealed).map(|(plain, _)| plain),
        DeviceMessage::Offer(_) | DeviceMessage::LaneAsk(_) => panic!("a call"),
    };
    let (_, sealed) = caller.seal(b"still here").unwrap();
    assert_eq!(open(&mut lanes, &sealed).unwrap(), b"still here");
    lanes.forget(quiet.device.public().device());
    let (_, sealed) = caller.seal(b"revoked").unwrap();
    assert_eq!(open(&mut lanes, &sealed), Err(SealError::UnknownLane));
}

#[test]
fn a_revoked_device_reads_what_it_could_read_and_nothing_later() {
    let (pairing, mut keys) = (TestPairing::new(), ContentKeys::generate(&mut SystemRandom).unwrap());
    let wrapped = pairing.at_machine().wrap(&keys, &mut SystemRandom).unwrap();
    let revoked = pairing.at_device().unwrap(1, &wrapped).unwrap();
    let place = ContentPosition::Event { seq: 1 };
    let before = keys.seal(&pairing.machine, "s", &place, b"before", &mut SystemRandom).unwrap();
    assert_eq!(keys.renew(&mut SystemRandom), Ok(2));
    let after = keys.seal(&pairing.machine, "s", &place, b"after", &mut SystemRandom).unwrap();
    assert_eq!(revoked.open(&pairing.machine, "s", &place, &before).unwrap().1, b"before");
    assert_eq!(revoked.open(&pairing.machine, "s", &place, &after), Err(SealError::UnknownGeneration));
    // Those who stay read both, and are told which of the two was sealed with the newest key.
    assert_eq!(keys.open(&pairing.machine, "s", &place, &before).unwrap().0, 1);
    assert_eq!(keys.open(&pairing.machine, "s", &place, &after).unwrap().0, 2);
    // The old keys cannot be passed off as the new ones.
    assert_eq!(pairing.at_device().unwrap(2, &wrapped).err(), Some(SealError::Forged));
}

#[test]
fn keys_are_for_one_device_and_one_machine() {
    let (one, other) = (TestPairing::new(), TestPairing::new());
    let keys = ContentKeys::generate(&mut SystemRandom).unwrap();
    let wrapped = one.at_machine().wrap(&keys, &mut SystemRandom).unwrap();
    assert_eq!(other.at_device().unwrap(1, &wrapped).err(), Some(SealError::Forged));
    let elsewhere = MachineId::parse("desktop").unwrap();
    let bond = SharedSecret::at_device(&elsewhere, &one.device, &one.own.public()).unwrap();
    assert_eq!(bond.unwrap(1, &wrapped).err(), Some(SealError::Forged));
}

#[test]
fn an_invitation_is_good_for_one_device_five_minutes_and_five_tries() {
    let pairing = TestPairing::new();
    let link = pairing.link();
    let key = || PrivateKey::generate(&mut SystemRandom).unwrap();
    let mut invitation = PairingInvitation::new(link.clone(), "owner", NOW).unwrap();
    let offer = DevicePairing::new(link.clone(), pairing.device.clone(), "phone").unwrap().offer();
    let late = offered(&mut invitation, &offer, &pairing.own, NOW + seal::INVITATION_MS);
    assert_eq!(late.err(), Some(SealError::Uninvited));
    assert!(!offered(&mut invitation, &offer, &pairing.own, NOW).unwrap().again);
    // The answer was lost on its way: the same device asks again and is still one.
    assert!(offered(&mut invitation, &offer, &pairing.own, NOW).unwrap().again);
    let second = DevicePairing::new(link.clone(), key(), "phone").unwrap().offer();
    assert_eq!(offered(&mut invitation, &second, &pairing.own, NOW).err(), Some(SealError::Uninvited));

    let mut invitation = PairingInvitation::new(link, "owner", NOW).unwrap();
    let mut forged = offer.clone();
    if let Some(last) = forged.last_mut() {
        *last ^= 1;
    }
    for _ in 0..5 {
        assert_eq!(offered(&mut invitation, &forged, &pairing.own, NOW).err(), Some(SealError::Uninvited));
    }
    assert_eq!(offered(&mut invitation, &offer, &pairing.own, NOW).err(), Some(SealError::Uninvited));
}

#[test]
fn who_does_not_know_the_secret_can_neither_join_nor_pose_as_the_machine() {
    let (pairing, hub) = (TestPairing::new(), PrivateKey::generate(&mut SystemRandom).unwrap());
    let link = pairing.link();
    // The hub has seen everything but the fragment: it makes up a secret.
    let guessed = PairingLink { secret: PairingSecret::generate(&mut SystemRandom).unwrap(), ..link.clone() };
    let mut invitation = PairingInvitation::new(link.clone(), "owner", NOW).unwrap();
    let offer = DevicePairing::new(guessed, hub.clone(), "phone").unwrap().offer();
    assert_eq!(offered(&mut invitation, &offer, &pairing.own, NOW).err(), Some(SealError::Uninvited));
    // It answers in the machine's place: with a key of its own, and with the machine's and a made-up mac.
    let joining = DevicePairing::new(link, pairing.device.clone(), "phone").unwrap();
    let pretended = [&[0x11][..], hub.public().as_slice(), &[7; 32], b"owner"].concat();
    assert_eq!(joining.answered(&pretended).err(), Some(SealError::AnotherMachine));
    let pretended = [&[0x11][..], pairing.own.public().as_slice(), &[7; 32], b"owner"].concat();
    assert_eq!(joining.answered(&pretended).err(), Some(SealError::Forged));
}

#[test]
fn a_link_is_read_as_it_was_written() {
    let pairing = TestPairing::new();
    let link = PairingLink { machine: MachineId::parse("a.b-c_1").unwrap(), ..pairing.link() };
    let text = link.to_text();
    let read = PairingLink::parse(&text).unwrap();
    assert_eq!((read.machine, read.fingerprint), (link.machine, link.fingerprint));
    for wrong in [
        "",
        "a.b.c",
        "..",
        &text[1..text.len() - 1],
        &format!("{}.", text.as_str()),
        &format!("/{}", text.as_str()),
    ] {
        assert_eq!(PairingLink::parse(wrong).err(), Some(SealError::NotALink), "{wrong}");
    }
}

#[test]
fn nothing_secret_is_printed() {
    let pairing = TestPairing::new();
    let keys = ContentKeys::generate(&mut SystemRandom).unwrap();
    let printed =
        format!("{:?} {:?} {:?} {:?}", pairing.own, pairing.at_machine(), keys, pairing.link().secret);
    assert_eq!(printed.matches("PrivateKey").count(), 1);
    // What is printed are two ids of 16 bytes at most, and no list of 32.
    for secret in [pairing.own.to_bytes().to_vec(), keys.to_bytes().to_vec()] {
        let list = format!("{:?}", &secret[secret.len() - 8..]);
        assert!(!printed.contains(list.trim_matches(['[', ']'])), "{printed}");
    }
}

#[test]
fn a_point_that_is_not_on_the_curve_is_no_key() {
    let mut point = [1; 65];
    point[0] = 4;
    assert_eq!(Point::parse(&point), Err(SealError::NotAPoint));
    assert_eq!(Point::parse(&[0]), Err(SealError::NotAPoint));
    assert_eq!(Point::parse(&world_point()[..33]), Err(SealError::NotAPoint));
}

fn world_point() -> Vec<u8> {
    TestPairing::new().own.public().as_slice().to_vec()
}
