//! Appending events: the fence, the positions, the rows, and the columns that a listing shows.
//!
//! Positions come from blocks. A session's row says up to where positions are reserved, and the
//! append that goes past that extends the reservation in its own, synced, transaction. So after a
//! power cut, everything that can have been shown to anybody lies at or below the reserved position.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Body, Claim, Epoch, Event, EventBatch, RunningTurns, SessionId, StoreError};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use wire::record;

use super::blob::BlobWriter;
use super::checksum::{EventColumns, StateColumns};
use super::session_row::{StoredSession, path_value, sign_description, signed, unsigned};
use super::thread_requests::{RequestFailure, TransactionLoss, damaged};

/// Positions reserved at once. A streaming session syncs once per this many events for that reason, and a
/// power cut skips at most twice as many positions.
pub(super) const BLOCK: u64 = engine::POSITIONS_RESERVED;
pub(super) const BLOCK_SIGNED: i64 = BLOCK as i64;

/// The last position that this process has reserved for each session, as committed. A session without an
/// entry counts as not reserved, which costs a sync at worst.
#[derive(Default)]
pub(super) struct Reservations(HashMap<SessionId, (Epoch, u64)>);

impl Reservations {
    /// Whether the batch can be appended without reserving positions.
    pub(super) fn cover(&self, batch: &EventBatch) -> bool {
        let Some(last) = batch.events.last() else {
            return true;
        };
        self.0.get(&batch.session).is_some_and(|(epoch, upto)| *epoch == batch.epoch && last.seq.0 <= *upto)
    }

    pub(super) fn note(&mut self, session: SessionId, epoch: Epoch, upto: u64) {
        self.0.insert(session, (epoch, upto));
    }

    /// A session that was just made comes with its first block.
    pub(super) fn note_new(&mut self, claim: &Claim) {
        self.note(claim.row.id.clone(), claim.epoch, claim.row.last_seq.0 + BLOCK);
    }

    pub(super) fn forget(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }
}

/// Reused from append to append, so that a stream of small events allocates nothing per event.
#[derive(Default)]
pub(super) struct Scratch {
    body: Vec<u8>,
    origin: Vec<u8>,
}

/// A scratch buffer larger than this is freed after the append.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

struct AppendState {
    state: StateColumns,
    held: bool,
    /// As [`StateColumns::checksum`] has to be; none in a row of an older layout.
    checksum: Option<i64>,
}

/// Appends the batch and answers up to where positions are reserved. `sync` says whether the
/// transaction around this will be synced.
pub(super) fn append(
    connection: &Connection,
    batch: &EventBatch,
    sync: bool,
    running: &mut RunningTurns,
    scratch: &mut Scratch,
) -> Result<u64, RequestFailure> {
    let head = head_of(connection, &batch.session)?.ok_or(StoreError::NotFound)?;
    if head.checksum.is_some_and(|checksum| checksum != head.state.checksum()) {
        let session = &batch.session;
        return Err(damaged(&format_args!("the entry of session {session} is damaged; open it again")).into());
    }
    if unsigned(head.state.epoch) != batch.epoch.0 || !head.held {
        return Err(StoreError::Fenced.into());
    }
    let Some(last) = batch.events.last() else {
        if batch.sync {
            write_something(connection, head.state.key)?;
        }
        return Ok(unsigned(head.state.reserved_seq));
    };
    let last_seq = unsigned(head.state.last_seq);
    refuse_disorder(last_seq, batch)?;
    let mut reserved = unsigned(head.state.reserved_seq);
    if last.seq.0 > reserved {
        if !sync {
            let reason = "positions are about to be used that are not reserved".to_owned();
            return Err(RequestFailure::Lost(TransactionLoss {
                reason,
                error: None,
                busy: false,
                disk: false,
            }));
        }
        reserved = last.seq.0 + BLOCK;
    }
    let written = unsigned(head.state.written_seq);
    insert(connection, head.state.key, written, &batch.events, scratch)?;
    let busy = running.after(batch).unwrap_or(head.state.busy);
    let state = StateColumns {
        updated_at: last.at.0,
        busy,
        last_seq: signed(last.seq.0),
        written_seq: signed(last.seq.0),
        reserved_seq: signed(reserved),
        ..head.state
    };
    update_row(connection, batch, &state)?;
    if scratch.body.capacity() > SCRATCH_BYTES_MAX {
        scratch.body = Vec::new();
    }
    Ok(reserved)
}

fn head_of(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<AppendState>> {
    let mut select = connection.prepare_cached(
        "SELECT key, epoch, holder IS NOT NULL, last_seq, reserved_seq, busy, updated_at, unchecked_seq, state_check,
            written_seq
         FROM acp_sessions WHERE id = ?1",
    )?;
    let head = |row: &Row<'_>| {
        let state = StateColumns {
            key: row.get(0)?,
            updated_at: row.get(6)?,
            busy: row.get(5)?,
            last_seq: row.get(3)?,
            written_seq: row.get(9)?,
            reserved_seq: row.get(4)?,
            epoch: row.get(1)?,
            unchecked_seq: row.get(7)?,
        };
        Ok(AppendState { state, held: row.get(2)?, checksum: row.get(8)? })
    };
    select.query_row([id.as_str()], head).optional()
}

