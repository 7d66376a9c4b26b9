//! Lanes: calls of a device and the machine's replies. A *lane* is one conversation, say that of one browser tab.
//!
//! A device names a lane, the machine answers with a challenge, and both derive keys from the two. The
//! machine holds lanes in memory only. So after a restart it accepts nothing that was sent before, without
//! having stored anything; two tabs do not disturb each other; and a browser whose storage was
//! restored from a copy repeats no counter, because it stored none.
//!
//! Calls in a lane are numbered upwards. A call whose number is not higher than all before it is refused: it
//! is a duplicate or late. Each accepted call has exactly one reply, bound to its number.

use std::collections::BTreeSet;
use std::fmt;

use crate::key::{DeviceId, MAC_BYTES, NONCE_BYTES, SharedSecret, SymmetricKey};
use crate::key_context::Context;
use crate::message_format::{CALL, LANE_ANSWER, LANE_ASK, REPLY, Reader};
use crate::random::array;
use crate::{Random, SealError};

const ID_BYTES: usize = 16;
/// Tabs of one device. One more ends the lane that was quiet for longest.
const LANES_PER_DEVICE: usize = 16;
/// Calls of a lane that wait for their replies.
const OUTSTANDING_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneId([u8; ID_BYTES]);

/// A device's request for a lane.
pub struct LaneRequest {
    pub device: DeviceId,
    lane: LaneId,
    mac: [u8; MAC_BYTES],
}

/// A call that is not opened yet.
pub struct SealedCall {
    pub device: DeviceId,
    pub lane: LaneId,
    counter: u64,
    sealed: Vec<u8>,
}

impl LaneRequest {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        let mut reader = Reader::of(bytes, LANE_ASK)?;
        let ask =
            Self { device: DeviceId(reader.array()?), lane: LaneId(reader.array()?), mac: reader.array()? };
        reader.end().map(|()| ask)
    }
}

impl SealedCall {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        let mut reader = Reader::of(bytes, CALL)?;
        let (device, lane) = (DeviceId(reader.array()?), LaneId(reader.array()?));
        let counter = reader.number()?;
        Ok(Self { device, lane, counter, sealed: reader.rest().to_vec() })
    }
}

impl SharedSecret {
    /// At the device: what to send, and what waits for the answer.
    pub fn ask_lane(&self, random: &mut dyn Random) -> Result<(Vec<u8>, LaneOpening), SealError> {
        let lane = LaneId(array(random)?);
        let mac = self.derive("lanes", &[])?.sign(&self.bound_ask(lane));
        let bytes = [&[LANE_ASK][..], &self.device.0, &lane.0, &mac].concat();
        Ok((bytes, LaneOpening { bond: self.clone(), lane }))
    }

    /// At the machine: the lane, and what to answer. One that was asked for before is another one now.
    pub fn answer_lane(
        &self,
        ask: &LaneRequest,
        random: &mut dyn Random,
    ) -> Result<(Lane, Vec<u8>), SealError> {
        let key = self.derive("lanes", &[])?;
        key.verify(&self.bound_ask(ask.lane), &ask.mac)?;
        let challenge = array(random)?;
        let mac = key.sign(&self.bound_answer(ask.lane, &challenge));
        let bytes = [&[LANE_ANSWER][..], &ask.lane.0, &challenge, &mac].concat();
        Ok((Lane { keys: self.lane_keys(ask.lane, &challenge)?, taken: 0 }, bytes))
    }

    fn bound_ask(&self, lane: LaneId) -> Context {
        Context::of("lane ask").text(self.machine.as_str()).bytes(&self.device.0).bytes(&lane.0)
    }

    fn bound_answer(&self, lane: LaneId, challenge: &[u8; ID_BYTES]) -> Context {
        let context = Context::of("lane answer").text(self.machine.as_str()).bytes(&self.device.0);
        context.bytes(&lane.0).bytes(challenge)
    }

    fn lane_keys(&self, lane: LaneId, challenge: &[u8; ID_BYTES]) -> Result<LaneKeys, SealError> {
        let salt = [lane.0, *challenge].concat();
        let (call, reply) = (self.derive("call", &salt)?, self.derive("reply", &salt)?);
        Ok(LaneKeys { bond: self.clone(), lane, call, reply })
    }
}

/// The keys of a lane, the same at both ends.
#[derive(Clone)]
struct LaneKeys {
    bond: SharedSecret,
    lane: LaneId,
    call: SymmetricKey,
    reply: SymmetricKey,
}

impl LaneKeys {
    fn bound(&self, label: &str, counter: u64) -> Context {
        let context = Context::of(label).text(self.bond.machine.as_str()).bytes(&self.bond.device.0);
        context.bytes(&self.lane.0).number(counter)
    }
}

/// A counter is used once per key, and a key for one direction of one lane.
fn nonce(counter: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[NONCE_BYTES - 8..].copy_from_slice(&counter.to_be_bytes());
    nonce
}

/// The device's end of a lane that the machine has not answered yet.
pub struct LaneOpening {
    bond: SharedSecret,
    lane: LaneId,
}

