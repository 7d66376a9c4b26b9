//! The gate: every request, also the first of a WebSocket, passes here before a route sees it.
//!
//! In this order: is it meant for us (`Host`), which page sends it (`Origin`), who sends it (token),
//! what may the caller reach, and is the body acceptable. Nothing in a request identifies the caller but its token,
//! or for our own clients the cookie of a device together with its proof; all of them are
//! removed from the request once they were checked.

mod caller;
mod cookie;
mod gate_refusal;
#[cfg(test)]
pub(crate) mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, SET_COOKIE,
    VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::{BoxFuture, Follower, ListQuery, Principal, Registry, SessionHandle, SessionId};
use metrics::{Metrics, RejectReason};
use tokio::time::Instant;

use crate::auth_rate_limit::AuthRateLimit;
use crate::browser_proof::Proofs;
use crate::devices::{DeviceLogin, DeviceLoginError, Devices};
use crate::hosts_and_origins::{PageOrigin, ServerNames};
use crate::listen::Peer;
use crate::refusal::Refusal;
use crate::request_body::{REST_BYTES_MAX, RPC_BYTES_MAX};
use crate::request_checks;
use crate::request_headers;
use crate::tokens::{AcceptedTokens, Digest, SessionTokens, TokenHolder, TokenMaker};
use crate::web_app;
use caller::{by_device, by_token};
use gate_refusal::GateRefusal;

pub(super) use caller::{CookieSettings, SignInClient};
pub use caller::{HttpCaller, TokenScope};
pub use cookie::read as cookie_of;

/// The WebSocket sub-protocol that we answer with.
pub const WS_PROTOCOL: &str = "acp.v1";
/// The one of our own clients.
pub const UI_PROTOCOL: &str = "ropewalk.v1";

/// What everybody may read. None of it says anything about sessions.
const PUBLIC: [&str; 7] = [
    "/health",
    "/healthz",
    "/ready",
    "/.well-known/acp.json",
    "/.well-known/agent.json",
    "/agent.json",
    ABOUT,
];

/// What this server is, for clients that are about to sign in.
pub(super) const ABOUT: &str = "/auth/about";

/// Where a client without a token or a cookie signs in, by a code.
pub(super) const ENTRANCE: &str = "/ui/enter";
/// Bodies of sign-in requests are short.
const ENTRANCE_BYTES_MAX: usize = 8 << 10;

const CORS_METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const CORS_SENDS: &str = "authorization, content-type, accept, last-event-id, acp-connection-id, acp-session-id, acp-protocol-version";
const CORS_READS: &str = "acp-connection-id, acp-session-id, acp-protocol-version, retry-after";

pub struct GateParts {
    pub keys: AcceptedTokens,
    pub names: ServerNames,
    /// The server is behind a proxy, which names its client in `X-Forwarded-For`.
    pub behind_proxy: bool,
    /// Random; the tokens of sessions are made from it.
    pub seed: [u8; 32],
}

pub struct Gate {
    keys: AcceptedTokens,
    names: ServerNames,
    /// The names of further listeners.
    further: Vec<ServerNames>,
    cookie: Arc<str>,
    behind_proxy: bool,
    open: AtomicBool,
    following: Once,
    sessions: Mutex<SessionTokens>,
    wrong_tokens: Mutex<AuthRateLimit>,
}

impl Gate {
    pub fn new(parts: GateParts) -> Self {
        Self {
            keys: parts.keys,
            cookie: cookie::name(parts.names.bound.port()).into(),
            names: parts.names,
            further: Vec::new(),
            behind_proxy: parts.behind_proxy,
            open: AtomicBool::new(false),
            following: Once::new(),
            sessions: Mutex::new(SessionTokens::new(TokenMaker::new(parts.seed))),
            wrong_tokens: Mutex::default(),
        }
    }

    /// Adds one more listener, with names of its own.
    pub fn also(mut self, names: ServerNames) -> Self {
        self.further.push(names);
        self
    }

