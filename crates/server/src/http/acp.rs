//! `/acp`: the official remote transport, and on the same address the older shapes of it.
//!
//! A client posts its calls and reads what comes of them on streams of server-sent events. Every event
//! has an id, and a client that names the last one it has goes on after it, whatever happened in
//! between. Which shape a request has, its own headers and body say (`docs/dialects/http.md`).

mod names;
mod outbox;
mod places;
mod post;
mod streams;
mod visits;
mod websocket;
mod zeph;

use std::sync::Arc;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, State};
use axum::http::header::{CONTENT_TYPE, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use engine::{OpenError, Sender, SessionId, SurfaceId};
use metrics::Door;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use service::ServiceError;
use wire::methods::{ABOUT_A_SESSION, EITHER_SPELLING};
use wire::sse::write_event;
use wire::{
    Call, Client, Cursor, Decoder, Dialect, Fault, Message, Outcome, OwnedMessage, Replies, RpcId, Spoken,
};

use super::sse::{EventStream, accepts_events};
use super::{Caller, Content, Doors, Refusal, bernstein};
use crate::batch::Batch;
use crate::connection::{ConnectionParts, Posted};
use crate::writer::{AttachAnswer, Command, Start};
use names::ConnectionId;
use places::Places;
pub(super) use post::Post;
use streams::{NoTap, Tap, locked};
use visits::{Full, Visit};
use websocket::Shape;

pub(crate) use streams::Streams;
pub use visits::Visits;
pub(super) use websocket::{SOCKETS_MAX, seats, stopping};
pub use zeph::Transports;

const CONNECTION: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION: HeaderName = HeaderName::from_static("acp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new().route("/acp", post(take).get(stream).delete(close)).route("/acp/ws", get(zeph_socket))
}

async fn take(
    State(doors): State<Arc<Doors>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Content(body): Content,
) -> Response {
    let post = Post::new(&body);
    if !names_a_connection(&headers) && post.is_bernsteins(doors.dialect) {
        return bernstein::post(&doors, &caller, &headers, post).await;
    }
    let official = Official { doors: &doors, caller: &caller, headers: &headers };
    let taken = if zeph::is_zeph_call(&headers) {
        zeph::take(&official, post).await
    } else {
        official.take(post).await
    };
    taken.unwrap_or_else(IntoResponse::into_response)
}

async fn stream(
    State(doors): State<Arc<Doors>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if is_nothing_there(&doors, &headers) {
        return Refusal::not_found().into_response();
    }
    let official = Official { doors: &doors, caller: &caller, headers: &headers };
    let opened = match socket {
        Ok(socket) => official.upgrade(socket, Shape::Official),
        Err(rejection) if headers.contains_key(UPGRADE) => Err(no_socket(&rejection)),
        Err(_) if zeph::is_zeph_stream(&headers) => zeph::stream(&official),
        Err(_) => official.stream().await,
    };
    opened.unwrap_or_else(IntoResponse::into_response)
}

async fn zeph_socket(
    State(doors): State<Arc<Doors>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let socket = socket.map_err(|rejection| no_socket(&rejection))?;
    Official { doors: &doors, caller: &caller, headers: &headers }.upgrade(socket, Shape::Zeph)
}

async fn close(
    State(doors): State<Arc<Doors>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    if is_nothing_there(&doors, &headers) {
        return Err(Refusal::not_found());
    }
    let official = Official { doors: &doors, caller: &caller, headers: &headers };
    if zeph::is_zeph_stream(&headers) {
        return zeph::close(&official);
    }
    let id = official.connection_id()?;
    if doors.visits.close(id) { Ok(StatusCode::ACCEPTED) } else { Err(unknown_connection()) }
}

/// Whether the request belongs to a connection of the official shape, or of zeph's.
fn names_a_connection(headers: &HeaderMap) -> bool {
    headers.contains_key(CONNECTION) || headers.contains_key(SESSION)
}

/// Bernstein's `/acp` has nothing but `POST`; what other methods do there, clients of other shapes say by their headers.
fn is_nothing_there(doors: &Doors, headers: &HeaderMap) -> bool {
    doors.dialect.is_for(Dialect::Bernstein) && !names_a_connection(headers) && !headers.contains_key(UPGRADE)
}

/// One request of the official shape.
struct Official<'a> {
    doors: &'a Arc<Doors>,
    caller: &'a Caller,
    headers: &'a HeaderMap,
}

