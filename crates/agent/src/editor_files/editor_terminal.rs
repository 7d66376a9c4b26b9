//! Commands in the editor's own terminal: the person sees them there live and can type into them.
//!
//! Such a command runs with the editor's rights and outside of our sandbox. So that is done only where there
//! is no sandbox anyway, or where the person has enabled it and the owner at the machine has allowed this
//! very command.
//!
//! **Invariant:** whether a command goes to the editor is decided before permission is asked. An editor that
//! connects later does not get it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::{
    Body, Exit, HostAbilities, HostError, HostLink, NewTerminal, OutputStream, Seq, SessionContext,
    SessionGone, SurfaceId, TerminalId, TurnContext,
};
use guard::editor_terminal_digest;
use sandbox::{EndCause, Mode};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::new_terminal_output::new_output;
use crate::agent::ToolAccess;
use crate::background_commands::BackgroundJob;
use crate::tools::{ToolJob, ToolOutcome};
use crate::workspace::Workspace;

/// Output that the editor keeps; it drops the beginning of longer output.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// How often new output is logged, for clients that cannot see the terminal.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a command may take to end after it was killed, and the editor to return its output.
const GRACE: Duration = Duration::from_secs(5);
/// The model gets the beginning and the end of the output.
const HEAD_BYTES_MAX: usize = 12 << 10;
const TAIL_BYTES_MAX: usize = 20 << 10;
/// For the model, if the editor has dropped the beginning.
const DROPPED: &str = "[earlier output was dropped]";
/// The exit code that `timeout` uses.
const TIMED_OUT_CODE: i32 = 124;

/// A terminal in the editor. It is released when neither the call that shows it nor the background command
/// that runs in it holds it any more.
pub(crate) struct EditorTerminal {
    shared: Arc<Shared>,
    /// The command continues after the call has ended.
    keeps_running: bool,
}

struct Shared {
    editor: HostLink,
    id: TerminalId,
    /// The command has ended.
    command_ended: AtomicBool,
    /// The log position that the editor must have been sent before the terminal is released.
    after: AtomicU64,
}

impl EditorTerminal {
    fn new(editor: HostLink, id: TerminalId) -> Self {
        let (command_ended, after) = (AtomicBool::new(false), AtomicU64::new(Seq::START.0));
        Self { shared: Arc::new(Shared { editor, id, command_ended, after }), keeps_running: false }
    }

    /// The same terminal for the call that shows it, while the command continues.
    pub(crate) fn shown(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), keeps_running: true }
    }

    /// Releases it once the editor has been sent everything that is logged so far.
    pub(crate) async fn give_back(self, context: &TurnContext) -> Result<(), SessionGone> {
        let after = context.mark().await?;
        self.shared.after.fetch_max(after.0, Ordering::Relaxed);
        if !self.keeps_running {
            self.shared.command_ended.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut after = Seq(*self.after.get_mut());
        if !*self.command_ended.get_mut() {
            self.editor.kill_now(&self.id);
            after = after.max(self.editor.after());
        }
        self.editor.release(&self.id, after);
    }
}

enum CommandEnd {
    Itself(Exit),
    TimedOut,
    Cancelled,
    Lost(HostError),
}

/// A command that would run in the editor's terminal.
pub(crate) struct EditorCommand {
    editor: HostLink,
    new: NewTerminal,
    fenced: bool,
}

impl EditorCommand {
    /// For this command line, if that is enabled and offered. A read-only command gets variables that keep
    /// git from running programs that a repository names, as without an editor.
    pub(crate) fn offered(
        line: &str,
        typing: bool,
        only_looks: bool,
        workspace: &Workspace,
        reach: &ToolAccess,
        context: &TurnContext,
    ) -> Option<Self> {
        let wanted = match workspace.mode() {
            Mode::Off => true,
            // The owner consents to a command, not to everything that is typed into it later.
            Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork => reach.editor_terminal && !typing,
            // A read-only sandbox is kept whatever the settings say: commands there must not write.
            Mode::ReadOnly => false,
        };
        let able = |can: HostAbilities| can.terminal && (can.typing || !typing);
        let editor = wanted.then(|| context.host(able)).flatten()?;
        let new = NewTerminal {
            program: "sh".into(),
            arguments: vec!["-c".into(), line.to_owned()],
            environment: if only_looks { sandbox::git_read_only_environment() } else { Vec::new() },
            cwd: workspace.cwd.clone(),
            output_bytes_max: OUTPUT_BYTES_MAX as u64,
        };
        Some(Self { editor, new, fenced: workspace.mode() != Mode::Off })
    }

    /// The client that has the terminal.
    pub(crate) fn surface(&self) -> SurfaceId {
        self.editor.surface()
    }

    /// What the owner has to consent to, if the command would leave a sandbox.
    pub(crate) fn consent(&self) -> Option<Arc<str>> {
        self.fenced.then(|| editor_terminal_digest(&self.new).into())
    }
}

