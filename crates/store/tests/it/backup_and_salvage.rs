//! Examining a file for damage, backups, restoring them, and salvaging a damaged file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::{Body, ListQuery, Principal, Seq, Store};
use rusqlite::Connection;
use store::{BackupFile, ExamineDepth, Options, SalvagedSession, SqliteStore};
use testkit::store_suite::{append, new_session, session_id, text, texts};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path.to_owned(), Options::default())
}

/// Three sessions of thirty events, some of them big, and a gap in each.
async fn filled(path: &Path) {
    let store = open(path);
    for name in ["a", "b", "c"] {
        let claim = store.create(new_session(name)).await.unwrap();
        let mut bodies = vec![Body::Title { title: format!("title {name}").into() }];
        bodies.extend((2..=29).map(|number| text(&format!("{name} {number}"))));
        append(&store, &claim, 1, bodies).await.unwrap();
        append(&store, &claim, 100, vec![text(&format!("{name} ").repeat(20_000))]).await.unwrap();
        store.release(&session_id(name), claim.epoch).await.unwrap();
    }
    store.delete(&session_id("c")).await.unwrap();
}

async fn same(left: &Path, right: &Path) {
    let (left, right) = (open(left), open(right));
    let all = ListQuery::all(Principal::local());
    let rows = left.list(all.clone()).await.unwrap();
    assert_eq!(rows, right.list(all).await.unwrap());
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(texts(&left, row.id.as_str()).await, texts(&right, row.id.as_str()).await);
    }
}

async fn lineage(path: &Path) -> std::sync::Arc<str> {
    open(path).lineage().await.unwrap().unwrap()
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_is_whole_and_a_restored_one_has_another_lineage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    filled(&path).await;
    let note = directory.path().join("note");
    std::fs::write(&note, "beside").unwrap();
    let files = [BackupFile { name: "folder/note".into(), path: note }];
    let backup = directory.path().join("backup");
    let user = open(&path);
    let claim = user.claim(&session_id("a")).await.unwrap();
    append(&user, &claim, 101, vec![text("not folded into the file yet")]).await.unwrap();
    assert!(store::is_in_use(&path));
    let report = store::back_up(&path, &files, &backup, "now", false).unwrap();
    assert_eq!((report.sessions, report.events, report.damage.len()), (2, 61, 0));
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(store::back_up(&path, &files, &backup, "now", false).unwrap_err().contains("--force"));
    drop(user);
    assert!(!store::is_in_use(&path));
    let restored = directory.path().join("restored/sessions.db");
    std::fs::create_dir(directory.path().join("restored")).unwrap();
    let mut placed = Vec::new();
    store::restore_backup(&backup, &restored, |name, content| {
        placed.push((name.to_owned(), content.to_vec()));
        Ok(())
    })
    .unwrap();
    assert_eq!(placed, [("folder/note".to_owned(), b"beside".to_vec())]);
    same(&path, &restored).await;
    assert_ne!(lineage(&path).await, lineage(&restored).await);
    assert_eq!(lineage(&path).await, lineage(&path).await);
    // Nobody may be given a position that was shown elsewhere after the backup.
    let claim = open(&restored).claim(&session_id("a")).await.unwrap();
    assert!(claim.next_seq > Seq(1 << 16), "{claim:?}");
    let damage = store::examine(&restored, ExamineDepth::Deep).unwrap().unwrap().damage;
    assert!(damage.is_empty(), "{damage:?}");
}

#[tokio::test]
async fn a_backup_with_names_that_lead_elsewhere_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    filled(&path).await;
    let backup = directory.path().join("backup");
    store::back_up(&path, &[], &backup, "now", false).unwrap();
    // Whoever makes such a file makes its digest, too, or a file of an earlier version.
    let forget = "DELETE FROM backup_facts WHERE name = 'pages_sha256'";
    assert_eq!(Connection::open(&backup).unwrap().execute(forget, []).unwrap(), 1);
    for bad in ["../x", "/x", "a/../../x", ""] {
        let connection = Connection::open(&backup).unwrap();
        connection.execute("DELETE FROM backup_files", []).unwrap();
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let insert = format!("INSERT INTO backup_files VALUES (?1, x'{hash}', x'')");
        connection.execute(&insert, [bad]).unwrap();
        drop(connection);
        assert!(store::verify_backup(&backup).unwrap_err().contains("outside the backup"), "{bad}");
    }
}

