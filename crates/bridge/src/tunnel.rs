//! One session's way to the receiver: registered, connected, connected again, and taken leave of.
//!
//! A tunnel outlives the session's stay in memory: somebody elsewhere may want to go on with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{APPROVAL, MODEL, SessionHandle, SessionId};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use wire::tunnel::{Heartbeat, Registered, Registration};

use super::branch::Branching;
use super::pace::Backoff;
use super::pipe::Pipe;
use super::plain::PlainClient;
use super::post::Whose;
use super::trouble::{Trouble, quoted};
use super::{Bridged, Ended, Shared, mirror};

/// Upgrades that are answered by something else before it is done without a socket.
const BLOCKED_MAX: u32 = 2;

pub(super) struct Tunnel {
    shared: Arc<Shared>,
    session: SessionId,
    handles: watch::Receiver<SessionHandle>,
    /// The session is gone, or its place is needed.
    detach: CancellationToken,
    /// It is gone because it was deleted.
    deleted: Arc<AtomicBool>,
    enrolled: watch::Sender<Enrolled>,
    branching: Branching,
    backoff: Backoff,
    /// How often the upgrade was answered by something that is no receiver.
    blocked: u32,
}

/// What the receiver knows of the session.
#[derive(Debug, Clone, Default)]
struct Enrolled {
    /// None before the first registration, and after the receiver has forgotten the session.
    answer: Option<Registered>,
    /// It was told of the machine too.
    as_hub: bool,
    /// Registrations so far: each further one is at a receiver that has forgotten the session.
    count: u64,
}

impl Tunnel {
    pub fn new(shared: &Arc<Shared>, session: SessionId, bridged: &Bridged) -> Self {
        Self {
            shared: Arc::clone(shared),
            session,
            handles: bridged.handles.subscribe(),
            detach: bridged.detach.clone(),
            deleted: Arc::clone(&bridged.deleted),
            enrolled: watch::Sender::default(),
            branching: Branching::default(),
            backoff: Backoff::new(shared.pace),
            blocked: 0,
        }
    }

    /// Runs until the bridge ends or the session is detached; an error ends the whole bridge.
    pub async fn run(mut self) -> Result<(), Trouble> {
        self.shared.bridges.begin(&self.session, self.shared.post.address().to_string());
        let beating = beat(Arc::clone(&self.shared), self.handles.clone(), self.enrolled.clone());
        let mut plain = PlainClient::new(&self.shared);
        let ended = tokio::select! {
            biased;
            ended = self.connect_again(&mut plain) => ended,
            trouble = beating => Err(trouble),
        };
        // Whatever ended it: nothing of its connection outlives the bridge.
        plain.finish().await;
        self.note(false);
        if self.detach.is_cancelled() && self.deleted.load(Ordering::Relaxed) {
            forget(&self.shared, &self.session).await;
        } else if self.enrolled.borrow().answer.is_some() && !self.is_replaced() {
            let farewell = self.shared.post.farewell(self.session.as_str(), &self.shared.process).await;
            if let Err(trouble) = farewell {
                tracing::debug!(%trouble, "the receiver did not hear the farewell");
            }
        }
        if !self.is_replaced() {
            self.shared.bridges.forget(&self.session);
        }
        ended
    }

    async fn connect_again(&mut self, plain: &mut PlainClient) -> Result<(), Trouble> {
        loop {
            let Ended::Trouble(trouble) = self.once(plain).await else { return Ok(()) };
            // A certificate that was good once, for whichever session, may be good again.
            let was_connected = self.shared.was_connected.load(Ordering::Relaxed);
            let first = !was_connected && matches!(trouble, Trouble::Certificate { .. });
            if trouble.is_final() || first {
                return Err(trouble);
            }
            let wait = self.backoff.next();
            self.shared.again(&trouble, wait);
            tokio::select! {
                biased;
                () = stopped(&self.shared, &self.detach) => return Ok(()),
                () = tokio::time::sleep(wait) => {}
                never = plain.keep_up(&self.handles) => match never {},
            }
        }
    }

