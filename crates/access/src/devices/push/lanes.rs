//! What is to be sent to which device, and when: decisions only, no clock and no sockets.
//!
//! Each device has a lane, in which one note is on its way at a time, so that what clears an ask never
//! overtakes it. A note that nobody needs any more leaves its lane unsent.
//!
//! **Invariant:** a device is told that an ask is over if and only if it was told of the ask.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::{AskId, SessionId};
use tokio::time::Instant;

use super::note::Note;
use super::post::Outcome;

/// Notes that wait for one device. The oldest makes room: the newest is what somebody waits for.
const LANE_NOTES_MAX: usize = 32;
/// Pushes that are on their way at the same time.
const SENDING_MAX: usize = 8;
/// Asks of which somebody was told and that nobody has settled.
const TOLD_MAX: usize = 1024;
/// How long to wait after each attempt that may do better another time.
const PATIENCE: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(300)];
/// A service that wants us to wait longer than this is not waited for.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The id of a device, as `Devices` gives it.
pub(super) type Device = Arc<str>;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: HashMap<Device, Lane>,
    /// Oldest first.
    told: VecDeque<Told>,
}

struct Told {
    session: SessionId,
    ask: AskId,
    devices: Vec<Device>,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    sending: Option<Waiting>,
    /// Nothing is sent before this.
    rests_until: Option<Instant>,
}

#[derive(Clone)]
struct Waiting {
    note: Note,
    attempts: usize,
}

/// What follows from an outcome.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// The subscription is to be forgotten.
    Forget,
    /// It is tried again after this.
    Waits(Duration, String),
    GivenUp(String),
}

impl Lanes {
    /// The device is to be told. False if an older note had to make room.
    pub(super) fn add(&mut self, device: &Device, note: Note) -> bool {
        let lane = self.lanes.entry(Arc::clone(device)).or_default();
        if note.topic().is_some() {
            // The push service would only keep the later one; neither do we send both.
            lane.waiting.retain(|waiting| waiting.note.topic() != note.topic());
        }
        let room = lane.waiting.len() < LANE_NOTES_MAX;
        if !room {
            lane.waiting.pop_front();
        }
        lane.waiting.push_back(Waiting { note, attempts: 0 });
        room
    }

    /// Nobody need be told of this ask any more; those who were are told that it is over.
    pub(super) fn settle(&mut self, session: &SessionId, ask: AskId) {
        let asked = Note::Ask { session: session.clone(), ask };
        let clear = Note::Clear { session: session.clone(), ask };
        let is_this = |told: &Told| told.ask == ask && told.session == *session;
        let told = self.told.iter().position(is_this).and_then(|at| self.told.remove(at));
        let mut devices = told.map(|told| told.devices).unwrap_or_default();
        for (device, lane) in &mut self.lanes {
            lane.waiting.retain(|waiting| waiting.note != asked);
            // It may arrive after all, and is followed by what clears it.
            if lane.sending.as_ref().is_some_and(|sending| sending.note == asked) {
                devices.push(Arc::clone(device));
            }
        }
        for device in devices {
            self.add(&device, clear.clone());
        }
        self.sweep();
    }

    /// What can be sent at this moment.
    pub(super) fn ready(&mut self, now: Instant) -> Vec<(Device, Note)> {
        let sending = self.lanes.values().filter(|lane| lane.sending.is_some()).count();
        let mut ready = Vec::new();
        for (device, lane) in &mut self.lanes {
            let rests = lane.rests_until.is_some_and(|until| until > now);
            if sending + ready.len() >= SENDING_MAX || lane.sending.is_some() || rests {
                continue;
            }
            lane.rests_until = None;
            if let Some(next) = lane.waiting.pop_front() {
                ready.push((Arc::clone(device), next.note.clone()));
                lane.sending = Some(next);
            }
        }
        ready
    }

    /// When something may be sent that rests.
    pub(super) fn due(&self) -> Option<Instant> {
        let resting = self.lanes.values().filter(|lane| !lane.waiting.is_empty() && lane.sending.is_none());
        resting.filter_map(|lane| lane.rests_until).min()
    }

    /// The note that was on its way to the device came to this. Nothing for one that was not sent at all.
    pub(super) fn outcome(&mut self, device: &Device, outcome: Option<Outcome>, now: Instant) -> Verdict {
        let Some(lane) = self.lanes.get_mut(device) else { return Verdict::Done };
        let Some(sent) = lane.sending.take() else { return Verdict::Done };
        let verdict = match outcome {
            None => {
                lane.forget_clear_of(&sent.note);
                Verdict::Done
            }
            Some(Outcome::Taken) => {
                self.remember(device, sent.note);
                Verdict::Done
            }
            Some(Outcome::Gone) => {
                self.forget(device);
                Verdict::Forget
            }
            Some(Outcome::Refused { why }) => {
                lane.forget_clear_of(&sent.note);
                Verdict::GivenUp(why)
            }
            Some(Outcome::Later { after, why }) => lane.again(sent, after, why, now),
        };
        self.sweep();
        verdict
    }

    /// Nothing more is sent to the device.
    pub(super) fn forget(&mut self, device: &Device) {
        self.lanes.remove(device);
        for told in &mut self.told {
            told.devices.retain(|known| known != device);
        }
        self.told.retain(|told| !told.devices.is_empty());
    }

    fn remember(&mut self, device: &Device, note: Note) {
        let Note::Ask { session, ask } = note else { return };
        let clears = Note::Clear { session: session.clone(), ask };
        let settled = |lane: &Lane| lane.waiting.iter().any(|waiting| waiting.note == clears);
        if self.lanes.get(device).is_some_and(settled) {
            return;
        }
        match self.told.iter_mut().find(|told| told.ask == ask && told.session == session) {
            Some(told) if told.devices.contains(device) => {}
            Some(told) => told.devices.push(Arc::clone(device)),
            None => self.told.push_back(Told { session, ask, devices: vec![Arc::clone(device)] }),
        }
        if self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
    }

    /// Devices that nothing waits for take no room.
    fn sweep(&mut self) {
        self.lanes.retain(|_, lane| !lane.waiting.is_empty() || lane.sending.is_some());
    }
}

impl Lane {
    fn again(&mut self, mut sent: Waiting, after: Option<Duration>, why: String, now: Instant) -> Verdict {
        let usual = PATIENCE.get(sent.attempts).copied();
        let wait = usual.map(|usual| after.unwrap_or_default().max(usual)).filter(|wait| *wait <= WAIT_MAX);
        let superseded = self.forget_clear_of(&sent.note) || self.has_newer(&sent.note);
        match wait {
            _ if superseded => Verdict::Done,
            None => Verdict::GivenUp(why),
            Some(wait) => {
                sent.attempts += 1;
                self.waiting.push_front(sent);
                self.rests_until = Some(now + wait);
                Verdict::Waits(wait, why)
            }
        }
    }

    /// What clears an ask that never arrived has nothing to clear. Whether there was such a note.
    fn forget_clear_of(&mut self, note: &Note) -> bool {
        let Note::Ask { session, ask } = note else { return false };
        let clears = Note::Clear { session: session.clone(), ask: *ask };
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.note != clears);
        self.waiting.len() < before
    }

    fn has_newer(&self, note: &Note) -> bool {
        let topic = note.topic();
        topic.is_some() && self.waiting.iter().any(|waiting| waiting.note.topic() == topic)
    }
}

#[cfg(test)]
mod tests;
