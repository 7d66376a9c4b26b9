//! What is to be sent to which device, and when: decisions only, no clock and no sockets.
//!
//! Each device has a queue, of which one note at a time is being sent, so that the note that clears an ask never
//! overtakes the ask. A note that nobody needs any more leaves its queue unsent.
//!
//! **Invariant:** a device is told that an ask is over if and only if it was told of the ask.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::{AskId, SessionId};
use tokio::time::Instant;

use super::delivery::PostOutcome;
use super::note::PushNote;

/// Notes that wait for one device. The oldest makes room: the newest is what somebody waits for.
const LANE_NOTES_MAX: usize = 32;
/// Pushes that are on their way at the same time.
const SENDING_MAX: usize = 8;
/// Open asks of which devices were notified, that are remembered.
const TOLD_MAX: usize = 1024;
/// How long to wait after each attempt that may do better another time.
const RETRY_WAITS: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(300)];
/// A service that wants us to wait longer than this is not waited for.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The id of a device, as `Devices` gives it.
pub(super) type DeviceId = Arc<str>;

#[derive(Default)]
pub(super) struct DeviceQueues {
    queues: HashMap<DeviceId, DeviceQueue>,
    /// Oldest first.
    notified: VecDeque<NotifiedAsk>,
}

struct NotifiedAsk {
    session: SessionId,
    ask: AskId,
    devices: Vec<DeviceId>,
}

#[derive(Default)]
struct DeviceQueue {
    waiting: VecDeque<QueuedNote>,
    sending: Option<QueuedNote>,
    /// Nothing is sent before this.
    rests_until: Option<Instant>,
}

#[derive(Clone)]
struct QueuedNote {
    note: PushNote,
    attempts: usize,
}

/// What is to be done after an outcome.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeliveryVerdict {
    Done,
    /// The subscription is to be forgotten.
    Forget,
    /// It is tried again after this.
    Waits(Duration, String),
    GivenUp(String),
}

