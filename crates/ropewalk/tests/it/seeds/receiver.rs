//! The remote side of the cloud bridge as its document describes it: four endpoints, over TLS or in the clear.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::task::TaskTracker;

use crate::seeds::program::DEADLINE;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method and path.
    pub what: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
    pub at: Instant,
}

pub struct Receiver {
    pub url: String,
    /// What is to be trusted so that the receiver is, in PEM form.
    pub authority: Option<PathBuf>,
    shared: Arc<Shared>,
    sockets: mpsc::Receiver<Socket>,
    tasks: TaskTracker,
    accepting: tokio::task::JoinHandle<()>,
}

struct Shared {
    host: String,
    secure: bool,
    seen: watch::Sender<Vec<Request>>,
    /// What is answered instead, by the beginning of method and path.
    instead: Mutex<Vec<(&'static str, u16)>>,
    /// Where it says that its socket is, if not where it is itself.
    socket_host: Mutex<Option<String>>,
    sockets: mpsc::Sender<Socket>,
}

/// A bridge's socket, at the receiver.
pub struct Socket(WebSocketStream<BufStream<Box<dyn Stream>>>);

impl Receiver {
    pub async fn plain() -> Self {
        Self::start(None, None).await
    }

    /// With a certificate for `localhost`, of an authority whose file is put into the folder.
    pub async fn secure(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let path = folder.join("authority.pem");
        std::fs::write(&path, authority.pem()).unwrap();
        Self::with_certificate(certificate.der().clone(), &key, path).await
    }

    /// With a certificate for `localhost` that is its own authority, as `openssl req -x509` makes it; its file is put into the
    /// folder.
    pub async fn self_signed(folder: &Path) -> Self {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let path = folder.join("self-signed.pem");
        std::fs::write(&path, certificate.pem()).unwrap();
        Self::with_certificate(certificate.der().clone(), &key, path).await
    }

    async fn with_certificate(certificate: CertificateDer<'static>, key: &KeyPair, trusted: PathBuf) -> Self {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .unwrap();
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), Some(trusted)).await
    }

    async fn start(acceptor: Option<TlsAcceptor>, authority: Option<PathBuf>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let secure = acceptor.is_some();
        let host = if secure { format!("localhost:{port}") } else { format!("127.0.0.1:{port}") };
        let url = format!("{}://{host}", if secure { "https" } else { "http" });
        let (given, sockets) = mpsc::channel(64);
        let shared = Arc::new(Shared {
            host,
            secure,
            seen: watch::Sender::new(Vec::new()),
            instead: Mutex::default(),
            socket_host: Mutex::default(),
            sockets: given,
        });
        let tasks = TaskTracker::new();
        let (inner, connections) = (Arc::clone(&shared), tasks.clone());
        let accepting = tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, inner) = (acceptor.clone(), Arc::clone(&inner));
                connections.spawn(async move {
                    let stream: Box<dyn Stream> = match acceptor {
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => return,
                        },
                        None => Box::new(stream),
                    };
                    serve(&inner, BufStream::new(stream)).await;
                });
            }
        });
        Self { url, authority, shared, sockets, tasks, accepting }
    }

    /// Names its socket at another host from here on.
    pub fn names_socket_at(&self, host: &str) {
        *self.shared.socket_host.lock().unwrap() = Some(host.to_owned());
    }

    pub fn answers(&self, what: &'static str, status: u16) {
        self.shared.instead.lock().unwrap().push((what, status));
    }

    pub async fn socket(&mut self) -> Socket {
        tokio::time::timeout(DEADLINE, self.sockets.recv()).await.expect("a socket").unwrap()
    }

    /// Waits for so many requests whose method and path begin so.
    pub async fn seen(&self, what: &str, count: usize) -> Vec<Request> {
        let mut seen = self.shared.seen.subscribe();
        let of = |seen: &Vec<Request>| {
            seen.iter().filter(|request| request.what.starts_with(what)).cloned().collect::<Vec<_>>()
        };
        let enough = seen.wait_for(|seen| of(seen).len() >= count);
        let seen = tokio::time::timeout(DEADLINE, enough).await.unwrap_or_else(|_| panic!("{count} {what}"));
        of(&seen.unwrap())
    }

    pub fn all(&self) -> Vec<Request> {
        self.shared.seen.borrow().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
        self.tasks.close();
    }
}

async fn serve(shared: &Shared, mut stream: BufStream<Box<dyn Stream>>) {
    loop {
        let Some(request) = read(&mut stream).await else { return };
        let status = {
            let instead = shared.instead.lock().unwrap();
            instead.iter().rfind(|(what, _)| request.what.starts_with(what)).map(|(_, status)| *status)
        };
        let (what, body) = (request.what.clone(), request.body.clone());
        let key = request.headers.get("sec-websocket-key").cloned();
        shared.seen.send_modify(|seen| seen.push(request));
        if let (None, Some(key), true) = (status, key, what.starts_with("GET /ws/")) {
            let accept = derive_accept_key(key.as_bytes());
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
            );
            if stream.write_all(head.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            let web = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
            drop(shared.sockets.send(Socket(web)).await);
            return;
        }
        let answer = if what == "POST /api/sessions" {
            let (session, host) = (body["session_id"].as_str().unwrap_or_default(), &shared.host);
            let (http, ws) = if shared.secure { ("https", "wss") } else { ("http", "ws") };
            let elsewhere = shared.socket_host.lock().unwrap().clone();
            let socket_host = elsewhere.unwrap_or_else(|| host.clone());
            let (ui_url, ws_url) =
                (format!("{http}://{host}/s/{session}"), format!("{ws}://{socket_host}/ws/{session}"));
            json!({ "ui_url": ui_url, "ws_url": ws_url }).to_string()
        } else {
            String::new()
        };
        let head = format!(
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\n\r\n{answer}",
            status.unwrap_or(200),
            answer.len()
        );
        if stream.write_all(head.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufStream<Box<dyn Stream>>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let what = line.trim().strip_suffix(" HTTP/1.1").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Some(Request { what, headers, body, at: Instant::now() })
}

impl Socket {
    pub async fn send(&mut self, frame: &Value) {
        self.0.send(Message::text(format!("{frame}\n"))).await.unwrap();
    }

    /// The next frame, as it came but without the newline that ends it.
    pub async fn next(&mut self) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let message = tokio::time::timeout_at(deadline, self.0.next()).await.expect("a frame in time");
            if let Message::Text(text) = message.expect("the socket is open").unwrap() {
                let line = text.strip_suffix('\n').expect("newline-delimited");
                assert!(!line.contains('\n'), "{line}");
                return line.to_owned();
            }
        }
    }

    /// Frames up to the first that is like this.
    pub async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            let last = is(&serde_json::from_str(&frame).unwrap());
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    /// The parameters of the next update of a kind.
    pub async fn kind(&mut self, kind: &str) -> Value {
        let frames = self.until(|frame| frame["params"]["kind"] == kind).await;
        serde_json::from_str::<Value>(frames.last().unwrap()).unwrap()["params"].take()
    }

    /// Calls a method; gives its answer and what came before it.
    pub async fn call(&mut self, id: u64, method: &str, params: Value) -> (Value, Vec<String>) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let mut frames = self.until(|frame| frame["id"] == id && frame.get("method").is_none()).await;
        let answer = serde_json::from_str(&frames.pop().unwrap()).unwrap();
        (answer, frames)
    }
}
