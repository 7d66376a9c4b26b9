//! The interface between a session and its agent: the built-in one, or another program.
//!
//! A backend is given a turn and a [`TurnContext`]; everything it does reaches people through the
//! context and therefore through the log. It never learns who is watching.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authority::Standing;
use crate::client_host::{HostAbilities, HostLink, Hosts};
use crate::content::{CommandSpec, Content, Opaque};
use crate::event::{AskRequest, Body, Resolution, Stop, Usage};
use crate::event_log::LogReader;
use crate::ids::{CallId, Clock, MessageId, Seq, SessionId, Timestamp, TurnId};
use crate::review::Review;
use crate::settings::{SettingSpec, Settings};
use crate::tool_servers::{ToolServer, ToolServers};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a backend can do, as data.
#[derive(Debug, Clone, Default)]
pub struct Abilities {
    /// Config options in the order a person should see them. `mode` and `model` are two of them.
    pub settings: Vec<SettingSpec>,
    pub commands: Vec<CommandSpec>,
    pub tools: Vec<ToolInfo>,
    pub images: bool,
    /// Sessions take tool servers.
    pub servers: bool,
}

/// What a session in one folder offers, where a project adds something to what every session offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOffer {
    pub settings: Vec<SettingSpec>,
    pub commands: Vec<CommandSpec>,
    /// Modes that may change things, besides the usual one. All others only read.
    pub free_modes: Vec<Arc<str>>,
}

/// A tool as it is listed for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolInfo {
    pub name: Arc<str>,
    pub description: Arc<str>,
}

pub trait Backend: Send + Sync + 'static {
    fn abilities(&self) -> &Abilities;

    /// What a session in `cwd` offers: its project may bring modes and commands of its own.
    fn offer(&self, _cwd: &std::path::Path) -> SessionOffer {
        let Abilities { settings, commands, .. } = self.abilities().clone();
        SessionOffer { settings, commands, free_modes: Vec::new() }
    }

    /// Prepares a session. Nothing slow belongs here: [`BackendSession::ready`] or the first turn may do it.
    fn open(&self, spec: SessionSpec, context: SessionContext) -> Arc<dyn BackendSession>;

    /// The greeting for clients before there is a session. A backend that runs another program may have to
    /// ask that program first.
    fn greeting(&self) -> BoxFuture<'_, Greeting> {
        let Abilities { images, servers, .. } = *self.abilities();
        let greeting = Greeting { images, servers, embedded: true, ..Greeting::default() };
        Box::pin(std::future::ready(greeting))
    }

    /// Signs in where the agent requires it. Only methods that the greeting named are valid.
    fn authenticate<'a>(&'a self, _method: &'a str) -> BoxFuture<'a, Result<(), ForeignError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Access to requests outside the protocol, if the agent supports any.
    fn extensions(&self) -> Option<Arc<dyn Extensions>> {
        None
    }

    /// Names of instruction files that a session in `cwd` would follow.
    fn project_rules(&self, cwd: &std::path::Path) -> Vec<String>;
}

/// What an agent reports about itself before there is a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Greeting {
    pub images: bool,
    pub audio: bool,
    /// Prompts may hold what a file says, not only its address.
    pub embedded: bool,
    /// Sessions take tool servers.
    pub servers: bool,
    /// The name of an external agent and its ways of signing in.
    pub foreign: Option<Box<ForeignGreeting>>,
}

/// Parts of an external agent's own greeting, verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignGreeting {
    pub agent: Option<Opaque>,
    pub auth_methods: Vec<Opaque>,
    pub capabilities: Opaque,
    /// Other fields of its greeting.
    pub meta: Option<Opaque>,
}

/// The error that an external agent answered a request with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", detail(.data.as_ref()))]
pub struct ForeignError {
    /// As JSON-RPC counts errors.
    pub code: i64,
    pub message: Arc<str>,
    pub data: Option<Opaque>,
}

/// Many agents put the details only beside the message, as a quoted text.
fn detail(data: Option<&Opaque>) -> String {
    let text = data.and_then(|data| data.0.strip_prefix('"')?.strip_suffix('"'));
    text.map(|text| format!(": {text}")).unwrap_or_default()
}

/// Requests and notifications that only the agent and its client understand.
pub trait Extensions: Send + Sync + 'static {
    fn call(&self, method: Arc<str>, params: Opaque) -> BoxFuture<'static, Result<Opaque, ForeignError>>;

    /// Sends a notification and waits for nothing. If it cannot be delivered now, it is lost, as
    /// notifications are.
    fn notify(&self, method: Arc<str>, params: Opaque);
}

