//! Who may append, and at which position, when processes come and go and machines lose power.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use engine::{Body, Claim, EventBatch, Seq, Stop, Store, StoreError};
use rusqlite::Connection;
use store::{Options, SqliteStore};
use testkit::store_suite::{append, event, new_session, session_id, text, texts};

/// A store as a process of the given boot would open it.
fn open(directory: &Path, boot: &str) -> SqliteStore {
    SqliteStore::open(
        directory.join("sessions.db"),
        Options { boot: Some(boot.into()), ..Options::default() },
    )
}

fn number(directory: &Path, query: &str) -> u64 {
    let connection = Connection::open(directory.join("sessions.db")).unwrap();
    connection.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap().try_into().unwrap()
}

fn reserved(directory: &Path) -> u64 {
    number(directory, "SELECT reserved_seq FROM acp_sessions")
}

pub async fn turn_started(store: &dyn Store) -> Claim {
    let claim = store.create(new_session("s")).await.unwrap();
    append(store, &claim, 1, vec![Body::TurnStarted, text("a"), text("b")]).await.unwrap();
    claim
}

/// A session whose turn stands at 5 goes to a second process when the turn ends, and the first one has lost it.
pub async fn end_and_hand_over(first: &dyn Store, second: &dyn Store, claim: &Claim) {
    let ended = Body::TurnEnded { stop: Stop::EndTurn, error: None };
    append(first, claim, 5, vec![ended]).await.unwrap();
    let taken = second.claim(&session_id("s")).await.unwrap();
    assert_eq!((taken.epoch.0, taken.next_seq), (claim.epoch.0 + 1, Seq(6)));
    assert!(matches!(append(first, claim, 6, vec![text("old")]).await, Err(StoreError::Fenced)));
    // A release by somebody who lost the session does not take it from its owner.
    first.release(&session_id("s"), claim.epoch).await.unwrap();
    append(second, &taken, 6, vec![text("new")]).await.unwrap();
}

#[tokio::test]
async fn within_one_boot_positions_go_on_without_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    turn_started(&open(directory.path(), "one")).await;
    let claim = open(directory.path(), "one").claim(&session_id("s")).await.unwrap();
    assert_eq!(claim.next_seq, Seq(4));
    assert!(claim.row.busy);
}

#[tokio::test]
async fn after_a_power_cut_positions_go_on_past_everything_reserved() {
    let directory = tempfile::tempdir().unwrap();
    turn_started(&open(directory.path(), "one")).await;
    let upto = reserved(directory.path());
    assert!(upto >= 3);
    let store = open(directory.path(), "two");
    let claim = store.claim(&session_id("s")).await.unwrap();
    // Past it by as much again: readers tell this gap from the shorter ones of earlier versions.
    let next = upto + engine::POSITIONS_RESERVED + 1;
    assert_eq!(claim.next_seq, Seq(next));
    assert!(claim.leaves_gap() && next - 4 > engine::POSITIONS_RESERVED);
    append(&store, &claim, next, vec![text("c")]).await.unwrap();
    assert_eq!(texts(&store, "s").await.last().unwrap(), &(next, "c".to_owned()));
}

/// A file system that is mounted again may have lost what was not synced, within one boot too.
#[tokio::test]
async fn after_a_remount_positions_go_on_past_everything_reserved() {
    let directory = tempfile::tempdir().unwrap();
    let open_in = |mount: &str| {
        let options = Options { boot: Some("one".into()), mount: Some(mount.into()), ..Options::default() };
        SqliteStore::open(directory.path().join("sessions.db"), options)
    };
    turn_started(&open_in("fs-1")).await;
    let same = open_in("fs-1").claim(&session_id("s")).await.unwrap();
    assert_eq!((same.next_seq, same.leaves_gap()), (Seq(4), false));
    let store = open_in("fs-1");
    let claim = store.claim(&session_id("s")).await.unwrap();
    append(&store, &claim, 4, vec![text("c")]).await.unwrap();
    drop(store);
    let upto = reserved(directory.path());
    let claim = open_in("fs-2").claim(&session_id("s")).await.unwrap();
    assert_eq!(claim.next_seq, Seq(upto + engine::POSITIONS_RESERVED + 1));
}

/// A backup knows nothing of what came after it. Mirrors and clients may.
#[tokio::test]
async fn a_restored_session_goes_on_far_past_everything_reserved() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one");
    let claim = turn_started(&store).await;
    store.release(&session_id("s"), claim.epoch).await.unwrap();
    drop(store);
    let upto = reserved(directory.path());
    let connection = Connection::open(directory.path().join("sessions.db")).unwrap();
    connection.execute("UPDATE acp_sessions SET holder = 'restored', boot = NULL", []).unwrap();
    drop(connection);
    let claim = open(directory.path(), "one").claim(&session_id("s")).await.unwrap();
    assert_eq!((claim.next_seq, claim.leaves_gap()), (Seq(upto + (1 << 28) + 1), true));
}

