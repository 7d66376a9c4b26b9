//! Links to one session: who makes them, what they open, and when they end.

use axum::http::StatusCode;
use hub::guest::{Doorkeeper, PersonId, Who};
use serde_json::json;
use store::sql::{Statement, migrate};
use wire::native::Role;
use wire::native::hub::{HubAnswered, HubRequest, ShareView};

use crate::people::house::{Browser, DAY_MS, House, code, keeping_up, seen_off};

const UNTIL: i64 = 1_700_000_000_000 + DAY_MS;

fn share(session: &str, role: Role) -> HubRequest {
    HubRequest::Share { session: session.into(), role, until: UNTIL }
}

/// An owner with a session and a link to it.
async fn shared(house: &House, role: Role) -> (Browser, String, ShareView) {
    let owner = house.admin().await;
    house.session(&owner, "s1").await;
    match owner.ask(house, share("s1", role)).await.unwrap() {
        HubAnswered::Shared { url, share } => (owner, url, share),
        other => panic!("{other:?}"),
    }
}

async fn shares(house: &House, owner: &Browser) -> Vec<ShareView> {
    match owner.ask(house, HubRequest::Shares { session: "s1".into() }).await.unwrap() {
        HubAnswered::Shares { shares } => shares,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn who_comes_by_a_link_has_its_role_in_its_session_and_nothing_else() {
    let house = House::open().await;
    let (owner, url, made) = shared(&house, Role::Approver).await;
    assert!(url.starts_with("https://hub.example.org/s/s1#share."), "{url}");
    let mut visitor = Browser::default();
    let (status, body) = visitor.follow(&house, &url).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&body["session"], &body["role"], &body["person"]),
        (&json!("s1"), &json!("approver"), &json!(null))
    );
    assert_eq!(body["until"], UNTIL);

    let guest = visitor.guest(&house).await;
    let Who::Bearer { share, session, owner: by, role, until } = &guest.who else { panic!("{guest:?}") };
    assert_eq!((&**share, &**session, *role, until.0), (&*made.id, "s1", Role::Approver, UNTIL));
    let person = PersonId(owner.id(&house).await.into());
    assert_eq!(*by, person);
    assert_eq!(guest.role(&person, Some("s1")), Some(Role::Approver));
    assert_eq!(
        guest.role(&PersonId("other".into()), Some("s1")),
        None,
        "the id may have another owner later"
    );
    assert_eq!(guest.role(&person, Some("s2")), None);
    assert_eq!(guest.role(&person, None), None);
    assert!(house.people.view(&guest).await.unwrap().is_none());
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
        assert_eq!(visitor.refused(&house, request).await, "forbidden");
    }
    assert!(house.people.devices(&guest).await.is_err());
    assert_eq!(visitor.post(&house, "/auth/passkey/new/begin", json!({})).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
pub async fn only_the_owner_of_a_session_shares_it() {
    let house = House::open().await;
    let (owner, _, made) = shared(&house, Role::Viewer).await;
    let other = house.invited(&owner, "ops", true).await;
    assert_eq!(other.refused(&house, share("s1", Role::Viewer)).await, "notFound", "not even an admin");
    let none = other.ask(&house, share("none", Role::Viewer)).await.unwrap_err();
    assert_eq!(other.ask(&house, share("s1", Role::Viewer)).await.unwrap_err(), none, "nobody learns of it");
    assert_eq!(other.refused(&house, HubRequest::Shares { session: "s1".into() }).await, "notFound");
    assert_eq!(other.refused(&house, HubRequest::Unshare { share: made.id }).await, "notFound");
    for bad in ["../x", "", "s1'; DROP TABLE shares; --"] {
        assert_eq!(owner.refused(&house, share(bad, Role::Viewer)).await, "notFound", "{bad}");
    }
    assert_eq!(shares(&house, &owner).await.len(), 1);
}

#[tokio::test]
pub async fn a_link_makes_no_owner_and_has_an_end() {
    let house = House::open().await;
    let (owner, ..) = shared(&house, Role::Viewer).await;
    assert_eq!(owner.refused(&house, share("s1", Role::Owner)).await, "badRequest");
    for until in [0, 1_700_000_000_000, i64::MAX, i64::MIN, 1_700_000_000_000 + 366 * DAY_MS] {
        let request = HubRequest::Share { session: "s1".into(), role: Role::Viewer, until };
        assert_eq!(owner.refused(&house, request).await, "badRequest", "{until}");
    }
}

#[tokio::test]
pub async fn uses_are_counted_by_browser() {
    let house = House::open().await;
    let (owner, url, _) = shared(&house, Role::Viewer).await;
    let (mut one, mut two) = (Browser::default(), Browser::default());
    one.follow(&house, &url).await;
    one.follow(&house, &url).await;
    two.follow(&house, &url).await;
    assert_eq!(shares(&house, &owner).await[0].uses, 2);
    assert_eq!(house.audit().await.iter().filter(|what| *what == "share.used").count(), 2);
}

#[tokio::test]
pub async fn a_link_that_is_taken_back_cuts_the_lines_that_came_by_it() {
    let house = House::open().await;
    let (owner, url, made) = shared(&house, Role::Driver).await;
    let mut visitor = Browser::default();
    visitor.follow(&house, &url).await;
    let elsewhere = house.node("two").await;
    let test = async {
        let (here, there) = (visitor.guest(&house).await, visitor.arrive(&elsewhere).await.unwrap());
        let mine = owner.guest(&house).await;
        let HubAnswered::Shares { shares } =
            owner.ask(&house, HubRequest::Unshare { share: made.id.clone() }).await.unwrap()
        else {
            panic!("no list")
        };
        assert!(shares.is_empty());
        assert!(here.ended.is_cancelled());
        seen_off(&there.ended).await;
        assert!(!mine.ended.is_cancelled());
        assert!(visitor.arrive(&house.people).await.is_err());
        assert_eq!(code(&Browser::default().follow(&house, &url).await), (403, "code_unknown"));
    };
    keeping_up(&elsewhere, test).await;
}

#[tokio::test]
pub async fn a_link_ends_at_its_date_with_the_lines_that_came_by_it() {
    let house = House::open().await;
    let (_owner, url, _) = shared(&house, Role::Driver).await;
    let mut visitor = Browser::default();
    visitor.follow(&house, &url).await;
    let test = async {
        house.clock.advance_ms(DAY_MS - 1);
        let guest = visitor.guest(&house).await;
        assert!(!guest.ended.is_cancelled());
        house.clock.advance_ms(1);
        seen_off(&guest.ended).await;
        assert!(visitor.arrive(&house.people).await.is_err());
        let late = Browser::default().follow(&house, &url).await;
        assert!([(410, "code_expired"), (403, "code_unknown")].contains(&code(&late)), "{late:?}");
    };
    keeping_up(&house.people, test).await;
}

#[tokio::test]
pub async fn who_is_signed_in_and_follows_a_link_is_still_signed_in_when_it_ends() {
    let house = House::open().await;
    let (owner, url, made) = shared(&house, Role::Viewer).await;
    let mut person = house.person(&owner, "ops").await;
    person.follow(&house, &url).await;
    assert!(matches!(person.guest(&house).await.who, Who::Bearer { .. }));
    person.post(&house, "/ui/leave", json!({})).await;
    assert!(matches!(person.guest(&house).await.who, Who::Person { .. }), "after leaving it");

    person.follow(&house, &url).await;
    owner.ask(&house, HubRequest::Unshare { share: made.id }).await.unwrap();
    assert!(matches!(person.guest(&house).await.who, Who::Person { .. }), "after its end");
}

#[tokio::test]
pub async fn an_owner_who_opens_their_own_link_stays_the_owner() {
    let house = House::open().await;
    let (mut owner, url, _) = shared(&house, Role::Viewer).await;
    let before = owner.cookies.clone();
    let (status, body) = owner.follow(&house, &url).await;
    assert_eq!((status, &body["role"], &body["session"]), (StatusCode::OK, &json!("owner"), &json!("s1")));
    assert_eq!(owner.cookies, before);
    assert_eq!(shares(&house, &owner).await[0].uses, 0);
}

#[tokio::test]
pub async fn the_key_of_a_link_signs_nobody_in_as_a_person() {
    let house = House::open().await;
    let (_, url, _) = shared(&house, Role::Driver).await;
    let mut visitor = Browser::default();
    visitor.follow(&house, &url).await;
    let key = visitor.cookies["__Host-ropewalk-hub-share"].clone();
    let moved = Browser { cookies: [("__Host-ropewalk-hub".to_owned(), key)].into(), ..visitor.clone() };
    // The cookie's name says nothing: the key is bound to the link.
    assert!(matches!(moved.guest(&house).await.who, Who::Bearer { .. }));
    let guest = moved.guest(&house).await;
    assert!(house.people.answer(&guest, HubRequest::Tokens).await.unwrap().is_err());
}

#[tokio::test]
pub async fn a_link_does_not_lead_to_whoever_has_the_id_next() {
    let house = House::open().await;
    let (owner, url, _) = shared(&house, Role::Driver).await;
    let mut visitor = Browser::default();
    visitor.follow(&house, &url).await;
    let other = house.person(&owner, "ops").await;
    let gone = "DELETE FROM mirrors WHERE session = 's1'";
    house.db.run(vec![Statement::new(gone, [])], Vec::new()).await.unwrap();
    assert!(visitor.arrive(&house.people).await.is_err(), "there is no such session");
    house.session(&other, "s1").await;
    assert!(visitor.arrive(&house.people).await.is_err(), "it is somebody else's");
    assert_eq!(code(&Browser::default().follow(&house, &url).await), (403, "code_unknown"));
    assert!(shares(&house, &other).await.is_empty());
}

#[tokio::test]
pub async fn what_is_forgotten_takes_its_links_along() {
    let house = House::open().await;
    let (owner, url, _) = shared(&house, Role::Driver).await;
    let mut visitor = Browser::default();
    visitor.follow(&house, &url).await;
    let guest = visitor.guest(&house).await;
    // The relay's own tables, which the house has one of.
    migrate(&*house.db, "logs", &store::sql::log::STEPS).await.unwrap();
    for table in ["views", "watchers"] {
        let make = format!("CREATE TABLE {table} (session TEXT NOT NULL)");
        house.db.run(vec![Statement::new(make, [])], Vec::new()).await.unwrap();
    }
    let session = engine::SessionId::parse("s1").unwrap();
    house.db.run(hub::forget(&session), Vec::new()).await.unwrap();
    for table in ["shares", "browsers WHERE share IS NOT NULL"] {
        let question = format!("SELECT id FROM {table}");
        let found = house.db.run(vec![Statement::new(question, [])], Vec::new()).await.unwrap();
        assert!(found[0].rows.is_empty(), "{table}");
    }
    keeping_up(&house.people, seen_off(&guest.ended)).await;
    house.session(&owner, "s1").await;
    assert!(shares(&house, &owner).await.is_empty());
}
