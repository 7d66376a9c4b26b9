//! One running agent process and the sessions that it serves.
//!
//! One task receives its messages and routes each to the session that it names, in order. Another task waits
//! for the process to end, and ends it when it has been idle for a while.
//!
//! **Invariant:** the answer to a session's request is delivered after everything that the agent sent to that
//! session before it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ForeignError;
use sandbox::{Fence, Files, Mode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::external_agent::{self, AgentAbilities};
use wire::{RpcId, json_errors};

use super::backend::{ExternalConfig, Folders, Shared, failed, foreign};
use super::child_process::{ChildProcess, LaunchSpec, ProcessEvent};
use super::connection::{
    AgentConnection, AgentMessage, ConnectionError, ConnectionLimits, DeferredReply, InvalidOutput,
    MessageReceiver, QueueSpace, RequestOptions, RpcError,
};

/// Messages to one session that it has not processed yet.
const INBOX_MAX: usize = 256;
const UNCLAIMED_MAX: usize = 64;
const UNCLAIMED_BYTES_MAX: usize = 4 << 20;
const PROTOCOL_HINT: &str = "is it a program that speaks the Agent Client Protocol?";
/// For each of the two gentle steps of ending a process.
const END_GRACE: Duration = Duration::from_millis(1500);

/// A message of the agent to one of its sessions.
pub(super) enum SessionMessage {
    Update(Box<RawValue>),
    /// A notification that only the agent and its client understand.
    Extension {
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    Request {
        id: RpcId,
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    /// The answer to a request of this session; all messages before it have been processed.
    Reply(DeferredReply),
    InvalidOutput(InvalidOutput),
}

impl SessionMessage {
    /// Its approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of = |params: &Option<Box<RawValue>>| params.as_ref().map_or(0, |params| params.get().len());
        match self {
            Self::Update(params) => params.get().len(),
            Self::Extension { params, .. } | Self::Request { params, .. } => of(params),
            Self::Reply(_) | Self::InvalidOutput(_) => 0,
        }
    }
}

/// Where a message goes.
enum Route {
    Inbox(mpsc::Sender<(SessionMessage, QueueSpace)>, SessionMessage),
    /// A request for a session that is not open here.
    UnknownSession {
        id: RpcId,
        method: Box<str>,
    },
    Done,
}

/// The messages to a session, each with the queue space that it occupies until it is processed.
pub(super) type Inbox = mpsc::Receiver<(SessionMessage, QueueSpace)>;

pub(super) struct AgentProcess {
    connection: AgentConnection,
    can: AgentAbilities,
    /// Its answer to `initialize`, verbatim.
    greeting: Arc<str>,
    state: Mutex<State>,
    started: Instant,
    /// How and when it ended, once it has.
    end: watch::Receiver<Option<EndRecord>>,
    /// Cancelled to end it.
    stop: CancellationToken,
}

#[derive(Clone)]
struct EndRecord {
    reason: Arc<str>,
    at: Instant,
}

/// Keeps a process from being ended as idle while this value exists.
pub(super) struct ProcessKeepAlive(Arc<AgentProcess>);

impl std::ops::Deref for ProcessKeepAlive {
    type Target = Arc<AgentProcess>;

    fn deref(&self) -> &Arc<AgentProcess> {
        &self.0
    }
}

impl Drop for ProcessKeepAlive {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.keep_alives -= 1;
        state.note_if_idle();
    }
}

#[derive(Default)]
struct State {
    inboxes: HashMap<Arc<str>, mpsc::Sender<(SessionMessage, QueueSpace)>>,
    /// Messages to sessions that are not attached yet: an agent may send some before we have read the new
    /// session's id.
    unclaimed: VecDeque<(String, SessionMessage)>,
    /// How many [`ProcessKeepAlive`] values exist, for example for requests outside of sessions.
    keep_alives: usize,
    /// Since when there has been no session and no keep-alive.
    idle_since: Option<Instant>,
    /// It was ended because it was idle.
    ended_idle: bool,
}

impl State {
    fn note_if_idle(&mut self) {
        if self.inboxes.is_empty() && self.keep_alives == 0 {
            self.idle_since = Some(Instant::now());
        }
    }
}

impl AgentProcess {
    pub(super) async fn start(shared: &Arc<Shared>, folders: Folders<'_>) -> Result<Arc<Self>, ForeignError> {
        let config = &shared.config;
        let notes = config.journal.as_ref().and_then(|journal| journal.notes(&shared.tasks));
        let launch = LaunchSpec { notes, ..launch(config, folders)? };
        let started = Instant::now();
        let (process, mut receiver) =
            ChildProcess::start(launch, &shared.tasks).await.map_err(|error| failed(error.to_string()))?;
        let connection = process.connection().clone();
        let (ended, end) = watch::channel(None);
        let stop = CancellationToken::new();
        let state = Mutex::new(State { idle_since: Some(started), ..State::default() });
        // If the caller stops waiting for the greeting, the process is ended.
        let stop_on_drop = stop.clone().drop_guard();
        let watching = watch_process(process, stop.clone(), ended);
        drop(shared.tasks.spawn(watching));
        // There are no sessions yet, so no other message can be missed while waiting for the greeting.
        let text = match greet(config, &connection, &mut receiver).await {
            Ok(text) => text,
            Err(error) => {
                stop.cancel();
                return Err(with_end_reason(end, error).await);
            }
        };
        let Some(text) = text else {
            stop.cancel();
            return Err(failed(format!("{} only echoes its input; {PROTOCOL_HINT}", config.name)));
        };
        let read = json_errors::read::<&RawValue>(&text, "its answer to initialize")
            .map_err(|error| error.to_string());
        let read = read.and_then(|answer| {
            external_agent::initialize_response(answer).map_err(|error| error.to_string())
        });
        let (_, can) = match read {
            Ok(read) => read,
            Err(error) => {
                stop.cancel();
                return Err(failed(format!("{} cannot be used: {error}", config.name)));
            }
        };
        stop_on_drop.disarm();
        let process = Arc::new(Self { connection, can, greeting: text, state, started, end, stop });
        drop(shared.tasks.spawn(receive_messages(Arc::clone(&process), receiver)));
        drop(shared.tasks.spawn(end_when_idle(Arc::clone(&process), config.timeouts.idle)));
        Ok(process)
    }

    pub(super) fn connection(&self) -> &AgentConnection {
        &self.connection
    }

    pub(super) fn can(&self) -> &AgentAbilities {
        &self.can
    }

    pub(super) fn greeting(&self) -> &Arc<str> {
        &self.greeting
    }

    pub(super) fn is_running(&self) -> bool {
        self.end.borrow().is_none() && !self.stop.is_cancelled() && self.connection.is_open()
    }

    /// Keeps it from being ended as idle. `None` if that has already happened.
    pub(super) fn keep_alive(self: &Arc<Self>) -> Option<ProcessKeepAlive> {
        let mut state = self.state();
        if state.ended_idle {
            return None;
        }
        state.keep_alives += 1;
        state.idle_since = None;
        drop(state);
        Some(ProcessKeepAlive(Arc::clone(self)))
    }

    /// From now on the session receives the agent's messages to it. `None`: another of our sessions receives
    /// them.
    pub(super) fn attach(&self, session: &Arc<str>) -> Option<Inbox> {
        let (inbox, messages) = mpsc::channel(INBOX_MAX);
        let mut state = self.state();
        if state.inboxes.get(session).is_some_and(|inbox| !inbox.is_closed()) {
            return None;
        }
        state.idle_since = None;
        for (of, message) in std::mem::take(&mut state.unclaimed) {
            if of == **session || of.is_empty() {
                // The inbox has more room than there can be unclaimed messages.
                inbox.try_send((message, QueueSpace::default())).ok();
            } else {
                state.unclaimed.push_back((of, message));
            }
        }
        state.inboxes.insert(Arc::clone(session), inbox);
        Some(messages)
    }

    pub(super) fn detach(&self, session: &str) {
        let mut state = self.state();
        state.inboxes.remove(session);
        state.note_if_idle();
    }

    /// Ends the program by force if need be, and waits until it has ended.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let mut end = self.end.clone();
        // The sender is dropped only when all tasks have ended.
        end.wait_for(Option::is_some).await.ok();
    }

    /// Waits for its end and returns the reason.
    pub(super) async fn end_reason(&self) -> Arc<str> {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        ended.map_or_else(|| "the agent has ended".into(), |end| end.reason)
    }

    /// How long it ran, and why it ended.
    pub(super) async fn lifetime_and_reason(&self) -> (Duration, Arc<str>) {
        let reason = self.end_reason().await;
        let end = self.end.borrow().as_ref().map_or_else(Instant::now, |end| end.at);
        (end - self.started, reason)
    }

    pub(super) fn was_ended_idle(&self) -> bool {
        self.state().ended_idle
    }

    /// Where a message to a session goes. A message to a session that is not attached yet is kept; an answer
    /// reaches its requester all the same, and a request is returned to be refused.
    fn route(&self, session: String, message: SessionMessage) -> Route {
        let mut state = self.state();
        if let Some(inbox) = state.inboxes.get(&*session) {
            return Route::Inbox(inbox.clone(), message);
        }
        match message {
            SessionMessage::Request { id, method, .. } => return Route::UnknownSession { id, method },
            SessionMessage::Reply(_) | SessionMessage::InvalidOutput(_) => return Route::Done,
            SessionMessage::Update(_) | SessionMessage::Extension { .. } => {}
        }
        state.unclaimed.push_back((session, message));
        let mut bytes: usize = state.unclaimed.iter().map(|(_, message)| message.bytes()).sum();
        while state.unclaimed.len() > UNCLAIMED_MAX || bytes > UNCLAIMED_BYTES_MAX {
            bytes -= state.unclaimed.pop_front().map_or(bytes, |(_, message)| message.bytes());
        }
        Route::Done
    }

    /// The session that a message is for. If it names none, that is the only session there is.
    fn addressee(&self, params: Option<&RawValue>) -> Option<String> {
        addressee(params).or_else(|| {
            let state = self.state();
            let mut sessions = state.inboxes.keys();
            sessions.next().filter(|_| sessions.len() == 0).map(ToString::to_string)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program and its sandbox: it may write to its sessions' folders and to its own, and it may use the
/// network to reach its model.
fn launch(config: &ExternalConfig, folders: Folders<'_>) -> Result<LaunchSpec, ForeignError> {
    let mut policy = (config.policy_factory)(folders);
    let fenced = policy.mode != Mode::Off;
    if policy.mode == Mode::ReadOnly {
        // They exist even where temporary folders are hidden, and are read-only.
        policy.locked.extend(policy.roots.iter().cloned());
    }
    policy.roots.extend(config.own_folders.iter().cloned());
    policy.within.iter_mut().for_each(|within| within.extend(config.own_folders.iter().cloned()));
    policy.locked.extend(config.own_settings.iter().cloned());
    policy.hidden.retain(|hidden| !config.own_secrets.contains(hidden));
    if fenced {
        policy.mode = Mode::WorkspaceWriteNetwork;
    }
    // The real paths, and what in them is locked.
    let policy = match Files::open(policy.clone()) {
        Ok(files) => files.policy().clone(),
        // The path may lead out of the folders that the session must stay in.
        Err(error) if policy.within.is_some() => return Err(failed(error.to_string())),
        Err(_) => policy,
    };
    let fence = config.helper.clone().filter(|_| fenced).map(|helper| Fence { policy, helper });
    Ok(LaunchSpec {
        name: config.name.to_string(),
        program: config.program.clone(),
        arguments: config.arguments.clone(),
        environment: config.environment.clone(),
        folder: folders.cwd.to_owned(),
        fence,
        limits: config.limits,
        connection: ConnectionLimits::default(),
        notes: None,
    })
}

/// Its answer to `initialize`. `None`: it echoes our request, so it does not speak the protocol.
async fn greet(
    config: &ExternalConfig,
    connection: &AgentConnection,
    receiver: &mut MessageReceiver,
) -> Result<Option<Arc<str>>, ForeignError> {
    let options = RequestOptions { deadline: Some(config.timeouts.handshake), session: None };
    let mut asked = connection.request("initialize", &external_agent::initialize(config.files), options);
    let name = &config.name;
    loop {
        tokio::select! {
            biased;
            answer = &mut asked => return match answer {
                Ok(answer) => Ok(Some(answer.get().into())),
                Err(ConnectionError::TimedOut) => {
                    let seconds = config.timeouts.handshake.as_secs();
                    Err(failed(format!("{name} did not answer initialize within {seconds} s; {PROTOCOL_HINT}")))
                }
                Err(error) => Err(foreign(name, &error)),
            },
            message = receiver.next() => match message {
                AgentMessage::Request { method, .. } if &*method == "initialize" => return Ok(None),
                AgentMessage::Request { id, method, .. } => {
                    let error = RpcError::new(-32601, format!("{method} came before initialize was answered"));
                    connection.refuse(&id, &error).await.ok();
                }
                // The pending request fails at once.
                AgentMessage::Ended(_) => {}
                AgentMessage::Notification { .. } | AgentMessage::Reply(_) | AgentMessage::InvalidOutput { .. } => {}
            },
        }
    }
}

/// Adds why the process ended, which explains more than "no answer".
async fn with_end_reason(mut end: watch::Receiver<Option<EndRecord>>, error: ForeignError) -> ForeignError {
    let ended = tokio::time::timeout(END_GRACE * 3, end.wait_for(Option::is_some)).await;
    match ended.ok().and_then(|end| end.ok()?.clone()) {
        Some(EndRecord { reason, .. }) => failed(format!("{}; {reason}", error.message)),
        None => error,
    }
}

async fn watch_process(
    mut process: ChildProcess,
    stop: CancellationToken,
    ended: watch::Sender<Option<EndRecord>>,
) {
    let end = loop {
        tokio::select! {
            () = stop.cancelled() => break process.end(END_GRACE).await,
            news = process.next() => match news {
                ProcessEvent::Refused(violation) => tracing::info!(?violation, "the agent's sandbox refused something"),
                ProcessEvent::Ended(end) => break end,
            },
        }
    };
    ended.send_replace(Some(EndRecord { reason: end.to_string().into(), at: Instant::now() }));
}

/// Ends the process when it has been idle for a while.
async fn end_when_idle(process: Arc<AgentProcess>, idle: Duration) {
    let mut end = process.end.clone();
    loop {
        let waited =
            tokio::time::timeout(idle / 2 + Duration::from_millis(1), end.wait_for(Option::is_some)).await;
        if waited.is_ok() {
            return;
        }
        let mut state = process.state();
        if state.idle_since.is_some_and(|since| since.elapsed() >= idle) {
            state.ended_idle = true;
            process.stop.cancel();
            return;
        }
    }
}

#[derive(Deserialize)]
struct SessionParam {
    #[serde(rename = "sessionId")]
    session: String,
}

fn addressee(params: Option<&RawValue>) -> Option<String> {
    serde_json::from_str::<SessionParam>(params?.get()).ok().map(|addressed| addressed.session)
}

async fn receive_messages(process: Arc<AgentProcess>, mut receiver: MessageReceiver) {
    loop {
        let (message, space) = receiver.next_with_space().await;
        let (session, message) = match message {
            AgentMessage::Ended(_) => break,
            AgentMessage::Reply(reply) => match reply.session().cloned() {
                Some(session) => (Some(session.to_string()), SessionMessage::Reply(reply)),
                None => continue,
            },
            AgentMessage::Notification { method, params } => match params {
                Some(params) if &*method == "session/update" => {
                    (addressee(Some(&params)), SessionMessage::Update(params))
                }
                // About the connection itself, so it is not passed on.
                _ if method.starts_with("$/") => continue,
                params => {
                    let session = process.addressee(params.as_deref());
                    // If there is no session yet, the first one gets it.
                    (session.or_else(|| Some(String::new())), SessionMessage::Extension { method, params })
                }
            },
            AgentMessage::Request { id, method, params } => {
                let session = process.addressee(params.as_deref()).unwrap_or_default();
                (Some(session), SessionMessage::Request { id, method, params })
            }
            AgentMessage::InvalidOutput { what, .. } => {
                tracing::debug!(?what, "the agent sent something that is not a message");
                let inboxes: Vec<_> = process.state().inboxes.values().cloned().collect();
                for inbox in inboxes {
                    inbox.try_send((SessionMessage::InvalidOutput(what.clone()), QueueSpace::default())).ok();
                }
                continue;
            }
        };
        let Some(session) = session else { continue };
        let undelivered = match process.route(session, message) {
            Route::Inbox(inbox, message) => match inbox.send((message, space)).await {
                // The session has been closed meanwhile.
                Err(mpsc::error::SendError((SessionMessage::Request { id, method, .. }, _))) => {
                    Some((id, method))
                }
                Ok(()) | Err(_) => None,
            },
            Route::UnknownSession { id, method } => Some((id, method)),
            Route::Done => None,
        };
        if let Some((id, method)) = undelivered {
            let error = RpcError::new(-32602, format!("{method} names no session that is open here"));
            // An agent that is gone does not wait for an answer.
            process.connection.refuse(&id, &error).await.ok();
        }
    }
    process.stop.cancel();
    process.state().inboxes.clear();
}
