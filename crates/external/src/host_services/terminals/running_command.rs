//! One command that runs for an external agent: the end of its output, and its exit status.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{Body, Exit, TerminalOutput, TurnContext};
use sandbox::{ChildCommand, CommandExit, EndCause, Output, StartError, Violation};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Chunks of output in the queue; a full queue slows the command down.
const CHUNKS_MAX: usize = 16;
/// How long a command waits while too many are being started, and how often it tries.
const BUSY_TIME_MAX: Duration = Duration::from_secs(10);
const BUSY_WAIT: Duration = Duration::from_millis(10);
/// Sandbox refusals that are not logged yet.
const REFUSALS_MAX: usize = 64;

pub(super) struct RunningCommand {
    state: Mutex<State>,
    mode: &'static str,
    exit: watch::Sender<Option<Exit>>,
    stop: CancellationToken,
}

struct State {
    /// The last of the output.
    tail: Vec<u8>,
    tail_bytes_max: usize,
    truncated: bool,
    refused: Vec<Violation>,
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl RunningCommand {
    pub(super) fn start(command: ChildCommand, output_bytes_max: u64, tasks: &TaskTracker) -> Arc<Self> {
        let tail_bytes_max = usize::try_from(output_bytes_max).unwrap_or(usize::MAX);
        let state = State { tail: Vec::new(), tail_bytes_max, truncated: false, refused: Vec::new() };
        let running_command = Arc::new(Self {
            state: Mutex::new(state),
            mode: command.fence.as_ref().map_or("off", |fence| fence.policy.mode.name()),
            exit: watch::Sender::new(None),
            stop: CancellationToken::new(),
        });
        // The terminal keeps the command alive; the task holds only a weak reference.
        let (weak, stop) = (Arc::downgrade(&running_command), running_command.stop.clone());
        tasks.spawn(async move {
            let (sender, mut receiver) = mpsc::channel(CHUNKS_MAX);
            let gather = async {
                while let Some(output) = receiver.recv().await {
                    let Some(running_command) = weak.upgrade() else { continue };
                    running_command.state().take(output);
                }
            };
            let (ended, ()) = tokio::join!(run(command, stop, sender), gather);
            if let Some(running_command) = weak.upgrade() {
                running_command.finish(ended);
            }
        });
        running_command
    }

    fn finish(&self, ended: Result<CommandExit, StartError>) {
        let (exit, note) = match ended {
            // It was cancelled before it started.
            Ok(CommandExit { code: None, signal: None, cause: EndCause::Cancelled, .. }) => {
                (Exit { code: None, signal: Some("SIGTERM".into()) }, None)
            }
            Ok(ended) => {
                (Exit { code: ended.code, signal: ended.signal.map(Into::into) }, cause_note(ended.cause))
            }
            Err(StartError::Spawn(error)) => {
                (not_started(), Some(format!("the command could not be started: {error}")))
            }
            Err(error) => (not_started(), Some(error.to_string())),
        };
        if let Some(note) = note {
            self.state().append(format!("[{note}]\n").as_bytes());
        }
        self.exit.send_replace(Some(exit));
    }

    pub(super) fn output(&self) -> TerminalOutput {
        // When the exit status is set, all output has been stored.
        let exit = self.exit.borrow().clone();
        let state = self.state();
        TerminalOutput { text: state.text().into(), truncated: state.truncated, exit }
    }

    pub(super) async fn exit(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_else(not_started),
            Err(_) => not_started(),
        }
    }

    /// The same without keeping the command alive.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let mut exit = self.exit.subscribe();
        // The sender is dropped only after the command was cancelled.
        async move { drop(exit.wait_for(Option::is_some).await) }
    }

    pub(super) fn kill(&self) {
        self.stop.cancel();
    }

    /// Logs the sandbox refusals, if a turn is running.
    pub(super) async fn log_refusals(&self, turn: Option<&TurnContext>) {
        let Some(turn) = turn else { return };
        let refused = std::mem::take(&mut self.state().refused);
        for violation in refused {
            let reason = violation.to_string().into();
            let (tool, mode, path) = ("shell".into(), self.mode.into(), violation.path);
            // A session that is gone has no log to write to.
            turn.emit(Body::PolicyBlocked { call: None, tool, path, mode, reason }).await.ok();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, output: Output) {
        match output {
            Output::Chunk(chunk) => self.append(&chunk.bytes),
            Output::Refused(violation) if self.refused.len() < REFUSALS_MAX => self.refused.push(violation),
            Output::Refused(_) => {}
        }
    }

    /// Drops the beginning when there is too much, but not on every call, because moving the rest takes time.
    fn append(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > self.tail_bytes_max {
            self.truncated = true;
        }
        if self.tail.len() > self.tail_bytes_max.saturating_mul(2) {
            self.tail.drain(..self.tail.len() - self.tail_bytes_max);
        }
    }

    /// The stored end of the output, from the start of a character on.
    fn text(&self) -> String {
        let mut shown = &self.tail[self.tail.len().saturating_sub(self.tail_bytes_max)..];
        if self.truncated {
            let broken = shown.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
            shown = &shown[broken..];
        }
        let text = String::from_utf8_lossy(shown);
        // Replacement characters are longer than the bytes they replace.
        let from = text.ceil_char_boundary(text.len().saturating_sub(self.tail_bytes_max));
        text[from..].to_owned()
    }
}

/// Runs it as soon as it can be started; it may have to wait while many others are starting.
async fn run(
    command: ChildCommand,
    stop: CancellationToken,
    output: mpsc::Sender<Output>,
) -> Result<CommandExit, StartError> {
    let give_up = Instant::now() + BUSY_TIME_MAX;
    loop {
        match sandbox::run(command.clone(), stop.clone(), output.clone()).await {
            Err(StartError::Busy) if Instant::now() < give_up => sleep(BUSY_WAIT).await,
            ended => return ended,
        }
    }
}

fn cause_note(cause: EndCause) -> Option<String> {
    match cause {
        EndCause::Itself | EndCause::Cancelled => None,
        EndCause::TimedOut => Some("ended: it took too long".into()),
        EndCause::TooMuchOutput => Some("ended: it wrote too much".into()),
        EndCause::TooMuchMemory => Some("ended: it held too much memory".into()),
        EndCause::TooManyProcesses => Some("ended: it started too many processes".into()),
    }
}

/// The exit status that a shell gives for a command that cannot be run.
fn not_started() -> Exit {
    Exit { code: Some(127), signal: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_kept_and_begins_with_a_whole_character() {
        let mut state = State { tail: Vec::new(), tail_bytes_max: 10, truncated: false, refused: Vec::new() };
        state.append("abc".as_bytes());
        assert_eq!((state.text().as_str(), state.truncated), ("abc", false));
        for _ in 0..100 {
            state.append("ééé".as_bytes());
            assert!(state.tail.len() <= 20);
        }
        state.append(b"x");
        assert_eq!((state.text().as_str(), state.truncated), ("ééééx", true));
        state.append(&[0xff; 10]);
        assert!(state.text().len() <= 10);
        state.tail_bytes_max = 0;
        assert_eq!(state.text(), "");
    }
}
