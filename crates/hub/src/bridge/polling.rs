//! The same as the sockets, in requests: for bridges behind proxies that know no WebSocket. The contract is in
//! `docs/bridge.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use access::{Content, Refusal};
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

use super::{arriving, bearer, refused, unknown};
use crate::audit::Note;
use crate::door::From;
use crate::guest::PersonId;
use crate::hub::Hub;
use crate::mirror::Attachment;
use crate::socket;

/// A poll that says nothing else waits this long.
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

/// What a tunnel is of, as its address says.
enum Of {
    Session(String),
    Machine(String),
}

impl Of {
    /// No session's id has a slash in it.
    fn path(&self) -> String {
        match self {
            Self::Session(session) => session.clone(),
            Self::Machine(machine) => format!("machine/{machine}"),
        }
    }
}

impl FromRequestParts<Arc<Hub>> for Of {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, Refusal> {
        let named = Path::<HashMap<String, String>>::from_request_parts(parts, hub).await;
        let Path(mut named) = named.map_err(|_| unknown())?;
        match (named.remove("session"), named.remove("machine")) {
            (Some(session), _) => Ok(Self::Session(session)),
            (None, Some(machine)) => Ok(Self::Machine(machine)),
            (None, None) => Err(unknown()),
        }
    }
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

async fn open(
    State(hub): State<Arc<Hub>>,
    of: Of,
    Extension(from): Extension<From>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    let (pipe, mouth) = socket::pipe();
    let person = bearer.person.clone();
    let name = match &of {
        Of::Machine(machine) => {
            let arriving = arriving(&hub, machine, bearer, from.0)?;
            let name = hub.polls.open(of.path(), person, mouth)?;
            drop(hub.tasks.spawn(arriving.run(pipe)));
            name
        }
        Of::Session(session) => {
            let id = SessionId::parse(session).map_err(|_| unknown())?;
            is_own(&hub, &id, &person).await?;
            let ended = hub.door.keeper.ended(&bearer);
            // Who attaches fences off who was there, so there must be a place for it first.
            let name = hub.polls.open(of.path(), person.clone(), mouth)?;
            let note = Note::new("session.attached", Some(&person.0)).about(id.as_str()).from(from.0);
            let attached = match Attachment::attach(&hub, id, person.clone()).await {
                Ok(attached) => attached.ok_or_else(unknown),
                Err(error) => Err(refused(&error)),
            };
            let attached = attached.inspect_err(|_| hub.polls.close(&name, session, &person))?;
            hub.note(note);
            drop(hub.tasks.spawn(attached.run(pipe, ended)));
            name
        }
    };
    Ok(Json(serde_json::json!({ "connection": name })).into_response())
}

async fn up(
    State(hub): State<Arc<Hub>>,
    of: Of,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Content(body): Content,
) -> Result<Response, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    hub.polls.up(&named.connection, &of.path(), &bearer.person, &body).await.map(array)
}

async fn down(
    State(hub): State<Arc<Hub>>,
    of: Of,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    let path = of.path();
    let wait = Duration::from_secs(named.wait.unwrap_or(WAIT_SECONDS));
    let stopping =
        Refusal::new(StatusCode::GONE, "stopping", "this node of the hub is stopping; open another");
    tokio::select! {
        biased;
        frames = hub.polls.down(&named.connection, &path, &bearer.person, wait) => frames.map(array),
        () = hub.stop.cancelled() => Err(stopping),
    }
}

async fn close(
    State(hub): State<Arc<Hub>>,
    of: Of,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let bearer = bearer(&hub, &headers, None).await?;
    hub.polls.close(&named.connection, &of.path(), &bearer.person);
    Ok(StatusCode::NO_CONTENT)
}

fn array(frames: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], frames).into_response()
}
