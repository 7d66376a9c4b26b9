//! One session of ours with a session of the agent's behind it.
//!
//! The agent's session is joined when it is first needed and again after the agent has ended: by its own
//! name if the agent can bring it back, else as a new one that is told the conversation so far. What the
//! agent says is taken by one task, in order: into the running turn, or beside it.

mod budget;
mod entries;
mod join;
mod turn;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::{
    Body, BoxFuture, Extensions, ForeignError, HostAbilities, HostCall, HostReply, MessageId, NoticeLevel,
    Opaque, OutputStream, Resolution, Risk, Said, SessionContext, SessionSpec, Stop, TerminalId, ToolKind,
    TurnContext, TurnError, TurnInput, Verdict,
};
use guard::{Assessment, Deed, Workplace, assess_deed, with_steered_programs};
use sandbox::ProtectedEntries;
use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::RpcId;
use wire::acp::{Unserved, host_result, host_wish};
use wire::upstream::{self, Heard, Hearing};

use super::crew::{Crew, Inbox, Told};
use super::desk::{Counter, Desk, DeskSpec, Grant};
use super::external::{Folders, Shared, failed, foreign, raw};
use super::peer::{Answered, Noise, Remote, Terms};
use budget::{Budget, Overrun};
use join::When;

pub use budget::OutputLimits;

/// Messages outside turns are numbered apart from those of turns.
const BESIDE: u64 = 1 << 62;
/// Requests of the agent's that are worked on at once, in one session.
const REQUESTS_MAX: usize = 128;
/// What these may amount to, in pieces of a KiB.
const REQUEST_PIECES_MAX: usize = 64 << 10;
const PIECE_BYTES: usize = 1 << 10;
/// What a request counts for besides its parameters.
const REQUEST_BYTES: usize = 256;
/// What is larger stands in the log before the next thing is heard, so that few of its kind are in memory.
const LARGE_BYTES: usize = 1 << 20;

pub(super) struct Seat {
    shared: Arc<Shared>,
    spec: SessionSpec,
    context: SessionContext,
    desk: Desk,
    state: Mutex<State>,
    me: Weak<Self>,
    /// Held while the agent's session is joined: whoever comes meanwhile gets the same one.
    joining: tokio::sync::Mutex<()>,
    /// What can make another program run something, before the agent worked.
    before: tokio::sync::Mutex<Option<ProtectedEntries>>,
    /// One for each request of the agent's that is worked on, and one for each piece of it.
    requests: Arc<Semaphore>,
    pieces: Arc<Semaphore>,
    /// Cancelled when nobody needs the session any more.
    closed: CancellationToken,
    /// Rings when the running turn has said too much.
    overran: Notify,
}

struct State {
    joined: Option<Arc<Joined>>,
    /// What the turn, and what comes after it, may still say.
    budget: Budget,
    /// Why nothing is written any more of what the agent says, until the next prompt.
    overrun: Option<Overrun>,
    turn: Option<TurnContext>,
    /// What was heard of the agent's session so far.
    hearing: Hearing,
    /// The agent's session knows nothing of the conversation yet.
    untold: bool,
    /// When the agent was last heard.
    heard: Option<Instant>,
    /// Messages outside turns.
    beside: u64,
    /// The agent has named the session.
    titled: bool,
    /// How much of the terminals is known to whoever looks.
    shown: HashMap<TerminalId, usize>,
    /// Commands in terminals of ours that are looked after.
    followed: usize,
}

impl State {
    fn new(limits: OutputLimits) -> Self {
        Self {
            joined: None,
            budget: Budget::new(limits),
            overrun: None,
            turn: None,
            hearing: Hearing::default(),
            untold: false,
            heard: None,
            beside: 0,
            titled: false,
            shown: HashMap::new(),
            followed: 0,
        }
    }
}

/// Something that the agent wants, and the turn in which it wants it.
struct Request {
    id: RpcId,
    method: Box<str>,
    params: Option<Box<RawValue>>,
    turn: Option<TurnContext>,
}

/// A session of the agent's.
struct Joined {
    crew: Arc<Crew>,
    /// The agent's own name for it.
    id: Arc<str>,
    /// Cancelled when everything was taken that the agent said to it.
    heard_out: CancellationToken,
}