impl DeviceQueues {
    /// Queues a note for the device. False if an older note had to make room.
    pub(super) fn add(&mut self, device: &DeviceId, note: PushNote) -> bool {
        let queue = self.queues.entry(Arc::clone(device)).or_default();
        if note.topic().is_some() {
            // The push service would only keep the later one; neither do we send both.
            queue.waiting.retain(|waiting| waiting.note.topic() != note.topic());
        }
        let room = queue.waiting.len() < LANE_NOTES_MAX;
        if !room {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(QueuedNote { note, attempts: 0 });
        room
    }

    /// The ask is settled: its notes are dropped, and devices that were notified are sent a note that clears it.
    pub(super) fn settle(&mut self, session: &SessionId, ask: AskId) {
        let asked = PushNote::Ask { session: session.clone(), ask };
        let clear = PushNote::Clear { session: session.clone(), ask };
        let is_this = |notified: &NotifiedAsk| notified.ask == ask && notified.session == *session;
        let notified = self.notified.iter().position(is_this).and_then(|at| self.notified.remove(at));
        let mut devices = notified.map(|notified| notified.devices).unwrap_or_default();
        for (device, queue) in &mut self.queues {
            queue.waiting.retain(|waiting| waiting.note != asked);
            // It may arrive after all, and is followed by the note that clears it.
            if queue.sending.as_ref().is_some_and(|sending| sending.note == asked) {
                devices.push(Arc::clone(device));
            }
        }
        for device in devices {
            self.add(&device, clear.clone());
        }
        self.sweep();
    }

    /// The notes that can be sent at this moment.
    pub(super) fn ready(&mut self, now: Instant) -> Vec<(DeviceId, PushNote)> {
        let sending = self.queues.values().filter(|queue| queue.sending.is_some()).count();
        let mut ready = Vec::new();
        for (device, queue) in &mut self.queues {
            let rests = queue.rests_until.is_some_and(|until| until > now);
            if sending + ready.len() >= SENDING_MAX || queue.sending.is_some() || rests {
                continue;
            }
            queue.rests_until = None;
            if let Some(next) = queue.waiting.pop_front() {
                ready.push((Arc::clone(device), next.note.clone()));
                queue.sending = Some(next);
            }
        }
        ready
    }

    /// When the next queue may send again after a failure.
    pub(super) fn due(&self) -> Option<Instant> {
        let resting =
            self.queues.values().filter(|queue| !queue.waiting.is_empty() && queue.sending.is_none());
        resting.filter_map(|queue| queue.rests_until).min()
    }

    /// Takes the outcome of the note that was being sent to the device; `None` for a note that was not sent at all.
    pub(super) fn outcome(
        &mut self,
        device: &DeviceId,
        outcome: Option<PostOutcome>,
        now: Instant,
    ) -> DeliveryVerdict {
        let Some(queue) = self.queues.get_mut(device) else { return DeliveryVerdict::Done };
        let Some(sent) = queue.sending.take() else { return DeliveryVerdict::Done };
        let verdict = match outcome {
            None => {
                queue.forget_clear_of(&sent.note);
                DeliveryVerdict::Done
            }
            Some(PostOutcome::Taken) => {
                self.remember(device, sent.note);
                DeliveryVerdict::Done
            }
            Some(PostOutcome::Gone) => {
                self.forget(device);
                DeliveryVerdict::Forget
            }
            Some(PostOutcome::Refused { why }) => {
                queue.forget_clear_of(&sent.note);
                DeliveryVerdict::GivenUp(why)
            }
            Some(PostOutcome::Later { after, why }) => queue.again(sent, after, why, now),
        };
        self.sweep();
        verdict
    }

    /// Nothing more is sent to the device.
    pub(super) fn forget(&mut self, device: &DeviceId) {
        self.queues.remove(device);
        for notified in &mut self.notified {
            notified.devices.retain(|known| known != device);
        }
        self.notified.retain(|notified| !notified.devices.is_empty());
    }

    fn remember(&mut self, device: &DeviceId, note: PushNote) {
        let PushNote::Ask { session, ask } = note else { return };
        let clears = PushNote::Clear { session: session.clone(), ask };
        let settled = |queue: &DeviceQueue| queue.waiting.iter().any(|waiting| waiting.note == clears);
        if self.queues.get(device).is_some_and(settled) {
            return;
        }
        match self.notified.iter_mut().find(|notified| notified.ask == ask && notified.session == session) {
            Some(notified) if notified.devices.contains(device) => {}
            Some(notified) => notified.devices.push(Arc::clone(device)),
            None => self.notified.push_back(NotifiedAsk { session, ask, devices: vec![Arc::clone(device)] }),
        }
        if self.notified.len() > TOLD_MAX {
            self.notified.pop_front();
        }
    }

    /// Devices that nothing waits for take no room.
    fn sweep(&mut self) {
        self.queues.retain(|_, queue| !queue.waiting.is_empty() || queue.sending.is_some());
    }
}

impl DeviceQueue {
    fn again(
        &mut self,
        mut sent: QueuedNote,
        after: Option<Duration>,
        why: String,
        now: Instant,
    ) -> DeliveryVerdict {
        let usual = RETRY_WAITS.get(sent.attempts).copied();
        let wait = usual.map(|usual| after.unwrap_or_default().max(usual)).filter(|wait| *wait <= WAIT_MAX);
        let superseded = self.forget_clear_of(&sent.note) || self.has_newer(&sent.note);
        match wait {
            _ if superseded => DeliveryVerdict::Done,
            None => DeliveryVerdict::GivenUp(why),
            Some(wait) => {
                sent.attempts += 1;
                self.waiting.push_front(sent);
                self.rests_until = Some(now + wait);
                DeliveryVerdict::Waits(wait, why)
            }
        }
    }

    /// What clears an ask that never arrived has nothing to clear. Whether there was such a note.
    fn forget_clear_of(&mut self, note: &PushNote) -> bool {
        let PushNote::Ask { session, ask } = note else { return false };
        let clears = PushNote::Clear { session: session.clone(), ask: *ask };
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.note != clears);
        self.waiting.len() < before
    }

    fn has_newer(&self, note: &PushNote) -> bool {
        let topic = note.topic();
        topic.is_some() && self.waiting.iter().any(|waiting| waiting.note.topic() == topic)
    }
}

#[cfg(test)]
mod tests;
