//! Everybody at the hub: who may invite and remove whom, and what goes with them.

use hub::guest::Doorkeeper;
use store::sql::Statement;
use wire::native::Role;
use wire::native::hub::{HubAnswered, HubRequest, PersonView};

use crate::people::house::{Browser, House, keeping_up, seen_off};

async fn people(house: &House, browser: &Browser) -> Vec<PersonView> {
    match browser.ask(house, HubRequest::People).await.unwrap() {
        HubAnswered::People { people } => people,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn only_an_admin_sees_invites_and_removes_people() {
    let house = House::open().await;
    let admin = house.admin().await;
    let person = house.person(&admin, "ops").await;
    let admin_id = admin.id(&house).await;
    for request in [
        HubRequest::People,
        HubRequest::InvitePerson { name: "other".into(), admin: true },
        HubRequest::RemovePerson { person: admin_id },
    ] {
        assert_eq!(person.refused(&house, request).await, "forbidden");
    }
    let names: Vec<String> = people(&house, &admin).await.into_iter().map(|person| person.name).collect();
    assert_eq!(names, ["admin", "ops"]);
}

#[tokio::test]
pub async fn names_come_back_as_the_text_they_are() {
    let house = House::open().await;
    let admin = house.admin().await;
    let markup = "<img src=x onerror=alert(1)>";
    house.person(&admin, markup).await;
    let bidi = HubRequest::InvitePerson { name: "\u{202e}nimda\u{200b}\u{7}\r\n  x".into(), admin: false };
    house.clock.advance_ms(1);
    admin.ask(&house, bidi).await.unwrap();
    let names: Vec<String> = people(&house, &admin).await.into_iter().map(|person| person.name).collect();
    assert_eq!(names, ["admin", markup, "nimda x"]);
    for empty in ["", " \u{200b}\t"] {
        let invite = HubRequest::InvitePerson { name: empty.into(), admin: false };
        assert_eq!(admin.refused(&house, invite).await, "badRequest");
    }
    let huge = HubRequest::InvitePerson { name: "x".repeat(100_000), admin: false };
    house.clock.advance_ms(1);
    admin.ask(&house, huge).await.unwrap();
    assert_eq!(people(&house, &admin).await[3].name.len(), 60);
}

#[tokio::test]
pub async fn an_invitation_makes_no_admin_of_somebody_who_is_there() {
    let house = House::open().await;
    let admin = house.admin().await;
    let person = house.person(&admin, "ops").await;
    let invite = HubRequest::InvitePerson { name: "OPS".into(), admin: true };
    assert_eq!(admin.refused(&house, invite).await, "badRequest");
    assert!(!person.view(&house).await.admin);
}

#[tokio::test]
pub async fn with_a_person_everything_of_theirs_ends_on_every_node() {
    let house = House::open().await;
    let admin = house.admin().await;
    let person = house.person(&admin, "ops").await;
    house.session(&person, "s1").await;
    let (secret, _) = person.token(&house, None).await;
    let share = HubRequest::Share { session: "s1".into(), role: Role::Viewer, until: 1_700_000_600_000 };
    let HubAnswered::Shared { url, .. } = person.ask(&house, share).await.unwrap() else { panic!("no link") };
    let mut visitor = Browser::default();
    visitor.follow(&house, &url).await;
    let link = house.people.link_for("ops").await.unwrap();

    let elsewhere = house.node("two").await;
    let test = async {
        let guest = person.arrive(&elsewhere).await.unwrap();
        let by_share = visitor.arrive(&elsewhere).await.unwrap();
        let bearer = house.machine(&secret).await.unwrap();
        let machine = house.people.ended(&bearer);
        assert!(!machine.is_cancelled());

        let id = person.id(&house).await;
        admin.ask(&house, HubRequest::RemovePerson { person: id }).await.unwrap();
        for ended in [&guest.ended, &by_share.ended, &machine] {
            seen_off(ended).await;
        }
        assert_eq!(house.machine(&secret).await.unwrap_err().1, "unauthorized");
        for gone in [&person, &visitor] {
            assert!(gone.arrive(&house.people).await.is_err());
            assert!(gone.arrive(&elsewhere).await.is_err());
        }
        assert_eq!(Browser::default().follow(&house, &link).await.0, 403, "an open invitation");
        assert_eq!(Browser::default().follow(&house, &url).await.0, 403, "a link of theirs");
        let left = "SELECT session FROM mirrors";
        let left = house.db.run(vec![Statement::new(left, [])], Vec::new()).await.unwrap();
        assert!(left[0].rows.is_empty());
        assert!(!admin.guest(&house).await.ended.is_cancelled());
    };
    keeping_up(&elsewhere, test).await;
}

#[tokio::test]
pub async fn nobody_removes_themselves_and_of_two_admins_who_remove_each_other_one_stays() {
    let house = House::open().await;
    let first = house.admin().await;
    let second = house.invited(&first, "second", true).await;
    let (first_id, second_id) = (first.id(&house).await, second.id(&house).await);
    let remove = |person: &str| HubRequest::RemovePerson { person: person.into() };
    assert_eq!(first.refused(&house, remove(&first_id)).await, "forbidden");
    assert_eq!(first.refused(&house, remove("nobody")).await, "notFound");

    let (one, other) = (first.guest(&house).await, second.guest(&house).await);
    let (one, other) = tokio::join!(
        house.people.answer(&one, remove(&second_id)),
        house.people.answer(&other, remove(&first_id)),
    );
    assert_eq!([one.unwrap().is_ok(), other.unwrap().is_ok()].iter().filter(|done| **done).count(), 1);
    let found = house.db.run(vec![Statement::new("SELECT admin FROM people", [])], Vec::new()).await.unwrap();
    assert_eq!(found[0].rows.iter().map(|row| row.int(0).unwrap()).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
pub async fn what_is_not_about_people_is_given_back() {
    let house = House::open().await;
    let guest = house.admin().await.guest(&house).await;
    let request = HubRequest::ForgetMachine { machine: "m".into() };
    assert_eq!(house.people.answer(&guest, request.clone()).await, Err(request));
    assert_eq!(house.people.answer(&guest, HubRequest::Machines).await, Err(HubRequest::Machines));
}
