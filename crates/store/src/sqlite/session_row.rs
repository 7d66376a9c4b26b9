//! Conversion between the columns of a session's row and the engine's values.
//!
//! A path is stored as text, or as bytes where it is not Unicode, so that it comes back as it was
//! and can still be compared by SQL.
//!
//! A row has two checksums: one over the description of the session, one over its state (how far its log has come). A
//! damaged description is never shown. A damaged state is computed again from the events.

use std::path::{Path, PathBuf};

use engine::{Principal, Seq, SessionId, SessionRow, StoreError, Timestamp};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row};

use super::append;
use super::checksum::{self, StateColumns};
use super::events::{self, SessionLog};
use super::thread_requests::damaged;

/// The columns that the checksum of the description covers, in its order.
pub(super) const DESCRIPTION_COLUMNS: &str = "id, owner, cwd, roots, parent, source, title, created_at";
const DESCRIBED: usize = 8;

/// The columns that [`StoredSession::read`] reads, in its order.
pub(super) const SESSION_COLUMNS: &str =
    "id, owner, cwd, roots, parent, source, title, created_at, updated_at,
    busy, last_seq, key, epoch, reserved_seq, unchecked_seq, row_check, state_check, holder, boot,
    written_seq";

const EPOCH_AFTER_DAMAGE: i64 = 1 << 40;

/// The title of a session whose own title cannot be trusted.
pub(super) const DAMAGED_TITLE: &str = "(damaged entry: title and folder cannot be read)";

/// A session's row as it is stored.
pub(super) struct StoredSession {
    /// If the description is damaged: with the stored id, and without what else it says.
    pub(super) row: SessionRow,
    pub(super) state: StateColumns,
    pub(super) described: Soundness,
    pub(super) counted: Soundness,
    pub(super) holder: Option<String>,
    pub(super) boot: Option<String>,
}

/// The result of comparing a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Soundness {
    Sound,
    /// Written by a version that had no checksums.
    Unknown,
    Damaged,
}

impl Soundness {
    fn of(stored: ValueRef<'_>, computed: i64) -> Self {
        match stored {
            ValueRef::Null => Self::Unknown,
            ValueRef::Integer(sum) if sum == computed => Self::Sound,
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => Self::Damaged,
        }
    }

    pub(super) fn is_damaged(self) -> bool {
        self == Self::Damaged
    }
}

impl StoredSession {
    /// Reads a row of [`SESSION_COLUMNS`]. The state, if it is damaged, is found again from the events.
    pub(super) fn read(connection: &Connection, row: &Row<'_>) -> Result<Self, StoreError> {
        let number = |index| row.get::<_, i64>(index).ok();
        let key = number(11).ok_or_else(|| damaged(&"the key of a session is not a number"))?;
        let (state, counted) = state(row, key);
        let state = if counted.is_damaged() { state_from_events(connection, state) } else { state };
        let (row_, described) = description(row, &state)?;
        // An unreadable holder names no process, and so counts as dead.
        let text = |index| row.get::<_, Option<String>>(index).unwrap_or_else(|_| Some(String::new()));
        Ok(Self { row: row_, state, described, counted, holder: text(17), boot: text(18) })
    }

    /// The row of the session with this id.
    pub(super) fn find(connection: &Connection, id: &SessionId) -> Result<Option<Self>, StoreError> {
        let found = find_by(connection, "id = ?1", [id.as_str()])?;
        match found {
            // An index that is damaged may lead to the row of another session.
            Some(stored) if stored.row.id != *id => Err(entry_damaged(id)),
            found => Ok(found),
        }
    }

    /// The same where the index of ids cannot be trusted: searches all rows.
    pub(super) fn search(connection: &Connection, id: &SessionId) -> Result<Option<Self>, StoreError> {
        Ok(find_by(connection, "+id = ?1", [id.as_str()])?.filter(|stored| stored.row.id == *id))
    }

