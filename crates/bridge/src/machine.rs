//! The machine's own connection: what people elsewhere ask for, and the answers.
//!
//! Every request of theirs comes this way, also about sessions that are not in memory. Only hubs have this
//! connection, so nothing is asked for it before the receiver said that it is one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::APPROVAL;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use wire::native::{Answered, Envelope, Reply, Request, Wrong};
use wire::tunnel::{Call, CallAnswer, Down, Heartbeat, Operator, Up};

use super::body::{Closing, Opened};
use super::operator::{self, Asked, Taker};
use super::pace::Backoff;
use super::pipe::{Outgoing, Pipe};
use super::post::Whose;
use super::trouble::{Trouble, quoted};
use super::{Ended, Shared, heard};

/// Calls that are worked on at once.
const CALLS_MAX: usize = 256;
/// People elsewhere who are clients here at once. The one who asked for nothing longest makes room.
const OPERATORS_MAX: usize = 64;
const OPERATOR_ID_BYTES_MAX: usize = 256;
const OPERATOR_NAME_CHARS_MAX: usize = 64;
/// Upgrades that are answered by something else before it is done without a socket.
const BLOCKED_MAX: u32 = 2;

/// Runs until the bridge ends; an error ends the whole bridge.
pub(super) async fn run(shared: &Arc<Shared>) -> Result<(), Trouble> {
    let Some(machine) = shared.machine.clone() else { return Ok(()) };
    let mut desk = Calls { shared: Arc::clone(shared), operators: HashMap::new() };
    let (mut backoff, mut blocked) = (Backoff::new(shared.pace), 0);
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
                let ended = desk.serve(pipe, &Up::Machine(machine.clone())).await;
                backoff.lasted(began.elapsed());
                match ended {
                    Ended::Stopped => return Ok(()),
                    Ended::Trouble(trouble) => trouble,
                }
            }
            Err(trouble) => trouble,
        };
        let wait = backoff.next();
        match &trouble {
            Trouble::Unauthorized | Trouble::Forbidden => return Err(trouble),
            Trouble::Certificate { .. } if !shared.was_connected.load(Ordering::Relaxed) => {
                return Err(trouble);
            }
            // Whatever is wrong with the whole receiver, the sessions' own connections say, if there are any.
            Trouble::Certificate { .. } | Trouble::Unreachable { .. } if !shared.carries_any() => {
                shared.again(&trouble, wait);
            }
            // This connection may not be known at all over there.
            _ => tracing::debug!(%trouble, "the machine's connection to the receiver"),
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Waits until the receiver is known to be a hub. A session's registration says it; where none was registered yet, the
/// receiver is asked, and asked again: something in front of a hub may have answered.
async fn find_hub(shared: &Shared, machine: &str) -> Result<(), Trouble> {
    let mut backoff = Backoff::new(shared.pace);
    while !shared.post.is_hub() {
        if shared.first.is_none() && !shared.carries_any() {
            let sandbox = shared.identity.sandbox.clone();
            let beat = Heartbeat { sandbox, approval: usual_approval(shared).await, cost_total_usd: 0.0 };
            shared.post.look_for_hub(machine, &beat).await?;
        }
        tokio::select! {
            () = shared.post.hub_known() => {}
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
    Ok(())
}

/// What a new session would get: there is none yet whose approval could be told.
async fn usual_approval(shared: &Shared) -> String {
    let offer = shared.desk.registry().offer(shared.rules.home_dir.clone()).await;
    let approval = offer.settings.iter().find(|spec| *spec.id == *APPROVAL);
    approval.map(|spec| spec.default.to_string()).unwrap_or_default()
}

async fn open(shared: &Arc<Shared>, machine: &str, blocked: &mut u32) -> Result<Pipe, Trouble> {
    if *blocked >= BLOCKED_MAX {
        *blocked = BLOCKED_MAX - 1;
        let whose = Whose::Machine(machine.to_owned());
        match Pipe::over_polls(&shared.post, whose, &shared.tasks).await {
            Ok(pipe) => return Ok(pipe),
            Err(trouble) if trouble.is_final() => return Err(trouble),
            Err(trouble) => tracing::debug!(%trouble, "the receiver has no tunnel without sockets"),
        }
    }
    match shared.post.machine_socket(machine).await {
        Ok(socket) => {
            *blocked = 0;
            Ok(Pipe::over_socket(socket, shared.pace.silence, &shared.tasks))
        }
        Err(trouble) => {
            *blocked += u32::from(trouble.is_in_the_way());
            Err(trouble)
        }
    }
}

struct Calls {
    shared: Arc<Shared>,
    /// By the person's id.
    operators: HashMap<String, operator::Seat>,
}

/// What came of a call, for the connection that it came by.
pub(super) struct Outcome {
    pub call: u64,
    pub closing: Closing,
    /// The session that it was a prompt for.
    pub prompted: Option<String>,
    pub reply: Reply,
    pub _room: OwnedSemaphorePermit,
}

enum Wake {
    Over(Trouble),
    Heard(Vec<u8>),
    Done(Outcome),
    Rekeyed,
    Stop,
}

impl Calls {
    async fn serve(&mut self, mut pipe: Pipe, hello: &Up) -> Ended {
        let room = Arc::new(Semaphore::new(CALLS_MAX));
        // As long as there may be calls: an answer always finds a place.
        let (answers, mut outcomes) = mpsc::channel(CALLS_MAX);
        let mut rekeyed = self.shared.bodies.rekeyed();
        let greeted = send(&pipe, hello).await;
        if let Err(trouble) = match greeted {
            Ok(()) => self.keys(&pipe).await,
            Err(trouble) => Err(trouble),
        } {
            return Ended::Trouble(trouble);
        }
        loop {
            let wake = tokio::select! {
                biased;
                trouble = &mut pipe.over => Wake::Over(trouble.unwrap_or_else(|_| Trouble::closed())),
                () = self.shared.stop.cancelled() => Wake::Stop,
                Some(outcome) = outcomes.recv() => Wake::Done(outcome),
                () = rekeyed.changed() => Wake::Rekeyed,
                Some(frame) = pipe.incoming.recv() => Wake::Heard(frame),
            };
            let done = match wake {
                Wake::Over(trouble) => return Ended::Trouble(trouble),
                Wake::Stop => return Ended::Stopped,
                Wake::Done(outcome) => self.answer(&pipe, outcome).await,
                Wake::Rekeyed => self.keys(&pipe).await,
                Wake::Heard(frame) => match heard(&frame) {
                    Ok(Some(Down::Call(call))) => self.take(&pipe, call, &room, &answers).await,
                    Ok(_) => Ok(()),
                    Err(trouble) => Err(trouble),
                },
            };
            if let Err(trouble) = done {
                return Ended::Trouble(trouble);
            }
        }
    }

    async fn answer(&self, pipe: &Pipe, outcome: Outcome) -> Result<(), Trouble> {
        let used = match &outcome.reply.ok {
            Some(Answered::Opened { session }) => Some(session),
            Some(Answered::Taken { .. }) => outcome.prompted.as_ref(),
            _ => None,
        };
        if let Some(Ok(session)) = used.map(|session| engine::SessionId::parse(session)) {
            self.shared.choose(&session);
        }
        let body = outcome.closing.body(&outcome.reply)?;
        send(pipe, &Up::Answer(CallAnswer { call: outcome.call, body })).await
    }

    /// Tells the machine's devices the keys, wrapped for each.
    async fn keys(&self, pipe: &Pipe) -> Result<(), Trouble> {
        match self.shared.bodies.keys()? {
            Some(keys) => send(pipe, &Up::Keys(keys)).await,
            None => Ok(()),
        }
    }

    async fn take(
        &mut self,
        pipe: &Pipe,
        Call { call, by, body }: Call,
        room: &Arc<Semaphore>,
        answers: &mpsc::Sender<Outcome>,
    ) -> Result<(), Trouble> {
        let said = if by.id.is_empty() || by.id.len() > OPERATOR_ID_BYTES_MAX {
            Err((Closing::plain(), wrong(0, "badRequest", "the hub does not say who asks")))
        } else {
            match self.shared.bodies.open(by, &body).await {
                Opened::Request { by, envelope, closing } => {
                    self.call((call, by, envelope, closing), room, answers)
                }
                Opened::Answer(body) => return send(pipe, &Up::Answer(CallAnswer { call, body })).await,
                Opened::Wrong { error, closing } => {
                    Err((closing, Box::new(Reply { re: 0, ok: None, error: Some(error) })))
                }
            }
        };
        let Err((closing, reply)) = said else { return Ok(()) };
        let body = closing.body(&reply)?;
        send(pipe, &Up::Answer(CallAnswer { call, body })).await
    }

    /// Sees to it that a call is answered; or says at once what is wrong with it.
    fn call(
        &mut self,
        (call, by, envelope, closing): (u64, Operator, Envelope, Closing),
        room: &Arc<Semaphore>,
        answers: &mpsc::Sender<Outcome>,
    ) -> Result<(), (Closing, Box<Reply>)> {
        let id = envelope.id;
        let Ok(place) = Arc::clone(room).try_acquire_owned() else {
            let message = "the machine has more requests than it can take; try again";
            return Err((closing, wrong(id, "busy", message)));
        };
        let prompted = match &envelope.request {
            Request::Prompt { session, .. } => Some(session.clone()),
            _ => None,
        };
        let taker = Taker { call, id, closing, prompted, answers: answers.clone(), room: place };
        match &envelope.request {
            Request::Watch { session, .. } => {
                return self
                    .watch(session.clone(), taker)
                    .map_err(|taker| (taker.closing, wrong(id, "badRequest", "this is no session id")));
            }
            // Who looks at the mirror, the hub knows.
            Request::Unwatch { .. } | Request::Looking { .. } => {
                taker.answer(Reply { re: id, ok: Some(Answered::Done), error: None });
                return Ok(());
            }
            _ => {}
        }
        let asked = Asked { request: envelope.request, taker };
        let busy =
            |asked: Box<Asked>| (asked.taker.closing, wrong(id, "busy", "too many requests wait; try again"));
        self.seat(by).ask(asked).map_err(busy)
    }

    /// The session is brought back, so that its mirror goes on. Gives the taker back if there is none of
    /// this name.
    fn watch(&self, session: String, taker: Taker) -> Result<(), Box<Taker>> {
        let Ok(session) = engine::SessionId::parse(&session) else { return Err(Box::new(taker)) };
        let shared = Arc::clone(&self.shared);
        drop(self.shared.tasks.spawn(async move {
            let opened = shared.desk.bring_back(&session).await;
            if opened.is_ok() {
                shared.choose(&session);
            }
            let re = taker.id;
            taker.answer(match opened {
                Ok(()) => Reply { re, ok: Some(Answered::Done), error: None },
                Err(wrong) => Reply { re, ok: None, error: Some(wrong) },
            });
        }));
        Ok(())
    }

    /// The line of a person, opened if there is none that fits.
    fn seat(&mut self, by: Operator) -> &operator::Seat {
        let role = self.shared.answers.cap(by.role);
        let name: String = quoted(&by.name).chars().take(OPERATOR_NAME_CHARS_MAX).collect();
        let name = if name.trim().is_empty() { service::REMOTE_UNNAMED.to_owned() } else { name };
        self.operators.retain(|_, seat| seat.is_open());
        let fits = |seat: &operator::Seat| seat.role == role && *seat.user == *name;
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
        self.operators.entry(by.id).or_insert_with(|| operator::Seat::open(shared, id, name.into(), role))
    }
}

fn wrong(id: u64, code: &str, message: &str) -> Box<Reply> {
    let error = Wrong { code: code.to_owned(), message: message.to_owned() };
    Box::new(Reply { re: id, ok: None, error: Some(error) })
}

async fn send(pipe: &Pipe, up: &Up) -> Result<(), Trouble> {
    let frame = serde_json::to_vec(up).map_err(Trouble::malformed)?;
    // A pipe that is closed says why.
    drop(pipe.out.send(Outgoing::Frame(frame)).await);
    Ok(())
}
