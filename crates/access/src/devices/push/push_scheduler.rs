//! The one task that sends pushes: it asks the addressees who is to be notified, and the queues what is next.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{Clock, Principal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::native::PushSubscription;

use super::delivery::{PostOutcome, Poster};
use super::device_queues::{DeliveryVerdict, DeviceQueues};
use super::note::PushNote;
use super::target::{PushAddressPolicy, PushTarget};
use super::vapid::Vapid;
use super::{Addressees, PushJob, PushSubscriber};

/// How long a server that stops continues sending.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Sends pushes until it is told to stop.
pub struct PushSender {
    context: Arc<PushContext>,
    jobs: mpsc::Receiver<PushJob>,
    queues: DeviceQueues,
    sending: JoinSet<FinishedPush>,
    /// The device that each sending task is for.
    tasks: HashMap<Id, Arc<str>>,
    /// Devices that try whether pushes arrive.
    trying: HashSet<Arc<str>>,
}

/// What sending a push needs besides its subscription.
struct PushContext {
    vapid: Arc<Vapid>,
    allowed: PushAddressPolicy,
    clock: Arc<dyn Clock>,
    poster: Poster,
}

/// A push with its outcome.
struct FinishedPush {
    subscription: PushSubscription,
    outcome: PostOutcome,
    /// Somebody waits for the outcome.
    reply: Option<oneshot::Sender<Result<(), String>>>,
}

/// Everything that can wake the sender.
enum Wake {
    Job(PushJob),
    Sent(Result<(Id, FinishedPush), JoinError>),
    Due,
    Stop,
}

impl PushSender {
    pub(super) fn new(
        vapid: Arc<Vapid>,
        allowed: PushAddressPolicy,
        clock: Arc<dyn Clock>,
        jobs: mpsc::Receiver<PushJob>,
    ) -> Self {
        let context = Arc::new(PushContext { vapid, allowed, clock, poster: Poster::new(allowed) });
        Self {
            context,
            jobs,
            queues: DeviceQueues::default(),
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
            tracing::warn!("some devices were not notified of the last events before the server stopped");
        }
    }

    async fn wake(&mut self, stop: &CancellationToken) -> Wake {
        let due = self.queues.due();
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

    /// Sends everything that is queued, each once.
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

    async fn take(&mut self, job: PushJob, all: &impl Addressees) {
        match job {
            PushJob::News { note: PushNote::Clear { session, ask }, .. } => self.queues.settle(&session, ask),
            PushJob::News { owner, note } => self.tell(all, &owner, &note).await,
            PushJob::Try { device, reply } => self.try_it(device, reply, all).await,
        }
    }

    async fn tell(&mut self, all: &impl Addressees, owner: &Principal, note: &PushNote) {
        for subscriber in all.subscribed(owner).await {
            if wants(&subscriber, note, all) && !self.queues.add(&subscriber.device, note.clone()) {
                tracing::warn!(device = %subscriber.device, "dropped a notification for a device: too many are queued for it");
            }
        }
    }

    /// Sends every note that can be sent now. A note that its device does not want any more is dropped.
    async fn send(&mut self, all: &impl Addressees) {
        loop {
            let ready = self.queues.ready(Instant::now());
            if ready.is_empty() {
                return;
            }
            for (device, note) in ready {
                match all.subscriber(&device).await {
                    None => self.queues.forget(&device),
                    Some(subscriber) if wants(&subscriber, &note, all) => self.post(subscriber, note, None),
                    Some(_) => drop(self.queues.outcome(&device, None, Instant::now())),
                }
            }
        }
    }

    async fn try_it(
        &mut self,
        device: Arc<str>,
        reply: oneshot::Sender<Result<(), String>>,
        all: &impl Addressees,
    ) {
        let refused = match all.subscriber(&device).await {
            None => "this device has not asked for notifications yet",
            Some(subscriber) => {
                if self.trying.insert(device) {
                    return self.post(subscriber, PushNote::Test, Some(reply));
                }
                "a notification is already being sent"
            }
        };
        // The caller may be gone.
        drop(reply.send(Err(refused.into())));
    }

    fn post(
        &mut self,
        subscriber: PushSubscriber,
        note: PushNote,
        reply: Option<oneshot::Sender<Result<(), String>>>,
    ) {
        let (context, device) = (Arc::clone(&self.context), Arc::clone(&subscriber.device));
        let task = self.sending.spawn(async move {
            let outcome = context.post(&subscriber.subscription, &note).await;
            FinishedPush { subscription: subscriber.subscription, outcome, reply }
        });
        self.tasks.insert(task.id(), device);
    }

    async fn sent(&mut self, sent: Result<(Id, FinishedPush), JoinError>, all: &impl Addressees) {
        let now = Instant::now();
        let (id, sent) = match sent {
            Ok((id, sent)) => (id, Some(sent)),
            Err(broken) => (broken.id(), None),
        };
        let Some(device) = self.tasks.remove(&id) else { return };
        let Some(sent) = sent else {
            tracing::error!(%device, "sending a notification failed unexpectedly");
            self.trying.remove(&device);
            self.queues.outcome(&device, None, now);
            return;
        };
        let gone = sent.outcome == PostOutcome::Gone;
        match sent.reply {
            Some(reply) => {
                self.trying.remove(&device);
                drop(reply.send(trial_result(sent.outcome)));
            }
            None => report(&device, self.queues.outcome(&device, Some(sent.outcome), now)),
        }
        if gone {
            tracing::info!(%device, "the push service no longer knows a device; the device subscribes again when the app is opened there");
            self.queues.forget(&device);
            all.unsubscribe(&device, &sent.subscription).await;
        }
    }
}

impl PushContext {
    async fn post(&self, subscription: &PushSubscription, note: &PushNote) -> PostOutcome {
        let target = match PushTarget::parse(subscription, self.allowed) {
            Ok(target) => target,
            Err(error) => return PostOutcome::Refused { why: error.to_string() },
        };
        match self.vapid.authorization(&target.origin(), self.clock.now()) {
            Some(authorization) => self.poster.post(&target, note, &authorization).await,
            None => PostOutcome::Refused { why: "it cannot be signed".into() },
        }
    }
}

/// Whether a device gets a note: not while it has the app in view or is muted; but a note that clears an earlier one is
/// always sent.
fn wants(subscriber: &PushSubscriber, note: &PushNote, all: &impl Addressees) -> bool {
    let quiet = subscriber.muted || all.looks(&subscriber.device);
    subscriber.role >= note.takes() && (!quiet || matches!(note, PushNote::Clear { .. }))
}

fn report(device: &str, verdict: DeliveryVerdict) {
    match verdict {
        DeliveryVerdict::Done | DeliveryVerdict::Forget => {}
        DeliveryVerdict::Waits(wait, why) => {
            tracing::debug!(device, why, seconds = wait.as_secs(), "retrying a notification");
        }
        DeliveryVerdict::GivenUp(why) => tracing::warn!(device, why, "could not notify a device"),
    }
}

/// The outcome of a test push, for the person who tries.
fn trial_result(outcome: PostOutcome) -> Result<(), String> {
    match outcome {
        PostOutcome::Taken => Ok(()),
        PostOutcome::Gone => {
            Err("the push service no longer knows this device; turn notifications off and on again".into())
        }
        PostOutcome::Later { why, .. } => Err(format!("{why}; try again later")),
        PostOutcome::Refused { why } => {
            Err(format!("{why}; turn notifications off and on again, and try once more"))
        }
    }
}
