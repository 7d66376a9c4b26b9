//! `jobs`: lists, reads and ends background commands; `job_input`: types into one.
//!
//! These are two tools because they have different risks. Reading the output of a command that was allowed,
//! or ending it, needs no permission. Typing into it can run anything: the text is assessed like a command
//! line, and permission is asked.

use std::sync::Arc;
use std::time::Duration;

use engine::{Body, BoxFuture, NoticeLevel, Risk, ToolClass, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::command_output::Excerpt;
use super::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork, arguments, shell};
use crate::background_commands::{BackgroundJob, TYPED_BYTES_MAX};
use crate::summary_without_model::{cut, one_line};

const WAIT_SECONDS_USUAL: u64 = 30;
const WAIT_SECONDS_MAX: u64 = 600;
/// More than ending and then killing a command takes.
const KILL_WAIT: Duration = Duration::from_secs(10);
const LINE_CHARS_MAX: usize = 100;

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "action": {
                "enum": ["list", "output", "wait", "kill"],
                "description": "output: what it wrote since the last look; wait: until it ends or the time is up, then its output"
            },
            "job": {"type": "string", "description": "which one, for all but list"},
            "seconds": {"type": "integer", "minimum": 1, "maximum": WAIT_SECONDS_MAX, "description": "how long to wait; 30 without it"}
        },
        "required": ["action"],
        "additionalProperties": false
    });
    ToolDefinition::reads(
        "jobs",
        "Commands that shell started in the background: lists them, shows what they wrote, waits for them, ends them.",
        schema,
        parse_call,
    )
}

pub(super) fn input_tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "job": {"type": "string"},
            "text": {"type": "string", "description": "typed as it is: end a line with \\n; \\u0003 interrupts, \\u0004 ends the input"}
        },
        "required": ["job", "text"],
        "additionalProperties": false
    });
    ToolDefinition::new(
        "job_input",
        "Types into a background command that was started with tty.",
        ToolKind::Execute,
        ToolClass::Execute,
        schema,
        parse_input_call,
    )
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    Output,
    Wait,
    Kill,
}

#[derive(Deserialize)]
struct Arguments {
    action: Action,
    job: Option<String>,
    seconds: Option<u64>,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let wish: Arguments = arguments(text)?;
    let title = match (wish.action, &wish.job) {
        (Action::List, _) => "List background jobs".to_owned(),
        (_, None) => return Err("say which job; list shows them".into()),
        (Action::Output, Some(job)) => format!("Look at {job}"),
        (Action::Wait, Some(job)) => format!("Wait for {job}"),
        (Action::Kill, Some(job)) => format!("End {job}"),
    };
    Ok(intent(title, None, Risk::Low, "looks after a command that was allowed", Box::new(wish)))
}

fn intent(
    title: String,
    subject: Option<String>,
    risk: Risk,
    reason: &'static str,
    work: Box<dyn ToolWork>,
) -> Intent {
    Intent { title, path: None, line: None, subject, risk, reason, work }
}

impl ToolWork for Arguments {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            let background = &job.session.background;
            let Some(name) = self.job.as_deref().filter(|_| self.action != Action::List) else {
                return ToolOutcome::plain(list(&background.all()));
            };
            let wanted = match background.find(name) {
                Ok(wanted) => wanted,
                Err(reason) => return ToolOutcome::failed(reason),
            };
            let wait_time = match self.action {
                Action::List | Action::Output => Duration::ZERO,
                Action::Wait => {
                    let seconds = self.seconds.unwrap_or(WAIT_SECONDS_USUAL);
                    Duration::from_secs(seconds.clamp(1, WAIT_SECONDS_MAX))
                }
                Action::Kill => {
                    wanted.kill();
                    KILL_WAIT
                }
            };
            tokio::select! {
                biased;
                () = job.context.cancel.cancelled() => return ToolOutcome::failed("the turn was cancelled".into()),
                () = wanted.until_ended() => {}
                () = tokio::time::sleep(wait_time) => {}
            }
            ToolOutcome::plain(job_report(&wanted, &job).await)
        })
    }
}

fn list(jobs: &[Arc<BackgroundJob>]) -> String {
    let line = |job: &Arc<BackgroundJob>| format!("{}: {} ({})", job.name, job.state(), shown(job));
    match jobs {
        [] => "nothing was started in the background".into(),
        jobs => jobs.iter().map(line).collect::<Vec<_>>().join("\n"),
    }
}

fn shown(job: &BackgroundJob) -> String {
    cut(&one_line(&job.line), LINE_CHARS_MAX)
}

/// The state of a job and its new output. Sandbox refusals are logged.
pub(super) async fn job_report(wanted: &Arc<BackgroundJob>, job: &ToolJob) -> String {
    if let Some(text) = wanted.new_entries().await {
        let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
        // If the session is gone, there is no log to write to.
        job.context.emit(notice).await.ok();
    }
    // In this order, so that a report of the end includes all output before it.
    let state = wanted.state();
    let output = wanted.take_output();
    let mut text = format!("{}: {state} ({})", wanted.name, shown(wanted));
    if output.lost_bytes > 0 {
        text.push_str(&format!("\n[{} earlier bytes not kept]", output.lost_bytes));
    }
    if output.text.is_empty() {
        text.push_str("\n[no new output]");
    } else {
        let mut excerpt = Excerpt::default();
        excerpt.push(&output.text);
        text.push_str(&format!("\n{}", excerpt.text()));
    }
    let words: Vec<String> = output.refused.iter().map(ToString::to_string).collect();
    text.push_str(&shell::refusals(&words));
    for violation in output.refused {
        if job.context.emit(shell::blocked(job, violation)).await.is_err() {
            // The session is gone; the turn notices that itself.
            break;
        }
    }
    text
}

#[derive(Deserialize)]
struct JobInput {
    job: String,
    text: String,
}

fn parse_input_call(text: &str) -> Result<Intent, String> {
    let typed: JobInput = arguments(text)?;
    if typed.text.is_empty() || typed.text.len() > TYPED_BYTES_MAX {
        return Err(format!("type between 1 byte and {} KiB at a time", TYPED_BYTES_MAX >> 10));
    }
    let title = format!("Type to {}: {}", typed.job, one_line(&typed.text));
    let subject = Some(typed.text.clone());
    Ok(intent(title, subject, Risk::Medium, "types into a command that runs", Box::new(typed)))
}

impl ToolWork for JobInput {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            // Its effects belong to the background command, and are reported when that is read or ends.
            job.protected().take();
            let typed = job.session.background.find(&self.job).and_then(|wanted| wanted.type_in(&self.text));
            match typed {
                Ok(()) => ToolOutcome::text(format!("typed; look at {} for the result", self.job)),
                Err(reason) => ToolOutcome::failed(reason),
            }
        })
    }
}
