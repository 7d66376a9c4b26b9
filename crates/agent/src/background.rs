//! Commands that go on in the background: they belong to the session, not to the turn that started them.
//!
//! A turn that ends or is cancelled leaves them alone; the session takes them with it when it closes or
//! leaves memory. They write into a buffer of their own, because the call that started them has ended
//! and the log takes no more output of it: whoever wants to see it looks, and what is looked at goes
//! into the log like the outcome of any tool.
//!
//! **Invariant:** no task here outlives [`Background`] by more than it takes to end its command.
//! **Invariant:** what is kept has a bound, however many commands there were and whatever they wrote.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{BoxFuture, SessionContext};
use sandbox::{Cause, Command, Ended, Output, ProtectedEntries, Stream, Terminal, Violation, Window};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::host;
use crate::tools::blocking;
use crate::tools::output::{Decoder, Lines};

/// Commands of one session that run at once.
const RUNNING_MAX: usize = 8;
/// Commands that have ended and can still be asked about.
const ENDED_MAX: usize = 16;
/// What is kept of the output of one command: the newest.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Refusals of the fence that nobody has heard of yet.
const REFUSALS_MAX: usize = 50;
/// Output on its way into the buffer.
const CHUNKS_MAX: usize = 16;
/// What can wait to be typed.
const TYPED_MAX: usize = 16;
pub(crate) const TYPED_BYTES_MAX: usize = 64 << 10;
/// More than this in a second is no typing.
const TYPED_PER_SECOND_MAX: u32 = 100;

pub(crate) const WINDOW: Window = Window { columns: 120, rows: 40 };

/// The background commands of one session.
pub(crate) struct Background {
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

impl Default for Background {
    fn default() -> Self {
        let ending = CancellationToken::new();
        let end = ending.clone().drop_guard();
        Self { jobs: Mutex::default(), tasks: TaskTracker::new(), ending, _end: end }
    }
}

impl Background {
    /// Starts a command. In a terminal it can be typed to, otherwise it has no input. `before` is what could
    /// make another program run something until now.
    pub(crate) fn start(
        &self,
        command: Command,
        line: &str,
        tty: bool,
        before: Option<ProtectedEntries>,
    ) -> Result<Arc<BackgroundJob>, String> {
        let run = move |job: Arc<BackgroundJob>, typed| -> Running {
            let terminal = tty.then_some(Terminal { window: WINDOW, typed: Some(typed) });
            Box::pin(run_here(job, command, terminal))
        };
        self.launch(line, tty, before, run)
    }

    /// Looks after a command that runs in a terminal of the editor's. It can be typed to.
    pub(crate) fn start_in_editor(
        &self,
        terminal: host::Terminal,
        line: &str,
        wall: Duration,
        before: Option<ProtectedEntries>,
        session: SessionContext,
    ) -> Result<Arc<BackgroundJob>, String> {
        let run = move |job, typed| -> Running {
            Box::pin(async move { Ok(host::attend_in_background(terminal, job, typed, wall, session).await) })
        };
        self.launch(line, true, before, run)
    }

    /// Whether one more may be started. To be asked before anything runs elsewhere.
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
        run: impl FnOnce(Arc<BackgroundJob>, mpsc::Receiver<Vec<u8>>) -> Running,
    ) -> Result<Arc<BackgroundJob>, String> {
        let mut jobs = lock(&self.jobs);
        self.room(&jobs)?;
        jobs.started += 1;
        let (keys, typed) = mpsc::channel(TYPED_MAX);
        let (state, watched) = watch::channel(None);
        let job = Arc::new(BackgroundJob {
            name: format!("job-{}", jobs.started),
            line: line.to_owned(),
            began: Instant::now(),
            keys: input.then_some(keys),
            pace: Mutex::new((Instant::now(), 0)),
            cancel: self.ending.child_token(),
            state: watched,
            kept: Mutex::default(),
            before: Mutex::new(before),
        });
        jobs.all.push(Arc::clone(&job));
        forget_the_oldest(&mut jobs.all);
        let running = run(Arc::clone(&job), typed);
        let began = job.began;
        self.tasks.spawn(async move {
            let how = running.await;
            state.send_replace(Some(Arc::new(End { how, after: began.elapsed() })));
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
            false => format!("there is no {name:?}; there are {}", names()),
        })
    }

    /// Ends them all and waits for it.
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
    keys: Option<mpsc::Sender<Vec<u8>>>,
    /// When the second began that is counted, and what was typed in it.
    pace: Mutex<(Instant, u32)>,
    cancel: CancellationToken,
    state: watch::Receiver<Option<Arc<End>>>,
    kept: Mutex<Kept>,
    before: Mutex<Option<ProtectedEntries>>,
}

/// How it ended, or why it never began.
pub(crate) struct End {
    pub(crate) how: Result<Ended, String>,
    after: Duration,
}

