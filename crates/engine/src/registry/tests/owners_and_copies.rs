//! Owners, copies, rules, and two processes on one store.

use std::path::PathBuf;
use std::sync::Arc;

use expect_test::expect;

use super::{TestRegistry, end_of, in_time, me, new_session, run, start};
use crate::event::{Body, Event, Origin, Stop, Usage};
use crate::event_log::LogRead;
use crate::ids::{AskId, Principal, Seq, Timestamp, TurnId};
use crate::registry::{NewSessionRequest, OpenError, Registry, RegistryParts, SessionLimits};
use crate::session::{Input, PermissionAnswer};
use crate::store::{ListQuery, PageRequest};
use crate::testing::{FailingStore, ScriptedBackend, TestClock, brief, sender, until};

#[tokio::test(start_paused = true)]
async fn nobody_sees_or_touches_what_belongs_to_somebody_else() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    run(&session, "say secret").await;
    let other = Principal("other".into());
    for open in [true, false] {
        let id = session.id();
        let none =
            |error: Option<OpenError>| assert!(matches!(error, Some(OpenError::NotFound(_))), "{error:?}");
        none(fixture.registry.open(&other, id).await.err());
        none(fixture.registry.close(&other, id).await.err());
        none(fixture.registry.row(&other, id).await.err());
        none(fixture.registry.read(&other, id, Seq::START, PageRequest::USUAL).await.err());
        none(fixture.registry.rename(sender(), &other, id, "mine").await.err());
        none(
            fixture
                .registry
                .fork(id, NewSessionRequest { owner: other.clone(), ..new_session() })
                .await
                .err(),
        );
        assert!(!fixture.registry.delete(&other, id).await.unwrap());
        assert!(fixture.registry.list(ListQuery::all(other.clone())).await.unwrap().is_empty());
        assert_eq!(fixture.is_live(&session).await, open);
        fixture.registry.close(&me(), id).await.unwrap();
    }
    assert_eq!(run(&fixture.open(&session).await, "say still mine").await, Stop::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_running_session_is_idle_and_works_in_its_own_folder() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let source = fixture.create().await;
    source.send(Input::Move { by: sender(), cwd: "/moved".into() }).await.unwrap();
    source.send(Input::Rename { by: sender(), title: "work".into() }).await.unwrap();
    let turn = start(&source, "say one;tool t;ask git push;say two").await;
    until(&source, |event| matches!(event.body, Body::Asked { .. })).await;
    let copy = fixture
        .registry
        .fork(source.id(), NewSessionRequest { cwd: "/copy".into(), ..new_session() })
        .await
        .unwrap();
    assert_eq!(run(&copy, "say here").await, Stop::EndTurn);
    assert_eq!(copy.snapshot().cwd.to_str(), Some("/copy"));
    assert_eq!(copy.snapshot().title.as_deref(), Some("work"));
    expect![[r#"
        - moved /moved
        - title work
        1 started
        1 user
        1 text one
        1 tool t
        1 ask 1
        1 ask 1 EndedByRestart
        1 tool t failed
        1 ended Interrupted
        - moved /copy
        2 started
        2 user
        2 text here
        2 ended EndTurn
    "#]]
    .assert_eq(&fixture.stored_brief(&copy).await);
    source
        .send(Input::Answer { by: sender(), ask: AskId(1), answer: PermissionAnswer::AllowOnce })
        .await
        .unwrap();
    assert_eq!(end_of(&source, turn).await, Stop::EndTurn);
    assert_eq!(source.snapshot().cwd.to_str(), Some("/moved"));
}

#[tokio::test(start_paused = true)]
async fn a_name_given_while_the_session_was_not_open_is_kept() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    session.send(Input::Rename { by: sender(), title: "old".into() }).await.unwrap();
    assert!(fixture.registry.close(&me(), session.id()).await.unwrap());
    assert!(!fixture.registry.close(&me(), session.id()).await.unwrap());
    fixture.registry.rename(sender(), &me(), session.id(), "new").await.unwrap();
    let again = fixture.open(&session).await;
    assert_eq!(again.snapshot().title.as_deref(), Some("new"));
    fixture.registry.rename(sender(), &me(), session.id(), "newer").await.unwrap();
    until(&again, |event| matches!(&event.body, Body::Title { title } if &**title == "newer")).await;
    assert_eq!(fixture.registry.row(&me(), session.id()).await.unwrap().title.as_deref(), Some("newer"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_always_counts_in_every_session_of_the_folder() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let first = fixture.create().await;
    let turn = start(&first, "ask git push").await;
    until(&first, |event| matches!(event.body, Body::Asked { .. })).await;
    first
        .send(Input::Answer { by: sender(), ask: AskId(1), answer: PermissionAnswer::AllowAlways })
        .await
        .unwrap();
    end_of(&first, turn).await;
    let second = fixture.create().await;
    assert_eq!(run(&second, "ask git push").await, Stop::EndTurn);
    expect![[r#"
        1 started
        1 user
        1 ask 1 AllowedAlways
        1 text allowed
        1 ended EndTurn
    "#]]
    .assert_eq(&fixture.stored_brief(&second).await);
    let elsewhere =
        fixture.registry.create(NewSessionRequest { cwd: "/other".into(), ..new_session() }).await.unwrap();
    start(&elsewhere, "ask git push").await;
    until(&elsewhere, |event| matches!(event.body, Body::Asked { .. })).await;
}

#[tokio::test(start_paused = true)]
async fn what_another_process_did_is_there_when_the_session_is_opened_again() {
    let here = TestRegistry::new(SessionLimits::default());
    let there = TestRegistry::on(Arc::clone(&here.store), SessionLimits::default());
    let mine = here.create().await;
    run(&mine, "say one").await;
    assert!(here.open(&mine).await.is_same(&mine), "nobody else had it");
    run(&there.open(&mine).await, "say two").await;
    let again = here.open(&mine).await;
    assert!(!again.is_same(&mine));
    run(&again, "say three").await;
    let told = again.read(Seq::START).take(PageRequest::USUAL).await.unwrap();
    let LogRead::Events(events) = told else { panic!("{told:?}") };
    let texts = ["text one", "text two", "text three"];
    assert!(texts.iter().all(|text| brief(&events).contains(text)), "{}", brief(&events));
    // One that was deleted elsewhere is gone here too.
    there.registry.delete(&me(), mine.id()).await.unwrap();
    assert!(matches!(here.registry.open(&me(), mine.id()).await, Err(OpenError::NotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn whoever_claims_a_session_last_has_it() {
    let here = TestRegistry::new(SessionLimits::default());
    let there = TestRegistry::on(Arc::clone(&here.store), SessionLimits::default());
    let mine = here.create().await;
    let turn = start(&mine, "say one;tool t;ask git push").await;
    until(&mine, |event| matches!(event.body, Body::Asked { .. })).await;
    let theirs = there.open(&mine).await;
    assert_eq!(run(&theirs, "say two").await, Stop::EndTurn);
    // The first one learns of it with its next write, and shows nothing of that.
    mine.send(Input::Answer { by: sender(), ask: AskId(1), answer: PermissionAnswer::AllowOnce })
        .await
        .unwrap();
    let mut reader = mine.read(Seq::START);
    let mut seen = Vec::new();
    while let Some(events) = in_time(reader.next()).await.unwrap() {
        seen.extend(events);
    }
    let LogRead::Ended { trouble } = reader.take(PageRequest::USUAL).await.unwrap() else {
        panic!("it was over")
    };
    expect!["another process took over the session"].assert_eq(&trouble.unwrap());
    assert!(!seen.iter().any(|event| event.turn == Some(turn) && super::is_end(event)));
    expect![[r#"
        1 started
        1 user
        1 text one
        1 tool t
        1 ask 1
        1 ask 1 EndedByRestart
        1 tool t failed
        1 ended Interrupted
        2 started
        2 user
        2 text two
        2 ended EndTurn
    "#]]
    .assert_eq(&here.stored_brief(&mine).await);
    let again = here.open(&mine).await;
    assert_eq!(run(&again, "say back").await, Stop::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn an_imported_history_may_hold_anything() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let event = |at, turn: Option<u64>, body| Event {
        seq: Seq(77),
        at: Timestamp(at),
        origin: Origin::Agent,
        turn: turn.map(TurnId),
        body,
        relayed: None,
    };
    let usage = || Body::Usage(Usage { input: u64::MAX, cost_usd: f64::MAX, ..Usage::default() });
    let events = vec![
        event(i64::MIN, Some(9), Body::TurnStarted),
        event(i64::MAX, Some(9), usage()),
        event(0, Some(9), usage()),
        event(0, None, Body::Moved { cwd: "/their/machine".into(), from: None }),
    ];
    let session = fixture.registry.import(new_session(), Some("imported".into()), events).await.unwrap();
    assert_eq!(run(&session, "say hello").await, Stop::EndTurn);
    assert_eq!(session.snapshot().cwd.to_str(), Some("/project"));
    assert_eq!(session.snapshot().totals.input, u64::MAX);
    expect![[r#"
        9 started
        9 Usage(Usage { context_used: 0, context_size: 0, input: 18446744073709551615, output: 0, cache_read: 0, cache_write: 0, reasoning: 0, cost_usd: 1.7976931348623157e308, unpriced: false })
        9 Usage(Usage { context_used: 0, context_size: 0, input: 18446744073709551615, output: 0, cache_read: 0, cache_write: 0, reasoning: 0, cost_usd: 1.7976931348623157e308, unpriced: false })
        - moved /their/machine
        9 ended Interrupted
        - moved /project
        10 started
        10 user
        10 text hello
        10 ended EndTurn
    "#]]
    .assert_eq(&brief(&fixture.stored(&session).await));
    let row = fixture.registry.row(&me(), session.id()).await.unwrap();
    assert!(row.updated_at <= fixture.registry.clock().now());
    super::pass(100_000).await;
    fixture.registry.reap().await;
    assert!(!fixture.is_live(&session).await);
}

#[tokio::test]
async fn sessions_of_others_stay_in_the_folders_that_are_open_to_them_also_when_they_come_back() {
    let backend = ScriptedBackend::new();
    let parts = RegistryParts::new(Arc::new(FailingStore::default()), backend.clone(), TestClock::new());
    let registry = Registry::new(parts);
    registry.confine(Arc::from([PathBuf::from("/open")]));
    let client = Principal("ci".into());
    let theirs = registry.create(NewSessionRequest { owner: client.clone(), ..new_session() }).await.unwrap();
    let narrower = Some(Arc::from([PathBuf::from("/open/narrower")]));
    let chosen = registry
        .create(NewSessionRequest { owner: client.clone(), within: narrower, ..new_session() })
        .await
        .unwrap();
    let ours = registry.create(new_session()).await.unwrap();
    for (owner, session) in [(&client, &theirs), (&client, &chosen), (&me(), &ours)] {
        registry.close(owner, session.id()).await.unwrap();
        registry.open(owner, session.id()).await.unwrap();
    }
    let confined = backend.confined.lock().unwrap();
    let shown = confined.iter().map(|within| within.as_ref().map(|within| within[0].display().to_string()));
    let shown: Vec<_> = shown.map(|within| within.unwrap_or("anywhere".into())).collect();
    // New, then brought back, in the same order.
    assert_eq!(shown, ["/open", "/open/narrower", "anywhere", "/open", "/open", "anywhere"]);
}
