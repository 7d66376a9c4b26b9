//! One session's connection to the receiver: registered, connected, reconnected, and deregistered at the end.
//!
//! A tunnel outlives the session's stay in memory: somebody elsewhere may want to continue it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{APPROVAL, MODEL, SessionHandle, SessionId};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use wire::tunnel::{Heartbeat, Registration, RegistrationReply};

use super::bridge_error::{BridgeError, quoted};
use super::mirror_branch::BranchState;
use super::receiver_client::TunnelTarget;
use super::receiver_without_mirror::FerretReceiver;
use super::timings::Backoff;
use super::tunnel_pipe::TunnelConnection;
use super::{BridgedSession, ConnectionEnd, Shared, mirror_sender};

/// Socket upgrades that something in between may block before polling is used instead.
const BLOCKED_MAX: u32 = 2;

pub(super) struct Tunnel {
    shared: Arc<Shared>,
    session: SessionId,
    handles: watch::Receiver<SessionHandle>,
    /// Cancelled when the session is gone, or its slot is needed.
    detach: CancellationToken,
    /// The session was deleted.
    deleted: Arc<AtomicBool>,
    registrations: watch::Sender<RegistrationState>,
    branch_state: BranchState,
    backoff: Backoff,
    /// How often the socket upgrade was blocked by something in between.
    blocked: u32,
}

/// The session's registration at the receiver.
#[derive(Debug, Clone, Default)]
struct RegistrationState {
    /// None before the first registration, and after the receiver has forgotten the session.
    answer: Option<RegistrationReply>,
    /// The receiver accepted a registration, or one is under way: it gets a farewell.
    may_exist: bool,
    /// The machine was registered too.
    as_hub: bool,
    /// Registrations so far: each further one was needed because the receiver has forgotten the session.
    count: u64,
}

impl Tunnel {
    pub fn new(shared: &Arc<Shared>, session: SessionId, tunnel_state: &BridgedSession) -> Self {
        Self {
            shared: Arc::clone(shared),
            session,
            handles: tunnel_state.handles.subscribe(),
            detach: tunnel_state.detach.clone(),
            deleted: Arc::clone(&tunnel_state.deleted),
            registrations: watch::Sender::default(),
            branch_state: BranchState::default(),
            backoff: Backoff::new(shared.timings),
            blocked: 0,
        }
    }

    /// Runs until the bridge ends or the session is detached; an error ends the whole bridge.
    pub async fn run(mut self) -> Result<(), BridgeError> {
        self.shared.bridges.begin(&self.session, self.shared.receiver.address().to_string());
        let beating = beat(Arc::clone(&self.shared), self.handles.clone(), self.registrations.clone());
        let mut plain = FerretReceiver::new(&self.shared);
        let ended = tokio::select! {
            biased;
            ended = self.keep_connected(&mut plain) => ended,
            trouble = beating => Err(trouble),
        };
        // However it ended: nothing of its connection outlives the bridge.
        plain.finish().await;
        self.note(false);
        if self.detach.is_cancelled() && self.deleted.load(Ordering::Relaxed) {
            forget(&self.shared, &self.session).await;
        } else if self.registrations.borrow().may_exist && !self.is_replaced() {
            let farewell = self.shared.receiver.farewell(self.session.as_str(), &self.shared.process).await;
            if let Err(trouble) = farewell {
                tracing::debug!(%trouble, "could not sign off at the receiver");
            }
        }
        if !self.is_replaced() {
            self.shared.bridges.forget(&self.session);
        }
        ended
    }

    async fn keep_connected(&mut self, plain: &mut FerretReceiver) -> Result<(), BridgeError> {
        loop {
            let ConnectionEnd::Failed(trouble) = self.connect_once(plain).await else { return Ok(()) };
            // A certificate that was accepted once, for any session, may be accepted again.
            let was_connected = self.shared.was_connected.load(Ordering::Relaxed);
            let first = !was_connected && matches!(trouble, BridgeError::Certificate { .. });
            if trouble.is_final() || first {
                return Err(trouble);
            }
            let wait = self.backoff.next();
            self.shared.report_retry(&trouble, wait);
            tokio::select! {
                biased;
                () = stopped(&self.shared, &self.detach) => return Ok(()),
                () = tokio::time::sleep(wait) => {}
                never = plain.buffer_updates(&self.handles) => match never {},
            }
        }
    }

