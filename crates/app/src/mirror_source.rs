//! A session as a bridge mirrors it: the views that our own clients would get, without being a client.
//!
//! It is a position in the session's feed, like that of a watching client, but it is not listed among the viewers.
//! The bridge decides when to read it.

use std::sync::Arc;

use engine::{Principal, Registry, SessionHandle, SessionId};
use tokio::sync::watch;
use wire::native::fold::Viewer;
use wire::native::{ReplyError, SessionCard, SessionState, ViewUpdate};

use super::AppServer;
use super::error_replies::not_opened;
use super::feed::Feed;

pub struct MirrorSource {
    session: SessionId,
    feed: Arc<Feed>,
    viewer: Viewer,
    /// The position of the last view, if the next one continues it.
    last_position: Option<u64>,
    last_state: Option<(Arc<SessionState>, Vec<String>)>,
}

impl MirrorSource {
    /// Continues after a position; without one it begins with a full view.
    pub fn new(app: &Arc<AppServer>, handle: &SessionHandle, after: Option<u64>) -> Self {
        let feed = app.feeds.of(app, handle);
        let (session, viewer) = (handle.id().clone(), Viewer::new(after));
        Self { session, feed, viewer, last_position: after, last_state: None }
    }

    /// Whether this feed has ended.
    pub fn has_ended(&self) -> bool {
        self.feed.lock().end_reason.is_some()
    }

    /// Takes a new feed, if this one has ended, and continues at the same position.
    pub fn reopen(&mut self, app: &Arc<AppServer>, handle: &SessionHandle) {
        if self.has_ended() {
            *self = Self::new(app, handle, self.last_position);
        }
    }

    /// 0 until the rows are loaded; changes whenever something is new.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.feed.changes()
    }

    /// Makes the next view a full one.
    pub fn reset(&mut self) {
        (self.viewer, self.last_position, self.last_state) = (Viewer::new(None), None, None);
    }

    /// The next view, if anything is new, and the position that it continues.
    pub fn look(&mut self) -> Option<(Option<u64>, ViewUpdate)> {
        if *self.feed.changes().borrow() == 0 {
            return None;
        }
        let inner = self.feed.lock();
        if inner.end_reason.is_some() {
            // The feed may have ended before it had read all rows.
            return None;
        }
        let delta = self.viewer.next_delta(&inner.rows);
        let (state, others) = (Arc::clone(&inner.view), inner.names());
        drop(inner);
        let told = self.last_state.as_ref();
        let same = told.is_some_and(|(told, names)| Arc::ptr_eq(told, &state) && *names == others);
        if same && delta.is_empty() {
            return None;
        }
        let full = (!same).then(|| SessionState { others: others.clone(), ..(*state).clone() });
        self.last_state = Some((state, others));
        let from = self.last_position.replace(delta.upto).filter(|_| !delta.reset);
        Some((from, delta.view(self.session.to_string(), full)))
    }
}

impl AppServer {
    pub fn registry(&self) -> &Arc<Registry> {
        self.service.registry()
    }

    /// Loads a session of this machine's owner into memory, if it is not there.
    pub async fn bring_back(&self, session: &SessionId) -> Result<(), ReplyError> {
        self.registry().open(&Principal::local(), session).await.map(drop).map_err(not_opened)
    }

    /// The card of a session that is in memory.
    pub fn card(&self, session: &SessionId) -> Option<SessionCard> {
        self.board.live_card(session)
    }

    /// Changes whenever a card does.
    pub fn cards_change(&self) -> watch::Receiver<u64> {
        self.board.changes()
    }
}
