//! What an agent that is another program may have done by us: files and commands, as any client offers them.
//!
//! The person's editor does it where it offers to, else it happens here: files below handles of the
//! session's folders, commands behind the session's fence. Either way it is judged first, exactly as what
//! our own agent wants to do: where the path leads, how risky it is, what rules, presets and people say.
//!
//! **Invariant:** nothing is done for an agent that was not judged; what was just allowed to it for the very
//! same thing is not asked for again.
//! **Invariant:** no command outlives its terminal, and no terminal its session.

mod files;
mod permission;
mod terminals;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use engine::{Body, BoxFuture, EDITOR_SILENT, HostCall, HostError, HostReply, NoticeLevel, TurnContext};
use sandbox::{FileError, Files, Helper, Limits, Mode, Policy, Spot, Unfit, Want};
use tokio_util::task::TaskTracker;
use wire::acp::Unserved;

pub use permission::Grant;
use permission::Grants;
use terminals::Terminals;

/// How an agent is served in one session.
#[derive(Debug, Clone)]
pub struct DeskSpec {
    /// The working folder as the client named it.
    pub cwd: PathBuf,
    /// The first root is the working folder.
    pub policy: Policy,
    /// Who builds the fence around commands. Without, they have the rights of this process.
    pub helper: Option<Helper>,
    /// What every command is told, besides what the agent adds.
    pub environment: Vec<(OsString, OsString)>,
    /// For each command. Time and forwarded output have no limit here: an agent ends its commands itself,
    /// and what is kept of their output is bounded.
    pub limits: Limits,
    /// Commands run in the terminal of an editor that offers one, and so outside the fence, each after the
    /// owner at the machine has allowed it.
    pub editor_terminal: bool,
}

/// Counts what is about to be written down for the agent. Says why, if that is too much.
pub type Counter = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Serves one session's agent. Its copies are the same desk.
#[derive(Clone)]
pub struct Desk {
    shared: Arc<Shared>,
}

struct Shared {
    spec: DeskSpec,
    files: Result<Files, FileError>,
    terminals: Terminals,
    grants: Mutex<Grants>,
    tasks: TaskTracker,
    counter: Counter,
}

impl Desk {
    /// Opens the folders. Touches the disk. One that cannot be opened is named to whoever wants a file.
    pub fn open(spec: DeskSpec, counter: Counter) -> Self {
        let files = Files::open(spec.policy.clone());
        let (terminals, grants, tasks) = (Terminals::default(), Mutex::default(), TaskTracker::new());
        Self { shared: Arc::new(Shared { spec, files, terminals, grants, tasks, counter }) }
    }

    /// Does what the agent asks for. `turn` is the running one: outside of a turn nobody can be asked, so
    /// only terminals that are there already can be used. A wait for a command takes as long as it runs,
    /// so whoever hears the agent must not wait for this.
    pub async fn serve(&self, turn: Option<&TurnContext>, call: HostCall) -> Result<HostReply, Unserved> {
        let desk = &self.shared;
        let turn_of = |turn: Option<&TurnContext>| turn.cloned().ok_or_else(no_turn);
        match call {
            HostCall::ReadText { path, line, limit } => {
                files::read(desk, &turn_of(turn)?, &path, line, limit).await.map(HostReply::Text)
            }
            HostCall::WriteText { path, text } => {
                files::write(desk, &turn_of(turn)?, &path, text).await.map(|()| HostReply::Done)
            }
            HostCall::CreateTerminal(new) => {
                terminals::create(desk, &turn_of(turn)?, new).await.map(HostReply::Terminal)
            }
            HostCall::TerminalOutput(id) => desk.terminals.output(&id, turn).await.map(HostReply::Output),
            HostCall::WaitForExit(id) => desk.terminals.exit(&id, turn).await.map(HostReply::Exit),
            HostCall::KillTerminal(id) => desk.terminals.kill(&id).await.map(|()| HostReply::Done),
            HostCall::TypeInto { .. } => Err(Unserved::Invalid("nothing can be typed here".into())),
            HostCall::Extension { method, .. } => {
                Err(Unserved::Invalid(format!("{method} is not for a desk")))
            }
            HostCall::ReleaseTerminal(id) => {
                desk.terminals.release(&id, turn).await.map(|()| HostReply::Done)
            }
        }
    }

