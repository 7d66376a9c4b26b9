//! The HTTP client for the receiver. Each request carries the token, redirects are not followed, and of an answer
//! only a bounded number of bytes is read.
//!
//! **Invariant:** a receiver that did not say that it is a hub sees the seed's four endpoints and no other.

use std::fmt;
use std::time::Duration;

use access::devices::push::choose_arithmetic;
use reqwest::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Upgraded, Url};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use wire::json_errors;
use wire::tunnel::{
    HUB_HEADER, Heartbeat, PROCESS_HEADER, PROTOCOL, Registration, RegistrationReply, TUNNEL_FRAME_BYTES_MAX,
};

use super::bridge_error::BridgeError;
use super::receiver_address::ReceiverAddress;
use super::receiver_certificate;
use super::timings::BridgeTimings;
use super::tunnel_pipe::time_for;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The answer to a registration.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long a long poll waits at the receiver.
const POLL_WAIT: Duration = Duration::from_secs(25);
const TOKEN_BYTES_MAX: usize = 4096;
/// A connection's name, as the receiver made it.
const CONNECTION_BYTES_MAX: usize = 128;

/// The token for the receiver: fixed for as long as the bridge lives, and never printed.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// `None`, if it cannot be sent in a header.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The session or machine that a tunnel is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TunnelTarget {
    Session(String),
    Machine(String),
}

impl TunnelTarget {
    fn path(&self) -> Vec<&str> {
        match self {
            Self::Session(id) => vec![id],
            Self::Machine(id) => vec!["machine", id],
        }
    }
}

/// A socket that the receiver opened.
pub(super) struct ReceiverSocket {
    pub stream: Upgraded,
    /// The receiver keeps a mirror.
    pub mirror: bool,
}

pub(super) struct ReceiverClient {
    client: Client,
    address: ReceiverAddress,
    token: Token,
    timings: BridgeTimings,
    /// The receiver said that it is a hub.
    hub: watch::Sender<bool>,
}

