//! Background commands: they belong to the session, not to the turn that started them.
//!
//! The end of a turn, or a cancel, does not affect them. They are ended when the session closes or leaves
//! memory. They write into a buffer of their own, because the tool call that started them has ended and the
//! log accepts no more output for it. The output is read with a tool, and so becomes a tool result in the
//! log.
//!
//! **Invariant:** no task here outlives [`BackgroundJobs`] by more than it takes to end its command.
//! **Invariant:** the stored output is bounded, however many commands there were and whatever they wrote.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{BoxFuture, SessionContext};
use sandbox::{
    ChildCommand, CommandExit, EndCause, Output, ProtectedEntries, PseudoTerminal, StdStream, Violation,
    WindowSize,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::editor_files;
use crate::tools::blocking;
use crate::tools::command_output::{Decoder, RenderedLines};

/// Commands of one session that run at the same time.
const RUNNING_MAX: usize = 8;
/// Ended commands that are remembered.
const ENDED_MAX: usize = 16;
/// The newest output of one command that is stored.
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// Sandbox refusals that are not reported yet.
const REFUSALS_MAX: usize = 50;
/// Chunks of output in the queue.
const CHUNKS_MAX: usize = 16;
/// Inputs in the queue.
const TYPED_MAX: usize = 16;
pub(crate) const TYPED_BYTES_MAX: usize = 64 << 10;
/// Inputs per second; more is refused.
const TYPED_PER_SECOND_MAX: u32 = 100;

pub(crate) const WINDOW: WindowSize = WindowSize { columns: 120, rows: 40 };

/// The background commands of one session.
pub(crate) struct BackgroundJobs {
    jobs: Mutex<Jobs>,
    tasks: TaskTracker,
    ending: CancellationToken,
    _end: DropGuard,
}

#[derive(Default)]
struct Jobs {
    started: u32,
    /// In the order in which they were started.
    all: Vec<Arc<BackgroundJob>>,
}

impl Default for BackgroundJobs {
    fn default() -> Self {
        let ending = CancellationToken::new();
        let end = ending.clone().drop_guard();
        Self { jobs: Mutex::default(), tasks: TaskTracker::new(), ending, _end: end }
    }
}

impl BackgroundJobs {
    /// Starts a command. With a terminal it accepts input, otherwise it has none. `before` are the files that
    /// could make another program run something until now.
    pub(crate) fn start(
        &self,
        command: ChildCommand,
        line: &str,
        tty: bool,
        before: Option<ProtectedEntries>,
    ) -> Result<Arc<BackgroundJob>, String> {
        let run = move |job: Arc<BackgroundJob>, typed| -> CommandFuture {
            let terminal = tty.then_some(PseudoTerminal { window: WINDOW, typed: Some(typed) });
            Box::pin(run_here(job, command, terminal))
        };
        self.launch(line, tty, before, run)
    }

    /// Attends to a command that runs in the editor's terminal. It accepts input.
    pub(crate) fn start_in_editor(
        &self,
        terminal: editor_files::EditorTerminal,
        line: &str,
        wall: Duration,
        before: Option<ProtectedEntries>,
        session: SessionContext,
    ) -> Result<Arc<BackgroundJob>, String> {
        let run = move |job, typed| -> CommandFuture {
            Box::pin(async move {
                Ok(editor_files::attend_in_background(terminal, job, typed, wall, session).await)
            })
        };
        self.launch(line, true, before, run)
    }

    /// Whether one more may be started. Must be checked before a command is started in the editor.
    pub(crate) fn has_room(&self) -> Result<(), String> {
        self.room(&lock(&self.jobs))
    }

    fn room(&self, jobs: &Jobs) -> Result<(), String> {
        if self.ending.is_cancelled() {
            return Err("the session is closing".into());
        }
        if jobs.all.iter().filter(|job| job.ended().is_none()).count() >= RUNNING_MAX {
            return Err(format!("{RUNNING_MAX} commands run in the background already; end one with jobs"));
        }
        Ok(())
    }

    fn launch(
        &self,
        line: &str,
        input: bool,
        before: Option<ProtectedEntries>,
        run: impl FnOnce(Arc<BackgroundJob>, mpsc::Receiver<Vec<u8>>) -> CommandFuture,
    ) -> Result<Arc<BackgroundJob>, String> {
        let mut jobs = lock(&self.jobs);
        self.room(&jobs)?;
        jobs.started += 1;
        let (typed_input, typed) = mpsc::channel(TYPED_MAX);
        let (state, watched) = watch::channel(None);
        let job = Arc::new(BackgroundJob {
            name: format!("job-{}", jobs.started),
            line: line.to_owned(),
            began: Instant::now(),
            typed_input: input.then_some(typed_input),
            typing_rate: Mutex::new((Instant::now(), 0)),
            cancel: self.ending.child_token(),
            state: watched,
            buffer: Mutex::default(),
            before: Mutex::new(before),
        });
        jobs.all.push(Arc::clone(&job));
        forget_the_oldest(&mut jobs.all);
        let running = run(Arc::clone(&job), typed);
        let began = job.began;
        self.tasks.spawn(async move {
            let how = running.await;
            state.send_replace(Some(Arc::new(JobEnd { how, after: began.elapsed() })));
        });
        Ok(job)
    }

    pub(crate) fn all(&self) -> Vec<Arc<BackgroundJob>> {
        lock(&self.jobs).all.clone()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<BackgroundJob>, String> {
        let jobs = lock(&self.jobs);
        let names = || jobs.all.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = jobs.all.iter().find(|job| job.name == name);
        found.cloned().ok_or_else(|| match jobs.all.is_empty() {
            true => "nothing was started in the background".into(),
            false => format!("no background command {name:?}; there are {}", names()),
        })
    }

    /// Ends all commands and waits for that.
    pub(crate) async fn close(&self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn forget_the_oldest(jobs: &mut Vec<Arc<BackgroundJob>>) {
    let ended = jobs.iter().filter(|job| job.ended().is_some()).count();
    let mut too_many = ended.saturating_sub(ENDED_MAX);
    jobs.retain(|job| {
        let goes = too_many > 0 && job.ended().is_some();
        too_many -= usize::from(goes);
        !goes
    });
}

pub(crate) struct BackgroundJob {
    pub(crate) name: String,
    pub(crate) line: String,
    began: Instant,
    typed_input: Option<mpsc::Sender<Vec<u8>>>,
    /// The start of the current second, and the number of inputs in it.
    typing_rate: Mutex<(Instant, u32)>,
    cancel: CancellationToken,
    state: watch::Receiver<Option<Arc<JobEnd>>>,
    buffer: Mutex<OutputBuffer>,
    before: Mutex<Option<ProtectedEntries>>,
}

/// How it ended, or why it could not be started.
pub(crate) struct JobEnd {
    pub(crate) how: Result<CommandExit, String>,
    after: Duration,
}

/// Output that was not read yet.
#[derive(Default)]
pub(crate) struct JobOutput {
    pub(crate) text: String,
    /// Bytes that were dropped before they were read.
    pub(crate) lost_bytes: u64,
    pub(crate) refused: Vec<Violation>,
}

#[derive(Default)]
struct OutputBuffer {
    output: JobOutput,
    lines: RenderedLines,
}

impl OutputBuffer {
    fn write(&mut self, text: &str) {
        let finished = self.lines.push(text);
        self.keep(&finished);
    }

    fn keep(&mut self, text: &str) {
        self.output.text.push_str(text);
        let over = self.output.text.len().saturating_sub(BUFFER_BYTES_MAX);
        if over > 0 {
            // Drops more than necessary, so that not every line moves all the others.
            let from = self
                .output
                .text
                .ceil_char_boundary((over + BUFFER_BYTES_MAX / 4).min(self.output.text.len()));
            self.output.lost_bytes += from as u64;
            self.output.text.drain(..from);
        }
    }
}

impl BackgroundJob {
    pub(crate) fn ended(&self) -> Option<Arc<JobEnd>> {
        self.state.borrow().clone()
    }

    /// Returns once it has ended.
    pub(crate) async fn until_ended(&self) {
        // The sender is dropped only after the end was sent.
        self.state.clone().wait_for(Option::is_some).await.ok();
    }

    /// Takes the output since the last call.
    pub(crate) fn take_output(&self) -> JobOutput {
        let mut buffer = lock(&self.buffer);
        let rest = buffer.lines.rest();
        buffer.keep(&rest);
        std::mem::take(&mut buffer.output)
    }

    /// A sentence for people about new files that can make another program run something; given once.
    pub(crate) async fn new_entries(self: &Arc<Self>) -> Option<String> {
        let job = Arc::clone(self);
        blocking(move || lock(&job.before).as_mut()?.describe_new()).await.ok().flatten()
    }

    pub(crate) fn state(&self) -> String {
        let Some(end) = self.ended() else {
            return format!("running for {} s", self.began.elapsed().as_secs());
        };
        let how = match &end.how {
            Err(reason) => return format!("not started: {reason}"),
            Ok(ended) => ended,
        };
        let words = match (how.cause, &how.signal, how.code) {
            (EndCause::Itself, None, Some(code)) => format!("ended with exit code {code}"),
            (EndCause::Itself, Some(signal), _) => format!("ended by {signal}"),
            (EndCause::Itself, None, None) => "ended".to_owned(),
            (EndCause::Cancelled, ..) => "killed".to_owned(),
            (EndCause::TimedOut, ..) => "ended: it took too long".to_owned(),
            (EndCause::TooMuchOutput, ..) => "ended: it wrote too much".to_owned(),
            (EndCause::TooMuchMemory, ..) => "ended: it held too much memory".to_owned(),
            (EndCause::TooManyProcesses, ..) => "ended: it started too many processes".to_owned(),
        };
        format!("{words} after {} s", end.after.as_secs())
    }

    /// Returns when the command has to end.
    pub(crate) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Stores output.
    pub(crate) fn write(&self, text: &str) {
        lock(&self.buffer).write(text);
    }

    pub(crate) fn kill(&self) {
        self.cancel.cancel();
    }

    pub(crate) fn type_in(&self, text: &str) -> Result<(), String> {
        if self.ended().is_some() {
            return Err(format!("{} is {}", self.name, self.state()));
        }
        let typed_input = self.typed_input.as_ref().ok_or_else(|| {
            format!("{} has no input; start it again with both background and tty", self.name)
        })?;
        if text.len() > TYPED_BYTES_MAX {
            return Err(format!("that is more than {} KiB; put it in a file", TYPED_BYTES_MAX >> 10));
        }
        self.check_typing_rate()?;
        let sent = typed_input.try_send(text.as_bytes().to_vec());
        sent.map_err(|_| format!("{} has not read its earlier input yet; wait, or kill it", self.name))
    }

    fn check_typing_rate(&self) -> Result<(), String> {
        let mut typing_rate = lock(&self.typing_rate);
        if typing_rate.0.elapsed() >= Duration::from_secs(1) {
            *typing_rate = (Instant::now(), 0);
        }
        if typing_rate.1 >= TYPED_PER_SECOND_MAX {
            return Err(format!("more than {TYPED_PER_SECOND_MAX} inputs in a second; wait a moment"));
        }
        typing_rate.1 += 1;
        Ok(())
    }
}

/// Runs a command to its end, or fails to start it.
type CommandFuture = BoxFuture<'static, Result<CommandExit, String>>;

async fn run_here(
    job: Arc<BackgroundJob>,
    command: ChildCommand,
    terminal: Option<PseudoTerminal>,
) -> Result<CommandExit, String> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    let cancel = job.cancel.clone();
    let running = async {
        match terminal {
            Some(terminal) => sandbox::run_in_terminal(command, terminal, cancel, sender).await,
            None => sandbox::run(command, cancel, sender).await,
        }
    };
    let (ended, ()) = tokio::join!(running, listen(&job, receiver));
    ended.map_err(|error| match error {
        sandbox::StartError::Spawn(error) => error.to_string(),
        other => other.to_string(),
    })
}

async fn listen(job: &BackgroundJob, mut outputs: mpsc::Receiver<Output>) {
    let (mut stdout, mut stderr) = (Decoder::default(), Decoder::default());
    while let Some(output) = outputs.recv().await {
        let mut buffer = lock(&job.buffer);
        match output {
            Output::Chunk(chunk) => {
                let decoder = if chunk.stream == StdStream::Stdout { &mut stdout } else { &mut stderr };
                buffer.write(&decoder.decode(chunk.bytes));
            }
            Output::Refused(violation) if buffer.output.refused.len() < REFUSALS_MAX => {
                buffer.output.refused.push(violation);
            }
            Output::Refused(_) => {}
        }
    }
    let mut buffer = lock(&job.buffer);
    for rest in [stdout.rest(), stderr.rest()].into_iter().flatten() {
        buffer.write(&rest);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
