//! The reader thread: it serves reads on a read-only connection of its own.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    Epoch, Event, ListQuery, PageRequest, Seq, SessionId, SessionRow, StoreError, StoreFault, Timestamp,
};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::mpsc::Receiver;

use super::event_page_cache::PageCache;
use super::events::{LogItem, SessionLog, notice_of_damage, read_page};
use super::examine::LINEAGE_DAMAGED;
use super::lineage;
use super::live_processes::ProcessLocks;
use super::schema;
use super::session_lifecycle;
use super::session_row::{SESSION_COLUMNS, StoredSession, signed};
use super::store_condition::{self, StoreCondition};
use super::thread_requests::{ReadRequest, damaged, reply};

/// Keys that are tried one by one where nothing else can be trusted.
const KEYS_MAX: i64 = 1 << 20;

pub(super) struct Reader {
    connection: Connection,
    owners: ProcessLocks,
    recent: PageCache,
    /// Whether the indexes of the sessions agree with their rows.
    sound_indexes: OnceCell<bool>,
}

impl Reader {
    /// Serves the queue until it is closed. The writer creates the file, so it is opened after the writer
    /// has opened it, and reopened when the writer reopened it.
    pub(super) fn run(path: PathBuf, mut queue: Receiver<ReadRequest>, condition: &StoreCondition) {
        let mut reader = None;
        let mut opened = 0;
        while let Some(request) = queue.blocking_recv() {
            if condition.opened() != opened {
                reader = None;
                opened = condition.opened();
            }
            if reader.is_none() {
                match Self::open(&path) {
                    Ok(opened) => reader = Some(opened),
                    Err(fault) => {
                        request.refuse(fault.into());
                        continue;
                    }
                }
            }
            if let Some(reader) = &mut reader {
                reader.serve(request);
            }
        }
    }

    fn open(path: &Path) -> Result<Self, StoreFault> {
        let connection = schema::open_for_reading(path);
        connection
            .map(|connection| Self {
                connection,
                owners: ProcessLocks::beside(path),
                recent: PageCache::default(),
                sound_indexes: OnceCell::new(),
            })
            .map_err(|error| store_condition::of_sqlite(path, &error))
    }

    fn serve(&mut self, request: ReadRequest) {
        match request {
            ReadRequest::Events { id, after, page, answer } => reply(answer, self.events(&id, after, page)),
            ReadRequest::Session { id, answer } => reply(answer, self.session(&id)),
            ReadRequest::Owns { id, epoch, answer } => reply(answer, self.owns(&id, epoch)),
            ReadRequest::Sessions { query, answer } => reply(answer, self.sessions(&query)),
            ReadRequest::Unused { ids, answer } => reply(answer, self.unused(ids)),
            ReadRequest::NeverUsed { ids, answer } => reply(answer, self.never_used(ids)),
            ReadRequest::Lineage { answer } => reply(answer, self.lineage()),
        }
    }

    fn events(
        &mut self,
        id: &SessionId,
        after: Seq,
        page: PageRequest,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        // The row and the events are of one moment, or an event would seem to be missing that is only newer.
        let moment = self.connection.unchecked_transaction().map_err(|error| damaged(&error))?;
        let stored = self.find(id)?;
        let key = stored.state.key;
        if let Some(events) = self.recent.find(key, id.as_str(), after, page) {
            return Ok(events);
        }
        let items = read_page(&self.connection, SessionLog::of(&stored.state), after.0, page);
        let items = items.map_err(|error| damaged(&error))?;
        drop(moment);
        let mut at = stored.row.created_at;
        let mut events = Vec::with_capacity(items.len());
        for item in items {
            let event = match item {
                LogItem::Event(event) => event,
                LogItem::Damaged(damage) => notice_of_damage(id, &damage, at),
            };
            at = event.at;
            events.push(Arc::new(event));
        }
        self.recent.keep(key, id.as_str(), after, page, &events);
        Ok(events)
    }

    fn lineage(&self) -> Result<Option<Arc<str>>, StoreError> {
        let name = lineage::read(&self.connection);
        name.map(|name| Some(name.into()))
            .map_err(|reason| damaged(&format_args!("{LINEAGE_DAMAGED}: {reason}")))
    }

    fn session(&self, id: &SessionId) -> Result<SessionRow, StoreError> {
        self.find(id).map(|stored| self.shown(stored))
    }

    /// As an append would find it.
    fn owns(&self, id: &SessionId, epoch: Epoch) -> Result<bool, StoreError> {
        let mut select = self
            .connection
            .prepare_cached("SELECT epoch = ?2 AND holder IS NOT NULL FROM acp_sessions WHERE id = ?1")
            .map_err(|error| damaged(&error))?;
        select
            .query_row((id.as_str(), signed(epoch.0)), |row| row.get(0))
            .optional()
            .map_or_else(|error| Err(damaged(&error)), |owns| owns.ok_or(StoreError::NotFound))
    }

    fn unused(&self, ids: Vec<SessionId>) -> Result<Vec<SessionId>, StoreError> {
        let mut unused = Vec::new();
        for id in ids {
            if !session_lifecycle::has_or_had(&self.connection, &id).map_err(|error| damaged(&error))? {
                unused.push(id);
            }
        }
        Ok(unused)
    }

