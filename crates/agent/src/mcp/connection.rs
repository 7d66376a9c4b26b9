//! The connection to one server: a program's pipes or an HTTP address, the handshake, and the server's
//! notifications.
//!
//! **Invariant:** when a [`ServerConnection`] has been ended or dropped, the server's program and everything
//! it started have ended.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use engine::ServerTransport;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProgressNotificationParam, Tool,
};
use rmcp::service::{NotificationContext, RunningService, serve_client_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, Peer, RoleClient};
use sandbox::{ChildCommand, CommandLimits, Fence, Program, ServicePipes, ServiceProcess};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::process::ChildStderr;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{http, one_line_excerpt};
use crate::certificate_refusal;

/// The maximum size of one message.
pub(super) const MCP_FRAME_BYTES_MAX: usize = 16 << 20;
/// Pages of a list of tools; a server with more would never end.
const PAGES_MAX: usize = 50;
const TOOLS_LISTED_MAX: usize = 1000;
/// Progress notifications that a call has not processed yet; the oldest are dropped.
const PROGRESS_MAX: usize = 64;
/// Lines of standard error that are logged; nobody would read more.
const LOGGED_LINES_MAX: usize = 1000;
const LOGGED_LINE_CHARS_MAX: usize = 500;
const TAIL_CHARS_MAX: usize = 400;
/// How long a program may take to end, before each more forceful step.
const END_GRACE: Duration = Duration::from_millis(500);
/// How long closing an HTTP session may take.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// How long to wait for the exit of a program that closed its output, to report how it ended.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// What every server program of a session is started with.
#[derive(Clone)]
pub(super) struct LaunchContext {
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) cwd: PathBuf,
    /// The sandbox of a program. The person's own servers and those of their editor run without one.
    pub(super) fence: Option<Fence>,
    /// The tasks that read standard error.
    pub(super) tasks: TaskTracker,
}

/// Receives a server's notifications.
#[derive(Clone)]
pub(super) struct NotificationHandler {
    pub(super) progress: broadcast::Sender<ProgressNotificationParam>,
    /// How often it has announced a new list of tools.
    pub(super) lists: watch::Sender<u64>,
}

impl Default for NotificationHandler {
    fn default() -> Self {
        Self { progress: broadcast::Sender::new(PROGRESS_MAX), lists: watch::Sender::new(0) }
    }
}

