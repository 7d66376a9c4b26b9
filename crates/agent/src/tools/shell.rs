//! `shell`: runs a command, with its output shown live, or in the background.
//!
//! Without `tty` a command has pipes and no input, as in a script. Programs then do not ask, page, draw or
//! colour, and one that reads input ends at once instead of waiting. That is what a model wants for nearly
//! every command, so a terminal is used only on request.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use engine::{Body, BoxFuture, OutputStream, Risk, ToolClass, ToolKind};
use sandbox::{
    ChildCommand, CommandExit, CommandLimits, EndCause, Fence, Program, PseudoTerminal, StartError,
    StdStream, Violation,
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::command_output::{Decoder, Excerpt, RenderedLines};
use super::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork, arguments, jobs};
use crate::background_commands::WINDOW;
use crate::editor_files;

/// Chunks of output in the queue; a full queue slows the command down.
const CHUNKS_MAX: usize = 16;
const TIMEOUT_SECONDS_MAX: u64 = 600;
/// The exit code that `timeout` uses.
const TIMED_OUT_CODE: i32 = 124;
/// Sandbox refusals that are listed for the model; the log has all of them.
const REFUSALS_SHOWN_MAX: usize = 5;
/// A background command that fails this soon is reported as failed, not as started.
const AT_ONCE: Duration = Duration::from_millis(250);
/// Turns pagers off in a terminal.
const TERMINAL_VARIABLES: [(&str, &str); 3] =
    [("TERM", "xterm-256color"), ("PAGER", "cat"), ("GIT_PAGER", "cat")];

pub(super) const NAME: &str = "shell";

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "the command line"},
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": TIMEOUT_SECONDS_MAX},
            "tty": {"type": "boolean", "description": "run it in a terminal, for programs that behave differently without one"},
            "background": {"type": "boolean", "description": "return at once and let it keep running, also after the turn: servers, watchers, long builds. See and end it with the tool jobs"}
        },
        "required": ["command"],
        "additionalProperties": false
    });
    ToolDefinition::new(
        NAME,
        "Runs a command with sh in the working folder. It gets no input, and what it leaves running is ended.",
        ToolKind::Execute,
        ToolClass::Execute,
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    tty: bool,
    #[serde(default)]
    background: bool,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let shell: Arguments = arguments(text)?;
    if shell.command.trim().is_empty() || shell.command.contains('\0') {
        return Err("the command is empty or malformed".into());
    }
    Ok(Intent {
        title: shell.command.clone(),
        path: None,
        line: None,
        subject: Some(shell.command.clone()),
        // The guard assesses the command.
        risk: Risk::Low,
        reason: "runs a command",
        work: Box::new(shell),
    })
}

impl ToolWork for Arguments {
    fn editor_line(&self) -> Option<(&str, bool)> {
        // A background command without `tty` needs no terminal.
        (!self.background || self.tty).then_some((&self.command, self.background))
    }

    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            let command = match self.command(&job) {
                Ok(command) => command,
                Err(reason) => return ToolOutcome::failed(reason),
            };
            if self.background {
                return self.start(command, &job).await;
            }
            match editor_files::run_in_terminal(&job, command.limits.wall).await {
                Some(outcome) => outcome,
                None => self.finish(command, &job).await,
            }
        })
    }
}

