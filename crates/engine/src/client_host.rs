//! What a client's own program does for the agent: files as it has them open, commands in its terminals.
//!
//! These calls are the one thing that does not go through the log. A call goes to one surface, which answers it
//! or fails. Every call has a deadline, and all calls to a surface that disconnects fail.
//!
//! **Invariant:** a session holds no surface: it knows hosts only as long as their connections live.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::backend::{BoxFuture, ForeignError};
use crate::content::{Exit, Opaque};
use crate::event_log::LogReader;
use crate::ids::{Seq, SessionId, SurfaceId};

/// Hosts of one session. The one that was used longest ago makes room.
const HOSTS_MAX: usize = 16;
/// How long a client may take to read or write a file, or to do something to a terminal.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// The text for a person whose editor did not answer.
pub const EDITOR_SILENT: &str = "The editor did not answer within 30 seconds. Until your next prompt, files are read and written \
     on the disk, and commands run without the editor.";

/// What a client offers, as data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostAbilities {
    pub read: bool,
    pub write: bool,
    pub terminal: bool,
    /// Something can be typed into its terminals.
    pub typing: bool,
}

impl HostAbilities {
    pub fn any(self) -> bool {
        self.read || self.write || self.terminal
    }
}

/// A terminal in the client, by the client's own name for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TerminalId(pub Arc<str>);

/// One request to a client's program. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostCall {
    /// `line` counts from 1.
    ReadText {
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    },
    WriteText {
        path: PathBuf,
        text: Arc<str>,
    },
    CreateTerminal(NewTerminal),
    TerminalOutput(TerminalId),
    WaitForExit(TerminalId),
    KillTerminal(TerminalId),
    ReleaseTerminal(TerminalId),
    TypeInto {
        terminal: TerminalId,
        bytes: Arc<[u8]>,
    },
    /// A request that only the agent and its client understand.
    Extension {
        method: Arc<str>,
        params: Opaque,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTerminal {
    pub program: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// The client forgets the beginning of a longer output.
    pub output_bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostReply {
    Done,
    Text(Arc<str>),
    Terminal(TerminalId),
    Output(TerminalOutput),
    Exit(Exit),
    Extension(Opaque),
}

/// The output of a terminal, and how its command ended if it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalOutput {
    pub text: Arc<str>,
    /// The beginning is missing.
    pub truncated: bool,
    pub exit: Option<Exit>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It was not asked: nothing was done.
    #[error("no editor is connected")]
    Away,
    /// It was asked, and may have done it or not.
    #[error("the editor disconnected")]
    Gone,
    #[error("the editor did not answer in time")]
    TimedOut,
    #[error("the editor has too many unanswered requests")]
    Busy,
    #[error("the editor refused: {0}")]
    Refused(String),
    #[error("the editor's answer is malformed")]
    Malformed,
    /// The answer to a request that only the client and the agent understand.
    #[error("the editor answered: {0}")]
    Foreign(ForeignError),
}

/// A client that does things for the agent. It is called through [`HostLink`].
pub trait Host: Send + Sync + 'static {
    fn surface(&self) -> SurfaceId;

    fn abilities(&self) -> HostAbilities;

    /// Calls the client once it has been sent everything up to `after`, and waits for the answer. Dropping
    /// the future gives the call up.
    fn call(
        &self,
        session: &SessionId,
        call: HostCall,
        after: Seq,
    ) -> BoxFuture<'static, Result<HostReply, HostError>>;

    /// Calls the client once it has been sent everything up to `after`, and does not wait.
    fn tell(&self, session: &SessionId, call: HostCall, after: Seq);
}

/// The clients of a session that offer something. The last one is asked first.
pub(crate) struct Hosts {
    session: SessionId,
    offered: Mutex<Vec<(SurfaceId, Weak<dyn Host>)>>,
    silent: SilentHosts,
}

/// Clients that did not answer a call. They are not asked again until their person sends another prompt,
/// because each call would take as long as the first.
#[derive(Clone, Default)]
struct SilentHosts(Arc<Mutex<Vec<SurfaceId>>>);

impl SilentHosts {
    fn add(&self, surface: SurfaceId) {
        let mut silent = self.lock();
        silent.retain(|of| *of != surface);
        if silent.len() >= HOSTS_MAX {
            silent.remove(0);
        }
        silent.push(surface);
    }

    fn remove(&self, surface: SurfaceId) {
        self.lock().retain(|of| *of != surface);
    }

