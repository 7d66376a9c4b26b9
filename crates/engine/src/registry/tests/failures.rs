//! Failing stores and failing agents: what is shown, what is stored, and how sessions continue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use expect_test::expect;

use super::{TestRegistry, end_of, in_time, me, new_session, run, start};
use crate::event::{Body, Event, Stop};
use crate::event_log::LogRead;
use crate::ids::Seq;
use crate::registry::SessionLimits;
use crate::session::{Input, PermissionAnswer};
use crate::session_handle::SessionHandle;
use crate::store::PageRequest;
use crate::testing::{brief, prompt, sender, until};

/// Reads a log to its end, and why it ended.
async fn to_the_end(handle: &SessionHandle) -> (Vec<Arc<Event>>, Option<Arc<str>>) {
    let mut reader = handle.read(Seq::START);
    let mut seen = Vec::new();
    while let Some(events) = in_time(reader.next()).await.unwrap() {
        seen.extend(events);
    }
    let LogRead::Ended { trouble } = reader.take(PageRequest::USUAL).await.unwrap() else {
        panic!("it was over")
    };
    (seen, trouble)
}

/// One turn with everything in it, as far as it gets.
async fn a_whole_turn(session: &SessionHandle) {
    drop(session.send(prompt("say one;yield;tool t;ask git push;say two;done t")).await);
    let mut reader = session.read(Seq::START);
    while let Some(events) = in_time(reader.next()).await.unwrap() {
        for event in events {
            if let Body::Asked { ask, .. } = event.body {
                let input = Input::Answer { by: sender(), ask, answer: PermissionAnswer::AllowOnce };
                drop(session.send(input).await);
            }
            if super::is_end(&event) {
                in_time(session.close()).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whichever_write_fails_nothing_is_shown_that_is_not_stored() {
    let mut failures = 0;
    for number in 1.. {
        let fixture = TestRegistry::new(SessionLimits::default());
        fixture.store.fail_append.store(number, Ordering::SeqCst);
        let session = fixture.create().await;
        a_whole_turn(&session).await;
        let (seen, trouble) = to_the_end(&session).await;
        assert_eq!(seen, fixture.stored(&session).await);
        if fixture.store.appends.load(Ordering::SeqCst) < number {
            assert_eq!(trouble, None);
            break;
        }
        failures += 1;
        expect!["the session log could not be written: the disk is full"].assert_eq(&trouble.unwrap());
        assert!(session.send(prompt("say more")).await.is_err());
        let again = fixture.open(&session).await;
        assert_eq!(run(&again, "say back").await, Stop::EndTurn);
        // Every turn has one end, and the first turn's prompt is there or was never accepted.
        let stored = fixture.stored(&again).await;
        let count = |wanted: fn(&Body) -> bool| stored.iter().filter(|event| wanted(&event.body)).count();
        let started = count(|body| matches!(body, Body::TurnStarted));
        assert_eq!(started, count(|body| matches!(body, Body::TurnEnded { .. })), "{}", brief(&stored));
        let asked = count(|body| matches!(body, Body::Asked { .. }));
        assert_eq!(asked, count(|body| matches!(body, Body::Resolved { .. })), "{}", brief(&stored));
        let tools = count(|body| matches!(body, Body::ToolStarted(_)));
        assert_eq!(tools, count(|body| matches!(body, Body::ToolEnded(_))), "{}", brief(&stored));
        assert!(stored.iter().map(|event| event.seq.0).eq(1..=stored.len() as u64));
    }
    assert!(failures >= 4, "only {failures} writes were tried");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_only_what_is_stored() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    fixture.store.stuck.store(true, Ordering::SeqCst);
    session.send(Input::Rename { by: sender(), title: "first".into() }).await.unwrap();
    session.send(Input::Rename { by: sender(), title: "second".into() }).await.unwrap();
    assert_eq!(session.snapshot().title, None);
    fixture.store.stuck.store(false, Ordering::SeqCst);
    until(&session, |event| matches!(&event.body, Body::Title { title } if &**title == "first")).await;
    // Stuck again before the second one could be written, or not: both are told apart by the log.
    let stored = fixture.stored(&session).await.len();
    let title = session.snapshot().title.clone();
    assert_eq!(title.as_deref(), Some(if stored == 1 { "first" } else { "second" }));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_fails_its_turn_alone() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    for script in ["panic", "panic at once"] {
        assert_eq!(run(&session, script).await, Stop::Failed);
        assert_eq!(run(&session, "say still here").await, Stop::EndTurn);
    }
    expect![[r#"
        1 started
        1 user
        1 Error: the agent failed unexpectedly; send another prompt to continue
        1 ended Failed
        2 started
        2 user
        2 text still here
        2 ended EndTurn
        3 started
        3 user
        3 Error: the agent failed unexpectedly; send another prompt to continue
        3 ended Failed
        4 started
        4 user
        4 text still here
        4 ended EndTurn
    "#]]
    .assert_eq(&fixture.stored_brief(&session).await);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_listen_is_stopped_by_force() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    let turn = start(&session, "tool t;deaf").await;
    let before = tokio::time::Instant::now();
    session.send(Input::Cancel { by: sender(), only: None }).await.unwrap();
    assert_eq!(end_of(&session, turn).await, Stop::Cancelled);
    let took = before.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    assert_eq!(run(&session, "say still here").await, Stop::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn closing_again_and_again_does_not_give_it_more_time() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    start(&session, "deaf").await;
    let before = tokio::time::Instant::now();
    for _ in 0..20 {
        drop(session.send(Input::Close { by: None, reason: None }).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(session.is_closed());
    let (seen, trouble) = to_the_end(&session).await;
    assert_eq!(trouble, None);
    let ended_ms = seen.last().unwrap().at.0 - seen[0].at.0;
    assert!(ended_ms < 6000 && before.elapsed() >= Duration::from_secs(20), "{ended_ms} ms");
}

#[tokio::test(start_paused = true)]
async fn a_turn_cancelled_before_it_began_never_begins() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    fixture.store.stuck.store(true, Ordering::SeqCst);
    let first = session.send(prompt("panic at once")).await.unwrap().turn.unwrap();
    let second = session.send(prompt("say two")).await.unwrap().turn.unwrap();
    session.send(Input::Cancel { by: sender(), only: Some(first) }).await.unwrap();
    fixture.store.stuck.store(false, Ordering::SeqCst);
    assert_eq!(end_of(&session, first).await, Stop::Cancelled);
    assert_eq!(end_of(&session, second).await, Stop::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn an_ask_waits_for_its_time_and_no_longer() {
    let fixture = TestRegistry::new(SessionLimits {
        ask_timeout: Some(Duration::from_secs(60)),
        ..SessionLimits::default()
    });
    let session = fixture.create().await;
    let before = tokio::time::Instant::now();
    assert_eq!(run(&session, "ask git push").await, Stop::EndTurn);
    assert_eq!(before.elapsed().as_secs(), 60);
    expect![[r#"
        1 started
        1 user
        1 ask 1
        1 ask 1 TimedOut
        1 text nobody answered in time
        1 ended EndTurn
    "#]]
    .assert_eq(&fixture.stored_brief(&session).await);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_saved_no_session_is_made_until_it_can() {
    let fixture = TestRegistry::new(SessionLimits { sessions_max: 1, ..SessionLimits::default() });
    fixture.store.unavailable.store(true, Ordering::SeqCst);
    let refused = fixture.registry.create(new_session()).await.err().unwrap();
    assert_eq!(refused.to_string(), "the session store cannot be used: the disk is on fire");
    assert_eq!(fixture.registry.live_count(), 0);
    fixture.store.unavailable.store(false, Ordering::SeqCst);
    let saved = fixture.registry.create(new_session()).await.unwrap();
    run(&saved, "say saved").await;
    assert_eq!(fixture.stored(&saved).await.len(), 4);
}

/// What a model said is not dropped because another process holds the lock for a while.
#[tokio::test(start_paused = true)]
async fn a_turn_waits_for_a_locked_store_and_goes_on_when_it_is_free() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    start(&session, "say one; sleep 1; say two; sleep 1; say three").await;
    until(&session, |event| matches!(&event.body, Body::Text { text, .. } if **text == *"one")).await;
    fixture.store.locked.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!session.is_closed());
    fixture.store.locked.store(false, Ordering::SeqCst);
    let seen = until(&session, |event| matches!(event.body, Body::Notice { .. })).await;
    let shown = brief(&seen);
    assert!(shown.contains("text one\n1 text two\n"), "{shown}");
    assert!(shown.contains("text three") && shown.contains("ended EndTurn"), "{shown}");
    assert!(shown.contains("Warning: the turn waited") && shown.contains("process 123"), "{shown}");
    assert_eq!(run(&session, "say four").await, Stop::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_cannot_be_written_is_refused_and_its_session_is_there_again_later() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    assert_eq!(run(&session, "say one").await, Stop::EndTurn);
    fixture.store.locked.store(true, Ordering::SeqCst);
    session.send(prompt("say lost")).await.unwrap();
    let (_, trouble) = to_the_end(&session).await;
    assert_eq!(trouble.as_deref(), Some("the session store is busy: locked by process 123"));
    let refused = fixture.registry.open(&me(), session.id()).await.err().unwrap();
    assert!(refused.to_string().contains("process 123"), "{refused}");
    fixture.store.locked.store(false, Ordering::SeqCst);
    let again = fixture.open(&session).await;
    assert_eq!(run(&again, "say two").await, Stop::EndTurn);
    let shown = fixture.stored_brief(&again).await;
    assert!(shown.contains("text one") && shown.contains("text two") && !shown.contains("lost"), "{shown}");
}