/// What nobody has looked at yet.
#[derive(Default)]
pub(crate) struct Look {
    pub(crate) text: String,
    /// What had to make room before anybody looked.
    pub(crate) lost_bytes: u64,
    pub(crate) refused: Vec<Violation>,
}

#[derive(Default)]
struct Kept {
    look: Look,
    lines: Lines,
}

impl Kept {
    fn write(&mut self, text: &str) {
        let finished = self.lines.push(text);
        self.keep(&finished);
    }

    fn keep(&mut self, text: &str) {
        self.look.text.push_str(text);
        let over = self.look.text.len().saturating_sub(KEPT_BYTES_MAX);
        if over > 0 {
            // More than must be, so that not every line moves all the others.
            let from =
                self.look.text.ceil_char_boundary((over + KEPT_BYTES_MAX / 4).min(self.look.text.len()));
            self.look.lost_bytes += from as u64;
            self.look.text.drain(..from);
        }
    }
}

impl BackgroundJob {
    pub(crate) fn ended(&self) -> Option<Arc<End>> {
        self.state.borrow().clone()
    }

    /// Returns once it has ended.
    pub(crate) async fn until_ended(&self) {
        // Whoever would tell is gone only after it has told.
        self.state.clone().wait_for(Option::is_some).await.ok();
    }

    /// What it wrote since the last look.
    pub(crate) fn look(&self) -> Look {
        let mut kept = lock(&self.kept);
        let rest = kept.lines.rest();
        kept.keep(&rest);
        std::mem::take(&mut kept.look)
    }

    /// What has come that can make another program run something, as a sentence for people: told once.
    pub(crate) async fn new_entries(self: &Arc<Self>) -> Option<String> {
        let job = Arc::clone(self);
        blocking(move || lock(&job.before).as_mut()?.notice()).await.ok().flatten()
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
            (Cause::Itself, None, Some(code)) => format!("ended with exit code {code}"),
            (Cause::Itself, Some(signal), _) => format!("ended by {signal}"),
            (Cause::Itself, None, None) => "ended".to_owned(),
            (Cause::Cancelled, ..) => "killed".to_owned(),
            (Cause::TimedOut, ..) => "ended: it took too long".to_owned(),
            (Cause::TooMuchOutput, ..) => "ended: it wrote too much".to_owned(),
            (Cause::TooMuchMemory, ..) => "ended: it held too much memory".to_owned(),
            (Cause::TooManyProcesses, ..) => "ended: it started too many processes".to_owned(),
        };
        format!("{words} after {} s", end.after.as_secs())
    }

    /// Returns when it is to end.
    pub(crate) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// It wrote this.
    pub(crate) fn write(&self, text: &str) {
        lock(&self.kept).write(text);
    }

    pub(crate) fn kill(&self) {
        self.cancel.cancel();
    }

    pub(crate) fn type_in(&self, text: &str) -> Result<(), String> {
        if self.ended().is_some() {
            return Err(format!("{} is {}", self.name, self.state()));
        }
        let keys = self.keys.as_ref().ok_or_else(|| {
            format!("{} has no input; start it again with both background and tty", self.name)
        })?;
        if text.len() > TYPED_BYTES_MAX {
            return Err(format!("that is more than {} KiB; put it in a file", TYPED_BYTES_MAX >> 10));
        }
        self.keep_pace()?;
        let sent = keys.try_send(text.as_bytes().to_vec());
        sent.map_err(|_| format!("{} does not read what was typed before; wait, or kill it", self.name))
    }

    fn keep_pace(&self) -> Result<(), String> {
        let mut pace = lock(&self.pace);
        if pace.0.elapsed() >= Duration::from_secs(1) {
            *pace = (Instant::now(), 0);
        }
        if pace.1 >= TYPED_PER_SECOND_MAX {
            return Err(format!("more than {TYPED_PER_SECOND_MAX} inputs in a second; wait a moment"));
        }
        pace.1 += 1;
        Ok(())
    }
}

/// A command until it has ended, or why it never began.
type Running = BoxFuture<'static, Result<Ended, String>>;

async fn run_here(
    job: Arc<BackgroundJob>,
    command: Command,
    terminal: Option<Terminal>,
) -> Result<Ended, String> {
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
        let mut kept = lock(&job.kept);
        match output {
            Output::Chunk(chunk) => {
                let decoder = if chunk.stream == Stream::Stdout { &mut stdout } else { &mut stderr };
                kept.write(&decoder.decode(chunk.bytes));
            }
            Output::Refused(violation) if kept.look.refused.len() < REFUSALS_MAX => {
                kept.look.refused.push(violation);
            }
            Output::Refused(_) => {}
        }
    }
    let mut kept = lock(&job.kept);
    for rest in [stdout.rest(), stderr.rest()].into_iter().flatten() {
        kept.write(&rest);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