    fn contains(&self, surface: SurfaceId) -> bool {
        self.lock().contains(&surface)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SurfaceId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hosts {
    pub(crate) fn new(session: SessionId) -> Arc<Self> {
        Arc::new(Self { session, offered: Mutex::default(), silent: SilentHosts::default() })
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    /// Takes an offer. One that is at work here comes before those that merely look on.
    pub(crate) fn offer(&self, host: &Arc<dyn Host>, at_work: bool) {
        let surface = host.surface();
        if at_work {
            self.silent.remove(surface);
        }
        let mut offered = self.lock();
        let known = offered.iter().position(|(of, _)| *of == surface);
        let newest = known.is_some_and(|at| at + 1 == offered.len());
        if known.is_some() && (newest || !at_work) {
            return;
        }
        offered.retain(|(of, host)| *of != surface && host.strong_count() > 0);
        if offered.len() >= HOSTS_MAX {
            offered.remove(0);
        }
        let at = if at_work { offered.len() } else { 0 };
        offered.insert(at, (surface, Arc::downgrade(host)));
    }

    /// The client to ask for what only some can do.
    pub(crate) fn find(&self, can: impl Fn(HostAbilities) -> bool) -> Option<HostLink> {
        let offered = self.lock();
        let host = offered.iter().rev().filter_map(|(_, host)| host.upgrade());
        let answers = |host: &Arc<dyn Host>| !self.silent.contains(host.surface());
        let host = host.into_iter().find(|host| answers(host) && can(host.abilities()))?;
        Some(HostLink { host, session: self.session.clone(), log: None, silent: self.silent.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(SurfaceId, Weak<dyn Host>)>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Access to one client, for as long as a tool needs it.
#[derive(Clone)]
pub struct HostLink {
    host: Arc<dyn Host>,
    session: SessionId,
    /// The log whose events the client is sent before a call.
    log: Option<LogReader>,
    silent: SilentHosts,
}

impl HostLink {
    /// The client gets a call only after it was sent everything that is in the log by then.
    pub(crate) fn behind(self, log: &LogReader) -> Self {
        Self { log: Some(log.clone()), ..self }
    }

    /// The position that the client is sent up to before a call now.
    pub fn after(&self) -> Seq {
        self.log.as_ref().map_or(Seq::START, LogReader::head)
    }

    /// A request that only the agent and its client understand. It has no deadline of its own: a person may
    /// have to answer.
    pub async fn extension(&self, method: Arc<str>, params: Opaque) -> Result<Opaque, HostError> {
        let call = HostCall::Extension { method, params };
        match self.host.call(&self.session, call, self.after()).await? {
            HostReply::Extension(answer) => Ok(answer),
            HostReply::Done
            | HostReply::Text(_)
            | HostReply::Terminal(_)
            | HostReply::Output(_)
            | HostReply::Exit(_) => Err(HostError::Malformed),
        }
    }

    pub fn abilities(&self) -> HostAbilities {
        self.host.abilities()
    }

    pub fn surface(&self) -> SurfaceId {
        self.host.surface()
    }

    pub async fn read_text(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> Result<Arc<str>, HostError> {
        let reply = self.call(HostCall::ReadText { path, line, limit }).await?;
        if let HostReply::Text(text) = reply { Ok(text) } else { Err(HostError::Malformed) }
    }

    pub async fn write_text(&self, path: PathBuf, text: Arc<str>) -> Result<(), HostError> {
        self.call(HostCall::WriteText { path, text }).await.map(drop)
    }

    pub async fn create_terminal(&self, terminal: NewTerminal) -> Result<TerminalId, HostError> {
        let reply = self.call(HostCall::CreateTerminal(terminal)).await?;
        if let HostReply::Terminal(id) = reply { Ok(id) } else { Err(HostError::Malformed) }
    }

    pub async fn output(&self, terminal: &TerminalId) -> Result<TerminalOutput, HostError> {
        let reply = self.call(HostCall::TerminalOutput(terminal.clone())).await?;
        if let HostReply::Output(output) = reply { Ok(output) } else { Err(HostError::Malformed) }
    }

    /// It has no deadline of its own: a command runs for as long as the caller waits.
    pub async fn wait_for_exit(&self, terminal: &TerminalId) -> Result<Exit, HostError> {
        let reply =
            self.host.call(&self.session, HostCall::WaitForExit(terminal.clone()), self.after()).await?;
        if let HostReply::Exit(exit) = reply { Ok(exit) } else { Err(HostError::Malformed) }
    }

    pub async fn kill(&self, terminal: &TerminalId) -> Result<(), HostError> {
        self.call(HostCall::KillTerminal(terminal.clone())).await.map(drop)
    }

    /// Types into a terminal. Only where [`HostAbilities::typing`] is offered.
    pub async fn type_into(&self, terminal: &TerminalId, bytes: Arc<[u8]>) -> Result<(), HostError> {
        self.call(HostCall::TypeInto { terminal: terminal.clone(), bytes }).await.map(drop)
    }

    /// Ends what runs in a terminal, without waiting for it.
    pub fn kill_now(&self, terminal: &TerminalId) {
        self.host.tell(&self.session, HostCall::KillTerminal(terminal.clone()), Seq::START);
    }

    /// Releases a terminal once the client has been sent everything up to `after`, and the end of the call
    /// that shows it.
    pub fn release(&self, terminal: &TerminalId, after: Seq) {
        self.host.tell(&self.session, HostCall::ReleaseTerminal(terminal.clone()), after);
    }

    async fn call(&self, call: HostCall) -> Result<HostReply, HostError> {
        let answer = self.host.call(&self.session, call, self.after());
        tokio::time::timeout(CALL_TIME_MAX, answer).await.unwrap_or_else(|_| {
            self.silent.add(self.host.surface());
            Err(HostError::TimedOut)
        })
    }
}

#[cfg(test)]
mod tests;
