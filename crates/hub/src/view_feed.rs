//! The views of watched sessions: one reader for each session that is watched on this node, for any number of browsers.
//!
//! A feed holds the views since the last snapshot but one, each as the frame that browsers get. A browser has a cursor in
//! them and takes what comes after it; a slow browser costs nothing. A browser that reconnects names the position that its
//! last view led to, and gets what follows; without a position, or with an unknown one, it starts with a snapshot.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use engine::SessionId;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use store::sql::{DbError, SqlValue, Statement};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::hub_requests::HubNotification;
use wire::tunnel::ViewEntry;

use crate::hub::{Hub, WATCH_MS};
use crate::topics;

/// How often changes of all watched sessions are looked for together, and those of each session by itself, without a notification.
const POLL_ALL_EVERY: Duration = Duration::from_secs(1);
const POLL_EVERY: Duration = Duration::from_secs(15);
/// Sessions of one query.
const SESSIONS_AT_ONCE: usize = 200;
/// Views that one query reads.
const PAGE: u64 = 128;

#[derive(Default)]
pub struct ViewFeeds(Mutex<HashMap<SessionId, Weak<ViewFeed>>>);

/// Makes frames for browsers of a session's views.
#[derive(Debug, Clone)]
pub struct ViewFraming {
    pub session: SessionId,
    pub machine: Option<Arc<str>>,
    pub sealed: bool,
    /// The session that its views were made for, if this is a branch of it.
    pub of: Option<Arc<str>>,
}

pub struct ViewFeed {
    framing: ViewFraming,
    ring: Mutex<ViewRing>,
    changed: watch::Sender<u64>,
    dropped: CancellationToken,
}

#[derive(Default)]
struct ViewRing {
    /// Goes up when views that were shown are no longer valid.
    generation: u64,
    views: VecDeque<FramedView>,
    last: u64,
    /// The first read is done.
    loaded: bool,
    /// When the mirror was made, and whether it is sealed: another mirror of the same id does not continue this one.
    began: Option<(i64, bool)>,
    /// Why the feed has ended.
    end_reason: Option<&'static str>,
}

struct FramedView {
    number: u64,
    snapshot: bool,
    upto: u64,
    frame: Utf8Bytes,
}

/// How far a browser has come in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedCursor {
    generation: u64,
    number: u64,
}

/// What a browser gets next.
pub enum FeedRead {
    Frames(Vec<Utf8Bytes>, FeedCursor),
    /// Nothing yet: wait for a change.
    Wait,
    /// The feed has ended, for this reason.
    End(&'static str),
}

/// Counts the nodes on which a session is watched.
pub fn watchers(session: &SessionId, now: i64) -> Statement {
    Statement::new(
        "SELECT COUNT(*) FROM watchers WHERE session = $1 AND until > $2",
        [session.as_str().into(), now.into()],
    )
}

impl ViewFeeds {
    /// The feed of a session; starts one if nobody watches the session yet.
    pub fn of(&self, hub: &Arc<Hub>, framing: &ViewFraming) -> Arc<ViewFeed> {
        let mut feeds = self.feeds();
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let there = feeds.get(&framing.session).and_then(Weak::upgrade);
        // A feed that has ended is still held by browsers that have not noticed.
        if let Some(feed) = there.filter(|feed| feed.ring().end_reason.is_none()) {
            return feed;
        }
        let feed = Arc::new(ViewFeed {
            framing: framing.clone(),
            ring: Mutex::default(),
            changed: watch::Sender::new(0),
            dropped: CancellationToken::new(),
        });
        feeds.insert(framing.session.clone(), Arc::downgrade(&feed));
        let (weak, dropped, reading) = (Arc::downgrade(&feed), feed.dropped.clone(), Arc::clone(hub));
        let session = framing.session.clone();
        drop(
            hub.tasks.spawn(async move { Reader { hub: reading, session, feed: weak, dropped }.run().await }),
        );
        feed
    }

    /// The feed of a session, if it is watched on this node.
    pub fn watched(&self, session: &SessionId) -> Option<Arc<ViewFeed>> {
        self.feeds().get(session).and_then(Weak::upgrade)
    }

