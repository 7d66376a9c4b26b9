//! Links: the first admin, who was invited, and what a cookie is worth.

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use hub::guest::{Doorkeeper, Who};
use serde_json::{Value, json};
use store::sql::Statement;
use wire::native::hub::{HubAnswered, HubRequest};

use crate::people::house::{Browser, DAY_MS, House, PUBLIC, code};

async fn about(house: &House) -> Value {
    let answer = house.send(Request::get("/auth/about").body(Body::empty()).unwrap()).await;
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
pub async fn the_setup_link_makes_the_first_admin_and_nobody_after() {
    let house = House::open().await;
    assert_eq!(about(&house).await, json!({ "hub": true, "passkeys": true, "setup": true }));
    let first = house.people.setup_link().await.unwrap().unwrap();
    let second = house.people.setup_link().await.unwrap().unwrap();
    assert!(first.starts_with("https://hub.example.org/login#setup."), "{first}");

    let mut browser = Browser::default();
    let link = first.split_once('#').unwrap().1;
    let body = json!({ "code": link, "name": "laptop", "person": "  dev\n" });
    let (status, entered) = browser.post(&house, "/ui/enter", body).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(entered["person"], "dev");
    assert_eq!(entered["addPasskey"], true);
    let view = browser.view(&house).await;
    assert_eq!((view.name.as_str(), view.admin, view.passkeys), ("dev", true, 0));

    let mut late = Browser::default();
    assert_eq!(code(&late.follow(&house, &first).await), (410, "code_used"));
    assert_eq!(code(&late.follow(&house, &second).await), (410, "code_used"));
    assert!(late.cookies.is_empty());
    assert_eq!(house.people.setup_link().await.unwrap(), None);
    assert_eq!(about(&house).await["setup"], false);
    assert_eq!(house.audit().await, ["hub.set_up"]);
}

#[tokio::test]
pub async fn of_two_who_are_first_at_the_same_moment_one_is() {
    let house = House::open().await;
    let first = house.people.setup_link().await.unwrap().unwrap();
    let second = house.people.setup_link().await.unwrap().unwrap();
    let (mut one, mut other) = (Browser::default(), Browser::default());
    let (one, other) = tokio::join!(one.follow(&house, &first), other.follow(&house, &second));
    let mut statuses = [one.0, other.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::OK, StatusCode::GONE]);
}

#[tokio::test]
pub async fn an_invitation_is_good_once_and_for_seven_days() {
    let house = House::open().await;
    let admin = house.admin().await;
    let invite = || HubRequest::InvitePerson { name: "ops".into(), admin: false };
    let url = async || match admin.ask(&house, invite()).await.unwrap() {
        HubAnswered::InvitedPerson { url, .. } => url,
        other => panic!("{other:?}"),
    };
    let (first, second, third) = (url().await, url().await, url().await);
    let mut browser = Browser::default();
    assert_eq!(browser.follow(&house, &first).await.0, StatusCode::OK);
    let id = browser.id(&house).await;
    assert_eq!(code(&browser.follow(&house, &first).await), (410, "code_used"));

    // Another link lets the same person in again.
    let mut again = Browser::default();
    assert_eq!(again.follow(&house, &second).await.0, StatusCode::OK);
    assert_eq!(again.id(&house).await, id);

    house.clock.advance_ms(7 * DAY_MS);
    assert_eq!(code(&again.follow(&house, &third).await), (410, "code_expired"));
    for unknown in [
        "#join.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "#",
        "#join.",
        "#../../x",
        &format!("#{}", "a".repeat(5000)),
    ] {
        assert_eq!(
            code(&Browser::default().follow(&house, unknown).await),
            (403, "code_unknown"),
            "{unknown}"
        );
    }
}

#[tokio::test]
pub async fn the_server_itself_makes_a_link_for_who_lost_theirs() {
    let house = House::open().await;
    let admin = house.admin().await;
    let person = house.person(&admin, "ops").await;
    let link = house.people.link_for("OPS").await.unwrap();
    let mut browser = Browser::default();
    assert_eq!(browser.follow(&house, &link).await.0, StatusCode::OK);
    assert_eq!(browser.id(&house).await, person.id(&house).await);
    assert!(house.people.link_for("nobody").await.is_err());
}

#[tokio::test]
pub async fn a_browser_that_signs_in_again_gives_its_old_key_up() {
    let house = House::open().await;
    let admin = house.admin().await;
    let before = house.person(&admin, "ops").await;
    let mut same = before.clone();
    let link = house.people.link_for("ops").await.unwrap();
    same.follow(&house, &link).await;
    assert!(same.arrive(&house.people).await.is_ok());
    assert_eq!(before.arrive(&house.people).await.unwrap_err().0, StatusCode::UNAUTHORIZED);
    assert_eq!(house.people.devices(&same.guest(&house).await).await.unwrap().len(), 1);
}

#[tokio::test]
pub async fn other_pages_cannot_sign_anybody_in_or_use_their_cookie() {
    let house = House::open().await;
    let mut admin = house.admin().await;
    let link = house.people.link_for("admin").await.unwrap();
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
            let answer = admin.post_from(&house, path, body.clone(), headers).await;
            assert_eq!(code(&answer), (403, "origin_not_allowed"), "{path} {headers:?}");
        }
    }
    let mut headers = admin.headers();
    headers.insert("origin", "https://evil.example.org".parse().unwrap());
    assert_eq!(house.people.guest(&headers).await.unwrap_err().1, "signed_out");
    headers.remove("origin");
    assert!(house.people.guest(&headers).await.is_err(), "a line without a page");
    headers.remove("upgrade");
    assert!(house.people.guest(&headers).await.is_err(), "sub-protocols are read on a line only");
    headers.insert("x-ropewalk-proof", admin.proofs.values().next().unwrap().parse().unwrap());
    assert!(house.people.guest(&headers).await.is_ok(), "a plain reading");
    headers.insert("sec-fetch-site", "cross-site".parse().unwrap());
    assert!(house.people.guest(&headers).await.is_err());
    assert!(admin.arrive(&house.people).await.is_ok(), "none of that has signed them out");
}

