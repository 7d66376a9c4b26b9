//! The bridge: sessions of this machine, seen and driven from an address elsewhere.
//!
//! All connections go out from here. Each bridged session has a tunnel of its own (`tunnel`), in one of two
//! languages: ferret's frames (`plain`), or a mirror of the log (`mirror`), whichever the receiver takes.
//! Where it keeps mirrors, the machine holds one more connection (`machine`), by which people elsewhere ask
//! for things; each of them is one more client of ours, with a role that this machine caps.
//!
//! Nothing here decides what somebody may do: roles, rules and guards are those of every other client.

mod address;
mod answers;
mod backlog;
mod body;
mod branch;
mod machine;
mod mirror;
mod operator;
mod pace;
mod packing;
mod pipe;
mod plain;
mod post;
mod trouble;
mod trust;
mod tunnel;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use access::sealed::Vault;
use engine::{APPROVAL, Body, BoxFuture, Follower, Principal, SessionHandle, SessionId, follow_log};
use metrics::Metrics;
use service::{Bridges, Rules};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::tunnel::{Down, Machine};
use wire::{Identity, json};

use app::Desk;

use body::Bodies;
use post::Post;
use tunnel::Tunnel;

pub use address::{Address, BadAddress};
pub use answers::Answers;
pub use pace::Pace;
pub use post::Token;
pub use trouble::Trouble;

/// Events that a receiver without a mirror is told again after a cut.
pub const REPLAY_WINDOW: u64 = 50;
/// Sessions that are bridged at once. One that is not in memory makes room.
const TUNNELS_MAX: usize = 64;
/// Sessions that people elsewhere opened and that are remembered for it. Past that, those without a tunnel are
/// forgotten: whoever wants one opens it again.
const CHOSEN_MAX: usize = 1024;

/// Says a line to whoever started the bridge.
pub type Teller = Arc<dyn Fn(&str) + Send + Sync>;

pub struct BridgeParts {
    pub address: Address,
    pub token: Token,
    /// A desk for people elsewhere, which outlives the sessions by a moment.
    pub desk: Arc<Desk>,
    pub identity: Identity,
    pub rules: Rules,
    pub metrics: Option<Arc<Metrics>>,
    /// What this machine is known by, if people elsewhere may ask it for things.
    pub machine: Option<Machine>,
    /// With one, the receiver can read nothing, and calls must be sealed.
    pub vault: Option<Arc<Vault>>,
    /// The only session that is bridged besides those that people elsewhere open; all, without.
    pub only: Option<SessionId>,
    pub answers: Answers,
    pub replay_window: u64,
    pub pace: Pace,
    pub teller: Teller,
}

/// A running bridge.
pub struct Bridge {
    shared: Arc<Shared>,
    failed: watch::Receiver<Option<Trouble>>,
}

/// What all of its tasks need.
struct Shared {
    post: Arc<Post>,
    desk: Arc<Desk>,
    identity: Identity,
    rules: Rules,
    metrics: Option<Arc<Metrics>>,
    machine: Option<Machine>,
    /// A random name of this process: two that hold copies of one log are two.
    process: String,
    bodies: Bodies,
    bridges: Bridges,
    answers: Answers,
    replay_window: u64,
    pace: Pace,
    teller: Teller,
    last_said: Mutex<Option<(String, Instant)>>,
    tunnels: Mutex<Tunnels>,
    /// The receiver was reached, for whichever session or for the machine.
    was_connected: AtomicBool,
    /// The session that the bridge was started for, if it was for one.
    first: Option<SessionId>,
    failed: watch::Sender<Option<Trouble>>,
    tasks: TaskTracker,
    /// Cancelled when everybody takes leave.
    stop: CancellationToken,
}

#[derive(Default)]
struct Tunnels {
    open: HashMap<SessionId, Bridged>,
    /// Without a list, every session.
    only: Option<HashSet<SessionId>>,
}

struct Bridged {
    handles: watch::Sender<SessionHandle>,
    detach: CancellationToken,
    /// Set before it is detached for it.
    deleted: Arc<AtomicBool>,
}

/// How a connection ended.
enum Ended {
    /// There is no more to do.
    Stopped,
    Trouble(Trouble),
}

