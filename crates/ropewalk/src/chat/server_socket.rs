//! The WebSocket connection to a running server, for the terminal client.
//!
//! This is the client side: it only has to answer pings, which the library does. So it shares no code with the server side
//! (`access::websocket_pump`).

use std::time::Duration;

use ::terminal::{Dial, Dialing, ServerConnection};
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
use wire::native::{RequestEnvelope, ServerFrame};

use crate::running_servers;
use crate::server_client::{Server, ServerStream};

/// From connecting to the first frame.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts while a server starts.
const START_PAUSE: Duration = Duration::from_millis(50);
/// How long sending one request may take.
const WRITE_WAIT: Duration = Duration::from_secs(30);
const END_WAIT: Duration = Duration::from_secs(1);
/// A server that is silent for this long is gone: it sends something twice a minute.
const SILENCE_MAX: Duration = Duration::from_secs(80);
/// The largest frame: a view of a session with long rows.
const SERVER_FRAME_BYTES_MAX: usize = 64 << 20;
const QUEUE_MAX: usize = 64;

/// The sub-protocol of our own clients.
const PROTOCOL: HeaderValue = HeaderValue::from_static("ropewalk.v1");

pub struct ServerSocket {
    port: u16,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl ServerSocket {
    pub fn new(port: u16) -> Self {
        Self { port, tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    pub async fn finish(self) {
        self.stop.cancel();
        self.tasks.close();
        // Do not wait for a server that does not close the connection.
        drop(tokio::time::timeout(END_WAIT, self.tasks.wait()).await);
    }
}

impl Dial for ServerSocket {
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
            Ok(ServerConnection { requests, frames })
        })
    }
}

/// Connects; retries while the server is starting.
async fn connect_when_ready(port: u16) -> Result<WebSocketStream<ServerStream>, String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let tried = tokio::time::timeout_at(deadline, connect(port)).await;
        match tried.map_err(|_| "the server did not answer in time".to_owned())? {
            Err(ConnectError::Busy) if Instant::now() + START_PAUSE < deadline => {
                tokio::time::sleep(START_PAUSE).await;
            }
            connected => return connected.map_err(|unconnected| unconnected.to_string()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("the server accepts no clients at the moment: it is starting, stopping or full")]
    Busy,
    #[error("{0}")]
    For(String),
}

impl From<String> for ConnectError {
    fn from(why: String) -> Self {
        Self::For(why)
    }
}

/// Looks for the server every time: it may have been restarted with another token.
async fn connect(port: u16) -> Result<WebSocketStream<ServerStream>, ConnectError> {
    let servers = running_servers::all().map_err(|error| error.summary())?;
    let found = servers.iter().find(|server| server.port == port);
    let server = Server::of(found.ok_or_else(|| "the server has stopped".to_owned())?)
        .map_err(|error| error.summary())?;
    let scheme = if server.is_secure() { "wss" } else { "ws" };
    let address = format!("{scheme}://{}/ui/socket", server.address());
    let mut request = address.into_client_request().map_err(|error| error.to_string())?;
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    if let Some(token) = server.token() {
        let bearer = format!("Bearer {token}").parse();
        request
            .headers_mut()
            .insert(AUTHORIZATION, bearer.map_err(|_| "the token cannot be sent in a header".to_owned())?);
    }
    let stream = server.connect().await.map_err(|error| error.to_string())?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(SERVER_FRAME_BYTES_MAX))
        .max_frame_size(Some(SERVER_FRAME_BYTES_MAX));
    let connected = client_async_with_config(request, stream, Some(config)).await;
    connected.map(|(stream, _)| stream).map_err(|error| match error {
        Error::Http(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => ConnectError::Busy,
        Error::Http(answer) => ConnectError::For(format!("the server answered {}", answer.status())),
        error => ConnectError::For(error.to_string()),
    })
}

enum Wake {
    Request(Option<RequestEnvelope>),
    Message(Option<Message>),
}

/// Forwards requests and frames until one side ends.
async fn carry(
    mut stream: WebSocketStream<ServerStream>,
    mut asked: mpsc::Receiver<RequestEnvelope>,
    told: mpsc::Sender<ServerFrame>,
) {
    loop {
        let wake = tokio::select! {
            biased;
            request = asked.recv() => Wake::Request(request),
            message = next_message(&mut stream) => Wake::Message(message),
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
                // The server may already be gone.
                drop(tokio::time::timeout(END_WAIT, stream.close(None)).await);
                return;
            }
            Wake::Message(Some(Message::Text(text))) => match serde_json::from_str(&text) {
                Ok(frame) => {
                    if told.send(frame).await.is_err() {
                        return;
                    }
                }
                // A newer server may send frames that this client does not know.
                Err(error) => tracing::debug!(%error, "ignoring a frame that could not be parsed"),
            },
            Wake::Message(Some(Message::Close(_)) | None) => return,
            Wake::Message(Some(_)) => {}
        }
    }
}

/// The next message, or `None` if the connection has ended.
async fn next_message(stream: &mut WebSocketStream<ServerStream>) -> Option<Message> {
    match tokio::time::timeout(SILENCE_MAX, stream.next()).await {
        Ok(Some(Ok(message))) => Some(message),
        Ok(Some(Err(_)) | None) | Err(_) => None,
    }
}
