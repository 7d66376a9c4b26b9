//! One agent process and the raw client that talks to it.
//!
//! **Invariant:** a peer that hangs is killed after [`LIFE_MAX`], so a run always ends.
//! **Invariant:** no process outlives its `Peer`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::stats::{Samples, micros};

const LIFE_MAX: Duration = Duration::from_secs(300);
/// The SDK's runtime needs a moment to notice the end of its input.
const EXIT_MAX: Duration = Duration::from_secs(5);
const READ_BUFFER_BYTES: usize = 256 * 1024;
/// How every agent measured so far begins an update. One that begins otherwise is parsed instead.
const UPDATE_HEAD: &[u8] = br#"{"jsonrpc":"2.0","method":"session/update""#;

pub struct Peer {
    child: Arc<Mutex<Child>>,
    /// `None` once the client has hung up.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    cwd: PathBuf,
    last_id: u64,
    pub spawned: Instant,
    /// Dropped with the peer, which sends the watchdog home.
    _alive: SyncSender<()>,
}

/// A response and everything that came before it.
pub struct Reply {
    pub result: Value,
    /// When the response had been read.
    pub at: Instant,
    /// When the first streamed text had been read, if it was watched for.
    pub first_chunk: Option<Instant>,
    updates: Vec<u8>,
}

/// What a stream of updates carried.
#[derive(Default)]
pub struct Tally {
    pub notifications: u64,
    pub text: String,
}