    /// The agent has just been allowed this by whoever decides: the same thing is not asked for again in
    /// this turn.
    pub fn allowed(&self, grant: Grant) {
        self.shared.grants().add(grant);
    }

    /// What was allowed for the turn is over.
    pub fn turn_ended(&self) {
        self.shared.grants().clear();
    }

    /// What a terminal of ours shows, for readers who cannot look into it. `None`: it is none of ours.
    pub fn look(&self, terminal: &engine::TerminalId) -> Option<engine::TerminalOutput> {
        self.shared.terminals.look(terminal)
    }

    /// Waits for the end of the command in a terminal, without keeping it alive. `None`: it is none of ours.
    pub fn ended(&self, terminal: &engine::TerminalId) -> Option<impl Future<Output = ()> + use<>> {
        self.shared.terminals.ended(terminal)
    }

    /// Ends all terminals of an agent that has ended itself: nobody else knows them.
    pub fn abandoned(&self) {
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
    fn files(&self) -> Result<&Files, Unserved> {
        self.files.as_ref().map_err(|error| Unserved::Failed(error.to_string()))
    }

    fn policy(&self) -> &Policy {
        self.files.as_ref().map_or(&self.spec.policy, Files::policy)
    }

    fn mode(&self) -> Mode {
        self.files.as_ref().map_or(Mode::ReadOnly, |files| files.policy().mode)
    }

    /// Where a path of the agent's leads, if that may be reached.
    async fn find(self: &Arc<Self>, turn: &TurnContext, path: &Path, want: Want) -> Result<Spot, Unserved> {
        let (desk, whole) = (Arc::clone(self), self.spec.cwd.join(path));
        let found = self.blocking(move || Ok(desk.files()?.find(&whole, want))).await?;
        match found {
            Ok(spot) => Ok(spot),
            Err(error) => Err(self.unusable(turn, want, error).await),
        }
    }

    /// What is told of a file that cannot be had. That the fence refused it stands in the log.
    async fn unusable(&self, turn: &TurnContext, want: Want, error: FileError) -> Unserved {
        let told = error.to_string();
        match error {
            FileError::Refused { path, .. } => {
                self.blocked(turn, if want == Want::Read { "read" } else { "write" }, Some(path), &told)
                    .await;
                Unserved::Refused(told)
            }
            FileError::Unusable { reason: Unfit::Missing, .. } => Unserved::Missing(told),
            FileError::Unusable { .. } => Unserved::Failed(told),
        }
    }

    /// Counts what is written down next. A request is far smaller than what it leaves: to empty a file leaves
    /// all that was in it.
    async fn count(&self, bytes: usize) -> Result<(), Unserved> {
        (self.counter)(bytes).await.map_err(Unserved::Refused)
    }

    async fn blocked(&self, turn: &TurnContext, tool: &str, path: Option<PathBuf>, reason: &str) {
        let mode = self.mode().name().into();
        let (tool, reason) = (tool.into(), reason.into());
        let body = engine::Body::PolicyBlocked { call: None, tool, path, mode, reason };
        // A session that is gone has no log to write to.
        turn.emit(body).await.ok();
    }

    /// Work with files, off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Unserved> + Send + 'static,
    ) -> Result<T, Unserved> {
        match self.tasks.spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(Unserved::Failed(format!("the work with the file broke off: {error}"))),
        }
    }

    /// A path as the client knows it: below the folder that it named, also if that is a link. One that is
    /// not Unicode cannot be said.
    fn named(&self, real: &Path) -> Option<PathBuf> {
        let folder = self.policy().roots.first();
        let path = match folder.and_then(|folder| real.strip_prefix(folder).ok()) {
            Some(below) => self.spec.cwd.join(below),
            None => real.to_owned(),
        };
        path.to_str().is_some().then_some(path)
    }
}

/// Waits for the editor, but not longer than the turn lasts.
async fn within<T>(
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

fn no_turn() -> Unserved {
    Unserved::Refused(
        "no turn is running, so nobody can be asked; ask again while a prompt is worked on".into(),
    )
}
