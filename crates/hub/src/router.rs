//! The hub's router: every route behind one gate that checks host names, origins and bodies; and the public routes.

use std::net::IpAddr;
use std::sync::Arc;

use access::{Digest, PageOrigin, Refusal, ServerNames, request_checks, web_app};
use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine::SessionId;
use serde_json::json;
use wire::tunnel::TUNNEL_FRAME_BYTES_MAX;

use crate::hub::Hub;
use crate::people::{self, People, throttle};
use crate::{bridge_routes, browser_connection, metrics};

/// Bytes of a body, on all routes but those of tunnels.
const BODY_BYTES_MAX: usize = 64 << 10;
const HSTS: (HeaderName, &str) =
    (HeaderName::from_static("strict-transport-security"), "max-age=31536000; includeSubDomains");

/// How clients reach the hub.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    pub names: ServerNames,
    /// A proxy in front of the hub terminates TLS.
    pub behind_proxy: bool,
}

/// The address that a request came from.
#[derive(Debug, Clone, Copy)]
pub struct ClientAddress(pub Option<IpAddr>);

/// The hub's address as the client reaches it.
#[derive(Debug, Clone)]
pub struct BaseUrl {
    secure: bool,
    host: String,
}

impl BaseUrl {
    pub fn page(&self, session: &SessionId) -> String {
        format!("{}://{}/s/{session}", if self.secure { "https" } else { "http" }, self.host)
    }

    pub fn socket(&self, session: &SessionId) -> String {
        format!("{}://{}/ws/{session}", if self.secure { "wss" } else { "ws" }, self.host)
    }
}

struct HubGate {
    hub: Arc<Hub>,
    options: RouterOptions,
    people: Option<Arc<People>>,
}

/// Every route of the hub.
pub fn router(hub: &Arc<Hub>, options: RouterOptions, people: Option<Arc<People>>) -> Router {
    let mut routes = Router::new()
        .route("/health", get(health))
        .route("/healthz", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics_page))
        .merge(bridge_routes::routes())
        .merge(browser_connection::routes())
        .with_state(Arc::clone(hub))
        .merge(web_app::routes());
    if let Some(people) = &people {
        routes = routes.layer(from_fn_with_state(Arc::clone(people), throttle));
        routes = routes.merge(people::routes(Arc::clone(people)));
    }
    let gate = Arc::new(HubGate { hub: Arc::clone(hub), options, people });
    routes
        .fallback(|| async { Refusal::not_found() })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "see the header `Allow`")
        })
        // The gate limits bodies, by route.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(gate, gate_request))
}

async fn gate_request(State(gate): State<Arc<HubGate>>, mut request: Request, next: Next) -> Response {
    let secure = gate.options.names.secure || gate.options.behind_proxy;
    let response = match admit(&gate, &mut request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let (method, path, code) = (request.method(), request.uri().path(), refusal.1);
            tracing::info!(code, %method, path, "a request was refused");
            refusal.into_response()
        }
    };
    let mut response = request_checks::dressed(response);
    if secure {
        response.headers_mut().insert(HSTS.0, HeaderValue::from_static(HSTS.1));
    }
    response
}

fn admit(gate: &HubGate, request: &mut Request) -> Result<(), Refusal> {
    let page = request_checks::page(&gate.options.names, request).map_err(hub_refusal)?;
    request_checks::no_token_in_url(request)?;
    let headers = request.headers();
    let acts = !matches!(*request.method(), Method::GET | Method::HEAD) || headers.contains_key(UPGRADE);
    // Browsers add the cookie to requests of any page, so the request must come from one of our own.
    if acts
        && headers.contains_key(COOKIE)
        && !headers.contains_key(AUTHORIZATION)
        && page != Some(PageOrigin::Own)
    {
        let message = "only a page of this hub can send this request";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "origin_not_allowed", message));
    }
    let base_url = base_url(gate, headers);
    let address = request_checks::address(gate.options.behind_proxy, request);
    let tunnel = request.uri().path().starts_with("/api/tunnel/");
    request_checks::fit(request, if tunnel { TUNNEL_FRAME_BYTES_MAX } else { BODY_BYTES_MAX })?;
    let extensions = request.extensions_mut();
    extensions.insert(base_url);
    extensions.insert(ClientAddress(Some(address)));
    if gate.people.is_some() && gate.hub.stop.is_cancelled() {
        return Err(Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "this node of the hub is stopping",
        ));
    }
    Ok(())
}

/// The host name was checked before.
fn base_url(gate: &HubGate, headers: &HeaderMap) -> BaseUrl {
    let public = gate.hub.options.public_url.as_deref();
    if let Some((scheme, host)) = public.and_then(|url| url.split_once("://")) {
        return BaseUrl { secure: scheme == "https", host: host.trim_end_matches('/').to_owned() };
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let bound = || gate.options.names.bound.to_string();
    BaseUrl {
        secure: gate.options.names.secure || gate.options.behind_proxy,
        host: host.map_or_else(bound, str::to_owned),
    }
}

/// The messages of these two refusals for a hub, which has one name and serves no pages of others.
fn hub_refusal(refusal: Refusal) -> Refusal {
    let message = match refusal.1 {
        "host_not_allowed" => {
            "this hub does not answer to this host name; start it with --public-url to set its name"
        }
        "origin_not_allowed" => "this page's origin is not allowed at this hub",
        _ => return refusal,
    };
    Refusal::new(refusal.0, refusal.1, message)
}

async fn health(State(hub): State<Arc<Hub>>) -> Response {
    let is_running = !hub.stop.is_cancelled();
    let (status, word) =
        if is_running { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "stopping") };
    (status, Json(json!({ "status": word, "version": hub.options.version }))).into_response()
}

/// Whether this node can store what it receives.
async fn ready(State(hub): State<Arc<Hub>>) -> Response {
    let word = match (hub.stop.is_cancelled(), hub.is_ready()) {
        (true, _) => "stopping",
        (false, false) => "database away",
        (false, true) => return Json(json!({ "status": "ready" })).into_response(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": word }))).into_response()
}

/// The metrics, for machines with a token and for the metrics token.
async fn metrics_page(State(hub): State<Arc<Hub>>, headers: HeaderMap) -> Result<Response, Refusal> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let wanted = hub.options.metrics_token.as_deref().filter(|wanted| !wanted.is_empty());
    let right = shown.zip(wanted).is_some_and(|(shown, wanted)| Digest::of(shown).is(&Digest::of(wanted)));
    if !right {
        hub.people_api.accounts.machine(&headers).await?;
    }
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], hub.metrics.render()).into_response())
}