#[tokio::test]
async fn damage_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    assert_eq!(store::examine(&path, ExamineDepth::Quick).unwrap(), None);
    filled(&path).await;
    let well = store::examine(&path, ExamineDepth::Deep).unwrap().unwrap();
    assert_eq!((well.sessions, well.events, well.damage), (2, 60, Vec::new()));
    let change = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    change(
        "DROP TRIGGER acp_sessions_described; DROP TRIGGER acp_sessions_appended;
         UPDATE acp_session_events SET body = replace(body, 'a 7', 'a 8') WHERE seq = 7;
         UPDATE acp_sessions SET title = 'x' WHERE id = 'b';
         UPDATE acp_sessions SET last_seq = 5 WHERE id = 'b';
         UPDATE blobs SET text = 'y' || text",
    );
    let damage = store::examine(&path, ExamineDepth::Deep).unwrap().unwrap().damage.join("\n");
    for said in
        ["session a: event 7: its checksum", "session b: its entry", "session b: its counters", "content"]
    {
        assert!(damage.contains(said), "{said}: {damage}");
    }
    std::fs::write(&path, &std::fs::read(&path).unwrap()[..8192]).unwrap();
    let error = store::examine(&path, ExamineDepth::Quick).unwrap_err();
    assert!(error.contains("salvage"), "{error}");
}

fn salvage(directory: &Path, bytes: &[u8], number: usize) -> (PathBuf, Vec<SalvagedSession>) {
    let damaged = directory.join("damaged.db");
    std::fs::write(&damaged, bytes).unwrap();
    let into = directory.join(format!("saved-{number}.db"));
    let saved = store::salvage(&damaged, &into).unwrap();
    assert_eq!(std::fs::read(&damaged).unwrap(), bytes, "the damaged file is only read");
    (into, saved)
}

/// Every event that is shown is as it was written; answers how many there are.
async fn compare(original: &Path, saved: &Path, context: &str) -> usize {
    let (original, saved) = (open(original), open(saved));
    let mut whole = Vec::new();
    for name in ["a", "b"] {
        whole.extend(texts(&original, name).await);
    }
    let mut found = 0;
    for row in saved.list(ListQuery::all(Principal::local())).await.unwrap() {
        let known = ["title a", "title b"].contains(&row.title.as_deref().unwrap_or_default());
        assert!(
            known || row.title.as_deref().is_some_and(|title| title.contains("lost")),
            "{context}: {row:?}"
        );
        for shown in texts(&saved, row.id.as_str()).await {
            let damaged = shown.1.contains("damaged in the store");
            assert!(damaged || whole.contains(&shown), "{context}: {shown:?}");
            found += usize::from(!damaged);
        }
    }
    found
}

#[tokio::test]
async fn what_is_readable_is_saved_from_damaged_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    filled(&path).await;
    let bytes = std::fs::read(&path).unwrap();
    let (into, saved) = salvage(directory.path(), &bytes, 0);
    assert!(saved.iter().all(|session| session.events == 30 && session.missing.is_empty()), "{saved:?}");
    same(&path, &into).await;

    // A header that is gone, and with it the way to everything.
    let mut headless = bytes.clone();
    headless[..100].fill(0);
    let (into, _) = salvage(directory.path(), &headless, 1);
    assert_eq!(compare(&path, &into, "without a header").await, 60);

    // Each page in turn: no more is lost than stood on it.
    for page in 0..bytes.len() / 4096 {
        let mut damaged = bytes.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xa5);
        let (into, saved) = salvage(directory.path(), &damaged, 100 + page);
        let context = format!("page {page}");
        let found = compare(&path, &into, &context).await;
        let missing: u64 =
            saved.iter().flat_map(|session| &session.missing).map(|(from, upto)| upto + 1 - from).sum();
        assert!(
            found >= 1 && found + usize::try_from(missing).unwrap() >= 60,
            "{context}: {found} and {missing}"
        );
        std::fs::remove_file(into).unwrap();
    }
    // And without its end.
    for page in 1..bytes.len() / 4096 {
        let (into, _) = salvage(directory.path(), &bytes[..page * 4096], 1000 + page);
        compare(&path, &into, &format!("truncated after {page} pages")).await;
        std::fs::remove_file(into).unwrap();
    }
}

