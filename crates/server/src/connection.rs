//! One client: a link, the protocol it speaks, and the calls it is owed answers for.
//!
//! The reading half never waits for a turn, so cancels and permission answers always get through.
//! Calls that may take long run beside each other, a bounded number of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Answer, BoxFuture, CallerKind, Principal, Refusal, Registry, SendError, Sender, Seq, SessionHandle,
    Settings, SurfaceId, Totals,
};
use metrics::{Door, MessageOutcome, Metrics, Tally, shortened};
use serde_json::value::RawValue;
use service::{Caller, REMOTE_UNNAMED, Rules, Service, ServiceError, remote_name};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use wire::acp::ask_answer;
use wire::{
    Call, Client, Cursor, Decoder, Dialect, Fault, Frame, Hello, Identity, Message, OwnedMessage, Replies,
    RpcId, Spoken, UpdateStart,
};

use crate::batch::Batch;
use crate::debts::{Debts, Owed};
use crate::handlers::Handlers;
use crate::host::Editor;
use crate::link::Link;
use crate::order::{Place, RequestOrder};
use crate::outlet::Outlet;
use crate::panics::contain;
use crate::writer::{AttachAnswer, Command, Out, Shown, Start, Writer};

/// Commands that may wait for the writer before the reader waits too.
pub(crate) const COMMANDS_MAX: usize = 64;
/// Slow calls of one client that run at once.
const SLOW_CALLS_MAX: usize = 32;
/// How long a connection that ends may take to write what it still has.
const FINISH_GRACE: Duration = Duration::from_secs(1);

pub struct ConnectionParts {
    pub registry: Arc<Registry>,
    pub principal: Principal,
    /// Who the client is to this machine.
    pub kind: CallerKind,
    /// What the agent asks is answered at the machine alone.
    pub local_answers: bool,
    pub rules: Rules,
    pub identity: Identity,
    pub dialect: Spoken,
    /// A client that is known from an earlier connection.
    pub client: Option<Client>,
    /// The connection is of zeph's transport.
    pub zeph: bool,
    /// What the client is called until it says who it is.
    pub name: Arc<str>,
    /// The client may name any session of its own without opening it first.
    pub any_session: bool,
    /// Who counts what comes through this door.
    pub metrics: Option<(Arc<Metrics>, Door)>,
    /// Learns of the client before it is answered.
    pub greeted: Option<Greeted>,
}

/// What is to be done when a client says who it is.
pub type Greeted = Arc<dyn Fn(&Hello) -> BoxFuture<'static, ()> + Send + Sync>;

/// A session that is shown to a client that did not ask for it.
pub struct Unasked {
    pub handle: SessionHandle,
    /// The place in the log from which it is told.
    pub after: Seq,
    /// What the session had chosen there.
    pub settings: Settings,
    /// What it had used there.
    pub totals: Totals,
    /// Whether the questions that wait there are told too.
    pub asks: bool,
}

/// A running connection. It writes until it is finished: whoever has sent everything still gets the
/// answers.
pub struct Connection {
    commands: mpsc::Sender<Command>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Connection {
    pub fn start(parts: ConnectionParts, link: Link) -> Self {
        Self::start_at(parts, link.incoming, link.outgoing)
    }

    /// The same for messages that were read already where they came in.
    pub(crate) fn start_at(
        parts: ConnectionParts,
        incoming: mpsc::Receiver<impl Into<Arrival> + Send + 'static>,
        outgoing: mpsc::Sender<Batch>,
    ) -> Self {
        let commands = mpsc::channel(COMMANDS_MAX);
        Self::run(Desk::new(parts, SurfaceId::random()), commands, incoming, outgoing)
    }

    fn run(
        desk: Desk,
        (commands, receiver): (mpsc::Sender<Command>, mpsc::Receiver<Command>),
        incoming: mpsc::Receiver<impl Into<Arrival> + Send + 'static>,
        outgoing: mpsc::Sender<Batch>,
    ) -> Self {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let writer = tasks.spawn(desk.writers.make(receiver, Some(outgoing), Arc::default()).run());
        let reader = desk.reader(Outlet::One(commands.clone()), &tasks);
        let reader = tasks.spawn(reader.run(incoming, stop.clone()));
        Self { commands, reader, writer, stop, tasks }
    }

    /// For a receiver elsewhere, which is shown one session without asking for it, and reaches no other.
    pub fn start_unasked(parts: ConnectionParts, link: Link, shown: Unasked) -> Self {
        let Unasked { handle, after, settings, totals, asks } = shown;
        let session = handle.id().clone();
        let first = Command::Attach {
            handle,
            from: Start::After(after),
            counted: UpdateStart::default(),
            answer: AttachAnswer::Unasked { settings: Box::new(settings), totals, asks },
        };
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        // Another surface for each client: the log knows by it whom it owes an answer.
        let mut desk = Desk::new(parts, SurfaceId::random());
        desk.caller.sender.remote = Some(REMOTE_UNNAMED.into());
        desk.writers.debts.opened(&session);
        desk.caller.session = Some(session);
        // The queue is empty, and longer than this.
        drop(commands.try_send(first));
        Self::run(desk, (commands, receiver), link.incoming, link.outgoing)
    }

    /// Waits until the client has sent everything it will send and all of it was taken up, or until
    /// it no longer reads: nothing should be done for somebody who cannot learn of it.
    pub async fn input_ended(&mut self) {
        // A half that panicked has ended too.
        tokio::select! {
            ended = &mut self.reader => drop(ended),
            ended = &mut self.writer => drop(ended),
        }
    }

    /// Takes no more from the client. What was taken is still answered.
    pub fn stop_reading(&self) {
        self.stop.cancel();
    }

    /// Stops reading, writes what is left and closes the output.
    pub async fn finish(self) {
        self.finish_within(FINISH_GRACE).await;
    }

    /// The same for a client that may take longer to read.
    pub(crate) async fn finish_within(self, grace: Duration) {
        self.stop_reading();
        drop(self.commands);
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            self.writer.abort();
        }
    }
}

