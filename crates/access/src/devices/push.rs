//! Web Push: notifies a device that has the app not in view that it is needed.
//!
//! ```text
//! session's log ── session_notes (a cursor) ── jobs ──> push_sender ── device_queues (what, to whom, when) ── delivery ──> push service
//!                                                           └── addressees, such as devices: who wants it, who has the app in view
//! ```
//!
//! A push carries no content (`note`), is encrypted for its browser (`encryption`), signed for its service
//! (`vapid`), and goes to public addresses only (`target`, `delivery`). Sessions wait for none of this:
//! their cursor leaves its notes in a queue, and a note that finds no room there is dropped and logged.

mod delivery;
mod device_queues;
mod encryption;
mod note;
mod push_scheduler;
mod session_notes;
mod target;
mod vapid;

use std::sync::Arc;

use engine::{BoxFuture, Clock, Follower, Principal, SessionHandle, SessionId, follow_log};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use wire::native::{PushSubscription, ReplyError, Role};

use self::session_notes::SessionNotes;
use super::wrong;

pub use delivery::choose_arithmetic;
pub use note::PushNote;
pub use push_scheduler::PushSender;
pub use target::{BadSubscription, PushAddressPolicy};
pub use vapid::{Vapid, VapidKeyError};

/// Jobs that wait for the sender. It takes them at once, so this many are a flood.
const JOBS_MAX: usize = 256;

/// A device that wants pushes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSubscriber {
    pub device: Arc<str>,
    pub role: Role,
    pub subscription: PushSubscription,
    /// It wants no pushes at the moment.
    pub muted: bool,
}

/// Who may get pushes: the devices of a server, or the browsers of a hub's people.
pub trait Addressees: Send + Sync + 'static {
    /// The devices of this owner that want pushes.
    fn subscribed<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Vec<PushSubscriber>>;

    /// The same for one device.
    fn subscriber<'a>(&'a self, device: &'a str) -> BoxFuture<'a, Option<PushSubscriber>>;

    /// Whether this device has the app in view.
    fn looks(&self, device: &str) -> bool;

    /// The push service does not know this subscription any more. A newer one of the device stays.
    fn unsubscribe<'a>(&'a self, device: &'a str, gone: &'a PushSubscription) -> BoxFuture<'a, ()>;
}

/// The parts that pushes are made with.
pub struct PushParts {
    pub vapid: Vapid,
    pub allowed: PushAddressPolicy,
    pub clock: Arc<dyn Clock>,
}

/// The handle of the [`PushSender`]: follows every session, and serves the devices' requests about pushes.
pub struct Push {
    vapid: Arc<Vapid>,
    allowed: PushAddressPolicy,
    jobs: mpsc::Sender<PushJob>,
}

enum PushJob {
    News { owner: Principal, note: PushNote },
    Try { device: Arc<str>, reply: oneshot::Sender<Result<(), String>> },
}

/// The two ends of sending: the handle that takes notes, and the task that sends them.
pub fn open(parts: PushParts) -> (Arc<Push>, PushSender) {
    let (jobs, queue) = mpsc::channel(JOBS_MAX);
    let (vapid, allowed) = (Arc::new(parts.vapid), parts.allowed);
    let sender = PushSender::new(Arc::clone(&vapid), allowed, parts.clock, queue);
    (Arc::new(Push { vapid, allowed, jobs }), sender)
}

impl Push {
    /// What browsers subscribe with, in base64url.
    pub fn key(&self) -> &str {
        self.vapid.public_key()
    }

    /// Whether anything would be sent to this subscription.
    pub fn check(&self, subscription: &PushSubscription) -> Result<(), BadSubscription> {
        target::PushTarget::parse(subscription, self.allowed).map(drop)
    }

    /// Notifies the devices of this owner that want it. False if too much waits already.
    pub fn tell(&self, owner: Principal, note: PushNote) -> bool {
        self.jobs.try_send(PushJob::News { owner, note }).is_ok()
    }

    /// Sends a push that says nothing, once, and waits for what the push service says to it.
    pub async fn try_it(&self, device: &Arc<str>) -> Result<(), ReplyError> {
        let (reply, outcome) = oneshot::channel();
        let job = PushJob::Try { device: Arc::clone(device), reply };
        let stops = || wrong("failed", "the server is stopping and sends no more notifications");
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => {
                wrong("busy", "too many notifications are being sent; try again in a minute")
            }
            TrySendError::Closed(_) => stops(),
        })?;
        outcome.await.map_err(|_| stops())?.map_err(|message| wrong("failed", &message))
    }
}

impl Follower for Push {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let jobs = self.jobs.clone();
        Box::pin(async move {
            let (owner, mut notes) = (session.owner().clone(), SessionNotes::new(session.id().clone()));
            follow_log(&session, |event| {
                let Some(note) = notes.event(event) else { return };
                if jobs.try_send(PushJob::News { owner: owner.clone(), note }).is_err() {
                    tracing::warn!(session = %session.id(), "too many events at once: devices were not notified of all of them");
                }
            })
            .await;
        })
    }

    fn deleted(&self, _: &SessionId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
