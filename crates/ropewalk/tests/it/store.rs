//! The real binary with an unusable session store: it refuses with the reason, and recovers without a restart.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::work_folder::{KilledOnDrop, address_said, answer_to, piped};

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-token-for-this-test-alone-0123456789";

/// A folder of state, and commands on it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn database(&self) -> PathBuf {
        self.state().join("sessions.db")
    }

    /// Limits of the file size end no program that ignores the signal for it.
    #[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ropewalk")]);
        command.args(arguments);
        command.env("ROPEWALK_HOME", self.state()).env("ROPEWALK_SERVER_TOKEN", TOKEN);
        command.env("ROPEWALK_OFFLINE", "1").current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// One session with one turn, saved.
    fn saved_turn(&self) {
        let done = self.run(&["run", "hello"]);
        assert!(done.status.success(), "{}", errors(&done));
    }

    /// Changes the first bytes of the database's header.
    fn damage(&self) -> Vec<u8> {
        let mut file = fs::OpenOptions::new().read(true).write(true).open(self.database()).unwrap();
        let mut header = vec![0; 16];
        file.read_exact(&mut header).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"not a database!!").unwrap();
        header
    }

    fn repair(&self, header: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(self.database()).unwrap();
        file.write_all_at(header, 0).unwrap();
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server with an editor on its standard input, and a door for HTTP.
struct Server {
    child: KilledOnDrop,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: String,
    folder: PathBuf,
    last_id: u64,
}

impl Server {
    fn start(home: &Home) -> Self {
        let mut child = piped(&mut home.command(&["serve", "--http", "127.0.0.1:0", "--stdio"]));
        let address = address_said(child.stderr.take().unwrap());
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let folder = home.0.path().to_owned();
        let mut server = Self { child: KilledOnDrop(child), input, output, address, folder, last_id: 0 };
        server.until("/health", 200);
        server.call("initialize", json!({ "protocolVersion": 1 })).unwrap();
        server
    }

    /// The reply to a request of the editor: its result, or its error's message.
    fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.last_id += 1;
        let id = self.last_id;
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{frame}").unwrap();
        let mut answer = answer_to(&mut self.output, id);
        match answer["error"]["message"].as_str() {
            Some(message) => Err(message.to_owned()),
            None => Ok(answer["result"].take()),
        }
    }

    fn new_session(&mut self) -> Result<String, String> {
        let opened = self.call("session/new", json!({ "cwd": self.folder, "mcpServers": [] }))?;
        Ok(opened["sessionId"].as_str().unwrap().to_owned())
    }

    /// A turn, from the prompt to its end.
    fn turn(&mut self, session: &str) -> Result<Value, String> {
        let prompt = json!([{ "type": "text", "text": "hello" }]);
        let ended = self.call("session/prompt", json!({ "sessionId": session, "prompt": prompt }))?;
        Ok(ended["stopReason"].clone())
    }

    fn sessions(&mut self) -> usize {
        let listed = self.call("session/list", json!({})).unwrap();
        listed["sessions"].as_array().unwrap().len()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Ends it as `serve stop` does.
    fn stop(mut self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, None)
    }

    fn request(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len(),
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
    }

    /// Asks until the answer has this status.
    fn until(&self, path: &str, wanted: u16) -> Value {
        let began = Instant::now();
        loop {
            let (status, body) = self.get(path);
            if status == wanted {
                return body;
            }
            assert!(began.elapsed() < DEADLINE, "{path}: {status} {body}");
            std::thread::yield_now();
        }
    }
}

