//! Passkeys: signing in with one, and responses with one error.

use axum::http::StatusCode;
use serde_json::{Value, json};
use wire::native::hub_requests::{HubReplyBody, HubRequest, PasskeyView};

use crate::people::authenticator::{Authenticator, CeremonyInput, encode};
use crate::people::test_hub::{Browser, TestHub, code};

async fn begin(test_hub: &TestHub, browser: &mut Browser, path: &str) -> Value {
    let (status, asked) = browser.post(test_hub, path, json!({})).await;
    assert_eq!(status, StatusCode::OK, "{asked}");
    asked
}

async fn add(
    test_hub: &TestHub,
    browser: &mut Browser,
    key: &mut Authenticator,
    ceremony: &CeremonyInput,
) -> (StatusCode, Value) {
    let asked = begin(test_hub, browser, "/auth/passkey/new/begin").await;
    let body = json!({ "credential": key.create(&asked, ceremony), "name": "phone" });
    browser.post(test_hub, "/auth/passkey/new/finish", body).await
}

async fn enter(
    test_hub: &TestHub,
    key: &Authenticator,
    ceremony: &CeremonyInput,
) -> (Browser, (StatusCode, Value)) {
    let mut browser = Browser::default();
    let asked = begin(test_hub, &mut browser, "/auth/passkey/begin").await;
    let body = json!({ "credential": key.get(&asked, ceremony), "name": "laptop" });
    let answer = browser.post(test_hub, "/auth/passkey/finish", body).await;
    (browser, answer)
}

/// An admin with a passkey.
async fn keyed(test_hub: &TestHub, mut key: Authenticator) -> (Browser, Authenticator) {
    let mut admin = test_hub.admin().await;
    let (status, made) = add(test_hub, &mut admin, &mut key, &CeremonyInput::create()).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    (admin, key)
}

async fn passkeys(test_hub: &TestHub, browser: &Browser) -> Vec<PasskeyView> {
    match browser.ask(test_hub, HubRequest::Passkeys).await.unwrap() {
        HubReplyBody::Passkeys { passkeys } => passkeys,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn with_a_passkey_its_person_signs_in_anywhere() {
    for key in [Authenticator::p256(), Authenticator::ed25519()] {
        let test_hub = TestHub::open().await;
        let (admin, key) = keyed(&test_hub, key).await;
        let (browser, (status, entered)) = enter(&test_hub, &key, &CeremonyInput::get()).await;
        assert_eq!(status, StatusCode::OK, "{entered}");
        assert_eq!(entered["addPasskey"], false);
        assert_eq!(browser.id(&test_hub).await, admin.id(&test_hub).await);
        let listed = passkeys(&test_hub, &browser).await;
        assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].used_at.is_some()), (1, "phone", true));
        assert_eq!(browser.view(&test_hub).await.passkeys, 1);
        assert_eq!(test_hub.audit().await, ["hub.set_up", "passkey.added", "passkey.entered"]);
    }
}

#[tokio::test]
pub async fn what_browsers_are_asked_for_is_a_key_that_names_its_owner_itself() {
    let test_hub = TestHub::open().await;
    let (mut admin, key) = keyed(&test_hub, Authenticator::p256()).await;
    let asked = begin(&test_hub, &mut admin, "/auth/passkey/new/begin").await;
    let asked = &asked["publicKey"];
    assert_eq!(asked["rp"]["id"], "hub.example.org");
    assert_eq!(asked["user"]["id"], encode(admin.id(&test_hub).await.as_bytes()));
    assert_eq!(asked["authenticatorSelection"]["residentKey"], "required");
    assert_eq!(asked["authenticatorSelection"]["userVerification"], "required");
    assert_eq!(asked["attestation"], "none");
    let known = key.get(&json!({ "publicKey": { "challenge": "" } }), &CeremonyInput::get())["id"].clone();
    assert_eq!(asked["excludeCredentials"], json!([{ "type": "public-key", "id": known }]));
    let asked = begin(&test_hub, &mut Browser::default(), "/auth/passkey/begin").await;
    assert_eq!(asked["publicKey"]["userVerification"], "required");
    assert_eq!(asked["publicKey"]["allowCredentials"], json!([]), "nobody learns which keys there are");
}

