//! The registry of all sessions of this process: opens, finds, lists, closes, forks and evicts them.
//!
//! Operations on one session id run in order: each life-cycle step holds that id's gate, so close, delete
//! and reload cannot interleave. A session that is evicted or idle for long only
//! leaves memory; opening it again continues from the store.

mod hide_unused_sessions;
mod imported_history;
mod log_observers;
mod new_sessions;
mod session_folders;
#[cfg(test)]
mod tests;
mod text_redaction;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::{Abilities, Backend, ForeignError, SessionOffer, SessionSpec};
use crate::event::{Body, Event, NoticeLevel, Origin};
use crate::ids::{Clock, Epoch, Principal, Seq, SessionId, Timestamp};
use crate::redactor_trait::Redactor;
use crate::session::{Effect, Input, Sender, Session};
use crate::session_handle::{SessionHandle, SessionOrigin};
use crate::session_task::{SessionTask, SessionTaskParts};
use crate::settings::APPROVAL;
use crate::store::{Claim, ListQuery, PageRequest, SessionRow, Store, StoreError, StoreFault};
use crate::stored_rules::{MemoryRules, PermissionRules};
use crate::tool_servers::ToolServer;

pub use imported_history::{History, HistoryPiece};
pub use log_observers::{Follower, FollowerFault};
pub use new_sessions::MakeId;
pub use session_folders::{FolderEntry, FolderSession, SessionFolders};

/// How often idle sessions are looked for.
const REAPER_PERIOD: Duration = Duration::from_secs(60);
/// How long a server that stops waits for its sessions: a little more than a turn's own grace.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);

#[derive(Debug, Clone)]
pub struct SessionLimits {
    /// Sessions in memory at once. The least recently used idle one makes room.
    pub sessions_max: usize,
    /// A session with no activity for this long leaves memory.
    /// [`Duration::MAX`]: no session leaves for this reason.
    pub idle_timeout: Duration,
    /// How long an ask waits for a person; for ever without.
    pub ask_timeout: Option<Duration>,
    /// Somebody can answer requests. If not, they are refused at once.
    pub attended: bool,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions_max: 16, idle_timeout: Duration::from_secs(1800), ask_timeout: None, attended: true }
    }
}

pub struct RegistryParts {
    pub store: Arc<dyn Store>,
    pub backend: Arc<dyn Backend>,
    pub clock: Arc<dyn Clock>,
    pub limits: SessionLimits,
    pub rules: Arc<dyn PermissionRules>,
    /// Takes secrets out of everything before it is written.
    pub redactor: Option<Arc<dyn Redactor>>,
    /// Followers of every session: the audit, the metrics.
    pub followers: Vec<Arc<dyn Follower>>,
    /// The approval of a new session, if it is not the default.
    pub approval: Option<Arc<str>>,
    /// The store lasts as long as the process does, and every new session says so.
    pub ephemeral: bool,
    /// The loosest that anybody may choose.
    pub approval_max: Option<Arc<str>>,
    /// Sessions of another program, which can be listed and imported.
    pub folders: Option<Arc<dyn SessionFolders>>,
}

impl RegistryParts {
    pub fn new(store: Arc<dyn Store>, backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            backend,
            clock,
            limits: SessionLimits::default(),
            rules: Arc::new(MemoryRules::default()),
            redactor: None,
            followers: Vec::new(),
            approval: None,
            ephemeral: false,
            approval_max: None,
            folders: None,
        }
    }
}

pub struct Registry {
    store: Arc<dyn Store>,
    ephemeral: bool,
    backend: Arc<dyn Backend>,
    approval: Option<Arc<str>>,
    approval_max: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    limits: SessionLimits,
    /// Where sessions of others than the owner work.
    confined: OnceLock<Arc<[PathBuf]>>,
    tracker: TaskTracker,
    stop: CancellationToken,
    rules: Arc<dyn PermissionRules>,
    redactor: Option<Arc<dyn Redactor>>,
    followers: Mutex<Vec<Arc<dyn Follower>>>,
    folders: Option<Arc<dyn SessionFolders>>,
    live_sessions: Mutex<LiveSessions>,
    /// Rings when a session that was being opened is open, or is not going to be.
    settled: Notify,
    /// Counts openings and deletions, so that a watcher of a session that left memory learns of its return,
    /// or that there will be none.
    opened: watch::Sender<u64>,
    gates: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
}

