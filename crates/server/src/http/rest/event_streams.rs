//! A session's events as a stream: where it begins, in which format, and who may open one.

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
use wire::rest::StreamFormat;

use super::frame_checkpoints::FrameCheckpoints;
use super::request_params::{QueryParams, SessionPath, bad_query};
use super::subscriber::{ClientPipe, Subscriber, SubscriberParts};
use crate::http::sse::{EventStream, SseChunk};
use crate::http::{HttpState, Peer, Refusal};

/// Streams at once, of all clients together.
const STREAMS_MAX: usize = 1024;

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/session/{id}/events", get(loop_form))
        .route("/sessions/{id}/events", get(delta_form))
}

/// The state that all event streams share.
pub(super) struct EventStreams {
    places: Arc<Semaphore>,
    checkpoints: Mutex<FrameCheckpoints>,
    /// Ends the streams of callers with a session's token.
    tokens: Mutex<HashMap<SessionId, Arc<CancellationToken>>>,
}

impl Default for EventStreams {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(STREAMS_MAX)),
            checkpoints: Mutex::default(),
            tokens: Mutex::default(),
        }
    }
}

impl EventStreams {
    pub fn checkpoints(&self) -> MutexGuard<'_, FrameCheckpoints> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session has a new token: streams that were opened with the old one end.
    pub fn revoke(&self, id: &SessionId) {
        if let Some(token) = self.tokens().remove(id) {
            token.cancel();
        }
    }

    fn revocation_of(&self, id: &SessionId) -> Arc<CancellationToken> {
        let mut tokens = self.tokens();
        tokens.retain(|_, token| Arc::strong_count(token) > 1);
        Arc::clone(tokens.entry(id.clone()).or_default())
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<CancellationToken>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn loop_form(
    path: SessionPath,
    params: QueryParams,
    streams: Extension<Arc<EventStreams>>,
    parts: Parts,
) -> Result<Response, Refusal> {
    events(path, &params, streams, &parts, StreamFormat::Loop).await
}

async fn delta_form(
    path: SessionPath,
    params: QueryParams,
    streams: Extension<Arc<EventStreams>>,
    parts: Parts,
) -> Result<Response, Refusal> {
    events(path, &params, streams, &parts, StreamFormat::Delta).await
}

/// The format: the request's, or that of the path.
fn form(params: &QueryParams, usual: StreamFormat) -> Result<StreamFormat, Refusal> {
    match params.get("format") {
        None => Ok(usual),
        Some("loop_event") => Ok(StreamFormat::Loop),
        Some("text_delta") => Ok(StreamFormat::Delta),
        Some(_) => Err(bad_query("format must be loop_event or text_delta")),
    }
}

async fn events(
    SessionPath { context, id }: SessionPath,
    params: &QueryParams,
    Extension(streams): Extension<Arc<EventStreams>>,
    request: &Parts,
    usual: StreamFormat,
) -> Result<Response, Refusal> {
    let form = form(params, usual)?;
    let since = since(&request.headers, params)?;
    let Ok(place) = Arc::clone(&streams.places).try_acquire_owned() else {
        let message = "stream limit reached; close one, or try again later";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message));
    };
    let handle = context.open(&id).await?;
    let by_session_token = context.caller.session.is_some();
    let revoked = if by_session_token { streams.revocation_of(&id) } else { Arc::default() };
    // With HTTP/2 other requests share the connection; there a stream that nobody reads is ended alone.
    let plain = request.version < Version::HTTP_2;
    let peer = request.extensions.get::<Peer>().cloned().filter(|_| plain);
    // One chunk may wait while the one before it is written.
    let (sender, receiver) = mpsc::channel(1);
    let tasks = context.state.tasks.clone();
    let parts = SubscriberParts {
        context,
        streams,
        handle,
        form,
        since,
        // The contract of this form ends a stream with the turn; a client that wants more asks for it.
        until_idle: form == StreamFormat::Delta && !params.flag("follow"),
        pipe: ClientPipe { sender, peer, revoked },
    };
    let subscriber = Subscriber::new(parts);
    drop(tasks.spawn(async move {
        subscriber.run().await;
        drop(place);
    }));
    Ok(answer(receiver, plain))
}

/// The frame after which the client wants to continue: without one, from the beginning.
fn since(headers: &HeaderMap, params: &QueryParams) -> Result<u64, Refusal> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::trim);
    let last = last.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(digits) = last {
        // More digits than a number has are beyond the last frame all the same.
        return Ok(digits.parse().unwrap_or(u64::MAX));
    }
    match params.get("from") {
        None | Some("start") => Ok(0),
        Some("live") => Ok(u64::MAX),
        Some(_) => Err(bad_query("from must be live or start")),
    }
}

fn answer(receiver: mpsc::Receiver<Bytes>, plain: bool) -> Response {
    // The subscriber ends when the server does, and what it has written by then is sent.
    let never = CancellationToken::new();
    let stream = EventStream::new(receiver, &never, SseChunk::from).kept_alive_by(b": keep-alive\n\n");
    let mut response = stream.into_response();
    if plain {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("keep-alive"));
    }
    response
}
