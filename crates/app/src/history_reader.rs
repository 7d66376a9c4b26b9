//! Rows that no feed holds any more, read again from the log.

use std::sync::Arc;

use engine::{PageRequest, Principal, Seq, SessionId};
use wire::native::fold::Rows;
use wire::native::{PAGE_ROWS, ReplyBody, ReplyError, Row};

use super::AppServer;
use super::error_replies::{not_opened, wrong};
use super::feed::Feed;

/// Rows that are held while a page is read from a long turn.
const ROWS_HELD: usize = 4 * PAGE_ROWS;

/// Reads rows of one session again.
pub(super) struct HistoryReader<'a> {
    pub app: &'a AppServer,
    pub owner: &'a Principal,
    pub session: &'a SessionId,
    pub feed: &'a Arc<Feed>,
}

impl HistoryReader<'_> {
    /// The page of rows before one.
    pub async fn earlier(&self, before: u64) -> Result<ReplyBody, ReplyError> {
        self.feed.ready().await?;
        let (rows, end) = {
            let inner = self.feed.lock();
            // Later events of the same turn may still change a row of the page.
            (inner.marks.rows_before(before, PAGE_ROWS), inner.marks.next_after(before))
        };
        let rows = self.fold(rows, end, |rows| {
            rows.drop_from(before);
            rows.trim(ROWS_HELD);
        });
        let rows = rows.await?;
        let first = rows.len().saturating_sub(PAGE_ROWS);
        Ok(ReplyBody::Rows {
            earlier: rows.earlier() || first > 0,
            rows: rows.iter().skip(first).cloned().collect(),
        })
    }

    /// One row with all of its text.
    pub async fn whole(&self, row: u64) -> Result<ReplyBody, ReplyError> {
        self.feed.ready().await?;
        let (rows, end) = {
            let inner = self.feed.lock();
            (inner.marks.rows_around(row).with_full_row(row), inner.marks.next_after(row))
        };
        let rows = self.fold(rows, end, |rows| rows.keep_only(row)).await?;
        let found: Option<Row> = rows.iter().find(|found| found.id == row).cloned();
        match found {
            Some(found) => Ok(ReplyBody::Rows { rows: vec![found], earlier: false }),
            None => Err(wrong("notFound", "no such entry; it may have been cleared")),
        }
    }

    /// Folds the stored events up to `end`, and trims the rows after every page.
    async fn fold(
        &self,
        mut rows: Rows,
        end: Option<u64>,
        tidy: impl Fn(&mut Rows),
    ) -> Result<Rows, ReplyError> {
        let mut after = Seq(rows.upto());
        loop {
            let read = self.app.registry().read(self.owner, self.session, after, PageRequest::USUAL).await;
            let events = read.map_err(not_opened)?;
            let Some(last) = events.last() else { break };
            after = last.seq;
            let wanted = events.iter().filter(|event| end.is_none_or(|end| event.seq.0 <= end));
            wanted.for_each(|event| rows.observe(event));
            tidy(&mut rows);
            if end.is_some_and(|end| after.0 >= end) {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(rows)
    }
}
