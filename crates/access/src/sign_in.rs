//! `/ui`: where a browser signs in and out, and where the machine's own commands manage devices.
//!
//! The code that signs a browser in is in the fragment (`#`) of a link, which browsers do not send; the page
//! posts it here, in a body, and gets a cookie that no script can read, and in the answer's body the proof
//! that it presents together with the cookie from then on.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wire::json_errors;
use wire::native::{ReplyError, Request};

use crate::Refusal;
use crate::devices::{Code, Devices, SignInDenial, SignInOutcome};
use crate::gate::{ABOUT, CookieSettings, ENTRANCE, Gate, HttpCaller, SignInClient};
use crate::request_body::JsonFields;

/// The state of these routes.
#[derive(Clone)]
pub struct SignInState {
    pub gate: Arc<Gate>,
    pub devices: Arc<Devices>,
    /// Requests that wait for an answer end when this is cancelled.
    pub stop: CancellationToken,
}

pub fn routes<S: Clone + Send + Sync + 'static>(state: SignInState) -> Router<S> {
    Router::new()
        .route(ABOUT, get(about))
        .route(ENTRANCE, post(enter))
        .route("/ui/leave", post(leave))
        .route("/ui/link", post(link))
        .route("/ui/hall", post(devices_request))
        .with_state(state)
}

/// The same web app runs at a hub, and asks before anybody is signed in whether this is one.
async fn about() -> Response {
    Json(json!({ "hub": false })).into_response()
}

/// `{code, name}` signs in or knocks; `{knock}` asks for the answer to a knock.
async fn enter(
    State(state): State<SignInState>,
    Extension(client): Extension<SignInClient>,
    Extension(cookie_settings): Extension<CookieSettings>,
    JsonFields(fields): JsonFields,
) -> Result<Response, Response> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let key = client.key.as_deref();
    let code = text("code").map(Code::read);
    let guessable = code.as_ref().is_some_and(Code::is_short);
    if let Some(wait) = state.gate.wait(client.address, guessable) {
        return Err(too_often(wait));
    }
    let outcome = match (code, text("knock")) {
        (Some(code), None) => state.devices.enter(&code, text("name").unwrap_or_default(), key).await,
        (None, Some(knock)) => {
            let waited = state.stop.run_until_cancelled(state.devices.wait(knock, key)).await;
            waited.ok_or_else(|| stopping().into_response())?
        }
        (Some(_), Some(_)) | (None, None) => {
            let message = "send {\"code\": ..., \"name\": ...}, or {\"knock\": ...}";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message).into_response());
        }
    };
    match outcome {
        Ok(SignInOutcome::In { key, proof, visitor }) => {
            let body = json!({
                "device": visitor.device,
                "name": visitor.name,
                "role": visitor.role,
                "proof": proof,
            });
            Ok(with_cookie((StatusCode::OK, Json(body)), cookie_settings.cookie(Some(&key))))
        }
        Ok(SignInOutcome::Knocking { knock, words }) => {
            let body = json!({ "knock": knock, "words": words });
            Ok((StatusCode::ACCEPTED, Json(body)).into_response())
        }
        Err(denial) => {
            if denial == SignInDenial::Unknown {
                state.gate.count(client.address);
            }
            Err(denied(denial).into_response())
        }
    }
}

fn stopping() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "stopping",
        "the server is stopping; ask again when it is back",
    )
}

fn denied(denial: SignInDenial) -> Refusal {
    let (status, code) = match denial {
        SignInDenial::Unknown => (StatusCode::FORBIDDEN, "code_unknown"),
        SignInDenial::Used => (StatusCode::GONE, "code_used"),
        SignInDenial::Expired => (StatusCode::GONE, "code_expired"),
        SignInDenial::Unanswered => (StatusCode::GONE, "knock_expired"),
        SignInDenial::Refused => (StatusCode::FORBIDDEN, "knock_refused"),
        SignInDenial::Full => (StatusCode::CONFLICT, "too_many_devices"),
        SignInDenial::Unwritable => (StatusCode::INTERNAL_SERVER_ERROR, "not_written"),
    };
    Refusal::new(status, code, denial.to_string())
}

fn too_often(wait: Duration) -> Response {
    let message = "too many wrong codes from this address; wait, then try again with the right one";
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_codes", message);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = refusal.into_response();
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Revokes this device, and deletes its cookie.
async fn leave(
    State(state): State<SignInState>,
    Extension(caller): Extension<HttpCaller>,
    Extension(cookie_settings): Extension<CookieSettings>,
) -> Result<Response, Refusal> {
    let visitor = caller.visitor();
    let Some(device) = &visitor.device else {
        let message = "only devices can sign out, not tokens";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message));
    };
    let revoke = Request::Revoke { device: device.to_string() };
    state.devices.answer(&visitor, revoke).await.map_err(refused)?;
    Ok(with_cookie(Json(json!({ "left": device })), cookie_settings.cookie(None)))
}

/// A link that signs a browser in as the owner; for callers with the token.
async fn link(
    State(state): State<SignInState>,
    Extension(caller): Extension<HttpCaller>,
) -> Result<Response, Refusal> {
    let made = state.devices.login(&caller.visitor()).map_err(refused)?;
    Ok(Json(json!({ "url": made.url, "expires_at": made.expires_at })).into_response())
}

/// The requests about devices, for commands that have no app connection.
async fn devices_request(
    State(state): State<SignInState>,
    Extension(caller): Extension<HttpCaller>,
    JsonFields(fields): JsonFields,
) -> Result<Response, Refusal> {
    let request: Request =
        json_errors::read_value(Value::Object(fields), "", "the request").map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, "bad_request", format!("invalid request: {error}"))
        })?;
    let answered = state.devices.answer(&caller.visitor(), request).await.map_err(refused)?;
    Ok(Json(answered).into_response())
}

fn refused(wrong: ReplyError) -> Refusal {
    let (status, code) = match wrong.code.as_str() {
        "forbidden" => (StatusCode::FORBIDDEN, "forbidden"),
        "notFound" => (StatusCode::NOT_FOUND, "not_found"),
        "badRequest" => (StatusCode::BAD_REQUEST, "bad_request"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
    };
    Refusal::new(status, code, wrong.message)
}

fn with_cookie(response: impl IntoResponse, cookie: Option<HeaderValue>) -> Response {
    let mut response = response.into_response();
    response.headers_mut().extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
    response
}
