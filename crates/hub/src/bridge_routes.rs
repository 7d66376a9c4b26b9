//! The routes of bridges: register, heartbeat, detach, and the connections of sessions and machines, with or without
//! WebSockets.
//!
//! A session's id belongs to the person whose token registered it first; so does a machine's. For everybody else the
//! answer is the same whether the id exists or not.

mod long_poll_routes;

use std::net::IpAddr;
use std::sync::Arc;

use access::{BodyBytes, Peer, Refusal};
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
use store::sql::{DbError, SqlValue, Statement};
use wire::json_errors;
use wire::tunnel::{
    HUB_HEADER, Heartbeat, PROCESS_HEADER, PROTOCOL, Registration, RegistrationReply, TUNNEL_FRAME_BYTES_MAX,
};

use crate::audit::AuditEntry;
use crate::authenticator::{MachineToken, PersonId};
use crate::browser_connection::frame_bytes_max;
use crate::frame_relay::{RelayBridge, RelayViewer};
use crate::hub::{Hub, RETRY_SECONDS};
use crate::hub_tables;
use crate::ids::MachineId;
use crate::machine_sockets::MachineConnection;
use crate::mirror::MirrorConnection;
use crate::router::{BaseUrl, ClientAddress};
use crate::session_list::CARDS_MAX;
use crate::topics;
use crate::websocket_queues::{self, FrameChannel};

/// Bytes of each text in a registration.
const TEXT_BYTES_MAX: usize = 4096;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/api/sessions", post(register))
        .route("/api/sessions/{session}", axum::routing::delete(leave))
        .route("/api/sessions/{session}/heartbeat", post(heartbeat))
        .route("/ws/{session}", get(session_socket))
        .route("/ws/machine/{machine}", get(machine_socket))
        .merge(long_poll_routes::routes())
        .layer(axum::middleware::map_response(add_hub_header))
}

/// Adds the header that identifies a hub: a bridge then uses more than the endpoints of the public contract.
async fn add_hub_header(mut response: Response) -> Response {
    response.headers_mut().insert(HUB_HEADER, HeaderValue::from_static(PROTOCOL));
    response
}

/// The refusal for a failed query.
pub fn database_refusal(error: &DbError) -> Refusal {
    match error {
        DbError::Unavailable { .. } => {
            let message = format!("the hub's database is not reachable; try again in {RETRY_SECONDS} s");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "database_away", message)
        }
        DbError::Refused { .. } => unknown_id(),
        DbError::Failed { .. } => {
            let message = "the hub's database refused the request; the hub's log says why";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message)
        }
    }
}

/// The same refusal for an id of somebody else's and for one that does not exist. A bridge whose session was deleted here
/// registers it again.
fn unknown_id() -> Refusal {
    let message = "this id is not registered by the owner of this token; register it with POST /api/sessions, or use another";
    Refusal::new(StatusCode::NOT_FOUND, "unknown_id", message)
}

/// The session to be registered, or its machine, belongs to somebody else.
fn owned_by_other() -> Refusal {
    let message = "this session or machine id belongs to somebody else; use another";
    Refusal::new(StatusCode::FORBIDDEN, "not_yours", message)
}

fn bad_request(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad_request", message)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    json_errors::read_bytes(body, "the body").map_err(|error| bad_request(format!("invalid body: {error}")))
}

/// Authenticates a machine by its token, and marks its connection as authenticated.
async fn machine_token(hub: &Hub, headers: &HeaderMap, peer: Option<&Peer>) -> Result<MachineToken, Refusal> {
    let machine_token = hub.people_api.accounts.machine(headers).await?;
    if let Some(peer) = peer {
        peer.admit();
    }
    if !hub.request_rates.allows(&machine_token.person) {
        let message = "too many requests from one person's machines; slow down";
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message));
    }
    Ok(machine_token)
}

type MaybePeer = Option<Extension<Peer>>;

async fn register(
    State(hub): State<Arc<Hub>>,
    Extension(base): Extension<BaseUrl>,
    Extension(from): Extension<ClientAddress>,
    peer: MaybePeer,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> Result<Response, Refusal> {
    let machine_token = machine_token(&hub, &headers, peer.as_deref()).await?;
    let registration: Registration = read(&body)?;
    let session = checked_registration(&registration)?;
    store_registration(&hub, &machine_token.person, &session, &registration, from.0).await?;
    let answer = RegistrationReply { ui_url: base.page(&session), ws_url: base.socket(&session) };
    Ok(Json(answer).into_response())
}

fn checked_registration(registration: &Registration) -> Result<SessionId, Refusal> {
    let Registration { session_id, model, sandbox, approval, cwd, machine, sealed: _ } = registration;
    let session = SessionId::parse(session_id).map_err(|error| bad_request(error.to_string()))?;
    // `/ws/machine/...` is the address of machines.
    if session.as_str() == "machine" {
        return Err(bad_request("this id is already in use"));
    }
    let invalid = |text: &&String| text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control);
    if [model, sandbox, approval, cwd].iter().any(invalid) {
        return Err(bad_request(format!(
            "model, sandbox, approval and cwd must be strings of at most {TEXT_BYTES_MAX} bytes"
        )));
    }
    if machine.as_ref().is_some_and(|machine| MachineId::parse(machine).is_none()) {
        return Err(bad_request("this is not a machine id"));
    }
    Ok(session)
}

