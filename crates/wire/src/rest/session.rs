//! Sessions in the REST API.
//!
//! The path decides the form of times: below `/session` they are seconds since 1970, as numbers; below
//! `/sessions` they are text, except in the listing, which has both.

use engine::{ListedSession, SessionHandle, SessionId, SessionRow, Timestamp};
use serde_json::{Value, json};

use crate::timestamp::rfc3339;

/// Seconds since 1970, with their fraction.
pub fn seconds(at: Timestamp) -> f64 {
    // The milliseconds of any realistic date fit into 52 bits.
    #[expect(clippy::cast_precision_loss, reason = "times are far below 2^52 milliseconds")]
    let ms = at.0 as f64;
    ms / 1000.0
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    Running,
    Idle,
}

impl RunStatus {
    fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Idle => "idle",
        }
    }
}

/// The response to `POST /session`.
pub fn created(session: &SessionHandle, token: &str) -> Value {
    json!({
        "session_id": session.id().as_str(),
        "working_dir": session.snapshot().cwd.to_string_lossy(),
        "created_at": seconds(session.origin().created_at),
        "session_token": token,
    })
}

/// The response to `GET /session/<id>`.
pub fn snapshot(row: &SessionRow) -> Value {
    json!({
        "session_id": row.id.as_str(),
        "working_dir": row.cwd.to_string_lossy(),
        "created_at": seconds(row.created_at),
        "last_touched": seconds(row.updated_at),
        "event_count": row.last_seq.0,
        "title": row.title.as_deref(),
        "status": status(row).word(),
    })
}

/// A row of `GET /sessions`.
pub fn listed(listed: &ListedSession) -> Value {
    let row = &listed.row;
    let mut value = snapshot(row);
    value["id"] = json!(row.id.as_str());
    value["started_at"] = json!(rfc3339(row.created_at));
    value["updated_at"] = json!(rfc3339(row.updated_at));
    value["live"] = json!(listed.live);
    value
}

/// A session below `/sessions`.
pub fn info(row: &SessionRow, messages: Option<u64>) -> Value {
    let mut value = json!({
        "id": row.id.as_str(),
        "session_id": row.id.as_str(),
        "title": row.title.as_deref(),
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
        "event_count": row.last_seq.0,
        "status": status(row).word(),
        "working_dir": row.cwd.to_string_lossy(),
        "parent_id": row.parent.as_ref().map(SessionId::as_str),
    });
    if let Some(messages) = messages {
        value["message_count"] = json!(messages);
    }
    value
}

fn status(row: &SessionRow) -> RunStatus {
    if row.busy { RunStatus::Running } else { RunStatus::Idle }
}
