//! The socket of a bridged session: what comes is kept, and what is kept is acknowledged.
//!
//! While the database is away nothing is acknowledged. What came waits in line, what people of this node look at is
//! shown to them at once, and when the line is too long it is dropped: the bridge is then told to come back, and goes on
//! from where the mirror ends.
//!
//! A bridge whose log is another one than what is mirrored says so before anything else (`branching`).

pub mod branching;
mod keeping;
pub mod taking;

use std::sync::Arc;
use std::time::Duration;

use access::websocket::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
use engine::SessionId;
use store::sql::{DbError, Found};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::json;
use wire::tunnel::{Ack, Before, Branch, Down, Ready, Up, Watched};

use crate::audit::Note;
use crate::feed::Feed;
use crate::guest::PersonId;
use crate::hub::Hub;
use crate::metrics::Counted;
use crate::socket::{Go, Pipe};
use crate::topics::{self, Ear};
use keeping::{Copied, Owner};
use taking::{DELTA_BYTES_MAX, LINE_BYTES_MAX, Place, Refused, Taking};

/// Batches that are kept together, when they wait.
const TOGETHER_MAX: usize = 32;
/// Between two tries while the database is away.
const RETRY: Duration = Duration::from_secs(1);
/// Whether somebody looks is looked at untold this often.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Whether somebody looks is said again after this long: an answer to a poll may be lost, and whoever missed it would
/// go on slowly for ever.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Who has a copy of a log whose owner lives.
const TWO_WRITERS: &str =
    "another running machine writes this session, with a copy of the same state; stop one of the two";

/// A session that this node holds the socket of.
pub struct Attachment {
    hub: Arc<Hub>,
    session: SessionId,
    person: PersonId,
    epoch: u64,
    kept: Place,
    /// Until the first batch.
    copied: Option<Copied>,
    sealed: bool,
    taking: Taking,
    watched: bool,
    /// When that was last said.
    watched_said: Instant,
    /// A view that stands for itself was asked for.
    asked_anew: bool,
    /// When to try again, while the database is away.
    retry_at: Option<Instant>,
    /// Views up to this number were shown although they are not kept.
    shown: u64,
    /// The line was too long, and was dropped.
    lost: bool,
    /// Since when something is in line.
    since: Option<Instant>,
}

/// Why it ended, as the bridge is told.
type Over = (u16, String);

