//! A process that is killed in the middle of everything: what it was told is written, is there.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use engine::{Body, Seq, Store};
use store::{Options, SqliteStore};
use testkit::store_suite::{append, new_session, session_id, text, texts};

/// Tells the copy of this program that [`victim`] starts where to write.
const PATH: &str = "KILLED_STORE_PATH";
const ROUNDS: usize = 8;

#[tokio::test]
#[ignore = "the process that `what_was_acknowledged_survives_a_kill` starts and kills"]
async fn append_until_killed() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only way to tell this process from the one that started it"
    )]
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let store = SqliteStore::open(PathBuf::from(path), Options::default());
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

#[expect(clippy::disallowed_methods, reason = "the child is this very test program")]
fn victim(path: &Path) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "append_until_killed"])
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
        let mut child = victim(&path);
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
        let page = store.read(&session_id("s"), after, engine::Page::USUAL).await.unwrap();
        assert!(page.iter().zip(after.0 + 1..).all(|(event, seq)| event.seq.0 == seq), "a gap after {after}");
        after = page.last().unwrap().seq;
    }
    assert_eq!(claim.next_seq, after.next());
    append(&store, &claim, after.0 + 1, vec![text("and on")]).await.unwrap();
    assert!(!texts(&store, "s").await.is_empty());
}
