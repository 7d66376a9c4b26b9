//! The routes of bridges: register, heartbeat, farewell, and the sockets of sessions and machines, with or without
//! WebSockets.
//!
//! A session's id belongs to the person whose token registered it first, a machine's likewise. To everybody else it is
//! the same whether there is such an id or not.

mod polling;

use std::net::IpAddr;
use std::sync::Arc;

use access::{Content, Peer, Refusal};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use engine::SessionId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use store::sql::{DbError, Statement, Value};
use wire::json;
use wire::tunnel::{
    FRAME_BYTES_MAX, HUB_HEADER, Heartbeat, PROCESS_HEADER, PROTOCOL, Registered, Registration,
};

use crate::audit::Note;
use crate::browser::frame_bytes_max;
use crate::door::{Base, From};
use crate::frames::{Sink, Source};
use crate::guest::{Bearer, PersonId};
use crate::hub::{Hub, RETRY_SECONDS};
use crate::ids::MachineId;
use crate::machines::Arriving;
use crate::mirror::Attachment;
use crate::schema;
use crate::shelf::CARDS_MAX;
use crate::socket::{self, Pipe};
use crate::topics;

/// Texts of a registration.
const TEXT_BYTES_MAX: usize = 4096;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/api/sessions", post(register))
        .route("/api/sessions/{session}", axum::routing::delete(leave))
        .route("/api/sessions/{session}/heartbeat", post(heartbeat))
        .route("/ws/{session}", get(session_socket))
        .route("/ws/machine/{machine}", get(machine_socket))
        .merge(polling::routes())
        .layer(axum::middleware::map_response(is_hub))
}

/// Says that whoever answers is a hub: a bridge then uses more than the seed's endpoints.
async fn is_hub(mut response: Response) -> Response {
    response.headers_mut().insert(HUB_HEADER, HeaderValue::from_static(PROTOCOL));
    response
}

/// Answers of a route that is not done.
pub fn refused(error: &DbError) -> Refusal {
    match error {
        DbError::Unavailable { .. } => {
            let message = format!("the hub's database is away; try again in {RETRY_SECONDS} s");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "database_away", message)
        }
        DbError::Refused { .. } => unknown(),
        DbError::Failed { .. } => {
            let message = "the hub's database refused; the hub's log says why";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message)
        }
    }
}

/// Says the same for what is somebody else's and for what is not there. A bridge whose session was forgotten registers it
/// again.
fn unknown() -> Refusal {
    let message = "this id is not registered by whoever made this token; register it with POST /api/sessions, or use another";
    Refusal::new(StatusCode::NOT_FOUND, "unknown_id", message)
}

/// What is to be registered has an owner, or its machine has.
fn not_yours() -> Refusal {
    let message = "this id of a session or a machine is somebody else's; use another";
    Refusal::new(StatusCode::FORBIDDEN, "not_yours", message)
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    json::read_bytes(body, "the body")
        .map_err(|error| bad(format!("the body is not what this route takes: {error}")))
}

/// Whoever shows a token, and their connection, which is nobody's any more.
async fn bearer(hub: &Hub, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Bearer, Refusal> {
    let bearer = hub.door.keeper.machine(headers).await?;
    if let Some(peer) = peer {
        peer.admit();
    }
    if !hub.paces.may(&bearer.person) {
        let message = "too many requests of one person's machines; slow down";
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message));
    }
    Ok(bearer)
}

type MaybePeer = Option<Extension<Peer>>;

async fn register(
    State(hub): State<Arc<Hub>>,
    Extension(base): Extension<Base>,
    Extension(from): Extension<From>,
    peer: MaybePeer,
    headers: HeaderMap,
    Content(body): Content,
) -> Result<Response, Refusal> {
    let bearer = bearer(&hub, &headers, peer.as_deref()).await?;
    let registration: Registration = read(&body)?;
    let session = checked(&registration)?;
    keep(&hub, &bearer.person, &session, &registration, from.0).await?;
    let answer = Registered { ui_url: base.page(&session), ws_url: base.socket(&session) };
    Ok(Json(answer).into_response())
}

