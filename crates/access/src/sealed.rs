//! End-to-end encryption over a hub that must not read the sessions: the vault seals what goes out, opens what comes in,
//! and knows the paired devices.
//!
//! The cryptography is in the crate `seal`; here are the parts that it must not know: the file, the time, the bodies of
//! frames, and what a device may do. The sender of a call is identified by its key, and not by the hub: the hub's statement
//! of the role can only reduce it.

mod exported_event_opener;
mod manage_devices;
#[cfg(test)]
mod tests;
mod vault_file;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::Clock;
use seal::{
    CallReply, DeviceId, DeviceMessage, LaneRequest, Lanes, MachineId, PairingInvitation, PairingOffer,
    SharedSecret,
};
use seal::{ContentPosition, PairingLink, SealError, SealedCall, SystemRandom, from_text, to_text};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::{ReplyError, Role};
use wire::tunnel::{Operator, WrappedKey, WrappedKeys};

use crate::devices::device_file::FileStamp;
use crate::devices::device_list::name;
pub use exported_event_opener::SealedEventOpener;
pub use manage_devices::{PairingInvite, bridged, devices, invite, paired, revoke};
use vault_file::{DEVICES_MAX, VaultData};
pub use vault_file::{SealedDevice, VaultError};

/// How often the file is checked for changes by others.
const KEEP_UP_EVERY: Duration = Duration::from_secs(1);

/// A body that the hub cannot read.
#[derive(Serialize, Deserialize)]
struct SealedBody {
    sealed: String,
}

/// The result of opening a body that was received.
pub enum ReceivedBody {
    /// It is answered with this, and nothing else happens: a device is paired, or opens a lane.
    Answer(Box<RawValue>),
    /// A request of a device. `by` is the device that the key identifies.
    Call { by: Operator, envelope: Vec<u8>, reply_sealer: ReplySealer },
    /// It is refused. The answer is not sealed: there is no device that it could be sealed for.
    Refused(ReplyError),
}

/// Seals the reply to one call.
pub struct ReplySealer(Box<CallReply>);

impl ReplySealer {
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
    /// Goes up when devices or keys change.
    changes: watch::Sender<u64>,
    _running: File,
}

struct State {
    data: VaultData,
    stamp: FileStamp,
    bonds: HashMap<DeviceId, SharedSecret>,
    lanes: Lanes,
    invitations: Vec<OpenInvitation>,
}

/// An invitation, and its entry in the file. An accepted one stays until it expires, for a device that lost the answer.
struct OpenInvitation {
    link: String,
    role: Role,
    /// The device that accepted it.
    taken: Option<String>,
    invitation: PairingInvitation,
}

