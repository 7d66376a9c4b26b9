//! The HTTP door: one listener, one gate, and behind it the routes of every dialect.
//!
//! All routes are mounted here and nowhere else, so that none can be forgotten by the gate: who calls
//! is known before a route sees the request, and stands in it as [`Caller`].

mod acp;
mod bernstein;
mod health;
pub mod metrics;
mod rest;
mod sse;
#[cfg(test)]
mod tests;
mod ui;

use std::sync::Arc;
use std::time::Duration;

use ::metrics::Metrics;
use access::devices::Devices;
use access::sign_in::{self, Entrance};
use access::web;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use engine::{Registry, Timestamp};
use service::{Rules, Service};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Dialect, Identity, Spoken};

use crate::connection::Greeted;
use app::{Desk, DeskParts, DeskSlot};

pub(crate) use access::{
    Caller, Content, Fields, Gate, GateState, Peer, REST_BYTES_MAX, Refusal, Scope, UI_PROTOCOL, WS_PROTOCOL,
};
pub(crate) use acp::Streams;
pub use acp::{Transports, Visits};

/// How long answers may take to end.
const FINISH_GRACE: Duration = Duration::from_secs(1);

/// What every route may use.
pub struct Doors {
    pub registry: Arc<Registry>,
    pub rules: Rules,
    pub identity: Identity,
    /// Of WebSockets, and of `POST /acp` where it is Bernstein's.
    pub dialect: Spoken,
    /// Learns of a client before it is answered.
    pub greeted: Option<Greeted>,
    pub gate: Arc<Gate>,
    /// The same for ever on this installation; for signing what clients carry for us.
    pub secret: [u8; 32],
    /// The connections of the official remote transport.
    pub visits: Visits,
    /// The connections of zeph's shape of it.
    pub transports: Transports,
    /// Places for WebSockets.
    pub sockets: Arc<Semaphore>,
    /// Who can come in by our own clients.
    pub hall: Arc<Devices>,
    /// What they share.
    pub desk: DeskSlot,
    pub metrics: Arc<Metrics>,
    pub started: Timestamp,
    /// Whatever outlives its request runs here.
    pub tasks: TaskTracker,
    /// Long answers end when this is cancelled.
    pub stop: CancellationToken,
}

impl Doors {
    /// The sessions, for whoever comes by a route.
    pub fn service(&self) -> Service {
        Service::new(Arc::clone(&self.registry), self.rules.clone())
    }

    /// What our own clients share, set up when the first of them comes.
    pub fn desk(&self) -> &Arc<Desk> {
        self.desk.get(|extras| DeskParts {
            registry: Arc::clone(&self.registry),
            rules: self.rules.clone(),
            identity: self.identity.clone(),
            hall: Arc::clone(&self.hall),
            extras,
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        })
    }

    fn gate_state(&self) -> GateState {
        let (gate, devices) = (Arc::clone(&self.gate), Arc::clone(&self.hall));
        GateState { gate, devices, metrics: Arc::clone(&self.metrics) }
    }

    fn entrance(&self) -> Entrance {
        let (gate, devices) = (Arc::clone(&self.gate), Arc::clone(&self.hall));
        Entrance { gate, devices, stop: self.stop.clone() }
    }

    /// Ends the long answers and the connections, in good order.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.visits.close_all();
        self.transports.close_all().await;
        self.tasks.close();
        let ended = async {
            self.tasks.wait().await;
            // Never closed: the last socket to end gives the last place back.
            drop(self.sockets.acquire_many(acp::SOCKETS_MAX).await);
        };
        if tokio::time::timeout(FINISH_GRACE, ended).await.is_err() {
            tracing::info!("some answers did not end in time");
        }
    }
}

/// As many places for WebSockets as there are.
pub fn sockets() -> Arc<Semaphore> {
    acp::seats()
}

/// Every route, behind the gate.
pub fn router(doors: Arc<Doors>) -> Router {
    doors.gate.follow(&doors.registry);
    if let Some(folders) = doors.rules.within() {
        doors.registry.confine(folders);
    }
    let routes = Router::new()
        .merge(health::routes())
        .merge(acp::routes())
        .merge(rest::routes())
        .merge(ui::routes())
        .merge(sign_in::routes(doors.entrance()))
        .merge(web::routes())
        .merge(metrics::routes(Arc::clone(&doors.metrics)));
    routes
        .fallback(|| async { Refusal::not_found() })
        .method_not_allowed_fallback(wrong_method)
        // The gate limits bodies itself, by route.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(doors.gate_state(), access::pass))
        .with_state(doors)
}

/// The route is there, but not with this method.
async fn wrong_method(State(doors): State<Arc<Doors>>) -> Refusal {
    if doors.dialect.is_for(Dialect::Bernstein) {
        return Refusal::not_found();
    }
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "see the header `Allow`")
}
