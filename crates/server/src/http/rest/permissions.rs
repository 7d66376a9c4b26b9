//! Answers to the agent's permission requests and questions.

use std::sync::Arc;

use axum::routing::post;
use axum::{Json, Router};
use engine::PermissionAnswer;
use metrics::DoorLabel;
use serde_json::{Map, Value, json};
use wire::rest::parse_permission;

use super::request_params::{bad_field, some_text, text};
use super::rest_context::{RestContext, no_permission, refusal};
use crate::http::{HttpState, JsonFields, Refusal};

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new().route("/tool/approve", post(approve))
}

/// The first answer wins; a later one finds no question.
async fn approve(context: RestContext, JsonFields(fields): JsonFields) -> Result<Json<Value>, Refusal> {
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
    context.state.metrics.connection(DoorLabel::Http).surface(context.caller.sender.surface);
    let approved = matches!(
        answer,
        PermissionAnswer::AllowOnce | PermissionAnswer::AllowExactly | PermissionAnswer::Reply(_)
    );
    let handle = context.open(&id).await?;
    context.service.answer(&context.caller, &handle, ask, answer).await.map_err(refusal)?;
    Ok(Json(json!({ "resolved": true, "approved": approved })))
}

fn answer(fields: &Map<String, Value>) -> Result<PermissionAnswer, Refusal> {
    let missing = || {
        let message = "send \"approved\": true or false, or \"decision\": allow, always, deny or never, or \"answer\": your answer to a question";
        bad_field("missing_approved", message)
    };
    if let Some(said) = text(fields, "answer")? {
        return Ok(PermissionAnswer::Reply(said.into()));
    }
    match (fields.get("approved"), text(fields, "decision")?) {
        (Some(Value::Bool(true)), None) | (None, Some("allow")) => Ok(PermissionAnswer::AllowOnce),
        (Some(Value::Bool(false)), None) | (None, Some("deny")) => Ok(PermissionAnswer::DenyOnce),
        (None, Some("always")) => Ok(PermissionAnswer::AllowExactly),
        (None, Some("never")) => Ok(PermissionAnswer::DenyExactly),
        (Some(_), _) | (None, _) => Err(missing()),
    }
}