impl Vault {
    /// The keys in this file, which are made if there are none. `hub` is the address that people open.
    pub fn open(path: &Path, machine: &str, hub: &str, clock: Arc<dyn Clock>) -> Result<Self, VaultError> {
        let machine = identity(machine)?;
        let hub = hub.trim_end_matches('/').to_owned();
        let ((), data, stamp) = vault_file::change(path, |data| {
            data.machine = machine.as_str().to_owned();
            data.hub = hub;
            Ok(())
        })?;
        let running = vault_file::mark_running(path)?;
        let mut state = State {
            data: data.clone(),
            stamp: FileStamp::default(),
            bonds: HashMap::new(),
            lanes: Lanes::default(),
            invitations: Vec::new(),
        };
        state.adopt(&machine, data, stamp);
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
    pub fn seal(
        &self,
        session: &str,
        place: &ContentPosition<'_>,
        plain: &[u8],
    ) -> Result<Box<RawValue>, VaultError> {
        let state = self.state();
        let sealed = state.data.contents.seal(&self.machine, session, place, plain, &mut SystemRandom)?;
        Ok(body(&sealed))
    }

    /// A mark that only this machine can make of some bytes, and recognise. It stays the same when the contents get another
    /// key, and names the machine's key.
    pub fn mark(&self, of: &[u8]) -> String {
        let state = self.state();
        let own = &state.data.own;
        format!("{}.{}", own.public().fingerprint(), to_text(&own.mark(of)))
    }

    /// The generation of the key that contents are sealed with now. When it changes, everything that is shown
    /// must be sealed again: devices show nothing of an older one.
    pub fn generation(&self) -> u64 {
        self.state().data.contents.generation()
    }

    /// The keys for every device, each wrapped for it.
    pub fn keys(&self) -> Result<WrappedKeys, VaultError> {
        let state = self.state();
        let contents = &state.data.contents;
        let wrapped = state.bonds.values().map(|bond| {
            let key = to_text(&bond.wrap(contents, &mut SystemRandom)?);
            Ok(WrappedKey { device: bond.device().to_string(), key })
        });
        let wrapped = wrapped.collect::<Result<_, SealError>>()?;
        Ok(WrappedKeys { generation: contents.generation(), wrapped })
    }

    /// Changes whenever the keys have to be sent again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Opens a body from the hub. `by` is the operator that the hub names.
    pub async fn receive(&self, by: &Operator, body: &RawValue) -> ReceivedBody {
        self.refresh().await;
        let outcome = match opened(body) {
            Ok(DeviceMessage::Offer(offer)) => self.pair(offer).await,
            Ok(DeviceMessage::LaneAsk(ask)) => self.begin(&ask),
            Ok(DeviceMessage::Call(call)) => self.call(by, &call),
            Err(wrong) => Err(wrong),
        };
        outcome.unwrap_or_else(ReceivedBody::Refused)
    }

    fn begin(&self, ask: &LaneRequest) -> Result<ReceivedBody, ReplyError> {
        let mut state = self.state();
        let bond = state.bonds.get(&ask.device).ok_or(SealError::UnknownDevice).map_err(refused)?;
        let (lane, answer) = bond.answer_lane(ask, &mut SystemRandom).map_err(refused)?;
        state.lanes.insert(lane);
        Ok(ReceivedBody::Answer(body(&answer)))
    }

    fn call(&self, by: &Operator, call: &SealedCall) -> Result<ReceivedBody, ReplyError> {
        let mut state = self.state();
        let id = call.device.to_string();
        let device = state.data.devices.iter().find(|device| device.id == id);
        let device = device.ok_or(SealError::UnknownDevice).map_err(refused)?.clone();
        let (envelope, answering) = state.lanes.open(call).map_err(refused)?;
        let by = Operator { id: device.id, name: device.name, role: device.role.min(by.role) };
        Ok(ReceivedBody::Call { by, envelope, reply_sealer: ReplySealer(Box::new(answering)) })
    }

    /// Pairs a device: it is in the file before it gets the answer.
    async fn pair(&self, offer: PairingOffer) -> Result<ReceivedBody, ReplyError> {
        let now = self.clock.now().0;
        let (enrolment, is_known, role, link) = {
            let mut state = self.state();
            let State { data, invitations, .. } = &mut *state;
            invitations.retain(|open| now < open.invitation.expires_at());
            let open = invitations.iter_mut().find(|open| open.invitation.id() == offer.invitation);
            let open = open.ok_or(SealError::Uninvited).map_err(refused)?;
            let enrolment = open.invitation.take(&offer, &data.own, now).map_err(refused)?;
            let id = enrolment.device.device().to_string();
            let is_known = data.devices.iter().any(|device| device.id == id);
            open.taken = Some(id);
            (enrolment, is_known, open.role, open.link.clone())
        };
        let answer = ReceivedBody::Answer(body(&enrolment.answer));
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
        let kept = self.change(move |data| {
            // Another process of this machine may have taken the same invitation: the file says so, and it is
            // ours alone in here.
            let is_invited = data.invited.iter().any(|invited| invited.link == link);
            let is_known = data.devices.iter().any(|known| known.id == device.id);
            if !is_invited && !is_known {
                return Err(SealError::Uninvited.into());
            }
            if data.devices.len() >= DEVICES_MAX {
                return Err(VaultError::Full);
            }
            data.invited.retain(|invited| invited.link != link);
            data.devices.retain(|known| known.id != device.id);
            data.devices.push(device);
            Ok(())
        });
        kept.await.map_err(|error| match error {
            VaultError::Sealing(why) => refused(why),
            error => {
                tracing::error!(error = &error as &dyn std::error::Error, "a device was not paired");
                wrong("failed", &format!("the device was not paired: {error}"))
            }
        })?;
        tracing::info!(device = id, name = shown, "paired a device; it can read what this machine seals");
        Ok(answer)
    }

    async fn change(
        &self,
        work: impl FnOnce(&mut VaultData) -> Result<(), VaultError> + Send + 'static,
    ) -> Result<(), VaultError> {
        let _turn = self.changing.lock().await;
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || vault_file::change(&path, work)).await;
        let broken = |error| VaultError::Unwritten(self.path.clone(), std::io::Error::other(error));
        let ((), data, stamp) = written.map_err(broken)??;
        self.adopt(data, stamp);
        Ok(())
    }