impl Bridge {
    /// Bridges the sessions that are in memory, and those that will be.
    pub fn start(parts: BridgeParts) -> Result<Self, Trouble> {
        let post = Arc::new(Post::new(parts.address, parts.token, parts.pace)?);
        let (failing, failed) = watch::channel(None);
        let only = parts.only.clone().map(|only| HashSet::from([only]));
        let shared = Arc::new(Shared {
            post,
            desk: parts.desk,
            identity: parts.identity,
            bridges: parts.rules.bridges.clone(),
            rules: parts.rules,
            metrics: parts.metrics,
            machine: parts.machine.map(|machine| Machine { sealed: parts.vault.is_some(), ..machine }),
            process: uuid::Uuid::new_v4().to_string(),
            bodies: Bodies::new(parts.vault.clone()),
            answers: parts.answers,
            replay_window: parts.replay_window,
            pace: parts.pace,
            teller: parts.teller,
            last_said: Mutex::default(),
            tunnels: Mutex::new(Tunnels { open: HashMap::new(), only }),
            was_connected: AtomicBool::new(false),
            first: parts.only,
            failed: failing,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        if let Some(vault) = parts.vault {
            let stop = shared.stop.clone();
            drop(shared.tasks.spawn(async move { vault.keep_up(stop).await }));
        }
        if shared.machine.is_some() {
            let machine = Arc::clone(&shared);
            drop(shared.tasks.spawn(async move {
                if let Err(trouble) = machine::run(&machine).await {
                    machine.fail(trouble);
                }
            }));
        }
        shared.desk.registry().join(Arc::new(Follows(Arc::downgrade(&shared))));
        Ok(Self { shared, failed })
    }

    /// Waits for what ends the bridge, if something does: trying again would not help.
    pub async fn failed(&mut self) -> Trouble {
        match self.failed.wait_for(Option::is_some).await.map(|trouble| trouble.clone()) {
            Ok(Some(trouble)) => trouble,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Tells what there is still to tell, and takes leave of the receiver.
    pub async fn finish(self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        let patience = self.shared.pace.farewell * 3;
        if tokio::time::timeout(patience, self.shared.tasks.wait()).await.is_err() {
            tracing::info!("the receiver did not take the last words");
        }
    }
}

impl Shared {
    fn tell(&self, text: &str) {
        (self.teller)(text);
    }

    /// Says what went wrong and when it is tried again. Many sessions meet the same trouble at once: it is
    /// said once.
    fn again(&self, trouble: &Trouble, wait: Duration) {
        let seconds = wait.as_secs_f64();
        let text = format!("{trouble}. Trying again in {seconds} s; {}", trouble.fix());
        let now = Instant::now();
        {
            let mut last = locked(&self.last_said);
            let same = |(said, at): &(String, Instant)| *said == text && now - *at < self.pace.first;
            if last.as_ref().is_some_and(same) {
                return;
            }
            *last = Some((text.clone(), now));
        }
        self.tell(&text);
    }

    /// The first reason counts.
    fn fail(&self, trouble: Trouble) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(trouble);
            }
            first
        });
        self.stop.cancel();
    }

    fn wants(&self, session: &SessionId) -> bool {
        locked(&self.tunnels).only.as_ref().is_none_or(|only| only.contains(session))
    }

    /// The session has a tunnel that is to stay.
    fn carries(&self, session: &SessionId) -> bool {
        locked(&self.tunnels).open.get(session).is_some_and(|bridged| !bridged.detach.is_cancelled())
    }

    fn carries_any(&self) -> bool {
        !locked(&self.tunnels).open.is_empty()
    }

    /// Somebody elsewhere opened it.
    fn choose(self: &Arc<Self>, session: &SessionId) {
        {
            let Tunnels { open, only } = &mut *locked(&self.tunnels);
            if let Some(only) = only {
                if only.len() >= CHOSEN_MAX {
                    only.retain(|known| open.contains_key(known) || self.first.as_ref() == Some(known));
                }
                only.insert(session.clone());
            }
        }
        if let Some(handle) = self.desk.registry().live(&Principal::local(), session) {
            self.attach(&handle);
        }
    }

