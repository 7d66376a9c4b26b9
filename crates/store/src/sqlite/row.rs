//! The columns of a session's row, and the engine's values they stand for.
//!
//! A path is stored as text, or as bytes where it is not Unicode, so that it comes back as it was
//! and can still be compared by SQL.

use std::path::{Path, PathBuf};

use engine::{Principal, Seq, SessionId, SessionRow, StoreError, Timestamp};
use rusqlite::Row;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::request::damaged;

/// The columns that [`session_row`] reads, in its order.
pub(super) const SESSION_COLUMNS: &str =
    "id, owner, cwd, roots, parent, source, title, created_at, updated_at, busy, last_seq";

/// Where `holder` stands when it is asked for after them.
pub(super) const HOLDER_COLUMN: usize = 11;

/// Reads the row's columns, which start at the first.
pub(super) fn session_row(row: &Row<'_>) -> Result<SessionRow, StoreError> {
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
        updated_at: Timestamp(number(8)?),
        busy: number(9)? != 0,
        last_seq: Seq(unsigned(number(10)?)),
    })
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
