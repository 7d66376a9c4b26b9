//! A file that is damaged: what is shown is what was written, or is said to be damaged, and nothing else.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    Body, Content, Event, EventBatch, ListQuery, NewSession, NoticeLevel, PageRequest, Principal, Seq,
    SessionRow, Stop, Store, StoreError, Usage,
};
use rusqlite::Connection;
use store::{Options, SqliteStore};
use testkit::store_suite::{append, event, new_session, session_id, text, texts};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path.to_owned(), Options::default())
}

/// A folder in memory where there is one: these tests copy a file a thousand times.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// What was written, to compare with.
struct WrittenSessions {
    bytes: Vec<u8>,
    rows: BTreeMap<String, SessionRow>,
    events: BTreeMap<String, Vec<Arc<Event>>>,
}

const NAMES: [&str; 3] = ["first", "second", "third"];

async fn all_events(store: &dyn Store, name: &str) -> Result<Vec<Arc<Event>>, StoreError> {
    let mut events: Vec<Arc<Event>> = Vec::new();
    loop {
        let after = events.last().map_or(Seq::START, |event| event.seq);
        let page =
            store.read(&session_id(name), after, PageRequest { count_max: 7, ..PageRequest::USUAL }).await?;
        let Some(last) = page.last() else { return Ok(events) };
        assert!(last.seq > after, "positions ascend");
        events.extend(page);
    }
}

/// A few sessions with all kinds of things in them.
async fn written(directory: &Path) -> WrittenSessions {
    let path = directory.join("written.db");
    let store = open(&path);
    for name in NAMES {
        let title = Some(format!("the {name} title").into());
        let claim = store.create(NewSession { title, ..new_session(name) }).await.unwrap();
        let mut bodies = vec![Body::TurnStarted];
        for number in 0..12 {
            bodies.push(text(&format!("{name} says {number} {}", "and so on ".repeat(number))));
        }
        bodies.push(Body::UserMessage { content: vec![Content::text(name.repeat(4000))] });
        bodies.push(Body::TurnEnded { stop: Stop::EndTurn, error: None });
        append(&store, &claim, 1, bodies).await.unwrap();
        // As after a power cut: positions that nobody was given.
        append(&store, &claim, 40, vec![text("after the gap"), Body::Title { title: name.into() }])
            .await
            .unwrap();
        store.release(&session_id(name), claim.epoch).await.unwrap();
    }
    let mut rows = BTreeMap::new();
    let mut events = BTreeMap::new();
    for name in NAMES {
        rows.insert(name.to_owned(), store.find(&session_id(name)).await.unwrap());
        events.insert(name.to_owned(), all_events(&store, name).await.unwrap());
    }
    drop(store);
    WrittenSessions { bytes: std::fs::read(&path).unwrap(), rows, events }
}

fn is_damage(event: &Event) -> bool {
    matches!(&event.body, Body::Notice { level: NoticeLevel::Error | NoticeLevel::Damage, text } if text.contains("damaged"))
}

/// Compares what the store shows of a session with what was written. Answers how many events are lost.
fn compare_events(written: &WrittenSessions, name: &str, shown: &[Arc<Event>], context: &str) -> usize {
    let mut lost = 0;
    let mut shown = shown.iter().peekable();
    for event in &written.events[name] {
        match shown.peek() {
            Some(found) if found.seq == event.seq && found == &event => drop(shown.next()),
            // A notice at a later position stands for everything before it.
            Some(found) if is_damage(found) && found.seq >= event.seq => {
                lost += 1;
                if found.seq == event.seq {
                    shown.next();
                }
            }
            found => panic!("{context}: {name}: {event:?} is shown as {found:?}"),
        }
        while shown.peek().is_some_and(|found| is_damage(found) && found.seq <= event.seq) {
            shown.next();
        }
    }
    assert!(shown.all(|found| is_damage(found)), "{context}: {name}: something was never written");
    lost
}

fn compare_row(written: &WrittenSessions, row: &SessionRow, context: &str) {
    let Some(original) = written.rows.get(row.id.as_str()) else {
        assert!(row.title.as_deref().is_some_and(|title| title.contains("damaged")), "{context}: {row:?}");
        return;
    };
    let damaged = row.title.as_deref().is_some_and(|title| title.contains("damaged"));
    let same = (&row.title, &row.cwd, &row.roots, row.created_at)
        == (&original.title, &original.cwd, &original.roots, original.created_at);
    assert!(same || (damaged && row.cwd == Path::new("/")), "{context}: {row:?}");
}

