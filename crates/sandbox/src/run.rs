//! Runs a command to its end and forwards its output as it arrives.
//!
//! One future does it all, so there is no task to forget: dropping the future ends the command. Output goes into a bounded
//! channel; a slow receiver slows the command down, and the time limit still holds.
//!
//! **Invariant:** when [`run`] returns, the command and everything left in its process group have ended.
//! **Invariant:** a command with a fence never ran if the helper did not report that the fence stands.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::command::{ChildCommand, CommandLimits};
use crate::helper_report::HelperReport;
use crate::process_group::ProcessGroup;
use crate::pseudo_terminal::{PseudoTerminal, TerminalReader, TerminalWriter};
use crate::signal_names;
use crate::violation::Violation;

/// The largest piece of output that is handed on at once.
const CHUNK_BYTES_MAX: usize = 16 << 10;
/// How long to wait for a killed process to be gone. It can only be late if the kernel holds it.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How long to read on after the group ended. Only a process that left the group keeps a pipe open.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// Longer than any command runs, and short enough to be added to a time.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What comes out of a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Chunk(Chunk),
    /// The command tried something that its fence refused.
    Refused(Violation),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub stream: StdStream,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdStream {
    Stdout,
    Stderr,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandExit {
    pub code: Option<i32>,
    /// The name of the signal that ended the command.
    pub signal: Option<String>,
    pub cause: EndCause,
    /// Everything the command wrote.
    pub output_bytes: u64,
    /// The part of it that was not handed on.
    pub dropped_bytes: u64,
}

impl CommandExit {
    /// The number of the signal that ended the command.
    pub fn signal_number(&self) -> Option<i32> {
        self.signal.as_deref().and_then(signal_names::number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// The command ended, well or badly.
    Itself,
    TimedOut,
    Cancelled,
    TooMuchOutput,
    TooMuchMemory,
    TooManyProcesses,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the command could not be started")]
    Spawn(#[source] io::Error),
    #[error("too many commands are being started at once")]
    Busy,
    #[error("the sandbox could not be set up, so the command was not run: {0}")]
    NoFence(String),
}

/// Runs the command to its end. Cancelling ends it politely, dropping the future ends it at once.
pub async fn run(
    command: ChildCommand,
    cancel: CancellationToken,
    output: mpsc::Sender<Output>,
) -> Result<CommandExit, StartError> {
    run_with(command, None, cancel, output).await
}

/// The same in a terminal of its own. All of its output is [`StdStream::Stdout`]: a terminal has one.
pub async fn run_in_terminal(
    command: ChildCommand,
    terminal: PseudoTerminal,
    cancel: CancellationToken,
    output: mpsc::Sender<Output>,
) -> Result<CommandExit, StartError> {
    run_with(command, Some(terminal), cancel, output).await
}

async fn run_with(
    command: ChildCommand,
    terminal: Option<PseudoTerminal>,
    cancel: CancellationToken,
    output: mpsc::Sender<Output>,
) -> Result<CommandExit, StartError> {
    if cancel.is_cancelled() {
        return Ok(CommandExit {
            code: None,
            signal: None,
            cause: EndCause::Cancelled,
            output_bytes: 0,
            dropped_bytes: 0,
        });
    }
    let (terminal_reader, terminal_writer, theirs) = match terminal {
        None => (None, None, None),
        Some(terminal) => {
            let (terminal_reader, terminal_writer, theirs) = terminal.open().map_err(StartError::Spawn)?;
            (Some(terminal_reader), terminal_writer, Some(theirs))
        }
    };
    let mut group = ProcessGroup::start(&command, theirs).await?;
    let pipes =
        OutputPipes { stdout: group.child.stdout.take(), stderr: group.child.stderr.take(), terminal_reader };
    let wall = if command.limits.wall.is_zero() { FOREVER } else { command.limits.wall.min(FOREVER) };
    let deadline = Instant::now() + wall;
    let count = OutputCount { limits: command.limits, total: 0, dropped: 0 };
    let start = if command.fence.is_some() { StartState::Pending } else { StartState::Done };
    let (phase, cause) = (Phase::Active, EndCause::Itself);
    RunningCommand { group, pipes, terminal_writer, output, count, deadline, phase, cause, start }
        .finish(cancel)
        .await
}

struct RunningCommand {
    group: ProcessGroup,
    pipes: OutputPipes,
    terminal_writer: Option<TerminalWriter>,
    output: mpsc::Sender<Output>,
    count: OutputCount,
    deadline: Instant,
    phase: Phase,
    cause: EndCause,
    start: StartState,
}

/// Whether the command itself was started.
enum StartState {
    /// The helper has not reported yet.
    Pending,
    Done,
    Failed(StartError),
}

/// What the next deadline means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Active,
    /// Told to end; killed at the deadline.
    Ending,
    /// Killed; given up at the deadline.
    Killed,
    /// The leader has ended; its last output is read until the deadline.
    Draining,
}

enum Wake {
    Cancelled,
    Deadline,
    Exited(io::Result<ExitStatus>),
    Output(StdStream, Vec<u8>),
    OutputEnded,
    Typed,
    /// Nothing more can be typed.
    TypingEnded,
    Report(HelperReport),
    ReportsEnded,
}

impl RunningCommand {
    async fn finish(mut self, cancel: CancellationToken) -> Result<CommandExit, StartError> {
        let mut status = None;
        loop {
            match self.next_wake(&cancel).await {
                Wake::Cancelled => self.end(EndCause::Cancelled),
                Wake::Deadline => match self.phase {
                    Phase::Active => self.end(EndCause::TimedOut),
                    Phase::Ending => self.kill(),
                    Phase::Killed | Phase::Draining => break,
                },
                Wake::Exited(exit) => {
                    status = exit.ok();
                    self.drain();
                }
                Wake::Output(stream, bytes) => self.forward_output(stream, bytes, &cancel).await,
                // A command may close its output and go on.
                Wake::OutputEnded | Wake::ReportsEnded if self.phase != Phase::Draining => {}
                Wake::OutputEnded => break,
                Wake::ReportsEnded | Wake::Typed => {}
                Wake::TypingEnded => self.terminal_writer = None,
                Wake::Report(report) => self.handle_report(report, &cancel).await,
            }
        }
        match std::mem::replace(&mut self.start, StartState::Done) {
            StartState::Failed(error) => return Err(error),
            // Whoever was to be the helper is not one.
            StartState::Pending if self.cause != EndCause::Cancelled => {
                let how = status.map_or_else(|| "unseen".to_owned(), |status| status.to_string());
                return Err(StartError::NoFence(format!(
                    "the sandbox helper ended before the command started ({how})"
                )));
            }
            StartState::Pending | StartState::Done => {}
        }
        Ok(CommandExit {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()).map(signal_names::name),
            cause: self.cause,
            output_bytes: self.count.total,
            dropped_bytes: self.count.dropped,
        })
    }

    async fn next_wake(&mut self, cancel: &CancellationToken) -> Wake {
        let exited = self.phase == Phase::Draining;
        let reports = self.group.connection.as_mut().filter(|connection| connection.open());
        let (reporting, reports) = (reports.is_some(), async {
            match reports {
                Some(connection) => connection.next().await,
                None => None,
            }
        });
        let (typing, typed) = (self.terminal_writer.is_some() && !exited, async {
            match &mut self.terminal_writer {
                Some(terminal_writer) => terminal_writer.step().await,
                None => false,
            }
        });
        tokio::select! {
            biased;
            () = cancel.cancelled(), if self.phase == Phase::Active => Wake::Cancelled,
            () = sleep_until(self.deadline) => Wake::Deadline,
            exit = self.group.child.wait(), if !exited => Wake::Exited(exit),
            report = reports, if reporting => report.map_or(Wake::ReportsEnded, Wake::Report),
            piece = self.pipes.read(), if self.pipes.open() || (exited && !reporting) => match piece {
                Some((stream, bytes)) => Wake::Output(stream, bytes),
                None => Wake::OutputEnded,
            },
            more = typed, if typing => if more { Wake::Typed } else { Wake::TypingEnded },
        }
    }

    async fn handle_report(&mut self, report: HelperReport, cancel: &CancellationToken) {
        let ended_by_itself = self.cause == EndCause::Itself;
        match report {
            HelperReport::Started => self.start = StartState::Done,
            HelperReport::Refused(violation) => {
                self.forward(Output::Refused(violation), cancel).await;
            }
            HelperReport::TooMuchMemory if ended_by_itself => self.cause = EndCause::TooMuchMemory,
            HelperReport::TooManyProcesses if ended_by_itself => self.cause = EndCause::TooManyProcesses,
            HelperReport::TooMuchMemory | HelperReport::TooManyProcesses => {}
            HelperReport::NotStarted(error) => {
                self.start = StartState::Failed(StartError::Spawn(io::Error::from_raw_os_error(error)));
            }
            HelperReport::NoFence(reason) => self.start = StartState::Failed(StartError::NoFence(reason)),
        }
    }

    fn end(&mut self, cause: EndCause) {
        self.cause = cause;
        self.phase = Phase::Ending;
        self.deadline = Instant::now() + self.count.limits.grace;
        self.group.signal(Signal::TERM);
    }

    fn kill(&mut self) {
        self.phase = Phase::Killed;
        self.deadline = Instant::now() + KILL_WAIT;
        self.group.signal(Signal::KILL);
        // Whoever has not begun by then may be no helper, and would not listen.
        if matches!(self.start, StartState::Pending) {
            self.group.signal(Signal::KILL);
        }
    }

    /// The leader has ended: so does what it left behind. What was written before stays in the pipes.
    fn drain(&mut self) {
        self.phase = Phase::Draining;
        self.deadline = Instant::now() + DRAIN_WAIT;
        self.group.finish();
    }

    async fn forward_output(&mut self, stream: StdStream, bytes: Vec<u8>, cancel: &CancellationToken) {
        let admitted = self.count.admit(bytes);
        if self.count.exceeded() && self.phase == Phase::Active {
            self.end(EndCause::TooMuchOutput);
        }
        let Some(bytes) = admitted else { return };
        let size = bytes.len() as u64;
        if !self.forward(Output::Chunk(Chunk { stream, bytes }), cancel).await {
            self.count.dropped += size;
        }
    }

    async fn forward(&mut self, output: Output, cancel: &CancellationToken) -> bool {
        if self.phase == Phase::Active {
            return tokio::select! {
                biased;
                sent = self.output.send(output) => sent.is_ok(),
                () = cancel.cancelled() => false,
                () = sleep_until(self.deadline) => false,
            };
        }
        // Nobody may hold up the end of a command; a receiver that is still there has until the
        // deadline.
        tokio::time::timeout_at(self.deadline, self.output.send(output)).await.is_ok_and(|sent| sent.is_ok())
    }
}

struct OutputCount {
    limits: CommandLimits,
    total: u64,
    dropped: u64,
}

impl OutputCount {
    /// The part of these bytes that is still to be handed on.
    fn admit(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let room = self.limits.forward_bytes_max.saturating_sub(self.total);
        self.total += bytes.len() as u64;
        let keep = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        self.dropped += (bytes.len() - keep) as u64;
        bytes.truncate(keep);
        (!bytes.is_empty()).then_some(bytes)
    }

    fn exceeded(&self) -> bool {
        self.total > self.limits.output_bytes_max
    }
}

struct OutputPipes {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Instead of both.
    terminal_reader: Option<TerminalReader>,
}

impl OutputPipes {
    fn open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some() || self.terminal_reader.is_some()
    }

    /// The next piece of output, or `None` once both pipes are at their end. Safe to drop.
    async fn read(&mut self) -> Option<(StdStream, Vec<u8>)> {
        if let Some(terminal_reader) = &self.terminal_reader {
            let piece = terminal_reader.read(CHUNK_BYTES_MAX).await;
            if piece.is_none() {
                self.terminal_reader = None;
            }
            return piece.map(|bytes| (StdStream::Stdout, bytes));
        }
        loop {
            let (stream, piece) = match (&mut self.stdout, &mut self.stderr) {
                (Some(stdout), Some(stderr)) => tokio::select! {
                    piece = read_chunk(stdout) => (StdStream::Stdout, piece),
                    piece = read_chunk(stderr) => (StdStream::Stderr, piece),
                },
                (Some(stdout), None) => (StdStream::Stdout, read_chunk(stdout).await),
                (None, Some(stderr)) => (StdStream::Stderr, read_chunk(stderr).await),
                (None, None) => return None,
            };
            match (stream, piece) {
                (stream, Some(bytes)) => return Some((stream, bytes)),
                (StdStream::Stdout, None) => self.stdout = None,
                (StdStream::Stderr, None) => self.stderr = None,
            }
        }
    }
}

/// What a pipe has right now, at most one chunk; `None` at its end.
async fn read_chunk(pipe: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(CHUNK_BYTES_MAX);
    match pipe.read_buf(&mut bytes).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(bytes),
    }
}