    /// Looks for changes whose notification was lost, with one query for many sessions.
    pub async fn poll(hub: &Hub) {
        loop {
            tokio::time::sleep(topics::jittered(POLL_ALL_EVERY)).await;
            let known: Vec<(SessionId, u64)> = {
                let feeds = hub.feeds.feeds();
                let feeds = feeds.values().filter_map(Weak::upgrade);
                feeds.map(|feed| (feed.framing.session.clone(), feed.ring().last)).collect()
            };
            for some in known.chunks(SESSIONS_AT_ONCE) {
                // Tried again in a moment.
                drop(hub.feeds.poll_some(hub, some).await);
            }
        }
    }

    async fn poll_some(&self, hub: &Hub, known: &[(SessionId, u64)]) -> Result<(), DbError> {
        let placeholders: Vec<_> = (1..=known.len()).map(|number| format!("${number}")).collect();
        let sql = format!(
            "SELECT session, view_number FROM mirrors WHERE session IN ({})",
            placeholders.join(", ")
        );
        let values: Vec<SqlValue> = known.iter().map(|(session, _)| session.as_str().into()).collect();
        let known: HashMap<&str, u64> =
            known.iter().map(|(session, last)| (session.as_str(), *last)).collect();
        for row in hub.rows(Statement::new(sql, values)).await? {
            let session = row.text(0)?;
            if known.get(session.as_ref()).is_some_and(|last| row.count(1).is_ok_and(|kept| kept != *last)) {
                hub.topics.tell(&topics::session(&session));
            }
        }
        Ok(())
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<SessionId, Weak<ViewFeed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ViewFeed {
    fn drop(&mut self) {
        self.dropped.cancel();
    }
}

impl ViewFeed {
    /// Adds a view if it is the next one. Otherwise the reader reads it from the database.
    pub fn put(&self, number: u64, view: &ViewEntry) {
        self.add(number, view.from.is_none(), view.upto, view.from, view.body.get());
    }

    fn add(&self, number: u64, snapshot: bool, upto: u64, from: Option<u64>, body: &str) {
        let mut ring = self.ring();
        let next = number == ring.last + 1 || (ring.views.is_empty() && snapshot && number > ring.last);
        if !ring.loaded || !next || ring.end_reason.is_some() {
            return;
        }
        let Some(frame) = self.framing.frame(upto, from, body) else { return };
        if snapshot {
            let last_snapshot = ring.views.iter().rev().find(|view| view.snapshot).map(|view| view.number);
            let keep = last_snapshot.unwrap_or(number);
            ring.views.retain(|view| view.number >= keep);
        }
        ring.views.push_back(FramedView { number, snapshot, upto, frame });
        ring.last = number;
        drop(ring);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Discards all views, because what was shown is no longer valid, and reads them again.
    pub fn reset(&self) {
        let mut ring = self.ring();
        let generation = ring.generation + 1;
        *ring =
            ViewRing { generation, began: ring.began, end_reason: ring.end_reason, ..ViewRing::default() };
        drop(ring);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Ends the feed for all browsers.
    fn end(&self, why: &'static str) {
        self.ring().end_reason = Some(why);
        self.changed.send_modify(|count| *count += 1);
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// For a browser that starts to watch.
    pub fn begin(&self, after: Option<u64>) -> FeedRead {
        let ring = self.ring();
        if let Some(why) = ring.end_reason {
            return FeedRead::End(why);
        }
        // Several views may lead to the same position. The first of them is found, so no view is missed.
        let known = after.and_then(|after| ring.views.iter().find(|view| view.upto == after));
        if let Some(known) = known {
            return ring.after(known.number);
        }
        let snapshot = ring.views.iter().rev().find(|view| view.snapshot);
        snapshot.map_or(FeedRead::Wait, |snapshot| ring.after(snapshot.number - 1))
    }

    pub fn after(&self, cursor: FeedCursor) -> FeedRead {
        let ring = self.ring();
        if let Some(why) = ring.end_reason {
            return FeedRead::End(why);
        }
        let first = ring.views.front().map_or(ring.last + 1, |first| first.number);
        let holds =
            cursor.generation == ring.generation && cursor.number + 1 >= first && cursor.number <= ring.last;
        if holds {
            return ring.after(cursor.number);
        }
        drop(ring);
        self.begin(None)
    }

    fn ring(&self) -> MutexGuard<'_, ViewRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewRing {
    fn after(&self, number: u64) -> FeedRead {
        let frames: Vec<_> =
            self.views.iter().filter(|view| view.number > number).map(|view| view.frame.clone()).collect();
        let cursor = FeedCursor { generation: self.generation, number: self.last.max(number) };
        FeedRead::Frames(frames, cursor)
    }
}

impl ViewFraming {
    /// The frame of a view. Its body was checked when it arrived: it has no member that would make it another frame.
    fn frame(&self, upto: u64, from: Option<u64>, body: &str) -> Option<Utf8Bytes> {
        if !self.sealed {
            let renamed = self.of.as_ref().map(|_| self.renamed(body));
            let body = renamed.as_ref().map_or(Some(body), Option::as_deref)?;
            let rest = body.strip_prefix('{')?;
            return Some(format!("{{\"on\":\"view\",{rest}").into());
        }
        let frame = HubNotification::SealedView {
            session: self.session.to_string(),
            machine: self.machine.as_deref().unwrap_or_default().to_owned(),
            from,
            upto,
            sealed: sealed(body)?,
            of: self.of.as_ref().map(ToString::to_string),
        };
        serde_json::to_string(&frame).ok().map(Utf8Bytes::from)
    }

    /// The body with the id of this session in place of the one that it is a branch of.
    fn renamed(&self, body: &str) -> Option<String> {
        let mut members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(body).ok()?;
        let session = to_raw_value(self.session.as_str()).ok()?;
        members.insert("session".into(), &session);
        serde_json::to_string(&members).ok()
    }
}

/// The contents of a sealed body.
pub fn sealed(body: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct SealedBody {
        sealed: String,
    }
    serde_json::from_str::<SealedBody>(body).ok().map(|body| body.sealed)
}

/// Reads a session's views while the session is watched.
struct Reader {
    hub: Arc<Hub>,
    session: SessionId,
    feed: Weak<ViewFeed>,
    dropped: CancellationToken,
}

impl Reader {
    async fn run(self) {
        let mut wakeups = self.hub.topics.listen(&topics::session(self.session.as_str()));
        self.set_watched(true).await;
        let reading = async {
            loop {
                wakeups.mark_unchanged();
                // A failed read is tried again next time.
                if let Ok(true) = self.read().await {
                    continue;
                }
                topics::wait_or_timeout(&mut wakeups, POLL_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = self.hub.stop.cancelled() => {}
            () = self.dropped.cancelled() => {}
            () = reading => {}
        }
        self.set_watched(false).await;
    }

    /// Reads a page. Returns whether there may be more.
    async fn read(&self) -> Result<bool, DbError> {
        let Some(feed) = self.feed.upgrade() else { return Ok(false) };
        let (last, loaded) = {
            let ring = feed.ring();
            (ring.last, ring.loaded)
        };
        let session: SqlValue = self.session.as_str().into();
        let there = Statement::new(
            "SELECT view_number, created_at, sealed FROM mirrors WHERE session = $1",
            [session.clone()],
        );
        let views = Statement::new(
            "SELECT number, continues, upto, body FROM views WHERE session = $1 AND number > $2
             AND number >= (SELECT CASE WHEN snapshot_before > 0 THEN snapshot_before ELSE snapshot END
                            FROM mirrors WHERE session = $1)
             ORDER BY number LIMIT $3",
            [session, last.into(), PAGE.into()],
        );
        let found = self.hub.run(vec![there, views], Vec::new()).await?;
        let [there, views] = found.as_slice() else { return Ok(false) };
        let Some(mirror) = there.rows.first() else {
            feed.end("this session was forgotten at the hub");
            return Ok(false);
        };
        let (kept, began) = (mirror.count(0)?, (mirror.int(1)?, mirror.int(2)? != 0));
        let before = feed.ring().began.unwrap_or((began.0, feed.framing.sealed));
        if began != before {
            feed.end("this session was restarted at the hub; open it again");
            return Ok(false);
        }
        {
            let mut ring = feed.ring();
            ring.loaded = true;
            ring.began = Some(began);
            // The following views were deleted meanwhile: continue with the next snapshot.
            let first = views.rows.first().map(|row| row.count(0)).transpose()?;
            if loaded && first.is_some_and(|first| first > ring.last + 1) {
                ring.views.clear();
                ring.generation += 1;
                ring.last = first.unwrap_or(1) - 1;
            } else if ring.views.is_empty() {
                ring.last = first.map_or(ring.last, |first| first - 1);
            }
        }
        for row in &views.rows {
            let from = row.maybe_int(1)?.map(i64::unsigned_abs);
            feed.add(row.count(0)?, from.is_none(), row.count(2)?, from, &row.text(3)?);
        }
        if !loaded {
            feed.changed.send_modify(|count| *count += 1);
        }
        Ok(views.rows.len() as u64 == PAGE && kept > last)
    }

    /// Tells the node that has the session's socket whether the session is watched here.
    async fn set_watched(&self, watched: bool) {
        let (session, node): (SqlValue, SqlValue) =
            (self.session.as_str().into(), self.hub.node.as_str().into());
        let until = self.hub.now().0 + WATCH_MS;
        let statement = if watched {
            Statement::new(
                "INSERT INTO watchers (session, node, until) VALUES ($1, $2, $3)
                 ON CONFLICT (session, node) DO UPDATE SET until = excluded.until",
                [session, node, until.into()],
            )
        } else if self.hub.feeds.watched(&self.session).is_some() {
            // Another browser started a new feed meanwhile, which has written its own entry.
            return;
        } else {
            Statement::new("DELETE FROM watchers WHERE session = $1 AND node = $2", [session, node])
        };
        let topic = topics::watched(self.session.as_str());
        // A connection on this node checks for itself.
        drop(self.hub.run(vec![statement], vec![topic]).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed() -> ViewFeed {
        let session = SessionId::parse("s").unwrap();
        let framing = ViewFraming { session, machine: None, sealed: false, of: None };
        let ring = Mutex::new(ViewRing { loaded: true, ..ViewRing::default() });
        ViewFeed { framing, ring, changed: watch::Sender::new(0), dropped: CancellationToken::new() }
    }

    fn fill(feed: &ViewFeed, views: &[(u64, bool, u64)]) {
        for (number, snapshot, upto) in views {
            feed.add(*number, *snapshot, *upto, (!snapshot).then_some(0), &format!("{{\"upto\":{upto}}}"));
        }
    }

    fn frames_of(more: FeedRead) -> (Vec<String>, Option<FeedCursor>) {
        match more {
            FeedRead::Frames(frames, cursor) => {
                let upto = |frame: &Utf8Bytes| {
                    frame.as_str().replace("{\"on\":\"view\",\"upto\":", "").replace('}', "")
                };
                (frames.iter().map(upto).collect(), Some(cursor))
            }
            FeedRead::Wait => (vec!["wait".into()], None),
            FeedRead::End(_) => (vec!["gone".into()], None),
        }
    }

    #[test]
    fn who_comes_back_gets_what_follows_and_who_is_new_begins_with_a_whole_one() {
        let feed = feed();
        assert_eq!(frames_of(feed.begin(None)).0, ["wait"]);
        fill(&feed, &[(1, true, 5), (2, false, 5), (3, false, 9), (4, true, 9), (5, false, 12)]);
        assert_eq!(frames_of(feed.begin(None)).0, ["9", "12"]);
        assert_eq!(frames_of(feed.begin(Some(5))).0, ["5", "9", "9", "12"]);
        assert_eq!(frames_of(feed.begin(Some(9))).0, ["9", "12"]);
        assert_eq!(frames_of(feed.begin(Some(12))).0, Vec::<String>::new());
        assert_eq!(frames_of(feed.begin(Some(7))).0, ["9", "12"]);
        let (_, cursor) = frames_of(feed.begin(None));
        fill(&feed, &[(6, false, 13)]);
        assert_eq!(frames_of(feed.after(cursor.unwrap())).0, ["13"]);
    }

    #[test]
    fn what_is_not_the_next_is_not_shown() {
        let feed = feed();
        fill(&feed, &[(3, true, 5), (3, true, 5), (5, false, 9), (2, false, 4)]);
        assert_eq!(frames_of(feed.begin(None)).0, ["5"]);
    }

    #[test]
    fn only_the_last_two_that_stand_for_themselves_and_what_follows_are_held() {
        let feed = feed();
        fill(&feed, &[(1, true, 1), (2, false, 2), (3, true, 3), (4, false, 4), (5, true, 5)]);
        assert_eq!(feed.ring().views.iter().map(|view| view.number).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn after_it_was_forgotten_everybody_begins_anew() {
        let feed = feed();
        fill(&feed, &[(1, true, 1), (2, false, 2)]);
        let (_, cursor) = frames_of(feed.begin(None));
        feed.reset();
        feed.ring().loaded = true;
        fill(&feed, &[(1, true, 1), (2, false, 3)]);
        assert_eq!(frames_of(feed.after(cursor.unwrap())).0, ["1", "3"]);
    }
}
