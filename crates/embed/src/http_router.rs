//! The HTTP door as a router that a program serves beside its own routes.
//!
//! Every request passes the same gate as in the binary: names, origins, tokens, bodies. Callers work
//! below the server's folder, or in a folder that its rules open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use access::devices::Devices;
use access::{AcceptedTokens, Digest, Gate, GateParts, ServerNames, random};
use app::{AppServerExtras, AppServerSlot};
use axum::Router;
use engine::Registry;
use server::http::{HttpState, OfficialConnections, ZephConnections, router, sockets};
use service::ServiceRules;
use tokio_util::task::TaskTracker;

use crate::server::Server;

/// The addresses, tokens and proxy settings of an HTTP door.
pub struct HttpDoorOptions {
    /// The address and further names under which clients may ask, and the pages that may.
    pub names: ServerNames,
    pub keys: AcceptedTokens,
    /// A proxy is in front of it, and names the client in `X-Forwarded-For`.
    pub behind_proxy: bool,
    /// Signs the ids that clients carry for the server. Unless it stays the same, clients of the official
    /// transport start again after a restart.
    pub secret: Option<[u8; 32]>,
}

impl HttpDoorOptions {
    /// At this address, without TLS, for clients with the token.
    pub fn at(address: SocketAddr, token: &str) -> Self {
        Self {
            names: ServerNames { bound: address, secure: false, hosts: Vec::new(), cors: Vec::new() },
            keys: AcceptedTokens::Tokens { master: Digest::of(token), clients: Vec::new() },
            behind_proxy: false,
            secret: None,
        }
    }
}

/// An HTTP door with a router, closed until [`HttpDoor::open`].
pub struct HttpDoor {
    router: Router,
    gate: Arc<Gate>,
    registry: Arc<Registry>,
}

impl HttpDoor {
    /// To be served as it is, or merged with routes of the program's own, which the gate does not guard.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Accepts clients once the sessions have answered. Until then clients are asked to retry, and `/ready`
    /// says that the server is starting.
    pub async fn open(&self) {
        self.gate.open_after(&self.registry).await;
    }

    pub(crate) fn new(server: &Server, http: HttpDoorOptions) -> io::Result<(Arc<HttpState>, Self)> {
        let hall = Arc::new(Devices::open(None, Arc::clone(server.registry.clock())));
        hall.set_accepted_tokens(http.keys.clone());
        let parts = GateParts {
            keys: http.keys,
            names: http.names,
            behind_proxy: http.behind_proxy,
            seed: random()?,
        };
        let gate = Arc::new(Gate::new(parts));
        let doors = Arc::new(HttpState {
            registry: Arc::clone(&server.registry),
            rules: ServiceRules { source: "http".into(), ..server.rules.confined() },
            identity: server.identity.clone(),
            dialect: server.dialect.into(),
            on_initialize: None,
            gate: Arc::clone(&gate),
            secret: http.secret.map_or_else(random, Ok)?,
            official_connections: OfficialConnections::default(),
            zeph_connections: ZephConnections::default(),
            sockets: sockets(),
            devices: Arc::clone(&hall),
            app: AppServerSlot::new(AppServerExtras { host: server.identity.name.clone(), rule_store: None }),
            metrics: Arc::clone(&server.metrics),
            started: server.started,
            tasks: TaskTracker::new(),
            stop: server.stop.child_token(),
        });
        let stopped = doors.stop.clone();
        drop(doors.tasks.spawn(async move { hall.watch_file(stopped).await }));
        let (router, registry) = (router(Arc::clone(&doors)), Arc::clone(&server.registry));
        Ok((doors, Self { router, gate, registry }))
    }
}
