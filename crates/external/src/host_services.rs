//! What the client offers to an external agent: files and commands (`fs/*` and `terminal/*` of the protocol).
//!
//! The person's editor provides them where it offers to. Otherwise it happens here: files below handles of
//! the session's folders, commands inside the session's sandbox. Either way the action is checked first,
//! exactly like an action of the built-in agent: where the path leads, how risky it is, and what rules,
//! presets and people decide.
//!
//! **Invariant:** nothing is done for an agent without that check. An action that the agent was just allowed
//! to do is not asked about a second time.
//! **Invariant:** no command outlives its terminal, and no terminal outlives its session.

mod action_permission;
mod files;
mod terminals;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use engine::{Body, BoxFuture, EDITOR_SILENT, HostCall, HostError, HostReply, NoticeLevel, TurnContext};
use sandbox::{
    CommandLimits, FileError, Files, Helper, Mode, PathAccess, PermittedPath, Policy, UnusableReason,
};
use tokio_util::task::TaskTracker;
use wire::acp::HostRequestError;

pub use action_permission::Grant;
use action_permission::Grants;
use terminals::Terminals;

/// What an agent is offered in one session.
#[derive(Debug, Clone)]
pub struct HostServicesSpec {
    /// The working folder as the client named it.
    pub cwd: PathBuf,
    /// The first root is the working folder.
    pub policy: Policy,
    /// Builds the sandbox around commands. Without it, they have the rights of this process.
    pub helper: Option<Helper>,
    /// The environment of every command, besides what the agent adds.
    pub environment: Vec<(OsString, OsString)>,
    /// Limits of each command. Time and forwarded output are not limited here: an agent ends its commands
    /// itself, and the stored output is bounded.
    pub limits: CommandLimits,
    /// Commands run in the terminal of an editor that offers one, which is outside of the sandbox, each after
    /// the owner at the machine has allowed it.
    pub editor_terminal: bool,
}

/// Counts bytes that are about to be logged for the agent. The error says which limit they exceed.
pub type ByteCounter = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The files and terminals that one session's agent may use. Clones share everything.
#[derive(Clone)]
pub struct HostServices {
    shared: Arc<Shared>,
}

struct Shared {
    spec: HostServicesSpec,
    files: Result<Files, FileError>,
    terminals: Terminals,
    grants: Mutex<Grants>,
    tasks: TaskTracker,
    counter: ByteCounter,
}

impl HostServices {
    /// Opens the folders, so it accesses the disk. If one cannot be opened, every file request gets that error.
    pub fn open(spec: HostServicesSpec, counter: ByteCounter) -> Self {
        let files = Files::open(spec.policy.clone());
        let (terminals, grants, tasks) = (Terminals::default(), Mutex::default(), TaskTracker::new());
        Self { shared: Arc::new(Shared { spec, files, terminals, grants, tasks, counter }) }
    }

    /// Answers a request of the agent. `turn` is the running one: outside of a turn nobody can be asked for
    /// permission, so only existing terminals can be used. Waiting for a command takes as long as it runs, so
    /// the task that receives the agent's messages must not wait for this.
    pub async fn serve(
        &self,
        turn: Option<&TurnContext>,
        call: HostCall,
    ) -> Result<HostReply, HostRequestError> {
        let services = &self.shared;
        let turn_of = |turn: Option<&TurnContext>| turn.cloned().ok_or_else(no_turn);
        match call {
            HostCall::ReadText { path, line, limit } => {
                files::read(services, &turn_of(turn)?, &path, line, limit).await.map(HostReply::Text)
            }
            HostCall::WriteText { path, text } => {
                files::write(services, &turn_of(turn)?, &path, text).await.map(|()| HostReply::Done)
            }
            HostCall::CreateTerminal(new) => {
                terminals::create(services, &turn_of(turn)?, new).await.map(HostReply::Terminal)
            }
            HostCall::TerminalOutput(id) => services.terminals.output(&id, turn).await.map(HostReply::Output),
            HostCall::WaitForExit(id) => services.terminals.exit(&id, turn).await.map(HostReply::Exit),
            HostCall::KillTerminal(id) => services.terminals.kill(&id).await.map(|()| HostReply::Done),
            HostCall::TypeInto { .. } => {
                Err(HostRequestError::Invalid("typing is not supported here".into()))
            }
            HostCall::Extension { method, .. } => {
                Err(HostRequestError::Invalid(format!("{method} is not supported here")))
            }
            HostCall::ReleaseTerminal(id) => {
                services.terminals.release(&id, turn).await.map(|()| HostReply::Done)
            }
        }
    }

    /// The agent has just been given this permission, so the same action is not asked about again in this turn.
    pub fn add_grant(&self, grant: Grant) {
        self.shared.grants().add(grant);
    }

