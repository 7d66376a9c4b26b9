//! Sessions that are being written and are not visible yet: imports and forks.
//!
//! They are written in pieces, each a short transaction, so that a long one blocks nobody, and a process that is
//! stopped in the middle holds no lock. Until the last piece the session has a key, and a row in `unfinished` that
//! names its process, but no row in the table of sessions. The last piece adds that row and is synced, so the session
//! becomes visible complete or not at all. What a dead process left is swept like a deleted session.

use std::sync::Arc;

use engine::{
    Body, BoxFuture, Claim, Event, EventSource, NewSession, PageRequest, Seq, SessionId, StoreError,
    Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::append::{self, Scratch, write_state};
use super::checksum::StateColumns;
use super::events::{LogItem, SessionLog, notice_of_damage, read_page};
use super::live_processes::ProcessLocks;
use super::session_lifecycle::{self, OwnerIdentity};
use super::session_row::{StoredSession, signed};
use super::thread_requests::{ReplySender, RequestFailure, WriteRequest};

/// Events that are written at a time: a few milliseconds.
pub(super) const PIECE: usize = 512;
const PIECE_BYTES: usize = 1 << 20;

/// A session that is being written.
#[derive(Debug)]
pub(super) struct UnfinishedSession {
    pub(super) key: i64,
    /// The log that it is a copy of.
    pub(super) source: Option<SessionLog>,
}

/// The content of the session's row when the session becomes visible.
#[derive(Debug, Clone)]
pub(super) struct FinishedRow {
    pub(super) session: NewSession,
    pub(super) updated_at: Timestamp,
    pub(super) busy: bool,
    pub(super) last: Seq,
    /// A title among the events is the session's if it has no other.
    untitled: bool,
}

impl FinishedRow {
    pub(super) fn new(session: NewSession) -> Self {
        let (updated_at, untitled) = (session.created_at, session.title.is_none());
        Self { session, updated_at, busy: false, last: Seq::START, untitled }
    }

    fn observe(&mut self, event: &Event) {
        if let Body::Title { title } = &event.body
            && self.untitled
        {
            self.session.title = Some(Arc::clone(title));
        } else if matches!(event.body, Body::TurnStarted | Body::TurnEnded { .. }) {
            self.busy = matches!(event.body, Body::TurnStarted);
        }
        (self.updated_at, self.last) = (event.at, event.seq);
    }
}

/// One step of an import or a fork.
pub(super) enum SessionCopyStep {
    Begin {
        session: Box<NewSession>,
        source: Option<SessionId>,
        answer: ReplySender<UnfinishedSession>,
    },
    Write {
        key: i64,
        before: u64,
        events: Vec<Arc<Event>>,
        answer: ReplySender<()>,
    },
    /// Answers how far the copy has come; nothing if it is complete.
    Copy {
        source: SessionLog,
        name: SessionId,
        key: i64,
        after: u64,
        answer: ReplySender<Option<u64>>,
    },
    Finish {
        key: i64,
        outcome: Box<FinishedRow>,
        source: Option<(SessionId, i64)>,
        answer: ReplySender<Claim>,
    },
    /// Abandons the session; nobody waits for it any more.
    Abandon {
        key: i64,
    },
}

pub(super) fn begin(
    connection: &Connection,
    mut identity: OwnerIdentity<'_>,
    session: &NewSession,
    source: Option<&SessionId>,
) -> Result<UnfinishedSession, RequestFailure> {
    let source = match source {
        Some(id) => Some(StoredSession::find(connection, id)?.ok_or(StoreError::NotFound)?.require_sound()?),
        None => None,
    };
    session_lifecycle::refuse_known(connection, &session.id)?;
    // Keys are never assigned twice, so this one is the session's from here on.
    let key = session_lifecycle::insert(connection, &mut identity, session, None)?;
    connection.prepare_cached("DELETE FROM acp_sessions WHERE key = ?1")?.execute([key])?;
    connection.prepare_cached("INSERT INTO unfinished (key, id, holder) VALUES (?1, ?2, ?3)")?.execute((
        key,
        session.id.as_str(),
        identity.name()?,
    ))?;
    let source = source.map(|stored| SessionLog::of(&stored.state));
    if let Some(source) = &source {
        // From the beginning, so that no content goes with the source if that is deleted meanwhile.
        connection
            .prepare_cached(
                "INSERT INTO blob_uses (session, hash) SELECT ?2, hash FROM blob_uses WHERE session = ?1",
            )?
            .execute((source.key, key))?;
    }
    Ok(UnfinishedSession { key, source })
}

/// Copies a piece of a log. Each event was verified when it was read, and gets a checksum of its new place; what is
/// damaged is said in the copy, too.
pub(super) fn copy(
    connection: &Connection,
    (source, name): (SessionLog, &SessionId),
    key: i64,
    after: u64,
    scratch: &mut Scratch,
) -> Result<Option<u64>, RequestFailure> {
    let page = PageRequest { count_max: PIECE, bytes_max: PIECE_BYTES, outline: false };
    let items = read_page(connection, source, after, page)?;
    let mut before = after;
    let mut at = Timestamp(0);
    for item in items {
        let event = match item {
            LogItem::Event(event) => event,
            LogItem::Damaged(damage) => notice_of_damage(name, &damage, at),
        };
        if event.seq.0 > source.last {
            return Ok(None);
        }
        at = event.at;
        let seq = event.seq.0;
        append::insert(connection, key, before, &[Arc::new(event)], scratch)?;
        before = seq;
    }
    Ok((before > after).then_some(before))
}

pub(super) fn finish(
    connection: &Connection,
    mut identity: OwnerIdentity<'_>,
    key: i64,
    outcome: &FinishedRow,
    source: Option<&(SessionId, i64)>,
) -> Result<Claim, RequestFailure> {
    if let Some((id, source)) = source
        && StoredSession::find(connection, id)?.is_none_or(|stored| stored.state.key != *source)
    {
        return Err(StoreError::NotFound.into());
    }
    let known = connection.prepare_cached("DELETE FROM unfinished WHERE key = ?1")?.execute([key])?;
    if known == 0 {
        return Err(StoreError::Write { reason: "the session was discarded".to_owned() }.into());
    }
    session_lifecycle::insert(connection, &mut identity, &outcome.session, Some(key))?;
    let state = StateColumns {
        key,
        updated_at: outcome.updated_at.0,
        busy: outcome.busy,
        last_seq: signed(outcome.last.0),
        written_seq: signed(outcome.last.0),
        reserved_seq: signed(outcome.last.0 + append::BLOCK),
        epoch: 1,
        unchecked_seq: 0,
    };
    write_state(connection, &state)?;
    session_lifecycle::fresh_claim(connection, &outcome.session.id)
}

/// The written part is swept like a deleted session. The session was never visible, so its id is free again;
/// the name for the sweep cannot be a session's id.
pub(super) fn abandon(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    let known = connection.prepare_cached("DELETE FROM unfinished WHERE key = ?1")?.execute([key])?;
    if known > 0 {
        connection
            .prepare_cached("INSERT OR REPLACE INTO deleted (id, key) VALUES (?1, ?2)")?
            .execute((format!("unfinished:{key}"), key))?;
    }
    Ok(())
}

/// Gives up what dead processes were writing.
pub(super) fn abandon_orphans(connection: &Connection, owners: &ProcessLocks) -> rusqlite::Result<()> {
    loop {
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
        let mut select = transaction.prepare_cached("SELECT key, holder FROM unfinished")?;
        let mut rows = select.query([])?;
        let mut orphan = None;
        while let Some(row) = rows.next()? {
            let (key, holder): (i64, String) = (row.get(0)?, row.get(1)?);
            if !owners.is_own(&holder) && !owners.lives_elsewhere(&holder) {
                orphan = Some(key);
                break;
            }
        }
        drop(rows);
        drop(select);
        let Some(key) = orphan else { return Ok(()) };
        abandon(&transaction, key)?;
        transaction.commit()?;
    }
}

/// Whether an id belongs to a session that is being written.
pub(super) fn is_known(connection: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    let found = connection
        .prepare_cached("SELECT 1 FROM unfinished WHERE id = ?1")?
        .query_row([id.as_str()], |_| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

/// The queue of the writer thread.
type WriteQueue = Option<mpsc::Sender<WriteRequest>>;

async fn ask<T>(
    queue: &WriteQueue,
    make: impl FnOnce(ReplySender<T>) -> SessionCopyStep,
) -> Result<T, StoreError> {
    let gone = || StoreError::Unavailable { reason: "its thread has ended".to_owned() };
    let (answer, answered) = oneshot::channel();
    let queue = queue.as_ref().ok_or_else(gone)?;
    queue.send(WriteRequest::Unfinished(make(answer))).await.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

/// Abandons the session when dropped, unless it is finished. If the queue is full, the next process does it.
struct AbandonOnDrop {
    queue: WriteQueue,
    key: i64,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            drop(queue.try_send(WriteRequest::Unfinished(SessionCopyStep::Abandon { key: self.key })));
        }
    }
}

pub(super) async fn import(
    queue: WriteQueue,
    session: NewSession,
    mut source: Box<dyn EventSource>,
) -> Result<Claim, StoreError> {
    let mut outcome = Box::new(FinishedRow::new(session.clone()));
    let session = Box::new(session);
    let begun = ask(&queue, |answer| SessionCopyStep::Begin { session, source: None, answer }).await?;
    let key = begun.key;
    let mut guard = AbandonOnDrop { queue: queue.clone(), key };
    loop {
        let events = source.next().await.map_err(|reason| StoreError::Write { reason })?;
        if events.is_empty() {
            break;
        }
        for piece in events.chunks(PIECE) {
            let before = outcome.last.0;
            piece.iter().for_each(|event| outcome.observe(event));
            let events = piece.to_vec();
            ask(&queue, |answer| SessionCopyStep::Write { key, before, events, answer }).await?;
        }
    }
    let claim = ask(&queue, |answer| SessionCopyStep::Finish { key, outcome, source: None, answer }).await?;
    guard.queue = None;
    Ok(claim)
}

/// An event source whose events are all in memory.
pub(super) struct AllEvents(pub(super) Vec<Arc<Event>>);

impl EventSource for AllEvents {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Event>>, String>> {
        Box::pin(std::future::ready(Ok(std::mem::take(&mut self.0))))
    }
}

pub(super) async fn fork(
    queue: WriteQueue,
    name: SessionId,
    session: NewSession,
) -> Result<Claim, StoreError> {
    let source = Some(name.clone());
    let mut outcome = Box::new(FinishedRow::new(session.clone()));
    let session = Box::new(session);
    let begun = ask(&queue, |answer| SessionCopyStep::Begin { session, source, answer }).await?;
    let key = begun.key;
    let mut guard = AbandonOnDrop { queue: queue.clone(), key };
    let source = begun.source.ok_or(StoreError::NotFound)?;
    let mut after = 0;
    loop {
        let name = name.clone();
        let copied = ask(&queue, |answer| SessionCopyStep::Copy { source, name, key, after, answer }).await?;
        match copied {
            Some(last) => after = last,
            None => break,
        }
    }
    outcome.last = Seq(source.last);
    let source = Some((name, source.key));
    let claim = ask(&queue, |answer| SessionCopyStep::Finish { key, outcome, source, answer }).await?;
    guard.queue = None;
    Ok(claim)
}
