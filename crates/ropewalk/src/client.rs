//! How commands ask a server that runs: over its own HTTP door, with its token.

mod pinned;

use std::net::SocketAddr;
use std::time::Duration;

use access::Digest;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use wire::json;
use wire::native::{Answered, Invitation};

use crate::cli::ServerChoice;
use crate::running::{self, Found};
use crate::tokens;
use crate::trouble::Trouble;

/// From the connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two questions to a server that starts.
const START_PAUSE: Duration = Duration::from_millis(50);
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A server that can be asked.
pub struct Server {
    address: SocketAddr,
    token: Option<String>,
    /// The certificate that it must show.
    certificate: Option<Digest>,
}

impl Server {
    /// The one that runs, or the one that is meant.
    pub fn find(choice: &ServerChoice) -> Result<Self, Trouble> {
        let mut servers = running::all()?;
        if let Some(port) = choice.port {
            servers.retain(|server| server.port == port);
        }
        match servers.as_slice() {
            [] => Err(Trouble::failed("no server runs").fix("start one: ropewalk up")),
            [server] => Self::of(server),
            several => {
                let addresses: Vec<&str> = several.iter().map(Found::address).collect();
                Err(Trouble::usage("more than one server runs")
                    .because(addresses.join(", "))
                    .fix("name one with --port"))
            }
        }
    }

    pub fn of(server: &Found) -> Result<Self, Trouble> {
        Self::with_token(server, None)
    }

    /// The same for whoever may have been given its token.
    pub fn with_token(server: &Found, given: Option<&str>) -> Result<Self, Trouble> {
        let (scheme, address) = server.address().split_once("://").unwrap_or_default();
        let address: SocketAddr = address
            .parse()
            .map_err(|_| Trouble::failed(format!("{} is no address that can be asked", server.address())))?;
        let certificate = server.certificate_digest();
        if scheme != "http" && certificate.is_none() {
            return Err(Trouble::failed(format!(
                "the server at {address} does not say how it is recognised"
            ))
            .fix("start it again: ropewalk serve stop, then as before"));
        }
        let address = match address.ip().is_unspecified() {
            true => SocketAddr::from(([127, 0, 0, 1], address.port())),
            false => address,
        };
        let token = match server.token_digest() {
            None => None,
            Some(digest) => Some(match given.filter(|token| Digest::of(token).is(&digest)) {
                Some(token) => token.to_owned(),
                None => tokens::matching(&digest)?.ok_or_else(|| {
                    Trouble::failed("the token of the server that runs is not known here")
                        .fix("set ROPEWALK_SERVER_TOKEN to the one that it was started with")
                })?,
            }),
        };
        Ok(Self { address, token, certificate })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn is_secure(&self) -> bool {
        self.certificate.is_some()
    }

    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// A link that signs a browser in.
    pub async fn link(&self) -> Result<String, Trouble> {
        let answer = self.post("/ui/link", "{}".into()).await?;
        let url = answer["url"].as_str().map(str::to_owned);
        url.ok_or_else(|| Trouble::failed("the server gave no link"))
    }

    /// A code with which one more device can knock.
    pub async fn invite(&self, role: wire::native::Role) -> Result<Invitation, Trouble> {
        match self.ask(&wire::native::Request::Invite { role }).await? {
            Answered::Invited(invitation) => Ok(invitation),
            _ => Err(Trouble::failed("the server gave no invitation")),
        }
    }

    /// Asks about devices.
    pub async fn ask(&self, request: &wire::native::Request) -> Result<Answered, Trouble> {
        let unclear = |reason: String| {
            Trouble::failed("the server and this command do not understand each other").because(reason)
        };
        let body = serde_json::to_string(request).map_err(|error| unclear(error.to_string()))?;
        let answer = self.post("/ui/hall", body).await?;
        json::read_value(answer, "", "the answer").map_err(|error| unclear(error.to_string()))
    }

    async fn post(&self, path: &str, body: String) -> Result<Value, Trouble> {
        let broken = |reason: String| {
            Trouble::failed(format!("the server at {} cannot be asked", self.address)).because(reason)
        };
        let (status, bytes) = match tokio::time::timeout(PATIENCE, self.send_when_ready(path, body)).await {
            Err(_) => return Err(broken("it did not answer in time".into())),
            Ok(sent) => sent.map_err(|error| broken(error.to_string()))?,
        };
        let value: Value =
            json::read_bytes(&bytes, "its answer").map_err(|error| broken(error.to_string()))?;
        if status.is_success() {
            return Ok(value);
        }
        let message = value["message"].as_str().unwrap_or("it said no more than that");
        Err(Trouble::failed(message.to_owned()).because(format!("the server answered {status}")))
    }

    /// A server that starts asks for a moment.
    async fn send_when_ready(&self, path: &str, body: String) -> anyhow::Result<(StatusCode, Bytes)> {
        loop {
            let answer = self.send(path, body.clone()).await?;
            if answer.0 != StatusCode::SERVICE_UNAVAILABLE {
                return Ok(answer);
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    }

    async fn send(&self, path: &str, body: String) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        exchange(self.connect().await?, request).await
    }

    /// A connection on which the token may be told: a server with a certificate has shown it.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        Ok(match self.certificate {
            Some(certificate) => {
                Box::new(pinned::connect(stream, self.address.ip(), certificate).await?) as Connection
            }
            None => Box::new(stream),
        })
    }
}

/// Bytes both ways, with TLS or without.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

pub type Connection = Box<dyn Duplex>;

/// One request and its answer.
async fn exchange(stream: Connection, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let asking = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
        anyhow::Ok((status, body.to_bytes()))
    };
    tokio::pin!(connection);
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        ended = &mut connection => {
            // What was read before the end may be all that there is to read.
            ended?;
            asking.await
        }
    }
}

/// For commands that ask a few things and end.
pub fn run<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::failed("nothing can be asked").because(error))?;
    runtime.block_on(work)
}
