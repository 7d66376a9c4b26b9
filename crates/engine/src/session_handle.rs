//! The handle to a session: surfaces send inputs and read events through it.
//!
//! A handle knows neither the state nor the store. It has the task's mailbox, the log's reading end
//! and the last published snapshot, so it is cheap to clone and blocks nothing.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::backend::Extensions;
use crate::client_host::{Host, Hosts};
use crate::content::{CommandSpec, Opaque};
use crate::event_log::{LogReader, LogShared};
use crate::ids::{Principal, Seq, SessionId, Timestamp, TurnId};
use crate::review::Review;
use crate::session::{Input, PromptRecord, Refusal, Sender, Totals};
use crate::settings::{SettingSpec, Settings};
use crate::tool_servers::ToolServers;

/// Confirms that an input was accepted. It is durable once a reader has seen `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputReceipt {
    /// The turn a prompt became.
    pub turn: Option<TurnId>,
    /// The last event written before the answer.
    pub seq: Seq,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum SendError {
    #[error("the session is closed")]
    Closed,
    #[error("{0}")]
    Refused(Refusal),
}

/// The state of a session at one moment, as others see it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub settings: Arc<Settings>,
    /// The settings that can be chosen.
    pub specs: Arc<[SettingSpec]>,
    pub title: Option<Arc<str>>,
    pub cwd: Arc<PathBuf>,
    /// Where the session works and has worked.
    pub folders: Arc<Vec<PathBuf>>,
    pub totals: Totals,
    pub busy: bool,
    /// The running turn was cancelled and has not ended yet.
    pub cancelling: bool,
    /// Prompts waiting behind the running turn.
    pub waiting: usize,
    /// History is shown from after this position: where it was last cleared.
    pub replay_from: Seq,
    /// The positions of the open permission requests and questions.
    pub asks: Vec<Seq>,
    /// The latest prompts that were sent as requests.
    pub prompts: Arc<Vec<PromptRecord>>,
    /// Other fields of an external agent's answer when it opened its session.
    pub extra: Option<Opaque>,
    pub updated_at: Timestamp,
}

impl Snapshot {
    /// A session in which nothing has happened.
    pub fn new(specs: Arc<[SettingSpec]>, cwd: PathBuf) -> Self {
        Self {
            settings: Arc::new(Settings::defaults(&specs)),
            specs,
            title: None,
            cwd: Arc::new(cwd),
            folders: Arc::default(),
            totals: Totals::default(),
            busy: false,
            cancelling: false,
            waiting: 0,
            replay_from: Seq::START,
            asks: Vec::new(),
            prompts: Arc::default(),
            extra: None,
            updated_at: Timestamp(0),
        }
    }
}

/// How a session was created, and where its log stood when it was opened here.
#[derive(Debug, Clone)]
pub struct SessionOrigin {
    pub parent: Option<SessionId>,
    /// The door through which it was created.
    pub source: Arc<str>,
    pub created_at: Timestamp,
    pub cwd: PathBuf,
    /// It was made by this opening: created, copied or imported, not brought back.
    pub fresh: bool,
    /// Everything up to here was written before: by an earlier opening, or copied.
    pub opened_after: Seq,
}

/// The handle to a session's task and log. Cheap to clone.
#[derive(Clone)]
pub struct SessionHandle {
    pub(crate) inner: Arc<HandleInner>,
}

pub(crate) struct HandleInner {
    pub id: SessionId,
    pub owner: Principal,
    pub roots: Vec<PathBuf>,
    pub origin: SessionOrigin,
    pub commands: Arc<[CommandSpec]>,
    pub servers: Option<Arc<dyn ToolServers>>,
    pub review: Option<Arc<dyn Review>>,
    pub extensions: Option<Arc<dyn Extensions>>,
    pub mailbox: mpsc::Sender<InputEnvelope>,
    pub log: Arc<LogShared>,
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    pub hosts: Arc<Hosts>,
}

