//! The promises of a database, for each engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use store::sql::log::{self, LogEntry};
use store::sql::{Db, DbError, PostgresDb, SqlValue, SqliteDb, Statement, migrate};
use testkit::postgres::Cluster;
use tokio::task::JoinSet;

const STEPS: [&str; 2] = [
    "CREATE TABLE ropes (id SERIAL_KEY, name TEXT NOT NULL UNIQUE, length BIGINT, fibre BYTEA)",
    "ALTER TABLE ropes ADD COLUMN colour TEXT; CREATE INDEX ropes_by_colour ON ropes (colour)",
];

fn insert(name: &str, length: i64) -> Statement {
    let sql = "INSERT INTO ropes (name, length, fibre) VALUES ($1, $2, $3)";
    Statement::new(sql, [name.into(), length.into(), vec![0, 255, 1].into()])
}

/// The dialect, what a transaction is, and what is told.
async fn keeps_what_a_database_promises(db: Arc<dyn Db>) {
    let db = &*db;
    migrate(db, "ropes", &STEPS[..1]).await.unwrap();
    migrate(db, "ropes", &STEPS).await.unwrap();
    migrate(db, "ropes", &STEPS).await.unwrap();
    let mut heard = db.subscribe();
    let found = db.run(vec![insert("hemp", 3), insert("flax", 4)], vec!["ropes".into()]).await.unwrap();
    assert_eq!(found.iter().map(|found| found.changed).collect::<Vec<_>>(), [1, 1]);
    let told = tokio::time::timeout(Duration::from_secs(30), heard.recv()).await.unwrap();
    assert_eq!(&*told.unwrap(), "ropes");

    let update = Statement::new(
        "UPDATE ropes SET length = $2 WHERE name = $1 AND length = $3",
        ["hemp".into(), 9i64.into(), 7i64.into()],
    );
    let refused = db.run(vec![insert("jute", 1), update.must_change(1)], vec!["no".into()]).await;
    assert!(matches!(refused, Err(DbError::Refused { statement: 1 })), "{refused:?}");
    let doubled = db.run(vec![insert("sisal", 1), insert("hemp", 1)], Vec::new()).await;
    assert!(matches!(doubled, Err(DbError::Failed { .. })), "{doubled:?}");

    let all = Statement::new("SELECT name, length, fibre, colour FROM ropes ORDER BY id", []);
    let found = db.run(vec![all], Vec::new()).await.unwrap().remove(0);
    assert_eq!(found.rows.len(), 2, "nothing of what was refused is there");
    assert_eq!(&*found.rows[0].text(0).unwrap(), "hemp");
    assert_eq!(found.rows[1].int(1).unwrap(), 4);
    assert_eq!(&*found.rows[0].bytes(2).unwrap(), [0, 255, 1]);
    assert_eq!(found.rows[0].0[3], SqlValue::Null);
    let same = Statement::new("SELECT $1 = $1 AND name = $1 FROM ropes WHERE name = $1", ["hemp".into()]);
    assert_eq!(db.run(vec![same], Vec::new()).await.unwrap()[0].rows.len(), 1);
    assert!(heard.try_recv().is_err(), "what was not done is not told");

    let wrong = Statement::new("UPDATE ropes SET length = $1", []);
    assert!(
        matches!(db.run(vec![wrong], Vec::new()).await, Err(DbError::Failed { .. })),
        "a value is missing"
    );
    let nul = db.run(vec![insert("ma\0nila", 1)], Vec::new()).await;
    assert!(matches!(nul, Err(DbError::Failed { .. })), "{nul:?}");

    let later = migrate(db, "ropes", &STEPS[..1]).await;
    assert!(matches!(later, Err(DbError::Failed { .. })), "a later layout is left alone");
}

fn entry(seq: u64) -> LogEntry {
    LogEntry { seq, kind: None, body: format!("entry {seq}") }
}

