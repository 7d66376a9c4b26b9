//! `/ui`: where a browser signs in and out, and where the machine's own commands ask about devices.
//!
//! The code that lets somebody in stands after the `#` of a link, which browsers do not send; the page
//! sends it here, in a body, and gets a cookie that no script can read, and in the answer's body the proof
//! that it shows beside the cookie from then on.

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
use wire::json;
use wire::native::{Request, Wrong};

use crate::Refusal;
use crate::body::Fields;
use crate::devices::{Code, Denial, Devices, Entered};
use crate::gate::{ABOUT, Caller, ENTRANCE, Gate, Guest, Jar};

/// What these routes work with.
#[derive(Clone)]
pub struct Entrance {
    pub gate: Arc<Gate>,
    pub devices: Arc<Devices>,
    /// Who waits for an answer is told when this is cancelled.
    pub stop: CancellationToken,
}

pub fn routes<S: Clone + Send + Sync + 'static>(entrance: Entrance) -> Router<S> {
    Router::new()
        .route(ABOUT, get(about))
        .route(ENTRANCE, post(enter))
        .route("/ui/leave", post(leave))
        .route("/ui/link", post(link))
        .route("/ui/hall", post(hall))
        .with_state(entrance)
}

/// The same page leads into a hub, and asks before anybody is signed in which of both this is.
async fn about() -> Response {
    Json(json!({ "hub": false })).into_response()
}

/// `{code, name}` comes in or knocks; `{knock}` asks what became of a knock.
async fn enter(
    State(entrance): State<Entrance>,
    Extension(guest): Extension<Guest>,
    Extension(jar): Extension<Jar>,
    Fields(fields): Fields,
) -> Result<Response, Response> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let key = guest.key.as_deref();
    let code = text("code").map(Code::read);
    let guessable = code.as_ref().is_some_and(Code::is_short);
    if let Some(wait) = entrance.gate.wait(guest.address, guessable) {
        return Err(too_often(wait));
    }
    let entered = match (code, text("knock")) {
        (Some(code), None) => entrance.devices.enter(&code, text("name").unwrap_or_default(), key).await,
        (None, Some(knock)) => {
            let waited = entrance.stop.run_until_cancelled(entrance.devices.wait(knock, key)).await;
            waited.ok_or_else(|| stopping().into_response())?
        }
        (Some(_), Some(_)) | (None, None) => {
            let message = "send {\"code\": ..., \"name\": ...}, or {\"knock\": ...}";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message).into_response());
        }
    };
    match entered {
        Ok(Entered::In { key, proof, visitor }) => {
            let body = json!({
                "device": visitor.device,
                "name": visitor.name,
                "role": visitor.role,
                "proof": proof,
            });
            Ok(with_cookie((StatusCode::OK, Json(body)), jar.cookie(Some(&key))))
        }
        Ok(Entered::Knocking { knock, words }) => {
            let body = json!({ "knock": knock, "words": words });
            Ok((StatusCode::ACCEPTED, Json(body)).into_response())
        }
        Err(denial) => {
            if denial == Denial::Unknown {
                entrance.gate.count(guest.address);
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

fn denied(denial: Denial) -> Refusal {
    let (status, code) = match denial {
        Denial::Unknown => (StatusCode::FORBIDDEN, "code_unknown"),
        Denial::Used => (StatusCode::GONE, "code_used"),
        Denial::Expired => (StatusCode::GONE, "code_expired"),
        Denial::Unanswered => (StatusCode::GONE, "knock_expired"),
        Denial::Refused => (StatusCode::FORBIDDEN, "knock_refused"),
        Denial::Full => (StatusCode::CONFLICT, "too_many_devices"),
        Denial::Unwritable => (StatusCode::INTERNAL_SERVER_ERROR, "not_written"),
    };
    Refusal::new(status, code, denial.to_string())
}

fn too_often(wait: Duration) -> Response {
    let message = "too many wrong codes from this address; wait, then use the right one";
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_codes", message);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = refusal.into_response();
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// This device is gone for good, and its cookie with it.
async fn leave(
    State(entrance): State<Entrance>,
    Extension(caller): Extension<Caller>,
    Extension(jar): Extension<Jar>,
) -> Result<Response, Refusal> {
    let visitor = caller.visitor();
    let Some(device) = &visitor.device else {
        let message = "this is for devices; a token is not signed out";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message));
    };
    let revoke = Request::Revoke { device: device.to_string() };
    entrance.devices.answer(&visitor, revoke).await.map_err(refused)?;
    Ok(with_cookie(Json(json!({ "left": device })), jar.cookie(None)))
}

/// A link that signs a browser in as the owner; for whoever holds the token.
async fn link(
    State(entrance): State<Entrance>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    let made = entrance.devices.login(&caller.visitor()).map_err(refused)?;
    Ok(Json(json!({ "url": made.url, "expires_at": made.expires_at })).into_response())
}

/// The requests about devices, for commands that hold no line.
async fn hall(
    State(entrance): State<Entrance>,
    Extension(caller): Extension<Caller>,
    Fields(fields): Fields,
) -> Result<Response, Refusal> {
    let request: Request = json::read_value(Value::Object(fields), "", "the request").map_err(|error| {
        Refusal::new(StatusCode::BAD_REQUEST, "bad_request", format!("this is no request: {error}"))
    })?;
    let answered = entrance.devices.answer(&caller.visitor(), request).await.map_err(refused)?;
    Ok(Json(answered).into_response())
}

fn refused(wrong: Wrong) -> Refusal {
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
