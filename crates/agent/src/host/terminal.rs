//! Commands in the editor's own terminal: the person sees them there, live, and can type into them.
//!
//! Such a command runs with the rights of the editor and not behind our fence, so it happens only where
//! there is no fence anyway, or where the person wants it so and the owner at the machine has allowed this very
//! command.
//!
//! **Invariant:** a command goes to an editor only if that was decided before it was asked for: an editor that
//! comes later gets none.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::{
    Body, Exit, HostAbilities, HostError, HostLink, NewTerminal, OutputStream, Seq, SessionContext,
    SessionGone, SurfaceId, TerminalId, TurnContext,
};
use guard::outside_digest;
use sandbox::{Cause, Mode};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::new_output::new_output;
use crate::agent::Reach;
use crate::background::BackgroundJob;
use crate::place::Place;
use crate::tools::{Job, Outcome};

/// Output that the editor keeps; the beginning of a longer one is forgotten.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// How often those who do not have the terminal learn what stands there.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a command may take to end once it was told to, and the editor to show what it wrote.
const GRACE: Duration = Duration::from_secs(5);
/// What the model is told of the output: its beginning and its end.
const HEAD_BYTES_MAX: usize = 12 << 10;
const TAIL_BYTES_MAX: usize = 20 << 10;
/// What the model is told where the editor has forgotten the beginning.
const DROPPED: &str = "[earlier output was dropped]";
/// As `timeout` has it.
const TIMED_OUT_CODE: i32 = 124;

/// A terminal that the editor keeps for us. It gets it back when nobody has it any more: neither the call that
/// shows it nor the background command that runs in it.
pub(crate) struct Terminal {
    held: Arc<Held>,
    /// The command goes on when the call has ended.
    goes_on: bool,
}

struct Held {
    editor: HostLink,
    id: TerminalId,
    /// There is nothing in it to be ended.
    over: AtomicBool,
    /// What the editor is told before it gets it back.
    after: AtomicU64,
}

impl Terminal {
    fn new(editor: HostLink, id: TerminalId) -> Self {
        let (over, after) = (AtomicBool::new(false), AtomicU64::new(Seq::START.0));
        Self { held: Arc::new(Held { editor, id, over, after }), goes_on: false }
    }

    /// The same terminal, for the call that shows it, while this one goes on.
    pub(crate) fn shown(&self) -> Self {
        Self { held: Arc::clone(&self.held), goes_on: true }
    }

    /// Gives it back once the editor has been shown everything that was said so far.
    pub(crate) async fn give_back(self, context: &TurnContext) -> Result<(), SessionGone> {
        let after = context.mark().await?;
        self.held.after.fetch_max(after.0, Ordering::Relaxed);
        if !self.goes_on {
            self.held.over.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut after = Seq(*self.after.get_mut());
        if !*self.over.get_mut() {
            self.editor.kill_now(&self.id);
            after = after.max(self.editor.after());
        }
        self.editor.release(&self.id, after);
    }
}

enum Ended {
    Itself(Exit),
    TimedOut,
    Cancelled,
    Lost(HostError),
}

/// What an editor would be told to run.
pub(crate) struct EditorTerminal {
    editor: HostLink,
    new: NewTerminal,
    fenced: bool,
}

impl EditorTerminal {
    /// For this line, if that is wanted and offered. One that only looks is told what keeps git from running
    /// what a repository names, as in a terminal of ours.
    pub(crate) fn offered(
        line: &str,
        typing: bool,
        only_looks: bool,
        place: &Place,
        reach: &Reach,
        context: &TurnContext,
    ) -> Option<Self> {
        let wanted = match place.mode() {
            Mode::Off => true,
            // The owner consents to a command, which is not to consent to everything that is typed into it.
            Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork => reach.editor_terminal && !typing,
            // A fence that only lets read is kept whatever the person wants: commands there must not write.
            Mode::ReadOnly => false,
        };
        let able = |can: HostAbilities| can.terminal && (can.typing || !typing);
        let editor = wanted.then(|| context.host(able)).flatten()?;
        let new = NewTerminal {
            program: "sh".into(),
            arguments: vec!["-c".into(), line.to_owned()],
            environment: if only_looks { sandbox::git_looks_only() } else { Vec::new() },
            cwd: place.cwd.clone(),
            output_bytes_max: OUTPUT_BYTES_MAX as u64,
        };
        Some(Self { editor, new, fenced: place.mode() != Mode::Off })
    }

    /// The client whose terminal it is.
    pub(crate) fn surface(&self) -> SurfaceId {
        self.editor.surface()
    }

