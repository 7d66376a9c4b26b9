//! Sessions below `/session`: made, looked at, spoken to, cancelled, deleted.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use engine::{Act, ListQuery};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wire::rest;

use super::events::Streams;
use super::reach::{Reach, no_session, refusal};
use super::words::{Named, Words, bad_field, some_text};
use crate::http::{Doors, Fields, Refusal};

/// Ids in one answer to `GET /session`.
const IDS_MAX: usize = 1000;

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new()
        .route("/session", post(create).get(ids))
        .route("/session/{id}", get(snapshot).delete(delete))
        .route("/session/{id}/message", post(message))
        .route("/session/{id}/cancel", post(cancel))
        .route("/session/{id}/rotate-token", post(rotate))
        .route("/sessions/{id}/cancel", post(cancel))
        .route("/sessions/{id}/rotate-token", post(rotate))
}

async fn create(reach: Reach, Fields(fields): Fields) -> Result<Response, Refusal> {
    // Who asks for less than the usual must not get the usual.
    check_persist(&reach, &fields)?;
    let narrowing = ["allowed_tools", "allowedTools", "max_steps", "mode", "model", "approval"];
    if narrowing.iter().any(|name| fields.contains_key(*name)) {
        let message =
            "a session has only a working_dir here; POST /sessions takes mode, model and prompt too";
        return Err(bad_field("unsupported_field", message));
    }
    let place = reach.place(some_text(&fields, &["working_dir", "cwd"])?).await?;
    let maker = reach.clone();
    let created = reach.complete(async move {
        let session = maker.create(place).await?;
        let token = maker.doors.gate.session_token(&maker.by.principal, session.id());
        Ok(rest::created(&session, &token))
    });
    Ok((StatusCode::CREATED, Json(created.await?)).into_response())
}

/// Whether sessions are saved is decided when the server starts: who wants it otherwise is told.
pub(super) fn check_persist(reach: &Reach, fields: &Map<String, Value>) -> Result<(), Refusal> {
    let saves = !reach.doors.registry.is_ephemeral();
    let Some(wanted) = fields.get("persist") else { return Ok(()) };
    let message = match wanted {
        Value::Bool(wanted) if *wanted == saves => return Ok(()),
        Value::Bool(true) => "this server saves nothing: it was started with --no-save",
        Value::Bool(false) => "this server saves its sessions; one that is started with --no-save does not",
        _ => "persist is true or false",
    };
    Err(bad_field("unsupported_field", message))
}

async fn ids(reach: Reach, words: Words) -> Result<Json<Value>, Refusal> {
    let limit = words.number("limit")?.unwrap_or(IDS_MAX).clamp(1, IDS_MAX);
    let query = ListQuery { limit, ..ListQuery::all(reach.by.principal.clone()) };
    let rows = reach.service.list(&reach.by, query, None).await.map_err(refusal)?;
    let ids: Vec<&str> = rows.iter().map(|listed| listed.row.id.as_str()).collect();
    Ok(Json(json!({ "sessions": ids })))
}

async fn snapshot(Named { reach, id }: Named) -> Result<Json<Value>, Refusal> {
    Ok(Json(rest::snapshot(&reach.row(&id).await?)))
}

async fn message(Named { reach, id }: Named, Fields(fields): Fields) -> Result<Response, Refusal> {
    // Who may not know of the session learns nothing from a bad body either.
    reach.row(&id).await?;
    let text = some_text(&fields, &["text", "message"])?;
    let text = text.ok_or_else(|| bad_field("missing_text", "send {\"text\": what you want}"))?;
    let turn = reach.prompt(&id, text).await?;
    let body = json!({ "message_id": rest::message_id(&id, turn) });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

async fn cancel(Named { reach, id }: Named) -> Result<StatusCode, Refusal> {
    reach.service.cancel(&reach.by, &id, None).await.map_err(refusal)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn delete(Named { reach, id }: Named) -> Result<StatusCode, Refusal> {
    match reach.service.delete(&reach.by, &id).await.map_err(refusal)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(no_session()),
    }
}

async fn rotate(
    State(doors): State<Arc<Doors>>,
    Extension(streams): Extension<Arc<Streams>>,
    Named { reach, id }: Named,
) -> Result<Json<Value>, Refusal> {
    reach.check(Act::RotateToken, &id)?;
    reach.row(&id).await?;
    let token = doors.gate.session_token(&reach.by.principal, &id);
    streams.revoke(&id);
    Ok(Json(json!({ "session_token": token })))
}
