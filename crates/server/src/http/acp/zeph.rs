//! zeph's shape of the transport: the answer to a POST is itself a stream of events, which ends with
//! the answer to what was posted; `Acp-Session-Id` names the connection.

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
use wire::{Dialect, Fault, Message, OwnedMessage, RpcId, Spoken, json};

use super::outbox::Outbox;
use super::post::Post;
use super::streams::locked;
use super::{CONNECTION, LAST_EVENT, Official, SESSION, header, json_body, unservable};
use crate::connection::{Connection, ConnectionParts, Posted};
use crate::http::sse::{EventStream, Piece, accepts_events};
use crate::http::{Doors, REST_BYTES_MAX, Refusal};
use crate::link::{INCOMING_MAX, OUTGOING_MAX};

/// Connections at once.
const TRANSPORTS_MAX: usize = 64;
/// A connection that nobody uses is dropped after this, unless somebody chose another time.
const IDLE_MAX: Duration = Duration::from_secs(1800);
/// How often they are looked at.
const REAP_EVERY: Duration = Duration::from_secs(60);
/// How long a call waits for room among those before it.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// Messages in one body.
const BATCH_MAX: usize = 64;

pub struct Transports {
    live: Arc<Mutex<Live>>,
    idle_max: Duration,
    /// Somebody looks for those that are idle.
    reaped: AtomicBool,
}

type Live = HashMap<Uuid, Arc<Transport>>;

impl Default for Transports {
    fn default() -> Self {
        Self::new(IDLE_MAX)
    }
}

struct Transport {
    owner: Principal,
    incoming: mpsc::Sender<Posted>,
    outbox: Arc<Outbox>,
    used: Mutex<Instant>,
    /// Taken when it is ended.
    connection: Mutex<Option<Connection>>,
}

impl Transports {
    pub fn new(idle_max: Duration) -> Self {
        Self { live: Arc::default(), idle_max, reaped: AtomicBool::new(false) }
    }

    /// How many connections there are.
    pub fn count(&self) -> usize {
        locked(&self.live).len()
    }

