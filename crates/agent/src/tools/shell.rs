//! `shell`: a command, its output shown while it runs.

use std::sync::Arc;
use std::time::Duration;

use engine::{Body, BoxFuture, OutputStream, Risk, ToolClass, ToolKind};
use sandbox::{Cause, Command, Ended, Fence, Program, StartError, Stream};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::{Intent, Job, Outcome, Tool, Work, arguments};
use crate::host;

/// Output on its way to the log; a full queue slows the command down.
const CHUNKS_MAX: usize = 16;
const TIMEOUT_SECONDS_MAX: u64 = 600;
/// What the model is told of the output: its beginning and its end.
const HEAD_BYTES_MAX: usize = 12 << 10;
const TAIL_BYTES_MAX: usize = 20 << 10;
/// Refusals of the fence that are told one by one; the log has all of them.
const REFUSALS_SHOWN_MAX: usize = 5;

pub(super) const NAME: &str = "shell";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "the command line"},
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": TIMEOUT_SECONDS_MAX}
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
        // The guard looks into the command; it is never less than this for another reason.
        risk: Risk::Medium,
        reason: "runs a command",
        work: Box::new(shell),
    })
}

impl Work for Arguments {
    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let config = &job.session.shared.config;
            let mut limits = config.shell;
            if let Some(seconds) = self.timeout_seconds {
                limits.wall = Duration::from_secs(seconds.clamp(1, TIMEOUT_SECONDS_MAX));
            }
            if let Some(outcome) = host::run_in_terminal(&job, &self.command, limits.wall).await {
                return outcome;
            }
            let fence = match (job.place.policy(), &config.reach.helper) {
                (Err(error), _) => return Outcome::failed(error.to_string()),
                (Ok(policy), Some(helper)) => Some(Fence { policy: policy.clone(), helper: helper.clone() }),
                (Ok(_), None) => None,
            };
            let command = Command {
                program: Program::Shell(self.command),
                cwd: job.place.folder().to_owned(),
                environment: config.environment.clone(),
                limits,
                fence,
            };
            let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
            let cancel = job.context.cancel.clone();
            let (ended, output) = tokio::join!(sandbox::run(command, cancel, sender), watch(&job, receiver));
            outcome(ended, output, limits.wall)
        })
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
    let refused = output.refusals();
    let mut text = output.text();
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
    text.push_str(&refused);
    Outcome {
        failed: ended.cause != Cause::Itself || ended.code != Some(0),
        text: Some(text),
        exit: Some((ended.code, ended.signal)),
        ..Outcome::default()
    }
}

/// Puts the output into the log as it comes, and keeps what the model is told of it.
async fn watch(job: &Job, mut outputs: mpsc::Receiver<sandbox::Output>) -> Output {
    let mut output = Output::default();
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
                output.push(&text);
                Body::ToolOutput { call: job.call.clone(), stream, text: text.into() }
            }
            sandbox::Output::Refused(violation) => {
                let reason = violation.to_string();
                output.refused.push(reason.clone());
                Body::PolicyBlocked {
                    call: Some(job.call.clone()),
                    tool: NAME.into(),
                    path: violation.path,
                    mode: job.place.mode().name().into(),
                    reason: reason.into(),
                }
            }
        };
        if job.context.emit(body).await.is_err() {
            // The session is gone: the receiver is dropped, and the turn ends the command.
            break;
        }
    }
    for rest in [stdout.rest(), stderr.rest()].into_iter().flatten() {
        output.push(&rest);
    }
    output
}

/// Text out of bytes that may end in the middle of a character.
#[derive(Default)]
struct Decoder {
    held: Vec<u8>,
}

impl Decoder {
    /// What is left of a character whose end never came.
    fn rest(self) -> Option<String> {
        (!self.held.is_empty()).then(|| String::from_utf8_lossy(&self.held).into_owned())
    }

    fn decode(&mut self, bytes: Vec<u8>) -> String {
        self.held.extend(bytes);
        let unfinished = match std::str::from_utf8(&self.held) {
            // A character has at most four bytes; what is wrong earlier will not get better.
            Err(error) if error.error_len().is_none() => self.held.len() - error.valid_up_to(),
            _ => unfinished_at_end(&self.held),
        };
        let rest = self.held.split_off(self.held.len() - unfinished);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }
}

/// How many bytes at the end are the beginning of a character that is still to come.
fn unfinished_at_end(bytes: &[u8]) -> usize {
    let tail = (1..=bytes.len().min(3)).find(|back| bytes[bytes.len() - back] & 0b1100_0000 != 0b1000_0000);
    let Some(back) = tail else { return 0 };
    let needs = match bytes[bytes.len() - back] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if needs > back { back } else { 0 }
}

/// The beginning and the end of an output.
#[derive(Default)]
struct Output {
    head: String,
    tail: String,
    left_out: usize,
    /// What the fence refused, in words.
    refused: Vec<String>,
}

impl Output {
    fn push(&mut self, text: &str) {
        let room = HEAD_BYTES_MAX.saturating_sub(self.head.len());
        let (head, rest) =
            text.split_at(text.floor_char_boundary(if self.tail.is_empty() { room } else { 0 }));
        self.head.push_str(head);
        self.tail.push_str(rest);
        if self.tail.len() > 2 * TAIL_BYTES_MAX {
            self.trim();
        }
    }

    /// Told at the end, where the person and the model look when a command has failed.
    fn refusals(&self) -> String {
        let mut text = String::new();
        for refusal in self.refused.iter().take(REFUSALS_SHOWN_MAX) {
            text.push_str(&format!("\n[sandbox: {refusal}]"));
        }
        if let Some(more) = self.refused.len().checked_sub(REFUSALS_SHOWN_MAX + 1) {
            text.push_str(&format!("\n[sandbox: {} more were refused]", more + 1));
        }
        text
    }

    fn trim(&mut self) {
        let from = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(TAIL_BYTES_MAX));
        self.left_out += from;
        self.tail.drain(..from);
    }

    fn text(mut self) -> String {
        self.trim();
        match self.left_out {
            0 => self.head + &self.tail,
            bytes => format!("{}\n[{bytes} bytes left out]\n{}", self.head, self.tail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_split_between_chunks_stay_whole() {
        let text = "aä€😀z\u{fffd}";
        for size in 1..5 {
            let mut decoder = Decoder::default();
            let joined: String =
                text.as_bytes().chunks(size).map(|bytes| decoder.decode(bytes.to_vec())).collect();
            assert_eq!(joined, text, "in pieces of {size}");
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(vec![0xff, b'a', 0xe2]), "\u{fffd}a");
        assert_eq!(decoder.decode(vec![0x82, 0xac]), "€");
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let mut output = Output::default();
        for number in 0..20_000 {
            output.push(&format!("line {number}\n"));
        }
        let text = output.text();
        assert!(text.len() < 34 << 10);
        assert!(
            text.starts_with("line 0\n")
                && text.ends_with("line 19999\n")
                && text.contains("bytes left out]")
        );
        let mut short = Output::default();
        short.push("hello\n");
        assert_eq!(short.text(), "hello\n");
    }
}
