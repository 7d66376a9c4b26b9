//! What this server is and offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use engine::MODEL;
use serde_json::{Value, json};

use super::rest_context::RestContext;
use crate::http::{HttpState, Refusal};
use wire::rest::tool_name;

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/info", get(info))
        .route("/providers", get(providers))
        .route("/tools", get(tools))
        .route("/.well-known/acp.json", get(discovery))
        .route("/.well-known/agent.json", get(agent))
        .route("/agent.json", get(agent))
}

async fn info(context: RestContext) -> Json<Value> {
    let (state, model) = (&context.state, context.usual_model());
    let tools: Vec<&str> =
        state.registry.abilities().tools.iter().map(|tool| tool_name(&tool.name)).collect();
    Json(json!({
        "name": state.identity.name,
        "version": state.identity.version,
        "model": model,
        "provider": provider(model),
        "tools": tools,
        "cwd": state.rules.home_dir.to_string_lossy(),
        "sandbox": state.identity.sandbox,
    }))
}

/// Models are named `provider:model`.
fn provider(model: &str) -> &str {
    model.split_once(':').map_or(model, |(provider, _)| provider)
}

async fn providers(context: RestContext) -> Json<Value> {
    let mut available: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for choice in context.spec(MODEL).map(|spec| spec.choices.as_slice()).unwrap_or_default() {
        available.entry(provider(&choice.value)).or_default().push(&choice.value);
    }
    let row =
        |(name, models): (&str, Vec<&str>)| json!({ "name": name, "configured": true, "models": models });
    Json(json!({
        "active": { "provider": provider(context.usual_model()), "model": context.usual_model() },
        "available": available.into_iter().map(row).collect::<Vec<_>>(),
    }))
}

async fn tools(context: RestContext) -> Json<Value> {
    let tools = context.state.registry.abilities().tools.iter();
    let row = |tool: &engine::ToolInfo| json!({ "name": tool_name(&tool.name), "description": tool.description.as_ref() });
    Json(json!({ "tools": tools.map(row).collect::<Vec<_>>() }))
}

/// Public: it says how to talk to this server, and nothing about who does.
async fn discovery(State(state): State<Arc<HttpState>>) -> Result<Json<Value>, Refusal> {
    must_be_public(&state)?;
    Ok(Json(json!({
        "name": state.identity.name,
        "version": state.identity.version,
        "protocol": "acp",
        "protocol_version": 1,
        "transports": {
            "http_sse": { "url": "/acp" },
            "websocket": { "url": "/acp/ws" },
            "rest": { "url": "/sessions" },
            "health": { "url": "/health" },
        },
        "authentication": state.gate.asks_for_token().then(|| json!({ "type": "bearer" })),
        "readiness": { "http_health_endpoint": "/health" },
    })))
}

/// Its owner may want the server to be nothing to those who do not know it.
fn must_be_public(state: &HttpState) -> Result<(), Refusal> {
    if state.rules.discovery { Ok(()) } else { Err(Refusal::not_found()) }
}

async fn agent(State(state): State<Arc<HttpState>>) -> Result<Json<Value>, Refusal> {
    must_be_public(&state)?;
    Ok(Json(json!({
        "id": "ropewalk",
        "name": state.identity.name,
        "title": state.identity.title,
        "version": state.identity.version,
        "description": "Serves a coding agent to many clients at once, on one durable log per session",
        "distribution": { "type": "binary" },
    })))
}