/// Runs a command in the editor's terminal, if it was approved for that. `None`: it runs elsewhere.
pub(crate) async fn run(job: &Arc<ToolJob>, wall: Duration) -> Option<ToolOutcome> {
    match open(job).await? {
        Ok(terminal) => Some(attend(job, terminal, wall).await),
        Err(outcome) => Some(outcome),
    }
}

/// Starts a command in the editor's terminal, if it was approved for that, and shows it. `None`: it runs
/// elsewhere.
pub(crate) async fn open(job: &Arc<ToolJob>) -> Option<Result<EditorTerminal, ToolOutcome>> {
    let EditorCommand { editor, new, .. } = job.editor.as_ref()?;
    let cancelled = || Some(Err(ToolOutcome::failed("[cancelled]".into())));
    let created = tokio::select! {
        biased;
        () = job.context.cancel.cancelled() => return cancelled(),
        created = editor.create_terminal(new.clone()) => created,
    };
    let terminal = match created {
        Ok(id) => EditorTerminal::new(editor.clone(), id),
        Err(HostError::Away) => return None,
        Err(error) => {
            if error == HostError::TimedOut {
                super::report_silence(job).await;
            }
            let reason = format!("the command was not run: the editor opened no terminal: {error}");
            return Some(Err(ToolOutcome::failed(reason)));
        }
    };
    let shows = Body::ToolTerminal {
        call: job.call.clone(),
        terminal: terminal.shared.id.clone(),
        surface: terminal.shared.editor.surface(),
    };
    if job.context.emit(shows).await.is_err() {
        return cancelled();
    }
    Some(Ok(terminal))
}

/// An event of a background command in the editor's terminal.
enum TerminalEvent {
    Ended(CommandEnd),
    Typed(Vec<u8>),
    Poll,
}

/// Attends to a background command in the editor's terminal until it has ended.
pub(crate) async fn attend_in_background(
    terminal: EditorTerminal,
    job: Arc<BackgroundJob>,
    mut typed: mpsc::Receiver<Vec<u8>>,
    wall: Duration,
    session: SessionContext,
) -> sandbox::CommandExit {
    let Shared { editor, id, command_ended, .. } = &*terminal.shared;
    let mut seen = String::new();
    let (mut exit, mut too_long) = (pin!(editor.wait_for_exit(id)), pin!(limit(wall)));
    let ended = loop {
        let happens = tokio::select! {
            biased;
            () = job.cancelled() => TerminalEvent::Ended(CommandEnd::Cancelled),
            ended = exit.as_mut() => TerminalEvent::Ended(ended.map_or_else(CommandEnd::Lost, CommandEnd::Itself)),
            () = too_long.as_mut() => TerminalEvent::Ended(CommandEnd::TimedOut),
            Some(bytes) = typed.recv() => TerminalEvent::Typed(bytes),
            () = sleep(POLL_INTERVAL) => TerminalEvent::Poll,
        };
        match happens {
            TerminalEvent::Ended(ended) => break ended,
            TerminalEvent::Typed(bytes) => {
                if let Some(ended) = type_text(&terminal, bytes, &job, exit.as_mut(), &session).await {
                    break ended;
                }
            }
            TerminalEvent::Poll => store_new_output(&job, &terminal, &mut seen).await,
        }
    };
    let (exit, cause) = match ended {
        CommandEnd::Itself(exit) => (Some(exit), EndCause::Itself),
        CommandEnd::TimedOut => (end(&terminal, exit.as_mut()).await, EndCause::TimedOut),
        CommandEnd::Cancelled => (end(&terminal, exit.as_mut()).await, EndCause::Cancelled),
        CommandEnd::Lost(error) => {
            job.write(&format!("[{error}; whether the command ended is not known]\n"));
            (None, EndCause::Itself)
        }
    };
    store_new_output(&job, &terminal, &mut seen).await;
    command_ended.store(exit.is_some(), Ordering::Relaxed);
    let (code, signal) =
        exit.map_or((None, None), |exit| (exit.code, exit.signal.map(|name| name.to_string())));
    sandbox::CommandExit { code, signal, cause, output_bytes: seen.len() as u64, dropped_bytes: 0 }
}

/// Types into the terminal. Returns how the command ended, if it ends before the editor has answered.
async fn type_text(
    terminal: &EditorTerminal,
    bytes: Vec<u8>,
    job: &BackgroundJob,
    exit: Pin<&mut impl Future<Output = Result<Exit, HostError>>>,
    session: &SessionContext,
) -> Option<CommandEnd> {
    let typed = tokio::select! {
        biased;
        () = job.cancelled() => return Some(CommandEnd::Cancelled),
        ended = exit => return Some(ended.map_or_else(CommandEnd::Lost, CommandEnd::Itself)),
        typed = terminal.shared.editor.type_into(&terminal.shared.id, bytes.into()) => typed,
    };
    if let Err(error) = typed {
        job.write(&format!("[the input did not arrive: {error}]\n"));
        if error == HostError::TimedOut {
            // The turn that typed may be over. If the session is gone, there is no log to write to.
            session.emit(super::silence_notice()).await.ok();
        }
    }
    None
}