fn checked(registration: &Registration) -> Result<SessionId, Refusal> {
    let Registration { session_id, model, sandbox, approval, cwd, machine, sealed: _ } = registration;
    let session = SessionId::parse(session_id).map_err(|error| bad(error.to_string()))?;
    // `machine` is the address of others.
    if session.as_str() == "machine" {
        return Err(bad("this id is not free"));
    }
    let odd = |text: &&String| text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control);
    if [model, sandbox, approval, cwd].iter().any(odd) {
        return Err(bad(format!(
            "model, sandbox, approval and cwd are texts of at most {TEXT_BYTES_MAX} bytes"
        )));
    }
    if machine.as_ref().is_some_and(|machine| MachineId::parse(machine).is_none()) {
        return Err(bad("this is no machine's id"));
    }
    Ok(session)
}

async fn keep(
    hub: &Arc<Hub>,
    person: &PersonId,
    session: &SessionId,
    registration: &Registration,
    address: Option<IpAddr>,
) -> Result<(), Refusal> {
    let who: Value = person.0.as_ref().into();
    let machine = registration.machine.as_deref();
    let before = vec![
        Statement::new(
            "SELECT COUNT(*) FROM mirrors WHERE person = $1 AND session <> $2 AND heard_at >= $3",
            [who.clone(), session.as_str().into(), hub.listed_since().into()],
        ),
        Statement::new("SELECT person FROM machines WHERE id = $1", [machine.unwrap_or_default().into()]),
        Statement::new(
            "SELECT sealed FROM mirrors WHERE session = $1 AND person = $2 AND branch_of IS NULL",
            [session.as_str().into(), who.clone()],
        ),
    ];
    let found = hub.run(before, Vec::new()).await.map_err(|error| refused(&error))?;
    let row = |at: usize| found.get(at).and_then(|found| found.rows.first());
    let others = row(0).map(|row| row.count(0)).transpose().map_err(|error| refused(&error))?;
    if others.unwrap_or_default() >= CARDS_MAX {
        let message = format!(
            "a person has at most {CARDS_MAX} listed sessions at a hub; delete some, or forget a machine that is not used any more"
        );
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", message));
    }
    if row(1).is_some_and(|row| row.text(0).is_ok_and(|owner| *owner != *person.0)) {
        return Err(not_yours());
    }
    let now = hub.now();
    let put = Statement::new(
        "INSERT INTO mirrors (session, person, machine, sealed, model, sandbox, approval, cwd, created_at, updated_at,
         heard_at, changed_at, detached, epoch, view_number, view_bytes, snapshot, snapshot_before)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $9, $9, 0, 0, 0, 0, 0, 0)
         ON CONFLICT (session) DO UPDATE SET machine = excluded.machine, model = excluded.model,
         sandbox = excluded.sandbox, approval = excluded.approval, cwd = excluded.cwd, heard_at = excluded.heard_at,
         changed_at = excluded.changed_at, detached = 0
         WHERE mirrors.person = excluded.person AND mirrors.branch_of IS NULL",
        [
            session.as_str().into(),
            who,
            machine.into(),
            registration.sealed.into(),
            registration.model.as_str().into(),
            registration.sandbox.as_str().into(),
            registration.approval.as_str().into(),
            registration.cwd.as_str().into(),
            now.0.into(),
        ],
    );
    let note = Note::new("session.registered", Some(&person.0)).about(session.as_str()).from(address);
    // What was mirrored in the open is no part of what is sealed, nor the other way round.
    let other = row(2).is_some_and(|row| row.int(0).is_ok_and(|sealed| (sealed != 0) != registration.sealed));
    let mut work = if other { schema::begin_anew(session) } else { Vec::new() };
    work.extend([put.must_change(1), note.statement(now, Some(hub.node.as_str()))]);
    let news = vec![topics::person(&person.0), topics::session(session.as_str())];
    match hub.run(work, news).await {
        Ok(_) => Ok(()),
        Err(DbError::Refused { .. }) => Err(not_yours()),
        Err(error) => Err(refused(&error)),
    }
}