async fn store_registration(
    hub: &Arc<Hub>,
    person: &PersonId,
    session: &SessionId,
    registration: &Registration,
    address: Option<IpAddr>,
) -> Result<(), Refusal> {
    let who: SqlValue = person.0.as_ref().into();
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
    let found = hub.run(before, Vec::new()).await.map_err(|error| database_refusal(&error))?;
    let first_row = |at: usize| found.get(at).and_then(|found| found.rows.first());
    let others =
        first_row(0).map(|row| row.count(0)).transpose().map_err(|error| database_refusal(&error))?;
    if others.unwrap_or_default() >= CARDS_MAX {
        let message = format!(
            "a person can have at most {CARDS_MAX} listed sessions at a hub; delete some, or forget a machine that is no longer used"
        );
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", message));
    }
    if first_row(1).is_some_and(|row| row.text(0).is_ok_and(|owner| *owner != *person.0)) {
        return Err(owned_by_other());
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
    let entry = AuditEntry::new("session.registered", Some(&person.0)).about(session.as_str()).from(address);
    // A mirror is sealed as a whole or not at all.
    let other =
        first_row(2).is_some_and(|row| row.int(0).is_ok_and(|sealed| (sealed != 0) != registration.sealed));
    let mut work = if other { hub_tables::reset_mirror(session) } else { Vec::new() };
    work.extend([put.must_change(1), entry.statement(now, Some(hub.node.as_str()))]);
    let news = vec![topics::person(&person.0), topics::session(session.as_str())];
    match hub.run(work, news).await {
        Ok(_) => Ok(()),
        Err(DbError::Refused { .. }) => Err(owned_by_other()),
        Err(error) => Err(database_refusal(&error)),
    }
}

async fn heartbeat(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    peer: MaybePeer,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> Result<StatusCode, Refusal> {
    let machine_token = machine_token(&hub, &headers, peer.as_deref()).await?;
    let beat: Heartbeat = read(&body)?;
    let invalid = |text: &str| text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control);
    if invalid(&beat.sandbox) || invalid(&beat.approval) || !beat.cost_total_usd.is_finite() {
        return Err(bad_request("this is not a heartbeat"));
    }
    let update = Statement::new(
        "UPDATE mirrors SET sandbox = $3, approval = $4, cost_usd = $5, heard_at = $6, detached = 0,
         process_at = CASE WHEN process = CAST($7 AS TEXT) THEN $6 ELSE process_at END
         WHERE session = $1 AND person = $2",
        [
            session.into(),
            machine_token.person.0.as_ref().into(),
            beat.sandbox.into(),
            beat.approval.into(),
            beat.cost_total_usd.to_string().into(),
            hub.now().0.into(),
            process_id(&headers).into(),
        ],
    );
    hub.run(vec![update.must_change(1)], Vec::new()).await.map_err(|error| database_refusal(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The process that sends the request: another one may have a copy of the same log.
fn process_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROCESS_HEADER).and_then(|process_id| process_id.to_str().ok())
}

#[derive(Deserialize)]
struct LeaveQuery {
    /// The session was deleted on its machine, too.
    #[serde(default)]
    deleted: bool,
}

async fn leave(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Query(query): Query<LeaveQuery>,
    Extension(from): Extension<ClientAddress>,
    peer: MaybePeer,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let machine_token = machine_token(&hub, &headers, peer.as_deref()).await?;
    if query.deleted {
        let session = SessionId::parse(&session).map_err(|_| unknown_id())?;
        hub.forget(&session, &machine_token.person, from.0, i64::MAX)
            .await
            .map_err(|error| database_refusal(&error))?;
        return Ok(StatusCode::NO_CONTENT);
    }
    let (now, person) = (hub.now(), machine_token.person.0.as_ref());
    let update = Statement::new(
        "UPDATE mirrors SET detached = 1, heard_at = $3, changed_at = $3,
         process_at = CASE WHEN process = CAST($4 AS TEXT) THEN NULL ELSE process_at END
         WHERE session = $1 AND person = $2",
        [session.as_str().into(), person.into(), now.0.into(), process_id(&headers).into()],
    );
    let entry = AuditEntry::new("session.detached", Some(person)).about(session).from(from.0);
    let work = vec![update.must_change(1), entry.statement(now, Some(hub.node.as_str()))];
    hub.run(work, vec![topics::person(person)]).await.map_err(|error| database_refusal(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct AfterQuery {
    after: Option<u64>,
}

async fn session_socket(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Query(after): Query<AfterQuery>,
    Extension(from): Extension<ClientAddress>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers();
    let peer = request.extensions().get::<Peer>();
    if !headers.contains_key(AUTHORIZATION) {
        return frames_socket(hub, &session, after.after, socket, headers, peer).await;
    }
    let machine_token = machine_token(&hub, headers, peer).await?;
    let session = SessionId::parse(&session).map_err(|_| unknown_id())?;
    let socket = upgrade(socket)?;
    let socket = socket.protocols([PROTOCOL]);
    let mirror = socket.selected_protocol().is_some();
    let revoked = hub.people_api.accounts.revoked(&machine_token);
    long_poll_routes::must_own_session(&hub, &session, &machine_token.person).await?;
    hub.record(
        AuditEntry::new("session.attached", Some(&machine_token.person.0))
            .about(session.as_str())
            .from(from.0),
    );
    if mirror {
        let connection = MirrorConnection::attach(&hub, session, machine_token.person)
            .await
            .map_err(|error| database_refusal(&error))?;
        let connection = connection.ok_or_else(unknown_id)?;
        return Ok(serve(&hub, socket, move |channel| connection.run(channel, revoked)));
    }
    let relay = RelayBridge::attach(&hub, session, machine_token.person)
        .await
        .map_err(|error| database_refusal(&error))?;
    let relay = relay.ok_or_else(unknown_id)?;
    Ok(serve(&hub, socket, move |channel| relay.run(channel, revoked)))
}

/// For a browser with a sign-in or a share link: the frames of a session whose bridge sends frames only.
async fn frames_socket(
    hub: Arc<Hub>,
    session: &str,
    after: Option<u64>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    headers: &HeaderMap,
    peer: Option<&Peer>,
) -> Result<Response, Refusal> {
    let visitor = hub.people_api.accounts.visitor(headers).await?;
    if let Some(peer) = peer {
        peer.admit();
    }
    let session = SessionId::parse(session).map_err(|_| unknown_id())?;
    let question = Statement::new("SELECT person FROM mirrors WHERE session = $1", [session.as_str().into()]);
    let rows = hub.rows(question).await.map_err(|error| database_refusal(&error))?;
    let owner = rows.first().and_then(|row| row.text(0).ok()).map(PersonId);
    let role = owner.and_then(|owner| visitor.role(&owner, Some(session.as_str())));
    let role = role.ok_or_else(unknown_id)?;
    let socket = upgrade(socket)?;
    let frame_bytes_max = frame_bytes_max(&visitor);
    let viewer =
        RelayViewer { hub: Arc::clone(&hub), session, role, after, revoked: visitor.revoked.clone() };
    Ok(serve_up_to(frame_bytes_max, &hub, socket, move |channel| viewer.run(channel)))
}

async fn machine_socket(
    State(hub): State<Arc<Hub>>,
    Path(machine): Path<String>,
    Extension(from): Extension<ClientAddress>,
    peer: MaybePeer,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let machine_token = machine_token(&hub, &headers, peer.as_deref()).await?;
    let machine_connection = machine_connection(&hub, &machine, machine_token, from.0)?;
    let socket = upgrade(socket)?.protocols([PROTOCOL]);
    if socket.selected_protocol().is_none() {
        return Err(bad_request(format!("offer the sub-protocol {PROTOCOL}")));
    }
    Ok(serve(&hub, socket, move |channel| machine_connection.run(channel)))
}

fn machine_connection(
    hub: &Arc<Hub>,
    machine: &str,
    machine_token: MachineToken,
    address: Option<IpAddr>,
) -> Result<MachineConnection, Refusal> {
    let id = MachineId::parse(machine).ok_or_else(unknown_id)?;
    let revoked = hub.people_api.accounts.revoked(&machine_token);
    Ok(MachineConnection { hub: Arc::clone(hub), id, person: machine_token.person, address, revoked })
}

fn upgrade(socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>) -> Result<WebSocketUpgrade, Refusal> {
    socket.map_err(|_| {
        let message = "this address is a WebSocket; without one, see /api/tunnel";
        Refusal::new(StatusCode::UPGRADE_REQUIRED, "websocket_only", message)
    })
}

/// Upgrades the request and serves the connection until both sides have ended.
fn serve<W, F>(hub: &Arc<Hub>, socket: WebSocketUpgrade, work: W) -> Response
where
    W: FnOnce(FrameChannel) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    serve_up_to(TUNNEL_FRAME_BYTES_MAX, hub, socket, work)
}

fn serve_up_to<W, F>(frame_bytes_max: usize, hub: &Arc<Hub>, socket: WebSocketUpgrade, work: W) -> Response
where
    W: FnOnce(FrameChannel) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let tasks = hub.tasks.clone();
    let socket = socket.max_message_size(frame_bytes_max).max_frame_size(frame_bytes_max);
    socket.on_upgrade(move |socket| async move {
        let (channel, socket_end) = websocket_queues::channel();
        let working = tasks.spawn(work(channel));
        websocket_queues::pump(socket, socket_end).await;
        drop(working.await);
    })
}