    /// The row with this key.
    pub(super) fn at(connection: &Connection, key: i64) -> Result<Option<Self>, StoreError> {
        find_by(connection, "key = ?1", [key])
    }

    /// Refuses a session whose description cannot be trusted.
    pub(super) fn require_sound(self) -> Result<Self, StoreError> {
        if self.described.is_damaged() { Err(entry_damaged(&self.row.id)) } else { Ok(self) }
    }
}

fn find_by(
    connection: &Connection,
    condition: &str,
    values: impl rusqlite::Params,
) -> Result<Option<StoredSession>, StoreError> {
    let select = format!("SELECT {SESSION_COLUMNS} FROM acp_sessions WHERE {condition}");
    let mut select = connection.prepare_cached(&select).map_err(|error| damaged(&error))?;
    let mut rows = select.query(values).map_err(|error| damaged(&error))?;
    let row = rows.next().map_err(|error| damaged(&error))?;
    row.map(|row| StoredSession::read(connection, row)).transpose()
}

fn entry_damaged(id: &SessionId) -> StoreError {
    damaged(&format_args!(
        "the entry of session {id} (its title and folder) is damaged; its events can still be read: save them with \
         `ropewalk sessions export {id}` and import them again with `ropewalk sessions import`"
    ))
}

fn state(row: &Row<'_>, key: i64) -> (StateColumns, Soundness) {
    let number = |index| row.get::<_, i64>(index).ok();
    let state = StateColumns {
        key,
        updated_at: number(8).unwrap_or_default(),
        busy: number(9).unwrap_or_default() != 0,
        last_seq: number(10).unwrap_or_default(),
        written_seq: number(19).unwrap_or_default(),
        reserved_seq: number(13).unwrap_or_default(),
        epoch: number(12).unwrap_or_default(),
        unchecked_seq: number(14).unwrap_or_default(),
    };
    let whole = [8, 9, 10, 12, 13, 14, 19].into_iter().all(|index| number(index).is_some());
    let stored = row.get_ref(16).unwrap_or(ValueRef::Blob(&[]));
    let soundness = if whole { Soundness::of(stored, state.checksum()) } else { Soundness::Damaged };
    (state, soundness)
}

/// The state that can be computed without the row. Positions continue far beyond any that can have been
/// shown to anybody.
fn state_from_events(connection: &Connection, stored: StateColumns) -> StateColumns {
    let unchecked: Option<i64> = connection
        .prepare_cached("SELECT max(seq) FROM acp_session_events WHERE session = ?1 AND checksum IS NULL")
        .and_then(|mut select| select.query_row([stored.key], |row| row.get(0)))
        .unwrap_or_default();
    let state = StateColumns {
        // Higher than any that was ever assigned, and with room above it.
        epoch: stored.epoch.clamp(EPOCH_AFTER_DAMAGE, 2 * EPOCH_AFTER_DAMAGE),
        updated_at: 0,
        busy: false,
        last_seq: 0,
        written_seq: 0,
        reserved_seq: 0,
        unchecked_seq: unchecked.unwrap_or_default(),
        ..stored
    };
    let (last_seq, updated_at) = events::last_sound(connection, &SessionLog::of(&state)).unwrap_or_default();
    let reserved_seq = last_seq.saturating_add(2 * append::BLOCK_SIGNED);
    // Rows after the last good one are damaged, and must be missed.
    let written_seq = connection
        .prepare_cached("SELECT max(seq) FROM acp_session_events WHERE session = ?1")
        .and_then(|mut select| select.query_row([stored.key], |row| row.get::<_, Option<i64>>(0)))
        .unwrap_or_default()
        .map_or(last_seq, |greatest| greatest.clamp(last_seq, last_seq.saturating_add(append::BLOCK_SIGNED)));
    StateColumns { last_seq, written_seq, updated_at, reserved_seq, ..state }
}

