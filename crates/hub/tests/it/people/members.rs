//! The people of the hub: who may invite and remove whom, and what is deleted with a person.

use hub::authenticator::HubAuthenticator;
use store::sql::Statement;
use wire::native::Role;
use wire::native::hub_requests::{HubReplyBody, HubRequest, PersonView};

use crate::people::test_hub::{Browser, TestHub, until_revoked, with_upkeep};

async fn people(test_hub: &TestHub, browser: &Browser) -> Vec<PersonView> {
    match browser.ask(test_hub, HubRequest::People).await.unwrap() {
        HubReplyBody::People { people } => people,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn only_an_admin_sees_invites_and_removes_people() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let person = test_hub.person(&admin, "ops").await;
    let admin_id = admin.id(&test_hub).await;
    for request in [
        HubRequest::People,
        HubRequest::InvitePerson { name: "other".into(), admin: true },
        HubRequest::RemovePerson { person: admin_id },
    ] {
        assert_eq!(person.refused(&test_hub, request).await, "forbidden");
    }
    let names: Vec<String> = people(&test_hub, &admin).await.into_iter().map(|person| person.name).collect();
    assert_eq!(names, ["admin", "ops"]);
}

#[tokio::test]
pub async fn names_come_back_as_the_text_they_are() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let markup = "<img src=x onerror=alert(1)>";
    test_hub.person(&admin, markup).await;
    let bidi = HubRequest::InvitePerson { name: "\u{202e}nimda\u{200b}\u{7}\r\n  x".into(), admin: false };
    test_hub.clock.advance_ms(1);
    admin.ask(&test_hub, bidi).await.unwrap();
    let names: Vec<String> = people(&test_hub, &admin).await.into_iter().map(|person| person.name).collect();
    assert_eq!(names, ["admin", markup, "nimda x"]);
    for empty in ["", " \u{200b}\t"] {
        let invite = HubRequest::InvitePerson { name: empty.into(), admin: false };
        assert_eq!(admin.refused(&test_hub, invite).await, "badRequest");
    }
    let huge = HubRequest::InvitePerson { name: "x".repeat(100_000), admin: false };
    test_hub.clock.advance_ms(1);
    admin.ask(&test_hub, huge).await.unwrap();
    assert_eq!(people(&test_hub, &admin).await[3].name.len(), 60);
}

#[tokio::test]
pub async fn an_invitation_makes_no_admin_of_somebody_who_is_there() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let person = test_hub.person(&admin, "ops").await;
    let invite = HubRequest::InvitePerson { name: "OPS".into(), admin: true };
    assert_eq!(admin.refused(&test_hub, invite).await, "badRequest");
    assert!(!person.view(&test_hub).await.admin);
}

#[tokio::test]
pub async fn with_a_person_everything_of_theirs_ends_on_every_node() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let person = test_hub.person(&admin, "ops").await;
    test_hub.session(&person, "s1").await;
    let (secret, _) = person.token(&test_hub, None).await;
    let share = HubRequest::Share { session: "s1".into(), role: Role::Viewer, until: 1_700_000_600_000 };
    let HubReplyBody::Shared { url, .. } = person.ask(&test_hub, share).await.unwrap() else {
        panic!("no link")
    };
    let mut link_user = Browser::default();
    link_user.follow(&test_hub, &url).await;
    let link = test_hub.people.link_for("ops").await.unwrap();

    let elsewhere = test_hub.node("two").await;
    let test = async {
        let visitor = person.arrive(&elsewhere).await.unwrap();
        let by_share = link_user.arrive(&elsewhere).await.unwrap();
        let machine_token = test_hub.machine(&secret).await.unwrap();
        let machine = test_hub.people.revoked(&machine_token);
        assert!(!machine.is_cancelled());

        let id = person.id(&test_hub).await;
        admin.ask(&test_hub, HubRequest::RemovePerson { person: id }).await.unwrap();
        for revoked in [&visitor.revoked, &by_share.revoked, &machine] {
            until_revoked(revoked).await;
        }
        assert_eq!(test_hub.machine(&secret).await.unwrap_err().1, "unauthorized");
        for gone in [&person, &link_user] {
            assert!(gone.arrive(&test_hub.people).await.is_err());
            assert!(gone.arrive(&elsewhere).await.is_err());
        }
        assert_eq!(Browser::default().follow(&test_hub, &link).await.0, 403, "an open invitation");
        assert_eq!(Browser::default().follow(&test_hub, &url).await.0, 403, "a link of theirs");
        let left = "SELECT session FROM mirrors";
        let left = test_hub.db.run(vec![Statement::new(left, [])], Vec::new()).await.unwrap();
        assert!(left[0].rows.is_empty());
        assert!(!admin.visitor(&test_hub).await.revoked.is_cancelled());
    };
    with_upkeep(&elsewhere, test).await;
}

#[tokio::test]
pub async fn nobody_removes_themselves_and_of_two_admins_who_remove_each_other_one_stays() {
    let test_hub = TestHub::open().await;
    let first = test_hub.admin().await;
    let second = test_hub.invited(&first, "second", true).await;
    let (first_id, second_id) = (first.id(&test_hub).await, second.id(&test_hub).await);
    let remove = |person: &str| HubRequest::RemovePerson { person: person.into() };
    assert_eq!(first.refused(&test_hub, remove(&first_id)).await, "forbidden");
    assert_eq!(first.refused(&test_hub, remove("nobody")).await, "notFound");

    let (one, other) = (first.visitor(&test_hub).await, second.visitor(&test_hub).await);
    let (one, other) = tokio::join!(
        test_hub.people.answer(&one, remove(&second_id)),
        test_hub.people.answer(&other, remove(&first_id)),
    );
    assert_eq!([one.unwrap().is_ok(), other.unwrap().is_ok()].iter().filter(|done| **done).count(), 1);
    let found =
        test_hub.db.run(vec![Statement::new("SELECT admin FROM people", [])], Vec::new()).await.unwrap();
    assert_eq!(found[0].rows.iter().map(|row| row.int(0).unwrap()).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
pub async fn what_is_not_about_people_is_given_back() {
    let test_hub = TestHub::open().await;
    let visitor = test_hub.admin().await.visitor(&test_hub).await;
    let request = HubRequest::ForgetMachine { machine: "m".into() };
    assert_eq!(test_hub.people.answer(&visitor, request.clone()).await, Err(request));
    assert_eq!(test_hub.people.answer(&visitor, HubRequest::Machines).await, Err(HubRequest::Machines));
}
