//! Whether the server is up. Everybody may ask, so the answers say nothing about sessions.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use super::Doors;

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new().route("/health", get(health)).route("/healthz", get(healthz)).route("/ready", get(ready))
}

async fn health(State(doors): State<Arc<Doors>>) -> Response {
    let uptime_ms = doors.registry.clock().now().0.saturating_sub(doors.started.0).max(0);
    let (status, word) = state(&doors, "ok");
    let body = json!({
        "status": word,
        "version": doors.identity.version,
        "uptime_secs": uptime_ms / 1000,
        "started_at": doors.started.0 / 1000,
    });
    (status, Json(body)).into_response()
}

async fn healthz(State(doors): State<Arc<Doors>>) -> Response {
    let (status, word) = state(&doors, "ok");
    (status, Json(json!({ "status": word }))).into_response()
}

async fn ready(State(doors): State<Arc<Doors>>) -> Response {
    let (status, word) = state(&doors, "ready");
    (status, Json(json!({ "status": word }))).into_response()
}

fn state(doors: &Doors, well: &'static str) -> (StatusCode, &'static str) {
    if doors.stop.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if doors.gate.is_open() {
        (StatusCode::OK, well)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting")
    }
}
