//! `/ui/enter`, `/ui/leave` and `/auth`: where a browser signs in and out at a hub.
//!
//! Only our own pages may speak here, in JSON and in few words. Wrong codes, passkeys and tokens are counted by
//! address, and who shows too many has to wait.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use access::{Fields, Refusal, request_checks};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::json;

use super::entrance::{Arriving, Entered};
use super::{Failure, People};

/// A passkey's answer has a few kilobytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Where somebody without a token shows something that could be guessed.
const ENTRANCES: [&str; 2] = ["/ui/enter", "/auth/passkey/finish"];

/// Where a request comes from, in its extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub IpAddr);

/// All routes of people.
pub fn routes(people: Arc<People>) -> Router {
    Router::new()
        .route("/ui/enter", post(enter))
        .route("/ui/leave", post(leave))
        .route("/auth/about", get(about))
        .route("/auth/passkey/begin", post(passkey_begin))
        .route("/auth/passkey/finish", post(passkey_finish))
        .route("/auth/passkey/new/begin", post(new_passkey_begin))
        .route("/auth/passkey/new/finish", post(new_passkey_finish))
        .layer(from_fn_with_state(Arc::clone(&people), guard))
        .layer(from_fn_with_state(Arc::clone(&people), slow_down))
        .with_state(people)
}

/// The middleware for every route that takes tokens or codes: who shows too many wrong ones has to wait. Elsewhere that
/// means that nothing of theirs is looked at. Loopback is shared by all programs of the machine, and by everybody whose
/// proxy does not say for whom it speaks: there one who guesses must not lock out the others, so what is right is taken
/// always, and only what is wrong is told to wait.
pub async fn slow_down(State(people): State<Arc<People>>, mut request: Request, next: Next) -> Response {
    if request.extensions().get::<Address>().is_some() {
        return next.run(request).await;
    }
    let address = request_checks::address(people.behind_proxy, &request);
    request.extensions_mut().insert(Address(address));
    let entrance = ENTRANCES.contains(&request.uri().path());
    if !entrance && !request.headers().contains_key(AUTHORIZATION) {
        return next.run(request).await;
    }
    let wait = people.wait(address);
    if let Some(wait) = wait.filter(|_| !address.is_loopback()) {
        return too_often(wait);
    }
    let response = next.run(request).await;
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED || (entrance && status == StatusCode::FORBIDDEN) {
        if let Some(wait) = wait {
            return too_often(wait);
        }
        people.count(address);
    }
    response
}

impl People {
    fn wait(&self, address: IpAddr) -> Option<Duration> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.wait(address, Instant::now())
    }

    fn count(&self, address: IpAddr) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.count(address, Instant::now());
    }
}

fn too_often(wait: Duration) -> Response {
    let message = "too many wrong tokens or codes from this address; wait, then use the right one";
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_tokens", message);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = refusal.into_response();
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Only our own pages change anything.
async fn guard(State(people): State<Arc<People>>, mut request: Request, next: Next) -> Response {
    if request.method() == Method::POST {
        if !people.place.is_own_page(request.headers()) {
            let message = "only pages of this hub may sign in here; open it at its public address";
            return Refusal::new(StatusCode::FORBIDDEN, "origin_not_allowed", message).into_response();
        }
        if let Err(refusal) = request_checks::fit(&mut request, BODY_BYTES_MAX) {
            return refusal.into_response();
        }
    }
    request_checks::dressed(next.run(request).await)
}

/// What a page may know that nobody has signed in at.
async fn about(State(people): State<Arc<People>>) -> Result<Response, Refusal> {
    let setup = people.is_empty().await.map_err(Failure::refusal)?;
    let passkeys = people.place.relying_party().is_some();
    Ok(Json(json!({ "hub": true, "passkeys": passkeys, "setup": setup })).into_response())
}

/// `{code, name, person}`: the code of a link, what the browser calls itself, and for the first admin who they are.
async fn enter(
    State(people): State<Arc<People>>,
    Extension(from): Extension<Address>,
    headers: HeaderMap,
    Fields(fields): Fields,
) -> Result<Response, Refusal> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let Some(code) = text("code") else {
        let message = "send {\"code\": ..., \"name\": ...}, with the code that stands after the # of a link";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message));
    };
    let browser = text("name").unwrap_or_default();
    let arriving = Arriving { headers: &headers, from, browser, person: text("person") };
    let entered = people.enter(code, arriving).await.map_err(Failure::refusal)?;
    Ok(people.welcomed(entered))
}

/// This browser is signed out, and its cookie is forgotten.
async fn leave(
    State(people): State<Arc<People>>,
    Extension(from): Extension<Address>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let guest = people.arrival(&headers).await.map_err(Failure::refusal)?;
    let jar = people.leave(&guest, from).await.map_err(Failure::refusal)?;
    let mut response = Json(json!({ "left": guest.device })).into_response();
    response.headers_mut().extend(people.place.cookie(jar, None).map(|cookie| (SET_COOKIE, cookie)));
    Ok(response)
}

async fn passkey_begin(State(people): State<Arc<People>>) -> Result<Response, Refusal> {
    people.begin_enter().map(|asked| Json(asked).into_response()).map_err(Failure::refusal)
}

/// `{credential, name}`: what `navigator.credentials.get` gave, and what the browser calls itself.
async fn passkey_finish(
    State(people): State<Arc<People>>,
    Extension(from): Extension<Address>,
    headers: HeaderMap,
    Fields(fields): Fields,
) -> Result<Response, Refusal> {
    let (credential, name) = credential(fields)?;
    let entered = people.finish_enter(&credential, &name, &headers, from).await.map_err(Failure::refusal)?;
    Ok(people.welcomed(entered))
}

async fn new_passkey_begin(
    State(people): State<Arc<People>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let guest = people.arrival(&headers).await.map_err(Failure::refusal)?;
    let asked = people.begin_passkey(&guest).await.map_err(Failure::refusal)?;
    Ok(Json(asked).into_response())
}

/// `{credential, name}`: what `navigator.credentials.create` gave, and what to call it.
async fn new_passkey_finish(
    State(people): State<Arc<People>>,
    Extension(from): Extension<Address>,
    headers: HeaderMap,
    Fields(fields): Fields,
) -> Result<Response, Refusal> {
    let guest = people.arrival(&headers).await.map_err(Failure::refusal)?;
    let (credential, name) = credential(fields)?;
    let made = people.finish_passkey(&guest, &credential, &name, from).await.map_err(Failure::refusal)?;
    Ok(Json(json!({ "passkey": made })).into_response())
}

fn credential<T: DeserializeOwned>(
    mut fields: serde_json::Map<String, Value>,
) -> Result<(T, String), Refusal> {
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let credential =
        json::read_value(fields.remove("credential").unwrap_or_default(), "credential", "the credential");
    let credential = credential.map_err(|error| {
        let message = format!("send {{\"credential\": ...}} as the browser's toJSON() gives it: {error}");
        Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message)
    })?;
    Ok((credential, name))
}

impl People {
    pub(super) fn welcomed(&self, entered: Entered) -> Response {
        let cookie = entered.key.as_ref().and_then(|(jar, key)| self.place.cookie(*jar, Some(key)));
        let mut response = Json(entered).into_response();
        response.headers_mut().extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
        response
    }
}
