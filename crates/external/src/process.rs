//! An agent's program: started behind its fence, spoken to by a [`Peer`], ended with all that it started.
//!
//! What it writes on standard error belongs to nobody, so it is read to keep the program going, and the
//! last of it is kept to say why the program ended.
//!
//! **Invariant:** when a [`Process`] is dropped or ended, the program and whatever it started have ended.

mod environment;
mod words;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use sandbox::{
    Cause, Command, Fence, Limits, Program, Service, ServiceNews, ServicePipes, StartError, Violation,
};
use tokio_util::task::TaskTracker;

use super::journal::Notes;
use super::peer::{Ears, Peer, PeerLimits};
use words::LastWords;

pub use environment::environment;

/// For the last words of a program that has ended. Only somebody who has its standard error and outlives
/// it can make them late.
const WORDS_WAIT: Duration = Duration::from_millis(500);

/// An agent's program before it is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// What people call the agent.
    pub name: String,
    /// A path, or a name that is looked for in the environment's `PATH`.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// All of it: see [`environment()`].
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub folder: PathBuf,
    /// What it may reach. Its policy names the folder and further roots, and is best taken from
    /// [`sandbox::Files::policy`], which knows their real paths and what in them is locked. Without a fence it
    /// has the rights of this process.
    pub fence: Option<Fence>,
    /// Those for processes, memory and files count. Time and output have none here.
    pub limits: Limits,
    pub peer: PeerLimits,
    /// What it says is noted here.
    pub notes: Option<Notes>,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{name} cannot work in {}: there is no such folder; make it again or choose another", .folder.display())]
    NoFolder { name: String, folder: PathBuf },
    #[error("{}", not_started(.name, .program, .error))]
    NotStarted { name: String, program: PathBuf, error: StartError },
}

/// A running agent. [`Process::next`] must be asked from time to time, or the last refusals are told late.
pub struct Process {
    name: String,
    program: PathBuf,
    service: Service,
    peer: Peer,
    words: Arc<LastWords>,
}

/// What there is to know of a running agent besides what it says.
#[derive(Debug)]
pub enum ProcessNews {
    /// It tried something that its fence refused.
    Refused(Violation),
    Ended(ProcessEnd),
}

/// How an agent ended; shown, it is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    pub status: Option<ExitStatus>,
    /// What it said last on standard error.
    pub words: String,
    how: String,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how)?;
        if self.words.is_empty() { Ok(()) } else { write!(f, ": {}", self.words) }
    }
}

impl Process {
    /// Starts the program. What it says is heard by the ears; dropping them ends the conversation, not the
    /// program.
    pub async fn start(launch: Launch, tasks: &TaskTracker) -> Result<(Self, Ears), LaunchError> {
        let Launch { name, program, arguments, environment, folder, fence, limits, peer, notes } = launch;
        if !folder.is_dir() {
            return Err(LaunchError::NoFolder { name, folder });
        }
        let command = Command {
            program: Program::Exec { program: program.clone(), arguments },
            cwd: folder,
            environment,
            limits,
            fence,
        };
        let (service, pipes) = match Service::start(&command).await {
            Ok(started) => started,
            Err(error) => return Err(LaunchError::NotStarted { name, program, error }),
        };
        let ServicePipes { stdin, stdout, stderr } = pipes;
        let words = Arc::new(LastWords::default());
        tasks.spawn(words::listen(stderr, Arc::clone(&words)));
        let (peer, ears) = Peer::start(stdout, stdin, peer, notes, tasks);
        Ok((Self { name, program, service, peer, words }, ears))
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What it said last on standard error.
    pub fn words(&self) -> String {
        self.words.shown()
    }

    /// What happens next. Safe to drop; after the end it says the end again.
    pub async fn next(&mut self) -> ProcessNews {
        match self.service.next().await {
            ServiceNews::Refused(violation) => ProcessNews::Refused(violation),
            ServiceNews::Ended(status) => ProcessNews::Ended(self.end_of(status).await),
        }
    }

    /// Waits until it has ended. Safe to drop.
    pub async fn ended(&mut self) -> ProcessEnd {
        let status = self.service.ended().await;
        self.end_of(status).await
    }

    /// Ends it: its input is closed; then it is asked by a signal, then forced. `grace` is for each of the
    /// first two.
    pub async fn end(mut self, grace: Duration) -> ProcessEnd {
        self.peer.close();
        let status = self.service.stop(grace).await;
        self.end_of(status).await
    }

    async fn end_of(&self, status: Option<ExitStatus>) -> ProcessEnd {
        tokio::time::timeout(WORDS_WAIT, self.words.complete()).await.ok();
        let name = &self.name;
        let how = match (self.service.not_started(), self.service.cause(), status) {
            (Some(error), _, _) => not_started(name, &self.program, error),
            (None, Cause::TooMuchMemory, _) => format!("{name} was ended: it held too much memory"),
            (None, Cause::TooManyProcesses, _) => {
                format!("{name} was ended: it started too many processes")
            }
            (None, _, Some(status)) => match status.code() {
                Some(code) => format!("{name} ended with code {code}"),
                None => format!("{name} was ended ({status})"),
            },
            (None, _, None) => format!("{name} ended, nobody saw how"),
        };
        ProcessEnd { status, words: self.words.shown(), how }
    }
}

fn not_started(name: &str, program: &Path, error: &StartError) -> String {
    let program = program.display();
    match error {
        StartError::Spawn(source) if source.kind() == io::ErrorKind::NotFound => format!(
            "{name} could not be started: there is no program {program}; install it, or name it by its whole path"
        ),
        StartError::Spawn(source) => format!("{name} could not be started: {program}: {source}"),
        StartError::Busy | StartError::NoFence(_) => format!("{name} could not be started: {error}"),
    }
}

#[cfg(test)]
mod tests;
