//! Several processes on one PostgreSQL that dies, stalls and comes back: nothing acknowledged is lost or doubled,
//! nobody hangs, and everybody is woken.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use store::sql::log::{self, LogEntry};
use store::sql::{Db, DbError, EVERYWHERE, PostgresDb, Statement, migrate};
use testkit::postgres::Cluster;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(30);

async fn connect(url: &str) -> Arc<PostgresDb> {
    Arc::new(PostgresDb::connect(url, None).await.unwrap())
}

fn one() -> Vec<Statement> {
    vec![Statement::new("SELECT 1", [])]
}

fn touch(number: i64) -> Vec<Statement> {
    vec![Statement::new("INSERT INTO touched (number) VALUES ($1)", [number.into()])]
}

async fn with_table(db: &PostgresDb) {
    migrate(db, "touched", &["CREATE TABLE touched (number BIGINT NOT NULL)"]).await.unwrap();
}

/// Until it works again, by itself.
async fn until_back(db: &PostgresDb) {
    let until = Instant::now() + SOON;
    while let Err(error) = db.run(one(), Vec::new()).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn refused_soon(done: Result<Vec<store::sql::StatementResult>, DbError>, since: Instant) {
    assert!(matches!(done, Err(DbError::Unavailable { .. })), "{done:?}");
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
}

#[tokio::test]
async fn while_the_server_is_away_work_is_refused_soon_and_then_done_again() {
    let mut cluster = Cluster::start();
    let url = cluster.database();
    let db = connect(&url).await;
    with_table(&db).await;
    for kill in [false, true] {
        if kill {
            cluster.kill()
        } else {
            cluster.stop()
        }
        for _ in 0..2 {
            let since = Instant::now();
            refused_soon(db.run(touch(1), Vec::new()).await, since);
            let since = Instant::now();
            refused_soon(db.run(one(), Vec::new()).await, since);
        }
        cluster.restart();
        until_back(&db).await;
        db.run(touch(2), Vec::new()).await.unwrap();
    }
    let found = db.run(vec![Statement::new("SELECT number FROM touched", [])], Vec::new()).await.unwrap();
    assert_eq!(found[0].rows.iter().map(|row| row.int(0).unwrap()).collect::<Vec<_>>(), [2, 2]);
    let nobody = PostgresDb::connect("postgres://hub:secret@127.0.0.1:1/hub", None).await.err().unwrap();
    assert!(
        matches!(nobody, DbError::Unavailable { .. }) && !nobody.to_string().contains("secret"),
        "{nobody}"
    );
}

/// Appends to its own log until told to stop, and begins anew after every trouble. Answers with what it was told
/// is written.
async fn writer(db: Arc<PostgresDb>, name: String, stop: Arc<AtomicBool>) -> Vec<(u64, String)> {
    let mut acknowledged = Vec::new();
    let mut attempt = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(found) = db.run(vec![log::take(&name)], Vec::new()).await else { continue };
        let (epoch, mut head) = (found[0].rows[0].count(0).unwrap(), found[0].rows[0].count(1).unwrap());
        while !stop.load(Ordering::Relaxed) {
            attempt += 1;
            let entry = |seq| LogEntry { seq, kind: None, body: format!("attempt {attempt} at {seq}") };
            let entries = vec![entry(head + 1), entry(head + 2)];
            match db.run(log::append(&name, epoch, head, entries.clone()), Vec::new()).await {
                Ok(_) => acknowledged.extend(entries.into_iter().map(|entry| (entry.seq, entry.body))),
                Err(DbError::Unavailable { .. }) => break,
                Err(error) => panic!("{error}"),
            }
            head += 2;
        }
    }
    acknowledged
}