    /// Reads the file again, if it has changed since the last time.
    async fn refresh(&self) {
        if FileStamp::of(&self.path) == self.state().stamp {
            return;
        }
        let _turn = self.changing.lock().await;
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || vault_file::read(&path)).await {
            Ok(Ok(Some((data, stamp)))) => self.adopt(data, stamp),
            // The keys in memory stay in use until the server is started again.
            Ok(Ok(None)) => {
                tracing::warn!(path = %self.path.display(), "the file with the keys of devices is gone; the keys in memory stay in use")
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not reload the keys of devices"
                )
            }
            Err(broken) => tracing::error!(%broken, "reading the keys of devices failed unexpectedly"),
        }
    }

    /// Follows what others write to the file, until `stop`: a device that is revoked there is cut off here.
    pub async fn watch_file(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(KEEP_UP_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            self.refresh().await;
        }
    }

    fn adopt(&self, data: VaultData, stamp: FileStamp) {
        if self.state().adopt(&self.machine, data, stamp) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives whether devices or keys have changed.
    fn adopt(&mut self, machine: &MachineId, data: VaultData, stamp: FileStamp) -> bool {
        let before = (self.data.contents.generation(), self.ids());
        self.data = data;
        self.stamp = stamp;
        let mut bonds = HashMap::new();
        for device in &self.data.devices {
            let id = device.point.device();
            // Making one takes a multiplication on the curve; those that are here are good.
            let known = self
                .bonds
                .remove(&id)
                .map_or_else(|| SharedSecret::at_machine(machine, &self.data.own, &device.point), Ok);
            match known {
                Ok(bond) => drop(bonds.insert(id, bond)),
                Err(error) => tracing::warn!(%error, device = device.id, "the key of a device is not valid"),
            }
        }
        for gone in std::mem::replace(&mut self.bonds, bonds).into_keys() {
            self.lanes.forget(gone);
            // The removed device cannot come back by the invitation that it accepted.
            let gone = gone.to_string();
            self.invitations.retain(|open| open.taken.as_ref() != Some(&gone));
        }
        self.invitations
            .retain(|open| open.taken.is_some() || self.data.invited.iter().any(|one| one.link == open.link));
        for invited in &self.data.invited {
            if self.invitations.iter().any(|open| open.link == invited.link) {
                continue;
            }
            let role = word(invited.role);
            let link = PairingLink::parse(&invited.link)
                .and_then(|link| PairingInvitation::new(link, &role, invited.made_at));
            if let Ok(invitation) = link {
                let (link, role) = (invited.link.clone(), invited.role);
                self.invitations.push(OpenInvitation { link, role, taken: None, invitation });
            }
        }
        before != (self.data.contents.generation(), self.ids())
    }

    fn ids(&self) -> Vec<String> {
        self.data.devices.iter().map(|device| device.id.clone()).collect()
    }
}

/// Several processes of one machine have names of their own at a hub, `ID-2` and so on. To its devices it is
/// one machine, with one key.
fn identity(id: &str) -> Result<MachineId, SealError> {
    let own = id.split_once('-').filter(|(own, number)| {
        let is_id = own.len() == 32 && own.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    MachineId::parse(own.map_or(id, |(own, _)| own))
}

/// The role as devices get it.
fn word(role: Role) -> String {
    let text = serde_json::to_value(role).ok().and_then(|role| role.as_str().map(str::to_owned));
    text.unwrap_or_default()
}

fn opened(body: &RawValue) -> Result<DeviceMessage, ReplyError> {
    let body: SealedBody = serde_json::from_str(body.get()).map_err(|_| {
        let message =
            "this machine accepts only sealed requests; pair this device with it (run ropewalk pair there)";
        wrong("forbidden", message)
    })?;
    from_text(&body.sealed).and_then(|bytes| DeviceMessage::parse(&bytes)).map_err(refused)
}

fn body(bytes: &[u8]) -> Box<RawValue> {
    // One text in one member: it has no way to fail.
    to_raw_value(&SealedBody { sealed: to_text(bytes) }).unwrap_or_default()
}

fn refused(why: SealError) -> ReplyError {
    let code = match why {
        SealError::UnknownDevice | SealError::Uninvited => "forbidden",
        SealError::UnknownLane | SealError::Replayed | SealError::Exhausted => "stale",
        SealError::NoRandom => "failed",
        SealError::Malformed
        | SealError::Forged
        | SealError::UnknownGeneration
        | SealError::NotAPoint
        | SealError::NotAMachine
        | SealError::NotALink
        | SealError::AnotherMachine => "badRequest",
    };
    wrong(code, &why.to_string())
}

fn wrong(code: &str, message: &str) -> ReplyError {
    ReplyError { code: code.into(), message: message.into() }
}
