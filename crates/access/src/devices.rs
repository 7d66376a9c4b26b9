//! The devices: browsers and phones that may connect besides the programs of this machine, and with which role.
//!
//! A device signs in once with a ticket, a one-time code that an owner made: a login link lets it in at
//! once, an invitation lets it knock until an owner admits it. From then on it has a key of its own, in
//! a cookie, and a proof, which its page presents together with the cookie. Together they open the routes of our own clients
//! and nothing else, stay valid for thirty days after the last use, and end the moment the device is revoked, together with the
//! device's connections.
//!
//! A change is written to the file first and holds then. The file may be shared with other servers, so every
//! change is made to the file's current contents (`device_file`).
//!
//! This is the pairing of a phone, a tablet or another browser, and its end.

mod app_visibility;
pub(crate) mod device_file;
pub(crate) mod device_list;
mod device_sign_in;
mod native_requests;
mod pairing_codes;
pub mod push;
mod push_addressees;
pub(crate) mod qr;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use engine::{CallerKind, Clock, Principal, Standing, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use wire::native::{DeviceView, PairingRequest, ReplyError, Role};

use crate::AcceptedTokens;

use device_file::FileStamp;
pub(crate) use device_list::ABSENCE_MAX_MS;
use device_list::{DeviceList, DeviceRecord};
use pairing_codes::Tickets;
use push::Push;

pub use app_visibility::{Presence, PresenceHandle};
pub use device_list::plain_name;
pub(crate) use device_sign_in::{DeviceLogin, DeviceLoginError};
pub use device_sign_in::{SignInDenial, SignInOutcome};
pub use pairing_codes::{Code, TICKET_LIFE};

/// How often the file is checked for changes by another server.
const CHECK_FILE_EVERY: Duration = Duration::from_secs(2);

/// Somebody who uses our own clients.
#[derive(Debug, Clone)]
pub struct Visitor {
    pub principal: Principal,
    /// What others are shown: `terminal`, or the name of a device.
    pub name: Arc<str>,
    pub role: Role,
    /// The device it signed in with, if it was one.
    pub device: Option<Arc<str>>,
    /// Somebody at another machine, who came over the bridge.
    pub remote: Option<RemoteUser>,
    /// Decided where the connection was made.
    pub standing: Standing,
}

impl Visitor {
    /// Who they are in the table of who may do what.
    pub fn kind(&self) -> CallerKind {
        match self.role {
            Role::Viewer => CallerKind::Viewer,
            Role::Approver => CallerKind::Approver,
            Role::Driver => CallerKind::Driver,
            Role::Owner if self.standing.is_owner() => CallerKind::Owner,
            Role::Owner if self.principal == Principal::local() => CallerKind::OwnerElsewhere,
            Role::Owner => CallerKind::NamedClient,
        }
    }
}

/// Somebody who came over the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUser {
    /// The same person always has the same.
    pub id: Arc<str>,
    pub user: Arc<str>,
    /// What the agent asks is answered at the agent's machine alone.
    pub answers_here: bool,
}

/// Where this server is found, as in `http://127.0.0.1:5173`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerUrls {
    /// By a browser on this machine.
    pub own: String,
    /// By others, if they can find it at all.
    pub outside: Option<String>,
}

/// Something that belongs in the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceEvent {
    Entered {
        device: Arc<str>,
        name: Arc<str>,
        role: Role,
        principal: Principal,
        knocked: bool,
    },
    /// A device with a good code was refused.
    Refused {
        name: Arc<str>,
        by: Arc<str>,
    },
    Revoked {
        device: Arc<str>,
        name: Arc<str>,
        by: Arc<str>,
    },
}

type EventHandler = Box<dyn Fn(DeviceEvent) + Send + Sync>;

pub struct Devices {
    clock: Arc<dyn Clock>,
    /// Nothing is kept without one.
    file: Option<PathBuf>,
    state: Mutex<State>,
    /// Changes are made one after the other.
    write_lock: tokio::sync::Mutex<()>,
    changes: watch::Sender<u64>,
    presence: Presence,
    urls: OnceLock<ServerUrls>,
    /// By which clients are known; see [`Devices::set_accepted_tokens`].
    keys: OnceLock<AcceptedTokens>,
    push: OnceLock<Arc<Push>>,
    on_event: OnceLock<EventHandler>,
}

#[derive(Default)]
struct State {
    list: DeviceList,
    stamp: FileStamp,
    tickets: Tickets,
    /// Devices whose revocation could not be written: they are not taken from the file again.
    unwritten_revocations: HashSet<Arc<str>>,
    /// By device: cancelled when it is revoked or gets another role.
    revocations: HashMap<Arc<str>, CancellationToken>,
}

/// An empty list without a file, for servers whose only visitors hold a token.
impl Default for Devices {
    fn default() -> Self {
        struct FixedClock;
        impl Clock for FixedClock {
            fn now(&self) -> Timestamp {
                Timestamp(0)
            }
        }
        Self::open(None, Arc::new(FixedClock))
    }
}

impl Devices {
    /// With the devices in this file.
    pub fn open(file: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let (list, stamp) = match file.as_deref().map(device_file::read) {
            Some(Ok(read)) => read,
            Some(Err(error)) => {
                tracing::warn!(%error, "could not read the list of devices; none of them can sign in");
                Default::default()
            }
            None => Default::default(),
        };
        Self {
            clock,
            file,
            state: Mutex::new(State { list, stamp, ..State::default() }),
            write_lock: tokio::sync::Mutex::default(),
            changes: watch::Sender::new(0),
            presence: Presence::default(),
            urls: OnceLock::new(),
            keys: OnceLock::new(),
            push: OnceLock::new(),
            on_event: OnceLock::new(),
        }
    }

