//! Tokens of machines: what is accepted, what is refused, and revocation.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Extension, Router};
use hub::authenticator::HubAuthenticator;
use hub::people::{RemoteAddress, throttle};
use hyper_util::service::TowerToHyperService;
use wire::native::hub_requests::{HubReplyBody, HubRequest, TokenView};

use crate::people::test_hub::{Browser, DAY_MS, TestHub, until_revoked, with_upkeep};

async fn tokens(test_hub: &TestHub, browser: &Browser) -> Vec<TokenView> {
    match browser.ask(test_hub, HubRequest::Tokens).await.unwrap() {
        HubReplyBody::Tokens { tokens } => tokens,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn a_token_is_64_hexadecimal_digits_and_speaks_for_its_person() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let (secret, id) = admin.token(&test_hub, None).await;
    assert!(secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()), "{secret}");
    let machine_token = test_hub.machine(&secret).await.unwrap();
    assert_eq!((&*machine_token.token, &*machine_token.person.0), (&*id, &*admin.id(&test_hub).await));
    let listed = tokens(&test_hub, &admin).await;
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].name, listed[0].until), ("laptop", None));
    assert!(listed[0].used_at.is_some());
    let rows = "SELECT digest FROM tokens";
    let found = test_hub.db.run(vec![store::sql::Statement::new(rows, [])], Vec::new()).await.unwrap();
    assert_ne!(&*found[0].rows[0].text(0).unwrap(), secret, "it is nowhere as it is");
}

#[tokio::test]
pub async fn wrong_revoked_and_expired_tokens_are_told_apart_by_nobody() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let (expired, _) = admin.token(&test_hub, Some(1_700_000_000_000 + DAY_MS)).await;
    let (revoked, id) = admin.token(&test_hub, None).await;
    assert!(test_hub.machine(&expired).await.is_ok());
    assert!(test_hub.machine(&revoked).await.is_ok());
    test_hub.clock.advance_ms(DAY_MS);
    admin.ask(&test_hub, HubRequest::DropToken { token: id }).await.unwrap();

    let wrong = test_hub.machine(&"0".repeat(64)).await.unwrap_err();
    assert_eq!(wrong.0, StatusCode::UNAUTHORIZED);
    for bad in [&*expired, &revoked, "", "x", &"g".repeat(64), &"0".repeat(63), &"0".repeat(100_000)] {
        assert_eq!(test_hub.machine(bad).await.unwrap_err(), wrong, "{bad}");
    }
    for header in ["Basic dDp0", "Bearer", ""] {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", header.parse().unwrap());
        assert_eq!(test_hub.people.machine(&headers).await.unwrap_err(), wrong, "{header}");
    }
    assert_eq!(test_hub.people.machine(&HeaderMap::new()).await.unwrap_err(), wrong);
    let (good, _) = admin.token(&test_hub, None).await;
    let mut twice = HeaderMap::new();
    twice.append("authorization", format!("Bearer {good}").parse().unwrap());
    assert!(test_hub.people.machine(&twice).await.is_ok());
    twice.append("authorization", format!("Bearer {good}").parse().unwrap());
    assert_eq!(test_hub.people.machine(&twice).await.unwrap_err(), wrong);
    // A sign-in of a browser is no token, and a token is no sign-in.
    let key = admin.cookies.values().next().unwrap();
    assert_eq!(test_hub.machine(key).await.unwrap_err(), wrong);
    let name = admin.cookies.keys().next().unwrap().clone();
    assert!(
        Browser { cookies: [(name, good)].into(), ..admin.clone() }.arrive(&test_hub.people).await.is_err()
    );
}

#[tokio::test]
pub async fn a_machine_learns_at_once_that_its_token_was_revoked_also_on_another_node() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let (secret, id) = admin.token(&test_hub, None).await;
    let elsewhere = test_hub.node("two").await;
    let test = async {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", format!("bearer {secret}").parse().unwrap());
        let there = elsewhere.machine(&headers).await.unwrap();
        let here = test_hub.machine(&secret).await.unwrap();
        let (there, here) = (elsewhere.revoked(&there), test_hub.people.revoked(&here));
        admin.ask(&test_hub, HubRequest::DropToken { token: id }).await.unwrap();
        assert!(here.is_cancelled());
        until_revoked(&there).await;
    };
    with_upkeep(&elsewhere, test).await;
}

#[tokio::test]
pub async fn a_machine_is_cut_off_when_its_token_ends() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let (secret, _) = admin.token(&test_hub, Some(1_700_000_000_000 + DAY_MS)).await;
    let test = async {
        let machine_token = test_hub.machine(&secret).await.unwrap();
        let revoked = test_hub.people.revoked(&machine_token);
        assert!(!revoked.is_cancelled());
        test_hub.clock.advance_ms(DAY_MS);
        until_revoked(&revoked).await;
        assert!(test_hub.people.revoked(&machine_token).is_cancelled(), "also for who asks late");
    };
    with_upkeep(&test_hub.people, test).await;
}

