//! The machine's own connection to the hub: the requests of people elsewhere, and the answers.
//!
//! All of their requests come this way, also about sessions that are not in memory. Only hubs have this
//! connection, so nothing is requested for it before the receiver said that it is a hub.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::APPROVAL;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use wire::native::{ReplyBody, ReplyError, Request, RequestEnvelope, RequestReply};
use wire::tunnel::{BridgeFrame, Heartbeat, HubFrame, Operator, OperatorCall, OperatorCallReply};

use super::body_codec::{IncomingBody, ReplyEncoder};
use super::bridge_error::{BridgeError, quoted};
use super::operator_app_connection::{self, OperatorRequest, ReplyTarget};
use super::receiver_client::TunnelTarget;
use super::timings::Backoff;
use super::tunnel_pipe::{Outgoing, TunnelConnection};
use super::{ConnectionEnd, Shared, parse_frame};

/// Calls that run at once.
const CALLS_MAX: usize = 256;
/// People elsewhere who are clients here at once. The one idle for longest makes room.
const OPERATORS_MAX: usize = 64;
const OPERATOR_ID_BYTES_MAX: usize = 256;
const OPERATOR_NAME_CHARS_MAX: usize = 64;
/// Socket upgrades that something in between may block before polling is used instead.
const BLOCKED_MAX: u32 = 2;

