//! zeph's shape of the transport: the answer to a POST is itself a stream of events, which ends with
//! the answer to the posted request; `Acp-Session-Id` names the connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use engine::Principal;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;
use wire::sse::write_event;
use wire::{Dialect, DialectSelection, OwnedRpcMessage, RequestError, RpcId, RpcMessage, json_errors};

use super::outbox::Outbox;
use super::posted_message::Post;
use super::streams::locked;
use super::{AcpRequest, CONNECTION, LAST_EVENT, SESSION, header, json_body, unservable};
use crate::connection::{Connection, ConnectionParts, ParsedMessage};
use crate::http::sse::{EventStream, SseChunk, accepts_events};
use crate::http::{HttpState, REST_BYTES_MAX, Refusal};
use crate::link::{INCOMING_MAX, OUTGOING_MAX};

/// Connections at once.
const TRANSPORTS_MAX: usize = 64;
/// A connection that nobody uses is dropped after this, unless somebody chose another time.
const IDLE_MAX: Duration = Duration::from_secs(1800);
/// How often idle connections are looked for.
const REAP_EVERY: Duration = Duration::from_secs(60);
/// How long a call waits for room among those before it.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// Messages in one body.
const BATCH_MAX: usize = 64;

pub struct ZephConnections {
    live: Arc<Mutex<LiveConnections>>,
    idle_max: Duration,
    /// The task that drops idle connections runs.
    reaped: AtomicBool,
}

type LiveConnections = HashMap<Uuid, Arc<ZephConnection>>;

impl Default for ZephConnections {
    fn default() -> Self {
        Self::new(IDLE_MAX)
    }
}

struct ZephConnection {
    owner: Principal,
    incoming: mpsc::Sender<ParsedMessage>,
    outbox: Arc<Outbox>,
    used: Mutex<Instant>,
    /// Taken when it is ended.
    connection: Mutex<Option<Connection>>,
}

impl ZephConnections {
    pub fn new(idle_max: Duration) -> Self {
        Self { live: Arc::default(), idle_max, reaped: AtomicBool::new(false) }
    }

    /// How many connections there are.
    pub fn count(&self) -> usize {
        locked(&self.live).len()
    }

    /// Starts dropping idle connections until the server stops. Nothing happens the second time.
    fn start_reaper(&self, state: &HttpState) {
        if self.reaped.swap(true, Ordering::Relaxed) {
            return;
        }
        let (live, idle_max, stop) = (Arc::clone(&self.live), self.idle_max, state.stop.clone());
        drop(state.tasks.spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(REAP_EVERY)).await.is_some() {
                reap(&mut locked(&live), idle_max);
            }
        }));
    }

    pub(in crate::http) async fn close_all(&self) {
        let all: Vec<_> = locked(&self.live).drain().map(|(_, transport)| transport).collect();
        for transport in all {
            let connection = locked(&transport.connection).take();
            if let Some(connection) = connection {
                connection.finish().await;
            }
        }
    }
}

/// Drops connections that have ended, and those that nobody uses or reads.
fn reap(live: &mut LiveConnections, idle_max: Duration) {
    let now = Instant::now();
    live.retain(|_, transport| {
        let idle = Arc::strong_count(transport) == 1 && now - *locked(&transport.used) >= idle_max;
        !transport.outbox.is_closed() && !idle
    });
}

impl Drop for ZephConnection {
    /// Nobody can read the outbox any more: the task that fills it must not wait for a reader.
    fn drop(&mut self) {
        self.outbox.close();
    }
}

pub(super) fn close(request: &AcpRequest<'_>) -> Result<StatusCode, Refusal> {
    let (id, _) = find(request)?;
    locked(&request.state.zeph_connections.live).remove(&id);
    Ok(StatusCode::ACCEPTED)
}