/// What a claim leaves out stays left out: whoever holds the session may go without having written.
#[tokio::test]
async fn a_gap_stays_also_if_nothing_is_written_after_it() {
    for released in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        turn_started(&open(directory.path(), "one")).await;
        let store = open(directory.path(), "two");
        let claim = store.claim(&session_id("s")).await.unwrap();
        if released {
            store.release(&session_id("s"), claim.epoch).await.unwrap();
        }
        drop(store);
        let again = open(directory.path(), "two").claim(&session_id("s")).await.unwrap();
        assert!(again.next_seq >= claim.next_seq, "{released}: {} after {}", again.next_seq, claim.next_seq);
    }
}

#[tokio::test]
async fn after_a_release_positions_go_on_without_a_gap_whatever_happened() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one");
    let claim = turn_started(&store).await;
    store.release(&session_id("s"), claim.epoch).await.unwrap();
    assert!(matches!(append(&store, &claim, 4, vec![text("late")]).await, Err(StoreError::Fenced)));
    drop(store);
    let claim = open(directory.path(), "two").claim(&session_id("s")).await.unwrap();
    assert_eq!(claim.next_seq, Seq(4));
}

#[tokio::test]
async fn a_claim_without_an_append_reserves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    turn_started(&open(directory.path(), "one")).await;
    open(directory.path(), "one").claim(&session_id("s")).await.unwrap();
    let claim = open(directory.path(), "two").claim(&session_id("s")).await.unwrap();
    assert_eq!(claim.next_seq, Seq(4));
}

#[tokio::test]
async fn positions_in_use_are_always_reserved() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one");
    let claim = store.create(new_session("s")).await.unwrap();
    let mut blocks = vec![reserved(directory.path())];
    for first in (1..140_000).step_by(10_000) {
        let events = (first..first + 10_000).map(|seq| event(seq, text("x"))).collect();
        let batch = EventBatch { session: session_id("s"), epoch: claim.epoch, events, sync: false };
        store.append(batch).await.unwrap();
        let upto = reserved(directory.path());
        assert!(upto >= first + 9_999);
        blocks.push(upto);
    }
    blocks.dedup();
    assert_eq!(blocks.len(), 3, "reserved in blocks: {blocks:?}");
}

#[tokio::test]
async fn a_position_is_not_given_twice() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one");
    let claim = turn_started(&store).await;
    let twice = append(&store, &claim, 3, vec![text("again")]).await;
    assert!(matches!(twice, Err(StoreError::Write { .. })));
    append(&store, &claim, 4, vec![text("c")]).await.unwrap();
    assert_eq!(texts(&store, "s").await.len(), 4);
}

#[tokio::test]
async fn a_turn_in_a_living_process_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (open(directory.path(), "one"), open(directory.path(), "one"));
    let claim = turn_started(&first).await;
    assert!(matches!(second.claim(&session_id("s")).await, Err(StoreError::BusyElsewhere)));
    append(&first, &claim, 4, vec![text("c")]).await.unwrap();
    end_and_hand_over(&first, &second, &claim).await;
}

#[tokio::test]
async fn a_turn_of_a_dead_process_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (open(directory.path(), "one"), open(directory.path(), "one"));
    let claim = turn_started(&first).await;
    drop(first);
    let taken = second.claim(&session_id("s")).await.unwrap();
    assert_eq!((taken.epoch.0, taken.next_seq, taken.row.busy), (claim.epoch.0 + 1, Seq(4), true));
}

#[tokio::test]
async fn the_same_process_may_claim_its_own_turn_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one");
    turn_started(&store).await;
    assert_eq!(store.claim(&session_id("s")).await.unwrap().next_seq, Seq(4));
}

#[tokio::test]
async fn files_of_dead_owners_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let owners = directory.path().join("owners");
    std::fs::create_dir(&owners).unwrap();
    std::fs::write(owners.join("0-dead"), "").unwrap();
    let store = open(directory.path(), "one");
    store.create(new_session("s")).await.unwrap();
    store.create(new_session("t")).await.unwrap();
    let names =
        || std::fs::read_dir(&owners).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names().len(), 1);
    assert_ne!(names()[0], "0-dead");
    drop(store);
    assert!(names().is_empty());
}

#[tokio::test]
async fn a_session_whose_owner_died_in_a_turn_is_not_shown_as_busy() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), "one");
    turn_started(&store).await;
    let other = open(directory.path(), "one");
    assert!(other.find(&session_id("s")).await.unwrap().busy);
    drop(store);
    assert!(!other.find(&session_id("s")).await.unwrap().busy);
    assert!(!other.list(engine::ListQuery::all(engine::Principal::local())).await.unwrap()[0].busy);
}