/// Requests of a server (sampling, elicitation) are declined by the library's default answers, since these
/// abilities are not offered in the handshake.
impl ClientHandler for NotificationHandler {
    async fn on_progress(&self, note: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        // Between calls there is no receiver.
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

pub(super) struct ServerConnection {
    peer: Peer<RoleClient>,
    /// Completes when the connection is closed by either side.
    closed: ConnectionClosed,
    hang_up: CancellationToken,
    child: Option<ServerProcess>,
}

/// The end of a connection, which can be awaited again after it has completed.
struct ConnectionClosed(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl ConnectionClosed {
    async fn wait(&mut self) {
        if let Some(closed) = &mut self.0 {
            closed.as_mut().await;
            self.0 = None;
        }
    }
}

struct ServerProcess {
    service: ServiceProcess,
    stderr_log: Arc<StderrLog>,
    /// Ends the task that reads its standard error.
    _watched: tokio_util::sync::DropGuard,
}

impl ServerConnection {
    /// Starts or connects to the server and performs the handshake. The error is for people.
    pub(super) async fn open(
        way: &ServerTransport,
        launch_context: &LaunchContext,
        notifications: NotificationHandler,
        stderr_log: &Arc<StderrLog>,
    ) -> Result<Self, String> {
        let hang_up = CancellationToken::new();
        match way {
            ServerTransport::Child { command, arguments, environment } => {
                let (service, pipes) = start(command, arguments, environment, launch_context).await?;
                let ServicePipes { stdin, stdout, stderr } = pipes;
                let watched = CancellationToken::new();
                launch_context.tasks.spawn(log_stderr(stderr, Arc::clone(stderr_log), watched.clone()));
                let stderr_log = Arc::clone(stderr_log);
                let mut child = ServerProcess {
                    service,
                    stderr_log: Arc::clone(&stderr_log),
                    _watched: watched.drop_guard(),
                };
                let stdout = BoundedReader { inner: stdout, line_bytes: 0, stderr_log };
                let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
                match serve_client_with_ct(notifications, transport, hang_up.clone()).await {
                    Ok(running) => Ok(Self::of(running, hang_up, Some(child))),
                    Err(error) => Err(child.end_reason(&error_chain(&error)).await),
                }
            }
            ServerTransport::Http { url, headers } => {
                let transport = http::transport(url, headers)?;
                let running = serve_client_with_ct(notifications, transport, hang_up.clone()).await;
                let running =
                    running.map_err(|error| error_chain(&error).replace(url.as_ref(), "the address"))?;
                Ok(Self::of(running, hang_up, None))
            }
        }
    }

    fn of(
        running: RunningService<RoleClient, NotificationHandler>,
        hang_up: CancellationToken,
        child: Option<ServerProcess>,
    ) -> Self {
        let peer = running.peer().clone();
        // How the connection ended is known only from the program's exit.
        let closed = ConnectionClosed(Some(Box::pin(async move { drop(running.waiting().await) })));
        Self { peer, closed, hang_up, child }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Waits until the connection is closed, and returns the reason. Cancel-safe.
    pub(super) async fn wait_closed(&mut self) -> String {
        match &mut self.child {
            None => {
                self.closed.wait().await;
                "the connection was closed".into()
            }
            Some(child) => {
                tokio::select! {
                    () = self.closed.wait() => {}
                    _ = child.service.ended() => {}
                }
                child.end_reason("").await
            }
        }
    }

    pub(super) async fn end(mut self, already_closed: bool) {
        // Closes a program's input, or the HTTP session.
        self.hang_up.cancel();
        if !already_closed {
            drop(tokio::time::timeout(CLOSE_WAIT, self.closed.wait()).await);
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
        let page = peer.list_tools(Some(page)).await.map_err(|error| error_chain(&error))?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= TOOLS_LISTED_MAX {
            break;
        }
    }
    tools.truncate(TOOLS_LISTED_MAX);
    Ok(tools)
}

impl ServerProcess {
    /// How it ended, with the last part of its standard error.
    async fn end_reason(&mut self, error: &str) -> String {
        let status = tokio::time::timeout(EXIT_WAIT, self.service.ended()).await.ok().flatten();
        let how = match status {
            Some(status) => format!("the program ended ({status})"),
            None if error.is_empty() => "the program closed its output".to_owned(),
            None => error.to_owned(),
        };
        self.stderr_log.describe(&how)
    }
}

async fn start(
    command: &std::path::Path,
    arguments: &[String],
    environment: &[(String, String)],
    launch_context: &LaunchContext,
) -> Result<(ServiceProcess, ServicePipes), String> {
    if !launch_context.cwd.is_dir() {
        return Err(format!("the working folder {} does not exist", launch_context.cwd.display()));
    }
    let named = environment.iter().map(|(name, value)| (name.into(), value.into()));
    let command = ChildCommand {
        program: Program::Exec {
            program: command.to_owned(),
            arguments: arguments.iter().map(Into::into).collect(),
        },
        cwd: launch_context.cwd.clone(),
        environment: launch_context.environment.iter().cloned().chain(named).collect(),
        limits: CommandLimits::default(),
        fence: launch_context.fence.clone(),
    };
    ServiceProcess::start(&command).await.map_err(|error| match error {
        sandbox::StartError::Spawn(source) if source.kind() == io::ErrorKind::NotFound => {
            let Program::Exec { program, .. } = &command.program else { return "no program given".into() };
            format!("program {} not found; install it, or use its full path", program.display())
        }
        sandbox::StartError::Spawn(source) => format!("could not start the program: {source}"),
        error => error.to_string(),
    })
}

/// An error with its causes, shortened to one line.
pub(super) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    // The library's errors start with its own type names; only the rest is useful to people.
    if let Some((types, cause)) = text.split_once("] error: ")
        && types.contains("rmcp::")
    {
        text = cause.to_owned();
    }
    while let Some(cause) = source {
        let cause_text =
            certificate_refusal::refusal_reason(cause).map_or_else(|| cause.to_string(), str::to_owned);
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    one_line_excerpt(&text, TAIL_CHARS_MAX)
}

/// The last part of a program's standard error, and a protocol violation if there was one.
#[derive(Default)]
pub(super) struct StderrLog {
    tail: Mutex<String>,
    /// A violation of our limits, which explains more than the standard error.
    violation: OnceLock<String>,
}

impl StderrLog {
    /// What happened, followed by the last part of standard error.
    pub(super) fn describe(&self, what: &str) -> String {
        if let Some(violation) = self.violation.get() {
            return violation.clone();
        }
        match &*self.tail.lock().unwrap_or_else(PoisonError::into_inner) {
            stderr_log if stderr_log.is_empty() => what.to_owned(),
            stderr_log => format!("{what}: {stderr_log}"),
        }
    }

    fn put(&self, line: &str) {
        let mut stderr_log = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        if !stderr_log.is_empty() {
            stderr_log.push_str("; ");
        }
        stderr_log.push_str(line);
        let from = stderr_log.ceil_char_boundary(stderr_log.len().saturating_sub(TAIL_CHARS_MAX));
        stderr_log.drain(..from);
    }
}

/// Logs a program's standard error. It is read to its end, so that the program never blocks on writing.
async fn log_stderr(stderr: ChildStderr, stderr_log: Arc<StderrLog>, done: CancellationToken) {
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
            let line = one_line_excerpt(&String::from_utf8_lossy(&line), LOGGED_LINE_CHARS_MAX);
            if line.is_empty() {
                continue;
            }
            stderr_log.put(&line);
            logged += 1;
            if logged <= LOGGED_LINES_MAX {
                tracing::info!(line, "log message of a tool server");
            }
        }
    };
    tokio::select! {
        () = done.cancelled() => {}
        () = read => {}
    }
}

/// A program's output, which ends at an overlong line: the library would only skip the line, and the request
/// waiting for it would wait forever.
struct BoundedReader<R> {
    inner: R,
    line_bytes: usize,
    stderr_log: Arc<StderrLog>,
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedReader<R> {
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
            if this.line_bytes > MCP_FRAME_BYTES_MAX {
                let text = format!("it sent a message of more than {} MiB", MCP_FRAME_BYTES_MAX >> 20);
                // Only the first violation is kept.
                drop(this.stderr_log.violation.set(text.clone()));
                return Poll::Ready(Err(io::Error::other(text)));
            }
        }
        polled
    }
}