#[derive(Debug, Clone)]
pub struct SessionSpec {
    pub id: SessionId,
    pub cwd: PathBuf,
    /// Further folders the session may work in.
    pub roots: Vec<PathBuf>,
    /// The folders that none of these may lead out of, whatever becomes of their paths; anywhere without.
    pub within: Option<Arc<[PathBuf]>>,
    /// Tool servers that the client that opens the session wants connected.
    pub servers: Vec<ToolServer>,
}

/// A session as the backend sees it. At most one turn runs at a time.
pub trait BackendSession: Send + Sync + 'static {
    fn turn(
        self: Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> BoxFuture<'static, Result<Stop, TurnError>>;

    /// Waits until the session's offers are known. Awaited once, before the client that created the session
    /// gets its answer; a session that is brought back is shown without waiting for this.
    fn ready(self: Arc<Self>) -> BoxFuture<'static, Result<(), ForeignError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// A person chose something. Called in the order of the log; must not wait.
    fn chosen(&self, _id: &Arc<str>, _value: &Arc<str>) {}

    /// Access to requests outside the protocol, if the session supports any.
    fn extensions(&self) -> Option<Arc<dyn Extensions>> {
        None
    }

    /// The tool servers of the session, if it can have any.
    fn servers(&self) -> Option<Arc<dyn ToolServers>> {
        None
    }

    /// The session's file changes, if they are tracked.
    fn review(&self) -> Option<Arc<dyn Review>> {
        None
    }

    /// Ends what the session has running besides turns. Called once, after the last turn; the session
    /// waits for it a while.
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Debug, Clone)]
pub struct TurnInput {
    pub turn: TurnId,
    pub content: Vec<Content>,
    /// Whether the session already has a title.
    pub titled: bool,
}

/// The turn failed; the session goes on. The text is shown to the person.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TurnError(pub String);

/// The session ended under the turn: stop working.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the session is gone")]
pub struct SessionGone;

/// There is nobody left to report to.
impl From<SessionGone> for TurnError {
    fn from(gone: SessionGone) -> Self {
        Self(gone.to_string())
    }
}

/// The outcome of a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionOutcome {
    Allowed,
    /// A question was answered.
    Replied(Arc<str>),
    /// The reason is shown to the model.
    Denied {
        resolution: Resolution,
        reason: Arc<str>,
    },
}

/// What a session's backend can use while no turn runs.
#[derive(Clone)]
pub struct SessionContext {
    pub(crate) reports: mpsc::Sender<BackendReport>,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) tracker: TaskTracker,
    pub(crate) clock: Arc<dyn Clock>,
    /// The log from its beginning.
    pub history: LogReader,
}

impl SessionContext {
    /// Puts an event into the log, outside any turn. Events that only a turn can report are refused.
    pub async fn emit(&self, event: impl Into<NewEvent>) -> Result<(), SessionGone> {
        self.report(ReportKind::Emit(event.into())).await
    }

    /// Waits until everything that was reported so far is in the store.
    pub async fn settled(&self) -> Result<(), SessionGone> {
        let (reply, place) = oneshot::channel();
        self.report(ReportKind::Mark { reply }).await?;
        let seq = place.await.map_err(|_| SessionGone)?;
        let mut reader = self.history.after(Seq(seq.0.saturating_sub(1)));
        if reader.head() < seq {
            // The caller continues however this ends; the session itself reports failures.
            drop(reader.next().await);
        }
        Ok(())
    }

    /// The settings as they are at this moment.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The client to ask for what only some can do, if one offers it at this moment.
    pub fn host(&self, can: impl Fn(HostAbilities) -> bool) -> Option<HostLink> {
        self.hosts.find(can).map(|link| link.behind(&self.history))
    }

    /// Spawns work beside the turns. The session does not wait for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.tracker.spawn(work));
    }

    async fn report(&self, kind: ReportKind) -> Result<(), SessionGone> {
        let report = BackendReport { turn: None, within: None, kind };
        self.reports.send(report).await.map_err(|_| SessionGone)
    }
}

/// An event that has no position in the log yet, and the original message of an external agent if there is
/// one.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub body: Body,
    pub relayed: Option<Opaque>,
}

impl From<Body> for NewEvent {
    fn from(body: Body) -> Self {
        Self { body, relayed: None }
    }
}

/// Everything a turn may touch outside itself.
#[derive(Clone)]
pub struct TurnContext {
    pub(crate) turn: TurnId,
    /// The call that this context's sub-agent works for.
    pub(crate) within: Option<CallId>,
    /// Messages said so far in this turn, by whomever.
    pub(crate) messages: Arc<AtomicU64>,
    pub(crate) reports: mpsc::Sender<BackendReport>,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) place: watch::Receiver<Arc<PathBuf>>,
    pub(crate) message_base: u64,
    pub(crate) hosts: Arc<Hosts>,
    /// Whether somebody can be asked.
    pub(crate) attended: bool,
    /// The standing of the sender of the prompt.
    pub(crate) standing: Standing,
    /// Cancelled when the turn should end. Partial output may still be reported.
    pub cancel: CancellationToken,
    /// Cancelled when its end is reported.
    pub(crate) over: CancellationToken,
    /// The log from its beginning: what the model should remember.
    pub history: LogReader,
}

