//! The whole door in one process: every route behind the gate.

mod browsers;

use std::sync::Arc;

use access::{AcceptedTokens, Client, Digest, GateParts, ServerNames};
use agent::{Agent, AgentConfig};
use axum::http::StatusCode;
use engine::{Clock, MemoryStore, Registry, RegistryParts, Timestamp};
use metrics::Metrics;
use serde_json::json;
use testkit::router_requests::{ask, code, post, send};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::Identity;

use super::{Gate, HttpState, OfficialConnections, ZephConnections, router, sockets};

struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(9_000)
    }
}

fn doors() -> Arc<HttpState> {
    let client = Client { id: "ci".into(), digest: Digest::of("of-ci") };
    let keys = AcceptedTokens::Tokens { master: Digest::of("master"), clients: vec![client] };
    let names = ServerNames {
        bound: "127.0.0.1:80".parse().unwrap(),
        secure: false,
        hosts: Vec::new(),
        cors: Vec::new(),
    };
    let backend = Arc::new(Agent::new(AgentConfig::offline()));
    let store = Arc::new(MemoryStore::default());
    Arc::new(HttpState {
        registry: Registry::new(RegistryParts::new(store, backend, Arc::new(StillClock))),
        rules: service::ServiceRules::default(),
        identity: Identity {
            name: "ropewalk".into(),
            title: "Ropewalk".into(),
            version: "1.2.3".into(),
            sandbox: "read-only".into(),
            adapters: Vec::new(),
            sandbox_backends: wire::SandboxBackends::default(),
            disabled: Vec::new(),
        },
        dialect: wire::DialectSelection::default(),
        on_initialize: None,
        gate: Arc::new(Gate::new(GateParts { keys, names, behind_proxy: false, seed: [3; 32] })),
        secret: [4; 32],
        official_connections: OfficialConnections::default(),
        zeph_connections: ZephConnections::default(),
        sockets: sockets(),
        devices: Arc::default(),
        app: app::AppServerSlot::default(),
        metrics: Metrics::new("1.2.3", Timestamp(2_000)),
        started: Timestamp(2_000),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    })
}

/// K8, K3.
#[tokio::test]
async fn until_it_is_ready_the_server_says_that_it_is_starting() {
    let state = doors();
    let router = router(Arc::clone(&state));
    let health = async || send(&router, ask("/health", "")).await;
    let (status, text) = health().await;
    let expected = json!({ "status": "starting", "version": "1.2.3", "uptime_secs": 7, "started_at": 2 });
    assert_eq!((status, text), (StatusCode::SERVICE_UNAVAILABLE, expected.to_string()));
    let (status, text) = send(&router, ask("/x", "master")).await;
    assert_eq!((status, code(&text).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "starting"));
    assert_eq!(send(&router, ask("/x", "wrong")).await.0, StatusCode::UNAUTHORIZED);
    state.gate.open();
    assert_eq!(health().await.0, StatusCode::OK);
    assert_eq!(send(&router, ask("/x", "master")).await.0, StatusCode::NOT_FOUND);
    let (status, text) = send(&router, post("/health", "{}")).await;
    assert_eq!((status, code(&text).as_str()), (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"));
    state.stop.cancel();
    assert_eq!(health().await.0, StatusCode::SERVICE_UNAVAILABLE);
}
