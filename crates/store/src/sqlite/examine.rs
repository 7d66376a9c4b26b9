//! Looking for damage in a file, without changing it: `ropewalk doctor --store`.

use std::collections::BTreeMap;
use std::path::Path;

use engine::{Page, StoreError};
use rusqlite::Connection;

use super::blob;
use super::events::{Item, Log, read_page};
use super::lineage;
use super::reader;
use super::row::{Stored, unsigned};
use super::schema;
use crate::regular::is_there;

/// What SQLite says about pages is told up to so many lines.
const LINES_MAX: u32 = 20;
/// Of each session, a look that is not deep reads so many of its latest events.
const LATEST: u64 = 64;

/// What is said of a lineage that cannot be read.
pub(super) const LINEAGE_DAMAGED: &str = "the name of the store's history (its lineage) is damaged";

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The structure of the file, the entries of the sessions, and the latest events of each.
    Quick,
    /// Every event and every stored content.
    Deep,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examined {
    pub layout: usize,
    pub sessions: u64,
    /// Events that were read.
    pub events: u64,
    /// What is damaged, one line each. Empty: nothing that was looked at.
    pub damage: Vec<String>,
}

/// Looks at the file. The error says why it cannot be opened at all. A file that is not there has no damage.
pub fn examine(path: &Path, depth: Depth) -> Result<Option<Examined>, String> {
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
    let mut found = Examined { layout, ..Examined::default() };
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
        match Stored::at(&connection, key) {
            Ok(Some(stored)) => look_at_session(&connection, &stored, depth, &mut found),
            Ok(None) => {}
            Err(error) => found.damage.push(format!("session number {key}: {}", reason_of(&error))),
        }
    }
    if depth == Depth::Deep {
        look_at_blobs(&connection, &mut found.damage);
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

/// What SQLite itself finds wrong.
fn structure(connection: &Connection, depth: Depth) -> Vec<String> {
    let pragma = match depth {
        Depth::Quick => format!("PRAGMA quick_check({LINES_MAX})"),
        Depth::Deep => format!("PRAGMA integrity_check({LINES_MAX})"),
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

fn look_at_session(connection: &Connection, stored: &Stored, depth: Depth, found: &mut Examined) {
    found.sessions += 1;
    let id = &stored.row.id;
    if stored.described.is_damaged() {
        found.damage.push(format!("session {id}: its entry (title and folder) is damaged"));
    }
    if stored.counted.is_damaged() {
        found
            .damage
            .push(format!("session {id}: its counters are damaged; they are found again when it is opened"));
    }
    let log = Log::of(&stored.state);
    let after = if depth == Depth::Deep { 0 } else { log.last.saturating_sub(LATEST) };
    for (from, upto, reason) in damaged_ranges(connection, log, after, &mut found.events) {
        found.damage.push(format!("session {id}: {}: {reason}", events_named(from, upto)));
    }
    match Stored::find(connection, id) {
        Ok(Some(indexed)) if indexed.state.key == stored.state.key => {}
        _ => found.damage.push(format!("session {id}: the index of ids does not lead to it")),
    }
}

pub(super) fn events_named(from: u64, upto: u64) -> String {
    if from == upto { format!("event {from}") } else { format!("events {from} to {upto}") }
}

/// The ranges of a log that cannot be read, and how many events can.
pub(super) fn damaged_ranges(
    connection: &Connection,
    log: Log,
    mut after: u64,
    events: &mut u64,
) -> Vec<(u64, u64, String)> {
    let mut ranges = Vec::new();
    loop {
        let items = match read_page(connection, log, after, Page::USUAL) {
            Ok(items) if items.is_empty() => return ranges,
            Ok(items) => items,
            Err(error) => {
                ranges.push((after + 1, log.last, error.to_string()));
                return ranges;
            }
        };
        for item in items {
            match item {
                Item::Event(event) => {
                    *events += 1;
                    after = event.seq.0;
                }
                Item::Damaged(damage) => {
                    after = damage.upto;
                    ranges.push((damage.from, damage.upto, damage.reason));
                }
            }
        }
    }
}

fn look_at_blobs(connection: &Connection, damage: &mut Vec<String>) {
    let look = |damage: &mut Vec<String>| {
        let mut select = connection.prepare("SELECT hash, text FROM blobs")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (hash, text) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            if !blob::is_named(hash, text) {
                damage.push(format!("stored content {hash} is not what its name says"));
            }
        }
        Ok::<_, rusqlite::Error>(())
    };
    if let Err(error) = look(damage) {
        damage.push(format!("stored contents cannot be read: {error}"));
    }
}