    /// One connection, from the first try to its end.
    async fn once(&mut self, plain: &mut PlainClient) -> Ended {
        let (shared, detach) = (Arc::clone(&self.shared), self.detach.clone());
        let handles = self.handles.clone();
        let opened = tokio::select! {
            biased;
            () = stopped(&shared, &detach) => return Ended::Stopped,
            opened = self.open() => opened,
            never = plain.keep_up(&handles) => match never {},
        };
        let (pipe, registration) = match opened {
            Ok(opened) => opened,
            Err(trouble) => return Ended::Trouble(trouble),
        };
        self.connected();
        let began = Instant::now();
        let stop = stopped(&shared, &detach);
        let ended = if !pipe.mirror && shared.bodies.are_sealed() {
            // Its language is plain frames, and nothing of the session is told in those.
            Ended::Trouble(Trouble::Unsealable)
        } else if pipe.mirror {
            mirror::run(&shared, &mut self.handles, &mut self.branching, pipe, stop).await
        } else {
            let handle = self.handles.borrow_and_update().clone();
            let ended = plain.run(&handle, pipe, registration, stop).await;
            plain.ended_with(self.enrolled.borrow().count);
            ended
        };
        self.note(false);
        self.backoff.lasted(began.elapsed());
        ended
    }

    fn connected(&self) {
        self.shared.was_connected.store(true, Ordering::Relaxed);
        self.note(true);
        let (address, session) = (self.shared.post.address(), &self.session);
        self.shared.tell(&format!("[ferret] bridge connected: {address} session={session}"));
    }

    /// Another tunnel carries the session by now: its status and its place at the receiver are not ours.
    fn is_replaced(&self) -> bool {
        self.detach.is_cancelled() && self.shared.carries(&self.session)
    }

    fn note(&self, connected: bool) {
        if self.is_replaced() {
            return;
        }
        let now = self.shared.desk.registry().clock().now();
        self.shared.bridges.set(&self.session, connected, now);
    }

    /// The way to the receiver, and which registration it belongs to.
    async fn open(&mut self) -> Result<(Pipe, u64), Trouble> {
        let known = self.enrolled.borrow().clone();
        if known.answer.is_some() {
            match self.open_with(known).await {
                // It may have forgotten the session.
                Err(Trouble::Answered { status: 404 | 410, .. }) => {
                    self.enrolled.send_modify(|known| known.answer = None);
                }
                opened => return opened,
            }
        }
        let known = register(&self.shared, &self.handles, &self.enrolled).await?;
        self.open_with(known).await
    }

    async fn open_with(&mut self, known: Enrolled) -> Result<(Pipe, u64), Trouble> {
        let Enrolled { answer: Some(registered), as_hub, count } = known else {
            return Err(Trouble::closed());
        };
        let shared = &self.shared;
        if self.blocked >= BLOCKED_MAX && shared.post.is_hub() {
            // The socket is tried again when this one has ended.
            self.blocked = BLOCKED_MAX - 1;
            let whose = Whose::Session(self.session.to_string());
            match Pipe::over_polls(&shared.post, whose, &shared.tasks).await {
                Ok(pipe) => return Ok((pipe, count)),
                Err(trouble) if trouble.is_final() => return Err(trouble),
                Err(trouble) => tracing::debug!(%trouble, "the receiver has no tunnel without sockets"),
            }
        }
        let socket = shared.post.session_socket(&registered).await.inspect_err(|trouble| {
            self.blocked += u32::from(trouble.is_in_the_way());
        })?;
        self.blocked = 0;
        if socket.mirror && !as_hub {
            // Hubs of earlier versions are known by their socket alone.
            register(shared, &self.handles, &self.enrolled).await?;
        }
        Ok((Pipe::over_socket(socket, shared.pace.silence, &shared.tasks), count))
    }
}

