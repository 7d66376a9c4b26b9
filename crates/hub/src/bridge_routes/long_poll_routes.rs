//! The same connections over plain HTTP requests: for bridges behind proxies that do not support WebSockets. The contract
//! is in `docs/bridge.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use access::{BodyBytes, Refusal};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use engine::SessionId;
use serde::Deserialize;
use store::sql::Statement;

use super::{database_refusal, machine_connection, machine_token, unknown_id};
use crate::audit::AuditEntry;
use crate::authenticator::PersonId;
use crate::hub::Hub;
use crate::mirror::MirrorConnection;
use crate::router::ClientAddress;
use crate::websocket_queues;

/// How long a poll waits if its request does not say.
const WAIT_SECONDS: u64 = 25;

/// The same routes for sessions and for machines.
pub(super) fn routes() -> Router<Arc<Hub>> {
    let mut routes = Router::new();
    for path in ["/api/tunnel/{session}", "/api/tunnel/machine/{machine}"] {
        routes = routes
            .route(&format!("{path}/open"), post(open))
            .route(&format!("{path}/up"), post(up))
            .route(&format!("{path}/down"), get(down))
            .route(path, delete(close));
    }
    routes
}

/// The session or machine that a tunnel is for, from its path.
enum TunnelTarget {
    Session(String),
    Machine(String),
}

impl TunnelTarget {
    /// No session's id has a slash in it.
    fn path(&self) -> String {
        match self {
            Self::Session(session) => session.clone(),
            Self::Machine(machine) => format!("machine/{machine}"),
        }
    }
}

impl FromRequestParts<Arc<Hub>> for TunnelTarget {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, Refusal> {
        let parameters = Path::<HashMap<String, String>>::from_request_parts(parts, hub).await;
        let Path(mut parameters) = parameters.map_err(|_| unknown_id())?;
        match (parameters.remove("session"), parameters.remove("machine")) {
            (Some(session), _) => Ok(Self::Session(session)),
            (None, Some(machine)) => Ok(Self::Machine(machine)),
            (None, None) => Err(unknown_id()),
        }
    }
}

/// Refuses unless the session exists and is this person's.
pub(super) async fn must_own_session(
    hub: &Hub,
    session: &SessionId,
    person: &PersonId,
) -> Result<(), Refusal> {
    let question = Statement::new(
        "SELECT 1 FROM mirrors WHERE session = $1 AND person = $2",
        [session.as_str().into(), person.0.as_ref().into()],
    );
    let rows = hub.rows(question).await.map_err(|error| database_refusal(&error))?;
    if rows.is_empty() { Err(unknown_id()) } else { Ok(()) }
}

#[derive(Deserialize)]
struct PollQuery {
    connection: String,
    wait: Option<u64>,
}

async fn open(
    State(hub): State<Arc<Hub>>,
    target: TunnelTarget,
    Extension(from): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let machine_token = machine_token(&hub, &headers, None).await?;
    let (channel, socket_end) = websocket_queues::channel();
    let person = machine_token.person.clone();
    let name = match &target {
        TunnelTarget::Machine(machine) => {
            let machine_connection = machine_connection(&hub, machine, machine_token, from.0)?;
            let name = hub.long_polls.open(target.path(), person, socket_end)?;
            drop(hub.tasks.spawn(machine_connection.run(channel)));
            name
        }
        TunnelTarget::Session(session) => {
            let id = SessionId::parse(session).map_err(|_| unknown_id())?;
            must_own_session(&hub, &id, &person).await?;
            let revoked = hub.people_api.accounts.revoked(&machine_token);
            // Attaching fences off the connection before, so this one must have its place first.
            let name = hub.long_polls.open(target.path(), person.clone(), socket_end)?;
            let entry = AuditEntry::new("session.attached", Some(&person.0)).about(id.as_str()).from(from.0);
            let connection = match MirrorConnection::attach(&hub, id, person.clone()).await {
                Ok(connection) => connection.ok_or_else(unknown_id),
                Err(error) => Err(database_refusal(&error)),
            };
            let connection = connection.inspect_err(|_| hub.long_polls.close(&name, session, &person))?;
            hub.record(entry);
            drop(hub.tasks.spawn(connection.run(channel, revoked)));
            name
        }
    };
    Ok(Json(serde_json::json!({ "connection": name })).into_response())
}

async fn up(
    State(hub): State<Arc<Hub>>,
    target: TunnelTarget,
    Query(query): Query<PollQuery>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> Result<Response, Refusal> {
    let machine_token = machine_token(&hub, &headers, None).await?;
    hub.long_polls.up(&query.connection, &target.path(), &machine_token.person, &body).await.map(array)
}

async fn down(
    State(hub): State<Arc<Hub>>,
    target: TunnelTarget,
    Query(query): Query<PollQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let machine_token = machine_token(&hub, &headers, None).await?;
    let path = target.path();
    let wait = Duration::from_secs(query.wait.unwrap_or(WAIT_SECONDS));
    let stopping =
        Refusal::new(StatusCode::GONE, "stopping", "this node of the hub is stopping; open another");
    tokio::select! {
        biased;
        frames = hub.long_polls.down(&query.connection, &path, &machine_token.person, wait) => frames.map(array),
        () = hub.stop.cancelled() => Err(stopping),
    }
}

async fn close(
    State(hub): State<Arc<Hub>>,
    target: TunnelTarget,
    Query(query): Query<PollQuery>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let machine_token = machine_token(&hub, &headers, None).await?;
    hub.long_polls.close(&query.connection, &target.path(), &machine_token.person);
    Ok(StatusCode::NO_CONTENT)
}

fn array(frames: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], frames).into_response()
}
