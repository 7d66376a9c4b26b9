//! The bridge: sessions of this machine, watched and driven from an address elsewhere.
//!
//! All connections go out from here. Each bridged session has a tunnel of its own (`tunnel`), in one of two
//! languages: ferret's frames (`ferret_receiver`), or a mirror of the log (`mirror_sender`), whichever the receiver accepts.
//! If the receiver keeps mirrors, the machine holds one more connection (`machine_connection`), by which people elsewhere send
//! requests; each of them is one more client of ours, with a role that this machine caps.
//!
//! Nothing here decides what somebody may do: roles, rules and guards are those of every other client.

mod backlog;
mod batch_packer;
mod body_codec;
mod bridge_error;
mod machine_connection;
mod mirror_branch;
mod mirror_sender;
mod operator_app_connection;
mod operator_rights;
mod receiver_address;
mod receiver_certificate;
mod receiver_client;
mod receiver_without_mirror;
mod timings;
mod tunnel;
mod tunnel_pipe;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use access::sealed::Vault;
use engine::{APPROVAL, Body, BoxFuture, Follower, Principal, SessionHandle, SessionId, follow_log};
use metrics::Metrics;
use service::{BridgeStatuses, ServiceRules};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::tunnel::{HubFrame, MachineInfo};
use wire::{Identity, json_errors};

use app::AppServer;

use body_codec::BodyCodec;
use receiver_client::ReceiverClient;
use tunnel::Tunnel;

pub use bridge_error::BridgeError;
pub use operator_rights::RemoteAnswers;
pub use receiver_address::{BadAddress, ReceiverAddress};
pub use receiver_client::Token;
pub use timings::BridgeTimings;

/// Events that a receiver without a mirror is sent again after a cut.
pub const REPLAY_WINDOW: u64 = 50;
/// Sessions that are bridged at once. One that is not in memory makes room.
const TUNNELS_MAX: usize = 64;
/// Sessions that are bridged because people elsewhere opened them. Past that, those without a tunnel are
/// forgotten: a person who wants one opens it again.
const CHOSEN_MAX: usize = 1024;

/// Prints a status line for the person who started the bridge.
pub type StatusPrinter = Arc<dyn Fn(&str) + Send + Sync>;

pub struct BridgeParts {
    pub address: ReceiverAddress,
    pub token: Token,
    /// The app server for people elsewhere, which outlives the sessions by a moment.
    pub app: Arc<AppServer>,
    pub identity: Identity,
    pub rules: ServiceRules,
    pub metrics: Option<Arc<Metrics>>,
    /// The machine's name and id, if people elsewhere may send it requests.
    pub machine: Option<MachineInfo>,
    /// With one, the receiver can read nothing, and calls must be sealed.
    pub vault: Option<Arc<Vault>>,
    /// The only session that is bridged besides those that people elsewhere open; all, without.
    pub only: Option<SessionId>,
    pub answers: RemoteAnswers,
    pub replay_window: u64,
    pub timings: BridgeTimings,
    pub print_status: StatusPrinter,
}

/// A running bridge.
pub struct Bridge {
    shared: Arc<Shared>,
    failed: watch::Receiver<Option<BridgeError>>,
}

/// The state that all tasks of the bridge share.
struct Shared {
    receiver: Arc<ReceiverClient>,
    app: Arc<AppServer>,
    identity: Identity,
    rules: ServiceRules,
    metrics: Option<Arc<Metrics>>,
    machine: Option<MachineInfo>,
    /// A random name of this process, to distinguish two processes that hold copies of one log.
    process: String,
    codec: BodyCodec,
    bridges: BridgeStatuses,
    answers: RemoteAnswers,
    replay_window: u64,
    timings: BridgeTimings,
    print_status: StatusPrinter,
    last_message: Mutex<Option<(String, Instant)>>,
    tunnels: Mutex<Tunnels>,
    /// The receiver was reached once, for a session or for the machine.
    was_connected: AtomicBool,
    /// The session that the bridge was started for, if it was for one.
    first: Option<SessionId>,
    failed: watch::Sender<Option<BridgeError>>,
    tasks: TaskTracker,
    /// Cancelled when the bridge ends.
    stop: CancellationToken,
}

#[derive(Default)]
struct Tunnels {
    open: HashMap<SessionId, BridgedSession>,
    /// The sessions that may be bridged; without a list, every session.
    only: Option<HashSet<SessionId>>,
}

struct BridgedSession {
    handles: watch::Sender<SessionHandle>,
    detach: CancellationToken,
    /// Set before it is detached for it.
    deleted: Arc<AtomicBool>,
}

/// How a connection ended.
enum ConnectionEnd {
    /// The bridge or the tunnel is stopping.
    Stopped,
    Failed(BridgeError),
}

