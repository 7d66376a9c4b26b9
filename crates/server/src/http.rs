//! The HTTP server: one listener, one gate, and behind it the routes of every dialect.
//!
//! All routes are mounted here and nowhere else, so that none can bypass the gate: the caller is known before a route
//! sees the request, and is one of the request's extensions ([`HttpCaller`]).

mod acp;
mod app_socket;
mod bernstein;
mod health;
pub mod metrics;
mod rest;
mod sse;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ::metrics::Metrics;
use access::devices::Devices;
use access::sign_in::{self, SignInState};
use access::web_app;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use engine::{Registry, Timestamp};
use service::{Service, ServiceRules};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Dialect, DialectSelection, Identity};

use crate::connection::OnInitialize;
use app::{AppServer, AppServerParts, AppServerSlot};

pub(crate) use access::{
    BodyBytes, Gate, GateState, HttpCaller, JsonFields, Peer, REST_BYTES_MAX, Refusal, TokenScope,
    UI_PROTOCOL, WS_PROTOCOL,
};
pub(crate) use acp::ConnectionStreams;
pub use acp::{OfficialConnections, ZephConnections};

/// How long responses may take to end when the server stops.
const FINISH_GRACE: Duration = Duration::from_secs(1);

/// The state that all routes share.
pub struct HttpState {
    pub registry: Arc<Registry>,
    pub rules: ServiceRules,
    pub identity: Identity,
    /// The dialect of WebSockets, and of `POST /acp` where it is Bernstein's.
    pub dialect: DialectSelection,
    /// Called with a client's `initialize` before it is answered.
    pub on_initialize: Option<OnInitialize>,
    pub gate: Arc<Gate>,
    /// The same for ever on this installation; signs the connection ids that clients bring back.
    pub secret: [u8; 32],
    /// The connections of the official remote transport.
    pub official_connections: OfficialConnections,
    /// The connections of zeph's shape of it.
    pub zeph_connections: ZephConnections,
    /// Limits how many WebSockets are open.
    pub sockets: Arc<Semaphore>,
    /// The devices that may sign in with our own clients.
    pub devices: Arc<Devices>,
    /// The server side of our own clients.
    pub app: AppServerSlot,
    pub metrics: Arc<Metrics>,
    pub started: Timestamp,
    /// Tasks that outlive their request run here.
    pub tasks: TaskTracker,
    /// Long responses end when this is cancelled.
    pub stop: CancellationToken,
}

impl HttpState {
    /// The service, for the routes.
    pub fn service(&self) -> Service {
        Service::new(Arc::clone(&self.registry), self.rules.clone())
    }

    /// The server side of our own clients, made when the first of them connects.
    pub fn app(&self) -> &Arc<AppServer> {
        self.app.get(|extras| AppServerParts {
            registry: Arc::clone(&self.registry),
            rules: self.rules.clone(),
            identity: self.identity.clone(),
            devices: Arc::clone(&self.devices),
            extras,
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        })
    }

    fn gate_state(&self) -> GateState {
        let (gate, devices) = (Arc::clone(&self.gate), Arc::clone(&self.devices));
        GateState { gate, devices, metrics: Arc::clone(&self.metrics) }
    }

    fn sign_in_state(&self) -> SignInState {
        let (gate, devices) = (Arc::clone(&self.gate), Arc::clone(&self.devices));
        SignInState { gate, devices, stop: self.stop.clone() }
    }

    /// Ends long responses and connections gracefully.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.official_connections.close_all();
        self.zeph_connections.close_all().await;
        self.tasks.close();
        let ended = async {
            self.tasks.wait().await;
            // The semaphore is never closed: the last socket to end gives the last permit back.
            drop(self.sockets.acquire_many(acp::SOCKETS_MAX).await);
        };
        if tokio::time::timeout(FINISH_GRACE, ended).await.is_err() {
            tracing::info!("some responses did not end in time");
        }
    }
}

/// The limit of open WebSockets.
pub fn sockets() -> Arc<Semaphore> {
    acp::socket_slots()
}

/// Every route, behind the gate.
pub fn router(state: Arc<HttpState>) -> Router {
    state.gate.follow(&state.registry);
    if let Some(folders) = state.rules.within() {
        state.registry.confine(folders);
    }
    let routes = Router::new()
        .merge(health::routes())
        .merge(acp::routes())
        .merge(rest::routes())
        .merge(app_socket::routes())
        .merge(sign_in::routes(state.sign_in_state()))
        .merge(web_app::routes())
        .merge(metrics::routes(Arc::clone(&state.metrics)));
    routes
        .fallback(|| async { Refusal::not_found() })
        .method_not_allowed_fallback(wrong_method)
        // The gate limits bodies itself, by route.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(state.gate_state(), access::pass))
        .with_state(state)
}

/// The route exists, but not with this method.
async fn wrong_method(State(state): State<Arc<HttpState>>) -> Refusal {
    if state.dialect.is_for(Dialect::Bernstein) {
        return Refusal::not_found();
    }
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "see the header `Allow`")
}
