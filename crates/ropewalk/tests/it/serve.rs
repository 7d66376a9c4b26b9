//! `serve` on real pipes: start, shutdown, and what is left behind.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::work_folder::{KilledOnDrop, exit_code, piped};

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a server may take to end.
const ENDING_MAX: Duration = Duration::from_secs(2);

struct Ropewalk {
    child: KilledOnDrop,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: Receiver<String>,
    /// Where it listens, once it does.
    urls: Receiver<String>,
    home: TempDir,
    last_id: u64,
}

impl Ropewalk {
    fn start(arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state");
        Self::start_on(&state, home, arguments)
    }

    /// A further server on the same sessions.
    fn beside(other: &Self) -> Self {
        Self::start_on(&other.home.path().join("state"), tempfile::tempdir().unwrap(), &["serve"])
    }

    /// A further start in the same folder, as an editor does it.
    fn joining(other: &Self, arguments: &[&str]) -> Self {
        let home = tempfile::tempdir_in(other.home.path()).unwrap();
        Self::start_on(&other.home.path().join("state"), home, arguments)
    }

    #[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
    fn start_on(state: &std::path::Path, home: TempDir, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        let mut child = piped(command.args(arguments).env("ROPEWALK_HOME", state).current_dir(home.path()));
        let (output, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send_line, lines) = sync_channel(1 << 16);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                send_line.send(line.unwrap()).ok();
            }
        });
        let (send_log, log) = sync_channel(1);
        let (send_url, urls) = sync_channel(1);
        std::thread::spawn(move || {
            let mut text = String::new();
            for line in BufReader::new(errors).lines() {
                let line = line.unwrap();
                if let Some(url) = line.strip_prefix("listening on ") {
                    send_url.try_send(url.to_owned()).ok();
                }
                text.push_str(&line);
                text.push('\n');
            }
            send_log.send(text).ok();
        });
        Self { input: child.stdin.take(), child: KilledOnDrop(child), lines, log, urls, home, last_id: 0 }
    }

    /// Started, greeted, and with a session.
    fn with_session(arguments: &[&str]) -> (Self, String) {
        let mut server = Self::start(arguments);
        server.call("initialize", json!({ "protocolVersion": 1 }));
        let cwd = server.home.path().to_owned();
        let opened = server.call("session/new", json!({ "cwd": cwd, "mcpServers": [] }));
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        (server, session)
    }

    /// The port that it says it listens on, as an address for another one.
    fn port(&self) -> String {
        let url = self.urls.recv_timeout(DEADLINE).expect("it says where it listens");
        format!(":{}", url.rsplit(':').next().unwrap())
    }

    fn write(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&format!(
            "{}\n",
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
        ));
        id
    }

    fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let block = json!({ "type": "text", "text": text });
        self.send("session/prompt", json!({ "sessionId": session, "prompt": [block] }))
    }

    fn frame(&self) -> Value {
        let line = self.lines.recv_timeout(DEADLINE).expect("a line from the server");
        serde_json::from_str(&line).expect("every line is JSON")
    }

    /// Reads on until a frame is the wanted one. Commands are allowed on the way.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.frame();
            if wanted(&frame) {
                return frame;
            }
            if frame["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
                let answer = json!({ "jsonrpc": "2.0", "id": frame["id"], "result": outcome });
                self.write(&format!("{answer}\n"));
            }
        }
    }

    fn reply(&mut self, id: u64) -> Value {
        self.until(|frame| frame["id"] == id && frame.get("method").is_none())["result"].clone()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.reply(id)
    }

    fn hang_up(&mut self) {
        drop(self.input.take());
    }

    /// Waits for the end of the process: its code, and how long it took.
    fn exit_code(&mut self) -> (Option<i32>, Duration) {
        let began = Instant::now();
        (exit_code(&mut self.child, DEADLINE), began.elapsed())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Starts a command that runs for long in the background of another; returns its process.
    fn long_command(&mut self, session: &str) -> (u64, Pid) {
        // Behind the fence processes have other numbers, so it is found by what it was started with.
        let seconds = format!("300.{}", self.child.id());
        let turn = self.prompt(session, &format!("run sleep {seconds} & echo child; wait"));
        self.until(|frame| text_of(frame).is_some_and(|text| text.contains("child")));
        let pid = sleeping(&seconds);
        assert!(is_alive(pid));
        (turn, pid)
    }
}

/// The output of a running command.
fn text_of(frame: &Value) -> Option<&str> {
    let update = &frame["params"]["update"];
    (update["sessionUpdate"] == "tool_call_update")
        .then(|| update["content"][0]["content"]["text"].as_str())?
}

