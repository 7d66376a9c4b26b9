//! The file on disk: who can read it, what cannot be opened, older and newer layouts, what is stored
//! once, and what a deletion leaves.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::{Body, Content, ListQuery, NewSession, PageRequest, Principal, Seq, Store, StoreError};
use rusqlite::Connection;
use store::{Options, SqliteStore};
use testkit::store_suite::{append, new_session, session_id, text, texts};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path.to_owned(), Options::default())
}

fn count(path: &Path, table: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

fn unavailable<T>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(StoreError::Unavailable { reason }) => reason,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn sqlite_has_the_fix_for_checkpoints_that_race() {
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}

#[tokio::test]
async fn nobody_else_can_read_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/sessions.db");
    let store = open(&path);
    store.create(new_session("s")).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for made in ["a", "a/b", "a/b/owners"] {
        assert_eq!(mode(&directory.path().join(made)), 0o700, "{made}");
    }
    for made in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
        assert_eq!(mode(&path.with_file_name(made)), 0o600, "{made}");
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_used_is_named_by_every_call() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    std::fs::write(directory.path().join("text"), "x".repeat(10_000)).unwrap();
    for bad in ["file/sessions.db", "text", "."] {
        let path = directory.path().join(bad);
        let store = open(&path);
        let id = session_id("s");
        let reasons = [
            unavailable(store.create(new_session("s")).await),
            unavailable(store.claim(&id).await),
            unavailable(store.delete(&id).await),
            unavailable(store.find(&id).await),
            unavailable(store.read(&id, Seq::START, PageRequest::USUAL).await),
            unavailable(store.list(ListQuery::all(Principal::local())).await),
        ];
        for reason in reasons {
            assert!(reason.contains(&path.display().to_string()), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    open(&path).create(new_session("s")).await.unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let reason = unavailable(open(&path).claim(&session_id("s")).await);
    assert!(reason.contains("layout 99") && reason.contains("up to 4"), "{reason}");
    assert_eq!(count(&path, "acp_sessions"), 1);
}

/// Layout 1 as it was written, before sessions had a parent and a source.
const LAYOUT_1: &str = r#"
    PRAGMA journal_mode = WAL;
    CREATE TABLE acp_sessions (key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
        cwd ANY NOT NULL, roots TEXT NOT NULL, title TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        busy INTEGER NOT NULL DEFAULT 0, last_seq INTEGER NOT NULL DEFAULT 0,
        reserved_seq INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL, holder TEXT, boot TEXT) STRICT;
    CREATE INDEX acp_sessions_recent ON acp_sessions (owner, updated_at, id);
    CREATE TABLE acp_session_events (session INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
        turn INTEGER, origin TEXT NOT NULL, kind TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (session, seq)) STRICT, WITHOUT ROWID;
    CREATE TABLE blobs (hash TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
    CREATE TABLE blob_uses (session INTEGER NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (session, hash))
        STRICT, WITHOUT ROWID;
    CREATE INDEX blob_uses_by_hash ON blob_uses (hash);
    CREATE TABLE rules (number INTEGER PRIMARY KEY, workspace ANY NOT NULL, tool TEXT NOT NULL,
        subject TEXT NOT NULL, allow INTEGER NOT NULL, UNIQUE (workspace, tool, subject)) STRICT;
    CREATE TABLE deleted (id TEXT PRIMARY KEY, key INTEGER) STRICT, WITHOUT ROWID;
    CREATE INDEX deleted_unswept ON deleted (key) WHERE key IS NOT NULL;
    INSERT INTO acp_sessions VALUES (7, 'old', 'local', '/old', '["/root"]', 'before', 10, 12, 0, 2, 4098, 3, NULL, 'x');
    INSERT INTO acp_session_events VALUES
        (7, 1, 11, NULL, '"agent"', 'text', 1, '{"message":1,"text":"hello"}'),
        (7, 2, 12, 1, '{"surface":{"id":5,"name":"zed"}}', 'title', 1, '{"text":{"blob":"6db7d803e74f1ffa7d8f5adc0bf95b3e15bf4c8373fffadf546227cc6c6742cb"}}');
    INSERT INTO blobs VALUES ('6db7d803e74f1ffa7d8f5adc0bf95b3e15bf4c8373fffadf546227cc6c6742cb', 'before');
    INSERT INTO blob_uses VALUES (7, '6db7d803e74f1ffa7d8f5adc0bf95b3e15bf4c8373fffadf546227cc6c6742cb');
    PRAGMA user_version = 1;
"#;

#[tokio::test]
async fn a_session_of_an_older_layout_gets_what_it_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    Connection::open(&path).unwrap().execute_batch(LAYOUT_1).unwrap();
    let store = open(&path);
    let row = store.find(&session_id("old")).await.unwrap();
    assert_eq!((&*row.source, row.parent, row.cwd), ("acp", None, PathBuf::from("/old")));
    assert_eq!((row.roots, row.title.as_deref()), (vec![PathBuf::from("/root")], Some("before")));
    let events = store.read(&session_id("old"), Seq::START, PageRequest::USUAL).await.unwrap();
    assert_eq!(events[0].body, text("hello"));
    assert_eq!(events[1].body, Body::Title { title: "before".into() });
    let claim = store.claim(&session_id("old")).await.unwrap();
    assert_eq!((claim.epoch.0, claim.next_seq), (4, Seq(3)));
    append(&store, &claim, 3, vec![text("more")]).await.unwrap();
    let child = NewSession { parent: Some(session_id("old")), ..new_session("child") };
    store.fork(&session_id("old"), child).await.unwrap();
    drop(store);
    let row = open(&path).find(&session_id("child")).await.unwrap();
    assert_eq!((row.parent, row.last_seq), (Some(session_id("old")), Seq(3)));
}

/// Written by the last version without checksums.
const LAYOUT_3: &[u8] = include_bytes!("../layouts/layout-3.db");
const OLD: &str = "672cc845-6882-4824-aa33-38b3f3e142dc";

#[tokio::test]
async fn a_store_of_layout_3_is_copied_and_upgraded_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    std::fs::write(&path, LAYOUT_3).unwrap();
    let store = open(&path);
    let shown = texts(&store, OLD).await;
    assert_eq!(shown.len(), 4);
    assert_eq!((&*shown[1].1, shown[2].1.len()), ("hello from layout 3", 24_000));
    let copy = directory.path().join("sessions.db.layout-3");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let version = |path: &Path| -> i64 {
        Connection::open(path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    assert_eq!((version(&copy), version(&path)), (3, 4));
    assert_eq!((count(&copy, "acp_session_events"), count(&copy, "blobs")), (4, 1));
    let claim = store.claim(&session_id(OLD)).await.unwrap();
    assert_eq!(claim.row.title.as_deref(), Some("an old session"));
    append(&store, &claim, claim.next_seq.0, vec![text("new")]).await.unwrap();
    drop(store);
    // Old events have no checksum; what was written since has one.
    assert_eq!(count(&path, "acp_session_events WHERE checksum IS NULL"), 4);
    let spoil = "UPDATE acp_session_events SET body = replace(body, 'new', 'old')";
    Connection::open(&path).unwrap().execute_batch(spoil).unwrap();
    let shown = texts(&open(&path), OLD).await;
    assert!(shown[1].1 == "hello from layout 3" && shown[4].1.contains("damaged"), "{shown:?}");
}

/// What an older version that still runs does to a file that this version has upgraded.
#[tokio::test]
async fn a_process_of_an_older_version_cannot_write_past_the_checksums() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    std::fs::write(&path, LAYOUT_3).unwrap();
    let old = Connection::open(&path).unwrap();
    open(&path).claim(&session_id(OLD)).await.unwrap();
    for sql in [
        "UPDATE acp_sessions SET epoch = 9, holder = 'x', boot = 'y', reserved_seq = 4",
        "UPDATE acp_sessions SET updated_at = 1, last_seq = 5, reserved_seq = 5, busy = 0, title = coalesce(NULL, title)",
        "UPDATE acp_sessions SET title = 'renamed'",
        "INSERT INTO acp_sessions (id, owner, cwd, roots, created_at, updated_at, epoch) VALUES ('n', 'l', '/', '[]', 1, 1, 1)",
    ] {
        let error = old.execute_batch(sql).unwrap_err().to_string();
        assert!(error.contains("newer version"), "{sql}: {error}");
    }
}

#[tokio::test]
async fn big_content_is_stored_once_and_goes_with_its_last_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = open(&path);
    let big = "big content ".repeat(10_000);
    let small = "x".repeat(16 * 1024);
    for id in ["s", "t"] {
        let claim = store.create(new_session(id)).await.unwrap();
        let content =
            vec![Content::text(big.as_str()), Content::text(big.as_str()), Content::text(small.as_str())];
        let bodies = vec![text(&big), Body::UserMessage { content }, text(&format!("{id}{big}"))];
        append(&store, &claim, 1, bodies).await.unwrap();
    }
    store.fork(&session_id("s"), new_session("f")).await.unwrap();
    assert_eq!(count(&path, "blobs"), 3);
    store.delete(&session_id("s")).await.unwrap();
    assert_eq!(count(&path, "blobs"), 3);
    assert_eq!(texts(&store, "f").await[0].1, big);
    store.delete(&session_id("f")).await.unwrap();
    assert_eq!(count(&path, "blobs"), 2);
    store.delete(&session_id("t")).await.unwrap();
    assert_eq!(
        (count(&path, "blobs"), count(&path, "blob_uses"), count(&path, "acp_session_events")),
        (0, 0, 0)
    );
    assert_eq!(count(&path, "deleted"), 3);
    drop(store);
    let left = std::fs::read(&path).unwrap();
    assert!(!left.windows(11).any(|bytes| bytes == b"big content"), "deleted content is overwritten");
}

#[tokio::test]
async fn a_deletion_that_was_cut_short_is_finished_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, (0..5000).map(|_| text("x")).collect()).await.unwrap();
    drop(store);
    let cut_short = "INSERT INTO deleted SELECT id, key FROM acp_sessions; DELETE FROM acp_sessions;";
    Connection::open(&path).unwrap().execute_batch(cut_short).unwrap();
    let store = open(&path);
    store.create(new_session("t")).await.unwrap();
    // Deletions are swept in the order they were found, so this one is answered after the other.
    store.delete(&session_id("t")).await.unwrap();
    assert_eq!(count(&path, "acp_session_events"), 0);
    assert_eq!(count(&path, "deleted WHERE key IS NOT NULL"), 0);
    assert!(matches!(store.create(new_session("s")).await, Err(StoreError::Exists)));
}

