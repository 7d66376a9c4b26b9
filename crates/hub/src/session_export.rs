//! Lists mirrored sessions, and exports one of them in the format that `sessions import` reads.
//!
//! For a machine that is gone: the hub has its sessions. A sealed session is exported as it was sealed, because a hub has
//! no key; importing it takes the machine's key. Only the database is read, a page at a time, so the hub may be running
//! meanwhile and a session of any length needs little memory.

use engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use store::sql::{Db, DbError, Row, Statement, log};
use wire::session_archive;
use wire::timestamp::rfc3339;

/// The events of one page, by number and by bytes.
const PAGE_EVENTS: usize = 512;
const PAGE_BYTES: usize = 1 << 20;

const COLUMNS: &str =
    "mirrors.session, mirrors.person, mirrors.machine, machines.name, mirrors.sealed, mirrors.cwd,
    mirrors.created_at, mirrors.updated_at, mirrors.heard_at, mirrors.card, mirrors.branch_of, logs.head";
const TABLES: &str = "mirrors LEFT JOIN machines ON machines.id = mirrors.machine
    LEFT JOIN logs ON logs.id = mirrors.session";

/// A mirrored session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MirroredSession {
    pub session: String,
    pub person: String,
    pub machine: Option<String>,
    pub machine_name: Option<String>,
    /// This hub cannot read it.
    pub sealed: bool,
    pub cwd: String,
    pub title: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    /// When its bridge was last heard of.
    pub heard_at: i64,
    /// The session that this is a branch of, made when its machine's state was restored.
    pub branch_of: Option<String>,
    /// The position of the last event in its log.
    pub head: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("event {0} is malformed")]
    Malformed(u64),
    #[error("the mirror was restarted while it was read; its earlier content is listed as another session")]
    Changed,
}

/// The latest first.
pub async fn sessions(db: &dyn Db, limit: u64) -> Result<Vec<MirroredSession>, DbError> {
    let select = format!(
        "SELECT {COLUMNS} FROM {TABLES} ORDER BY mirrors.updated_at DESC, mirrors.session DESC LIMIT $1"
    );
    read(db, Statement::new(select, [limit.into()])).await
}

/// The sessions whose id begins with this text, or the one that has exactly this id.
pub async fn find(db: &dyn Db, id: &str) -> Result<Vec<MirroredSession>, DbError> {
    let select = format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE mirrors.session >= $1 AND mirrors.session < $2
         ORDER BY mirrors.session LIMIT 32"
    );
    // Texts are compared by bytes, and no id contains this character.
    let values = [id.into(), format!("{id}{}", char::MAX).into()];
    let mut found = read(db, Statement::new(select, values)).await?;
    if let Some(exact) = found.iter().position(|mirrored| mirrored.session == id) {
        found = vec![found.swap_remove(exact)];
    }
    Ok(found)
}

async fn read(db: &dyn Db, select: Statement) -> Result<Vec<MirroredSession>, DbError> {
    let found = db.run(vec![select], Vec::new()).await?;
    found.into_iter().next().unwrap_or_default().rows.iter().map(MirroredSession::of).collect()
}

impl MirroredSession {
    fn of(row: &Row) -> Result<Self, DbError> {
        #[derive(Deserialize)]
        struct Card {
            title: Option<String>,
        }
        let text = |at: usize| Ok::<_, DbError>(row.maybe_text(at)?.map(|text| text.to_string()));
        let card = row.maybe_text(9)?.and_then(|card| serde_json::from_str::<Card>(&card).ok());
        Ok(Self {
            session: row.text(0)?.to_string(),
            person: row.text(1)?.to_string(),
            machine: text(2)?,
            machine_name: text(3)?,
            sealed: row.int(4)? != 0,
            cwd: row.text(5)?.to_string(),
            title: card.and_then(|card| card.title),
            created_at: row.int(6)?,
            updated_at: row.int(7)?,
            heard_at: row.int(8)?,
            branch_of: text(10)?,
            head: row.maybe_int(11)?.map_or(0, i64::unsigned_abs),
        })
    }

