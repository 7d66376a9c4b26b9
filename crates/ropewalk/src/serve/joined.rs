//! `serve --http ADDRESS --stdio` where such a server runs already: standard input and output become a client of it.
//!
//! Editors start their command anew with every window, and the server that the first one started outlives it. So the
//! second one hands its client's lines on to the WebSocket of the first, whose sessions it then works on. That
//! happens only if the server is this person's own (it is known by its file in the state folder), was started with the
//! same options about what its agent may do, and works in a folder that contains this one: over HTTP a session
//! works nowhere else.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use access::Digest;
use futures_util::{SinkExt, StreamExt};
use server::{Batch, Link};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use wire::{Fault, Frame, RpcId};

use crate::cli::ServeOptions;
use crate::client::{Connection, Server};
use crate::config::{self, Setting};
use crate::running::{self, Found};
use crate::trouble::Trouble;
use crate::{guards, run, session_store, terminal};

/// From the connection to the first frame.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries at a server that starts.
const START_PAUSE: Duration = Duration::from_millis(50);
/// How long a client that has said everything waits for what is owed to it.
const ANSWERS_WAIT: Duration = Duration::from_secs(5);
/// The longest answer, and some room around it.
const ANSWER_BYTES_MAX: usize = 80 << 20;
/// How long the last bytes may take to leave.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// What to do about a server that is there already.
pub(super) enum Beside {
    /// Nothing of ours is there.
    Nobody,
    Join(Found),
    /// It cannot stand for this one, for this reason.
    Unlike(Found, &'static str),
}

/// Who serves the port that an editor's command asks for.
pub(super) fn look(options: &ServeOptions) -> Result<Beside, Trouble> {
    let address = options.http.address().ok().flatten().filter(|address| address.port() != 0);
    let Some(address) = address.filter(|_| options.stdio) else { return Ok(Beside::Nobody) };
    let mut servers = running::all()?;
    servers.retain(|server| server.port == address.port());
    let Some(found) = servers.into_iter().next() else { return Ok(Beside::Nobody) };
    let folder = run::folder(options.cwd.as_deref())?;
    let inside = |its: &Path| folder.starts_with(its);
    Ok(if found.options() != Some(digest(options).as_str()) {
        Beside::Unlike(found, "it was started with other options")
    } else if !found.folder().is_some_and(inside) {
        Beside::Unlike(found, "it works in another folder")
    } else {
        Beside::Join(found)
    })
}

/// Tells whether two servers hold their agents in the same way: by what was typed, and by what holds in the end, which
/// files and variables decide too.
pub(super) fn digest(options: &ServeOptions) -> String {
    let ServeOptions { guard, agent, command, model, budget, allow_dir, .. } = options;
    let typed = (guard, agent, command, model, budget, allow_dir, options.spoken(), config::choice());
    let holds = config::user().map(|config| {
        let (mode, approval) = (guards::mode(guard, &config), guards::approval(guard, &config));
        let value = |setting: Setting<Option<Arc<str>>>| setting.value;
        let loosest = guards::loosest(guard, &config).map(value).ok();
        let store = session_store::setting(&guard.store, &config).map(|setting| setting.value.shown()).ok();
        (mode.map(|setting| setting.value).ok(), approval.map(value).ok(), loosest, store)
    });
    Digest::of(&format!("{typed:?} {:?}", holds.ok())).hex()
}

/// Serves standard input and output until it is closed, or the server ends.
pub(super) fn run(found: &Found, options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let server = Server::with_token(found, options.http.auth_token.as_deref())?;
        let stream = connect(&server).await?;
        terminal::say(&format!("joined the server at {}", found.address()));
        let (client, written) = server::stdio::open()
            .map_err(|error| Trouble::failed("standard input cannot be read").because(error))?;
        let mut joined = Joined { stream, client, unanswered: Vec::new() };
        let ended = joined.carry().await;
        drop(joined);
        // A client that takes nothing more is not waited for.
        timeout(OUTPUT_GRACE, written).await.ok();
        ended.map_err(|Gone(why)| {
            Trouble::failed(format!("the server at {} has ended", found.address()))
                .because(why)
                .fix("start the agent again from the editor")
        })
    });
    // The thread that reads standard input may be stuck in a read for ever; nothing needs it.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(false),
    })
}

