//! The HTTP listener of a server in this process, on a port of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use access::{AcceptedTokens, BoundListener, Client, Digest, Gate, GateParts, ServerNames};
use engine::{Principal, Timestamp};
use server::ConnectionParts;
use server::http::{HttpState, OfficialConnections, ZephConnections, router, sockets};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http_client::HttpClient;

/// Opens everything.
pub const MASTER: &str = "the-master-token";
/// Opens what belongs to the client `ci`.
pub const CI: &str = "the-token-of-ci";

pub struct Door {
    pub address: SocketAddr,
    pub doors: Arc<HttpState>,
    serving: JoinHandle<()>,
    _tasks: TaskTracker,
}

impl Door {
    /// At this port; any with 0.
    pub(super) async fn open(parts: ConnectionParts, started: Timestamp, port: u16) -> Self {
        let listening = BoundListener::bind((Ipv4Addr::LOCALHOST, port).into(), None).await.expect("a port");
        let address = listening.local_addr();
        let keys = AcceptedTokens::Tokens {
            master: Digest::of(MASTER),
            clients: vec![Client { id: "ci".into(), digest: Digest::of(CI) }],
        };
        let names = ServerNames { bound: address, secure: false, hosts: Vec::new(), cors: Vec::new() };
        let gate = Arc::new(Gate::new(GateParts { keys, names, behind_proxy: false, seed: [1; 32] }));
        gate.open();
        let stop = CancellationToken::new();
        let doors = Arc::new(HttpState {
            registry: parts.registry,
            rules: parts.rules,
            identity: parts.identity,
            dialect: parts.dialect,
            on_initialize: parts.on_initialize,
            gate,
            secret: [2; 32],
            official_connections: OfficialConnections::default(),
            zeph_connections: ZephConnections::default(),
            sockets: sockets(),
            devices: Arc::default(),
            app: app::AppServerSlot::default(),
            metrics: metrics::Metrics::new("1.2.3", started),
            started,
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        let tasks = TaskTracker::new();
        let serving = tasks.spawn(listening.serve(router(Arc::clone(&doors)), stop));
        Self { address, doors, serving, _tasks: tasks }
    }

    pub fn web(&self) -> HttpClient {
        HttpClient::new(self.address, MASTER)
    }

    pub fn principal() -> Principal {
        Principal::local()
    }

    pub async fn close(self) {
        self.doors.stop.cancel();
        drop(self.serving.await);
        self.doors.finish().await;
    }
}
