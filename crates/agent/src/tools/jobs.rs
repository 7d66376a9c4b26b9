//! `jobs`: what runs in the background, looked at and ended; `job_input`: typed to.
//!
//! Two tools because they are two risks. To look at a command that was allowed, or to end it, needs no
//! permission. To type to it is to run whatever it runs: the text is judged like a command line, and
//! somebody is asked.

use std::sync::Arc;
use std::time::Duration;

use engine::{Body, BoxFuture, NoticeLevel, Risk, ToolClass, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::output::Excerpt;
use super::{Intent, Job, Outcome, Tool, Work, arguments, shell};
use crate::background::{BackgroundJob, TYPED_BYTES_MAX};
use crate::summary::{cut, one_line};

const WAIT_SECONDS_USUAL: u64 = 30;
const WAIT_SECONDS_MAX: u64 = 600;
/// After it was told to end, a command is killed; this is more than both take.
const KILL_WAIT: Duration = Duration::from_secs(10);
const LINE_CHARS_MAX: usize = 100;

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "action": {
                "enum": ["list", "output", "wait", "kill"],
                "description": "output: what it wrote since the last look; wait: until it ends or the time is over, then its output"
            },
            "job": {"type": "string", "description": "which one, for all but list"},
            "seconds": {"type": "integer", "minimum": 1, "maximum": WAIT_SECONDS_MAX, "description": "how long to wait; 30 without it"}
        },
        "required": ["action"],
        "additionalProperties": false
    });
    Tool::reads(
        "jobs",
        "Commands that shell started in the background: lists them, shows what they wrote, waits for them, ends them.",
        schema,
        intend,
    )
}

pub(super) fn input_tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "job": {"type": "string"},
            "text": {"type": "string", "description": "typed as it is: end a line with \\n; \\u0003 interrupts, \\u0004 ends the input"}
        },
        "required": ["job", "text"],
        "additionalProperties": false
    });
    Tool::new(
        "job_input",
        "Types into a background command that was started with tty.",
        ToolKind::Execute,
        ToolClass::Execute,
        schema,
        intend_input,
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

fn intend(text: &str) -> Result<Intent, String> {
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
    work: Box<dyn Work>,
) -> Intent {
    Intent { title, path: None, line: None, subject, risk, reason, work }
}

impl Work for Arguments {
    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let background = &job.session.background;
            let Some(name) = self.job.as_deref().filter(|_| self.action != Action::List) else {
                return Outcome::plain(list(&background.all()));
            };
            let wanted = match background.find(name) {
                Ok(wanted) => wanted,
                Err(reason) => return Outcome::failed(reason),
            };
            let patience = match self.action {
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
                () = job.context.cancel.cancelled() => return Outcome::failed("the turn was cancelled".into()),
                () = wanted.until_ended() => {}
                () = tokio::time::sleep(patience) => {}
            }
            Outcome::plain(told(&wanted, &job).await)
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

/// How a job stands and what it wrote since the last look. What the fence refused goes into the log.
pub(super) async fn told(wanted: &Arc<BackgroundJob>, job: &Job) -> String {
    if let Some(text) = wanted.new_entries().await {
        let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
        // A session that is gone needs to be told nothing.
        job.context.emit(notice).await.ok();
    }
    // In this order: what it wrote before it ended is seen by whoever is told that it ended.
    let state = wanted.state();
    let look = wanted.look();
    let mut text = format!("{}: {state} ({})", wanted.name, shown(wanted));
    if look.lost_bytes > 0 {
        text.push_str(&format!("\n[{} earlier bytes not kept]", look.lost_bytes));
    }
    if look.text.is_empty() {
        text.push_str("\n[no new output]");
    } else {
        let mut excerpt = Excerpt::default();
        excerpt.push(&look.text);
        text.push_str(&format!("\n{}", excerpt.text()));
    }
    let words: Vec<String> = look.refused.iter().map(ToString::to_string).collect();
    text.push_str(&shell::refusals(&words));
    for violation in look.refused {
        if job.context.emit(shell::blocked(job, violation)).await.is_err() {
            // The session is gone, and the turn learns of it by itself.
            break;
        }
    }
    text
}

#[derive(Deserialize)]
struct Typed {
    job: String,
    text: String,
}

fn intend_input(text: &str) -> Result<Intent, String> {
    let typed: Typed = arguments(text)?;
    if typed.text.is_empty() || typed.text.len() > TYPED_BYTES_MAX {
        return Err(format!("type between 1 byte and {} KiB at a time", TYPED_BYTES_MAX >> 10));
    }
    let title = format!("Type to {}: {}", typed.job, one_line(&typed.text));
    let subject = Some(typed.text.clone());
    Ok(intent(title, subject, Risk::Medium, "types into a command that runs", Box::new(typed)))
}

impl Work for Typed {
    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            // What comes of it is the background command's, and is looked for when that is looked at or ends.
            job.protected().take();
            let typed = job.session.background.find(&self.job).and_then(|wanted| wanted.type_in(&self.text));
            match typed {
                Ok(()) => Outcome::text(format!("typed; look at {} for what comes of it", self.job)),
                Err(reason) => Outcome::failed(reason),
            }
        })
    }
}
