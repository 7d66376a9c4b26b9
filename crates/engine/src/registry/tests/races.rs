//! Many concurrent operations on one id, or on a registry that is too small, on several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::{TestRegistry, me, new_session, run, start};
use crate::event::{Body, Stop};
use crate::event_log::LogRead;
use crate::ids::Seq;
use crate::registry::{OpenError, SessionLimits};
use crate::session::Refusal;
use crate::session_handle::{SendError, SessionHandle};
use crate::store::{PageRequest, Store, StoreError};
use crate::testing::prompt;

/// A log that was fenced or died says so at its end; every other one ends in good order.
async fn ended_well(handle: &SessionHandle) {
    let mut reader = handle.read(Seq::START);
    while reader.next().await.unwrap().is_some() {}
    let LogRead::Ended { trouble } = reader.take(PageRequest::USUAL).await.unwrap() else {
        panic!("it was over")
    };
    assert_eq!(trouble, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opening_and_closing_one_id_from_everywhere_never_makes_two_of_it() {
    let fixture = Arc::new(TestRegistry::new(SessionLimits::default()));
    let session = fixture.create().await;
    run(&session, "say first").await;
    let tasks = TaskTracker::new();
    let ended = Arc::new(AtomicUsize::new(0));
    for number in 0..24 {
        let (fixture, session, ended) = (Arc::clone(&fixture), session.clone(), Arc::clone(&ended));
        tasks.spawn(async move {
            for round in 0..20 {
                let handle = fixture.open(&session).await;
                if (number + round) % 3 == 0 {
                    fixture.registry.close(&me(), session.id()).await.unwrap();
                } else if handle.send(prompt("say more;yield;say still")).await.is_ok() {
                    ended.fetch_add(1, Ordering::SeqCst);
                }
                if handle.is_closed() {
                    ended_well(&handle).await;
                }
            }
        });
    }
    tasks.close();
    tasks.wait().await;
    fixture.registry.close(&me(), session.id()).await.unwrap();
    let stored = fixture.stored(&session).await;
    assert!(stored.iter().map(|event| event.seq.0).eq(1..=stored.len() as u64));
    // Whatever was accepted has one end, by the agent or by the close.
    let ends = stored.iter().filter(|event| super::is_end(event)).count();
    assert_eq!(ends, ended.load(Ordering::SeqCst) + 1);
    let interrupted =
        |body: &Body| matches!(body, Body::TurnEnded { stop: Stop::Interrupted | Stop::Failed, .. });
    assert!(!stored.iter().any(|event| interrupted(&event.body)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deleted_session_never_comes_back() {
    for _ in 0..50 {
        let fixture = Arc::new(TestRegistry::new(SessionLimits::default()));
        let session = fixture.create().await;
        let tasks = TaskTracker::new();
        let deleted = Arc::new(AtomicUsize::new(0));
        for number in 0..12 {
            let (fixture, session, deleted) = (Arc::clone(&fixture), session.clone(), Arc::clone(&deleted));
            tasks.spawn(async move {
                let id = session.id();
                match number % 4 {
                    0 => drop(fixture.registry.close(&me(), id).await),
                    1 if fixture.registry.delete(&me(), id).await.unwrap() => {
                        deleted.fetch_add(1, Ordering::SeqCst);
                    }
                    1 => {}
                    2 => drop(fixture.registry.rename(crate::testing::sender(), &me(), id, "x").await),
                    _ => {
                        if let Ok(handle) = fixture.registry.open(&me(), id).await {
                            drop(handle.send(prompt("say x")).await);
                        }
                    }
                }
            });
        }
        tasks.close();
        tasks.wait().await;
        assert_eq!(deleted.load(Ordering::SeqCst), 1);
        assert_eq!(fixture.registry.live_count(), 0);
        assert!(matches!(fixture.registry.open(&me(), session.id()).await, Err(OpenError::NotFound(_))));
        assert!(matches!(fixture.store.inner.find(session.id()).await, Err(StoreError::NotFound)));
        assert!(session.is_closed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_house_that_is_too_small_loses_no_prompt_and_is_never_overfull() {
    const ROOM: usize = 4;
    let fixture = Arc::new(TestRegistry::with_room_for(ROOM));
    let tasks = TaskTracker::new();
    let served = Arc::new(AtomicUsize::new(0));
    for _ in 0..32 {
        let (fixture, served) = (Arc::clone(&fixture), Arc::clone(&served));
        tasks.spawn(async move {
            let mut session: Option<SessionHandle> = None;
            let mut rounds = 0;
            while rounds < 5 {
                assert!(fixture.registry.live_count() <= ROOM);
                let opened = match &session {
                    Some(session) => fixture.registry.open(&me(), session.id()).await,
                    None => fixture.registry.create(new_session()).await,
                };
                let handle = match opened {
                    Ok(handle) => handle,
                    Err(OpenError::LimitReached(_)) => {
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                session = Some(handle.clone());
                match handle.send(prompt("say one;yield;say two")).await {
                    // An accepted prompt is carried out, whoever else wants the room.
                    Ok(accepted) => {
                        assert_eq!(super::end_of(&handle, accepted.turn.unwrap()).await, Stop::EndTurn);
                        served.fetch_add(1, Ordering::SeqCst);
                        rounds += 1;
                    }
                    Err(SendError::Closed | SendError::Refused(Refusal::Closing)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    tasks.close();
    tasks.wait().await;
    assert_eq!(served.load(Ordering::SeqCst), 32 * 5);
}

#[tokio::test(start_paused = true)]
async fn many_new_sessions_at_once_push_out_idle_ones_instead_of_failing() {
    let fixture = Arc::new(TestRegistry::with_room_for(3));
    let tasks = TaskTracker::new();
    for _ in 0..40 {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move { drop(fixture.create().await) });
    }
    tasks.close();
    super::in_time(tasks.wait()).await;
    assert_eq!(fixture.registry.live_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_nobody_waits_for_is_finished_by_the_next_open() {
    let fixture = TestRegistry::new(SessionLimits::default());
    let session = fixture.create().await;
    start(&session, "deaf").await;
    // The client that closes hangs up before the turn has ended.
    let owner = me();
    let closing = fixture.registry.close(&owner, session.id());
    assert!(tokio::time::timeout(Duration::from_millis(10), closing).await.is_err());
    assert!(!session.is_closed());
    let again = super::in_time(fixture.registry.open(&me(), session.id())).await.unwrap();
    assert!(session.is_closed() && !again.is_same(&session));
    ended_well(&session).await;
    assert_eq!(run(&again, "say back").await, Stop::EndTurn);
}
