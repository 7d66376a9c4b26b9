//! Pushes to browsers that are not in view: by one node, and without content.

use std::sync::Arc;

use access::devices::push::PushAddressPolicy;
use engine::{SessionId, Timestamp};
use hub::authenticator::{HubVisitor, PersonId, VisitorKind};
use hub::people::{People, PushOptions, SessionNews};
use serde_json::json;
use testkit::push_service::PushService;
use wire::native::Role;
use wire::native::hub_requests::{HubReplyBody, HubRequest};

use crate::people::test_hub::{Browser, TestHub, with_upkeep};

fn options() -> PushOptions {
    let reach = PushAddressPolicy { allows: |_| false, loopback: true };
    PushOptions { reach, contact: "mailto:ops@example.com".into() }
}

fn session() -> SessionId {
    SessionId::parse("s1").unwrap()
}

fn person(visitor: &HubVisitor) -> PersonId {
    match &visitor.kind {
        VisitorKind::Person { id, .. } => id.clone(),
        VisitorKind::ShareLink { .. } => panic!("nobody"),
    }
}

async fn subscribed(people: &Arc<People>, browser: &Browser, service: &PushService) -> HubVisitor {
    let visitor = browser.arrive(people).await.unwrap();
    people.subscribe(&visitor, Some(service.subscribe())).await.unwrap();
    visitor
}

#[tokio::test]
pub async fn what_two_nodes_see_is_told_once_and_taken_back_by_who_told_it() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let (one, two) = (test_hub.node_with("one", options()).await, test_hub.node_with("two", options()).await);
    assert_eq!(one.push_key(), two.push_key(), "one key for all nodes");
    let mut service = PushService::start().await;
    let other = test_hub.person(&admin, "ops").await;
    subscribed(&one, &other, &service).await;
    let visitor = subscribed(&one, &admin, &service).await;
    assert!(one.devices(&visitor).await.unwrap()[0].push);
    let test = async {
        let asked = SessionNews::Asked { ask: 7 };
        one.notify(&person(&visitor), &session(), asked).await.unwrap();
        two.notify(&person(&visitor), &session(), asked).await.unwrap();
        let received = service.next().await;
        assert_eq!(received.wrong, None);
        assert_eq!(received.payload, json!({ "v": 1, "kind": "ask", "session": "s1", "ask": 7 }));
        two.notify(&person(&visitor), &session(), SessionNews::Settled { ask: 7 }).await.unwrap();
        let received = service.next().await;
        assert_eq!(received.payload, json!({ "v": 1, "kind": "clear", "session": "s1", "ask": 7 }));

        two.notify(&person(&visitor), &session(), SessionNews::Ended { at: 9 }).await.unwrap();
        one.notify(&person(&visitor), &session(), SessionNews::Failed { at: 9 }).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "ended");
        assert_eq!(service.arrived(), None, "told once, and only to the person it concerns");
    };
    with_upkeep(&one, async { with_upkeep(&two, test).await }).await;
}

#[tokio::test]
pub async fn who_looks_on_whichever_node_or_wants_quiet_is_not_told() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let (one, two) = (test_hub.node_with("one", options()).await, test_hub.node_with("two", options()).await);
    let mut service = PushService::start().await;
    let visitor = subscribed(&one, &admin, &service).await;
    let there = admin.arrive(&two).await.unwrap();
    let test = async {
        let seat = two.seat(&there);
        two.looks(&seat, &there, true).await;
        one.notify(&person(&visitor), &session(), SessionNews::Ended { at: 1 }).await.unwrap();
        two.notify(&person(&visitor), &session(), SessionNews::Ended { at: 2 }).await.unwrap();
        one.try_push(&visitor).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "test", "nothing came before it");

        two.looks(&seat, &there, false).await;
        one.mute(&visitor, Some(Timestamp(1_700_000_600_000))).await.unwrap();
        one.notify(&person(&visitor), &session(), SessionNews::Ended { at: 3 }).await.unwrap();
        one.try_push(&visitor).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "test", "muted");

        test_hub.clock.advance_ms(600_000);
        one.notify(&person(&visitor), &session(), SessionNews::Ended { at: 4 }).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "ended");
    };
    with_upkeep(&one, async { with_upkeep(&two, test).await }).await;
}

#[tokio::test]
pub async fn a_browser_that_is_signed_out_or_unsubscribed_is_told_nothing() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let one = test_hub.node_with("one", options()).await;
    let mut service = PushService::start().await;
    let phone = test_hub.person(&admin, "ops").await;
    let visitor = subscribed(&one, &phone, &service).await;
    let mut second = Browser::default();
    second.follow(&test_hub, &test_hub.people.link_for("ops").await.unwrap()).await;
    let second = subscribed(&one, &second, &service).await;
    let test = async {
        one.revoke(&visitor, &visitor.device).await.unwrap();
        one.notify(&person(&visitor), &session(), SessionNews::Asked { ask: 1 }).await.unwrap();
        assert_eq!(service.next().await.payload["kind"], "ask");
        one.subscribe(&second, None).await.unwrap();
        one.notify(&person(&visitor), &session(), SessionNews::Asked { ask: 2 }).await.unwrap();
        assert!(one.try_push(&second).await.is_err());
        assert_eq!(service.arrived(), None);
        assert!(one.subscribe(&visitor, Some(service.subscribe())).await.is_err(), "signed out");
    };
    with_upkeep(&one, test).await;
}

#[tokio::test]
pub async fn only_people_subscribe_and_only_to_public_push_services() {
    let test_hub = TestHub::open().await;
    let admin = test_hub.admin().await;
    let one = test_hub.node_with("one", options()).await;
    let service = PushService::start().await;
    test_hub.session(&admin, "s1").await;
    let share = HubRequest::Share { session: "s1".into(), role: Role::Driver, until: 1_700_000_600_000 };
    let HubReplyBody::Shared { url, .. } = admin.ask(&test_hub, share).await.unwrap() else {
        panic!("no link")
    };
    let mut link_user = Browser::default();
    link_user.follow(&test_hub, &url).await;
    let by_link = link_user.arrive(&one).await.unwrap();
    assert!(one.subscribe(&by_link, Some(service.subscribe())).await.is_err());
    assert!(one.mute(&by_link, None).await.is_err());

    let visitor = admin.arrive(&one).await.unwrap();
    let mut inside = service.subscribe();
    inside.endpoint = "https://10.0.0.1/push".into();
    assert!(one.subscribe(&visitor, Some(inside)).await.is_err());
    assert!(test_hub.people.push_key().is_none());
    assert!(
        test_hub.people.subscribe(&admin.visitor(&test_hub).await, Some(service.subscribe())).await.is_err()
    );
}
