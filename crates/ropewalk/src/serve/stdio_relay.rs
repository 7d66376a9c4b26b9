//! `serve --http ADDRESS --stdio` if such a server already runs: relays standard input and output to it.
//!
//! Editors start their command again for every window, and the server that the first one started outlives it. So the
//! second process forwards its client's lines to the WebSocket of the first and uses its sessions. It does so only if
//! the server belongs to this person (its file is in the state folder), was started with the same options about what
//! its agent may do, and works in a folder that contains this one: over HTTP, a session works nowhere else.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use access::Digest;
use futures_util::{SinkExt, StreamExt};
use server::{FrameBatch, Link};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use wire::{Frame, RequestError, RpcId};

use crate::cli::ServeOptions;
use crate::cli_error::CliError;
use crate::config::{self, ResolvedSetting};
use crate::running_servers::{self, RunningServer};
use crate::server_client::{Server, ServerStream};
use crate::{guard_settings, output, run, session_store};

/// From the connection to the first frame.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts while a server starts.
const START_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for pending responses after the client has closed its input.
const ANSWERS_WAIT: Duration = Duration::from_secs(5);
/// The longest response, with some room.
const ANSWER_BYTES_MAX: usize = 80 << 20;
/// How long writing the last bytes may take.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// What to do about a server that already runs.
pub(super) enum JoinDecision {
    /// No server of this person runs there.
    NoServer,
    Join(RunningServer),
    /// It runs, but cannot be joined, for this reason.
    Differs(RunningServer, &'static str),
}

/// Looks for a server on the port that the command asks for.
pub(super) fn find_running(options: &ServeOptions) -> Result<JoinDecision, CliError> {
    let address = options.http.address().ok().flatten().filter(|address| address.port() != 0);
    let Some(address) = address.filter(|_| options.stdio) else { return Ok(JoinDecision::NoServer) };
    let mut servers = running_servers::all()?;
    servers.retain(|server| server.port == address.port());
    let Some(found) = servers.into_iter().next() else { return Ok(JoinDecision::NoServer) };
    let folder = run::folder(options.cwd.as_deref())?;
    let inside = |its: &Path| folder.starts_with(its);
    Ok(if found.options() != Some(options_digest(options).as_str()) {
        JoinDecision::Differs(found, "it was started with other options")
    } else if !found.folder().is_some_and(inside) {
        JoinDecision::Differs(found, "it works in another folder")
    } else {
        JoinDecision::Join(found)
    })
}

/// A digest of the options that limit the agent: as typed, and as they take effect with settings files and variables. Two
/// servers with equal digests limit their agents in the same way.
pub(super) fn options_digest(options: &ServeOptions) -> String {
    let ServeOptions { guard, agent, command, model, budget, allow_dir, .. } = options;
    let typed = (guard, agent, command, model, budget, allow_dir, options.spoken(), config::flags());
    let holds = config::user().map(|config| {
        let (mode, approval) =
            (guard_settings::mode(guard, &config), guard_settings::approval(guard, &config));
        let value = |setting: ResolvedSetting<Option<Arc<str>>>| setting.value;
        let loosest = guard_settings::loosest(guard, &config).map(value).ok();
        let store =
            session_store::setting(&guard.store, &config).map(|setting| setting.value.location()).ok();
        (mode.map(|setting| setting.value).ok(), approval.map(value).ok(), loosest, store)
    });
    Digest::of(&format!("{typed:?} {:?}", holds.ok())).hex()
}

/// Relays standard input and output until either is closed or the server ends.
pub(super) fn run(found: &RunningServer, options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let server = Server::with_token(found, options.http.auth_token.as_deref())?;
        let stream = connect(&server).await?;
        output::say(&format!("joined the server at {}", found.address()));
        let (client, written) = server::stdio::open()
            .map_err(|error| CliError::failed("could not open standard input").because(error))?;
        let mut relay = Relay { stream, client, unanswered: Vec::new() };
        let ended = relay.run().await;
        drop(relay);
        // Do not wait for a client that no longer reads.
        timeout(OUTPUT_GRACE, written).await.ok();
        ended.map_err(|ServerGone(why)| {
            CliError::failed(format!("the server at {} has stopped", found.address()))
                .because(why)
                .fix("start the agent again from the editor")
        })
    });
    // The thread that reads standard input may block forever; nothing needs it.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(false),
    })
}