/// Only the last owner appends, only at the end, and everything once.
async fn a_log_is_appended_to_by_its_last_owner_alone(db: Arc<dyn Db>) {
    let db = &*db;
    migrate(db, "logs", &log::STEPS).await.unwrap();
    let take = async || {
        let found = db.run(vec![log::take("a")], Vec::new()).await.unwrap();
        (found[0].rows[0].count(0).unwrap(), found[0].rows[0].count(1).unwrap())
    };
    assert_eq!(take().await, (1, 0));
    let many: Vec<LogEntry> = (1..=600).map(entry).collect();
    db.run(log::append("a", 1, 0, many.clone()), Vec::new()).await.unwrap();
    let again = db.run(log::append("a", 1, 0, many), Vec::new()).await;
    assert!(matches!(again, Err(DbError::Refused { statement: 0 })), "what came twice is kept once");
    assert_eq!(take().await, (2, 600));
    let overtaken = db.run(log::append("a", 1, 600, vec![entry(601)]), Vec::new()).await;
    assert!(matches!(overtaken, Err(DbError::Refused { statement: 0 })));
    // A power cut at the agent may leave a gap.
    db.run(log::append("a", 2, 600, vec![entry(605)]), Vec::new()).await.unwrap();
    let found = db.run(vec![log::read("a", 598, 2), log::read("a", 600, 9)], Vec::new()).await.unwrap();
    let seqs = |at: usize| found[at].rows.iter().map(|row| row.count(0).unwrap()).collect::<Vec<_>>();
    assert_eq!((seqs(0), seqs(1)), (vec![599, 600], vec![605]));
    assert_eq!(&*found[1].rows[0].text(1).unwrap(), "entry 605");
    db.run(log::delete("a"), Vec::new()).await.unwrap();
    assert_eq!(take().await, (1, 0));
}

/// Counts, sums, truths, nulls and orders are the same.
async fn speaks_the_same_sql(db: Arc<dyn Db>) {
    migrate(&*db, "ropes", &STEPS).await.unwrap();
    for (length, name) in ["b", "B", "ä", "a", "_"].into_iter().enumerate() {
        db.run(vec![insert(name, 4_000_000_000 + length as i64)], Vec::new()).await.unwrap();
    }
    let one = async |sql: &'static str, values: Vec<SqlValue>| {
        let found = db.run(vec![Statement::new(sql, values)], Vec::new()).await.unwrap().remove(0);
        (found.changed, found.rows.into_iter().map(|row| row.0).collect::<Vec<_>>())
    };
    let numbers = "SELECT count(*), sum(length), max(length) - min(length), 1 = 1, NULL, 7 FROM ropes";
    let int = SqlValue::Int;
    let row = vec![int(5), int(20_000_000_010), int(4), int(1), SqlValue::Null, int(7)];
    assert_eq!(one(numbers, Vec::new()).await, (0, vec![row]));
    let names = one("SELECT name FROM ropes ORDER BY name", Vec::new()).await.1.concat();
    assert_eq!(names, ["B", "_", "a", "b", "ä"].map(SqlValue::from), "byte by byte");
    let after = "SELECT name FROM ropes WHERE (length, name) > ($1, $2) ORDER BY length DESC LIMIT $3";
    let found = one(after, vec![int(4_000_000_001), "B".into(), int(1)]).await;
    assert_eq!(found.1, [[SqlValue::from("_")]]);
    let painted = "UPDATE ropes SET colour = $1 WHERE name <> $2 RETURNING id";
    let found = one(painted, vec![SqlValue::Null, "a".into()]).await;
    assert_eq!((found.0, found.1.len()), (4, 4), "what is returned is changed as well");
    assert_eq!(one(painted, vec!["red".into(), "b".into()]).await.0, 4, "the same with a text");
    let maybe = "SELECT count(*) FROM ropes WHERE CAST($1 AS TEXT) IS NULL OR colour = $1";
    assert_eq!(one(maybe, vec![SqlValue::Null]).await.1, [[int(5)]]);
    assert_eq!(one(maybe, vec!["red".into()]).await.1, [[int(4)]]);
    let upsert = "INSERT INTO ropes (name, length) VALUES ($1, 1) ON CONFLICT (name) DO NOTHING";
    assert_eq!((one(upsert, vec!["a".into()]).await.0, one(upsert, vec!["c".into()]).await.0), (0, 1));
    assert_eq!(one("DELETE FROM ropes WHERE length > $1", vec![int(2)]).await, (5, Vec::new()));
}

