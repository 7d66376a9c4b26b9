//! `http.md`: every HTTP route of a server and of a hub.
//!
//! The tables are compared with the routers themselves, and who may use a route with what the routers answer.

pub mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use access::{AcceptedTokens, Client, Digest, Gate, GateParts, ServerNames, web_app};
use engine::{Principal, SystemClock, Timestamp};
use serde_json::Value;
use server::http::{HttpState, OfficialConnections, ZephConnections};
use service::ServiceRules;
use testkit::server::{CI, MASTER, Server, Setup, run};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::openapi::ERRORS;
use super::{cell, check_page};
use routes::{HUB, RouteCaller, RouteGroup, SERVER, WEB_FILES};

const HEAD: &str = "\
# HTTP routes

Every route of `ropewalk serve --http` (and `ropewalk up`) and of `ropewalk hub`. The list is made from the routers. The REST routes are also
described in [OpenAPI](rest.openapi.json), for tools and client generators.

A token is sent as `Authorization: Bearer TOKEN`; which ones there are: [tokens](../operations.md#tokens). A request with a body needs
`Content-Type: application/json`. Without a right token the answer is 401. A refusal is
`{\"error\": CODE, \"message\": TEXT}`; the text says what to do.

# Server
";

const HUB_HEAD: &str = "
# Hub

A hub and a server use the same path for the same function.
";

const ERRORS_HEAD: &str = "
# Errors of a server

The words in `error`, for every route but `/acp`, whose own are on [its page](../dialects/http.md).

| status | `error` | when |
|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    write_groups(&mut page, &SERVER);
    page.push_str(HUB_HEAD);
    write_groups(&mut page, &HUB);
    page.push_str(ERRORS_HEAD);
    for (status, code, when) in ERRORS {
        writeln!(page, "| {status} | `{code}` | {} |", cell(when)).unwrap();
    }
    page
}

fn write_groups(page: &mut String, groups: &[RouteGroup]) {
    for RouteGroup { heading, page: explained, page_title, routes } in groups {
        write!(page, "\n## {heading}\n\nRead more: [{page_title}](../{explained}).\n\n").unwrap();
        page.push_str("| method | path | who | answer |\n|---|---|---|---|\n");
        for route in *routes {
            let (caller, answers) = (route.caller.words(), cell(route.answers));
            writeln!(page, "| {} | `{}` | {caller} | {answers} |", route.method, route.path).unwrap();
        }
    }
}

/// Methods and paths of a table.
fn told(groups: &[RouteGroup]) -> BTreeSet<(String, String)> {
    let routes = groups.iter().flat_map(|group| group.routes);
    routes.map(|route| (route.method.to_owned(), route.path.to_owned())).collect()
}

/// Methods and paths of a router, as it prints itself; axum has no other way to list them. The addresses of the web app
/// are one.
fn routed(router: &impl std::fmt::Debug) -> BTreeSet<(String, String)> {
    let text = format!("{router:?}");
    let routes = text.split("fallback_router").next().unwrap();
    let (mut methods, mut paths) = (BTreeMap::new(), BTreeMap::new());
    for chunk in routes.split("RouteId(").skip(1) {
        let Some((id, rest)) = chunk.split_once("): ") else { continue };
        if let Some(path) = rest.strip_prefix('"') {
            paths.insert(id, path.split('"').next().unwrap());
        } else if let Some((_, allow)) = rest.split_once("allow_header: Bytes(b\"") {
            methods.insert(id, allow.split('"').next().unwrap());
        }
    }
    assert!(
        paths.len() > 20 && paths.keys().eq(methods.keys()),
        "the router prints itself in another way: {text}"
    );
    let mut routed = BTreeSet::new();
    for (id, path) in paths {
        let path = if web_app::is_public(path) { WEB_FILES } else { path };
        let own = methods[id].split(',').filter(|method| *method != "HEAD");
        routed.extend(own.map(|method| (method.to_owned(), path.to_owned())));
    }
    routed
}

fn http_state(server: &Server) -> Arc<HttpState> {
    let parts = server.connection_parts(Principal::local());
    let client = Client { id: "ci".into(), digest: Digest::of(CI) };
    let keys = AcceptedTokens::Tokens { master: Digest::of(MASTER), clients: vec![client] };
    let bound = "127.0.0.1:5173".parse().unwrap();
    let names = ServerNames { bound, secure: false, hosts: Vec::new(), cors: Vec::new() };
    let gate = Gate::new(GateParts { keys, names, behind_proxy: false, seed: [1; 32] });
    gate.open();
    Arc::new(HttpState {
        registry: parts.registry,
        rules: ServiceRules {
            home_dir: server.workspace(),
            places: Some(vec![server.workspace()]),
            ..parts.rules
        },
        identity: parts.identity,
        dialect: parts.dialect,
        on_initialize: None,
        gate: Arc::new(gate),
        secret: [2; 32],
        official_connections: OfficialConnections::default(),
        zeph_connections: ZephConnections::default(),
        sockets: server::http::sockets(),
        devices: Arc::default(),
        app: app::AppServerSlot::default(),
        metrics: ::metrics::Metrics::new("1.2.3", Timestamp(0)),
        started: Timestamp(0),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    })
}