impl Official<'_> {
    async fn take(&self, post: Post<'_>) -> Result<Response, Refusal> {
        let message = match post.message() {
            Ok(message) => message,
            Err((id, fault)) => return Ok(self.malformed(&post, id, fault)),
        };
        if let OwnedMessage::Request { id, method, params } = message
            && method == "initialize"
        {
            return self.initialize(id, params.as_deref(), post.body.len()).await;
        }
        let visit = self.visit()?;
        let posted = match self.session_to_insert(&message.as_message())? {
            // That is another message, and is read like one that came.
            Some(session) => Posted::read(&insert_session(post.body, session)?),
            None => post.into_posted(),
        };
        match visit.take(posted).await {
            Ok(()) => Ok(StatusCode::ACCEPTED.into_response()),
            Err(_) => Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "this connection has more calls waiting than it can take; read its streams, then try again",
            )),
        }
    }

    /// What cannot be read is answered on the spot: nobody knows which stream it belongs to.
    fn malformed(&self, post: &Post<'_>, id: &RpcId, fault: &Fault) -> Response {
        let batch = post.is_batch() && matches!(fault, Fault::InvalidRequest(_));
        let status = if batch { StatusCode::NOT_IMPLEMENTED } else { StatusCode::BAD_REQUEST };
        (status, json_body(self.doors, id, Err(fault))).into_response()
    }

    async fn initialize(
        &self,
        id: &RpcId,
        params: Option<&RawValue>,
        frame_bytes: usize,
    ) -> Result<Response, Refusal> {
        let mut decoder = Decoder::new(Spoken::Only(Dialect::Acp));
        let hello = match decoder.request("initialize", params, frame_bytes) {
            Ok(Call::Initialize(hello)) => hello,
            Ok(_) => return Err(unknown_connection()),
            Err(fault) => return Ok(json_body(self.doors, id, Err(&fault)).into_response()),
        };
        if let Some(greeted) = &self.doors.greeted {
            greeted(&hello).await;
        }
        let client = decoder.client();
        let connection = ConnectionId::new(&self.doors.secret, &self.caller.connections(), client.abilities);
        let mut parts = self.parts(client);
        parts.name = Arc::clone(&hello.name);
        parts.any_session = false;
        self.doors.visits.open(connection, parts, &self.doors.tasks).map_err(|full| too_many(&full))?;
        let greeting = self.doors.registry.backend().greeting().await;
        let outcome = Outcome::Initialized { version: hello.version, greeting };
        let mut response = json_body(self.doors, id, Ok(&outcome)).into_response();
        let header = HeaderValue::from_str(&connection.to_string());
        response.headers_mut().extend(header.ok().map(|value| (CONNECTION, value)));
        Ok(response)
    }

    /// A client that comes back may name its sessions: it opened them before.
    fn parts(&self, client: Client) -> ConnectionParts {
        ConnectionParts {
            registry: Arc::clone(&self.doors.registry),
            principal: self.caller.principal.clone(),
            kind: self.caller.kind(),
            local_answers: false,
            rules: self.doors.rules.clone(),
            identity: self.doors.identity.clone(),
            dialect: Spoken::Only(Dialect::Acp),
            client: Some(client),
            name: Arc::clone(&self.caller.name),
            zeph: false,
            any_session: true,
            metrics: Some((Arc::clone(&self.doors.metrics), Door::Sse)),
            greeted: None,
        }
    }

    fn connection_name(&self) -> Result<&str, Refusal> {
        header(self.headers, &CONNECTION)?.ok_or_else(|| {
            let message = "send the header Acp-Connection-Id that the answer to initialize had (clients of zeph's \
                           transport: Acp-Session-Id, from the answer to the first POST)";
            Refusal::new(StatusCode::BAD_REQUEST, "missing_connection", message)
        })
    }

    fn connection_id(&self) -> Result<ConnectionId, Refusal> {
        ConnectionId::parse(&self.doors.secret, &self.caller.connections(), self.connection_name()?)
            .ok_or_else(unknown_connection)
    }

    fn visit(&self) -> Result<Arc<Visit>, Refusal> {
        let id = self.connection_id()?;
        if let Some(visit) = self.doors.visits.find(id) {
            return Ok(visit);
        }
        if self.doors.visits.was_closed(id) {
            return Err(unknown_connection());
        }
        self.doors.visits.open(id, self.parts(id.client()), &self.doors.tasks).map_err(|full| too_many(&full))
    }

    /// The session may stand in a header, in the parameters, or in both. Where it stands in the header alone, it has to
    /// be put into the parameters.
    fn session_to_insert(&self, message: &Message<'_>) -> Result<Option<&str>, Refusal> {
        let (method, params) = match message {
            Message::Request { method, params, .. } | Message::Notification { method, params } => {
                (method, params)
            }
            Message::Response { .. } => return Ok(None),
        };
        if method.starts_with("$/") {
            return Ok(None);
        }
        let in_header = header(self.headers, &SESSION)?;
        let in_params = params.and_then(|params| session_of(method, params.get()));
        match (in_header, in_params) {
            (Some(first), Some(second)) if first != second => {
                Err(bad_session("the header Acp-Session-Id and params.sessionId name different sessions"))
            }
            (None, None) if ABOUT_A_SESSION.contains(&method.as_ref()) => {
                Err(bad_session("name the session, in the header Acp-Session-Id or as params.sessionId"))
            }
            (Some(session), None) => Ok(Some(session)),
            (Some(_) | None, Some(_)) | (None, None) => Ok(None),
        }
    }

    async fn stream(&self) -> Result<Response, Refusal> {
        // Whoever names no connection needs that first, whatever they accept.
        self.connection_name()?;
        if !accepts_events(self.headers) {
            return Err(Refusal::new(
                StatusCode::NOT_ACCEPTABLE,
                "not_acceptable",
                "this is a stream of events: send the header Accept: text/event-stream",
            ));
        }
        let visit = self.visit()?;
        let session = header(self.headers, &SESSION)?.map(SessionId::parse).transpose();
        let session = session.map_err(|error| bad_session(&error.to_string()))?;
        let epoch = self.doors.started.0;
        let places = match session {
            Some(_) => Places::Session { epoch },
            None => Places::Connection { epoch },
        };
        let after = self.last_event(places)?;
        if let (Some(session), Some(position)) = (&session, after) {
            self.come_back(&visit, session, position).await?;
        }
        let tap = visit.streams.tap(session.as_ref(), after).await;
        let Tap { batches, taken } = tap.map_err(|none| match none {
            NoTap::Busy => Refusal::new(
                StatusCode::CONFLICT,
                "stream_in_use",
                "somebody reads this stream; with Last-Event-ID it would be yours from there on",
            ),
            NoTap::Lost => unservable("Last-Event-ID"),
            NoTap::TooMany => {
                bad_session("too many streams of sessions that were never opened; open one first")
            }
        })?;
        // The streams live for as long as somebody reads one of them.
        let mut told = None;
        let encode = move |batch: Batch| {
            let _visit = &visit;
            // Whoever asks for more has probably got what was there before. Better twice than never.
            if let Some(position) = told.take() {
                *locked(&taken) = position;
            }
            let mut text = Vec::new();
            for placed in batch.placed() {
                write_event(&mut text, Some(&places.name(placed.position)), None, placed.frame);
                told = Some(placed.position);
            }
            text.into()
        };
        Ok(EventStream::new(batches, &self.doors.stop, encode).into_response())
    }

    /// The position that the client has. One that cannot be served is never taken for "from now on".
    fn last_event(&self, places: Places) -> Result<Option<Cursor>, Refusal> {
        let Some(text) = header(self.headers, &LAST_EVENT)? else { return Ok(None) };
        places.parse(text).map(Some).ok_or_else(|| unservable(text))
    }

    /// A client that was away goes on where it was, also if this process has never seen it.
    async fn come_back(&self, visit: &Visit, session: &SessionId, position: Cursor) -> Result<(), Refusal> {
        let sender = Sender::new(SurfaceId::random(), Arc::clone(&self.caller.name));
        let caller = service::Caller::new(self.caller.kind(), self.caller.principal.clone(), sender);
        let handle = self.doors.service().open(&caller, session).await.map_err(not_back)?;
        if position.is_beyond(handle.read(position.seq).head()) {
            return Err(unservable(&position.to_string()));
        }
        if !visit.streams.shows(session) {
            let from = Start::After(position.seq);
            visit
                .streams
                .send(Command::Attach {
                    handle,
                    from,
                    counted: wire::UpdateStart::default(),
                    answer: AttachAnswer::Back,
                })
                .await;
        }
        Ok(())
    }
}