    /// The part of the file before its events.
    fn envelope(&self) -> String {
        let session = json!({
            "id": self.session,
            "title": self.title,
            "cwd": (!self.cwd.is_empty()).then_some(&self.cwd),
            "created_at": rfc3339(Timestamp(self.created_at)),
            "updated_at": rfc3339(Timestamp(self.updated_at)),
            "events": self.head,
        });
        let schema =
            Json::from(if self.sealed { session_archive::SEALED_SCHEMA } else { session_archive::SCHEMA });
        // A branch was sealed under the id of the session that it is of.
        let sealed = self.machine.as_ref().map(|machine| {
            json!({ "machine": machine, "session": self.branch_of.as_ref().unwrap_or(&self.session) })
        });
        let sealed = sealed.map(|sealed| format!("\"sealed\":{sealed},\n")).unwrap_or_default();
        format!("{{\"schema\":{schema},\n\"session\":{session},\n{sealed}\"events\":[\n")
    }
}

/// An export in progress.
pub struct Export<'a> {
    db: &'a dyn Db,
    mirrored: &'a MirroredSession,
    at: Timestamp,
    after: u64,
    /// Events that were written so far.
    pub events: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Begins,
    Events,
    Ended,
}

impl<'a> Export<'a> {
    /// Events that the mirror gets later are left out.
    pub fn new(db: &'a dyn Db, mirrored: &'a MirroredSession, at: Timestamp) -> Self {
        Self { db, mirrored, at, after: 0, events: 0, state: State::Begins }
    }

    /// The next piece of the file; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<String>, ExportError> {
        match self.state {
            State::Begins => {
                self.state = State::Events;
                Ok(Some(self.mirrored.envelope()))
            }
            State::Events => self.page().await.map(Some),
            State::Ended => Ok(None),
        }
    }

    async fn page(&mut self) -> Result<String, ExportError> {
        let mirrored = self.mirrored;
        let page = log::page(&mirrored.session, self.after, PAGE_EVENTS, PAGE_BYTES, "");
        let found = self.db.run(vec![page], Vec::new()).await?;
        let mut text = String::new();
        let rows = found.into_iter().next().unwrap_or_default().rows;
        for row in &rows {
            let (seq, body) = (row.count(0)?, row.text(1)?);
            if seq > mirrored.head {
                break;
            }
            if self.events > 0 {
                text.push_str(",\n");
            }
            text.push_str(&element(seq, &body)?);
            (self.after, self.events) = (seq, self.events + 1);
        }
        if self.after < mirrored.head {
            // No event although the head is not reached: the log was replaced.
            return if text.is_empty() { Err(ExportError::Changed) } else { Ok(text) };
        }
        self.state = State::Ended;
        text.push_str(&format!("\n],\n\"exported_at\":{}}}\n", Json::from(rfc3339(self.at))));
        Ok(text)
    }
}

