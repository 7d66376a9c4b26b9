//! Links for the first admin and for invited people, and what a cookie is worth.

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use hub::authenticator::{HubAuthenticator, VisitorKind};
use serde_json::{Value, json};
use store::sql::Statement;
use wire::native::hub_requests::{HubReplyBody, HubRequest};

use crate::people::test_hub::{Browser, DAY_MS, PUBLIC, TestHub, code};

async fn about(test_hub: &TestHub) -> Value {
    let answer = test_hub.send(Request::get("/auth/about").body(Body::empty()).unwrap()).await;
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
pub async fn the_setup_link_makes_the_first_admin_and_nobody_after() {
    let test_hub = TestHub::open().await;
    assert_eq!(about(&test_hub).await, json!({ "hub": true, "passkeys": true, "setup": true }));
    let first = test_hub.people.setup_link().await.unwrap().unwrap();
    let second = test_hub.people.setup_link().await.unwrap().unwrap();
    assert!(first.starts_with("https://hub.example.org/login#setup."), "{first}");

    let mut browser = Browser::default();
    let link = first.split_once('#').unwrap().1;
    let body = json!({ "code": link, "name": "laptop", "person": "  dev\n" });
    let (status, entered) = browser.post(&test_hub, "/ui/enter", body).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(entered["person"], "dev");
    assert_eq!(entered["addPasskey"], true);
    let view = browser.view(&test_hub).await;
    assert_eq!((view.name.as_str(), view.admin, view.passkeys), ("dev", true, 0));

    let mut late = Browser::default();
    assert_eq!(code(&late.follow(&test_hub, &first).await), (410, "code_used"));
    assert_eq!(code(&late.follow(&test_hub, &second).await), (410, "code_used"));
    assert!(late.cookies.is_empty());
    assert_eq!(test_hub.people.setup_link().await.unwrap(), None);
    assert_eq!(about(&test_hub).await["setup"], false);
    assert_eq!(test_hub.audit().await, ["hub.set_up"]);
}

#[tokio::test]
pub async fn of_two_who_are_first_at_the_same_moment_one_is() {
    let test_hub = TestHub::open().await;
    let first = test_hub.people.setup_link().await.unwrap().unwrap();
    let second = test_hub.people.setup_link().await.unwrap().unwrap();
    let (mut one, mut other) = (Browser::default(), Browser::default());
    let (one, other) = tokio::join!(one.follow(&test_hub, &first), other.follow(&test_hub, &second));
    let mut statuses = [one.0, other.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::OK, StatusCode::GONE]);
}

#[tokio::test]
pub async fn an_invitation_is_good_once_and_for_seven_days() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let invite = || HubRequest::InvitePerson { name: "ops".into(), admin: false };
    let url = async || match admin.ask(&test_hub, invite()).await.unwrap() {
        HubReplyBody::InvitedPerson { url, .. } => url,
        other => panic!("{other:?}"),
    };
    let (first, second, third) = (url().await, url().await, url().await);
    let mut browser = Browser::default();
    assert_eq!(browser.follow(&test_hub, &first).await.0, StatusCode::OK);
    let id = browser.id(&test_hub).await;
    assert_eq!(code(&browser.follow(&test_hub, &first).await), (410, "code_used"));

    // Another link lets the same person in again.
    let mut again = Browser::default();
    assert_eq!(again.follow(&test_hub, &second).await.0, StatusCode::OK);
    assert_eq!(again.id(&test_hub).await, id);

    test_hub.clock.advance_ms(7 * DAY_MS);
    assert_eq!(code(&again.follow(&test_hub, &third).await), (410, "code_expired"));
    for unknown in [
        "#join.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "#",
        "#join.",
        "#../../x",
        &format!("#{}", "a".repeat(5000)),
    ] {
        assert_eq!(
            code(&Browser::default().follow(&test_hub, unknown).await),
            (403, "code_unknown"),
            "{unknown}"
        );
    }
}

#[tokio::test]
pub async fn the_server_itself_makes_a_link_for_who_lost_theirs() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let person = test_hub.person(&admin, "ops").await;
    let link = test_hub.people.link_for("OPS").await.unwrap();
    let mut browser = Browser::default();
    assert_eq!(browser.follow(&test_hub, &link).await.0, StatusCode::OK);
    assert_eq!(browser.id(&test_hub).await, person.id(&test_hub).await);
    assert!(test_hub.people.link_for("nobody").await.is_err());
}

