//! Where in a log the updates stand that a dialect counts.
//!
//! Such a dialect numbers what it shows from 1, without gaps, and shows the same to everybody. So the
//! number of an update is a function of the log, and survives whatever the log survives.

use engine::{Page, Seq, SessionHandle, StoreError, Taken};

/// Updates that a client can still be told again.
pub(crate) const HISTORY_MAX: u64 = 1024;

pub(crate) struct Found {
    /// Everything after this event is to be told.
    pub(crate) after: Seq,
    /// Updates up to there.
    pub(crate) shown: u64,
    /// Updates in all.
    pub(crate) last: u64,
    /// Older ones were asked for than those that are kept.
    pub(crate) truncated: bool,
}

/// Finds the update with the number `since`.
pub(crate) async fn find(session: &SessionHandle, since: u64) -> Result<Found, StoreError> {
    let mut reader = session.read(Seq::START);
    let mut stands = vec![(Seq::START, 0)];
    let mut last = 0;
    while let Taken::Events(events) = reader.take(Page::USUAL).await? {
        for event in events {
            last += wire::otter::updates_of(&event);
            stands.push((event.seq, last));
        }
    }
    let kept_after = last.saturating_sub(HISTORY_MAX);
    let wanted = since.max(kept_after).min(last);
    let at = stands.partition_point(|(_, shown)| *shown <= wanted).saturating_sub(1);
    let (after, shown) = stands.get(at).copied().unwrap_or((Seq::START, 0));
    Ok(Found { after, shown, last, truncated: since < kept_after })
}
