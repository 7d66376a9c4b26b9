//! Requests to the receiver. Each carries the token, none follows where an answer leads, and of an answer
//! only so much is read as it may have.
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
use wire::json;
use wire::tunnel::{
    FRAME_BYTES_MAX, HUB_HEADER, Heartbeat, PROCESS_HEADER, PROTOCOL, Registered, Registration,
};

use super::address::Address;
use super::pace::Pace;
use super::pipe::time_for;
use super::trouble::Trouble;
use super::trust;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The answer to a registration.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long a question may wait at the receiver before it is answered with nothing.
const POLL_WAIT: Duration = Duration::from_secs(25);
const TOKEN_BYTES_MAX: usize = 4096;
/// A connection's name, as the receiver made it.
const CONNECTION_BYTES_MAX: usize = 128;

/// What opens the receiver: pinned for as long as the bridge lives, and shown nowhere.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// Nothing, if it cannot be sent in a header.
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

/// Whose tunnel it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    Session(String),
    Machine(String),
}

impl Whose {
    fn path(&self) -> Vec<&str> {
        match self {
            Self::Session(id) => vec![id],
            Self::Machine(id) => vec!["machine", id],
        }
    }
}

/// A socket that the receiver opened.
pub(super) struct Socket {
    pub stream: Upgraded,
    /// The receiver keeps a mirror.
    pub mirror: bool,
}

pub(super) struct Post {
    client: Client,
    address: Address,
    token: Token,
    pace: Pace,
    /// The receiver said that it is a hub.
    hub: watch::Sender<bool>,
}