/// What both halves of a connection are made from.
pub(crate) struct Desk {
    pub(crate) writers: Writers,
    caller: Caller,
    rules: Rules,
    decoder: Decoder,
    greeted: Option<Greeted>,
}

/// Makes the writers of a connection; some have one for each of their streams.
#[derive(Clone)]
pub(crate) struct Writers {
    registry: Arc<Registry>,
    principal: Principal,
    identity: Identity,
    debts: Arc<Debts>,
    surface: SurfaceId,
    kind: CallerKind,
}

impl Desk {
    pub(crate) fn new(parts: ConnectionParts, surface: SurfaceId) -> Self {
        let debts = Arc::new(Debts::new(parts.metrics, surface));
        let decoder = match parts.client {
            Some(client) => Decoder::known(client),
            None => Decoder::new(parts.dialect).at_zeph(parts.zeph),
        };
        debts.set_client(decoder.client());
        if parts.any_session {
            debts.allow_any_session();
        }
        let ConnectionParts { registry, principal, identity, kind, local_answers, .. } = parts;
        let caller = Caller::new(kind, principal.clone(), Sender::new(surface, parts.name));
        Self {
            writers: Writers { registry, principal, identity, debts, surface, kind },
            caller: Caller { local_answers, ..caller },
            rules: parts.rules,
            decoder,
            greeted: parts.greeted,
        }
    }

    pub(crate) fn reader(self, outlet: Outlet, tasks: &TaskTracker) -> Reader {
        let debts = self.writers.debts;
        let disabled = self.writers.identity.disabled;
        let editor = Editor::new(self.writers.surface, Arc::clone(&debts), outlet.clone());
        let handlers = Handlers {
            editor,
            service: Service::new(self.writers.registry, self.rules),
            caller: self.caller,
            debts,
            commands: outlet,
        };
        Reader {
            decoder: self.decoder,
            handlers,
            tasks: tasks.clone(),
            slow: Arc::new(Semaphore::new(SLOW_CALLS_MAX)),
            order: RequestOrder::default(),
            greeted: self.greeted,
            disabled,
        }
    }
}

impl Writers {
    /// A writer without a way out waits for its client to come back.
    pub(crate) fn make(
        &self,
        commands: mpsc::Receiver<Command>,
        outgoing: Option<mpsc::Sender<Batch>>,
        lost: Arc<Mutex<Option<Cursor>>>,
    ) -> Writer {
        let durable = outgoing.is_none();
        Writer {
            commands,
            outgoing,
            given_up: CancellationToken::new(),
            durable,
            replies: Replies::new(self.identity.clone()),
            debts: Arc::clone(&self.debts),
            surface: self.surface,
            standing: self.kind.standing(),
            openings: self.registry.openings(),
            registry: Arc::clone(&self.registry),
            principal: self.principal.clone(),
            shown: Shown::default(),
            out: Out::new(durable, lost),
        }
    }
}

/// Dropped when what a line asks for was carried out: a prompt is in the log then.
pub(crate) type Taken = oneshot::Sender<()>;

