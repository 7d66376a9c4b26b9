//! The connection to one server: a program's pipes or an address, the handshake, and what it sends unasked.
//!
//! **Invariant:** when a [`Link`] was ended or dropped, the server's program and all that it started have
//! ended.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use engine::ServerWay;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProgressNotificationParam, Tool,
};
use rmcp::service::{NotificationContext, RunningService, serve_client_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, Peer, RoleClient};
use sandbox::{Command, Fence, Limits, Program, Service, ServicePipes};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::process::ChildStderr;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{cleaned, web};
use crate::certificate;

/// One message of a server.
pub(super) const FRAME_BYTES_MAX: usize = 16 << 20;
/// Pages of a list of tools; a server that has more does not know its own end.
const PAGES_MAX: usize = 50;
const TOOLS_LISTED_MAX: usize = 1000;
/// Notes of progress that a call has not looked at yet; the oldest are dropped.
const PROGRESS_MAX: usize = 64;
/// Lines on standard error that go to the log; a program that says more is not read by anybody.
const LOGGED_LINES_MAX: usize = 1000;
const LOGGED_LINE_CHARS_MAX: usize = 500;
const LAST_WORDS_CHARS_MAX: usize = 400;
/// For a program that is told to end, before each harder means.
const END_GRACE: Duration = Duration::from_millis(500);
/// For saying goodbye to an address.
const GOODBYE_WAIT: Duration = Duration::from_secs(2);
/// For a program that hung up to be gone, so that it can be said how it ended.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// What every server of a session is started with.
#[derive(Clone)]
pub(super) struct Base {
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) cwd: PathBuf,
    /// What a program runs inside of. The person's own servers and those of their editor run outside.
    pub(super) fence: Option<Fence>,
    /// What watches a program's standard error runs here.
    pub(super) tasks: TaskTracker,
}

/// What a server sends unasked.
#[derive(Clone)]
pub(super) struct Ears {
    pub(super) progress: broadcast::Sender<ProgressNotificationParam>,
    /// How often it said that its list of tools is another.
    pub(super) lists: watch::Sender<u64>,
}

impl Default for Ears {
    fn default() -> Self {
        Self { progress: broadcast::Sender::new(PROGRESS_MAX), lists: watch::Sender::new(0) }
    }
}

/// Questions of a server (sampling, elicitation) are declined by the library's own answers: nothing of
/// the kind is offered in the handshake.
impl ClientHandler for Ears {
    async fn on_progress(&self, note: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        // Nobody listens between calls.
        drop(self.progress.send(note));
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.lists.send_modify(|count| *count += 1);
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("ropewalk", env!("CARGO_PKG_VERSION")),
        )
    }
}

pub(super) struct Link {
    peer: Peer<RoleClient>,
    /// Ready when the conversation is over, by whomever.
    over: Over,
    hang_up: CancellationToken,
    child: Option<Child>,
}

