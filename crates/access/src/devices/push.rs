//! Web Push: a device that nobody looks at learns that it is needed.
//!
//! ```text
//! session's log ── news (a cursor) ── jobs ──> office ── lanes (what, to whom, when) ── post ──> push service
//!                                                └── addressees, such as devices: who wants it, who looks
//! ```
//!
//! A push carries no content (`note`), is encrypted for its browser (`seal`), signed for its service
//! (`vapid`), and goes to public addresses only (`target`, `post`). Sessions wait for none of this:
//! their cursor leaves what it sees in a queue, and what finds no room there is dropped and said.

mod lanes;
mod news;
mod note;
mod office;
mod post;
mod seal;
mod target;
mod vapid;

use std::sync::Arc;

use engine::{BoxFuture, Clock, Follower, Principal, SessionHandle, SessionId, follow_log};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use wire::native::{Role, Subscription, Wrong};

use self::news::Seen;
use super::wrong;

pub use note::Note;
pub use office::Office;
pub use post::choose_arithmetic;
pub use target::{BadSubscription, Reach};
pub use vapid::{KeyError, Vapid};

/// News that the office has not looked at. It looks at once, so this many are a flood.
const JOBS_MAX: usize = 256;

/// A device that wants to be told when nobody looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    pub device: Arc<str>,
    pub role: Role,
    pub subscription: Subscription,
    /// It wants to hear nothing at the moment.
    pub muted: bool,
}

/// Who may be told: the devices of a server's hall, or the browsers of a hub's people.
pub trait Addressees: Send + Sync + 'static {
    /// The devices of this owner that want pushes.
    fn subscribed<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Vec<Subscribed>>;

    /// The same for one device.
    fn subscriber<'a>(&'a self, device: &'a str) -> BoxFuture<'a, Option<Subscribed>>;

    /// Whether somebody looks at this device.
    fn looks(&self, device: &str) -> bool;

    /// The push service does not know this subscription any more. A newer one of the device stays.
    fn unsubscribe<'a>(&'a self, device: &'a str, gone: &'a Subscription) -> BoxFuture<'a, ()>;
}

/// What pushes are made with.
pub struct PushParts {
    pub vapid: Vapid,
    pub reach: Reach,
    pub clock: Arc<dyn Clock>,
}

/// The way to the office: follows every session, and answers what the devices ask.
pub struct Push {
    vapid: Arc<Vapid>,
    reach: Reach,
    jobs: mpsc::Sender<Job>,
}

enum Job {
    News { owner: Principal, note: Note },
    Try { device: Arc<str>, tried: oneshot::Sender<Result<(), String>> },
}

/// The two ends of sending: one for whoever has news, one that sends them.
pub fn open(parts: PushParts) -> (Arc<Push>, Office) {
    let (jobs, queue) = mpsc::channel(JOBS_MAX);
    let (vapid, reach) = (Arc::new(parts.vapid), parts.reach);
    let office = Office::new(Arc::clone(&vapid), reach, parts.clock, queue);
    (Arc::new(Push { vapid, reach, jobs }), office)
}

impl Push {
    /// What browsers subscribe with, in base64url.
    pub fn key(&self) -> &str {
        self.vapid.public_key()
    }

    /// Whether anything would be sent to this subscription.
    pub fn check(&self, subscription: &Subscription) -> Result<(), BadSubscription> {
        target::Target::parse(subscription, self.reach).map(drop)
    }

    /// The devices of this owner are told, if they want to be. False if too much waits already.
    pub fn tell(&self, owner: Principal, note: Note) -> bool {
        self.jobs.try_send(Job::News { owner, note }).is_ok()
    }

    /// Sends a push that says nothing, once, and waits for what the push service says to it.
    pub async fn try_it(&self, device: &Arc<str>) -> Result<(), Wrong> {
        let (tried, outcome) = oneshot::channel();
        let job = Job::Try { device: Arc::clone(device), tried };
        let stops = || wrong("failed", "the server stops, and sends no more notifications");
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => {
                wrong("busy", "too many notifications are on their way; try again in a minute")
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
            let (owner, mut seen) = (session.owner().clone(), Seen::new(session.id().clone()));
            follow_log(&session, |event| {
                let Some(note) = seen.event(event) else { return };
                if jobs.try_send(Job::News { owner: owner.clone(), note }).is_err() {
                    tracing::warn!(session = %session.id(), "too much happens at once: devices were not told of all of it");
                }
            })
            .await;
        })
    }

    fn deleted(&self, _: &SessionId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
