//! A session's events as a stream: where it begins, in which words, and who may have one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use axum::http::header::CONNECTION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use engine::SessionId;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use wire::rest::Form;

use super::marks::Marks;
use super::subscriber::{Outlet, Subscriber, SubscriberParts};
use super::words::{Named, Words, bad_query};
use crate::http::sse::{EventStream, Piece};
use crate::http::{Doors, Peer, Refusal};

/// Streams at once, of all clients together.
const STREAMS_MAX: usize = 1024;

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new()
        .route("/session/{id}/events", get(loop_form))
        .route("/sessions/{id}/events", get(delta_form))
}

/// What all streams share.
pub(super) struct Streams {
    places: Arc<Semaphore>,
    marks: Mutex<Marks>,
    /// Ends the streams of those who came with a session's token.
    tokens: Mutex<HashMap<SessionId, Arc<CancellationToken>>>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(STREAMS_MAX)),
            marks: Mutex::default(),
            tokens: Mutex::default(),
        }
    }
}

impl Streams {
    pub fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session's token is another one: whoever came with the old one leaves.
    pub fn revoke(&self, id: &SessionId) {
        if let Some(token) = self.tokens().remove(id) {
            token.cancel();
        }
    }

    fn leave_of(&self, id: &SessionId) -> Arc<CancellationToken> {
        let mut tokens = self.tokens();
        tokens.retain(|_, token| Arc::strong_count(token) > 1);
        Arc::clone(tokens.entry(id.clone()).or_default())
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<CancellationToken>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn loop_form(
    named: Named,
    words: Words,
    streams: Extension<Arc<Streams>>,
    parts: Parts,
) -> Result<Response, Refusal> {
    events(named, &words, streams, &parts, Form::Loop).await
}

async fn delta_form(
    named: Named,
    words: Words,
    streams: Extension<Arc<Streams>>,
    parts: Parts,
) -> Result<Response, Refusal> {
    events(named, &words, streams, &parts, Form::Delta).await
}

/// The path's spelling says in which form, unless the request does.
fn form(words: &Words, usual: Form) -> Result<Form, Refusal> {
    match words.get("format") {
        None => Ok(usual),
        Some("loop_event") => Ok(Form::Loop),
        Some("text_delta") => Ok(Form::Delta),
        Some(_) => Err(bad_query("format is loop_event or text_delta")),
    }
}

async fn events(
    Named { reach, id }: Named,
    words: &Words,
    Extension(streams): Extension<Arc<Streams>>,
    request: &Parts,
    usual: Form,
) -> Result<Response, Refusal> {
    let form = form(words, usual)?;
    let since = since(&request.headers, words)?;
    let Ok(place) = Arc::clone(&streams.places).try_acquire_owned() else {
        let message = "as many streams are open as may be; close one, or try again later";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message));
    };
    let handle = reach.open(&id).await?;
    let by_session_token = reach.by.session.is_some();
    let leave = if by_session_token { streams.leave_of(&id) } else { Arc::default() };
    // With HTTP/2 other requests share the connection; there a stream that nobody reads only ends.
    let plain = request.version < Version::HTTP_2;
    let peer = request.extensions.get::<Peer>().cloned().filter(|_| plain);
    // One piece may wait while the one before it is written.
    let (sender, receiver) = mpsc::channel(1);
    let tasks = reach.doors.tasks.clone();
    let parts = SubscriberParts {
        reach,
        streams,
        handle,
        form,
        since,
        // The written contract of this form ends a stream with the turn; whoever wants more says so.
        until_idle: form == Form::Delta && !words.flag("follow"),
        outlet: Outlet { sender, peer, leave },
    };
    let subscriber = Subscriber::new(parts);
    drop(tasks.spawn(async move {
        subscriber.run().await;
        drop(place);
    }));
    Ok(answer(receiver, plain))
}

/// After which frame the client wants to go on: nothing it could mean is "from the beginning".
fn since(headers: &HeaderMap, words: &Words) -> Result<u64, Refusal> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::trim);
    let last = last.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(digits) = last {
        // More digits than a number has are beyond the last frame all the same.
        return Ok(digits.parse().unwrap_or(u64::MAX));
    }
    match words.get("from") {
        None | Some("start") => Ok(0),
        Some("live") => Ok(u64::MAX),
        Some(_) => Err(bad_query("from is live or start")),
    }
}

fn answer(receiver: mpsc::Receiver<Bytes>, plain: bool) -> Response {
    // Whoever writes it ends when the server does, and what it has written goes.
    let never = CancellationToken::new();
    let stream = EventStream::new(receiver, &never, Piece::from).kept_alive_by(b": keep-alive\n\n");
    let mut response = stream.into_response();
    if plain {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("keep-alive"));
    }
    response
}
