//! A file that cannot be used refuses every request with the reason, and recovers without a restart.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use engine::{ListQuery, Principal, Store, StoreError};
use rusqlite::Connection;
use store::{ExamineDepth, Options, SqliteStore, back_up, examine, is_in_use};
use testkit::store_suite::{append, new_session, session_id, text, texts};

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path.to_owned(), Options::default())
}

fn reason<T>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(StoreError::Unavailable { reason } | StoreError::Write { reason }) => reason,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("no error"),
    }
}

async fn said(store: &SqliteStore) -> Vec<String> {
    texts(store, "s").await.into_iter().map(|(_, text)| text).collect()
}

/// Asks until the store is well: it is not tried with every call.
async fn healed(store: &SqliteStore) {
    let began = Instant::now();
    while let Err(fault) = store.check().await {
        assert!(began.elapsed() < DEADLINE, "{fault}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_path_that_becomes_usable_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("state");
    fs::write(&in_the_way, "a file, not a folder").unwrap();
    let path = in_the_way.join("sessions.db");
    let store = open(&path);
    let refused = reason(store.create(new_session("s")).await);
    assert!(refused.contains(&path.display().to_string()) && refused.contains("--ephemeral"), "{refused}");
    let fault = store.check().await.unwrap_err();
    assert!(!fault.brief().contains(&path.display().to_string()), "{}", fault.brief());
    fs::remove_file(&in_the_way).unwrap();
    healed(&store).await;
    assert!(store.list(ListQuery::all(Principal::local())).await.unwrap().is_empty());
    store.create(new_session("s")).await.unwrap();
}

#[tokio::test]
async fn a_listing_alone_finds_out_that_the_file_can_be_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    drop(open(&path).create(new_session("s")).await.unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let store = open(&path);
    let refused = reason(store.list(ListQuery::all(Principal::local())).await);
    assert!(refused.contains("layout 99") && refused.contains("use a ropewalk that supports"), "{refused}");
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 4).unwrap();
    let began = Instant::now();
    let listed = loop {
        match store.list(ListQuery::all(Principal::local())).await {
            Ok(listed) => break listed,
            Err(error) => assert!(began.elapsed() < DEADLINE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(listed.len(), 1);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    drop(open(&path).create(new_session("s")).await.unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[..16].copy_from_slice(b"not a database!!");
    fs::write(&path, &bytes).unwrap();
    let store = open(&path);
    let refused = reason(store.create(new_session("t")).await);
    assert!(refused.contains("ropewalk doctor --store"), "{refused}");
    assert!(store.check().await.is_err());
    drop(store);
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn a_folder_that_is_moved_away_takes_nothing_and_goes_on_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (state, away) = (folder.path().join("state"), folder.path().join("away"));
    let store = open(&state.join("sessions.db"));
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("one")]).await.unwrap();
    fs::rename(&state, &away).unwrap();
    let refused = reason(append(&store, &claim, 2, vec![text("lost")]).await);
    assert!(refused.contains("moved away") && refused.contains("move it back"), "{refused}");
    assert!(store.check().await.is_err());
    assert!(reason(store.create(new_session("t")).await).contains("moved away"));
    assert!(reason(store.list(ListQuery::all(Principal::local())).await).contains("moved away"));
    assert!(!state.exists(), "no new store hides that the old one is away");
    fs::rename(&away, &state).unwrap();
    store.check().await.unwrap();
    append(&store, &claim, 2, vec![text("two")]).await.unwrap();
    assert_eq!(said(&store).await, ["one", "two"]);
}

#[tokio::test]
async fn a_folder_that_is_removed_takes_nothing_and_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let store = open(&state.join("sessions.db"));
    let claim = store.create(new_session("s")).await.unwrap();
    fs::remove_dir_all(&state).unwrap();
    for _ in 0..3 {
        let refused = reason(append(&store, &claim, 1, vec![text("lost")]).await);
        assert!(refused.contains("start ropewalk again"), "{refused}");
    }
    assert!(!state.exists());
    drop(store);
    assert!(!state.exists());
    open(&state.join("sessions.db")).create(new_session("t")).await.unwrap();
}

#[tokio::test]
async fn a_store_that_was_put_in_its_place_is_used_and_sessions_are_claimed_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (state, away) = (folder.path().join("state"), folder.path().join("away"));
    let path = state.join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("kept")]).await.unwrap();
    // A copy has other files, and lacks what is written afterwards.
    fs::create_dir(&away).unwrap();
    for entry in fs::read_dir(&state).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), away.join(entry.file_name())).unwrap();
    }
    append(&store, &claim, 2, vec![text("not in the copy")]).await.unwrap();
    fs::rename(&state, folder.path().join("old")).unwrap();
    fs::rename(&away, &state).unwrap();
    reason(append(&store, &claim, 3, vec![text("lost")]).await);
    healed(&store).await;
    let refused = reason(append(&store, &claim, 3, vec![text("a gap")]).await);
    assert!(refused.contains("open the session again"), "{refused}");
    let again = store.claim(&session_id("s")).await.unwrap();
    append(&store, &again, again.next_seq.0, vec![text("goes on")]).await.unwrap();
    assert_eq!(said(&store).await, ["kept", "goes on"]);
}