impl Arguments {
    fn command(&self, job: &ToolJob) -> Result<ChildCommand, String> {
        let config = &job.session.shared.config;
        let fence = match (job.workspace.policy(), &config.reach.helper) {
            (Err(error), _) => return Err(error.to_string()),
            (Ok(policy), Some(helper)) => Some(Fence { policy: policy.clone(), helper: helper.clone() }),
            (Ok(_), None) => None,
        };
        let mut environment = config.environment.clone();
        if self.tty {
            let ours = |name: &OsString| TERMINAL_VARIABLES.iter().any(|(known, _)| name == known);
            environment.retain(|(name, _)| !ours(name));
            environment.extend(TERMINAL_VARIABLES.map(|(name, value)| (name.into(), value.into())));
        }
        if job.only_looks {
            let switched_off = sandbox::git_read_only_environment();
            environment.retain(|(name, _)| !switched_off.iter().any(|(known, _)| name == known.as_str()));
            environment.extend(switched_off.into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        Ok(ChildCommand {
            program: Program::Shell(self.command.clone()),
            cwd: job.workspace.folder().to_owned(),
            environment,
            limits: self.limits(config.shell),
            fence,
        })
    }

    fn limits(&self, usual: CommandLimits) -> CommandLimits {
        let wanted =
            self.timeout_seconds.map(|seconds| Duration::from_secs(seconds.clamp(1, TIMEOUT_SECONDS_MAX)));
        if self.background {
            // It may run as long as it likes, and its output is bounded by the buffer.
            let wall = wanted.unwrap_or(Duration::ZERO);
            return CommandLimits { wall, forward_bytes_max: u64::MAX, ..usual };
        }
        CommandLimits { wall: wanted.unwrap_or(usual.wall), ..usual }
    }

    async fn finish(&self, command: ChildCommand, job: &ToolJob) -> ToolOutcome {
        let wall = command.limits.wall;
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let cancel = job.context.cancel.clone();
        let running = async {
            if self.tty {
                let terminal = PseudoTerminal { window: WINDOW, typed: None };
                sandbox::run_in_terminal(command, terminal, cancel, sender).await
            } else {
                sandbox::run(command, cancel, sender).await
            }
        };
        let (ended, output) = tokio::join!(running, watch(job, receiver));
        outcome(ended, output, wall)
    }

    /// Starts a background command. It belongs to the session, so the end of the turn does not affect it.
    async fn start(&self, command: ChildCommand, job: &Arc<ToolJob>) -> ToolOutcome {
        let before = job.protected().take();
        let (background, wall) = (&job.session.background, command.limits.wall);
        if let Err(reason) = background.has_room() {
            return ToolOutcome::failed(reason);
        }
        let (started, terminal) = match editor_files::open_terminal(job).await {
            Some(Err(outcome)) => return outcome,
            Some(Ok(terminal)) => {
                let shown = terminal.shown();
                let outside = job.session.outside_turns();
                (background.start_in_editor(terminal, &self.command, wall, before, outside), Some(shown))
            }
            None => (background.start(command, &self.command, self.tty, before), None),
        };
        let started = match started {
            Ok(started) => started,
            Err(reason) => return ToolOutcome::failed(reason),
        };
        job.session.report_new_entries(&started);
        drop(tokio::time::timeout(AT_ONCE, started.until_ended()).await);
        match started.ended() {
            None => {
                let text = format!(
                    "started in the background as {}; what it writes is seen with the tool jobs",
                    started.name
                );
                ToolOutcome { terminal, ..ToolOutcome::text(text) }
            }
            Some(end) => {
                let text = jobs::job_report(&started, job).await;
                let exit = end.how.as_ref().ok().map(|ended| (ended.code, ended.signal.clone()));
                let failed = !matches!(exit, Some((Some(0), _)));
                ToolOutcome { failed, text: Some(text), exit, terminal, ..ToolOutcome::default() }
            }
        }
    }
}

fn outcome(ended: Result<CommandExit, StartError>, output: Output, wall: Duration) -> ToolOutcome {
    let ended = match ended {
        Ok(ended) => ended,
        Err(StartError::Spawn(error)) => {
            return ToolOutcome::failed(format!("the command could not be started: {error}"));
        }
        Err(error) => return ToolOutcome::failed(error.to_string()),
    };
    let mut text = output.text.text();
    let mark = match ended.cause {
        EndCause::Itself => None,
        EndCause::TimedOut => Some(format!("[ended after {} s: it took too long]", wall.as_secs())),
        EndCause::Cancelled => Some("[cancelled]".to_owned()),
        EndCause::TooMuchOutput => Some(format!("[ended after {} bytes of output]", ended.output_bytes)),
        EndCause::TooMuchMemory => Some("[ended: it held too much memory]".to_owned()),
        EndCause::TooManyProcesses => Some("[ended: it started too many processes]".to_owned()),
    };
    if ended.dropped_bytes > 0 {
        text.push_str(&format!("\n[{} more bytes of output not kept]", ended.dropped_bytes));
    }
    if let Some(mark) = mark {
        text.push_str(&format!("\n{mark}"));
    }
    text.push_str(&refusals(&output.refused));
    let exit = match ended.cause {
        EndCause::TimedOut => (Some(TIMED_OUT_CODE), None),
        _ => (ended.code, ended.signal),
    };
    ToolOutcome {
        failed: ended.cause != EndCause::Itself || exit.0 != Some(0),
        text: Some(text),
        exit: Some(exit),
        ..ToolOutcome::default()
    }
}

/// The refusals, for the end of the output, where people and the model look when a command has failed.
pub(super) fn refusals(refused: &[String]) -> String {
    let mut text = String::new();
    for refusal in refused.iter().take(REFUSALS_SHOWN_MAX) {
        text.push_str(&format!("\n[sandbox: {refusal}]"));
    }
    if let Some(more) = refused.len().checked_sub(REFUSALS_SHOWN_MAX + 1) {
        text.push_str(&format!("\n[sandbox: {} more were refused]", more + 1));
    }
    text
}

/// The event for a sandbox refusal.
pub(super) fn blocked(job: &ToolJob, violation: Violation) -> Body {
    Body::PolicyBlocked {
        call: Some(job.call.clone()),
        tool: NAME.into(),
        reason: violation.to_string().into(),
        path: violation.path,
        mode: job.workspace.mode().name().into(),
    }
}

/// The part of a command's output that the model gets.
#[derive(Default)]
struct Output {
    text: Excerpt,
    /// The sandbox refusals, as text.
    refused: Vec<String>,
}

/// Logs the output as it comes, and keeps the part that the model gets.
async fn watch(job: &ToolJob, mut outputs: mpsc::Receiver<sandbox::Output>) -> Output {
    let mut output = Output::default();
    let mut lines = RenderedLines::default();
    let (mut stdout, mut stderr) = (Decoder::default(), Decoder::default());
    while let Some(next) = outputs.recv().await {
        let body = match next {
            sandbox::Output::Chunk(chunk) => {
                let (stream, text) = match chunk.stream {
                    StdStream::Stdout => (OutputStream::Stdout, stdout.decode(chunk.bytes)),
                    StdStream::Stderr => (OutputStream::Stderr, stderr.decode(chunk.bytes)),
                };
                if text.is_empty() {
                    continue;
                }
                output.text.push(&lines.push(&text));
                Body::ToolOutput { call: job.call.clone(), stream, text: text.into() }
            }
            sandbox::Output::Refused(violation) => {
                output.refused.push(violation.to_string());
                blocked(job, violation)
            }
        };
        if job.context.emit(body).await.is_err() {
            // The session is gone: dropping the receiver makes the turn end the command.
            break;
        }
    }
    for rest in [stdout.rest(), stderr.rest()].into_iter().flatten() {
        output.text.push(&lines.push(&rest));
    }
    output.text.push(&lines.rest());
    output
}
