//! The devices: who can come in besides the programs of this machine, and as what.
//!
//! A device comes in once with a ticket, a one-time code that an owner made: a login link lets it in at
//! once, an invitation lets it knock until an owner admits it. From then on it has a key of its own, in
//! a cookie, and a proof, which its page shows beside it. Together they open the routes of our own clients
//! and nothing else, slide along for thirty days, and are gone the moment the device is revoked, with the
//! connections that came by them.
//!
//! What changes is written first and holds then. The file may be shared with other servers, so every
//! change is made to what stands there (`device_file`).

mod addressees;
mod answer;
pub(crate) mod device_file;
pub(crate) mod device_store;
mod enter;
mod presence;
pub mod push;
pub(crate) mod qr;
#[cfg(test)]
mod tests;
mod tickets;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use engine::{CallerKind, Clock, Principal, Standing, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use wire::native::{Device, Knock, Role, Wrong};

use crate::Keys;

use device_file::Stamp;
pub(crate) use device_store::ABSENCE_MAX_MS;
use device_store::{Book, Record};
use push::Push;
use tickets::Tickets;

pub use device_store::plain_name;
pub(crate) use enter::{Arrival, NotIn};
pub use enter::{Denial, Entered};
pub use presence::{Presence, Seat};
pub use tickets::{Code, TICKET_LIFE};

/// How often it is looked whether another server has written the file.
const KEEP_UP_EVERY: Duration = Duration::from_secs(2);

/// Somebody who uses our own clients.
#[derive(Debug, Clone)]
pub struct Visitor {
    pub principal: Principal,
    /// What others are shown: `terminal`, or the name of a device.
    pub name: Arc<str>,
    pub role: Role,
    /// The device it came in by, if it was one.
    pub device: Option<Arc<str>>,
    /// Somebody at another machine, who came over the bridge.
    pub remote: Option<Remote>,
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
pub struct Remote {
    /// The same person always has the same.
    pub id: Arc<str>,
    pub user: Arc<str>,
    /// What the agent asks is answered at the agent's machine alone.
    pub answers_here: bool,
}

/// Where this server is found, as in `http://127.0.0.1:5173`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// By a browser on this machine.
    pub own: String,
    /// By others, if they can find it at all.
    pub outside: Option<String>,
}

/// Something that belongs in the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    Entered {
        device: Arc<str>,
        name: Arc<str>,
        role: Role,
        principal: Principal,
        knocked: bool,
    },
    /// Somebody with a good code was not let in.
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

type Teller = Box<dyn Fn(Happened) + Send + Sync>;

pub struct Devices {
    clock: Arc<dyn Clock>,
    /// Nothing is kept without one.
    file: Option<PathBuf>,
    state: Mutex<State>,
    /// Changes are made one after the other.
    changing: tokio::sync::Mutex<()>,
    changes: watch::Sender<u64>,
    presence: Presence,
    places: OnceLock<Places>,
    /// By which clients are known; see [`Devices::opens_by`].
    keys: OnceLock<Keys>,
    push: OnceLock<Arc<Push>>,
    teller: OnceLock<Teller>,
}

#[derive(Default)]
struct State {
    book: Book,
    stamp: Stamp,
    tickets: Tickets,
    /// Devices whose revocation could not be written: they are not taken from the file again.
    turned_away: HashSet<Arc<str>>,
    /// By device: cancelled when it may not be here any more.
    ends: HashMap<Arc<str>, CancellationToken>,
}

/// A hall that keeps nothing, for servers whose only visitors hold a token.
impl Default for Devices {
    fn default() -> Self {
        struct Standing;
        impl Clock for Standing {
            fn now(&self) -> Timestamp {
                Timestamp(0)
            }
        }
        Self::open(None, Arc::new(Standing))
    }
}

impl Devices {
    /// With the devices that stand in this file.
    pub fn open(file: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let (book, stamp) = match file.as_deref().map(device_file::read) {
            Some(Ok(read)) => read,
            Some(Err(error)) => {
                tracing::warn!(%error, "the list of devices cannot be read; none of them can come in");
                Default::default()
            }
            None => Default::default(),
        };
        Self {
            clock,
            file,
            state: Mutex::new(State { book, stamp, ..State::default() }),
            changing: tokio::sync::Mutex::default(),
            changes: watch::Sender::new(0),
            presence: Presence::default(),
            places: OnceLock::new(),
            keys: OnceLock::new(),
            push: OnceLock::new(),
            teller: OnceLock::new(),
        }
    }

    /// From here on it is known where the server is. Said once.
    pub fn stands_at(&self, places: Places) {
        drop(self.places.set(places));
    }

    /// From here on the devices of a client go with its token: one that was let in under another token of the
    /// same client is out. Said once.
    pub fn opens_by(&self, keys: Keys) {
        drop(self.keys.set(keys));
    }