#[tokio::test]
pub async fn a_browser_that_signs_in_again_gives_its_old_key_up() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let before = test_hub.person(&admin, "ops").await;
    let mut same = before.clone();
    let link = test_hub.people.link_for("ops").await.unwrap();
    same.follow(&test_hub, &link).await;
    assert!(same.arrive(&test_hub.people).await.is_ok());
    assert_eq!(before.arrive(&test_hub.people).await.unwrap_err().0, StatusCode::UNAUTHORIZED);
    assert_eq!(test_hub.people.devices(&same.visitor(&test_hub).await).await.unwrap().len(), 1);
}

#[tokio::test]
pub async fn other_pages_cannot_sign_anybody_in_or_use_their_cookie() {
    let test_hub = TestHub::open().await;
    let mut admin = test_hub.admin().await;
    let link = test_hub.people.link_for("admin").await.unwrap();
    let body = json!({ "code": link.split_once('#').unwrap().1 });
    for headers in [
        &[("origin", "https://evil.example.org")][..],
        &[("origin", "http://hub.example.org")],
        &[("origin", "https://hub.example.org.evil.example.org")],
        &[("origin", "null")],
        &[("origin", PUBLIC), ("origin", PUBLIC)],
        &[],
    ] {
        for path in ["/ui/enter", "/ui/leave", "/auth/passkey/new/begin", "/auth/passkey/begin"] {
            let answer = admin.post_from(&test_hub, path, body.clone(), headers).await;
            assert_eq!(code(&answer), (403, "origin_not_allowed"), "{path} {headers:?}");
        }
    }
    let mut headers = admin.headers();
    headers.insert("origin", "https://evil.example.org".parse().unwrap());
    assert_eq!(test_hub.people.visitor(&headers).await.unwrap_err().1, "signed_out");
    headers.remove("origin");
    assert!(test_hub.people.visitor(&headers).await.is_err(), "a line without a page");
    headers.remove("upgrade");
    assert!(test_hub.people.visitor(&headers).await.is_err(), "sub-protocols are read on a line only");
    headers.insert("x-ropewalk-proof", admin.proofs.values().next().unwrap().parse().unwrap());
    assert!(test_hub.people.visitor(&headers).await.is_ok(), "a plain reading");
    headers.insert("sec-fetch-site", "cross-site".parse().unwrap());
    assert!(test_hub.people.visitor(&headers).await.is_err());
    assert!(admin.arrive(&test_hub.people).await.is_ok(), "none of that has signed them out");
}

/// Browsers send a cookie to every port of its host: a program that listens on one gets it, and can send it here with our
/// own `Origin`.
#[tokio::test]
pub async fn a_cookie_without_its_proof_is_refused_on_every_route() {
    let test_hub = TestHub::open().await;
    let (mut admin, other) = (test_hub.admin().await, Browser::default());
    let person = test_hub.person(&admin, "ops").await;
    for proofs in
        [other.proofs, person.proofs, [(false, admin.cookies.values().next().unwrap().clone())].into()]
    {
        let mut thief = Browser { cookies: admin.cookies.clone(), proofs };
        for path in ["/ui/leave", "/auth/passkey/new/begin", "/auth/passkey/new/finish"] {
            let answer = thief.post(&test_hub, path, json!({})).await;
            assert_eq!(code(&answer), (401, "sign_in_again"), "{path}");
        }
        let refused = thief.arrive(&test_hub.people).await.unwrap_err();
        assert_eq!((refused.0, refused.1), (StatusCode::UNAUTHORIZED, "sign_in_again"));
        assert!(refused.2.contains("sign in again"), "{}", refused.2);
    }
    assert!(admin.arrive(&test_hub.people).await.is_ok(), "none of that has signed them out");
    // A browser that signed in before there were proofs: nothing is kept of one.
    let before = "UPDATE browsers SET proof = NULL";
    test_hub.db.run(vec![Statement::new(before, [])], Vec::new()).await.unwrap();
    assert_eq!(admin.arrive(&test_hub.people).await.unwrap_err().1, "sign_in_again");
    let link = test_hub.people.link_for("admin").await.unwrap();
    admin.follow(&test_hub, &link).await;
    assert_eq!(test_hub.people.devices(&admin.visitor(&test_hub).await).await.unwrap().len(), 1);
}