    /// Looks for idle ones until the door closes. Nothing happens the second time.
    fn start_reaper(&self, doors: &Doors) {
        if self.reaped.swap(true, Ordering::Relaxed) {
            return;
        }
        let (live, idle_max, stop) = (Arc::clone(&self.live), self.idle_max, doors.stop.clone());
        drop(doors.tasks.spawn(async move {
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

/// Those that ended, and those that nobody uses or reads.
fn reap(live: &mut Live, idle_max: Duration) {
    let now = Instant::now();
    live.retain(|_, transport| {
        let idle = Arc::strong_count(transport) == 1 && now - *locked(&transport.used) >= idle_max;
        !transport.outbox.is_closed() && !idle
    });
}

impl Drop for Transport {
    /// Nobody can read it any more: what still fills it must not wait for a reader.
    fn drop(&mut self) {
        self.outbox.close();
    }
}

pub(super) fn close(official: &Official<'_>) -> Result<StatusCode, Refusal> {
    let (id, _) = find(official)?;
    locked(&official.doors.transports.live).remove(&id);
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

pub(super) async fn take(official: &Official<'_>, post: Post<'_>) -> Result<Response, Refusal> {
    if post.body.len() > REST_BYTES_MAX {
        let message = format!("a message has at most {REST_BYTES_MAX} bytes here");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
    }
    let Messages { posted, asked } = match messages(post) {
        Ok(messages) => messages,
        Err((id, fault)) => {
            return Ok((StatusCode::BAD_REQUEST, json_body(official.doors, &id, Err(&fault))).into_response());
        }
    };
    let (id, transport) =
        if official.headers.contains_key(&SESSION) { find(official)? } else { open(official)? };
    let after = transport.outbox.taken();
    for posted in posted {
        if transport.incoming.send_timeout(posted, ROOM_WAIT).await.is_err() {
            let message =
                "this connection takes no more calls at the moment; read its stream, then try again";
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "busy", message));
        }
    }
    let response = if asked.is_empty() {
        StatusCode::ACCEPTED.into_response()
    } else {
        events(official, &transport, after, Some(asked))
    };
    Ok(named(response, id))
}

pub(super) fn stream(official: &Official<'_>) -> Result<Response, Refusal> {
    let (id, transport) = find(official)?;
    let after = match header(official.headers, &LAST_EVENT)? {
        Some(text) => {
            let number = text.parse().ok().filter(|number| transport.outbox.can_serve(*number));
            number.ok_or_else(|| unservable(text))?
        }
        None => transport.outbox.taken(),
    };
    Ok(named(events(official, &transport, after, None), id))
}

/// Everything after the number; with requests, until each of them was answered.
fn events(
    official: &Official<'_>,
    transport: &Arc<Transport>,
    after: u64,
    mut asked: Option<Vec<RpcId>>,
) -> Response {
    let (sender, incoming) = mpsc::channel(2);
    let reading = Arc::clone(transport);
    drop(official.doors.tasks.spawn(async move {
        let mut number = after;
        // A reader that is behind what is kept is told by the end of its stream.
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
            if let Some(asked) = &mut asked
                && let Ok(Message::Response { id, .. }) = wire::parse(&frame)
            {
                asked.retain(|waiting| *waiting != id);
                if asked.is_empty() {
                    return Piece { last: true, ..text.into() };
                }
            }
        }
        text.into()
    };
    EventStream::new(incoming, &official.doors.stop, encode).into_response()
}

fn find(official: &Official<'_>) -> Result<(Uuid, Arc<Transport>), Refusal> {
    let text = header(official.headers, &SESSION)?.unwrap_or_default();
    let id = Uuid::try_parse(text).map_err(|_| {
        let message = "Acp-Session-Id is the UUID that the first answer had in this header";
        Refusal::new(StatusCode::BAD_REQUEST, "bad_connection", message)
    })?;
    let live = locked(&official.doors.transports.live);
    let owner = official.caller.connections();
    let transport = live.get(&id).filter(|transport| transport.owner == owner);
    let transport = transport.ok_or_else(|| {
        let message = "there is no such connection; begin with initialize and without Acp-Session-Id";
        Refusal::new(StatusCode::NOT_FOUND, "unknown_connection", message)
    })?;
    *locked(&transport.used) = Instant::now();
    Ok((id, Arc::clone(transport)))
}

fn open(official: &Official<'_>) -> Result<(Uuid, Arc<Transport>), Refusal> {
    let doors = official.doors;
    doors.transports.start_reaper(doors);
    let mut live = locked(&doors.transports.live);
    reap(&mut live, doors.transports.idle_max);
    if live.len() >= TRANSPORTS_MAX {
        // Whoever reads a stream holds its connection too. The caller's own oldest one makes room.
        let owner = official.caller.connections();
        let own = live.iter().filter(|(_, transport)| transport.owner == owner);
        let idle = own.filter(|(_, transport)| Arc::strong_count(transport) == 1);
        let oldest = idle.min_by_key(|(_, transport)| *locked(&transport.used)).map(|(id, _)| *id);
        oldest.and_then(|id| live.remove(&id));
    }
    if live.len() >= TRANSPORTS_MAX {
        let message = "as many connections are open as may be; wait for one to be given up";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
    }
    let (incoming, posted) = mpsc::channel(INCOMING_MAX);
    let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
    let parts = ConnectionParts {
        dialect: Spoken::Only(Dialect::Acp),
        zeph: true,
        client: None,
        any_session: false,
        greeted: doors.greeted.clone(),
        ..official.parts(wire::Client::default())
    };
    let outbox = Outbox::new();
    drop(doors.tasks.spawn(Arc::clone(&outbox).fill(batches)));
    let transport = Arc::new(Transport {
        owner: official.caller.connections(),
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
struct Messages {
    posted: Vec<Posted>,
    /// The ids of those that want an answer.
    asked: Vec<RpcId>,
}

fn messages(post: Post<'_>) -> Result<Messages, (RpcId, Fault)> {
    if !post.is_batch() {
        return Messages::of([post.into_posted()]);
    }
    let parts: Vec<&RawValue> = json::read_bytes(post.body, "the body")
        .map_err(|error| (RpcId::null(), Fault::Parse(error.to_string())))?;
    if parts.is_empty() || parts.len() > BATCH_MAX {
        let text = format!("a batch has 1 to {BATCH_MAX} messages");
        return Err((RpcId::null(), Fault::InvalidRequest(text)));
    }
    Messages::of(parts.into_iter().map(|part| Posted::read(part.get().as_bytes())))
}

impl Messages {
    /// All of them, or what is wrong with the first that is none.
    fn of(all: impl IntoIterator<Item = Posted>) -> Result<Self, (RpcId, Fault)> {
        let (mut posted, mut asked) = (Vec::new(), Vec::new());
        for one in all {
            let message = one.message?;
            if let OwnedMessage::Request { id, .. } = &message {
                asked.push(id.clone());
            }
            posted.push(Posted { message: Ok(message), ..one });
        }
        Ok(Self { posted, asked })
    }
}

fn named(mut response: Response, id: Uuid) -> Response {
    let header = HeaderValue::from_str(&id.hyphenated().to_string());
    response.headers_mut().extend(header.ok().map(|value| (SESSION, value)));
    response
}