    /// Looks at the columns alone: an event of a turn, or of another kind, is found without decoding anything.
    fn never_used(&self, ids: Vec<SessionId>) -> Result<Vec<SessionId>, StoreError> {
        let select = format!(
            "SELECT NOT EXISTS (SELECT 1 FROM acp_session_events WHERE session = key AND
                (turn IS NOT NULL OR kind NOT IN ({})))
             FROM acp_sessions WHERE id = ?1",
            crate::quoted_setup_kinds()
        );
        let mut select = self.connection.prepare_cached(&select).map_err(|error| damaged(&error))?;
        let never_used = |id: &SessionId| {
            // A session that cannot be examined, or does not exist, does not count as unused.
            matches!(select.query_row([id.as_str()], |row| row.get(0)), Ok(true))
        };
        Ok(ids.into_iter().filter(never_used).collect())
    }

    fn find(&self, id: &SessionId) -> Result<StoredSession, StoreError> {
        let found = match StoredSession::find(&self.connection, id) {
            Ok(Some(stored)) => return Ok(stored),
            found => found,
        };
        // The index of ids may be damaged where the row is not.
        let searched =
            if self.indexes_are_sound() { None } else { StoredSession::search(&self.connection, id)? };
        searched.ok_or_else(|| found.err().unwrap_or(StoreError::NotFound))
    }

    /// Determined once, when sessions are listed or a session is not found.
    fn indexes_are_sound(&self) -> bool {
        *self.sound_indexes.get_or_init(|| {
            let verdict: Result<String, _> =
                self.connection.query_row("PRAGMA integrity_check('acp_sessions')", [], |row| row.get(0));
            match verdict {
                Ok(verdict) if verdict == "ok" => true,
                Ok(reason) => {
                    tracing::error!(reason, "the list of sessions is damaged; run `ropewalk doctor --store`");
                    false
                }
                Err(error) => {
                    tracing::error!(%error, "the list of sessions is damaged; run `ropewalk doctor --store`");
                    false
                }
            }
        })
    }

    /// The row as it is true now: a session whose process died in the middle of a turn is not busy any more.
    fn shown(&self, stored: StoredSession) -> SessionRow {
        let mut shown = stored.row;
        shown.busy = shown.busy && stored.holder.is_some_and(|holder| self.owners.lives_elsewhere(&holder));
        shown
    }

    /// The directory is compared here rather than in SQL, where `/a` and `/a/` would differ.
    fn sessions(&self, query: &ListQuery) -> Result<Vec<SessionRow>, StoreError> {
        if !self.indexes_are_sound() {
            return Ok(self.sessions_one_by_one(query));
        }
        let select = format!(
            "SELECT {SESSION_COLUMNS} FROM acp_sessions WHERE owner = ?1 AND (updated_at, id) < (?2, ?3)
             ORDER BY updated_at DESC, id DESC"
        );
        let mut select = self.connection.prepare_cached(&select).map_err(|error| damaged(&error))?;
        let (at, id) = match &query.before {
            Some((at, id)) => (*at, id.as_str()),
            None => (Timestamp(i64::MAX), ""),
        };
        let mut rows = select.query((&*query.owner.0, at.0, id)).map_err(|error| damaged(&error))?;
        let mut found = Vec::new();
        while found.len() < query.limit {
            let Some(row) = rows.next().map_err(|error| damaged(&error))? else {
                break;
            };
            match StoredSession::read(&self.connection, row).map(|stored| self.shown(stored)) {
                Ok(row) if query.admits(&row) => found.push(row),
                Ok(_) => {}
                // One row that cannot be read must not hide all the others.
                Err(error) => tracing::warn!(%error, "a session is left out of a list"),
            }
        }
        Ok(found)
    }

    /// The same where neither the indexes nor the order of the rows can be trusted. Keys are assigned in
    /// order, so all of them can be tried.
    fn sessions_one_by_one(&self, query: &ListQuery) -> Vec<SessionRow> {
        let mut found: Vec<_> = keys(&self.connection)
            .filter_map(|key| StoredSession::at(&self.connection, key).ok().flatten())
            .map(|stored| self.shown(stored))
            .filter(|row| query.admits(row))
            .collect();
        found.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        found.dedup_by(|a, b| a.id == b.id);
        found.truncate(query.limit);
        found
    }
}

/// Every key that a session may have.
pub(super) fn keys(connection: &Connection) -> impl Iterator<Item = i64> {
    let greatest = |select: &str| connection.query_row(select, [], |row| row.get::<_, Option<i64>>(0));
    let greatest = [
        "SELECT max(seq) FROM sqlite_sequence WHERE name = 'acp_sessions'",
        "SELECT max(key) FROM acp_sessions",
        "SELECT max(session) FROM acp_session_events",
    ]
    .into_iter()
    .filter_map(|select| greatest(select).ok().flatten())
    .max();
    1..=greatest.unwrap_or_default().min(KEYS_MAX)
}