/// Runs until the bridge ends; an error ends the whole bridge.
pub(super) async fn run(shared: &Arc<Shared>) -> Result<(), BridgeError> {
    let Some(machine) = shared.machine.clone() else { return Ok(()) };
    let mut calls = MachineCalls { shared: Arc::clone(shared), operators: HashMap::new() };
    let (mut backoff, mut blocked) = (Backoff::new(shared.timings), 0);
    loop {
        let opened = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Ok(()),
            opened = async {
                find_hub(shared, &machine.id).await?;
                open(shared, &machine.id, &mut blocked).await
            } => opened,
        };
        let trouble = match opened {
            Ok(pipe) => {
                shared.was_connected.store(true, Ordering::Relaxed);
                let began = Instant::now();
                let ended = calls.serve(pipe, &BridgeFrame::Machine(machine.clone())).await;
                backoff.lasted(began.elapsed());
                match ended {
                    ConnectionEnd::Stopped => return Ok(()),
                    ConnectionEnd::Failed(trouble) => trouble,
                }
            }
            Err(trouble) => trouble,
        };
        let wait = backoff.next();
        match &trouble {
            BridgeError::Unauthorized | BridgeError::Forbidden => return Err(trouble),
            BridgeError::Certificate { .. } if !shared.was_connected.load(Ordering::Relaxed) => {
                return Err(trouble);
            }
            // Errors about the whole receiver are reported by the sessions' own connections, if there are any.
            BridgeError::Certificate { .. } | BridgeError::Unreachable { .. } if !shared.has_any_tunnel() => {
                shared.report_retry(&trouble, wait);
            }
            // The receiver may not know this kind of connection at all.
            _ => tracing::debug!(%trouble, "the machine's connection to the receiver"),
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Waits until the receiver is known to be a hub. A session's registration tells it; where none was registered yet, the
/// receiver is asked, repeatedly: something in front of a hub may have answered.
async fn find_hub(shared: &Shared, machine: &str) -> Result<(), BridgeError> {
    let mut backoff = Backoff::new(shared.timings);
    while !shared.receiver.is_hub() {
        if shared.first.is_none() && !shared.has_any_tunnel() {
            let sandbox = shared.identity.sandbox.clone();
            let beat = Heartbeat { sandbox, approval: usual_approval(shared).await, cost_total_usd: 0.0 };
            shared.receiver.look_for_hub(machine, &beat).await?;
        }
        tokio::select! {
            () = shared.receiver.hub_known() => {}
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
    Ok(())
}

/// The approval preset that a new session would get: there is no session yet whose preset could be sent.
async fn usual_approval(shared: &Shared) -> String {
    let offer = shared.app.registry().offer(shared.rules.home_dir.clone()).await;
    let approval = offer.settings.iter().find(|spec| *spec.id == *APPROVAL);
    approval.map(|spec| spec.default.to_string()).unwrap_or_default()
}

async fn open(
    shared: &Arc<Shared>,
    machine: &str,
    blocked: &mut u32,
) -> Result<TunnelConnection, BridgeError> {
    if *blocked >= BLOCKED_MAX {
        *blocked = BLOCKED_MAX - 1;
        let target = TunnelTarget::Machine(machine.to_owned());
        match TunnelConnection::over_polls(&shared.receiver, target, &shared.tasks).await {
            Ok(pipe) => return Ok(pipe),
            Err(trouble) if trouble.is_final() => return Err(trouble),
            Err(trouble) => tracing::debug!(%trouble, "the receiver has no tunnel without sockets"),
        }
    }
    match shared.receiver.machine_socket(machine).await {
        Ok(socket) => {
            *blocked = 0;
            Ok(TunnelConnection::over_socket(socket, shared.timings.silence, &shared.tasks))
        }
        Err(trouble) => {
            *blocked += u32::from(trouble.is_in_the_way());
            Err(trouble)
        }
    }
}

struct MachineCalls {
    shared: Arc<Shared>,
    /// The app connections of operators, by the operator's id.
    operators: HashMap<String, operator_app_connection::OperatorConnection>,
}

/// The outcome of a call, for the connection that it came by.
pub(super) struct MachineCallOutcome {
    pub call: u64,
    pub encoder: ReplyEncoder,
    /// The session that it was a prompt for.
    pub prompted: Option<String>,
    pub reply: RequestReply,
    pub _room: OwnedSemaphorePermit,
}

enum Wake {
    Over(BridgeError),
    Heard(Vec<u8>),
    Done(MachineCallOutcome),
    Rekeyed,
    Stop,
}

impl MachineCalls {
    async fn serve(&mut self, mut pipe: TunnelConnection, hello: &BridgeFrame) -> ConnectionEnd {
        let room = Arc::new(Semaphore::new(CALLS_MAX));
        // As long as the limit of calls: there is always room for an outcome.
        let (answers, mut outcomes) = mpsc::channel(CALLS_MAX);
        let mut rekeyed = self.shared.codec.rekeyed();
        let greeted = send(&pipe, hello).await;
        if let Err(trouble) = match greeted {
            Ok(()) => self.keys(&pipe).await,
            Err(trouble) => Err(trouble),
        } {
            return ConnectionEnd::Failed(trouble);
        }
        loop {
            let wake = tokio::select! {
                biased;
                trouble = &mut pipe.over => Wake::Over(trouble.unwrap_or_else(|_| BridgeError::closed())),
                () = self.shared.stop.cancelled() => Wake::Stop,
                Some(outcome) = outcomes.recv() => Wake::Done(outcome),
                () = rekeyed.changed() => Wake::Rekeyed,
                Some(frame) = pipe.incoming.recv() => Wake::Heard(frame),
            };
            let done = match wake {
                Wake::Over(trouble) => return ConnectionEnd::Failed(trouble),
                Wake::Stop => return ConnectionEnd::Stopped,
                Wake::Done(outcome) => self.answer(&pipe, outcome).await,
                Wake::Rekeyed => self.keys(&pipe).await,
                Wake::Heard(frame) => match parse_frame(&frame) {
                    Ok(Some(HubFrame::Call(call))) => self.take(&pipe, call, &room, &answers).await,
                    Ok(_) => Ok(()),
                    Err(trouble) => Err(trouble),
                },
            };
            if let Err(trouble) = done {
                return ConnectionEnd::Failed(trouble);
            }
        }
    }

    async fn answer(&self, pipe: &TunnelConnection, outcome: MachineCallOutcome) -> Result<(), BridgeError> {
        let used = match &outcome.reply.ok {
            Some(ReplyBody::SessionOpened { session }) => Some(session),
            Some(ReplyBody::PromptAccepted { .. }) => outcome.prompted.as_ref(),
            _ => None,
        };
        if let Some(Ok(session)) = used.map(|session| engine::SessionId::parse(session)) {
            self.shared.include(&session);
        }
        let body = outcome.encoder.body(&outcome.reply)?;
        send(pipe, &BridgeFrame::Answer(OperatorCallReply { call: outcome.call, body })).await
    }

    /// Sends the keys to the machine's devices, wrapped for each.
    async fn keys(&self, pipe: &TunnelConnection) -> Result<(), BridgeError> {
        match self.shared.codec.keys()? {
            Some(keys) => send(pipe, &BridgeFrame::Keys(keys)).await,
            None => Ok(()),
        }
    }

    async fn take(
        &mut self,
        pipe: &TunnelConnection,
        OperatorCall { call, by, body }: OperatorCall,
        room: &Arc<Semaphore>,
        answers: &mpsc::Sender<MachineCallOutcome>,
    ) -> Result<(), BridgeError> {
        let answered = if by.id.is_empty() || by.id.len() > OPERATOR_ID_BYTES_MAX {
            Err((ReplyEncoder::plain(), wrong(0, "badRequest", "the hub did not say who sent the request")))
        } else {
            match self.shared.codec.open(by, &body).await {
                IncomingBody::Request { by, envelope, encoder } => {
                    self.call((call, by, envelope, encoder), room, answers)
                }
                IncomingBody::Answer(body) => {
                    return send(pipe, &BridgeFrame::Answer(OperatorCallReply { call, body })).await;
                }
                IncomingBody::Wrong { error, encoder } => {
                    Err((encoder, Box::new(RequestReply { re: 0, ok: None, error: Some(error) })))
                }
            }
        };
        let Err((encoder, reply)) = answered else { return Ok(()) };
        let body = encoder.body(&reply)?;
        send(pipe, &BridgeFrame::Answer(OperatorCallReply { call, body })).await
    }

    /// Starts a task that answers a call; or gives at once the reply that refuses it.
    fn call(
        &mut self,
        (call, by, envelope, encoder): (u64, Operator, RequestEnvelope, ReplyEncoder),
        room: &Arc<Semaphore>,
        answers: &mpsc::Sender<MachineCallOutcome>,
    ) -> Result<(), (ReplyEncoder, Box<RequestReply>)> {
        let id = envelope.id;
        let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
            let message = "the machine has too many requests; try again";
            return Err((encoder, wrong(id, "busy", message)));
        };
        let prompted = match &envelope.request {
            Request::Prompt { session, .. } => Some(session.clone()),
            _ => None,
        };
        let reply_to = ReplyTarget { call, id, encoder, prompted, answers: answers.clone(), room: permit };
        match &envelope.request {
            Request::Watch { session, .. } => {
                return self.watch(session.clone(), reply_to).map_err(|reply_to| {
                    (reply_to.encoder, wrong(id, "badRequest", "this is not a session id"))
                });
            }
            // The hub knows who watches the mirror.
            Request::Unwatch { .. } | Request::Presence { .. } => {
                reply_to.answer(RequestReply { re: id, ok: Some(ReplyBody::Done), error: None });
                return Ok(());
            }
            _ => {}
        }
        let asked = OperatorRequest { request: envelope.request, reply_to };
        let busy = |asked: Box<OperatorRequest>| {
            (asked.reply_to.encoder, wrong(id, "busy", "too many requests wait; try again"))
        };
        self.operator_connection(by).ask(asked).map_err(busy)
    }

    /// Loads the session into memory, so that its mirror continues. Gives `reply_to` back if this is not a session id.
    fn watch(&self, session: String, reply_to: ReplyTarget) -> Result<(), Box<ReplyTarget>> {
        let Ok(session) = engine::SessionId::parse(&session) else { return Err(Box::new(reply_to)) };
        let shared = Arc::clone(&self.shared);
        drop(self.shared.tasks.spawn(async move {
            let opened = shared.app.bring_back(&session).await;
            if opened.is_ok() {
                shared.include(&session);
            }
            let re = reply_to.id;
            reply_to.answer(match opened {
                Ok(()) => RequestReply { re, ok: Some(ReplyBody::Done), error: None },
                Err(wrong) => RequestReply { re, ok: None, error: Some(wrong) },
            });
        }));
        Ok(())
    }

    /// The app connection of an operator, opened if there is none with this role and name.
    fn operator_connection(&mut self, by: Operator) -> &operator_app_connection::OperatorConnection {
        let role = self.shared.answers.cap(by.role);
        let name: String = quoted(&by.name).chars().take(OPERATOR_NAME_CHARS_MAX).collect();
        let name = if name.trim().is_empty() { service::REMOTE_UNNAMED.to_owned() } else { name };
        self.operators.retain(|_, seat| seat.is_open());
        let fits =
            |seat: &operator_app_connection::OperatorConnection| seat.role == role && *seat.user == *name;
        if !self.operators.get(&by.id).is_some_and(fits) {
            self.operators.remove(&by.id);
            if self.operators.len() >= OPERATORS_MAX {
                let oldest = self.operators.iter().min_by_key(|(_, seat)| seat.used());
                if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                    self.operators.remove(&id);
                }
            }
        }
        let shared = &self.shared;
        let id: Arc<str> = by.id.as_str().into();
        self.operators.entry(by.id).or_insert_with(|| {
            operator_app_connection::OperatorConnection::open(shared, id, name.into(), role)
        })
    }
}

fn wrong(id: u64, code: &str, message: &str) -> Box<RequestReply> {
    let error = ReplyError { code: code.to_owned(), message: message.to_owned() };
    Box::new(RequestReply { re: id, ok: None, error: Some(error) })
}

async fn send(pipe: &TunnelConnection, up: &BridgeFrame) -> Result<(), BridgeError> {
    let frame = serde_json::to_vec(up).map_err(BridgeError::malformed)?;
    // A pipe that is closed says why.
    drop(pipe.out.send(Outgoing::Frame(frame)).await);
    Ok(())
}