#[test]
fn the_reference_has_every_route() {
    check_page("http.md", &page());
}

#[tokio::test]
async fn the_reference_and_the_servers_router_have_the_same_routes() {
    run(Setup::offline(), async |server| {
        let state = http_state(server);
        assert_eq!(told(&SERVER), routed(&server::http::router(Arc::clone(&state))));
        state.finish().await;
    })
    .await;
}

#[tokio::test]
async fn the_reference_and_the_hubs_router_have_the_same_routes() {
    let folder = tempfile::tempdir().unwrap();
    let db: Arc<dyn store::sql::Db> =
        Arc::new(store::sql::SqliteDb::open(&folder.path().join("hub.db")).unwrap());
    let people = hub::people::PeopleOptions {
        public_url: "http://localhost:8090".into(),
        behind_proxy: false,
        clock: Arc::new(SystemClock),
        node: "n".into(),
        forgets: hub::forget_person,
        push: None,
    };
    let people = hub::people::People::open(Arc::clone(&db), people).await.unwrap();
    let parts = hub::HubParts {
        db,
        accounts: Arc::clone(&people) as Arc<dyn hub::authenticator::HubAuthenticator>,
        people: Some(Arc::clone(&people)),
        clock: Arc::new(SystemClock),
        node: hub::NodeId::fresh().unwrap(),
        owns_database: true,
        options: hub::HubOptions::default(),
    };
    let hub = hub::Hub::open(parts).await.unwrap();
    let bound = "127.0.0.1:8090".parse().unwrap();
    let names = ServerNames { bound, secure: false, hosts: Vec::new(), cors: Vec::new() };
    let router = hub::router(&hub, hub::RouterOptions { names, behind_proxy: false }, Some(people));
    assert_eq!(told(&HUB), routed(&router));
    // Nobody without a token or a cookie gets anything but what is for anyone.
    for route in HUB.iter().flat_map(|group| group.routes) {
        let mut request =
            testkit::router_requests::ask(&format!("{}?connection=1", with_values(route.path, "s-1")), "");
        *request.method_mut() = route.method.parse().unwrap();
        let headers = request.headers_mut();
        headers.remove("authorization");
        headers.insert("host", "localhost:8090".parse().unwrap());
        headers.insert("origin", "http://localhost:8090".parse().unwrap());
        headers.insert("content-type", "application/json".parse().unwrap());
        let (status, text) = testkit::router_requests::send(&router, request).await;
        let open = matches!(route.caller, RouteCaller::Anyone | RouteCaller::SigningIn);
        assert_eq!(status != 401, open, "{} {}: {status} {text}", route.method, route.path);
    }
    hub.finish().await;
}

/// The path of a route with a session in it.
fn with_values(path: &str, session: &str) -> String {
    let path = path.replace("{id}", session).replace("{session}", session);
    path.replace("{machine}", "m-1").replace("{name}", "help")
}

/// Who may use a route of a server is what its router says to them.
#[tokio::test]
async fn the_references_callers_are_those_that_the_router_lets_in() {
    run(Setup::offline(), async |server| {
        let state = http_state(server);
        let router = server::http::router(Arc::clone(&state));
        let send = async |method: &str, path: &str, token: Option<&str>| {
            // The parameter is refused where there is a stream, which would not end.
            let query = if path.ends_with("/events") { "?format=none" } else { "" };
            let mut request =
                testkit::router_requests::ask(&format!("{path}{query}"), token.unwrap_or_default());
            *request.method_mut() = method.parse().unwrap();
            let headers = request.headers_mut();
            headers.insert("host", "127.0.0.1:5173".parse().unwrap());
            headers.insert("content-type", "application/json".parse().unwrap());
            if token.is_none() {
                headers.remove("authorization");
            }
            testkit::router_requests::send(&router, request).await
        };
        for route in SERVER.iter().flat_map(|group| group.routes) {
            let name = format!("{} {}", route.method, route.path);
            let (_, made) = send("POST", "/session", Some(MASTER)).await;
            let made: Value = serde_json::from_str(&made).unwrap();
            let (session, own) =
                (made["session_id"].as_str().unwrap(), made["session_token"].as_str().unwrap());
            let path = with_values(route.path, session);
            let open = matches!(route.caller, RouteCaller::Anyone | RouteCaller::SigningIn);
            let (status, text) = send(route.method, &path, None).await;
            assert_eq!(status != 401, open, "{name} without a token: {status} {text}");
            let (status, text) = send(route.method, &path, Some(CI)).await;
            assert_eq!(
                status == 403,
                route.caller == RouteCaller::Owner,
                "{name} by a client: {status} {text}"
            );
            let (status, text) = send(route.method, &path, Some(own)).await;
            let lets_in = open || route.caller == RouteCaller::SessionToken;
            assert_eq!(status != 401 && status != 403, lets_in, "{name} by its session: {status} {text}");
        }
        state.finish().await;
    })
    .await;
}