impl ReceiverClient {
    pub fn new(address: ReceiverAddress, token: Token, timings: BridgeTimings) -> Result<Self, BridgeError> {
        choose_arithmetic();
        let client = match address.is_insecure() {
            true => Client::builder().danger_accept_invalid_certs(true),
            false => Client::builder().tls_backend_preconfigured(receiver_certificate::client_config()?),
        };
        let client = client
            .redirect(Policy::none())
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(2)
            .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| BridgeError::untrusting(&error))?;
        Ok(Self { client, address, token, timings, hub: watch::Sender::new(false) })
    }

    pub fn is_hub(&self) -> bool {
        *self.hub.borrow()
    }

    /// Waits until the receiver says that it is a hub, if it ever does.
    pub async fn hub_known(&self) {
        // The sender is held here.
        drop(self.hub.subscribe().wait_for(|hub| *hub).await);
    }

    /// Finds out whether a receiver without a registered session is a hub: by a heartbeat for the machine's id, which is
    /// no session anywhere. Fails if the token is refused.
    pub async fn look_for_hub(&self, machine: &str, beat: &Heartbeat) -> Result<(), BridgeError> {
        /// The answer of older hubs, which do not send [`HUB_HEADER`].
        #[derive(serde::Deserialize)]
        struct ErrorBody {
            error: String,
        }
        let url = self.address.below(&["api", "sessions", machine, "heartbeat"]);
        let request = self.request(Method::POST, url);
        let request = request.header(CONTENT_TYPE, "application/json").body(encoded(beat)?);
        let answer = self.sent(request, self.timings.answer).await?;
        if answer.status() != StatusCode::NOT_FOUND {
            return if answer.status().is_success() {
                Ok(())
            } else {
                Err(refused("the heartbeat", &answer))
            };
        }
        let read = read::<ErrorBody>(answer, ANSWER_BYTES_MAX, self.timings.answer).await;
        if read.is_ok_and(|refused| refused.error == "unknown_id") {
            self.hub.send_replace(true);
        }
        Ok(())
    }

    pub fn address(&self) -> &ReceiverAddress {
        &self.address
    }

    pub async fn register(&self, registration: &Registration) -> Result<RegistrationReply, BridgeError> {
        let url = self.address.below(&["api", "sessions"]);
        let body = encoded(registration)?;
        let answer = self.ask("the registration", Method::POST, url, Some(body), self.timings.answer).await?;
        read(answer, ANSWER_BYTES_MAX, self.timings.answer).await
    }

    /// `process` identifies the sender: another process may have a copy of the same log.
    pub async fn heartbeat(&self, session: &str, beat: &Heartbeat, process: &str) -> Result<(), BridgeError> {
        let url = self.address.below(&["api", "sessions", session, "heartbeat"]);
        let request = self.with_process(self.request(Method::POST, url), process);
        let request = request.header(CONTENT_TYPE, "application/json").body(encoded(beat)?);
        self.succeeded("the heartbeat", request, self.timings.answer).await.map(drop)
    }

    /// Deregisters a session. `process` identifies the sender.
    pub async fn farewell(&self, session: &str, process: &str) -> Result<(), BridgeError> {
        let url = self.address.below(&["api", "sessions", session]);
        let request = self.with_process(self.request(Method::DELETE, url), process);
        self.succeeded("the sign-off", request, self.timings.farewell).await.map(drop)
    }

    /// The same for a deleted session: a hub deletes it too. Other receivers know only the
    /// plain deregistration.
    pub async fn deleted(&self, session: &str) -> Result<(), BridgeError> {
        let mut url = self.address.below(&["api", "sessions", session]);
        if self.is_hub() {
            url.query_pairs_mut().append_pair("deleted", "true");
        }
        self.ask("the sign-off", Method::DELETE, url, None, self.timings.farewell).await.map(drop)
    }

    /// The socket that a registration named.
    pub async fn session_socket(
        &self,
        registered: &RegistrationReply,
    ) -> Result<ReceiverSocket, BridgeError> {
        let elsewhere = || BridgeError::Elsewhere { named: super::bridge_error::quoted(&registered.ws_url) };
        let url = self.address.socket(&registered.ws_url).ok_or_else(elsewhere)?;
        self.socket(url).await
    }

    pub async fn machine_socket(&self, machine: &str) -> Result<ReceiverSocket, BridgeError> {
        let socket = self.socket(self.address.below(&["ws", "machine", machine])).await?;
        if socket.mirror {
            return Ok(socket);
        }
        // The receiver has sockets for sessions, but does not support this one.
        Err(BridgeError::Answered { what: "the machine's socket", status: 101 })
    }

    async fn socket(&self, url: Url) -> Result<ReceiverSocket, BridgeError> {
        let key = generate_key();
        let request = self
            .request(Method::GET, url)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
        // A proxy that does not understand the upgrade may never answer.
        let answer = tokio::time::timeout(self.timings.answer, request.send()).await;
        let answer =
            answer.map_err(|_| BridgeError::Swallowed)?.map_err(|error| BridgeError::unsent(&error))?;
        let status = answer.status();
        if status.is_redirection() {
            // Something in between that blocks sockets may answer so; the registration went through.
            return Err(BridgeError::Answered { what: "the socket", status: status.as_u16() });
        }
        if status != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refused("the socket", &answer));
        }
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if header(SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes()).as_str()) {
            return Err(BridgeError::malformed("an invalid WebSocket upgrade"));
        }
        let mirror = match header(SEC_WEBSOCKET_PROTOCOL) {
            None => false,
            Some(PROTOCOL) => true,
            Some(other) => return Err(BridgeError::malformed(format!("the sub-protocol {other}"))),
        };
        if mirror {
            self.hub.send_replace(true);
        }
        let upgraded = tokio::time::timeout(self.timings.answer, answer.upgrade()).await;
        let stream =
            upgraded.map_err(|_| BridgeError::Swallowed)?.map_err(|error| BridgeError::unsent(&error))?;
        Ok(ReceiverSocket { stream, mirror })
    }

    /// Opens a tunnel without a socket, and gives its connection id.
    pub async fn open(&self, target: &TunnelTarget) -> Result<String, BridgeError> {
        #[derive(serde::Deserialize)]
        struct OpenReply {
            connection: String,
        }
        let url = self.tunnel(target, &["open"]);
        let answer = self.ask("the tunnel", Method::POST, url, None, self.timings.answer).await?;
        let OpenReply { connection } = read(answer, ANSWER_BYTES_MAX, self.timings.answer).await?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if connection.is_empty() || connection.len() > CONNECTION_BYTES_MAX || !connection.bytes().all(plain)
        {
            return Err(BridgeError::malformed("the name of a connection"));
        }
        Ok(connection)
    }

    /// Sends frames, and gives the frames that the receiver answers at once.
    pub async fn up(
        &self,
        target: &TunnelTarget,
        connection: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, BridgeError> {
        let mut url = self.tunnel(target, &["up"]);
        url.query_pairs_mut().append_pair("connection", connection);
        let timeout = self.timings.answer + time_for(body.len());
        let answer = self.ask("the tunnel", Method::POST, url, Some(body), timeout).await?;
        bytes(answer, TUNNEL_FRAME_BYTES_MAX, self.timings.answer).await
    }

    /// Long-polls for frames of the receiver.
    pub async fn down(&self, target: &TunnelTarget, connection: &str) -> Result<Vec<u8>, BridgeError> {
        let mut url = self.tunnel(target, &["down"]);
        let wait = POLL_WAIT.as_secs().to_string();
        url.query_pairs_mut().append_pair("connection", connection).append_pair("wait", &wait);
        let timeout = POLL_WAIT + self.timings.answer;
        let answer = self.ask("the tunnel", Method::GET, url, None, timeout).await?;
        bytes(answer, TUNNEL_FRAME_BYTES_MAX, self.timings.answer).await
    }

    pub async fn close(&self, target: &TunnelTarget, connection: &str) {
        let mut url = self.tunnel(target, &[]);
        url.query_pairs_mut().append_pair("connection", connection);
        // The receiver would forget it by itself too.
        drop(self.ask("the tunnel", Method::DELETE, url, None, self.timings.farewell).await);
    }

    fn tunnel(&self, target: &TunnelTarget, verb: &[&str]) -> Url {
        let path: Vec<&str> =
            ["api", "tunnel"].into_iter().chain(target.path()).chain(verb.iter().copied()).collect();
        self.address.below(&path)
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, self.token.0.clone());
        self.client.request(method, url).headers(headers)
    }

    /// Adds the process header, for a hub alone: no other receiver knows it.
    fn with_process(&self, request: RequestBuilder, process: &str) -> RequestBuilder {
        if self.is_hub() { request.header(PROCESS_HEADER, process) } else { request }
    }

    async fn ask(
        &self,
        what: &'static str,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Response, BridgeError> {
        let mut request = self.request(method, url);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        self.succeeded(what, request, timeout).await
    }

    async fn succeeded(
        &self,
        what: &'static str,
        request: RequestBuilder,
        timeout: Duration,
    ) -> Result<Response, BridgeError> {
        let answer = self.sent(request, timeout).await?;
        if answer.status().is_success() { Ok(answer) } else { Err(refused(what, &answer)) }
    }

    async fn sent(&self, request: RequestBuilder, timeout: Duration) -> Result<Response, BridgeError> {
        match tokio::time::timeout(timeout, request.send()).await {
            Ok(Ok(answer)) => {
                if answer.headers().get(HUB_HEADER).is_some_and(|value| value == PROTOCOL) {
                    self.hub.send_replace(true);
                }
                Ok(answer)
            }
            Ok(Err(error)) => Err(BridgeError::unsent(&error)),
            Err(_) => Err(too_slow()),
        }
    }
}

fn refused(what: &'static str, answer: &Response) -> BridgeError {
    let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    BridgeError::answered(what, answer.status().as_u16(), location)
}

fn too_slow() -> BridgeError {
    BridgeError::Unreachable { reason: "it did not answer in time".into() }
}

fn encoded(value: &impl serde::Serialize) -> Result<Vec<u8>, BridgeError> {
    serde_json::to_vec(value).map_err(BridgeError::malformed)
}

async fn read<T: DeserializeOwned>(
    answer: Response,
    most: usize,
    timeout: Duration,
) -> Result<T, BridgeError> {
    json_errors::read_bytes(&bytes(answer, most, timeout).await?, "the answer")
        .map_err(BridgeError::malformed)
}

async fn bytes(mut answer: Response, most: usize, timeout: Duration) -> Result<Vec<u8>, BridgeError> {
    let reading = async {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| BridgeError::unsent(&error))? {
            if body.len() + piece.len() > most {
                return Err(BridgeError::malformed(format!("a body of more than {most} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    };
    tokio::time::timeout(timeout, reading).await.unwrap_or_else(|_| Err(too_slow()))
}