/// A transaction that writes nothing is not synced, and then nothing before it is either.
fn write_something(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE acp_sessions SET epoch = epoch WHERE key = ?1")?.execute([key])?;
    Ok(())
}

/// Checked before anything is written, so that one bad batch does not cost the others theirs.
fn refuse_disorder(last_seq: u64, batch: &EventBatch) -> Result<(), StoreError> {
    let mut before = last_seq;
    for event in &batch.events {
        if event.seq.0 <= before {
            let reason = format!("position {} was already used", event.seq);
            return Err(StoreError::Write { reason });
        }
        before = event.seq.0;
    }
    Ok(())
}

/// Writes the rows of events that come after the position `before`.
pub(super) fn insert(
    connection: &Connection,
    key: i64,
    mut before: u64,
    events: &[Arc<Event>],
    scratch: &mut Scratch,
) -> Result<(), RequestFailure> {
    let mut keeper = BlobWriter::new(connection, key);
    for event in events {
        scratch.body.clear();
        scratch.origin.clear();
        record::encode_event(event, &mut |text| keeper.keep(text), &mut scratch.body).map_err(lost)?;
        record::encode_origin(&event.origin, &mut scratch.origin).map_err(lost)?;
        let columns = EventColumns {
            session: key,
            seq: signed(event.seq.0),
            at: event.at.0,
            turn: event.turn.map(|turn| signed(turn.0)),
            origin: &scratch.origin,
            kind: record::kind(&event.body).as_bytes(),
            version: record::VERSION.into(),
            body: &scratch.body,
            skipped: signed(event.seq.0.saturating_sub(before + 1)),
        };
        insert_row(connection, &columns, Some(columns.checksum()))?;
        before = event.seq.0;
    }
    Ok(keeper.finish()?)
}

pub(super) fn insert_row(
    connection: &Connection,
    columns: &EventColumns<'_>,
    checksum: Option<i64>,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO acp_session_events (session, seq, at, turn, origin, kind, version, body, skipped, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute((
            columns.session,
            columns.seq,
            columns.at,
            columns.turn,
            Json(columns.origin),
            Json(columns.kind),
            columns.version,
            Json(columns.body),
            columns.skipped,
            checksum,
        ))?;
    Ok(())
}

/// Part of the batch may be written already: the transaction has to go.
fn lost(error: record::RecordError) -> RequestFailure {
    RequestFailure::Lost(TransactionLoss { reason: error.to_string(), error: None, busy: false, disk: false })
}

/// Keeps the listing's columns in step with what was appended.
fn update_row(
    connection: &Connection,
    batch: &EventBatch,
    state: &StateColumns,
) -> Result<(), RequestFailure> {
    let (mut title, mut cwd) = (None, None);
    for event in &batch.events {
        if let Body::Title { title: given } = &event.body {
            title = Some(&**given);
        } else if let Body::Moved { cwd: entered, .. } = &event.body {
            cwd = Some(path_value(entered));
        }
    }
    write_state(connection, state)?;
    if title.is_some() || cwd.is_some() {
        describe(connection, &batch.session, state.key, title, cwd)?;
    }
    Ok(())
}

pub(super) fn write_state(connection: &Connection, state: &StateColumns) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE acp_sessions SET updated_at = ?2, last_seq = ?3, reserved_seq = ?4, busy = ?5, epoch = ?6,
                unchecked_seq = ?7, state_check = ?8, written_seq = ?9 WHERE key = ?1",
        )?
        .execute((
            state.key,
            state.updated_at,
            state.last_seq,
            state.reserved_seq,
            state.busy,
            state.epoch,
            state.unchecked_seq,
            state.checksum(),
            state.written_seq,
        ))?;
    Ok(())
}

/// Changes the title or the folder. A description that was damaged stays so: a new checksum would vouch for
/// what else it says.
pub(super) fn describe(
    connection: &Connection,
    id: &SessionId,
    key: i64,
    title: Option<&str>,
    cwd: Option<ToSqlOutput<'_>>,
) -> Result<(), RequestFailure> {
    let sound = StoredSession::find(connection, id)?.is_some_and(|stored| !stored.described.is_damaged());
    connection
        .prepare_cached(
            "UPDATE acp_sessions SET title = coalesce(?2, title), cwd = coalesce(?3, cwd),
                row_check = ~coalesce(row_check, 0) WHERE key = ?1",
        )?
        .execute((key, title, cwd))?;
    if sound {
        sign_description(connection, key)?;
    }
    Ok(())
}

/// JSON is UTF-8 by construction and need not be checked again.
struct Json<'a>(&'a [u8]);

impl ToSql for Json<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}
