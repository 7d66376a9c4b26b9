//! Copying what can be read of a damaged file into a new one: `ropewalk sessions salvage`.
//!
//! Every page of the file is parsed on its own, without SQLite and without trusting any pointer to it, so neither
//! a broken header nor a truncated file hides a row. Rows are recognised by their shape and taken if their checksum is
//! right. The damaged file is only read.

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::Path;

use engine::SessionId;
use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};
use wire::record;

use self::pages::{Cell, DatabasePages, Field};
use super::append::{self, write_state};
use super::blob;
use super::checksum::{self, EventColumns, StateColumns};
use super::database_copy;
use super::events::SessionLog;
use super::examine::damaged_ranges;
use super::schema;
use super::session_row::{StoredSession, sign_description};

/// What was salvaged of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedSession {
    pub id: String,
    pub title: Option<String>,
    /// Its entry was damaged or lost: title and folder are not known.
    pub nameless: bool,
    pub events: u64,
    /// Positions of events that are missing, as ranges with both ends in them.
    pub missing: Vec<(u64, u64)>,
}

/// Reads `damaged` and makes the new store `into`, where nothing may be yet.
pub fn salvage(damaged: &Path, into: &Path) -> Result<Vec<SalvagedSession>, String> {
    if into.try_exists().map_err(|error| format!("{}: {error}", into.display()))? {
        return Err(format!("{} exists already; choose another name with --into", into.display()));
    }
    let mut pages =
        DatabasePages::open(damaged).map_err(|error| format!("{}: {error}", damaged.display()))?;
    // It gets its name when it is whole.
    let unfinished = database_copy::beside(into);
    database_copy::remove(&unfinished).map_err(|error| format!("{}: {error}", unfinished.display()))?;
    let mut connection = schema::open_for_writing(&unfinished, true).map_err(|fault| fault.to_string())?;
    let saved = save(&mut pages, &mut connection).and_then(|saved| {
        // One file without a write-ahead log.
        connection.execute_batch("PRAGMA journal_mode = DELETE")?;
        connection.close().map_err(|(_, error)| error)?;
        Ok(saved)
    });
    let saved = saved.map_err(|error| error.to_string()).and_then(|saved| {
        let written = OpenOptions::new().write(true).open(&unfinished).and_then(|file| file.sync_all());
        written.and_then(|()| fs::rename(&unfinished, into)).map_err(|error| error.to_string())?;
        Ok(saved)
    });
    saved.map_err(|error| format!("{}: {error}", into.display()))
}

fn save(pages: &mut DatabasePages, connection: &mut Connection) -> rusqlite::Result<Vec<SalvagedSession>> {
    let transaction = connection.transaction()?;
    let found = SalvageScan::in_pages(pages, &transaction)?;
    let mut keys = BTreeMap::new();
    for number in 1..=pages.count() {
        for cell in pages.cells(number).0 {
            if let Some(event) = EventCell::of(&cell)
                && !found.gone.contains(&event.session)
                && found.is_sound(&event)
            {
                save_event(&transaction, &event)?;
                let newest = keys.entry(event.session).or_insert((0, 0));
                *newest = (*newest).max((event.seq, event.at));
            }
        }
    }
    for key in found.sessions.keys().filter(|key| !found.gone.contains(key)) {
        keys.entry(*key).or_insert((0, 0));
    }
    for (key, newest) in &keys {
        save_session(&transaction, *key, found.sessions.get(key), *newest)?;
    }
    transaction.commit()?;
    keys.keys().map(|key| report(connection, *key, &found)).collect()
}

fn report(connection: &Connection, key: i64, found: &SalvageScan) -> rusqlite::Result<SalvagedSession> {
    let stored =
        StoredSession::at(connection, key).ok().flatten().ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let mut events = 0;
    let ranges = damaged_ranges(connection, SessionLog::of(&stored.state), 0, &mut events);
    Ok(SalvagedSession {
        id: stored.row.id.as_str().to_owned(),
        title: stored.row.title.as_deref().map(str::to_owned),
        nameless: found.sessions.get(&key).is_none_or(|session| !session.is_described),
        events,
        missing: ranges.into_iter().map(|(from, upto, _)| (from, upto)).collect(),
    })
}

