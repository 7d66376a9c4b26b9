//! What a machine shows over a hub that must not read it: the vault seals what goes out, opens what comes in,
//! and knows the devices.
//!
//! The cryptography is in `seal`; here are the parts that it must not know: the file, the time, the bodies of
//! frames, and what a device may do. Who a call is from is said by its key, and not by the hub: the hub's word
//! on the role can only take away.

mod invite;
mod kept;
mod opener;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::Clock;
use seal::{Answering, Bond, DeviceId, Incoming, Invitation, LaneAsk, Lanes, MachineId, Offer};
use seal::{PairingLink, Place, Refused, SealedCall, SystemRandom, from_text, to_text};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::{Role, Wrong};
use wire::tunnel::{Keys, Operator, WrappedKey};

use crate::devices::device_file::Stamp;
use crate::devices::device_store::name;
pub use invite::{Invited, bridged, devices, invite, paired, revoke};
use kept::{Book, DEVICES_MAX};
pub use kept::{SealedDevice, VaultError};
pub use opener::Opener;

/// How often it is looked whether somebody else has written the file.
const KEEP_UP_EVERY: Duration = Duration::from_secs(1);

/// A body that the hub cannot read.
#[derive(Serialize, Deserialize)]
struct SealedBody {
    sealed: String,
}

/// What becomes of a body that came.
pub enum Heard {
    /// It is answered with this, and nothing else happens: a device is paired, or begins to talk.
    Answer(Box<RawValue>),
    /// A device asks for something. `by` is who really does.
    Call { by: Operator, envelope: Vec<u8>, replying: Replying },
    /// Nothing happens. The answer is not sealed: there is nobody that it could be sealed for.
    Refused(Wrong),
}

/// The right to reply to one call.
pub struct Replying(Box<Answering>);

impl Replying {
    pub fn seal(self, reply: &[u8]) -> Result<Box<RawValue>, VaultError> {
        Ok(body(&self.0.seal(reply)?))
    }
}

pub struct Vault {
    path: PathBuf,
    machine: MachineId,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Changes are made one after the other.
    changing: tokio::sync::Mutex<()>,
    /// Goes up when devices or keys are others than before.
    changes: watch::Sender<u64>,
    _running: File,
}

struct State {
    book: Book,
    stamp: Stamp,
    bonds: HashMap<DeviceId, Bond>,
    lanes: Lanes,
    invitations: Vec<Open>,
}

/// An invitation, and what is in the file of it. One that was taken stays until its end, for who lost the answer.
struct Open {
    link: String,
    role: Role,
    /// The device that came with it.
    taken: Option<String>,
    invitation: Invitation,
}

impl Vault {
    /// The keys in this file, which are made if there are none. `hub` is the address that people open.
    pub fn open(path: &Path, machine: &str, hub: &str, clock: Arc<dyn Clock>) -> Result<Self, VaultError> {
        let machine = identity(machine)?;
        let hub = hub.trim_end_matches('/').to_owned();
        let ((), book, stamp) = kept::change(path, |book| {
            book.machine = machine.as_str().to_owned();
            book.hub = hub;
            Ok(())
        })?;
        let running = kept::run(path)?;
        let mut state = State {
            book: book.clone(),
            stamp: Stamp::default(),
            bonds: HashMap::new(),
            lanes: Lanes::default(),
            invitations: Vec::new(),
        };
        state.adopt(&machine, book, stamp);
        Ok(Self {
            path: path.to_owned(),
            machine,
            clock,
            state: Mutex::new(state),
            changing: tokio::sync::Mutex::new(()),
            changes: watch::Sender::new(0),
            _running: running,
        })
    }

    pub fn machine(&self) -> &str {
        self.machine.as_str()
    }

    /// A body for all devices, at this place of this session.
    pub fn seal(&self, session: &str, place: &Place<'_>, plain: &[u8]) -> Result<Box<RawValue>, VaultError> {
        let state = self.state();
        let sealed = state.book.contents.seal(&self.machine, session, place, plain, &mut SystemRandom)?;
        Ok(body(&sealed))
    }

    /// What only this machine can make of something, and knows again. It stays the same when the contents get another
    /// key, and says which machine's it is.
    pub fn mark(&self, of: &[u8]) -> String {
        let state = self.state();
        let own = &state.book.own;
        format!("{}.{}", own.public().fingerprint(), to_text(&own.mark(of)))
    }

    /// What is sealed from here on is sealed with the key of this generation. When it changes, whatever is to
    /// be seen must be sealed once more: devices show nothing of an older one.
    pub fn generation(&self) -> u64 {
        self.state().book.contents.generation()
    }

