//! The server process and the raw ACP client that talks to it.
//!
//! A thread reads frames into a bounded queue, so that the driver can wait for a frame and for its
//! moment to kill at once.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

const QUEUE_FRAMES: usize = 4096;
const PIPE_CLOSED_MAX: Duration = Duration::from_secs(5);

/// One line of the server.
pub enum Frame {
    Update(Value),
    Response {
        id: u64,
        result: Value,
        error: Option<Value>,
    },
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    /// A whole line that is no frame: always a fault.
    Broken(String),
}

/// What the driver does when it is asked for a permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PermissionReply {
    Allow,
    Reject,
    /// The question stays open.
    Nothing,
}

pub struct Peer {
    child: Child,
    /// Without it the server is told to end.
    input: Option<ChildStdin>,
    frames: Receiver<Frame>,
    workspace: PathBuf,
    last_id: u64,
}

impl Peer {
    #[expect(clippy::disallowed_methods, reason = "the server under test is what gets killed here")]
    pub fn spawn(command: &[String], home: &Path) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("the server's command is empty")?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(home.join("stderr.log"))?;
        let mut child = Command::new(program)
            .args(arguments)
            // Beside the workspace: what is below the state folder is hidden from commands.
            .env("ROPEWALK_HOME", home.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the server has no stdout")?;
        let (sender, frames) = sync_channel(QUEUE_FRAMES);
        std::thread::spawn(move || read_frames(BufReader::new(output), &sender));
        Ok(Self { child, input, frames, workspace: home.join("workspace"), last_id: 0 })
    }

    pub fn send_initialize(&mut self) -> anyhow::Result<u64> {
        self.send("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))
    }

    pub fn initialize(&mut self, patience: Duration) -> anyhow::Result<()> {
        let id = self.send_initialize()?;
        self.result(id, patience).map(drop).context("initialize")
    }

    pub fn new_session(&mut self, patience: Duration) -> anyhow::Result<String> {
        let id = self.send("session/new", &json!({"cwd": self.workspace, "mcpServers": []}))?;
        let result = self.result(id, patience).context("session/new")?;
        Ok(result["sessionId"].as_str().context("session/new gave no sessionId")?.to_owned())
    }

    /// Everything that the session's tools want is allowed without asking.
    pub fn allow_all(&mut self, session: &str, patience: Duration) -> anyhow::Result<()> {
        let setting = json!({"sessionId": session, "configId": "approval", "value": "full"});
        let id = self.send("session/set_config_option", &setting)?;
        self.result(id, patience).map(drop).context("setting the approval")
    }

    pub fn cancel(&mut self, session: &str) -> anyhow::Result<()> {
        let params = json!({"sessionId": session});
        self.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}))
    }

    /// The server's own process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send_load(&mut self, session: &str) -> anyhow::Result<u64> {
        self.send("session/load", &json!({"sessionId": session, "cwd": self.workspace, "mcpServers": []}))
    }

    pub fn send_prompt(&mut self, session: &str, text: &str) -> anyhow::Result<u64> {
        self.send(
            "session/prompt",
            &json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]}),
        )
    }

    /// The log as the server stores it.
    pub fn stored_events(&mut self, session: &str, patience: Duration) -> anyhow::Result<Vec<Value>> {
        let id = self.send("_session/get", &json!({"session_id": session}))?;
        let mut result = self.result(id, patience).context("_session/get")?;
        match result["events"].take() {
            Value::Array(events) => Ok(events),
            other => bail!("_session/get gave no list of events but {other}"),
        }
    }

    /// The next frame, or `None` when the deadline passes first.
    pub fn next(&mut self, deadline: Instant) -> anyhow::Result<Option<Frame>> {
        match self.frames.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Frame::Broken(line)) => bail!("the server wrote a line that is no frame: {line}"),
            Ok(frame) => Ok(Some(frame)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the server closed its output without being killed"),
        }
    }

    pub fn answer_permission(
        &mut self,
        id: &Value,
        params: &Value,
        answer: PermissionReply,
    ) -> anyhow::Result<()> {
        let wanted = match answer {
            PermissionReply::Allow => "allow_once",
            PermissionReply::Reject => "reject_once",
            PermissionReply::Nothing => return Ok(()),
        };
        let options = params["options"].as_array().context("a permission request without options")?;
        let option = options.iter().find(|option| option["kind"] == wanted);
        let option = option.with_context(|| format!("a permission request without a {wanted} option"))?;
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}});
        self.respond(id, &outcome)
    }

    /// Answers a request of the server.
    pub fn respond(&mut self, id: &Value, result: &Value) -> anyhow::Result<()> {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    /// Ends the server as an editor does, by ending its input, and waits until it is gone.
    pub fn close(mut self, patience: Duration) -> anyhow::Result<()> {
        self.input = None;
        let deadline = Instant::now() + patience;
        loop {
            match self.frames.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => bail!("the server did not end when its input did"),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.child.wait().map(drop).context("waiting for the server")
    }

    /// `kill -9`, and every whole frame that was still in the pipe.
    pub fn kill(&mut self) -> anyhow::Result<Vec<Frame>> {
        self.child.kill()?;
        self.child.wait()?;
        let mut rest = Vec::new();
        loop {
            match self.frames.recv_timeout(PIPE_CLOSED_MAX) {
                Ok(Frame::Broken(line)) => bail!("the server wrote a line that is no frame: {line}"),
                Ok(frame) => rest.push(frame),
                Err(RecvTimeoutError::Disconnected) => return Ok(rest),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("a child of the killed server still holds its output")
                }
            }
        }
    }

    pub fn send(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        self.last_id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}))?;
        Ok(self.last_id)
    }

    fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let input = self.input.as_mut().context("the server's input is closed")?;
        Ok(input.write_all(&line)?)
    }

    /// Waits for the answer to `id`. What comes before it is of no interest here.
    pub fn result(&mut self, id: u64, patience: Duration) -> anyhow::Result<Value> {
        let deadline = Instant::now() + patience;
        loop {
            match self.next(deadline)?.context("no answer in time")? {
                Frame::Response { id: answered, error: Some(error), .. } if answered == id => {
                    bail!("refused: {error}")
                }
                Frame::Response { id: answered, result, .. } if answered == id => return Ok(result),
                _ => {}
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // After a failed check the server may still run; after a kill there is nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn read_frames(mut output: impl BufRead, sender: &SyncSender<Frame>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line without its end was cut by the kill: a client could not have used it.
        if !matches!(output.read_until(b'\n', &mut line), Ok(count) if count > 0 && line.ends_with(b"\n")) {
            return;
        }
        if sender.send(parse(&line)).is_err() {
            return;
        }
    }
}

fn parse(line: &[u8]) -> Frame {
    let broken = || Frame::Broken(String::from_utf8_lossy(line).into_owned());
    let Ok(mut message) = serde_json::from_slice::<Value>(line) else { return broken() };
    let (id, params) = (message["id"].take(), message["params"].take());
    match (message["method"].as_str(), id.as_u64()) {
        (Some(method), _) if !id.is_null() => Frame::Request { method: method.to_owned(), id, params },
        (Some(_), _) => Frame::Update(params),
        (None, Some(id)) => {
            let error = message.get("error").cloned();
            Frame::Response { id, result: message["result"].take(), error }
        }
        (None, None) => broken(),
    }
}