fn not_back(error: ServiceError) -> Refusal {
    match error {
        ServiceError::Open(OpenError::NotFound(_)) => {
            Refusal::new(StatusCode::NOT_FOUND, "session_not_found", "there is no such session")
        }
        ServiceError::FolderNotOpen(_) => {
            let message = "the folder of this session is not open to you any more; its owner can add it with --allow-dir";
            Refusal::new(StatusCode::FORBIDDEN, "working_dir_not_allowed", message)
        }
        ServiceError::Forbidden(why) => Refusal::new(StatusCode::FORBIDDEN, "forbidden", why.to_string()),
        error => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.to_string()),
    }
}

pub(super) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let text = headers.get(name).map(HeaderValue::to_str).transpose();
    text.map_err(|_| {
        Refusal::new(StatusCode::BAD_REQUEST, "bad_header", format!("the header {name} is not plain text"))
    })
}

/// An answer as the body of a response.
pub(super) fn json_body(
    doors: &Doors,
    id: &RpcId,
    outcome: Result<&Outcome, &Fault>,
) -> impl IntoResponse + use<> {
    let mut out = Vec::new();
    Replies::new(doors.identity.clone()).write(Client::default(), id, outcome, &mut out);
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], out)
}

fn session_of(method: &str, params: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId")]
        session: Option<String>,
        session_id: Option<String>,
    }
    let Params { session, session_id } = serde_json::from_str::<Params>(params).ok()?;
    let either = EITHER_SPELLING.contains(&method);
    session.or_else(|| session_id.filter(|_| either))
}