#[tokio::test]
pub async fn nobody_sees_or_revokes_the_tokens_of_others() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let person = test_hub.person(&admin, "ops").await;
    let (secret, id) = person.token(&test_hub, None).await;
    assert!(tokens(&test_hub, &admin).await.is_empty());
    assert_eq!(admin.refused(&test_hub, HubRequest::DropToken { token: id }).await, "notFound");
    assert!(test_hub.machine(&secret).await.is_ok());
}

#[tokio::test]
pub async fn a_token_has_a_name_and_does_not_end_in_the_past() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let make = |name: &str, until| HubRequest::MakeToken { name: name.into(), until };
    assert_eq!(admin.refused(&test_hub, make(" ", None)).await, "badRequest");
    assert_eq!(admin.refused(&test_hub, make("x", Some(1_000))).await, "badRequest");
    assert_eq!(admin.refused(&test_hub, make("x", Some(i64::MIN))).await, "badRequest");
    assert!(test_hub.people.token_for("admin", "ci", None).await.is_ok());
    assert!(test_hub.people.token_for("nobody", "ci", None).await.is_err());
}

#[tokio::test]
pub async fn who_shows_wrong_tokens_has_to_wait_and_others_do_not() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let (good, _) = admin.token(&test_hub, None).await;
    let people = test_hub.people.clone();
    let route =
        get(move |Extension(RemoteAddress(from)): Extension<RemoteAddress>, headers: HeaderMap| async move {
            people.machine(&headers).await.map(|_| from.to_string())
        });
    let router = Router::new()
        .route("/api/sessions", route)
        .layer(from_fn_with_state(test_hub.people.clone(), throttle));
    let send = async |token: &str, from: &str| {
        let request = Request::get("/api/sessions").header("authorization", format!("Bearer {token}"));
        let request = request.header("x-forwarded-for", from).body(Body::empty()).unwrap();
        let service = TowerToHyperService::new(router.clone());
        let Ok(answer) = hyper::service::Service::call(&service, request).await;
        (answer.status().as_u16(), answer.headers().contains_key("retry-after"))
    };
    for _ in 0..20 {
        assert_eq!(send(&"0".repeat(64), "192.0.2.1").await.0, 401);
    }
    assert_eq!(send(&"0".repeat(64), "192.0.2.1").await, (429, true));
    assert_eq!(send(&good, "192.0.2.1").await, (429, true), "nothing is compared any more");
    // What the guesser puts before its own address is not believed.
    assert_eq!(send(&good, "192.0.2.7, 192.0.2.1").await, (429, true));
    assert_eq!(send(&good, "192.0.2.2").await, (200, false));
    // Loopback is everybody's whose proxy does not say who they are, so there a good token still opens.
    for from in ["127.0.0.1", "::1", ""] {
        let mut told = (401, false);
        for _ in 0..60 {
            told = if told.0 == 401 { send(&"0".repeat(64), from).await } else { told };
        }
        assert_eq!(told, (429, true), "{from}");
        assert_eq!(send(&good, from).await, (200, false), "{from}");
    }
}

#[tokio::test]
pub async fn who_guesses_codes_has_to_wait_too() {
    let test_hub = TestHub::open().await;
    let mut guesser = Browser::default();
    let from = [("origin", crate::people::test_hub::PUBLIC), ("x-forwarded-for", "192.0.2.9")];
    for number in 0..20 {
        let body = serde_json::json!({ "code": format!("join.{number}") });
        assert_eq!(guesser.post_from(&test_hub, "/ui/enter", body, &from).await.0, 403);
    }
    let body = serde_json::json!({ "code": "join.x" });
    assert_eq!(guesser.post_from(&test_hub, "/ui/enter", body, &from).await.0, 429);
    let from = [("origin", crate::people::test_hub::PUBLIC), ("x-forwarded-for", "127.0.0.1")];
    for number in 0..20 {
        let body = serde_json::json!({ "code": format!("join.{number}") });
        assert_eq!(guesser.post_from(&test_hub, "/ui/enter", body, &from).await.0, 403);
    }
    let body = serde_json::json!({ "code": "join.x" });
    assert_eq!(guesser.post_from(&test_hub, "/ui/enter", body, &from).await.0, 429);
    // The setup link of the same machine is still good.
    let link = test_hub.people.setup_link().await.unwrap().unwrap();
    let body = serde_json::json!({ "code": link.split_once('#').unwrap().1 });
    assert_eq!(guesser.post_from(&test_hub, "/ui/enter", body, &from).await.0, 200);
}
