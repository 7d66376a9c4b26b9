//! What is kept of a session, in statements: one transaction for everything that is in line.

use engine::SessionId;
use store::sql::{DbError, Row, Statement, Value, log};
use wire::tunnel::Before;

use super::taking::{Line, Place};
use crate::guest::PersonId;
use crate::ids::NodeId;

/// Views of one statement.
const VIEWS_AT_ONCE: usize = 64;

/// The columns of a [`Place`], after the log's head.
const PLACE: &str = "view_number, view_upto, view_bytes, snapshot, snapshot_before";

pub struct Owner<'a> {
    pub session: &'a SessionId,
    pub person: &'a PersonId,
    pub node: &'a NodeId,
    pub now: i64,
}

/// Takes the log, so that whoever had it can keep nothing more. The second statement is refused if the session is
/// not this person's, or is what is kept of another.
pub fn attach(owner: &Owner<'_>) -> Vec<Statement> {
    let session: Value = owner.session.as_str().into();
    let hold = Statement::new(
        "UPDATE mirrors SET node = $3, heard_at = $4, changed_at = $4, detached = 0,
         epoch = (SELECT logs.epoch FROM logs WHERE logs.id = $1)
         WHERE session = $1 AND person = $2 AND branch_of IS NULL",
        [session.clone(), owner.person.0.as_ref().into(), owner.node.as_str().into(), owner.now.into()],
    );
    let columns = "sealed, mark_seq, mark, lineage, kept_as, kept_upto";
    let place =
        Statement::new(format!("SELECT {PLACE}, {columns} FROM mirrors WHERE session = $1"), [session]);
    vec![log::take(owner.session.as_str()), hold.must_change(1), place]
}

/// Lets go, unless somebody else has it.
pub fn detach(session: &SessionId, epoch: u64, now: i64) -> Statement {
    Statement::new(
        "UPDATE mirrors SET node = NULL, heard_at = $3, changed_at = $3 WHERE session = $1 AND epoch = $2",
        [session.as_str().into(), epoch.into(), now.into()],
    )
}

/// What is kept, and whose it is: for who does not know whether the last thing was done.
pub fn look(session: &SessionId) -> Statement {
    let columns = PLACE.split(", ").map(|column| format!("mirrors.{column}")).collect::<Vec<_>>().join(", ");
    Statement::new(
        format!(
            "SELECT logs.head, {columns}, logs.epoch FROM logs JOIN mirrors ON mirrors.session = logs.id
             WHERE logs.id = $1"
        ),
        [session.as_str().into()],
    )
}

/// Reads a place from a row that has its columns from `at` on.
pub fn place(row: &Row, head: u64, at: usize) -> Result<Place, DbError> {
    Ok(Place {
        head,
        view_number: row.count(at)?,
        view_upto: row.maybe_int(at + 1)?.map(i64::unsigned_abs),
        view_bytes: row.count(at + 2)?,
        snapshot: row.count(at + 3)?,
        snapshot_before: row.count(at + 4)?,
    })
}

/// What is known of a mirror besides its place: what it is a copy of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    pub mark: Option<String>,
    pub lineage: Option<String>,
    pub before: Option<Before>,
}

impl Copied {
    /// Reads it from a row of [`attach`]. A mark of another event than the last says nothing.
    pub fn read(row: &Row, head: u64) -> Result<Self, DbError> {
        let text = |at: usize| Ok::<_, DbError>(row.maybe_text(at)?.map(|text| text.to_string()));
        let is_last = row.maybe_int(6)?.map(i64::unsigned_abs) == Some(head);
        let before = text(9)?.filter(|_| head == 0);
        let events = row.maybe_int(10)?.map_or(0, i64::unsigned_abs);
        Ok(Self {
            mark: text(7)?.filter(|_| is_last),
            lineage: text(8)?,
            before: before.map(|session| Before { session, events }),
        })
    }
}

/// Everything in line. The first statement is refused if the log has another owner or another end, the last if the
/// mirror is gone.
pub fn keep(
    session: &SessionId,
    epoch: u64,
    kept: &Place,
    next: &Place,
    line: &Line,
    now: i64,
) -> Vec<Statement> {
    let id: Value = session.as_str().into();
    let mut work = log::append(session.as_str(), epoch, kept.head, line.events.clone());
    if work.is_empty() {
        let guard = Statement::new(
            "UPDATE logs SET head = head WHERE id = $1 AND epoch = $2 AND head = $3",
            [id.clone(), epoch.into(), kept.head.into()],
        );
        work.push(guard.must_change(1));
    }
    for views in line.views.chunks(VIEWS_AT_ONCE) {
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
    if next.snapshot != kept.snapshot {
        let old = Statement::new(
            "DELETE FROM views WHERE session = $1 AND number < $2",
            [id.clone(), next.snapshot_before.into()],
        );
        work.push(old);
    }
    work.push(mirror(id, next, line, now).must_change(1));
    work
}

fn mirror(id: Value, next: &Place, line: &Line, now: i64) -> Statement {
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
    let mut set = |columns: &[(&str, Value)]| {
        for (column, value) in columns {
            values.push(value.clone());
            sql.push_str(&format!(", {column} = ${}", values.len()));
        }
    };
    if let Some(last) = line.events.last() {
        set(&[("mark_seq", last.seq.into()), ("mark", line.mark.clone().into())]);
    }
    if let Some(source) = &line.source {
        let lineage = source.lineage.clone().into();
        set(&[("process", source.process.as_str().into()), ("process_at", now.into()), ("lineage", lineage)]);
    }
    if let Some(card) = &line.card {
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
