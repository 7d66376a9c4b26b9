//! A child that the caller talks to while it runs, such as a tool server or an external agent: its pipes are the caller's.
//!
//! Like every child it gets no environment except the one it is given, leads its own process group and ends as a whole. With
//! a fence it is started by the helper, as a command is. Its input is passed to the helper as a file, because the helper's own
//! input is the connection to this program.
//!
//! **Invariant:** when a [`ServiceProcess`] is dropped, it and everything left in its process group have ended.
//! **Invariant:** a service with a fence never ran if the helper did not report that the fence stands.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use crate::command::ChildCommand;
use crate::helper_report::HelperReport;
use crate::process_group::ProcessGroup;
use crate::run::{EndCause, StartError};
use crate::violation::Violation;

/// How long to wait for a killed process to be gone. It can only be late if the kernel holds it.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How long the helper may take to build a fence: some milliseconds, on a machine that has time.
const FENCE_WAIT: Duration = Duration::from_secs(30);

/// How long to wait for the end of the reports of a helper that has ended. Only another process that has the other end
/// of its connection open can delay it.
const REPORTS_WAIT: Duration = Duration::from_secs(1);

pub struct ServiceProcess {
    group: ProcessGroup,
    cause: EndCause,
    not_started: Option<StartError>,
}

/// Closing `stdin` asks the service to end.
pub struct ServicePipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// An event of a running service.
#[derive(Debug)]
pub enum ServiceEvent {
    /// It tried something that its fence refused.
    Refused(Violation),
    /// It and what it left behind have ended.
    Ended(Option<ExitStatus>),
}

enum Wake {
    Report(Option<HelperReport>),
    Exited(Option<ExitStatus>),
}

impl ServiceProcess {
    /// Starts the program. With a fence, the fence stands when this returns. A program that then cannot
    /// be run is reported by [`ServiceProcess::not_started`] after its end.
    pub async fn start(command: &ChildCommand) -> Result<(Self, ServicePipes), StartError> {
        let mut group = ProcessGroup::start_with_input(command).await?;
        let child = &mut group.child;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(StartError::Spawn(io::Error::other("the child has no pipes")));
        };
        let mut service = Self { group, cause: EndCause::Itself, not_started: None };
        if command.fence.is_some() {
            service.fenced().await?;
        }
        Ok((service, ServicePipes { stdin, stdout, stderr }))
    }

    /// Waits until the helper reports that the fence stands.
    async fn fenced(&mut self) -> Result<(), StartError> {
        let said = async {
            loop {
                match self.wake().await {
                    Wake::Report(Some(HelperReport::Started)) => return Ok(()),
                    Wake::Report(Some(HelperReport::NoFence(reason))) => {
                        return Err(StartError::NoFence(reason));
                    }
                    Wake::Report(Some(HelperReport::NotStarted(error))) => return Err(spawn_error(error)),
                    Wake::Report(_) => {}
                    Wake::Exited(status) => {
                        let how = status.map_or_else(|| "unseen".to_owned(), |status| status.to_string());
                        let reason = format!("the sandbox helper ended before the program started ({how})");
                        return Err(StartError::NoFence(reason));
                    }
                }
            }
        };
        match timeout(FENCE_WAIT, said).await {
            Ok(said) => said,
            Err(_) => {
                // Whoever has not begun by then may be no helper, and would not listen.
                self.group.signal(Signal::KILL);
                self.group.signal(Signal::KILL);
                Err(StartError::NoFence("the sandbox helper was not ready in time".into()))
            }
        }
    }

    /// The next event. Cancel-safe; after the end it returns the end again.
    pub async fn next(&mut self) -> ServiceEvent {
        loop {
            match self.wake().await {
                Wake::Report(Some(HelperReport::Refused(violation))) => {
                    return ServiceEvent::Refused(violation);
                }
                Wake::Report(Some(report)) => self.handle_report(report),
                Wake::Report(None) => {}
                Wake::Exited(status) => {
                    self.group.finish();
                    return ServiceEvent::Ended(status);
                }
            }
        }
    }

    /// Waits until the program has ended; then ends what it left behind. Safe to drop.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        loop {
            if let ServiceEvent::Ended(status) = self.next().await {
                return status;
            }
        }
    }

    /// Why the program itself never ran, once it has ended.
    pub fn not_started(&self) -> Option<&StartError> {
        self.not_started.as_ref()
    }

    /// Which limit it was ended for, if it was one.
    pub fn cause(&self) -> EndCause {
        self.cause
    }

    /// Ends the program: by itself, if its input was closed and it is quick; else by a signal, else by
    /// force. `grace` is for each of the first two.
    pub async fn end(mut self, grace: Duration) {
        self.stop(grace).await;
    }

    /// The same for who wants to know how it ended.
    pub async fn stop(&mut self, grace: Duration) -> Option<ExitStatus> {
        if let Ok(status) = timeout(grace, self.ended()).await {
            return status;
        }
        self.group.signal(Signal::TERM);
        if let Ok(status) = timeout(grace, self.ended()).await {
            return status;
        }
        self.group.signal(Signal::KILL);
        // What the kernel holds is waited for no longer; it is killed as soon as it is let go.
        timeout(KILL_WAIT, self.ended()).await.ok().flatten()
    }

    /// The connection to a helper ends with it, so its reports come before its exit.
    async fn wake(&mut self) -> Wake {
        let ProcessGroup { child, connection, .. } = &mut self.group;
        if let Some(connection) = connection.as_mut().filter(|connection| connection.open()) {
            let gone = async {
                child.wait().await.ok();
                sleep(REPORTS_WAIT).await;
            };
            tokio::select! {
                biased;
                report = connection.next() => return Wake::Report(report),
                () = gone => {}
            }
        }
        Wake::Exited(child.wait().await.ok())
    }

    fn handle_report(&mut self, report: HelperReport) {
        match report {
            HelperReport::TooMuchMemory => self.cause = EndCause::TooMuchMemory,
            HelperReport::TooManyProcesses => self.cause = EndCause::TooManyProcesses,
            HelperReport::NotStarted(error) => self.not_started = Some(spawn_error(error)),
            HelperReport::NoFence(reason) => self.not_started = Some(StartError::NoFence(reason)),
            HelperReport::Started | HelperReport::Refused(_) => {}
        }
    }
}

fn spawn_error(number: i32) -> StartError {
    StartError::Spawn(io::Error::from_raw_os_error(number))
}