    /// The keys for every device, each wrapped for it.
    pub fn keys(&self) -> Result<Keys, VaultError> {
        let state = self.state();
        let contents = &state.book.contents;
        let wrapped = state.bonds.values().map(|bond| {
            let key = to_text(&bond.wrap(contents, &mut SystemRandom)?);
            Ok(WrappedKey { device: bond.device().to_string(), key })
        });
        let wrapped = wrapped.collect::<Result<_, Refused>>()?;
        Ok(Keys { generation: contents.generation(), wrapped })
    }

    /// Changes whenever the keys have to be told again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes what the hub brought. `by` is the hub's word.
    pub async fn receive(&self, by: &Operator, body: &RawValue) -> Heard {
        self.refresh().await;
        let outcome = match opened(body) {
            Ok(Incoming::Offer(offer)) => self.pair(offer).await,
            Ok(Incoming::LaneAsk(ask)) => self.begin(&ask),
            Ok(Incoming::Call(call)) => self.call(by, &call),
            Err(wrong) => Err(wrong),
        };
        outcome.unwrap_or_else(Heard::Refused)
    }

    fn begin(&self, ask: &LaneAsk) -> Result<Heard, Wrong> {
        let mut state = self.state();
        let bond = state.bonds.get(&ask.device).ok_or(Refused::UnknownDevice).map_err(refused)?;
        let (lane, answer) = bond.answer_lane(ask, &mut SystemRandom).map_err(refused)?;
        state.lanes.insert(lane);
        Ok(Heard::Answer(body(&answer)))
    }

    fn call(&self, by: &Operator, call: &SealedCall) -> Result<Heard, Wrong> {
        let mut state = self.state();
        let id = call.device.to_string();
        let device = state.book.devices.iter().find(|device| device.id == id);
        let device = device.ok_or(Refused::UnknownDevice).map_err(refused)?.clone();
        let (envelope, answering) = state.lanes.open(call).map_err(refused)?;
        let by = Operator { id: device.id, name: device.name, role: device.role.min(by.role) };
        Ok(Heard::Call { by, envelope, replying: Replying(Box::new(answering)) })
    }

    /// The device is in the file before it is told so.
    async fn pair(&self, offer: Offer) -> Result<Heard, Wrong> {
        let now = self.clock.now().0;
        let (enrolment, is_known, role, link) = {
            let mut state = self.state();
            let State { book, invitations, .. } = &mut *state;
            invitations.retain(|open| now < open.invitation.expires_at());
            let open = invitations.iter_mut().find(|open| open.invitation.id() == offer.invitation);
            let open = open.ok_or(Refused::Uninvited).map_err(refused)?;
            let enrolment = open.invitation.take(&offer, &book.own, now).map_err(refused)?;
            let id = enrolment.device.device().to_string();
            let is_known = book.devices.iter().any(|device| device.id == id);
            open.taken = Some(id);
            (enrolment, is_known, open.role, open.link.clone())
        };
        let answer = Heard::Answer(body(&enrolment.answer));
        if enrolment.again && is_known {
            return Ok(answer);
        }
        let device = SealedDevice {
            id: enrolment.device.device().to_string(),
            name: name(&enrolment.name).to_string(),
            role,
            created_at: now,
            words: enrolment.words,
            point: enrolment.device,
            invitation: to_text(&offer.invitation),
        };
        let (id, shown) = (device.id.clone(), device.name.clone());
        let kept = self.change(move |book| {
            // Another process of this machine may have taken the same invitation: the file says so, and it is
            // ours alone in here.
            let is_invited = book.invited.iter().any(|invited| invited.link == link);
            let is_known = book.devices.iter().any(|known| known.id == device.id);
            if !is_invited && !is_known {
                return Err(Refused::Uninvited.into());
            }
            if book.devices.len() >= DEVICES_MAX {
                return Err(VaultError::Full);
            }
            book.invited.retain(|invited| invited.link != link);
            book.devices.retain(|known| known.id != device.id);
            book.devices.push(device);
            Ok(())
        });
        kept.await.map_err(|error| match error {
            VaultError::Sealing(why) => refused(why),
            error => {
                tracing::error!(error = &error as &dyn std::error::Error, "a device was not paired");
                wrong("failed", &format!("the device was not paired: {error}"))
            }
        })?;
        tracing::info!(device = id, name = shown, "a device was paired; it reads what this machine seals");
        Ok(answer)
    }

