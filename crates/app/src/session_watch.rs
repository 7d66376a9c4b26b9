//! One client that watches one session: a position in the session's feed, and a rate limit of its updates.

use std::sync::Arc;
use std::time::Duration;

use engine::SessionId;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::native::fold::Viewer;
use wire::native::{ServerFrame, ServerNotification, SessionState, ViewUpdate};

use super::feed::{Feed, ViewerGuard};
use service::BridgeStatuses;

/// The least time between two views: more often than this nobody sees a difference.
const FLUSH_EVERY: Duration = Duration::from_millis(33);

/// There is nothing more to send, or no client to send it to.
struct WatchEnded;

pub(super) struct SessionWatch {
    session: SessionId,
    viewer_guard: ViewerGuard,
    bridges: BridgeStatuses,
    viewer: Viewer,
    last_state: Option<(Arc<SessionState>, Vec<String>)>,
    frames: mpsc::Sender<ServerFrame>,
}

impl SessionWatch {
    pub fn new(
        session: SessionId,
        feed: &Arc<Feed>,
        bridges: BridgeStatuses,
        name: Arc<str>,
        after: Option<u64>,
        frames: mpsc::Sender<ServerFrame>,
    ) -> Self {
        Self {
            session,
            viewer_guard: feed.add_viewer(name),
            bridges,
            viewer: Viewer::new(after),
            last_state: None,
            frames,
        }
    }

    /// Sends views until the feed ends or the client is gone.
    pub async fn run(mut self) {
        let (mut changes, mut bridged) = (self.viewer_guard.feed.changes(), self.bridges.changes());
        if changes.wait_for(|version| *version > 0).await.is_err() {
            return;
        }
        loop {
            let told_at = Instant::now();
            if self.tell().await.is_err() {
                return;
            }
            // The senders live in the feed, which the guard holds, and in `bridges`.
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

    async fn tell(&mut self) -> Result<(), WatchEnded> {
        let (view, over) = self.look();
        if let Some(view) = view {
            self.send(ServerNotification::View(view)).await?;
        }
        let Some(message) = over else { return Ok(()) };
        self.send(ServerNotification::WatchEnded { session: self.session.to_string(), message }).await?;
        Err(WatchEnded)
    }

    fn look(&mut self) -> (Option<ViewUpdate>, Option<String>) {
        let inner = self.viewer_guard.feed.lock();
        let delta = self.viewer.next_delta(&inner.rows);
        // A bridge may show the session to people elsewhere: its receiver is listed for all of them, before the others.
        let others: Vec<String> =
            self.bridges.name(&self.session).into_iter().chain(self.viewer_guard.others(&inner)).collect();
        let (state, over) = (Arc::clone(&inner.view), inner.end_reason.clone());
        drop(inner);
        let told = self.last_state.as_ref();
        let same = told.is_some_and(|(told, names)| Arc::ptr_eq(told, &state) && *names == others);
        if same && delta.is_empty() {
            return (None, over);
        }
        let full = (!same).then(|| SessionState { others: others.clone(), ..(*state).clone() });
        self.last_state = Some((state, others));
        (Some(delta.view(self.session.to_string(), full)), over)
    }

    /// Waits for a slow client; changes that happen meanwhile are in the next view.
    async fn send(&self, told: ServerNotification) -> Result<(), WatchEnded> {
        self.frames.send(ServerFrame::Notification(Box::new(told))).await.map_err(|_| WatchEnded)
    }
}
