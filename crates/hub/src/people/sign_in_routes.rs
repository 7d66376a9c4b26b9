//! `/ui/enter`, `/ui/leave` and `/auth`: where a browser signs in and out at a hub.
//!
//! Only our own pages may use these routes, with JSON of limited size. Wrong codes, passkeys and tokens are counted by
//! address; an address with too many has to wait.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use access::{JsonFields, Refusal, request_checks};
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
use wire::json_errors;

use super::sign_in_links::{SignInAttempt, SignedIn};
use super::{People, PeopleError};

/// A passkey's answer has a few kilobytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Routes without a token that accept something that could be guessed.
const GUESSABLE_ROUTES: [&str; 2] = ["/ui/enter", "/auth/passkey/finish"];

/// The address that a request comes from, in its extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress(pub IpAddr);

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
        .layer(from_fn_with_state(Arc::clone(&people), require_own_page))
        .layer(from_fn_with_state(Arc::clone(&people), throttle))
        .with_state(people)
}

/// The middleware for every route that takes tokens or codes: an address that sends too many wrong ones has to wait, and
/// its requests are refused unread. Loopback is different: it is shared by all programs of the machine, and by all clients
/// of a proxy that does not name them. There a guesser must not lock out the others, so valid requests are always
/// accepted, and only failed ones are told to wait.
pub async fn throttle(State(people): State<Arc<People>>, mut request: Request, next: Next) -> Response {
    if request.extensions().get::<RemoteAddress>().is_some() {
        return next.run(request).await;
    }
    let address = request_checks::address(people.behind_proxy, &request);
    request.extensions_mut().insert(RemoteAddress(address));
    let guessable = GUESSABLE_ROUTES.contains(&request.uri().path());
    if !guessable && !request.headers().contains_key(AUTHORIZATION) {
        return next.run(request).await;
    }
    let wait = people.wait(address);
    if let Some(wait) = wait.filter(|_| !address.is_loopback()) {
        return too_often(wait);
    }
    let response = next.run(request).await;
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED || (guessable && status == StatusCode::FORBIDDEN) {
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
    let message = "too many wrong tokens or codes from this address; wait a minute, then try the right one";
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_tokens", message);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = refusal.into_response();
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Refuses changes from other pages than our own.
async fn require_own_page(State(people): State<Arc<People>>, mut request: Request, next: Next) -> Response {
    if request.method() == Method::POST {
        if !people.public_url.is_own_page(request.headers()) {
            let message = "sign-in works only on pages of this hub; open it at its public URL";
            return Refusal::new(StatusCode::FORBIDDEN, "origin_not_allowed", message).into_response();
        }
        if let Err(refusal) = request_checks::fit(&mut request, BODY_BYTES_MAX) {
            return refusal.into_response();
        }
    }
    request_checks::dressed(next.run(request).await)
}

/// What a page may know before anybody has signed in.
async fn about(State(people): State<Arc<People>>) -> Result<Response, Refusal> {
    let setup = people.is_empty().await.map_err(PeopleError::refusal)?;
    let passkeys = people.public_url.relying_party().is_some();
    Ok(Json(json!({ "hub": true, "passkeys": passkeys, "setup": setup })).into_response())
}

/// `{code, name, person}`: the code of a link, the browser's name, and for the first admin the person's name.
async fn enter(
    State(people): State<Arc<People>>,
    Extension(from): Extension<RemoteAddress>,
    headers: HeaderMap,
    JsonFields(fields): JsonFields,
) -> Result<Response, Refusal> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let Some(code) = text("code") else {
        let message = "send {\"code\": ..., \"name\": ...}, with the code that stands after the # of a link";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message));
    };
    let browser = text("name").unwrap_or_default();
    let attempt = SignInAttempt { headers: &headers, from, browser, person: text("person") };
    let entered = people.sign_in_by_code(code, attempt).await.map_err(PeopleError::refusal)?;
    Ok(people.signed_in_response(entered))
}

/// Signs this browser out, and deletes its cookie.
async fn leave(
    State(people): State<Arc<People>>,
    Extension(from): Extension<RemoteAddress>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let visitor = people.visitor_by_cookie(&headers).await.map_err(PeopleError::refusal)?;
    let cookie_kind = people.sign_out(&visitor, from).await.map_err(PeopleError::refusal)?;
    let mut response = Json(json!({ "left": visitor.device })).into_response();
    response
        .headers_mut()
        .extend(people.public_url.cookie(cookie_kind, None).map(|cookie| (SET_COOKIE, cookie)));
    Ok(response)
}

async fn passkey_begin(State(people): State<Arc<People>>) -> Result<Response, Refusal> {
    people.begin_sign_in().map(|asked| Json(asked).into_response()).map_err(PeopleError::refusal)
}

/// `{credential, name}`: the result of `navigator.credentials.get`, and the browser's name.
async fn passkey_finish(
    State(people): State<Arc<People>>,
    Extension(from): Extension<RemoteAddress>,
    headers: HeaderMap,
    JsonFields(fields): JsonFields,
) -> Result<Response, Refusal> {
    let (credential, name) = credential(fields)?;
    let entered =
        people.finish_sign_in(&credential, &name, &headers, from).await.map_err(PeopleError::refusal)?;
    Ok(people.signed_in_response(entered))
}

async fn new_passkey_begin(
    State(people): State<Arc<People>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let visitor = people.visitor_by_cookie(&headers).await.map_err(PeopleError::refusal)?;
    let asked = people.begin_registration(&visitor).await.map_err(PeopleError::refusal)?;
    Ok(Json(asked).into_response())
}

/// `{credential, name}`: the result of `navigator.credentials.create`, and the passkey's name.
async fn new_passkey_finish(
    State(people): State<Arc<People>>,
    Extension(from): Extension<RemoteAddress>,
    headers: HeaderMap,
    JsonFields(fields): JsonFields,
) -> Result<Response, Refusal> {
    let visitor = people.visitor_by_cookie(&headers).await.map_err(PeopleError::refusal)?;
    let (credential, name) = credential(fields)?;
    let made =
        people.finish_registration(&visitor, &credential, &name, from).await.map_err(PeopleError::refusal)?;
    Ok(Json(json!({ "passkey": made })).into_response())
}

fn credential<T: DeserializeOwned>(
    mut fields: serde_json::Map<String, Value>,
) -> Result<(T, String), Refusal> {
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let credential = json_errors::read_value(
        fields.remove("credential").unwrap_or_default(),
        "credential",
        "the credential",
    );
    let credential = credential.map_err(|error| {
        let message = format!("send {{\"credential\": ...}} as the browser's toJSON() gives it: {error}");
        Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message)
    })?;
    Ok((credential, name))
}

impl People {
    pub(super) fn signed_in_response(&self, entered: SignedIn) -> Response {
        let cookie = entered
            .key
            .as_ref()
            .and_then(|(cookie_kind, key)| self.public_url.cookie(*cookie_kind, Some(key)));
        let mut response = Json(entered).into_response();
        response.headers_mut().extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
        response
    }
}
