//! The agent's slash commands, for clients that have no prompt to type them into.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::{CommandSpec, SessionId};
use serde_json::{Map, Value, json};
use wire::rest::message_id;

use super::request_params::{bad_field, some_text};
use super::rest_context::{RestContext, no_session};
use crate::http::{HttpState, JsonFields, Refusal};

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new().route("/commands", get(list)).route("/commands/{name}/invoke", post(invoke))
}

async fn list(context: RestContext) -> Json<Value> {
    let mut commands: Vec<&CommandSpec> = context.state.registry.abilities().commands.iter().collect();
    commands.sort_by(|a, b| a.name.cmp(&b.name));
    let row = |command: &CommandSpec| {
        let args = command.hint.iter().map(|hint| json!({ "name": "1", "description": hint.as_ref() }));
        json!({
            "name": command.name.as_ref(),
            "description": command.description.as_ref(),
            "args": args.collect::<Vec<_>>(),
            "source": "built-in",
        })
    };
    Json(json!({ "commands": commands.into_iter().map(row).collect::<Vec<_>>() }))
}

async fn invoke(
    context: RestContext,
    Path(name): Path<String>,
    JsonFields(fields): JsonFields,
) -> Result<Response, Refusal> {
    let missing = || bad_field("missing_session_id", "send the session_id that the command is for");
    let id = some_text(&fields, &["session_id"])?.ok_or_else(missing)?;
    let words = words(&fields)?;
    let id = SessionId::parse(id).map_err(|_| no_session())?;
    let row = context.row(&id).await?;
    let offered = context.state.registry.offer(row.cwd).await.commands;
    if !offered.iter().any(|command| *command.name == *name) {
        let message = "unknown command; see GET /commands";
        return Err(Refusal::new(StatusCode::NOT_FOUND, "command_not_found", message));
    }
    let rendered = words.into_iter().fold(format!("/{name}"), |line, word| format!("{line} {word}"));
    let turn = context.prompt(&id, &rendered).await?;
    let body = json!({ "message_id": message_id(&id, turn), "name": name, "rendered": rendered });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

/// The command's arguments: positional ones first, then `name=value`.
fn words(fields: &Map<String, Value>) -> Result<Vec<String>, Refusal> {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut words = match fields.get("args") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(args)) => args.iter().map(plain).collect(),
        Some(_) => return Err(bad_field("args_must_be_list", "args must be a list: [\"..\"]")),
    };
    match fields.get("kwargs") {
        None | Some(Value::Null) => {}
        Some(Value::Object(path)) => {
            words.extend(path.iter().map(|(name, value)| format!("{name}={}", plain(value))));
        }
        Some(_) => {
            return Err(bad_field("kwargs_must_be_object", "kwargs must be an object: {\"name\": ..}"));
        }
    }
    Ok(words)
}
