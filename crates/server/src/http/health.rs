//! Whether the server is up. Everybody may ask, so the answers say nothing about sessions.
//!
//! `/health` says that the process lives; `/ready` also that it can do its work.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use super::HttpState;

/// How long the store may take to say how it is.
const CHECK_WAIT: Duration = Duration::from_secs(4);

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new().route("/health", get(health)).route("/healthz", get(healthz)).route("/ready", get(ready))
}

async fn health(State(state): State<Arc<HttpState>>) -> Response {
    let uptime_ms = state.registry.clock().now().0.saturating_sub(state.started.0).max(0);
    let (status, word) = status_of(&state, "ok");
    let body = json!({
        "status": word,
        "version": state.identity.version,
        "uptime_secs": uptime_ms / 1000,
        "started_at": state.started.0 / 1000,
    });
    (status, Json(body)).into_response()
}

async fn healthz(State(state): State<Arc<HttpState>>) -> Response {
    let (status, word) = status_of(&state, "ok");
    (status, Json(json!({ "status": word }))).into_response()
}

/// Whether requests can be served: sessions can be kept, and nothing else is in the way. What is wrong is
/// said without paths, because nobody has to show a token here.
async fn ready(State(state): State<Arc<HttpState>>) -> Response {
    let (status, word) = status_of(&state, "ready");
    if status != StatusCode::OK {
        return (status, Json(json!({ "status": word }))).into_response();
    }
    match tokio::time::timeout(CHECK_WAIT, state.registry.check_store()).await {
        Ok(Ok(())) if state.registry.rules_damage().is_some() => not_ready(
            "a file of permission rules could not be read, so every action needs permission; run ropewalk doctor for details",
        ),
        Ok(Ok(())) => match state.registry.follower_fault() {
            Some(fault) => not_ready(&fault.for_others),
            None => (status, Json(json!({ "status": word }))).into_response(),
        },
        Ok(Err(fault)) => not_ready(&format!("the session store cannot be used: {}", fault.brief())),
        Err(_) => not_ready("the session store does not answer; the server's log says more"),
    }
}

fn not_ready(reason: &str) -> Response {
    let body = json!({ "status": "not_ready", "reason": reason });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

fn status_of(state: &HttpState, well: &'static str) -> (StatusCode, &'static str) {
    if state.stop.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if state.gate.is_open() {
        (StatusCode::OK, well)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting")
    }
}