/// A call of this shape: it names such a connection, or it wants its answer as events.
pub(super) fn is_zeph_call(headers: &HeaderMap) -> bool {
    let json = headers.get_all(axum::http::header::ACCEPT).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.contains("application/json") || value.contains("*/*"))
    });
    let events = accepts_events(headers) && !json;
    !headers.contains_key(&CONNECTION) && (headers.contains_key(&SESSION) || events)
}

pub(super) fn is_zeph_stream(headers: &HeaderMap) -> bool {
    !headers.contains_key(&CONNECTION) && headers.contains_key(&SESSION)
}

pub(super) async fn take(request: &AcpRequest<'_>, post: Post<'_>) -> Result<Response, Refusal> {
    if post.body.len() > REST_BYTES_MAX {
        let message = format!("a message can have at most {REST_BYTES_MAX} bytes here");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
    }
    let PostedMessages { posted, unanswered } = match messages(post) {
        Ok(messages) => messages,
        Err((id, fault)) => {
            return Ok((StatusCode::BAD_REQUEST, json_body(request.state, &id, Err(&fault))).into_response());
        }
    };
    let (id, transport) =
        if request.headers.contains_key(&SESSION) { find(request)? } else { open(request)? };
    let after = transport.outbox.taken();
    for posted in posted {
        if transport.incoming.send_timeout(posted, ROOM_WAIT).await.is_err() {
            let message = "too many requests are waiting on this connection; read its stream, then try again";
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "busy", message));
        }
    }
    let response = if unanswered.is_empty() {
        StatusCode::ACCEPTED.into_response()
    } else {
        events(request, &transport, after, Some(unanswered))
    };
    Ok(named(response, id))
}

pub(super) fn stream(request: &AcpRequest<'_>) -> Result<Response, Refusal> {
    let (id, transport) = find(request)?;
    let after = match header(request.headers, &LAST_EVENT)? {
        Some(text) => {
            let number = text.parse().ok().filter(|number| transport.outbox.can_serve(*number));
            number.ok_or_else(|| unservable(text))?
        }
        None => transport.outbox.taken(),
    };
    Ok(named(events(request, &transport, after, None), id))
}

/// Everything after the number; with requests, until each of them was answered.
fn events(
    request: &AcpRequest<'_>,
    transport: &Arc<ZephConnection>,
    after: u64,
    mut unanswered: Option<Vec<RpcId>>,
) -> Response {
    let (sender, incoming) = mpsc::channel(2);
    let reading = Arc::clone(transport);
    drop(request.state.tasks.spawn(async move {
        let mut number = after;
        // The stream of a reader that is behind the kept frames ends.
        loop {
            let frames = tokio::select! {
                frames = reading.outbox.after(number) => frames,
                () = sender.closed() => return,
            };
            let Ok(Some(frames)) = frames else { return };
            number = frames.last().map_or(number, |(last, _)| *last);
            *locked(&reading.used) = Instant::now();
            if sender.send(frames).await.is_err() {
                return;
            }
        }
    }));
    let outbox = Arc::clone(&transport.outbox);
    let encode = move |frames: Vec<(u64, axum::body::Bytes)>| {
        let mut text = Vec::new();
        for (number, frame) in frames {
            write_event(&mut text, Some(&number), Some("message"), &frame);
            outbox.took(number);
            if let Some(unanswered) = &mut unanswered
                && let Ok(RpcMessage::Response { id, .. }) = wire::parse(&frame)
            {
                unanswered.retain(|waiting| *waiting != id);
                if unanswered.is_empty() {
                    return SseChunk { last: true, ..text.into() };
                }
            }
        }
        text.into()
    };
    EventStream::new(incoming, &request.state.stop, encode).into_response()
}

