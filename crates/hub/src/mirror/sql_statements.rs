//! The SQL statements that store a mirrored session: one transaction for everything that is queued.

use engine::SessionId;
use store::sql::{DbError, Row, SqlValue, Statement, log};
use wire::tunnel::BranchedMirror;

use super::batch_intake::{MirrorPosition, PendingBatch};
use crate::authenticator::PersonId;
use crate::ids::NodeId;

/// Views of one statement.
const VIEWS_AT_ONCE: usize = 64;

/// The columns of a [`MirrorPosition`], after the log's head.
const POSITION_COLUMNS: &str = "view_number, view_upto, view_bytes, snapshot, snapshot_before";

pub struct AttachTarget<'a> {
    pub session: &'a SessionId,
    pub person: &'a PersonId,
    pub node: &'a NodeId,
    pub now: i64,
}

/// Claims the log, so that the connection before can store nothing more. The second statement is refused if the session
/// is not this person's, or is a branch.
pub fn attach(target: &AttachTarget<'_>) -> Vec<Statement> {
    let session: SqlValue = target.session.as_str().into();
    let claim = Statement::new(
        "UPDATE mirrors SET node = $3, heard_at = $4, changed_at = $4, detached = 0,
         epoch = (SELECT logs.epoch FROM logs WHERE logs.id = $1)
         WHERE session = $1 AND person = $2 AND branch_of IS NULL",
        [session.clone(), target.person.0.as_ref().into(), target.node.as_str().into(), target.now.into()],
    );
    let columns = "sealed, mark_seq, mark, lineage, kept_as, kept_upto";
    let position = Statement::new(
        format!("SELECT {POSITION_COLUMNS}, {columns} FROM mirrors WHERE session = $1"),
        [session],
    );
    vec![log::take(target.session.as_str()), claim.must_change(1), position]
}

/// Marks the session as detached, unless another connection has it.
pub fn detach(session: &SessionId, epoch: u64, now: i64) -> Statement {
    Statement::new(
        "UPDATE mirrors SET node = NULL, heard_at = $3, changed_at = $3 WHERE session = $1 AND epoch = $2",
        [session.as_str().into(), epoch.into(), now.into()],
    )
}

/// Reads what is stored and at which epoch, to find out whether a write whose answer was lost was done.
pub fn read_back(session: &SessionId) -> Statement {
    let columns =
        POSITION_COLUMNS.split(", ").map(|column| format!("mirrors.{column}")).collect::<Vec<_>>().join(", ");
    Statement::new(
        format!(
            "SELECT logs.head, {columns}, logs.epoch FROM logs JOIN mirrors ON mirrors.session = logs.id
             WHERE logs.id = $1"
        ),
        [session.as_str().into()],
    )
}

/// Reads a position from the columns of a row, from column `at` on.
pub fn read_position(row: &Row, head: u64, at: usize) -> Result<MirrorPosition, DbError> {
    Ok(MirrorPosition {
        head,
        view_number: row.count(at)?,
        view_upto: row.maybe_int(at + 1)?.map(i64::unsigned_abs),
        view_bytes: row.count(at + 2)?,
        snapshot: row.count(at + 3)?,
        snapshot_before: row.count(at + 4)?,
    })
}

/// What a mirror is a copy of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MirrorOrigin {
    pub mark: Option<String>,
    pub lineage: Option<String>,
    pub before: Option<BranchedMirror>,
}

impl MirrorOrigin {
    /// Reads it from a row of [`attach`]. A mark is ignored unless it is of the last event.
    pub fn read(row: &Row, head: u64) -> Result<Self, DbError> {
        let text = |at: usize| Ok::<_, DbError>(row.maybe_text(at)?.map(|text| text.to_string()));
        let is_last = row.maybe_int(6)?.map(i64::unsigned_abs) == Some(head);
        let before = text(9)?.filter(|_| head == 0);
        let events = row.maybe_int(10)?.map_or(0, i64::unsigned_abs);
        Ok(Self {
            mark: text(7)?.filter(|_| is_last),
            lineage: text(8)?,
            before: before.map(|session| BranchedMirror { session, events }),
        })
    }
}

/// Stores everything that is queued. The first statement is refused if the log has another owner or another end, the last
/// if the mirror is gone.
pub fn store(
    session: &SessionId,
    epoch: u64,
    stored: &MirrorPosition,
    next: &MirrorPosition,
    batch: &PendingBatch,
    now: i64,
) -> Vec<Statement> {
    let id: SqlValue = session.as_str().into();
    let mut work = log::append(session.as_str(), epoch, stored.head, batch.events.clone());
    if work.is_empty() {
        let guard = Statement::new(
            "UPDATE logs SET head = head WHERE id = $1 AND epoch = $2 AND head = $3",
            [id.clone(), epoch.into(), stored.head.into()],
        );
        work.push(guard.must_change(1));
    }
    for views in batch.views.chunks(VIEWS_AT_ONCE) {
        let mut sql = String::from("INSERT INTO views (session, number, continues, upto, body) VALUES ");
        let mut values = vec![id.clone()];
        for view in views {
            let at = values.len() + 1;
            let comma = if values.len() == 1 { "" } else { ", " };
            sql.push_str(&format!("{comma}($1, ${at}, ${}, ${}, ${})", at + 1, at + 2, at + 3));
            let (from, upto) = (view.view.from, view.view.upto);
            values.extend([view.number.into(), from.into(), upto.into(), view.view.body.get().into()]);
        }
        work.push(Statement::new(sql, values));
    }
    if next.snapshot != stored.snapshot {
        let old = Statement::new(
            "DELETE FROM views WHERE session = $1 AND number < $2",
            [id.clone(), next.snapshot_before.into()],
        );
        work.push(old);
    }
    work.push(update_mirror(id, next, batch, now).must_change(1));
    work
}

fn update_mirror(id: SqlValue, next: &MirrorPosition, batch: &PendingBatch, now: i64) -> Statement {
    let mut sql = String::from(
        "UPDATE mirrors SET view_number = $2, view_upto = $3, view_bytes = $4, snapshot = $5,
         snapshot_before = $6, heard_at = $7",
    );
    let mut values = vec![
        id,
        next.view_number.into(),
        next.view_upto.into(),
        next.view_bytes.into(),
        next.snapshot.into(),
        next.snapshot_before.into(),
        now.into(),
    ];
    let mut set = |columns: &[(&str, SqlValue)]| {
        for (column, value) in columns {
            values.push(value.clone());
            sql.push_str(&format!(", {column} = ${}", values.len()));
        }
    };
    if let Some(last) = batch.events.last() {
        set(&[("mark_seq", last.seq.into()), ("mark", batch.mark.clone().into())]);
    }
    if let Some(source) = &batch.source {
        let lineage = source.lineage.clone().into();
        set(&[("process", source.process.as_str().into()), ("process_at", now.into()), ("lineage", lineage)]);
    }
    if let Some(card) = &batch.card {
        // Neither can fail: one is a word, the other a list of numbers.
        let state = serde_json::to_string(&card.state).unwrap_or_default();
        let asks = serde_json::to_string(&card.asks).unwrap_or_default();
        set(&[
            ("state", state.trim_matches('"').into()),
            ("asks", asks.into()),
            ("updated_at", card.updated_at.into()),
            ("card", card.body.get().into()),
            ("changed_at", now.into()),
        ]);
    }
    sql.push_str(" WHERE session = $1");
    Statement::new(sql, values)
}