#[tokio::test]
async fn what_stands_in_the_log_beside_a_file_is_saved_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    filled(&path).await;
    let store = open(&path);
    let claim = store.claim(&session_id("a")).await.unwrap();
    append(&store, &claim, 101, vec![text("newest")]).await.unwrap();
    // As a kill leaves it: the log is not folded into the file.
    let damaged = directory.path().join("killed.db");
    std::fs::copy(&path, &damaged).unwrap();
    std::fs::copy(directory.path().join("sessions.db-wal"), directory.path().join("killed.db-wal")).unwrap();
    let into = directory.path().join("saved.db");
    store::salvage(&damaged, &into).unwrap();
    assert_eq!(texts(&open(&into), "a").await.last().unwrap().1, "newest");
}

#[tokio::test]
async fn what_a_killed_salvage_left_does_not_get_into_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    filled(&path).await;
    let bytes = std::fs::read(&path).unwrap();
    for end in ["", "-wal", "-journal"] {
        std::fs::write(directory.path().join(format!("saved-0.db.part{end}")), "not finished").unwrap();
    }
    let (into, _) = salvage(directory.path(), &bytes, 0);
    // One file, with nothing that belongs to it beside.
    let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let of_it = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("saved-0");
    assert_eq!(names.filter(of_it).collect::<Vec<_>>(), ["saved-0.db"]);
    same(&path, &into).await;
}

/// A page that is damaged in the store is damaged in the backup, and costs what stood on it.
#[tokio::test]
async fn a_backup_of_a_damaged_store_brings_back_what_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    filled(&path).await;
    let bytes = std::fs::read(&path).unwrap();
    let (damaged, backup) = (directory.path().join("damaged.db"), directory.path().join("backup"));
    let restored = directory.path().join("restored.db");
    let mut tried = 0;
    for page in 1..bytes.len() / 4096 {
        let mut content = bytes.clone();
        content[page * 4096..(page + 1) * 4096].fill(0xa5);
        std::fs::write(&damaged, &content).unwrap();
        let report = match store::back_up(&damaged, &[], &backup, "now", true) {
            Ok(report) => report,
            // The list of free pages is damaged: nothing can be added to the file.
            Err(refused) => {
                assert!(refused.contains("ropewalk sessions salvage"), "page {page}: {refused}");
                continue;
            }
        };
        let verified = store::verify_backup(&backup).unwrap();
        assert_eq!(verified, report, "page {page}");
        store::restore_backup(&backup, &restored, |_, _| Ok(())).unwrap();
        let found = compare(&path, &restored, &format!("page {page}")).await;
        assert!(found >= 1, "page {page}: {found}");
        assert!(found == 60 || !report.damage.is_empty(), "page {page}: {found}, and no damage is told");
        if let Ok(claim) = open(&restored).claim(&session_id("a")).await {
            assert!(claim.next_seq > Seq(1 << 16), "page {page}: no position is given twice: {claim:?}");
        }
        assert_ne!(lineage(&path).await, lineage(&restored).await, "page {page}");
        for end in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{end}", restored.display())));
        }
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}

#[tokio::test]
async fn a_backup_that_was_damaged_after_it_was_made_is_refused_wherever_that_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    filled(&path).await;
    let note = directory.path().join("note");
    std::fs::write(&note, "beside").unwrap();
    let files = [BackupFile { name: "note".into(), path: note }];
    let backup = directory.path().join("backup");
    store::back_up(&path, &files, &backup, "now", false).unwrap();
    let whole = std::fs::read(&backup).unwrap();
    // The table of facts has a page of its own; of that page only what it says matters.
    let facts = whole.windows(12).position(|found| found == b"pages_sha256").unwrap() / 4096;
    for page in (0..whole.len() / 4096).filter(|page| *page != facts) {
        for byte in [0, 7, 100, 2000, 4095] {
            let mut damaged = whole.clone();
            damaged[page * 4096 + byte] ^= 4;
            std::fs::write(&backup, &damaged).unwrap();
            assert!(store::verify_backup(&backup).is_err(), "page {page}, byte {byte}");
        }
    }
    for end in [whole.len() - 1, whole.len() / 2] {
        std::fs::write(&backup, &whole[..end]).unwrap();
        assert!(store::verify_backup(&backup).is_err(), "cut at {end}");
    }
    std::fs::write(&backup, &whole).unwrap();
    store::verify_backup(&backup).unwrap();
}