    /// What the owner has to consent to, where there is a fence that the command would leave.
    pub(crate) fn consent(&self) -> Option<Arc<str>> {
        self.fenced.then(|| outside_digest(&self.new).into())
    }
}

/// Runs a command in the editor's terminal, if it was asked for there. `None`: it is for somebody else.
pub(crate) async fn run(job: &Arc<Job>, wall: Duration) -> Option<Outcome> {
    match open(job).await? {
        Ok(terminal) => Some(attend(job, terminal, wall).await),
        Err(outcome) => Some(outcome),
    }
}

/// Starts a command in the editor's terminal, if it was asked for there, and shows it. `None`: it is for
/// somebody else.
pub(crate) async fn open(job: &Arc<Job>) -> Option<Result<Terminal, Outcome>> {
    let EditorTerminal { editor, new, .. } = job.editor.as_ref()?;
    let cancelled = || Some(Err(Outcome::failed("[cancelled]".into())));
    let created = tokio::select! {
        biased;
        () = job.context.cancel.cancelled() => return cancelled(),
        created = editor.create_terminal(new.clone()) => created,
    };
    let terminal = match created {
        Ok(id) => Terminal::new(editor.clone(), id),
        Err(HostError::Away) => return None,
        Err(error) => {
            if error == HostError::TimedOut {
                super::tell_of_silence(job).await;
            }
            let reason = format!("the command was not run: the editor opened no terminal: {error}");
            return Some(Err(Outcome::failed(reason)));
        }
    };
    let shows = Body::ToolTerminal {
        call: job.call.clone(),
        terminal: terminal.held.id.clone(),
        surface: terminal.held.editor.surface(),
    };
    if job.context.emit(shows).await.is_err() {
        return cancelled();
    }
    Some(Ok(terminal))
}

/// Everything that happens to a command that goes on in the editor's terminal.
enum Happens {
    Ended(Ended),
    Typed(Vec<u8>),
    Look,
}

/// Looks after a command that goes on in the editor's terminal, until it has ended.
pub(crate) async fn attend_in_background(
    terminal: Terminal,
    job: Arc<BackgroundJob>,
    mut typed: mpsc::Receiver<Vec<u8>>,
    wall: Duration,
    session: SessionContext,
) -> sandbox::Ended {
    let Held { editor, id, over, .. } = &*terminal.held;
    let mut seen = String::new();
    let (mut exit, mut too_long) = (pin!(editor.wait_for_exit(id)), pin!(limit(wall)));
    let ended = loop {
        let happens = tokio::select! {
            biased;
            () = job.cancelled() => Happens::Ended(Ended::Cancelled),
            ended = exit.as_mut() => Happens::Ended(ended.map_or_else(Ended::Lost, Ended::Itself)),
            () = too_long.as_mut() => Happens::Ended(Ended::TimedOut),
            Some(bytes) = typed.recv() => Happens::Typed(bytes),
            () = sleep(LOOK_EVERY) => Happens::Look,
        };
        match happens {
            Happens::Ended(ended) => break ended,
            Happens::Typed(bytes) => {
                if let Some(ended) = type_in(&terminal, bytes, &job, exit.as_mut(), &session).await {
                    break ended;
                }
            }
            Happens::Look => look(&job, &terminal, &mut seen).await,
        }
    };
    let (exit, cause) = match ended {
        Ended::Itself(exit) => (Some(exit), Cause::Itself),
        Ended::TimedOut => (end(&terminal, exit.as_mut()).await, Cause::TimedOut),
        Ended::Cancelled => (end(&terminal, exit.as_mut()).await, Cause::Cancelled),
        Ended::Lost(error) => {
            job.write(&format!("[{error}; whether the command ended is not known]\n"));
            (None, Cause::Itself)
        }
    };
    look(&job, &terminal, &mut seen).await;
    over.store(exit.is_some(), Ordering::Relaxed);
    let (code, signal) =
        exit.map_or((None, None), |exit| (exit.code, exit.signal.map(|name| name.to_string())));
    sandbox::Ended { code, signal, cause, output_bytes: seen.len() as u64, dropped_bytes: 0 }
}

/// Types into the terminal. Gives how the command ended, if it does before the editor has answered.
async fn type_in(
    terminal: &Terminal,
    bytes: Vec<u8>,
    job: &BackgroundJob,
    exit: Pin<&mut impl Future<Output = Result<Exit, HostError>>>,
    session: &SessionContext,
) -> Option<Ended> {
    let typed = tokio::select! {
        biased;
        () = job.cancelled() => return Some(Ended::Cancelled),
        ended = exit => return Some(ended.map_or_else(Ended::Lost, Ended::Itself)),
        typed = terminal.held.editor.type_into(&terminal.held.id, bytes.into()) => typed,
    };
    if let Err(error) = typed {
        job.write(&format!("[what was typed did not arrive: {error}]\n"));
        if error == HostError::TimedOut {
            // The turn that typed may be over. A session that is gone shows nothing.
            session.emit(super::silence()).await.ok();
        }
    }
    None
}

/// Keeps what is new in the terminal. One that cannot be shown at the moment is shown later.
async fn look(job: &BackgroundJob, terminal: &Terminal, seen: &mut String) {
    if let Ok(Ok(output)) = timeout(GRACE, terminal.held.editor.output(&terminal.held.id)).await {
        let new = new_output(seen, &output.text, output.truncated);
        if new.after_gap {
            job.write(&format!("{DROPPED}\n"));
        }
        job.write(new.text);
        *seen = output.text.to_string();
    }
}

async fn attend(job: &Arc<Job>, terminal: Terminal, wall: Duration) -> Outcome {
    let (ended, exit, output) = follow(job, &terminal, wall).await;
    outcome(&output, &ended, exit, wall, terminal)
}

/// Waits until the command has ended, or ends it. Gives how it ended and what it wrote.
async fn follow(job: &Job, terminal: &Terminal, wall: Duration) -> (Ended, Option<Exit>, Arc<str>) {
    let mut told = String::new();
    let mut exit = pin!(terminal.held.editor.wait_for_exit(&terminal.held.id));
    let ended = tokio::select! {
        biased;
        () = job.context.cancel.cancelled() => Ended::Cancelled,
        ended = exit.as_mut() => ended.map_or_else(Ended::Lost, Ended::Itself),
        () = limit(wall) => Ended::TimedOut,
        () = watch(job, terminal, &mut told) => Ended::Lost(HostError::Gone),
    };
    let exit = match &ended {
        Ended::Itself(exit) => Some(exit.clone()),
        Ended::TimedOut | Ended::Cancelled => end(terminal, exit.as_mut()).await,
        Ended::Lost(_) => None,
    };
    let output = match timeout(GRACE, terminal.held.editor.output(&terminal.held.id)).await {
        Ok(Ok(output)) => {
            tell(job, &mut told, &output.text).await;
            if output.truncated { format!("{DROPPED}\n{}", output.text).into() } else { output.text }
        }
        Ok(Err(_)) | Err(_) => told.as_str().into(),
    };
    (ended, exit, output)
}

/// Ends the command and waits for it, for as long as it may take.
async fn end(
    terminal: &Terminal,
    exit: Pin<&mut impl Future<Output = Result<Exit, HostError>>>,
) -> Option<Exit> {
    // An editor that does not answer is not waited for; what can be told is told.
    timeout(GRACE, terminal.held.editor.kill(&terminal.held.id)).await.ok();
    timeout(GRACE, exit).await.ok().and_then(Result::ok)
}

async fn limit(wall: Duration) {
    if wall.is_zero() { std::future::pending().await } else { sleep(wall).await }
}

/// Puts what stands in the terminal into the log from time to time. Ends when the session does.
async fn watch(job: &Job, terminal: &Terminal, told: &mut String) {
    loop {
        sleep(LOOK_EVERY).await;
        // One that cannot be shown at the moment is shown at the end.
        if let Ok(output) = terminal.held.editor.output(&terminal.held.id).await
            && !tell(job, told, &output.text).await
        {
            return;
        }
    }
}

/// Says whether somebody still listens. What the terminal has forgotten or written over is not told twice.
async fn tell(job: &Job, told: &mut String, text: &str) -> bool {
    let Some(more) = text.strip_prefix(told.as_str()).filter(|more| !more.is_empty()) else { return true };
    let body = Body::ToolOutput { call: job.call.clone(), stream: OutputStream::Stdout, text: more.into() };
    let heard = job.context.emit(body).await.is_ok();
    *told = text.to_owned();
    heard
}

fn outcome(output: &str, ended: &Ended, exit: Option<Exit>, wall: Duration, terminal: Terminal) -> Outcome {
    let mut text = shortened(output);
    let mark = match ended {
        Ended::Itself(_) => None,
        Ended::TimedOut => Some(format!("[ended after {} s: it took too long]", wall.as_secs())),
        Ended::Cancelled => Some("[cancelled]".to_owned()),
        Ended::Lost(error) => Some(format!("[{error}; whether the command ended is not known]")),
    };
    if let Some(mark) = mark {
        text.push_str(&format!("\n{mark}"));
    }
    let exit = match ended {
        Ended::TimedOut => Some((Some(TIMED_OUT_CODE), None)),
        Ended::Itself(_) | Ended::Cancelled | Ended::Lost(_) => {
            exit.map(|exit| (exit.code, exit.signal.map(|signal| signal.to_string())))
        }
    };
    let well = matches!(ended, Ended::Itself(exit) if exit.code == Some(0));
    Outcome { failed: !well, text: Some(text), exit, terminal: Some(terminal), ..Outcome::default() }
}

/// The beginning and the end.
fn shortened(text: &str) -> String {
    if text.len() <= HEAD_BYTES_MAX + TAIL_BYTES_MAX {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(HEAD_BYTES_MAX)];
    let tail = &text[text.ceil_char_boundary(text.len() - TAIL_BYTES_MAX)..];
    format!("{head}\n[{} bytes left out]\n{tail}", text.len() - head.len() - tail.len())
}