/// An event as an element of the file. A sealed event belongs to its position, so that is written beside it.
fn element(seq: u64, body: &str) -> Result<String, ExportError> {
    #[derive(Deserialize)]
    struct SealedEvent<'a> {
        #[serde(borrow)]
        sealed: Option<&'a RawValue>,
    }
    let read: SealedEvent<'_> = serde_json::from_str(body).map_err(|_| ExportError::Malformed(seq))?;
    Ok(match read.sealed {
        Some(sealed) => format!("{{\"seq\":{seq},\"sealed\":{}}}", sealed.get()),
        None => body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use store::sql::{SqliteDb, migrate};

    use super::*;
    use crate::hub_tables::{LAYOUT, STEPS};

    const EVENTS: u64 = 1_500;

    /// A database with one mirror.
    async fn mirror(folder: &std::path::Path, session: &str, sealed: bool) -> SqliteDb {
        let db = SqliteDb::open(&folder.join("hub.db")).unwrap();
        migrate(&db, "logs", &log::STEPS).await.unwrap();
        migrate(&db, LAYOUT, &STEPS).await.unwrap();
        let insert = Statement::new(
            "INSERT INTO mirrors (session, person, machine, sealed, model, sandbox, approval, cwd, created_at, updated_at,
             heard_at, changed_at, detached, epoch, card, view_number, view_bytes, snapshot, snapshot_before, branch_of)
             VALUES ($1, 'p', 'm', $2, '', '', '', '/work', 1, 2, 3, 3, 0, 1, $3, 0, 0, 0, 0, $4)",
            [session.into(), sealed.into(), r#"{"title":"a title"}"#.into(), Some("before").into()],
        );
        let body = |seq| match sealed {
            true => format!(r#"{{"sealed":"{}"}}"#, "x".repeat(3000)),
            false => format!(r#"{{"seq":{seq},"text":"{}"}}"#, "x".repeat(3000)),
        };
        let entries = (1..=EVENTS).map(|seq| log::LogEntry { seq, kind: None, body: body(seq) }).collect();
        let mut work = vec![insert, log::take(session)];
        work.extend(log::append(session, 1, 0, entries));
        db.run(work, Vec::new()).await.unwrap();
        db
    }

    async fn whole(db: &dyn Db, mirrored: &MirroredSession) -> Result<Vec<String>, ExportError> {
        let mut export = Export::new(db, mirrored, Timestamp(0));
        let mut pieces = Vec::new();
        while let Some(piece) = export.next().await? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    #[tokio::test]
    async fn a_long_session_comes_in_pieces_and_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        drop(mirror(folder.path(), "a-session", false).await);
        let db = SqliteDb::open_to_read(&folder.path().join("hub.db")).unwrap();
        let found = find(&db, "a-s").await.unwrap();
        assert_eq!((found.len(), found[0].title.as_deref()), (1, Some("a title")));
        let pieces = whole(&db, &found[0]).await.unwrap();
        assert!(pieces.iter().all(|piece| piece.len() < 2 * PAGE_BYTES), "little is held at a time");
        let mut seen = Vec::new();
        let head = session_archive::scan(pieces.concat().as_bytes(), &mut |event| {
            seen.push(serde_json::from_str::<Json>(event).unwrap()["seq"].as_u64().unwrap());
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(head.unwrap().schema, session_archive::SCHEMA);
        assert!(seen.into_iter().eq(1..=EVENTS));
        // It is only read.
        let change = Statement::new("DELETE FROM mirrors", []);
        assert!(db.run(vec![change], Vec::new()).await.is_err());
    }

    #[tokio::test]
    async fn what_is_sealed_says_for_which_session_and_position_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let db = mirror(folder.path(), "before-kept", true).await;
        let found = find(&db, "before-kept").await.unwrap();
        let mut seqs = Vec::new();
        let head =
            session_archive::scan(whole(&db, &found[0]).await.unwrap().concat().as_bytes(), &mut |event| {
                seqs.push(session_archive::sealed_event(event).unwrap().seq);
                std::ops::ControlFlow::Continue(())
            });
        let head = head.unwrap();
        assert_eq!(head.schema, session_archive::SEALED_SCHEMA);
        let sealed = head.sealed.unwrap();
        assert_eq!((sealed.machine.as_str(), sealed.session.as_str()), ("m", "before"));
        assert!(seqs.into_iter().eq(1..=EVENTS));
    }

    #[tokio::test]
    async fn a_mirror_that_is_begun_anew_meanwhile_is_not_taken_for_a_short_one() {
        let folder = tempfile::tempdir().unwrap();
        let db = mirror(folder.path(), "a", false).await;
        let mirrored = find(&db, "a").await.unwrap().remove(0);
        let mut export = Export::new(&db, &mirrored, Timestamp(0));
        for _ in 0..2 {
            export.next().await.unwrap().unwrap();
        }
        let rename = Statement::new("UPDATE log_entries SET log = 'b' WHERE log = 'a'", []);
        db.run(vec![rename], Vec::new()).await.unwrap();
        assert!(matches!(export.next().await, Err(ExportError::Changed)));
    }
}
