//! One client: a link, the protocol it speaks, and the calls it is owed answers for.
//!
//! The reading half never waits for a turn, so cancels and permission answers always get through.
//! Calls that may take long run beside each other, a bounded number of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Answer, BoxFuture, Input, Principal, Refusal, Registry, SendError, Sender, Standing, SurfaceId,
};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use wire::acp::ask_answer;
use wire::{Call, Client, Decoder, Dialect, Fault, Frame, Hello, Identity, Message, Replies, RpcId, Spoken};

use crate::batch::{Batch, Position};
use crate::bridge::{Confined, UNNAMED, remote_name};
use crate::debts::{Debts, Owed};
use crate::handlers::{Handlers, Rules};
use crate::host::Editor;
use crate::link::{Incoming, Link};
use crate::metrics::{Door, MessageOutcome, Metrics, Tally};
use crate::outlet::Outlet;
use crate::panics::contain;
use crate::writer::{Command, Out, Shown, Writer};

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
    pub standing: Standing,
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
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let desk = Desk::new(parts, SurfaceId::random());
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let writer = tasks.spawn(desk.writers.make(receiver, Some(link.outgoing), Arc::default()).run());
        let reader = desk.reader(Outlet::One(commands.clone()), &tasks);
        let reader = tasks.spawn(reader.run(link.incoming, stop.clone()));
        Self { commands, reader, writer, stop, tasks }
    }

    /// For a receiver elsewhere, which is shown one session without asking for it, and may do what it is
    /// confined to.
    pub(crate) fn start_unasked(
        parts: ConnectionParts,
        surface: SurfaceId,
        link: Link,
        confined: Confined,
        first: Command,
    ) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let mut desk = Desk::new(parts, surface);
        desk.sender.remote = Some(UNNAMED.into());
        desk.writers.debts.opened(&confined.session);
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        // The queue is empty, and longer than this.
        drop(commands.try_send(first));
        let writer = tasks.spawn(desk.writers.make(receiver, Some(link.outgoing), Arc::default()).run());
        let mut reader = desk.reader(Outlet::One(commands.clone()), &tasks);
        reader.confined = Some(confined);
        let reader = tasks.spawn(reader.run(link.incoming, stop.clone()));
        Self { commands, reader, writer, stop, tasks }
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
    sender: Sender,
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
    standing: Standing,
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
        let ConnectionParts { registry, principal, identity, .. } = parts;
        Self {
            writers: Writers { registry, principal, identity, debts, surface, standing: parts.standing },
            sender: Sender { standing: parts.standing, ..Sender::new(surface, parts.name) },
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
            registry: self.writers.registry,
            principal: self.writers.principal,
            sender: self.sender,
            rules: Arc::new(self.rules),
            debts,
            commands: outlet,
        };
        Reader {
            decoder: self.decoder,
            handlers,
            tasks: tasks.clone(),
            slow: Arc::new(Semaphore::new(SLOW_CALLS_MAX)),
            greeted: self.greeted,
            confined: None,
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
        lost: Arc<Mutex<Option<Position>>>,
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
            standing: self.standing,
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

pub(crate) struct Posted {
    pub(crate) line: Vec<u8>,
    pub(crate) taken: Taken,
}

pub(crate) struct Reader {
    decoder: Decoder,
    handlers: Handlers,
    tasks: TaskTracker,
    slow: Arc<Semaphore>,
    greeted: Option<Greeted>,
    /// What the client may not go beyond, if it is elsewhere.
    confined: Option<Confined>,
    /// Methods of the official protocol that are not offered here.
    disabled: Vec<String>,
}

impl Reader {
    pub(crate) async fn run(mut self, mut incoming: Incoming, stop: CancellationToken) {
        loop {
            let frame = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                frame = incoming.recv() => frame,
            };
            match frame {
                Some(Frame::Line(line)) => self.line(&line, None).await,
                Some(Frame::TooLong { limit_bytes }) => {
                    self.refuse(RpcId::null(), Fault::FrameTooLong { limit_bytes }).await;
                }
                None => break,
            }
        }
        self.finish(&stop).await;
    }

    /// The same for lines whose senders want to know when they were carried out.
    pub(crate) async fn run_posted(mut self, mut incoming: mpsc::Receiver<Posted>, stop: CancellationToken) {
        loop {
            let posted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                posted = incoming.recv() => posted,
            };
            let Some(Posted { line, taken }) = posted else { break };
            self.line(&line, Some(taken)).await;
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

    async fn line(&mut self, line: &[u8], taken: Option<Taken>) {
        match wire::parse(line) {
            Ok(Message::Request { id, method, params }) => {
                self.handlers.debts.tally(|tally| tally.asked(&id, &method));
                let span = Tally::span(&method);
                let call = self.offered(&method);
                let call = call.and_then(|()| self.decoder.request(&method, params, line.len()));
                match call.and_then(|call| self.confine(call)) {
                    Ok(Call::List { cwd, .. }) if let Some(confined) = &self.confined => {
                        let listed = self.handlers.list_one(&confined.session, cwd).await;
                        answer(&self.handlers, id, listed).await;
                    }
                    Ok(call) => self.call(id, call, taken).instrument(span).await,
                    Err(fault) => self.refuse(id, fault).await,
                }
            }
            Ok(Message::Notification { method, params }) => {
                let call = self.decoder.notification(&method, params);
                match call.and_then(|call| self.confine(call)) {
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

    fn confine(&self, call: Call) -> Result<Call, Fault> {
        match &self.confined {
            Some(confined) => confined.check(call),
            None => Ok(call),
        }
    }

    async fn call(&mut self, id: RpcId, call: Call, taken: Option<Taken>) {
        if let Call::Initialize(hello) = &call {
            let sender = &mut self.handlers.sender;
            (sender.name, sender.remote) = match &self.confined {
                Some(_) => {
                    let user = if hello.is_named() { Arc::clone(&hello.name) } else { UNNAMED.into() };
                    (remote_name(&user), Some(user))
                }
                None => (Arc::clone(&hello.name), None),
            };
            self.handlers.debts.set_client(self.decoder.client());
            if let Some(greeted) = &self.greeted {
                greeted(hello).await;
            }
        }
        if !self.handlers.is_slow(&call) {
            return carry_out(&self.handlers, id, call).await;
        }
        // The semaphore is never closed, so a permit always comes.
        let Ok(permit) = Arc::clone(&self.slow).acquire_owned().await else { return };
        let handlers = self.handlers.clone();
        self.tasks.spawn(async move {
            carry_out(&handlers, id, call).await;
            drop((permit, taken));
        });
    }

    async fn notified(&self, call: Call) {
        let handled = contain(self.handlers.handle(&RpcId::null(), call)).await;
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
        self.handlers.debts.tally(|tally| tally.noticed("session/request_permission", outcome));
        let by = &self.handlers.sender;
        match handle.send(Input::Answer { by: by.clone(), ask, answer }).await {
            Ok(_) => {}
            // Nothing can be said to an answer, and the client takes the question for answered: it would wait
            // for ever. So it is refused, and the log says what to do instead.
            Err(SendError::Refused(Refusal::NotTheirs(_, why))) => {
                let answer = Answer::DenyBecause(why.to_string().into());
                if let Err(error) = handle.send(Input::Answer { by: by.clone(), ask, answer }).await {
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