/// Sees to it that the receiver forgets a session that was deleted here: told once, nobody would ever tell it again.
pub(super) async fn forget(shared: &Shared, session: &SessionId) {
    let mut backoff = Backoff::new(shared.pace);
    loop {
        match shared.post.deleted(session.as_str()).await {
            Ok(()) | Err(Trouble::Answered { status: 404 | 410, .. }) => return,
            Err(trouble) => {
                tracing::debug!(%trouble, "the receiver did not hear that a session was deleted");
                if trouble.is_final() {
                    return;
                }
            }
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
}

/// Waits until there is no more to do.
pub(super) async fn stopped(shared: &Shared, detach: &CancellationToken) {
    tokio::select! {
        () = shared.stop.cancelled() => {}
        () = detach.cancelled() => {}
    }
}

/// Registers the session, or registers it again. A receiver that says that it is a hub is told of the machine too; others
/// get the seed's five members.
async fn register(
    shared: &Shared,
    handles: &watch::Receiver<SessionHandle>,
    enrolled: &watch::Sender<Enrolled>,
) -> Result<Enrolled, Trouble> {
    let mut as_hub = shared.post.is_hub();
    let mut answer = shared.post.register(&registration(shared, handles, as_hub)).await?;
    if !as_hub && shared.post.is_hub() {
        as_hub = true;
        if shared.machine.is_some() {
            answer = shared.post.register(&registration(shared, handles, as_hub)).await?;
        }
    }
    let ui_url = quoted(&answer.ui_url);
    if as_hub {
        shared.tell(&format!("[ferret] bridge: people see the session at {ui_url}"));
    }
    shared.bridges.shown_at(handles.borrow().id(), ui_url);
    enrolled.send_modify(|known| {
        *known = Enrolled { answer: Some(answer), as_hub, count: known.count + 1 };
    });
    Ok(enrolled.borrow().clone())
}

fn registration(shared: &Shared, handles: &watch::Receiver<SessionHandle>, as_hub: bool) -> Registration {
    let handle = handles.borrow();
    let snapshot = handle.snapshot();
    let sealed = shared.bodies.are_sealed();
    let machine = shared.machine.as_ref().filter(|_| as_hub || sealed);
    Registration {
        session_id: handle.id().to_string(),
        model: snapshot.settings.get(MODEL).to_owned(),
        sandbox: shared.identity.sandbox.clone(),
        approval: snapshot.settings.get(APPROVAL).to_owned(),
        cwd: if sealed { String::new() } else { snapshot.cwd.display().to_string() },
        machine: machine.map(|machine| machine.id.clone()),
        sealed,
    }
}

/// Says regularly how the session is, from its registration on. Ends only with what ends the bridge.
async fn beat(
    shared: Arc<Shared>,
    handles: watch::Receiver<SessionHandle>,
    enrolled: watch::Sender<Enrolled>,
) -> Trouble {
    // The sender is held here.
    drop(enrolled.subscribe().wait_for(|known| known.answer.is_some()).await);
    let every = shared.pace.heartbeat;
    let mut beats = tokio::time::interval_at(Instant::now() + every, every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let (session, heartbeat) = {
            let handle = handles.borrow();
            let snapshot = handle.snapshot();
            let heartbeat = Heartbeat {
                sandbox: shared.identity.sandbox.clone(),
                approval: snapshot.settings.get(APPROVAL).to_owned(),
                cost_total_usd: snapshot.totals.known_usd().unwrap_or_default(),
            };
            (handle.id().to_string(), heartbeat)
        };
        match shared.post.heartbeat(&session, &heartbeat, &shared.process).await {
            Ok(()) => {}
            Err(trouble) if trouble.is_final() => return trouble,
            Err(Trouble::Answered { status: 404 | 410, .. }) => {
                // It has forgotten the session, which still is here.
                match register(&shared, &handles, &enrolled).await {
                    Ok(_) => {}
                    Err(trouble) if trouble.is_final() => return trouble,
                    Err(trouble) => tracing::debug!(%trouble, "the session cannot be registered again"),
                }
            }
            Err(trouble) => tracing::debug!(%trouble, "the receiver did not hear the heartbeat"),
        }
    }
}
