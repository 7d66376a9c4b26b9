//! Sessions below `/session`: create, read, prompt, cancel, delete.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use engine::{Act, ListQuery};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wire::rest;

use super::event_streams::EventStreams;
use super::request_params::{QueryParams, SessionPath, bad_field, some_text};
use super::rest_context::{RestContext, no_session, refusal};
use crate::http::{HttpState, JsonFields, Refusal};

/// Ids in one answer to `GET /session`.
const IDS_MAX: usize = 1000;

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/session", post(create).get(ids))
        .route("/session/{id}", get(snapshot).delete(delete))
        .route("/session/{id}/message", post(message))
        .route("/session/{id}/cancel", post(cancel))
        .route("/session/{id}/rotate-token", post(rotate))
        .route("/sessions/{id}/cancel", post(cancel))
        .route("/sessions/{id}/rotate-token", post(rotate))
}

async fn create(context: RestContext, JsonFields(fields): JsonFields) -> Result<Response, Refusal> {
    // A caller that asks for restrictions that cannot be met must not get a session without them.
    check_persist(&context, &fields)?;
    let narrowing = ["allowed_tools", "allowedTools", "max_steps", "mode", "model", "approval"];
    if narrowing.iter().any(|name| fields.contains_key(*name)) {
        let message = "only working_dir can be set here; use POST /sessions to set mode, model or prompt";
        return Err(bad_field("unsupported_field", message));
    }
    let place = context.place(some_text(&fields, &["working_dir", "cwd"])?).await?;
    let maker = context.clone();
    let created = context.complete(async move {
        let session = maker.create(place).await?;
        let token = maker.state.gate.session_token(&maker.caller.principal, session.id());
        Ok(rest::created(&session, &token))
    });
    Ok((StatusCode::CREATED, Json(created.await?)).into_response())
}

/// Whether sessions are saved is decided when the server starts: a request for the opposite is refused.
pub(super) fn check_persist(context: &RestContext, fields: &Map<String, Value>) -> Result<(), Refusal> {
    let saves = !context.state.registry.is_ephemeral();
    let Some(wanted) = fields.get("persist") else { return Ok(()) };
    let message = match wanted {
        Value::Bool(wanted) if *wanted == saves => return Ok(()),
        Value::Bool(true) => "this server does not save sessions: it was started with --no-save",
        Value::Bool(false) => "this server saves its sessions; use one that was started with --no-save",
        _ => "persist must be true or false",
    };
    Err(bad_field("unsupported_field", message))
}

async fn ids(context: RestContext, params: QueryParams) -> Result<Json<Value>, Refusal> {
    let limit = params.number("limit")?.unwrap_or(IDS_MAX).clamp(1, IDS_MAX);
    let query = ListQuery { limit, ..ListQuery::all(context.caller.principal.clone()) };
    let rows = context.service.list(&context.caller, query, None).await.map_err(refusal)?;
    let ids: Vec<&str> = rows.iter().map(|listed| listed.row.id.as_str()).collect();
    Ok(Json(json!({ "sessions": ids })))
}

async fn snapshot(SessionPath { context, id }: SessionPath) -> Result<Json<Value>, Refusal> {
    Ok(Json(rest::snapshot(&context.row(&id).await?)))
}

async fn message(
    SessionPath { context, id }: SessionPath,
    JsonFields(fields): JsonFields,
) -> Result<Response, Refusal> {
    // Who may not know of the session learns nothing from a bad body either.
    context.row(&id).await?;
    let text = some_text(&fields, &["text", "message"])?;
    let text = text.ok_or_else(|| bad_field("missing_text", "send {\"text\": what you want}"))?;
    let turn = context.prompt(&id, text).await?;
    let body = json!({ "message_id": rest::message_id(&id, turn) });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

async fn cancel(SessionPath { context, id }: SessionPath) -> Result<StatusCode, Refusal> {
    context.service.cancel(&context.caller, &id, None).await.map_err(refusal)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn delete(SessionPath { context, id }: SessionPath) -> Result<StatusCode, Refusal> {
    match context.service.delete(&context.caller, &id).await.map_err(refusal)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(no_session()),
    }
}

async fn rotate(
    State(state): State<Arc<HttpState>>,
    Extension(streams): Extension<Arc<EventStreams>>,
    SessionPath { context, id }: SessionPath,
) -> Result<Json<Value>, Refusal> {
    context.check(Act::RotateToken, &id)?;
    context.row(&id).await?;
    let token = state.gate.session_token(&context.caller.principal, &id);
    streams.revoke(&id);
    Ok(Json(json!({ "session_token": token })))
}
