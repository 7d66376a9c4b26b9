//! Recovery of a lost machine's sessions from the hub that mirrored them: the same events, and they can be continued. Sealed
//! sessions can be imported only with the key.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the programs under test are started as people start them")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::postgres::Cluster;

use crate::work_folder::{KilledOnDrop, frames_of};

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);

fn ropewalk(home: &Path, arguments: &[&str]) -> Command {
    std::fs::create_dir_all(home).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command.env("ROPEWALK_HOME", home.join("state")).env("ROPEWALK_OFFLINE", "1");
    command.args(arguments).current_dir(home).stdin(Stdio::null());
    command
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    ropewalk(home, arguments).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A command that must succeed: what it prints.
fn done(home: &Path, arguments: &[&str]) -> String {
    let output = run(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Hub {
    _child: KilledOnDrop,
    home: PathBuf,
    url: String,
    /// Where its database is, as its commands are told.
    store: Vec<String>,
}

impl Hub {
    /// A hub with somebody in it.
    fn start(home: PathBuf, store: &[&str]) -> Self {
        let mut arguments = vec!["hub", "--listen", "127.0.0.1:0"];
        arguments.extend(store);
        let mut command = ropewalk(&home, &arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let link = lines.find_map(|line| Some(line.split_once("http://localhost:")?.1.to_owned()));
        let port = link.unwrap().split(['/', ' ']).next().unwrap().to_owned();
        let setup = lines.find_map(|line| Some(line.split_once("/login#")?.1.to_owned())).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let store = store.iter().map(|word| (*word).to_owned()).collect();
        let hub = Self { _child: KilledOnDrop(child), home, url: format!("http://localhost:{port}"), store };
        hub.enter(&port, &setup);
        hub
    }

    fn enter(&self, port: &str, code: &str) {
        let body = json!({ "code": code.trim(), "name": "a browser" }).to_string();
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        write!(
            stream,
            "POST /ui/enter HTTP/1.1\r\nhost: localhost:{port}\r\norigin: {}\r\nsec-fetch-site: same-origin\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.url,
            body.len()
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 2"), "{reply}");
    }

    fn arguments<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["hub"];
        arguments.extend(words);
        arguments.extend(self.store.iter().map(String::as_str));
        arguments
    }

    fn done(&self, words: &[&str]) -> String {
        done(&self.home, &self.arguments(words))
    }

    fn sessions(&self) -> Vec<Value> {
        let listed: Value = serde_json::from_str(&self.done(&["sessions", "--json"])).unwrap();
        listed["sessions"].as_array().unwrap().clone()
    }
}

/// A machine whose sessions a hub mirrors, with an editor on its standard input.
struct Laptop {
    _child: KilledOnDrop,
    input: ChildStdin,
    frames: Receiver<Value>,
    home: PathBuf,
    last_id: u64,
}

impl Laptop {
    fn start(home: PathBuf, hub: Option<&Hub>, more: &[&str]) -> Self {
        let mut arguments = vec!["serve", "--stdio"];
        if let Some(hub) = hub {
            arguments.extend(["--http", "127.0.0.1:0", "--bridge", &hub.url, "--insecure"]);
        }
        arguments.extend(more);
        let mut command = ropewalk(&home, &arguments);
        if let Some(hub) = hub {
            let token = hub.done(&["token", "laptop", "--person", "admin"]);
            command.env("ROPEWALK_BRIDGE_TOKEN", token.trim());
        }
        let log = std::fs::File::create(home.join("log")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let frames = frames_of(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        let mut laptop = Self { _child: KilledOnDrop(child), input, frames, home, last_id: 0 };
        laptop.call("initialize", json!({ "protocolVersion": 1 }));
        laptop
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        writeln!(self.input, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .unwrap();
        loop {
            let frame = self.frames.recv_timeout(DEADLINE).expect("an answer");
            if frame["id"] == id && frame.get("method").is_none() {
                assert!(frame.get("error").is_none(), "{method}: {frame}");
                return frame["result"].clone();
            }
        }
    }

    fn prompt(&mut self, session: &str, text: &str) {
        let prompt = json!([{ "type": "text", "text": text }]);
        let ended = self.call("session/prompt", json!({ "sessionId": session, "prompt": prompt }));
        assert_eq!(ended["stopReason"], "end_turn");
    }

    /// A session with text and tool calls in it.
    fn session(&mut self) -> String {
        std::fs::write(self.home.join("README.md"), "A small library of knots\n").unwrap();
        let opened = self.call("session/new", json!({ "cwd": self.home, "mcpServers": [] }));
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        self.prompt(&session, "hello");
        self.prompt(&session, "read README.md");
        self.prompt(&session, "stream 3000 40");
        session
    }
}

/// The events of an export.
fn events(text: &str) -> Vec<Value> {
    let exported: Value = serde_json::from_str(text).unwrap();
    exported["events"].as_array().unwrap().clone()
}

/// What happened, without the positions, which a new session counts anew, and without what an import itself writes.
fn story(events: &[Value]) -> Vec<Value> {
    let told = |event: &Value| {
        let kind = event["event_type"].as_str().unwrap().to_owned();
        let kinds =
            ["user_message", "text", "thought", "tool_started", "tool_output", "tool_ended", "turn_ended"];
        kinds.contains(&kind.as_str()).then(|| json!([kind, event["at"], event["turn"], event["payload"]]))
    };
    events.iter().filter_map(told).collect()
}

/// Imports a file at a machine, and goes on with it there.
fn restored(home: &Path, file: &Path, more: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["sessions", "import", file.to_str().unwrap()];
    arguments.extend(more);
    let id = done(home, &arguments).trim().to_owned();
    let events = events(&done(home, &["sessions", "export", &id]));
    let mut laptop = Laptop::start(home.to_owned(), None, &[]);
    laptop.call("session/load", json!({ "sessionId": id, "cwd": home, "mcpServers": [] }));
    laptop.prompt(&id, "hello again");
    events
}

/// Everything that a hub has of one session whose machine is gone.
fn burnt(folder: &TempDir, hub: &Hub, more: &[&str]) -> (String, Vec<Value>) {
    let home = folder.path().join("laptop");
    let mut laptop = Laptop::start(home.clone(), Some(hub), more);
    let session = laptop.session();
    let log = events(&done(&home, &["sessions", "export", &session]));
    let last = log.last().unwrap()["seq"].as_u64();
    until("the mirror has all of it", || {
        hub.sessions()
            .iter()
            .any(|one| one["session"] == session.as_str() && one["head"].as_u64() >= last)
            .then_some(())
    });
    drop(laptop);
    if !more.is_empty() {
        std::fs::copy(home.join("state/sealed.json"), folder.path().join("sealed.json")).unwrap();
    }
    std::fs::remove_dir_all(home.join("state")).unwrap();
    (session, log)
}

fn check_plain(store: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let hub = Hub::start(folder.path().join("hub"), store);
    let (session, log) = burnt(&folder, &hub, &[]);
    let listed = hub.done(&["sessions"]);
    assert!(listed.contains(&session) && listed.contains("events"), "{listed}");

    // To standard output and to a file it is the same, and the beginning of an id is enough.
    let file = folder.path().join("session.json");
    let told = hub.done(&["export", &session[..session.len() - 2], "-o", file.to_str().unwrap(), "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["sealed"], &told["events"]), (&json!(false), &json!(log.len())), "{told}");
    let text = hub.done(&["export", &session]);
    assert_eq!(events(&text), log, "what the hub has is what the machine had");
    assert_eq!(events(&std::fs::read_to_string(&file).unwrap()), log);

    let back = restored(&folder.path().join("new"), &file, &[]);
    assert_eq!(story(&back), story(&log));
    assert!(story(&back).iter().any(|event| event[0] == "tool_ended"), "there are tool calls in it");

    let unknown = run(&hub.home, &hub.arguments(&["export", "nobody-knows-it", "--json"]));
    assert_eq!(unknown.status.code(), Some(5));
    let said: Value = serde_json::from_slice(&unknown.stdout).unwrap();
    assert_eq!(said["error"]["code"], "not_found");
    assert!(said["error"]["fix"].as_str().unwrap().contains("hub sessions"), "{said}");
}

#[test]
fn the_sessions_of_a_burnt_machine_come_back_from_a_hub_with_a_file() {
    check_plain(&[]);
    // A hub that is not there is not made.
    let folder = tempfile::tempdir().unwrap();
    let nowhere = run(folder.path(), &["hub", "export", "x"]);
    let said = errors(&nowhere);
    assert!(said.contains("hub database ") && said.contains(" not found"), "{said}");
    assert!(!folder.path().join("state/hub.db").exists());
}

#[test]
fn the_sessions_of_a_burnt_machine_come_back_from_a_hub_on_postgresql() {
    let cluster = Cluster::start();
    check_plain(&["--store", &cluster.database()]);
}

#[test]
fn what_was_sealed_comes_back_where_the_key_is() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Hub::start(folder.path().join("hub"), &[]);
    let (session, log) = burnt(&folder, &hub, &["--e2e"]);
    let file = folder.path().join("session.json");
    hub.done(&["export", &session, "-o", file.to_str().unwrap()]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("knots") && !text.contains("user_message"), "the hub reads nothing of it");
    assert_eq!(events(&text).len(), log.len());

    let new = folder.path().join("new");
    let import = ["sessions", "import", file.to_str().unwrap()];
    let refused = errors(&run(&new, &import));
    assert!(refused.contains("is sealed") && refused.contains("--key"), "{refused}");
    // The keys of another machine are of no use.
    let key = folder.path().join("sealed.json");
    let mut other: Value = serde_json::from_slice(&std::fs::read(&key).unwrap()).unwrap();
    let contents = other["contents"].as_str().unwrap().to_owned();
    let tail = if contents.ends_with("AA") { "BA" } else { "AA" };
    other["contents"] = format!("{}{tail}", &contents[..contents.len() - 2]).into();
    let wrong = folder.path().join("other.json");
    std::fs::copy(&key, &wrong).unwrap();
    std::fs::write(&wrong, other.to_string()).unwrap();
    let refused = errors(&run(&new, &[&import[..], &["--key", wrong.to_str().unwrap()]].concat()));
    assert!(refused.contains("event 1 could not be decrypted"), "{refused}");
    let listed: Value = serde_json::from_str(&done(&new, &["sessions", "list", "--all", "--json"])).unwrap();
    assert_eq!(listed["sessions"], json!([]), "nothing was imported");

    let back = restored(&new, &file, &["--key", key.to_str().unwrap()]);
    assert_eq!(story(&back), story(&log));
    // A machine that has the key, for instance from a backup, needs no option.
    let heir = folder.path().join("heir");
    std::fs::create_dir_all(heir.join("state")).unwrap();
    std::fs::copy(&key, heir.join("state/sealed.json")).unwrap();
    assert_eq!(story(&restored(&heir, &file, &[])), story(&log));
}