    /// Whether the token under which a device was let in is still its client's.
    fn is_bound(&self, record: &Record) -> bool {
        let mark = self.keys.get().and_then(|keys| keys.mark(&record.principal));
        mark.is_none_or(|mark| record.client.is_some_and(|client| client.is(&mark)))
    }

    /// From here on this is told of who comes and goes. Said once.
    pub fn tell(&self, teller: impl Fn(Happened) + Send + Sync + 'static) {
        drop(self.teller.set(Box::new(teller)));
    }

    /// From here on there are pushes. Said once.
    pub fn pushes_by(&self, push: Arc<Push>) {
        drop(self.push.set(push));
    }

    /// What browsers subscribe with, if there are pushes here.
    pub fn push_key(&self) -> Option<&str> {
        self.push.get().map(|push| push.key())
    }

    /// Changes whenever somebody comes, goes, knocks or is answered.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// An owner's devices, and who knocks.
    pub fn guests(&self, owner: &Principal) -> (Vec<Device>, Vec<Knock>) {
        let (now, state) = (self.clock.now(), self.state());
        let devices = state.book.of(owner).filter(|record| !record.is_over(now) && self.is_bound(record));
        (devices.map(|record| record.shown(now)).collect(), state.tickets.waiting(owner, Instant::now()))
    }

    /// A place for one connection of a visitor, for as long as it lasts.
    pub fn seat(&self, visitor: &Visitor) -> Seat {
        let ended = match &visitor.device {
            None => CancellationToken::new(),
            Some(device) => self.end_of(device, visitor.role),
        };
        self.presence.seat(visitor.device.clone(), ended)
    }

    /// Cancelled already, if the device was revoked or given another role in between.
    fn end_of(&self, device: &Arc<str>, role: Role) -> CancellationToken {
        let mut state = self.state();
        if state.book.get(device).is_none_or(|record| record.role != role) {
            let ended = CancellationToken::new();
            ended.cancel();
            return ended;
        }
        state.ends.entry(Arc::clone(device)).or_default().clone()
    }

    /// Writes a change to the file, and holds to it then.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Book) -> T + Send + 'static,
    ) -> Result<T, Wrong> {
        let _turn = self.changing.lock().await;
        let Some(path) = self.file.clone() else {
            let mut book = self.state().book.clone();
            let outcome = work(&mut book);
            self.adopt(book, Stamp::default());
            return Ok(outcome);
        };
        let shown = path.display().to_string();
        let turned_away = self.state().turned_away.clone();
        let work = move |book: &mut Book| {
            for device in &turned_away {
                book.remove(device);
            }
            work(book)
        };
        let written = tokio::task::spawn_blocking(move || device_file::change(&path, work)).await;
        let written = written.unwrap_or_else(|broken| Err(std::io::Error::other(broken)));
        let (outcome, book, stamp) = written.map_err(|error| {
            tracing::error!(%error, file = shown, "the list of devices cannot be written");
            wrong("failed", "the list of devices cannot be written; the server's log says why")
        })?;
        self.adopt(book, stamp);
        Ok(outcome)
    }

    /// Reads the file again, if it is another one than the last time.
    async fn refresh(&self) {
        let Some(path) = self.file.clone() else { return };
        if Stamp::of(&path) == self.state().stamp {
            return;
        }
        let _turn = self.changing.lock().await;
        match tokio::task::spawn_blocking(move || device_file::read(&path)).await {
            Ok(Ok((book, stamp))) => self.adopt(book, stamp),
            Ok(Err(error)) => tracing::warn!(%error, "the list of devices cannot be read again"),
            Err(broken) => tracing::error!(%broken, "the list of devices was not read"),
        }
    }

    /// Holds to what other servers write, until it is told to stop: a device that is revoked there loses
    /// its lines here too.
    pub async fn keep_up(&self, stop: CancellationToken) {
        let mut looks = tokio::time::interval(KEEP_UP_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(looks.tick()).await.is_some() {
            self.refresh().await;
        }
    }

    /// This is who may come in from here on; those who may not any more are seen off.
    fn adopt(&self, mut book: Book, stamp: Stamp) {
        let mut state = self.state();
        for device in &state.turned_away {
            book.remove(device);
        }
        let before = std::mem::replace(&mut state.book, book);
        state.stamp = stamp;
        let State { book, ends, .. } = &mut *state;
        ends.retain(|device, ended| {
            let same = match (before.get(device), book.get(device)) {
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

    fn happened(&self, happened: Happened) {
        tracing::info!(?happened, "devices");
        if let Some(teller) = self.teller.get() {
            teller(happened);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrong(code: &str, message: &str) -> Wrong {
    Wrong { code: code.into(), message: message.into() }
}
