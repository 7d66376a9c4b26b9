//! One of our sessions that is backed by a session of an external agent.
//!
//! The agent's session is joined when it is first needed, and again after the agent's process has ended:
//! under its own id if the agent can restore it, otherwise as a new session that is given the conversation so
//! far. One task processes the agent's messages to this session, in order. What it says goes into the running
//! turn, or outside of turns if none is running.

mod join;
mod new_protected_files;
mod output_budget;
mod turn;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::{
    Body, BoxFuture, Extensions, ForeignError, HostAbilities, HostCall, HostReply, MessageId, NewEvent,
    NoticeLevel, Opaque, OutputStream, PermissionOutcome, Resolution, Risk, SessionContext, SessionSpec,
    Stop, TerminalId, ToolKind, TurnContext, TurnError, TurnInput,
};
use guard::{Assessment, ProposedAction, Workplace, assess_action, with_steered_programs};
use sandbox::ProtectedEntries;
use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::RpcId;
use wire::acp::{HostRequestError, host_request, host_result};
use wire::external_agent::{self, TranslatedEvent, UpdateTranslator};

use super::agent_process::{AgentProcess, Inbox, SessionMessage};
use super::backend::{Folders, Shared, failed, foreign, raw};
use super::connection::{DeferredReply, InvalidOutput, RequestOptions, RpcError};
use super::host_services::{ByteCounter, Grant, HostServices, HostServicesSpec};
use join::JoinReason;
use output_budget::{OutputBudget, Overrun};

pub use output_budget::OutputLimits;

/// Base of the ids of messages outside of turns, so that they differ from those of turns.
const OUTSIDE_TURNS: u64 = 1 << 62;
/// Requests of the agent that are processed at the same time, in one session.
const REQUESTS_MAX: usize = 128;
/// Their total size, in pieces of 1 KiB.
const REQUEST_PIECES_MAX: usize = 64 << 10;
const PIECE_BYTES: usize = 1 << 10;
/// What a request counts besides its parameters.
const REQUEST_BYTES: usize = 256;
/// A larger message must be in the log before the next one is processed, so that few of them are in memory.
const LARGE_BYTES: usize = 1 << 20;

pub(super) struct ExternalSession {
    shared: Arc<Shared>,
    spec: SessionSpec,
    context: SessionContext,
    host_services: HostServices,
    state: Mutex<State>,
    me: Weak<Self>,
    /// Locked while the agent's session is joined, so that concurrent callers get the same one.
    joining: tokio::sync::Mutex<()>,
    /// Files that can make another program run something, as they were before the agent worked.
    protected_before: tokio::sync::Mutex<Option<ProtectedEntries>>,
    /// One permit for each request of the agent that is processed, and one for each KiB of it.
    request_permits: Arc<Semaphore>,
    size_permits: Arc<Semaphore>,
    /// Cancelled when the session is closed.
    closed: CancellationToken,
    /// Notified when the running turn exceeds its output budget.
    overrun_notify: Notify,
}

struct State {
    joined: Option<Arc<JoinedSession>>,
    /// The output budget of the turn and of what comes after it.
    output_budget: OutputBudget,
    /// The limit that was exceeded: the agent's output is not logged until the next prompt.
    overrun: Option<Overrun>,
    turn: Option<TurnContext>,
    /// Translates the agent's updates; it knows the session's state so far.
    hearing: UpdateTranslator,
    /// The agent's session has not been given the conversation so far.
    needs_history: bool,
    /// When the last message of the agent arrived.
    last_heard: Option<Instant>,
    /// Number of messages outside of turns.
    outside_count: u64,
    /// The agent has set a title for the session.
    titled: bool,
    /// How many bytes of each terminal's output have been logged.
    shown_bytes: HashMap<TerminalId, usize>,
    /// Commands in our own terminals that are watched until they end.
    watched_commands: usize,
}

impl State {
    fn new(limits: OutputLimits) -> Self {
        Self {
            joined: None,
            output_budget: OutputBudget::new(limits),
            overrun: None,
            turn: None,
            hearing: UpdateTranslator::default(),
            needs_history: false,
            last_heard: None,
            outside_count: 0,
            titled: false,
            shown_bytes: HashMap::new(),
            watched_commands: 0,
        }
    }
}

/// A request of the agent, and the turn in which it was made.
struct Request {
    id: RpcId,
    method: Box<str>,
    params: Option<Box<RawValue>>,
    turn: Option<TurnContext>,
}

