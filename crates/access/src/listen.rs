//! The listener: accepts connections, bounds how many there are, and how long each may keep us waiting.
//!
//! `axum::serve` waits for ever for a request that was begun and never finished. Here a connection has
//! to send its first byte soon, to finish its request soon, and to be authenticated to keep its slot
//! when others want it.

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use metrics::{ConnectionGuard, DoorLabel, Metrics, RejectReason};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection_limit::{
    CONNECTIONS_MAX, ConnectionLimit, ConnectionRefusal, ConnectionSlot, PER_ADDRESS_MAX,
};
use crate::stream_with_slot::SlotStream;
use crate::tls::Tls;

/// Until the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// For the head of a request, from its first byte to its last.
const HEAD: Duration = Duration::from_secs(5);
/// Until the first request of a connection is there, in whichever version of HTTP.
const FIRST_REQUEST: Duration = Duration::from_secs(15);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long answers that are under way at the end may take.
const FINISH_GRACE: Duration = Duration::from_secs(3);
/// When no connection can be taken, for want of descriptors for example, the next try is after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a refused client may take to read the refusal.
const GOODBYE: Duration = Duration::from_millis(200);
/// Refusals that are written at once; beyond that connections are closed without one.
const GOODBYES_MAX: usize = 32;
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
const STREAMS_MAX: u32 = 128;
/// Streams of one connection that were reset before we came to them: a client that goes on is cut off.
const RESETS_MAX: usize = 32;
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WAIT: Duration = Duration::from_secs(20);

/// The other end of a request's connection, in the request's extensions.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// The address that we listen on for it.
    pub(super) local: SocketAddr,
    slot: Arc<ConnectionSlot>,
    hang_up: CancellationToken,
}

impl Peer {
    /// A token was shown on this connection.
    pub fn admit(&self) {
        self.slot.admit();
    }

    /// Ends the connection, whatever is under way on it: its other end has stopped reading.
    pub fn hang_up(&self) {
        self.hang_up.cancel();
    }
}

/// A bound address, not yet served.
pub struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    connections_max: usize,
    per_address_max: usize,
    metrics: Option<Arc<Metrics>>,
}

impl BoundListener {
    pub async fn bind(address: SocketAddr, tls: Option<Tls>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (connections_max, per_address_max) = (CONNECTIONS_MAX, PER_ADDRESS_MAX);
        Ok(Self { listener, address, tls, connections_max, per_address_max, metrics: None })
    }

    /// Allows fewer connections at once, where the process may not have as many descriptors.
    pub fn at_most(self, connections: usize) -> Self {
        Self { connections_max: connections.clamp(1, CONNECTIONS_MAX), ..self }
    }

    /// Allows more connections: a hub has a connection for each bridged session, and behind a proxy all of them come from
    /// one address.
    pub fn with_room(self, connections: usize, per_address: usize) -> Self {
        Self { connections_max: connections.max(1), per_address_max: per_address.max(1), ..self }
    }

