//! The real binary as the documents start it, on standard input and output.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command_output::CommandOutput;
use crate::doors::web::Server;

/// No wait is longer. Generous, because test machines are busy.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: Receiver<String>,
    /// The person's home folder; the program works in `work` below it.
    pub home: Arc<TempDir>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn home() -> Arc<TempDir> {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("work")).unwrap();
    Arc::new(home)
}

/// The program with a home of its own and nothing of the tester's settings.
#[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
pub fn command(program: &Path, home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("ROPEWALK_OFFLINE", "1")
        .current_dir(home.path().join("work"));
    command
}

/// The program under another name.
pub fn link(home: &TempDir, name: &str) -> PathBuf {
    let link = home.path().join(name);
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_ropewalk"), &link).unwrap();
    }
    link
}

/// The token of the servers that are started here.
pub const TOKEN: &str = "a-token-for-this-document-0123456789";

/// The program under another name with its HTTP door open, on a port that is free.
pub fn http_server(home: &Arc<TempDir>, name: &str, arguments: &[&str], token_variable: &str) -> Server {
    let mut command = command(&link(home, name), home, arguments);
    command.env(token_variable, TOKEN);
    Server::run(Arc::clone(home), command)
}

/// Holds a port that a document names, so that what the program says of it does not depend on the machine. If somebody else
/// has it for longer than a test does, it is held already.
pub fn hold_port(port: u16) -> Option<TcpListener> {
    let began = Instant::now();
    while began.elapsed() < DEADLINE {
        if let Ok(held) = TcpListener::bind(("127.0.0.1", port)) {
            return Some(held);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Runs a command of the program to its end.
pub fn ended(home: &TempDir, name: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = command(&link(home, name), home, arguments);
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    CommandOutput::of(pipes.spawn().unwrap())
}

impl Program {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(&home(), arguments)
    }

    /// In a home that is there already.
    pub fn start_in(home: &Arc<TempDir>, arguments: &[&str]) -> Self {
        Self::run(home, command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), home, arguments))
    }

    /// By a link of another name, as the document calls the program.
    pub fn named(home: &Arc<TempDir>, name: &str, arguments: &[&str]) -> Self {
        Self::run(home, command(&link(home, name), home, arguments))
    }

    pub fn run(home: &Arc<TempDir>, mut command: Command) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let (output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send_line, lines) = sync_channel(1 << 16);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                send_line.send(line).ok();
            }
        });
        let (send_log, log) = sync_channel(1);
        std::thread::spawn(move || {
            let mut text = Vec::new();
            drop(errors.read_to_end(&mut text));
            send_log.send(String::from_utf8_lossy(&text).into_owned()).ok();
        });
        Self { input: child.stdin.take(), child, lines, log, home: Arc::clone(home) }
    }

    /// Sends one line as it stands.
    pub fn line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    pub fn send(&mut self, frame: &Value) {
        self.line(&frame.to_string());
    }

    /// The next line that it writes.
    #[track_caller]
    pub fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(DEADLINE).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Everything up to the answer to the request with this id, and the answer.
    #[track_caller]
    pub fn until_answer(&mut self, id: &Value) -> (Vec<Value>, Value) {
        let mut updates = Vec::new();
        loop {
            let frame = self.next();
            if frame.get("id") == Some(id) && frame.get("method").is_none() {
                return (updates, frame);
            }
            updates.push(frame);
        }
    }

    /// Calls a method and waits for its answer.
    #[track_caller]
    pub fn call(&mut self, id: u64, method: &str, params: &Value) -> (Vec<Value>, Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.until_answer(&json!(id))
    }

    /// Closes its input and answers its exit code and what it wrote on standard error.
    #[track_caller]
    pub fn close(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let log = self.log.recv_timeout(DEADLINE).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}
