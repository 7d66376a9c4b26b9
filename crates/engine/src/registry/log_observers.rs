//! Followers of every session: the audit, the metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::BoxFuture;
use crate::ids::{Seq, SessionId};
use crate::session_handle::SessionHandle;
use crate::store::{SessionRow, Store};

use super::Registry;

/// How long a follower may take to report its position in one session.
const LAST_SEEN_WAIT: Duration = Duration::from_secs(3);

/// Why a follower cannot do its work, as a phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerFault {
    pub for_owner: String,
    /// Without paths.
    pub for_others: String,
}

/// A reader of every session that this process opens, with a position of its own in each log.
pub trait Follower: Send + Sync + 'static {
    /// Reads the session's log until it ends, which is when the session leaves memory.
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()>;

    /// The last position that it knows in this session's log, if it stores positions. A log that ends before
    /// has lost its end.
    fn last_seen(&self, id: &SessionId) -> BoxFuture<'static, Option<Seq>> {
        let _not_kept = id;
        Box::pin(std::future::ready(None))
    }

    /// What keeps it from its work now.
    fn fault(&self) -> Option<FollowerFault> {
        None
    }

    /// The session is closed and about to be removed: the last moment to read what was not read yet.
    fn leaving(&self, row: &SessionRow, store: &Arc<dyn Store>) -> BoxFuture<'static, ()> {
        let _nothing_to_do = (row, store);
        Box::pin(std::future::ready(()))
    }

    /// The session and its log were deleted.
    fn deleted(&self, id: &SessionId) -> BoxFuture<'static, ()>;
}

impl Registry {
    /// What keeps followers from their work.
    pub fn follower_fault(&self) -> Option<FollowerFault> {
        self.lock_followers().iter().find_map(|follower| follower.fault())
    }

    /// The last position of a session that anybody knows of who follows every session.
    pub(super) async fn seen_by_followers(&self, id: &SessionId) -> Seq {
        let followers = self.lock_followers().clone();
        let mut seen = Seq::START;
        for follower in followers {
            let asked = tokio::time::timeout(LAST_SEEN_WAIT, follower.last_seen(id)).await;
            seen = seen.max(asked.ok().flatten().unwrap_or(Seq::START));
        }
        seen
    }
}
