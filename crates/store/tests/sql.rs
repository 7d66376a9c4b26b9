//! The promises of a database, for each engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use store::sql::log::{self, Entry};
use store::sql::{Db, DbError, SqliteDb, Statement, Value, migrate};

const STEPS: [&str; 2] = [
    "CREATE TABLE ropes (id SERIAL_KEY, name TEXT NOT NULL UNIQUE, length BIGINT, fibre BYTEA)",
    "ALTER TABLE ropes ADD COLUMN colour TEXT; CREATE INDEX ropes_by_colour ON ropes (colour)",
];

fn insert(name: &str, length: i64) -> Statement {
    let sql = "INSERT INTO ropes (name, length, fibre) VALUES ($1, $2, $3)";
    Statement::new(sql, [name.into(), length.into(), vec![0, 255, 1].into()])
}

async fn checks(db: &dyn Db) {
    migrate(db, "ropes", &STEPS[..1]).await.unwrap();
    migrate(db, "ropes", &STEPS).await.unwrap();
    migrate(db, "ropes", &STEPS).await.unwrap();
    let mut heard = db.heard();
    let found = db.run(vec![insert("hemp", 3), insert("flax", 4)], vec!["ropes".into()]).await.unwrap();
    assert_eq!(found.iter().map(|found| found.changed).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(&*heard.recv().await.unwrap(), "ropes");

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
    assert_eq!(found.rows[0].0[3], Value::Null);
    let same = Statement::new("SELECT $1 = $1 AND name = $1 FROM ropes WHERE name = $1", ["hemp".into()]);
    assert_eq!(db.run(vec![same], Vec::new()).await.unwrap()[0].rows.len(), 1);
    assert!(heard.try_recv().is_err(), "what was not done is not told");

    let later = migrate(db, "ropes", &STEPS[..1]).await;
    assert!(matches!(later, Err(DbError::Failed { .. })), "a later layout is left alone");
}

fn entry(seq: u64) -> Entry {
    Entry { seq, kind: None, body: format!("entry {seq}") }
}

/// Only the last owner appends, only at the end, and everything once.
async fn logs(db: &dyn Db) {
    migrate(db, "logs", &log::STEPS).await.unwrap();
    let take = async || {
        let found = db.run(vec![log::take("a")], Vec::new()).await.unwrap();
        (found[0].rows[0].count(0).unwrap(), found[0].rows[0].count(1).unwrap())
    };
    assert_eq!(take().await, (1, 0));
    let many: Vec<Entry> = (1..=600).map(entry).collect();
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

#[tokio::test]
async fn a_log_in_sqlite_is_appended_to_by_its_last_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    logs(&SqliteDb::open(&folder.path().join("hub.db")).unwrap()).await;
}

#[tokio::test]
async fn sqlite_keeps_what_a_database_promises() {
    let folder = tempfile::tempdir().unwrap();
    checks(&SqliteDb::open(&folder.path().join("hub.db")).unwrap()).await;
}
