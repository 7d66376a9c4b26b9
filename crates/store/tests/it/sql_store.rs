//! Sessions in a shared database keep the promises that every store makes, on both engines, and those about
//! processes that come and go.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Body, ListQuery, PageRequest, Principal, Seq, Store, StoreError};
use store::sql::{Db, PostgresDb, SqlStore, SqliteDb, Statement};
use testkit::postgres::Cluster;
use testkit::store_suite::{append, event, new_session, session_id, text, texts};

use crate::ownership::{end_and_hand_over, turn_started};

mod sqlite {
    use super::*;

    async fn fresh() -> (Arc<dyn Store>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let db = SqliteDb::open(&folder.path().join("hub.db")).unwrap();
        (Arc::new(SqlStore::open(Arc::new(db)).await.unwrap()), folder)
    }

    testkit::store_suite!(fresh().await);
}

mod postgres {
    use super::*;

    async fn fresh() -> (Arc<dyn Store>, Cluster) {
        let cluster = Cluster::start();
        let db = PostgresDb::connect(&cluster.database(), None).await.unwrap();
        (Arc::new(SqlStore::open(Arc::new(db)).await.unwrap()), cluster)
    }

    testkit::store_suite!(fresh().await);
}

/// Two processes on one database.
async fn two() -> (Cluster, Arc<PostgresDb>, SqlStore, SqlStore) {
    let cluster = Cluster::start();
    let url = cluster.database();
    let db = Arc::new(PostgresDb::connect(&url, None).await.unwrap());
    let first = SqlStore::open(Arc::new(PostgresDb::connect(&url, None).await.unwrap())).await.unwrap();
    let second = SqlStore::open(Arc::clone(&db) as Arc<dyn Db>).await.unwrap();
    (cluster, db, first, second)
}

#[tokio::test]
async fn a_turn_in_a_living_process_is_left_alone() {
    let (_cluster, _db, first, second) = two().await;
    let claim = turn_started(&first).await;
    assert!(matches!(second.claim(&session_id("s")).await, Err(StoreError::BusyElsewhere)));
    assert!(matches!(second.delete(&session_id("s")).await, Err(StoreError::BusyElsewhere)));
    assert!(second.find(&session_id("s")).await.unwrap().busy);
    append(&first, &claim, 4, vec![text("c")]).await.unwrap();
    end_and_hand_over(&first, &second, &claim).await;
}

#[tokio::test]
async fn a_turn_of_a_process_whose_lease_is_over_is_taken_over() {
    let (_cluster, db, first, second) = two().await;
    let claim = turn_started(&first).await;
    // As if it had not renewed it for long.
    let over = Statement::new("UPDATE log_owners SET alive_until = 0", []);
    db.run(vec![over], Vec::new()).await.unwrap();
    assert!(!second.find(&session_id("s")).await.unwrap().busy, "nobody is busy with it");
    assert!(!second.list(ListQuery::all(Principal::local())).await.unwrap()[0].busy);
    let taken = second.claim(&session_id("s")).await.unwrap();
    assert_eq!((taken.epoch.0, taken.next_seq, taken.row.busy), (claim.epoch.0 + 1, Seq(4), true));
    // It was only away, and finds that out.
    assert!(matches!(append(&first, &claim, 4, vec![text("late")]).await, Err(StoreError::Fenced)));
}

#[tokio::test]
async fn a_process_that_ends_gives_its_lease_back() {
    let (_cluster, _db, first, second) = two().await;
    turn_started(&first).await;
    drop(first);
    let until = Instant::now() + Duration::from_secs(10);
    while second.claim(&session_id("s")).await.is_err() {
        assert!(Instant::now() < until, "the session stays taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn after_a_release_an_owner_appends_nothing() {
    let (_cluster, _db, first, second) = two().await;
    let claim = turn_started(&first).await;
    first.release(&session_id("s"), claim.epoch).await.unwrap();
    assert!(matches!(append(&first, &claim, 4, vec![text("late")]).await, Err(StoreError::Fenced)));
    assert_eq!(second.claim(&session_id("s")).await.unwrap().next_seq, Seq(4));
}

#[tokio::test]
async fn a_position_is_not_given_twice_and_gaps_stay() {
    let (_cluster, _db, first, _) = two().await;
    let claim = turn_started(&first).await;
    assert!(matches!(append(&first, &claim, 3, vec![text("again")]).await, Err(StoreError::Write { .. })));
    append(&first, &claim, 9, vec![text("after a gap")]).await.unwrap();
    assert_eq!(texts(&first, "s").await.last().unwrap(), &(9, "after a gap".to_owned()));
}

#[tokio::test]
async fn a_long_session_goes_whole_and_what_was_left_of_one_goes_at_the_next_start() {
    let (_cluster, db, first, second) = two().await;
    let claim = first.create(new_session("long")).await.unwrap();
    for from in [1, 6_001] {
        let events = (from..from + 6_000).map(|seq| event(seq, text("x"))).collect();
        let session = session_id("long");
        first.append(engine::EventBatch { session, epoch: claim.epoch, events, sync: true }).await.unwrap();
    }
    let entries = async || {
        let count = Statement::new("SELECT count(*) FROM log_entries", []);
        db.run(vec![count], Vec::new()).await.unwrap()[0].rows[0].int(0).unwrap()
    };
    assert_eq!(entries().await, 12_000);
    assert!(second.delete(&session_id("long")).await.is_ok_and(|was| was));
    assert_eq!(entries().await, 0);

    turn_started(&first).await;
    let half = Statement::new("UPDATE log_sessions SET gone = 1 WHERE id = 's'", []);
    db.run(vec![half], Vec::new()).await.unwrap();
    let _third = SqlStore::open(Arc::clone(&db) as Arc<dyn Db>).await.unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while entries().await > 0 {
        assert!(Instant::now() < until, "what was left stays");
    }
    assert!(matches!(
        first.read(&session_id("s"), Seq::START, PageRequest::USUAL).await,
        Err(StoreError::NotFound)
    ));
}

#[tokio::test]
async fn what_a_database_cannot_keep_does_not_stop_a_session() {
    let (_cluster, _db, first, _) = two().await;
    let claim = first.create(new_session("s")).await.unwrap();
    append(&first, &claim, 1, vec![Body::Title { title: "a\0b".into() }, text("c\0d")]).await.unwrap();
    assert_eq!(first.find(&session_id("s")).await.unwrap().title.as_deref(), Some("a\u{FFFD}b"));
    assert_eq!(texts(&first, "s").await[1], (2, "c\0d".to_owned()));
}