/// Stores the new output of the terminal. If it cannot be read now, it is read later.
async fn store_new_output(job: &BackgroundJob, terminal: &EditorTerminal, seen: &mut String) {
    if let Ok(Ok(output)) = timeout(GRACE, terminal.shared.editor.output(&terminal.shared.id)).await {
        let new = new_output(seen, &output.text, output.truncated);
        if new.after_gap {
            job.write(&format!("{DROPPED}\n"));
        }
        job.write(new.text);
        *seen = output.text.to_string();
    }
}

async fn attend(job: &Arc<ToolJob>, terminal: EditorTerminal, wall: Duration) -> ToolOutcome {
    let (ended, exit, output) = wait_or_end(job, &terminal, wall).await;
    outcome(&output, &ended, exit, wall, terminal)
}

/// Waits until the command has ended, or ends it. Returns how it ended and its output.
async fn wait_or_end(
    job: &ToolJob,
    terminal: &EditorTerminal,
    wall: Duration,
) -> (CommandEnd, Option<Exit>, Arc<str>) {
    let mut logged = String::new();
    let mut exit = pin!(terminal.shared.editor.wait_for_exit(&terminal.shared.id));
    let ended = tokio::select! {
        biased;
        () = job.context.cancel.cancelled() => CommandEnd::Cancelled,
        ended = exit.as_mut() => ended.map_or_else(CommandEnd::Lost, CommandEnd::Itself),
        () = limit(wall) => CommandEnd::TimedOut,
        () = watch(job, terminal, &mut logged) => CommandEnd::Lost(HostError::Gone),
    };
    let exit = match &ended {
        CommandEnd::Itself(exit) => Some(exit.clone()),
        CommandEnd::TimedOut | CommandEnd::Cancelled => end(terminal, exit.as_mut()).await,
        CommandEnd::Lost(_) => None,
    };
    let output = match timeout(GRACE, terminal.shared.editor.output(&terminal.shared.id)).await {
        Ok(Ok(output)) => {
            log_new_output(job, &mut logged, &output.text).await;
            if output.truncated { format!("{DROPPED}\n{}", output.text).into() } else { output.text }
        }
        Ok(Err(_)) | Err(_) => logged.as_str().into(),
    };
    (ended, exit, output)
}

/// Ends the command and waits for it, up to the grace time.
async fn end(
    terminal: &EditorTerminal,
    exit: Pin<&mut impl Future<Output = Result<Exit, HostError>>>,
) -> Option<Exit> {
    // If the editor does not answer, the result is made without it.
    timeout(GRACE, terminal.shared.editor.kill(&terminal.shared.id)).await.ok();
    timeout(GRACE, exit).await.ok().and_then(Result::ok)
}

async fn limit(wall: Duration) {
    if wall.is_zero() { std::future::pending().await } else { sleep(wall).await }
}

/// Logs the new output from time to time. Completes when the session has ended.
async fn watch(job: &ToolJob, terminal: &EditorTerminal, logged: &mut String) {
    loop {
        sleep(POLL_INTERVAL).await;
        // If the output cannot be read now, it is read at the end.
        if let Ok(output) = terminal.shared.editor.output(&terminal.shared.id).await
            && !log_new_output(job, logged, &output.text).await
        {
            return;
        }
    }
}

/// Returns whether the session still exists. Output that was dropped or overwritten is not logged twice.
async fn log_new_output(job: &ToolJob, logged: &mut String, text: &str) -> bool {
    let Some(more) = text.strip_prefix(logged.as_str()).filter(|more| !more.is_empty()) else { return true };
    let body = Body::ToolOutput { call: job.call.clone(), stream: OutputStream::Stdout, text: more.into() };
    let heard = job.context.emit(body).await.is_ok();
    *logged = text.to_owned();
    heard
}

fn outcome(
    output: &str,
    ended: &CommandEnd,
    exit: Option<Exit>,
    wall: Duration,
    terminal: EditorTerminal,
) -> ToolOutcome {
    let mut text = shortened(output);
    let mark = match ended {
        CommandEnd::Itself(_) => None,
        CommandEnd::TimedOut => Some(format!("[ended after {} s: it took too long]", wall.as_secs())),
        CommandEnd::Cancelled => Some("[cancelled]".to_owned()),
        CommandEnd::Lost(error) => Some(format!("[{error}; whether the command ended is not known]")),
    };
    if let Some(mark) = mark {
        text.push_str(&format!("\n{mark}"));
    }
    let exit = match ended {
        CommandEnd::TimedOut => Some((Some(TIMED_OUT_CODE), None)),
        CommandEnd::Itself(_) | CommandEnd::Cancelled | CommandEnd::Lost(_) => {
            exit.map(|exit| (exit.code, exit.signal.map(|signal| signal.to_string())))
        }
    };
    let well = matches!(ended, CommandEnd::Itself(exit) if exit.code == Some(0));
    ToolOutcome { failed: !well, text: Some(text), exit, terminal: Some(terminal), ..ToolOutcome::default() }
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
