//! A server that runs, for a client in this process: its WebSocket, with its token.
//!
//! This end dials: it answers pings, which the library does, and has nobody to send away. So it shares no code with the pump
//! of the sockets that are accepted (`access::websocket`).

use std::time::Duration;

use ::terminal::{Dial, Dialing, Line};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::{Envelope, Frame};

use crate::client::{Connection, Server};
use crate::running;

/// From the connection to the first frame.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries at a server that starts.
const START_PAUSE: Duration = Duration::from_millis(50);
/// How long one request may take to leave.
const WRITE_WAIT: Duration = Duration::from_secs(30);
const END_WAIT: Duration = Duration::from_secs(1);
/// A server that is silent for this long, although it says something twice a minute, is gone.
const SILENCE_MAX: Duration = Duration::from_secs(80);
/// A view of a session, however long its rows are.
const FRAME_BYTES_MAX: usize = 64 << 20;
const QUEUE_MAX: usize = 64;

/// The sub-protocol of our own clients.
const PROTOCOL: HeaderValue = HeaderValue::from_static("ropewalk.v1");

pub struct Socket {
    port: u16,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Socket {
    pub fn new(port: u16) -> Self {
        Self { port, tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    pub async fn finish(self) {
        self.stop.cancel();
        self.tasks.close();
        // A server that does not say goodbye is not waited for.
        drop(tokio::time::timeout(END_WAIT, self.tasks.wait()).await);
    }
}

impl Dial for Socket {
    fn dial(&self) -> Dialing {
        let (port, tasks, stop) = (self.port, self.tasks.clone(), self.stop.clone());
        Box::pin(async move {
            let stream = connect_when_ready(port).await?;
            let (requests, asked) = mpsc::channel(QUEUE_MAX);
            let (told, frames) = mpsc::channel(QUEUE_MAX);
            drop(tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = carry(stream, asked, told) => {}
                }
            }));
            Ok(Line { requests, frames })
        })
    }
}

/// A server that starts asks for a moment, and gets it.
async fn connect_when_ready(port: u16) -> Result<WebSocketStream<Connection>, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let tried = tokio::time::timeout_at(deadline, connect(port)).await;
        match tried.map_err(|_| "the server did not answer in time".to_owned())? {
            Err(Unconnected::Busy) if Instant::now() + START_PAUSE < deadline => {
                tokio::time::sleep(START_PAUSE).await;
            }
            connected => return connected.map_err(|unconnected| unconnected.to_string()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Unconnected {
    #[error("the server takes no clients at the moment: it starts, stops, or has too many")]
    Busy,
    #[error("{0}")]
    For(String),
}

impl From<String> for Unconnected {
    fn from(why: String) -> Self {
        Self::For(why)
    }
}

/// The server may have been started anew, with another token, so it is looked for every time.
async fn connect(port: u16) -> Result<WebSocketStream<Connection>, Unconnected> {
    let servers = running::all().map_err(|trouble| trouble.in_short())?;
    let found = servers.iter().find(|server| server.port == port);
    let server = Server::of(found.ok_or_else(|| "the server has ended".to_owned())?)
        .map_err(|trouble| trouble.in_short())?;
    let scheme = if server.is_secure() { "wss" } else { "ws" };
    let address = format!("{scheme}://{}/ui/socket", server.address());
    let mut request = address.into_client_request().map_err(|error| error.to_string())?;
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    if let Some(token) = server.token() {
        let bearer = format!("Bearer {token}").parse();
        request.headers_mut().insert(AUTHORIZATION, bearer.map_err(|_| "the token is no header".to_owned())?);
    }
    let stream = server.connect().await.map_err(|error| error.to_string())?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let connected = client_async_with_config(request, stream, Some(config)).await;
    connected.map(|(stream, _)| stream).map_err(|error| match error {
        Error::Http(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => Unconnected::Busy,
        Error::Http(answer) => Unconnected::For(format!("the server answered {}", answer.status())),
        error => Unconnected::For(error.to_string()),
    })
}

enum Wake {
    Request(Option<Envelope>),
    Message(Option<Message>),
}

/// Requests out, frames in, until one side ends.
async fn carry(
    mut stream: WebSocketStream<Connection>,
    mut asked: mpsc::Receiver<Envelope>,
    told: mpsc::Sender<Frame>,
) {
    loop {
        let wake = tokio::select! {
            biased;
            request = asked.recv() => Wake::Request(request),
            message = heard(&mut stream) => Wake::Message(message),
        };
        match wake {
            Wake::Request(Some(envelope)) => {
                let Ok(text) = serde_json::to_string(&envelope) else { continue };
                let sent = tokio::time::timeout(WRITE_WAIT, stream.send(Message::text(text))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
            Wake::Request(None) => {
                // Whoever is gone needs no goodbye.
                drop(tokio::time::timeout(END_WAIT, stream.close(None)).await);
                return;
            }
            Wake::Message(Some(Message::Text(text))) => match serde_json::from_str(&text) {
                Ok(frame) => {
                    if told.send(frame).await.is_err() {
                        return;
                    }
                }
                // A newer server may say more than this client understands.
                Err(error) => tracing::debug!(%error, "a frame is not understood"),
            },
            Wake::Message(Some(Message::Close(_)) | None) => return,
            Wake::Message(Some(_)) => {}
        }
    }
}

/// The next message, or nothing if there will be none.
async fn heard(stream: &mut WebSocketStream<Connection>) -> Option<Message> {
    match tokio::time::timeout(SILENCE_MAX, stream.next()).await {
        Ok(Some(Ok(message))) => Some(message),
        Ok(Some(Err(_)) | None) | Err(_) => None,
    }
}
