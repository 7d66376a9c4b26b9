//! One server of a session: started when it is first needed, watched while it runs, and restarted when it is
//! needed after it has failed.
//!
//! **Invariant:** at most one task runs a server, and only that task changes its state until it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{PermissionOutcome, ServerState, ServerStatus, ServerTransport, ToolInfo};
use rmcp::{Peer, RoleClient};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::{LaunchContext, NotificationHandler, ServerConnection, StderrLog};
use super::{connection, tool};
use crate::tools::ToolDefinition;

/// After the first failure; doubled with each that follows.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// After running this long, earlier failures do not count.
const STEADY: Duration = Duration::from_secs(60);
/// Pause between two requests of a changing list.
const LIST_PAUSE: Duration = Duration::from_millis(100);
/// Pending notices about one server.
const NOTICES_MAX: usize = 8;

/// Who named a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedBy {
    Client,
    Person,
    /// A file of the project: the person is asked before it is started.
    Project,
}

/// What the person is asked to allow.
#[derive(Debug, Clone)]
pub(super) struct Consent {
    pub(super) digest: Arc<str>,
    /// The entry as written.
    pub(super) shown: String,
}

pub(super) struct Server {
    pub(super) name: Arc<str>,
    /// The prefix of its tool names.
    pub(super) tool_prefix: String,
    pub(super) way: ServerTransport,
    pub(super) named_by: NamedBy,
    /// What the person has to allow, if consent is needed.
    pub(super) consent: Option<Consent>,
    pub(super) notifications: NotificationHandler,
    pub(super) call_timeout: Duration,
    start_timeout: Duration,
    launch_context: LaunchContext,
    stop: CancellationToken,
    state: watch::Sender<State>,
    tools: Mutex<Arc<[Arc<ToolDefinition>]>>,
    was_awaited: AtomicBool,
    /// The number of the announcement that the current list of tools belongs to.
    listed: watch::Sender<u64>,
    /// Notices for the person about it, each given once.
    notices: Mutex<PendingNotices>,
}

#[derive(Default)]
struct PendingNotices {
    pending: Vec<String>,
    /// The last notice: repeated failures for the same reason are reported once.
    last: Option<String>,
}

#[derive(Clone)]
pub(super) enum State {
    Idle,
    Starting,
    Ready(Peer<RoleClient>),
    Failed(StartFailure),
    /// Waiting for the person's consent.
    AwaitingConsent,
    Refused,
}

#[derive(Clone)]
pub(super) struct StartFailure {
    pub(super) reason: Arc<str>,
    retry_at: Instant,
    failures: u32,
}

/// The parameters of a server.
pub(super) struct ServerSpec {
    pub(super) name: Arc<str>,
    pub(super) tool_prefix: String,
    pub(super) way: ServerTransport,
    pub(super) named_by: NamedBy,
    pub(super) consent: Option<Consent>,
    pub(super) start_timeout: Duration,
    pub(super) call_timeout: Duration,
    pub(super) launch_context: LaunchContext,
    pub(super) notices: Vec<String>,
}

impl Server {
    pub(super) fn new(spec: ServerSpec) -> Arc<Self> {
        let state = if spec.consent.is_some() { State::AwaitingConsent } else { State::Idle };
        Arc::new(Self {
            name: spec.name,
            tool_prefix: spec.tool_prefix,
            way: spec.way,
            named_by: spec.named_by,
            consent: spec.consent,
            notifications: NotificationHandler::default(),
            call_timeout: spec.call_timeout,
            start_timeout: spec.start_timeout,
            launch_context: spec.launch_context,
            stop: CancellationToken::new(),
            state: watch::Sender::new(state),
            tools: Mutex::default(),
            was_awaited: AtomicBool::new(false),
            listed: watch::Sender::new(0),
            notices: Mutex::new(PendingNotices { pending: spec.notices, last: None }),
        })
    }