fn description(row: &Row<'_>, state: &StateColumns) -> Result<(SessionRow, Soundness), StoreError> {
    let columns: Result<Vec<_>, _> = (0..DESCRIBED).map(|index| row.get_ref(index)).collect();
    let columns = columns.map_err(|error| damaged(&error))?;
    let stored = row.get_ref(15).unwrap_or(ValueRef::Blob(&[]));
    let mut soundness = Soundness::of(stored, checksum::description(state.key, &columns));
    if !soundness.is_damaged() {
        match described(row, state) {
            Ok(row) => return Ok((row, soundness)),
            // Only a row without a checksum comes here.
            Err(_) => soundness = Soundness::Damaged,
        }
    }
    let text = |index| row.get::<_, String>(index).map_err(|error| damaged(&error));
    let damaged_row = SessionRow {
        id: SessionId::parse(&text(0)?).map_err(|error| damaged(&error))?,
        owner: Principal(text(1)?.into()),
        cwd: "/".into(),
        roots: Vec::new(),
        parent: None,
        source: "damaged".into(),
        title: Some(DAMAGED_TITLE.into()),
        created_at: Timestamp(state.updated_at),
        updated_at: Timestamp(state.updated_at),
        busy: state.busy,
        last_seq: Seq(unsigned(state.last_seq)),
    };
    Ok((damaged_row, soundness))
}

fn described(row: &Row<'_>, state: &StateColumns) -> Result<SessionRow, StoreError> {
    let get = |index| row.get::<_, String>(index).map_err(|error| damaged(&error));
    let number = |index| row.get::<_, i64>(index).map_err(|error| damaged(&error));
    let optional = |index| row.get::<_, Option<String>>(index).map_err(|error| damaged(&error));
    let id = |text: String| SessionId::parse(&text).map_err(|error| damaged(&error));
    Ok(SessionRow {
        id: id(get(0)?)?,
        owner: Principal(get(1)?.into()),
        cwd: path_of(row.get_ref(2).map_err(|error| damaged(&error))?)?,
        roots: wire::record::decode_paths(&get(3)?).map_err(|error| damaged(&error))?,
        parent: optional(4)?.map(id).transpose()?,
        source: get(5)?.into(),
        title: optional(6)?.map(Into::into),
        created_at: Timestamp(number(7)?),
        updated_at: Timestamp(state.updated_at),
        busy: state.busy,
        last_seq: Seq(unsigned(state.last_seq)),
    })
}

/// Writes the checksum of what the row says now. Only for a row that was found sound before it was changed.
pub(super) fn sign_description(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    let select = format!("SELECT {DESCRIPTION_COLUMNS} FROM acp_sessions WHERE key = ?1");
    let sum = connection.prepare_cached(&select)?.query_row([key], |row| {
        let columns: Result<Vec<_>, _> = (0..DESCRIBED).map(|index| row.get_ref(index)).collect();
        Ok(checksum::description(key, &columns?))
    })?;
    connection
        .prepare_cached("UPDATE acp_sessions SET row_check = ?2 WHERE key = ?1")?
        .execute((key, sum))?;
    Ok(())
}

pub(super) fn path_value(path: &Path) -> ToSqlOutput<'_> {
    match path.to_str() {
        Some(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        None => ToSqlOutput::Owned(Value::Blob(path.as_os_str().as_encoded_bytes().to_vec())),
    }
}

pub(super) fn path_of(value: ValueRef<'_>) -> Result<PathBuf, StoreError> {
    match value {
        ValueRef::Text(bytes) => {
            std::str::from_utf8(bytes).map(PathBuf::from).map_err(|error| damaged(&error))
        }
        ValueRef::Blob(bytes) => Ok(path_of_bytes(bytes)),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {
            Err(damaged(&"a path is neither text nor bytes"))
        }
    }
}

#[cfg(unix)]
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}

#[cfg(not(unix))]
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// SQLite's integers are signed. Positions and epochs start at 0 and grow by ones, so they never
/// reach the sign.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
