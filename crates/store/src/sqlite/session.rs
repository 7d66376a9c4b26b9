//! The life of a session's row: created, claimed, released, copied, renamed, deleted.
//!
//! **Invariant:** a claim lowers the reserved position to just below the next one, so the first append
//! after any claim is synced, and the claim with it. A power cut then finds either the state before
//! the claim, in which nothing of it was shown, or the claim itself. A new session needs no such
//! care: if its creation is lost, so is its id, and no position can be given twice.
//! **Invariant:** positions that a claim leaves out stay left out, also if nothing is appended under it:
//! they count as given from then on.

use engine::{Claim, Epoch, NewSession, Seq, SessionId, StoreError};
use rusqlite::{Connection, OptionalExtension};
use wire::record;

use super::append::BLOCK;
use super::owner::Owners;
use super::request::Failure;
use super::row::{HOLDER_COLUMN, SESSION_COLUMNS, path_value, session_row, signed, unsigned};
use super::uptime;

/// This process, as a session's row names it.
pub(super) struct Identity<'a> {
    pub(super) owners: &'a mut Owners,
    /// The boot and the mount, as [`uptime`] names them.
    pub(super) uptime: Option<&'a str>,
}

impl Identity<'_> {
    fn name(&mut self) -> Result<&str, StoreError> {
        let named = self.owners.own_name();
        named.map_err(|error| StoreError::Unavailable {
            reason: format!("cannot mark this process as alive: {error}"),
        })
    }
}

pub(super) fn create(
    connection: &Connection,
    mut identity: Identity<'_>,
    session: &NewSession,
) -> Result<Claim, Failure> {
    refuse_known(connection, &session.id)?;
    insert(connection, &mut identity, session, Seq::START)?;
    fresh_claim(connection, &session.id)
}

pub(super) fn fork(
    connection: &Connection,
    mut identity: Identity<'_>,
    source: &SessionId,
    session: &NewSession,
) -> Result<Claim, Failure> {
    let found = connection
        .prepare_cached("SELECT key, last_seq FROM acp_sessions WHERE id = ?1")?
        .query_row([source.as_str()], |row| Ok((row.get::<_, i64>(0)?, unsigned(row.get(1)?))))
        .optional()?;
    let (from, last_seq) = found.ok_or(StoreError::NotFound)?;
    refuse_known(connection, &session.id)?;
    let to = insert(connection, &mut identity, session, Seq(last_seq))?;
    connection
        .prepare_cached(
            "INSERT INTO acp_session_events (session, seq, at, turn, origin, kind, version, body)
             SELECT ?2, seq, at, turn, origin, kind, version, body
             FROM acp_session_events WHERE session = ?1 ORDER BY seq",
        )?
        .execute((from, to))?;
    connection
        .prepare_cached(
            "INSERT INTO blob_uses (session, hash) SELECT ?2, hash FROM blob_uses WHERE session = ?1",
        )?
        .execute((from, to))?;
    fresh_claim(connection, &session.id)
}

pub(super) fn claim(
    connection: &Connection,
    mut identity: Identity<'_>,
    id: &SessionId,
) -> Result<Claim, Failure> {
    let select = format!(
        "SELECT {SESSION_COLUMNS}, holder, epoch, boot, reserved_seq FROM acp_sessions WHERE id = ?1"
    );
    let mut select = connection.prepare_cached(&select)?;
    let mut rows = select.query([id.as_str()])?;
    let found = rows.next()?.ok_or(StoreError::NotFound)?;
    let row = session_row(found)?;
    let epoch = Epoch(unsigned(found.get(12)?) + 1);
    let holder: Option<String> = found.get(HOLDER_COLUMN)?;
    let boot: Option<String> = found.get(13)?;
    let reserved = unsigned(found.get(14)?);
    drop(rows);

    let own = identity.name()?.to_owned();
    let alive = holder.as_deref().is_some_and(|holder| identity.owners.lives_elsewhere(holder));
    if row.busy && alive {
        return Err(StoreError::BusyElsewhere.into());
    }
    // Nothing can be missing if the last owner gave the session back, or if the machine has been up, and
    // the file system mounted, since it wrote.
    let released = holder.is_none();
    let up_since = alive || holder.as_ref() == Some(&own) || uptime::lasts(boot.as_deref(), identity.uptime);
    let lost = !released && !up_since && reserved > row.last_seq.0;
    // Twice what may be lost: readers that number what they show can tell this gap from those of earlier
    // versions, which they have not counted.
    let gap = if holder.as_deref() == Some(uptime::RESTORED) { uptime::RESTORED_GAP } else { BLOCK };
    let last = if lost { reserved + gap } else { row.last_seq.0 };
    connection
        .prepare_cached(
            "UPDATE acp_sessions SET epoch = ?2, holder = ?3, boot = ?4, reserved_seq = ?5, last_seq = ?5
             WHERE id = ?1",
        )?
        .execute((id.as_str(), signed(epoch.0), own, identity.uptime, signed(last)))?;
    Ok(Claim { epoch, row, next_seq: Seq(last + 1) })
}