/// Who deletes a row is told of that one, not of those that went with it.
async fn counts_what_a_statement_changed_itself(db: Arc<dyn Db>) {
    let steps = ["CREATE TABLE ships (id BIGINT PRIMARY KEY);
        CREATE TABLE masts (ship BIGINT NOT NULL REFERENCES ships (id) ON DELETE CASCADE, height BIGINT)"];
    migrate(&*db, "ships", &steps).await.unwrap();
    let fill = [
        Statement::new("INSERT INTO ships (id) VALUES (1), (2)", []).must_change(2),
        Statement::new("INSERT INTO masts (ship, height) VALUES (1, 1), (1, 2), (2, 3)", []).must_change(3),
    ];
    db.run(fill.to_vec(), Vec::new()).await.unwrap();
    let delete = Statement::new("DELETE FROM ships WHERE id = $1", [1i64.into()]).must_change(1);
    let masts = Statement::new("SELECT height FROM masts", []);
    let found = db.run(vec![delete, masts], Vec::new()).await.unwrap();
    assert_eq!((found[0].changed, found[1].changed, found[1].rows.len()), (1, 0, 1));
}

/// A crowd at once, of which some are refused: the others are done, and each is answered for itself.
async fn a_refusal_is_nobody_elses(db: Arc<dyn Db>) {
    migrate(&*db, "ropes", &STEPS).await.unwrap();
    db.run(vec![insert("taken", 0)], Vec::new()).await.unwrap();
    let mut crowd = JoinSet::new();
    for number in 0..200 {
        let db = Arc::clone(&db);
        crowd.spawn(async move {
            let first = insert(&format!("rope {number}"), number);
            let second = match number % 4 {
                0 => insert("taken", 1),
                1 => Statement::new("UPDATE ropes SET length = 1 WHERE name = 'nobody'", []).must_change(1),
                2 => Statement::new("UPDATE rope SET length = 1", []),
                _ => Statement::new("UPDATE ropes SET length = length + 1 WHERE name = 'taken'", [])
                    .must_change(1),
            };
            (number, db.run(vec![first, second], Vec::new()).await)
        });
    }
    while let Some(done) = crowd.join_next().await {
        let (number, done) = done.unwrap();
        let right = match number % 4 {
            0 | 2 => matches!(done, Err(DbError::Failed { .. })),
            1 => matches!(done, Err(DbError::Refused { statement: 1 })),
            _ => done.is_ok(),
        };
        assert!(right, "{number}: {done:?}");
    }
    let count = Statement::new("SELECT count(*), max(length) FROM ropes WHERE length >= 50", []);
    let taken = Statement::new("SELECT length FROM ropes WHERE name = 'taken'", []);
    let found = db.run(vec![count, taken], Vec::new()).await.unwrap();
    assert_eq!(found[1].rows[0].int(0).unwrap(), 50);
    assert_eq!(
        found[0].rows[0].int(0).unwrap(),
        1 + (50..200).filter(|number| number % 4 == 3).count() as i64
    );
}

/// Eight take a log from each other all the time; what was acknowledged is there, once, in order.
async fn writers_that_fence_each_other_lose_and_double_nothing(db: Arc<dyn Db>) {
    migrate(&*db, "logs", &log::STEPS).await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let db = Arc::clone(&db);
        writers.spawn(async move {
            let mut acknowledged = Vec::new();
            while acknowledged.len() < 8 {
                let found = db.run(vec![log::take("a")], Vec::new()).await.unwrap();
                let row = &found[0].rows[0];
                let (epoch, mut head) = (row.count(0).unwrap(), row.count(1).unwrap());
                for _ in 0..5 {
                    let body = format!("{writer} {head}");
                    let entries = vec![LogEntry { seq: head + 1, kind: None, body: body.clone() }];
                    match db.run(log::append("a", epoch, head, entries), Vec::new()).await {
                        Ok(_) => acknowledged.push((head + 1, body)),
                        Err(DbError::Refused { statement: 0 }) => break,
                        Err(error) => panic!("{error}"),
                    }
                    head += 1;
                }
            }
            acknowledged
        });
    }
    let mut acknowledged = writers.join_all().await.concat();
    acknowledged.sort();
    let found = db.run(vec![log::read("a", 0, 10_000)], Vec::new()).await.unwrap().remove(0);
    let kept = found.rows.iter().map(|row| (row.count(0).unwrap(), row.text(1).unwrap().to_string()));
    assert!(kept.eq(acknowledged));
}

/// Many start at once on a database that nobody has used.
async fn several_may_migrate_at_once(db: Arc<dyn Db>) {
    let mut starting = JoinSet::new();
    for _ in 0..8 {
        let db = Arc::clone(&db);
        starting.spawn(async move {
            migrate(&*db, "ropes", &STEPS).await?;
            migrate(&*db, "logs", &log::STEPS).await
        });
    }
    assert!(starting.join_all().await.iter().all(Result::is_ok));
    db.run(vec![insert("hemp", 1)], Vec::new()).await.unwrap();
}

/// One test per promise and engine.
macro_rules! promises {
    ($($promise:ident)*) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $promise() {
                    let folder = tempfile::tempdir().unwrap();
                    let db = super::SqliteDb::open(&folder.path().join("hub.db")).unwrap();
                    super::$promise(super::Arc::new(db)).await;
                }
            )*
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $promise() {
                    let cluster = super::Cluster::start();
                    let db = super::PostgresDb::connect(&cluster.database(), None).await.unwrap();
                    super::$promise(super::Arc::new(db)).await;
                }
            )*
        }
    };
}

promises! {
    keeps_what_a_database_promises
    speaks_the_same_sql
    counts_what_a_statement_changed_itself
    a_refusal_is_nobody_elses
    a_log_is_appended_to_by_its_last_owner_alone
    writers_that_fence_each_other_lose_and_double_nothing
    several_may_migrate_at_once
}