#[tokio::test]
async fn what_was_acknowledged_survives_kills_of_the_server() {
    let mut cluster = Cluster::start();
    let url = cluster.database();
    let (one, other) = (connect(&url).await, connect(&url).await);
    migrate(&*one, "logs", &log::STEPS).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for number in 0..6 {
        let db = if number % 2 == 0 { &one } else { &other };
        let (db, name, stop) = (Arc::clone(db), format!("log {number}"), Arc::clone(&stop));
        writers.spawn(async move { (name.clone(), writer(db, name, stop).await) });
    }
    let heads = async || {
        let sum = Statement::new("SELECT coalesce(sum(head), 0) FROM logs", []);
        let until = Instant::now() + SOON;
        loop {
            match one.run(vec![sum.clone()], Vec::new()).await {
                Ok(found) => return found[0].rows[0].int(0).unwrap(),
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        }
    };
    for _ in 0..4 {
        let before = heads().await;
        let until = Instant::now() + SOON;
        while heads().await < before + 60 {
            assert!(Instant::now() < until, "nothing goes on");
        }
        cluster = tokio::task::spawn_blocking(move || {
            cluster.kill();
            cluster.restart();
            cluster
        })
        .await
        .unwrap();
    }
    heads().await;
    stop.store(true, Ordering::Relaxed);
    for (name, acknowledged) in writers.join_all().await {
        let found = other.run(vec![log::read(&name, 0, 1_000_000)], Vec::new()).await.unwrap().remove(0);
        let kept: Vec<_> =
            found.rows.iter().map(|row| (row.count(0).unwrap(), row.text(1).unwrap().to_string())).collect();
        assert!(kept.iter().map(|entry| entry.0).eq(1..=kept.len() as u64), "{name} has a gap or a double");
        let mut kept = kept.iter();
        assert!(acknowledged.iter().all(|entry| kept.any(|one| one == entry)), "{name} has lost something");
        assert!(!acknowledged.is_empty());
    }
}

/// A way to the server that can be stopped without anybody noticing.
async fn stalling(
    cluster: &Cluster,
    url: &str,
    tasks: &mut JoinSet<()>,
) -> (String, tokio::sync::watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (open, opened) = tokio::sync::watch::channel(true);
    let url = url.replace(&cluster.port().to_string(), &listener.local_addr().unwrap().port().to_string());
    let port = cluster.port();
    tasks.spawn(async move {
        let mut ways = JoinSet::new();
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut opened = opened.clone();
            ways.spawn(async move {
                opened.wait_for(|open| *open).await.unwrap();
                let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let stalled = tokio::select! {
                    _ = copy_bidirectional(&mut near, &mut far) => false,
                    _ = opened.wait_for(|open| !*open) => true,
                };
                if stalled {
                    // Both ends stay open, and nothing goes through.
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    (url, open)
}

#[tokio::test]
async fn a_server_that_says_nothing_any_more_is_given_up() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let mut tasks = JoinSet::new();
    let (by_way, open) = stalling(&cluster, &url, &mut tasks).await;
    let db = connect(&by_way).await;
    with_table(&db).await;
    open.send(false).unwrap();
    let since = Instant::now();
    let (read, written) = tokio::join!(db.run(one(), Vec::new()), db.run(touch(1), Vec::new()));
    for done in [read, written] {
        assert!(matches!(done, Err(DbError::Unavailable { .. })), "{done:?}");
    }
    assert!(since.elapsed() < Duration::from_secs(20));
    open.send(true).unwrap();
    until_back(&db).await;
    db.run(touch(2), Vec::new()).await.unwrap();
}

#[tokio::test]
async fn many_processes_may_start_on_a_new_database_at_once() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let by_socket = cluster.by_socket(&url);
    let mut starting = JoinSet::new();
    for number in 0..6 {
        let url = if number % 2 == 0 { url.clone() } else { by_socket.clone() };
        starting.spawn(async move {
            let db = PostgresDb::connect(&url, None).await?;
            migrate(&db, "logs", &log::STEPS).await?;
            migrate(&db, "touched", &["CREATE TABLE touched (number BIGINT NOT NULL)"]).await
        });
    }
    for started in starting.join_all().await {
        started.unwrap();
    }
}

#[tokio::test]
async fn work_that_crosses_is_done_all_the_same() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let (one, other) = (connect(&url).await, connect(&url).await);
    migrate(&*one, "logs", &log::STEPS).await.unwrap();
    let mut crossing = JoinSet::new();
    for (db, names) in [(one, ["a", "b"]), (other, ["b", "a"])] {
        crossing.spawn(async move {
            for _ in 0..30 {
                db.run(names.map(log::take).to_vec(), Vec::new()).await.unwrap();
            }
        });
    }
    crossing.join_all().await;
    let db = connect(&url).await;
    let found = db.run(vec![log::take("a"), log::take("b")], Vec::new()).await.unwrap();
    assert!(found.iter().all(|found| found.rows[0].count(0).unwrap() == 61));
}

/// What is heard until it was this.
async fn hear(heard: &mut Receiver<Arc<str>>, topic: &str) -> Vec<Arc<str>> {
    let mut all = Vec::new();
    loop {
        let told = tokio::time::timeout(SOON, heard.recv()).await;
        let told = told.unwrap_or_else(|_| panic!("{topic:?} is not heard, but {all:?}")).unwrap();
        all.push(told);
        if all.last().is_some_and(|last| **last == *topic) {
            return all;
        }
    }
}

async fn tell(db: &PostgresDb, topics: &[&str]) {
    db.run(one(), topics.iter().map(|topic| (*topic).to_owned()).collect()).await.unwrap();
}

/// Tells until the other one hears by some way: what is told while a way is being found may be lost.
async fn reaches(from: &PostgresDb, heard: &mut Receiver<Arc<str>>, topic: &str) {
    let until = Instant::now() + SOON;
    loop {
        tell(from, &[topic]).await;
        let waiting = async { while **heard.recv().await.as_ref().unwrap() != *topic {} };
        if tokio::time::timeout(Duration::from_millis(200), waiting).await.is_ok() {
            return;
        }
        assert!(Instant::now() < until, "{topic} is not heard");
    }
}

#[tokio::test]
async fn whatever_a_topic_says_it_is_heard_once_here_and_elsewhere() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let (one, other) = (connect(&url).await, connect(&url).await);
    let (mut here, mut there) = (one.subscribe(), other.subscribe());
    reaches(&one, &mut there, "ready").await;
    while here.try_recv().is_ok() {}
    let hostile =
        ["'; DROP TABLE x; --", "a\nb\r\nPUB x 1\r\n", "\"],[\"", "\0", "ä\u{1F600}", "", "1", "2", "3"];
    tell(&one, &hostile).await;
    tell(&one, &["end"]).await;
    let told = hear(&mut here, "end").await;
    assert!(told.iter().map(|topic| &**topic).eq(hostile.into_iter().chain(["end"])));
    let mut told = hear(&mut there, "end").await;
    told.pop();
    told.sort();
    let mut expected = hostile.to_vec();
    expected.sort_unstable();
    assert!(told.iter().map(|topic| &**topic).eq(expected));

    // More than a message holds, and more than is worth telling one by one.
    tell(&one, &["x".repeat(20_000).as_str()]).await;
    hear(&mut there, EVERYWHERE).await;
    let many: Vec<String> = (0..3_000).map(|number| format!("topic {number}")).collect();
    one.run(vec![Statement::new("SELECT 1", [])], many).await.unwrap();
    hear(&mut there, EVERYWHERE).await;
    let refused = one.run(vec![Statement::new("SELECT nothing", [])], vec!["not done".into()]).await;
    assert!(refused.is_err());
    tell(&one, &["last"]).await;
    assert!(hear(&mut there, "last").await.iter().all(|topic| **topic != *"not done"));
}

#[tokio::test]
async fn a_listener_that_was_cut_off_looks_everywhere() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let (one, other) = (connect(&url).await, connect(&url).await);
    let mut there = other.subscribe();
    reaches(&one, &mut there, "ready").await;
    // Those that listen, or have told something last.
    let cut = cluster.psql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = 'ropewalk' AND (query LIKE '%LISTEN%' OR query LIKE '%pg_notify%')",
    );
    assert_eq!(cut, "2");
    hear(&mut there, EVERYWHERE).await;
    reaches(&one, &mut there, "again").await;
}

#[tokio::test]
async fn a_database_on_a_network_has_to_prove_its_name() {
    let mut cluster = Cluster::start();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    cluster.secure(&made.cert.pem(), &made.signing_key.serialize_pem());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, certificate: &rcgen::Certificate| {
        std::fs::write(folder.path().join(name), certificate.pem()).unwrap();
        folder.path().join(name).display().to_string()
    };
    let (right, wrong) = (file("right", &made.cert), file("wrong", &other.cert));
    let url = cluster.database();
    let named = url.replace("127.0.0.1", "localhost");
    let encrypted = vec![Statement::new("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", [])];
    for mode in ["require", "verify-full"] {
        let db = connect(&format!("{named}?sslmode={mode}&sslrootcert={right}")).await;
        assert_eq!(db.run(encrypted.clone(), Vec::new()).await.unwrap()[0].rows[0].int(0).unwrap(), 1);
    }
    for url in [
        format!("{url}?sslmode=require&sslrootcert={right}"),
        format!("{named}?sslmode=require&sslrootcert={wrong}"),
        format!("{named}?sslmode=require"),
    ] {
        let error = PostgresDb::connect(&url, None).await.err().unwrap();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}