/// An input on its way to the task, and the sender for its outcome.
pub(crate) struct InputEnvelope {
    pub input: Input,
    pub reply: oneshot::Sender<Result<InputReceipt, SendError>>,
}

impl SessionHandle {
    pub fn id(&self) -> &SessionId {
        &self.inner.id
    }

    pub fn owner(&self) -> &Principal {
        &self.inner.owner
    }

    pub fn roots(&self) -> &[PathBuf] {
        &self.inner.roots
    }

    /// Where the session works and has worked.
    pub fn folders(&self) -> Arc<Vec<PathBuf>> {
        Arc::clone(&self.inner.snapshot.borrow().folders)
    }

    pub fn origin(&self) -> &SessionOrigin {
        &self.inner.origin
    }

    /// The settings that can be chosen at this moment.
    pub fn specs(&self) -> Arc<[SettingSpec]> {
        Arc::clone(&self.inner.snapshot.borrow().specs)
    }

    /// Access to requests outside the protocol, if the session supports any.
    pub fn extensions(&self) -> Option<&Arc<dyn Extensions>> {
        self.inner.extensions.as_ref()
    }

    /// The slash commands of this session.
    pub fn commands(&self) -> &Arc<[CommandSpec]> {
        &self.inner.commands
    }

    /// The tool servers of the session, if it can have any.
    pub fn servers(&self) -> Option<&Arc<dyn ToolServers>> {
        self.inner.servers.as_ref()
    }

    /// The session's file changes, if they are tracked.
    pub fn review(&self) -> Option<&Arc<dyn Review>> {
        self.inner.review.as_ref()
    }

    pub async fn send(&self, input: Input) -> Result<InputReceipt, SendError> {
        let (reply, answer) = oneshot::channel();
        self.inner.mailbox.send(InputEnvelope { input, reply }).await.map_err(|_| SendError::Closed)?;
        answer.await.map_err(|_| SendError::Closed)?
    }

    /// Ends the session in good order and waits until its log is complete.
    pub async fn close(&self) {
        self.close_by(None, None).await;
    }

    /// The same in the name of a client, and why, if it calls that a cancel.
    pub async fn close_by(&self, by: Option<Sender>, reason: Option<Arc<str>>) {
        // Both errors mean that it is closed already.
        drop(self.send(Input::Close { by, reason }).await);
        self.inner.mailbox.closed().await;
    }

    /// Ends the session unless it has work, and says whether it is ended. The session decides, not
    /// its snapshot, so a prompt on its way is either refused or carried out.
    pub async fn retire(&self) -> bool {
        let ended = !matches!(self.send(Input::Retire).await, Err(SendError::Refused(_)));
        if ended {
            self.inner.mailbox.closed().await;
        }
        ended
    }

    /// Sends an input and waits until it is in the log. If the log ends without the input, the input was not
    /// accepted.
    pub async fn send_durably(&self, input: Input) -> Result<InputReceipt, SendError> {
        let accepted = self.send(input).await?;
        self.written(accepted.seq).await;
        let taken = self.read(accepted.seq).head() >= accepted.seq;
        if taken { Ok(accepted) } else { Err(SendError::Closed) }
    }

    /// Waits until readers can see the event, or until the log has ended without it.
    pub async fn written(&self, seq: Seq) {
        let mut reader = self.read(Seq(seq.0.saturating_sub(1)));
        if reader.head() < seq {
            // The caller continues however this ends; readers learn of failures by themselves.
            drop(reader.next().await);
        }
    }

    pub fn read(&self, after: Seq) -> LogReader {
        self.inner.log.reader(after)
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.inner.snapshot.borrow())
    }

    /// Registers what a client offers to the agent, for as long as the host is alive. A client that works in
    /// the session is asked before those that only watch.
    pub fn offer_host(&self, host: &Arc<dyn Host>, at_work: bool) {
        self.inner.hosts.offer(host, at_work);
    }

    /// Whether both lead to the same task: a session that was closed and opened again has another.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub fn is_closed(&self) -> bool {
        self.inner.mailbox.is_closed()
    }
}
