//! One watched session, folded once for everybody who watches it.
//!
//! A task reads the log by a cursor and keeps rows and state in step; viewers read them whenever they
//! have time. The feed lives as long as somebody holds it. If the session leaves memory, the feed waits for it: to
//! watch is not to use it, so it is not loaded again for this.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use engine::{
    Doorbell, LogRead, LogReader, OpenError, PageRequest, Principal, Registry, Seq, SessionHandle, SessionId,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::native::fold::{InitialState, Rows, SessionStateFold, TurnStarts};
use wire::native::{ReplyError, SessionState, WINDOW_ROWS};

use super::AppServer;
use super::error_replies::failed;

/// Rows that are held for viewers that are a little behind.
const ROWS_HELD: usize = 400;
/// How often it is checked whether a session that left memory is back, besides whenever a session is opened.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// The feeds of all sessions that are watched.
#[derive(Default)]
pub(super) struct Feeds {
    all: Mutex<HashMap<SessionId, Weak<Feed>>>,
}

impl Feeds {
    /// The feed of a session, started if nobody watches it yet. The caller has opened the session, so it
    /// may see it.
    pub fn of(&self, app: &Arc<AppServer>, handle: &SessionHandle) -> Arc<Feed> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(handle.id()).and_then(Weak::upgrade);
        if let Some(feed) = known.filter(|feed| feed.lock().end_reason.is_none()) {
            return feed;
        }
        all.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed::new(handle));
        all.insert(handle.id().clone(), Arc::downgrade(&feed));
        let reader = Reader {
            feed: Arc::downgrade(&feed),
            registry: Arc::clone(app.registry()),
            owner: handle.owner().clone(),
            handle: handle.clone(),
        };
        let (stop, dropped) = (app.stop.clone(), feed.dropped.clone());
        drop(app.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = dropped.cancelled() => {}
                () = reader.run() => {}
            }
        }));
        feed
    }
}

pub(super) struct Feed {
    inner: Mutex<Inner>,
    /// Counts changes; 0 until the rows are loaded.
    version: watch::Sender<u64>,
    dropped: CancellationToken,
}

pub(super) struct Inner {
    pub rows: Rows,
    pub state: SessionStateFold,
    /// The state as clients get it.
    pub view: Arc<SessionState>,
    pub marks: TurnStarts,
    /// The names of those who watch, by viewer.
    pub viewers: BTreeMap<u64, Arc<str>>,
    next_viewer: u64,
    /// Why the feed has ended, if it has.
    pub end_reason: Option<String>,
}