    pub(super) fn view(&self) -> ServerStatus {
        let state = match &*self.state.borrow() {
            State::Idle | State::AwaitingConsent => ServerState::Idle,
            State::Starting => ServerState::Starting,
            State::Ready(_) => ServerState::Ready,
            State::Failed(failure) => ServerState::Failed { reason: Arc::clone(&failure.reason) },
            State::Refused => ServerState::Refused,
        };
        let tool = |tool: &Arc<ToolDefinition>| ToolInfo {
            name: Arc::clone(&tool.name),
            description: Arc::clone(&tool.description),
        };
        let transport = match self.way {
            ServerTransport::Child { .. } => "stdio",
            ServerTransport::Http { .. } => "http",
        };
        ServerStatus {
            name: Arc::clone(&self.name),
            transport,
            state,
            tools: self.tools().iter().map(tool).collect(),
        }
    }

    /// The last list of tools. Calling one of them restarts a failed server.
    pub(super) fn tools(&self) -> Arc<[Arc<ToolDefinition>]> {
        Arc::clone(&self.tools.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the pending notices.
    pub(super) fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.lock_notices().pending)
    }

    pub(super) fn awaits_consent(&self) -> bool {
        matches!(*self.state.borrow(), State::AwaitingConsent)
    }

    pub(super) fn answer_consent(&self, verdict: &PermissionOutcome) {
        let state = match verdict {
            PermissionOutcome::Allowed => State::Idle,
            // A text answer is not possible here, and never a consent.
            PermissionOutcome::Replied(_) => State::Refused,
            PermissionOutcome::Denied { reason, .. } => {
                self.notice(format!("the project configures it, and it was not started: {reason}"));
                State::Refused
            }
        };
        self.state.send_replace(state);
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(*self.state.borrow(), State::Starting)
    }

    /// Ends it for good.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Starts it, unless it runs, may not run, or has failed a moment ago. Returns whether it was started.
    pub(super) fn start(self: &Arc<Self>) -> bool {
        if self.stop.is_cancelled() {
            return false;
        }
        let mut failures = 0;
        let started = self.state.send_if_modified(|state| {
            let may = match state {
                State::Idle => true,
                State::Failed(failure) => {
                    failures = failure.failures;
                    failure.retry_at <= Instant::now()
                }
                State::Starting | State::Ready(_) | State::AwaitingConsent | State::Refused => false,
            };
            if may {
                *state = State::Starting;
            }
            may
        });
        if started {
            let this = Arc::clone(self);
            self.launch_context.tasks.spawn(async move { this.run(failures).await });
        }
        started
    }

    /// Starts it if that is due. Returns whether this is the first start, which is worth waiting for.
    pub(super) fn start_first(self: &Arc<Self>) -> bool {
        self.start();
        self.is_starting() && !self.was_awaited.swap(true, Ordering::Relaxed)
    }

    /// Waits until its start has succeeded or failed.
    pub(super) async fn start_finished(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        drop(state.wait_for(|state| !matches!(state, State::Starting)).await);
    }

    /// The connected peer; starts the server again if necessary.
    pub(super) async fn peer_or_start(self: &Arc<Self>) -> Result<Peer<RoleClient>, String> {
        self.start();
        self.start_finished().await;
        match &*self.state.borrow() {
            State::Ready(peer) => Ok(peer.clone()),
            State::Failed(StartFailure { reason, retry_at, .. }) => {
                let wait = retry_at.saturating_duration_since(Instant::now()).as_secs() + 1;
                Err(format!("the server is not available: {reason}; it can be tried again in {wait} s"))
            }
            State::Idle | State::Starting | State::AwaitingConsent | State::Refused => {
                Err("the server was removed".into())
            }
        }
    }