#[derive(Default)]
struct LiveSessions {
    live: HashMap<SessionId, LiveSession>,
    /// Sessions that are being opened: each has a place already.
    opening: usize,
}

struct LiveSession {
    handle: SessionHandle,
    /// What the session was claimed with.
    epoch: Epoch,
    touched: Timestamp,
    /// On its way out of memory: a caller that wants it waits at the gate and opens it again.
    leaving: bool,
    /// Whether its [`SessionHold`] is still there.
    held: Weak<()>,
}

/// Keeps a new session in memory until its first prompt is in its log. Without work, it would be evicted
/// first.
#[derive(Debug, Default)]
#[must_use]
pub struct SessionHold(Arc<()>);

/// A slot in memory for a session that is being opened. Dropping it frees the slot.
struct SessionSlot<'a> {
    registry: &'a Registry,
}

impl SessionSlot<'_> {
    fn fill(self, id: SessionId, live: LiveSession) {
        let mut live_sessions = self.registry.lock_live_sessions();
        live_sessions.live.insert(id, live);
        // Counted as open instead, in the same moment.
        live_sessions.opening -= 1;
        drop(live_sessions);
        self.registry.settled.notify_waiters();
        self.registry.opened.send_modify(|count| *count += 1);
        std::mem::forget(self);
    }
}

impl Drop for SessionSlot<'_> {
    fn drop(&mut self) {
        self.registry.lock_live_sessions().opening -= 1;
        self.registry.settled.notify_waiters();
    }
}

/// How a session is started: created or brought back, and what it has to write first.
#[derive(Default)]
struct SessionStart {
    fresh: bool,
    /// Callers wait until its agent is ready.
    awaited: bool,
    effects: Vec<Effect>,
    servers: Vec<ToolServer>,
    held: Weak<()>,
    within: Option<Arc<[PathBuf]>>,
    /// The last position that a follower has seen.
    seen: Seq,
}

impl SessionStart {
    fn fresh(request: &mut NewSessionRequest) -> Self {
        let (servers, within) = (std::mem::take(&mut request.servers), request.within.take());
        Self { fresh: true, servers, within, ..Self::default() }
    }

    fn created(request: &mut NewSessionRequest) -> Self {
        Self { awaited: true, ..Self::fresh(request) }
    }
}

/// The owner, folders and tool servers of a session to create.
#[derive(Debug, Clone)]
pub struct NewSessionRequest {
    pub owner: Principal,
    pub cwd: PathBuf,
    pub roots: Vec<PathBuf>,
    /// The folders that the caller may not leave; any folder if `None`.
    pub within: Option<Arc<[PathBuf]>>,
    pub servers: Vec<ToolServer>,
    /// The door it comes through.
    pub source: Arc<str>,
}