#[tokio::test]
pub async fn a_sign_in_that_is_wrong_in_one_thing_is_none() {
    let test_hub = TestHub::open().await;
    let (_admin, mut key) = keyed(&test_hub, Authenticator::p256()).await;
    key.counter = 5;
    let right = CeremonyInput::get();
    let other = encode(&[7; 56]);
    let wrongs = [
        CeremonyInput { purpose: "webauthn.create", ..right.clone() },
        CeremonyInput { origin: "https://evil.example.org".into(), ..right.clone() },
        CeremonyInput { origin: "https://hub.example.org:8443".into(), ..right.clone() },
        CeremonyInput { origin: "http://hub.example.org".into(), ..right.clone() },
        CeremonyInput { cross_origin: true, ..right.clone() },
        CeremonyInput { site: "example.org".into(), ..right.clone() },
        CeremonyInput { site: String::new(), ..right.clone() },
        CeremonyInput { flags: 0x04, ..right.clone() },
        // Present, and not verified: a key that opens to whoever touches it.
        CeremonyInput { flags: 0x01, ..right.clone() },
        CeremonyInput { flags: 0x85, ..right.clone() },
        CeremonyInput { tail: vec![0], ..right.clone() },
        CeremonyInput { challenge: Some(other), ..right.clone() },
        CeremonyInput { challenge: Some(String::new()), ..right.clone() },
        CeremonyInput { challenge: Some("not base64!".into()), ..right.clone() },
        CeremonyInput { spoil_signature: true, ..right.clone() },
        CeremonyInput { user: Some(json!(encode(b"somebody else"))), ..right.clone() },
        CeremonyInput { user: Some(Value::Null), ..right.clone() },
    ];
    for (number, wrong) in wrongs.iter().enumerate() {
        let (browser, answer) = enter(&test_hub, &key, wrong).await;
        assert_eq!(code(&answer), (403, "passkey_refused"), "{number}");
        assert!(browser.cookies.is_empty(), "{number}");
    }
    assert_eq!(enter(&test_hub, &key, &right).await.1.0, StatusCode::OK);
}

#[tokio::test]
pub async fn a_new_passkey_that_is_wrong_in_one_thing_is_not_kept() {
    let test_hub = TestHub::open().await;
    let mut admin = test_hub.admin().await;
    let right = CeremonyInput::create();
    let wrongs = [
        CeremonyInput { purpose: "webauthn.get", ..right.clone() },
        CeremonyInput { origin: "https://evil.example.org".into(), ..right.clone() },
        CeremonyInput { cross_origin: true, ..right.clone() },
        CeremonyInput { site: "evil.example.org".into(), ..right.clone() },
        CeremonyInput { flags: 0x40, ..right.clone() },
        CeremonyInput { flags: 0x41, ..right.clone() },
        CeremonyInput { flags: 0x05, ..right.clone() },
        CeremonyInput { flags: 0xc5, ..right.clone() },
        CeremonyInput { tail: vec![0], ..right.clone() },
        CeremonyInput { challenge: Some(encode(&[0; 56])), ..right.clone() },
    ];
    for (number, wrong) in wrongs.iter().enumerate() {
        let answer = add(&test_hub, &mut admin, &mut Authenticator::p256(), wrong).await;
        assert_eq!(code(&answer), (403, "passkey_refused"), "{number}");
    }
    assert!(passkeys(&test_hub, &admin).await.is_empty());
    // With extensions that nobody asked for, it is as good as without.
    let extended = CeremonyInput { flags: 0xc5, tail: vec![0xa1, 0x61, b'x', 0xf5], ..right };
    assert_eq!(add(&test_hub, &mut admin, &mut Authenticator::p256(), &extended).await.0, StatusCode::OK);
}

#[tokio::test]
pub async fn an_attestation_that_is_cut_off_anywhere_is_refused_in_good_order() {
    let test_hub = TestHub::open().await;
    let mut admin = test_hub.admin().await;
    let mut key = Authenticator::p256();
    let asked = begin(&test_hub, &mut admin, "/auth/passkey/new/begin").await;
    let whole = key.attestation(&CeremonyInput::create());
    for length in 0..whole.len() {
        let mut credential = key.create(&asked, &CeremonyInput::create());
        credential["response"]["attestationObject"] = json!(encode(&whole[..length]));
        let body = json!({ "credential": credential });
        let answer = admin.post(&test_hub, "/auth/passkey/new/finish", body).await;
        assert_eq!(code(&answer), (403, "passkey_refused"), "{length}");
    }
    let mut credential = key.create(&asked, &CeremonyInput::create());
    credential["rawId"] = json!(encode(b"another key"));
    let answer = admin.post(&test_hub, "/auth/passkey/new/finish", json!({ "credential": credential })).await;
    assert_eq!(code(&answer), (403, "passkey_refused"), "the id of another key");
    for broken in [json!(null), json!({}), json!({ "rawId": 7 }), json!([])] {
        let answer = admin.post(&test_hub, "/auth/passkey/new/finish", json!({ "credential": broken })).await;
        assert_eq!(code(&answer), (400, "bad_request"));
        let message = answer.1["message"].as_str().unwrap();
        assert!(!wire::json_errors::names_internals(message), "{message}");
    }
    // None of that has used the challenge up.
    let body = json!({ "credential": key.create(&asked, &CeremonyInput::create()) });
    assert_eq!(admin.post(&test_hub, "/auth/passkey/new/finish", body).await.0, StatusCode::OK);
}