impl Post {
    pub fn new(address: Address, token: Token, pace: Pace) -> Result<Self, Trouble> {
        choose_arithmetic();
        let client = match address.is_insecure() {
            true => Client::builder().danger_accept_invalid_certs(true),
            false => Client::builder().tls_backend_preconfigured(trust::client_config()?),
        };
        let client = client
            .redirect(Policy::none())
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(2)
            .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| Trouble::untrusting(&error))?;
        Ok(Self { client, address, token, pace, hub: watch::Sender::new(false) })
    }

    pub fn is_hub(&self) -> bool {
        *self.hub.borrow()
    }

    /// Waits until the receiver says that it is a hub, if it ever does.
    pub async fn hub_known(&self) {
        // The sender is held here.
        drop(self.hub.subscribe().wait_for(|hub| *hub).await);
    }

    /// Asks a receiver that no session was registered at whether it is a hub: by a heartbeat for the machine, which is
    /// no session anywhere. Says so too if the token is not let in.
    pub async fn look_for_hub(&self, machine: &str, beat: &Heartbeat) -> Result<(), Trouble> {
        /// What hubs answer that do not send [`HUB_HEADER`] yet.
        #[derive(serde::Deserialize)]
        struct Refused {
            error: String,
        }
        let url = self.address.below(&["api", "sessions", machine, "heartbeat"]);
        let request = self.request(Method::POST, url);
        let request = request.header(CONTENT_TYPE, "application/json").body(encoded(beat)?);
        let answer = self.sent(request, self.pace.answer).await?;
        if answer.status() != StatusCode::NOT_FOUND {
            return if answer.status().is_success() {
                Ok(())
            } else {
                Err(refused("the heartbeat", &answer))
            };
        }
        let read = read::<Refused>(answer, ANSWER_BYTES_MAX, self.pace.answer).await;
        if read.is_ok_and(|refused| refused.error == "unknown_id") {
            self.hub.send_replace(true);
        }
        Ok(())
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    pub async fn register(&self, registration: &Registration) -> Result<Registered, Trouble> {
        let url = self.address.below(&["api", "sessions"]);
        let body = encoded(registration)?;
        let answer = self.ask("the registration", Method::POST, url, Some(body), self.pace.answer).await?;
        read(answer, ANSWER_BYTES_MAX, self.pace.answer).await
    }

    /// `process` is who beats: another one may have a copy of the same log.
    pub async fn heartbeat(&self, session: &str, beat: &Heartbeat, process: &str) -> Result<(), Trouble> {
        let url = self.address.below(&["api", "sessions", session, "heartbeat"]);
        let request = self.with_process(self.request(Method::POST, url), process);
        let request = request.header(CONTENT_TYPE, "application/json").body(encoded(beat)?);
        self.succeeded("the heartbeat", request, self.pace.answer).await.map(drop)
    }

    /// `process` is who leaves.
    pub async fn farewell(&self, session: &str, process: &str) -> Result<(), Trouble> {
        let url = self.address.below(&["api", "sessions", session]);
        let request = self.with_process(self.request(Method::DELETE, url), process);
        self.succeeded("the farewell", request, self.pace.farewell).await.map(drop)
    }

    /// The same of a session that is deleted: nothing of it is to be kept at a hub either. Other receivers know only the
    /// plain farewell.
    pub async fn deleted(&self, session: &str) -> Result<(), Trouble> {
        let mut url = self.address.below(&["api", "sessions", session]);
        if self.is_hub() {
            url.query_pairs_mut().append_pair("deleted", "true");
        }
        self.ask("the farewell", Method::DELETE, url, None, self.pace.farewell).await.map(drop)
    }

    /// The socket that a registration named.
    pub async fn session_socket(&self, registered: &Registered) -> Result<Socket, Trouble> {
        let elsewhere = || Trouble::Elsewhere { named: super::trouble::quoted(&registered.ws_url) };
        let url = self.address.socket(&registered.ws_url).ok_or_else(elsewhere)?;
        self.socket(url).await
    }

    pub async fn machine_socket(&self, machine: &str) -> Result<Socket, Trouble> {
        let socket = self.socket(self.address.below(&["ws", "machine", machine])).await?;
        if socket.mirror {
            return Ok(socket);
        }
        // Its sessions have sockets; this one it does not understand.
        Err(Trouble::Answered { what: "the machine's socket", status: 101 })
    }

    async fn socket(&self, url: Url) -> Result<Socket, Trouble> {
        let key = generate_key();
        let request = self
            .request(Method::GET, url)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
        // A proxy may wait for ever for something that it does not understand.
        let answer = tokio::time::timeout(self.pace.answer, request.send()).await;
        let answer = answer.map_err(|_| Trouble::Swallowed)?.map_err(|error| Trouble::unsent(&error))?;
        let status = answer.status();
        if status.is_redirection() {
            // Whatever stands in the way of sockets may answer so; the registration went through.
            return Err(Trouble::Answered { what: "the socket", status: status.as_u16() });
        }
        if status != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refused("the socket", &answer));
        }
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if header(SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes()).as_str()) {
            return Err(Trouble::malformed("an upgrade that is no WebSocket's"));
        }
        let mirror = match header(SEC_WEBSOCKET_PROTOCOL) {
            None => false,
            Some(PROTOCOL) => true,
            Some(other) => return Err(Trouble::malformed(format!("the sub-protocol {other}"))),
        };
        if mirror {
            self.hub.send_replace(true);
        }
        let upgraded = tokio::time::timeout(self.pace.answer, answer.upgrade()).await;
        let stream = upgraded.map_err(|_| Trouble::Swallowed)?.map_err(|error| Trouble::unsent(&error))?;
        Ok(Socket { stream, mirror })
    }

    /// Begins a tunnel without a socket, and gives its name.
    pub async fn open(&self, whose: &Whose) -> Result<String, Trouble> {
        #[derive(serde::Deserialize)]
        struct Opened {
            connection: String,
        }
        let url = self.tunnel(whose, &["open"]);
        let answer = self.ask("the tunnel", Method::POST, url, None, self.pace.answer).await?;
        let Opened { connection } = read(answer, ANSWER_BYTES_MAX, self.pace.answer).await?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if connection.is_empty() || connection.len() > CONNECTION_BYTES_MAX || !connection.bytes().all(plain)
        {
            return Err(Trouble::malformed("the name of a connection"));
        }
        Ok(connection)
    }

    /// Hands frames over, and gives what the receiver says at once.
    pub async fn up(&self, whose: &Whose, connection: &str, body: Vec<u8>) -> Result<Vec<u8>, Trouble> {
        let mut url = self.tunnel(whose, &["up"]);
        url.query_pairs_mut().append_pair("connection", connection);
        let patience = self.pace.answer + time_for(body.len());
        let answer = self.ask("the tunnel", Method::POST, url, Some(body), patience).await?;
        bytes(answer, FRAME_BYTES_MAX, self.pace.answer).await
    }

    /// Waits for what the receiver says.
    pub async fn down(&self, whose: &Whose, connection: &str) -> Result<Vec<u8>, Trouble> {
        let mut url = self.tunnel(whose, &["down"]);
        let wait = POLL_WAIT.as_secs().to_string();
        url.query_pairs_mut().append_pair("connection", connection).append_pair("wait", &wait);
        let patience = POLL_WAIT + self.pace.answer;
        let answer = self.ask("the tunnel", Method::GET, url, None, patience).await?;
        bytes(answer, FRAME_BYTES_MAX, self.pace.answer).await
    }

    pub async fn close(&self, whose: &Whose, connection: &str) {
        let mut url = self.tunnel(whose, &[]);
        url.query_pairs_mut().append_pair("connection", connection);
        // The receiver forgets it by itself too.
        drop(self.ask("the tunnel", Method::DELETE, url, None, self.pace.farewell).await);
    }

    fn tunnel(&self, whose: &Whose, verb: &[&str]) -> Url {
        let path: Vec<&str> =
            ["api", "tunnel"].into_iter().chain(whose.path()).chain(verb.iter().copied()).collect();
        self.address.below(&path)
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, self.token.0.clone());
        self.client.request(method, url).headers(headers)
    }

    /// Says who asks, to a hub alone: no other receiver knows the header.
    fn with_process(&self, request: RequestBuilder, process: &str) -> RequestBuilder {
        if self.is_hub() { request.header(PROCESS_HEADER, process) } else { request }
    }

    async fn ask(
        &self,
        what: &'static str,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
        patience: Duration,
    ) -> Result<Response, Trouble> {
        let mut request = self.request(method, url);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        self.succeeded(what, request, patience).await
    }

    async fn succeeded(
        &self,
        what: &'static str,
        request: RequestBuilder,
        patience: Duration,
    ) -> Result<Response, Trouble> {
        let answer = self.sent(request, patience).await?;
        if answer.status().is_success() { Ok(answer) } else { Err(refused(what, &answer)) }
    }

    async fn sent(&self, request: RequestBuilder, patience: Duration) -> Result<Response, Trouble> {
        match tokio::time::timeout(patience, request.send()).await {
            Ok(Ok(answer)) => {
                if answer.headers().get(HUB_HEADER).is_some_and(|value| value == PROTOCOL) {
                    self.hub.send_replace(true);
                }
                Ok(answer)
            }
            Ok(Err(error)) => Err(Trouble::unsent(&error)),
            Err(_) => Err(too_slow()),
        }
    }
}

fn refused(what: &'static str, answer: &Response) -> Trouble {
    let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    Trouble::answered(what, answer.status().as_u16(), location)
}

fn too_slow() -> Trouble {
    Trouble::Unreachable { reason: "it takes too long".into() }
}

fn encoded(value: &impl serde::Serialize) -> Result<Vec<u8>, Trouble> {
    serde_json::to_vec(value).map_err(Trouble::malformed)
}

async fn read<T: DeserializeOwned>(answer: Response, most: usize, patience: Duration) -> Result<T, Trouble> {
    json::read_bytes(&bytes(answer, most, patience).await?, "the answer").map_err(Trouble::malformed)
}

async fn bytes(mut answer: Response, most: usize, patience: Duration) -> Result<Vec<u8>, Trouble> {
    let reading = async {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| Trouble::unsent(&error))? {
            if body.len() + piece.len() > most {
                return Err(Trouble::malformed(format!("more than {most} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    };
    tokio::time::timeout(patience, reading).await.unwrap_or_else(|_| Err(too_slow()))
}
