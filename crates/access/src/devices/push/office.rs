//! The one task that sends pushes: it asks the addressees who is to be told, and the lanes what is next.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{Clock, Principal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::native::Subscription;

use super::lanes::{Lanes, Verdict};
use super::note::Note;
use super::post::{Outcome, Poster};
use super::target::{Reach, Target};
use super::vapid::Vapid;
use super::{Addressees, Job, Subscribed};

/// How long a server that stops goes on sending.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Sends what there is to send, until it is told to stop.
pub struct Office {
    sender: Arc<Sender>,
    jobs: mpsc::Receiver<Job>,
    lanes: Lanes,
    sending: JoinSet<Sent>,
    /// The device that each of them is for.
    tasks: HashMap<Id, Arc<str>>,
    /// Devices that try whether pushes arrive.
    trying: HashSet<Arc<str>>,
}

/// What one push needs besides where it goes.
struct Sender {
    vapid: Arc<Vapid>,
    reach: Reach,
    clock: Arc<dyn Clock>,
    poster: Poster,
}

/// A push that came to something.
struct Sent {
    subscription: Subscription,
    outcome: Outcome,
    /// Somebody waits to hear it.
    tried: Option<oneshot::Sender<Result<(), String>>>,
}

/// Everything that can wake the office.
enum Wake {
    Job(Job),
    Sent(Result<(Id, Sent), JoinError>),
    Due,
    Stop,
}

impl Office {
    pub(super) fn new(
        vapid: Arc<Vapid>,
        reach: Reach,
        clock: Arc<dyn Clock>,
        jobs: mpsc::Receiver<Job>,
    ) -> Self {
        let sender = Arc::new(Sender { vapid, reach, clock, poster: Poster::new(reach) });
        Self {
            sender,
            jobs,
            lanes: Lanes::default(),
            sending: JoinSet::new(),
            tasks: HashMap::new(),
            trying: HashSet::new(),
        }
    }

    pub async fn run(mut self, all: Arc<impl Addressees>, stop: CancellationToken) {
        loop {
            self.send(&*all).await;
            match self.wake(&stop).await {
                Wake::Job(job) => self.take(job, &*all).await,
                Wake::Sent(sent) => self.sent(sent, &*all).await,
                Wake::Due => {}
                Wake::Stop => break,
            }
        }
        if tokio::time::timeout(FLUSH_MAX, self.flush(&*all)).await.is_err() {
            tracing::warn!("some devices were not told of the last things before the server stopped");
        }
    }

