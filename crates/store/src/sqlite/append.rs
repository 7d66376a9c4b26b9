//! Appending events: the fence, the positions, the rows, and the columns that a listing shows.
//!
//! Positions come from blocks. A session's row says up to where positions are reserved, and the
//! append that goes past that extends the reservation in its own, synced, transaction. So after a
//! power cut, everything that can have been shown to anybody lies at or below the reserved position.

use std::collections::HashMap;

use engine::{Batch, Body, Claim, Epoch, Event, SessionId, StoreError};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use wire::record;

use super::blob::Keeper;
use super::request::{Failure, Loss};
use super::row::{path_value, signed, unsigned};

/// Positions reserved at once. A session that streams syncs once per so many events on this account,
/// and a power cut skips at most twice as many positions.
pub(super) const BLOCK: u64 = engine::POSITIONS_RESERVED;

/// Up to where this process has reserved positions, as committed. What is not in here is taken as
/// not reserved, which at worst costs a sync.
#[derive(Default)]
pub(super) struct Reservations(HashMap<SessionId, (Epoch, u64)>);

impl Reservations {
    /// Whether the batch can be appended without reserving positions.
    pub(super) fn cover(&self, batch: &Batch) -> bool {
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

/// A scratch buffer past this size is given back after the append.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

struct Head {
    key: i64,
    epoch: u64,
    held: bool,
    last_seq: u64,
    reserved_seq: u64,
    busy: bool,
}

/// Appends the batch and answers up to where positions are reserved. `sync` says whether the
/// transaction around this will be synced.
pub(super) fn append(
    connection: &Connection,
    batch: &Batch,
    sync: bool,
    scratch: &mut Scratch,
) -> Result<u64, Failure> {
    let head = head_of(connection, &batch.session)?.ok_or(StoreError::NotFound)?;
    if head.epoch != batch.epoch.0 || !head.held {
        return Err(StoreError::Fenced.into());
    }
    let Some(last) = batch.events.last() else {
        if batch.sync {
            write_something(connection, head.key)?;
        }
        return Ok(head.reserved_seq);
    };
    refuse_disorder(&head, batch)?;
    let mut reserved = head.reserved_seq;
    if last.seq.0 > reserved {
        if !sync {
            let reason = "positions are about to be used that are not reserved".to_owned();
            return Err(Failure::Lost(Loss { reason, error: None, busy: false, disk: false }));
        }
        reserved = last.seq.0 + BLOCK;
    }
    insert(connection, head.key, batch, scratch)?;
    update_row(connection, &head, batch, last, reserved)?;
    if scratch.body.capacity() > SCRATCH_BYTES_MAX {
        scratch.body = Vec::new();
    }
    Ok(reserved)
}

fn head_of(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<Head>> {
    let mut select = connection.prepare_cached(
        "SELECT key, epoch, holder IS NOT NULL, last_seq, reserved_seq, busy FROM acp_sessions WHERE id = ?1",
    )?;
    let head = |row: &Row<'_>| {
        Ok(Head {
            key: row.get(0)?,
            epoch: unsigned(row.get(1)?),
            held: row.get(2)?,
            last_seq: unsigned(row.get(3)?),
            reserved_seq: unsigned(row.get(4)?),
            busy: row.get(5)?,
        })
    };
    select.query_row([id.as_str()], head).optional()
}

/// A transaction that writes nothing is not synced, and then nothing before it is either.
fn write_something(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE acp_sessions SET epoch = epoch WHERE key = ?1")?.execute([key])?;
    Ok(())
}

/// Checked before anything is written, so that one bad batch does not cost the others theirs.
fn refuse_disorder(head: &Head, batch: &Batch) -> Result<(), StoreError> {
    let mut before = head.last_seq;
    for event in &batch.events {
        if event.seq.0 <= before {
            let reason = format!("position {} was given before", event.seq);
            return Err(StoreError::Write { reason });
        }
        before = event.seq.0;
    }
    Ok(())
}

fn insert(connection: &Connection, key: i64, batch: &Batch, scratch: &mut Scratch) -> Result<(), Failure> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO acp_session_events (session, seq, at, turn, origin, kind, version, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let mut keeper = Keeper::new(connection, key);
    for event in &batch.events {
        scratch.body.clear();
        scratch.origin.clear();
        record::encode_event(event, &mut |text| keeper.keep(text), &mut scratch.body).map_err(lost)?;
        record::encode_origin(&event.origin, &mut scratch.origin).map_err(lost)?;
        insert.execute((
            key,
            signed(event.seq.0),
            event.at.0,
            event.turn.map(|turn| signed(turn.0)),
            Json(&scratch.origin),
            record::kind(&event.body),
            record::VERSION,
            Json(&scratch.body),
        ))?;
    }
    Ok(keeper.finish()?)
}

/// Part of the batch may be written already: the transaction has to go.
fn lost(error: record::RecordError) -> Failure {
    Failure::Lost(Loss { reason: error.to_string(), error: None, busy: false, disk: false })
}

/// Keeps the listing's columns in step with what was appended.
fn update_row(
    connection: &Connection,
    head: &Head,
    batch: &Batch,
    last: &Event,
    reserved: u64,
) -> rusqlite::Result<()> {
    let (mut busy, mut title, mut cwd) = (head.busy, None, None);
    for event in &batch.events {
        if let Body::Title { title: given } = &event.body {
            title = Some(&**given);
        } else if let Body::Moved { cwd: entered } = &event.body {
            cwd = Some(path_value(entered));
        } else if matches!(event.body, Body::TurnStarted) {
            busy = true;
        } else if matches!(event.body, Body::TurnEnded { .. }) {
            busy = false;
        }
    }
    connection
        .prepare_cached(
            "UPDATE acp_sessions SET updated_at = ?2, last_seq = ?3, reserved_seq = ?4, busy = ?5,
                title = coalesce(?6, title), cwd = coalesce(?7, cwd) WHERE key = ?1",
        )?
        .execute((head.key, last.at.0, signed(last.seq.0), signed(reserved), busy, title, cwd))?;
    Ok(())
}

/// JSON is UTF-8 by construction and need not be checked again.
struct Json<'a>(&'a [u8]);

impl ToSql for Json<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}
