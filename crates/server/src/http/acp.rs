//! `/acp`: the official remote transport, and on the same address the older shapes of it.
//!
//! A client posts its calls and reads replies and updates on streams of server-sent events. Every event
//! has an id, and a client that names the last id it has continues after it, whatever happened in
//! between. The headers and the body of a request decide which shape it has (`docs/dialects/http.md`).

mod connection_id;
mod event_ids;
mod official_connections;
mod outbox;
mod posted_message;
mod streams;
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
use metrics::DoorLabel;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use service::ServiceError;
use wire::method_names::{ABOUT_A_SESSION, EITHER_SPELLING};
use wire::sse::write_event;
use wire::{
    Client, ClientRequest, Cursor, Decoder, Dialect, DialectSelection, OwnedRpcMessage, Replies,
    RequestError, RequestOutcome, RpcId, RpcMessage,
};

use super::sse::{EventStream, accepts_events};
use super::{BodyBytes, HttpCaller, HttpState, Refusal, bernstein};
use crate::connection::{ConnectionParts, ParsedMessage};
use crate::frame_batch::FrameBatch;
use crate::writer::{AttachAnswer, AttachFrom, WriterCommand};
use connection_id::ConnectionId;
use event_ids::EventIds;
use official_connections::{LimitReached, OfficialConnection};
pub(super) use posted_message::Post;
use streams::{StreamReadError, StreamReader, locked};
use websocket::SocketRoute;

pub use official_connections::OfficialConnections;
pub(crate) use streams::ConnectionStreams;
pub(super) use websocket::{SOCKETS_MAX, socket_slots, stopping};
pub use zeph::ZephConnections;

const CONNECTION: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION: HeaderName = HeaderName::from_static("acp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new().route("/acp", post(take).get(stream).delete(close)).route("/acp/ws", get(zeph_socket))
}

async fn take(
    State(state): State<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> Response {
    let post = Post::new(&body);
    if !names_a_connection(&headers) && post.is_bernsteins(state.dialect) {
        return bernstein::post(&state, &caller, &headers, post).await;
    }
    let request = AcpRequest { state: &state, caller: &caller, headers: &headers };
    let taken = if zeph::is_zeph_call(&headers) {
        zeph::take(&request, post).await
    } else {
        request.take(post).await
    };
    taken.unwrap_or_else(IntoResponse::into_response)
}

async fn stream(
    State(state): State<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if is_nothing_there(&state, &headers) {
        return Refusal::not_found().into_response();
    }
    let request = AcpRequest { state: &state, caller: &caller, headers: &headers };
    let opened = match socket {
        Ok(socket) => request.upgrade(socket, SocketRoute::Official),
        Err(rejection) if headers.contains_key(UPGRADE) => Err(no_socket(&rejection)),
        Err(_) if zeph::is_zeph_stream(&headers) => zeph::stream(&request),
        Err(_) => request.stream().await,
    };
    opened.unwrap_or_else(IntoResponse::into_response)
}

async fn zeph_socket(
    State(state): State<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let socket = socket.map_err(|rejection| no_socket(&rejection))?;
    AcpRequest { state: &state, caller: &caller, headers: &headers }.upgrade(socket, SocketRoute::Zeph)
}

async fn close(
    State(state): State<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    if is_nothing_there(&state, &headers) {
        return Err(Refusal::not_found());
    }
    let request = AcpRequest { state: &state, caller: &caller, headers: &headers };
    if zeph::is_zeph_stream(&headers) {
        return zeph::close(&request);
    }
    let id = request.connection_id()?;
    if state.official_connections.close(id) { Ok(StatusCode::ACCEPTED) } else { Err(unknown_connection()) }
}

/// Whether the request belongs to a connection of the official shape, or of zeph's.
fn names_a_connection(headers: &HeaderMap) -> bool {
    headers.contains_key(CONNECTION) || headers.contains_key(SESSION)
}

/// Bernstein's `/acp` has nothing but `POST`; requests of other shapes with other methods are recognised by their headers.
fn is_nothing_there(state: &HttpState, headers: &HeaderMap) -> bool {
    state.dialect.is_for(Dialect::Bernstein) && !names_a_connection(headers) && !headers.contains_key(UPGRADE)
}

/// One request to `/acp`, of the official shape or of zeph's.
struct AcpRequest<'a> {
    state: &'a Arc<HttpState>,
    caller: &'a HttpCaller,
    headers: &'a HeaderMap,
}