    async fn change(
        &self,
        work: impl FnOnce(&mut Book) -> Result<(), VaultError> + Send + 'static,
    ) -> Result<(), VaultError> {
        let _turn = self.changing.lock().await;
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || kept::change(&path, work)).await;
        let broken = |error| VaultError::Unwritten(self.path.clone(), std::io::Error::other(error));
        let ((), book, stamp) = written.map_err(broken)??;
        self.adopt(book, stamp);
        Ok(())
    }

    /// Reads the file again, if it is another one than the last time.
    async fn refresh(&self) {
        if Stamp::of(&self.path) == self.state().stamp {
            return;
        }
        let _turn = self.changing.lock().await;
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || kept::read(&path)).await {
            Ok(Ok(Some((book, stamp)))) => self.adopt(book, stamp),
            // Without its file a machine has nobody to talk to: what it holds goes on until it is started again.
            Ok(Ok(None)) => tracing::warn!(path = %self.path.display(), "the keys of devices are gone"),
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "keys were not read again")
            }
            Err(broken) => tracing::error!(%broken, "the keys of devices were not read"),
        }
    }

    /// Holds to what others write, until it is told to stop: who is revoked there is cut off here.
    pub async fn keep_up(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(KEEP_UP_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            self.refresh().await;
        }
    }

    fn adopt(&self, book: Book, stamp: Stamp) {
        if self.state().adopt(&self.machine, book, stamp) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives whether devices or keys are others than before.
    fn adopt(&mut self, machine: &MachineId, book: Book, stamp: Stamp) -> bool {
        let before = (self.book.contents.generation(), self.ids());
        self.book = book;
        self.stamp = stamp;
        let mut bonds = HashMap::new();
        for device in &self.book.devices {
            let id = device.point.device();
            // Making one takes a multiplication on the curve; those that are here are good.
            let known = self
                .bonds
                .remove(&id)
                .map_or_else(|| Bond::at_machine(machine, &self.book.own, &device.point), Ok);
            match known {
                Ok(bond) => drop(bonds.insert(id, bond)),
                Err(error) => tracing::warn!(%error, device = device.id, "a device's key is of no use"),
            }
        }
        for gone in std::mem::replace(&mut self.bonds, bonds).into_keys() {
            self.lanes.forget(gone);
            // Nor does it come back by the invitation that it came with.
            let gone = gone.to_string();
            self.invitations.retain(|open| open.taken.as_ref() != Some(&gone));
        }
        self.invitations
            .retain(|open| open.taken.is_some() || self.book.invited.iter().any(|one| one.link == open.link));
        for invited in &self.book.invited {
            if self.invitations.iter().any(|open| open.link == invited.link) {
                continue;
            }
            let role = word(invited.role);
            let link = PairingLink::parse(&invited.link)
                .and_then(|link| Invitation::new(link, &role, invited.made_at));
            if let Ok(invitation) = link {
                let (link, role) = (invited.link.clone(), invited.role);
                self.invitations.push(Open { link, role, taken: None, invitation });
            }
        }
        before != (self.book.contents.generation(), self.ids())
    }

    fn ids(&self) -> Vec<String> {
        self.book.devices.iter().map(|device| device.id.clone()).collect()
    }
}

/// Several processes of one machine have names of their own at a hub, `ID-2` and so on. To its devices it is
/// one machine, with one key.
fn identity(id: &str) -> Result<MachineId, Refused> {
    let own = id.split_once('-').filter(|(own, number)| {
        let is_id = own.len() == 32 && own.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    MachineId::parse(own.map_or(id, |(own, _)| own))
}

/// As it is said to devices.
fn word(role: Role) -> String {
    let text = serde_json::to_value(role).ok().and_then(|role| role.as_str().map(str::to_owned));
    text.unwrap_or_default()
}

fn opened(body: &RawValue) -> Result<Incoming, Wrong> {
    let body: SealedBody = serde_json::from_str(body.get()).map_err(|_| {
        let message = "this machine takes sealed requests only: pair this device with it (ropewalk pair, at the machine)";
        wrong("forbidden", message)
    })?;
    from_text(&body.sealed).and_then(|bytes| Incoming::parse(&bytes)).map_err(refused)
}

fn body(bytes: &[u8]) -> Box<RawValue> {
    // One text in one member: it has no way to fail.
    to_raw_value(&SealedBody { sealed: to_text(bytes) }).unwrap_or_default()
}

fn refused(why: Refused) -> Wrong {
    let code = match why {
        Refused::UnknownDevice | Refused::Uninvited => "forbidden",
        Refused::UnknownLane | Refused::Replayed | Refused::Exhausted => "stale",
        Refused::NoRandom => "failed",
        Refused::Malformed
        | Refused::Forged
        | Refused::UnknownGeneration
        | Refused::NotAPoint
        | Refused::NotAMachine
        | Refused::NotALink
        | Refused::AnotherMachine => "badRequest",
    };
    wrong(code, &why.to_string())
}

fn wrong(code: &str, message: &str) -> Wrong {
    Wrong { code: code.into(), message: message.into() }
}
