//! The audit as a follower of sessions: it reads each session's log and sends rows to the writer.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    BoxFuture, Doorbell, Event, Follower, FollowerFault, LogRead, LogReader, PageRequest, Seq, SessionHandle,
    SessionId, SessionOrigin, SessionRow, Store, StoreError,
};
use serde_json::json;
use tokio::sync::oneshot;

use super::chain_writer::{DELETED, RETURNED, RowCondition, RowDraft, is_gone, position};
use super::entry_builder::{AuditEntryBuilder, AuditedSession};
use super::writer_thread::{AuditJob, AuditReply};
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
            // If the audit cannot be read, nothing is known; the fault is reported elsewhere.
            let cursor = shared.cursor(id.as_str()).await.ok().flatten();
            cursor.map(|cursor| Seq(position(cursor)))
        })
    }

    fn fault(&self) -> Option<FollowerFault> {
        let AuditTrouble { full, brief } = self.trouble()?;
        let text = |why| format!("could not write the audit: {why}");
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
            let builder = AuditEntryBuilder::new(&id, shared.clock.now(), "local");
            let entry = builder.entry(DELETED, json!({}));
            let drafts = vec![RowDraft { entry, when: RowCondition::Last }];
            if let Err(error) = shared.send_rows(&id, drafts, 0, true).await {
                tracing::error!(session = %id, %error, "the removal of a session was not audited");
            }
        })
    }
}

/// Reads a session's log until it ends. Where the audit cannot be written, the log is read again later.
async fn follow(shared: &Shared, session: &SessionHandle) {
    let _written = WrittenPosition { shared, id: session.id() };
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
    let origin = session.origin();
    let mut auditor = SessionAuditor::new(shared, session.id(), session.owner().0.as_ref(), origin).await?;
    // There is nothing more to record about a session that was just deleted.
    if is_gone(auditor.cursor) {
        match shared.store.find(session.id()).await {
            Ok(_) => auditor.returned(origin),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if origin.fresh {
        auditor.inherited = Some(origin.opened_after);
    } else if auditor.known && !*greeted {
        auditor.opened(origin);
    }
    let mut source = LogSource { reader: session.read(Seq::START), bell: Arc::default() };
    let _ringing = source.reader.subscribe(&source.bell, 0);
    loop {
        match source.reader.take(PageRequest::OUTLINE).await? {
            LogRead::Events(events) => auditor.record_events(&events, origin.opened_after, &shared.sandbox),
            LogRead::UpToDate => {
                auditor.send_drafts(false).await?;
                *greeted = true;
                let at = source.reader.cursor();
                shared.written.send_modify(|written| {
                    written.insert(session.id().clone(), at);
                });
                source.bell.wait().await;
            }
            LogRead::Ended { .. } => {
                auditor.closed();
                return Ok(auditor.send_drafts(true).await?);
            }
        }
        if auditor.drafts.len() >= ROWS_MAX {
            auditor.send_drafts(false).await?;
            *greeted = true;
        }
    }
}

/// Publishes how far a session's rows are written, for as long as the session is followed.
struct WrittenPosition<'a> {
    shared: &'a Shared,
    id: &'a SessionId,
}

impl Drop for WrittenPosition<'_> {
    fn drop(&mut self) {
        self.shared.written.send_modify(|written| {
            written.remove(self.id);
        });
    }
}

struct LogSource {
    reader: LogReader,
    bell: Arc<Doorbell>,
}

/// Reads the stored log of a session that nobody here has open.
pub(super) async fn catch_up(
    shared: &Shared,
    row: &SessionRow,
    store: &Arc<dyn Store>,
) -> Result<(), FollowError> {
    let origin = SessionOrigin {
        parent: row.parent.clone(),
        source: Arc::clone(&row.source),
        created_at: row.created_at,
        cwd: row.cwd.clone(),
        fresh: false,
        opened_after: row.last_seq,
    };
    let mut auditor = SessionAuditor::new(shared, &row.id, row.owner.0.as_ref(), &origin).await?;
    if auditor.known && auditor.cursor >= row.last_seq.0 {
        return Ok(());
    }
    let mut after = Seq::START;
    loop {
        let events = store.read(&row.id, after, PageRequest::OUTLINE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        // The sandbox mode of another process is not known any more.
        auditor.record_events(&events, after, "unknown");
        if auditor.drafts.len() >= ROWS_MAX {
            auditor.send_drafts(false).await?;
        }
    }
    auditor.seen = auditor.seen.max(row.last_seq.0);
    Ok(auditor.send_drafts(true).await?)
}

/// Collects the rows about one session and sends them to the writer.
struct SessionAuditor<'a> {
    shared: &'a Shared,
    id: &'a SessionId,
    owner: &'a str,
    session_state: AuditedSession,
    drafts: Vec<RowDraft>,
    /// The chain has come this far.
    cursor: u64,
    known: bool,
    /// The last event that was copied from elsewhere.
    inherited: Option<Seq>,
    seen: u64,
    origin: &'a SessionOrigin,
}