impl Bridge {
    /// Bridges the sessions that are in memory, and those that will be.
    pub fn start(parts: BridgeParts) -> Result<Self, BridgeError> {
        let receiver = Arc::new(ReceiverClient::new(parts.address, parts.token, parts.timings)?);
        let (failing, failed) = watch::channel(None);
        let only = parts.only.clone().map(|only| HashSet::from([only]));
        let shared = Arc::new(Shared {
            receiver,
            app: parts.app,
            identity: parts.identity,
            bridges: parts.rules.bridges.clone(),
            rules: parts.rules,
            metrics: parts.metrics,
            machine: parts.machine.map(|machine| MachineInfo { sealed: parts.vault.is_some(), ..machine }),
            process: uuid::Uuid::new_v4().to_string(),
            codec: BodyCodec::new(parts.vault.clone()),
            answers: parts.answers,
            replay_window: parts.replay_window,
            timings: parts.timings,
            print_status: parts.print_status,
            last_message: Mutex::default(),
            tunnels: Mutex::new(Tunnels { open: HashMap::new(), only }),
            was_connected: AtomicBool::new(false),
            first: parts.only,
            failed: failing,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        if let Some(vault) = parts.vault {
            let stop = shared.stop.clone();
            drop(shared.tasks.spawn(async move { vault.watch_file(stop).await }));
        }
        if shared.machine.is_some() {
            let machine = Arc::clone(&shared);
            drop(shared.tasks.spawn(async move {
                if let Err(trouble) = machine_connection::run(&machine).await {
                    machine.fail(trouble);
                }
            }));
        }
        shared.app.registry().join(Arc::new(SessionFollower(Arc::downgrade(&shared))));
        Ok(Self { shared, failed })
    }

    /// Waits for an error that ends the bridge, because trying again would not help.
    pub async fn failed(&mut self) -> BridgeError {
        match self.failed.wait_for(Option::is_some).await.map(|trouble| trouble.clone()) {
            Ok(Some(trouble)) => trouble,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Sends what is still to be sent, and deregisters from the receiver.
    pub async fn finish(self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        let timeout = self.shared.timings.farewell * 3;
        if tokio::time::timeout(timeout, self.shared.tasks.wait()).await.is_err() {
            tracing::info!("could not send the last messages to the receiver");
        }
    }
}

impl Shared {
    fn tell(&self, text: &str) {
        (self.print_status)(text);
    }

    /// Prints what went wrong and when it is tried again. Many sessions meet the same error at once: it is
    /// printed once.
    fn report_retry(&self, trouble: &BridgeError, wait: Duration) {
        let seconds = wait.as_secs_f64();
        let text = format!("{trouble}. Trying again in {seconds} s; {}", trouble.fix());
        let now = Instant::now();
        {
            let mut last = locked(&self.last_message);
            let same = |(said, at): &(String, Instant)| *said == text && now - *at < self.timings.first;
            if last.as_ref().is_some_and(same) {
                return;
            }
            *last = Some((text.clone(), now));
        }
        self.tell(&text);
    }

    /// The first reason counts.
    fn fail(&self, trouble: BridgeError) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(trouble);
            }
            first
        });
        self.stop.cancel();
    }

    fn is_included(&self, session: &SessionId) -> bool {
        locked(&self.tunnels).only.as_ref().is_none_or(|only| only.contains(session))
    }

    /// Whether the session has a tunnel that is not being detached.
    fn has_tunnel(&self, session: &SessionId) -> bool {
        locked(&self.tunnels)
            .open
            .get(session)
            .is_some_and(|tunnel_state| !tunnel_state.detach.is_cancelled())
    }

    fn has_any_tunnel(&self) -> bool {
        !locked(&self.tunnels).open.is_empty()
    }

    /// Bridges a session that somebody elsewhere opened.
    fn include(self: &Arc<Self>, session: &SessionId) {
        {
            let Tunnels { open, only } = &mut *locked(&self.tunnels);
            if let Some(only) = only {
                if only.len() >= CHOSEN_MAX {
                    only.retain(|known| open.contains_key(known) || self.first.as_ref() == Some(known));
                }
                only.insert(session.clone());
            }
        }
        if let Some(handle) = self.app.registry().live(&Principal::local(), session) {
            self.attach(&handle);
        }
    }