#[tokio::test]
async fn nothing_is_written_past_a_log_that_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("one")]).await.unwrap();
    fs::remove_file(folder.path().join("sessions.db-wal")).unwrap();
    let refused = reason(append(&store, &claim, 2, vec![text("two")]).await);
    assert!(refused.contains("-wal"), "{refused}");
    // What was acknowledged before is in the file when the last connection is closed.
    drop(store);
    let store = open(&path);
    assert_eq!(said(&store).await, ["one"]);
}

/// What is left of a store is refused; SQLite alone would take an empty file for a new one, and remove the log beside it.
#[tokio::test]
async fn a_file_that_was_emptied_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    drop(open(&path).create(new_session("s")).await.unwrap());
    let size = fs::metadata(&path).unwrap().len();
    for content in [vec![], vec![0; 100], vec![0; usize::try_from(size).unwrap()]] {
        fs::write(&path, &content).unwrap();
        fs::write(folder.path().join("sessions.db-wal"), "its last events").unwrap();
        let store = open(&path);
        let refused = reason(store.create(new_session("t")).await);
        let told =
            ["sessions.db", "ropewalk restore FILE", "ropewalk sessions salvage", "move the file aside"];
        assert!(told.iter().all(|part| refused.contains(part)), "{refused}");
        assert!(reason(store.list(ListQuery::all(Principal::local())).await).contains("sessions.db"));
        drop(store);
        assert!(examine(&path, ExamineDepth::Quick).is_err());
        let target = folder.path().join("b");
        assert!(back_up(&path, &[], &target, "now", false).is_err() && !target.exists());
        assert!(!is_in_use(&path));
        assert_eq!(fs::read(&path).unwrap(), content);
        if content.is_empty() {
            assert_eq!(fs::read(folder.path().join("sessions.db-wal")).unwrap(), b"its last events");
        }
    }
    fs::rename(&path, folder.path().join("aside")).unwrap();
    open(&path).create(new_session("t")).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_emptied_while_in_use_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("one")]).await.unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let refused = reason(append(&store, &claim, 2, vec![text("lost")]).await);
    assert!(refused.contains("empty") && refused.contains("ropewalk restore FILE"), "{refused}");
    assert!(store.check().await.is_err());
    drop(store);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert!(
        fs::metadata(folder.path().join("sessions.db-wal")).unwrap().len() > 0,
        "what the log has is kept"
    );
}

/// A log without its database would be read into the one that is made in its place.
#[tokio::test]
async fn a_new_store_has_nothing_of_a_log_that_was_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("sessions.db"), folder.path().join("sessions.db-wal"));
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("one")]).await.unwrap();
    let left = fs::read(&log).unwrap();
    drop(store);
    fs::rename(&path, folder.path().join("aside")).unwrap();
    fs::write(&log, &left).unwrap();
    let store = open(&path);
    assert!(store.list(ListQuery::all(Principal::local())).await.unwrap().is_empty());
    store.create(new_session("t")).await.unwrap();
    drop(store);
    assert!(examine(&path, ExamineDepth::Deep).unwrap().unwrap().damage.is_empty());
    assert_eq!(fs::read(folder.path().join("sessions.db-wal.left-1")).unwrap(), left, "the log is kept");
}

#[tokio::test]
async fn stores_that_are_made_at_once_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/sessions.db");
    let stores: Vec<SqliteStore> = (0..8).map(|_| open(&path)).collect();
    for (nth, store) in stores.iter().enumerate() {
        store.create(new_session(&format!("s{nth}"))).await.unwrap();
    }
    assert_eq!(stores[0].list(ListQuery::all(Principal::local())).await.unwrap().len(), 8);
    drop(stores);
    let names: Vec<_> =
        fs::read_dir(folder.path().join("state")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains(".new")), "{names:?}");
}