/// The process that sleeps so long; it may be about to begin.
fn sleeping(seconds: &str) -> Pid {
    let wanted = format!("sleep\0{seconds}\0").into_bytes();
    let began = Instant::now();
    loop {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let found = processes
            .filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted))
            .find_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        if let Some(pid) = found {
            return pid;
        }
        assert!(began.elapsed() < DEADLINE, "the command does not start");
        std::thread::yield_now();
    }
}

/// A process that ended and that nobody has waited for is not alive.
fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    test_kill_process(pid).is_ok() && state.is_some_and(|state| state != 'Z')
}

fn wait_until_gone(pid: Pid) {
    let began = Instant::now();
    while is_alive(pid) {
        assert!(began.elapsed() < DEADLINE, "the process {pid:?} is still there");
        std::thread::yield_now();
    }
}

fn check_good_ending(server: &mut Ropewalk) {
    let (code, took) = server.exit_code();
    assert_eq!(code, Some(0));
    assert!(took < ENDING_MAX, "it took {took:?}");
}

/// A4.
#[test]
fn the_server_ends_when_its_input_ends() {
    let (mut idle, _) = Ropewalk::with_session(&[]);
    idle.hang_up();
    check_good_ending(&mut idle);
    let mut fresh = Ropewalk::start(&[]);
    fresh.hang_up();
    check_good_ending(&mut fresh);
}

/// A4, I3: a turn that runs when the input ends is cancelled, and its command is ended.
#[test]
fn nothing_is_left_running_when_the_input_ends() {
    let (mut server, session) = Ropewalk::with_session(&[]);
    let (turn, child) = server.long_command(&session);
    server.hang_up();
    assert_eq!(server.reply(turn)["stopReason"], "cancelled");
    check_good_ending(&mut server);
    wait_until_gone(child);
}

/// A5.
#[test]
fn every_way_to_start_it_serves_an_editor() {
    let ways: [&[&str]; 8] = [
        &[],
        &["serve"],
        &["serve", "--acp"],
        &["serve", "--stdio"],
        &["acp", "serve", "--stdio"],
        &["acp", "serve"],
        &["acp"],
        &["--acp"],
    ];
    for way in ways {
        let mut server = Ropewalk::start(way);
        let hello = server.call("initialize", json!({ "protocolVersion": 1 }));
        assert_eq!(hello["protocolVersion"], 1, "{way:?}");
        server.hang_up();
        check_good_ending(&mut server);
    }
}

/// A19.
#[test]
fn a_last_line_without_its_end_is_still_answered() {
    let mut server = Ropewalk::start(&[]);
    server.write(r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":1}}"#);
    server.hang_up();
    assert_eq!(server.reply(7)["protocolVersion"], 1);
    check_good_ending(&mut server);
}

/// A21.
#[test]
fn a_signal_ends_the_turn_and_then_the_server() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut server, session) = Ropewalk::with_session(&[]);
        let turn = server.prompt(&session, "stream 3 10 && then sleep 600000");
        server.until(|frame| frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
        kill_process(server.pid(), signal).unwrap();
        assert_eq!(server.reply(turn)["stopReason"], "cancelled");
        check_good_ending(&mut server);
    }
}

/// A21: a session that was cut short is there afterwards, with what was said.
#[test]
fn a_session_outlives_the_server_that_was_told_to_stop() {
    let (mut server, session) = Ropewalk::with_session(&[]);
    server.prompt(&session, "think && then sleep 600000");
    server.until(|frame| frame["params"]["update"]["sessionUpdate"] == "agent_thought_chunk");
    kill_process(server.pid(), Signal::TERM).unwrap();
    check_good_ending(&mut server);
    let database = server.home.path().join("state/sessions.db");
    assert!(std::fs::metadata(database).unwrap().len() > 0);
}

/// I3.
#[test]
fn a_cancel_ends_the_command_and_all_that_it_started() {
    let (mut server, session) = Ropewalk::with_session(&[]);
    let (turn, child) = server.long_command(&session);
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    server.write(&format!("{cancel}\n"));
    assert_eq!(server.reply(turn)["stopReason"], "cancelled");
    wait_until_gone(child);
    server.hang_up();
    check_good_ending(&mut server);
}

/// A1, V4: what the server says of itself is never on standard output.
#[test]
fn the_log_is_on_standard_error_only() {
    let (mut server, session) = Ropewalk::with_session(&["-vv"]);
    let turn = server.prompt(&session, "hello");
    server.reply(turn);
    server.write("{bad\n");
    server.until(|frame| frame["error"]["code"] == -32700);
    server.hang_up();
    check_good_ending(&mut server);
    while let Ok(line) = server.lines.recv_timeout(DEADLINE) {
        serde_json::from_str::<Value>(&line).unwrap();
    }
    let log = server.log.recv_timeout(DEADLINE).unwrap();
    assert!(log.contains("the client closed the connection"), "{log}");
}