    async fn wake(&mut self, stop: &CancellationToken) -> Wake {
        let due = self.lanes.due();
        let rested = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Wake::Stop,
            Some(sent) = self.sending.join_next_with_id() => Wake::Sent(sent),
            job = self.jobs.recv() => job.map_or(Wake::Stop, Wake::Job),
            () = rested => Wake::Due,
        }
    }

    /// Sends what is there, each once.
    async fn flush(&mut self, all: &impl Addressees) {
        self.jobs.close();
        while let Some(job) = self.jobs.recv().await {
            self.take(job, all).await;
        }
        self.send(all).await;
        while let Some(sent) = self.sending.join_next_with_id().await {
            self.sent(sent, all).await;
            self.send(all).await;
        }
    }

    async fn take(&mut self, job: Job, all: &impl Addressees) {
        match job {
            Job::News { note: Note::Clear { session, ask }, .. } => self.lanes.settle(&session, ask),
            Job::News { owner, note } => self.tell(all, &owner, &note).await,
            Job::Try { device, tried } => self.try_it(device, tried, all).await,
        }
    }

    async fn tell(&mut self, all: &impl Addressees, owner: &Principal, note: &Note) {
        for known in all.subscribed(owner).await {
            if wants(&known, note, all) && !self.lanes.add(&known.device, note.clone()) {
                tracing::warn!(device = %known.device, "a device was not told of everything: too much waits for it");
            }
        }
    }

    /// Sends whatever can be sent. What nobody wants any more is not.
    async fn send(&mut self, all: &impl Addressees) {
        loop {
            let ready = self.lanes.ready(Instant::now());
            if ready.is_empty() {
                return;
            }
            for (device, note) in ready {
                match all.subscriber(&device).await {
                    None => self.lanes.forget(&device),
                    Some(known) if wants(&known, &note, all) => self.post(known, note, None),
                    Some(_) => drop(self.lanes.outcome(&device, None, Instant::now())),
                }
            }
        }
    }

    async fn try_it(
        &mut self,
        device: Arc<str>,
        tried: oneshot::Sender<Result<(), String>>,
        all: &impl Addressees,
    ) {
        let refused = match all.subscriber(&device).await {
            None => "this device has not asked for notifications yet",
            Some(known) => {
                if self.trying.insert(device) {
                    return self.post(known, Note::Test, Some(tried));
                }
                "one is on its way already"
            }
        };
        // Whoever asked may have gone.
        drop(tried.send(Err(refused.into())));
    }

    fn post(&mut self, known: Subscribed, note: Note, tried: Option<oneshot::Sender<Result<(), String>>>) {
        let (sender, device) = (Arc::clone(&self.sender), Arc::clone(&known.device));
        let task = self.sending.spawn(async move {
            let outcome = sender.post(&known.subscription, &note).await;
            Sent { subscription: known.subscription, outcome, tried }
        });
        self.tasks.insert(task.id(), device);
    }

    async fn sent(&mut self, sent: Result<(Id, Sent), JoinError>, all: &impl Addressees) {
        let now = Instant::now();
        let (id, sent) = match sent {
            Ok((id, sent)) => (id, Some(sent)),
            Err(broken) => (broken.id(), None),
        };
        let Some(device) = self.tasks.remove(&id) else { return };
        let Some(sent) = sent else {
            tracing::error!(%device, "sending a push broke");
            self.trying.remove(&device);
            self.lanes.outcome(&device, None, now);
            return;
        };
        let gone = sent.outcome == Outcome::Gone;
        match sent.tried {
            Some(tried) => {
                self.trying.remove(&device);
                drop(tried.send(said(sent.outcome)));
            }
            None => report(&device, self.lanes.outcome(&device, Some(sent.outcome), now)),
        }
        if gone {
            tracing::info!(%device, "the push service does not know a device any more; it subscribes again when it is opened");
            self.lanes.forget(&device);
            all.unsubscribe(&device, &sent.subscription).await;
        }
    }
}

impl Sender {
    async fn post(&self, subscription: &Subscription, note: &Note) -> Outcome {
        let target = match Target::parse(subscription, self.reach) {
            Ok(target) => target,
            Err(error) => return Outcome::Refused { why: error.to_string() },
        };
        match self.vapid.authorization(&target.origin(), self.clock.now()) {
            Some(authorization) => self.poster.post(&target, note, &authorization).await,
            None => Outcome::Refused { why: "it cannot be signed".into() },
        }
    }
}

/// Whoever looks, or wants quiet, is not told; but what was told is always taken back.
fn wants(known: &Subscribed, note: &Note, all: &impl Addressees) -> bool {
    let quiet = known.muted || all.looks(&known.device);
    known.role >= note.takes() && (!quiet || matches!(note, Note::Clear { .. }))
}

fn report(device: &str, verdict: Verdict) {
    match verdict {
        Verdict::Done | Verdict::Forget => {}
        Verdict::Waits(wait, why) => {
            tracing::debug!(device, why, seconds = wait.as_secs(), "a push is tried again");
        }
        Verdict::GivenUp(why) => tracing::warn!(device, why, "a device was not told"),
    }
}

/// The outcome of a trial, for the person who tries.
fn said(outcome: Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Taken => Ok(()),
        Outcome::Gone => {
            Err("the push service does not know this device any more; turn notifications off and on again"
                .into())
        }
        Outcome::Later { why, .. } => Err(format!("{why}; try again later")),
        Outcome::Refused { why } => {
            Err(format!("{why}; turn notifications off and on again, and try once more"))
        }
    }
}
