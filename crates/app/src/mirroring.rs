//! A session as a receiver elsewhere mirrors it: what our own clients show of it, without being one.
//!
//! It is a position in the session's feed, like that of somebody who watches, but nobody is told of it.
//! Whoever holds it decides when to look.

use std::sync::Arc;

use engine::{Principal, Registry, SessionHandle, SessionId};
use tokio::sync::watch;
use wire::native::fold::Viewer;
use wire::native::{Card, SessionState, View, Wrong};

use super::Desk;
use super::feed::Feed;
use super::wrong::not_opened;

pub struct Mirroring {
    session: SessionId,
    feed: Arc<Feed>,
    viewer: Viewer,
    /// Where the last view led to, if the next one continues it.
    told: Option<u64>,
    told_state: Option<(Arc<SessionState>, Vec<String>)>,
}

impl Mirroring {
    /// Goes on after a position; without one it begins with a view that stands for itself.
    pub fn new(desk: &Arc<Desk>, handle: &SessionHandle, after: Option<u64>) -> Self {
        let feed = desk.feeds.of(desk, handle);
        let (session, viewer) = (handle.id().clone(), Viewer::new(after));
        Self { session, feed, viewer, told: after, told_state: None }
    }

    /// There is nothing more to come from this feed.
    pub fn is_over(&self) -> bool {
        self.feed.lock().over.is_some()
    }

    /// Takes another feed, if this one has ended, and goes on where it was.
    pub fn go_on(&mut self, desk: &Arc<Desk>, handle: &SessionHandle) {
        if self.is_over() {
            *self = Self::new(desk, handle, self.told);
        }
    }

    /// Above 0 when there is something to see; changes whenever something is new.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.feed.changes()
    }

    /// The next view stands for itself.
    pub fn anew(&mut self) {
        (self.viewer, self.told, self.told_state) = (Viewer::new(None), None, None);
    }

    /// What is new, and the position that it continues.
    pub fn look(&mut self) -> Option<(Option<u64>, View)> {
        if *self.feed.changes().borrow() == 0 {
            return None;
        }
        let inner = self.feed.lock();
        if inner.over.is_some() {
            // What it holds may be half of what there is.
            return None;
        }
        let delta = self.viewer.tell(&inner.rows);
        let (state, others) = (Arc::clone(&inner.view), inner.names());
        drop(inner);
        let told = self.told_state.as_ref();
        let same = told.is_some_and(|(told, names)| Arc::ptr_eq(told, &state) && *names == others);
        if same && delta.is_empty() {
            return None;
        }
        let full = (!same).then(|| SessionState { others: others.clone(), ..(*state).clone() });
        self.told_state = Some((state, others));
        let from = self.told.replace(delta.upto).filter(|_| !delta.reset);
        Some((from, delta.view(self.session.to_string(), full)))
    }
}

impl Desk {
    pub fn registry(&self) -> &Arc<Registry> {
        self.service.registry()
    }

    /// Opens a session of this machine's owner, if it is not in memory.
    pub async fn bring_back(&self, session: &SessionId) -> Result<(), Wrong> {
        self.registry().open(&Principal::local(), session).await.map(drop).map_err(not_opened)
    }

    /// The card of a session that is in memory.
    pub fn card(&self, session: &SessionId) -> Option<Card> {
        self.board.live_card(session)
    }

    /// Changes whenever a card does.
    pub fn cards_change(&self) -> watch::Receiver<u64> {
        self.board.changes()
    }
}