impl Peer {
    /// Starts `command` with its state under `home`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the agents under test are foreign programs, not sandboxed tools"
    )]
    pub fn spawn(command: &[String], home: &Path) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("the agent's command is empty")?;
        let cwd = home.join("workspace");
        std::fs::create_dir_all(&cwd)?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(home.join("stderr.log"))?;
        let spawned = Instant::now();
        let mut child = Command::new(program)
            .args(arguments)
            .env("ROPEWALK_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the agent has no stdout")?;
        let child = Arc::new(Mutex::new(child));
        let (alive, watchdog) = sync_channel::<()>(0);
        let watched = Arc::clone(&child);
        std::thread::spawn(move || {
            if watchdog.recv_timeout(LIFE_MAX) == Err(RecvTimeoutError::Timeout) {
                drop(watched.lock().unwrap_or_else(PoisonError::into_inner).kill());
            }
        });
        let output = BufReader::with_capacity(READ_BUFFER_BYTES, output);
        Ok(Self { child, input, output, cwd, last_id: 0, spawned, _alive: alive })
    }

    pub fn initialize(&mut self) -> anyhow::Result<Reply> {
        self.call("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))
    }

    pub fn new_session(&mut self) -> anyhow::Result<String> {
        let params = json!({"cwd": self.cwd, "mcpServers": []});
        let reply = self.call("session/new", &params)?;
        Ok(reply.result["sessionId"].as_str().context("session/new gave no sessionId")?.to_owned())
    }

    pub fn load(&mut self, session: &str) -> anyhow::Result<Reply> {
        let params = json!({"sessionId": session, "cwd": self.cwd, "mcpServers": []});
        self.call("session/load", &params)
    }

    pub fn send_prompt(&mut self, session: &str, text: &str) -> anyhow::Result<u64> {
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.send("session/prompt", &params)
    }

    pub fn prompt(&mut self, session: &str, text: &str) -> anyhow::Result<Reply> {
        let id = self.send_prompt(session, text)?;
        self.turn_end(id, "end_turn")
    }

    /// How long short turns take, in microseconds, after some that do not count.
    pub fn turns_us(&mut self, session: &str, warm_up: usize, turns: usize) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for turn in 0..warm_up + turns {
            let start = Instant::now();
            let reply = self.prompt(session, "hi")?;
            if turn >= warm_up {
                samples.push(micros(reply.at - start));
            }
        }
        Ok(samples)
    }

    /// Waits for the reply to prompt `id`, which must end for `reason`.
    pub fn turn_end(&mut self, id: u64, reason: &str) -> anyhow::Result<Reply> {
        let reply = self.reply(id, false)?;
        if reply.result["stopReason"] != reason {
            bail!("the turn should have ended with {reason}, but: {}", reply.result);
        }
        Ok(reply)
    }

    pub fn cancel(&mut self, session: &str) -> anyhow::Result<()> {
        self.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}))
    }

    pub fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Reply> {
        let id = self.send(method, params)?;
        self.reply(id, false)
    }

    fn send(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        self.last_id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}))?;
        Ok(self.last_id)
    }

    fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        // One write per message: the agent must not be woken by half a line.
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let input = self.input.as_mut().context("the client has hung up")?;
        Ok(input.write_all(&line)?)
    }

    /// Reads up to the response to `id`. With `watch_text` every update is parsed as it comes, to
    /// take the time of the first text; without, updates are only copied.
    pub fn reply(&mut self, id: u64, watch_text: bool) -> anyhow::Result<Reply> {
        let (mut updates, mut first_chunk) = (Vec::new(), None);
        loop {
            let start = updates.len();
            if self.output.read_until(b'\n', &mut updates)? == 0 {
                bail!("the agent closed its output while a reply was due");
            }
            let line = &updates[start..];
            if line.starts_with(UPDATE_HEAD) {
                if watch_text && first_chunk.is_none() && agent_text(&serde_json::from_slice(line)?).is_some()
                {
                    first_chunk = Some(Instant::now());
                }
                continue;
            }
            let at = Instant::now();
            let message: Value =
                serde_json::from_slice(line).context("the agent wrote a line that is not JSON")?;
            if message["method"].is_string() {
                if watch_text && first_chunk.is_none() && agent_text(&message).is_some() {
                    first_chunk = Some(at);
                }
                self.refuse_request(&message)?;
                continue;
            }
            updates.truncate(start);
            if message["id"] != id {
                continue;
            }
            if !message["error"].is_null() {
                bail!("the agent answered with an error: {}", message["error"]);
            }
            return Ok(Reply { result: message["result"].clone(), at, first_chunk, updates });
        }
    }

    /// Reads up to the response to `id` and hands over each update as it comes. Permissions are not for this.
    pub fn each_update(&mut self, id: u64, mut each: impl FnMut(&Value)) -> anyhow::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.output.read_until(b'\n', &mut line)? == 0 {
                bail!("the agent closed its output while a reply was due");
            }
            let message: Value =
                serde_json::from_slice(&line).context("the agent wrote a line that is not JSON")?;
            if message["method"] == "session/update" {
                each(&message);
            } else if message["method"].is_string() {
                self.refuse_request(&message)?;
            } else if message["id"] == id {
                return Ok(());
            }
        }
    }

    /// The measuring client offers nothing, so whatever an agent asks of it does not exist.
    fn refuse_request(&mut self, message: &Value) -> anyhow::Result<()> {
        if message["id"].is_null() {
            return Ok(());
        }
        let error = json!({"code": -32601, "message": "method not found"});
        self.write(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}))
    }

    /// Reads until at least `bytes` have come, kills the agent, and returns every whole line that
    /// was in the pipe: exactly what a client could have seen.
    pub fn kill_after(mut self, bytes: usize) -> anyhow::Result<Vec<u8>> {
        let mut seen = Vec::new();
        while seen.len() < bytes && self.output.read_until(b'\n', &mut seen)? > 0 {}
        self.lock_child().kill()?;
        while self.output.read_until(b'\n', &mut seen)? > 0 {}
        let whole = seen.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        seen.truncate(whole);
        Ok(seen)
    }

    /// Closes the agent's input and waits until it is gone, so that the next start finds its state at rest.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.input = None;
        let deadline = Instant::now() + EXIT_MAX;
        while Instant::now() < deadline {
            if self.lock_child().try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("the agent did not exit within {EXIT_MAX:?} after its input was closed")
    }

    pub fn memory(&self, field: &str) -> anyhow::Result<u64> {
        let pid = self.lock_child().id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find(|line| line.starts_with(field)).context("/proc has no such field")?;
        let kilobytes = line.split_whitespace().nth(1).context("the field has no value")?;
        Ok(kilobytes.parse()?)
    }

    fn lock_child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut child = self.lock_child();
        // It may have exited on its own; either way nothing is left to do about an error here.
        drop(child.kill());
        drop(child.wait());
    }
}

impl Reply {
    pub fn tally(&self) -> anyhow::Result<Tally> {
        Tally::of(&self.updates)
    }
}

impl Tally {
    /// Counts whole lines of updates.
    pub fn of(lines: &[u8]) -> anyhow::Result<Self> {
        let mut tally = Self::default();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if let Some(text) = agent_text(&serde_json::from_slice(line)?) {
                tally.notifications += 1;
                tally.text.push_str(text);
            }
        }
        Ok(tally)
    }
}

/// The text of an `agent_message_chunk`.
pub fn agent_text(message: &Value) -> Option<&str> {
    let update = &message["params"]["update"];
    if update["sessionUpdate"] == "agent_message_chunk" { update["content"]["text"].as_str() } else { None }
}
