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
use std::time::Duration;

use engine::{
    Body, Exit, HostError, HostLink, NewTerminal, OutputStream, SessionGone, TerminalId, TurnContext,
};
use guard::outside_digest;
use sandbox::Mode;
use tokio::time::{sleep, timeout};

use crate::agent::Reach;
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
/// As `timeout` has it.
const TIMED_OUT_CODE: i32 = 124;

/// A terminal that the editor keeps for us. Dropped before it was given back, its command is ended.
pub(crate) struct Terminal {
    editor: HostLink,
    id: TerminalId,
    given_back: bool,
}

impl Terminal {
    /// Gives it back once the editor has been shown everything that was said so far.
    pub(crate) async fn give_back(mut self, context: &TurnContext) -> Result<(), SessionGone> {
        let after = context.mark().await?;
        self.given_back = true;
        self.editor.release(&self.id, after);
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if !self.given_back {
            self.editor.kill_now(&self.id);
            self.editor.release(&self.id, self.editor.after());
        }
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
        only_looks: bool,
        place: &Place,
        reach: &Reach,
        context: &TurnContext,
    ) -> Option<Self> {
        let wanted = match place.mode() {
            Mode::Off => true,
            Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork => reach.editor_terminal,
            // A fence that only lets read is kept whatever the person wants: commands there must not write.
            Mode::ReadOnly => false,
        };
        let editor = wanted.then(|| context.host(|can| can.terminal)).flatten()?;
        let new = NewTerminal {
            program: "sh".into(),
            arguments: vec!["-c".into(), line.to_owned()],
            environment: if only_looks { sandbox::git_looks_only() } else { Vec::new() },
            cwd: place.cwd.clone(),
            output_bytes_max: OUTPUT_BYTES_MAX as u64,
        };
        Some(Self { editor, new, fenced: place.mode() != Mode::Off })
    }

    /// What the owner has to consent to, where there is a fence that the command would leave.
    pub(crate) fn consent(&self) -> Option<Arc<str>> {
        self.fenced.then(|| outside_digest(&self.new).into())
    }
}

/// Runs a command in the editor's terminal, if it was asked for there. `None`: it is for somebody else.
pub(crate) async fn run(job: &Arc<Job>, wall: Duration) -> Option<Outcome> {
    let EditorTerminal { editor, new, .. } = job.editor.as_ref()?;
    let created = tokio::select! {
        biased;
        () = job.context.cancel.cancelled() => return Some(Outcome::failed("[cancelled]".into())),
        created = editor.create_terminal(new.clone()) => created,
    };
    let terminal = match created {
        Ok(id) => Terminal { editor: editor.clone(), id, given_back: false },
        Err(HostError::Away) => return None,
        Err(error) => {
            if error == HostError::TimedOut {
                super::tell_of_silence(job).await;
            }
            let reason = format!("the command was not run: the editor opened no terminal: {error}");
            return Some(Outcome::failed(reason));
        }
    };
    let shows = Body::ToolTerminal {
        call: job.call.clone(),
        terminal: terminal.id.clone(),
        surface: terminal.editor.surface(),
    };
    if job.context.emit(shows).await.is_err() {
        return Some(Outcome::failed("[cancelled]".into()));
    }
    Some(attend(job, terminal, wall).await)
}

async fn attend(job: &Arc<Job>, terminal: Terminal, wall: Duration) -> Outcome {
    let (ended, exit, output) = follow(job, &terminal, wall).await;
    outcome(&output, &ended, exit, wall, terminal)
}

/// Waits until the command has ended, or ends it. Gives how it ended and what it wrote.
async fn follow(job: &Job, terminal: &Terminal, wall: Duration) -> (Ended, Option<Exit>, Arc<str>) {
    let mut told = String::new();
    let mut exit = pin!(terminal.editor.wait_for_exit(&terminal.id));
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
    let output = match timeout(GRACE, terminal.editor.output(&terminal.id)).await {
        Ok(Ok(output)) => {
            tell(job, &mut told, &output.text).await;
            output.text
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
    timeout(GRACE, terminal.editor.kill(&terminal.id)).await.ok();
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
        if let Ok(output) = terminal.editor.output(&terminal.id).await
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
