//! Lists without the sessions that nobody ever used.
//!
//! Editors begin a session whenever a window is opened. One that nobody prompted says nothing to anybody: it
//! is listed while it is in memory, where somebody may be about to prompt it, and can be opened by its id for ever.

use super::{Listed, OpenError, Registry};
use crate::event::Body;
use crate::ids::Seq;
use crate::store::{ListQuery, Page, SessionRow};

/// Whoever set more than this in a session used it.
const SETTINGS_MAX: Page = Page { count_max: 256, bytes_max: 1 << 20, outline: true };

/// Sessions that are looked at together, however few are wanted: most of them may have been left unused.
const PAGE_MIN: usize = 64;

impl Registry {
    /// Newest activity first, like [`Registry::list`].
    pub async fn list_used(&self, mut query: ListQuery) -> Result<Vec<Listed>, OpenError> {
        let wanted = query.limit;
        query.limit = query.limit.max(PAGE_MIN);
        let mut found = Vec::new();
        loop {
            let page = self.list(query.clone()).await?;
            let last = page.last().map(|listed| (listed.row.updated_at, listed.row.id.clone()));
            let is_last = page.len() < query.limit;
            for listed in page {
                if found.len() < wanted && (listed.live || self.was_used(&listed.row).await) {
                    found.push(listed);
                }
            }
            if is_last || found.len() >= wanted {
                return Ok(found);
            }
            query.before = last;
        }
    }

    /// Whether anything but settings happened in it. One that cannot be read is not hidden.
    async fn was_used(&self, row: &SessionRow) -> bool {
        if row.title.is_some() || row.busy {
            return true;
        }
        if row.last_seq == Seq::START {
            return false;
        }
        let Ok(events) = self.store.read(&row.id, Seq::START, SETTINGS_MAX).await else { return true };
        let whole = events.len() < SETTINGS_MAX.count_max;
        !whole || events.iter().any(|event| event.turn.is_some() || is_use(&event.body))
    }
}

fn is_use(body: &Body) -> bool {
    !matches!(
        body,
        Body::SettingChanged { .. }
            | Body::Moved { .. }
            | Body::Commands { .. }
            | Body::Joined { .. }
            | Body::Offered { .. }
            | Body::Usage(_)
    )
}
