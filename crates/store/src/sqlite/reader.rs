//! The thread that reads, on a connection of its own that cannot write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Event, ListQuery, Page, Seq, SessionId, SessionRow, StoreError, StoreFault, Timestamp, TurnId};
use rusqlite::{Connection, OptionalExtension, Row};
use tokio::sync::mpsc::Receiver;
use wire::record;

use super::blob::Fetcher;
use super::condition::{self, Condition};
use super::owner::Owners;
use super::recent::Recent;
use super::request::{Read, damaged, reply};
use super::row::{HOLDER_COLUMN, SESSION_COLUMNS, session_row, signed, unsigned};
use super::schema;

pub(super) struct Reader {
    connection: Connection,
    owners: Owners,
    recent: Recent,
}

impl Reader {
    /// Serves the queue until nobody can write to it any more. The file is the writer's to create, so
    /// it is opened when the writer has opened it, and again when the writer did so again.
    pub(super) fn run(path: PathBuf, mut queue: Receiver<Read>, condition: &Condition) {
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
            .map(|connection| Self { connection, owners: Owners::beside(path), recent: Recent::default() })
            .map_err(|error| condition::of_sqlite(path, &error))
    }

    fn serve(&mut self, request: Read) {
        match request {
            Read::Events { id, after, page, answer } => reply(answer, self.events(&id, after, page)),
            Read::Session { id, answer } => reply(answer, self.session(&id)),
            Read::Sessions { query, answer } => reply(answer, self.sessions(&query)),
        }
    }

    fn events(&mut self, id: &SessionId, after: Seq, page: Page) -> Result<Vec<Arc<Event>>, StoreError> {
        let key: Option<i64> = self
            .connection
            .prepare_cached("SELECT key FROM acp_sessions WHERE id = ?1")
            .and_then(|mut select| select.query_row([id.as_str()], |row| row.get(0)).optional())
            .map_err(|error| damaged(&error))?;
        let key = key.ok_or(StoreError::NotFound)?;
        if let Some(events) = self.recent.find(key, id.as_str(), after, page) {
            return Ok(events);
        }
        let mut select = self
            .connection
            .prepare_cached(
                "SELECT seq, at, turn, origin, kind, version, body FROM acp_session_events
                 WHERE session = ?1 AND seq > ?2
                 AND NOT (?4 AND kind IN ('text', 'thought', 'tool_output')) ORDER BY seq LIMIT ?3",
            )
            .map_err(|error| damaged(&error))?;
        let limit = i64::try_from(page.count_max).unwrap_or(i64::MAX);
        let mut rows =
            select.query((key, signed(after.0), limit, page.outline)).map_err(|error| damaged(&error))?;
        let fetcher = Fetcher::new(&self.connection);
        let mut events = Vec::new();
        let mut bytes = 0;
        while let Some(row) = rows.next().map_err(|error| damaged(&error))? {
            let event = event_of(row, &fetcher)?;
            bytes += event.weight();
            events.push(Arc::new(event));
            if bytes >= page.bytes_max {
                break;
            }
        }
        self.recent.keep(key, id.as_str(), after, page, &events);
        Ok(events)
    }

    fn session(&self, id: &SessionId) -> Result<SessionRow, StoreError> {
        let select = format!("SELECT {SESSION_COLUMNS}, holder FROM acp_sessions WHERE id = ?1");
        let mut select = self.connection.prepare_cached(&select).map_err(|error| damaged(&error))?;
        let mut rows = select.query([id.as_str()]).map_err(|error| damaged(&error))?;
        match rows.next().map_err(|error| damaged(&error))? {
            Some(row) => self.shown(row),
            None => Err(StoreError::NotFound),
        }
    }

    /// The row as it is true now: whoever died in the middle of a turn is not busy with it any more.
    fn shown(&self, row: &Row<'_>) -> Result<SessionRow, StoreError> {
        let mut shown = session_row(row)?;
        if shown.busy {
            let holder: Option<String> = row.get(HOLDER_COLUMN).map_err(|error| damaged(&error))?;
            shown.busy = holder.is_some_and(|holder| self.owners.lives_elsewhere(&holder));
        }
        Ok(shown)
    }

    /// The directory is compared here rather than in SQL, where `/a` and `/a/` would differ.
    fn sessions(&self, query: &ListQuery) -> Result<Vec<SessionRow>, StoreError> {
        let select = format!(
            "SELECT {SESSION_COLUMNS}, holder FROM acp_sessions WHERE owner = ?1 AND (updated_at, id) < (?2, ?3)
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
            match self.shown(row) {
                Ok(row) if query.admits(&row) => found.push(row),
                Ok(_) => {}
                // One row that cannot be read must not hide all the others.
                Err(error) => tracing::warn!(%error, "a session is left out of a list"),
            }
        }
        Ok(found)
    }
}

fn event_of(row: &Row<'_>, fetcher: &Fetcher<'_>) -> Result<Event, StoreError> {
    let number = |index| row.get::<_, i64>(index).map_err(|error| damaged(&error));
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    let text = |index| text(index).map_err(|error: rusqlite::Error| damaged(&error));
    let seq = unsigned(number(0)?);
    let named = |error: record::RecordError| damaged(&format_args!("event {seq}: {error}"));
    let version = u32::try_from(number(5)?).unwrap_or(u32::MAX);
    let turn: Option<i64> = row.get(2).map_err(|error| damaged(&error))?;
    let stored = text(6)?.as_bytes();
    Ok(Event {
        seq: Seq(seq),
        at: Timestamp(number(1)?),
        origin: record::decode_origin(text(3)?.as_bytes()).map_err(named)?,
        turn: turn.map(|turn| TurnId(unsigned(turn))),
        body: record::decode(text(4)?, version, stored, &|hash| fetcher.fetch(hash)).map_err(named)?,
        relayed: record::decode_relayed(stored, &|hash| fetcher.fetch(hash)).map_err(named)?,
    })
}
