//! Answers to the questions that the agent asks.

use std::sync::Arc;

use axum::routing::post;
use axum::{Json, Router};
use engine::Answer;
use metrics::Door;
use serde_json::{Map, Value, json};
use wire::rest::parse_permission;

use super::reach::{Reach, no_permission, refusal};
use super::words::{bad_field, some_text, text};
use crate::http::{Doors, Fields, Refusal};

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new().route("/tool/approve", post(approve))
}

/// The first answer wins; a later one finds no question.
async fn approve(reach: Reach, Fields(fields): Fields) -> Result<Json<Value>, Refusal> {
    let missing = || {
        let message = "send session_id and permission_id as they stand in the permission_request";
        bad_field("missing_session_id_or_permission_id", message)
    };
    let session = some_text(&fields, &["session_id"])?.ok_or_else(missing)?;
    let permission = some_text(&fields, &["permission_id"])?.ok_or_else(missing)?;
    let answer = answer(&fields)?;
    let (ask, id) = parse_permission(permission).ok_or_else(no_permission)?;
    if id.as_str() != session {
        return Err(no_permission());
    }
    // The answer counts as one through this door.
    reach.doors.metrics.connection(Door::Http).surface(reach.by.sender.surface);
    let approved = matches!(answer, Answer::AllowOnce | Answer::AllowExactly | Answer::Reply(_));
    let handle = reach.open(&id).await?;
    reach.service.answer(&reach.by, &handle, ask, answer).await.map_err(refusal)?;
    Ok(Json(json!({ "resolved": true, "approved": approved })))
}

fn answer(fields: &Map<String, Value>) -> Result<Answer, Refusal> {
    let missing = || {
        let message = "send \"approved\": true or false, or \"decision\": allow, always, deny or never, or \"answer\": your answer to a question";
        bad_field("missing_approved", message)
    };
    if let Some(said) = text(fields, "answer")? {
        return Ok(Answer::Reply(said.into()));
    }
    match (fields.get("approved"), text(fields, "decision")?) {
        (Some(Value::Bool(true)), None) | (None, Some("allow")) => Ok(Answer::AllowOnce),
        (Some(Value::Bool(false)), None) | (None, Some("deny")) => Ok(Answer::DenyOnce),
        (None, Some("always")) => Ok(Answer::AllowExactly),
        (None, Some("never")) => Ok(Answer::DenyExactly),
        (Some(_), _) | (None, _) => Err(missing()),
    }
}