/// Has no effect for somebody who was fenced off: the session is not theirs to give back.
pub(super) fn release(connection: &Connection, id: &SessionId, epoch: Epoch) -> Result<(), Failure> {
    connection
        .prepare_cached("UPDATE acp_sessions SET holder = NULL WHERE id = ?1 AND epoch = ?2")?
        .execute((id.as_str(), signed(epoch.0)))?;
    Ok(())
}

/// Takes the session out of sight and answers the key of what is left to sweep.
pub(super) fn delete(
    connection: &Connection,
    identity: Identity<'_>,
    id: &SessionId,
) -> Result<Option<i64>, Failure> {
    let holder: Option<Option<String>> = connection
        .prepare_cached("SELECT holder FROM acp_sessions WHERE id = ?1 AND busy")?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?;
    if holder.flatten().is_some_and(|holder| identity.owners.lives_elsewhere(&holder)) {
        return Err(StoreError::BusyElsewhere.into());
    }
    let key: Option<i64> = connection
        .prepare_cached("DELETE FROM acp_sessions WHERE id = ?1 RETURNING key")?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?;
    if let Some(key) = key {
        connection
            .prepare_cached("INSERT INTO deleted (id, key) VALUES (?1, ?2)")?
            .execute((id.as_str(), key))?;
    }
    Ok(key)
}

pub(super) fn rename(connection: &Connection, id: &SessionId, title: &str) -> Result<(), Failure> {
    let renamed = connection
        .prepare_cached("UPDATE acp_sessions SET title = ?2 WHERE id = ?1")?
        .execute((id.as_str(), title))?;
    if renamed == 0 { Err(StoreError::NotFound.into()) } else { Ok(()) }
}

fn refuse_known(connection: &Connection, id: &SessionId) -> Result<(), Failure> {
    let known = connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM acp_sessions WHERE id = ?1) OR EXISTS (SELECT 1 FROM deleted WHERE id = ?1)",
        )?
        .query_row([id.as_str()], |row| row.get::<_, bool>(0))?;
    if known { Err(StoreError::Exists.into()) } else { Ok(()) }
}

/// Makes the row of a session that this process owns, and answers its key.
fn insert(
    connection: &Connection,
    identity: &mut Identity<'_>,
    session: &NewSession,
    last_seq: Seq,
) -> Result<i64, Failure> {
    let roots = record::encode_paths(&session.roots)?;
    let boot = identity.uptime;
    let reserved = signed(last_seq.0 + BLOCK);
    let last_seq = signed(last_seq.0);
    connection
        .prepare_cached(
            "INSERT INTO acp_sessions (id, owner, cwd, roots, title, created_at, updated_at, last_seq, reserved_seq,
                epoch, holder, boot, parent, source)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, 1, ?9, ?10, ?11, ?12)",
        )?
        .execute((
            session.id.as_str(),
            &*session.owner.0,
            path_value(&session.cwd),
            roots,
            session.title.as_deref(),
            session.created_at.0,
            last_seq,
            reserved,
            identity.name()?,
            boot,
            session.parent.as_ref().map(SessionId::as_str),
            &*session.source,
        ))?;
    Ok(connection.last_insert_rowid())
}

fn fresh_claim(connection: &Connection, id: &SessionId) -> Result<Claim, Failure> {
    let select = format!("SELECT {SESSION_COLUMNS} FROM acp_sessions WHERE id = ?1");
    let mut select = connection.prepare_cached(&select)?;
    let mut rows = select.query([id.as_str()])?;
    let row = session_row(rows.next()?.ok_or(StoreError::NotFound)?)?;
    let next_seq = row.last_seq.next();
    Ok(Claim { epoch: Epoch(1), row, next_seq })
}
