//! Client for a running server: commands call it over its HTTP door, with its token.

mod pinned_tls;

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
use wire::json_errors;
use wire::native::{Invitation, ReplyBody};

use crate::cli::ServerChoice;
use crate::cli_error::CliError;
use crate::http_tokens;
use crate::running_servers::{self, RunningServer};

/// From connecting to the last byte of the response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between requests while a server starts.
const START_PAUSE: Duration = Duration::from_millis(50);
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A running server and how to reach it.
pub struct Server {
    address: SocketAddr,
    token: Option<String>,
    /// The digest of the certificate that it must present.
    certificate: Option<Digest>,
}

impl Server {
    /// The running server, or the chosen one if several run.
    pub fn find(choice: &ServerChoice) -> Result<Self, CliError> {
        let mut servers = running_servers::all()?;
        if let Some(port) = choice.port {
            servers.retain(|server| server.port == port);
        }
        match servers.as_slice() {
            [] => Err(match choice.port {
                Some(port) => CliError::failed(format!("no server is running on port {port}"))
                    .fix("see `ropewalk serve status`, or leave out --port"),
                None => CliError::failed("no server is running").fix("start one with `ropewalk up`"),
            }),
            [server] => Self::of(server),
            several => {
                let addresses: Vec<&str> = several.iter().map(RunningServer::address).collect();
                Err(CliError::usage("more than one server is running")
                    .because(addresses.join(", "))
                    .fix("choose one with --port"))
            }
        }
    }

    pub fn of(server: &RunningServer) -> Result<Self, CliError> {
        Self::with_token(server, None)
    }

    /// The same, with a token that may be the right one.
    pub fn with_token(server: &RunningServer, given: Option<&str>) -> Result<Self, CliError> {
        let (scheme, address) = server.address().split_once("://").unwrap_or_default();
        let address: SocketAddr = address.parse().map_err(|_| {
            CliError::failed(format!("the server has an unusable address: {}", server.address()))
        })?;
        let certificate = server.certificate_digest();
        if scheme != "http" && certificate.is_none() {
            return Err(CliError::failed(format!("the server at {address} did not record its certificate"))
                .fix("run `ropewalk serve stop`, then start it as before"));
        }
        let address = match address.ip().is_unspecified() {
            true => SocketAddr::from(([127, 0, 0, 1], address.port())),
            false => address,
        };
        let token = match server.token_digest() {
            None => None,
            Some(digest) => Some(match given.filter(|token| Digest::of(token).is(&digest)) {
                Some(token) => token.to_owned(),
                None => http_tokens::matching(&digest)?.ok_or_else(|| {
                    CliError::failed("the token of the running server is not known")
                        .fix("set ROPEWALK_SERVER_TOKEN to the token it was started with")
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
    pub async fn link(&self) -> Result<String, CliError> {
        let answer = self.post("/ui/link", "{}".into()).await?;
        let url = answer["url"].as_str().map(str::to_owned);
        url.ok_or_else(|| CliError::failed("the server returned no link"))
    }

    /// Creates a pairing code for one device.
    pub async fn invite(&self, role: wire::native::Role) -> Result<Invitation, CliError> {
        match self.ask(&wire::native::Request::Invite { role }).await? {
            ReplyBody::Invited(invitation) => Ok(invitation),
            _ => Err(CliError::failed("the server returned no invitation")),
        }
    }

    /// Sends a request about devices.
    pub async fn ask(&self, request: &wire::native::Request) -> Result<ReplyBody, CliError> {
        let unclear = |reason: String| {
            CliError::failed("the server's answer could not be understood; its version may differ")
                .because(reason)
        };
        let body = serde_json::to_string(request).map_err(|error| unclear(error.to_string()))?;
        let answer = self.post("/ui/hall", body).await?;
        json_errors::read_value(answer, "", "the answer").map_err(|error| unclear(error.to_string()))
    }

    async fn post(&self, path: &str, body: String) -> Result<Value, CliError> {
        let broken = |reason: String| {
            CliError::failed(format!("could not reach the server at {}", self.address)).because(reason)
        };
        let (status, bytes) = match tokio::time::timeout(TIMEOUT, self.send_when_ready(path, body)).await {
            Err(_) => return Err(broken("it did not answer in time".into())),
            Ok(sent) => sent.map_err(|error| broken(error.to_string()))?,
        };
        let value: Value =
            json_errors::read_bytes(&bytes, "its answer").map_err(|error| broken(error.to_string()))?;
        if status.is_success() {
            return Ok(value);
        }
        let message = value["message"].as_str().unwrap_or("the request failed");
        Err(CliError::failed(message.to_owned()).because(format!("the server answered {status}")))
    }

    /// Retries while the server is starting.
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

    /// A connection that is safe for the token: with TLS, the certificate has been verified.
    pub async fn connect(&self) -> anyhow::Result<ServerStream> {
        let stream = TcpStream::connect(self.address).await?;
        Ok(match self.certificate {
            Some(certificate) => {
                Box::new(pinned_tls::connect(stream, self.address.ip(), certificate).await?) as ServerStream
            }
            None => Box::new(stream),
        })
    }
}

/// A byte stream, with or without TLS.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

pub type ServerStream = Box<dyn Duplex>;

/// Sends one request and reads the response.
async fn exchange(
    stream: ServerStream,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let asking = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the response was incomplete: {error}"))?;
        anyhow::Ok((status, body.to_bytes()))
    };
    tokio::pin!(connection);
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        ended = &mut connection => {
            // The whole response may have arrived before the connection ended.
            ended?;
            asking.await
        }
    }
}

/// Runs the requests of a short command.
pub fn run<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| CliError::failed("could not start the async runtime").because(error))?;
    runtime.block_on(work)
}
