//! Fixture: a separate home per test, an external agent, and a client on real pipes.
//!
//! The agent is this program once more, with the offline model: it asks for permissions, has modes and
//! models, and can bring its sessions back.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command_output::CommandOutput;

/// No wait is longer. Generous, because test machines are busy.
pub const DEADLINE: Duration = Duration::from_secs(60);

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

pub struct World {
    directory: TempDir,
}

impl World {
    /// With an agent that is called `inner`.
    pub fn new() -> Self {
        // Not where temporary files are: behind a fence that folder is empty.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for folder in ["project", "outer", "inner", "bin"] {
            fs::create_dir(directory.path().join(folder)).unwrap();
        }
        let world = Self { directory };
        world.settings(&world.inner(""));
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    pub fn settings(&self, text: &str) {
        fs::write(self.path("outer/config.toml"), text).unwrap();
    }

    /// The settings of the agent. What is more is written as it is.
    pub fn inner(&self, more: &str) -> String {
        let home = self.path("inner").display().to_string();
        // Its own fence would be one within another.
        let mark = self.mark();
        format!(
            "[agents.inner]\ncommand = {PROGRAM:?}\n\
             args = [\"serve\", \"--sandbox\", \"off\", \"--approval\", \"suggest\", \"--agent-name\", {mark:?}]\n\
             env = {{ ROPEWALK_HOME = {home:?}, ROPEWALK_OFFLINE = \"1\", SET_FOR_IT = \"yes\" }}\n\
             own_folders = [{home:?}]\n{more}"
        )
    }

    /// What the agent of this world is called, and no other.
    pub fn mark(&self) -> String {
        let name = self.directory.path().file_name().unwrap().to_string_lossy().replace('.', "");
        format!("inner-{name}")
    }

    /// A program that can be found on the `PATH` of this world.
    pub fn program(&self, name: &str, script: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is what this starts")]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.path("project")).env_clear();
        command
            .env("HOME", self.path(""))
            .env("ROPEWALK_HOME", self.path("outer"))
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display()))
            .env("ROPEWALK_OFFLINE", "1")
            .env("OPENAI_API_KEY", "sk-of-another-agent")
            .env("A_SECRET_TOKEN", "hush-hush-hush")
            .env("NAMED_ONE", "named");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(arguments).spawn().unwrap())
    }

    pub fn serve(&self, arguments: &[&str]) -> Client {
        self.serve_editor(arguments, json!({}))
    }

    /// A server with a client that can do this.
    pub fn serve_editor(&self, arguments: &[&str], can: Value) -> Client {
        let mut client = Client::start(self.command(&[&["serve"], arguments].concat()));
        let hello = client.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": can }));
        assert_eq!(hello["protocolVersion"], 1, "{hello}");
        client
    }

    /// A server with the agent of this world, and a session.
    pub fn session(&self, arguments: &[&str]) -> (Client, String) {
        let mut client = self.serve(&[&["--agent", "inner"], arguments].concat());
        let opened = client.call("session/new", self.folder());
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        (client, session)
    }

    /// What a session is opened with.
    pub fn folder(&self) -> Value {
        json!({ "cwd": self.path("project"), "mcpServers": [] })
    }

    /// The processes of this world's agent, with the helpers that keep their fences.
    pub fn agents(&self) -> Vec<Pid> {
        let mark = self.mark().into_bytes();
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let is_agent = |line: Vec<u8>| {
            let mut words = line.split(|byte| *byte == 0);
            words.any(|word| word == mark)
        };
        processes
            .filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(is_agent))
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    /// Ends the agent as the kernel does when memory is short.
    pub fn kill_agent(&self) {
        let agents = self.agents();
        assert!(!agents.is_empty(), "the agent does not run");
        for agent in agents {
            // It may have ended with one that was killed before it.
            kill_process(agent, Signal::KILL).ok();
        }
    }

    pub fn wait_until_no_agent_runs(&self) {
        let began = Instant::now();
        while !self.agents().is_empty() {
            assert!(began.elapsed() < DEADLINE, "the agent still runs: {:?}", self.agents());
            std::thread::yield_now();
        }
    }
}

/// A client on standard input and output.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: Receiver<String>,
    last_id: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Client {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send_line, lines) = sync_channel(1 << 16);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                send_line.send(line.unwrap()).ok();
            }
        });
        let (send_log, log) = sync_channel(1);
        std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            send_log.send(text).ok();
        });
        Self { input: child.stdin.take(), child, lines, log, last_id: 0 }
    }

    pub fn write(&mut self, frame: &Value) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{frame}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }));
        self.last_id
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    pub fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let block = json!({ "type": "text", "text": text });
        self.send("session/prompt", json!({ "sessionId": session, "prompt": [block] }))
    }

    pub fn answer(&mut self, request: &Value, option: &str) {
        let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
        self.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": outcome }));
    }

    fn frame(&mut self) -> Value {
        let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
            // What it says of itself is known when it has ended.
            drop(self.child.kill());
            panic!("there is no line from the server: {:?}", self.log.recv_timeout(DEADLINE));
        };
        serde_json::from_str(&line).expect("every line is JSON")
    }

    /// Reads on until a frame is the wanted one; answers everything up to it.
    pub fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.frame();
            frames.push(frame);
            if frames.last().is_some_and(&wanted) {
                return frames;
            }
        }
    }

    /// Everything up to a reply, and the reply as the last.
    pub fn frames_to(&mut self, id: u64) -> Vec<Value> {
        self.until(|frame| frame["id"] == id && frame.get("method").is_none())
    }

    pub fn reply(&mut self, id: u64) -> Value {
        self.frames_to(id).pop().unwrap()
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let reply = self.reply(id);
        assert!(reply.get("result").is_some(), "{method}: {reply}");
        reply["result"].clone()
    }

    /// What the agent answers to a prompt that ends well.
    pub fn said(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        let frames = self.frames_to(id);
        let last = frames.last().unwrap();
        assert_eq!(last["result"]["stopReason"], "end_turn", "{last}");
        text_of(&frames)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn hang_up(&mut self) {
        drop(self.input.take());
    }

    pub fn exit_code(&mut self) -> Option<i32> {
        crate::work_folder::exit_code(&mut self.child, DEADLINE)
    }

    pub fn finish(mut self) {
        self.hang_up();
        assert_eq!(self.exit_code(), Some(0));
    }
}

/// What the agent said in some frames.
pub fn text_of(frames: &[Value]) -> String {
    let updates = frames.iter().map(|frame| &frame["params"]["update"]);
    let spoken = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    spoken.filter_map(|update| update["content"]["text"].as_str()).collect()
}

/// Whether a frame is an update of this kind.
pub fn is(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |frame| frame["params"]["update"]["sessionUpdate"] == kind
}