impl NewSessionRequest {
    /// One folder, without further ones.
    pub fn new(owner: Principal, cwd: PathBuf, source: &str) -> Self {
        Self { owner, cwd, roots: Vec::new(), within: None, servers: Vec::new(), source: source.into() }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    #[error("session not found: {0}")]
    NotFound(SessionId),
    #[error("the server is stopping")]
    Stopping,
    #[error("session limit reached: all {0} open sessions are busy; wait, or close one")]
    LimitReached(usize),
    #[error(transparent)]
    Store(StoreError),
    /// The external agent wants no session, or cannot be started.
    #[error("{0}")]
    Agent(ForeignError),
}

/// A session in a listing.
#[derive(Debug, Clone)]
pub struct ListedSession {
    pub row: SessionRow,
    /// It is in memory, here.
    pub live: bool,
    /// Its turn was cancelled and has not ended yet; known only for sessions in memory.
    pub cancelling: bool,
}

impl Registry {
    pub fn new(parts: RegistryParts) -> Arc<Self> {
        Arc::new(Self {
            approval: parts.approval,
            approval_max: parts.approval_max,
            store: parts.store,
            ephemeral: parts.ephemeral,
            backend: parts.backend,
            clock: parts.clock,
            limits: parts.limits,
            confined: OnceLock::new(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            rules: parts.rules,
            redactor: parts.redactor,
            followers: Mutex::new(parts.followers),
            folders: parts.folders,
            live_sessions: Mutex::default(),
            settled: Notify::new(),
            opened: watch::Sender::new(0),
            gates: Mutex::new(HashMap::new()),
        })
    }

    pub fn abilities(&self) -> &Abilities {
        self.backend.abilities()
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// What a session in this folder offers. It is read off the async threads, because a project may be on a
    /// slow disk. The reading thread holds only the backend, because it may outlive the registry.
    pub async fn offer(&self, cwd: PathBuf) -> SessionOffer {
        let backend = Arc::clone(&self.backend);
        let read = tokio::task::spawn_blocking(move || backend.offer(&cwd)).await;
        self.with_usual_approval(read.unwrap_or_default())
    }

    fn with_usual_approval(&self, mut offer: SessionOffer) -> SessionOffer {
        let approval = offer.settings.iter_mut().find(|spec| *spec.id == *APPROVAL);
        let Some(spec) = approval else { return offer };
        if let Some(value) = &self.approval {
            // The approval that this process was started with is the usual one.
            spec.default = Arc::clone(value);
        }
        if let Some(max) = &self.approval_max {
            spec.cap(max);
        }
        offer
    }

    /// From here on, sessions of others than the owner work in these folders or below, also those that are brought back
    /// from the store. Said once, before anybody else can come in.
    pub fn confine(&self, folders: Arc<[PathBuf]>) {
        // A second call has the same value.
        drop(self.confined.set(folders));
    }

    pub fn project_rules(&self, cwd: &Path) -> Vec<String> {
        self.backend.project_rules(cwd)
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// The session with this id, brought back from the store if it is not in memory, or if another process went on with
    /// it since.
    pub async fn open(&self, owner: &Principal, id: &SessionId) -> Result<SessionHandle, OpenError> {
        if let Some(handle) = self.find_current(owner, id).await? {
            return Ok(handle);
        }
        let gate = self.gate(id);
        let _held = gate.lock().await;
        if let Some(handle) = self.find_current(owner, id).await? {
            return Ok(handle);
        }
        let row = self.find(owner, id).await?;
        self.end(id).await;
        let slot = self.make_room().await?;
        // Before the claim: until then, another owner of the session may write, and followers may see it.
        let seen = self.seen_by_followers(&row.id).await;
        let claim = self.store.claim(&row.id).await.map_err(OpenError::Store)?;
        let effects = if claim.leaves_gap() { vec![events_missing()] } else { Vec::new() };
        self.start(slot, claim, SessionStart { effects, seen, ..SessionStart::default() }).await
    }

    /// Takes the session out of memory after cancelling its running turn. Returns whether it was there.
    pub async fn close(&self, owner: &Principal, id: &SessionId) -> Result<bool, OpenError> {
        self.close_by(owner, id, None, None).await
    }

    /// The same in the name of a client, and why, if it calls that a cancel.
    pub async fn close_by(
        &self,
        owner: &Principal,
        id: &SessionId,
        by: Option<Sender>,
        reason: Option<Arc<str>>,
    ) -> Result<bool, OpenError> {
        let gate = self.gate(id);
        let _held = gate.lock().await;
        let live = self.find_live(owner, id)?.is_some();
        if !live {
            self.find(owner, id).await?;
        }
        self.end_by(id, by, reason).await;
        Ok(live)
    }

    /// Deletes the session for good. Returns whether there was one.
    pub async fn delete(&self, owner: &Principal, id: &SessionId) -> Result<bool, OpenError> {
        let gate = self.gate(id);
        let _held = gate.lock().await;
        let row = match self.find(owner, id).await {
            Ok(row) => row,
            Err(OpenError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.end(id).await;
        let followers = self.lock_followers().clone();
        for follower in &followers {
            follower.leaving(&row, &self.store).await;
        }
        let deleted = self.store.delete(&row.id).await.map_err(OpenError::Store)?;
        if deleted {
            for follower in &followers {
                follower.deleted(&row.id).await;
            }
            self.opened.send_modify(|count| *count += 1);
        }
        Ok(deleted)
    }

    pub async fn rename(
        &self,
        by: Sender,
        owner: &Principal,
        id: &SessionId,
        title: &str,
    ) -> Result<(), OpenError> {
        if let Some(handle) = self.find_live(owner, id)?
            && handle.send_durably(Input::Rename { by, title: title.into() }).await.is_ok()
        {
            return Ok(());
        }
        let row = self.find(owner, id).await?;
        let title = self.title_without_secrets(title.into());
        self.store.rename(&row.id, &title).await.map_err(OpenError::Store)
    }

    pub async fn row(&self, owner: &Principal, id: &SessionId) -> Result<SessionRow, OpenError> {
        self.find(owner, id).await
    }

    /// Marks a session as used, because somebody looks at it, so that it stays in memory.
    pub fn touch(&self, owner: &Principal, id: &SessionId) {
        // A session that is not in memory needs nothing.
        drop(self.find_live(owner, id));
    }

    /// Stored events, without opening the session.
    pub async fn read(
        &self,
        owner: &Principal,
        id: &SessionId,
        after: Seq,
        page: PageRequest,
    ) -> Result<Vec<Arc<Event>>, OpenError> {
        let row = self.find(owner, id).await?;
        self.store.read(&row.id, after, page).await.map_err(OpenError::Store)
    }

    /// Newest activity first.
    pub async fn list(&self, query: ListQuery) -> Result<Vec<ListedSession>, OpenError> {
        let rows = self.store.list(query).await.map_err(OpenError::Store)?;
        let live_sessions = self.lock_live_sessions();
        let live = |id: &SessionId| live_sessions.live.get(id).filter(|live| !live.handle.is_closed());
        let listed = |row: SessionRow| {
            let live = live(&row.id);
            let cancelling = live.is_some_and(|live| live.handle.snapshot().cancelling);
            ListedSession { live: live.is_some(), cancelling, row }
        };
        Ok(rows.into_iter().map(listed).collect())
    }

    /// Whether nothing is saved, as the process was started.
    pub fn is_ephemeral(&self) -> bool {
        self.ephemeral
    }

    /// Whether sessions can be stored at this moment, and if not, why.
    pub async fn check_store(&self) -> Result<(), StoreFault> {
        self.store.check().await
    }

    /// Names the history that the store has, if stores of its kind can be restored.
    pub async fn lineage(&self) -> Result<Option<Arc<str>>, StoreError> {
        self.store.lineage().await
    }

    /// What is wrong with the permission rules, if anything. Until it is repaired, everything is asked.
    pub fn rules_damage(&self) -> Option<String> {
        self.rules.damage()
    }

    /// Changes whenever a session is opened or deleted.
    pub fn openings(&self) -> watch::Receiver<u64> {
        self.opened.subscribe()
    }

    /// The session, if it is in memory. To look is not to use it.
    pub fn live(&self, owner: &Principal, id: &SessionId) -> Option<SessionHandle> {
        let live_sessions = self.lock_live_sessions();
        let open = |live: &&LiveSession| live.handle.owner() == owner && !live.handle.is_closed();
        live_sessions.live.get(id).filter(open).map(|live| live.handle.clone())
    }

    /// One more reader of every session, from here on and of those that are in memory.
    pub fn join(&self, follower: Arc<dyn Follower>) {
        // A session that is being opened is in memory already or finds the follower, not both.
        let mut followers = self.lock_followers();
        let live: Vec<_> = self.lock_live_sessions().live.values().map(|live| live.handle.clone()).collect();
        for handle in live {
            drop(self.tracker.spawn(follower.follow(handle)));
        }
        followers.push(follower);
    }

    /// Sessions in memory.
    pub fn live_count(&self) -> usize {
        self.lock_live_sessions().live.values().filter(|live| !live.handle.is_closed()).count()
    }

    /// Looks for idle sessions for as long as the registry lives.
    pub fn start_reaper(self: &Arc<Self>) {
        let registry = Arc::downgrade(self);
        let stop = self.stop.clone();
        let period = REAPER_PERIOD.min(self.limits.idle_timeout.max(Duration::from_millis(10)));
        let reaper = async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(period) => {}
                }
                let Some(registry) = registry.upgrade() else {
                    return;
                };
                registry.reap().await;
            }
        };
        drop(self.tracker.spawn(reaper));
    }

    /// Takes every session that has been idle for too long out of memory.
    pub async fn reap(&self) {
        let now = self.clock.now();
        let limit_ms = i64::try_from(self.limits.idle_timeout.as_millis()).unwrap_or(i64::MAX);
        let idle: Vec<_> = self
            .lock_live_sessions()
            .live
            .iter()
            .filter(|(_, live)| live.is_idle())
            .filter(|(_, live)| {
                live.handle.is_closed() || now.0.saturating_sub(live.last_used().0) > limit_ms
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in idle {
            self.evict(&id).await;
        }
    }

    /// Ends every session in good order, then every task.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let handles: Vec<_> = self.lock_live_sessions().live.drain().map(|(_, live)| live.handle).collect();
        for handle in &handles {
            let handle = handle.clone();
            self.tracker.spawn(async move { handle.close().await });
        }
        self.tracker.close();
        if tokio::time::timeout(SHUTDOWN_GRACE, self.tracker.wait()).await.is_err() {
            tracing::warn!("some sessions did not end in time");
        }
    }

    async fn start(
        &self,
        slot: SessionSlot<'_>,
        claim: Claim,
        SessionStart { fresh, awaited, mut effects, servers, held, within, seen }: SessionStart,
    ) -> Result<SessionHandle, OpenError> {
        let mut row = claim.row;
        row.title = row.title.map(|title| self.title_without_secrets(title));
        let origin = SessionOrigin {
            parent: row.parent.clone(),
            source: Arc::clone(&row.source),
            created_at: row.created_at,
            cwd: row.cwd.clone(),
            fresh,
            opened_after: Seq(claim.next_seq.0.saturating_sub(1)),
        };
        let unattended = !self.limits.attended;
        let SessionOffer { settings, commands, free_modes } = self.offer(row.cwd.clone()).await;
        let mut session = Session::new(settings.into(), row.cwd.clone(), row.title.clone(), unattended);
        session.free_modes(free_modes);
        if row.owner != Principal::local() {
            session.of_client();
        }
        let replay_from = observe_all(&mut session, self.store.as_ref(), &row.id).await?;
        effects.extend(session.lost_end(claim.next_seq, seen));
        effects.extend(session.recover());
        effects.extend(session.align(&row.cwd, row.title.as_ref()));
        effects.extend(session.record_narrowed());
        effects.extend(session.leave_lost_mode());
        effects.extend(session.lower_approval());
        let within =
            within.or_else(|| self.confined.get().filter(|_| row.owner != Principal::local()).cloned());
        let (cwd, roots) = (row.cwd.clone(), row.roots.clone());
        let spec = SessionSpec { id: row.id.clone(), cwd, roots, within, servers };
        let parts = SessionTaskParts {
            id: row.id.clone(),
            owner: row.owner,
            roots: row.roots,
            origin,
            epoch: claim.epoch,
            next_seq: claim.next_seq,
            replay_from,
            updated_at: row.updated_at,
            session,
            commands: commands.into(),
            store: Arc::clone(&self.store),
            backend: {
                let backend = Arc::clone(&self.backend);
                Box::new(move |context| backend.open(spec, context))
            },
            clock: Arc::clone(&self.clock),
            rules: Arc::clone(&self.rules),
            redactor: self.redactor.clone(),
            tracker: self.tracker.clone(),
            ask_timeout: self.limits.ask_timeout,
        };
        let (task, handle) = SessionTask::new(parts, effects);
        let live = LiveSession::new(handle.clone(), claim.epoch, self.clock.now(), held);
        let followers = {
            let followers = self.lock_followers();
            slot.fill(row.id, live);
            followers.clone()
        };
        let recovered = task.last_seq();
        let ready = awaited.then(|| task.backend().ready());
        drop(self.tracker.spawn(task.run()));
        for follower in &followers {
            drop(self.tracker.spawn(follower.follow(handle.clone())));
        }
        // History ends with what recovery wrote; nobody may read it without that.
        handle.written(recovered).await;
        if let Some(ready) = ready {
            ready.await.map_err(|error| OpenError::Agent(self.error_without_secrets(error)))?;
        }
        Ok(handle)
    }

    fn find_live(&self, owner: &Principal, id: &SessionId) -> Result<Option<SessionHandle>, OpenError> {
        let now = self.clock.now();
        match self.lock_live_sessions().live.get_mut(id) {
            // It gave up on its own, or is about to go; what is stored is the truth.
            Some(found) if found.leaving || found.handle.is_closed() => Ok(None),
            Some(found) if found.handle.owner() == owner => {
                found.touched = now;
                Ok(Some(found.handle.clone()))
            }
            Some(_) => Err(OpenError::NotFound(id.clone())),
            None => Ok(None),
        }
    }

    /// The session in memory, unless another process claimed it meanwhile: what happened there is not in memory here.
    async fn find_current(
        &self,
        owner: &Principal,
        id: &SessionId,
    ) -> Result<Option<SessionHandle>, OpenError> {
        let Some(handle) = self.find_live(owner, id)? else { return Ok(None) };
        let claimed_with = |live: &LiveSession| live.handle.is_same(&handle).then_some(live.epoch);
        let Some(epoch) = self.lock_live_sessions().live.get(id).and_then(claimed_with) else {
            return Ok(None);
        };
        match self.store.owns(id, epoch).await {
            Ok(false) | Err(StoreError::NotFound) => Ok(None),
            // A store that does not answer takes nothing from those who have the session open.
            Ok(true) | Err(_) => Ok(Some(handle)),
        }
    }

    async fn find(&self, owner: &Principal, id: &SessionId) -> Result<SessionRow, OpenError> {
        match self.store.find(id).await {
            Ok(row) => self.owned(row, owner, id),
            Err(StoreError::NotFound) => Err(OpenError::NotFound(id.clone())),
            Err(error) => Err(OpenError::Store(error)),
        }
    }

    /// A session of another principal looks as if it did not exist.
    fn owned(&self, row: SessionRow, owner: &Principal, id: &SessionId) -> Result<SessionRow, OpenError> {
        if row.owner == *owner { Ok(row) } else { Err(OpenError::NotFound(id.clone())) }
    }

    /// A place for one more session. The least recently used idle one leaves for it, if need be.
    async fn make_room(&self) -> Result<SessionSlot<'_>, OpenError> {
        let mut refused = HashSet::new();
        loop {
            if self.stop.is_cancelled() {
                return Err(OpenError::Stopping);
            }
            let settled = self.settled.notified();
            let victim = {
                let mut live_sessions = self.lock_live_sessions();
                if live_sessions.live.len() + live_sessions.opening < self.limits.sessions_max {
                    live_sessions.opening += 1;
                    return Ok(SessionSlot { registry: self });
                }
                let idle =
                    live_sessions.live.iter().filter(|(id, live)| live.is_idle() && !refused.contains(*id));
                let victim = idle.min_by_key(|(_, live)| live.last_used()).map(|(id, _)| id.clone());
                if victim.is_none() && live_sessions.opening == 0 {
                    return Err(OpenError::LimitReached(self.limits.sessions_max));
                }
                victim
            };
            match victim {
                Some(id) if self.evict(&id).await => {}
                Some(id) => drop(refused.insert(id)),
                // A session that is being opened may be idle once it is open.
                None => settled.await,
            }
        }
    }

    /// Takes a session out of memory unless it has work. Says whether it is gone.
    async fn evict(&self, id: &SessionId) -> bool {
        let gate = self.gate(id);
        let _held = gate.lock().await;
        let Some(handle) = self.leave(id) else { return true };
        let gone = handle.retire().await;
        let mut live_sessions = self.lock_live_sessions();
        if gone {
            live_sessions.live.remove(id);
        } else if let Some(live) = live_sessions.live.get_mut(id) {
            live.leaving = false;
        }
        gone
    }

    /// Ends a session's task, whatever it does. The caller holds its gate. If an earlier caller began this
    /// and was dropped, it is finished here, so there are never two tasks for one id.
    async fn end(&self, id: &SessionId) {
        self.end_by(id, None, None).await;
    }

    async fn end_by(&self, id: &SessionId, by: Option<Sender>, reason: Option<Arc<str>>) {
        if let Some(handle) = self.leave(id) {
            handle.close_by(by, reason).await;
            self.lock_live_sessions().live.remove(id);
        }
    }

    fn leave(&self, id: &SessionId) -> Option<SessionHandle> {
        self.lock_live_sessions().live.get_mut(id).map(|live| {
            live.leaving = true;
            live.handle.clone()
        })
    }

    fn gate(&self, id: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(id).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::default();
        gates.insert(id.clone(), Arc::downgrade(&gate));
        gate
    }

    fn lock_followers(&self) -> MutexGuard<'_, Vec<Arc<dyn Follower>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_live_sessions(&self) -> MutexGuard<'_, LiveSessions> {
        self.live_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveSession {
    fn new(handle: SessionHandle, epoch: Epoch, touched: Timestamp, held: Weak<()>) -> Self {
        Self { handle, epoch, touched, leaving: false, held }
    }

    /// Whether it has no work and expects none. A session that failed in the middle of its work has none
    /// either.
    fn is_idle(&self) -> bool {
        let snapshot = self.handle.snapshot();
        let awaits_work = self.held.strong_count() > 0;
        self.handle.is_closed() || (!awaits_work && !snapshot.busy && snapshot.waiting == 0)
    }

    fn last_used(&self) -> Timestamp {
        self.touched.max(self.handle.snapshot().updated_at)
    }
}

/// Says in a log that it may lack its latest events, and takes the first position after them.
fn events_missing() -> Effect {
    let text = "the machine crashed or lost power, or this session was restored from a backup; the last events before that may be missing";
    let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
    Effect::Record { origin: Origin::Engine, turn: None, event: notice.into() }
}

/// Rebuilds the state from the log; returns where its history was last cleared.
async fn observe_all(session: &mut Session, store: &dyn Store, id: &SessionId) -> Result<Seq, OpenError> {
    let mut replay_from = Seq::START;
    let mut after = Seq::START;
    loop {
        let events = store.read(id, after, PageRequest::OUTLINE).await.map_err(OpenError::Store)?;
        let Some(last) = events.last() else {
            return Ok(replay_from);
        };
        after = last.seq;
        for event in &events {
            session.observe(&event.origin, event.turn, &event.body);
            if matches!(event.body, Body::Cleared) {
                replay_from = event.seq;
            }
        }
    }
}