#[tokio::test]
async fn paths_that_are_not_unicode_survive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let odd = PathBuf::from(std::ffi::OsString::from_vec(b"/odd/\xff\xfe".to_vec()));
    let store = open(&path);
    let new = NewSession { cwd: odd.clone(), roots: vec![odd.clone(), "/plain".into()], ..new_session("s") };
    let claim = store.create(new).await.unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(store.find(&session_id("s")).await.unwrap(), claim.row);
    let here = ListQuery { cwd: Some(odd), ..ListQuery::all(Principal::local()) };
    assert_eq!(store.list(here).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_write_that_fails_is_told_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("a")]).await.unwrap();
    let trouble = "CREATE TRIGGER trouble BEFORE INSERT ON acp_session_events WHEN new.seq = 3
                   BEGIN SELECT RAISE(ABORT, 'no more room'); END";
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(trouble).unwrap();
    let before = store.find(&session_id("s")).await.unwrap();
    let failed = append(&store, &claim, 2, vec![text("b"), text("c")]).await;
    assert!(
        matches!(&failed, Err(StoreError::Write { reason }) if reason.contains("no more room")),
        "{failed:?}"
    );
    assert_eq!(store.find(&session_id("s")).await.unwrap(), before);
    connection.execute_batch("DROP TRIGGER trouble").unwrap();
    append(&store, &claim, 2, vec![text("b"), text("c")]).await.unwrap();
    assert_eq!(texts(&store, "s").await.len(), 3);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hides_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = open(&path);
    for id in ["s", "t"] {
        store.create(new_session(id)).await.unwrap();
    }
    let spoil = "UPDATE acp_sessions SET roots = 'nonsense' WHERE id = 't'";
    Connection::open(&path).unwrap().execute_batch(spoil).unwrap();
    let rows = store.list(ListQuery::all(Principal::local())).await.unwrap();
    assert_eq!(rows.len(), 2);
    let damaged: Vec<_> = rows.iter().filter(|row| row.title.is_some()).collect();
    assert_eq!((damaged.len(), damaged[0].id.as_str()), (1, "t"));
    assert!(matches!(store.claim(&session_id("t")).await, Err(StoreError::Damaged { .. })));
}
