//! Looking for damage in a store file, without changing it: `ropewalk doctor --store`.

use std::collections::BTreeMap;
use std::path::Path;

use engine::{PageRequest, StoreError};
use rusqlite::Connection;

use super::blob;
use super::events::{LogItem, SessionLog, read_page};
use super::lineage;
use super::reader;
use super::schema;
use super::session_row::{StoredSession, unsigned};
use crate::regular_file::is_there;

/// The most lines of SQLite's own findings.
const LINES_MAX: u32 = 20;
/// A shallow examination reads this many of the latest events of each session.
const LATEST: u64 = 64;

/// The finding for a lineage that cannot be read.
pub(super) const LINEAGE_DAMAGED: &str = "the name of the store's history (its lineage) is damaged";

/// How much of the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExamineDepth {
    /// The structure of the file, the entries of the sessions, and the latest events of each.
    Quick,
    /// Every event and every stored content.
    Deep,
}

/// The findings of an examination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExamineReport {
    pub layout: usize,
    pub sessions: u64,
    /// Events that were read.
    pub events: u64,
    /// The damage, one line each. Empty if none was found.
    pub damage: Vec<String>,
}

/// Examines the file. The error says why it cannot be opened at all. A missing file has no damage.
pub fn examine(path: &Path, depth: ExamineDepth) -> Result<Option<ExamineReport>, String> {
    let there = is_there(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    if there && !path.is_file() {
        return Err(format!("{} is not a regular file; move it aside", path.display()));
    }
    if !there {
        return Ok(None);
    }
    let named = |error: rusqlite::Error| schema::say_damage(path, &error);
    let connection = schema::open_for_reading(path).map_err(named)?;
    let layout = schema::layout_of(&connection).map_err(named)?;
    schema::refuse_newer(path, layout)?;
    let mut found = ExamineReport { layout, ..ExamineReport::default() };
    found.damage.extend(structure(&connection, depth));
    if layout < schema::LAYOUT {
        let note = format!("layout {layout}: it has no checksums until a server opens and upgrades it");
        tracing::warn!("{note}");
        return Ok(Some(found));
    }
    if let Err(reason) = lineage::read(&connection) {
        found.damage.push(format!(
            "{LINEAGE_DAMAGED}: {reason}; sessions are whole without it, and a store that is \
            restored from a backup of this one has another"
        ));
    }
    for key in reader::keys(&connection) {
        match StoredSession::at(&connection, key) {
            Ok(Some(stored)) => examine_session(&connection, &stored, depth, &mut found),
            Ok(None) => {}
            Err(error) => found.damage.push(format!("session number {key}: {}", reason_of(&error))),
        }
    }
    if depth == ExamineDepth::Deep {
        examine_blobs(&connection, &mut found.damage);
    }
    Ok(Some(found))
}

/// The last position of each session, as its entry has it. None where there is no store.
pub fn last_positions(path: &Path) -> Result<BTreeMap<String, u64>, String> {
    let named = |error: rusqlite::Error| schema::say_damage(path, &error);
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let connection = schema::open_for_reading(path).map_err(named)?;
    let mut select = connection.prepare("SELECT id, last_seq FROM acp_sessions").map_err(named)?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, unsigned(row.get(1)?)))).map_err(named)?;
    rows.collect::<Result<_, _>>().map_err(named)
}

fn reason_of(error: &StoreError) -> String {
    match error {
        StoreError::Damaged { reason } => reason.clone(),
        error => error.to_string(),
    }
}

/// SQLite's own findings.
fn structure(connection: &Connection, depth: ExamineDepth) -> Vec<String> {
    let pragma = match depth {
        ExamineDepth::Quick => format!("PRAGMA quick_check({LINES_MAX})"),
        ExamineDepth::Deep => format!("PRAGMA integrity_check({LINES_MAX})"),
    };
    let lines = connection.prepare(&pragma).and_then(|mut check| {
        let lines: Result<Vec<String>, _> = check.query_map([], |row| row.get(0))?.collect();
        lines
    });
    match lines {
        Ok(lines) => lines.into_iter().filter(|line| line != "ok").collect(),
        Err(error) => vec![error.to_string()],
    }
}

fn examine_session(
    connection: &Connection,
    stored: &StoredSession,
    depth: ExamineDepth,
    found: &mut ExamineReport,
) {
    found.sessions += 1;
    let id = &stored.row.id;
    if stored.described.is_damaged() {
        found.damage.push(format!("session {id}: its entry (title and folder) is damaged"));
    }
    if stored.counted.is_damaged() {
        found
            .damage
            .push(format!("session {id}: its counters are damaged; they are rebuilt when it is opened"));
    }
    let log = SessionLog::of(&stored.state);
    let after = if depth == ExamineDepth::Deep { 0 } else { log.last.saturating_sub(LATEST) };
    for (from, upto, reason) in damaged_ranges(connection, log, after, &mut found.events) {
        found.damage.push(format!("session {id}: {}: {reason}", events_named(from, upto)));
    }
    match StoredSession::find(connection, id) {
        Ok(Some(indexed)) if indexed.state.key == stored.state.key => {}
        _ => found.damage.push(format!("session {id}: the index of ids has no entry for it")),
    }
}

pub(super) fn events_named(from: u64, upto: u64) -> String {
    if from == upto { format!("event {from}") } else { format!("events {from} to {upto}") }
}

/// The ranges of a log that cannot be read, and how many events can.
pub(super) fn damaged_ranges(
    connection: &Connection,
    log: SessionLog,
    mut after: u64,
    events: &mut u64,
) -> Vec<(u64, u64, String)> {
    let mut ranges = Vec::new();
    loop {
        let items = match read_page(connection, log, after, PageRequest::USUAL) {
            Ok(items) if items.is_empty() => return ranges,
            Ok(items) => items,
            Err(error) => {
                ranges.push((after + 1, log.last, error.to_string()));
                return ranges;
            }
        };
        for item in items {
            match item {
                LogItem::Event(event) => {
                    *events += 1;
                    after = event.seq.0;
                }
                LogItem::Damaged(damage) => {
                    after = damage.upto;
                    ranges.push((damage.from, damage.upto, damage.reason));
                }
            }
        }
    }
}

fn examine_blobs(connection: &Connection, damage: &mut Vec<String>) {
    let look = |damage: &mut Vec<String>| {
        let mut select = connection.prepare("SELECT hash, text FROM blobs")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (hash, text) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            if !blob::is_named(hash, text) {
                damage.push(format!("stored content {hash} does not match its hash"));
            }
        }
        Ok::<_, rusqlite::Error>(())
    };
    if let Err(error) = look(damage) {
        damage.push(format!("stored contents cannot be read: {error}"));
    }
}