/// Not ready, and why, without a path.
fn not_ready(home: &Home, body: &Value) -> String {
    let reason = body["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(body["status"], "not_ready", "{body}");
    assert!(!reason.contains(&home.0.path().display().to_string()), "{reason}");
    reason
}

#[test]
fn a_damaged_store_is_never_replaced_by_memory_and_heals_without_a_restart() {
    let home = Home::new();
    home.saved_turn();
    let header = home.damage();
    let mut server = Server::start(&home);
    assert_eq!(server.get("/health").0, 200);
    let reason = not_ready(&home, &server.until("/ready", 503));
    assert!(reason.contains("the session store cannot be used"), "{reason}");
    let made = json!({ "working_dir": home.0.path() });
    for (status, body) in [server.request("POST", "/session", Some(made)), server.get("/sessions")] {
        assert_eq!(status, 503, "{body}");
        assert!(body.to_string().contains("the session store cannot be used"), "{body}");
    }
    // An editor shows the message of the error.
    let told = server.new_session().unwrap_err();
    assert!(told.contains("the session store cannot be used"), "{told}");
    assert!(told.contains(&home.database().display().to_string()), "{told}");
    assert!(server.call("session/list", json!({})).is_err());
    home.repair(&header);
    server.until("/ready", 200);
    assert_eq!(server.sessions(), 1);
    let session = server.new_session().unwrap();
    assert_eq!(server.turn(&session).unwrap(), "end_turn");
}

#[test]
fn commands_fail_on_a_store_that_cannot_be_used_and_ephemeral_ones_do_not() {
    let home = Home::new();
    home.saved_turn();
    home.damage();
    for arguments in [&["run", "hello"][..], &["sessions", "list"], &["run", "--json", "hello"]] {
        let failed = home.run(arguments);
        let told = errors(&failed) + &String::from_utf8_lossy(&failed.stdout);
        assert_eq!(failed.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.contains("the session store cannot be used"), "{arguments:?}: {told}");
        assert!(told.contains(&home.database().display().to_string()), "{arguments:?}: {told}");
    }
    let doctor = home.run(&["doctor"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(told.lines().any(|line| line.starts_with("BAD") && line.contains("session store")), "{told}");
    let done = home.run(&["run", "--ephemeral", "hello"]);
    assert!(done.status.success(), "{}", errors(&done));
    assert_eq!(errors(&done).matches("nothing is saved").count(), 1, "{}", errors(&done));
    let usage = home.run(&["run", "--ephemeral", "--continue", "hello"]);
    assert_eq!(usage.status.code(), Some(2), "{}", errors(&usage));
}

#[test]
fn a_store_or_rules_that_were_emptied_are_told_of_and_not_taken_for_new_ones() {
    let home = Home::new();
    home.saved_turn();
    let rules = home.state().join("permissions.toml");
    fs::write(&rules, "").unwrap();
    let asked = home.run(&["run", "--approval", "full", "run touch made"]);
    assert!(!home.0.path().join("made").exists(), "{}", errors(&asked));
    fs::write(home.database(), "").unwrap();
    for arguments in [&["run", "hello"][..], &["sessions", "list"], &["backup", "b"]] {
        let failed = home.run(arguments);
        assert_eq!(failed.status.code(), Some(1), "{arguments:?}: {}", errors(&failed));
        for told in ["sessions.db", "the file is empty (0 bytes)", "ropewalk restore FILE"] {
            assert!(errors(&failed).contains(told), "{arguments:?}: {}", errors(&failed));
        }
    }
    let doctor = home.run(&["doctor", "--store"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    for (name, file) in [("sessions", home.database()), ("permission rules", rules.clone())] {
        let line =
            |line: &&str| line.starts_with(&format!("BAD  {name}")) && line.contains("empty (0 bytes)");
        let line = told.lines().find(line).unwrap_or_else(|| panic!("{name}: {told}"));
        assert!(line.contains(&file.display().to_string()), "{line}");
    }
    // What the messages say to do.
    fs::remove_file(&rules).unwrap();
    fs::rename(home.database(), home.state().join("aside")).unwrap();
    home.saved_turn();
}

#[test]
fn a_state_folder_that_is_moved_away_takes_no_turn_and_is_not_half_made_again() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let session = server.new_session().unwrap();
    assert_eq!(server.turn(&session).unwrap(), "end_turn");
    let away = home.0.path().join("away");
    fs::rename(home.state(), &away).unwrap();
    let told = server.turn(&session).unwrap_err();
    assert!(told.contains("moved away"), "{told}");
    let reason = not_ready(&home, &server.get("/ready").1);
    assert!(reason.contains("moved away"), "{reason}");
    assert!(server.new_session().is_err());
    assert!(!home.state().join("audit").exists() && !home.database().exists());
    fs::rename(&away, home.state()).unwrap();
    server.until("/ready", 200);
    assert_eq!(server.turn(&session).unwrap(), "end_turn");
    server.new_session().unwrap();
    server.stop();
    let verified = home.run(&["audit", "verify"]);
    assert!(verified.status.success(), "{}", errors(&verified));
    home.saved_turn();
}

/// Removes a folder in which somebody may write at this moment.
fn remove(folder: &Path) {
    let began = Instant::now();
    while let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != ErrorKind::NotFound
    {
        assert!(began.elapsed() < DEADLINE, "{error}");
    }
}

#[test]
fn a_state_folder_that_is_removed_is_not_half_made_again() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let session = server.new_session().unwrap();
    assert_eq!(server.turn(&session).unwrap(), "end_turn");
    remove(&home.state());
    let told = server.turn(&session).unwrap_err();
    assert!(told.contains("removed"), "{told}");
    assert!(server.new_session().is_err());
    assert_eq!(server.get("/ready").0, 503);
    server.stop();
    assert!(!home.state().join("audit").exists() && !home.database().exists());
    // The next start begins anew, and nothing is in its way.
    home.saved_turn();
}

#[test]
fn a_disk_that_fails_makes_the_server_not_ready_until_it_writes_again() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let session = server.new_session().unwrap();
    assert_eq!(server.turn(&session).unwrap(), "end_turn");
    let one_byte = Rlimit { current: Some(1), maximum: None };
    let unlimited = prlimit(Some(server.pid()), Resource::Fsize, one_byte).unwrap();
    let told = server.turn(&session).unwrap_err();
    assert!(told.contains("sessions.db"), "{told}");
    let reason = not_ready(&home, &server.get("/ready").1);
    assert!(reason.contains("the session store cannot be used"), "{reason}");
    assert_eq!(server.get("/health").0, 200);
    prlimit(Some(server.pid()), Resource::Fsize, unlimited).unwrap();
    server.until("/ready", 200);
    assert_eq!(server.turn(&session).unwrap(), "end_turn");
    assert_eq!(server.sessions(), 1);
}