/// Lists, finds and reads everything. Answers how many events are lost; all, where the file is refused.
async fn examine(written: &WrittenSessions, store: &dyn Store, context: &str) -> usize {
    let all: usize = written.events.values().map(Vec::len).sum();
    let listed = match store.list(ListQuery::all(Principal::local())).await {
        Ok(listed) => listed,
        Err(StoreError::Unavailable { .. } | StoreError::Damaged { .. }) => return all,
        Err(error) => panic!("{context}: {error}"),
    };
    for row in &listed {
        compare_row(written, row, context);
    }
    let mut lost = 0;
    for name in NAMES {
        let found = store.find(&session_id(name)).await;
        match &found {
            Ok(row) => compare_row(written, row, context),
            Err(StoreError::Damaged { .. }) => {}
            // Its id is what is damaged: then there is a session that says so.
            Err(StoreError::NotFound)
                if listed
                    .iter()
                    .any(|row| row.title.as_deref().is_some_and(|title| title.contains("damaged"))) => {}
            Err(error) => panic!("{context}: {name}: {error}"),
        }
        let shown = match all_events(store, name).await {
            Ok(shown) => shown,
            Err(StoreError::Damaged { .. } | StoreError::NotFound) if found.is_err() => {
                lost += written.events[name].len();
                continue;
            }
            Err(error) => panic!("{context}: {name}: {error}"),
        };
        lost += compare_events(written, name, &shown, context);
    }
    lost
}

/// Goes on with every session that lets somebody.
async fn go_on(written: &WrittenSessions, store: &dyn Store, context: &str) {
    for name in NAMES {
        let Ok(claim) = store.claim(&session_id(name)).await else { continue };
        assert!(claim.next_seq > written.rows[name].last_seq, "{context}: a position is given twice");
        let more = event(claim.next_seq.0, text("more"));
        let batch = EventBatch {
            session: claim.row.id.clone(),
            epoch: claim.epoch,
            events: vec![Arc::clone(&more)],
            sync: false,
        };
        if store.append(batch).await.is_err() {
            continue;
        }
        let Ok(mut shown) = all_events(store, name).await else { continue };
        let last = shown.pop();
        assert!(
            last.as_ref() == Some(&more) || last.is_some_and(|last| is_damage(&last)),
            "{context}: {name}"
        );
        compare_events(written, name, &shown, context);
    }
}

/// Tries every so many bytes of the file, each changed in another way.
async fn flip(part: usize, parts: usize) {
    let directory = folder();
    let written = written(directory.path()).await;
    let path = directory.path().join("sessions.db");
    let all: usize = written.events.values().map(Vec::len).sum();
    let (mut refused, mut unharmed, mut tried) = (0, 0, 0);
    for (number, at) in (0..written.bytes.len()).step_by(64).enumerate() {
        // Not always the same byte of a row.
        let at = at + number * 7 % 64;
        if number % parts != part || at >= written.bytes.len() {
            continue;
        }
        let mask = if number % 3 == 0 { 0xff } else { 1 << (number % 8) };
        let mut bytes = written.bytes.clone();
        bytes[at] ^= mask;
        write_anew(&path, &bytes);
        let context = format!("byte {at} changed by {mask:#x}");
        let store = open(&path);
        let lost = examine(&written, &store, &context).await;
        go_on(&written, &store, &context).await;
        drop(store);
        tried += 1;
        refused += usize::from(lost == all);
        unharmed += usize::from(lost == 0);
    }
    println!("{tried} flips: {refused} lost everything, {unharmed} nothing");
    assert!(refused * 10 < tried, "one bit seldom costs everything: {refused} of {tried}");
}

