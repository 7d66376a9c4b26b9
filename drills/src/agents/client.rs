//! A small ACP client that drives one command and keeps every line of both sides with its time.
//!
//! It answers permissions as it was told, by the agent's own options, and serves files and terminals if
//! it offers them. What it does not know is refused, as a client must.
//!
//! **Invariant:** no process outlives its `Client`; a wait has a deadline.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::AgentWorkspace;
use super::host::{Host, NOT_FOUND};
use xtask::command;

const LINES_MAX: usize = 65_536;
/// How long any one answer may take: some agents need seconds to start, more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a wait looks at the world beside the agent's output.
const GLANCE: Duration = Duration::from_millis(20);
/// An editor does not wait long for an agent that stays when its input has ended.
const EXIT_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Agent,
}

/// One line that was said.
#[derive(Debug, Clone)]
pub struct Entry {
    pub at: Duration,
    pub from: Side,
    /// The step of the scenario in which it was said.
    pub step: String,
    /// Null where the line is no JSON.
    pub frame: Value,
    pub line: String,
}

/// What is answered to a question of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskReply {
    Allow,
    Refuse,
}

/// What wakes the client.
pub(super) enum ClientEvent {
    Line(String),
    /// A terminal's command is over, and this request waits for it.
    Exited {
        request: Value,
        status: Value,
    },
    Closed,
}

pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    events: Receiver<ClientEvent>,
    host: Host,
    /// Whether files are offered with the terminals.
    pub files: bool,
    last_id: u64,
    began: Instant,
    pub step: String,
    pub answer: AskReply,
    /// How often the agent has asked for permission.
    pub asked: usize,
    /// Methods that the agent has called.
    pub called: Vec<String>,
    pub record: Vec<Entry>,
}

impl Client {
    /// Starts a command in a place. `offers` says whether files and terminals are served.
    pub fn start(
        mut command: Command,
        workspace: &AgentWorkspace,
        offers: bool,
        log: &str,
    ) -> anyhow::Result<Self> {
        command::at_home(&mut command, &workspace.home);
        let errors = fs::File::create(workspace.home.with_file_name(log))?;
        command.current_dir(&workspace.project).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().context("the agent cannot be started")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the agent has no output")?;
        let (sender, heard) = sync_channel(LINES_MAX);
        let host = Host::new(offers, workspace.project.clone(), sender.clone());
        std::thread::spawn(move || read_lines(BufReader::new(output), &sender));
        let client = Self {
            child,
            input,
            events: heard,
            host,
            files: true,
            last_id: 0,
            began: Instant::now(),
            step: String::new(),
            answer: AskReply::Allow,
            asked: 0,
            called: Vec::new(),
            record: Vec::new(),
        };
        Ok(client)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn initialize(&mut self) -> anyhow::Result<Value> {
        let offers = self.host.offers;
        let files = offers && self.files;
        let able = json!({
            "fs": {"readTextFile": files, "writeTextFile": files},
            "terminal": offers,
            "_meta": {"terminal_output": offers},
        });
        let info = json!({"name": "rig", "version": "1"});
        self.call(
            "initialize",
            &json!({"protocolVersion": 1, "clientCapabilities": able, "clientInfo": info}),
        )
    }

    /// A request and its result.
    pub fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let id = self.request(method, params)?;
        self.answer_to(id, |_, _| Ok(())).with_context(|| method.to_owned())
    }

    pub fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    pub fn notify(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// The result of a request. `look` is called for every frame on the way, and with `None` from time to time.
    pub fn answer_to(
        &mut self,
        id: u64,
        mut look: impl FnMut(&mut Self, Option<&Value>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let frame = self.next_frame(deadline)?;
            look(self, frame.as_ref())?;
            let Some(mut frame) = frame else { continue };
            if frame["method"].is_null() && frame["id"] == id {
                ensure!(frame["error"].is_null(), "refused: {}", frame["error"]);
                return Ok(frame["result"].take());
            }
        }
    }

    /// What comes unasked within a short while.
    pub fn settle(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.next_frame(until + GLANCE)?;
        }
        Ok(())
    }

