//! One reader for each session that somebody at this node looks at, however many do.
//!
//! It has the views since the last but one that stands for itself, each as the frame that browsers get. Who looks is a
//! number in them, takes what comes after it, and costs nothing when it is slow. Who comes back names the position that a
//! view led to, and gets what follows; who names none, or one that is not known, begins with a view that stands for
//! itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use engine::SessionId;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use store::sql::{DbError, Statement, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::hub::HubTold;
use wire::tunnel::ViewEntry;

use crate::hub::{Hub, WATCH_MS};
use crate::topics;

/// News of all sessions that are looked at are looked for untold this often, and those of each this often.
const LOOK_ALL_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Sessions of one question.
const SESSIONS_AT_ONCE: usize = 200;
/// Views that are read at once.
const PAGE: u64 = 128;

#[derive(Default)]
pub struct Feeds(Mutex<HashMap<SessionId, Weak<Feed>>>);

/// What is needed to make frames of a session's views.
#[derive(Debug, Clone)]
pub struct Shape {
    pub session: SessionId,
    pub machine: Option<Arc<str>>,
    pub sealed: bool,
    /// The session that its views were made for, if they are what is kept of another.
    pub of: Option<Arc<str>>,
}

pub struct Feed {
    shape: Shape,
    ring: Mutex<Ring>,
    changed: watch::Sender<u64>,
    over: CancellationToken,
}

#[derive(Default)]
struct Ring {
    /// Goes up when what was shown does not hold any more.
    generation: u64,
    views: VecDeque<Shown>,
    last: u64,
    /// Its first look is done.
    looked: bool,
    /// When the mirror was made, and whether it is sealed: another one of the same id is no continuation.
    began: Option<(i64, bool)>,
    /// Why nothing more comes.
    gone: Option<&'static str>,
}

struct Shown {
    number: u64,
    whole: bool,
    upto: u64,
    frame: Utf8Bytes,
}

/// Where somebody who looks has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    generation: u64,
    number: u64,
}

/// What there is for somebody who looks.
pub enum More {
    Frames(Vec<Utf8Bytes>, Spot),
    /// Nothing yet.
    Wait,
    /// Nothing more, and why.
    Gone(&'static str),
}

/// Counts the nodes at which somebody looks at a session.
pub fn watchers(session: &SessionId, now: i64) -> Statement {
    Statement::new(
        "SELECT COUNT(*) FROM watchers WHERE session = $1 AND until > $2",
        [session.as_str().into(), now.into()],
    )
}

impl Feeds {
    /// The feed of a session, begun if nobody looks at it yet.
    pub fn of(&self, hub: &Arc<Hub>, shape: &Shape) -> Arc<Feed> {
        let mut feeds = self.feeds();
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let there = feeds.get(&shape.session).and_then(Weak::upgrade);
        // One that is over is still held by who has not heard of it.
        if let Some(feed) = there.filter(|feed| feed.ring().gone.is_none()) {
            return feed;
        }
        let feed = Arc::new(Feed {
            shape: shape.clone(),
            ring: Mutex::default(),
            changed: watch::Sender::new(0),
            over: CancellationToken::new(),
        });
        feeds.insert(shape.session.clone(), Arc::downgrade(&feed));
        let (weak, over, reading) = (Arc::downgrade(&feed), feed.over.clone(), Arc::clone(hub));
        let session = shape.session.clone();
        drop(hub.tasks.spawn(async move { Reader { hub: reading, session, feed: weak, over }.run().await }));
        feed
    }

    /// The feed of a session that somebody looks at.
    pub fn watched(&self, session: &SessionId) -> Option<Arc<Feed>> {
        self.feeds().get(session).and_then(Weak::upgrade)
    }

    /// Looks for what nobody told, with one question for many sessions.
    pub async fn look(hub: &Hub) {
        loop {
            tokio::time::sleep(topics::about(LOOK_ALL_EVERY)).await;
            let shown: Vec<(SessionId, u64)> = {
                let feeds = hub.feeds.feeds();
                let feeds = feeds.values().filter_map(Weak::upgrade);
                feeds.map(|feed| (feed.shape.session.clone(), feed.ring().last)).collect()
            };
            for some in shown.chunks(SESSIONS_AT_ONCE) {
                // Looked for again in a moment.
                drop(hub.feeds.look_at(hub, some).await);
            }
        }
    }