    /// Gives a session a tunnel, or its tunnel the session as it is in memory again.
    fn attach(self: &Arc<Self>, handle: &SessionHandle) {
        if self.stop.is_cancelled() || *handle.owner() != Principal::local() || !self.wants(handle.id()) {
            return;
        }
        let id = handle.id().clone();
        let mut tunnels = locked(&self.tunnels);
        if let Some(bridged) = tunnels.open.get(&id).filter(|bridged| !bridged.detach.is_cancelled()) {
            bridged.handles.send_replace(handle.clone());
            return;
        }
        if tunnels.open.len() >= TUNNELS_MAX && !tunnels.make_room() {
            drop(tunnels);
            self.tell(&format!(
                "bridge: {TUNNELS_MAX} sessions are bridged, and that is the most. This one is not, session={id}; end another, then open it again"
            ));
            return;
        }
        let detach = CancellationToken::new();
        let bridged = Bridged {
            handles: watch::Sender::new(handle.clone()),
            detach: detach.clone(),
            deleted: Arc::default(),
        };
        let tunnel = Tunnel::new(self, id.clone(), &bridged);
        // One that was detached a moment ago takes its leave by itself.
        drop(tunnels.open.insert(id.clone(), bridged));
        drop(tunnels);
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            match tunnel.run().await {
                Ok(()) => {}
                // One of many is somebody else's over there; the others are not.
                Err(Trouble::Forbidden) if shared.first.as_ref() != Some(&id) => {
                    let trouble = Trouble::Forbidden;
                    shared.tell(&format!("{trouble} session={id}. It is not bridged; {}", trouble.fix()));
                }
                Err(trouble) => shared.fail(trouble),
            }
            detach.cancel();
            locked(&shared.tunnels).open.retain(|_, bridged| !bridged.detach.is_cancelled());
        }));
    }

    /// The session is gone for good here, and so it shall be where it was shown.
    fn deleted(self: &Arc<Self>, session: &SessionId) {
        if let Some(bridged) = locked(&self.tunnels).open.get(session)
            && !bridged.detach.is_cancelled()
        {
            bridged.deleted.store(true, Ordering::Relaxed);
            bridged.detach.cancel();
            return;
        }
        // It may have had a tunnel before.
        if self.wants(session) {
            let (shared, session) = (Arc::clone(self), session.clone());
            drop(self.tasks.spawn(async move { tunnel::forget(&shared, &session).await }));
        }
    }
}

impl Tunnels {
    fn make_room(&mut self) -> bool {
        let away = self.open.iter().find(|(_, bridged)| bridged.handles.borrow().is_closed());
        let Some(id) = away.map(|(id, _)| id.clone()) else { return false };
        if let Some(bridged) = self.open.remove(&id) {
            bridged.detach.cancel();
        }
        true
    }
}

/// Learns of every session, for as long as the bridge lives.
struct Follows(Weak<Shared>);

impl Follower for Follows {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let shared = self.0.clone();
        Box::pin(async move {
            let teller = {
                let Some(shared) = shared.upgrade() else { return };
                shared.attach(&session);
                Arc::clone(&shared.teller)
            };
            let id = session.id().clone();
            // Whoever sits here learns what somebody elsewhere lets the agent do.
            follow_log(&session, |event| {
                if let (Body::SettingChanged { id: setting, value }, Some(user)) =
                    (&event.body, event.origin.remote())
                    && **setting == *APPROVAL
                {
                    let user = trouble::quoted(user);
                    teller(&format!("[ferret] bridge: {user} set the approval to {value} session={id}"));
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

/// What a receiver says. Nothing, if it is of a later version and not known here.
fn heard(frame: &[u8]) -> Result<Option<Down>, Trouble> {
    match json::read_bytes::<Down>(frame, "the frame") {
        Ok(down) => Ok(Some(down)),
        Err(error) => {
            let known = ["ready", "ack", "watched", "call"];
            let other =
                serde_json::from_slice::<HashMap<String, serde::de::IgnoredAny>>(frame).is_ok_and(|object| {
                    object.len() == 1 && !object.keys().any(|key| known.contains(&key.as_str()))
                });
            if other { Ok(None) } else { Err(Trouble::malformed(error)) }
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
        assert!(matches!(heard(br#"{"ack":{"events":3}}"#), Ok(Some(Down::Ack(_)))));
        assert!(matches!(heard(br#"{"weather":{"sunny":true}}"#), Ok(None)));
        for broken in ["", "[]", "7", "{}", r#"{"ack":{}}"#, r#"{"ack":{"events":-1}}"#, r#"{"a":1,"b":2}"#] {
            let Err(trouble @ Trouble::Malformed { .. }) = heard(broken.as_bytes()) else {
                panic!("{broken}")
            };
            assert!(!json::names_internals(&trouble.to_string()), "{broken}: {trouble}");
        }
    }
}
