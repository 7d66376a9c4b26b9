//! `shell`: a command, its output shown while it runs, or a command in the background.
//!
//! Without `tty` a command has pipes and no input, as in a script: programs then do not ask, page, draw
//! or colour, and one that reads ends at once instead of waiting for somebody who is not there. That is
//! what a model wants of nearly every command, so a terminal is there for the asking only.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use engine::{Body, BoxFuture, OutputStream, Risk, ToolClass, ToolKind};
use sandbox::{Cause, Command, Ended, Fence, Limits, Program, StartError, Stream, Terminal, Violation};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::output::{Decoder, Excerpt, Lines};
use super::{Intent, Job, Outcome, Tool, Work, arguments, jobs};
use crate::background::WINDOW;
use crate::host;

/// Output on its way to the log; a full queue slows the command down.
const CHUNKS_MAX: usize = 16;
const TIMEOUT_SECONDS_MAX: u64 = 600;
/// As `timeout` has it.
const TIMED_OUT_CODE: i32 = 124;
/// Refusals of the fence that are told one by one; the log has all of them.
const REFUSALS_SHOWN_MAX: usize = 5;
/// A background command that fails this soon is told to have failed, not to have started.
const AT_ONCE: Duration = Duration::from_millis(250);
/// In a terminal nobody turns pages.
const TERMINAL_VARIABLES: [(&str, &str); 3] =
    [("TERM", "xterm-256color"), ("PAGER", "cat"), ("GIT_PAGER", "cat")];

pub(super) const NAME: &str = "shell";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "the command line"},
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": TIMEOUT_SECONDS_MAX},
            "tty": {"type": "boolean", "description": "run it in a terminal, for programs that behave differently without one"},
            "background": {"type": "boolean", "description": "return at once and let it run on, also after the turn: servers, watchers, long builds. See and end it with the tool jobs"}
        },
        "required": ["command"],
        "additionalProperties": false
    });
    Tool::new(
        NAME,
        "Runs a command with sh in the working folder. It gets no input, and what it leaves running is ended.",
        ToolKind::Execute,
        ToolClass::Execute,
        schema,
        intend,
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

fn intend(text: &str) -> Result<Intent, String> {
    let shell: Arguments = arguments(text)?;
    if shell.command.trim().is_empty() || shell.command.contains('\0') {
        return Err("the command is empty or malformed".into());
    }
    Ok(Intent {
        title: shell.command.clone(),
        path: None,
        line: None,
        subject: Some(shell.command.clone()),
        // The guard looks into the command.
        risk: Risk::Low,
        reason: "runs a command",
        work: Box::new(shell),
    })
}

impl Work for Arguments {
    fn editor_line(&self) -> Option<(&str, bool)> {
        // One that goes on without a terminal of its own has nothing to show there.
        (!self.background || self.tty).then_some((&self.command, self.background))
    }

    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let command = match self.command(&job) {
                Ok(command) => command,
                Err(reason) => return Outcome::failed(reason),
            };
            if self.background {
                return self.start(command, &job).await;
            }
            match host::run_in_terminal(&job, command.limits.wall).await {
                Some(outcome) => outcome,
                None => self.finish(command, &job).await,
            }
        })
    }
}