    /// Runs one connection, from the first try to its end.
    async fn connect_once(&mut self, plain: &mut FerretReceiver) -> ConnectionEnd {
        let (shared, detach) = (Arc::clone(&self.shared), self.detach.clone());
        let handles = self.handles.clone();
        let opened = tokio::select! {
            biased;
            () = stopped(&shared, &detach) => return ConnectionEnd::Stopped,
            opened = self.open() => opened,
            never = plain.buffer_updates(&handles) => match never {},
        };
        let (pipe, registration) = match opened {
            Ok(opened) => opened,
            Err(trouble) => return ConnectionEnd::Failed(trouble),
        };
        self.connected();
        let began = Instant::now();
        let stop = stopped(&shared, &detach);
        let ended = if !pipe.mirror && shared.codec.are_sealed() {
            // Without a mirror the receiver takes plain frames only, and nothing of a sealed session is sent in those.
            ConnectionEnd::Failed(BridgeError::Unsealable)
        } else if pipe.mirror {
            mirror_sender::run(&shared, &mut self.handles, &mut self.branch_state, pipe, stop).await
        } else {
            let handle = self.handles.borrow_and_update().clone();
            let ended = plain.run(&handle, pipe, registration, stop).await;
            plain.ended_with(self.registrations.borrow().count);
            ended
        };
        self.note(false);
        self.backoff.lasted(began.elapsed());
        ended
    }

    fn connected(&self) {
        self.shared.was_connected.store(true, Ordering::Relaxed);
        self.note(true);
        let (address, session) = (self.shared.receiver.address(), &self.session);
        self.shared.tell(&format!("[ferret] bridge connected: {address} session={session}"));
    }

    /// Whether another tunnel has the session by now: its status and its registration are not ours then.
    fn is_replaced(&self) -> bool {
        self.detach.is_cancelled() && self.shared.has_tunnel(&self.session)
    }

    fn note(&self, connected: bool) {
        if self.is_replaced() {
            return;
        }
        let now = self.shared.app.registry().clock().now();
        self.shared.bridges.set(&self.session, connected, now);
    }

    /// Opens a pipe to the receiver, and gives the registration that it belongs to.
    async fn open(&mut self) -> Result<(TunnelConnection, u64), BridgeError> {
        let known = self.registrations.borrow().clone();
        if known.answer.is_some() {
            match self.open_with(known).await {
                // The receiver may have forgotten the session.
                Err(BridgeError::Answered { status: 404 | 410, .. }) => {
                    self.registrations.send_modify(|known| known.answer = None);
                }
                opened => return opened,
            }
        }
        let known = register(&self.shared, &self.handles, &self.registrations).await?;
        self.open_with(known).await
    }

    async fn open_with(&mut self, known: RegistrationState) -> Result<(TunnelConnection, u64), BridgeError> {
        let RegistrationState { answer: Some(registered), as_hub, count, .. } = known else {
            return Err(BridgeError::closed());
        };
        let shared = &self.shared;
        if self.blocked >= BLOCKED_MAX && shared.receiver.is_hub() {
            // The socket is tried again when this pipe has ended.
            self.blocked = BLOCKED_MAX - 1;
            let target = TunnelTarget::Session(self.session.to_string());
            match TunnelConnection::over_polls(&shared.receiver, target, &shared.tasks).await {
                Ok(pipe) => return Ok((pipe, count)),
                Err(trouble) if trouble.is_final() => return Err(trouble),
                Err(trouble) => tracing::debug!(%trouble, "the receiver has no tunnel without sockets"),
            }
        }
        let socket = shared.receiver.session_socket(&registered).await.inspect_err(|trouble| {
            self.blocked += u32::from(trouble.is_in_the_way());
        })?;
        self.blocked = 0;
        if socket.mirror && !as_hub {
            // Hubs of earlier versions are recognised by their socket alone.
            register(shared, &self.handles, &self.registrations).await?;
        }
        Ok((TunnelConnection::over_socket(socket, shared.timings.silence, &shared.tasks), count))
    }
}