impl<'a> SessionAuditor<'a> {
    async fn new(
        shared: &'a Shared,
        id: &'a SessionId,
        owner: &'a str,
        origin: &'a SessionOrigin,
    ) -> Result<Self, AuditError> {
        let cursor = shared.cursor(id.as_str()).await?;
        Ok(Self {
            shared,
            id,
            owner,
            session_state: AuditedSession::new(shared.settings.clone(), origin.cwd.clone()),
            drafts: Vec::new(),
            cursor: cursor.unwrap_or_default(),
            known: cursor.is_some(),
            inherited: None,
            seen: 0,
            origin,
        })
    }

    fn opened(&mut self, origin: &SessionOrigin) {
        let builder = AuditEntryBuilder::new(self.id, self.shared.clock.now(), self.owner);
        let details = json!({
            "cwd": origin.cwd.to_string_lossy(), "events": origin.opened_after.0, "sandbox": *self.shared.sandbox,
        });
        self.push(builder.entry("session.opened", details), RowCondition::Always);
    }

    /// The audit has the session as deleted, and it exists: an older copy of the store was restored.
    fn returned(&mut self, origin: &SessionOrigin) {
        let builder = AuditEntryBuilder::new(self.id, self.shared.clock.now(), self.owner);
        let details = json!({ "cwd": origin.cwd.to_string_lossy(), "seq": origin.opened_after.0 });
        self.cursor = origin.opened_after.0;
        self.push(builder.entry(RETURNED, details), RowCondition::Returned);
    }

    fn closed(&mut self) {
        self.push_first_row();
        let builder = AuditEntryBuilder::new(self.id, self.shared.clock.now(), self.owner);
        self.push(builder.entry("session.closed", json!({})), RowCondition::Always);
    }

    /// The row that is the first of its session, if the chain has none yet.
    fn push_first_row(&mut self) {
        if self.known {
            return;
        }
        self.known = true;
        let inherited = self.inherited.unwrap_or(Seq(self.seen));
        let SessionOrigin { parent, source, created_at, cwd, .. } = self.origin;
        let event_type = match (parent, &**source) {
            (Some(_), _) => "session.forked",
            (None, "import") => "session.imported",
            (None, _) => "session.created",
        };
        let mut details = json!({ "cwd": cwd.to_string_lossy(), "seq": inherited.0 });
        if let Some(parent) = parent {
            details["parent"] = parent.as_str().into();
        }
        let builder = AuditEntryBuilder::new(self.id, *created_at, self.owner);
        self.cursor = inherited.0;
        self.push(builder.entry(event_type, details), RowCondition::First);
    }

    /// Tells of events; those up to `others` happened in another process.
    fn record_events(&mut self, events: &[Arc<Event>], others: Seq, sandbox: &str) {
        if !self.known && self.inherited.is_none() {
            self.inherited = inherited_of(self.origin, events);
        }
        // Of copies it may take more pages to know where they end.
        if self.known || self.inherited.is_some() {
            self.push_first_row();
        }
        for event in events {
            let sandbox = if event.seq <= others { "unknown" } else { sandbox };
            let wanted = self.known && event.seq.0 > self.cursor;
            let told = self.session_state.apply(self.id, event, sandbox, wanted);
            self.seen = self.seen.max(event.seq.0);
            if let Some(entry) = told {
                self.push(entry, RowCondition::At(event.seq.0));
            }
        }
    }

    fn push(&mut self, entry: super::row::AuditEntry, when: RowCondition) {
        self.drafts.push(RowDraft { entry, when });
    }

    async fn send_drafts(&mut self, urgent: bool) -> Result<(), AuditError> {
        self.push_first_row();
        if self.drafts.is_empty() && !urgent {
            return Ok(());
        }
        let drafts = std::mem::take(&mut self.drafts);
        self.shared.send_rows(self.id, drafts, self.seen, urgent).await
    }
}

/// How far a session's log was copied from elsewhere, if this page shows it. For sessions that are created
/// while the audit watches, it is known exactly. If the creating process was killed, it is everything older
/// than the session.
fn inherited_of(origin: &SessionOrigin, events: &[Arc<Event>]) -> Option<Seq> {
    if origin.parent.is_none() && *origin.source != *"import" {
        return Some(Seq::START);
    }
    let own = events.iter().find(|event| event.at > origin.created_at)?;
    Some(Seq(own.seq.0 - 1))
}

impl Shared {
    async fn send_rows(
        &self,
        session: &SessionId,
        drafts: Vec<RowDraft>,
        seen: u64,
        urgent: bool,
    ) -> Result<(), AuditError> {
        let (answer, answered): (AuditReply<()>, _) = oneshot::channel();
        self.send(AuditJob::Rows { session: session.to_string(), drafts, seen, urgent, answer }).await?;
        answered.await.map_err(|_| AuditError::Ended)?
    }
}
