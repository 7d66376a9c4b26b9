//! What the databases do per second, and how long a wake-up takes: `cargo run --release -p store --example database`.
#![expect(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::sql::log::{self, LogEntry};
use store::sql::{Db, PostgresDb, SqliteDb, Statement, migrate};
use testkit::{nats, postgres::Cluster};
use tokio::task::JoinSet;

const LASTING: Duration = Duration::from_secs(3);
const WAKE_UPS: usize = 300;

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let sqlite = Arc::new(SqliteDb::open(&folder.path().join("hub.db")).unwrap());
    let url = cluster.database();
    let postgres = Arc::new(PostgresDb::connect(&url, None).await.unwrap());
    migrate(&*sqlite, "logs", &log::STEPS).await.unwrap();
    migrate(&*postgres, "logs", &log::STEPS).await.unwrap();
    println!("events per second        logs x batch");
    for (logs, batch) in [(1, 1), (8, 1), (32, 1), (1, 50), (8, 50), (32, 50)] {
        let shared = |db: Arc<dyn Db>| (0..logs).map(|_| Arc::clone(&db)).collect::<Vec<_>>();
        let in_sqlite = appended(shared(sqlite.clone()), batch, false).await;
        let in_postgres = appended(shared(postgres.clone()), batch, false).await;
        let told = appended(shared(postgres.clone()), batch, true).await;
        // As many databases as logs: nothing can be committed together.
        let mut alone: Vec<Arc<dyn Db>> = Vec::new();
        for _ in 0..logs {
            alone.push(Arc::new(PostgresDb::connect(&url, None).await.unwrap()));
        }
        let alone = appended(alone, batch, false).await;
        println!(
            "{logs:>3} x {batch:>2}: sqlite {in_sqlite:>6}, postgres {in_postgres:>6}, with wake-ups {told:>6}, \
             each by itself {alone:>6}"
        );
    }
    let bus = nats::Server::start();
    for (name, bus) in [("NOTIFY", None), ("NATS", Some(bus.url()))] {
        let connect = async || Arc::new(PostgresDb::connect(&url, bus.as_deref()).await.unwrap());
        let (from, to) = (connect().await, connect().await);
        tokio::time::sleep(Duration::from_secs(20)).await;
        println!("wake-up by {name}, after the commit: {}", wake_ups(&*from, &*to).await);
    }
}

/// Events per second that are acknowledged, one log for each of these.
async fn appended(databases: Vec<Arc<dyn Db>>, batch: u64, tell: bool) -> u64 {
    let mut writers = JoinSet::new();
    let start = Instant::now();
    for (number, db) in databases.into_iter().enumerate() {
        writers.spawn(async move {
            let name = format!("log {number}");
            let found = db.run(vec![log::take(&name)], Vec::new()).await.unwrap().remove(0);
            let (epoch, mut head) = (found.rows[0].count(0).unwrap(), found.rows[0].count(1).unwrap());
            let mut count = 0;
            while start.elapsed() < LASTING {
                let entry = |seq| LogEntry { seq, kind: None, body: "x".repeat(300) };
                let entries = (head + 1..=head + batch).map(entry).collect();
                let topics = if tell { vec![name.clone()] } else { Vec::new() };
                db.run(log::append(&name, epoch, head, entries), topics).await.unwrap();
                head += batch;
                count += batch;
            }
            count
        });
    }
    let count: u64 = writers.join_all().await.iter().sum();
    count * 1000 / u64::try_from(start.elapsed().as_millis()).unwrap().max(1)
}

async fn wake_ups(from: &dyn Db, to: &dyn Db) -> String {
    let mut heard = to.subscribe();
    let mut delays = Vec::new();
    for number in 0..WAKE_UPS {
        let topic = format!("topic {number}");
        from.run(vec![Statement::new("SELECT 1", [])], vec![topic.clone()]).await.unwrap();
        let committed = Instant::now();
        while *heard.recv().await.unwrap() != *topic {}
        delays.push(committed.elapsed());
    }
    delays.sort();
    format!("p50 {:?}, p99 {:?}", delays[WAKE_UPS / 2], delays[WAKE_UPS * 99 / 100])
}
