//! Calls of a device and the machine's replies: a *lane* is one conversation, say that of one browser tab.
//!
//! A device names a lane, the machine answers with a challenge, and both derive keys from the two. The
//! machine holds lanes in memory only. So after a restart it can take nothing that was said before, without
//! having written anything down; two tabs do not get into each other's way; and a browser whose storage was
//! put back to yesterday repeats no counter, because it kept none.
//!
//! In a lane calls count upwards. A call that does not count higher than all before it is not taken: it
//! came twice, or late. Each call that was taken has exactly one reply, bound to its number.

use std::collections::BTreeSet;
use std::fmt;

use crate::context::Context;
use crate::key::{Bond, DeviceId, Key, MAC_BYTES, NONCE_BYTES};
use crate::message::{CALL, LANE_ANSWER, LANE_ASK, REPLY, Reader};
use crate::random::array;
use crate::{Random, Refused};

const ID_BYTES: usize = 16;
/// Tabs of one device. One more ends the lane that was quiet for longest.
const LANES_PER_DEVICE: usize = 16;
/// Calls of a lane that wait for their replies.
const OUTSTANDING_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneId([u8; ID_BYTES]);

/// A device wants to talk.
pub struct LaneAsk {
    pub device: DeviceId,
    lane: LaneId,
    mac: [u8; MAC_BYTES],
}

/// A call that nobody has opened.
pub struct SealedCall {
    pub device: DeviceId,
    pub lane: LaneId,
    counter: u64,
    sealed: Vec<u8>,
}

impl LaneAsk {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        let mut reader = Reader::of(bytes, LANE_ASK)?;
        let ask =
            Self { device: DeviceId(reader.array()?), lane: LaneId(reader.array()?), mac: reader.array()? };
        reader.end().map(|()| ask)
    }
}

impl SealedCall {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        let mut reader = Reader::of(bytes, CALL)?;
        let (device, lane) = (DeviceId(reader.array()?), LaneId(reader.array()?));
        let counter = reader.number()?;
        Ok(Self { device, lane, counter, sealed: reader.rest().to_vec() })
    }
}

impl Bond {
    /// At the device: what to send, and what waits for the answer.
    pub fn ask_lane(&self, random: &mut dyn Random) -> Result<(Vec<u8>, Asked), Refused> {
        let lane = LaneId(array(random)?);
        let mac = self.derive("lanes", &[])?.sign(&self.bound_ask(lane));
        let bytes = [&[LANE_ASK][..], &self.device.0, &lane.0, &mac].concat();
        Ok((bytes, Asked { bond: self.clone(), lane }))
    }

    /// At the machine: the lane, and what to answer. One that was asked for before is another one now.
    pub fn answer_lane(&self, ask: &LaneAsk, random: &mut dyn Random) -> Result<(Lane, Vec<u8>), Refused> {
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

    fn lane_keys(&self, lane: LaneId, challenge: &[u8; ID_BYTES]) -> Result<LaneKeys, Refused> {
        let salt = [lane.0, *challenge].concat();
        let (call, reply) = (self.derive("call", &salt)?, self.derive("reply", &salt)?);
        Ok(LaneKeys { bond: self.clone(), lane, call, reply })
    }
}

/// Both ends of a lane have the same.
#[derive(Clone)]
struct LaneKeys {
    bond: Bond,
    lane: LaneId,
    call: Key,
    reply: Key,
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

/// The device's end, before the machine has answered.
pub struct Asked {
    bond: Bond,
    lane: LaneId,
}

impl Asked {
    pub fn answered(&self, bytes: &[u8]) -> Result<Caller, Refused> {
        let mut reader = Reader::of(bytes, LANE_ANSWER)?;
        let (lane, challenge, mac) = (LaneId(reader.array()?), reader.array()?, reader.array()?);
        reader.end()?;
        if lane != self.lane {
            return Err(Refused::Forged);
        }
        self.bond.derive("lanes", &[])?.verify(&self.bond.bound_answer(lane, &challenge), &mac)?;
        Ok(Caller { keys: self.bond.lane_keys(lane, &challenge)?, said: 0, outstanding: BTreeSet::new() })
    }
}

/// The device's end of a lane.
pub struct Caller {
    keys: LaneKeys,
    said: u64,
    outstanding: BTreeSet<u64>,
}

impl Caller {
    /// What to send, and the number that its reply will have.
    pub fn seal(&mut self, plain: &[u8]) -> Result<(u64, Vec<u8>), Refused> {
        let counter = self.said.checked_add(1).ok_or(Refused::Exhausted)?;
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
    pub fn open(&mut self, bytes: &[u8]) -> Result<(u64, Vec<u8>), Refused> {
        let mut reader = Reader::of(bytes, REPLY)?;
        let (lane, counter) = (LaneId(reader.array()?), reader.number()?);
        if lane != self.keys.lane {
            return Err(Refused::UnknownLane);
        }
        let bound = self.keys.bound("reply", counter);
        let plain = self.keys.reply.open(nonce(counter), &bound, reader.rest())?;
        if !self.outstanding.remove(&counter) {
            return Err(Refused::Replayed);
        }
        Ok((counter, plain))
    }
}

/// The machine's end of a lane.
pub struct Lane {
    keys: LaneKeys,
    /// The highest number that was taken.
    taken: u64,
}

impl Lane {
    /// What the device wants, and the right to one reply. What is refused leaves the lane as it was.
    pub fn open(&mut self, call: &SealedCall) -> Result<(Vec<u8>, Answering), Refused> {
        if call.lane != self.keys.lane || call.device != self.keys.bond.device {
            return Err(Refused::UnknownLane);
        }
        let bound = self.keys.bound("call", call.counter);
        let plain = self.keys.call.open(nonce(call.counter), &bound, &call.sealed)?;
        if call.counter <= self.taken {
            return Err(Refused::Replayed);
        }
        self.taken = call.counter;
        Ok((plain, Answering { keys: self.keys.clone(), counter: call.counter }))
    }
}

/// The right to reply to one call, once.
pub struct Answering {
    keys: LaneKeys,
    counter: u64,
}

impl Answering {
    pub fn seal(self, plain: &[u8]) -> Result<Vec<u8>, Refused> {
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

    pub fn open(&mut self, call: &SealedCall) -> Result<(Vec<u8>, Answering), Refused> {
        let mine = |lane: &Lane| lane.keys.bond.device == call.device && lane.keys.lane == call.lane;
        let place = self.open.iter().position(mine).ok_or(Refused::UnknownLane)?;
        let mut lane = self.open.remove(place);
        let opened = lane.open(call);
        // Whoever cannot say anything does not keep a lane alive either.
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