    /// Gives a session a tunnel, or gives its existing tunnel the session's new handle.
    fn attach(self: &Arc<Self>, handle: &SessionHandle) {
        if self.stop.is_cancelled() || *handle.owner() != Principal::local() || !self.is_included(handle.id())
        {
            return;
        }
        let id = handle.id().clone();
        let mut tunnels = locked(&self.tunnels);
        if let Some(tunnel_state) =
            tunnels.open.get(&id).filter(|tunnel_state| !tunnel_state.detach.is_cancelled())
        {
            tunnel_state.handles.send_replace(handle.clone());
            return;
        }
        if tunnels.open.len() >= TUNNELS_MAX && !tunnels.make_room() {
            drop(tunnels);
            self.tell(&format!(
                "bridge: limit of {TUNNELS_MAX} bridged sessions reached. This one is not bridged, session={id}; end another, then open it again"
            ));
            return;
        }
        let detach = CancellationToken::new();
        let tunnel_state = BridgedSession {
            handles: watch::Sender::new(handle.clone()),
            detach: detach.clone(),
            deleted: Arc::default(),
        };
        let tunnel = Tunnel::new(self, id.clone(), &tunnel_state);
        // A tunnel that was detached a moment ago ends by itself.
        drop(tunnels.open.insert(id.clone(), tunnel_state));
        drop(tunnels);
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            match tunnel.run().await {
                Ok(()) => {}
                // One of many sessions may belong to somebody else at the receiver; the others do not.
                Err(BridgeError::Forbidden) if shared.first.as_ref() != Some(&id) => {
                    let trouble = BridgeError::Forbidden;
                    shared.tell(&format!("{trouble} session={id}. It is not bridged; {}", trouble.fix()));
                }
                Err(trouble) => shared.fail(trouble),
            }
            detach.cancel();
            locked(&shared.tunnels).open.retain(|_, tunnel_state| !tunnel_state.detach.is_cancelled());
        }));
    }

    /// The session was deleted here, so it is deleted at the receiver too.
    fn deleted(self: &Arc<Self>, session: &SessionId) {
        if let Some(tunnel_state) = locked(&self.tunnels).open.get(session)
            && !tunnel_state.detach.is_cancelled()
        {
            tunnel_state.deleted.store(true, Ordering::Relaxed);
            tunnel_state.detach.cancel();
            return;
        }
        // It may have had a tunnel before.
        if self.is_included(session) {
            let (shared, session) = (Arc::clone(self), session.clone());
            drop(self.tasks.spawn(async move { tunnel::forget(&shared, &session).await }));
        }
    }
}

impl Tunnels {
    fn make_room(&mut self) -> bool {
        let away = self.open.iter().find(|(_, tunnel_state)| tunnel_state.handles.borrow().is_closed());
        let Some(id) = away.map(|(id, _)| id.clone()) else { return false };
        if let Some(tunnel_state) = self.open.remove(&id) {
            tunnel_state.detach.cancel();
        }
        true
    }
}

/// Follows every session, for as long as the bridge lives.
struct SessionFollower(Weak<Shared>);

impl Follower for SessionFollower {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let shared = self.0.clone();
        Box::pin(async move {
            let print_status = {
                let Some(shared) = shared.upgrade() else { return };
                shared.attach(&session);
                Arc::clone(&shared.print_status)
            };
            let id = session.id().clone();
            // The person at this machine is told when somebody elsewhere changes the approval preset.
            follow_log(&session, |event| {
                if let (Body::SettingChanged { id: setting, value }, Some(user)) =
                    (&event.body, event.origin.remote())
                    && **setting == *APPROVAL
                {
                    let user = bridge_error::quoted(user);
                    print_status(&format!(
                        "[ferret] bridge: {user} set the approval to {value} session={id}"
                    ));
                }
            })
            .await;
        })
    }

    fn deleted(&self, id: &SessionId) -> BoxFuture<'static, ()> {
        if let Some(shared) = self.0.upgrade() {
            shared.deleted(id);
        }
        Box::pin(std::future::ready(()))
    }
}

/// Parses a frame of the receiver. `None`, if it is of a later version and not known here.
fn parse_frame(frame: &[u8]) -> Result<Option<HubFrame>, BridgeError> {
    match json_errors::read_bytes::<HubFrame>(frame, "the frame") {
        Ok(down) => Ok(Some(down)),
        Err(error) => {
            let known = ["ready", "ack", "watched", "call"];
            let other =
                serde_json::from_slice::<HashMap<String, serde::de::IgnoredAny>>(frame).is_ok_and(|object| {
                    object.len() == 1 && !object.keys().any(|key| known.contains(&key.as_str()))
                });
            if other { Ok(None) } else { Err(BridgeError::malformed(error)) }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_receiver_says_is_passed_over_and_what_is_broken_is_not() {
        assert!(matches!(parse_frame(br#"{"ack":{"events":3}}"#), Ok(Some(HubFrame::Ack(_)))));
        assert!(matches!(parse_frame(br#"{"weather":{"sunny":true}}"#), Ok(None)));
        for broken in ["", "[]", "7", "{}", r#"{"ack":{}}"#, r#"{"ack":{"events":-1}}"#, r#"{"a":1,"b":2}"#] {
            let Err(trouble @ BridgeError::Malformed { .. }) = parse_frame(broken.as_bytes()) else {
                panic!("{broken}")
            };
            assert!(!json_errors::names_internals(&trouble.to_string()), "{broken}: {trouble}");
        }
    }
}