impl Seat {
    pub(super) fn new(shared: Arc<Shared>, spec: SessionSpec, context: SessionContext) -> Arc<Self> {
        let config = &shared.config;
        let desk_spec = DeskSpec {
            cwd: spec.cwd.clone(),
            policy: (config.place)(Folders::of(&spec)),
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
            desk: Desk::open(desk_spec, counter(me.clone())),
            state,
            me: me.clone(),
            joining,
            before: tokio::sync::Mutex::default(),
            requests: Arc::new(requests),
            pieces: Arc::new(pieces),
            closed: CancellationToken::new(),
            overran: Notify::new(),
        })
    }

    fn name(&self) -> &Arc<str> {
        &self.shared.config.name
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn joined(&self) -> Option<Arc<Joined>> {
        self.state().joined.clone().filter(|joined| joined.crew.is_there())
    }

    /// The turn that is worked on. One that was given up by force is over, whatever is known of it here.
    fn running(&self) -> Option<TurnContext> {
        self.state().turn.clone().filter(|turn| !turn.is_over())
    }

    /// Whether this is the session that is worked with. Another one was left, and says nothing that counts.
    fn is_current(&self, joined: &Arc<Joined>) -> bool {
        self.state().joined.as_ref().is_some_and(|current| Arc::ptr_eq(current, joined))
    }

    /// Takes what the agent says to this session, until it says nothing more.
    async fn listen(self: Arc<Self>, joined: Arc<Joined>, mut told: Inbox) {
        let _heard_out = joined.heard_out.clone().drop_guard();
        while let Some((told, _room)) = told.recv().await {
            if !self.is_current(&joined) {
                continue;
            }
            self.state().heard = Some(Instant::now());
            let large = told.bytes() > LARGE_BYTES;
            match told {
                Told::Update(params) => self.update(&params).await,
                Told::Extension { method, params } => {
                    let body = upstream::extension(&method, params.as_deref());
                    self.emit(body).await;
                }
                Told::Request { id, method, params } => {
                    if let Err(overrun) = self.count_bytes(large_of(params.as_deref())).await {
                        let refused = Remote::new(-32000, overrun.of(self.name()));
                        // An agent that is gone waits for no answer.
                        joined.crew.peer().refuse(&id, &refused).await.ok();
                        continue;
                    }
                    self.requested(&joined, Request { id, method, params, turn: self.running() }).await;
                }
                Told::Answered(answered) => self.answered(answered).await,
                Told::Noise(noise) => self.noise(&noise).await,
            }
            if large {
                // A session that is gone has no log.
                self.context.settled().await.ok();
            }
        }
        if self.is_current(&joined) {
            self.desk.abandoned();
        }
    }

    /// Everything before an answer was taken, so whoever waits for it may go on. What comes after the answer
    /// to a prompt comes after its turn.
    async fn answered(&self, answered: Answered) {
        let turn = self.running().filter(|_| answered.method() == upstream::PROMPT);
        drop(answered);
        if let Some(turn) = turn {
            turn.over().await;
        }
    }

    async fn requested(self: &Arc<Self>, joined: &Arc<Joined>, request: Request) {
        let bytes = request.params.as_ref().map_or(0, |params| params.get().len());
        let pieces = u32::try_from(bytes / PIECE_BYTES).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        let room = Arc::clone(&self.pieces).try_acquire_many_owned(pieces);
        let (Ok(permit), Ok(room)) = (permit, room) else {
            let text = format!(
                "{REQUESTS_MAX} requests are open in this session, or very large ones; wait for their answers"
            );
            // An agent that is gone waits for no answer.
            joined.crew.peer().refuse(&request.id, &Remote::new(-32000, text)).await.ok();
            return;
        };
        let (seat, joined) = (Arc::clone(self), Arc::clone(joined));
        self.context.spawn(async move {
            seat.serve(&joined, request).await;
            drop((permit, room));
        });
    }

    async fn update(&self, params: &RawValue) {
        let turn = self.running();
        let heard = {
            let mut state = self.state();
            let State { hearing, beside, .. } = &mut *state;
            hearing.set_time(self.context.now());
            let mut next = || match &turn {
                Some(turn) => turn.new_message(),
                None => self.message_beside(beside),
            };
            hearing.hear(params, &mut next, turn.is_some())
        };
        self.say(turn, heard).await;
    }

    async fn say(&self, turn: Option<TurnContext>, heard: Vec<Heard>) {
        for heard in heard {
            if let Body::Title { .. } = heard.said.body {
                self.state().titled = true;
            }
            if !self.may_say(&heard.said).await {
                continue;
            }
            // A session that is gone needs to be told nothing.
            match (&turn, heard.within) {
                (Some(turn), Some(call)) => turn.within(call).emit(heard.said).await.ok(),
                (Some(turn), None) => turn.emit(heard.said).await.ok(),
                (None, _) => self.context.emit(beside(heard.said)).await.ok(),
            };
        }
    }

    fn message_beside(&self, count: &mut u64) -> MessageId {
        *count += 1;
        // Where the log stands tells them apart from those of an earlier opening.
        MessageId(BESIDE + (self.context.history.head().0 << 16) + *count)
    }

    async fn noise(&self, noise: &Noise) {
        // Chatter on standard output is common; what was thrown away must be known.
        if let Noise::TooLong { .. } = noise {
            let text = format!("{} said something that is left out: {noise}", self.name());
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// Words of our own: they are said however much the agent has said.
    async fn notice(&self, level: NoticeLevel, text: String) {
        self.write_down(Body::Notice { level, text: text.into() }.into()).await;
    }

    /// Counts what the agent says. Says whether it is still to be written down.
    async fn may_say(&self, said: &Said) -> bool {
        let counted = self.state().budget.take(said);
        self.within_budget(counted).await.is_ok()
    }

    /// The same for what is written down in other words.
    async fn count_bytes(&self, bytes: usize) -> Result<(), Overrun> {
        let counted = self.state().budget.take_bytes(bytes);
        self.within_budget(counted).await
    }

    /// What is too much is said once: by the turn, or here if none runs.
    async fn within_budget(&self, counted: Result<(), Overrun>) -> Result<(), Overrun> {
        let Err(overrun) = counted else { return Ok(()) };
        let is_known = self.state().overrun.replace(overrun.clone()).is_some();
        if !is_known && self.running().is_some() {
            self.overran.notify_one();
        } else if !is_known {
            let text = overrun.of(self.name()).into();
            // A session that is gone needs to be told nothing.
            self.context.emit(Body::Notice { level: NoticeLevel::Warning, text }).await.ok();
        }
        Err(overrun)
    }

    /// Into the running turn, or beside it.
    async fn emit(&self, body: Body) {
        let said = Said::from(body);
        if self.may_say(&said).await {
            self.write_down(said).await;
        }
    }

    async fn write_down(&self, said: Said) {
        // A session that is gone needs to be told nothing.
        match self.running() {
            Some(turn) => turn.emit(said).await.ok(),
            None => self.context.emit(said).await.ok(),
        };
    }

    /// Does what the agent asks its client for.
    async fn serve(&self, joined: &Joined, request: Request) {
        let Request { id, method, params, turn } = request;
        // What the agent said before stands in the log, so the client hears it before it is asked.
        self.context.settled().await.ok();
        let answered = if &*method == "session/request_permission" {
            self.permission(turn.as_ref(), params.as_deref()).await
        } else if let Some(wish) = host_wish(&method, params.as_deref()) {
            let served = match wish {
                Ok(wish) => self.host(turn.as_ref(), wish.call).await,
                Err(error) => Err(error),
            };
            let served = served.and_then(|reply| host_result(&reply));
            served.map_err(|error| Remote::new(error.code(), error.to_string()))
        } else {
            self.pass_on(joined, turn.as_ref(), &method, params.as_deref()).await
        };
        self.state().heard = Some(Instant::now());
        // An agent that is gone waits for no answer.
        match answered {
            Ok(answer) => joined.crew.peer().answer(&id, &answer).await.ok(),
            Err(error) => joined.crew.peer().refuse(&id, &error).await.ok(),
        };
    }

    async fn host(&self, turn: Option<&TurnContext>, call: HostCall) -> Result<HostReply, Unserved> {
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
            self.show_terminal(turn, &terminal).await;
        }
        let served = self.desk.serve(turn, call).await;
        if let Ok(HostReply::Terminal(terminal)) = &served {
            self.follow(terminal);
        }
        if let Some(terminal) = looks {
            self.show_terminal(turn, &terminal).await;
        }
        served
    }

    /// What a terminal of ours has shown since it was last looked at becomes output of the call that shows it:
    /// people have no other way to see it.
    async fn show_terminal(&self, turn: Option<&TurnContext>, terminal: &TerminalId) {
        // Of an output whose beginning is forgotten nobody knows what is new.
        let output = self.desk.look(terminal).filter(|output| !output.truncated);
        let Some((turn, output)) = turn.zip(output) else { return };
        let said = {
            let mut state = self.state();
            let Some(call) = state.hearing.showing(&terminal.0).cloned() else { return };
            let seen = state.shown.insert(terminal.clone(), output.text.len()).unwrap_or_default();
            let text = output.text.get(seen..).filter(|text| !text.is_empty());
            text.map(|text| Body::ToolOutput { call, stream: OutputStream::Stdout, text: text.into() })
        };
        if let Some(said) = said.map(Said::from)
            && self.may_say(&said).await
        {
            // A session that is gone needs to be told nothing.
            turn.emit(said).await.ok();
        }
    }

    async fn permission(
        &self,
        turn: Option<&TurnContext>,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, Remote> {
        let Some(turn) = turn else { return Ok(upstream::outcome(None)) };
        let read = params.map(|params| self.state().hearing.permission(params));
        let Some(Ok(request)) = read else {
            return Err(Remote::new(-32602, "the permission request cannot be understood"));
        };
        let (shared, spec) = (Arc::clone(&self.shared), self.spec.clone());
        let judging = tokio::task::spawn_blocking(move || judged(&shared, &spec, request));
        let request =
            judging.await.map_err(|_| Remote::new(-32603, "the permission request cannot be judged"))?;
        let foreign = request.foreign.clone();
        let grant = Grant {
            class: request.class,
            path: request.path.clone(),
            line: (request.kind == ToolKind::Execute).then(|| request.subject.to_string()),
        };
        if let Err(overrun) = self.count_bytes(request.weight()).await {
            return Err(Remote::new(-32000, overrun.of(self.name())));
        }
        let verdict = turn.ask(request).await;
        let nearest = |wanted: Resolution| {
            let option = foreign.as_ref().and_then(|foreign| foreign.nearest(wanted));
            option.map(|option| Arc::clone(&option.id))
        };
        let chosen = match verdict {
            Ok(Verdict::Allowed) => {
                self.desk.allowed(grant);
                nearest(Resolution::AllowedOnce)
            }
            Ok(Verdict::Replied(id)) => {
                let option = foreign.as_ref().and_then(|foreign| foreign.option(&id));
                if option.is_some_and(|option| option.means.allows()) {
                    self.desk.allowed(grant);
                }
                Some(id)
            }
            // Only a turn that was cancelled says so: some agents end the turn at once then.
            Ok(Verdict::Denied { resolution: Resolution::Cancelled, .. }) | Err(_) => None,
            Ok(Verdict::Denied { .. }) => nearest(Resolution::DeniedOnce),
        };
        Ok(upstream::outcome(chosen.as_deref()))
    }

    /// What we have no word for may be known to the person's editor.
    async fn pass_on(
        &self,
        joined: &Joined,
        turn: Option<&TurnContext>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, Remote> {
        let unknown = || Remote::new(-32601, format!("method not found: {method}"));
        // What the protocol has is served or not; nobody asks for it in a roundabout way.
        if ["fs/", "terminal/", "session/"].iter().any(|known| method.starts_with(known)) {
            return Err(unknown());
        }
        let host = self.context.host(|_: HostAbilities| true).ok_or_else(unknown)?;
        let params = renamed(params.map_or("{}", RawValue::get), self.spec.id.as_str());
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
            _ = joined.crew.why() => Err(engine::HostError::Gone),
            answer = host.extension(method.into(), Opaque(params.into())) => answer,
        };
        match asked {
            Ok(answer) => Ok(raw(&answer.0)),
            Err(engine::HostError::Foreign(error)) => {
                let data = error.data.as_ref().map(|data| raw(&data.0));
                Err(Remote { code: error.code, message: error.message.to_string(), data })
            }
            Err(error) => Err(Remote::new(-32603, error.to_string())),
        }
    }
}

/// What a request leaves in the log, at least: its question and the answer to it.
fn large_of(params: Option<&RawValue>) -> usize {
    params.map_or(0, |params| params.get().len()) + REQUEST_BYTES
}

/// What is done for the agent counts like what it says.
fn counter(seat: Weak<Seat>) -> Counter {
    Arc::new(move |bytes| {
        let seat = seat.upgrade();
        Box::pin(async move {
            // Nobody keeps anything of a session that is gone.
            let Some(seat) = seat else { return Ok(()) };
            seat.count_bytes(bytes).await.map_err(|overrun| overrun.of(seat.name()))
        })
    })
}

/// A tool call outside a turn has no turn to end with, so it is only shown.
fn beside(said: Said) -> Said {
    let calls = matches!(
        said.body,
        Body::ToolStarted(_) | Body::ToolChanged(_) | Body::ToolEnded(_) | Body::ToolOutput { .. }
    );
    match said.relayed {
        Some(payload) if calls && !payload.0.is_empty() => Body::Foreign { payload }.into(),
        relayed => Said { relayed, ..said },
    }
}

/// The parameters with another name for the session.
fn renamed(params: &str, session: &str) -> String {
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

impl engine::BackendSession for Seat {
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
                state.hearing.turn_over();
                state.shown.clear();
            }
            self.desk.turn_ended();
            outcome
        })
    }

    fn ready(self: Arc<Self>) -> BoxFuture<'static, Result<(), ForeignError>> {
        Box::pin(async move {
            self.join(When::Opened).await?;
            self.context.settled().await.map_err(|gone| failed(gone.to_string()))
        })
    }

    fn chosen(&self, id: &Arc<str>, value: &Arc<str>) {
        let Some(joined) = self.joined() else { return };
        let set = {
            let mut state = self.state();
            let set = upstream::set(state.hearing.offers(), &joined.id, id, value);
            state.hearing.chosen(id, value);
            set
        };
        let Some((method, params)) = set else { return };
        let terms = Terms {
            deadline: Some(self.shared.config.patience.handshake),
            lane: Some(Arc::clone(&joined.id)),
        };
        // On its way at once, so that it counts for the next prompt.
        let answer = joined.crew.peer().request(method, &params, terms);
        let (seat, id) = (self.me.clone(), Arc::clone(id));
        self.context.spawn(async move {
            let answer = answer.await;
            let Some(seat) = seat.upgrade() else { return };
            match answer {
                Ok(result) => {
                    let heard = seat.state().hearing.hear_options(&result);
                    seat.say(seat.running(), heard).await;
                }
                Err(error) => {
                    let name = seat.name();
                    let text = format!("{name} did not take {id}: {}", foreign(name, &error).message);
                    seat.notice(NoticeLevel::Error, text).await;
                }
            }
        });
    }

    fn extensions(&self) -> Option<Arc<dyn Extensions>> {
        Some(Arc::new(Beside(self.me.clone())))
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.closed.cancel();
            self.desk.close().await;
            let joined = self.state().joined.take();
            if let Some(joined) = joined {
                joined.crew.leave(&joined.id);
                if joined.crew.is_there() && joined.crew.can().close {
                    let terms = Terms { deadline: Some(std::time::Duration::from_secs(2)), lane: None };
                    let params = upstream::close(&joined.id);
                    // One that does not answer is not waited for.
                    joined.crew.peer().request("session/close", &params, terms).await.ok();
                }
            }
        })
    }
}

