//! One server of a session: started when it is first needed, watched while it runs, started again when it
//! is needed after it failed.
//!
//! **Invariant:** at most one task runs a server, and only that task changes its state until it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{ServerState, ServerView, ServerWay, ToolInfo, Verdict};
use rmcp::{Peer, RoleClient};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::link::{Base, Ears, LastWords, Link};
use super::{link, tool};
use crate::tools::Tool;

/// After the first failure; doubled with each that follows.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// A server that ran for so long before it failed begins anew.
const STEADY: Duration = Duration::from_secs(60);
/// Between two readings of a list that changes.
const LIST_PAUSE: Duration = Duration::from_millis(100);
/// What a person is told of one server at once.
const NEWS_MAX: usize = 8;

/// Where a server was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedBy {
    Client,
    Person,
    /// A file that came with the project: the person is asked before it is started.
    Project,
}

/// What the person is asked to allow.
#[derive(Debug, Clone)]
pub(super) struct Consent {
    pub(super) digest: Arc<str>,
    /// The entry as it is written.
    pub(super) shown: String,
}

pub(super) struct Server {
    pub(super) name: Arc<str>,
    /// What stands for it in the names of its tools.
    pub(super) slug: String,
    pub(super) way: ServerWay,
    pub(super) named_by: NamedBy,
    /// What the person is asked to allow, if they are asked.
    pub(super) consent: Option<Consent>,
    pub(super) ears: Ears,
    pub(super) call_timeout: Duration,
    start_timeout: Duration,
    base: Base,
    stop: CancellationToken,
    state: watch::Sender<State>,
    tools: Mutex<Arc<[Arc<Tool>]>>,
    waited_for: AtomicBool,
    /// The announcement that the list of tools is as new as.
    listed: watch::Sender<u64>,
    /// What the person should hear of it, once.
    news: Mutex<News>,
}

#[derive(Default)]
struct News {
    untold: Vec<String>,
    /// A server that fails again and again for the same reason is told of once.
    last: Option<String>,
}

#[derive(Clone)]
pub(super) enum State {
    Idle,
    Starting,
    Ready(Peer<RoleClient>),
    Failed(Failure),
    /// Waits for the person's consent.
    Unasked,
    Refused,
}

#[derive(Clone)]
pub(super) struct Failure {
    pub(super) reason: Arc<str>,
    retry_at: Instant,
    failures: u32,
}

/// What a server is made of.
pub(super) struct Parts {
    pub(super) name: Arc<str>,
    pub(super) slug: String,
    pub(super) way: ServerWay,
    pub(super) named_by: NamedBy,
    pub(super) consent: Option<Consent>,
    pub(super) start_timeout: Duration,
    pub(super) call_timeout: Duration,
    pub(super) base: Base,
    pub(super) news: Vec<String>,
}