    async fn look_at(&self, hub: &Hub, shown: &[(SessionId, u64)]) -> Result<(), DbError> {
        let places: Vec<_> = (1..=shown.len()).map(|number| format!("${number}")).collect();
        let sql =
            format!("SELECT session, view_number FROM mirrors WHERE session IN ({})", places.join(", "));
        let values: Vec<Value> = shown.iter().map(|(session, _)| session.as_str().into()).collect();
        let shown: HashMap<&str, u64> =
            shown.iter().map(|(session, last)| (session.as_str(), *last)).collect();
        for row in hub.rows(Statement::new(sql, values)).await? {
            let session = row.text(0)?;
            if shown.get(session.as_ref()).is_some_and(|last| row.count(1).is_ok_and(|kept| kept != *last)) {
                hub.topics.tell(&topics::session(&session));
            }
        }
        Ok(())
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<SessionId, Weak<Feed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Feed {
    /// One more view, if it is the next. What is not is read when it is come to.
    pub fn put(&self, number: u64, view: &ViewEntry) {
        self.add(number, view.from.is_none(), view.upto, view.from, view.body.get());
    }

    fn add(&self, number: u64, whole: bool, upto: u64, from: Option<u64>, body: &str) {
        let mut ring = self.ring();
        let next = number == ring.last + 1 || (ring.views.is_empty() && whole && number > ring.last);
        if !ring.looked || !next || ring.gone.is_some() {
            return;
        }
        let Some(frame) = self.shape.frame(upto, from, body) else { return };
        if whole {
            let last_whole = ring.views.iter().rev().find(|shown| shown.whole).map(|shown| shown.number);
            let keep = last_whole.unwrap_or(number);
            ring.views.retain(|shown| shown.number >= keep);
        }
        ring.views.push_back(Shown { number, whole, upto, frame });
        ring.last = number;
        drop(ring);
        self.changed.send_modify(|count| *count += 1);
    }

    /// What was shown does not hold any more: it is read anew.
    pub fn forget(&self) {
        let mut ring = self.ring();
        let generation = ring.generation + 1;
        *ring = Ring { generation, began: ring.began, gone: ring.gone, ..Ring::default() };
        drop(ring);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Who looks is told that nothing more comes here.
    fn end(&self, why: &'static str) {
        self.ring().gone = Some(why);
        self.changed.send_modify(|count| *count += 1);
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// For somebody who begins to look.
    pub fn begin(&self, after: Option<u64>) -> More {
        let ring = self.ring();
        if let Some(why) = ring.gone {
            return More::Gone(why);
        }
        // More than one view may lead to the same position: what is told again then is told whole.
        let known = after.and_then(|after| ring.views.iter().find(|shown| shown.upto == after));
        if let Some(known) = known {
            return ring.after(known.number);
        }
        let whole = ring.views.iter().rev().find(|shown| shown.whole);
        whole.map_or(More::Wait, |whole| ring.after(whole.number - 1))
    }

    pub fn after(&self, spot: Spot) -> More {
        let ring = self.ring();
        if let Some(why) = ring.gone {
            return More::Gone(why);
        }
        let first = ring.views.front().map_or(ring.last + 1, |first| first.number);
        let holds =
            spot.generation == ring.generation && spot.number + 1 >= first && spot.number <= ring.last;
        if holds {
            return ring.after(spot.number);
        }
        drop(ring);
        self.begin(None)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn after(&self, number: u64) -> More {
        let frames: Vec<_> = self
            .views
            .iter()
            .filter(|shown| shown.number > number)
            .map(|shown| shown.frame.clone())
            .collect();
        let spot = Spot { generation: self.generation, number: self.last.max(number) };
        More::Frames(frames, spot)
    }
}

impl Shape {
    /// A view was looked at when it came: it has no member that could make it another frame.
    fn frame(&self, upto: u64, from: Option<u64>, body: &str) -> Option<Utf8Bytes> {
        if !self.sealed {
            let renamed = self.of.as_ref().map(|_| self.renamed(body));
            let body = renamed.as_ref().map_or(Some(body), Option::as_deref)?;
            let rest = body.strip_prefix('{')?;
            return Some(format!("{{\"on\":\"view\",{rest}").into());
        }
        let told = HubTold::SealedView {
            session: self.session.to_string(),
            machine: self.machine.as_deref().unwrap_or_default().to_owned(),
            from,
            upto,
            sealed: sealed(body)?,
            of: self.of.as_ref().map(ToString::to_string),
        };
        serde_json::to_string(&told).ok().map(Utf8Bytes::from)
    }

    /// A view says whose it is.
    fn renamed(&self, body: &str) -> Option<String> {
        let mut members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(body).ok()?;
        let session = to_raw_value(self.session.as_str()).ok()?;
        members.insert("session".into(), &session);
        serde_json::to_string(&members).ok()
    }
}

/// What stands in a sealed body.
pub fn sealed(body: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Sealed {
        sealed: String,
    }
    serde_json::from_str::<Sealed>(body).ok().map(|body| body.sealed)
}

/// Reads a session's views for as long as somebody looks.
struct Reader {
    hub: Arc<Hub>,
    session: SessionId,
    feed: Weak<Feed>,
    over: CancellationToken,
}

impl Reader {
    async fn run(self) {
        let mut ear = self.hub.topics.listen(&topics::session(self.session.as_str()));
        self.say(true).await;
        let reading = async {
            loop {
                ear.mark_unchanged();
                // What could not be read is read the next time.
                if let Ok(true) = self.read().await {
                    continue;
                }
                topics::heard_or(&mut ear, LOOK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = self.hub.stop.cancelled() => {}
            () = self.over.cancelled() => {}
            () = reading => {}
        }
        self.say(false).await;
    }

    /// Whether there may be more.
    async fn read(&self) -> Result<bool, DbError> {
        let Some(feed) = self.feed.upgrade() else { return Ok(false) };
        let (last, looked) = {
            let ring = feed.ring();
            (ring.last, ring.looked)
        };
        let session: Value = self.session.as_str().into();
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
        let before = feed.ring().began.unwrap_or((began.0, feed.shape.sealed));
        if began != before {
            feed.end("this session began anew at the hub; open it again");
            return Ok(false);
        }
        {
            let mut ring = feed.ring();
            ring.looked = true;
            ring.began = Some(began);
            // Views that follow were forgotten while nobody told us: begin with the next whole one.
            let first = views.rows.first().map(|row| row.count(0)).transpose()?;
            if looked && first.is_some_and(|first| first > ring.last + 1) {
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
        if !looked {
            feed.changed.send_modify(|count| *count += 1);
        }
        Ok(views.rows.len() as u64 == PAGE && kept > last)
    }

    /// Says to whoever holds the session's socket that somebody looks, or nobody any more.
    async fn say(&self, watched: bool) {
        let (session, node): (Value, Value) = (self.session.as_str().into(), self.hub.node.as_str().into());
        let until = self.hub.now().0 + WATCH_MS;
        let statement = if watched {
            Statement::new(
                "INSERT INTO watchers (session, node, until) VALUES ($1, $2, $3)
                 ON CONFLICT (session, node) DO UPDATE SET until = excluded.until",
                [session, node, until.into()],
            )
        } else if self.hub.feeds.watched(&self.session).is_some() {
            // Somebody else came in the meantime, and has said so.
            return;
        } else {
            Statement::new("DELETE FROM watchers WHERE session = $1 AND node = $2", [session, node])
        };
        let topic = topics::watched(self.session.as_str());
        // A socket of this very node looks by itself.
        drop(self.hub.run(vec![statement], vec![topic]).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed() -> Feed {
        let session = SessionId::parse("s").unwrap();
        let shape = Shape { session, machine: None, sealed: false, of: None };
        let ring = Mutex::new(Ring { looked: true, ..Ring::default() });
        Feed { shape, ring, changed: watch::Sender::new(0), over: CancellationToken::new() }
    }

    fn fill(feed: &Feed, views: &[(u64, bool, u64)]) {
        for (number, whole, upto) in views {
            feed.add(*number, *whole, *upto, (!whole).then_some(0), &format!("{{\"upto\":{upto}}}"));
        }
    }

    fn told(more: More) -> (Vec<String>, Option<Spot>) {
        match more {
            More::Frames(frames, spot) => {
                let upto = |frame: &Utf8Bytes| {
                    frame.as_str().replace("{\"on\":\"view\",\"upto\":", "").replace('}', "")
                };
                (frames.iter().map(upto).collect(), Some(spot))
            }
            More::Wait => (vec!["wait".into()], None),
            More::Gone(_) => (vec!["gone".into()], None),
        }
    }

    #[test]
    fn who_comes_back_gets_what_follows_and_who_is_new_begins_with_a_whole_one() {
        let feed = feed();
        assert_eq!(told(feed.begin(None)).0, ["wait"]);
        fill(&feed, &[(1, true, 5), (2, false, 5), (3, false, 9), (4, true, 9), (5, false, 12)]);
        assert_eq!(told(feed.begin(None)).0, ["9", "12"]);
        assert_eq!(told(feed.begin(Some(5))).0, ["5", "9", "9", "12"]);
        assert_eq!(told(feed.begin(Some(9))).0, ["9", "12"]);
        assert_eq!(told(feed.begin(Some(12))).0, Vec::<String>::new());
        assert_eq!(told(feed.begin(Some(7))).0, ["9", "12"]);
        let (_, spot) = told(feed.begin(None));
        fill(&feed, &[(6, false, 13)]);
        assert_eq!(told(feed.after(spot.unwrap())).0, ["13"]);
    }

    #[test]
    fn what_is_not_the_next_is_not_shown() {
        let feed = feed();
        fill(&feed, &[(3, true, 5), (3, true, 5), (5, false, 9), (2, false, 4)]);
        assert_eq!(told(feed.begin(None)).0, ["5"]);
    }

    #[test]
    fn only_the_last_two_that_stand_for_themselves_and_what_follows_are_held() {
        let feed = feed();
        fill(&feed, &[(1, true, 1), (2, false, 2), (3, true, 3), (4, false, 4), (5, true, 5)]);
        assert_eq!(feed.ring().views.iter().map(|shown| shown.number).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn after_it_was_forgotten_everybody_begins_anew() {
        let feed = feed();
        fill(&feed, &[(1, true, 1), (2, false, 2)]);
        let (_, spot) = told(feed.begin(None));
        feed.forget();
        feed.ring().looked = true;
        fill(&feed, &[(1, true, 1), (2, false, 3)]);
        assert_eq!(told(feed.after(spot.unwrap())).0, ["1", "3"]);
    }
}