/// The session at the agent that this session has joined.
struct JoinedSession {
    process: Arc<AgentProcess>,
    /// The agent's own name for it.
    id: Arc<str>,
    /// Cancelled when everything was taken that the agent said to it.
    drained: CancellationToken,
}

impl ExternalSession {
    pub(super) fn new(shared: Arc<Shared>, spec: SessionSpec, context: SessionContext) -> Arc<Self> {
        let config = &shared.config;
        let services_spec = HostServicesSpec {
            cwd: spec.cwd.clone(),
            policy: (config.policy_factory)(Folders::of(&spec)),
            helper: config.helper.clone(),
            environment: config.command_environment.clone(),
            limits: config.limits,
            editor_terminal: config.editor_terminal,
        };
        let (state, joining) = (Mutex::new(State::new(config.output)), tokio::sync::Mutex::default());
        let (requests, pieces) = (Semaphore::new(REQUESTS_MAX), Semaphore::new(REQUEST_PIECES_MAX));
        Arc::new_cyclic(|me| Self {
            shared,
            spec,
            context,
            host_services: HostServices::open(services_spec, counter(me.clone())),
            state,
            me: me.clone(),
            joining,
            protected_before: tokio::sync::Mutex::default(),
            request_permits: Arc::new(requests),
            size_permits: Arc::new(pieces),
            closed: CancellationToken::new(),
            overrun_notify: Notify::new(),
        })
    }

    fn name(&self) -> &Arc<str> {
        &self.shared.config.name
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn joined(&self) -> Option<Arc<JoinedSession>> {
        self.state().joined.clone().filter(|joined| joined.process.is_running())
    }

    /// The running turn. A turn that was ended by force is over, whatever the state here says.
    fn running_turn(&self) -> Option<TurnContext> {
        self.state().turn.clone().filter(|turn| !turn.is_over())
    }

    /// Whether this is the session that is in use. Messages to one that was left are ignored.
    fn is_current(&self, joined: &Arc<JoinedSession>) -> bool {
        self.state().joined.as_ref().is_some_and(|current| Arc::ptr_eq(current, joined))
    }

    /// Processes the agent's messages to this session until there are no more.
    async fn receive(self: Arc<Self>, joined: Arc<JoinedSession>, mut inbox: Inbox) {
        let _drained = joined.drained.clone().drop_guard();
        while let Some((message, _space)) = inbox.recv().await {
            if !self.is_current(&joined) {
                continue;
            }
            self.state().last_heard = Some(Instant::now());
            let large = message.bytes() > LARGE_BYTES;
            match message {
                SessionMessage::Update(params) => self.update(&params).await,
                SessionMessage::Extension { method, params } => {
                    let body = external_agent::extension(&method, params.as_deref());
                    self.emit(body).await;
                }
                SessionMessage::Request { id, method, params } => {
                    if let Err(overrun) = self.count_bytes(request_bytes(params.as_deref())).await {
                        let refused = RpcError::new(-32000, overrun.of(self.name()));
                        // An agent that is gone waits for no answer.
                        joined.process.connection().refuse(&id, &refused).await.ok();
                        continue;
                    }
                    self.start_request(&joined, Request { id, method, params, turn: self.running_turn() })
                        .await;
                }
                SessionMessage::Reply(answered) => self.deliver_reply(answered).await,
                SessionMessage::InvalidOutput(invalid_output) => self.invalid_output(&invalid_output).await,
            }
            if large {
                // A session that is gone has no log.
                self.context.settled().await.ok();
            }
        }
        if self.is_current(&joined) {
            self.host_services.end_terminals();
        }
    }

    /// Delivers an answer: everything before it has been processed. What follows the answer to a prompt is
    /// outside of that turn.
    async fn deliver_reply(&self, answered: DeferredReply) {
        let turn = self.running_turn().filter(|_| answered.method() == external_agent::PROMPT);
        drop(answered);
        if let Some(turn) = turn {
            turn.over().await;
        }
    }

    async fn start_request(self: &Arc<Self>, joined: &Arc<JoinedSession>, request: Request) {
        let bytes = request.params.as_ref().map_or(0, |params| params.get().len());
        let pieces = u32::try_from(bytes / PIECE_BYTES).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.request_permits).try_acquire_owned();
        let room = Arc::clone(&self.size_permits).try_acquire_many_owned(pieces);
        let (Ok(permit), Ok(room)) = (permit, room) else {
            let text = format!(
                "too many or too large requests are open in this session (at most {REQUESTS_MAX}); wait for their answers"
            );
            // An agent that is gone waits for no answer.
            joined.process.connection().refuse(&request.id, &RpcError::new(-32000, text)).await.ok();
            return;
        };
        let (session, joined) = (Arc::clone(self), Arc::clone(joined));
        self.context.spawn(async move {
            session.serve(&joined, request).await;
            drop((permit, room));
        });
    }

