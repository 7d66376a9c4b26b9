//! A child that is spoken to while it runs, as tool servers are: its pipes are the caller's.
//!
//! It runs with the rights of this process: there is no fence around it. Like every child it gets no
//! environment but the one it is given, leads its own process group and ends as a whole.
//!
//! **Invariant:** when a [`Service`] is dropped, it and whatever it left in its group have ended.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::command::Command;
use crate::group::Group;
use crate::run::StartError;

/// How long to wait for a killed process to be gone. It can only be late if the kernel holds it.
const KILL_WAIT: Duration = Duration::from_secs(5);

pub struct Service {
    group: Group,
}

/// Closing its input is how a service is told to end.
pub struct ServicePipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

impl Service {
    /// Starts the program. A fence in the command is refused: the helper that builds one needs the
    /// standard input for itself.
    pub async fn start(command: &Command) -> Result<(Self, ServicePipes), StartError> {
        if command.fence.is_some() {
            return Err(StartError::NoFence("a program that is spoken to cannot have one".into()));
        }
        let mut group = Group::start_listening(command).await?;
        let child = &mut group.child;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        match (stdin, stdout, stderr) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok((Self { group }, ServicePipes { stdin, stdout, stderr }))
            }
            _ => Err(StartError::Spawn(std::io::Error::other("the child has no pipes"))),
        }
    }

    /// Waits until the program has ended; then ends what it left behind. Safe to drop.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.group.child.wait().await.ok();
        self.group.finish();
        status
    }

    /// Ends the program: by itself, if its input was closed and it is quick; else by a signal, else by
    /// force. `grace` is for each of the first two.
    pub async fn end(mut self, grace: Duration) {
        if timeout(grace, self.ended()).await.is_ok() {
            return;
        }
        self.group.signal(Signal::TERM);
        if timeout(grace, self.ended()).await.is_ok() {
            return;
        }
        self.group.signal(Signal::KILL);
        // What the kernel holds is waited for no longer; it is killed as soon as it is let go.
        drop(timeout(KILL_WAIT, self.ended()).await);
    }
}