/// A server that starts asks for a moment, and gets it.
async fn connect(server: &Server) -> Result<WebSocketStream<Connection>, Trouble> {
    let failed = |why: String| {
        Trouble::failed(format!("the server at {} cannot be joined", server.address()))
            .because(why)
            .fix("end it: ropewalk serve stop; then start this again")
    };
    let deadline = Instant::now() + PATIENCE;
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

async fn try_connect(server: &Server) -> Result<WebSocketStream<Connection>, Error> {
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

/// The server's end, in words.
struct Gone(String);

enum Wake {
    /// A line of the client's; nothing when it has hung up.
    Said(Option<Frame>),
    Heard(Option<Result<Message, Error>>),
}

/// A client on standard input and output, and the server that it talks to.
struct Joined {
    stream: WebSocketStream<Connection>,
    client: Link,
    /// Requests of the client that are not answered.
    unanswered: Vec<RpcId>,
}

impl Joined {
    /// Lines out, messages in. Ends well when the client has hung up.
    async fn carry(&mut self) -> Result<(), Gone> {
        loop {
            let wake = tokio::select! {
                biased;
                heard = self.stream.next() => Wake::Heard(heard),
                said = self.client.incoming.recv() => Wake::Said(said),
            };
            match wake {
                Wake::Heard(heard) => {
                    if !self.tell(heard).await? {
                        return Ok(());
                    }
                }
                Wake::Said(Some(frame)) => self.send(frame).await?,
                Wake::Said(None) => return self.wait_for_answers().await,
            }
        }
    }

    /// Whoever has said everything is still answered, but not for as long as a turn may last.
    async fn wait_for_answers(&mut self) -> Result<(), Gone> {
        let deadline = Instant::now() + ANSWERS_WAIT;
        while !self.unanswered.is_empty() {
            let Ok(heard) = timeout_at(deadline, self.stream.next()).await else { break };
            if !self.tell(heard).await? {
                break;
            }
        }
        // Whoever is gone needs no goodbye.
        timeout(START_PAUSE, self.stream.close(None)).await.ok();
        Ok(())
    }

    async fn send(&mut self, frame: Frame) -> Result<(), Gone> {
        let line = match frame {
            Frame::Line(line) => line,
            Frame::TooLong { limit_bytes, id } => {
                self.answer(id, &Fault::FrameTooLong { limit_bytes }).await;
                return Ok(());
            }
        };
        if let Ok(wire::Message::Request { id, .. }) = wire::parse(&line) {
            self.unanswered.push(id);
        }
        let Ok(text) = String::from_utf8(line) else {
            self.answer(None, &Fault::Parse("the frame is not valid UTF-8".into())).await;
            return Ok(());
        };
        self.stream.send(Message::text(text)).await.map_err(|error| Gone(error.to_string()))
    }

    /// What never reaches the server is answered here, as the server would.
    async fn answer(&mut self, id: Option<RpcId>, fault: &Fault) {
        let mut bytes = Vec::new();
        wire::write_unreadable(id, fault, &mut bytes);
        self.put(bytes).await;
    }

    /// Hands on what the server said. Says whether the client still reads.
    async fn tell(&mut self, heard: Option<Result<Message, Error>>) -> Result<bool, Gone> {
        match heard {
            Some(Ok(Message::Text(text))) => {
                if let Ok(wire::Message::Response { id, .. }) = wire::parse(text.trim_end().as_bytes()) {
                    self.unanswered.retain(|waiting| *waiting != id);
                }
                let mut bytes = text.trim_end().as_bytes().to_vec();
                bytes.push(b'\n');
                Ok(self.put(bytes).await)
            }
            Some(Ok(Message::Close(frame))) => {
                let reason = frame.map(|frame| frame.reason.to_string()).filter(|reason| !reason.is_empty());
                Err(Gone(reason.unwrap_or_else(|| "it closed the connection".into())))
            }
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => Err(Gone(error.to_string())),
            None => Err(Gone("it closed the connection".into())),
        }
    }

    async fn put(&mut self, bytes: Vec<u8>) -> bool {
        self.client.outgoing.send(Batch { bytes, marks: Vec::new() }).await.is_ok()
    }
}
