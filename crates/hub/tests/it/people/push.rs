//! Browsers of people are told by push what they do not look at, by one node, and without content.

use std::sync::Arc;

use access::devices::push::Reach;
use engine::{SessionId, Timestamp};
use hub::guest::{Guest, PersonId, Who};
use hub::people::{News, People, PushOptions};
use serde_json::json;
use testkit::push::PushService;
use wire::native::Role;
use wire::native::hub::{HubAnswered, HubRequest};

use crate::people::house::{Browser, House, keeping_up};

fn options() -> PushOptions {
    let reach = Reach { allows: |_| false, loopback: true };
    PushOptions { reach, contact: "mailto:ops@example.com".into() }
}

fn session() -> SessionId {
    SessionId::parse("s1").unwrap()
}

fn person(guest: &Guest) -> PersonId {
    match &guest.who {
        Who::Person { id, .. } => id.clone(),
        Who::Bearer { .. } => panic!("nobody"),
    }
}

async fn subscribed(people: &Arc<People>, browser: &Browser, service: &PushService) -> Guest {
    let guest = browser.arrive(people).await.unwrap();
    people.subscribe(&guest, Some(service.subscribe())).await.unwrap();
    guest
}

#[tokio::test]
pub async fn what_two_nodes_see_is_told_once_and_taken_back_by_who_told_it() {
    let house = House::open().await;
    let admin = house.admin().await;
    let (one, two) = (house.node_with("one", options()).await, house.node_with("two", options()).await);
    assert_eq!(one.push_key(), two.push_key(), "one key for all nodes");
    let mut service = PushService::start().await;
    let other = house.person(&admin, "ops").await;
    subscribed(&one, &other, &service).await;
    let guest = subscribed(&one, &admin, &service).await;
    assert!(one.devices(&guest).await.unwrap()[0].push);
    let test = async {
        let asked = News::Asked { ask: 7 };
        one.told(&person(&guest), &session(), asked).await.unwrap();
        two.told(&person(&guest), &session(), asked).await.unwrap();
        let received = service.next().await;
        assert_eq!(received.wrong, None);
        assert_eq!(received.payload, json!({ "v": 1, "kind": "ask", "session": "s1", "ask": 7 }));
        two.told(&person(&guest), &session(), News::Settled { ask: 7 }).await.unwrap();
        let received = service.next().await;
        assert_eq!(received.payload, json!({ "v": 1, "kind": "clear", "session": "s1", "ask": 7 }));

        two.told(&person(&guest), &session(), News::Ended { at: 9 }).await.unwrap();
        one.told(&person(&guest), &session(), News::Failed { at: 9 }).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "ended");
        assert_eq!(service.arrived(), None, "told once, and only to the person it concerns");
    };
    keeping_up(&one, async { keeping_up(&two, test).await }).await;
}

#[tokio::test]
pub async fn who_looks_on_whichever_node_or_wants_quiet_is_not_told() {
    let house = House::open().await;
    let admin = house.admin().await;
    let (one, two) = (house.node_with("one", options()).await, house.node_with("two", options()).await);
    let mut service = PushService::start().await;
    let guest = subscribed(&one, &admin, &service).await;
    let there = admin.arrive(&two).await.unwrap();
    let test = async {
        let seat = two.seat(&there);
        two.looks(&seat, &there, true).await;
        one.told(&person(&guest), &session(), News::Ended { at: 1 }).await.unwrap();
        two.told(&person(&guest), &session(), News::Ended { at: 2 }).await.unwrap();
        one.try_push(&guest).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "test", "nothing came before it");

        two.looks(&seat, &there, false).await;
        one.mute(&guest, Some(Timestamp(1_700_000_600_000))).await.unwrap();
        one.told(&person(&guest), &session(), News::Ended { at: 3 }).await.unwrap();
        one.try_push(&guest).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "test", "muted");

        house.clock.advance_ms(600_000);
        one.told(&person(&guest), &session(), News::Ended { at: 4 }).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "ended");
    };
    keeping_up(&one, async { keeping_up(&two, test).await }).await;
}

#[tokio::test]
pub async fn a_browser_that_is_signed_out_or_unsubscribed_is_told_nothing() {
    let house = House::open().await;
    let admin = house.admin().await;
    let one = house.node_with("one", options()).await;
    let mut service = PushService::start().await;
    let phone = house.person(&admin, "ops").await;
    let guest = subscribed(&one, &phone, &service).await;
    let mut second = Browser::default();
    second.follow(&house, &house.people.link_for("ops").await.unwrap()).await;
    let second = subscribed(&one, &second, &service).await;
    let test = async {
        one.revoke(&guest, &guest.device).await.unwrap();
        one.told(&person(&guest), &session(), News::Asked { ask: 1 }).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "ask");
        one.subscribe(&second, None).await.unwrap();
        one.told(&person(&guest), &session(), News::Asked { ask: 2 }).await.unwrap();
        assert!(one.try_push(&second).await.is_err());
        assert_eq!(service.arrived(), None);
        assert!(one.subscribe(&guest, Some(service.subscribe())).await.is_err(), "signed out");
    };
    keeping_up(&one, test).await;
}

#[tokio::test]
pub async fn only_people_subscribe_and_only_to_public_push_services() {
    let house = House::open().await;
    let admin = house.admin().await;
    let one = house.node_with("one", options()).await;
    let service = PushService::start().await;
    house.session(&admin, "s1").await;
    let share = HubRequest::Share { session: "s1".into(), role: Role::Driver, until: 1_700_000_600_000 };
    let HubAnswered::Shared { url, .. } = admin.ask(&house, share).await.unwrap() else { panic!("no link") };
    let mut visitor = Browser::default();
    visitor.follow(&house, &url).await;
    let by_link = visitor.arrive(&one).await.unwrap();
    assert!(one.subscribe(&by_link, Some(service.subscribe())).await.is_err());
    assert!(one.mute(&by_link, None).await.is_err());

    let guest = admin.arrive(&one).await.unwrap();
    let mut inside = service.subscribe();
    inside.endpoint = "https://10.0.0.1/push".into();
    assert!(one.subscribe(&guest, Some(inside)).await.is_err());
    assert!(house.people.push_key().is_none());
    assert!(house.people.subscribe(&admin.guest(&house).await, Some(service.subscribe())).await.is_err());
}