async fn heartbeat(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    peer: MaybePeer,
    headers: HeaderMap,
    Content(body): Content,
) -> Result<StatusCode, Refusal> {
    let bearer = bearer(&hub, &headers, peer.as_deref()).await?;
    let beat: Heartbeat = read(&body)?;
    let odd = |text: &str| text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control);
    if odd(&beat.sandbox) || odd(&beat.approval) || !beat.cost_total_usd.is_finite() {
        return Err(bad("this is no heartbeat"));
    }
    let update = Statement::new(
        "UPDATE mirrors SET sandbox = $3, approval = $4, cost_usd = $5, heard_at = $6, detached = 0,
         process_at = CASE WHEN process = CAST($7 AS TEXT) THEN $6 ELSE process_at END
         WHERE session = $1 AND person = $2",
        [
            session.into(),
            bearer.person.0.as_ref().into(),
            beat.sandbox.into(),
            beat.approval.into(),
            beat.cost_total_usd.to_string().into(),
            hub.now().0.into(),
            process(&headers).into(),
        ],
    );
    hub.run(vec![update.must_change(1)], Vec::new()).await.map_err(|error| refused(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which process says it: another one may have a copy of the same log.
fn process(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROCESS_HEADER).and_then(|process| process.to_str().ok())
}

#[derive(Deserialize)]
struct Leaving {
    /// It is gone where it came from, too.
    #[serde(default)]
    deleted: bool,
}

async fn leave(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Query(leaving): Query<Leaving>,
    Extension(from): Extension<From>,
    peer: MaybePeer,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let bearer = bearer(&hub, &headers, peer.as_deref()).await?;
    if leaving.deleted {
        let session = SessionId::parse(&session).map_err(|_| unknown())?;
        hub.forget(&session, &bearer.person, from.0, i64::MAX).await.map_err(|error| refused(&error))?;
        return Ok(StatusCode::NO_CONTENT);
    }
    let (now, person) = (hub.now(), bearer.person.0.as_ref());
    let update = Statement::new(
        "UPDATE mirrors SET detached = 1, heard_at = $3, changed_at = $3,
         process_at = CASE WHEN process = CAST($4 AS TEXT) THEN NULL ELSE process_at END
         WHERE session = $1 AND person = $2",
        [session.as_str().into(), person.into(), now.0.into(), process(&headers).into()],
    );
    let note = Note::new("session.detached", Some(person)).about(session).from(from.0);
    let work = vec![update.must_change(1), note.statement(now, Some(hub.node.as_str()))];
    hub.run(work, vec![topics::person(person)]).await.map_err(|error| refused(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct After {
    after: Option<u64>,
}

async fn session_socket(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Query(after): Query<After>,
    Extension(from): Extension<From>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers();
    let peer = request.extensions().get::<Peer>();
    if !headers.contains_key(AUTHORIZATION) {
        return look_at_frames(hub, &session, after.after, socket, headers, peer).await;
    }
    let bearer = bearer(&hub, headers, peer).await?;
    let session = SessionId::parse(&session).map_err(|_| unknown())?;
    let socket = upgrade(socket)?;
    let socket = socket.protocols([PROTOCOL]);
    let mirror = socket.selected_protocol().is_some();
    let ended = hub.door.keeper.ended(&bearer);
    polling::is_own(&hub, &session, &bearer.person).await?;
    hub.note(Note::new("session.attached", Some(&bearer.person.0)).about(session.as_str()).from(from.0));
    if mirror {
        let attached =
            Attachment::attach(&hub, session, bearer.person).await.map_err(|error| refused(&error))?;
        let attached = attached.ok_or_else(unknown)?;
        return Ok(serve(&hub, socket, move |pipe| attached.run(pipe, ended)));
    }
    let source = Source::attach(&hub, session, bearer.person).await.map_err(|error| refused(&error))?;
    let source = source.ok_or_else(unknown)?;
    Ok(serve(&hub, socket, move |pipe| source.run(pipe, ended)))
}

/// Somebody with a browser, or with a link: the frames of a session whose bridge sends nothing else.
async fn look_at_frames(
    hub: Arc<Hub>,
    session: &str,
    after: Option<u64>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    headers: &HeaderMap,
    peer: Option<&Peer>,
) -> Result<Response, Refusal> {
    let guest = hub.door.keeper.guest(headers).await?;
    if let Some(peer) = peer {
        peer.admit();
    }
    let session = SessionId::parse(session).map_err(|_| unknown())?;
    let question = Statement::new("SELECT person FROM mirrors WHERE session = $1", [session.as_str().into()]);
    let rows = hub.rows(question).await.map_err(|error| refused(&error))?;
    let owner = rows.first().and_then(|row| row.text(0).ok()).map(PersonId);
    let role = owner.and_then(|owner| guest.role(&owner, Some(session.as_str())));
    let role = role.ok_or_else(unknown)?;
    let socket = upgrade(socket)?;
    let frame_bytes_max = frame_bytes_max(&guest);
    let sink = Sink { hub: Arc::clone(&hub), session, role, after, ended: guest.ended.clone() };
    Ok(serve_up_to(frame_bytes_max, &hub, socket, move |pipe| sink.run(pipe)))
}

async fn machine_socket(
    State(hub): State<Arc<Hub>>,
    Path(machine): Path<String>,
    Extension(from): Extension<From>,
    peer: MaybePeer,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let bearer = bearer(&hub, &headers, peer.as_deref()).await?;
    let arriving = arriving(&hub, &machine, bearer, from.0)?;
    let socket = upgrade(socket)?.protocols([PROTOCOL]);
    if socket.selected_protocol().is_none() {
        return Err(bad(format!("offer the sub-protocol {PROTOCOL}")));
    }
    Ok(serve(&hub, socket, move |pipe| arriving.run(pipe)))
}

fn arriving(
    hub: &Arc<Hub>,
    machine: &str,
    bearer: Bearer,
    address: Option<IpAddr>,
) -> Result<Arriving, Refusal> {
    let id = MachineId::parse(machine).ok_or_else(unknown)?;
    let ended = hub.door.keeper.ended(&bearer);
    Ok(Arriving { hub: Arc::clone(hub), id, person: bearer.person, address, ended })
}

fn upgrade(socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>) -> Result<WebSocketUpgrade, Refusal> {
    socket.map_err(|_| {
        let message = "this address is a WebSocket; without one, see /api/tunnel";
        Refusal::new(StatusCode::UPGRADE_REQUIRED, "websocket_only", message)
    })
}

/// Does the work of a connection until both ends have seen that it is over.
fn serve<W, F>(hub: &Arc<Hub>, socket: WebSocketUpgrade, work: W) -> Response
where
    W: FnOnce(Pipe) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    serve_up_to(FRAME_BYTES_MAX, hub, socket, work)
}

fn serve_up_to<W, F>(frame_bytes_max: usize, hub: &Arc<Hub>, socket: WebSocketUpgrade, work: W) -> Response
where
    W: FnOnce(Pipe) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let tasks = hub.tasks.clone();
    let socket = socket.max_message_size(frame_bytes_max).max_frame_size(frame_bytes_max);
    socket.on_upgrade(move |socket| async move {
        let (pipe, mouth) = socket::pipe();
        let working = tasks.spawn(work(pipe));
        socket::pump(socket, mouth).await;
        drop(working.await);
    })
}
