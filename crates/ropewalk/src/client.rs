//! How commands ask a server that runs: over its own HTTP door, with its token.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use wire::native::{Answered, Invitation};

use crate::cli::ServerChoice;
use crate::running::{self, Found};
use crate::tokens;
use crate::trouble::Trouble;

/// From the connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A server that can be asked.
pub struct Server {
    address: SocketAddr,
    token: Option<String>,
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
        let Some(address) = server.address().strip_prefix("http://") else {
            return Err(Trouble::failed(format!("{} speaks TLS only", server.address()))
                .because("commands ask a server on loopback")
                .fix("start it with `ropewalk up --lan`, which listens on loopback too"));
        };
        let address: SocketAddr = address
            .parse()
            .map_err(|_| Trouble::failed(format!("{address} is no address that can be asked")))?;
        let address = match address.ip().is_unspecified() {
            true => SocketAddr::from(([127, 0, 0, 1], address.port())),
            false => address,
        };
        let token = match server.token_digest() {
            None => None,
            Some(digest) => Some(tokens::matching(&digest)?.ok_or_else(|| {
                Trouble::failed("the token of the server that runs is not known here")
                    .fix("set ROPEWALK_SERVER_TOKEN to the one that it was started with")
            })?),
        };
        Ok(Self { address, token })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
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
        let unclear = |error: serde_json::Error| {
            Trouble::failed("the server and this command do not understand each other").because(error)
        };
        let body = serde_json::to_string(request).map_err(unclear)?;
        let answer = self.post("/ui/hall", body).await?;
        serde_json::from_value(answer).map_err(unclear)
    }

    async fn post(&self, path: &str, body: String) -> Result<Value, Trouble> {
        let broken = |reason: String| {
            Trouble::failed(format!("the server at {} cannot be asked", self.address)).because(reason)
        };
        match tokio::time::timeout(PATIENCE, self.send(path, body)).await {
            Err(_) => Err(broken("it did not answer in time".into())),
            Ok(Err(error)) => Err(broken(error.to_string())),
            Ok(Ok((status, bytes))) => {
                let value: Value =
                    serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
                if status.is_success() {
                    return Ok(value);
                }
                let message = value["message"].as_str().unwrap_or("it said no more than that");
                Err(Trouble::failed(message.to_owned()).because(format!("the server answered {status}")))
            }
        }
    }

    async fn send(&self, path: &str, body: String) -> anyhow::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
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
}

/// For commands that ask a few things and end.
pub fn run<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::failed("nothing can be asked").because(error))?;
    runtime.block_on(work)
}