impl Feed {
    fn new(handle: &SessionHandle) -> Self {
        let state = SessionStateFold::new(InitialState {
            session: handle.id().clone(),
            title: handle.snapshot().title.clone(),
            folder: handle.origin().cwd.clone(),
            specs: handle.specs(),
            commands: Arc::clone(handle.commands()),
        });
        let inner = Inner {
            rows: Rows::default(),
            view: Arc::new(state.view()),
            state,
            marks: TurnStarts::default(),
            viewers: BTreeMap::new(),
            next_viewer: 0,
            end_reason: None,
        };
        Self { inner: Mutex::new(inner), version: watch::Sender::new(0), dropped: CancellationToken::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits until the rows are loaded.
    pub async fn ready(&self) -> Result<(), ReplyError> {
        let mut changes = self.changes();
        // The sender lives as long as the feed.
        drop(changes.wait_for(|version| *version > 0).await);
        match &self.lock().end_reason {
            Some(message) => Err(failed(message)),
            None => Ok(()),
        }
    }

    /// Adds a viewer with this name, until the guard is dropped.
    pub fn add_viewer(self: &Arc<Self>, name: Arc<str>) -> ViewerGuard {
        let mut inner = self.lock();
        inner.next_viewer += 1;
        let number = inner.next_viewer;
        inner.viewers.insert(number, name);
        drop(inner);
        self.notify();
        ViewerGuard { feed: Arc::clone(self), number }
    }

    /// Wakes the viewers, if the rows are loaded.
    fn notify(&self) {
        self.version.send_if_modified(|version| {
            *version += u64::from(*version > 0);
            *version > 0
        });
    }

    /// The first reason counts.
    fn end(&self, message: String) {
        self.lock().end_reason.get_or_insert(message);
        self.version.send_modify(|version| *version += 1);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.dropped.cancel();
    }
}

pub(super) struct ViewerGuard {
    pub feed: Arc<Feed>,
    number: u64,
}

impl ViewerGuard {
    /// The names of the others, each once.
    pub fn others(&self, inner: &Inner) -> Vec<String> {
        inner.names_but(Some(self.number))
    }
}

impl Drop for ViewerGuard {
    fn drop(&mut self) {
        self.feed.lock().viewers.remove(&self.number);
        self.feed.notify();
    }
}

/// Nobody watches the session any more.
struct NobodyWatches;

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
            Err(NobodyWatches) => return,
        };
        if let Some(feed) = self.feed.upgrade() {
            feed.end(ended);
        }
    }

    /// Reads until the end, and gives the reason of the end.
    async fn read(&mut self) -> Result<String, NobodyWatches> {
        let known = match self.outline().await? {
            Ok(known) => known,
            Err(message) => return Ok(message),
        };
        let start = self.with_inner(|inner| inner.rows.upto())?;
        let mut reader = self.handle.read(Seq(start));
        loop {
            match self.follow(&mut reader, known).await? {
                Ok(()) => {}
                Err(message) => return Ok(message),
            }
            match self.wait_until_reopened().await {
                Ok(()) => reader = self.handle.read(reader.cursor()),
                Err(message) => return Ok(message),
            }
        }
    }

    /// Reads the state, and where turns begin, up to the log's current end.
    async fn outline(&self) -> Result<Result<Seq, String>, NobodyWatches> {
        let mut reader = self.handle.read(Seq::START);
        loop {
            match reader.take(PageRequest::OUTLINE).await {
                Ok(LogRead::Events(events)) => self.with_inner(|inner| {
                    for event in &events {
                        inner.state.observe(event);
                        inner.marks.observe(event);
                    }
                })?,
                Ok(LogRead::UpToDate | LogRead::Ended { .. }) => break,
                Err(error) => return Ok(Err(unreadable(&error))),
            }
        }
        self.with_inner(|inner| {
            inner.rows = inner.marks.last_rows(WINDOW_ROWS);
            inner.view = Arc::new(inner.state.view());
        })?;
        Ok(Ok(reader.cursor()))
    }

    /// Folds until the log ends. Events up to `known` are in the state already.
    async fn follow(&self, reader: &mut LogReader, known: Seq) -> Result<Result<(), String>, NobodyWatches> {
        let bell = Arc::new(Doorbell::default());
        let _ringing = reader.subscribe(&bell, 0);
        let mut ready = false;
        loop {
            if !ready && reader.cursor() >= known {
                ready = true;
                self.feed.upgrade().ok_or(NobodyWatches)?.version.send_modify(|version| *version += 1);
            }
            match reader.take(PageRequest::USUAL).await {
                Ok(LogRead::Events(events)) => {
                    self.with_inner(|inner| inner.observe(&events, known))?;
                    if ready {
                        self.feed.upgrade().ok_or(NobodyWatches)?.notify();
                    }
                    // Reading old events from the store must not keep other tasks waiting.
                    tokio::task::yield_now().await;
                }
                Ok(LogRead::UpToDate) => drop(bell.wait().await),
                Ok(LogRead::Ended { trouble: None }) => return Ok(Ok(())),
                Ok(LogRead::Ended { trouble: Some(trouble) }) => return Ok(Err(trouble.to_string())),
                Err(error) => return Ok(Err(unreadable(&error))),
            }
        }
    }

    /// Waits until the session is in memory again.
    async fn wait_until_reopened(&mut self) -> Result<(), String> {
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
            // Whichever comes first, it is checked again; the registry lives as long as this.
            drop(tokio::time::timeout(LOOK_AGAIN, openings.changed()).await);
        }
    }

    fn with_inner<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Result<T, NobodyWatches> {
        let feed = self.feed.upgrade().ok_or(NobodyWatches)?;
        Ok(work(&mut feed.lock()))
    }
}

impl Drop for Reader {
    /// A reader that was dropped before it ended the feed has failed; nobody must wait for it for ever.
    fn drop(&mut self) {
        if let Some(feed) = self.feed.upgrade() {
            feed.end("its updates stopped; open it again".to_owned());
        }
    }
}

impl Inner {
    /// The names of all viewers, each once.
    pub fn names(&self) -> Vec<String> {
        self.names_but(None)
    }

    fn names_but(&self, viewer: Option<u64>) -> Vec<String> {
        let others = self.viewers.iter().filter(|(number, _)| Some(**number) != viewer);
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
    format!("could not read its log: {error}")
}
