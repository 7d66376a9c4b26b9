//! Measures the SQLite store: appends, reads, start-up, memory. `cargo run --release --example measure`
//! with an optional number of events; the file is made in the current directory and removed.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a measurement fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use engine::{
    Body, Epoch, Event, EventBatch, MessageId, NewSession, Origin, PageRequest, Principal, Seq, SessionId,
    Store, Timestamp, TurnId,
};
use store::{Options, SqliteStore};

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(1_000_000, |count| count.parse().expect("a number"));
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("sessions.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(path, count));
}

async fn measure(path: PathBuf, count: u64) {
    let id = SessionId::random();
    report_memory("before");
    let started = Instant::now();
    let store = SqliteStore::open(path.clone(), Options::default());
    println!("open returned after {:?}", started.elapsed());
    let claim = store.create(new_session(&id)).await.unwrap();
    println!("first create, new file: {:?}", started.elapsed());

    let mut next = 1;
    for (size, sync, share) in
        [(256, false, 1), (64, false, 4), (16, false, 10), (1, false, 50), (256, true, 20)]
    {
        let total = count / share;
        let (started, cpu) = (Instant::now(), cpu_seconds());
        let end = next + total;
        while next < end {
            append(&store, &id, claim.epoch, next, size, sync).await;
            next += size;
        }
        let took = started.elapsed();
        let busy = cpu_seconds() - cpu;
        let rate = total as f64 / took.as_secs_f64();
        println!(
            "append in batches of {size}, sync {sync}: {rate:.0} events/s ({total} in {took:?}, {busy:.2} s of CPU)"
        );
    }
    report_memory("after appending");
    read_all(&store, &id).await;
    report_memory("after reading");
    let bytes = std::fs::metadata(&path).unwrap().len();
    println!("file: {} MiB, {} bytes per event", bytes >> 20, bytes / next);
    store.release(&id, claim.epoch).await.unwrap();
    let started = Instant::now();
    drop(store);
    println!("close: {:?}", started.elapsed());
    reopen(path, &id).await;
}

async fn append(store: &SqliteStore, id: &SessionId, epoch: Epoch, first: u64, size: u64, sync: bool) {
    let events = (first..first + size).map(|seq| Arc::new(event(seq))).collect();
    store.append(EventBatch { session: id.clone(), epoch, events, sync }).await.unwrap();
}

async fn read_all(store: &SqliteStore, id: &SessionId) {
    let started = Instant::now();
    let (mut after, mut total) = (Seq::START, 0);
    loop {
        let page = store.read(id, after, PageRequest::USUAL).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        total += page.len();
    }
    let took = started.elapsed();
    println!("read {total} events in {took:?}: {:.2} s per million", took.as_secs_f64() * 1e6 / total as f64);
}

async fn reopen(path: PathBuf, id: &SessionId) {
    for _ in 0..3 {
        let started = Instant::now();
        let store = SqliteStore::open(path.clone(), Options::default());
        store.find(id).await.unwrap();
        let found = started.elapsed();
        store.claim(id).await.unwrap();
        println!("existing file: first find after {found:?}, claim after {:?}", started.elapsed());
    }
    let started = Instant::now();
    let plain = rusqlite::Connection::open(&path).unwrap();
    let rows: i64 = plain.query_row("SELECT count(*) FROM acp_sessions", [], |row| row.get(0)).unwrap();
    println!("plain SQLite, first query of {rows} row: {:?}", started.elapsed());
    let store = SqliteStore::open(path, Options::default());
    let started = Instant::now();
    store.delete(id).await.unwrap();
    println!("delete: {:?}", started.elapsed());
}

fn new_session(id: &SessionId) -> NewSession {
    NewSession {
        id: id.clone(),
        owner: Principal::local(),
        cwd: "/home".into(),
        roots: Vec::new(),
        parent: None,
        source: "run".into(),
        created_at: Timestamp(1),
        title: None,
    }
}

fn event(seq: u64) -> Event {
    Event {
        seq: Seq(seq),
        at: Timestamp(1_760_000_000_000 + i64::try_from(seq).unwrap()),
        origin: Origin::Agent,
        turn: Some(TurnId(1)),
        body: Body::Text { message: MessageId(1), text: "a few words of text, ".into() },
        relayed: None,
    }
}

/// What all threads have used so far: tells a slow program from a busy machine.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let used = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    used.filter_map(|line| line.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e9
}

fn report_memory(when: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("VmRSS: unknown");
    println!("{when}: {line}");
}
