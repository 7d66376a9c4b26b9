//! Who may ask for what.

use std::collections::BTreeMap;

use access::devices::Visitor;
use app::open;
use engine::{Principal, Standing};
use testkit::Script;
use testkit::server::{DEADLINE, Setup, run};
use wire::native::{Decision, Request, Role};

use testkit::app_client::{AppHarness, owner_at_machine};

/// Every request, with the least role that may ask for it.
fn requests() -> Vec<(Role, Request)> {
    let session = || "no-such-session".to_owned();
    let text = || "x".to_owned();
    let (viewer, approver, driver, owner) = (Role::Viewer, Role::Approver, Role::Driver, Role::Owner);
    vec![
        (viewer, Request::Sessions { before: None, search: None }),
        (viewer, Request::Watch { session: session(), after: None }),
        (viewer, Request::Unwatch { session: session() }),
        (viewer, Request::EarlierRows { session: session(), before: 1 }),
        (viewer, Request::FullRow { session: session(), row: 1 }),
        (viewer, Request::Offer { folder: None }),
        (viewer, Request::Changes { session: session() }),
        (viewer, Request::FindFiles { session: session(), text: text() }),
        (viewer, Request::Rules),
        (viewer, Request::Presence { at: None, visible: true }),
        (approver, Request::Answer { session: session(), ask: 1, decision: Decision::AllowOnce, text: None }),
        (driver, Request::Open { folder: Some("/no/such/folder".into()), settings: BTreeMap::new() }),
        (driver, Request::Prompt { session: session(), key: text(), text: text(), pictures: Vec::new() }),
        (driver, Request::Cancel { session: session(), turn: None }),
        (driver, Request::Set { session: session(), setting: text(), value: text() }),
        (driver, Request::Rename { session: session(), title: text() }),
        (driver, Request::Delete { session: session() }),
        (driver, Request::Keep { session: session(), path: text(), hunk: None }),
        (driver, Request::Revert { session: session(), path: text(), hunk: None }),
        (owner, Request::Forget { rule: text() }),
        (owner, Request::Devices),
        (owner, Request::Invite { role: Role::Viewer }),
        (owner, Request::Admit { knock: text(), role: None }),
        (owner, Request::Revoke { device: text() }),
    ]
}

#[tokio::test]
async fn each_role_may_do_its_own_and_nothing_beyond() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        for role in [Role::Viewer, Role::Approver, Role::Driver, Role::Owner] {
            let mut client = house.client_as("somebody", role).await;
            assert_eq!(client.hello.role, role);
            for (needed, request) in requests() {
                let answer = client.ask(request.clone()).await;
                let told = answer.as_ref().err().filter(|wrong| wrong.message.starts_with("this needs"));
                assert_eq!(told.is_some(), role < needed, "{role:?}: {request:?} was {answer:?}");
                if let Some(wrong) = told {
                    assert_eq!(wrong.code, "forbidden");
                }
            }
        }
        house.close().await;
    })
    .await;
}

/// What outlives a session is decided at the machine: an owner's phone has the role and is elsewhere.
#[tokio::test]
async fn an_owners_phone_changes_nothing_that_outlives_a_session() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let visitor = Visitor { standing: Standing::Other, ..owner_at_machine("phone") };
        let mut phone = house.client_of(visitor).await;
        let mut owner = house.client("terminal").await;
        let admit = Request::Admit { knock: "nobody".into(), role: Some(Role::Viewer) };
        for request in
            [Request::Forget { rule: "shell(rm:*)".into() }, Request::Invite { role: Role::Viewer }, admit]
        {
            let wrong = phone.refused(request.clone()).await;
            assert_eq!(wrong.code, "forbidden", "{request:?}");
            assert!(
                wrong.message.contains("only the owner at the machine"),
                "{request:?}: {}",
                wrong.message
            );
            let answer = owner.ask(request.clone()).await;
            let told = answer.err().filter(|wrong| wrong.message.contains("only the owner at the machine"));
            assert_eq!(told, None, "{request:?}");
        }
        phone.ask(Request::Devices).await.unwrap();
        // Whoever is not let in harms nobody, so that is said from anywhere.
        let refuse = phone.refused(Request::Admit { knock: "nobody".into(), role: None }).await;
        assert_eq!(refuse.code, "notFound");
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_clients_token_has_no_say_in_the_owners_rules() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let principal = Principal("ci".into());
        let visitor = Visitor { principal, ..owner_at_machine("ci") };
        let mut client = house.client_of(visitor).await;
        for request in [Request::Rules, Request::Forget { rule: "shell(rm:*)\n".into() }] {
            assert_eq!(client.refused(request).await.code, "forbidden");
        }
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn whoever_leaves_a_session_at_once_is_answered_all_the_same() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let mut client = house.client("somebody").await;
        let session = client.open().await;
        for _ in 0..20 {
            let watch = client.send(Request::Watch { session: session.clone(), after: None }).await;
            let leave = client.send(Request::Unwatch { session: session.clone() }).await;
            client.answer(leave).await.unwrap();
            client.answer(watch).await.unwrap();
        }
        client.watch(&session, None).await;
        client
            .until("nobody else looks", |client| {
                let state = client.sessions.get(&session).and_then(|shown| shown.state.as_ref());
                state.is_some_and(|state| state.others.is_empty())
            })
            .await;
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_device_that_is_not_known_any_more_has_no_line() {
    run(Setup::script(&Script::new([])), async |server| {
        let house = AppHarness::new(server);
        let device = Some("shut-out".into());
        let mut line = open(&house.app, Visitor { device, ..owner_at_machine("phone") });
        let rest = async { while line.frames.recv().await.is_some() {} };
        tokio::time::timeout(DEADLINE, rest).await.expect("the line ends");
        house.close().await;
    })
    .await;
}