fn insert_session(body: &[u8], session: &str) -> Result<Vec<u8>, Refusal> {
    let insert = || -> Option<Vec<u8>> {
        let mut message: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let params = message.entry("params").or_insert_with(|| Value::Object(Map::new()));
        params.as_object_mut()?.insert("sessionId".into(), session.into());
        serde_json::to_vec(&message).ok()
    };
    insert().ok_or_else(|| bad_session("the parameters must be an object to name a session"))
}

fn no_socket(rejection: &WebSocketUpgradeRejection) -> Refusal {
    let message = format!("this is a WebSocket: {rejection}");
    Refusal::new(StatusCode::BAD_REQUEST, "not_a_websocket", message)
}

fn bad_session(message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad_session", message)
}

fn unservable(text: &str) -> Refusal {
    let message = format!("the position {text:?} cannot be served; session/load tells the whole history");
    Refusal::new(StatusCode::CONFLICT, "truncated", message)
}

fn unknown_connection() -> Refusal {
    let message = "there is no such connection; begin with initialize";
    Refusal::new(StatusCode::NOT_FOUND, "unknown_connection", message)
}

fn too_many(full: &Full) -> Refusal {
    let message = match full {
        Full::Visits => "as many connections are open as may be; close one",
        Full::Calls => "as many calls wait as may wait",
    };
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message)
}
