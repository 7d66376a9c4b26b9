//! The processes of a test: hubs, and a machine with a bridge.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const START_MAX: Duration = Duration::from_secs(60);

/// A port that was free a moment ago: whoever is killed comes back to the same one.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The program with nothing of this machine around it but what it needs.
pub fn ropewalk(home: &Path, log: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    let log = std::fs::File::options().create(true).append(true).open(home.join(log)).unwrap();
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command.env("ROPEWALK_HOME", home.join("state")).env("ROPEWALK_OFFLINE", "1");
    command.current_dir(home).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command
}

/// Waits until something is so that a process brings about.
pub fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + START_MAX;
    while !so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A hub that can be killed and comes back.
pub struct Hub {
    pub address: SocketAddr,
    home: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Hub {
    pub fn start(folder: &Path, name: &str, public_url: &str, more: &[&str]) -> Self {
        let home = folder.join(name);
        std::fs::create_dir_all(&home).unwrap();
        let address = free_address();
        let mut arguments: Vec<String> =
            ["hub", "--listen", &address.to_string(), "--public-url", public_url].map(str::to_owned).to_vec();
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        let mut hub = Self { address, home, arguments, child: None };
        hub.run();
        hub.until_ready();
        hub
    }

    pub fn run(&mut self) {
        let mut command = ropewalk(&self.home, "hub.log");
        self.child = Some(command.args(&self.arguments).spawn().unwrap());
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn until_ready(&mut self) {
        let deadline = Instant::now() + START_MAX;
        while std::net::TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < deadline, "the hub does not serve: {}", self.log());
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "the hub ended: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("hub.log")).unwrap_or_default()
    }

    /// The code of the link that makes the first admin.
    pub fn setup_code(&self) -> String {
        let deadline = Instant::now() + START_MAX;
        loop {
            let log = self.log();
            if let Some((_, rest)) = log.split_once("#setup.") {
                let code = rest
                    .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-' && letter != '_');
                return format!("setup.{}", code.into_iter().next().unwrap());
            }
            assert!(Instant::now() < deadline, "no setup link: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A machine with sessions, whose bridge leads to the front.
pub struct Laptop {
    home: PathBuf,
    remote: String,
    token: String,
    /// A file with the certificates that it trusts, instead of the system's.
    trusts: Option<PathBuf>,
    child: Option<Child>,
}

impl Laptop {
    pub fn start(folder: &Path, remote: &str, token: &str, trusts: Option<&Path>) -> Self {
        let home = folder.join("laptop");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("README.md"), "A small library of knots\n").unwrap();
        let (remote, token, trusts) = (remote.to_owned(), token.to_owned(), trusts.map(Path::to_owned));
        let mut laptop = Self { home, remote, token, trusts, child: None };
        laptop.run();
        laptop
    }

    pub fn run(&mut self) {
        let mut command = ropewalk(&self.home, "laptop.log");
        command.args(["serve", "--http", "127.0.0.1:0", "--bridge", &self.remote]);
        if self.remote.starts_with("http://") {
            command.arg("--insecure");
        }
        if let Some(trusts) = &self.trusts {
            command.env("SSL_CERT_FILE", trusts);
        }
        command.env("ROPEWALK_BRIDGE_TOKEN", &self.token);
        self.child = Some(command.spawn().unwrap());
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends it in good order.
    pub fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let process = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
            child.wait().unwrap();
        }
    }

    /// Copies its state, as `cp -a` does, in the place of what was there.
    pub fn copy_state(&self, from: &str, to: &str) {
        let (from, to) = (self.home.join(from), self.home.join(to));
        drop(std::fs::remove_dir_all(&to));
        assert!(Command::new("cp").arg("-a").args([&from, &to]).status().unwrap().success());
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// What it said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("laptop.log")).unwrap_or_default()
    }

    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.join(name)).unwrap_or_default()
    }

    /// The session's log, as the program itself exports it.
    pub fn export(&self, session: &str) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", &self.home);
        command.env("ROPEWALK_HOME", self.home.join("state")).current_dir(&self.home);
        let output = command.args(["sessions", "export", session, "--format", "json"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let export: Value = serde_json::from_slice(&output.stdout).unwrap();
        export["events"].as_array().unwrap().clone()
    }
}

impl Drop for Laptop {
    fn drop(&mut self) {
        self.kill();
    }
}
