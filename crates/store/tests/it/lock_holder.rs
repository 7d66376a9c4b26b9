//! A process that is stopped while it holds the lock: others soon learn which one it is, and continue when it does.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use engine::{ListQuery, Principal, Store, StoreError};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use store::{Options, SqliteStore};
use testkit::store_suite::{append, new_session, text, texts};

/// Tells the copy of this program that [`StoppedHolder`] starts which file to lock.
const PATH: &str = "LOCKED_STORE_PATH";
/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);
/// A busy store says so after two seconds; the rest is for busy machines. It was a minute once.
const ANSWER_MAX: Duration = Duration::from_secs(20);

#[test]
#[ignore = "the process that the other tests start and stop"]
fn hold_the_lock() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only way to tell this process from the one that started it"
    )]
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    println!("locked");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    connection.execute_batch("ROLLBACK").unwrap();
}

/// A process that holds the lock, and is stopped.
struct StoppedHolder(Child);

impl Drop for StoppedHolder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl StoppedHolder {
    #[expect(clippy::disallowed_methods, reason = "the child is this very test program")]
    fn stopped(path: &Path) -> Self {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "lock_holder::hold_the_lock"])
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("locked")));
        let holder = Self(child);
        kill_process(holder.pid(), Signal::STOP).unwrap();
        let began = Instant::now();
        while !holder.state().contains(") T ") {
            assert!(began.elapsed() < DEADLINE);
            std::thread::yield_now();
        }
        holder
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn state(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap()
    }

    /// Lets it go on to its end.
    fn finish(mut self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn busy<T>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(StoreError::Busy { reason }) => reason,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("no error"),
    }
}

#[tokio::test]
async fn who_holds_the_lock_is_told_soon_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let store = SqliteStore::open(path.clone(), Options::default());
    let claim = store.create(new_session("s")).await.unwrap();
    append(&store, &claim, 1, vec![text("one")]).await.unwrap();
    let holder = StoppedHolder::stopped(&path);
    let pid = holder.0.id();
    let began = Instant::now();
    for reason in
        [busy(store.create(new_session("t")).await), busy(append(&store, &claim, 2, vec![text("two")]).await)]
    {
        assert!(
            reason.contains(&format!("process {pid} ")) && reason.contains("which is stopped"),
            "{reason}"
        );
        assert!(reason.contains(&format!("kill -CONT {pid}")), "{reason}");
    }
    assert!(began.elapsed() < ANSWER_MAX, "{:?}", began.elapsed());
    let fault = store.check().await.unwrap_err();
    assert!(fault.brief().contains(&format!("process {pid} ")), "{fault}");
    // What is there can be read meanwhile, by those who come too.
    assert_eq!(store.list(ListQuery::all(Principal::local())).await.unwrap().len(), 1);
    let other = SqliteStore::open(path.clone(), Options { warm: true, ..Options::default() });
    assert_eq!(other.list(ListQuery::all(Principal::local())).await.unwrap().len(), 1);
    busy(other.create(new_session("u")).await);
    assert!(began.elapsed() < ANSWER_MAX, "{:?}", began.elapsed());
    holder.finish();
    append(&store, &claim, 2, vec![text("two")]).await.unwrap();
    let said: Vec<_> = texts(&store, "s").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["one", "two"]);
    store.check().await.unwrap();
    other.create(new_session("u")).await.unwrap();
}