    async fn update(&self, params: &RawValue) {
        let turn = self.running_turn();
        let heard = {
            let mut state = self.state();
            let State { hearing, outside_count, .. } = &mut *state;
            hearing.set_time(self.context.now());
            let mut next = || match &turn {
                Some(turn) => turn.new_message(),
                None => self.message_outside_turn(outside_count),
            };
            hearing.translate(params, &mut next, turn.is_some())
        };
        self.log_updates(turn, heard).await;
    }

    async fn log_updates(&self, turn: Option<TurnContext>, heard: Vec<TranslatedEvent>) {
        for heard in heard {
            if let Body::Title { .. } = heard.said.body {
                self.state().titled = true;
            }
            if !self.count_output(&heard.said).await {
                continue;
            }
            // If the session is gone, there is no log to write to.
            match (&turn, heard.parent) {
                (Some(turn), Some(call)) => turn.within(call).emit(heard.said).await.ok(),
                (Some(turn), None) => turn.emit(heard.said).await.ok(),
                (None, _) => self.context.emit(as_foreign(heard.said)).await.ok(),
            };
        }
    }

    fn message_outside_turn(&self, count: &mut u64) -> MessageId {
        *count += 1;
        // The log position makes them differ from those of earlier times that the session was open.
        MessageId(OUTSIDE_TURNS + (self.context.history.head().0 << 16) + *count)
    }