fn write_anew(path: &Path, bytes: &[u8]) {
    for beside in ["sessions.db-wal", "sessions.db-shm"] {
        drop(std::fs::remove_file(path.with_file_name(beside)));
    }
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_flipped_byte_is_never_shown_as_true_1() {
    flip(0, 3).await;
}

#[tokio::test]
async fn a_flipped_byte_is_never_shown_as_true_2() {
    flip(1, 3).await;
}

#[tokio::test]
async fn a_flipped_byte_is_never_shown_as_true_3() {
    flip(2, 3).await;
}

#[tokio::test]
async fn a_truncated_or_zeroed_page_is_never_shown_as_something_else() {
    let directory = folder();
    let written = written(directory.path()).await;
    let path = directory.path().join("sessions.db");
    for page in 0..written.bytes.len() / 4096 {
        write_anew(&path, &written.bytes[..page * 4096]);
        let context = format!("truncated after {page} pages");
        let store = open(&path);
        if page > 0 {
            examine(&written, &store, &context).await;
        }
        drop(store);
        let mut bytes = written.bytes.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0);
        write_anew(&path, &bytes);
        let context = format!("page {page} is zero");
        let store = open(&path);
        examine(&written, &store, &context).await;
        go_on(&written, &store, &context).await;
    }
}

fn change(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

async fn one_session(directory: &Path) -> PathBuf {
    let path = directory.join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("a"), text("b"), text("c"), text("d")]).await.unwrap();
    path
}

#[tokio::test]
async fn a_damaged_event_spoils_itself_and_says_so_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_session(directory.path()).await;
    for column in ["at = at + 1", "turn = 7", "origin = '\"engine\"'", "kind = 'thought'", "version = 0"] {
        let path = directory.path().join("changed.db");
        std::fs::copy(directory.path().join("sessions.db"), &path).unwrap();
        change(&path, &format!("UPDATE acp_session_events SET {column} WHERE seq = 2"));
        let shown = texts(&open(&path), "s").await;
        let seqs: Vec<_> = shown.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4], "{column}");
        assert!(shown[1].1.contains("damaged") && shown[1].1.contains("event 2"), "{column}: {}", shown[1].1);
        assert_eq!((&*shown[0].1, &*shown[2].1), ("a", "c"));
    }
    change(&path, "UPDATE acp_session_events SET body = replace(body, 'b', 'x') WHERE seq = 2");
    let store = open(&path);
    assert!(texts(&store, "s").await[1].1.contains("damaged"));
    // It can be gone on with, and copied: the copy says the same.
    let claim = store.claim(&session_id("s")).await.unwrap();
    append(&store, &claim, claim.next_seq.0, vec![text("e")]).await.unwrap();
    store.fork(&session_id("s"), new_session("f")).await.unwrap();
    let copied = texts(&store, "f").await;
    assert!(copied[1].1.contains("damaged") && copied[4].1 == "e", "{copied:?}");
}

#[tokio::test]
async fn an_event_that_is_gone_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_session(directory.path()).await;
    change(&path, "DELETE FROM acp_session_events WHERE seq IN (2, 3)");
    let shown = texts(&open(&path), "s").await;
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown[1].0 == 3 && shown[1].1.contains("events 2 to 3"), "{shown:?}");
    change(&path, "DELETE FROM acp_session_events WHERE seq = 4");
    let shown = texts(&open(&path), "s").await;
    assert!(shown[1].0 == 4 && shown[1].1.contains("events 2 to 4"), "{shown:?}");
    change(&path, "UPDATE acp_session_events SET session = 99");
    let shown = texts(&open(&path), "s").await;
    assert!(shown.len() == 1 && shown[0].1.contains("events 1 to 4"), "{shown:?}");
}

/// Where the log may have lost a decision, as recovery and as everybody else reads it.
async fn lost_decisions(path: &Path) -> (Vec<u64>, Vec<u64>) {
    let store = open(path);
    let lost = |events: Vec<Arc<Event>>| {
        let is_lost =
            |event: &&Arc<Event>| matches!(event.body, Body::Notice { level: NoticeLevel::Damage, .. });
        events.iter().filter(is_lost).map(|event| event.seq.0).collect()
    };
    let outline = store.read(&session_id("s"), Seq::START, PageRequest::OUTLINE).await.unwrap();
    (lost(outline), lost(all_events(&store, "s").await.unwrap()))
}

