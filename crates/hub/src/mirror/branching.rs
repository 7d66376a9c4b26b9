//! Branching: when a machine's state was restored, what is mirrored moves to a session of its own (the branch), and the
//! mirror starts empty.
//!
//! No contents are copied or read: the rows get another session id. Only a card that the hub can read is changed, so that
//! it says that it is a branch; a sealed card stays as it was sealed, and the branch is named in columns beside it.
//!
//! **Invariant:** two processes with copies of one log do not take the session from each other again and again. The
//! process that wrote last keeps it while its heartbeats arrive.

use engine::{SESSION_ID_CHARS_MAX, SessionId};
use serde_json::{Map, Value as Json, json};
use store::sql::{DbError, Row, SqlValue, Statement};
use wire::tunnel::LogSource;

use super::batch_intake::MirrorPosition;
use crate::authenticator::PersonId;
use crate::session_list::CARDS_MAX;

/// A process that was silent for this long counts as ended: its heartbeats come every 30 s.
pub const PROCESS_SILENCE_MS: i64 = 90_000;
/// Branches of one session.
const BRANCHES_MAX: u64 = 64;
/// `-before-` and a time.
const BRANCH_CHARS: usize = 24;

/// Reads what a branch depends on: the card, the number of branches and of listed sessions.
pub fn branch_state(session: &SessionId, person: &PersonId, listed_since: i64) -> Vec<Statement> {
    let id: SqlValue = session.as_str().into();
    vec![
        Statement::new("SELECT card, state, sealed FROM mirrors WHERE session = $1", [id.clone()]),
        Statement::new("SELECT COUNT(*) FROM mirrors WHERE branch_of = $1", [id]),
        Statement::new(
            "SELECT COUNT(*) FROM mirrors WHERE person = $1 AND heard_at >= $2",
            [person.0.as_ref().into(), listed_since.into()],
        ),
    ]
}

/// Whether there is room for one more branch.
pub fn has_room(branches: &Row, listed: &Row) -> Result<bool, DbError> {
    Ok(branches.count(0)? < BRANCHES_MAX && listed.count(0)? < CARDS_MAX)
}

/// The session id of the branch. No two branches of a session are made in the same millisecond.
pub fn branch_id(session: &SessionId, now: i64) -> Option<SessionId> {
    let room = SESSION_ID_CHARS_MAX.saturating_sub(BRANCH_CHARS);
    let stem: String = session.as_str().chars().take(room).collect();
    SessionId::parse(&format!("{stem}-before-{:x}", now.max(0))).ok()
}

/// The card and the state of the branch.
pub fn branch_card(
    row: &Row,
    session: &SessionId,
    branch: &SessionId,
    now: i64,
) -> Result<(SqlValue, SqlValue), DbError> {
    let (card, state) = (row.maybe_text(0)?, row.maybe_text(1)?);
    let card_object = card.as_deref().and_then(|card| serde_json::from_str::<Map<String, Json>>(card).ok());
    let Some(mut card_object) = card_object.filter(|_| row.int(2).is_ok_and(|sealed| sealed == 0)) else {
        return Ok((card.into(), state.into()));
    };
    let is_over = matches!(state.as_deref(), Some("done" | "failed" | "empty"));
    let state = state.filter(|_| is_over).unwrap_or_else(|| "done".into());
    card_object.insert("session".into(), branch.as_str().into());
    card_object.insert("state".into(), state.as_ref().into());
    card_object.insert("asks".into(), json!([]));
    card_object.insert("branch".into(), json!({ "of": session.as_str(), "at": now }));
    Ok((Json::Object(card_object).to_string().into(), state.into()))
}

/// A branch to be made, and the process that asks for it.
pub struct BranchRequest<'a> {
    pub session: &'a SessionId,
    pub epoch: u64,
    pub mirrored: &'a MirrorPosition,
    pub source: &'a LogSource,
    pub branch: &'a SessionId,
    /// As [`branch_card`] gives them.
    pub card: (SqlValue, SqlValue),
    pub now: i64,
}

/// The statements that make a branch. The first is refused if another bridge has the log, the second if another process
/// wrote last and is still alive.
pub fn branch(request: BranchRequest<'_>) -> Vec<Statement> {
    let BranchRequest { session, epoch, mirrored, source, branch, card: (card, state), now } = request;
    let (id, branch): (SqlValue, SqlValue) = (session.as_str().into(), branch.as_str().into());
    let (process, head): (SqlValue, SqlValue) = (source.process.as_str().into(), mirrored.head.into());
    let both = || [id.clone(), branch.clone()];
    let fence = Statement::new(
        "UPDATE logs SET head = 0 WHERE id = $1 AND epoch = $2 AND head = $3",
        [id.clone(), epoch.into(), head.clone()],
    );
    let sole_writer = Statement::new(
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
        [id.clone(), branch.clone(), now.into(), state, card],
    );
    let anew = Statement::new(
        "UPDATE mirrors SET view_upto = NULL, view_bytes = 0, snapshot = 0, snapshot_before = 0, mark_seq = NULL,
         mark = NULL, process = $2, process_at = $3, lineage = $4, kept_as = $5, kept_upto = $6, heard_at = $3,
         changed_at = $3 WHERE session = $1",
        [id.clone(), process, now.into(), source.lineage.clone().into(), branch.clone(), head.clone()],
    );
    vec![
        fence.must_change(1),
        sole_writer.must_change(1),
        keep.must_change(1),
        Statement::new("INSERT INTO logs (id, epoch, head) VALUES ($1, 1, $2)", [branch.clone(), head]),
        Statement::new("UPDATE log_entries SET log = $2 WHERE log = $1", both()),
        Statement::new("UPDATE views SET session = $2 WHERE session = $1", both()),
        anew.must_change(1),
    ]
}
