//! One client that watches one session: a position in its feed, and a pace.

use std::sync::Arc;
use std::time::Duration;

use engine::SessionId;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::native::fold::Viewer;
use wire::native::{Frame, SessionState, Told, View};

use super::feed::{Feed, Seat};
use service::Bridges;

/// The least time between two views: more often than this nobody sees a difference.
const FLUSH_EVERY: Duration = Duration::from_millis(33);

/// There is nothing more to tell, or nobody to tell it to.
struct Over;

pub(super) struct Watching {
    session: SessionId,
    seat: Seat,
    bridges: Bridges,
    viewer: Viewer,
    told_state: Option<(Arc<SessionState>, Vec<String>)>,
    frames: mpsc::Sender<Frame>,
}

impl Watching {
    pub fn new(
        session: SessionId,
        feed: &Arc<Feed>,
        bridges: Bridges,
        name: Arc<str>,
        after: Option<u64>,
        frames: mpsc::Sender<Frame>,
    ) -> Self {
        Self { session, seat: feed.sit(name), bridges, viewer: Viewer::new(after), told_state: None, frames }
    }

    /// Tells until the session is over or the client is gone.
    pub async fn run(mut self) {
        let (mut changes, mut bridged) = (self.seat.feed.changes(), self.bridges.changes());
        if changes.wait_for(|version| *version > 0).await.is_err() {
            return;
        }
        loop {
            let told_at = Instant::now();
            if self.tell().await.is_err() {
                return;
            }
            // The senders live in the feed, which the seat holds, and in `bridges`.
            let woken = tokio::select! {
                woken = changes.changed() => woken,
                woken = bridged.changed() => woken,
            };
            if woken.is_err() {
                return;
            }
            tokio::time::sleep_until(told_at + FLUSH_EVERY).await;
            changes.mark_unchanged();
            bridged.mark_unchanged();
        }
    }

    async fn tell(&mut self) -> Result<(), Over> {
        let (view, over) = self.look();
        if let Some(view) = view {
            self.send(Told::View(view)).await?;
        }
        let Some(message) = over else { return Ok(()) };
        self.send(Told::Over { session: self.session.to_string(), message }).await?;
        Err(Over)
    }

    fn look(&mut self) -> (Option<View>, Option<String>) {
        let inner = self.seat.feed.lock();
        let delta = self.viewer.tell(&inner.rows);
        // People elsewhere may look too: the receiver stands for all of them, and before the others.
        let others: Vec<String> =
            self.bridges.name(&self.session).into_iter().chain(self.seat.others(&inner)).collect();
        let (state, over) = (Arc::clone(&inner.view), inner.over.clone());
        drop(inner);
        let told = self.told_state.as_ref();
        let same = told.is_some_and(|(told, names)| Arc::ptr_eq(told, &state) && *names == others);
        if same && delta.is_empty() {
            return (None, over);
        }
        let full = (!same).then(|| SessionState { others: others.clone(), ..(*state).clone() });
        self.told_state = Some((state, others));
        (Some(delta.view(self.session.to_string(), full)), over)
    }

    /// Waits for a client that is slow; what happens meanwhile is in the next view.
    async fn send(&self, told: Told) -> Result<(), Over> {
        self.frames.send(Frame::Told(Box::new(told))).await.map_err(|_| Over)
    }
}
