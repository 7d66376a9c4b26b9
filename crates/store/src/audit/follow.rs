//! The audit's cursor on each session's log.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Birth, BoxFuture, Doorbell, Event, Follower, FollowerFault, LogReader, Page, Seq, SessionHandle,
    SessionId, SessionRow, Store, StoreError, Taken,
};
use serde_json::json;
use tokio::sync::oneshot;

use super::chain::{DELETED, Draft, RETURNED, When, is_gone, position};
use super::story::{Story, Teller};
use super::writer::{Answer, Job};
use super::{Audit, AuditError, AuditTrouble, Shared};

/// How long a follower waits before it tries again to have its rows written.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long the removal of a session waits for what is still to be read of it.
const LEAVING_MAX: Duration = Duration::from_secs(10);
/// Rows handed over at once.
const ROWS_MAX: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Follower for Audit {
    fn last_seen(&self, id: &SessionId) -> BoxFuture<'static, Option<Seq>> {
        let (shared, id) = (Arc::clone(&self.shared), id.clone());
        Box::pin(async move {
            // Where the audit cannot be read, nothing is known; that is told elsewhere.
            let cursor = shared.cursor(id.as_str()).await.ok().flatten();
            cursor.map(|cursor| Seq(position(cursor)))
        })
    }

    fn fault(&self) -> Option<FollowerFault> {
        let AuditTrouble { full, brief } = self.trouble()?;
        let text = |why| format!("the audit cannot be written: {why}");
        Some(FollowerFault { for_owner: text(full), for_others: text(brief) })
    }

    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { follow(&shared, &session).await })
    }

    fn leaving(&self, row: &SessionRow, store: &Arc<dyn Store>) -> BoxFuture<'static, ()> {
        let (shared, row, store) = (Arc::clone(&self.shared), row.clone(), Arc::clone(store));
        Box::pin(async move {
            match tokio::time::timeout(LEAVING_MAX, catch_up(&shared, &row, &store)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(session = %row.id, %error, "a session is removed before it was audited");
                }
                Err(_) => tracing::error!(session = %row.id, "a session is removed before it was audited"),
            }
        })
    }

    fn deleted(&self, id: &SessionId) -> BoxFuture<'static, ()> {
        let (shared, id) = (Arc::clone(&self.shared), id.clone());
        Box::pin(async move {
            let teller = Teller::new(&id, shared.clock.now(), "local");
            let entry = teller.entry(DELETED, json!({}));
            let drafts = vec![Draft { entry, when: When::Last }];
            if let Err(error) = shared.rows(&id, drafts, 0, true).await {
                tracing::error!(session = %id, %error, "the removal of a session was not audited");
            }
        })
    }
}