    /// The next frame that is not for the client itself to answer, or nothing for now.
    fn next_frame(&mut self, deadline: Instant) -> anyhow::Result<Option<Value>> {
        ensure!(Instant::now() < deadline, "the agent says nothing more");
        match self.events.recv_timeout(GLANCE) {
            Ok(ClientEvent::Line(line)) => {
                let frame = serde_json::from_str(&line).unwrap_or(Value::Null);
                self.note(Side::Agent, frame, line);
                let frame = self.record.last().map(|entry| entry.frame.clone()).unwrap_or_default();
                if frame["method"].is_string() && !frame["id"].is_null() {
                    self.serve(&frame)?;
                }
                Ok(Some(frame))
            }
            Ok(ClientEvent::Exited { request, status }) => {
                self.send(&json!({"jsonrpc": "2.0", "id": request, "result": status}))?;
                Ok(None)
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(ClientEvent::Closed) | Err(RecvTimeoutError::Disconnected) => bail!("the agent has ended"),
        }
    }

    /// Answers what the agent asks.
    fn serve(&mut self, frame: &Value) -> anyhow::Result<()> {
        let method = frame["method"].as_str().unwrap_or_default();
        self.called.push(method.to_owned());
        let outcome = match method {
            "session/request_permission" => {
                self.asked += 1;
                Some(chosen(&frame["params"], self.answer))
            }
            _ => self.host.serve(method, &frame["params"], &frame["id"]),
        };
        match outcome {
            Some(Ok(result)) => self.send(&json!({"jsonrpc": "2.0", "id": frame["id"], "result": result})),
            Some(Err(reason)) => {
                let code = if reason.starts_with(NOT_FOUND) { -32002 } else { -32601 };
                let error = json!({"code": code, "message": reason});
                self.send(&json!({"jsonrpc": "2.0", "id": frame["id"], "error": error}))
            }
            None => Ok(()),
        }
    }

    fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        let line = frame.to_string();
        self.note(Side::Client, frame.clone(), line.clone());
        let input = self.input.as_mut().context("the agent's input is closed")?;
        input.write_all(format!("{line}\n").as_bytes()).context("the agent does not listen")
    }

    fn note(&mut self, from: Side, frame: Value, line: String) {
        let step = self.step.clone();
        self.record.push(Entry { at: self.began.elapsed(), from, step, frame, line });
    }

    /// Ends the agent as an editor does, by ending its input; then by force.
    pub fn end(&mut self) -> Vec<Entry> {
        self.input = None;
        let deadline = Instant::now() + EXIT_MAX;
        while Instant::now() < deadline && !matches!(self.child.try_wait(), Ok(Some(_))) {
            drop(self.events.recv_timeout(GLANCE));
        }
        self.kill();
        std::mem::take(&mut self.record)
    }

    /// `kill -9` of the process that was started, and what could still be read from it.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        let deadline = Instant::now() + EXIT_MAX;
        while Instant::now() < deadline {
            match self.events.recv_timeout(GLANCE) {
                Ok(ClientEvent::Line(line)) => {
                    let frame = serde_json::from_str(&line).unwrap_or(Value::Null);
                    self.note(Side::Agent, frame, line);
                }
                Ok(ClientEvent::Exited { .. }) | Err(RecvTimeoutError::Timeout) => {}
                Ok(ClientEvent::Closed) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The option that says what is meant: for once if there is one, for good otherwise.
fn chosen(params: &Value, answer: AskReply) -> Result<Value, String> {
    let kinds = match answer {
        AskReply::Allow => ["allow_once", "allow_always"],
        AskReply::Refuse => ["reject_once", "reject_always"],
    };
    let options = params["options"].as_array().ok_or("a permission request without options")?;
    let of = |kind: &&str| options.iter().find(|option| option["kind"] == **kind);
    let option = kinds.iter().find_map(of).ok_or_else(|| format!("no option is a {}", kinds[0]))?;
    Ok(json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}}))
}

fn read_lines(mut output: impl BufRead, sender: &SyncSender<ClientEvent>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!(output.read_until(b'\n', &mut line), Ok(bytes) if bytes > 0) {
            drop(sender.send(ClientEvent::Closed));
            return;
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if sender.send(ClientEvent::Line(text)).is_err() {
            return;
        }
    }
}

/// A record as the schema's judge reads it: one JSON object per line.
pub fn as_lines(record: &[Entry]) -> String {
    let line = |entry: &Entry| {
        let from = if entry.from == Side::Client { "client" } else { "server" };
        let at = u64::try_from(entry.at.as_micros()).unwrap_or(u64::MAX);
        json!({"from": from, "line": entry.line, "at_us": at, "step": entry.step}).to_string() + "\n"
    };
    record.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_by_the_agents_own_option_for_once_if_there_is_one() {
        let option = |kind: &str| json!({"optionId": format!("my {kind}"), "kind": kind});
        let ask =
            |kinds: &[&str]| json!({"options": kinds.iter().map(|kind| option(kind)).collect::<Vec<_>>()});
        let all = ask(&["allow_always", "allow_once", "reject_once"]);
        let id = |answer: Result<Value, String>| answer.map(|answer| answer["outcome"]["optionId"].clone());
        assert_eq!(id(chosen(&all, AskReply::Allow)), Ok("my allow_once".into()));
        assert_eq!(id(chosen(&all, AskReply::Refuse)), Ok("my reject_once".into()));
        assert_eq!(id(chosen(&ask(&["allow_always"]), AskReply::Allow)), Ok("my allow_always".into()));
        assert!(chosen(&ask(&["allow_always"]), AskReply::Refuse).is_err());
    }
}