/// What a backend reports to its session, from a turn or outside of one.
#[derive(Debug)]
pub struct BackendReport {
    /// None: it is said outside any turn.
    pub turn: Option<TurnId>,
    pub within: Option<CallId>,
    pub kind: ReportKind,
}

#[derive(Debug)]
pub enum ReportKind {
    Emit(NewEvent),
    Ask {
        request: Box<AskRequest>,
        reply: oneshot::Sender<PermissionOutcome>,
    },
    Change {
        id: Arc<str>,
        value: Arc<str>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Asks for the current position of the log.
    Mark {
        reply: oneshot::Sender<Seq>,
    },
    Ended {
        stop: Stop,
        error: Option<Arc<str>>,
    },
}

impl TurnContext {
    /// Puts an event into the log. Waits while the log is behind, which is what slows a flood down.
    pub async fn emit(&self, event: impl Into<NewEvent>) -> Result<(), SessionGone> {
        self.report(ReportKind::Emit(event.into())).await
    }

    pub async fn text(&self, message: MessageId, text: impl Into<Arc<str>>) -> Result<(), SessionGone> {
        self.emit(Body::Text { message, text: text.into() }).await
    }

    pub async fn usage(&self, usage: Usage) -> Result<(), SessionGone> {
        self.emit(Body::Usage(usage)).await
    }

    /// Asks for permission: the policy, a stored rule or a person answers. Once this returns
    /// `Allowed`, the decision and everything reported before it is in the store.
    pub async fn ask(&self, request: AskRequest) -> Result<PermissionOutcome, SessionGone> {
        let (reply, verdict) = oneshot::channel();
        self.report(ReportKind::Ask { request: Box::new(request), reply }).await?;
        verdict.await.map_err(|_| SessionGone)
    }

    /// Changes a setting on the user's behalf, as a slash command does.
    pub async fn change(&self, id: &str, value: &str) -> Result<Result<(), String>, SessionGone> {
        let (reply, outcome) = oneshot::channel();
        self.report(ReportKind::Change { id: id.into(), value: value.into(), reply }).await?;
        outcome.await.map_err(|_| SessionGone)
    }

    /// The place in the log of the last thing that this turn has reported.
    pub async fn mark(&self) -> Result<Seq, SessionGone> {
        let (reply, place) = oneshot::channel();
        self.report(ReportKind::Mark { reply }).await?;
        place.await.map_err(|_| SessionGone)
    }

    /// Comes back when the turn's end is reported: what the agent says from then on comes after it.
    pub async fn over(&self) {
        self.over.cancelled().await;
    }

    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// The client to ask for what only some can do, if one offers it at this moment.
    pub fn host(&self, can: impl Fn(HostAbilities) -> bool) -> Option<HostLink> {
        self.hosts.find(can).map(|link| link.behind(&self.history))
    }

    /// The settings as they are at this moment: a change applies to the very next model call.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Whether a person sees what happens and can be asked. Otherwise the prompt may have been written by
    /// anybody.
    pub fn attended(&self) -> bool {
        self.attended
    }

    /// Who prompted this turn: what a slash command may do is theirs to ask for.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The folder that relative paths start from.
    pub fn cwd(&self) -> Arc<PathBuf> {
        Arc::clone(&self.place.borrow())
    }

    /// A new message id, unique within the session, also among sub-agents of the turn.
    pub fn new_message(&self) -> MessageId {
        self.message(self.messages.fetch_add(1, Ordering::Relaxed))
    }

    /// The id of the `n`th message of this turn, counted from 0. Unique within the session.
    pub fn message(&self, n: u64) -> MessageId {
        MessageId(self.message_base + n)
    }

    /// The context of a sub-agent that works for a call. Everything it reports carries that call.
    pub fn within(&self, call: CallId) -> Self {
        Self { within: Some(call), ..self.clone() }
    }

    /// The call that this context's sub-agent works for, if it is one.
    pub fn works_for(&self) -> Option<&CallId> {
        self.within.as_ref()
    }

    pub fn turn(&self) -> TurnId {
        self.turn
    }

    /// The session that the turn belongs to.
    pub fn session(&self) -> &SessionId {
        self.hosts.session()
    }

    async fn report(&self, kind: ReportKind) -> Result<(), SessionGone> {
        let report = BackendReport { turn: Some(self.turn), within: self.within.clone(), kind };
        self.reports.send(report).await.map_err(|_| SessionGone)
    }
}
