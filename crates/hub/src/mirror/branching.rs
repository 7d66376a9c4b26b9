//! A machine whose state was put back: what is mirrored becomes a session of its own, and the mirror begins anew.
//!
//! Nothing is copied or read: the rows get another name. Only a card that the hub can read anyway is changed, so that it
//! says what it is; a sealed one stays as it was sealed, and what it is stands beside it.
//!
//! **Invariant:** two processes with copies of one log do not take the session from each other again and again. Who
//! wrote last keeps it for as long as it is heard of.

use engine::{SESSION_ID_CHARS_MAX, SessionId};
use serde_json::{Map, Value as Json, json};
use store::sql::{DbError, Row, Statement, Value};
use wire::tunnel::Source;

use super::taking::Place;
use crate::guest::PersonId;
use crate::shelf::CARDS_MAX;

/// A process that has said nothing for this long does not write any more: its heartbeats come every 30 s.
pub const PROCESS_SILENCE_MS: i64 = 90_000;
/// What is kept of one session besides itself.
const BRANCHES_MAX: u64 = 64;
/// `-before-` and a time.
const BRANCH_CHARS: usize = 24;

/// What has to be known before it is done.
pub fn look(session: &SessionId, person: &PersonId, listed_since: i64) -> Vec<Statement> {
    let id: Value = session.as_str().into();
    vec![
        Statement::new("SELECT card, state, sealed FROM mirrors WHERE session = $1", [id.clone()]),
        Statement::new("SELECT COUNT(*) FROM mirrors WHERE branch_of = $1", [id]),
        Statement::new(
            "SELECT COUNT(*) FROM mirrors WHERE person = $1 AND heard_at >= $2",
            [person.0.as_ref().into(), listed_since.into()],
        ),
    ]
}

/// Whether there is room for one more.
pub fn has_room(branches: &Row, listed: &Row) -> Result<bool, DbError> {
    Ok(branches.count(0)? < BRANCHES_MAX && listed.count(0)? < CARDS_MAX)
}

/// The name of what is kept. No two branches of a session are made in the same moment.
pub fn name(session: &SessionId, now: i64) -> Option<SessionId> {
    let room = SESSION_ID_CHARS_MAX.saturating_sub(BRANCH_CHARS);
    let stem: String = session.as_str().chars().take(room).collect();
    SessionId::parse(&format!("{stem}-before-{:x}", now.max(0))).ok()
}

/// A card and its state as they are kept.
pub fn kept_card(
    row: &Row,
    session: &SessionId,
    kept: &SessionId,
    now: i64,
) -> Result<(Value, Value), DbError> {
    let (card, state) = (row.maybe_text(0)?, row.maybe_text(1)?);
    let read = card.as_deref().and_then(|card| serde_json::from_str::<Map<String, Json>>(card).ok());
    let Some(mut read) = read.filter(|_| row.int(2).is_ok_and(|sealed| sealed == 0)) else {
        return Ok((card.into(), state.into()));
    };
    let is_over = matches!(state.as_deref(), Some("done" | "failed" | "empty"));
    let state = state.filter(|_| is_over).unwrap_or_else(|| "done".into());
    read.insert("session".into(), kept.as_str().into());
    read.insert("state".into(), state.as_ref().into());
    read.insert("asks".into(), json!([]));
    read.insert("branch".into(), json!({ "of": session.as_str(), "at": now }));
    Ok((Json::Object(read).to_string().into(), state.into()))
}

/// What is asked for, and by whom.
pub struct Asked<'a> {
    pub session: &'a SessionId,
    pub epoch: u64,
    pub mirrored: &'a Place,
    pub source: &'a Source,
    pub kept: &'a SessionId,
    /// As [`kept_card`] gives them.
    pub card: (Value, Value),
    pub now: i64,
}

/// All of it. The first statement is refused if another bridge has the log, the second if the process that wrote last
/// is heard of and is another one.
pub fn branch(asked: Asked<'_>) -> Vec<Statement> {
    let Asked { session, epoch, mirrored, source, kept, card: (card, state), now } = asked;
    let (id, kept): (Value, Value) = (session.as_str().into(), kept.as_str().into());
    let (process, head): (Value, Value) = (source.process.as_str().into(), mirrored.head.into());
    let both = || [id.clone(), kept.clone()];
    let fence = Statement::new(
        "UPDATE logs SET head = 0 WHERE id = $1 AND epoch = $2 AND head = $3",
        [id.clone(), epoch.into(), head.clone()],
    );
    let alone = Statement::new(
        "UPDATE mirrors SET epoch = epoch WHERE session = $1
         AND (process IS NULL OR process = $2 OR process_at IS NULL OR process_at < $3)",
        [id.clone(), process.clone(), (now - PROCESS_SILENCE_MS).into()],
    );
    let keep = Statement::new(
        "INSERT INTO mirrors (session, person, machine, sealed, model, sandbox, approval, cwd, cost_usd, created_at,
         updated_at, heard_at, changed_at, detached, node, epoch, state, asks, card, view_number, view_upto,
         view_bytes, snapshot, snapshot_before, mark_seq, mark, lineage, branch_of, branched_at)
         SELECT CAST($2 AS TEXT), person, machine, sealed, model, sandbox, approval, cwd, cost_usd, created_at,
         updated_at, CAST($3 AS BIGINT), CAST($3 AS BIGINT), 1, NULL, 1, CAST($4 AS TEXT),
         CASE WHEN sealed = 0 THEN '[]' ELSE asks END, CAST($5 AS TEXT), view_number, view_upto,
         view_bytes, snapshot, snapshot_before, mark_seq, mark, lineage, session, CAST($3 AS BIGINT)
         FROM mirrors WHERE session = $1",
        [id.clone(), kept.clone(), now.into(), state, card],
    );
    let anew = Statement::new(
        "UPDATE mirrors SET view_upto = NULL, view_bytes = 0, snapshot = 0, snapshot_before = 0, mark_seq = NULL,
         mark = NULL, process = $2, process_at = $3, lineage = $4, kept_as = $5, kept_upto = $6, heard_at = $3,
         changed_at = $3 WHERE session = $1",
        [id.clone(), process, now.into(), source.lineage.clone().into(), kept.clone(), head.clone()],
    );
    vec![
        fence.must_change(1),
        alone.must_change(1),
        keep.must_change(1),
        Statement::new("INSERT INTO logs (id, epoch, head) VALUES ($1, 1, $2)", [kept.clone(), head]),
        Statement::new("UPDATE log_entries SET log = $2 WHERE log = $1", both()),
        Statement::new("UPDATE views SET session = $2 WHERE session = $1", both()),
        anew.must_change(1),
    ]
}