    /// Sets the addresses of this server. Called once.
    pub fn set_urls(&self, urls: ServerUrls) {
        drop(self.urls.set(urls));
    }

    /// Binds the devices of a client to its token: a device that was let in under another token of the
    /// same client is refused. Called once.
    pub fn set_accepted_tokens(&self, keys: AcceptedTokens) {
        drop(self.keys.set(keys));
    }

    /// Whether the token under which a device was let in is still its client's.
    fn is_bound(&self, record: &DeviceRecord) -> bool {
        let mark = self.keys.get().and_then(|keys| keys.mark(&record.principal));
        mark.is_none_or(|mark| record.client.is_some_and(|client| client.is(&mark)))
    }

    /// Sets what is called when a device signs in, is refused or is revoked. Called once.
    pub fn tell(&self, on_event: impl Fn(DeviceEvent) + Send + Sync + 'static) {
        drop(self.on_event.set(Box::new(on_event)));
    }

    /// Turns pushes on. Called once.
    pub fn set_push(&self, push: Arc<Push>) {
        drop(self.push.set(push));
    }

    /// What browsers subscribe with, if there are pushes here.
    pub fn push_key(&self) -> Option<&str> {
        self.push.get().map(|push| push.key())
    }

    /// Changes whenever a device signs in, is removed, knocks or is answered.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// An owner's devices, and the knocks that wait for the owner.
    pub fn devices_and_knocks(&self, owner: &Principal) -> (Vec<DeviceView>, Vec<PairingRequest>) {
        let (now, state) = (self.clock.now(), self.state());
        let devices = state.list.of(owner).filter(|record| !record.is_over(now) && self.is_bound(record));
        (devices.map(|record| record.shown(now)).collect(), state.tickets.waiting(owner, Instant::now()))
    }

    /// The presence of one connection of a visitor, for as long as it lasts.
    pub fn open_presence(&self, visitor: &Visitor) -> PresenceHandle {
        let ended = match &visitor.device {
            None => CancellationToken::new(),
            Some(device) => self.revocation_of(device, visitor.role),
        };
        self.presence.open(visitor.device.clone(), ended)
    }

    /// Cancelled already, if the device was revoked or given another role in between.
    fn revocation_of(&self, device: &Arc<str>, role: Role) -> CancellationToken {
        let mut state = self.state();
        if state.list.get(device).is_none_or(|record| record.role != role) {
            let ended = CancellationToken::new();
            ended.cancel();
            return ended;
        }
        state.revocations.entry(Arc::clone(device)).or_default().clone()
    }

    /// Writes a change to the file, then applies it in memory.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut DeviceList) -> T + Send + 'static,
    ) -> Result<T, ReplyError> {
        let _turn = self.write_lock.lock().await;
        let Some(path) = self.file.clone() else {
            let mut list = self.state().list.clone();
            let outcome = work(&mut list);
            self.adopt(list, FileStamp::default());
            return Ok(outcome);
        };
        let shown = path.display().to_string();
        let unwritten_revocations = self.state().unwritten_revocations.clone();
        let work = move |list: &mut DeviceList| {
            for device in &unwritten_revocations {
                list.remove(device);
            }
            work(list)
        };
        let written = tokio::task::spawn_blocking(move || device_file::change(&path, work)).await;
        let written = written.unwrap_or_else(|broken| Err(std::io::Error::other(broken)));
        let (outcome, list, stamp) = written.map_err(|error| {
            tracing::error!(%error, file = shown, "could not save the list of devices");
            wrong("failed", "could not save the list of devices; the server's log says why")
        })?;
        self.adopt(list, stamp);
        Ok(outcome)
    }

    /// Reads the file again, if it has changed since the last time.
    async fn refresh(&self) {
        let Some(path) = self.file.clone() else { return };
        if FileStamp::of(&path) == self.state().stamp {
            return;
        }
        let _turn = self.write_lock.lock().await;
        match tokio::task::spawn_blocking(move || device_file::read(&path)).await {
            Ok(Ok((list, stamp))) => self.adopt(list, stamp),
            Ok(Err(error)) => tracing::warn!(%error, "could not reload the list of devices"),
            Err(broken) => tracing::error!(%broken, "reading the list of devices failed unexpectedly"),
        }
    }

    /// Follows what other servers write to the file, until `stop`: a device that is revoked there loses
    /// its connections here too.
    pub async fn watch_file(&self, stop: CancellationToken) {
        let mut looks = tokio::time::interval(CHECK_FILE_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(looks.tick()).await.is_some() {
            self.refresh().await;
        }
    }

    /// Replaces the list. The connections of devices that were revoked or got another role are ended.
    fn adopt(&self, mut list: DeviceList, stamp: FileStamp) {
        let mut state = self.state();
        for device in &state.unwritten_revocations {
            list.remove(device);
        }
        let before = std::mem::replace(&mut state.list, list);
        state.stamp = stamp;
        let State { list, revocations, .. } = &mut *state;
        revocations.retain(|device, ended| {
            let same = match (before.get(device), list.get(device)) {
                (Some(old), Some(new)) => old.role == new.role && old.digest.is(&new.digest),
                _ => false,
            };
            if !same {
                ended.cancel();
            }
            same
        });
        drop(state);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    fn report(&self, happened: DeviceEvent) {
        tracing::info!(?happened, "devices");
        if let Some(on_event) = self.on_event.get() {
            on_event(happened);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrong(code: &str, message: &str) -> ReplyError {
    ReplyError { code: code.into(), message: message.into() }
}
