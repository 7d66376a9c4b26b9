//! Fixture: a temporary folder, the program in it, and child processes that end with the test.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Has a `project` to work in; whatever else a test needs stands beside it.
pub struct WorkFolder(TempDir);

impl Default for WorkFolder {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        Self(folder)
    }
}

impl WorkFolder {
    /// One with these folders, not in the folder for temporary files, which commands have one of their own of.
    pub fn beside_the_sources(folders: &[&str]) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in folders {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// The program in the project, without input; what it prints is kept.
    #[expect(clippy::disallowed_methods, reason = "the program under test is what this starts")]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(arguments).current_dir(self.project());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same without a model and without what the environment of the tests says.
    pub fn bare_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env_clear();
        command.env("HOME", self.home()).env("PATH", "/usr/bin:/bin").env("ROPEWALK_OFFLINE", "1");
        command
    }
}

/// Starts a program whose input and output are ours.
pub fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The address that a server says it listens on. What else it says is read and dropped, because whoever does not read
/// may make it wait.
pub fn address_said(errors: ChildStderr) -> String {
    let mut lines = BufReader::new(errors).lines();
    let address = lines
        .by_ref()
        .find_map(|line| Some(line.unwrap().split_once("http://")?.1.split_whitespace().next()?.to_owned()));
    std::thread::spawn(move || lines.for_each(drop));
    address.expect("an address")
}

/// Reads what a server writes up to the answer to this request.
pub fn answer_to(output: &mut BufReader<ChildStdout>, id: u64) -> Value {
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "the server goes on");
        let frame: Value = serde_json::from_str(&line).expect("every line is JSON");
        if frame["id"] == id && frame.get("method").is_none() {
            return frame;
        }
    }
}

/// The frames that a server writes, one a line, as they come.
pub fn frames_of(output: ChildStdout) -> Receiver<Value> {
    let (sender, frames) = sync_channel(4096);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(serde_json::from_str::<Value>(&line).unwrap()).is_err() {
                return;
            }
        }
    });
    frames
}

/// Waits for the end of a program; how it ended.
pub fn exit_code(child: &mut Child, deadline: Duration) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(began.elapsed() < deadline, "the server does not end");
        std::thread::yield_now();
    }
}

/// Ends with its test, however that ends.
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}
