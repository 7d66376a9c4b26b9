//! The socket of a bridged session: stores the batches that its bridge sends, and acknowledges what is stored.
//!
//! While the database is unavailable, nothing is acknowledged. Received batches wait in a queue in memory; browsers on
//! this node that watch the session see their views at once. A queue that grows too long is dropped; the bridge is then
//! told to reconnect, and continues from where the mirror ends.
//!
//! A bridge whose log differs from what is mirrored asks for a branch before it sends anything else (`branching`).

pub mod batch_intake;
pub mod branching;
mod sql_statements;

use std::sync::Arc;
use std::time::Duration;

use access::websocket_pump::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
use engine::SessionId;
use store::sql::{DbError, StatementResult};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::json_errors;
use wire::tunnel::{
    BranchRequest, BranchedMirror, BridgeFrame, HubFrame, MirrorAck, MirrorReady, WatchState,
};

use crate::audit::AuditEntry;
use crate::authenticator::PersonId;
use crate::hub::Hub;
use crate::metrics::GaugeGuard;
use crate::topics::{self, TopicReceiver};
use crate::view_feed::ViewFeed;
use crate::websocket_queues::{FrameChannel, OutgoingFrame};
use batch_intake::{BatchIntake, BridgeFrameError, DELTA_BYTES_MAX, MirrorPosition, PENDING_BYTES_MAX};
use sql_statements::{AttachTarget, MirrorOrigin};

/// Waiting batches that are stored in one transaction.
const FRAMES_AT_ONCE: usize = 32;
/// Between two attempts while the database is unavailable.
const RETRY: Duration = Duration::from_secs(1);
/// How often to check whether the session is watched, without a notification.
const POLL_EVERY: Duration = Duration::from_secs(10);

/// `watched` is sent again after this long: a response to a poll may be lost, and a bridge that missed it would keep
/// sending slowly for ever.
const REPEAT_WATCHED_AFTER: Duration = Duration::from_secs(30);

/// The refusal for a machine with a copy of a log whose writer is still running.
const TWO_WRITERS: &str =
    "another running machine with a copy of the same state writes this session; stop one of the two";

/// A bridged session whose socket is on this node.
pub struct MirrorConnection {
    hub: Arc<Hub>,
    session: SessionId,
    person: PersonId,
    epoch: u64,
    stored: MirrorPosition,
    /// What the mirror is a copy of; only until the first batch.
    origin: Option<MirrorOrigin>,
    sealed: bool,
    intake: BatchIntake,
    watched: bool,
    /// When `watched` was last sent.
    watched_sent_at: Instant,
    /// The bridge was asked for a snapshot.
    snapshot_requested: bool,
    /// When to try again, while the database is unavailable.
    retry_at: Option<Instant>,
    /// Views up to this number were shown although they are not stored.
    shown_view_number: u64,
    /// The queue was too long, and was dropped.
    queue_dropped: bool,
    /// Since when a batch is in the queue.
    pending_since: Option<Instant>,
}

/// The close code and reason that the bridge gets.
type CloseReason = (u16, String);

