//! Servers with a shared PostgreSQL session store: the address stays private, a session continues at another server after
//! its own was killed, and a disconnected server notices that it lost the session.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::postgres::Cluster;

use crate::work_folder::{KilledOnDrop, frames_of};

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "a-password-of-this-test-alone";
/// Some text, and then a wait that only a cancel ends.
const LONG_TURN: &str = "stream 3 10 && then sleep 600000";

/// The address with a password, which the server of the test does not ask for.
fn with_password(url: &str) -> String {
    url.replace("postgres@", &format!("postgres:{PASSWORD}@"))
}

/// A folder of state of its own, as on a machine of its own.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    #[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
    fn command(&self, store: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(arguments).env("ROPEWALK_HOME", self.state()).env("ROPEWALK_OFFLINE", "1");
        command.env_remove("ROPEWALK_STORE_URL").current_dir(self.0.path());
        if let Some(url) = store {
            command.env("ROPEWALK_STORE_URL", url);
        }
        command
    }

    fn run(&self, store: Option<&str>, arguments: &[&str]) -> Output {
        self.command(store, arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// A command that must succeed: what it prints.
    fn done(&self, store: Option<&str>, arguments: &[&str]) -> String {
        let output = self.run(store, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn serve(&self, store: Option<&str>, arguments: &[&str]) -> Server {
        let mut all = vec!["serve"];
        all.extend(arguments);
        let mut child = self
            .command(store, &all)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let frames = frames_of(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        let folder = self.0.path().to_owned();
        let mut server =
            Server { child: KilledOnDrop(child), input, frames, folder, last_id: 0, updates: Vec::new() };
        server.call("initialize", json!({ "protocolVersion": 1 })).unwrap();
        server
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server with an editor on its standard input.
struct Server {
    child: KilledOnDrop,
    input: ChildStdin,
    frames: Receiver<Value>,
    folder: PathBuf,
    last_id: u64,
    updates: Vec<Value>,
}

impl Server {
    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let frame = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        writeln!(self.input, "{frame}").unwrap();
        self.last_id
    }

    fn notify(&mut self, method: &str, params: Value) {
        writeln!(self.input, "{}", json!({ "jsonrpc": "2.0", "method": method, "params": params })).unwrap();
    }

    fn next(&mut self) -> Value {
        let frame = self.frames.recv_timeout(DEADLINE).expect("the server says something");
        if frame["method"] == "session/update" {
            self.updates.push(frame["params"]["update"].clone());
        }
        frame
    }

    /// The reply: its result, or its error's message.
    fn reply(&mut self, id: u64) -> Result<Value, String> {
        loop {
            let frame = self.next();
            if frame["id"] == id && frame.get("method").is_none() {
                let message = frame["error"]["message"].as_str();
                return message.map_or_else(|| Ok(frame["result"].clone()), |text| Err(text.to_owned()));
            }
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.send(method, params);
        self.reply(id)
    }

    fn new_session(&mut self) -> String {
        let opened = self.call("session/new", json!({ "cwd": self.folder, "mcpServers": [] })).unwrap();
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    fn load(&mut self, session: &str) -> Result<Value, String> {
        let cwd = self.folder.clone();
        self.call("session/load", json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }))
    }

    /// Until its owner counts as dead.
    fn load_in_time(&mut self, session: &str) {
        let until = Instant::now() + DEADLINE;
        while let Err(error) = self.load(session) {
            assert!(error.contains("running a turn"), "{error}");
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", json!({ "sessionId": session, "prompt": prompt }))
    }

    /// A turn that has begun and does not end; what it has said so far.
    fn long_turn(&mut self, session: &str) -> (u64, String) {
        let turn = self.prompt(session, LONG_TURN);
        let mut said = String::new();
        while said.len() < 30 {
            let frame = self.next();
            if frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
                said.push_str(frame["params"]["update"]["content"]["text"].as_str().unwrap());
            }
        }
        (turn, said)
    }

    /// What the updates of one kind said, together.
    fn said(&self, kind: &str) -> String {
        let of_kind = self.updates.iter().filter(|update| update["sessionUpdate"] == kind);
        of_kind.filter_map(|update| update["content"]["text"].as_str()).collect()
    }
}

/// The kinds of a session's events, and their positions.
fn events(machine: &Machine, store: &str, session: &str) -> Vec<(u64, String)> {
    let exported: Value =
        serde_json::from_str(&machine.done(Some(store), &["sessions", "export", session])).unwrap();
    let event =
        |event: &Value| (event["seq"].as_u64().unwrap(), event["event_type"].as_str().unwrap().to_owned());
    exported["events"].as_array().unwrap().iter().map(event).collect()
}

fn count(events: &[(u64, String)], kind: &str) -> usize {
    events.iter().filter(|(_, found)| found == kind).count()
}

#[test]
fn a_session_whose_server_was_killed_in_the_middle_of_a_turn_goes_on_at_another() {
    let cluster = Cluster::start();
    let store = with_password(&cluster.database());
    let (first, second) = (Machine::new(), Machine::new());
    let mut one = first.serve(Some(&store), &[]);
    let mut other = second.serve(Some(&store), &[]);
    let session = one.new_session();
    let (_, said) = one.long_turn(&session);
    let refused = other.load(&session).unwrap_err();
    assert!(refused.contains("running a turn"), "{refused}");

    one.child.kill().unwrap();
    one.child.wait().unwrap();
    other.load_in_time(&session);
    assert_eq!(other.said("agent_message_chunk"), said, "everything that was seen is there, once");
    let turn = other.prompt(&session, "hello");
    assert_eq!(other.reply(turn).unwrap()["stopReason"], "end_turn");

    let events = events(&second, &store, &session);
    assert!(events.iter().map(|(seq, _)| *seq).eq(1..=events.len() as u64), "{events:?}");
    assert_eq!((count(&events, "turn_started"), count(&events, "turn_ended")), (2, 2), "{events:?}");
    assert!(!second.state().join("sessions.db").exists(), "nothing is kept beside");
    // The audit of the machine that went on tells the whole session.
    let audit = second.done(Some(&store), &["audit", "verify"]);
    assert!(!audit.is_empty());
}

#[test]
fn an_idle_session_goes_back_and_forth_between_servers() {
    let cluster = Cluster::start();
    let store = cluster.database();
    let (first, second) = (Machine::new(), Machine::new());
    // Without a password the address may be written out.
    let mut one = first.serve(None, &["--store", &store]);
    let mut other = second.serve(None, &["--store", &store]);
    let session = one.new_session();
    let turn = one.prompt(&session, "hello");
    assert_eq!(one.reply(turn).unwrap()["stopReason"], "end_turn");
    other.load(&session).unwrap();
    let turn = other.prompt(&session, "hello again");
    assert_eq!(other.reply(turn).unwrap()["stopReason"], "end_turn");
    // What the first one has in memory is old: it takes the session back, with what happened meanwhile.
    let turn = one.prompt(&session, "and here");
    assert_eq!(one.reply(turn).unwrap()["stopReason"], "end_turn");
    one.updates.clear();
    one.load(&session).unwrap();
    assert_eq!(one.said("user_message_chunk"), "hellohello againand here");
    let events = events(&second, &store, &session);
    assert!(events.iter().map(|(seq, _)| *seq).eq(1..=events.len() as u64), "{events:?}");
    assert_eq!((count(&events, "turn_started"), count(&events, "turn_ended")), (3, 3), "{events:?}");
}

#[test]
fn a_password_never_stands_in_the_list_of_processes() {
    let cluster = Cluster::start();
    let (plain, machine) = (cluster.database(), Machine::new());
    let store = with_password(&plain);
    for arguments in [
        vec!["serve", "--store", &store],
        vec!["run", "hello", "--store", &store],
        vec!["sessions", "list", "--store", &store],
        vec!["config", "show", "--store", &store],
    ] {
        let refused = machine.run(None, &arguments);
        let said = errors(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("ROPEWALK_STORE_URL") && said.contains("--store-file"), "{said}");
        assert!(!said.contains(PASSWORD), "{said}");
    }
    // A settings file is copied and shared.
    std::fs::create_dir_all(machine.state()).unwrap();
    let settings = machine.state().join("config.toml");
    std::fs::write(&settings, format!("[store]\nurl = \"{store}\"\n")).unwrap();
    let refused = machine.run(None, &["sessions", "list"]);
    assert!(refused.status.code() == Some(2) && !errors(&refused).contains(PASSWORD), "{}", errors(&refused));
    // What a project says is not asked.
    std::fs::remove_file(&settings).unwrap();
    std::fs::create_dir_all(machine.0.path().join(".ropewalk")).unwrap();
    let project = machine.0.path().join(".ropewalk/config.toml");
    std::fs::write(&project, "[store]\nurl = \"postgres://me@127.0.0.1:1/x\"\n").unwrap();
    machine.done(None, &["sessions", "list"]);
    std::fs::remove_file(&project).unwrap();

    let file = machine.0.path().join("address");
    std::fs::write(&file, format!("{store}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let by_file = ["--store-file", file.to_str().unwrap()];
    for (store, arguments) in [(Some(store.as_str()), vec![]), (None, by_file.to_vec())] {
        let mut server = machine.serve(store, &arguments);
        let session = server.new_session();
        if !arguments.is_empty() {
            // The agent reads no file that has the address, although it lies in its folder.
            let turn = server.prompt(&session, "read address");
            server.reply(turn).unwrap();
            let shown = format!("{:?}", server.updates);
            assert!(shown.contains("address") && !shown.contains("postgres://"), "{shown}");
        }
        let shown = std::fs::read_to_string(format!("/proc/{}/cmdline", server.child.id())).unwrap();
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
    std::fs::write(&settings, format!("[store]\nfile = \"{}\"\n", file.display())).unwrap();
    let shown = machine.done(None, &["config", "show"]);
    let row = shown.lines().find(|line| line.starts_with("store ")).expect("a row");
    assert!(row.contains(&plain) && row.contains("config.toml") && !row.contains(PASSWORD), "{row}");
    let listed = machine.done(None, &["sessions", "list", "--all", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap()["sessions"].as_array().unwrap().len(), 2);
    let here = machine.done(None, &["sessions", "list", "--all", "--json", "--store", "sqlite"]);
    assert!(
        serde_json::from_str::<Value>(&here).unwrap()["sessions"].as_array().unwrap().is_empty(),
        "{here}"
    );
}

/// A way to the database that can be cut.
struct DatabaseProxy {
    port: u16,
    cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl DatabaseProxy {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy =
            Self { port: listener.local_addr().unwrap().port(), cut: Arc::default(), open: Arc::default() };
        let (cut, open) = (Arc::clone(&proxy.cut), Arc::clone(&proxy.open));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                if cut.load(Ordering::SeqCst) {
                    continue;
                }
                let pairs = [(near.try_clone(), far.try_clone()), (far.try_clone(), near.try_clone())];
                for (mut from, mut to) in pairs.map(|(from, to)| (from.unwrap(), to.unwrap())) {
                    std::thread::spawn(move || {
                        drop(std::io::copy(&mut from, &mut to));
                        drop(to.shutdown(Shutdown::Both));
                    });
                }
                open.lock().unwrap().extend([near, far]);
            }
        });
        proxy
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        for end in self.open.lock().unwrap().drain(..) {
            drop(end.shutdown(Shutdown::Both));
        }
    }

    fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_server_that_was_cut_off_finds_that_it_lost_the_session() {
    let cluster = Cluster::start();
    let store = cluster.database();
    let proxy = DatabaseProxy::to(cluster.port());
    let by_cable = store.replace(&cluster.port().to_string(), &proxy.port.to_string());
    let (first, second) = (Machine::new(), Machine::new());
    let mut one = first.serve(Some(&by_cable), &[]);
    let mut other = second.serve(Some(&store), &[]);

    // A short cut costs nothing.
    let session = one.new_session();
    let (turn, _) = one.long_turn(&session);
    proxy.cut();
    one.notify("session/cancel", json!({ "sessionId": session }));
    std::thread::sleep(Duration::from_millis(500));
    proxy.mend();
    assert_eq!(one.reply(turn).unwrap()["stopReason"], "cancelled");

    // In a long one, the lease is over.
    let (turn, _) = one.long_turn(&session);
    proxy.cut();
    other.load_in_time(&session);
    let second_turn = other.prompt(&session, "hello");
    assert_eq!(other.reply(second_turn).unwrap()["stopReason"], "end_turn");
    let before = events(&second, &store, &session);
    proxy.mend();
    one.notify("session/cancel", json!({ "sessionId": session }));
    let refused = one.reply(turn).unwrap_err();
    assert!(refused.contains("another process took over the session"), "{refused}");
    assert_eq!(events(&second, &store, &session), before, "it wrote nothing");
    // And then it is a client like any other.
    one.load(&session).unwrap();
    let turn = one.prompt(&session, "hello");
    assert_eq!(one.reply(turn).unwrap()["stopReason"], "end_turn");
}

#[test]
fn what_does_not_live_in_the_database_is_said() {
    let cluster = Cluster::start();
    let (store, machine) = (cluster.database(), Machine::new());
    machine.done(Some(&store), &["run", "hello"]);
    let file = machine.0.path().join("backup");
    let backup = machine.run(Some(&store), &["backup", file.to_str().unwrap()]);
    assert!(backup.status.success() && errors(&backup).contains("back up the database too"), "{backup:?}");
    let salvage = machine.run(Some(&store), &["sessions", "salvage"]);
    assert!(!salvage.status.success() && errors(&salvage).contains("not in a file"), "{salvage:?}");
    let doctor = machine.done(Some(&store), &["doctor", "--store"]);
    assert!(doctor.contains(&store), "{doctor}");
    machine.done(Some(&store), &["audit", "verify"]);
}