/// What the file contains besides events.
#[derive(Default)]
struct SalvageScan {
    sessions: BTreeMap<i64, SessionCell>,
    /// Keys of sessions that were deleted, or that never became visible.
    gone: BTreeSet<i64>,
}

impl SalvageScan {
    /// Contents are saved as they are found: all of them together may be large.
    fn in_pages(pages: &mut DatabasePages, into: &Connection) -> rusqlite::Result<Self> {
        let mut found = Self::default();
        let mut roots = Vec::new();
        for number in 1..=pages.count() {
            for cell in pages.cells(number).0 {
                roots.extend(root_of_deleted(&cell));
                if let Some(blob) = blob_of(&cell) {
                    into.prepare_cached("INSERT OR IGNORE INTO blobs (hash, text) VALUES (?1, ?2)")?
                        .execute(blob)?;
                } else if let Some((key, session)) = SessionCell::of(&cell) {
                    let better = |old: &SessionCell| session.is_described && !old.is_described;
                    if found.sessions.get(&key).is_none_or(better) {
                        found.sessions.insert(key, session);
                    }
                }
            }
        }
        for root in roots {
            found.gone.extend(keys_below(pages, root));
        }
        found.gone.retain(|key| !found.sessions.contains_key(key));
        Ok(found)
    }

    /// An event without a checksum is taken if it was written before there were any, as far as that is
    /// known.
    fn is_sound(&self, event: &EventCell<'_>) -> bool {
        match event.checksum {
            Some(checksum) => checksum == event.columns().checksum(),
            None => {
                let unchecked = self.sessions.get(&event.session).and_then(|session| session.state);
                unchecked.is_none_or(|state| event.seq <= state.unchecked_seq) && event.is_readable()
            }
        }
    }
}

/// The tables that list keys without a session are found by name.
fn root_of_deleted(cell: &Cell) -> Option<u32> {
    let [Field::Text(kind), name, _, Field::Integer(root), _] = cell.fields.as_slice() else { return None };
    let named = kind == b"table" && matches!(name.text(), Some("deleted" | "unfinished"));
    named.then(|| u32::try_from(*root).ok()).flatten()
}

fn keys_below(pages: &mut DatabasePages, root: u32) -> BTreeSet<i64> {
    let (mut keys, mut seen, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![root]);
    while let Some(number) = next.pop() {
        if !seen.insert(number) {
            continue;
        }
        let (cells, below) = pages.cells(number);
        next.extend(below);
        for cell in cells {
            match cell.fields.as_slice() {
                [Field::Text(_), Field::Integer(key)] => drop(keys.insert(*key)),
                [Field::Null, Field::Text(_), Field::Text(_)] => keys.extend(cell.rowid),
                _ => {}
            }
        }
    }
    keys
}

fn blob_of(cell: &Cell) -> Option<(String, String)> {
    let ([hash, text], Some(_)) = (cell.fields.as_slice(), cell.rowid) else { return None };
    let (hash, text) = (hash.text()?, text.text()?);
    let sound = hash.len() == 64 && blob::is_named(hash, text);
    sound.then(|| (hash.to_owned(), text.to_owned()))
}

/// The columns of a session's row, in the order in which the file has them.
const SESSION: [&str; 20] = [
    "key",
    "id",
    "owner",
    "cwd",
    "roots",
    "title",
    "created_at",
    "updated_at",
    "busy",
    "last_seq",
    "reserved_seq",
    "epoch",
    "holder",
    "boot",
    "parent",
    "source",
    "unchecked_seq",
    "row_check",
    "state_check",
    "written_seq",
];
/// The columns of the first layout.
const FIRST_COLUMNS: usize = 14;
/// The positions of the description's columns in the file, in the order of its checksum.
const DESCRIBED: [usize; 8] = [1, 2, 3, 4, 14, 15, 5, 6];

