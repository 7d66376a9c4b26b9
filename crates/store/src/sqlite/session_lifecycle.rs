//! The life cycle of a session's row: created, claimed, released, renamed, deleted.
//!
//! **Invariant:** a claim lowers the reserved position to just below the next one, so the first append
//! after any claim is synced, and the claim with it. A power cut then leaves either the state before
//! the claim, in which nothing of it was shown, or the claim itself. A new session needs no such
//! care: if its creation is lost, so is its id, and no position can be given twice.
//! **Invariant:** positions that a claim skips stay skipped, even if nothing is appended under it:
//! they count as assigned from then on.

use engine::{Claim, Epoch, NewSession, Seq, SessionId, StoreError};
use rusqlite::{Connection, OptionalExtension};
use wire::record;

use super::append::{BLOCK, BLOCK_SIGNED, describe, write_state};
use super::boot_and_mount_id;
use super::checksum::StateColumns;
use super::imports_and_forks;
use super::live_processes::ProcessLocks;
use super::session_row::{Soundness, StoredSession, path_value, sign_description, signed, unsigned};
use super::thread_requests::RequestFailure;

/// This process, as a session's row names it.
pub(super) struct OwnerIdentity<'a> {
    pub(super) owners: &'a mut ProcessLocks,
    /// The boot and the mount, as [`boot_and_mount_id`] names them.
    pub(super) uptime: Option<&'a str>,
}

impl OwnerIdentity<'_> {
    pub(super) fn name(&mut self) -> Result<&str, StoreError> {
        let named = self.owners.own_name();
        named.map_err(|error| StoreError::Unavailable {
            reason: format!("cannot mark this process as alive: {error}"),
        })
    }
}

pub(super) fn create(
    connection: &Connection,
    mut identity: OwnerIdentity<'_>,
    session: &NewSession,
) -> Result<Claim, RequestFailure> {
    refuse_known(connection, &session.id)?;
    insert(connection, &mut identity, session, None)?;
    fresh_claim(connection, &session.id)
}

pub(super) fn claim(
    connection: &Connection,
    mut identity: OwnerIdentity<'_>,
    id: &SessionId,
) -> Result<Claim, RequestFailure> {
    let StoredSession { row, state, described, counted, holder, boot } =
        StoredSession::find(connection, id)?.ok_or(StoreError::NotFound)?.require_sound()?;
    let epoch = Epoch(unsigned(state.epoch) + 1);
    let reserved = unsigned(state.reserved_seq);
    let own = identity.name()?.to_owned();
    let alive = holder.as_deref().is_some_and(|holder| identity.owners.lives_elsewhere(holder));
    if row.busy && alive {
        return Err(StoreError::BusyElsewhere.into());
    }
    // Nothing can be missing if the last owner released the session, or if the machine has been up, and the
    // file system mounted, since it wrote. A damaged row does not say how far positions were assigned.
    let released = holder.is_none();
    let up_since =
        alive || holder.as_ref() == Some(&own) || boot_and_mount_id::lasts(boot.as_deref(), identity.uptime);
    let lost = counted.is_damaged() || (!released && !up_since && reserved > row.last_seq.0);
    // Twice what may be lost: readers that number their updates can distinguish this gap from those of
    // earlier versions, which they have not counted.
    let gap = if holder.as_deref() == Some(boot_and_mount_id::RESTORED) {
        boot_and_mount_id::RESTORED_GAP
    } else {
        BLOCK
    };
    let last = if lost { reserved + gap } else { row.last_seq.0 };
    connection.prepare_cached("UPDATE acp_sessions SET holder = ?2, boot = ?3 WHERE key = ?1")?.execute((
        state.key,
        own,
        identity.uptime,
    ))?;
    let given = signed(last);
    let taken = StateColumns { epoch: signed(epoch.0), last_seq: given, reserved_seq: given, ..state };
    write_state(connection, &taken)?;
    if described == Soundness::Unknown {
        // From here on changes by other programs are noticed.
        sign_description(connection, state.key)?;
    }
    Ok(Claim { epoch, row, next_seq: Seq(last + 1) })
}

/// Has no effect for a process that was fenced off: the session is not its own to release.
pub(super) fn release(connection: &Connection, id: &SessionId, epoch: Epoch) -> Result<(), RequestFailure> {
    connection
        .prepare_cached("UPDATE acp_sessions SET holder = NULL WHERE id = ?1 AND epoch = ?2")?
        .execute((id.as_str(), signed(epoch.0)))?;
    Ok(())
}

/// Takes the session out of sight and answers the key of what is left to sweep.
pub(super) fn delete(
    connection: &Connection,
    identity: OwnerIdentity<'_>,
    id: &SessionId,
) -> Result<Option<i64>, RequestFailure> {
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

pub(super) fn rename(connection: &Connection, id: &SessionId, title: &str) -> Result<(), RequestFailure> {
    let stored = StoredSession::find(connection, id)?.ok_or(StoreError::NotFound)?.require_sound()?;
    describe(connection, id, stored.state.key, Some(title), None)
}

pub(super) fn refuse_known(connection: &Connection, id: &SessionId) -> Result<(), RequestFailure> {
    let known = has_or_had(connection, id)? || imports_and_forks::is_known(connection, id)?;
    if known { Err(StoreError::Exists.into()) } else { Ok(()) }
}

/// Whether a session that somebody may have seen has this id, or had it before it was deleted.
pub(super) fn has_or_had(connection: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM acp_sessions WHERE id = ?1) OR EXISTS (SELECT 1 FROM deleted WHERE id = ?1)",
        )?
        .query_row([id.as_str()], |row| row.get(0))
}

/// Inserts the row of a session that this process owns, and returns its key: a new one if none is given.
pub(super) fn insert(
    connection: &Connection,
    identity: &mut OwnerIdentity<'_>,
    session: &NewSession,
    key: Option<i64>,
) -> Result<i64, RequestFailure> {
    let roots = record::encode_paths(&session.roots)?;
    let boot = identity.uptime;
    connection
        .prepare_cached(
            "INSERT INTO acp_sessions (key, id, owner, cwd, roots, title, created_at, updated_at, epoch, holder, boot,
                parent, source, row_check, state_check)
             VALUES (?11, ?1, ?2, ?3, ?4, ?5, ?6, ?6, 1, ?7, ?8, ?9, ?10, 0, 0)",
        )?
        .execute((
            session.id.as_str(),
            &*session.owner.0,
            path_value(&session.cwd),
            roots,
            session.title.as_deref(),
            session.created_at.0,
            identity.name()?,
            boot,
            session.parent.as_ref().map(SessionId::as_str),
            &*session.source,
            key,
        ))?;
    let key = connection.last_insert_rowid();
    let state = StateColumns {
        key,
        updated_at: session.created_at.0,
        busy: false,
        last_seq: 0,
        written_seq: 0,
        reserved_seq: BLOCK_SIGNED,
        epoch: 1,
        unchecked_seq: 0,
    };
    write_state(connection, &state)?;
    sign_description(connection, key)?;
    Ok(key)
}

pub(super) fn fresh_claim(connection: &Connection, id: &SessionId) -> Result<Claim, RequestFailure> {
    let row = StoredSession::find(connection, id)?.ok_or(StoreError::NotFound)?.row;
    let next_seq = row.last_seq.next();
    Ok(Claim { epoch: Epoch(1), row, next_seq })
}
