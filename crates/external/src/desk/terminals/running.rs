//! One command that runs for an agent: the end of its output, and how it ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{Body, Exit, TerminalOutput, TurnContext};
use sandbox::{Cause, Command, Ended, Output, StartError, Violation};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Output on its way; a full queue slows the command down.
const CHUNKS_MAX: usize = 16;
/// How long a command waits for others that are being started, and how often it looks.
const BUSY_TIME_MAX: Duration = Duration::from_secs(10);
const BUSY_WAIT: Duration = Duration::from_millis(10);
/// Refusals that nobody has told the log yet.
const REFUSALS_MAX: usize = 64;

pub(super) struct Running {
    state: Mutex<State>,
    mode: &'static str,
    exit: watch::Sender<Option<Exit>>,
    stop: CancellationToken,
}

struct State {
    /// The last of the output.
    kept: Vec<u8>,
    kept_bytes_max: usize,
    truncated: bool,
    refused: Vec<Violation>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    pub(super) fn start(command: Command, output_bytes_max: u64, tasks: &TaskTracker) -> Arc<Self> {
        let kept_bytes_max = usize::try_from(output_bytes_max).unwrap_or(usize::MAX);
        let state = State { kept: Vec::new(), kept_bytes_max, truncated: false, refused: Vec::new() };
        let running = Arc::new(Self {
            state: Mutex::new(state),
            mode: command.fence.as_ref().map_or("off", |fence| fence.policy.mode.name()),
            exit: watch::Sender::new(None),
            stop: CancellationToken::new(),
        });
        // Whoever has the terminal keeps the command alive, and not the command itself.
        let (weak, stop) = (Arc::downgrade(&running), running.stop.clone());
        tasks.spawn(async move {
            let (sender, mut receiver) = mpsc::channel(CHUNKS_MAX);
            let gather = async {
                while let Some(output) = receiver.recv().await {
                    let Some(running) = weak.upgrade() else { continue };
                    running.state().take(output);
                }
            };
            let (ended, ()) = tokio::join!(run(command, stop, sender), gather);
            if let Some(running) = weak.upgrade() {
                running.finish(ended);
            }
        });
        running
    }

    fn finish(&self, ended: Result<Ended, StartError>) {
        let (exit, note) = match ended {
            // It was ended before it began.
            Ok(Ended { code: None, signal: None, cause: Cause::Cancelled, .. }) => {
                (Exit { code: None, signal: Some("SIGTERM".into()) }, None)
            }
            Ok(ended) => (Exit { code: ended.code, signal: ended.signal.map(Into::into) }, note(ended.cause)),
            Err(StartError::Spawn(error)) => {
                (not_run(), Some(format!("the command could not be started: {error}")))
            }
            Err(error) => (not_run(), Some(error.to_string())),
        };
        if let Some(note) = note {
            self.state().append(format!("[{note}]\n").as_bytes());
        }
        self.exit.send_replace(Some(exit));
    }

    pub(super) fn output(&self) -> TerminalOutput {
        // What was written before the end is there when the end is.
        let exit = self.exit.borrow().clone();
        let state = self.state();
        TerminalOutput { text: state.text().into(), truncated: state.truncated, exit }
    }

    pub(super) async fn exit(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_else(not_run),
            Err(_) => not_run(),
        }
    }

    /// The same for somebody who does not keep it alive.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let mut exit = self.exit.subscribe();
        // One that nobody has any more is ended.
        async move { drop(exit.wait_for(Option::is_some).await) }
    }

    pub(super) fn kill(&self) {
        self.stop.cancel();
    }

    /// Puts what the fence refused into the log, if there is a turn to tell it in.
    pub(super) async fn tell_refusals(&self, turn: Option<&TurnContext>) {
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

    /// The beginning makes room for the end, only now and then: moving all of it takes time.
    fn append(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if self.kept.len() > self.kept_bytes_max {
            self.truncated = true;
        }
        if self.kept.len() > self.kept_bytes_max.saturating_mul(2) {
            self.kept.drain(..self.kept.len() - self.kept_bytes_max);
        }
    }

    /// As much of the end as may be shown, from the beginning of a character on.
    fn text(&self) -> String {
        let mut shown = &self.kept[self.kept.len().saturating_sub(self.kept_bytes_max)..];
        if self.truncated {
            let broken = shown.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
            shown = &shown[broken..];
        }
        let text = String::from_utf8_lossy(shown);
        // What cannot be read takes more room than it had.
        let from = text.ceil_char_boundary(text.len().saturating_sub(self.kept_bytes_max));
        text[from..].to_owned()
    }
}

/// Runs it as soon as it can be started: many at once wait for each other a while.
async fn run(
    command: Command,
    stop: CancellationToken,
    output: mpsc::Sender<Output>,
) -> Result<Ended, StartError> {
    let give_up = Instant::now() + BUSY_TIME_MAX;
    loop {
        match sandbox::run(command.clone(), stop.clone(), output.clone()).await {
            Err(StartError::Busy) if Instant::now() < give_up => sleep(BUSY_WAIT).await,
            ended => return ended,
        }
    }
}

fn note(cause: Cause) -> Option<String> {
    match cause {
        Cause::Itself | Cause::Cancelled => None,
        Cause::TimedOut => Some("ended: it took too long".into()),
        Cause::TooMuchOutput => Some("ended: it wrote too much".into()),
        Cause::TooMuchMemory => Some("ended: it held too much memory".into()),
        Cause::TooManyProcesses => Some("ended: it started too many processes".into()),
    }
}

/// As a shell says of a command that cannot be run.
fn not_run() -> Exit {
    Exit { code: Some(127), signal: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_kept_and_begins_with_a_whole_character() {
        let mut state = State { kept: Vec::new(), kept_bytes_max: 10, truncated: false, refused: Vec::new() };
        state.append("abc".as_bytes());
        assert_eq!((state.text().as_str(), state.truncated), ("abc", false));
        for _ in 0..100 {
            state.append("ééé".as_bytes());
            assert!(state.kept.len() <= 20);
        }
        state.append(b"x");
        assert_eq!((state.text().as_str(), state.truncated), ("ééééx", true));
        state.append(&[0xff; 10]);
        assert!(state.text().len() <= 10);
        state.kept_bytes_max = 0;
        assert_eq!(state.text(), "");
    }
}