impl AcpRequest<'_> {
    async fn take(&self, post: Post<'_>) -> Result<Response, Refusal> {
        let message = match post.message() {
            Ok(message) => message,
            Err((id, fault)) => return Ok(self.malformed(&post, id, fault)),
        };
        if let OwnedRpcMessage::Request { id, method, params } = message
            && method == "initialize"
        {
            return self.initialize(id, params.as_deref(), post.body.len()).await;
        }
        let connection = self.connection()?;
        let posted = match self.session_to_insert(&message.as_message())? {
            // The message with the session inserted is another one, and is parsed again.
            Some(session) => ParsedMessage::read(&insert_session(post.body, session)?),
            None => post.into_posted(),
        };
        match connection.take(posted).await {
            Ok(()) => Ok(StatusCode::ACCEPTED.into_response()),
            Err(_) => Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "too many requests are waiting on this connection; read its streams, then try again",
            )),
        }
    }

    /// A message that cannot be parsed is answered in the response: its stream is not known.
    fn malformed(&self, post: &Post<'_>, id: &RpcId, fault: &RequestError) -> Response {
        let batch = post.is_batch() && matches!(fault, RequestError::InvalidRequest(_));
        let status = if batch { StatusCode::NOT_IMPLEMENTED } else { StatusCode::BAD_REQUEST };
        (status, json_body(self.state, id, Err(fault))).into_response()
    }

    async fn initialize(
        &self,
        id: &RpcId,
        params: Option<&RawValue>,
        frame_bytes: usize,
    ) -> Result<Response, Refusal> {
        let mut decoder = Decoder::new(DialectSelection::Only(Dialect::Acp));
        let hello = match decoder.request("initialize", params, frame_bytes) {
            Ok(ClientRequest::Initialize(hello)) => hello,
            Ok(_) => return Err(unknown_connection()),
            Err(fault) => return Ok(json_body(self.state, id, Err(&fault)).into_response()),
        };
        if let Some(on_initialize) = &self.state.on_initialize {
            on_initialize(&hello).await;
        }
        let client = decoder.client();
        let connection = ConnectionId::new(&self.state.secret, &self.caller.connections(), client.abilities);
        let mut parts = self.parts(client);
        parts.name = Arc::clone(&hello.name);
        parts.any_session = false;
        self.state
            .official_connections
            .open(connection, parts, &self.state.tasks)
            .map_err(|limit| too_many(&limit))?;
        let greeting = self.state.registry.backend().greeting().await;
        let outcome = RequestOutcome::Initialized { version: hello.version, greeting };
        let mut response = json_body(self.state, id, Ok(&outcome)).into_response();
        let header = HeaderValue::from_str(&connection.to_string());
        response.headers_mut().extend(header.ok().map(|value| (CONNECTION, value)));
        Ok(response)
    }

    /// A client that reconnects may name its sessions: it opened them before.
    fn parts(&self, client: Client) -> ConnectionParts {
        ConnectionParts {
            registry: Arc::clone(&self.state.registry),
            principal: self.caller.principal.clone(),
            kind: self.caller.kind(),
            local_answers: false,
            rules: self.state.rules.clone(),
            identity: self.state.identity.clone(),
            dialect: DialectSelection::Only(Dialect::Acp),
            client: Some(client),
            name: Arc::clone(&self.caller.name),
            zeph: false,
            any_session: true,
            metrics: Some((Arc::clone(&self.state.metrics), DoorLabel::Sse)),
            on_initialize: None,
        }
    }

    fn connection_name(&self) -> Result<&str, Refusal> {
        header(self.headers, &CONNECTION)?.ok_or_else(|| {
            let message = "send the header Acp-Connection-Id from the response to initialize (clients of zeph's transport: Acp-Session-Id, from the response to the first POST)";
            Refusal::new(StatusCode::BAD_REQUEST, "missing_connection", message)
        })
    }

    fn connection_id(&self) -> Result<ConnectionId, Refusal> {
        ConnectionId::parse(&self.state.secret, &self.caller.connections(), self.connection_name()?)
            .ok_or_else(unknown_connection)
    }

    fn connection(&self) -> Result<Arc<OfficialConnection>, Refusal> {
        let id = self.connection_id()?;
        if let Some(connection) = self.state.official_connections.find(id) {
            return Ok(connection);
        }
        if self.state.official_connections.was_closed(id) {
            return Err(unknown_connection());
        }
        self.state
            .official_connections
            .open(id, self.parts(id.client()), &self.state.tasks)
            .map_err(|limit| too_many(&limit))
    }

    /// The session may be named in a header, in the parameters, or in both. If it is in the header alone, it has to
    /// be inserted into the parameters.
    fn session_to_insert(&self, message: &RpcMessage<'_>) -> Result<Option<&str>, Refusal> {
        let (method, params) = match message {
            RpcMessage::Request { method, params, .. } | RpcMessage::Notification { method, params } => {
                (method, params)
            }
            RpcMessage::Response { .. } => return Ok(None),
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
        // A missing connection id is reported first, whatever the client accepts.
        self.connection_name()?;
        if !accepts_events(self.headers) {
            return Err(Refusal::new(
                StatusCode::NOT_ACCEPTABLE,
                "not_acceptable",
                "this is a stream of events: send the header Accept: text/event-stream",
            ));
        }
        let connection = self.connection()?;
        let session = header(self.headers, &SESSION)?.map(SessionId::parse).transpose();
        let session = session.map_err(|error| bad_session(&error.to_string()))?;
        let epoch = self.state.started.0;
        let event_ids = match session {
            Some(_) => EventIds::Session { epoch },
            None => EventIds::Connection { epoch },
        };
        let after = self.last_event(event_ids)?;
        if let (Some(session), Some(position)) = (&session, after) {
            self.reattach(&connection, session, position).await?;
        }
        let tap = connection.streams.open_reader(session.as_ref(), after).await;
        let StreamReader { batches, delivered } = tap.map_err(|none| match none {
            StreamReadError::Busy => Refusal::new(
                StatusCode::CONFLICT,
                "stream_in_use",
                "another reader has this stream; send Last-Event-ID to take it over from there",
            ),
            StreamReadError::Lost => unservable("Last-Event-ID"),
            StreamReadError::TooMany => {
                bad_session("too many streams of sessions that were never opened; open one first")
            }
        })?;
        // The connection lives for as long as one of its streams is read.
        let mut last_position = None;
        let encode = move |batch: FrameBatch| {
            let _connection = &connection;
            // A client that asks for more has probably received what was sent before. Better twice than never.
            if let Some(position) = last_position.take() {
                *locked(&delivered) = position;
            }
            let mut text = Vec::new();
            for positioned in batch.positioned() {
                write_event(&mut text, Some(&event_ids.format(positioned.position)), None, positioned.frame);
                last_position = Some(positioned.position);
            }
            text.into()
        };
        Ok(EventStream::new(batches, &self.state.stop, encode).into_response())
    }

    /// The position that the client has. A position that cannot be served is never treated as "from now on".
    fn last_event(&self, event_ids: EventIds) -> Result<Option<Cursor>, Refusal> {
        let Some(text) = header(self.headers, &LAST_EVENT)? else { return Ok(None) };
        event_ids.parse(text).map(Some).ok_or_else(|| unservable(text))
    }

    /// Attaches the session at the client's position, also if this process has never seen the client.
    async fn reattach(
        &self,
        connection: &OfficialConnection,
        session: &SessionId,
        position: Cursor,
    ) -> Result<(), Refusal> {
        let sender = Sender::new(SurfaceId::random(), Arc::clone(&self.caller.name));
        let caller = service::Caller::new(self.caller.kind(), self.caller.principal.clone(), sender);
        let handle = self.state.service().open(&caller, session).await.map_err(not_reattached)?;
        if position.is_beyond(handle.read(position.seq).head()) {
            return Err(unservable(&position.to_string()));
        }
        if !connection.streams.shows(session) {
            let from = AttachFrom::After(position.seq);
            connection
                .streams
                .send(WriterCommand::Attach {
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

fn not_reattached(error: ServiceError) -> Refusal {
    match error {
        ServiceError::Open(OpenError::NotFound(_)) => {
            Refusal::new(StatusCode::NOT_FOUND, "session_not_found", "there is no such session")
        }
        ServiceError::FolderNotOpen(_) => {
            let message = "you no longer have access to the folder of this session; its owner can add it with --allow-dir";
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

/// A JSON-RPC reply as the body of a response.
pub(super) fn json_body(
    state: &HttpState,
    id: &RpcId,
    outcome: Result<&RequestOutcome, &RequestError>,
) -> impl IntoResponse + use<> {
    let mut out = Vec::new();
    Replies::new(state.identity.clone()).write(Client::default(), id, outcome, &mut out);
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
    let message = format!("unknown position {text:?}; use session/load for the whole history");
    Refusal::new(StatusCode::CONFLICT, "truncated", message)
}

fn unknown_connection() -> Refusal {
    let message = "no such connection; start with initialize";
    Refusal::new(StatusCode::NOT_FOUND, "unknown_connection", message)
}

fn too_many(limit: &LimitReached) -> Refusal {
    let message = match limit {
        LimitReached::OfficialConnections => "connection limit reached; close one",
        LimitReached::Calls => "too many requests are waiting",
    };
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message)
}
