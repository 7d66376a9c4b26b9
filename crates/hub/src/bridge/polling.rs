//! The same as the sockets, in requests: for bridges behind proxies that know no WebSocket. The contract is in
//! `docs/bridge.md`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use engine::SessionId;
use net::http::{Content, Refusal};
use serde::Deserialize;
use store::sql::Statement;

use super::{arriving, bearer, refused, unknown};
use crate::audit::Note;
use crate::door::From;
use crate::guest::PersonId;
use crate::hub::Hub;
use crate::mirror::Attachment;
use crate::socket;

/// A poll that says nothing else waits this long.
const WAIT_SECONDS: u64 = 25;

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/api/tunnel/{session}/open", post(poll_session))
        .route("/api/tunnel/{session}/up", post(poll_up))
        .route("/api/tunnel/{session}/down", get(poll_down))
        .route("/api/tunnel/{session}", delete(poll_close))
        .route("/api/tunnel/machine/{machine}/open", post(poll_machine))
        .route("/api/tunnel/machine/{machine}/up", post(poll_machine_up))
        .route("/api/tunnel/machine/{machine}/down", get(poll_machine_down))
        .route("/api/tunnel/machine/{machine}", delete(poll_machine_close))
}

/// Whether a session is this person's, and to be found at all.
pub(super) async fn is_own(hub: &Hub, session: &SessionId, person: &PersonId) -> Result<(), Refusal> {
    let question = Statement::new(
        "SELECT 1 FROM mirrors WHERE session = $1 AND person = $2",
        [session.as_str().into(), person.0.as_ref().into()],
    );
    let rows = hub.rows(question).await.map_err(|error| refused(&error))?;
    if rows.is_empty() { Err(unknown()) } else { Ok(()) }
}

#[derive(Deserialize)]
struct Named {
    connection: String,
    wait: Option<u64>,
}

async fn poll_session(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Extension(from): Extension<From>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    let id = SessionId::parse(&session).map_err(|_| unknown())?;
    is_own(&hub, &id, &bearer.person).await?;
    let ended = hub.door.keeper.ended(&bearer);
    let (pipe, mouth) = socket::pipe();
    hub.note(Note::new("session attached", Some(&bearer.person.0)).about(id.as_str()).from(from.0));
    let attached =
        Attachment::attach(&hub, id, bearer.person.clone()).await.map_err(|error| refused(&error))?;
    let attached = attached.ok_or_else(unknown)?;
    let name = hub.polls.open(session, bearer.person, mouth)?;
    drop(hub.tasks.spawn(attached.run(pipe, ended)));
    Ok(Json(serde_json::json!({ "connection": name })).into_response())
}

async fn poll_machine(
    State(hub): State<Arc<Hub>>,
    Path(machine): Path<String>,
    Extension(from): Extension<From>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    let person = bearer.person.clone();
    let arriving = arriving(&hub, &machine, bearer, from.0)?;
    let (pipe, mouth) = socket::pipe();
    let name = hub.polls.open(of_machine(&machine), person, mouth)?;
    drop(hub.tasks.spawn(arriving.run(pipe)));
    Ok(Json(serde_json::json!({ "connection": name })).into_response())
}

fn of_machine(machine: &str) -> String {
    format!("machine/{machine}")
}

async fn up(
    hub: &Hub,
    path: &str,
    named: &Named,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Refusal> {
    let bearer = bearer(hub, headers, None).await?;
    hub.polls.up(&named.connection, path, &bearer.person, body).await.map(array)
}

async fn down(hub: &Hub, path: &str, named: &Named, headers: &HeaderMap) -> Result<Response, Refusal> {
    let bearer = bearer(hub, headers, None).await?;
    let wait = Duration::from_secs(named.wait.unwrap_or(WAIT_SECONDS));
    let stopping =
        Refusal::new(StatusCode::GONE, "stopping", "this node of the hub is stopping; open another");
    tokio::select! {
        biased;
        frames = hub.polls.down(&named.connection, path, &bearer.person, wait) => frames.map(array),
        () = hub.stop.cancelled() => Err(stopping),
    }
}

fn array(frames: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], frames).into_response()
}

async fn poll_up(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Content(body): Content,
) -> Result<Response, Refusal> {
    up(&hub, &session, &named, &headers, &body).await
}

async fn poll_machine_up(
    State(hub): State<Arc<Hub>>,
    Path(machine): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Content(body): Content,
) -> Result<Response, Refusal> {
    up(&hub, &of_machine(&machine), &named, &headers, &body).await
}

async fn poll_down(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    down(&hub, &session, &named, &headers).await
}

async fn poll_machine_down(
    State(hub): State<Arc<Hub>>,
    Path(machine): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    down(&hub, &of_machine(&machine), &named, &headers).await
}

async fn poll_close(
    State(hub): State<Arc<Hub>>,
    Path(session): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    hub.polls.close(&named.connection, &session, &bearer.person);
    Ok(StatusCode::NO_CONTENT)
}

async fn poll_machine_close(
    State(hub): State<Arc<Hub>>,
    Path(machine): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    hub.polls.close(&named.connection, &of_machine(&machine), &bearer.person);
    Ok(StatusCode::NO_CONTENT)
}
