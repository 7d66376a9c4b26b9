//! One client connection: a link, the protocol it speaks, and the replies that are pending on it.
//!
//! The reading half never waits for a turn, so cancels and permission answers always get through.
//! Calls that may take long run beside each other, a bounded number of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    BoxFuture, CallerKind, PermissionAnswer, Principal, Refusal, Registry, SendError, Sender, Seq,
    SessionHandle, Settings, SurfaceId, Totals,
};
use metrics::{DoorLabel, MessageOutcome, Metrics, RequestTally, shortened};
use serde_json::value::RawValue;
use service::{Caller, REMOTE_UNNAMED, Service, ServiceError, ServiceRules, remote_name};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use wire::acp::ask_answer;
use wire::{
    Client, ClientInfo, ClientRequest, Cursor, Decoder, Dialect, DialectSelection, Frame, Identity,
    OwnedRpcMessage, Replies, RequestError, RpcId, RpcMessage, UpdateStart,
};

use crate::frame_batch::FrameBatch;
use crate::handlers::Handlers;
use crate::host_calls::Editor;
use crate::link::Link;
use crate::panics::contain;
use crate::pending_replies::{PendingAsk, PendingReplies};
use crate::request_order::{RequestOrder, RequestSlot};
use crate::writer::{AttachAnswer, AttachFrom, AttachedSessions, OutgoingFrames, Writer, WriterCommand};
use crate::writer_command_sender::CommandSender;

/// Commands that may wait for the writer before the reader waits too.
pub(crate) const COMMANDS_MAX: usize = 64;
/// Slow calls of one client that may run at once.
const SLOW_CALLS_MAX: usize = 32;
/// How long a connection that ends may take to write the rest.
const FINISH_GRACE: Duration = Duration::from_secs(1);

pub struct ConnectionParts {
    pub registry: Arc<Registry>,
    pub principal: Principal,
    /// Which kind of caller the client is.
    pub kind: CallerKind,
    /// Permission requests are answered at the machine alone.
    pub local_answers: bool,
    pub rules: ServiceRules,
    pub identity: Identity,
    pub dialect: DialectSelection,
    /// The client's dialect and capabilities, if known from an earlier connection.
    pub client: Option<Client>,
    /// The connection is of zeph's transport.
    pub zeph: bool,
    /// The client's name until it sends its own.
    pub name: Arc<str>,
    /// The client may name any session of its own without opening it first.
    pub any_session: bool,
    /// Where the connection is counted, and as which kind of surface.
    pub metrics: Option<(Arc<Metrics>, DoorLabel)>,
    /// Called with the client's `initialize` before it is answered.
    pub on_initialize: Option<OnInitialize>,
}

/// Called when a client has sent its `initialize`.
pub type OnInitialize = Arc<dyn Fn(&ClientInfo) -> BoxFuture<'static, ()> + Send + Sync>;

/// A session that is streamed to a client that did not open it.
pub struct PreopenedSession {
    pub handle: SessionHandle,
    /// The position in the log after which it is streamed.
    pub after: Seq,
    /// The session's settings at that position.
    pub settings: Settings,
    /// The session's usage at that position.
    pub totals: Totals,
    /// Whether asks that are open at that position are sent too.
    pub asks: bool,
}

