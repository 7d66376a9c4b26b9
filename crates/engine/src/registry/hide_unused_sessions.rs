//! Listings without the sessions that were never used.
//!
//! Editors create a session whenever a window is opened. A session without any prompt is of no interest to anybody: it
//! is listed only while it is in memory, where it may get its first prompt, and can always be opened by its id.

use std::collections::HashSet;

use super::{ListedSession, OpenError, Registry};
use crate::ids::SessionId;
use crate::store::ListQuery;

/// The page size for reading rows, however few are wanted: most sessions may be unused.
const PAGE_MIN: usize = 64;

impl Registry {
    /// Newest activity first, like [`Registry::list`].
    pub async fn list_used(&self, mut query: ListQuery) -> Result<Vec<ListedSession>, OpenError> {
        let wanted = query.limit;
        query.limit = query.limit.max(PAGE_MIN);
        let mut found = Vec::new();
        loop {
            let page = self.list(query.clone()).await?;
            let last = page.last().map(|listed| (listed.row.updated_at, listed.row.id.clone()));
            let is_last = page.len() < query.limit;
            let never_used = self.never_used(&page).await;
            found.extend(page.into_iter().filter(|listed| !never_used.contains(&listed.row.id)));
            if is_last || found.len() >= wanted {
                found.truncate(wanted);
                return Ok(found);
            }
            query.before = last;
        }
    }

    /// The store is asked about those alone that their rows say nothing about. Where it cannot say, nothing is hidden.
    async fn never_used(&self, page: &[ListedSession]) -> HashSet<SessionId> {
        let unknown =
            page.iter().filter(|listed| !listed.live && listed.row.title.is_none() && !listed.row.busy);
        let ids: Vec<SessionId> = unknown.map(|listed| listed.row.id.clone()).collect();
        if ids.is_empty() {
            return HashSet::new();
        }
        self.store.never_used(ids).await.unwrap_or_default().into_iter().collect()
    }
}
