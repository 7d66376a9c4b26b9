//! Tests against a hub that does what it likes: nothing is done twice, for nobody, or for somebody else.

use std::os::unix::fs::PermissionsExt;

use engine::Timestamp;
use seal::{ContentKeys, DeviceLane, DevicePairing, PairedMachine, PrivateKey};
use serde_json::json;
use tempfile::TempDir;

use super::*;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000)
    }
}

struct World {
    folder: TempDir,
    vault: Vault,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let vault = open(folder.path());
        Self { folder, vault }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state/sealed.json")
    }

    async fn hear(&self, bytes: &[u8]) -> ReceivedBody {
        self.vault.receive(&hub(Role::Owner), &body(bytes)).await
    }

    /// A device that was paired, as the hub could not read.
    async fn device(&self, role: Role) -> PairedMachine {
        let (joining, _) = self.joining(role);
        let answer = answered(self.hear(&joining.offer()).await);
        joining.answered(&answer).unwrap()
    }

    fn joining(&self, role: Role) -> (DevicePairing, PairingInvite) {
        let invited = invite(&self.path(), role, FixedClock.now()).unwrap();
        let (hub, link) = invited.url.split_once("/pair#").unwrap();
        assert_eq!(hub, "https://hub.example.com");
        let key = PrivateKey::generate(&mut SystemRandom).unwrap();
        (DevicePairing::new(PairingLink::parse(link).unwrap(), key, "Phone\u{202e}").unwrap(), invited)
    }

    async fn lane(&self, paired: &PairedMachine) -> DeviceLane {
        let (ask, asked) = paired.bond.ask_lane(&mut SystemRandom).unwrap();
        asked.answered(&answered(self.hear(&ask).await)).unwrap()
    }

    fn keys(&self, paired: &PairedMachine) -> Option<ContentKeys> {
        let keys = self.vault.keys().unwrap();
        let mine = keys.wrapped.iter().find(|key| key.device == paired.bond.device().to_string())?;
        Some(paired.bond.unwrap(keys.generation, &from_text(&mine.key).unwrap()).unwrap())
    }
}

fn open(folder: &Path) -> Vault {
    let path = folder.join("state/sealed.json");
    Vault::open(&path, "laptop", "https://hub.example.com/", Arc::new(FixedClock)).unwrap()
}

fn hub(role: Role) -> Operator {
    Operator { id: "p1".into(), name: "who the hub says".into(), role }
}

fn answered(heard: ReceivedBody) -> Vec<u8> {
    match heard {
        ReceivedBody::Answer(body) => bytes(&body),
        ReceivedBody::Call { .. } => panic!("a call"),
        ReceivedBody::Refused(wrong) => panic!("{wrong:?}"),
    }
}

fn bytes(body: &RawValue) -> Vec<u8> {
    let body: SealedBody = serde_json::from_str(body.get()).unwrap();
    from_text(&body.sealed).unwrap()
}

/// What was asked and by whom, or the code of the refusal.
fn outcome(heard: ReceivedBody) -> Result<(String, Operator), String> {
    match heard {
        ReceivedBody::Call { by, envelope, .. } => Ok((String::from_utf8(envelope).unwrap(), by)),
        ReceivedBody::Refused(wrong) => Err(wrong.code),
        ReceivedBody::Answer(_) => panic!("an answer"),
    }
}