struct SessionCell {
    fields: Vec<Field>,
    is_described: bool,
    /// If it is not damaged.
    state: Option<StateColumns>,
}

impl SessionCell {
    fn of(cell: &Cell) -> Option<(i64, Self)> {
        let key = cell.rowid?;
        let mut fields = cell.fields.clone();
        let shaped = fields.len() >= FIRST_COLUMNS
            && fields[0] == Field::Null
            && matches!(fields[1], Field::Text(_))
            && matches!(fields[11], Field::Integer(_));
        if !shaped {
            return None;
        }
        // The columns that later layouts added, with their values for older rows.
        if fields.len() == FIRST_COLUMNS {
            fields.extend([Field::Null, Field::Text(b"acp".to_vec())]);
        }
        if fields.len() == FIRST_COLUMNS + 2 {
            let last = fields[9].clone();
            fields.extend([last.clone(), Field::Null, Field::Null, last]);
        }
        if fields.len() < SESSION.len() {
            return None;
        }
        let described: Vec<_> = DESCRIBED.iter().map(|index| value_ref(&fields[*index])).collect();
        let sum = checksum::description(key, &described);
        let is_described = match &fields[17] {
            Field::Null => fields[1].text().is_some_and(|id| SessionId::parse(id).is_ok()),
            field => field.integer() == Some(sum),
        };
        let state = state_of(key, &fields);
        Some((key, Self { fields, is_described, state }))
    }
}

fn state_of(key: i64, fields: &[Field]) -> Option<StateColumns> {
    let state = StateColumns {
        key,
        updated_at: fields[7].integer()?,
        busy: fields[8].integer()? != 0,
        last_seq: fields[9].integer()?,
        written_seq: fields[19].integer()?,
        reserved_seq: fields[10].integer()?,
        epoch: fields[11].integer()?,
        unchecked_seq: fields[16].integer()?,
    };
    let sound = fields[18] == Field::Null || fields[18].integer() == Some(state.checksum());
    sound.then_some(state)
}

fn value_ref(field: &Field) -> ValueRef<'_> {
    match field {
        Field::Null => ValueRef::Null,
        Field::Integer(number) => ValueRef::Integer(*number),
        Field::Real(number) => ValueRef::Real(*number),
        Field::Text(bytes) => ValueRef::Text(bytes),
        Field::Blob(bytes) => ValueRef::Blob(bytes),
    }
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Integer(number) => Value::Integer(*number),
        Field::Real(number) => Value::Real(*number),
        Field::Text(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        Field::Blob(bytes) => Value::Blob(bytes.clone()),
    }
}

/// The title of a session whose entry could not be salvaged.
const NAMELESS: &str = "(salvaged session: its title and folder are lost)";