fn find(request: &AcpRequest<'_>) -> Result<(Uuid, Arc<ZephConnection>), Refusal> {
    let text = header(request.headers, &SESSION)?.unwrap_or_default();
    let id = Uuid::try_parse(text).map_err(|_| {
        let message = "Acp-Session-Id must be the UUID from this header of the first response";
        Refusal::new(StatusCode::BAD_REQUEST, "bad_connection", message)
    })?;
    let live = locked(&request.state.zeph_connections.live);
    let owner = request.caller.connections();
    let transport = live.get(&id).filter(|transport| transport.owner == owner);
    let transport = transport.ok_or_else(|| {
        let message = "no such connection; start with initialize and without Acp-Session-Id";
        Refusal::new(StatusCode::NOT_FOUND, "unknown_connection", message)
    })?;
    *locked(&transport.used) = Instant::now();
    Ok((id, Arc::clone(transport)))
}

fn open(request: &AcpRequest<'_>) -> Result<(Uuid, Arc<ZephConnection>), Refusal> {
    let state = request.state;
    state.zeph_connections.start_reaper(state);
    let mut live = locked(&state.zeph_connections.live);
    reap(&mut live, state.zeph_connections.idle_max);
    if live.len() >= TRANSPORTS_MAX {
        // A connection whose stream is read is not idle. The caller's own oldest idle one makes room.
        let owner = request.caller.connections();
        let own = live.iter().filter(|(_, transport)| transport.owner == owner);
        let idle = own.filter(|(_, transport)| Arc::strong_count(transport) == 1);
        let oldest = idle.min_by_key(|(_, transport)| *locked(&transport.used)).map(|(id, _)| *id);
        oldest.and_then(|id| live.remove(&id));
    }
    if live.len() >= TRANSPORTS_MAX {
        let message = "connection limit reached; close a connection, or wait until an idle one times out";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
    }
    let (incoming, posted) = mpsc::channel(INCOMING_MAX);
    let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
    let parts = ConnectionParts {
        dialect: DialectSelection::Only(Dialect::Acp),
        zeph: true,
        client: None,
        any_session: false,
        on_initialize: state.on_initialize.clone(),
        ..request.parts(wire::Client::default())
    };
    let outbox = Outbox::new();
    drop(state.tasks.spawn(Arc::clone(&outbox).fill(batches)));
    let transport = Arc::new(ZephConnection {
        owner: request.caller.connections(),
        incoming,
        outbox,
        used: Mutex::new(Instant::now()),
        connection: Mutex::new(Some(Connection::start_at(parts, posted, outgoing))),
    });
    let id = Uuid::new_v4();
    live.insert(id, Arc::clone(&transport));
    Ok((id, transport))
}

/// One message or several.
struct PostedMessages {
    posted: Vec<ParsedMessage>,
    /// The ids of those that want an answer.
    unanswered: Vec<RpcId>,
}

fn messages(post: Post<'_>) -> Result<PostedMessages, (RpcId, RequestError)> {
    if !post.is_batch() {
        return PostedMessages::of([post.into_posted()]);
    }
    let parts: Vec<&RawValue> = json_errors::read_bytes(post.body, "the body")
        .map_err(|error| (RpcId::null(), RequestError::Parse(error.to_string())))?;
    if parts.is_empty() || parts.len() > BATCH_MAX {
        let text = format!("a batch must have 1 to {BATCH_MAX} messages");
        return Err((RpcId::null(), RequestError::InvalidRequest(text)));
    }
    PostedMessages::of(parts.into_iter().map(|part| ParsedMessage::read(part.get().as_bytes())))
}

impl PostedMessages {
    /// All messages, or what is wrong with the first that cannot be parsed.
    fn of(all: impl IntoIterator<Item = ParsedMessage>) -> Result<Self, (RpcId, RequestError)> {
        let (mut posted, mut unanswered) = (Vec::new(), Vec::new());
        for one in all {
            let message = one.message?;
            if let OwnedRpcMessage::Request { id, .. } = &message {
                unanswered.push(id.clone());
            }
            posted.push(ParsedMessage { message: Ok(message), ..one });
        }
        Ok(Self { posted, unanswered })
    }
}

fn named(mut response: Response, id: Uuid) -> Response {
    let header = HeaderValue::from_str(&id.hyphenated().to_string());
    response.headers_mut().extend(header.ok().map(|value| (SESSION, value)));
    response
}