/// Connects; retries while the server is starting.
async fn connect(server: &Server) -> Result<WebSocketStream<ServerStream>, CliError> {
    let failed = |why: String| {
        CliError::failed(format!("could not join the server at {}", server.address()))
            .because(why)
            .fix("stop it with `ropewalk serve stop`, then try again")
    };
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        let tried = timeout_at(deadline, try_connect(server)).await;
        match tried.map_err(|_| failed("it did not answer in time".into()))? {
            Ok(stream) => return Ok(stream),
            Err(Error::Http(answer)) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {
                tokio::time::sleep(START_PAUSE).await;
            }
            Err(Error::Http(answer)) => return Err(failed(format!("it answered {}", answer.status()))),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}

async fn try_connect(server: &Server) -> Result<WebSocketStream<ServerStream>, Error> {
    let scheme = if server.is_secure() { "wss" } else { "ws" };
    let mut request = format!("{scheme}://{}/acp", server.address()).into_client_request()?;
    if let Some(token) = server.token()
        && let Ok(bearer) = format!("Bearer {token}").parse()
    {
        request.headers_mut().insert(AUTHORIZATION, bearer);
    }
    let stream =
        server.connect().await.map_err(|error| Error::Io(std::io::Error::other(error.to_string())))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(ANSWER_BYTES_MAX))
        .max_frame_size(Some(ANSWER_BYTES_MAX));
    client_async_with_config(request, stream, Some(config)).await.map(|(stream, _)| stream)
}

/// Why the connection to the server ended.
struct ServerGone(String);

enum Wake {
    /// A line from the client; `None` when it has disconnected.
    FromClient(Option<Frame>),
    FromServer(Option<Result<Message, Error>>),
}

/// A client on standard input and output, and the server that it talks to.
struct Relay {
    stream: WebSocketStream<ServerStream>,
    client: Link,
    /// Requests of the client without a response yet.
    unanswered: Vec<RpcId>,
}

impl Relay {
    /// Forwards both ways. Returns `Ok` when the client has disconnected.
    async fn run(&mut self) -> Result<(), ServerGone> {
        loop {
            let wake = tokio::select! {
                biased;
                message = self.stream.next() => Wake::FromServer(message),
                frame = self.client.incoming.recv() => Wake::FromClient(frame),
            };
            match wake {
                Wake::FromServer(message) => {
                    if !self.forward(message).await? {
                        return Ok(());
                    }
                }
                Wake::FromClient(Some(frame)) => self.send(frame).await?,
                Wake::FromClient(None) => return self.wait_for_answers().await,
            }
        }
    }

    /// Forwards pending responses after the client has closed its input, but not for a whole turn.
    async fn wait_for_answers(&mut self) -> Result<(), ServerGone> {
        let deadline = Instant::now() + ANSWERS_WAIT;
        while !self.unanswered.is_empty() {
            let Ok(message) = timeout_at(deadline, self.stream.next()).await else { break };
            if !self.forward(message).await? {
                break;
            }
        }
        // The server may already be gone.
        timeout(START_PAUSE, self.stream.close(None)).await.ok();
        Ok(())
    }

    async fn send(&mut self, frame: Frame) -> Result<(), ServerGone> {
        let line = match frame {
            Frame::Line(line) => line,
            Frame::TooLong { limit_bytes, id } => {
                self.answer(id, &RequestError::FrameTooLong { limit_bytes }).await;
                return Ok(());
            }
        };
        if let Ok(wire::RpcMessage::Request { id, .. }) = wire::parse(&line) {
            self.unanswered.push(id);
        }
        let Ok(text) = String::from_utf8(line) else {
            self.answer(None, &RequestError::Parse("the frame is not valid UTF-8".into())).await;
            return Ok(());
        };
        self.stream.send(Message::text(text)).await.map_err(|error| ServerGone(error.to_string()))
    }

    /// Answers what cannot be forwarded, as the server would.
    async fn answer(&mut self, id: Option<RpcId>, fault: &RequestError) {
        let mut bytes = Vec::new();
        wire::write_unreadable(id, fault, &mut bytes);
        self.write(bytes).await;
    }

    /// Forwards a message to the client. Returns whether the client still reads.
    async fn forward(&mut self, message: Option<Result<Message, Error>>) -> Result<bool, ServerGone> {
        match message {
            Some(Ok(Message::Text(text))) => {
                if let Ok(wire::RpcMessage::Response { id, .. }) = wire::parse(text.trim_end().as_bytes()) {
                    self.unanswered.retain(|waiting| *waiting != id);
                }
                let mut bytes = text.trim_end().as_bytes().to_vec();
                bytes.push(b'\n');
                Ok(self.write(bytes).await)
            }
            Some(Ok(Message::Close(frame))) => {
                let reason = frame.map(|frame| frame.reason.to_string()).filter(|reason| !reason.is_empty());
                Err(ServerGone(reason.unwrap_or_else(|| "it closed the connection".into())))
            }
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => Err(ServerGone(error.to_string())),
            None => Err(ServerGone("it closed the connection".into())),
        }
    }

    async fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.client.outgoing.send(FrameBatch { bytes, marks: Vec::new() }).await.is_ok()
    }
}
