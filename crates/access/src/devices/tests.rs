//! Who comes in, by what, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use engine::{Clock, Principal, Standing, Timestamp};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wire::native::{Invitation, PushSubscription, ReplyBody, Request, Role};

use super::device_list::{ABSENCE_MAX_MS, DEVICES_MAX};
use super::push::{self, Addressees, PushAddressPolicy, PushParts, Vapid};
use super::{
    Code, DeviceEvent, DeviceLogin, DeviceLoginError, Devices, ServerUrls, SignInDenial, SignInOutcome,
    TICKET_LIFE, Visitor,
};
use crate::{AcceptedTokens, Client, Digest, PROOF_HEADER, Proofs};

struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// The devices with their file, and a clock that stands still.
struct TestDevices {
    folder: TempDir,
    time: Arc<TestClock>,
    devices: Devices,
}

impl TestDevices {
    fn new() -> Self {
        let (folder, time) = (tempfile::tempdir().unwrap(), Arc::new(TestClock(AtomicI64::new(1_000_000))));
        let devices = open(&folder, &time);
        Self { folder, time, devices }
    }

    /// Another server on the same file.
    fn again(&self) -> Devices {
        open(&self.folder, &self.time)
    }

    fn later(&self, ms: i64) {
        self.time.0.fetch_add(ms, Ordering::Relaxed);
    }

    async fn enter(&self, name: &str) -> (DeviceSecrets, Visitor) {
        let link = self.devices.login(&master()).unwrap();
        match self.devices.enter(&code(&link), name, None).await.unwrap() {
            SignInOutcome::In { key, proof, visitor } => (DeviceSecrets { key, proof }, visitor),
            SignInOutcome::Knocking { .. } => panic!("a login link does not knock"),
        }
    }

    async fn invite(&self, role: Role) -> Invitation {
        match self.devices.answer(&master(), Request::Invite { role }).await.unwrap() {
            ReplyBody::Invited(invitation) => invitation,
            other => panic!("{other:?}"),
        }
    }

    async fn knock(&self, role: Role) -> (String, String) {
        let invitation = self.invite(role).await;
        match self.devices.enter(&code(&invitation), "iPhone", None).await.unwrap() {
            SignInOutcome::Knocking { knock, words } => (knock, words),
            SignInOutcome::In { .. } => panic!("nobody was asked"),
        }
    }

    async fn admit(&self, role: Option<Role>) {
        let (_, knocks) = self.devices.devices_and_knocks(&Principal::local());
        let knock = knocks[0].id.clone();
        assert_eq!(self.devices.answer(&master(), Request::Admit { knock, role }).await, Ok(ReplyBody::Done));
    }
}

fn open(folder: &TempDir, time: &Arc<TestClock>) -> Devices {
    let devices =
        Devices::open(Some(folder.path().join("state/devices.json")), Arc::clone(time) as Arc<dyn Clock>);
    let outside = Some("https://10.0.0.7:5173".into());
    devices.set_urls(ServerUrls { own: "http://127.0.0.1:5173".into(), outside });
    let vapid = Vapid::load_or_create(&folder.path().join("push.key"), "mailto:ops@example.com").unwrap();
    let reach = PushAddressPolicy { allows: |_| true, loopback: false };
    // Nothing is sent: there is nobody in the office.
    let (push, _) =
        push::open(PushParts { vapid, allowed: reach, clock: Arc::clone(time) as Arc<dyn Clock> });
    devices.set_push(push);
    devices
}

/// What a browser that is signed in has.
struct DeviceSecrets {
    key: String,
    proof: String,
}

/// Whether a browser that shows both is let in.
async fn arrives(devices: &Devices, pass: &DeviceSecrets) -> Option<DeviceLogin> {
    devices.authenticate(&pass.key, &shows(&pass.proof)).await.ok()
}

fn shows(proof: &str) -> Proofs {
    Proofs::read(&HeaderMap::from_iter([(PROOF_HEADER, HeaderValue::from_str(proof).unwrap())]))
}

fn master() -> Visitor {
    Visitor {
        principal: Principal::local(),
        name: "terminal".into(),
        role: Role::Owner,
        device: None,
        remote: None,
        standing: Standing::OwnerAtMachine,
    }
}