#[tokio::test]
async fn a_device_is_paired_by_its_link_once_and_calls_under_its_own_name_and_role() {
    let world = World::new();
    let (joining, invited) = world.joining(Role::Driver);
    assert!(paired(&world.path(), &invited).unwrap().is_none());
    let answer = answered(world.hear(&joining.offer()).await);
    let device = joining.answered(&answer).unwrap();
    assert_eq!(device.role, "driver");
    let kept = paired(&world.path(), &invited).unwrap().unwrap();
    assert_eq!((kept.name.as_str(), kept.role, &kept.words), ("Phone", Role::Driver, &device.words));
    // The answer was lost, and the same offer comes again: the same answer, and still one device.
    assert_eq!(answered(world.hear(&joining.offer()).await), answer);
    assert_eq!(devices(&world.path()).unwrap().len(), 1);

    let mut caller = world.lane(&device).await;
    let (_, call) = caller.seal(br#"{"id":1,"do":"sessions"}"#).unwrap();
    let (asked, by) = outcome(world.hear(&call).await).unwrap();
    assert_eq!(asked, r#"{"id":1,"do":"sessions"}"#);
    assert_eq!((by.name.as_str(), by.role, by.id), ("Phone", Role::Driver, device.bond.device().to_string()));
    // The hub can make it less, never more.
    let (_, call) = caller.seal(b"{}").unwrap();
    let heard = world.vault.receive(&hub(Role::Viewer), &body(&call)).await;
    assert_eq!(outcome(heard).unwrap().1.role, Role::Viewer);
}

#[tokio::test]
async fn an_invitation_works_once_also_where_two_processes_hold_it() {
    let world = World::new();
    let other = open(world.folder.path());
    let (joining, invited) = world.joining(Role::Driver);
    let (_, link) = invited.url.split_once("/pair#").unwrap();
    let key = PrivateKey::generate(&mut SystemRandom).unwrap();
    let rival = DevicePairing::new(PairingLink::parse(link).unwrap(), key, "Rival").unwrap();
    world.vault.refresh().await;
    other.refresh().await;
    let (offers, hub) = ([body(&joining.offer()), body(&rival.offer())], hub(Role::Owner));
    let heard = tokio::join!(world.vault.receive(&hub, &offers[0]), other.receive(&hub, &offers[1]));
    let taken =
        [heard.0, heard.1].into_iter().filter(|heard| matches!(heard, ReceivedBody::Answer(_))).count();
    assert_eq!((taken, devices(&world.path()).unwrap().len()), (1, 1));
}

#[tokio::test]
async fn what_is_repeated_reordered_or_plain_is_refused_and_says_why() {
    let world = World::new();
    let device = world.device(Role::Owner).await;
    let mut caller = world.lane(&device).await;
    let calls: Vec<_> = (0..3).map(|_| caller.seal(b"{}").unwrap().1).collect();
    outcome(world.hear(&calls[1]).await).unwrap();
    for late in [&calls[0], &calls[1]] {
        assert_eq!(outcome(world.hear(late).await), Err("stale".into()));
    }
    outcome(world.hear(&calls[2]).await).unwrap();
    for plain in
        [json!({ "id": 1, "do": "sessions" }), json!(null), json!([]), json!("x"), json!({ "sealed": 1 })]
    {
        let plain = to_raw_value(&plain).unwrap();
        let heard = world.vault.receive(&hub(Role::Owner), &plain).await;
        assert_eq!(outcome(heard), Err("forbidden".into()), "{plain}");
    }
    for rubbish in ["", "!", "AAAA", "EA", "MA"] {
        let rubbish = to_raw_value(&json!({ "sealed": rubbish })).unwrap();
        let heard = world.vault.receive(&hub(Role::Owner), &rubbish).await;
        assert_eq!(outcome(heard), Err("badRequest".into()), "{rubbish}");
    }
}

#[tokio::test]
async fn after_a_restart_nothing_that_was_said_before_is_taken_and_devices_are_still_known() {
    let world = World::new();
    let device = world.device(Role::Owner).await;
    let (ask, asked) = device.bond.ask_lane(&mut SystemRandom).unwrap();
    let mut caller = asked.answered(&answered(world.hear(&ask).await)).unwrap();
    let (_, taken) = caller.seal(b"{}").unwrap();
    let (_, held_back) = caller.seal(b"{}").unwrap();
    outcome(world.hear(&taken).await).unwrap();
    let World { folder, vault } = world;
    drop(vault);
    let world = World { vault: open(folder.path()), folder };
    for call in [&taken, &held_back] {
        assert_eq!(outcome(world.hear(call).await), Err("stale".into()));
    }
    // The hub plays the whole conversation again, from its beginning: the machine's part is another one now.
    answered(world.hear(&ask).await);
    for call in [&taken, &held_back] {
        assert_eq!(outcome(world.hear(call).await), Err("badRequest".into()));
    }
    let mut caller = world.lane(&device).await;
    let (_, call) = caller.seal(b"{}").unwrap();
    outcome(world.hear(&call).await).unwrap();
}

#[tokio::test]
async fn a_revoked_device_reads_and_says_nothing_more_and_the_others_go_on() {
    let world = World::new();
    let (one, other) = (world.device(Role::Owner).await, world.device(Role::Viewer).await);
    let (mut lane, mut others) = (world.lane(&one).await, world.lane(&other).await);
    let old_keys = world.keys(&one).unwrap();
    let mut changes = world.vault.changes();
    changes.mark_unchanged();
    assert!(revoke(&world.path(), &one.bond.device().to_string()).unwrap());
    assert!(!revoke(&world.path(), &one.bond.device().to_string()).unwrap());
    let (_, call) = lane.seal(b"{}").unwrap();
    assert_eq!(outcome(world.hear(&call).await), Err("forbidden".into()));
    assert!(changes.has_changed().unwrap());
    assert_eq!(world.vault.generation(), 2);
    assert!(world.keys(&one).is_none());
    let (_, call) = others.seal(b"{}").unwrap();
    outcome(world.hear(&call).await).unwrap();

    let place = ContentPosition::View { from: None, upto: 7 };
    let sealed = bytes(&world.vault.seal("s", &place, b"planted words").unwrap());
    let machine = MachineId::parse("laptop").unwrap();
    assert_eq!(old_keys.open(&machine, "s", &place, &sealed), Err(SealError::UnknownGeneration));
    let opened = world.keys(&other).unwrap().open(&machine, "s", &place, &sealed).unwrap();
    assert_eq!(opened, (2, b"planted words".to_vec()));
}

#[tokio::test]
async fn a_revoked_device_does_not_come_back_by_the_invitation_that_it_came_with() {
    let world = World::new();
    let (joining, _) = world.joining(Role::Owner);
    answered(world.hear(&joining.offer()).await);
    let device = devices(&world.path()).unwrap().remove(0);
    assert!(revoke(&world.path(), &device.id).unwrap());
    assert_eq!(outcome(world.hear(&joining.offer()).await), Err("forbidden".into()));
    assert!(devices(&world.path()).unwrap().is_empty());
}

#[tokio::test]
async fn who_was_not_invited_is_not_paired() {
    let world = World::new();
    let (joining, _) = world.joining(Role::Owner);
    let stranger = {
        let other = World::new();
        other.joining(Role::Owner).0.offer()
    };
    assert_eq!(outcome(world.hear(&stranger).await), Err("forbidden".into()));
    let unknown = PrivateKey::generate(&mut SystemRandom).unwrap();
    let machine = world.vault.state().data.own.public();
    let bond = SharedSecret::at_device(&MachineId::parse("laptop").unwrap(), &unknown, &machine).unwrap();
    let (ask, _) = bond.ask_lane(&mut SystemRandom).unwrap();
    assert_eq!(outcome(world.hear(&ask).await), Err("forbidden".into()));
    assert!(devices(&world.path()).unwrap().is_empty());
    answered(world.hear(&joining.offer()).await);
}

#[tokio::test]
async fn the_keys_are_for_their_owner_only_and_a_damaged_file_is_left_alone() {
    let world = World::new();
    let path = world.path();
    let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(bridged(&path).unwrap().as_deref(), Some("https://hub.example.com"));
    drop(world.vault);
    assert_eq!(bridged(&path).unwrap(), None);
    mode(0o640);
    assert!(matches!(devices(&path), Err(VaultError::Open(_))));
    mode(0o600);
    for text in ["", "{}", r#"{"version":9}"#] {
        std::fs::write(&path, text).unwrap();
        let reopened = Vault::open(&path, "laptop", "https://hub.example.com", Arc::new(FixedClock));
        assert!(matches!(reopened.err(), Some(VaultError::Damaged(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