impl Arguments {
    fn command(&self, job: &Job) -> Result<Command, String> {
        let config = &job.session.shared.config;
        let fence = match (job.place.policy(), &config.reach.helper) {
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
            let switched_off = sandbox::git_looks_only();
            environment.retain(|(name, _)| !switched_off.iter().any(|(known, _)| name == known.as_str()));
            environment.extend(switched_off.into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        Ok(Command {
            program: Program::Shell(self.command.clone()),
            cwd: job.place.folder().to_owned(),
            environment,
            limits: self.limits(config.shell),
            fence,
        })
    }

    fn limits(&self, usual: Limits) -> Limits {
        let wanted =
            self.timeout_seconds.map(|seconds| Duration::from_secs(seconds.clamp(1, TIMEOUT_SECONDS_MAX)));
        if self.background {
            // It is there to go on, and what it writes is bounded where it is kept.
            let wall = wanted.unwrap_or(Duration::ZERO);
            return Limits { wall, forward_bytes_max: u64::MAX, ..usual };
        }
        Limits { wall: wanted.unwrap_or(usual.wall), ..usual }
    }

    async fn finish(&self, command: Command, job: &Job) -> Outcome {
        let wall = command.limits.wall;
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let cancel = job.context.cancel.clone();
        let running = async {
            if self.tty {
                let terminal = Terminal { window: WINDOW, typed: None };
                sandbox::run_in_terminal(command, terminal, cancel, sender).await
            } else {
                sandbox::run(command, cancel, sender).await
            }
        };
        let (ended, output) = tokio::join!(running, watch(job, receiver));
        outcome(ended, output, wall)
    }

    /// The turn may be cancelled and end: the command belongs to the session.
    async fn start(&self, command: Command, job: &Arc<Job>) -> Outcome {
        let before = job.protected().take();
        let (background, wall) = (&job.session.background, command.limits.wall);
        if let Err(reason) = background.has_room() {
            return Outcome::failed(reason);
        }
        let (started, terminal) = match host::open_terminal(job).await {
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
            Err(reason) => return Outcome::failed(reason),
        };
        job.session.follow(&started);
        drop(tokio::time::timeout(AT_ONCE, started.until_ended()).await);
        match started.ended() {
            None => {
                let text = format!(
                    "started in the background as {}; what it writes is seen with the tool jobs",
                    started.name
                );
                Outcome { terminal, ..Outcome::text(text) }
            }
            Some(end) => {
                let text = jobs::told(&started, job).await;
                let exit = end.how.as_ref().ok().map(|ended| (ended.code, ended.signal.clone()));
                let failed = !matches!(exit, Some((Some(0), _)));
                Outcome { failed, text: Some(text), exit, terminal, ..Outcome::default() }
            }
        }
    }
}

fn outcome(ended: Result<Ended, StartError>, output: Output, wall: Duration) -> Outcome {
    let ended = match ended {
        Ok(ended) => ended,
        Err(StartError::Spawn(error)) => {
            return Outcome::failed(format!("the command could not be started: {error}"));
        }
        Err(error) => return Outcome::failed(error.to_string()),
    };
    let mut text = output.text.text();
    let mark = match ended.cause {
        Cause::Itself => None,
        Cause::TimedOut => Some(format!("[ended after {} s: it took too long]", wall.as_secs())),
        Cause::Cancelled => Some("[cancelled]".to_owned()),
        Cause::TooMuchOutput => Some(format!("[ended after {} bytes of output]", ended.output_bytes)),
        Cause::TooMuchMemory => Some("[ended: it held too much memory]".to_owned()),
        Cause::TooManyProcesses => Some("[ended: it started too many processes]".to_owned()),
    };
    if ended.dropped_bytes > 0 {
        text.push_str(&format!("\n[{} more bytes of output not kept]", ended.dropped_bytes));
    }
    if let Some(mark) = mark {
        text.push_str(&format!("\n{mark}"));
    }
    text.push_str(&refusals(&output.refused));
    let exit = match ended.cause {
        Cause::TimedOut => (Some(TIMED_OUT_CODE), None),
        _ => (ended.code, ended.signal),
    };
    Outcome {
        failed: ended.cause != Cause::Itself || exit.0 != Some(0),
        text: Some(text),
        exit: Some(exit),
        ..Outcome::default()
    }
}

/// Told at the end, where the person and the model look when a command has failed.
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

/// A refusal of the fence as the log has it.
pub(super) fn blocked(job: &Job, violation: Violation) -> Body {
    Body::PolicyBlocked {
        call: Some(job.call.clone()),
        tool: NAME.into(),
        reason: violation.to_string().into(),
        path: violation.path,
        mode: job.place.mode().name().into(),
    }
}

/// What is told of a command's output.
#[derive(Default)]
struct Output {
    text: Excerpt,
    /// What the fence refused, in words.
    refused: Vec<String>,
}

/// Puts the output into the log as it comes, and keeps what the model is told of it.
async fn watch(job: &Job, mut outputs: mpsc::Receiver<sandbox::Output>) -> Output {
    let mut output = Output::default();
    let mut lines = Lines::default();
    let (mut stdout, mut stderr) = (Decoder::default(), Decoder::default());
    while let Some(next) = outputs.recv().await {
        let body = match next {
            sandbox::Output::Chunk(chunk) => {
                let (stream, text) = match chunk.stream {
                    Stream::Stdout => (OutputStream::Stdout, stdout.decode(chunk.bytes)),
                    Stream::Stderr => (OutputStream::Stderr, stderr.decode(chunk.bytes)),
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
            // The session is gone: the receiver is dropped, and the turn ends the command.
            break;
        }
    }
    for rest in [stdout.rest(), stderr.rest()].into_iter().flatten() {
        output.text.push(&lines.push(&rest));
    }
    output.text.push(&lines.rest());
    output
}