/// A message that was read already, where it was taken in: there it was needed to know whose it is.
pub(crate) struct Posted {
    pub(crate) message: Result<OwnedMessage, (RpcId, Fault)>,
    /// The size of the frame it came in.
    pub(crate) frame_bytes: usize,
    /// Who wants to know when it was carried out.
    pub(crate) taken: Option<Taken>,
}

impl Posted {
    pub(crate) fn read(frame: &[u8]) -> Self {
        let message = wire::parse(frame).map(Message::into_owned);
        Self { message, frame_bytes: frame.len(), taken: None }
    }
}

/// What a client sends.
pub(crate) enum Arrival {
    Frame(Frame),
    Posted(Posted),
}

impl From<Frame> for Arrival {
    fn from(frame: Frame) -> Self {
        Self::Frame(frame)
    }
}

impl From<Posted> for Arrival {
    fn from(posted: Posted) -> Self {
        Self::Posted(posted)
    }
}

pub(crate) struct Reader {
    decoder: Decoder,
    handlers: Handlers,
    tasks: TaskTracker,
    slow: Arc<Semaphore>,
    order: RequestOrder,
    greeted: Option<Greeted>,
    /// Methods of the official protocol that are not offered here.
    disabled: Vec<String>,
}

impl Reader {
    pub(crate) async fn run(
        mut self,
        mut incoming: mpsc::Receiver<impl Into<Arrival>>,
        stop: CancellationToken,
    ) {
        loop {
            let arrival = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                arrival = incoming.recv() => arrival,
            };
            match arrival.map(Into::into) {
                Some(Arrival::Frame(Frame::Line(line))) => {
                    self.message(wire::parse(&line), line.len(), None).await;
                }
                Some(Arrival::Frame(Frame::TooLong { limit_bytes, id })) => {
                    self.refuse(id.unwrap_or_else(RpcId::null), Fault::FrameTooLong { limit_bytes }).await;
                }
                Some(Arrival::Posted(Posted { message: Ok(message), frame_bytes, taken })) => {
                    self.message(Ok(message.as_message()), frame_bytes, taken).await;
                }
                Some(Arrival::Posted(Posted { message: Err((id, fault)), .. })) => {
                    self.refuse(id, fault).await;
                }
                None => break,
            }
        }
        self.finish(&stop).await;
    }

    async fn finish(&self, stop: &CancellationToken) {
        // Whoever sends no more answers no more.
        self.handlers.editor.close();
        // What is still being worked on is part of what the client sent.
        let all = u32::try_from(SLOW_CALLS_MAX).unwrap_or(u32::MAX);
        tokio::select! {
            () = stop.cancelled() => {}
            // The semaphore is never closed.
            permits = self.slow.acquire_many(all) => drop(permits),
        }
    }

    async fn message(
        &mut self,
        read: Result<Message<'_>, (RpcId, Fault)>,
        frame_bytes: usize,
        taken: Option<Taken>,
    ) {
        match read {
            Ok(Message::Request { id, method, params }) => {
                self.handlers.debts.tally(|tally| tally.asked(&id, &method));
                let span = Tally::span(&method);
                let call = self.offered(&method);
                let call = call.and_then(|()| self.decoder.request(&method, params, frame_bytes));
                match call {
                    Ok(call) => self.call(id, call, taken).instrument(span).await,
                    Err(fault) => self.refuse(id, fault).await,
                }
            }
            Ok(Message::Notification { method, params }) => {
                tracing::debug!(method = shortened(&method), "a notification came");
                let call = self.decoder.notification(&method, params);
                match call {
                    Ok(call) => {
                        self.handlers.debts.tally(|tally| tally.noticed(&method, MessageOutcome::Ok));
                        self.notified(call).await;
                    }
                    Err(fault) => self.bad_notification(&method, fault).await,
                }
            }
            // Only the official protocol asks its clients anything by a request.
            Ok(Message::Response { id, result }) if self.decoder.client().dialect == Dialect::Acp => {
                if !self.handlers.editor.answered(&id, result) {
                    self.answered(&id, result).await;
                }
            }
            Ok(Message::Response { id, .. }) => {
                tracing::debug!(id = id.as_json(), "an answer to no question of ours was ignored");
            }
            Err((id, fault)) => self.refuse(id, fault).await,
        }
    }

    fn offered(&self, method: &str) -> Result<(), Fault> {
        let official = self.decoder.client().dialect == Dialect::Acp;
        match official && self.disabled.iter().any(|disabled| disabled == method) {
            true => Err(Fault::UnknownMethod(method.to_owned())),
            false => Ok(()),
        }
    }

    async fn call(&mut self, id: RpcId, call: Call, taken: Option<Taken>) {
        if let Call::Initialize(hello) = &call {
            let caller = &mut self.handlers.caller;
            let sender = &mut caller.sender;
            (sender.name, sender.remote) = match &caller.session {
                Some(_) => {
                    let user = if hello.is_named() { Arc::clone(&hello.name) } else { REMOTE_UNNAMED.into() };
                    (remote_name(&user), Some(user))
                }
                None => (Arc::clone(&hello.name), None),
            };
            self.handlers.debts.set_client(self.decoder.client());
            if let Some(greeted) = &self.greeted {
                greeted(hello).await;
            }
        }
        if !self.handlers.is_slow(&call) && !self.order.must_wait(&call) {
            return carry_out(&self.handlers, id, call).await;
        }
        // The semaphore is never closed, so a permit always comes.
        let Ok(permit) = Arc::clone(&self.slow).acquire_owned().await else { return };
        let handlers = self.handlers.clone();
        let Place { before, done } = self.order.take(&call);
        self.tasks.spawn(async move {
            if let Some(before) = before {
                before.cancelled().await;
            }
            carry_out(&handlers, id, call).await;
            drop((permit, taken, done));
        });
    }

    async fn notified(&self, call: Call) {
        let handled = match call {
            Call::Answer { id, ask, answer } => contain(self.handlers.decide_quietly(id, ask, answer)).await,
            call => contain(self.handlers.handle(&RpcId::null(), call)).await,
        };
        if let Ok(Err(fault)) = handled {
            tracing::debug!(?fault, "a notification could not be acted on");
        }
    }

    /// A request that forgot its id is told so; there is nobody to tell about anything else.
    async fn bad_notification(&self, method: &str, fault: Fault) {
        match fault {
            Fault::InvalidRequest(_) => self.refuse(RpcId::null(), fault).await,
            Fault::Parse(_)
            | Fault::FrameTooLong { .. }
            | Fault::UnknownMethod(_)
            | Fault::InvalidParams(_)
            | Fault::NotInitialized { .. }
            | Fault::NoSuchSession { .. }
            | Fault::NotOpen { .. }
            | Fault::NoSuchAsk { .. }
            | Fault::UnknownChoice(_)
            | Fault::Foreign(_)
            | Fault::Internal(_) => tracing::debug!(method, ?fault, "a malformed notification was ignored"),
        }
    }

    async fn answered(&self, id: &RpcId, result: Result<&RawValue, &RawValue>) {
        let Some(Owed { session: handle, ask, expected }) = self.handlers.debts.answered(id) else {
            tracing::debug!(id = id.as_json(), "an answer to no question of ours was ignored");
            return;
        };
        let answer = ask_answer(&expected, self.decoder.client().abilities.forms, result);
        let outcome = match expected.refuses(&answer) {
            true => MessageOutcome::PermissionDenied,
            false => MessageOutcome::of_permission(&answer),
        };
        self.handlers.debts.tally(|tally| tally.noticed(wire::methods::REQUEST_PERMISSION, outcome));
        let Handlers { service, caller, .. } = &self.handlers;
        match service.answer(caller, &handle, ask, answer).await {
            Ok(_) => {}
            // Nothing can be said to an answer, and the client takes the question for answered: it would wait
            // for ever. So it is refused, and the log says what to do instead.
            Err(ServiceError::Send(SendError::Refused(Refusal::NotTheirs(_, why)))) => {
                let answer = Answer::DenyBecause(why.to_string().into());
                if let Err(error) = service.answer(caller, &handle, ask, answer).await {
                    tracing::debug!(%error, "a permission answer came too late");
                }
            }
            // Somebody else was faster: the log says who.
            Err(error) => tracing::debug!(%error, "a permission answer came too late"),
        }
    }

    async fn refuse(&self, id: RpcId, fault: Fault) {
        answer(&self.handlers, id, Err(fault)).await;
    }
}

async fn carry_out(handlers: &Handlers, id: RpcId, call: Call) {
    let handled = contain(handlers.handle(&id, call)).await;
    match handled {
        Ok(Ok(Some(outcome))) => answer(handlers, id, Ok(outcome)).await,
        Ok(Ok(None)) => {}
        Ok(Err(fault)) => answer(handlers, id, Err(fault)).await,
        Err(_) => {
            let fault = Fault::Internal("something went wrong inside the server; the server goes on".into());
            answer(handlers, id, Err(fault)).await;
        }
    }
}

async fn answer(handlers: &Handlers, id: RpcId, outcome: Result<wire::Outcome, Fault>) {
    handlers.commands.send(Command::Answer { id, outcome }).await;
}
