//! The child process of an agent: started inside its sandbox, connected to with an [`AgentConnection`], and
//! ended together with everything that it started.
//!
//! Its standard error is not part of the protocol. It is read so that the process does not block, and the
//! last part is kept to explain why the process ended.
//!
//! **Invariant:** when a [`ChildProcess`] has been dropped or ended, the program and everything it started
//! have ended.

mod environment;
mod stderr_tail;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use sandbox::{
    ChildCommand, CommandLimits, EndCause, Fence, Program, ServiceEvent, ServicePipes, ServiceProcess,
    StartError, Violation,
};
use tokio_util::task::TaskTracker;

use super::agent_journal::JournalSender;
use super::connection::{AgentConnection, ConnectionLimits, MessageReceiver};
use stderr_tail::StderrTail;

pub use environment::environment;

/// How long to wait for the rest of standard error after the program has ended. It comes late only if another
/// process holds standard error open.
const STDERR_WAIT: Duration = Duration::from_millis(500);

/// An agent's program before it is started.
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    /// What people call the agent.
    pub name: String,
    /// A path, or a name that is looked up in the `PATH` of the environment.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// All of it: see [`environment()`].
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub folder: PathBuf,
    /// Its sandbox. The policy names the folder and further roots, and is best taken from
    /// [`sandbox::Files::policy`], which knows their real paths and what in them is locked. Without a fence the
    /// program has the rights of this process.
    pub fence: Option<Fence>,
    /// Only the limits on processes, memory and files apply. Time and output are not limited here.
    pub limits: CommandLimits,
    pub connection: ConnectionLimits,
    /// Records what it sends.
    pub notes: Option<JournalSender>,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{name} cannot work in {}: the folder does not exist; create it again or choose another", .folder.display())]
    NoFolder { name: String, folder: PathBuf },
    #[error("{}", not_started(.name, .program, .error))]
    NotStarted { name: String, program: PathBuf, error: StartError },
}

/// A running agent program. [`ChildProcess::next`] must be polled now and then, or sandbox refusals are
/// reported late.
pub struct ChildProcess {
    name: String,
    program: PathBuf,
    service: ServiceProcess,
    connection: AgentConnection,
    stderr_tail: Arc<StderrTail>,
}

/// What there is to know of a running agent besides what it says.
#[derive(Debug)]
pub enum ProcessEvent {
    /// The sandbox refused something that it tried.
    Refused(Violation),
    Ended(ProcessEnd),
}

/// How an agent ended; its `Display` is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    pub status: Option<ExitStatus>,
    /// The last part of its standard error.
    pub stderr_tail: String,
    how: String,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how)?;
        if self.stderr_tail.is_empty() { Ok(()) } else { write!(f, ": {}", self.stderr_tail) }
    }
}

impl ChildProcess {
    /// Starts the program. Its messages come through the receiver; dropping that ends the connection, not the
    /// program.
    pub async fn start(
        launch: LaunchSpec,
        tasks: &TaskTracker,
    ) -> Result<(Self, MessageReceiver), LaunchError> {
        let LaunchSpec { name, program, arguments, environment, folder, fence, limits, connection, notes } =
            launch;
        if !folder.is_dir() {
            return Err(LaunchError::NoFolder { name, folder });
        }
        let command = ChildCommand {
            program: Program::Exec { program: program.clone(), arguments },
            cwd: folder,
            environment,
            limits,
            fence,
        };
        let (service, pipes) = match ServiceProcess::start(&command).await {
            Ok(started) => started,
            Err(error) => return Err(LaunchError::NotStarted { name, program, error }),
        };
        let ServicePipes { stdin, stdout, stderr } = pipes;
        let stderr_tail = Arc::new(StderrTail::default());
        tasks.spawn(stderr_tail::listen(stderr, Arc::clone(&stderr_tail)));
        let (connection, receiver) = AgentConnection::start(stdout, stdin, connection, notes, tasks);
        Ok((Self { name, program, service, connection, stderr_tail }, receiver))
    }

    pub fn connection(&self) -> &AgentConnection {
        &self.connection
    }

    /// The last part of its standard error.
    pub fn stderr_tail(&self) -> String {
        self.stderr_tail.shown()
    }

    /// The next event. Cancel-safe; after the end it returns the end again.
    pub async fn next(&mut self) -> ProcessEvent {
        match self.service.next().await {
            ServiceEvent::Refused(violation) => ProcessEvent::Refused(violation),
            ServiceEvent::Ended(status) => ProcessEvent::Ended(self.end_of(status).await),
        }
    }

    /// Waits until it has ended. Cancel-safe.
    pub async fn ended(&mut self) -> ProcessEnd {
        let status = self.service.ended().await;
        self.end_of(status).await
    }

    /// Ends it: its input is closed, then it gets a signal, then it is killed. `grace` applies to each of the
    /// first two steps.
    pub async fn end(mut self, grace: Duration) -> ProcessEnd {
        self.connection.close();
        let status = self.service.stop(grace).await;
        self.end_of(status).await
    }

    async fn end_of(&self, status: Option<ExitStatus>) -> ProcessEnd {
        tokio::time::timeout(STDERR_WAIT, self.stderr_tail.complete()).await.ok();
        let name = &self.name;
        let how = match (self.service.not_started(), self.service.cause(), status) {
            (Some(error), _, _) => not_started(name, &self.program, error),
            (None, EndCause::TooMuchMemory, _) => format!("{name} was ended: it held too much memory"),
            (None, EndCause::TooManyProcesses, _) => {
                format!("{name} was ended: it started too many processes")
            }
            (None, _, Some(status)) => match status.code() {
                Some(code) => format!("{name} ended with code {code}"),
                None => format!("{name} was ended ({status})"),
            },
            (None, _, None) => format!("{name} ended; its exit status is not known"),
        };
        ProcessEnd { status, stderr_tail: self.stderr_tail.shown(), how }
    }
}

fn not_started(name: &str, program: &Path, error: &StartError) -> String {
    let program = program.display();
    match error {
        StartError::Spawn(source) if source.kind() == io::ErrorKind::NotFound => format!(
            "{name} could not be started: program {program} not found; install it, or use its full path"
        ),
        StartError::Spawn(source) => format!("{name} could not be started: {program}: {source}"),
        StartError::Busy | StartError::NoFence(_) => format!("{name} could not be started: {error}"),
    }
}

#[cfg(test)]
mod tests;