    /// Counts connections in these metrics, refused ones too.
    pub fn counted(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Where a browser would go.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_secure() { "https" } else { "http" }, self.address)
    }

    /// Serves until it is told to stop, and then ends what is under way.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        let limit = ConnectionLimit::new(self.connections_max, self.per_address_max);
        let goodbyes = Arc::new(tokio::sync::Semaphore::new(GOODBYES_MAX));
        while let Some((stream, address)) = self.next(&stop).await {
            match limit.acquire(address.ip()) {
                Ok(slot) => {
                    let peer = Peer {
                        address,
                        local: self.address,
                        slot: Arc::new(slot),
                        hang_up: CancellationToken::new(),
                    };
                    let count = self.metrics.as_ref().map(|metrics| metrics.connection(DoorLabel::Http));
                    let connection =
                        HttpConnection { peer, router: router.clone(), stop: stop.clone(), _count: count };
                    tasks.spawn(connection.run(stream, self.tls.clone()));
                }
                Err(full) => {
                    tracing::info!(%address, ?full, "could not accept a connection");
                    if let Some(metrics) = &self.metrics {
                        metrics.rejected(RejectReason::Connections);
                    }
                    if let (Ok(permit), None) = (Arc::clone(&goodbyes).try_acquire_owned(), &self.tls) {
                        tasks.spawn(async move {
                            goodbye(stream, full).await;
                            drop(permit);
                        });
                    }
                }
            }
        }
        drop(self.listener);
        tasks.close();
        if tokio::time::timeout(FINISH_GRACE + GOODBYE, tasks.wait()).await.is_err() {
            tracing::info!("some connections did not end in time");
        }
    }

    async fn next(&self, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => return Some(accepted),
                Err(error) => {
                    tracing::info!(%error, "could not accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Tells a client that the connection limit is reached.
async fn goodbye(mut stream: TcpStream, full: ConnectionRefusal) {
    let message = match full {
        ConnectionRefusal::House => "connection limit reached; try again in a moment",
        ConnectionRefusal::Address => "too many connections from this address; close some",
    };
    let body = format!("{{\"error\":\"too_many_connections\",\"message\":\"{message}\"}}");
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close";
    let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // Who does not read it is not told.
    drop(tokio::time::timeout(GOODBYE, stream.write_all(text.as_bytes())).await);
}

/// The TLS handshake. `None` if the client spoke plain HTTP: it is told to use TLS, and its request is not read.
async fn handshake(mut stream: TcpStream, tls: &Tls) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    // Every TLS connection begins with a record of this one type, and no request does.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
        let body =
            "{\"error\":\"tls_required\",\"message\":\"this port speaks TLS; use https:// or wss://\"}";
        let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close";
        let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        // The rest of the request is read, or closing would send a reset, which overtakes the answer.
        let mut rest = (&mut stream).take(HEAD_BYTES_MAX as u64);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        return Ok(None);
    }
    tls.acceptor.accept(stream).await.map(Some)
}

/// One connection that is served.
struct HttpConnection {
    peer: Peer,
    router: Router,
    stop: CancellationToken,
    /// Counts it for as long as it is served.
    _count: Option<ConnectionGuard>,
}

impl HttpConnection {
    async fn run(self, stream: TcpStream, tls: Option<Tls>) {
        // Without this an answer in small pieces waits for the client's delayed acknowledgements: 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection ended during the handshake");
            return;
        }
        let slot = Arc::clone(&self.peer.slot);
        let hang_up = self.peer.hang_up.clone();
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = slot.evicted() => tracing::debug!("a connection was closed to make room for another"),
            () = hang_up.cancelled() => tracing::debug!("a connection was closed: its client did not read for too long"),
            () = self.talk(stream, tls, stop) => {}
        }
    }

    async fn talk(self, stream: TcpStream, tls: Option<Tls>, stop: CancellationToken) {
        match tls {
            Some(tls) => match tokio::time::timeout(HANDSHAKE, handshake(stream, &tls)).await {
                Ok(Ok(Some(stream))) => self.serve(stream, stop).await,
                Ok(Ok(None)) => tracing::debug!("an unencrypted request was refused"),
                Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
                Err(_) => tracing::debug!("a handshake took too long"),
            },
            None => match tokio::time::timeout(FIRST_BYTE, stream.readable()).await {
                Ok(Ok(())) => self.serve(stream, stop).await,
                Ok(Err(error)) => tracing::debug!(%error, "a connection ended during the handshake"),
                Err(_) => tracing::debug!("a connection sent nothing"),
            },
        }
    }

    async fn serve<S>(self, stream: S, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (heard, slot) = (CancellationToken::new(), Arc::clone(&self.peer.slot));
        let Self { peer, router, stop: _, _count } = self;
        let (routes, first) = (TowerToHyperService::new(router), heard.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            first.cancel();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            hyper::service::Service::call(&routes, request)
        });
        let builder = builder();
        let stream = TokioIo::new(SlotStream::new(stream, slot));
        let mut connection = pin!(builder.serve_connection_with_upgrades(stream, service));
        let silent = async {
            if tokio::time::timeout(FIRST_REQUEST, heard.cancelled()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = silent => {
                tracing::debug!("a connection sent no request");
                return;
            }
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        // Whatever does not end by then is cut off.
        drop(tokio::time::timeout(FINISH_GRACE, connection).await);
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_header_list_size(64 << 10)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WAIT);
    builder
}