/// The way to the agent's session for what no protocol says.
struct Beside(Weak<Seat>);

impl Extensions for Beside {
    fn call(&self, method: Arc<str>, params: Opaque) -> BoxFuture<'static, Result<Opaque, ForeignError>> {
        let seat = self.0.upgrade();
        Box::pin(async move {
            let seat = seat.ok_or_else(|| failed("the session is gone".to_owned()))?;
            let joined = seat.join(When::Prompted).await?;
            let params = raw(&renamed(&params.0, &joined.id));
            let terms = Terms { deadline: None, lane: Some(Arc::clone(&joined.id)) };
            let answered = joined.crew.peer().request(&method, &params, terms).await;
            let answer = answered.map_err(|error| foreign(seat.name(), &error))?;
            Ok(Opaque(answer.get().into()))
        })
    }

    fn notify(&self, method: Arc<str>, params: Opaque) {
        if let Some(joined) = self.0.upgrade().and_then(|seat| seat.joined()) {
            let params = raw(&renamed(&params.0, &joined.id));
            // One that cannot be told at the moment is not told.
            joined.crew.peer().notify(&method, &params).ok();
        }
    }
}

/// How risky a wish is: as those of our own agent are judged. Touches the disk.
fn judged(shared: &Shared, spec: &SessionSpec, mut request: engine::AskRequest) -> engine::AskRequest {
    let policy = (shared.config.place)(Folders::of(spec));
    let home = policy.homes.first().map(PathBuf::as_path);
    let place = Workplace { cwd: &spec.cwd, roots: &policy.roots, home };
    // A tool of a server has a name, not a line of shell.
    let line = (request.kind == ToolKind::Execute).then(|| request.subject.to_string());
    let deed = Deed { class: request.class, line: line.as_deref(), path: request.path.as_deref() };
    // How risky a command is, its line says; without one it is what it usually is.
    let known = line.is_some() && request.risk == Risk::Medium;
    let risk = if known { Risk::Low } else { request.risk };
    let usual = Assessment { risk, reason: request.reason.to_string() };
    let assessed = assess_deed(deed, usual, &place);
    let Assessment { risk, reason } = with_steered_programs(assessed, deed, &place, |program| {
        let environment = &shared.config.command_environment;
        sandbox::steered_program(program, environment, &spec.cwd, &policy.roots)
    });
    (request.risk, request.reason) = (risk, reason.into());
    request
}
