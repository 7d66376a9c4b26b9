//! What this crate's tests share: a store that can be made to fail, an agent that does what the
//! prompt says, a clock that follows the tests' time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::{
    Abilities, Backend, BackendSession, BoxFuture, PermissionOutcome, SessionContext, SessionSpec,
    TurnContext, TurnError, TurnInput,
};
use crate::content::Content;
use crate::event::{
    AskRequest, Body, Event, Family, PermissionEvent, Risk, SetupEvent, SpeechEvent, Stop, ToolClass,
    ToolEnd, ToolEvent, ToolStart, TurnEvent,
};
use crate::ids::{CallId, Clock, Epoch, Seq, SessionId, SurfaceId, Timestamp};
use crate::memory_store::MemoryStore;
use crate::session::{Input, Sender};
use crate::session_handle::SessionHandle;
use crate::settings::approval_spec;
use crate::store::{
    Claim, EventBatch, ListQuery, NewSession, PageRequest, SessionRow, Store, StoreError, StoreResult,
};

/// Longer than anything should take; with paused time it costs nothing.
pub(crate) const DEADLINE: Duration = Duration::from_secs(600);

/// The memory store, with switches that make it fail.
#[derive(Default)]
pub(crate) struct FailingStore {
    pub inner: MemoryStore,
    /// Creating sessions is impossible.
    pub unavailable: AtomicBool,
    /// The append with this number fails, counted from 1.
    pub fail_append: AtomicUsize,
    pub appends: AtomicUsize,
    /// Appends and claims are refused after a while as long as this is set: another process has the lock.
    pub locked: AtomicBool,
    /// Appends wait while this is set.
    pub stuck: AtomicBool,
    /// What was appended since the last sync.
    pub unsynced: Mutex<Vec<Arc<Event>>>,
    /// Done once, after a read has found what it answers and before it does.
    pub during_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl FailingStore {
    async fn wait_for_lock(&self) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        if self.locked.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(2)).await;
            return Err(StoreError::Busy { reason: "locked by process 123".into() });
        }
        Ok(())
    }
}

impl Store for FailingStore {
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim> {
        if self.unavailable.load(Ordering::SeqCst) {
            let reason = "the disk is on fire".to_owned();
            return Box::pin(async { Err(StoreError::Unavailable { reason }) });
        }
        slow(self.inner.create(session))
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        let id = id.clone();
        Box::pin(async move {
            self.wait_for_lock().await?;
            self.inner.claim(&id).await
        })
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        self.inner.owns(id, epoch)
    }

    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()> {
        slow(self.inner.release(id, epoch))
    }

    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()> {
        Box::pin(async move {
            while self.stuck.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.wait_for_lock().await?;
            let number = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
            if number == self.fail_append.load(Ordering::SeqCst) {
                return Err(StoreError::Write { reason: "the disk is full".into() });
            }
            tokio::task::yield_now().await;
            {
                let mut unsynced = self.unsynced.lock().unwrap();
                unsynced.extend(batch.events.iter().cloned());
                if batch.sync {
                    unsynced.clear();
                }
            }
            self.inner.append(batch).await
        })
    }

    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>> {
        let found = self.inner.read(id, after, page);
        if let Some(hook) = self.during_read.lock().unwrap().take() {
            hook();
        }
        slow(found)
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        slow(self.inner.find(id))
    }

    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        slow(self.inner.unused(ids))
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        slow(self.inner.list(query))
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        slow(self.inner.fork(source, session))
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        slow(self.inner.import(session, events))
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        slow(self.inner.delete(id))
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        slow(self.inner.rename(id, title))
    }
}

/// Lets everybody else have a turn first, as a real store does.
fn slow<'a, T: Send + 'a>(result: StoreResult<'a, T>) -> StoreResult<'a, T> {
    Box::pin(async move {
        tokio::task::yield_now().await;
        result.await
    })
}

/// Follows tokio's time, so that tests which pause that own this one too.
pub(crate) struct TestClock(Instant);

impl TestClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + i64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

/// An agent that carries out the prompt: commands separated by `;`.
pub(crate) struct ScriptedBackend {
    abilities: Abilities,
    /// What each session that was opened must stay within.
    pub(crate) confined: Mutex<Vec<Option<Arc<[PathBuf]>>>>,
}

impl ScriptedBackend {
    pub fn new() -> Arc<Self> {
        let abilities = Abilities { settings: vec![approval_spec()], ..Abilities::default() };
        Arc::new(Self { abilities, confined: Mutex::default() })
    }
}

impl Backend for ScriptedBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn open(&self, spec: SessionSpec, _context: SessionContext) -> Arc<dyn BackendSession> {
        self.confined.lock().unwrap().push(spec.within);
        Arc::new(ScriptedSession)
    }

    fn project_rules(&self, _cwd: &Path) -> Vec<String> {
        Vec::new()
    }
}

struct ScriptedSession;