#[tokio::test]
pub async fn what_was_signed_once_signs_nobody_in_again() {
    let test_hub = TestHub::open().await;
    let (_admin, key) = keyed(&test_hub, Authenticator::p256()).await;
    let mut browser = Browser::default();
    let asked = begin(&test_hub, &mut browser, "/auth/passkey/begin").await;
    let body = json!({ "credential": key.get(&asked, &CeremonyInput::get()) });
    assert_eq!(browser.post(&test_hub, "/auth/passkey/finish", body.clone()).await.0, StatusCode::OK);
    let mut thief = Browser::default();
    let answer = thief.post(&test_hub, "/auth/passkey/finish", body.clone()).await;
    assert_eq!(code(&answer), (403, "passkey_refused"));
    assert!(thief.cookies.is_empty());
}

#[tokio::test]
pub async fn of_two_who_replay_at_the_same_moment_one_comes_in() {
    let test_hub = TestHub::open().await;
    let (_admin, key) = keyed(&test_hub, Authenticator::p256()).await;
    let asked = begin(&test_hub, &mut Browser::default(), "/auth/passkey/begin").await;
    let body = json!({ "credential": key.get(&asked, &CeremonyInput::get()) });
    let (mut one, mut other) = (Browser::default(), Browser::default());
    let (one, other) = tokio::join!(
        one.post(&test_hub, "/auth/passkey/finish", body.clone()),
        other.post(&test_hub, "/auth/passkey/finish", body.clone()),
    );
    let mut statuses = [one.0.as_u16(), other.0.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 403]);
}

#[tokio::test]
pub async fn a_challenge_lasts_five_minutes_on_whichever_node() {
    let test_hub = TestHub::open().await;
    let (mut admin, mut key) = keyed(&test_hub, Authenticator::p256()).await;
    let asked = begin(&test_hub, &mut Browser::default(), "/auth/passkey/begin").await;
    let adding = begin(&test_hub, &mut admin, "/auth/passkey/new/begin").await;
    test_hub.clock.advance_ms(5 * 60 * 1000);
    let body = json!({ "credential": key.get(&asked, &CeremonyInput::get()) });
    let answer = Browser::default().post(&test_hub, "/auth/passkey/finish", body).await;
    assert_eq!(code(&answer), (403, "passkey_refused"));
    let body = json!({ "credential": key.create(&adding, &CeremonyInput::create()) });
    assert_eq!(
        code(&admin.post(&test_hub, "/auth/passkey/new/finish", body).await),
        (403, "passkey_refused")
    );
}

#[tokio::test]
pub async fn a_challenge_for_one_thing_or_person_is_none_for_another() {
    let test_hub = TestHub::open().await;
    let (mut admin, key) = keyed(&test_hub, Authenticator::p256()).await;
    let mut other = test_hub.person(&admin, "ops").await;

    let entering = begin(&test_hub, &mut Browser::default(), "/auth/passkey/begin").await;
    let adding = begin(&test_hub, &mut admin, "/auth/passkey/new/begin").await;
    // Signed for adding a key, shown to sign in.
    let body = json!({ "credential": key.get(&adding, &CeremonyInput::get()) });
    let answer = Browser::default().post(&test_hub, "/auth/passkey/finish", body).await;
    assert_eq!(code(&answer), (403, "passkey_refused"));
    // Asked for by one person, answered by another; and the challenge of a sign-in.
    let mut fresh = Authenticator::p256();
    let stolen = json!({ "credential": fresh.create(&adding, &CeremonyInput::create()) });
    assert_eq!(
        code(&other.post(&test_hub, "/auth/passkey/new/finish", stolen).await),
        (403, "passkey_refused")
    );
    let mut asked = adding.clone();
    asked["publicKey"]["challenge"] = entering["publicKey"]["challenge"].clone();
    let crossed = json!({ "credential": fresh.create(&asked, &CeremonyInput::create()) });
    assert_eq!(
        code(&other.post(&test_hub, "/auth/passkey/new/finish", crossed).await),
        (403, "passkey_refused")
    );
    assert!(passkeys(&test_hub, &other).await.is_empty());
}

