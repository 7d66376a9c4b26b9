//! Sessions on a PostgreSQL that is connected to when it is first needed: the promises of every store, and what happens
//! while the database is away.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{BoxFuture, Event, EventSource, PageRequest, Seq, Store, StoreError};
use store::sql::{Db, PostgresAddress, PostgresDb, PostgresStore, SqlStore, Statement};
use testkit::postgres::Cluster;
use testkit::store_suite::{append, event, new_session, session_id, text, texts};

const SOON: Duration = Duration::from_secs(30);

fn open(url: &str) -> PostgresStore {
    PostgresStore::new(PostgresAddress::parse(url).unwrap())
}

mod promises {
    use super::*;

    async fn fresh() -> (Arc<dyn Store>, Cluster) {
        let cluster = Cluster::start();
        (Arc::new(open(&cluster.database())), cluster)
    }

    testkit::store_suite!(fresh().await);
}

#[tokio::test]
async fn a_store_whose_database_is_away_says_so_and_works_when_it_is_back() {
    let mut cluster = Cluster::start();
    let url = cluster.database().replace("postgres@", "postgres:secret@");
    cluster.stop();
    let store = open(&url);
    let error = store.create(new_session("s")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1") && !error.to_string().contains("secret"), "{error}");
    let fault = store.check().await.unwrap_err();
    assert!(!fault.brief().contains("127.0.0.1") && fault.path.is_none(), "{fault}");
    cluster.restart();
    let until = Instant::now() + SOON;
    while let Err(fault) = store.check().await {
        assert!(Instant::now() < until, "{fault}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let claim = store.create(new_session("s")).await.unwrap();

    cluster.kill();
    let event = vec![text("a")];
    let busy = append(&store, &claim, 1, event.clone()).await;
    assert!(matches!(busy, Err(StoreError::Busy { .. })), "it can be tried again: {busy:?}");
    cluster.restart();
    while append(&store, &claim, 1, event.clone()).await.is_err() {
        assert!(Instant::now() < until + SOON, "it stays away");
    }
    // An answer that was lost: the same again is done already, something else is not.
    append(&store, &claim, 1, event).await.unwrap();
    assert!(matches!(append(&store, &claim, 1, vec![text("b")]).await, Err(StoreError::Write { .. })));
    assert_eq!(texts(&store, "s").await, [(1, "a".to_owned())]);
}

/// Many events in pieces, and then a wait.
struct Pieces {
    next: u64,
    upto: u64,
}

impl EventSource for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Event>>, String>> {
        let piece = (self.next..=self.upto.min(self.next + 999)).map(|seq| event(seq, text("x"))).collect();
        self.next += 1000;
        Box::pin(std::future::ready(Ok(piece)))
    }
}

#[tokio::test]
async fn a_long_import_and_its_fork_come_in_pieces_and_are_whole() {
    let cluster = Cluster::start();
    let store = open(&cluster.database());
    let claim =
        store.import_from(new_session("i"), Box::new(Pieces { next: 1, upto: 12_345 })).await.unwrap();
    assert_eq!(claim.next_seq, Seq(12_346));
    let fork = store.fork(&session_id("i"), new_session("f")).await.unwrap();
    assert_eq!(fork.next_seq, Seq(12_346));
    let (mut read, mut after) = (0, Seq::START);
    loop {
        let page = store.read(&session_id("f"), after, PageRequest::USUAL).await.unwrap();
        let Some(last) = page.last() else { break };
        (read, after) = (read + page.len(), last.seq);
    }
    assert_eq!((read, after), (12_345, Seq(12_345)));
}

#[tokio::test]
async fn what_a_dead_process_was_writing_is_removed_and_its_id_is_free() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let store = open(&url);
    store.import_from(new_session("i"), Box::new(Pieces { next: 1, upto: 2000 })).await.unwrap();
    let db = Arc::new(PostgresDb::connect(&url, None).await.unwrap());
    let half = "UPDATE log_sessions SET gone = 3, holder = 'nobody who lives'";
    db.run(vec![Statement::new(half, [])], Vec::new()).await.unwrap();
    assert!(matches!(store.find(&session_id("i")).await, Err(StoreError::NotFound)));
    assert!(matches!(
        store.read(&session_id("i"), Seq::START, PageRequest::USUAL).await,
        Err(StoreError::NotFound)
    ));
    assert!(store.unused(vec![session_id("i")]).await.unwrap().is_empty());
    let _next = SqlStore::open(Arc::clone(&db) as Arc<dyn Db>).await.unwrap();
    let until = Instant::now() + SOON;
    while store.unused(vec![session_id("i")]).await.unwrap().is_empty() {
        assert!(Instant::now() < until, "it stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.create(new_session("i")).await.unwrap();
    assert!(texts(&store, "i").await.is_empty());
}