/// Tells the receiver until it confirms that a session was deleted here: nothing else would delete it there later.
pub(super) async fn forget(shared: &Shared, session: &SessionId) {
    let mut backoff = Backoff::new(shared.timings);
    loop {
        match shared.receiver.deleted(session.as_str()).await {
            Ok(()) | Err(BridgeError::Answered { status: 404 | 410, .. }) => return,
            Err(trouble) => {
                tracing::debug!(%trouble, "could not tell the receiver that a session was deleted");
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

/// Waits until the bridge or this tunnel is stopped.
pub(super) async fn stopped(shared: &Shared, detach: &CancellationToken) {
    tokio::select! {
        () = shared.stop.cancelled() => {}
        () = detach.cancelled() => {}
    }
}

/// Registers the session, or registers it again. A receiver that says that it is a hub gets the machine too; others
/// get the five members of the seed's contract.
async fn register(
    shared: &Shared,
    handles: &watch::Receiver<SessionHandle>,
    registrations: &watch::Sender<RegistrationState>,
) -> Result<RegistrationState, BridgeError> {
    let mut as_hub = shared.receiver.is_hub();
    // Before it is sent: a bridge that stops while it waits does not learn whether the receiver has the session.
    let mut existed = false;
    registrations.send_modify(|known| existed = std::mem::replace(&mut known.may_exist, true));
    let registered = shared.receiver.register(&registration(shared, handles, as_hub)).await;
    let mut answer = registered.inspect_err(|trouble| {
        if !matches!(trouble, BridgeError::Malformed { .. }) {
            registrations.send_modify(|known| known.may_exist = existed);
        }
    })?;
    if !as_hub && shared.receiver.is_hub() {
        as_hub = true;
        if shared.machine.is_some() {
            answer = shared.receiver.register(&registration(shared, handles, as_hub)).await?;
        }
    }
    let ui_url = quoted(&answer.ui_url);
    if as_hub {
        shared.tell(&format!("[ferret] bridge: people see the session at {ui_url}"));
    }
    shared.bridges.shown_at(handles.borrow().id(), ui_url);
    registrations.send_modify(|known| {
        *known = RegistrationState { answer: Some(answer), may_exist: true, as_hub, count: known.count + 1 };
    });
    Ok(registrations.borrow().clone())
}

fn registration(shared: &Shared, handles: &watch::Receiver<SessionHandle>, as_hub: bool) -> Registration {
    let handle = handles.borrow();
    let snapshot = handle.snapshot();
    let sealed = shared.codec.are_sealed();
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

/// Sends heartbeats of the session, from its registration on. Ends only with an error that ends the bridge.
async fn beat(
    shared: Arc<Shared>,
    handles: watch::Receiver<SessionHandle>,
    registrations: watch::Sender<RegistrationState>,
) -> BridgeError {
    // The sender is held here.
    drop(registrations.subscribe().wait_for(|known| known.answer.is_some()).await);
    let every = shared.timings.heartbeat;
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
        match shared.receiver.heartbeat(&session, &heartbeat, &shared.process).await {
            Ok(()) => {}
            Err(trouble) if trouble.is_final() => return trouble,
            Err(BridgeError::Answered { status: 404 | 410, .. }) => {
                // The receiver has forgotten the session, which still exists here.
                match register(&shared, &handles, &registrations).await {
                    Ok(_) => {}
                    Err(trouble) if trouble.is_final() => return trouble,
                    Err(trouble) => tracing::debug!(%trouble, "could not register the session again"),
                }
            }
            Err(trouble) => tracing::debug!(%trouble, "could not send the heartbeat to the receiver"),
        }
    }
}