impl BackendSession for ScriptedSession {
    fn turn(
        self: Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> BoxFuture<'static, Result<Stop, TurnError>> {
        let script = match input.content.first() {
            Some(Content::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        assert_ne!(script, "panic at once");
        Box::pin(async move {
            for command in script.split(';') {
                if let Some(stop) = obey(command.trim(), &context).await? {
                    return Ok(stop);
                }
            }
            Ok(Stop::EndTurn)
        })
    }
}

async fn obey(command: &str, context: &TurnContext) -> Result<Option<Stop>, TurnError> {
    let (verb, words) = command.split_once(' ').unwrap_or((command, ""));
    let gone = |_| TurnError("the session is gone".into());
    match verb {
        "say" => context.text(context.message(0), words).await.map_err(gone)?,
        "flood" => {
            for number in 0..words.parse().unwrap() {
                let text = format!("{number} ");
                context.text(context.message(0), text).await.map_err(gone)?;
            }
        }
        "tool" => context.emit(started(words)).await.map_err(gone)?,
        "done" => context.emit(ended(words)).await.map_err(gone)?,
        "ask" => {
            let verdict = context.ask(request(words)).await.map_err(gone)?;
            let text = match verdict {
                PermissionOutcome::Allowed => "allowed".into(),
                PermissionOutcome::Replied(said) => said,
                PermissionOutcome::Denied { reason, .. } => reason,
            };
            context.text(context.message(1), text).await.map_err(gone)?;
        }
        "hang" => {
            context.cancel.cancelled().await;
            return Ok(Some(Stop::Cancelled));
        }
        "deaf" => std::future::pending::<()>().await,
        "sleep" => tokio::time::sleep(Duration::from_secs(words.parse().unwrap())).await,
        "yield" => tokio::task::yield_now().await,
        "fail" => return Err(TurnError(words.into())),
        _ => panic!("the agent does not know {command}"),
    }
    Ok(None)
}

fn started(call: &str) -> Body {
    Body::ToolStarted(Box::new(ToolStart::new(CallId(call.into()), call.into(), call.into())))
}

fn ended(call: &str) -> Body {
    Body::ToolEnded(Box::new(ToolEnd { elapsed_ms: 1, ..ToolEnd::of(CallId(call.into())) }))
}

fn request(subject: &str) -> AskRequest {
    AskRequest { risk: Risk::High, ..AskRequest::new("shell", subject, ToolClass::Execute) }
}

pub(crate) fn sender() -> Sender {
    Sender::owner(SurfaceId(1), "editor")
}

pub(crate) fn prompt(script: &str) -> Input {
    Input::Prompt { by: sender(), content: vec![Content::text(script)] }
}

/// Every event of a log up to the first that fits, from the beginning.
pub(crate) async fn until(handle: &SessionHandle, wanted: impl Fn(&Event) -> bool) -> Vec<Arc<Event>> {
    let mut reader = handle.read(Seq::START);
    let mut seen = Vec::new();
    let reading = async {
        while let Some(events) = reader.next().await.unwrap() {
            for event in events {
                let found = wanted(&event);
                seen.push(event);
                if found {
                    return;
                }
            }
        }
        panic!("the log ended before what was wanted; it has {}", brief(&seen));
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("it never came");
    seen
}

/// The log in a few words per event.
pub(crate) fn brief(events: &[Arc<Event>]) -> String {
    let mut shown = String::new();
    for event in events {
        let body = match event.body.family() {
            Family::Turn(TurnEvent::Queued { .. }) => "queued".into(),
            Family::Turn(TurnEvent::Started) => "started".into(),
            Family::Turn(TurnEvent::UserMessage { .. }) => "user".into(),
            Family::Speech(SpeechEvent::Text { text, .. }) => format!("text {text}"),
            Family::Tool(ToolEvent::Started(start)) => format!("tool {}", start.call.0),
            Family::Tool(ToolEvent::Ended(end)) => {
                format!("tool {} {}", end.call.0, if end.failed { "failed" } else { "done" })
            }
            Family::Permission(PermissionEvent::Asked { ask, .. }) => format!("ask {}", ask.0),
            Family::Permission(PermissionEvent::Resolved { ask, resolution, .. }) => {
                format!("ask {} {resolution:?}", ask.0)
            }
            Family::Turn(TurnEvent::CancelRequested { .. }) => "cancel".into(),
            Family::Setup(SetupEvent::Title { title }) => format!("title {title}"),
            Family::Setup(SetupEvent::Moved { cwd, .. }) => format!("moved {}", cwd.display()),
            Family::Turn(TurnEvent::Ended { stop, .. }) => format!("ended {stop:?}"),
            Family::Speech(_)
            | Family::Tool(_)
            | Family::Usage(_)
            | Family::Setup(_)
            | Family::Context(_)
            | Family::Other => {
                if let Body::Notice { level, text } = &event.body {
                    format!("{level:?}: {text}")
                } else {
                    format!("{:?}", event.body)
                }
            }
        };
        let turn = event.turn.map_or_else(|| "-".to_owned(), |turn| turn.0.to_string());
        shown.push_str(&format!("{turn} {body}\n"));
    }
    shown
}