/// A running connection. It writes until it is finished: a client that has sent everything still gets the
/// replies.
pub struct Connection {
    commands: mpsc::Sender<WriterCommand>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Connection {
    pub fn start(parts: ConnectionParts, link: Link) -> Self {
        Self::start_at(parts, link.incoming, link.outgoing)
    }

    /// The same for messages that may be parsed already.
    pub(crate) fn start_at(
        parts: ConnectionParts,
        incoming: mpsc::Receiver<impl Into<IncomingMessage> + Send + 'static>,
        outgoing: mpsc::Sender<FrameBatch>,
    ) -> Self {
        let commands = mpsc::channel(COMMANDS_MAX);
        Self::run(ConnectionSetup::new(parts, SurfaceId::random()), commands, incoming, outgoing)
    }

    fn run(
        setup: ConnectionSetup,
        (commands, receiver): (mpsc::Sender<WriterCommand>, mpsc::Receiver<WriterCommand>),
        incoming: mpsc::Receiver<impl Into<IncomingMessage> + Send + 'static>,
        outgoing: mpsc::Sender<FrameBatch>,
    ) -> Self {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let writer = tasks.spawn(setup.writers.make(receiver, Some(outgoing), Arc::default()).run());
        let reader = setup.reader(CommandSender::One(commands.clone()), &tasks);
        let reader = tasks.spawn(reader.run(incoming, stop.clone()));
        Self { commands, reader, writer, stop, tasks }
    }

    /// For a bridge's receiver, which gets one session without opening it, and can reach no other.
    pub fn start_preopened(parts: ConnectionParts, link: Link, shown: PreopenedSession) -> Self {
        let PreopenedSession { handle, after, settings, totals, asks } = shown;
        let session = handle.id().clone();
        let first = WriterCommand::Attach {
            handle,
            from: AttachFrom::After(after),
            counted: UpdateStart::default(),
            answer: AttachAnswer::Preopened { settings: Box::new(settings), totals, asks },
        };
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        // Another surface for each client: by it the log knows whose prompt it is.
        let mut setup = ConnectionSetup::new(parts, SurfaceId::random());
        setup.caller.sender.remote = Some(REMOTE_UNNAMED.into());
        setup.writers.pending_replies.opened(&session);
        setup.caller.session = Some(session);
        // The queue is empty, and longer than this.
        drop(commands.try_send(first));
        Self::run(setup, (commands, receiver), link.incoming, link.outgoing)
    }

    /// Waits until the client has closed its side and everything it sent was taken up, or until
    /// it no longer reads: nothing should be done for a client that cannot see the result.
    pub async fn input_ended(&mut self) {
        // A half that panicked has ended too.
        tokio::select! {
            ended = &mut self.reader => drop(ended),
            ended = &mut self.writer => drop(ended),
        }
    }

    /// Reads no more from the client. What was read is still answered.
    pub fn stop_reading(&self) {
        self.stop.cancel();
    }

    /// Stops reading, writes the rest and closes the output.
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

/// The parts that both halves of a connection are made from.
pub(crate) struct ConnectionSetup {
    pub(crate) writers: WriterFactory,
    caller: Caller,
    rules: ServiceRules,
    decoder: Decoder,
    on_initialize: Option<OnInitialize>,
}

/// Makes the writers of a connection; some have one for each of their streams.
#[derive(Clone)]
pub(crate) struct WriterFactory {
    registry: Arc<Registry>,
    principal: Principal,
    identity: Identity,
    pending_replies: Arc<PendingReplies>,
    surface: SurfaceId,
    kind: CallerKind,
}

impl ConnectionSetup {
    pub(crate) fn new(parts: ConnectionParts, surface: SurfaceId) -> Self {
        let pending_replies = Arc::new(PendingReplies::new(parts.metrics, surface));
        let decoder = match parts.client {
            Some(client) => Decoder::for_client(client),
            None => Decoder::new(parts.dialect).with_zeph(parts.zeph),
        };
        pending_replies.set_client(decoder.client());
        if parts.any_session {
            pending_replies.allow_any_session();
        }
        let ConnectionParts { registry, principal, identity, kind, local_answers, .. } = parts;
        let caller = Caller::new(kind, principal.clone(), Sender::new(surface, parts.name));
        Self {
            writers: WriterFactory { registry, principal, identity, pending_replies, surface, kind },
            caller: Caller { local_answers, ..caller },
            rules: parts.rules,
            decoder,
            on_initialize: parts.on_initialize,
        }
    }

    pub(crate) fn reader(self, outlet: CommandSender, tasks: &TaskTracker) -> Reader {
        let pending_replies = self.writers.pending_replies;
        let disabled = self.writers.identity.disabled;
        let editor = Editor::new(self.writers.surface, Arc::clone(&pending_replies), outlet.clone());
        let handlers = Handlers {
            editor,
            service: Service::new(self.writers.registry, self.rules),
            caller: self.caller,
            pending_replies,
            commands: outlet,
        };
        Reader {
            decoder: self.decoder,
            handlers,
            tasks: tasks.clone(),
            slow: Arc::new(Semaphore::new(SLOW_CALLS_MAX)),
            order: RequestOrder::default(),
            on_initialize: self.on_initialize,
            disabled,
        }
    }
}

impl WriterFactory {
    /// A writer without `outgoing` waits for its client to connect.
    pub(crate) fn make(
        &self,
        commands: mpsc::Receiver<WriterCommand>,
        outgoing: Option<mpsc::Sender<FrameBatch>>,
        lost: Arc<Mutex<Option<Cursor>>>,
    ) -> Writer {
        let resumable = outgoing.is_none();
        Writer {
            commands,
            outgoing,
            replaced: CancellationToken::new(),
            resumable,
            replies: Replies::new(self.identity.clone()),
            pending_replies: Arc::clone(&self.pending_replies),
            surface: self.surface,
            standing: self.kind.standing(),
            openings: self.registry.openings(),
            registry: Arc::clone(&self.registry),
            principal: self.principal.clone(),
            sessions: AttachedSessions::default(),
            out: OutgoingFrames::new(resumable, lost),
        }
    }
}

/// Dropped when a message was carried out: a prompt is in the log then.
pub(crate) type DoneSender = oneshot::Sender<()>;

/// A message that was parsed before it came to the connection: the HTTP route needed to know what it is.
pub(crate) struct ParsedMessage {
    pub(crate) message: Result<OwnedRpcMessage, (RpcId, RequestError)>,
    /// The size of the frame it came in.
    pub(crate) frame_bytes: usize,
    /// Dropped when the message was carried out, for a sender that waits for that.
    pub(crate) on_done: Option<DoneSender>,
}

impl ParsedMessage {
    pub(crate) fn read(frame: &[u8]) -> Self {
        let message = wire::parse(frame).map(RpcMessage::into_owned);
        Self { message, frame_bytes: frame.len(), on_done: None }
    }
}

/// A message of a client.
pub(crate) enum IncomingMessage {
    Frame(Frame),
    Parsed(ParsedMessage),
}

impl From<Frame> for IncomingMessage {
    fn from(frame: Frame) -> Self {
        Self::Frame(frame)
    }
}

impl From<ParsedMessage> for IncomingMessage {
    fn from(posted: ParsedMessage) -> Self {
        Self::Parsed(posted)
    }
}

pub(crate) struct Reader {
    decoder: Decoder,
    handlers: Handlers,
    tasks: TaskTracker,
    slow: Arc<Semaphore>,
    order: RequestOrder,
    on_initialize: Option<OnInitialize>,
    /// Methods of the official protocol that this server has disabled.
    disabled: Vec<String>,
}

impl Reader {
    pub(crate) async fn run(
        mut self,
        mut incoming: mpsc::Receiver<impl Into<IncomingMessage>>,
        stop: CancellationToken,
    ) {
        loop {
            let arrival = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                arrival = incoming.recv() => arrival,
            };
            match arrival.map(Into::into) {
                Some(IncomingMessage::Frame(Frame::Line(line))) => {
                    self.message(wire::parse(&line), line.len(), None).await;
                }
                Some(IncomingMessage::Frame(Frame::TooLong { limit_bytes, id })) => {
                    self.refuse(id.unwrap_or_else(RpcId::null), RequestError::FrameTooLong { limit_bytes })
                        .await;
                }
                Some(IncomingMessage::Parsed(ParsedMessage {
                    message: Ok(message),
                    frame_bytes,
                    on_done,
                })) => {
                    self.message(Ok(message.as_message()), frame_bytes, on_done).await;
                }
                Some(IncomingMessage::Parsed(ParsedMessage { message: Err((id, fault)), .. })) => {
                    self.refuse(id, fault).await;
                }
                None => break,
            }
        }
        self.finish(&stop).await;
    }

    async fn finish(&self, stop: &CancellationToken) {
        // A client that sends no more cannot answer calls.
        self.handlers.editor.close();
        // Slow calls that still run were sent by the client too.
        let all = u32::try_from(SLOW_CALLS_MAX).unwrap_or(u32::MAX);
        tokio::select! {
            () = stop.cancelled() => {}
            // The semaphore is never closed.
            permits = self.slow.acquire_many(all) => drop(permits),
        }
    }

    async fn message(
        &mut self,
        read: Result<RpcMessage<'_>, (RpcId, RequestError)>,
        frame_bytes: usize,
        on_done: Option<DoneSender>,
    ) {
        match read {
            Ok(RpcMessage::Request { id, method, params }) => {
                self.handlers.pending_replies.tally(|tally| tally.asked(&id, &method));
                let span = RequestTally::span(&method);
                let call = self.check_offered(&method);
                let call = call.and_then(|()| self.decoder.request(&method, params, frame_bytes));
                match call {
                    Ok(call) => self.call(id, call, on_done).instrument(span).await,
                    Err(fault) => self.refuse(id, fault).await,
                }
            }
            Ok(RpcMessage::Notification { method, params }) => {
                tracing::debug!(method = shortened(&method), "a notification came");
                let call = self.decoder.notification(&method, params);
                match call {
                    Ok(call) => {
                        self.handlers
                            .pending_replies
                            .tally(|tally| tally.noticed(&method, MessageOutcome::Ok));
                        self.notified(call).await;
                    }
                    Err(fault) => self.bad_notification(&method, fault).await,
                }
            }
            // Only the official protocol has requests to its clients.
            Ok(RpcMessage::Response { id, result }) if self.decoder.client().dialect == Dialect::Acp => {
                if !self.handlers.editor.answered(&id, result) {
                    self.answered(&id, result).await;
                }
            }
            Ok(RpcMessage::Response { id, .. }) => {
                tracing::debug!(id = id.as_json(), "ignored a response that answers none of our requests");
            }
            Err((id, fault)) => self.refuse(id, fault).await,
        }
    }

    fn check_offered(&self, method: &str) -> Result<(), RequestError> {
        let official = self.decoder.client().dialect == Dialect::Acp;
        match official && self.disabled.iter().any(|disabled| disabled == method) {
            true => Err(RequestError::UnknownMethod(method.to_owned())),
            false => Ok(()),
        }
    }

    async fn call(&mut self, id: RpcId, call: ClientRequest, on_done: Option<DoneSender>) {
        if let ClientRequest::Initialize(hello) = &call {
            let caller = &mut self.handlers.caller;
            let sender = &mut caller.sender;
            (sender.name, sender.remote) = match &caller.session {
                Some(_) => {
                    let user = if hello.is_named() { Arc::clone(&hello.name) } else { REMOTE_UNNAMED.into() };
                    (remote_name(&user), Some(user))
                }
                None => (Arc::clone(&hello.name), None),
            };
            self.handlers.pending_replies.set_client(self.decoder.client());
            if let Some(on_initialize) = &self.on_initialize {
                on_initialize(hello).await;
            }
        }
        if !self.handlers.is_slow(&call) && !self.order.must_wait(&call) {
            return carry_out(&self.handlers, id, call).await;
        }
        // The semaphore is never closed, so a permit always comes.
        let Ok(permit) = Arc::clone(&self.slow).acquire_owned().await else { return };
        let handlers = self.handlers.clone();
        let RequestSlot { before, done } = self.order.take(&call);
        self.tasks.spawn(async move {
            if let Some(before) = before {
                before.cancelled().await;
            }
            carry_out(&handlers, id, call).await;
            drop((permit, on_done, done));
        });
    }

    async fn notified(&self, call: ClientRequest) {
        let handled = match call {
            ClientRequest::Answer { id, ask, answer } => {
                contain(self.handlers.decide_quietly(id, ask, answer)).await
            }
            call => contain(self.handlers.handle(&RpcId::null(), call)).await,
        };
        if let Ok(Err(fault)) = handled {
            tracing::debug!(?fault, "could not handle a notification");
        }
    }

    /// A request without an id is refused; other bad notifications have nobody to tell.
    async fn bad_notification(&self, method: &str, fault: RequestError) {
        match fault {
            RequestError::InvalidRequest(_) => self.refuse(RpcId::null(), fault).await,
            RequestError::Parse(_)
            | RequestError::FrameTooLong { .. }
            | RequestError::UnknownMethod(_)
            | RequestError::InvalidParams(_)
            | RequestError::NotInitialized { .. }
            | RequestError::NoSuchSession { .. }
            | RequestError::NotOpen { .. }
            | RequestError::NoSuchAsk { .. }
            | RequestError::UnknownChoice(_)
            | RequestError::Foreign(_)
            | RequestError::Internal(_) => {
                tracing::debug!(method, ?fault, "ignored a malformed notification")
            }
        }
    }

    async fn answered(&self, id: &RpcId, result: Result<&RawValue, &RawValue>) {
        let Some(PendingAsk { session: handle, ask, expected }) = self.handlers.pending_replies.answered(id)
        else {
            tracing::debug!(id = id.as_json(), "ignored a response that answers none of our requests");
            return;
        };
        let answer = ask_answer(&expected, self.decoder.client().abilities.forms, result);
        let outcome = match expected.refuses(&answer) {
            true => MessageOutcome::PermissionDenied,
            false => MessageOutcome::of_permission(&answer),
        };
        self.handlers
            .pending_replies
            .tally(|tally| tally.noticed(wire::method_names::REQUEST_PERMISSION, outcome));
        let Handlers { service, caller, .. } = &self.handlers;
        match service.answer(caller, &handle, ask, answer).await {
            Ok(_) => {}
            // There is no reply to a response, and the client takes the ask for answered: the ask would wait
            // for ever. So it is denied, and the log says what to do instead.
            Err(ServiceError::Send(SendError::Refused(Refusal::NotTheirs(_, why)))) => {
                let answer = PermissionAnswer::DenyBecause(why.to_string().into());
                if let Err(error) = service.answer(caller, &handle, ask, answer).await {
                    tracing::debug!(%error, "a permission answer came too late");
                }
            }
            // Somebody else answered first: the log says who.
            Err(error) => tracing::debug!(%error, "a permission answer came too late"),
        }
    }

    async fn refuse(&self, id: RpcId, fault: RequestError) {
        answer(&self.handlers, id, Err(fault)).await;
    }
}

async fn carry_out(handlers: &Handlers, id: RpcId, call: ClientRequest) {
    let handled = contain(handlers.handle(&id, call)).await;
    match handled {
        Ok(Ok(Some(outcome))) => answer(handlers, id, Ok(outcome)).await,
        Ok(Ok(None)) => {}
        Ok(Err(fault)) => answer(handlers, id, Err(fault)).await,
        Err(_) => {
            let fault = RequestError::Internal(
                "internal server error; the server keeps running, and its log says more".into(),
            );
            answer(handlers, id, Err(fault)).await;
        }
    }
}

async fn answer(handlers: &Handlers, id: RpcId, outcome: Result<wire::RequestOutcome, RequestError>) {
    handlers.commands.send(WriterCommand::Answer { id, outcome }).await;
}
