//! What this server is and offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use engine::MODEL;
use serde_json::{Value, json};

use super::reach::Reach;
use crate::http::{Doors, Refusal};
use wire::rest::tool_name;

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new()
        .route("/info", get(info))
        .route("/providers", get(providers))
        .route("/tools", get(tools))
        .route("/.well-known/acp.json", get(discovery))
        .route("/.well-known/agent.json", get(agent))
        .route("/agent.json", get(agent))
}

async fn info(reach: Reach) -> Json<Value> {
    let (doors, model) = (&reach.doors, reach.usual_model());
    let tools: Vec<&str> =
        doors.registry.abilities().tools.iter().map(|tool| tool_name(&tool.name)).collect();
    Json(json!({
        "name": doors.identity.name,
        "version": doors.identity.version,
        "model": model,
        "provider": provider(model),
        "tools": tools,
        "cwd": doors.rules.home_dir.to_string_lossy(),
        "sandbox": doors.identity.sandbox,
    }))
}

/// Models are named `provider:model`.
fn provider(model: &str) -> &str {
    model.split_once(':').map_or(model, |(provider, _)| provider)
}

async fn providers(reach: Reach) -> Json<Value> {
    let mut available: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for choice in reach.spec(MODEL).map(|spec| spec.choices.as_slice()).unwrap_or_default() {
        available.entry(provider(&choice.value)).or_default().push(&choice.value);
    }
    let row =
        |(name, models): (&str, Vec<&str>)| json!({ "name": name, "configured": true, "models": models });
    Json(json!({
        "active": { "provider": provider(reach.usual_model()), "model": reach.usual_model() },
        "available": available.into_iter().map(row).collect::<Vec<_>>(),
    }))
}

async fn tools(reach: Reach) -> Json<Value> {
    let tools = reach.doors.registry.abilities().tools.iter();
    let row = |tool: &engine::ToolInfo| json!({ "name": tool_name(&tool.name), "description": tool.description.as_ref() });
    Json(json!({ "tools": tools.map(row).collect::<Vec<_>>() }))
}

/// Public: it says how to talk to this server, and nothing about who does.
async fn discovery(State(doors): State<Arc<Doors>>) -> Result<Json<Value>, Refusal> {
    must_be_public(&doors)?;
    Ok(Json(json!({
        "name": doors.identity.name,
        "version": doors.identity.version,
        "protocol": "acp",
        "protocol_version": 1,
        "transports": {
            "http_sse": { "url": "/acp" },
            "websocket": { "url": "/acp/ws" },
            "rest": { "url": "/sessions" },
            "health": { "url": "/health" },
        },
        "authentication": doors.gate.asks_for_token().then(|| json!({ "type": "bearer" })),
        "readiness": { "http_health_endpoint": "/health" },
    })))
}

/// Its owner may want the server to be nothing to those who do not know it.
fn must_be_public(doors: &Doors) -> Result<(), Refusal> {
    if doors.rules.discovery { Ok(()) } else { Err(Refusal::not_found()) }
}

async fn agent(State(doors): State<Arc<Doors>>) -> Result<Json<Value>, Refusal> {
    must_be_public(&doors)?;
    Ok(Json(json!({
        "id": "ropewalk",
        "name": doors.identity.name,
        "title": doors.identity.title,
        "version": doors.identity.version,
        "description": "Serves a coding agent to many clients at once, on one durable log per session",
        "distribution": { "type": "binary" },
    })))
}
