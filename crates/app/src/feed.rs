//! One watched session, folded once for everybody who watches it.
//!
//! A task reads the log by a cursor and keeps rows and state in step; viewers look at them whenever they
//! have time. The feed lives as long as somebody holds it. A session that leaves memory is waited for: to
//! watch is not to use it, so it is not brought back for this.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use engine::{
    Doorbell, LogReader, OpenError, Page, Principal, Registry, Seq, SessionHandle, SessionId, Taken,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::fold::{Begin, Marks, Rows, State};
use wire::native::{SessionState, WINDOW_ROWS, Wrong};

use super::Desk;
use super::wrong::failed;

/// Rows that are held for viewers that are a little behind.
const ROWS_HELD: usize = 400;
/// How often a session that left memory is looked for besides when one is opened.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// The feeds of all sessions that are watched.
#[derive(Default)]
pub(super) struct Feeds {
    all: Mutex<HashMap<SessionId, Weak<Feed>>>,
}

impl Feeds {
    /// The feed of a session, begun if nobody watches it yet. The caller has opened the session, so it
    /// may see it.
    pub fn of(&self, desk: &Arc<Desk>, handle: &SessionHandle) -> Arc<Feed> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(handle.id()).and_then(Weak::upgrade);
        if let Some(feed) = known.filter(|feed| feed.lock().over.is_none()) {
            return feed;
        }
        all.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed::new(handle));
        all.insert(handle.id().clone(), Arc::downgrade(&feed));
        let reader = Reader {
            feed: Arc::downgrade(&feed),
            registry: Arc::clone(desk.registry()),
            owner: handle.owner().clone(),
            handle: handle.clone(),
        };
        let (stop, gone) = (desk.stop.clone(), feed.gone.clone());
        drop(desk.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = gone.cancelled() => {}
                () = reader.run() => {}
            }
        }));
        feed
    }
}

pub(super) struct Feed {
    inner: Mutex<Inner>,
    /// Counts what is new; 0 until the rows are there.
    version: watch::Sender<u64>,
    gone: CancellationToken,
}

pub(super) struct Inner {
    pub rows: Rows,
    pub state: State,
    /// What the state amounts to.
    pub view: Arc<SessionState>,
    pub marks: Marks,
    /// Who watches, by seat.
    pub viewers: BTreeMap<u64, Arc<str>>,
    next_seat: u64,
    /// Why there is nothing more to come.
    pub over: Option<String>,
}

