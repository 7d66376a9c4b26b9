//! Everything that a process was told is written survives when the process is killed at any moment.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use engine::{Body, ListQuery, Principal, Seq, SessionId, Store};
use store::{Options, SqliteStore};
use testkit::store_suite::{append, event, new_session, session_id, text, texts};

/// Tells the copy of this program that [`victim`] starts where to write.
const PATH: &str = "KILLED_STORE_PATH";
const ROUNDS: usize = 8;

#[expect(
    clippy::disallowed_methods,
    reason = "the only way to tell this process from the one that started it"
)]
fn victims_store() -> Option<SqliteStore> {
    let path = std::env::var_os(PATH)?;
    Some(SqliteStore::open(PathBuf::from(path), Options::default()))
}

#[tokio::test]
#[ignore = "the process that `what_was_acknowledged_survives_a_kill` starts and kills"]
async fn append_until_killed() {
    let Some(store) = victims_store() else { return };
    let claim = match store.claim(&session_id("s")).await {
        Ok(claim) => claim,
        Err(_) => store.create(new_session("s")).await.unwrap(),
    };
    let big = "big ".repeat(10_000);
    let mut next = claim.next_seq.0;
    for round in 0.. {
        let long = if round % 7 == 0 { text(&format!("{round} {big}")) } else { text("short") };
        append(&store, &claim, next, vec![Body::TurnStarted, long]).await.unwrap();
        next += 2;
        let mut out = std::io::stdout().lock();
        writeln!(out, "written {}", next - 1).unwrap();
        out.flush().unwrap();
    }
}

/// Events of each session that is imported: several pieces.
const IMPORTED: u64 = 1500;

#[tokio::test]
#[ignore = "the process that `an_import_that_is_killed_is_whole_or_not_there` starts and kills"]
async fn import_until_killed() {
    let Some(store) = victims_store() else { return };
    let events: Vec<_> = (1..=IMPORTED).map(|seq| event(seq, text("imported"))).collect();
    loop {
        let id = SessionId::random();
        store.import(new_session(id.as_str()), events.clone()).await.unwrap();
        let id = SessionId::random();
        let row = store.list(ListQuery::all(Principal::local())).await.unwrap().remove(0);
        store.fork(&row.id, new_session(id.as_str())).await.unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "written 2").unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test]
async fn an_import_that_is_killed_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    for round in 0..ROUNDS {
        let mut child = victim(&path, "killed_process::import_until_killed");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        // Killed at another moment in each round: after so many imports, and a part of the next.
        for _ in 0..=round % 3 {
            while !line.contains("written") {
                line.clear();
                assert!(output.read_line(&mut line).unwrap() > 0);
            }
            line.clear();
        }
        let piece = |count: i64| count % 512 == 0 && count % i64::try_from(IMPORTED).unwrap() != 0;
        let connection = rusqlite::Connection::open(&path).unwrap();
        let newest = "SELECT count(*) FROM acp_session_events WHERE session = (SELECT max(session) FROM acp_session_events)";
        // At best in the middle of a session; a machine that is too slow to look there kills elsewhere.
        for _ in 0..200 {
            let count: i64 = connection.query_row(newest, [], |row| row.get(0)).unwrap();
            if piece(count) {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let store = SqliteStore::open(path.clone(), Options::default());
    let rows = store.list(ListQuery::all(Principal::local())).await.unwrap();
    assert!(rows.len() >= ROUNDS);
    for row in rows {
        assert_eq!(row.last_seq, Seq(IMPORTED));
        let mut after = Seq::START;
        while after < row.last_seq {
            let page = store.read(&row.id, after, engine::PageRequest::USUAL).await.unwrap();
            assert!(page.iter().all(|event| event.body == text("imported")), "whole");
            after = page.last().unwrap().seq;
        }
    }
    // What was cut short is swept; a deletion is answered after that.
    store.create(new_session("t")).await.unwrap();
    store.delete(&session_id("t")).await.unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let orphans =
        "SELECT count(*) FROM acp_session_events WHERE session NOT IN (SELECT key FROM acp_sessions)";
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((count(orphans), count("SELECT count(*) FROM unfinished")), (0, 0));
}

#[expect(clippy::disallowed_methods, reason = "the child is this very test program")]
fn victim(path: &Path, test: &str) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", test])
        .env(PATH, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let mut last = 0;
    for round in 1..=ROUNDS {
        let mut child = victim(&path, "killed_process::append_until_killed");
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut seen = 0;
        for line in output.lines() {
            let line = line.unwrap();
            let Some((_, number)) = line.split_once("written ") else {
                continue;
            };
            last = number.parse().unwrap();
            seen += 1;
            if seen == round * 20 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= round * 20);
    }
    let store = SqliteStore::open(path, Options::default());
    let claim = store.claim(&session_id("s")).await.unwrap();
    assert!(claim.next_seq > Seq(last));
    assert_eq!(claim.epoch.0, u64::try_from(ROUNDS).unwrap() + 1);
    let mut after = Seq::START;
    while after < claim.row.last_seq {
        let page = store.read(&session_id("s"), after, engine::PageRequest::USUAL).await.unwrap();
        assert!(page.iter().zip(after.0 + 1..).all(|(event, seq)| event.seq.0 == seq), "a gap after {after}");
        after = page.last().unwrap().seq;
    }
    assert_eq!(claim.next_seq, after.next());
    append(&store, &claim, after.0 + 1, vec![text("and on")]).await.unwrap();
    assert!(!texts(&store, "s").await.is_empty());
}