impl Server {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let state = if parts.consent.is_some() { State::Unasked } else { State::Idle };
        Arc::new(Self {
            name: parts.name,
            slug: parts.slug,
            way: parts.way,
            named_by: parts.named_by,
            consent: parts.consent,
            ears: Ears::default(),
            call_timeout: parts.call_timeout,
            start_timeout: parts.start_timeout,
            base: parts.base,
            stop: CancellationToken::new(),
            state: watch::Sender::new(state),
            tools: Mutex::default(),
            waited_for: AtomicBool::new(false),
            listed: watch::Sender::new(0),
            news: Mutex::new(News { untold: parts.news, last: None }),
        })
    }

    pub(super) fn view(&self) -> ServerView {
        let state = match &*self.state.borrow() {
            State::Idle | State::Unasked => ServerState::Idle,
            State::Starting => ServerState::Starting,
            State::Ready(_) => ServerState::Ready,
            State::Failed(failure) => ServerState::Failed { reason: Arc::clone(&failure.reason) },
            State::Refused => ServerState::Refused,
        };
        let tool = |tool: &Arc<Tool>| ToolInfo {
            name: Arc::clone(&tool.name),
            description: Arc::clone(&tool.description),
        };
        let transport = match self.way {
            ServerWay::Child { .. } => "stdio",
            ServerWay::Http { .. } => "http",
        };
        ServerView {
            name: Arc::clone(&self.name),
            transport,
            state,
            tools: self.tools().iter().map(tool).collect(),
        }
    }

    /// As they were last listed: a server that failed is started again when one of them is called.
    pub(super) fn tools(&self) -> Arc<[Arc<Tool>]> {
        Arc::clone(&self.tools.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the person has not been told yet.
    pub(super) fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut self.lock_news().untold)
    }

    pub(super) fn awaits_consent(&self) -> bool {
        matches!(*self.state.borrow(), State::Unasked)
    }

    pub(super) fn answer_consent(&self, verdict: &Verdict) {
        let state = match verdict {
            Verdict::Allowed => State::Idle,
            // There is no answer in words to this, so it cannot be a yes.
            Verdict::Replied(_) => State::Refused,
            Verdict::Denied { reason, .. } => {
                self.tell(format!("the project names it, so it is not started: {reason}"));
                State::Refused
            }
        };
        self.state.send_replace(state);
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(*self.state.borrow(), State::Starting)
    }

    /// Ends it for good.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Starts it, unless it runs, may not run, or failed a moment ago. Says whether it was started.
    pub(super) fn start(self: &Arc<Self>) -> bool {
        if self.stop.is_cancelled() {
            return false;
        }
        let mut failures = 0;
        let started = self.state.send_if_modified(|state| {
            let may = match state {
                State::Idle => true,
                State::Failed(failure) => {
                    failures = failure.failures;
                    failure.retry_at <= Instant::now()
                }
                State::Starting | State::Ready(_) | State::Unasked | State::Refused => false,
            };
            if may {
                *state = State::Starting;
            }
            may
        });
        if started {
            let this = Arc::clone(self);
            self.base.tasks.spawn(async move { this.run(failures).await });
        }
        started
    }

    /// Starts it if that is due. Says whether this is the first time, which is worth waiting for.
    pub(super) fn starts_first(self: &Arc<Self>) -> bool {
        self.start();
        self.is_starting() && !self.waited_for.swap(true, Ordering::Relaxed)
    }

    /// Waits until it has been started, or has not.
    pub(super) async fn settled(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as this.
        drop(state.wait_for(|state| !matches!(state, State::Starting)).await);
    }

    /// The way to it, if need be started again.
    pub(super) async fn connected(self: &Arc<Self>) -> Result<Peer<RoleClient>, String> {
        self.start();
        self.settled().await;
        match &*self.state.borrow() {
            State::Ready(peer) => Ok(peer.clone()),
            State::Failed(Failure { reason, retry_at, .. }) => {
                let wait = retry_at.saturating_duration_since(Instant::now()).as_secs() + 1;
                Err(format!("the server is not available: {reason}; it can be tried again in {wait} s"))
            }
            State::Idle | State::Starting | State::Unasked | State::Refused => {
                Err("the server was removed".into())
            }
        }
    }

    /// Why it is not there any more, after a call has failed: it takes a moment to find out.
    pub(super) async fn last_failure(&self) -> Option<Arc<str>> {
        let mut state = self.state.subscribe();
        let failed = state.wait_for(|state| matches!(state, State::Failed(_)));
        match tokio::time::timeout(Duration::from_secs(2), failed).await {
            Ok(Ok(state)) => match &*state {
                State::Failed(failure) => Some(Arc::clone(&failure.reason)),
                _ => None,
            },
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn run(self: Arc<Self>, failures: u32) {
        let words = Arc::new(LastWords::default());
        let opened = tokio::select! {
            biased;
            () = self.stop.cancelled() => return self.become_idle(),
            opened = tokio::time::timeout(self.start_timeout, self.open(&words)) => opened,
        };
        let mut link = match opened {
            Ok(Ok(link)) => link,
            Ok(Err(reason)) => return self.fail(reason, failures, false),
            Err(_) => {
                let seconds = self.start_timeout.as_secs_f32();
                return self.fail(
                    words.after(&format!("it did not answer within {seconds} s")),
                    failures,
                    false,
                );
            }
        };
        self.lock_news().last = None;
        let began = Instant::now();
        self.state.send_replace(State::Ready(link.peer().clone()));
        match self.attend(&mut link).await {
            None => {
                self.become_idle();
                link.end(false).await;
            }
            Some(reason) => {
                link.end(true).await;
                self.fail(reason, if began.elapsed() >= STEADY { 0 } else { failures }, true);
            }
        }
    }

    async fn open(self: &Arc<Self>, words: &Arc<LastWords>) -> Result<Link, String> {
        let link = Link::open(&self.way, &self.base, self.ears.clone(), words).await?;
        self.list(link.peer()).await?;
        Ok(link)
    }

    /// Follows the server's list of tools until it is gone, for the returned reason, or told to stop.
    async fn attend(self: &Arc<Self>, link: &mut Link) -> Option<String> {
        let mut lists = self.ears.lists.subscribe();
        loop {
            let known = *self.listed.borrow();
            let count = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                reason = link.gone() => return Some(reason),
                // The sender lives as long as this.
                Ok(count) = lists.wait_for(|count| *count != known) => *count,
            };
            let listed = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                listed = tokio::time::timeout(self.start_timeout, self.list(link.peer())) => listed,
            };
            match listed {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => self.tell(format!("its new list of tools cannot be read: {reason}")),
                Err(_) => self.tell("it does not answer when it is asked for its new list of tools".into()),
            }
            self.listed.send_replace(count);
            // A server that has ever more news is not listened to without a pause.
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep(LIST_PAUSE) => {}
            }
        }
    }

    /// Waits until a new list of tools that was announced has been read.
    pub(super) async fn listed(&self) {
        let announced = *self.ears.lists.borrow();
        let mut listed = self.listed.subscribe();
        if matches!(*self.state.borrow(), State::Ready(_)) {
            // Without a sender there is nothing to wait for.
            drop(listed.wait_for(|count| *count >= announced).await);
        }
    }

    /// Whoever waits for it is told that it is not coming.
    fn become_idle(&self) {
        self.state.send_replace(State::Idle);
    }

    async fn list(self: &Arc<Self>, peer: &Peer<RoleClient>) -> Result<(), String> {
        let listed = link::tools(peer).await?;
        let (tools, left_out) = tool::tools(self, listed);
        if left_out > 0 {
            self.tell(format!("{left_out} of its tools are left out: too many, too large or malformed"));
        }
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools.into();
        Ok(())
    }

    /// One that was there is tried again at once, but not again and again.
    fn fail(&self, reason: String, failures: u32, was_there: bool) {
        let wait = match failures {
            0 if was_there => Duration::ZERO,
            again => RETRY_MAX.min(RETRY_FIRST * 2u32.pow(again.min(10))),
        };
        tracing::warn!(server = %self.name, reason, "a tool server failed");
        self.tell(reason.clone());
        let failure =
            Failure { reason: reason.into(), retry_at: Instant::now() + wait, failures: failures + 1 };
        self.state.send_replace(State::Failed(failure));
    }

    pub(super) fn tell(&self, text: String) {
        let mut news = self.lock_news();
        if news.untold.len() < NEWS_MAX && news.last.as_ref() != Some(&text) {
            news.last = Some(text.clone());
            news.untold.push(text);
        }
    }

    fn lock_news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