/// Reads a session's log until it ends. Where the audit cannot be written, the log is read again later.
async fn follow(shared: &Shared, session: &SessionHandle) {
    let _written = Written { shared, id: session.id() };
    let mut greeted = false;
    loop {
        let Err(error) = attempt(shared, session, &mut greeted).await else { return };
        tracing::debug!(session = %session.id(), %error, "the audit stopped reading");
        if session.is_closed() {
            // The next start catches up: the log has everything.
            return tracing::error!(session = %session.id(), %error, "a session is not audited to its end yet");
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn attempt(shared: &Shared, session: &SessionHandle, greeted: &mut bool) -> Result<(), FollowError> {
    let birth = session.birth();
    let mut pen = Pen::new(shared, session.id(), session.owner().0.as_ref(), birth).await?;
    // Of one that was just deleted there is nothing more to tell.
    if is_gone(pen.cursor) {
        match shared.store.find(session.id()).await {
            Ok(_) => pen.returned(birth),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if birth.fresh {
        pen.inherited = Some(birth.opened_after);
    } else if pen.known && !*greeted {
        pen.opened(birth);
    }
    let mut source = Live { reader: session.read(Seq::START), bell: Arc::default() };
    let _ringing = source.reader.subscribe(&source.bell, 0);
    loop {
        match source.reader.take(Page::OUTLINE).await? {
            Taken::Events(events) => pen.tell(&events, birth.opened_after, &shared.sandbox),
            Taken::UpToDate => {
                pen.hand_over(false).await?;
                *greeted = true;
                let at = source.reader.cursor();
                shared.written.send_modify(|written| {
                    written.insert(session.id().clone(), at);
                });
                source.bell.wait().await;
            }
            Taken::Ended { .. } => {
                pen.closed();
                return Ok(pen.hand_over(true).await?);
            }
        }
        if pen.drafts.len() >= ROWS_MAX {
            pen.hand_over(false).await?;
            *greeted = true;
        }
    }
}

/// What is known of how far a session's rows are written, for as long as somebody follows it.
struct Written<'a> {
    shared: &'a Shared,
    id: &'a SessionId,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        self.shared.written.send_modify(|written| {
            written.remove(self.id);
        });
    }
}

struct Live {
    reader: LogReader,
    bell: Arc<Doorbell>,
}

/// Reads what is stored of a session that nobody here has open.
pub(super) async fn catch_up(
    shared: &Shared,
    row: &SessionRow,
    store: &Arc<dyn Store>,
) -> Result<(), FollowError> {
    let birth = Birth {
        parent: row.parent.clone(),
        source: Arc::clone(&row.source),
        created_at: row.created_at,
        cwd: row.cwd.clone(),
        fresh: false,
        opened_after: row.last_seq,
    };
    let mut pen = Pen::new(shared, &row.id, row.owner.0.as_ref(), &birth).await?;
    if pen.known && pen.cursor >= row.last_seq.0 {
        return Ok(());
    }
    let mut after = Seq::START;
    loop {
        let events = store.read(&row.id, after, Page::OUTLINE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        // Which sandbox another process was in, nobody knows any more.
        pen.tell(&events, after, "unknown");
        if pen.drafts.len() >= ROWS_MAX {
            pen.hand_over(false).await?;
        }
    }
    pen.seen = pen.seen.max(row.last_seq.0);
    Ok(pen.hand_over(true).await?)
}

/// What is told of one session, until it is handed to the writer.
struct Pen<'a> {
    shared: &'a Shared,
    id: &'a SessionId,
    owner: &'a str,
    story: Story,
    drafts: Vec<Draft>,
    /// The chain has come this far.
    cursor: u64,
    known: bool,
    /// What came before the session's own history.
    inherited: Option<Seq>,
    seen: u64,
    birth: &'a Birth,
}

impl<'a> Pen<'a> {
    async fn new(
        shared: &'a Shared,
        id: &'a SessionId,
        owner: &'a str,
        birth: &'a Birth,
    ) -> Result<Self, AuditError> {
        let cursor = shared.cursor(id.as_str()).await?;
        Ok(Self {
            shared,
            id,
            owner,
            story: Story::new(shared.settings.clone(), birth.cwd.clone()),
            drafts: Vec::new(),
            cursor: cursor.unwrap_or_default(),
            known: cursor.is_some(),
            inherited: None,
            seen: 0,
            birth,
        })
    }

    fn opened(&mut self, birth: &Birth) {
        let teller = Teller::new(self.id, self.shared.clock.now(), self.owner);
        let details = json!({
            "cwd": birth.cwd.to_string_lossy(), "events": birth.opened_after.0, "sandbox": *self.shared.sandbox,
        });
        self.push(teller.entry("session.opened", details), When::Always);
    }

    /// The audit has it as deleted, and it is there: an older copy of the store was put back.
    fn returned(&mut self, birth: &Birth) {
        let teller = Teller::new(self.id, self.shared.clock.now(), self.owner);
        let details = json!({ "cwd": birth.cwd.to_string_lossy(), "seq": birth.opened_after.0 });
        self.cursor = birth.opened_after.0;
        self.push(teller.entry(RETURNED, details), When::Returned);
    }

    fn closed(&mut self) {
        self.begin();
        let teller = Teller::new(self.id, self.shared.clock.now(), self.owner);
        self.push(teller.entry("session.closed", json!({})), When::Always);
    }

    /// The row that is the first of its session, if the chain has none yet.
    fn begin(&mut self) {
        if self.known {
            return;
        }
        self.known = true;
        let inherited = self.inherited.unwrap_or(Seq(self.seen));
        let Birth { parent, source, created_at, cwd, .. } = self.birth;
        let event_type = match (parent, &**source) {
            (Some(_), _) => "session.forked",
            (None, "import") => "session.imported",
            (None, _) => "session.created",
        };
        let mut details = json!({ "cwd": cwd.to_string_lossy(), "seq": inherited.0 });
        if let Some(parent) = parent {
            details["parent"] = parent.as_str().into();
        }
        let teller = Teller::new(self.id, *created_at, self.owner);
        self.cursor = inherited.0;
        self.push(teller.entry(event_type, details), When::First);
    }

    /// Tells of events; those up to `others` happened in another process.
    fn tell(&mut self, events: &[Arc<Event>], others: Seq, sandbox: &str) {
        if !self.known && self.inherited.is_none() {
            self.inherited = inherited_of(self.birth, events);
        }
        // Of copies it may take more pages to know where they end.
        if self.known || self.inherited.is_some() {
            self.begin();
        }
        for event in events {
            let sandbox = if event.seq <= others { "unknown" } else { sandbox };
            let wanted = self.known && event.seq.0 > self.cursor;
            let told = self.story.tell(self.id, event, sandbox, wanted);
            self.seen = self.seen.max(event.seq.0);
            if let Some(entry) = told {
                self.push(entry, When::At(event.seq.0));
            }
        }
    }

    fn push(&mut self, entry: super::row::Entry, when: When) {
        self.drafts.push(Draft { entry, when });
    }

    async fn hand_over(&mut self, urgent: bool) -> Result<(), AuditError> {
        self.begin();
        if self.drafts.is_empty() && !urgent {
            return Ok(());
        }
        let drafts = std::mem::take(&mut self.drafts);
        self.shared.rows(self.id, drafts, self.seen, urgent).await
    }
}

/// How far a session's log was copied from elsewhere, if this page tells. The audit knows it exactly of
/// sessions made while it watches. Of one whose maker was killed it is what is older than the session.
fn inherited_of(birth: &Birth, events: &[Arc<Event>]) -> Option<Seq> {
    if birth.parent.is_none() && *birth.source != *"import" {
        return Some(Seq::START);
    }
    let own = events.iter().find(|event| event.at > birth.created_at)?;
    Some(Seq(own.seq.0 - 1))
}

impl Shared {
    async fn rows(
        &self,
        session: &SessionId,
        drafts: Vec<Draft>,
        seen: u64,
        urgent: bool,
    ) -> Result<(), AuditError> {
        let (answer, answered): (Answer<()>, _) = oneshot::channel();
        self.send(Job::Rows { session: session.to_string(), drafts, seen, urgent, answer }).await?;
        answered.await.map_err(|_| AuditError::Ended)?
    }
}