impl Feed {
    fn new(handle: &SessionHandle) -> Self {
        let state = State::new(Begin {
            session: handle.id().clone(),
            title: handle.snapshot().title.clone(),
            folder: handle.birth().cwd.clone(),
            specs: handle.specs(),
            commands: Arc::clone(handle.commands()),
        });
        let inner = Inner {
            rows: Rows::default(),
            view: Arc::new(state.view()),
            state,
            marks: Marks::default(),
            viewers: BTreeMap::new(),
            next_seat: 0,
            over: None,
        };
        Self { inner: Mutex::new(inner), version: watch::Sender::new(0), gone: CancellationToken::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits until the rows are there.
    pub async fn ready(&self) -> Result<(), Wrong> {
        let mut changes = self.changes();
        // The sender lives as long as the feed.
        drop(changes.wait_for(|version| *version > 0).await);
        match &self.lock().over {
            Some(message) => Err(failed(message)),
            None => Ok(()),
        }
    }

    /// Somebody watches, under a name, until the seat is dropped.
    pub fn sit(self: &Arc<Self>, name: Arc<str>) -> Seat {
        let mut inner = self.lock();
        inner.next_seat += 1;
        let number = inner.next_seat;
        inner.viewers.insert(number, name);
        drop(inner);
        self.ring();
        Seat { feed: Arc::clone(self), number }
    }

    /// Something is new, for those who have seen anything at all.
    fn ring(&self) {
        self.version.send_if_modified(|version| {
            *version += u64::from(*version > 0);
            *version > 0
        });
    }

    /// The first reason counts.
    fn end(&self, message: String) {
        self.lock().over.get_or_insert(message);
        self.version.send_modify(|version| *version += 1);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

pub(super) struct Seat {
    pub feed: Arc<Feed>,
    number: u64,
}

impl Seat {
    /// The names of the others, each once.
    pub fn others(&self, inner: &Inner) -> Vec<String> {
        inner.names_but(Some(self.number))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.feed.lock().viewers.remove(&self.number);
        self.feed.ring();
    }
}

/// Nobody watches any more.
struct Left;

/// Reads the log for a feed.
struct Reader {
    feed: Weak<Feed>,
    registry: Arc<Registry>,
    owner: Principal,
    handle: SessionHandle,
}

impl Reader {
    async fn run(mut self) {
        let ended = match self.read().await {
            Ok(message) => message,
            Err(Left) => return,
        };
        if let Some(feed) = self.feed.upgrade() {
            feed.end(ended);
        }
    }

    /// Says why it ended.
    async fn read(&mut self) -> Result<String, Left> {
        let known = match self.outline().await? {
            Ok(known) => known,
            Err(message) => return Ok(message),
        };
        let start = self.with(|inner| inner.rows.upto())?;
        let mut reader = self.handle.read(Seq(start));
        loop {
            match self.follow(&mut reader, known).await? {
                Ok(()) => {}
                Err(message) => return Ok(message),
            }
            match self.away().await {
                Ok(()) => reader = self.handle.read(reader.cursor()),
                Err(message) => return Ok(message),
            }
        }
    }

    /// Learns the state, and where turns begin, up to where the log stands.
    async fn outline(&self) -> Result<Result<Seq, String>, Left> {
        let mut reader = self.handle.read(Seq::START);
        loop {
            match reader.take(Page::OUTLINE).await {
                Ok(Taken::Events(events)) => self.with(|inner| {
                    for event in &events {
                        inner.state.observe(event);
                        inner.marks.observe(event);
                    }
                })?,
                Ok(Taken::UpToDate | Taken::Ended { .. }) => break,
                Err(error) => return Ok(Err(unreadable(&error))),
            }
        }
        self.with(|inner| {
            inner.rows = inner.marks.last_rows(WINDOW_ROWS);
            inner.view = Arc::new(inner.state.view());
        })?;
        Ok(Ok(reader.cursor()))
    }

    /// Folds until the log ends. What stands up to `known` is in the state already.
    async fn follow(&self, reader: &mut LogReader, known: Seq) -> Result<Result<(), String>, Left> {
        let bell = Arc::new(Doorbell::default());
        let _ringing = reader.subscribe(&bell, 0);
        let mut ready = false;
        loop {
            if !ready && reader.cursor() >= known {
                ready = true;
                self.feed.upgrade().ok_or(Left)?.version.send_modify(|version| *version += 1);
            }
            match reader.take(Page::USUAL).await {
                Ok(Taken::Events(events)) => {
                    self.with(|inner| inner.observe(&events, known))?;
                    if ready {
                        self.feed.upgrade().ok_or(Left)?.ring();
                    }
                    // What is long enough ago to be stored must not keep others waiting.
                    tokio::task::yield_now().await;
                }
                Ok(Taken::UpToDate) => drop(bell.wait().await),
                Ok(Taken::Ended { trouble: None }) => return Ok(Ok(())),
                Ok(Taken::Ended { trouble: Some(trouble) }) => return Ok(Err(trouble.to_string())),
                Err(error) => return Ok(Err(unreadable(&error))),
            }
        }
    }

    /// Waits until the session is in memory again.
    async fn away(&mut self) -> Result<(), String> {
        let mut openings = self.registry.openings();
        loop {
            openings.mark_unchanged();
            let back = self.registry.live(&self.owner, self.handle.id());
            if let Some(handle) = back.filter(|handle| !handle.is_same(&self.handle)) {
                self.handle = handle;
                return Ok(());
            }
            if let Err(OpenError::NotFound(_)) = self.registry.row(&self.owner, self.handle.id()).await {
                return Err("the session was deleted".to_owned());
            }
            // Whichever comes first, it is looked again; the registry lives as long as this.
            drop(tokio::time::timeout(LOOK_AGAIN, openings.changed()).await);
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Result<T, Left> {
        let feed = self.feed.upgrade().ok_or(Left)?;
        Ok(work(&mut feed.lock()))
    }
}

impl Drop for Reader {
    /// A reader that is gone without a word has failed; nobody must wait for it for ever.
    fn drop(&mut self) {
        if let Some(feed) = self.feed.upgrade() {
            feed.end("the session cannot be shown on; open it again".to_owned());
        }
    }
}

impl Inner {
    /// The names of all who watch, each once.
    pub fn names(&self) -> Vec<String> {
        self.names_but(None)
    }

    fn names_but(&self, seat: Option<u64>) -> Vec<String> {
        let others = self.viewers.iter().filter(|(number, _)| Some(**number) != seat);
        let names: BTreeSet<&Arc<str>> = others.map(|(_, name)| name).collect();
        names.into_iter().map(ToString::to_string).collect()
    }

    fn observe(&mut self, events: &[Arc<engine::Event>], known: Seq) {
        let mut differs = false;
        for event in events {
            self.rows.observe(event);
            if event.seq > known {
                differs |= self.state.observe(event);
                self.marks.observe(event);
            }
        }
        self.rows.trim(ROWS_HELD);
        if differs {
            self.view = Arc::new(self.state.view());
        }
    }
}

fn unreadable(error: &engine::StoreError) -> String {
    tracing::warn!(%error, "a watched session cannot be read on");
    format!("the session cannot be read on: {error}")
}