#[test]
fn an_idle_session_goes_to_whoever_prompts_and_back() {
    let (mut first, session) = Ropewalk::with_session(&["serve"]);
    let mut second = Ropewalk::beside(&first);
    second.call("initialize", json!({ "protocolVersion": 1 }));
    let cwd = first.home.path().to_owned();
    second.call("session/load", json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }));
    for (first_one, text) in [(true, "one"), (false, "two"), (true, "what did I say?")] {
        let server = if first_one { &mut first } else { &mut second };
        let id = server.prompt(&session, text);
        let answer = server.until(|frame| frame["id"] == id && frame.get("method").is_none());
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
    second.prompt(&session, "three");
    second.until(|frame| frame["result"]["stopReason"] == "end_turn");
    let changed = first.call("session/set_mode", json!({ "sessionId": session, "modeId": "ask" }));
    assert_eq!(changed, json!({}));
    second.send("session/load", json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }));
    second.until(|frame| {
        let update = &frame["params"]["update"];
        update["sessionUpdate"] == "user_message_chunk" && update["content"]["text"] == "what did I say?"
    });
}

/// An editor's command, started anew with every window: the server that the first one started is still there.
#[test]
fn a_second_start_joins_the_server_that_runs() {
    let (mut first, session) = Ropewalk::with_session(&["serve", "--http", ":0", "--stdio"]);
    let port = first.port();
    let arguments = ["serve", "--http", &port, "--stdio"];
    let mut second = Ropewalk::joining(&first, &arguments);
    second.call("initialize", json!({ "protocolVersion": 1 }));
    let cwd = first.home.path().to_owned();
    let open = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
    second.call("session/load", open);
    let turn = second.prompt(&session, "stream 2 10");
    assert_eq!(second.until(|frame| frame["id"] == turn)["result"]["stopReason"], "end_turn");
    // The same session, in the same process: the first editor sees what the second one asked for.
    first.until(|frame| frame["params"]["update"]["sessionUpdate"] == "user_message_chunk");

    // Older dialects are known by their first words, as on any stdio.
    let mut older = Ropewalk::joining(&first, &arguments);
    assert_eq!(older.call("initialize", json!({}))["protocolVersion"], "0.2");
    drop(older.input.take());
    assert!(older.child.wait().unwrap().success());

    // The first editor goes; the server stays, and so does the second.
    drop(first.input.take());
    let listed = second.call("session/list", json!({}));
    assert_eq!(listed["sessions"][0]["sessionId"], session.as_str());

    kill_process(Pid::from_child(&first.child), Signal::TERM).unwrap();
    let ended = second.child.wait().unwrap();
    assert!(!ended.success());
    let log = second.log.recv_timeout(DEADLINE).unwrap();
    assert!(log.contains("joined the server at") && log.contains("has stopped"), "{log}");
    let token = std::fs::read_to_string(first.home.path().join("state/http.token")).unwrap();
    assert!(!log.contains(token.trim()), "a token is never printed");
    first.child.wait().unwrap();
}

/// What the agent may do is what this start asks for, not what another one was given.
#[test]
fn a_server_with_other_options_is_not_joined() {
    let (mut first, _) = Ropewalk::with_session(&["serve", "--http", ":0", "--stdio"]);
    let port = first.port();
    let settings = first.home.path().join("state/config.toml");
    std::fs::write(settings, "[profiles.tight]\nsandbox = \"read-only\"\n").unwrap();
    for other in [
        &["serve", "--sandbox", "read-only"][..],
        &["--profile", "tight", "serve"],
        &["otter", "serve", "--acp"],
    ] {
        let arguments = [other, &["--http", &port, "--stdio"]].concat();
        let mut second = Ropewalk::joining(&first, &arguments);
        second.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        let cwd = first.home.path().to_owned();
        second.call("session/new", json!({ "cwd": cwd, "mcpServers": [] }));
        drop(second.input.take());
        assert!(second.child.wait().unwrap().success(), "it serves nobody else, so it ends with its editor");
        let log = second.log.recv_timeout(DEADLINE).unwrap();
        assert!(log.contains("other options") && !log.contains("joined"), "{other:?}: {log}");
    }
    kill_process(Pid::from_child(&first.child), Signal::TERM).unwrap();
    first.child.wait().unwrap();
}
