//! Share links: who makes them, what they give access to, and when they end.

use axum::http::StatusCode;
use hub::authenticator::{HubAuthenticator, PersonId, VisitorKind};
use serde_json::json;
use store::sql::{Statement, migrate};
use wire::native::Role;
use wire::native::hub_requests::{HubReplyBody, HubRequest, ShareView};

use crate::people::test_hub::{Browser, DAY_MS, TestHub, code, until_revoked, with_upkeep};

const UNTIL: i64 = 1_700_000_000_000 + DAY_MS;

fn share(session: &str, role: Role) -> HubRequest {
    HubRequest::Share { session: session.into(), role, until: UNTIL }
}

/// An owner with a session and a link to it.
async fn shared(test_hub: &TestHub, role: Role) -> (Browser, String, ShareView) {
    let owner = test_hub.admin().await;
    test_hub.session(&owner, "s1").await;
    match owner.ask(test_hub, share("s1", role)).await.unwrap() {
        HubReplyBody::Shared { url, share } => (owner, url, share),
        other => panic!("{other:?}"),
    }
}

async fn shares(test_hub: &TestHub, owner: &Browser) -> Vec<ShareView> {
    match owner.ask(test_hub, HubRequest::Shares { session: "s1".into() }).await.unwrap() {
        HubReplyBody::Shares { shares } => shares,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn who_comes_by_a_link_has_its_role_in_its_session_and_nothing_else() {
    let test_hub = TestHub::open().await;
    let (owner, url, made) = shared(&test_hub, Role::Approver).await;
    assert!(url.starts_with("https://hub.example.org/s/s1#share."), "{url}");
    let mut link_user = Browser::default();
    let (status, body) = link_user.follow(&test_hub, &url).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&body["session"], &body["role"], &body["person"]),
        (&json!("s1"), &json!("approver"), &json!(null))
    );
    assert_eq!(body["until"], UNTIL);

    let visitor = link_user.visitor(&test_hub).await;
    let VisitorKind::ShareLink { share, session, owner: by, role, until } = &visitor.kind else {
        panic!("{visitor:?}")
    };
    assert_eq!((&**share, &**session, *role, until.0), (&*made.id, "s1", Role::Approver, UNTIL));
    let person = PersonId(owner.id(&test_hub).await.into());
    assert_eq!(*by, person);
    assert_eq!(visitor.role(&person, Some("s1")), Some(Role::Approver));
    assert_eq!(
        visitor.role(&PersonId("other".into()), Some("s1")),
        None,
        "the id may have another owner later"
    );
    assert_eq!(visitor.role(&person, Some("s2")), None);
    assert_eq!(visitor.role(&person, None), None);
    assert!(test_hub.people.view(&visitor).await.unwrap().is_none());
    for request in [
        HubRequest::People,
        HubRequest::Tokens,
        HubRequest::Passkeys,
        HubRequest::MakeToken { name: "x".into(), until: None },
        HubRequest::Shares { session: "s1".into() },
        HubRequest::Share { session: "s1".into(), role: Role::Viewer, until: UNTIL },
        HubRequest::Unshare { share: made.id.clone() },
        HubRequest::InvitePerson { name: "x".into(), admin: true },
    ] {
        assert_eq!(link_user.refused(&test_hub, request).await, "forbidden");
    }
    assert!(test_hub.people.devices(&visitor).await.is_err());
    assert_eq!(
        link_user.post(&test_hub, "/auth/passkey/new/begin", json!({})).await.0,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
pub async fn only_the_owner_of_a_session_shares_it() {
    let test_hub = TestHub::open().await;
    let (owner, _, made) = shared(&test_hub, Role::Viewer).await;
    let other = test_hub.invited(&owner, "ops", true).await;
    assert_eq!(other.refused(&test_hub, share("s1", Role::Viewer)).await, "notFound", "not even an admin");
    let none = other.ask(&test_hub, share("none", Role::Viewer)).await.unwrap_err();
    assert_eq!(
        other.ask(&test_hub, share("s1", Role::Viewer)).await.unwrap_err(),
        none,
        "nobody learns of it"
    );
    assert_eq!(other.refused(&test_hub, HubRequest::Shares { session: "s1".into() }).await, "notFound");
    assert_eq!(other.refused(&test_hub, HubRequest::Unshare { share: made.id }).await, "notFound");
    for bad in ["../x", "", "s1'; DROP TABLE shares; --"] {
        assert_eq!(owner.refused(&test_hub, share(bad, Role::Viewer)).await, "notFound", "{bad}");
    }
    assert_eq!(shares(&test_hub, &owner).await.len(), 1);
}

#[tokio::test]
pub async fn a_link_makes_no_owner_and_has_an_end() {
    let test_hub = TestHub::open().await;
    let (owner, ..) = shared(&test_hub, Role::Viewer).await;
    assert_eq!(owner.refused(&test_hub, share("s1", Role::Owner)).await, "badRequest");
    for until in [0, 1_700_000_000_000, i64::MAX, i64::MIN, 1_700_000_000_000 + 366 * DAY_MS] {
        let request = HubRequest::Share { session: "s1".into(), role: Role::Viewer, until };
        assert_eq!(owner.refused(&test_hub, request).await, "badRequest", "{until}");
    }
}

#[tokio::test]
pub async fn uses_are_counted_by_browser() {
    let test_hub = TestHub::open().await;
    let (owner, url, _) = shared(&test_hub, Role::Viewer).await;
    let (mut one, mut two) = (Browser::default(), Browser::default());
    one.follow(&test_hub, &url).await;
    one.follow(&test_hub, &url).await;
    two.follow(&test_hub, &url).await;
    assert_eq!(shares(&test_hub, &owner).await[0].uses, 2);
    assert_eq!(test_hub.audit().await.iter().filter(|what| *what == "share.used").count(), 2);
}

#[tokio::test]
pub async fn a_link_that_is_taken_back_cuts_the_lines_that_came_by_it() {
    let test_hub = TestHub::open().await;
    let (owner, url, made) = shared(&test_hub, Role::Driver).await;
    let mut link_user = Browser::default();
    link_user.follow(&test_hub, &url).await;
    let elsewhere = test_hub.node("two").await;
    let test = async {
        let (here, there) = (link_user.visitor(&test_hub).await, link_user.arrive(&elsewhere).await.unwrap());
        let mine = owner.visitor(&test_hub).await;
        let HubReplyBody::Shares { shares } =
            owner.ask(&test_hub, HubRequest::Unshare { share: made.id.clone() }).await.unwrap()
        else {
            panic!("no list")
        };
        assert!(shares.is_empty());
        assert!(here.revoked.is_cancelled());
        until_revoked(&there.revoked).await;
        assert!(!mine.revoked.is_cancelled());
        assert!(link_user.arrive(&test_hub.people).await.is_err());
        assert_eq!(code(&Browser::default().follow(&test_hub, &url).await), (403, "code_unknown"));
    };
    with_upkeep(&elsewhere, test).await;
}

#[tokio::test]
pub async fn a_link_ends_at_its_date_with_the_lines_that_came_by_it() {
    let test_hub = TestHub::open().await;
    let (_owner, url, _) = shared(&test_hub, Role::Driver).await;
    let mut link_user = Browser::default();
    link_user.follow(&test_hub, &url).await;
    let test = async {
        test_hub.clock.advance_ms(DAY_MS - 1);
        let visitor = link_user.visitor(&test_hub).await;
        assert!(!visitor.revoked.is_cancelled());
        test_hub.clock.advance_ms(1);
        until_revoked(&visitor.revoked).await;
        assert!(link_user.arrive(&test_hub.people).await.is_err());
        let late = Browser::default().follow(&test_hub, &url).await;
        assert!([(410, "code_expired"), (403, "code_unknown")].contains(&code(&late)), "{late:?}");
    };
    with_upkeep(&test_hub.people, test).await;
}

#[tokio::test]
pub async fn who_is_signed_in_and_follows_a_link_is_still_signed_in_when_it_ends() {
    let test_hub = TestHub::open().await;
    let (owner, url, made) = shared(&test_hub, Role::Viewer).await;
    let mut person = test_hub.person(&owner, "ops").await;
    person.follow(&test_hub, &url).await;
    assert!(matches!(person.visitor(&test_hub).await.kind, VisitorKind::ShareLink { .. }));
    person.post(&test_hub, "/ui/leave", json!({})).await;
    assert!(matches!(person.visitor(&test_hub).await.kind, VisitorKind::Person { .. }), "after leaving it");

    person.follow(&test_hub, &url).await;
    owner.ask(&test_hub, HubRequest::Unshare { share: made.id }).await.unwrap();
    assert!(matches!(person.visitor(&test_hub).await.kind, VisitorKind::Person { .. }), "after its end");
}

#[tokio::test]
pub async fn an_owner_who_opens_their_own_link_stays_the_owner() {
    let test_hub = TestHub::open().await;
    let (mut owner, url, _) = shared(&test_hub, Role::Viewer).await;
    let before = owner.cookies.clone();
    let (status, body) = owner.follow(&test_hub, &url).await;
    assert_eq!((status, &body["role"], &body["session"]), (StatusCode::OK, &json!("owner"), &json!("s1")));
    assert_eq!(owner.cookies, before);
    assert_eq!(shares(&test_hub, &owner).await[0].uses, 0);
}

#[tokio::test]
pub async fn the_key_of_a_link_signs_nobody_in_as_a_person() {
    let test_hub = TestHub::open().await;
    let (_, url, _) = shared(&test_hub, Role::Driver).await;
    let mut link_user = Browser::default();
    link_user.follow(&test_hub, &url).await;
    let key = link_user.cookies["__Host-ropewalk-hub-share"].clone();
    let moved = Browser { cookies: [("__Host-ropewalk-hub".to_owned(), key)].into(), ..link_user.clone() };
    // The cookie's name says nothing: the key is bound to the link.
    assert!(matches!(moved.visitor(&test_hub).await.kind, VisitorKind::ShareLink { .. }));
    let visitor = moved.visitor(&test_hub).await;
    assert!(test_hub.people.answer(&visitor, HubRequest::Tokens).await.unwrap().is_err());
}

#[tokio::test]
pub async fn a_link_does_not_lead_to_whoever_has_the_id_next() {
    let test_hub = TestHub::open().await;
    let (owner, url, _) = shared(&test_hub, Role::Driver).await;
    let mut link_user = Browser::default();
    link_user.follow(&test_hub, &url).await;
    let other = test_hub.person(&owner, "ops").await;
    let gone = "DELETE FROM mirrors WHERE session = 's1'";
    test_hub.db.run(vec![Statement::new(gone, [])], Vec::new()).await.unwrap();
    assert!(link_user.arrive(&test_hub.people).await.is_err(), "there is no such session");
    test_hub.session(&other, "s1").await;
    assert!(link_user.arrive(&test_hub.people).await.is_err(), "it is somebody else's");
    assert_eq!(code(&Browser::default().follow(&test_hub, &url).await), (403, "code_unknown"));
    assert!(shares(&test_hub, &other).await.is_empty());
}

#[tokio::test]
pub async fn what_is_forgotten_takes_its_links_along() {
    let test_hub = TestHub::open().await;
    let (owner, url, _) = shared(&test_hub, Role::Driver).await;
    let mut link_user = Browser::default();
    link_user.follow(&test_hub, &url).await;
    let visitor = link_user.visitor(&test_hub).await;
    // The relay's own tables, of which this test hub has only one.
    migrate(&*test_hub.db, "logs", &store::sql::log::STEPS).await.unwrap();
    for table in ["views", "watchers"] {
        let make = format!("CREATE TABLE {table} (session TEXT NOT NULL)");
        test_hub.db.run(vec![Statement::new(make, [])], Vec::new()).await.unwrap();
    }
    let session = engine::SessionId::parse("s1").unwrap();
    test_hub.db.run(hub::forget(&session), Vec::new()).await.unwrap();
    for table in ["shares", "browsers WHERE share IS NOT NULL"] {
        let question = format!("SELECT id FROM {table}");
        let found = test_hub.db.run(vec![Statement::new(question, [])], Vec::new()).await.unwrap();
        assert!(found[0].rows.is_empty(), "{table}");
    }
    with_upkeep(&test_hub.people, until_revoked(&visitor.revoked)).await;
    test_hub.session(&owner, "s1").await;
    assert!(shares(&test_hub, &owner).await.is_empty());
}