/// Browsers send a cookie to every port of its host: whoever listens on one has it, and can send it here under our
/// own `Origin`.
#[tokio::test]
pub async fn a_cookie_without_its_proof_is_refused_on_every_route() {
    let house = House::open().await;
    let (mut admin, other) = (house.admin().await, Browser::default());
    let person = house.person(&admin, "ops").await;
    for proofs in
        [other.proofs, person.proofs, [(false, admin.cookies.values().next().unwrap().clone())].into()]
    {
        let mut thief = Browser { cookies: admin.cookies.clone(), proofs };
        for path in ["/ui/leave", "/auth/passkey/new/begin", "/auth/passkey/new/finish"] {
            let answer = thief.post(&house, path, json!({})).await;
            assert_eq!(code(&answer), (401, "sign_in_again"), "{path}");
        }
        let refused = thief.arrive(&house.people).await.unwrap_err();
        assert_eq!((refused.0, refused.1), (StatusCode::UNAUTHORIZED, "sign_in_again"));
        assert!(refused.2.contains("sign in again"), "{}", refused.2);
    }
    assert!(admin.arrive(&house.people).await.is_ok(), "none of that has signed them out");
    // A browser that signed in before there were proofs: nothing is kept of one.
    let before = "UPDATE browsers SET proof = NULL";
    house.db.run(vec![Statement::new(before, [])], Vec::new()).await.unwrap();
    assert_eq!(admin.arrive(&house.people).await.unwrap_err().1, "sign_in_again");
    let link = house.people.link_for("admin").await.unwrap();
    admin.follow(&house, &link).await;
    assert_eq!(house.people.devices(&admin.guest(&house).await).await.unwrap().len(), 1);
}

#[tokio::test]
pub async fn a_form_a_large_body_and_what_is_no_json_are_refused() {
    let house = House::open().await;
    let send = async |kind: &str, body: String| {
        let request = Request::post("/ui/enter").header("origin", PUBLIC).header("content-type", kind);
        house.send(request.body(Body::from(body)).unwrap()).await.status().as_u16()
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
    let house = House::open().await;
    let admin = house.admin().await;
    for _ in 0..3 {
        house.clock.advance_ms(29 * DAY_MS);
        assert!(admin.arrive(&house.people).await.is_ok());
    }
    house.clock.advance_ms(30 * DAY_MS + 1);
    assert_eq!(admin.arrive(&house.people).await.unwrap_err().1, "signed_out");
}

#[tokio::test]
pub async fn who_leaves_is_signed_out_everywhere_at_once() {
    let house = House::open().await;
    let mut admin = house.admin().await;
    let (copy, guest) = (admin.clone(), admin.guest(&house).await);
    let (status, left) = admin.post(&house, "/ui/leave", json!({})).await;
    assert_eq!((status, left["left"].as_str()), (StatusCode::OK, Some(&*guest.device)));
    assert!(admin.cookies.is_empty());
    assert!(guest.ended.is_cancelled());
    assert!(copy.arrive(&house.people).await.is_err());
    // A request that was on its way is not answered any more.
    let answered = house.people.answer(&guest, HubRequest::Tokens).await.unwrap();
    assert_eq!(answered.unwrap_err().code, "forbidden");
}

#[tokio::test]
pub async fn browsers_are_listed_and_signed_out_by_their_own_person_only() {
    let house = House::open().await;
    let admin = house.admin().await;
    let person = house.person(&admin, "ops").await;
    let guest = person.guest(&house).await;
    let devices = house.people.devices(&guest).await.unwrap();
    assert_eq!(devices.iter().map(|device| &*device.id).collect::<Vec<_>>(), [&*guest.device]);
    assert_eq!(devices[0].name, "a test");

    let other = admin.guest(&house).await;
    assert!(house.people.revoke(&other, &guest.device).await.is_err(), "not even an admin");
    assert!(!guest.ended.is_cancelled());
    house.people.revoke(&guest, &guest.device).await.unwrap();
    assert!(guest.ended.is_cancelled());
    assert!(!other.ended.is_cancelled());
    assert!(person.arrive(&house.people).await.is_err());
}

#[tokio::test]
pub async fn a_cookie_that_is_made_up_opens_nothing() {
    let house = House::open().await;
    let admin = house.admin().await;
    let name = admin.cookies.keys().next().unwrap().clone();
    let key = admin.cookies[&name].clone();
    for value in ["", "x", &key[1..], &format!("{key}x"), &"a".repeat(9000)] {
        let browser = Browser { cookies: [(name.clone(), value.to_owned())].into(), ..admin.clone() };
        assert_eq!(browser.arrive(&house.people).await.unwrap_err().0, StatusCode::UNAUTHORIZED);
    }
    let mut headers = admin.headers();
    headers.append("cookie", format!("{name}=other").parse().unwrap());
    assert!(house.people.guest(&headers).await.is_err(), "two of one name are none");
    let Who::Person { admin: is_admin, .. } = admin.guest(&house).await.who else { panic!("nobody") };
    assert!(is_admin);
}