#[tokio::test]
async fn an_event_that_may_have_been_a_decision_is_missed_by_recovery_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    let approval = Body::SettingChanged { id: "approval".into(), value: "suggest".into() };
    let first = vec![Body::TurnStarted, text("a"), approval.clone(), text("b")];
    append(&store, &claim, 1, first).await.unwrap();
    append(&store, &claim, 40, vec![text("c"), approval, text("d")]).await.unwrap();
    drop(store);
    for (change_made, expected) in [
        ("UPDATE acp_session_events SET body = replace(body, 'suggest', 'saggest') WHERE seq = 3", vec![3]),
        ("UPDATE acp_session_events SET kind = 'setting_chbnged' WHERE seq = 3", vec![3]),
        ("UPDATE acp_session_events SET at = at + 1 WHERE seq IN (3, 41)", vec![3, 41]),
        ("DELETE FROM acp_session_events WHERE seq = 3", vec![3]),
        ("DELETE FROM acp_session_events WHERE seq = 41", vec![41]),
        ("DELETE FROM acp_session_events WHERE seq >= 41", vec![42]),
        // It is gone, so nobody knows what it was.
        ("DELETE FROM acp_session_events WHERE seq = 4", vec![4]),
        ("DELETE FROM acp_session_events WHERE seq = 42", vec![42]),
        // Its kind can be read: it decided nothing.
        ("UPDATE acp_session_events SET body = replace(body, 'b', 'x') WHERE seq = 4", Vec::new()),
        ("UPDATE acp_session_events SET at = at + 1 WHERE seq = 1", Vec::new()),
        (
            "UPDATE acp_session_events SET at = at + 1 WHERE seq = 4; DELETE FROM acp_session_events WHERE seq = 41",
            vec![41],
        ),
    ] {
        let changed = directory.path().join("changed.db");
        std::fs::copy(&path, &changed).unwrap();
        change(&changed, change_made);
        assert_eq!(lost_decisions(&changed).await, (expected.clone(), expected), "{change_made}");
    }
}

#[tokio::test]
async fn damaged_content_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text(&"big ".repeat(10_000)), text("b")]).await.unwrap();
    drop(store);
    change(&path, "UPDATE blobs SET text = replace(text, 'big', 'bag')");
    let shown = texts(&open(&path), "s").await;
    assert!(shown[0].1.contains("damaged") && shown[1].1 == "b", "{}", shown[0].1);
}

#[tokio::test]
async fn a_damaged_entry_is_not_shown_and_its_events_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_session(directory.path()).await;
    change(
        &path,
        "DROP TRIGGER acp_sessions_described; UPDATE acp_sessions SET title = 'wrong', cwd = '/wrong'",
    );
    let store = open(&path);
    let rows = store.list(ListQuery::all(Principal::local())).await.unwrap();
    let title = rows[0].title.as_deref().unwrap();
    assert!(title.contains("damaged"), "{title}");
    assert_eq!(rows[0].cwd, Path::new("/"));
    let refused = store.claim(&session_id("s")).await;
    assert!(
        matches!(&refused, Err(StoreError::Damaged { reason }) if reason.contains("export")),
        "{refused:?}"
    );
    assert!(matches!(store.rename(&session_id("s"), "new").await, Err(StoreError::Damaged { .. })));
    assert_eq!(texts(&store, "s").await[0].1, "a");
}

#[tokio::test]
async fn a_damaged_count_is_found_again_and_no_position_is_given_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_session(directory.path()).await;
    change(
        &path,
        "DROP TRIGGER acp_sessions_appended; UPDATE acp_sessions SET last_seq = 1, epoch = 0, busy = 1",
    );
    let store = open(&path);
    assert_eq!(texts(&store, "s").await.len(), 4);
    assert_eq!(store.find(&session_id("s")).await.unwrap().last_seq, Seq(4));
    let claim = store.claim(&session_id("s")).await.unwrap();
    assert!(claim.next_seq > Seq(4 + (1 << 16)), "{claim:?}");
    append(&store, &claim, claim.next_seq.0, vec![text("e")]).await.unwrap();
    let shown = texts(&store, "s").await;
    assert_eq!(shown.last().unwrap().1, "e");
    assert!(shown.iter().all(|(_, text)| !text.contains("damaged")), "{shown:?}");
}

#[tokio::test]
async fn positions_that_were_never_given_are_not_missed_also_beside_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_session(directory.path()).await;
    let store = open(&path);
    let claim = store.claim(&session_id("s")).await.unwrap();
    append(&store, &claim, 5 + (1 << 28), vec![text("after")]).await.unwrap();
    drop(store);
    change(&path, "UPDATE acp_session_events SET body = replace(body, 'd', 'x') WHERE seq = 4");
    let shown = texts(&open(&path), "s").await;
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert!(shown[3].0 == 4 && shown[3].1.contains("event 4:"), "{shown:?}");
    assert_eq!(shown[4], (5 + (1 << 28), "after".to_owned()));
}