    /// Forgets the permissions of the turn.
    pub fn turn_ended(&self) {
        self.shared.grants().clear();
    }

    /// The output of one of our own terminals, for clients that cannot see it. `None`: it is the editor's.
    pub fn terminal_output(&self, terminal: &engine::TerminalId) -> Option<engine::TerminalOutput> {
        self.shared.terminals.own_output(terminal)
    }

    /// Waits for the end of the command in one of our own terminals, without keeping it alive. `None`: it is
    /// the editor's.
    pub fn command_ended(&self, terminal: &engine::TerminalId) -> Option<impl Future<Output = ()> + use<>> {
        self.shared.terminals.command_ended(terminal)
    }

    /// Ends all terminals after the agent has exited: nobody else knows their ids.
    pub fn end_terminals(&self) {
        self.shared.terminals.end_all();
    }

    /// Ends all terminals and waits until their commands have ended.
    pub async fn close(&self) {
        self.shared.terminals.close();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Shared {
    fn files(&self) -> Result<&Files, HostRequestError> {
        self.files.as_ref().map_err(|error| HostRequestError::Failed(error.to_string()))
    }

    fn policy(&self) -> &Policy {
        self.files.as_ref().map_or(&self.spec.policy, Files::policy)
    }

    fn mode(&self) -> Mode {
        self.files.as_ref().map_or(Mode::ReadOnly, |files| files.policy().mode)
    }

    /// Resolves a path of the agent, if it may be accessed.
    async fn find(
        self: &Arc<Self>,
        turn: &TurnContext,
        path: &Path,
        want: PathAccess,
    ) -> Result<PermittedPath, HostRequestError> {
        let (services, whole) = (Arc::clone(self), self.spec.cwd.join(path));
        let found = self.run_blocking(move || Ok(services.files()?.find(&whole, want))).await?;
        match found {
            Ok(spot) => Ok(spot),
            Err(error) => Err(self.file_error(turn, want, error).await),
        }
    }

    /// The agent's error for a file that cannot be accessed. A refusal of the sandbox is also logged.
    async fn file_error(&self, turn: &TurnContext, want: PathAccess, error: FileError) -> HostRequestError {
        let told = error.to_string();
        match error {
            FileError::Refused { path, .. } => {
                self.log_blocked(
                    turn,
                    if want == PathAccess::Read { "read" } else { "write" },
                    Some(path),
                    &told,
                )
                .await;
                HostRequestError::Refused(told)
            }
            FileError::Unusable { reason: UnusableReason::Missing, .. } => HostRequestError::Missing(told),
            FileError::Unusable { .. } => HostRequestError::Failed(told),
        }
    }

    /// Counts what is about to be logged. It can be far larger than the request: emptying a file logs its whole
    /// former text.
    async fn count(&self, bytes: usize) -> Result<(), HostRequestError> {
        (self.counter)(bytes).await.map_err(HostRequestError::Refused)
    }

    async fn log_blocked(&self, turn: &TurnContext, tool: &str, path: Option<PathBuf>, reason: &str) {
        let mode = self.mode().name().into();
        let (tool, reason) = (tool.into(), reason.into());
        let body = engine::Body::PolicyBlocked { call: None, tool, path, mode, reason };
        // A session that is gone has no log to write to.
        turn.emit(body).await.ok();
    }

    /// Runs file work on a blocking thread.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HostRequestError> + Send + 'static,
    ) -> Result<T, HostRequestError> {
        match self.tasks.spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => {
                Err(HostRequestError::Failed(format!("the file operation failed unexpectedly: {error}")))
            }
        }
    }

    /// A path as the client knows it: below the folder that it named, even if that is a link. `None` if the
    /// path is not Unicode.
    fn client_path(&self, real: &Path) -> Option<PathBuf> {
        let folder = self.policy().roots.first();
        let path = match folder.and_then(|folder| real.strip_prefix(folder).ok()) {
            Some(below) => self.spec.cwd.join(below),
            None => real.to_owned(),
        };
        path.to_str().is_some().then_some(path)
    }
}

/// Waits for the editor until the turn is cancelled.
async fn until_cancelled<T>(
    turn: &TurnContext,
    answer: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    let answer = tokio::select! {
        biased;
        () = turn.cancel.cancelled() => Err(HostError::Refused("the turn was cancelled".into())),
        answer = answer => answer,
    };
    if let Err(HostError::TimedOut) = answer {
        let notice = Body::Notice { level: NoticeLevel::Warning, text: EDITOR_SILENT.into() };
        // A session that is gone shows nothing.
        turn.emit(notice).await.ok();
    }
    answer
}

fn no_turn() -> HostRequestError {
    HostRequestError::Refused("no turn is running, so nobody can be asked; ask again during a turn".into())
}
