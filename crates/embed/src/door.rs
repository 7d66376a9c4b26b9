//! The HTTP door as a router that a program serves beside its own routes.
//!
//! Every request passes the same gate as at the binary's door: names, pages, tokens, bodies. Who comes in works
//! below the server's folder, or in one that its rules open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use access::devices::Devices;
use access::{Digest, Gate, GateParts, Keys, Names, random};
use app::{DeskSlot, Extras};
use axum::Router;
use engine::Registry;
use server::http::{Doors, Transports, Visits, router, sockets};
use service::Rules;
use tokio_util::task::TaskTracker;

use crate::server::Server;

/// How an HTTP door is reached, and by whom.
pub struct Http {
    /// The address and further names under which clients may ask, and the pages that may.
    pub names: Names,
    pub keys: Keys,
    /// A proxy stands before it, and says in `X-Forwarded-For` for whom it speaks.
    pub behind_proxy: bool,
    /// Signs what clients carry for the server. Without one that stays the same, clients of the official transport
    /// begin anew after a restart.
    pub secret: Option<[u8; 32]>,
}

impl Http {
    /// At this address, without TLS, for whoever shows the token.
    pub fn at(address: SocketAddr, token: &str) -> Self {
        Self {
            names: Names { bound: address, secure: false, hosts: Vec::new(), cors: Vec::new() },
            keys: Keys::Tokens { master: Digest::of(token), clients: Vec::new() },
            behind_proxy: false,
            secret: None,
        }
    }
}

/// A door that has a router and lets nobody in so far.
pub struct Door {
    router: Router,
    gate: Arc<Gate>,
    registry: Arc<Registry>,
}

impl Door {
    /// To be served as it is, or merged with routes of the program's own, which the gate does not guard.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Lets clients in once the sessions have answered. Until then they are told to come again, and `/ready` says
    /// that the server is starting.
    pub async fn open(&self) {
        self.gate.open_after(&self.registry).await;
    }

    pub(crate) fn new(server: &Server, http: Http) -> io::Result<(Arc<Doors>, Self)> {
        let hall = Arc::new(Devices::open(None, Arc::clone(server.registry.clock())));
        hall.opens_by(http.keys.clone());
        let parts = GateParts {
            keys: http.keys,
            names: http.names,
            behind_proxy: http.behind_proxy,
            seed: random()?,
        };
        let gate = Arc::new(Gate::new(parts));
        let doors = Arc::new(Doors {
            registry: Arc::clone(&server.registry),
            rules: Rules { source: "http".into(), ..server.rules.confined() },
            identity: server.identity.clone(),
            dialect: server.dialect.into(),
            greeted: None,
            gate: Arc::clone(&gate),
            secret: http.secret.map_or_else(random, Ok)?,
            visits: Visits::default(),
            transports: Transports::default(),
            sockets: sockets(),
            hall: Arc::clone(&hall),
            desk: DeskSlot::new(Extras { host: server.identity.name.clone(), shelf: None }),
            metrics: Arc::clone(&server.metrics),
            started: server.started,
            tasks: TaskTracker::new(),
            stop: server.stop.child_token(),
        });
        let stopped = doors.stop.clone();
        drop(doors.tasks.spawn(async move { hall.keep_up(stopped).await }));
        let (router, registry) = (router(Arc::clone(&doors)), Arc::clone(&server.registry));
        Ok((doors, Self { router, gate, registry }))
    }
}
