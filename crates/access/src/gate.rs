//! The gate: every request, also the first of a WebSocket, passes here before a route sees it.
//!
//! In this order: is it meant for us (`Host`), which page sends it (`Origin`), who sends it (token),
//! what may they reach, and is the body one that we take. Nothing in a request but its token says who
//! the caller is, or for our own clients the cookie of a device together with its proof; all of them are
//! taken out of the request when they have done their work.

mod caller;
mod cookie;
mod denied;
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
use metrics::{Metrics, Reason};
use tokio::time::Instant;

use crate::auth_rate_limit::WrongTokens;
use crate::body::{REST_BYTES_MAX, RPC_BYTES_MAX};
use crate::devices::{Arrival, Devices, NotIn};
use crate::listen::Peer;
use crate::origins::{Names, Page};
use crate::proof::Proofs;
use crate::refusal::Refusal;
use crate::request;
use crate::request_checks;
use crate::tokens::{Digest, Holder, Keys, Maker, SessionTokens};
use crate::web;
use caller::{by_device, by_token};
use denied::Denied;

pub use caller::{Caller, Scope};
pub(super) use caller::{Guest, Jar};
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

/// What this server is, for who is about to come in.
pub(super) const ABOUT: &str = "/auth/about";

/// Where somebody without a token or a cookie comes in, by a code.
pub(super) const ENTRANCE: &str = "/ui/enter";
/// What is said there is short.
const ENTRANCE_BYTES_MAX: usize = 8 << 10;

const CORS_METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const CORS_SENDS: &str = "authorization, content-type, accept, last-event-id, acp-connection-id, acp-session-id, acp-protocol-version";
const CORS_READS: &str = "acp-connection-id, acp-session-id, acp-protocol-version, retry-after";

pub struct GateParts {
    pub keys: Keys,
    pub names: Names,
    /// A proxy stands before us, and says in `X-Forwarded-For` for whom it speaks.
    pub behind_proxy: bool,
    /// Random; the tokens of sessions are made from it.
    pub seed: [u8; 32],
}

pub struct Gate {
    keys: Keys,
    names: Names,
    /// Of further listeners.
    also: Vec<Names>,
    cookie: Arc<str>,
    behind_proxy: bool,
    open: AtomicBool,
    following: Once,
    sessions: Mutex<SessionTokens>,
    wrong: Mutex<WrongTokens>,
}

impl Gate {
    pub fn new(parts: GateParts) -> Self {
        Self {
            keys: parts.keys,
            cookie: cookie::name(parts.names.bound.port()).into(),
            names: parts.names,
            also: Vec::new(),
            behind_proxy: parts.behind_proxy,
            open: AtomicBool::new(false),
            following: Once::new(),
            sessions: Mutex::new(SessionTokens::new(Maker::new(parts.seed))),
            wrong: Mutex::default(),
        }
    }

    /// There is one more listener, with names of its own.
    pub fn also(mut self, names: Names) -> Self {
        self.also.push(names);
        self
    }

    /// The names of the listener that a request came by.
    fn names(&self, request: &Request) -> &Names {
        let local = request.extensions().get::<Peer>().map(|peer| peer.local);
        self.also.iter().find(|names| Some(names.bound) == local).unwrap_or(&self.names)
    }

    fn jar(&self, request: &Request) -> Jar {
        let secure = self.names(request).secure || self.behind_proxy;
        Jar { name: Arc::clone(&self.cookie), secure }
    }

    /// How long somebody who showed wrong codes or tokens has to wait. On loopback a code that cannot
    /// be guessed is always looked at, for the reason given at `identify`.
    pub(super) fn wait(&self, address: IpAddr, guessable: bool) -> Option<Duration> {
        let wait = locked(&self.wrong).wait(address, Instant::now());
        wait.filter(|_| guessable || !address.is_loopback())
    }

    /// A wrong code was shown.
    pub(super) fn count(&self, address: IpAddr) {
        locked(&self.wrong).count(address, Instant::now());
    }