impl LaneOpening {
    pub fn answered(&self, bytes: &[u8]) -> Result<DeviceLane, SealError> {
        let mut reader = Reader::of(bytes, LANE_ANSWER)?;
        let (lane, challenge, mac) = (LaneId(reader.array()?), reader.array()?, reader.array()?);
        reader.end()?;
        if lane != self.lane {
            return Err(SealError::Forged);
        }
        self.bond.derive("lanes", &[])?.verify(&self.bond.bound_answer(lane, &challenge), &mac)?;
        Ok(DeviceLane { keys: self.bond.lane_keys(lane, &challenge)?, said: 0, outstanding: BTreeSet::new() })
    }
}

/// The device's end of a lane.
pub struct DeviceLane {
    keys: LaneKeys,
    said: u64,
    outstanding: BTreeSet<u64>,
}

impl DeviceLane {
    /// The bytes to send, and the number that the reply will have.
    pub fn seal(&mut self, plain: &[u8]) -> Result<(u64, Vec<u8>), SealError> {
        let counter = self.said.checked_add(1).ok_or(SealError::Exhausted)?;
        let sealed = self.keys.call.seal(nonce(counter), &self.keys.bound("call", counter), plain)?;
        let (device, lane) = (&self.keys.bond.device.0, &self.keys.lane.0);
        self.said = counter;
        self.outstanding.insert(counter);
        while self.outstanding.len() > OUTSTANDING_MAX {
            self.outstanding.pop_first();
        }
        Ok((counter, [&[CALL][..], device, lane, &counter.to_be_bytes(), &sealed].concat()))
    }

    /// The reply to a call that still waits for one, and that call's number.
    pub fn open(&mut self, bytes: &[u8]) -> Result<(u64, Vec<u8>), SealError> {
        let mut reader = Reader::of(bytes, REPLY)?;
        let (lane, counter) = (LaneId(reader.array()?), reader.number()?);
        if lane != self.keys.lane {
            return Err(SealError::UnknownLane);
        }
        let bound = self.keys.bound("reply", counter);
        let plain = self.keys.reply.open(nonce(counter), &bound, reader.rest())?;
        if !self.outstanding.remove(&counter) {
            return Err(SealError::Replayed);
        }
        Ok((counter, plain))
    }
}

/// The machine's end of a lane.
pub struct Lane {
    keys: LaneKeys,
    /// The highest number that was accepted.
    taken: u64,
}

impl Lane {
    /// The content of the call, and the right to one reply. A refused call leaves the lane unchanged.
    pub fn open(&mut self, call: &SealedCall) -> Result<(Vec<u8>, CallReply), SealError> {
        if call.lane != self.keys.lane || call.device != self.keys.bond.device {
            return Err(SealError::UnknownLane);
        }
        let bound = self.keys.bound("call", call.counter);
        let plain = self.keys.call.open(nonce(call.counter), &bound, &call.sealed)?;
        if call.counter <= self.taken {
            return Err(SealError::Replayed);
        }
        self.taken = call.counter;
        Ok((plain, CallReply { keys: self.keys.clone(), counter: call.counter }))
    }
}

/// The right to reply to one call, once.
pub struct CallReply {
    keys: LaneKeys,
    counter: u64,
}

impl CallReply {
    pub fn seal(self, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let bound = self.keys.bound("reply", self.counter);
        let sealed = self.keys.reply.seal(nonce(self.counter), &bound, plain)?;
        Ok([&[REPLY][..], &self.keys.lane.0, &self.counter.to_be_bytes(), &sealed].concat())
    }
}

/// All lanes of a machine. A device has a bounded number, so none can push out those of another.
#[derive(Default)]
pub struct Lanes {
    /// The one that was quiet for longest first.
    open: Vec<Lane>,
}

impl Lanes {
    /// A lane that was answered. It takes the place of one with the same name.
    pub fn insert(&mut self, lane: Lane) {
        let (device, id) = (lane.keys.bond.device, lane.keys.lane);
        self.open.retain(|other| other.keys.bond.device != device || other.keys.lane != id);
        let of_device = self.open.iter().filter(|other| other.keys.bond.device == device).count();
        if of_device >= LANES_PER_DEVICE
            && let Some(quiet) = self.open.iter().position(|other| other.keys.bond.device == device)
        {
            self.open.remove(quiet);
        }
        self.open.push(lane);
    }

    pub fn open(&mut self, call: &SealedCall) -> Result<(Vec<u8>, CallReply), SealError> {
        let mine = |lane: &Lane| lane.keys.bond.device == call.device && lane.keys.lane == call.lane;
        let place = self.open.iter().position(mine).ok_or(SealError::UnknownLane)?;
        let mut lane = self.open.remove(place);
        let opened = lane.open(call);
        // A call that cannot be opened does not keep a lane alive.
        let place = if opened.is_ok() { self.open.len() } else { place };
        self.open.insert(place, lane);
        opened
    }

    /// A device was revoked.
    pub fn forget(&mut self, device: DeviceId) {
        self.open.retain(|lane| lane.keys.bond.device != device);
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("open", &self.open.len()).finish()
    }
}