enum Wake {
    Close(u16, &'static str),
    Frame(axum::extract::ws::Utf8Bytes),
    HungUp,
    Watched,
    Retry,
}

impl MirrorConnection {
    /// Claims the session for this connection and fences off the connection before it. `None` if the person has no such session.
    pub async fn attach(
        hub: &Arc<Hub>,
        session: SessionId,
        person: PersonId,
    ) -> Result<Option<Self>, DbError> {
        let target = AttachTarget { session: &session, person: &person, node: &hub.node, now: hub.now().0 };
        let topics = vec![topics::person(&person.0)];
        let found = match hub.run(sql_statements::attach(&target), topics).await {
            Ok(found) => found,
            Err(DbError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let row = |at: usize| found.get(at).and_then(|found: &StatementResult| found.rows.first());
        let (Some(log), Some(mirror)) = (row(0), row(2)) else { return Ok(None) };
        let stored = sql_statements::read_position(mirror, log.count(1)?, 0)?;
        let sealed = mirror.int(5)? != 0;
        Ok(Some(Self {
            hub: Arc::clone(hub),
            origin: Some(MirrorOrigin::read(mirror, stored.head)?),
            sealed,
            intake: BatchIntake::new(session.as_str(), sealed, stored),
            epoch: log.count(0)?,
            session,
            person,
            stored,
            watched: false,
            watched_sent_at: Instant::now(),
            snapshot_requested: false,
            retry_at: None,
            shown_view_number: 0,
            queue_dropped: false,
            pending_since: None,
        }))
    }

    /// Serves the bridge until it hangs up, its token is revoked, or it sends an invalid frame.
    pub async fn run(mut self, mut channel: FrameChannel, revoked: CancellationToken) {
        let _gauge = GaugeGuard::new(&self.hub.metrics.bridges);
        let (code, reason) = self.serve(&mut channel, &revoked).await;
        // Fails if the bridge has hung up.
        drop(channel.outgoing.send(OutgoingFrame::Close(code, reason)).await);
        if self.shown_view_number > self.stored.view_number {
            // The next connection may number these views differently.
            self.feed().inspect(|feed| feed.reset());
        }
        let detach = sql_statements::detach(&self.session, self.epoch, self.hub.now().0);
        self.hub.report_disconnect(vec![detach], topics::person(&self.person.0)).await;
    }

    async fn serve(&mut self, channel: &mut FrameChannel, revoked: &CancellationToken) -> CloseReason {
        let mut wakeups = self.hub.topics.listen(&topics::watched(self.session.as_str()));
        self.watched = self.is_watched().await.unwrap_or(false);
        if self.send_ready(channel).await.is_err() {
            return (NORMAL, String::new());
        }
        loop {
            let close = match self.next(channel, revoked, &mut wakeups).await {
                Wake::Close(code, reason) => Err((code, reason.to_owned())),
                Wake::HungUp => {
                    // One attempt to store what is still queued.
                    drop(self.store_pending(channel).await);
                    Err((NORMAL, String::new()))
                }
                Wake::Frame(text) => self.handle_frames(channel, &text).await,
                Wake::Watched => self.send_watched(channel).await,
                Wake::Retry => {
                    self.retry_at = None;
                    Ok(())
                }
            };
            let close = match close {
                Ok(()) if self.retry_at.is_none() => self.store_pending(channel).await,
                other => other,
            };
            if let Err(close) = close {
                return close;
            }
        }
    }

    async fn send_ready(&mut self, channel: &FrameChannel) -> Result<(), CloseReason> {
        let MirrorOrigin { mark, lineage, before } = self.origin.clone().unwrap_or_default();
        let (events, view, watched) = (self.stored.head, self.stored.continues(), self.watched);
        self.snapshot_requested = view.is_none();
        let ready = MirrorReady { events, view, watched, branches: true, mark, lineage, before };
        self.send(channel, &HubFrame::Ready(ready)).await
    }

    async fn next(
        &self,
        channel: &mut FrameChannel,
        revoked: &CancellationToken,
        wakeups: &mut TopicReceiver,
    ) -> Wake {
        let retry = async {
            match self.retry_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.hub.stop.cancelled() => Wake::Close(GOING_AWAY, "this node of the hub is stopping; reconnect"),
            () = revoked.cancelled() => Wake::Close(NOT_WELCOME, "this token is no longer valid"),
            () = retry => Wake::Retry,
            frame = channel.incoming.recv() => frame.map_or(Wake::HungUp, Wake::Frame),
            () = topics::wait_or_timeout(wakeups, POLL_EVERY) => Wake::Watched,
        }
    }

    /// Handles a frame, and those that wait behind it.
    async fn handle_frames(&mut self, channel: &mut FrameChannel, first: &str) -> Result<(), CloseReason> {
        if let Some(branch) = self.handle_frame(first)? {
            return self.branch(channel, branch).await;
        }
        for _ in 1..FRAMES_AT_ONCE {
            if self.intake.pending.bytes > PENDING_BYTES_MAX / 2 {
                break;
            }
            let Ok(next) = channel.incoming.try_recv() else { break };
            // A branch behind a batch is refused.
            drop(self.handle_frame(&next)?);
        }
        if self.retry_at.is_none() && self.intake.pending.is_empty() {
            // All of it is stored already.
            let ack = MirrorAck { events: self.stored.head, view: self.stored.view_upto };
            self.send(channel, &HubFrame::Ack(ack)).await?;
        }
        if self.retry_at.is_some() {
            self.show_pending();
            if self.intake.pending.bytes > PENDING_BYTES_MAX {
                self.queue_dropped = true;
            }
            if self.queue_dropped {
                self.intake.pending = batch_intake::PendingBatch::default();
            }
        }
        Ok(())
    }

    /// Queues a batch. A branch is returned to the caller.
    fn handle_frame(&mut self, text: &str) -> Result<Option<BranchRequest>, CloseReason> {
        let handled = match json_errors::read(text, "the frame") {
            Ok(BridgeFrame::Batch(batch)) => {
                self.origin = None;
                self.intake.take(batch).map(|()| None)
            }
            Ok(BridgeFrame::Branch(branch)) if self.origin.is_some() => {
                batch_intake::checked_source(branch.source).map(|source| Some(BranchRequest { source }))
            }
            Ok(BridgeFrame::Branch(_)) => {
                Err(BridgeFrameError::Unreadable("a branch must come before the first batch".into()))
            }
            Ok(BridgeFrame::Machine(_) | BridgeFrame::Keys(_) | BridgeFrame::Answer(_)) => {
                Err(BridgeFrameError::Unreadable("it belongs on the machine's socket".into()))
            }
            Err(error) => Err(BridgeFrameError::Unreadable(error.to_string())),
        };
        self.pending_since.get_or_insert_with(Instant::now);
        handled.map_err(|refused| {
            tracing::info!(session = %self.session, %refused, "a bridge was cut off");
            self.hub.metrics.hostile.inc();
            let code = if matches!(refused, BridgeFrameError::Gap(_)) { COME_BACK } else { NOT_WELCOME };
            (code, refused.to_string())
        })
    }

    /// Moves what is mirrored to a session of its own (the branch), and starts an empty mirror.
    async fn branch(
        &mut self,
        channel: &FrameChannel,
        BranchRequest { source }: BranchRequest,
    ) -> Result<(), CloseReason> {
        if self.stored.head == 0 {
            return self.send_ready(channel).await;
        }
        let come_back = |why: String| Err((COME_BACK, why));
        let (hub, session, now) = (Arc::clone(&self.hub), self.session.clone(), self.hub.now());
        let away = "the hub's database is not reachable; reconnect later to branch the session off";
        let statements = branching::branch_state(&session, &self.person, hub.listed_since());
        let Ok(found) = hub.run(statements, Vec::new()).await else { return come_back(away.into()) };
        let row = |at: usize| found.get(at).and_then(|found| found.rows.first());
        let (Some(card), Some(branches), Some(listed)) = (row(0), row(1), row(2)) else {
            return Err((NOT_WELCOME, "this session was forgotten at the hub".into()));
        };
        if !branching::has_room(branches, listed).unwrap_or(false) {
            return come_back("you have too many sessions at this hub; delete some".into());
        }
        let branch_id = branching::branch_id(&session, now.0);
        let request = branch_id.as_ref().and_then(|branch| {
            let card = branching::branch_card(card, &session, branch, now.0).ok()?;
            let (epoch, mirrored, source) = (self.epoch, &self.stored, &source);
            Some(branching::BranchRequest {
                session: &session,
                epoch,
                mirrored,
                source,
                branch,
                card,
                now: now.0,
            })
        });
        let (Some(branch_id), Some(request)) = (&branch_id, request) else {
            return come_back("the hub cannot name what it keeps; its log says why".into());
        };
        let mut work = branching::branch(request);
        let entry =
            AuditEntry::new("session.branched", Some(&self.person.0)).about(format!("{session} {branch_id}"));
        work.push(entry.statement(now, Some(hub.node.as_str())));
        let topics = vec![topics::person(&self.person.0), topics::session(session.as_str())];
        match hub.run(work, topics).await {
            Ok(_) => self.restart_after_branch(channel, branch_id).await,
            Err(DbError::Refused { statement: 1 }) => come_back(TWO_WRITERS.into()),
            Err(DbError::Refused { .. }) => come_back("another bridge has taken over this session".into()),
            Err(DbError::Unavailable { .. } | DbError::Failed { .. }) => come_back(away.into()),
        }
    }

    async fn restart_after_branch(
        &mut self,
        channel: &FrameChannel,
        branch_id: &SessionId,
    ) -> Result<(), CloseReason> {
        tracing::info!(session = %self.session, kept = %branch_id, "a machine's state was restored; what was mirrored is kept");
        let before = BranchedMirror { session: branch_id.to_string(), events: self.stored.head };
        // View numbers continue, so that watching browsers get the first new view after the last old one.
        self.stored = MirrorPosition { view_number: self.stored.view_number, ..MirrorPosition::default() };
        self.intake = BatchIntake::new(self.session.as_str(), self.sealed, self.stored);
        self.origin = Some(MirrorOrigin { before: Some(before), ..MirrorOrigin::default() });
        self.pending_since = None;
        self.send_ready(channel).await
    }

    /// Stores what is queued, and acknowledges it.
    async fn store_pending(&mut self, channel: &FrameChannel) -> Result<(), CloseReason> {
        if self.queue_dropped {
            return self.close_when_database_is_back().await;
        }
        if self.intake.pending.is_empty() {
            return self.request_snapshot(channel).await;
        }
        let (hub, batch) = (&self.hub, &self.intake.pending);
        let next = self.intake.next;
        let work = sql_statements::store(&self.session, self.epoch, &self.stored, &next, batch, hub.now().0);
        let mut topics = vec![topics::session(self.session.as_str())];
        topics.extend(batch.card.as_ref().map(|_| topics::person(&self.person.0)));
        match hub.run(work, topics).await {
            Ok(_) => self.acknowledge(channel).await,
            Err(DbError::Refused { statement: 0 }) => self.resolve_refused_write(channel).await,
            Err(DbError::Refused { .. }) => {
                Err((NOT_WELCOME, "this session was forgotten at the hub".into()))
            }
            Err(DbError::Unavailable { .. }) => {
                self.retry_at = Some(Instant::now() + topics::jittered(RETRY));
                self.show_pending();
                Ok(())
            }
            Err(DbError::Failed { .. }) => {
                Err((COME_BACK, "the hub's database refused the request; the hub's log says why".into()))
            }
        }
    }

    async fn acknowledge(&mut self, channel: &FrameChannel) -> Result<(), CloseReason> {
        let batch = std::mem::take(&mut self.intake.pending);
        let metrics = &self.hub.metrics;
        metrics.events.inc_by(batch.events.len() as u64);
        metrics.event_bytes.inc_by(batch.events.iter().map(|entry| entry.body.len() as u64).sum());
        metrics.views.inc_by(batch.views.len() as u64);
        if let Some(since) = self.pending_since.take() {
            metrics.lag_seconds.observe(since.elapsed().as_secs_f64());
        }
        self.stored = self.intake.next;
        if let Some(feed) = self.feed() {
            batch.views.iter().for_each(|view| feed.put(view.number, &view.view));
        }
        if let Some(card) = &batch.card {
            let news = self.hub.people_api.news(&self.session, self.stored.head, card);
            if !news.is_empty() {
                let (hub, person, session) =
                    (Arc::clone(&self.hub), self.person.clone(), self.session.clone());
                self.hub.start(async move { hub.people_api.tell(&person, &session, news).await });
            }
        }
        let ack = MirrorAck { events: self.stored.head, view: self.stored.view_upto };
        self.send(channel, &HubFrame::Ack(ack)).await?;
        self.request_snapshot(channel).await
    }

    /// Either another connection has the session, or the last attempt was stored and its answer was lost.
    async fn resolve_refused_write(&mut self, channel: &FrameChannel) -> Result<(), CloseReason> {
        let found = self.hub.rows(sql_statements::read_back(&self.session)).await;
        let Ok(rows) = found else {
            self.retry_at = Some(Instant::now() + topics::jittered(RETRY));
            return Ok(());
        };
        let read = |row: &store::sql::Row| {
            Ok::<_, DbError>((sql_statements::read_position(row, row.count(0)?, 1)?, row.count(6)?))
        };
        match rows.first().map(read) {
            Some(Ok((stored, epoch))) if epoch == self.epoch && stored != self.stored => {
                self.intake.drop_stored(&stored);
                self.stored = stored;
                self.retry_at = Some(Instant::now());
                let ack = MirrorAck { events: stored.head, view: stored.view_upto };
                self.send(channel, &HubFrame::Ack(ack)).await
            }
            Some(Ok(_)) => Err((COME_BACK, "another bridge has taken over this session".into())),
            Some(Err(_)) | None => Err((NOT_WELCOME, "this session was forgotten at the hub".into())),
        }
    }

    /// After the queue was dropped: closes the connection as soon as the database is back, so that the bridge reconnects.
    async fn close_when_database_is_back(&mut self) -> Result<(), CloseReason> {
        match self.hub.rows(sql_statements::read_back(&self.session)).await {
            Ok(_) => Err((COME_BACK, "the hub's database was not reachable; reconnect to continue".into())),
            Err(_) => {
                self.retry_at = Some(Instant::now() + topics::jittered(RETRY));
                Ok(())
            }
        }
    }

    /// Shows queued views to browsers of this node that watch the session.
    fn show_pending(&mut self) {
        let Some(feed) = self.feed() else { return };
        for view in self.intake.pending.views.iter().filter(|view| view.number > self.shown_view_number) {
            feed.put(view.number, &view.view);
        }
        self.shown_view_number = self.intake.next.view_number;
    }

    fn feed(&self) -> Option<Arc<ViewFeed>> {
        self.hub.feeds.watched(&self.session)
    }

    /// Asks for a snapshot, if there is none or too much follows the last one.
    async fn request_snapshot(&mut self, channel: &FrameChannel) -> Result<(), CloseReason> {
        let next = &self.intake.next;
        let needed = self.intake.needs_snapshot || next.view_bytes > DELTA_BYTES_MAX;
        if !needed {
            self.snapshot_requested = next.snapshot == 0;
            return Ok(());
        }
        if std::mem::replace(&mut self.snapshot_requested, true) {
            return Ok(());
        }
        self.send(channel, &HubFrame::Watched(WatchState { watched: self.watched, anew: true })).await
    }

    async fn send_watched(&mut self, channel: &FrameChannel) -> Result<(), CloseReason> {
        // Without an answer, assume no change.
        let watched = self.is_watched().await.unwrap_or(self.watched);
        if watched == self.watched && self.watched_sent_at.elapsed() < REPEAT_WATCHED_AFTER {
            return Ok(());
        }
        (self.watched, self.watched_sent_at) = (watched, Instant::now());
        self.send(channel, &HubFrame::Watched(WatchState { watched, anew: false })).await
    }

    /// Whether the session is watched, on any node.
    async fn is_watched(&self) -> Result<bool, DbError> {
        if self.feed().is_some() {
            return Ok(true);
        }
        let rows = self.hub.rows(crate::view_feed::watchers(&self.session, self.hub.now().0)).await?;
        Ok(rows.first().map(|row| row.count(0)).transpose()?.unwrap_or_default() > 0)
    }

    async fn send(&self, channel: &FrameChannel, down: &HubFrame) -> Result<(), CloseReason> {
        let text = serde_json::to_string(down).unwrap_or_default();
        channel.outgoing.send(OutgoingFrame::Text(text.into())).await.map_err(|_| (NORMAL, String::new()))
    }
}