fn code(invitation: &Invitation) -> Code {
    Code::read(invitation.url.split_once('#').unwrap().1)
}

fn subscription() -> PushSubscription {
    PushSubscription {
        endpoint: "https://push.example/x".into(),
        p256dh: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
            .into(),
        auth: "BTBZMqHH6r4Tts7J_aSIgg".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_link_lets_one_browser_in_once() {
    let test = TestDevices::new();
    let link = test.devices.login(&master()).unwrap();
    assert!(link.url.starts_with("http://127.0.0.1:5173/login#"), "{}", link.url);
    assert_eq!(link.url.split_once('#').unwrap().1.len(), 22, "128 bits");
    assert_eq!(link.code, "", "what enters at once is not typed");
    let entered = test.devices.enter(&code(&link), " My\u{202e} laptop\n", None).await.unwrap();
    let SignInOutcome::In { key, proof, visitor } = entered else { panic!("it knocked") };
    assert_eq!((key.len(), &*visitor.name, visitor.role), (43, "My laptop", Role::Owner));
    assert_eq!(proof.len(), 43);
    assert_eq!(test.devices.enter(&code(&link), "x", None).await.unwrap_err(), SignInDenial::Used);
    let arrived = test.devices.authenticate(&key, &shows(&proof)).await.unwrap();
    assert_eq!(arrived.visitor.device, visitor.device);
    for wrong in ["", "x", &key[1..], &format!("{key}x"), &"x".repeat(10_000), &proof] {
        let arrived = test.devices.authenticate(wrong, &shows(&proof)).await;
        assert_eq!(arrived.err(), Some(DeviceLoginError::Unknown), "{wrong}");
    }
    let text = std::fs::read_to_string(test.folder.path().join("state/devices.json")).unwrap();
    assert!(!text.contains(&key) && !text.contains(&proof), "only the digests are kept");
}

/// Every program that listens on this machine can be sent the cookie by the browser.
#[tokio::test(start_paused = true)]
async fn a_key_without_its_proof_opens_nothing() {
    let test = TestDevices::new();
    let (pass, other) = (test.enter("laptop").await.0, test.enter("phone").await.0);
    test.later(ABSENCE_MAX_MS / 2);
    for wrong in ["", "x", &pass.proof[1..], &pass.key, &other.proof, &"x".repeat(10_000)] {
        let arrived = test.devices.authenticate(&pass.key, &shows(wrong)).await;
        assert_eq!(arrived.err(), Some(DeviceLoginError::Unproven), "{wrong}");
    }
    let seen = test.devices.devices_and_knocks(&Principal::local()).0[0].seen_at;
    assert_eq!(seen, Some(1_000_000), "who is refused was not here");
    assert!(arrives(&test.devices, &pass).await.is_some());
}

/// Whoever had the old token of a client may have let browsers in by it.
#[tokio::test(start_paused = true)]
async fn a_device_that_a_client_let_in_goes_with_the_clients_token() {
    let test = TestDevices::new();
    let keys = |token: &str| AcceptedTokens::Tokens {
        master: Digest::of("master"),
        clients: vec![Client { id: "ci".into(), digest: Digest::of(token) }],
    };
    test.devices.set_accepted_tokens(keys("first"));
    let ci = Visitor { principal: Principal("ci".into()), name: "ci".into(), ..master() };
    let link = test.devices.login(&ci).unwrap();
    let entered = test.devices.enter(&code(&link), "laptop", None).await;
    let Ok(SignInOutcome::In { key, proof, visitor }) = entered else { panic!("{entered:?}") };
    let (of_ci, of_owner) = (DeviceSecrets { key, proof }, test.enter("phone").await.0);
    test.devices.answer(&visitor, Request::Push { subscription: Some(subscription()) }).await.unwrap();
    let same = test.again();
    same.set_accepted_tokens(keys("first"));
    assert!(arrives(&same, &of_ci).await.is_some());
    let rotated = test.again();
    rotated.set_accepted_tokens(keys("second"));
    assert!(arrives(&rotated, &of_ci).await.is_none());
    assert!(rotated.subscribed(&ci.principal).await.is_empty(), "nor is it told anything");
    assert_eq!(rotated.devices_and_knocks(&ci.principal).0, []);
    assert!(arrives(&rotated, &of_owner).await.is_some(), "the owner's devices stay");
}

/// What the version before wrote: no proofs.
#[tokio::test(start_paused = true)]
async fn a_device_that_signed_in_before_there_were_proofs_has_to_sign_in_again() {
    let test = TestDevices::new();
    let file = test.folder.path().join("state/devices.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let digest = Digest::of("an-old-key").hex();
    let old = format!(
        r#"{{"version":1,"devices":[{{"id":"dold","principal":"local","name":"laptop","role":"owner",
            "key_sha256":"{digest}","created_at":900000,"seen_at":950000,"push":null,"muted_until":null}}]}}"#
    );
    std::fs::write(&file, old).unwrap();
    let devices = test.again();
    assert_eq!(devices.devices_and_knocks(&Principal::local()).0[0].name, "laptop", "the list is read");
    for proof in ["", "anything"] {
        assert_eq!(
            devices.authenticate("an-old-key", &shows(proof)).await.err(),
            Some(DeviceLoginError::Unproven)
        );
    }
    let link = devices.login(&master()).unwrap();
    let entered = devices.enter(&code(&link), "laptop", Some("an-old-key")).await;
    let Ok(SignInOutcome::In { key, proof, visitor }) = entered else { panic!("{entered:?}") };
    assert_eq!(visitor.device.as_deref(), Some("dold"), "it stays the same device");
    assert!(arrives(&test.again(), &DeviceSecrets { key, proof }).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_code_lives_for_five_minutes_and_says_so_afterwards() {
    let test = TestDevices::new();
    let (first, second) = (test.invite(Role::Driver).await, test.devices.login(&master()).unwrap());
    assert_eq!(first.expires_at, 1_000_000 + 300_000);
    tokio::time::advance(TICKET_LIFE - Duration::from_millis(1)).await;
    assert!(matches!(test.devices.enter(&code(&first), "x", None).await, Ok(SignInOutcome::Knocking { .. })));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(test.devices.enter(&code(&second), "x", None).await.unwrap_err(), SignInDenial::Expired);
    assert_eq!(test.devices.enter(&code(&first), "x", None).await.unwrap_err(), SignInDenial::Used);
    for unknown in ["", "AAAA-AAAA", "x", &"A".repeat(5000)] {
        assert_eq!(
            test.devices.enter(&Code::read(unknown), "x", None).await.unwrap_err(),
            SignInDenial::Unknown
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_typed_code_is_the_same_ticket_however_it_is_written() {
    let test = TestDevices::new();
    let invitation = test.invite(Role::Viewer).await;
    assert!(invitation.url.starts_with("https://10.0.0.7:5173/pair#"), "{}", invitation.url);
    assert_eq!((invitation.code.len(), invitation.code.chars().nth(4)), (9, Some('-')));
    let typed = Code::read(&format!(" {} ", invitation.code.to_lowercase().replace('-', " ")));
    assert!(typed.is_short());
    assert!(matches!(test.devices.enter(&typed, "x", None).await, Ok(SignInOutcome::Knocking { .. })));
    assert_eq!(test.devices.enter(&code(&invitation), "x", None).await.unwrap_err(), SignInDenial::Used);
}

#[tokio::test(start_paused = true)]
async fn who_knocks_waits_until_an_owner_answers() {
    let test = TestDevices::new();
    let (knock, words) = test.knock(Role::Driver).await;
    let (_, knocks) = test.devices.devices_and_knocks(&Principal::local());
    assert_eq!((&*knocks[0].name, knocks[0].role, &knocks[0].words), ("iPhone", Role::Driver, &words));
    assert_ne!(knocks[0].id, knock, "who sees the knock cannot come in by it");
    assert!(test.devices.wait(&knocks[0].id, None).await.is_err());
    // Nobody answers: the poll ends, and can be taken up again.
    assert!(matches!(test.devices.wait(&knock, None).await, Ok(SignInOutcome::Knocking { .. })));
    let (entered, ()) = tokio::join!(test.devices.wait(&knock, None), test.admit(Some(Role::Viewer)));
    let Ok(SignInOutcome::In { key, proof, visitor }) = entered else { panic!("{entered:?}") };
    assert_eq!(visitor.role, Role::Viewer, "the owner has the last word");
    assert!(arrives(&test.devices, &DeviceSecrets { key, proof }).await.is_some());
    assert_eq!(
        test.devices.wait(&knock, None).await.unwrap_err(),
        SignInDenial::Unknown,
        "a knock is answered once"
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_or_not_answered_stays_out() {
    let test = TestDevices::new();
    let (knock, _) = test.knock(Role::Driver).await;
    test.admit(None).await;
    assert_eq!(test.devices.wait(&knock, None).await.unwrap_err(), SignInDenial::Refused);
    let (knock, _) = test.knock(Role::Driver).await;
    let id = test.devices.devices_and_knocks(&Principal::local()).1[0].id.clone();
    tokio::time::advance(TICKET_LIFE).await;
    assert_eq!(test.devices.devices_and_knocks(&Principal::local()).1, []);
    let late = test.devices.answer(&master(), Request::Admit { knock: id, role: Some(Role::Owner) }).await;
    assert_eq!(late.unwrap_err().code, "notFound");
    assert_eq!(test.devices.wait(&knock, None).await.unwrap_err(), SignInDenial::Unanswered);
    assert_eq!(test.devices.devices_and_knocks(&Principal::local()).0, []);
}

/// Nobody but an owner lets others in, shuts them out, or sees who there is.
#[tokio::test(start_paused = true)]
async fn a_role_cannot_be_raised_from_below() {
    let test = TestDevices::new();
    let (_, other) = test.enter("laptop").await;
    let (knock, _) = test.knock(Role::Driver).await;
    test.admit(Some(Role::Driver)).await;
    let Ok(SignInOutcome::In { visitor: driver, .. }) = test.devices.wait(&knock, None).await else {
        panic!()
    };
    test.knock(Role::Viewer).await;
    let pending = test.devices.devices_and_knocks(&Principal::local()).1[0].id.clone();
    let device = other.device.clone().unwrap().to_string();
    for role in [Role::Viewer, Role::Approver, Role::Driver] {
        let visitor = Visitor { role, ..driver.clone() };
        for request in [
            Request::Devices,
            Request::Invite { role: Role::Viewer },
            Request::Admit { knock: pending.clone(), role: Some(Role::Owner) },
            Request::Admit { knock: pending.clone(), role: None },
            Request::Revoke { device: device.clone() },
        ] {
            let answer = test.devices.answer(&visitor, request.clone()).await;
            assert_eq!(answer.unwrap_err().code, "forbidden", "{role:?} {request:?}");
        }
        assert_eq!(test.devices.login(&visitor).unwrap_err().code, "forbidden");
    }
    assert_eq!(test.devices.login(&other).unwrap_err().code, "forbidden", "links are made on the machine");
    // An owner of other sessions sees and reaches none of these.
    let stranger = Visitor { principal: Principal("ci".into()), ..master() };
    let seen = test.devices.answer(&stranger, Request::Devices).await;
    assert_eq!(seen, Ok(ReplyBody::Devices { devices: Vec::new(), knocks: Vec::new() }));
    let admit = Request::Admit { knock: pending, role: Some(Role::Owner) };
    for request in [admit, Request::Revoke { device }] {
        assert_eq!(test.devices.answer(&stranger, request).await.unwrap_err().code, "notFound");
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_device_is_out_at_once_and_its_lines_end() {
    let test = TestDevices::new();
    let ((key, phone), (_, laptop)) = (test.enter("phone").await, test.enter("laptop").await);
    let (seat, other) = (test.devices.open_presence(&phone), test.devices.open_presence(&laptop));
    let device = phone.device.clone().unwrap().to_string();
    test.devices.answer(&laptop, Request::Revoke { device: device.clone() }).await.unwrap();
    assert!(seat.ended().is_cancelled() && !other.ended().is_cancelled());
    assert!(arrives(&test.devices, &key).await.is_none());
    // Who was on the way in while it happened does not stay either.
    assert!(test.devices.open_presence(&phone).ended().is_cancelled());
    let again = test.devices.answer(&laptop, Request::Revoke { device }).await;
    assert_eq!(again.unwrap_err().code, "notFound");
    let gone = test.devices.answer(&phone, Request::Push { subscription: Some(subscription()) }).await;
    assert_eq!(gone.unwrap_err().code, "forbidden");
    // Everybody may go, the last owner too: who has the token can come again.
    let own = Request::Revoke { device: laptop.device.clone().unwrap().to_string() };
    test.devices.answer(&Visitor { role: Role::Viewer, ..laptop }, own).await.unwrap();
    assert_eq!(test.devices.devices_and_knocks(&Principal::local()).0, []);
}

#[tokio::test(start_paused = true)]
async fn devices_outlive_the_server_and_other_servers_know_them() {
    let test = TestDevices::new();
    let (key, phone) = test.enter("phone").await;
    test.devices.answer(&phone, Request::Push { subscription: Some(subscription()) }).await.unwrap();
    test.devices.answer(&phone, Request::Mute { until: Some(2_000_000) }).await.unwrap();
    let other = test.again();
    assert_eq!(&*arrives(&other, &key).await.unwrap().visitor.name, "phone");
    let subscribed = other.subscribed(&Principal::local()).await;
    assert_eq!((subscribed[0].subscription.clone(), subscribed[0].muted), (subscription(), true));
    test.later(1_000_001);
    assert!(!other.subscribed(&Principal::local()).await[0].muted, "a mute ends by itself");
    // What one of them changes, the other holds to.
    let (second, _) = test.enter("tablet").await;
    assert!(arrives(&other, &second).await.is_some());
    let seat = other.open_presence(&phone);
    let device = phone.device.unwrap().to_string();
    test.devices.answer(&master(), Request::Revoke { device }).await.unwrap();
    assert!(arrives(&other, &key).await.is_none());
    assert!(seat.ended().is_cancelled());
    assert!(arrives(&other, &second).await.is_some());
}

#[tokio::test]
async fn a_device_that_another_server_revokes_loses_its_lines_here() {
    let test = TestDevices::new();
    let (_, phone) = test.enter("phone").await;
    let (other, stop) = (test.again(), CancellationToken::new());
    let seat = other.open_presence(&phone);
    let work = async {
        let device = phone.device.clone().unwrap().to_string();
        test.devices.answer(&master(), Request::Revoke { device }).await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), seat.ended().cancelled()).await.unwrap();
        stop.cancel();
    };
    tokio::join!(other.watch_file(stop.clone()), work);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_file_is_put_aside_and_lets_nobody_in() {
    for damaged in ["", "{", "{\"version\":1,\"devices\":[{\"id\":1}]}"] {
        let test = TestDevices::new();
        let (key, _) = test.enter("phone").await;
        let folder = test.folder.path().join("state");
        std::fs::write(folder.join("devices.json"), damaged).unwrap();
        let devices = test.again();
        assert!(arrives(&devices, &key).await.is_none(), "{damaged}");
        assert_eq!(
            std::fs::read_to_string(folder.join("devices.json")).unwrap(),
            damaged,
            "who reads leaves it"
        );
        let (key, _) = test.enter("phone").await;
        assert!(arrives(&devices, &key).await.is_some(), "it goes on with a new one");
        let names = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let aside: Vec<String> = names.filter(|name| name.contains("damaged")).collect();
        assert_eq!(aside.len(), 1, "{damaged}");
        assert_eq!(std::fs::read_to_string(folder.join(&aside[0])).unwrap(), damaged);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_a_later_version_is_left_alone() {
    let test = TestDevices::new();
    let (key, phone) = test.enter("phone").await;
    let file = test.folder.path().join("state/devices.json");
    let later = r#"{"version":2,"devices":[]}"#;
    std::fs::write(&file, later).unwrap();
    assert!(arrives(&test.again(), &key).await.is_none());
    let refused = test.devices.answer(&phone, Request::Mute { until: Some(1) }).await;
    assert_eq!(refused.unwrap_err().code, "failed");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), later);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_does_not_happen() {
    let test = TestDevices::new();
    let (key, phone) = test.enter("phone").await;
    let seat = test.devices.open_presence(&phone);
    let state = test.folder.path().join("state");
    std::fs::rename(&state, test.folder.path().join("elsewhere")).unwrap();
    std::fs::write(&state, "in the way").unwrap();
    let link = test.devices.login(&master()).unwrap();
    assert_eq!(test.devices.enter(&code(&link), "x", None).await.unwrap_err(), SignInDenial::Unwritable);
    // To shut somebody out is different: it holds for as long as it can.
    let device = phone.device.clone().unwrap().to_string();
    let told = test.devices.answer(&master(), Request::Revoke { device }).await.unwrap_err();
    assert!(told.message.contains("until this server is restarted"), "{told:?}");
    assert!(seat.ended().is_cancelled());
    // It holds also when the file, which still has the device, can be read and written again.
    std::fs::remove_file(&state).unwrap();
    std::fs::rename(test.folder.path().join("elsewhere"), &state).unwrap();
    assert!(arrives(&test.devices, &key).await.is_none());
    test.enter("laptop").await;
    assert!(arrives(&test.devices, &key).await.is_none());
    assert!(arrives(&test.again(), &key).await.is_none(), "the next change wrote it down");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_stays_away_for_thirty_days_has_to_knock_again() {
    let test = TestDevices::new();
    let (key, _) = test.enter("phone").await;
    test.later(ABSENCE_MAX_MS);
    assert!(arrives(&test.devices, &key).await.unwrap().renew, "whoever comes in time slides along");
    test.later(ABSENCE_MAX_MS);
    assert!(arrives(&test.devices, &key).await.is_some());
    test.later(ABSENCE_MAX_MS + 1);
    assert!(arrives(&test.devices, &key).await.is_none());
    assert_eq!(test.devices.devices_and_knocks(&Principal::local()).0, []);
}

#[tokio::test(start_paused = true)]
async fn that_a_device_was_here_is_written_once_a_minute() {
    let test = TestDevices::new();
    let (key, _) = test.enter("phone").await;
    let seen = |devices: &Devices| devices.devices_and_knocks(&Principal::local()).0[0].seen_at;
    test.later(59_999);
    assert!(!arrives(&test.devices, &key).await.unwrap().renew);
    assert_eq!(seen(&test.again()), Some(1_000_000));
    test.later(1);
    assert!(arrives(&test.devices, &key).await.unwrap().renew);
    assert_eq!(seen(&test.again()), Some(1_060_000));
}

/// The key is made here, whatever the browser had before.
#[tokio::test(start_paused = true)]
async fn a_browser_that_logs_in_again_is_the_same_device_with_a_new_key() {
    let test = TestDevices::new();
    let (first, visitor) = test.enter("laptop").await;
    let seat = test.devices.open_presence(&visitor);
    let link = test.devices.login(&master()).unwrap();
    let entered = test.devices.enter(&code(&link), "laptop", Some(&first.key)).await;
    let Ok(SignInOutcome::In { key, proof, visitor: again }) = entered else { panic!("{entered:?}") };
    let second = DeviceSecrets { key, proof };
    assert_eq!(again.device, visitor.device);
    assert_eq!(test.devices.devices_and_knocks(&Principal::local()).0.len(), 1);
    assert!(
        arrives(&test.devices, &first).await.is_none() && arrives(&test.devices, &second).await.is_some()
    );
    assert!(
        test.devices.authenticate(&second.key, &shows(&first.proof)).await.is_err(),
        "the proof is new too"
    );
    assert!(seat.ended().is_cancelled(), "lines of the old key come again with the new one");
    let link = test.devices.login(&master()).unwrap();
    let entered = test.devices.enter(&code(&link), "x", Some("chosen-by-somebody-else")).await;
    let Ok(SignInOutcome::In { key, proof, .. }) = entered else { panic!("{entered:?}") };
    assert_ne!(key, "chosen-by-somebody-else");
    assert!(test.devices.authenticate("chosen-by-somebody-else", &shows(&proof)).await.is_err());
    assert_eq!(test.devices.devices_and_knocks(&Principal::local()).0.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_devices_and_not_one_more() {
    let test = TestDevices::new();
    for number in 0..DEVICES_MAX {
        test.enter(&number.to_string()).await;
    }
    let link = test.devices.login(&master()).unwrap();
    assert_eq!(test.devices.enter(&code(&link), "x", None).await.unwrap_err(), SignInDenial::Full);
}

#[tokio::test(start_paused = true)]
async fn a_device_looks_as_long_as_one_of_its_clients_does() {
    let test = TestDevices::new();
    let (_, phone) = test.enter("phone").await;
    let device = phone.device.clone().unwrap();
    let (first, second) = (test.devices.open_presence(&phone), test.devices.open_presence(&phone));
    assert!(!test.devices.looks(&device));
    first.look(true);
    second.look(true);
    second.look(false);
    assert!(test.devices.looks(&device), "one hidden tab does not speak for another");
    drop(first);
    assert!(!test.devices.looks(&device), "a line that broke looks at nothing");
    test.devices.answer(&phone, Request::Presence { at: None, visible: true }).await.unwrap();
    assert!(test.devices.looks(&device));
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(!test.devices.looks(&device));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_gone_takes_no_newer_one_with_it() {
    let test = TestDevices::new();
    let (_, phone) = test.enter("phone").await;
    let device = phone.device.clone().unwrap();
    let newer = PushSubscription { endpoint: "https://push.example/y".into(), ..subscription() };
    test.devices.answer(&phone, Request::Push { subscription: Some(newer.clone()) }).await.unwrap();
    test.devices.unsubscribe(&device, &subscription()).await;
    assert_eq!(test.devices.subscribed(&Principal::local()).await.len(), 1);
    test.devices.unsubscribe(&device, &newer).await;
    assert_eq!(test.devices.subscribed(&Principal::local()).await, []);
    let huge = PushSubscription { endpoint: "https://x/".repeat(1000), ..subscription() };
    let refused = test.devices.answer(&phone, Request::Push { subscription: Some(huge) }).await;
    assert_eq!(refused.unwrap_err().code, "badRequest");
    let terminal = test.devices.answer(&master(), Request::Push { subscription: None }).await;
    assert_eq!(terminal.unwrap_err().code, "badRequest");
    assert_eq!(test.devices.answer(&phone, Request::TestPush).await.unwrap_err().code, "failed");
}

#[tokio::test(start_paused = true)]
async fn who_comes_and_goes_is_told_for_the_audit() {
    let test = TestDevices::new();
    let heard: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&heard);
    test.devices.tell(move |happened| {
        let line = match happened {
            DeviceEvent::Entered { name, role, knocked, .. } => {
                format!("{name} in as {role:?}, knocked: {knocked}")
            }
            DeviceEvent::Refused { name, by } => format!("{name} refused by {by}"),
            DeviceEvent::Revoked { name, by, .. } => format!("{name} revoked by {by}"),
        };
        told.lock().unwrap().push(line);
    });
    let (_, laptop) = test.enter("laptop").await;
    let (knock, _) = test.knock(Role::Approver).await;
    test.admit(Some(Role::Approver)).await;
    test.devices.wait(&knock, None).await.unwrap();
    test.knock(Role::Driver).await;
    test.admit(None).await;
    let device = laptop.device.unwrap().to_string();
    test.devices.answer(&master(), Request::Revoke { device }).await.unwrap();
    let expected = [
        "laptop in as Owner, knocked: false",
        "iPhone in as Approver, knocked: true",
        "iPhone refused by terminal",
        "laptop revoked by terminal",
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[test]
fn the_qr_code_is_a_square_with_three_corners() {
    let rows = super::qr::rows("https://10.0.0.7:5173/pair#q1l8ZycvNFW6LATl5P2_qw");
    assert!(rows.len() >= 21 && rows.iter().all(|row| row.len() == rows.len()));
    assert!(rows.iter().all(|row| row.bytes().all(|module| matches!(module, b'0' | b'1'))));
    for row in [&rows[0], &rows[6], &rows[rows.len() - 1], &rows[rows.len() - 7]] {
        assert!(row.starts_with("1111111"), "{row}");
    }
    assert!(rows[0].ends_with("1111111"));
    assert_eq!(super::qr::rows(&"x".repeat(10_000)), Vec::<String>::new());
}
