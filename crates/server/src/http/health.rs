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

use super::Doors;

/// How long the store may take to say how it is.
const CHECK_WAIT: Duration = Duration::from_secs(4);

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

/// Whether requests can be served: sessions can be kept, and nothing else is in the way. What is wrong is
/// said without paths, because nobody has to show a token here.
async fn ready(State(doors): State<Arc<Doors>>) -> Response {
    let (status, word) = state(&doors, "ready");
    if status != StatusCode::OK {
        return (status, Json(json!({ "status": word }))).into_response();
    }
    match tokio::time::timeout(CHECK_WAIT, doors.registry.check_store()).await {
        Ok(Ok(())) if doors.registry.rules_damage().is_some() => not_ready(
            "a file of permission rules cannot be read, so everything is asked; ropewalk doctor says which and why",
        ),
        Ok(Ok(())) => match doors.registry.follower_fault() {
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

fn state(doors: &Doors, well: &'static str) -> (StatusCode, &'static str) {
    if doors.stop.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if doors.gate.is_open() {
        (StatusCode::OK, well)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting")
    }
}