    /// The names of the listener that a request came by.
    fn names(&self, request: &Request) -> &ServerNames {
        let local = request.extensions().get::<Peer>().map(|peer| peer.local);
        self.further.iter().find(|names| Some(names.bound) == local).unwrap_or(&self.names)
    }

    fn jar(&self, request: &Request) -> CookieSettings {
        let secure = self.names(request).secure || self.behind_proxy;
        CookieSettings { name: Arc::clone(&self.cookie), secure }
    }

    /// How long an address that showed wrong codes or tokens has to wait. On loopback a code that cannot
    /// be guessed is always checked, for the reason given at `identify`.
    pub(super) fn wait(&self, address: IpAddr, guessable: bool) -> Option<Duration> {
        let wait = locked(&self.wrong_tokens).wait(address, Instant::now());
        wait.filter(|_| guessable || !address.is_loopback())
    }

    /// A wrong code was shown.
    pub(super) fn count(&self, address: IpAddr) {
        locked(&self.wrong_tokens).count(address, Instant::now());
    }

    /// Starts serving requests; before, they are refused with "try again".
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// The same once the sessions were listed, whatever the result: the first request does not wait for the disk.
    pub async fn open_after(&self, registry: &Registry) {
        let query = ListQuery { limit: 1, ..ListQuery::all(Principal::local()) };
        if let Err(error) = registry.list(query).await {
            tracing::warn!(%error, "could not list the sessions");
        }
        self.open();
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether a caller has to show a token.
    pub fn asks_for_token(&self) -> bool {
        !matches!(self.keys, AcceptedTokens::None)
    }

    /// A token for one session of this owner. An earlier one stops working.
    pub fn session_token(&self, owner: &Principal, id: &SessionId) -> String {
        locked(&self.sessions).issue(owner, id)
    }

    /// Removes the token of a session from here on when the session is deleted, by whichever way.
    pub fn follow(self: &Arc<Self>, registry: &Registry) {
        self.following.call_once(|| registry.join(Arc::new(Deletions(Arc::downgrade(self)))));
    }

    fn forget(&self, id: &SessionId) {
        locked(&self.sessions).forget(id);
    }

    /// The holder of this token. Where others than this machine's own programs can guess, the token of an address that
    /// was wrong too often is not even compared; on loopback that would let every program lock out
    /// all the others, so there a right token is always accepted.
    fn identify(&self, token: Option<&str>, address: IpAddr) -> Result<TokenHolder, GateRefusal> {
        if matches!(self.keys, AcceptedTokens::None) {
            return Ok(TokenHolder::Master);
        }
        let Some(token) = token else {
            return Err(GateRefusal::unauthorized(
                RejectReason::NoToken,
                "send the header `Authorization: Bearer TOKEN`; a browser signs in by the link of `ropewalk link`",
            ));
        };
        let now = Instant::now();
        let wait = locked(&self.wrong_tokens).wait(address, now);
        if let Some(wait) = wait.filter(|_| !address.is_loopback()) {
            return Err(GateRefusal::too_often(wait));
        }
        let digest = Digest::of(token);
        let holder = self.keys.holder(&digest).or_else(|| locked(&self.sessions).holder(&digest));
        if let Some(holder) = holder.filter(|_| !token.is_empty()) {
            return Ok(holder);
        }
        if let Some(wait) = wait {
            return Err(GateRefusal::too_often(wait));
        }
        locked(&self.wrong_tokens).count(address, now);
        let message = "unknown token; the server's own token is in the file that it named when it started";
        Err(GateRefusal::unauthorized(RejectReason::BadToken, message))
    }
}

/// Follows deletions of sessions for the gate.
struct Deletions(Weak<Gate>);

impl Follower for Deletions {
    fn follow(&self, _: SessionHandle) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn deleted(&self, id: &SessionId) -> BoxFuture<'static, ()> {
        if let Some(gate) = self.0.upgrade() {
            gate.forget(id);
        }
        Box::pin(std::future::ready(()))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the middleware: who may pass, and where refusals are counted.
#[derive(Clone)]
pub struct GateState {
    pub gate: Arc<Gate>,
    pub devices: Arc<Devices>,
    pub metrics: Arc<Metrics>,
}

/// The middleware around all routes.
pub async fn pass(State(state): State<GateState>, mut request: Request, next: Next) -> Response {
    let gate = &state.gate;
    let page = match origin(gate, &request) {
        Ok(page) => page,
        Err(denied) => return log_refusal(&state, &request, denied),
    };
    // A page that may talk to us may also read why it was refused.
    let named = (page == Some(PageOrigin::Named)).then(|| request.headers().get(ORIGIN).cloned()).flatten();
    let answer = if named.is_some() && is_preflight(&request) {
        preflight()
    } else {
        match admit(&state, page, &mut request).await {
            Ok(renewed) => with_cookie(count_rejection(&state, next.run(request).await), renewed),
            Err(denied) => log_refusal(&state, &request, denied),
        }
    };
    with_cors_headers(answer, named)
}

/// Adds the cookie, unless the route has set one itself.
fn with_cookie(mut response: Response, cookie: Option<HeaderValue>) -> Response {
    if let Some(cookie) = cookie {
        response.headers_mut().entry(SET_COOKIE).or_insert(cookie);
    }
    response
}

/// Whether the request is meant for us, and which page it comes from.
fn origin(gate: &Gate, request: &Request) -> Result<Option<PageOrigin>, GateRefusal> {
    request_checks::page(gate.names(request), request).map_err(|refusal| {
        let reason = if refusal.1.contains("host") { RejectReason::BadHost } else { RejectReason::BadOrigin };
        GateRefusal::by(reason)(refusal)
    })
}

/// Identifies the caller, checks what it may reach, and prepares the request for its route. Gives a
/// cookie that is to be sent again.
async fn admit(
    state: &GateState,
    page: Option<PageOrigin>,
    request: &mut Request,
) -> Result<Option<HeaderValue>, GateRefusal> {
    let gate = &state.gate;
    request_headers::no_token_in_url(request.uri()).map_err(GateRefusal::by(RejectReason::TokenInUrl))?;
    let token = request_headers::take_token(request.headers_mut())
        .map_err(GateRefusal::by(RejectReason::BadToken))?;
    let counts = cookie::counts(request, page);
    let key = cookie::take(request.headers_mut(), &gate.cookie).filter(|_| counts);
    let proofs = Proofs::take(request.headers_mut());
    let path = request.uri().path();
    if PUBLIC.contains(&path) || web_app::is_public(path) {
        return Ok(None);
    }
    let cookie_settings = gate.jar(request);
    request.extensions_mut().insert(cookie_settings.clone());
    if request.uri().path() == ENTRANCE {
        let client = SignInClient { address: address(gate, request), key };
        request.extensions_mut().insert(client);
        prepare(gate, request, ENTRANCE_BYTES_MAX)?;
        return Ok(None);
    }
    let login = match &key {
        Some(key) if token.is_none() => authenticate_device(state, key, &proofs, &cookie_settings).await?,
        _ => None,
    };
    let renewed = match &login {
        Some(login) if login.renew => cookie_settings.cookie(key.as_deref()),
        _ => None,
    };
    let here = request_checks::at_machine(request);
    let caller = match login {
        Some(login) => by_device(login.visitor, here && !gate.behind_proxy),
        // Where no token is asked for, the caller is not identified.
        None => {
            by_token(gate.identify(token.as_deref(), address(gate, request))?, here && gate.asks_for_token())
        }
    };
    check_path(&caller, request.uri().path())?;
    if let Some(peer) = request.extensions().get::<Peer>() {
        peer.admit();
    }
    let max = if matches!(request.uri().path(), "/acp" | "/acp/") { RPC_BYTES_MAX } else { REST_BYTES_MAX };
    prepare(gate, request, max)?;
    request.extensions_mut().insert(caller);
    Ok(renewed)
}

/// The device with this key and its proof. A browser whose key is not valid any more is told to delete it; where
/// no token is asked for, it does not matter.
async fn authenticate_device(
    state: &GateState,
    key: &str,
    proofs: &Proofs,
    cookie_settings: &CookieSettings,
) -> Result<Option<DeviceLogin>, GateRefusal> {
    // A client whose token was removed has no devices either.
    let known = |login: DeviceLogin| {
        if state.gate.keys.know(&login.visitor.principal) {
            Ok(login)
        } else {
            Err(DeviceLoginError::Unknown)
        }
    };
    let refused = match state.devices.authenticate(key, proofs).await.and_then(known) {
        Ok(login) => return Ok(Some(login)),
        Err(_) if !state.gate.asks_for_token() => return Ok(None),
        Err(refused) => refused,
    };
    let denied = |code, message: &str| {
        GateRefusal::by(RejectReason::BadToken)(Refusal::new(StatusCode::UNAUTHORIZED, code, message))
    };
    Err(match refused {
        DeviceLoginError::Unknown => {
            let message = "this device is signed out; `ropewalk link` prints a link that signs in";
            denied("signed_out", message).with(cookie_settings.cookie(None))
        }
        // The cookie stays: any page of this host can make a browser send it here without the proof.
        DeviceLoginError::Unproven => denied(
            "sign_in_again",
            "the cookie is valid only together with the key that the app stores in this browser, which is missing or wrong; sign in again with the link that `ropewalk up` or `ropewalk link` prints",
        ),
    })
}

/// Whether a caller may be on this path.
fn check_path(caller: &HttpCaller, path: &str) -> Result<(), GateRefusal> {
    if let TokenScope::Session(id) = &caller.scope
        && request_headers::session_segment(path) != Some(id.as_str())
    {
        return Err(GateRefusal::unauthorized(
            RejectReason::Forbidden,
            "this token gives access to its own session only",
        ));
    }
    // The metrics are about everybody's sessions.
    if path == "/metrics" && caller.principal != Principal::local() {
        let refusal = Refusal::new(StatusCode::FORBIDDEN, "admin_only", "this needs the server's own token");
        return Err(GateRefusal::by(RejectReason::Forbidden)(refusal));
    }
    Ok(())
}

/// Checks that requests are served already, and limits the body to so many bytes.
fn prepare(gate: &Gate, request: &mut Request, max: usize) -> Result<(), GateRefusal> {
    if !gate.is_open() {
        let message = "the server is starting; try again in a moment";
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "starting", message);
        return Err(GateRefusal::by(RejectReason::Refused)(refusal));
    }
    request_checks::fit(request, max).map_err(|refusal| {
        let large = refusal.0 == StatusCode::PAYLOAD_TOO_LARGE;
        GateRefusal::by(if large { RejectReason::TooLarge } else { RejectReason::MediaType })(refusal)
    })
}

/// The address for which wrong tokens are counted.
fn address(gate: &Gate, request: &Request) -> IpAddr {
    request_checks::address(gate.behind_proxy, request)
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(CORS_METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(CORS_SENDS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Adds the CORS headers that let a named page read the response.
fn with_cors_headers(response: Response, named: Option<HeaderValue>) -> Response {
    let mut response = request_checks::dressed(response);
    let headers = response.headers_mut();
    if let Some(origin) = named {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(CORS_READS));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// Logs, counts and answers a refusal. Only the path is logged: a query may hold secrets.
fn log_refusal(state: &GateState, request: &Request, denied: GateRefusal) -> Response {
    let (method, path, code) = (request.method(), request.uri().path(), denied.refusal.1);
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    tracing::info!(code, %method, path, ?peer, "a request was refused");
    state.metrics.rejected(denied.reason);
    denied.into_response()
}

/// Counts bodies that are too large or stop coming: that shows only when a route reads them.
fn count_rejection(state: &GateState, answer: Response) -> Response {
    match answer.status() {
        StatusCode::PAYLOAD_TOO_LARGE => state.metrics.rejected(RejectReason::TooLarge),
        StatusCode::REQUEST_TIMEOUT => state.metrics.rejected(RejectReason::TooSlow),
        _ => {}
    }
    answer
}