fn save_session(
    connection: &Connection,
    key: i64,
    cell: Option<&SessionCell>,
    (last_seq, at): (i64, i64),
) -> rusqlite::Result<()> {
    let columns: [Value; 8] = match cell.filter(|cell| cell.is_described) {
        Some(cell) => DESCRIBED.map(|index| value(&cell.fields[index])),
        None => [
            Value::Text(SessionId::random().as_str().to_owned()),
            Value::Text(engine::Principal::local().0.to_string()),
            Value::Text("/".to_owned()),
            Value::Text("[]".to_owned()),
            Value::Null,
            Value::Text("salvage".to_owned()),
            Value::Text(NAMELESS.to_owned()),
            Value::Integer(at),
        ],
    };
    connection
        .prepare_cached(
            "INSERT INTO acp_sessions (key, id, owner, cwd, roots, parent, source, title, created_at, updated_at,
                epoch, row_check, state_check)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, 0, 0)",
        )?
        .execute(rusqlite::params_from_iter(std::iter::once(Value::Integer(key)).chain(columns)))?;
    sign_description(connection, key)?;
    let unchecked: Option<i64> = connection.query_row(
        "SELECT max(seq) FROM acp_session_events WHERE session = ?1 AND checksum IS NULL",
        [key],
        |row| row.get(0),
    )?;
    let known = cell.and_then(|cell| cell.state);
    let state = StateColumns {
        key,
        updated_at: known.map_or(at, |state| state.updated_at),
        busy: false,
        last_seq: known.map_or(last_seq, |state| state.last_seq.max(last_seq)),
        // Whether more events came after the last one that was found is not known, so one event counts as
        // missing there.
        written_seq: known.map_or(last_seq + 1, |state| state.written_seq.max(last_seq)),
        reserved_seq: known.map_or(0, |state| state.reserved_seq).max(last_seq + 2 * append::BLOCK_SIGNED),
        epoch: known.map_or(1 << 40, |state| state.epoch),
        unchecked_seq: unchecked.unwrap_or_default(),
    };
    write_state(connection, &state)?;
    // How far positions were assigned is not known, so the session continues after the reserved ones.
    connection.execute("UPDATE acp_sessions SET holder = 'salvaged' WHERE key = ?1", [key])?;
    Ok(())
}

/// A row of an event.
struct EventCell<'c> {
    session: i64,
    seq: i64,
    at: i64,
    turn: Option<i64>,
    origin: &'c str,
    kind: &'c str,
    version: i64,
    body: &'c str,
    skipped: i64,
    checksum: Option<i64>,
}

impl<'c> EventCell<'c> {
    fn of(cell: &'c Cell) -> Option<Self> {
        if cell.rowid.is_some() || cell.fields.len() < 8 {
            return None;
        }
        let number = |index: usize| cell.fields.get(index).and_then(Field::integer);
        let text = |index: usize| cell.fields.get(index).and_then(Field::text);
        Some(Self {
            session: number(0)?,
            seq: number(1)?,
            at: number(2)?,
            turn: number(3),
            origin: text(4)?,
            kind: text(5)?,
            version: number(6)?,
            body: text(7)?,
            skipped: number(8).unwrap_or_default(),
            checksum: number(9),
        })
    }

    fn columns(&self) -> EventColumns<'c> {
        EventColumns {
            session: self.session,
            seq: self.seq,
            at: self.at,
            turn: self.turn,
            origin: self.origin.as_bytes(),
            kind: self.kind.as_bytes(),
            version: self.version,
            body: self.body.as_bytes(),
            skipped: self.skipped,
        }
    }

    fn is_readable(&self) -> bool {
        let version = u32::try_from(self.version).unwrap_or(u32::MAX);
        self.seq > 0
            && record::decode_origin(self.origin.as_bytes()).is_ok()
            && record::decode(self.kind, version, self.body.as_bytes(), &|_| Some("".into())).is_ok()
    }
}

fn save_event(connection: &Connection, event: &EventCell<'_>) -> rusqlite::Result<()> {
    let there: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM acp_session_events WHERE session = ?1 AND seq = ?2)")?
        .query_row((event.session, event.seq), |row| row.get(0))?;
    if there {
        return Ok(());
    }
    append::insert_row(connection, &event.columns(), event.checksum)?;
    for hash in blobs_in(event.body) {
        connection
            .prepare_cached(
                "INSERT OR IGNORE INTO blob_uses (session, hash) SELECT ?1, hash FROM blobs WHERE hash = ?2",
            )?
            .execute((event.session, hash))?;
    }
    Ok(())
}

/// The names of contents that a body leads to.
fn blobs_in(body: &str) -> impl Iterator<Item = &str> {
    let after = body.split("\"blob\":\"").skip(1);
    after.filter_map(|rest| rest.get(..64)).filter(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