    async fn invalid_output(&self, invalid_output: &InvalidOutput) {
        // Log lines on standard output are common and not reported; a discarded message must be.
        if let InvalidOutput::TooLong { .. } = invalid_output {
            let text = format!("{} sent something invalid, which is ignored: {invalid_output}", self.name());
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// A notice of ours, which is logged even if the agent has exceeded its budget.
    async fn notice(&self, level: NoticeLevel, text: String) {
        self.log(Body::Notice { level, text: text.into() }.into()).await;
    }

    /// Counts output of the agent, and returns whether it may still be logged.
    async fn count_output(&self, said: &NewEvent) -> bool {
        let counted = self.state().output_budget.take(said);
        self.report_overrun(counted).await.is_ok()
    }

    /// The same for output that is logged in another form.
    async fn count_bytes(&self, bytes: usize) -> Result<(), Overrun> {
        let counted = self.state().output_budget.take_bytes(bytes);
        self.report_overrun(counted).await
    }

    /// Reports an exceeded limit once: through the turn, or here if none runs.
    async fn report_overrun(&self, counted: Result<(), Overrun>) -> Result<(), Overrun> {
        let Err(overrun) = counted else { return Ok(()) };
        let is_known = self.state().overrun.replace(overrun.clone()).is_some();
        if !is_known && self.running_turn().is_some() {
            self.overrun_notify.notify_one();
        } else if !is_known {
            let text = overrun.of(self.name()).into();
            // If the session is gone, there is no log to write to.
            self.context.emit(Body::Notice { level: NoticeLevel::Warning, text }).await.ok();
        }
        Err(overrun)
    }

    /// Logs an event of the agent, in the running turn or outside of turns.
    async fn emit(&self, body: Body) {
        let said = NewEvent::from(body);
        if self.count_output(&said).await {
            self.log(said).await;
        }
    }

    async fn log(&self, said: NewEvent) {
        // If the session is gone, there is no log to write to.
        match self.running_turn() {
            Some(turn) => turn.emit(said).await.ok(),
            None => self.context.emit(said).await.ok(),
        };
    }

    /// Answers a request of the agent to its client.
    async fn serve(&self, joined: &JoinedSession, request: Request) {
        let Request { id, method, params, turn } = request;
        // What the agent sent before is in the log first, so the client sees it before it is asked.
        self.context.settled().await.ok();
        let answered = if &*method == "session/request_permission" {
            self.permission(turn.as_ref(), params.as_deref()).await
        } else if let Some(wish) = host_request(&method, params.as_deref()) {
            let served = match wish {
                Ok(wish) => self.host(turn.as_ref(), wish.call).await,
                Err(error) => Err(error),
            };
            let served = served.and_then(|reply| host_result(&reply));
            served.map_err(|error| RpcError::new(error.code(), error.to_string()))
        } else {
            self.forward_to_editor(joined, turn.as_ref(), &method, params.as_deref()).await
        };
        self.state().last_heard = Some(Instant::now());
        // An agent that is gone waits for no answer.
        match answered {
            Ok(answer) => joined.process.connection().answer(&id, &answer).await.ok(),
            Err(error) => joined.process.connection().refuse(&id, &error).await.ok(),
        };
    }

    async fn host(&self, turn: Option<&TurnContext>, call: HostCall) -> Result<HostReply, HostRequestError> {
        let (looks, leaves) = match &call {
            HostCall::TerminalOutput(id) | HostCall::WaitForExit(id) => (Some(id.clone()), None),
            HostCall::ReleaseTerminal(id) => (None, Some(id.clone())),
            HostCall::ReadText { .. }
            | HostCall::WriteText { .. }
            | HostCall::CreateTerminal(_)
            | HostCall::KillTerminal(_)
            | HostCall::TypeInto { .. }
            | HostCall::Extension { .. } => (None, None),
        };
        if let Some(terminal) = leaves {
            self.log_terminal_output(turn, &terminal).await;
        }
        let served = self.host_services.serve(turn, call).await;
        if let Ok(HostReply::Terminal(terminal)) = &served {
            self.watch_command(terminal);
        }
        if let Some(terminal) = looks {
            self.log_terminal_output(turn, &terminal).await;
        }
        served
    }

    /// Logs the new output of one of our terminals as output of the tool call that shows it: people have no
    /// other way to see it.
    async fn log_terminal_output(&self, turn: Option<&TurnContext>, terminal: &TerminalId) {
        // If the beginning of the output was dropped, it is not known which part is new.
        let output = self.host_services.terminal_output(terminal).filter(|output| !output.truncated);
        let Some((turn, output)) = turn.zip(output) else { return };
        let said = {
            let mut state = self.state();
            let Some(call) = state.hearing.call_showing(&terminal.0).cloned() else { return };
            let seen = state.shown_bytes.insert(terminal.clone(), output.text.len()).unwrap_or_default();
            let text = output.text.get(seen..).filter(|text| !text.is_empty());
            text.map(|text| Body::ToolOutput { call, stream: OutputStream::Stdout, text: text.into() })
        };
        if let Some(said) = said.map(NewEvent::from)
            && self.count_output(&said).await
        {
            // If the session is gone, there is no log to write to.
            turn.emit(said).await.ok();
        }
    }

    async fn permission(
        &self,
        turn: Option<&TurnContext>,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, RpcError> {
        let Some(turn) = turn else { return Ok(external_agent::permission_outcome(None)) };
        let read = params.map(|params| self.state().hearing.permission(params));
        let Some(Ok(request)) = read else {
            return Err(RpcError::new(-32602, "the permission request is malformed"));
        };
        let (shared, spec) = (Arc::clone(&self.shared), self.spec.clone());
        let judging = tokio::task::spawn_blocking(move || assessed_request(&shared, &spec, request));
        let request =
            judging.await.map_err(|_| RpcError::new(-32603, "could not assess the permission request"))?;
        let foreign = request.foreign.clone();
        let grant = Grant {
            class: request.class,
            path: request.path.clone(),
            line: (request.kind == ToolKind::Execute).then(|| request.subject.to_string()),
        };
        if let Err(overrun) = self.count_bytes(request.weight()).await {
            return Err(RpcError::new(-32000, overrun.of(self.name())));
        }
        let verdict = turn.ask(request).await;
        let nearest = |wanted: Resolution| {
            let option = foreign.as_ref().and_then(|foreign| foreign.nearest(wanted));
            option.map(|option| Arc::clone(&option.id))
        };
        let chosen = match verdict {
            Ok(PermissionOutcome::Allowed) => {
                self.host_services.add_grant(grant);
                nearest(Resolution::AllowedOnce)
            }
            Ok(PermissionOutcome::Replied(id)) => {
                let option = foreign.as_ref().and_then(|foreign| foreign.option(&id));
                if option.is_some_and(|option| option.means.allows()) {
                    self.host_services.add_grant(grant);
                }
                Some(id)
            }
            // "Cancelled" is sent only if the turn was cancelled: some agents end the turn at once then.
            Ok(PermissionOutcome::Denied { resolution: Resolution::Cancelled, .. }) | Err(_) => None,
            Ok(PermissionOutcome::Denied { .. }) => nearest(Resolution::DeniedOnce),
        };
        Ok(external_agent::permission_outcome(chosen.as_deref()))
    }

    /// Forwards an unknown method to the person's editor, which may know it.
    async fn forward_to_editor(
        &self,
        joined: &JoinedSession,
        turn: Option<&TurnContext>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, RpcError> {
        let unknown = || RpcError::new(-32601, format!("method not found: {method}"));
        // Methods of the protocol itself are never forwarded.
        if ["fs/", "terminal/", "session/"].iter().any(|known| method.starts_with(known)) {
            return Err(unknown());
        }
        let host = self.context.host(|_: HostAbilities| true).ok_or_else(unknown)?;
        let params = with_session_id(params.map_or("{}", RawValue::get), self.spec.id.as_str());
        let over = async {
            match turn {
                Some(turn) => tokio::select! {
                    () = turn.cancel.cancelled() => {}
                    () = turn.over() => {}
                },
                None => std::future::pending().await,
            }
        };
        let asked = tokio::select! {
            biased;
            () = over => Err(engine::HostError::Refused("the turn is over".into())),
            () = self.closed.cancelled() => Err(engine::HostError::Gone),
            _ = joined.process.end_reason() => Err(engine::HostError::Gone),
            answer = host.extension(method.into(), Opaque(params.into())) => answer,
        };
        match asked {
            Ok(answer) => Ok(raw(&answer.0)),
            Err(engine::HostError::Foreign(error)) => {
                let data = error.data.as_ref().map(|data| raw(&data.0));
                Err(RpcError { code: error.code, message: error.message.to_string(), data })
            }
            Err(error) => Err(RpcError::new(-32603, error.to_string())),
        }
    }
}

/// The least that a request adds to the log: its question and the answer.
fn request_bytes(params: Option<&RawValue>) -> usize {
    params.map_or(0, |params| params.get().len()) + REQUEST_BYTES
}

/// Counts what host services log for the agent, like its own output.
fn counter(session: Weak<ExternalSession>) -> ByteCounter {
    Arc::new(move |bytes| {
        let session = session.upgrade();
        Box::pin(async move {
            // Nothing is logged for a session that is gone.
            let Some(session) = session else { return Ok(()) };
            session.count_bytes(bytes).await.map_err(|overrun| overrun.of(session.name()))
        })
    })
}

/// A tool call outside of a turn could not be ended with that turn, so it is only relayed to clients.
fn as_foreign(said: NewEvent) -> NewEvent {
    let calls = matches!(
        said.body,
        Body::ToolStarted(_) | Body::ToolChanged(_) | Body::ToolEnded(_) | Body::ToolOutput { .. }
    );
    match said.relayed {
        Some(payload) if calls && !payload.0.is_empty() => Body::Foreign { payload }.into(),
        relayed => NewEvent { relayed, ..said },
    }
}

/// The parameters with another session id.
fn with_session_id(params: &str, session: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(params) {
        Ok(serde_json::Value::Object(mut fields)) => {
            if fields.contains_key("sessionId") {
                fields.insert("sessionId".into(), session.into());
            }
            serde_json::Value::Object(fields).to_string()
        }
        Ok(_) | Err(_) => params.to_owned(),
    }
}

impl engine::BackendSession for ExternalSession {
    fn turn(
        self: Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> BoxFuture<'static, Result<Stop, TurnError>> {
        Box::pin(async move {
            let outcome = self.work(input, context).await;
            {
                let mut state = self.state();
                state.turn = None;
                state.hearing.end_turn();
                state.shown_bytes.clear();
            }
            self.host_services.turn_ended();
            outcome
        })
    }

    fn ready(self: Arc<Self>) -> BoxFuture<'static, Result<(), ForeignError>> {
        Box::pin(async move {
            self.join(JoinReason::Opened).await?;
            self.context.settled().await.map_err(|gone| failed(gone.to_string()))
        })
    }

    fn chosen(&self, id: &Arc<str>, value: &Arc<str>) {
        let Some(joined) = self.joined() else { return };
        let set = {
            let mut state = self.state();
            let set = external_agent::setting_request(state.hearing.offers(), &joined.id, id, value);
            state.hearing.note_choice(id, value);
            set
        };
        let Some((method, params)) = set else { return };
        let options = RequestOptions {
            deadline: Some(self.shared.config.timeouts.handshake),
            session: Some(Arc::clone(&joined.id)),
        };
        // Sent before this returns, so that it applies to the next prompt.
        let answer = joined.process.connection().request(method, &params, options);
        let (session, id) = (self.me.clone(), Arc::clone(id));
        self.context.spawn(async move {
            let answer = answer.await;
            let Some(session) = session.upgrade() else { return };
            match answer {
                Ok(result) => {
                    let heard = session.state().hearing.translate_options(&result);
                    session.log_updates(session.running_turn(), heard).await;
                }
                Err(error) => {
                    let name = session.name();
                    let text = format!("{name} did not accept {id}: {}", foreign(name, &error).message);
                    session.notice(NoticeLevel::Error, text).await;
                }
            }
        });
    }

    fn extensions(&self) -> Option<Arc<dyn Extensions>> {
        Some(Arc::new(SessionExtensions(self.me.clone())))
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.closed.cancel();
            self.host_services.close().await;
            let joined = self.state().joined.take();
            if let Some(joined) = joined {
                joined.process.detach(&joined.id);
                if joined.process.is_running() && joined.process.can().close {
                    let options =
                        RequestOptions { deadline: Some(std::time::Duration::from_secs(2)), session: None };
                    let params = external_agent::close(&joined.id);
                    // There is a deadline; without an answer the session is closed all the same.
                    joined.process.connection().request("session/close", &params, options).await.ok();
                }
            }
        })
    }
}

/// Extension methods that are sent to the agent's session.
struct SessionExtensions(Weak<ExternalSession>);

impl Extensions for SessionExtensions {
    fn call(&self, method: Arc<str>, params: Opaque) -> BoxFuture<'static, Result<Opaque, ForeignError>> {
        let session = self.0.upgrade();
        Box::pin(async move {
            let session = session.ok_or_else(|| failed("the session is gone".to_owned()))?;
            let joined = session.join(JoinReason::Prompted).await?;
            let params = raw(&with_session_id(&params.0, &joined.id));
            let options = RequestOptions { deadline: None, session: Some(Arc::clone(&joined.id)) };
            let answered = joined.process.connection().request(&method, &params, options).await;
            let answer = answered.map_err(|error| foreign(session.name(), &error))?;
            Ok(Opaque(answer.get().into()))
        })
    }

