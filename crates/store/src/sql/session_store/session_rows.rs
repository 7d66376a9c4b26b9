//! Conversion between the columns of a session's row and the engine's values.

use std::path::Path;
use std::sync::Arc;

use engine::{Epoch, Principal, Seq, SessionId, SessionRow, StoreError, Timestamp};
use wire::record;

use super::{damaged, read};
use crate::sql::{Row, SqlValue};
use crate::sqlite::session_row::path_of_bytes;

/// The columns that [`read_row`] reads, in its order; whether the owner lives comes after them.
pub(super) const COLUMNS: &str =
    "id, owner, cwd, roots, parent, source, title, created_at, updated_at, busy, epoch, holder,
     (SELECT head FROM logs WHERE logs.id = 'session ' || s.id)";
pub(super) const UPDATED_AT: usize = 8;

/// The prefix of a session's id in the name of its log: a database may have other logs.
pub(super) const LOG: &str = "session ";

pub(super) fn log_of(id: &SessionId) -> String {
    format!("{LOG}{id}")
}

/// A row, and who owns it.
pub(super) struct OwnedRow {
    pub(super) row: SessionRow,
    epoch: Epoch,
    holder: Option<Arc<str>>,
    alive: bool,
}

impl OwnedRow {
    /// Whether a process that claimed it with this epoch owns it.
    pub(super) fn is_owned(&self, epoch: Epoch) -> bool {
        self.epoch == epoch && self.holder.is_some()
    }

    /// The row as it is true now: a session whose process died in the middle of a turn is not busy any more.
    pub(super) fn shown(self) -> SessionRow {
        let busy = self.row.busy && self.holder.is_some() && self.alive;
        SessionRow { busy, ..self.row }
    }
}

pub(super) fn read_row(row: &Row) -> Result<OwnedRow, StoreError> {
    let text = |column| row.text(column).map_err(read);
    let maybe = |column| row.maybe_text(column).map_err(read);
    let number = |column| row.int(column).map_err(read);
    let id = |text: &str| SessionId::parse(text).map_err(|error| damaged(&error));
    let found = SessionRow {
        id: id(&text(0)?)?,
        owner: Principal(text(1)?),
        cwd: path_of_bytes(&row.bytes(2).map_err(read)?),
        roots: record::decode_paths(&text(3)?).map_err(|error| damaged(&error))?,
        parent: maybe(4)?.as_deref().map(id).transpose()?,
        source: text(5)?,
        title: maybe(6)?,
        created_at: Timestamp(number(7)?),
        updated_at: Timestamp(number(UPDATED_AT)?),
        busy: number(9)? != 0,
        last_seq: Seq(row.count(12).map_err(read)?),
    };
    let epoch = Epoch(row.count(10).map_err(read)?);
    Ok(OwnedRow { row: found, epoch, holder: maybe(11)?, alive: number(13)? != 0 })
}

/// As bytes, because not every path is a text.
pub(super) fn path_value(path: &Path) -> SqlValue {
    path.as_os_str().as_encoded_bytes().to_vec().into()
}

/// No text of a database has a NUL.
pub(super) fn clean(text: &str) -> SqlValue {
    text.replace('\0', "\u{FFFD}").into()
}
