//! Fixture: a project, a state folder, `tmux` terminals and a server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a state may take to come, on a machine that does much else.
const DEADLINE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(30);

/// The program, with nothing of this machine around it but what it needs.
#[expect(clippy::disallowed_methods, reason = "the program under test is what this starts")]
pub fn program(name: &str) -> Command {
    Command::new(name)
}

pub struct World {
    directory: TempDir,
}

impl World {
    pub fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir_all(directory.path().join("project")).unwrap();
        fs::write(directory.path().join("project/README.md"), "# A net\n").unwrap();
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(arguments).current_dir(self.path("project")).env_clear();
        for (name, value) in self.variables() {
            command.env(name, value);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it with this input until it ends: the exit code, and what it wrote.
    pub fn pipe(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        let mut child = self.command(arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// A terminal of this size, in which the program runs.
    pub fn terminal(&self, arguments: &str, columns: u16, lines: u16) -> Terminal {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { socket: format!("ropewalk-test-{}-{number}", std::process::id()) };
        let variables: Vec<String> =
            self.variables().iter().map(|(name, value)| format!("{name}='{}'", value.display())).collect();
        // What is on the screen before and after is what the program must leave alone.
        let line = format!(
            "echo before; env -i {} TERM=\"$TERM\" '{}' {arguments}; echo \"ended with $?\"; exec sleep 1000",
            variables.join(" "),
            env!("CARGO_BIN_EXE_ropewalk"),
        );
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let project = self.path("project");
        let arguments = ["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &lines, "-c"];
        terminal.tmux(&[&arguments[..], &[project.to_str().unwrap(), "sh", "-c", &line]].concat());
        terminal
    }

    /// A server of the project's folder, on a port that is free, or on this one.
    pub fn serve(&self, port: u16) -> Server {
        self.serve_with(port, &[])
    }

    pub fn serve_with(&self, port: u16, options: &[&str]) -> Server {
        let address = format!("127.0.0.1:{port}");
        let mut arguments = vec!["serve", "--http", &address, "--approval", "suggest"];
        arguments.extend(options);
        let mut child = self.command(&arguments).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url =
            lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned)).unwrap();
        // Nobody reads the rest, and nobody is kept by it.
        thread::spawn(move || lines.for_each(drop));
        let port = url.rsplit(':').next().unwrap().parse().unwrap();
        Server { child, port }
    }

    fn variables(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("HOME", self.path("home")),
            ("ROPEWALK_HOME", self.path("state")),
            ("ROPEWALK_OFFLINE", Path::new("1").into()),
            ("PATH", Path::new("/usr/bin:/bin").into()),
        ]
    }
}

pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Ends it without a word.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that was ended already cannot be ended again.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// Keys as `tmux` names them: `Enter`, `C-c`, `Tab`, or a letter.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    pub fn write(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    pub fn say(&self, text: &str) {
        self.write(text);
        self.keys(&["Enter"]);
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(began.elapsed() < DEADLINE, "never: {what}\n{screen}");
            thread::sleep(LOOK_EVERY);
        }
    }

    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Presses a key until what is asked is asked no longer. Just after it appeared no key is taken, and
    /// who presses on without a pause keeps it so.
    #[track_caller]
    pub fn answer(&self, key: &str) {
        self.until("the key is taken", |screen| {
            let is_asked = screen.contains("y allow once");
            if is_asked && !screen.contains("Key ignored") {
                self.keys(&[key]);
            }
            !is_asked
        });
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = program("tmux");
        command.arg("-L").arg(&self.socket).args(arguments).stdin(Stdio::null());
        let output = command.output().expect("tmux is needed: cargo xtask setup");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = program("tmux");
        // It is a server of its own, which ends with its last terminal.
        drop(command.args(["-L", &self.socket, "kill-server"]).stderr(Stdio::null()).status());
    }
}