/// The end of a conversation, which can be waited for again after it has come.
struct Over(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Over {
    async fn wait(&mut self) {
        if let Some(over) = &mut self.0 {
            over.as_mut().await;
            self.0 = None;
        }
    }
}

struct Child {
    service: Service,
    words: Arc<LastWords>,
    /// Ends the watching of its standard error.
    _watched: tokio_util::sync::DropGuard,
}

impl Link {
    /// Starts or calls the server and shakes hands. The error says why it did not work.
    pub(super) async fn open(
        way: &ServerWay,
        base: &Base,
        ears: Ears,
        words: &Arc<LastWords>,
    ) -> Result<Self, String> {
        let hang_up = CancellationToken::new();
        match way {
            ServerWay::Child { command, arguments, environment } => {
                let (service, pipes) = start(command, arguments, environment, base).await?;
                let ServicePipes { stdin, stdout, stderr } = pipes;
                let watched = CancellationToken::new();
                base.tasks.spawn(watch(stderr, Arc::clone(words), watched.clone()));
                let words = Arc::clone(words);
                let mut child = Child { service, words: Arc::clone(&words), _watched: watched.drop_guard() };
                let stdout = Bounded { inner: stdout, line_bytes: 0, words };
                let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
                match serve_client_with_ct(ears, transport, hang_up.clone()).await {
                    Ok(running) => Ok(Self::of(running, hang_up, Some(child))),
                    Err(error) => Err(child.epitaph(&told(&error)).await),
                }
            }
            ServerWay::Http { url, headers } => {
                let transport = web::transport(url, headers)?;
                let running = serve_client_with_ct(ears, transport, hang_up.clone()).await;
                let running = running.map_err(|error| told(&error).replace(url.as_ref(), "the address"))?;
                Ok(Self::of(running, hang_up, None))
            }
        }
    }

    fn of(
        running: RunningService<RoleClient, Ears>,
        hang_up: CancellationToken,
        child: Option<Child>,
    ) -> Self {
        let peer = running.peer().clone();
        // How the conversation ended is told by the program's own end, or not at all.
        let over = Over(Some(Box::pin(async move { drop(running.waiting().await) })));
        Self { peer, over, hang_up, child }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Waits until the server is gone, and says how it went. Safe to drop.
    pub(super) async fn gone(&mut self) -> String {
        match &mut self.child {
            None => {
                self.over.wait().await;
                "the connection was closed".into()
            }
            Some(child) => {
                tokio::select! {
                    () = self.over.wait() => {}
                    _ = child.service.ended() => {}
                }
                child.epitaph("").await
            }
        }
    }

    pub(super) async fn end(mut self, over_already: bool) {
        // Closes a program's input, and says goodbye to an address.
        self.hang_up.cancel();
        if !over_already {
            drop(tokio::time::timeout(GOODBYE_WAIT, self.over.wait()).await);
        }
        if let Some(child) = self.child {
            child.service.end(END_GRACE).await;
        }
    }
}

/// The server's tools, page by page.
pub(super) async fn tools(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    let mut tools: Vec<Tool> = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let page = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = peer.list_tools(Some(page)).await.map_err(|error| told(&error))?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= TOOLS_LISTED_MAX {
            break;
        }
    }
    tools.truncate(TOOLS_LISTED_MAX);
    Ok(tools)
}

impl Child {
    /// How it ended and what it said last.
    async fn epitaph(&mut self, error: &str) -> String {
        let status = tokio::time::timeout(EXIT_WAIT, self.service.ended()).await.ok().flatten();
        let how = match status {
            Some(status) => format!("the program ended ({status})"),
            None if error.is_empty() => "the program closed its output".to_owned(),
            None => error.to_owned(),
        };
        self.words.after(&how)
    }
}

async fn start(
    command: &std::path::Path,
    arguments: &[String],
    environment: &[(String, String)],
    base: &Base,
) -> Result<(Service, ServicePipes), String> {
    if !base.cwd.is_dir() {
        return Err(format!("the working folder {} is not there", base.cwd.display()));
    }
    let named = environment.iter().map(|(name, value)| (name.into(), value.into()));
    let command = Command {
        program: Program::Exec {
            program: command.to_owned(),
            arguments: arguments.iter().map(Into::into).collect(),
        },
        cwd: base.cwd.clone(),
        environment: base.environment.iter().cloned().chain(named).collect(),
        limits: Limits::default(),
        fence: base.fence.clone(),
    };
    Service::start(&command).await.map_err(|error| match error {
        sandbox::StartError::Spawn(source) if source.kind() == io::ErrorKind::NotFound => {
            let Program::Exec { program, .. } = &command.program else { return "there is no program".into() };
            format!("there is no program {}; install it, or name it by its whole path", program.display())
        }
        sandbox::StartError::Spawn(source) => format!("the program cannot be started: {source}"),
        error => error.to_string(),
    })
}

/// An error with its causes, on one short line.
pub(super) fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    // The library names its own types first; what comes after them is what a person needs.
    if let Some((types, cause)) = text.split_once("] error: ")
        && types.contains("rmcp::")
    {
        text = cause.to_owned();
    }
    while let Some(cause) = source {
        let cause_text = certificate::refused(cause).map_or_else(|| cause.to_string(), str::to_owned);
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    cleaned(&text, LAST_WORDS_CHARS_MAX)
}

/// What a program said on its standard error last, and what of it broke the rules.
#[derive(Default)]
pub(super) struct LastWords {
    said: Mutex<String>,
    /// A rule that it broke, which says more than its last words.
    broke: OnceLock<String>,
}

impl LastWords {
    /// What happened, and what was said before.
    pub(super) fn after(&self, what: &str) -> String {
        if let Some(broke) = self.broke.get() {
            return broke.clone();
        }
        match &*self.said.lock().unwrap_or_else(PoisonError::into_inner) {
            words if words.is_empty() => what.to_owned(),
            words => format!("{what}: {words}"),
        }
    }

    fn put(&self, line: &str) {
        let mut words = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !words.is_empty() {
            words.push_str("; ");
        }
        words.push_str(line);
        let from = words.ceil_char_boundary(words.len().saturating_sub(LAST_WORDS_CHARS_MAX));
        words.drain(..from);
    }
}

/// Hands a program's standard error to the log. It is read to its end, so that nobody is held up by it.
async fn watch(stderr: ChildStderr, words: Arc<LastWords>, done: CancellationToken) {
    let read = async {
        let mut reader = BufReader::new(stderr);
        let mut logged = 0;
        loop {
            let mut line = Vec::new();
            let part =
                (&mut reader).take(4 * LOGGED_LINE_CHARS_MAX as u64).read_until(b'\n', &mut line).await;
            if !matches!(part, Ok(bytes) if bytes > 0) {
                return;
            }
            let line = cleaned(&String::from_utf8_lossy(&line), LOGGED_LINE_CHARS_MAX);
            if line.is_empty() {
                continue;
            }
            words.put(&line);
            logged += 1;
            if logged <= LOGGED_LINES_MAX {
                tracing::info!(line, "a tool server says");
            }
        }
    };
    tokio::select! {
        () = done.cancelled() => {}
        () = read => {}
    }
}

/// A program's output, which ends where a line gets too long: the library would only skip the line, and
/// whoever waits for it would wait for ever.
struct Bounded<R> {
    inner: R,
    line_bytes: usize,
    words: Arc<LastWords>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = &polled {
            let new = &buf.filled()[before..];
            this.line_bytes = match new.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => new.len() - end - 1,
                None => this.line_bytes + new.len(),
            };
            if this.line_bytes > FRAME_BYTES_MAX {
                let text = format!("it sent a message of more than {} MiB", FRAME_BYTES_MAX >> 20);
                // The first is the one that counts.
                drop(this.words.broke.set(text.clone()));
                return Poll::Ready(Err(io::Error::other(text)));
            }
        }
        polled
    }
}
