//! Which sessions stay in memory, which are evicted, and that eviction loses nothing.

use std::time::Duration;

use expect_test::expect;

use super::{TestRegistry, end_of, in_time, is_end, me, new_session, pass, run, start};
use crate::registry::{OpenError, SessionLimits};
use crate::session::Input;
use crate::store::ListQuery;
use crate::testing::{brief, prompt, sender, until};

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_idle_session_makes_room() {
    let fixture = TestRegistry::with_room_for(2);
    let first = fixture.create().await;
    pass(1).await;
    let second = fixture.create().await;
    pass(1).await;
    fixture.open(&first).await;
    pass(1).await;
    let third = fixture.create().await;
    assert!(
        fixture.is_live(&first).await && !fixture.is_live(&second).await && fixture.is_live(&third).await
    );
    assert!(second.is_closed() && !first.is_closed());
    pass(1).await;
    let second = fixture.open(&second).await;
    assert!(!fixture.is_live(&first).await && !second.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_stays_and_an_idle_one_leaves_in_its_place() {
    let fixture = TestRegistry::with_room_for(2);
    let busy = fixture.create().await;
    let turn = start(&busy, "hang").await;
    pass(100).await;
    let idle = fixture.create().await;
    pass(100).await;
    fixture.create().await;
    assert!(fixture.is_live(&busy).await && !fixture.is_live(&idle).await);
    busy.send(Input::Cancel { by: sender(), only: None }).await.unwrap();
    end_of(&busy, turn).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_says_whose_turn_was_cancelled_and_has_not_ended() {
    let fixture = TestRegistry::with_room_for(1);
    let session = fixture.create().await;
    let turn = start(&session, "deaf").await;
    let cancelling = async || {
        let listed = fixture.registry.list(ListQuery::all(me())).await.unwrap().pop().unwrap();
        assert_eq!(listed.row.id, *session.id());
        listed.cancelling
    };
    assert!(!cancelling().await);
    let accepted = session.send(Input::Cancel { by: sender(), only: None }).await.unwrap();
    session.written(accepted.seq).await;
    assert!(cancelling().await);
    end_of(&session, turn).await;
    assert!(!cancelling().await);
}

#[tokio::test(start_paused = true)]
async fn when_all_are_busy_there_is_no_room() {
    let fixture = TestRegistry::with_room_for(2);
    let (first, second) = (fixture.create().await, fixture.create().await);
    let turn = start(&first, "sleep 60").await;
    start(&second, "hang").await;
    let refused = fixture.registry.create(new_session()).await.err().unwrap();
    expect!["session limit reached: all 2 open sessions are busy; wait, or close one"]
        .assert_eq(&refused.to_string());
    assert!(matches!(
        fixture.registry.fork(first.id(), new_session()).await,
        Err(OpenError::LimitReached(2))
    ));
    end_of(&first, turn).await;
    fixture.create().await;
    assert!(first.is_closed() && !second.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_first_prompt_is_on_its_way_makes_no_room() {
    let fixture = TestRegistry::with_room_for(1);
    let (session, hold) = fixture.registry.create_held(new_session(), None).await.unwrap();
    assert!(matches!(fixture.registry.create(new_session()).await, Err(OpenError::LimitReached(1))));
    assert!(!session.is_closed());
    drop(hold);
    fixture.create().await;
    assert!(session.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_was_accepted_is_not_cancelled_to_make_room() {
    let fixture = TestRegistry::with_room_for(1);
    let session = fixture.create().await;
    // Accepted, and not yet in any snapshot: the store has not answered.
    let turn = session.send(prompt("say one;sleep 5;say two")).await.unwrap().turn.unwrap();
    assert!(matches!(fixture.registry.create(new_session()).await, Err(OpenError::LimitReached(1))));
    assert_eq!(end_of(&session, turn).await, crate::event::Stop::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn what_left_memory_comes_back_as_it_was() {
    let fixture = TestRegistry::with_room_for(1);
    let session = fixture.create().await;
    run(&session, "say one;tool t;done t").await;
    session.send(Input::Rename { by: sender(), title: "work".into() }).await.unwrap();
    session.send(Input::Move { by: sender(), cwd: "/elsewhere".into() }).await.unwrap();
    let before = until(&session, |event| event.seq.0 == 8).await;
    fixture.create().await;
    assert!(session.is_closed());
    let again = fixture.open(&session).await;
    assert!(!again.is_same(&session));
    assert_eq!(until(&again, |event| event.seq.0 == 8).await, before);
    let snapshot = again.snapshot();
    assert_eq!((snapshot.title.as_deref(), snapshot.cwd.to_str()), (Some("work"), Some("/elsewhere")));
    run(&again, "say two").await;
    expect![[r#"
        1 started
        1 user
        1 text one
        1 tool t
        1 tool t done
        1 ended EndTurn
        - title work
        - moved /elsewhere
        2 started
        2 user
        2 text two
        2 ended EndTurn
    "#]]
    .assert_eq(&fixture.stored_brief(&again).await);
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_leave_memory_in_time_and_busy_ones_do_not() {
    let fixture = TestRegistry::new(SessionLimits {
        idle_timeout: Duration::from_secs(600),
        ..SessionLimits::default()
    });
    fixture.registry.start_reaper();
    let (idle, busy, used) = (fixture.create().await, fixture.create().await, fixture.create().await);
    let turn = start(&busy, "sleep 1500").await;
    let asking = fixture.create().await;
    start(&asking, "ask git push").await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        fixture.open(&used).await;
    }
    assert!(!fixture.is_live(&idle).await);
    assert!(fixture.is_live(&busy).await && fixture.is_live(&asking).await && fixture.is_live(&used).await);
    assert_eq!(end_of(&busy, turn).await, crate::event::Stop::EndTurn);
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert!(!fixture.is_live(&busy).await && fixture.is_live(&asking).await);
    in_time(fixture.registry.shutdown()).await;
}

/// L18.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_looked_at_stays_and_without_a_limit_all_do() {
    let fixture = TestRegistry::new(SessionLimits {
        idle_timeout: Duration::from_secs(600),
        ..SessionLimits::default()
    });
    fixture.registry.start_reaper();
    let (idle, looked_at) = (fixture.create().await, fixture.create().await);
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        fixture.registry.touch(&me(), looked_at.id());
    }
    assert!(!fixture.is_live(&idle).await && fixture.is_live(&looked_at).await);
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert!(!fixture.is_live(&looked_at).await);
    in_time(fixture.registry.shutdown()).await;

    let fixture =
        TestRegistry::new(SessionLimits { idle_timeout: Duration::MAX, ..SessionLimits::default() });
    fixture.registry.start_reaper();
    let idle = fixture.create().await;
    tokio::time::sleep(Duration::from_secs(10_000_000)).await;
    assert!(fixture.is_live(&idle).await);
    in_time(fixture.registry.shutdown()).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_gave_up_makes_room() {
    let fixture = TestRegistry::with_room_for(1);
    let session = fixture.create().await;
    start(&session, "hang").await;
    // Somebody else claims it; its next write is refused.
    crate::store::Store::claim(&fixture.store.inner, session.id()).await.unwrap();
    session.send(Input::Cancel { by: sender(), only: None }).await.unwrap();
    let mut reader = session.read(crate::ids::Seq::START);
    while reader.next().await.unwrap().is_some() {}
    assert_eq!((fixture.live().await, fixture.registry.live_count()), (0, 0));
    fixture.create().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_every_session_in_good_order() {
    let fixture = TestRegistry::with_room_for(4);
    let mut sessions = Vec::new();
    for script in ["hang", "deaf", "ask git push", "say hello"] {
        let session = fixture.create().await;
        start(&session, script).await;
        sessions.push(session);
    }
    in_time(fixture.registry.shutdown()).await;
    for session in &sessions {
        assert!(session.is_closed());
        let stored = fixture.stored(session).await;
        assert!(is_end(stored.last().unwrap()), "{}", brief(&stored));
    }
    let again = TestRegistry::on(fixture.store, SessionLimits::default());
    assert!(!again.registry.row(&me(), sessions[0].id()).await.unwrap().busy);
}