#[tokio::test]
pub async fn a_counter_that_goes_back_tells_of_a_copy() {
    let test_hub = TestHub::open().await;
    let (_admin, mut key) = keyed(&test_hub, Authenticator::p256()).await;
    for (counter, status) in [(3, 200), (4, 200), (4, 403), (2, 403), (0, 403), (5, 200)] {
        key.counter = counter;
        let (_, answer) = enter(&test_hub, &key, &CeremonyInput::get()).await;
        assert_eq!(answer.0.as_u16(), status, "{counter}: {}", answer.1);
    }
    assert_eq!(test_hub.audit().await.iter().filter(|what| *what == "passkey.refused").count(), 3);
}

#[tokio::test]
pub async fn a_passkey_that_is_unknown_dropped_or_of_a_removed_person_opens_nothing() {
    let test_hub = TestHub::open().await;
    let (admin, key) = keyed(&test_hub, Authenticator::p256()).await;
    let mut stranger = Authenticator::p256();
    stranger
        .create(&json!({ "publicKey": { "challenge": "", "user": { "id": "" } } }), &CeremonyInput::create());
    assert_eq!(code(&enter(&test_hub, &stranger, &CeremonyInput::get()).await.1), (403, "passkey_refused"));

    let mut person = test_hub.person(&admin, "ops").await;
    let mut theirs = Authenticator::ed25519();
    add(&test_hub, &mut person, &mut theirs, &CeremonyInput::create()).await;
    let id = passkeys(&test_hub, &admin).await[0].id.clone();
    let drop = HubRequest::DropPasskey { passkey: id };
    assert_eq!(person.refused(&test_hub, drop.clone()).await, "notFound", "somebody else's");
    assert_eq!(enter(&test_hub, &key, &CeremonyInput::get()).await.1.0, StatusCode::OK);
    admin.ask(&test_hub, drop).await.unwrap();
    assert_eq!(code(&enter(&test_hub, &key, &CeremonyInput::get()).await.1), (403, "passkey_refused"));

    assert_eq!(enter(&test_hub, &theirs, &CeremonyInput::get()).await.1.0, StatusCode::OK);
    let remove = HubRequest::RemovePerson { person: person.id(&test_hub).await };
    admin.ask(&test_hub, remove).await.unwrap();
    assert_eq!(code(&enter(&test_hub, &theirs, &CeremonyInput::get()).await.1), (403, "passkey_refused"));
}

#[tokio::test]
pub async fn one_key_is_one_persons_and_takes_a_sign_in_to_add() {
    let test_hub = TestHub::open().await;
    let (mut admin, mut key) = keyed(&test_hub, Authenticator::p256()).await;
    let mut other = test_hub.person(&admin, "ops").await;
    assert_eq!(
        code(&add(&test_hub, &mut other, &mut key, &CeremonyInput::create()).await),
        (403, "passkey_refused")
    );
    let asked = begin(&test_hub, &mut admin, "/auth/passkey/new/begin").await;
    for path in ["/auth/passkey/new/begin", "/auth/passkey/new/finish"] {
        let body = json!({ "credential": Authenticator::p256().create(&asked, &CeremonyInput::create()) });
        let answer = Browser::default().post(&test_hub, path, body).await;
        assert_eq!(code(&answer), (401, "signed_out"), "{path}");
    }
}

#[tokio::test]
pub async fn at_an_address_of_numbers_there_are_no_passkeys_and_it_is_said_so() {
    let test_hub = TestHub::open_at("http://127.0.0.1:8090").await;
    let mut browser = Browser::default();
    let from = [("origin", "http://127.0.0.1:8090")];
    let answer = browser.post_from(&test_hub, "/auth/passkey/begin", json!({}), &from).await;
    assert_eq!(code(&answer), (400, "bad_request"));
    assert!(answer.1["message"].as_str().unwrap().contains("https://"));
}