    /// From here on requests are served; before, they are told to come again.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// The same once the sessions have answered, whatever they say: who comes next does not wait for the disk.
    pub async fn open_after(&self, registry: &Registry) {
        let query = ListQuery { limit: 1, ..ListQuery::all(Principal::local()) };
        if let Err(error) = registry.list(query).await {
            tracing::warn!(%error, "the sessions cannot be listed");
        }
        self.open();
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether a caller has to show a token.
    pub fn asks_for_token(&self) -> bool {
        !matches!(self.keys, Keys::None)
    }

    /// A token for one session of this owner. An earlier one stops working.
    pub fn session_token(&self, owner: &Principal, id: &SessionId) -> String {
        locked(&self.sessions).issue(owner, id)
    }

    /// From here on the token of a session goes with the session, by whichever way it is deleted.
    pub fn follow(self: &Arc<Self>, registry: &Registry) {
        self.following.call_once(|| registry.join(Arc::new(Deletions(Arc::downgrade(self)))));
    }

    fn forget(&self, id: &SessionId) {
        locked(&self.sessions).forget(id);
    }

    /// Who shows this token. Where others than this machine's own programs can guess, an address that
    /// was wrong too often is not even compared; on loopback that would let every program lock out
    /// all the others, so there a right token always opens.
    fn identify(&self, token: Option<&str>, address: IpAddr) -> Result<Holder, Denied> {
        if matches!(self.keys, Keys::None) {
            return Ok(Holder::Master);
        }
        let Some(token) = token else {
            return Err(Denied::unauthorized(
                Reason::NoToken,
                "send the header `Authorization: Bearer TOKEN`; a browser signs in by the link of `ropewalk link`",
            ));
        };
        let now = Instant::now();
        let wait = locked(&self.wrong).wait(address, now);
        if let Some(wait) = wait.filter(|_| !address.is_loopback()) {
            return Err(Denied::too_often(wait));
        }
        let digest = Digest::of(token);
        let holder = self.keys.holder(&digest).or_else(|| locked(&self.sessions).holder(&digest));
        if let Some(holder) = holder.filter(|_| !token.is_empty()) {
            return Ok(holder);
        }
        if let Some(wait) = wait {
            return Err(Denied::too_often(wait));
        }
        locked(&self.wrong).count(address, now);
        let message = "this token opens nothing here; the server's own is in the file it named at its start";
        Err(Denied::unauthorized(Reason::BadToken, message))
    }
}

/// Hears of deleted sessions for the gate.
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

/// What the middleware works with: who may come in, and where it counts who may not.
#[derive(Clone)]
pub struct GateState {
    pub gate: Arc<Gate>,
    pub devices: Arc<Devices>,
    pub metrics: Arc<Metrics>,
}

/// The middleware over all routes.
pub async fn pass(State(state): State<GateState>, mut request: Request, next: Next) -> Response {
    let gate = &state.gate;
    let page = match origin(gate, &request) {
        Ok(page) => page,
        Err(denied) => return refused(&state, &request, denied),
    };
    // A page that may talk to us may also read why it was refused.
    let named = (page == Some(Page::Named)).then(|| request.headers().get(ORIGIN).cloned()).flatten();
    let answer = if named.is_some() && is_preflight(&request) {
        preflight()
    } else {
        match admit(&state, page, &mut request).await {
            Ok(renewed) => with_cookie(counted(&state, next.run(request).await), renewed),
            Err(denied) => refused(&state, &request, denied),
        }
    };
    dressed(answer, named)
}

/// A route that sends a cookie itself knows better.
fn with_cookie(mut response: Response, cookie: Option<HeaderValue>) -> Response {
    if let Some(cookie) = cookie {
        response.headers_mut().entry(SET_COOKIE).or_insert(cookie);
    }
    response
}

/// Whether the request is meant for us, and which page it comes from.
fn origin(gate: &Gate, request: &Request) -> Result<Option<Page>, Denied> {
    request_checks::page(gate.names(request), request).map_err(|refusal| {
        let reason = if refusal.1.contains("host") { Reason::BadHost } else { Reason::BadOrigin };
        Denied::by(reason)(refusal)
    })
}

/// Finds out who calls and what they may reach, and prepares the request for its route. Answers with a
/// cookie that is to be sent again.
async fn admit(
    state: &GateState,
    page: Option<Page>,
    request: &mut Request,
) -> Result<Option<HeaderValue>, Denied> {
    let gate = &state.gate;
    request::no_token_in_url(request.uri()).map_err(Denied::by(Reason::TokenInUrl))?;
    let token = request::take_token(request.headers_mut()).map_err(Denied::by(Reason::BadToken))?;
    let counts = cookie::counts(request, page);
    let key = cookie::take(request.headers_mut(), &gate.cookie).filter(|_| counts);
    let proofs = Proofs::take(request.headers_mut());
    let path = request.uri().path();
    if PUBLIC.contains(&path) || web::is_public(path) {
        return Ok(None);
    }
    let jar = gate.jar(request);
    request.extensions_mut().insert(jar.clone());
    if request.uri().path() == ENTRANCE {
        let guest = Guest { address: address(gate, request), key };
        request.extensions_mut().insert(guest);
        prepare(gate, request, ENTRANCE_BYTES_MAX)?;
        return Ok(None);
    }
    let arrival = match &key {
        Some(key) if token.is_none() => arrived(state, key, &proofs, &jar).await?,
        _ => None,
    };
    let renewed = match &arrival {
        Some(arrival) if arrival.renew => jar.cookie(key.as_deref()),
        _ => None,
    };
    let here = request_checks::at_machine(request);
    let caller = match arrival {
        Some(arrival) => by_device(arrival.visitor, here && !gate.behind_proxy),
        // Where no token is asked for, nobody shows who they are.
        None => {
            by_token(gate.identify(token.as_deref(), address(gate, request))?, here && gate.asks_for_token())
        }
    };
    reach(&caller, request.uri().path())?;
    if let Some(peer) = request.extensions().get::<Peer>() {
        peer.admit();
    }
    let max = if matches!(request.uri().path(), "/acp" | "/acp/") { RPC_BYTES_MAX } else { REST_BYTES_MAX };
    prepare(gate, request, max)?;
    request.extensions_mut().insert(caller);
    Ok(renewed)
}

/// Who has this key and its proof. A key that opens nothing any more is forgotten by its browser; where
/// nobody needs one, it does not matter.
async fn arrived(
    state: &GateState,
    key: &str,
    proofs: &Proofs,
    jar: &Jar,
) -> Result<Option<Arrival>, Denied> {
    // A client that is no longer named has no browsers either.
    let known = |arrival: Arrival| {
        if state.gate.keys.know(&arrival.visitor.principal) { Ok(arrival) } else { Err(NotIn::Unknown) }
    };
    let refused = match state.devices.arrival(key, proofs).await.and_then(known) {
        Ok(arrival) => return Ok(Some(arrival)),
        Err(_) if !state.gate.asks_for_token() => return Ok(None),
        Err(refused) => refused,
    };
    let denied = |code, message: &str| {
        Denied::by(Reason::BadToken)(Refusal::new(StatusCode::UNAUTHORIZED, code, message))
    };
    Err(match refused {
        NotIn::Unknown => {
            let message = "this device is signed out; `ropewalk link` prints a link that signs in";
            denied("signed_out", message).with(jar.cookie(None))
        }
        // The cookie stays: any page of this host can make a browser send it here without the proof.
        NotIn::Unproven => denied(
            "sign_in_again",
            "the cookie alone signs nobody in, and the proof that the app keeps beside it is missing or \
             wrong; sign in again with the link that `ropewalk up` or `ropewalk link` prints",
        ),
    })
}

/// Whether a caller may be on this path.
fn reach(caller: &Caller, path: &str) -> Result<(), Denied> {
    if let Scope::Session(id) = &caller.scope
        && request::session_segment(path) != Some(id.as_str())
    {
        return Err(Denied::unauthorized(Reason::Forbidden, "this token opens its own session only"));
    }
    // The numbers are of everybody's sessions.
    if path == "/metrics" && caller.principal != Principal::local() {
        let refusal = Refusal::new(StatusCode::FORBIDDEN, "admin_only", "this takes the server's own token");
        return Err(Denied::by(Reason::Forbidden)(refusal));
    }
    Ok(())
}

/// A request that is known is served from here on, with a body of so many bytes.
fn prepare(gate: &Gate, request: &mut Request, max: usize) -> Result<(), Denied> {
    if !gate.is_open() {
        let message = "the server is starting; try again in a moment";
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "starting", message);
        return Err(Denied::by(Reason::Refused)(refusal));
    }
    request_checks::fit(request, max).map_err(|refusal| {
        let large = refusal.0 == StatusCode::PAYLOAD_TOO_LARGE;
        Denied::by(if large { Reason::TooLarge } else { Reason::MediaType })(refusal)
    })
}

/// Whose wrong tokens are counted.
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

/// An answer to a page that was named lets it read.
fn dressed(response: Response, named: Option<HeaderValue>) -> Response {
    let mut response = request_checks::dressed(response);
    let headers = response.headers_mut();
    if let Some(origin) = named {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(CORS_READS));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// Logs, counts and answers. The path only: a query may hold what belongs to nobody.
fn refused(state: &GateState, request: &Request, denied: Denied) -> Response {
    let (method, path, code) = (request.method(), request.uri().path(), denied.refusal.1);
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    tracing::info!(code, %method, path, ?peer, "a request was refused");
    state.metrics.rejected(denied.reason);
    denied.into_response()
}

/// That a body is too large or stops coming shows only when a route reads it.
fn counted(state: &GateState, answer: Response) -> Response {
    match answer.status() {
        StatusCode::PAYLOAD_TOO_LARGE => state.metrics.rejected(Reason::TooLarge),
        StatusCode::REQUEST_TIMEOUT => state.metrics.rejected(Reason::TooSlow),
        _ => {}
    }
    answer
}