/// Whoever mirrors the store takes another lineage for a restored backup.
#[tokio::test]
async fn a_damaged_lineage_is_noticed_and_is_never_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_session(directory.path()).await;
    let lineage = open(&path).lineage().await.unwrap().unwrap();
    assert_eq!(lineage.len(), 32);
    let flipped = (1..=48).map(|at| {
        let other = "CASE substr(value, AT, 1) WHEN '0' THEN '1' ELSE '0' END";
        let value = format!("substr(value, 1, AT - 1) || {other} || substr(value, AT + 1)");
        format!("UPDATE meta SET value = {}", value.replace("AT", &at.to_string()))
    });
    let others = [
        "UPDATE meta SET value = substr(value, 1, 40)",
        "UPDATE meta SET name = 'mineage'",
        "DELETE FROM meta",
    ];
    for damage in flipped.chain(others.map(str::to_owned)) {
        change(&path, "CREATE TABLE kept AS SELECT * FROM meta");
        change(&path, &damage);
        let store = open(&path);
        let error = store.lineage().await.unwrap_err().to_string();
        assert!(error.contains("lineage"), "{damage}: {error}");
        assert!(!texts(&store, "s").await.is_empty(), "{damage}");
        let found = store::examine(&path, store::ExamineDepth::Quick).unwrap().unwrap().damage;
        assert!(found.len() == 1 && found[0].contains("lineage"), "{damage}: {found:?}");
        drop(store);
        change(&path, "DELETE FROM meta; INSERT INTO meta SELECT * FROM kept; DROP TABLE kept");
        assert_eq!(open(&path).lineage().await.unwrap().unwrap(), lineage);
    }
    // One of an earlier version has no checksum, and gets it.
    change(&path, "UPDATE meta SET value = substr(value, 1, 32)");
    assert!(store::examine(&path, store::ExamineDepth::Quick).unwrap().unwrap().damage.is_empty());
    assert_eq!(open(&path).lineage().await.unwrap().unwrap(), lineage);
    // A backup of a store whose lineage is damaged is restored with another.
    change(&path, "DELETE FROM meta");
    let backup = directory.path().join("backup");
    let report = store::back_up(&path, &[], &backup, "now", false).unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let restored = directory.path().join("restored.db");
    store::restore_backup(&backup, &restored, |_, _| Ok(())).unwrap();
    assert_ne!(open(&restored).lineage().await.unwrap().unwrap(), lineage);
}

/// Two losses make a session do more than before, and are not the agent's to decide: what it spent, and a `/clear`.
#[tokio::test]
async fn a_lost_cost_or_clear_is_told_in_its_place() {
    let directory = folder();
    let path = directory.path().join("sessions.db");
    let store = open(&path);
    let claim = store.create(new_session("s")).await.unwrap();
    let usage = Usage { cost_usd: 3.0, ..Usage::default() };
    let bodies = vec![text("one"), Body::Usage(usage), text("two"), Body::Cleared, text("three")];
    append(&store, &claim, 1, bodies).await.unwrap();
    drop(store);
    let change = "UPDATE acp_session_events SET at = at + 1 WHERE seq IN (2, 4)";
    assert_eq!(Connection::open(&path).unwrap().execute(change, []).unwrap(), 2);
    let shown = texts(&open(&path), "s").await;
    let told = |nth: usize, words: &[&str]| words.iter().all(|words| shown[nth].1.contains(words));
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert!(told(1, &["damaged in the store", "may have cost more than is shown"]), "{shown:?}");
    assert!(!told(1, &["/clear"]) && !told(3, &["cost"]), "{shown:?}");
    assert!(told(3, &["damaged in the store", "Run /clear again"]), "{shown:?}");
    // A kind that cannot be read may have been either.
    let change = "UPDATE acp_session_events SET kind = 'x' WHERE seq = 3";
    assert_eq!(Connection::open(&path).unwrap().execute(change, []).unwrap(), 1);
    let shown = texts(&open(&path), "s").await;
    let told = shown.iter().any(|(_, text)| text.contains("cost more") && text.contains("/clear"));
    assert!(told, "{shown:?}");
}