    /// Why it has failed, after a call has failed: it takes a moment to find out.
    pub(super) async fn last_failure(&self) -> Option<Arc<str>> {
        let mut state = self.state.subscribe();
        let failed = state.wait_for(|state| matches!(state, State::Failed(_)));
        match tokio::time::timeout(Duration::from_secs(2), failed).await {
            Ok(Ok(state)) => match &*state {
                State::Failed(failure) => Some(Arc::clone(&failure.reason)),
                _ => None,
            },
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn run(self: Arc<Self>, failures: u32) {
        let stderr_log = Arc::new(StderrLog::default());
        let opened = tokio::select! {
            biased;
            () = self.stop.cancelled() => return self.set_idle(),
            opened = tokio::time::timeout(self.start_timeout, self.open(&stderr_log)) => opened,
        };
        let mut connection = match opened {
            Ok(Ok(connection)) => connection,
            Ok(Err(reason)) => return self.fail(reason, failures, false),
            Err(_) => {
                let seconds = self.start_timeout.as_secs_f32();
                return self.fail(
                    stderr_log.describe(&format!("it did not answer within {seconds} s")),
                    failures,
                    false,
                );
            }
        };
        self.lock_notices().last = None;
        let began = Instant::now();
        self.state.send_replace(State::Ready(connection.peer().clone()));
        match self.follow_tool_lists(&mut connection).await {
            None => {
                self.set_idle();
                connection.end(false).await;
            }
            Some(reason) => {
                connection.end(true).await;
                self.fail(reason, if began.elapsed() >= STEADY { 0 } else { failures }, true);
            }
        }
    }

    async fn open(self: &Arc<Self>, stderr_log: &Arc<StderrLog>) -> Result<ServerConnection, String> {
        let connection =
            ServerConnection::open(&self.way, &self.launch_context, self.notifications.clone(), stderr_log)
                .await?;
        self.list(connection.peer()).await?;
        Ok(connection)
    }

    /// Keeps the list of tools current until the server is gone (for the returned reason) or stopped.
    async fn follow_tool_lists(self: &Arc<Self>, connection: &mut ServerConnection) -> Option<String> {
        let mut lists = self.notifications.lists.subscribe();
        loop {
            let known = *self.listed.borrow();
            let count = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                reason = connection.wait_closed() => return Some(reason),
                // The sender lives as long as `self`.
                Ok(count) = lists.wait_for(|count| *count != known) => *count,
            };
            let listed = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                listed = tokio::time::timeout(self.start_timeout, self.list(connection.peer())) => listed,
            };
            match listed {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => self.notice(format!("could not read its new list of tools: {reason}")),
                Err(_) => self.notice("it did not send its new list of tools in time".into()),
            }
            self.listed.send_replace(count);
            // A server that keeps announcing is only followed with pauses.
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep(LIST_PAUSE) => {}
            }
        }
    }

    /// Waits until an announced new list of tools has been read.
    pub(super) async fn listed(&self) {
        let announced = *self.notifications.lists.borrow();
        let mut listed = self.listed.subscribe();
        if matches!(*self.state.borrow(), State::Ready(_)) {
            // Without a sender there is no announcement to wait for.
            drop(listed.wait_for(|count| *count >= announced).await);
        }
    }

    /// Wakes those who wait for the start.
    fn set_idle(&self) {
        self.state.send_replace(State::Idle);
    }

    async fn list(self: &Arc<Self>, peer: &Peer<RoleClient>) -> Result<(), String> {
        let listed = connection::tools(peer).await?;
        let (tools, left_out) = tool::tools(self, listed);
        if left_out > 0 {
            self.notice(format!("{left_out} of its tools are left out: too many, too large or malformed"));
        }
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools.into();
        Ok(())
    }

    /// Records a failure. A server that was running is restarted at once, but not repeatedly.
    fn fail(&self, reason: String, failures: u32, was_there: bool) {
        let wait = match failures {
            0 if was_there => Duration::ZERO,
            again => RETRY_MAX.min(RETRY_FIRST * 2u32.pow(again.min(10))),
        };
        tracing::warn!(server = %self.name, reason, "a tool server failed");
        self.notice(reason.clone());
        let failure =
            StartFailure { reason: reason.into(), retry_at: Instant::now() + wait, failures: failures + 1 };
        self.state.send_replace(State::Failed(failure));
    }

    pub(super) fn notice(&self, text: String) {
        let mut notices = self.lock_notices();
        if notices.pending.len() < NOTICES_MAX && notices.last.as_ref() != Some(&text) {
            notices.last = Some(text.clone());
            notices.pending.push(text);
        }
    }

    fn lock_notices(&self) -> MutexGuard<'_, PendingNotices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