    fn notify(&self, method: Arc<str>, params: Opaque) {
        if let Some(joined) = self.0.upgrade().and_then(|session| session.joined()) {
            let params = raw(&with_session_id(&params.0, &joined.id));
            // A notification that cannot be sent now is dropped.
            joined.process.connection().notify(&method, &params).ok();
        }
    }
}

/// Assesses the risk of a permission request like actions of the built-in agent. Accesses the disk.
fn assessed_request(
    shared: &Shared,
    spec: &SessionSpec,
    mut request: engine::AskRequest,
) -> engine::AskRequest {
    let policy = (shared.config.policy_factory)(Folders::of(spec));
    let home = policy.homes.first().map(PathBuf::as_path);
    let place = Workplace { cwd: &spec.cwd, roots: &policy.roots, home };
    // A tool of a tool server has a name, not a command line.
    let line = (request.kind == ToolKind::Execute).then(|| request.subject.to_string());
    let deed = ProposedAction { class: request.class, line: line.as_deref(), path: request.path.as_deref() };
    // The risk of a command depends on its line; without one, it is the default.
    let known = line.is_some() && request.risk == Risk::Medium;
    let risk = if known { Risk::Low } else { request.risk };
    let usual = Assessment { risk, reason: request.reason.to_string() };
    let assessed = assess_action(deed, usual, &place);
    let Assessment { risk, reason } = with_steered_programs(assessed, deed, &place, |program| {
        let environment = &shared.config.command_environment;
        sandbox::steered_program(program, environment, &spec.cwd, &policy.roots)
    });
    (request.risk, request.reason) = (risk, reason.into());
    request
}