#[tokio::test]
pub async fn a_form_a_large_body_and_what_is_no_json_are_refused() {
    let test_hub = TestHub::open().await;
    let send = async |kind: &str, body: String| {
        let request = Request::post("/ui/enter").header("origin", PUBLIC).header("content-type", kind);
        test_hub.send(request.body(Body::from(body)).unwrap()).await.status().as_u16()
    };
    assert_eq!(send("application/x-www-form-urlencoded", "code=x".into()).await, 415);
    assert_eq!(send("text/plain", "{}".into()).await, 415);
    assert_eq!(send("application/json", format!("{{\"code\":\"{}\"}}", "a".repeat(70_000))).await, 413);
    assert_eq!(send("application/json", "{\"code\":".into()).await, 400);
    assert_eq!(send("application/json", "[]".into()).await, 400);
    assert_eq!(send("application/json", "{\"code\":7}".into()).await, 400);
}

#[tokio::test]
pub async fn a_sign_in_lasts_as_long_as_it_is_used_once_in_thirty_days() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    for _ in 0..3 {
        test_hub.clock.advance_ms(29 * DAY_MS);
        assert!(admin.arrive(&test_hub.people).await.is_ok());
    }
    test_hub.clock.advance_ms(30 * DAY_MS + 1);
    assert_eq!(admin.arrive(&test_hub.people).await.unwrap_err().1, "signed_out");
}

#[tokio::test]
pub async fn who_leaves_is_signed_out_everywhere_at_once() {
    let test_hub = TestHub::open().await;
    let mut admin = test_hub.admin().await;
    let (copy, visitor) = (admin.clone(), admin.visitor(&test_hub).await);
    let (status, left) = admin.post(&test_hub, "/ui/leave", json!({})).await;
    assert_eq!((status, left["left"].as_str()), (StatusCode::OK, Some(&*visitor.device)));
    assert!(admin.cookies.is_empty());
    assert!(visitor.revoked.is_cancelled());
    assert!(copy.arrive(&test_hub.people).await.is_err());
    // A request that was on its way is not answered any more.
    let answered = test_hub.people.answer(&visitor, HubRequest::Tokens).await.unwrap();
    assert_eq!(answered.unwrap_err().code, "forbidden");
}

#[tokio::test]
pub async fn browsers_are_listed_and_signed_out_by_their_own_person_only() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let person = test_hub.person(&admin, "ops").await;
    let visitor = person.visitor(&test_hub).await;
    let devices = test_hub.people.devices(&visitor).await.unwrap();
    assert_eq!(devices.iter().map(|device| &*device.id).collect::<Vec<_>>(), [&*visitor.device]);
    assert_eq!(devices[0].name, "a test");

    let other = admin.visitor(&test_hub).await;
    assert!(test_hub.people.revoke(&other, &visitor.device).await.is_err(), "not even an admin");
    assert!(!visitor.revoked.is_cancelled());
    test_hub.people.revoke(&visitor, &visitor.device).await.unwrap();
    assert!(visitor.revoked.is_cancelled());
    assert!(!other.revoked.is_cancelled());
    assert!(person.arrive(&test_hub.people).await.is_err());
}

#[tokio::test]
pub async fn a_cookie_that_is_made_up_opens_nothing() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let name = admin.cookies.keys().next().unwrap().clone();
    let key = admin.cookies[&name].clone();
    for value in ["", "x", &key[1..], &format!("{key}x"), &"a".repeat(9000)] {
        let browser = Browser { cookies: [(name.clone(), value.to_owned())].into(), ..admin.clone() };
        assert_eq!(browser.arrive(&test_hub.people).await.unwrap_err().0, StatusCode::UNAUTHORIZED);
    }
    let mut headers = admin.headers();
    headers.append("cookie", format!("{name}=other").parse().unwrap());
    assert!(test_hub.people.visitor(&headers).await.is_err(), "two of one name are none");
    let VisitorKind::Person { admin: is_admin, .. } = admin.visitor(&test_hub).await.kind else {
        panic!("nobody")
    };
    assert!(is_admin);
}
