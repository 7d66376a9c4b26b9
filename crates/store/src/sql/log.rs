//! Logs in a database: who may append, the last position of each, and its entries.
//!
//! The content of an entry is opaque here: it is a line of an export, or sealed. The functions return statements, so a
//! caller that stores more in the same transaction adds its own statements to them.
//!
//! **Invariant:** only the last owner that took the log can append, and only after the log's last position; any other
//! append is refused as a whole. So a repeated append is stored once, and an owner that was replaced stores nothing.

use super::{SqlValue, Statement};

pub const STEPS: [&str; 1] = ["CREATE TABLE logs (
        id TEXT PRIMARY KEY,
        epoch BIGINT NOT NULL,
        head BIGINT NOT NULL
    );
    CREATE TABLE log_entries (
        log TEXT NOT NULL,
        seq BIGINT NOT NULL,
        kind TEXT,
        body TEXT NOT NULL,
        PRIMARY KEY (log, seq)
    )"];

/// Entries of one statement: PostgreSQL takes at most 65,535 values.
const ENTRIES_AT_ONCE: usize = 256;

/// One entry: its position, its kind if that may be known, and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub seq: u64,
    pub kind: Option<&'static str>,
    pub body: String,
}

/// Creates the log if it does not exist, and fences off its previous owner. Returns its epoch and its head.
pub fn take(id: &str) -> Statement {
    Statement::new(
        "INSERT INTO logs (id, epoch, head) VALUES ($1, 1, 0)
         ON CONFLICT (id) DO UPDATE SET epoch = logs.epoch + 1
         RETURNING epoch, head",
        [id.into()],
    )
}

/// Appends what comes after a position. The first statement is refused if the log has another owner or another end.
pub fn append(id: &str, epoch: u64, after: u64, entries: Vec<LogEntry>) -> Vec<Statement> {
    let Some(last) = entries.last().map(|entry| entry.seq) else { return Vec::new() };
    let guard = Statement::new(
        "UPDATE logs SET head = $4 WHERE id = $1 AND epoch = $2 AND head = $3",
        [id.into(), epoch.into(), after.into(), last.into()],
    );
    let mut work = vec![guard.must_change(1)];
    work.extend(insert(id, entries));
    work
}

/// Appends anywhere after the end, for an owner that counts positions itself. The first statement is refused
/// if the log has another owner or has come as far already.
pub fn append_on(id: &str, epoch: u64, entries: Vec<LogEntry>) -> Vec<Statement> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Vec::new() };
    let guard = Statement::new(
        "UPDATE logs SET head = $4 WHERE id = $1 AND epoch = $2 AND head < $3",
        [id.into(), epoch.into(), first.seq.into(), last.seq.into()],
    );
    let mut work = vec![guard.must_change(1)];
    work.extend(insert(id, entries));
    work
}

fn insert(id: &str, entries: Vec<LogEntry>) -> Vec<Statement> {
    let mut work = Vec::new();
    let mut entries = entries.into_iter().peekable();
    while entries.peek().is_some() {
        let mut sql = String::from("INSERT INTO log_entries (log, seq, kind, body) VALUES ");
        let mut values: Vec<SqlValue> = vec![id.into()];
        for entry in entries.by_ref().take(ENTRIES_AT_ONCE) {
            let next = values.len() + 1;
            let comma = if values.len() == 1 { "" } else { ", " };
            sql.push_str(&format!("{comma}($1, ${next}, ${}, ${})", next + 1, next + 2));
            values.extend([entry.seq.into(), entry.kind.into(), entry.body.into()]);
        }
        work.push(Statement::new(sql, values));
    }
    work
}

/// Entries after a position: the position and content of each.
pub fn read(id: &str, after: u64, count_max: usize) -> Statement {
    Statement::new(
        "SELECT seq, body FROM log_entries WHERE log = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        [id.into(), after.into(), (count_max as u64).into()],
    )
}

/// The same, limited to a number of bytes after the first entry. `only` limits it to some kinds: `AND ...`.
pub fn page(id: &str, after: u64, count_max: usize, bytes_max: usize, only: &str) -> Statement {
    let select = format!(
        "SELECT seq, body FROM (
             SELECT seq, body, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
             FROM (SELECT seq, body FROM log_entries WHERE log = $1 AND seq > $2 {only} ORDER BY seq LIMIT $3) e
         ) sized WHERE before < $4 ORDER BY seq"
    );
    let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX).max(1);
    Statement::new(select, [id.into(), after.into(), (count_max as u64).into(), bytes_max.into()])
}

/// Deletes the log and its entries.
pub fn delete(id: &str) -> Vec<Statement> {
    vec![
        Statement::new("DELETE FROM log_entries WHERE log = $1", [id.into()]),
        Statement::new("DELETE FROM logs WHERE id = $1", [id.into()]),
    ]
}