enum Wake {
    Over(u16, &'static str),
    Frame(axum::extract::ws::Utf8Bytes),
    Hung,
    Watched,
    Retry,
}

impl Attachment {
    /// Takes the session. Whoever held it before is fenced off.
    pub async fn attach(
        hub: &Arc<Hub>,
        session: SessionId,
        person: PersonId,
    ) -> Result<Option<Self>, DbError> {
        let owner = Owner { session: &session, person: &person, node: &hub.node, now: hub.now().0 };
        let news = vec![topics::person(&person.0)];
        let found = match hub.run(keeping::attach(&owner), news).await {
            Ok(found) => found,
            Err(DbError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let row = |at: usize| found.get(at).and_then(|found: &Found| found.rows.first());
        let (Some(log), Some(mirror)) = (row(0), row(2)) else { return Ok(None) };
        let kept = keeping::place(mirror, log.count(1)?, 0)?;
        let sealed = mirror.int(5)? != 0;
        Ok(Some(Self {
            hub: Arc::clone(hub),
            copied: Some(Copied::read(mirror, kept.head)?),
            sealed,
            taking: Taking::new(session.as_str(), sealed, kept),
            epoch: log.count(0)?,
            session,
            person,
            kept,
            watched: false,
            watched_said: Instant::now(),
            asked_anew: false,
            retry_at: None,
            shown: 0,
            lost: false,
            since: None,
        }))
    }

    /// Serves the bridge until it hangs up, is not welcome any more, or sends what cannot be taken.
    pub async fn run(mut self, mut pipe: Pipe, ended: CancellationToken) {
        let _counted = Counted::new(&self.hub.metrics.bridges);
        let (code, reason) = self.serve(&mut pipe, &ended).await;
        // A bridge that hung up hears nothing more.
        drop(pipe.go.send(Go::Close(code, reason)).await);
        if self.shown > self.kept.view_number {
            // What was shown may be numbered otherwise by whoever goes on.
            self.feed().inspect(|feed| feed.forget());
        }
        let detach = keeping::detach(&self.session, self.epoch, self.hub.now().0);
        self.hub.take_leave(vec![detach], topics::person(&self.person.0)).await;
    }

    async fn serve(&mut self, pipe: &mut Pipe, ended: &CancellationToken) -> Over {
        let mut ear = self.hub.topics.listen(&topics::watched(self.session.as_str()));
        self.watched = self.is_watched().await.unwrap_or(false);
        if self.say_ready(pipe).await.is_err() {
            return (NORMAL, String::new());
        }
        loop {
            let over = match self.next(pipe, ended, &mut ear).await {
                Wake::Over(code, reason) => Err((code, reason.to_owned())),
                Wake::Hung => {
                    // The last words are worth one try.
                    drop(self.keep(pipe).await);
                    Err((NORMAL, String::new()))
                }
                Wake::Frame(text) => self.frames(pipe, &text).await,
                Wake::Watched => self.tell_watched(pipe).await,
                Wake::Retry => {
                    self.retry_at = None;
                    Ok(())
                }
            };
            let over = match over {
                Ok(()) if self.retry_at.is_none() => self.keep(pipe).await,
                other => other,
            };
            if let Err(over) = over {
                return over;
            }
        }
    }

    async fn say_ready(&mut self, pipe: &Pipe) -> Result<(), Over> {
        let Copied { mark, lineage, before } = self.copied.clone().unwrap_or_default();
        let (events, view, watched) = (self.kept.head, self.kept.continues(), self.watched);
        self.asked_anew = view.is_none();
        let ready = Ready { events, view, watched, branches: true, mark, lineage, before };
        self.say(pipe, &Down::Ready(ready)).await
    }

    async fn next(&self, pipe: &mut Pipe, ended: &CancellationToken, ear: &mut Ear) -> Wake {
        let retry = async {
            match self.retry_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.hub.stop.cancelled() => Wake::Over(GOING_AWAY, "this node of the hub is stopping; come back"),
            () = ended.cancelled() => Wake::Over(NOT_WELCOME, "this token is not good any more"),
            () = retry => Wake::Retry,
            frame = pipe.came.recv() => frame.map_or(Wake::Hung, Wake::Frame),
            () = topics::heard_or(ear, LOOK_EVERY) => Wake::Watched,
        }
    }

    /// Takes a frame, and whatever waits behind it.
    async fn frames(&mut self, pipe: &mut Pipe, first: &str) -> Result<(), Over> {
        if let Some(branch) = self.frame(first)? {
            return self.branch(pipe, branch).await;
        }
        for _ in 1..TOGETHER_MAX {
            if self.taking.line.bytes > LINE_BYTES_MAX / 2 {
                break;
            }
            let Ok(next) = pipe.came.try_recv() else { break };
            // Refused, behind a batch.
            drop(self.frame(&next)?);
        }
        if self.retry_at.is_none() && self.taking.line.is_empty() {
            // Everything of it is kept already.
            let ack = Ack { events: self.kept.head, view: self.kept.view_upto };
            self.say(pipe, &Down::Ack(ack)).await?;
        }
        if self.retry_at.is_some() {
            self.show();
            if self.taking.line.bytes > LINE_BYTES_MAX {
                self.lost = true;
            }
            if self.lost {
                self.taking.line = taking::Line::default();
            }
        }
        Ok(())
    }

    /// Puts a batch in line; a branch is for who asks.
    fn frame(&mut self, text: &str) -> Result<Option<Branch>, Over> {
        let taken = match json::read(text, "the frame") {
            Ok(Up::Batch(batch)) => {
                self.copied = None;
                self.taking.take(batch).map(|()| None)
            }
            Ok(Up::Branch(branch)) if self.copied.is_some() => {
                taking::checked(branch.source).map(|source| Some(Branch { source }))
            }
            Ok(Up::Branch(_)) => Err(Refused::Unreadable("a branch comes before the first batch".into())),
            Ok(Up::Machine(_) | Up::Keys(_) | Up::Answer(_)) => {
                Err(Refused::Unreadable("it belongs on the machine's socket".into()))
            }
            Err(error) => Err(Refused::Unreadable(error.to_string())),
        };
        self.since.get_or_insert_with(Instant::now);
        taken.map_err(|refused| {
            tracing::info!(session = %self.session, %refused, "a bridge was cut off");
            self.hub.metrics.hostile.inc();
            let code = if matches!(refused, Refused::Gap(_)) { COME_BACK } else { NOT_WELCOME };
            (code, refused.to_string())
        })
    }

    /// What is mirrored becomes a session of its own, and the mirror begins anew.
    async fn branch(&mut self, pipe: &Pipe, Branch { source }: Branch) -> Result<(), Over> {
        if self.kept.head == 0 {
            return self.say_ready(pipe).await;
        }
        let come_back = |why: String| Err((COME_BACK, why));
        let (hub, session, now) = (Arc::clone(&self.hub), self.session.clone(), self.hub.now());
        let away = "the hub's database is away; come back to branch the session off";
        let look = branching::look(&session, &self.person, hub.listed_since());
        let Ok(found) = hub.run(look, Vec::new()).await else { return come_back(away.into()) };
        let row = |at: usize| found.get(at).and_then(|found| found.rows.first());
        let (Some(card), Some(branches), Some(listed)) = (row(0), row(1), row(2)) else {
            return Err((NOT_WELCOME, "this session was forgotten at the hub".into()));
        };
        if !branching::has_room(branches, listed).unwrap_or(false) {
            return come_back(
                "the hub keeps too many sessions of yours to keep one more; delete some".into(),
            );
        }
        let kept = branching::name(&session, now.0);
        let asked = kept.as_ref().and_then(|kept| {
            let card = branching::kept_card(card, &session, kept, now.0).ok()?;
            let (epoch, mirrored, source) = (self.epoch, &self.kept, &source);
            Some(branching::Asked { session: &session, epoch, mirrored, source, kept, card, now: now.0 })
        });
        let (Some(kept), Some(asked)) = (&kept, asked) else {
            return come_back("the hub cannot name what it keeps; its log says why".into());
        };
        let mut work = branching::branch(asked);
        let note = Note::new("session.branched", Some(&self.person.0)).about(format!("{session} {kept}"));
        work.push(note.statement(now, Some(hub.node.as_str())));
        let news = vec![topics::person(&self.person.0), topics::session(session.as_str())];
        match hub.run(work, news).await {
            Ok(_) => self.begin_anew(pipe, kept).await,
            Err(DbError::Refused { statement: 1 }) => come_back(TWO_WRITERS.into()),
            Err(DbError::Refused { .. }) => come_back("another bridge has taken this session over".into()),
            Err(DbError::Unavailable { .. } | DbError::Failed { .. }) => come_back(away.into()),
        }
    }

    async fn begin_anew(&mut self, pipe: &Pipe, kept: &SessionId) -> Result<(), Over> {
        tracing::info!(session = %self.session, %kept, "a machine's state was put back; what was mirrored is kept");
        let before = Before { session: kept.to_string(), events: self.kept.head };
        // Views are numbered on, so that whoever looks is shown the first new one after the last old one.
        self.kept = Place { view_number: self.kept.view_number, ..Place::default() };
        self.taking = Taking::new(self.session.as_str(), self.sealed, self.kept);
        self.copied = Some(Copied { before: Some(before), ..Copied::default() });
        self.since = None;
        self.say_ready(pipe).await
    }

    /// Keeps what is in line, and says so.
    async fn keep(&mut self, pipe: &Pipe) -> Result<(), Over> {
        if self.lost {
            return self.is_back().await;
        }
        if self.taking.line.is_empty() {
            return self.ask_anew(pipe).await;
        }
        let (hub, line) = (&self.hub, &self.taking.line);
        let next = self.taking.next;
        let work = keeping::keep(&self.session, self.epoch, &self.kept, &next, line, hub.now().0);
        let mut news = vec![topics::session(self.session.as_str())];
        news.extend(line.card.as_ref().map(|_| topics::person(&self.person.0)));
        match hub.run(work, news).await {
            Ok(_) => self.was_kept(pipe).await,
            Err(DbError::Refused { statement: 0 }) => self.found_otherwise(pipe).await,
            Err(DbError::Refused { .. }) => {
                Err((NOT_WELCOME, "this session was forgotten at the hub".into()))
            }
            Err(DbError::Unavailable { .. }) => {
                self.retry_at = Some(Instant::now() + topics::about(RETRY));
                self.show();
                Ok(())
            }
            Err(DbError::Failed { .. }) => {
                Err((COME_BACK, "the hub's database refused; its log says why".into()))
            }
        }
    }

    async fn was_kept(&mut self, pipe: &Pipe) -> Result<(), Over> {
        let line = std::mem::take(&mut self.taking.line);
        let metrics = &self.hub.metrics;
        metrics.events.inc_by(line.events.len() as u64);
        metrics.event_bytes.inc_by(line.events.iter().map(|entry| entry.body.len() as u64).sum());
        metrics.views.inc_by(line.views.len() as u64);
        if let Some(since) = self.since.take() {
            metrics.lag_seconds.observe(since.elapsed().as_secs_f64());
        }
        self.kept = self.taking.next;
        if let Some(feed) = self.feed() {
            line.views.iter().for_each(|view| feed.put(view.number, &view.view));
        }
        if let Some(card) = &line.card {
            let news = self.hub.door.news(&self.session, self.kept.head, card);
            if !news.is_empty() {
                let (hub, person, session) =
                    (Arc::clone(&self.hub), self.person.clone(), self.session.clone());
                self.hub.start(async move { hub.door.tell(&person, &session, news).await });
            }
        }
        let ack = Ack { events: self.kept.head, view: self.kept.view_upto };
        self.say(pipe, &Down::Ack(ack)).await?;
        self.ask_anew(pipe).await
    }

    /// Either somebody else has the session, or the last try was done and not known to be.
    async fn found_otherwise(&mut self, pipe: &Pipe) -> Result<(), Over> {
        let found = self.hub.rows(keeping::look(&self.session)).await;
        let Ok(rows) = found else {
            self.retry_at = Some(Instant::now() + topics::about(RETRY));
            return Ok(());
        };
        let read =
            |row: &store::sql::Row| Ok::<_, DbError>((keeping::place(row, row.count(0)?, 1)?, row.count(6)?));
        match rows.first().map(read) {
            Some(Ok((kept, epoch))) if epoch == self.epoch && kept != self.kept => {
                self.taking.found(&kept);
                self.kept = kept;
                self.retry_at = Some(Instant::now());
                let ack = Ack { events: kept.head, view: kept.view_upto };
                self.say(pipe, &Down::Ack(ack)).await
            }
            Some(Ok(_)) => Err((COME_BACK, "another bridge has taken this session over".into())),
            Some(Err(_)) | None => Err((NOT_WELCOME, "this session was forgotten at the hub".into())),
        }
    }

    /// After the line was dropped: the bridge comes back when it can be kept again.
    async fn is_back(&mut self) -> Result<(), Over> {
        match self.hub.rows(keeping::look(&self.session)).await {
            Ok(_) => Err((COME_BACK, "the hub's database was away; come back to go on".into())),
            Err(_) => {
                self.retry_at = Some(Instant::now() + topics::about(RETRY));
                Ok(())
            }
        }
    }

    /// Shows what is in line to who looks here.
    fn show(&mut self) {
        let Some(feed) = self.feed() else { return };
        for view in self.taking.line.views.iter().filter(|view| view.number > self.shown) {
            feed.put(view.number, &view.view);
        }
        self.shown = self.taking.next.view_number;
    }

    fn feed(&self) -> Option<Arc<Feed>> {
        self.hub.feeds.watched(&self.session)
    }

    /// Asks for a view that stands for itself, when there is none or too much came after the last.
    async fn ask_anew(&mut self, pipe: &Pipe) -> Result<(), Over> {
        let next = &self.taking.next;
        let needed = self.taking.torn || next.view_bytes > DELTA_BYTES_MAX;
        if !needed {
            self.asked_anew = next.snapshot == 0;
            return Ok(());
        }
        if std::mem::replace(&mut self.asked_anew, true) {
            return Ok(());
        }
        self.say(pipe, &Down::Watched(Watched { watched: self.watched, anew: true })).await
    }

    async fn tell_watched(&mut self, pipe: &Pipe) -> Result<(), Over> {
        // Who cannot be asked has not changed.
        let watched = self.is_watched().await.unwrap_or(self.watched);
        if watched == self.watched && self.watched_said.elapsed() < SAY_AGAIN {
            return Ok(());
        }
        (self.watched, self.watched_said) = (watched, Instant::now());
        self.say(pipe, &Down::Watched(Watched { watched, anew: false })).await
    }

    /// Whether somebody looks, at any node.
    async fn is_watched(&self) -> Result<bool, DbError> {
        if self.feed().is_some() {
            return Ok(true);
        }
        let rows = self.hub.rows(crate::feed::watchers(&self.session, self.hub.now().0)).await?;
        Ok(rows.first().map(|row| row.count(0)).transpose()?.unwrap_or_default() > 0)
    }

    async fn say(&self, pipe: &Pipe, down: &Down) -> Result<(), Over> {
        let text = serde_json::to_string(down).unwrap_or_default();
        pipe.go.send(Go::Text(text.into())).await.map_err(|_| (NORMAL, String::new()))
    }
}
