//! The audit of the real binary: its rows through every door, after kills, and what verification detects.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command_output::CommandOutput;
use crate::work_folder::WorkFolder;

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);
/// Kinds of events that have a row.
const AUDITED: [&str; 10] = [
    "turn_queued",
    "user_message",
    "tool_ended",
    "resolved",
    "asked",
    "turn_ended",
    "policy_blocked",
    "setting_changed",
    "cancel_requested",
    "moved",
];

/// A home of its own for each test, and a folder to work in.
#[derive(Default)]
struct World(WorkFolder);

impl World {
    fn folder(&self) -> PathBuf {
        self.0.home().join("audit")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command.env("ROPEWALK_HOME", self.0.home());
        command.env_remove("ROPEWALK_AUDIT_KEY_PATH").env_remove("BERNSTEIN_AUDIT_KEY_PATH");
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(arguments).spawn().unwrap())
    }

    fn serve(&self) -> Serve {
        let mut command = self.command(&["serve"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Serve { input: child.stdin.take(), child, output, last_id: 0, cwd: self.0.project() }
    }

    /// All rows, as the program shows them.
    fn rows(&self) -> Vec<Value> {
        let shown = self.run(&["audit", "show", "-n", "1000000", "--json"]).with(0).json();
        shown["rows"].as_array().unwrap().clone()
    }

    fn rows_of(&self, event_type: &str) -> Vec<Value> {
        self.rows().into_iter().filter(|row| row["event_type"] == event_type).collect()
    }

    fn types(&self, session: &str) -> Vec<String> {
        let rows = self.rows();
        let about = rows.iter().filter(|row| row["resource_id"] == session);
        about.map(|row| row["event_type"].as_str().unwrap().to_owned()).collect()
    }

    fn newest_file(&self) -> PathBuf {
        let files = fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).max().unwrap()
    }

    /// A verifier that shares no code with ours: it agrees, and counts the same rows.
    #[expect(clippy::disallowed_methods, reason = "the independent verifier is another program")]
    fn verify_independently(&self) -> CommandOutput {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/audit/verify.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(self.folder()).arg(self.0.home().join("audit.key"));
        CommandOutput::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    #[track_caller]
    fn check_whole(&self) {
        let report = self.run(&["audit", "verify", "--json"]).with(0).json();
        assert!(report["ok"] == true && report["torn"] == json!([]), "{report}");
        let counted = self.verify_independently().with(0).out;
        assert_eq!(counted, format!("{} rows {}\n", report["rows"], report["hmac"].as_str().unwrap()));
    }

    /// For each session the positions that have a row, and those that should.
    fn positions(&self) -> (BTreeMap<String, Vec<u64>>, BTreeMap<String, Vec<u64>>) {
        let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for row in self.rows() {
            if let Some(seq) = row["details"]["seq"].as_u64() {
                told.entry(row["resource_id"].as_str().unwrap().to_owned()).or_default().push(seq);
            }
        }
        let mut due = BTreeMap::new();
        let listed = self.run(&["sessions", "list", "--all", "--json"]).with(0).json();
        for session in listed["sessions"].as_array().unwrap() {
            let id = session["id"].as_str().unwrap();
            let shown = self.run(&["sessions", "show", "--json", id]).with(0).json();
            let events = shown["events"].as_array().unwrap();
            // A prompt that had to wait was told of when it came.
            let queued = |event: &Value| {
                let of_turn =
                    |other: &&Value| other["turn"] == event["turn"] && other["event_type"] == "turn_queued";
                event["event_type"] == "user_message" && events.iter().any(|other| of_turn(&other))
            };
            let audited =
                events.iter().filter(|event| AUDITED.contains(&event["event_type"].as_str().unwrap()));
            let audited = audited.filter(|event| !queued(event));
            let seqs = [0].into_iter().chain(audited.map(|event| event["seq"].as_u64().unwrap()));
            due.insert(id.to_owned(), seqs.collect());
        }
        (told, due)
    }

    /// Waits until every event that should have a row has exactly one.
    fn wait_until_audited(&self) {
        let began = Instant::now();
        loop {
            let (told, due) = self.positions();
            if told == due {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "told {told:?}\ndue {due:?}");
        }
    }
}

/// A running server and its one client.
struct Serve {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: u64,
    cwd: PathBuf,
}

impl Drop for Serve {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Serve {
    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let frame = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        writeln!(self.input.as_mut().unwrap(), "{frame}").unwrap();
        self.last_id
    }

    fn frame(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("a frame")
    }

    /// The answer to a request; permissions are granted on the way.
    fn reply(&mut self, id: u64) -> Value {
        loop {
            let frame = self.frame();
            self.allow(&frame);
            if frame["id"] == id && frame.get("method").is_none() {
                return frame["result"].clone();
            }
        }
    }

    /// Grants what this frame asks for, if it asks.
    fn allow(&mut self, frame: &Value) {
        if frame["method"] == "session/request_permission" {
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
            let answer = json!({ "jsonrpc": "2.0", "id": frame["id"], "result": outcome });
            writeln!(self.input.as_mut().unwrap(), "{answer}").unwrap();
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.reply(id)
    }

    fn greet(&mut self, name: &str) {
        let hello = json!({ "protocolVersion": 1, "clientInfo": { "name": name, "version": "1" } });
        self.call("initialize", hello);
    }

    fn session(&mut self) -> String {
        let opened = self.call("session/new", json!({ "cwd": self.cwd, "mcpServers": [] }));
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let block = json!({ "type": "text", "text": text });
        self.send("session/prompt", json!({ "sessionId": session, "prompt": [block] }))
    }

    fn stop(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// W2, W8, G22.
#[test]
fn every_mutation_has_its_row() {
    let world = World::default();
    let mut server = world.serve();
    server.greet("editor");
    let session = server.session();
    server.call("session/set_mode", json!({ "sessionId": session, "modeId": "code" }));
    server.call("session/set_mode", json!({ "sessionId": session, "modeId": "ask" }));
    server.call("session/set_mode", json!({ "sessionId": session, "modeId": "code" }));
    let turn = server.prompt(&session, "run touch made.txt; exit 3");
    server.reply(turn);
    let turn = server.prompt(&session, "stream 3 10 && then sleep 600000");
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    while server.frame()["params"]["update"]["sessionUpdate"] != "agent_message_chunk" {}
    writeln!(server.input.as_mut().unwrap(), "{cancel}").unwrap();
    assert_eq!(server.reply(turn)["stopReason"], "cancelled");
    server.stop();

    let one = |event_type: &str| {
        let mut rows = world.rows_of(event_type);
        assert_eq!(rows.len(), 1, "{event_type}: {rows:?}");
        rows.remove(0)
    };
    let hello = one("acp.initialize");
    assert_eq!(hello["details"], json!({ "peer": "editor", "version": "1" }));
    assert_eq!((&hello["actor"], &hello["resource_type"]), (&json!("acp_bridge"), &json!("session")));
    assert_eq!(one("session.created")["details"]["cwd"], json!(world.0.project()));
    let modes: Vec<_> =
        world.rows_of("acp.set_mode").iter().map(|row| row["details"]["mode"].clone()).collect();
    assert_eq!(modes, ["ask", "code"]);
    let cancelled = &one("acp.cancel")["details"];
    assert_eq!((&cancelled["peer"], &cancelled["ok"]), (&json!("editor"), &json!(true)));
    let asked = &one("permission.asked")["details"];
    assert_eq!((&asked["tool"], &asked["subject"]), (&json!("shell"), &json!("touch made.txt; exit 3")));
    let decided = &one("acp.permission")["details"];
    for (name, value) in [
        ("peer", "editor"),
        ("decision", "approved"),
        ("resolution", "allowed_once"),
        ("resolver", "client"),
        ("promptId", "1"),
        ("preset", "auto"),
        ("sandbox", "workspace-write"),
        ("tool", "shell"),
        ("subject", "touch made.txt; exit 3"),
    ] {
        assert_eq!(decided[name], value, "{name} of {decided}");
    }
    assert_eq!(decided["risk"], asked["risk"]);
    let called = &one("tool.call")["details"];
    assert_eq!((&called["outcome"], &called["exit_code"]), (&json!("failed"), &json!(3)), "{called}");
    assert_eq!((&called["decision"], &called["resolver"]), (&json!("allowed_once"), &json!("client")));
    let prompts = world.rows_of("acp.prompt");
    assert_eq!(prompts.len(), 2);
    for name in ["peer", "cwd", "role", "mode", "sha256", "bytes"] {
        assert!(prompts[0]["details"].get(name).is_some(), "{name} of {}", prompts[0]);
    }
    let stops: Vec<_> =
        world.rows_of("turn.ended").iter().map(|row| row["details"]["stop"].clone()).collect();
    assert_eq!(stops, ["end_turn", "cancelled"]);
    assert_eq!(world.types(&session).last().unwrap(), "session.closed");
    let (told, due) = world.positions();
    assert_eq!(told, due);
    world.check_whole();
}

/// W3: the same deeds through the command line and through the protocol, by clients of the same name.
#[test]
fn a_row_is_the_same_whichever_door() {
    let world = World::default();
    // One tool: several in one turn run beside each other, in any order.
    let text = "write made.txt: hello";
    world.run(&["run", "--mode", "ask", text]).with(0);
    let mut server = world.serve();
    server.greet("run");
    let session = server.session();
    server.call("session/set_mode", json!({ "sessionId": session, "modeId": "ask" }));
    let turn = server.prompt(&session, text);
    server.reply(turn);
    server.stop();
    let mut doors: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for mut row in world.rows() {
        let id = row["resource_id"].as_str().unwrap().to_owned();
        if row["event_type"] == "acp.initialize" || row["resource_type"] != "session" {
            continue;
        }
        // Times, positions and ids.
        for name in ["timestamp", "hmac", "prev_hmac", "resource_id", "line"] {
            row.as_object_mut().unwrap().remove(name);
        }
        for name in ["seq", "call", "elapsed_ms"] {
            row["details"].as_object_mut().unwrap().remove(name);
        }
        doors.entry(id).or_default().push(row);
    }
    let doors: Vec<_> = doors.into_values().collect();
    assert_eq!(doors.len(), 2);
    assert_eq!(doors[0].len(), 8, "{doors:?}");
    assert_eq!(doors[0], doors[1]);
}

#[test]
fn no_row_has_the_text_of_a_prompt() {
    let world = World::default();
    world.run(&["run", "the word is xylophone"]).with(0);
    let rows = fs::read_to_string(world.newest_file()).unwrap();
    assert!(rows.contains("acp.prompt") && !rows.contains("xylophone"), "{rows}");
    // printf 'the word is xylophone' | sha256sum
    let prompt = &world.rows_of("acp.prompt")[0]["details"];
    assert_eq!(prompt["bytes"], 21);
    assert_eq!(prompt["sha256"], "1bce88739d54c89bf18fcbfe5aeba15a97d1c06c0446cd80ea7116d42eb63147");
}

/// W4.
#[test]
fn a_key_that_others_may_read_stops_everything_that_must_be_audited() {
    let world = World::default();
    world.run(&["run", "hello"]).with(0);
    let key = world.0.home().join("audit.key");
    let mode = |mode: u32| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(world.folder()).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(world.newest_file()).unwrap().permissions().mode() & 0o7777, 0o600);
    mode(0o644);
    for arguments in [&["serve"][..], &["run", "hello"], &["sessions", "fork", "--last"]] {
        let refused = world.run(arguments).with(1);
        assert!(refused.err.contains("mode is 0644, not 0600"), "{}", refused.err);
        assert!(refused.err.contains("chmod 600"), "{}", refused.err);
    }
    world.run(&["sessions", "list"]).with(0);
    assert!(world.run(&["audit", "verify"]).with(3).err.contains("0644"));
    mode(0o600);
    world.run(&["audit", "verify"]).with(0);
    let inside = world.folder().join("key");
    let refused = world.command(&["run", "hello"]).env("ROPEWALK_AUDIT_KEY_PATH", inside).spawn().unwrap();
    assert!(CommandOutput::of(refused).with(1).err.contains("in the folder that it protects"));
    for name in ["ROPEWALK_AUDIT_KEY_PATH", "BERNSTEIN_AUDIT_KEY_PATH"] {
        let missing = world.0.path("none/audit.key");
        let refused = world.command(&["audit", "verify"]).env(name, &missing).spawn().unwrap();
        CommandOutput::of(refused).with(3);
    }
}

/// W5.
#[test]
fn verify_says_what_is_wrong_where_and_by_its_exit_code() {
    let world = World::default();
    assert!(world.run(&["audit", "verify"]).with(0).err.contains("Nothing has been audited yet"));
    world.run(&["run", "read nothing.txt"]).with(0);
    let whole = world.run(&["audit", "verify"]).with(0);
    assert!(whole.out.starts_with("The audit log is intact: "), "{}", whole.out);
    world.check_whole();
    let seal = world.0.path("seal.json");
    world.run(&["audit", "seal", "-o", seal.to_str().unwrap()]).with(0);
    world.run(&["audit", "verify", "--anchor", seal.to_str().unwrap()]).with(0);

    let file = world.newest_file();
    let name = file.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"role\": \"user\"", "\"role\": \"root\"", 1)).unwrap();
    let line = text.lines().position(|line| line.contains("\"role\"")).unwrap() + 1;
    let broken = world.run(&["audit", "verify"]).with(1);
    assert!(broken.err.contains(&format!("{name}:{line}: this row was changed")), "{}", broken.err);
    let broken = world.run(&["audit", "verify", "--json"]).with(1).json();
    assert_eq!((&broken["ok"], &broken["broken"]["line"]), (&json!(false), &json!(line)));
    world.verify_independently().with(1);
    world.run(&["audit", "seal"]).with(1);

    let last = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(&file, &text[..last]).unwrap();
    let cut = world.run(&["audit", "verify"]).with(2);
    assert!(cut.err.contains("rows are missing: head.json shows"), "{}", cut.err);
    fs::remove_dir_all(world.folder()).unwrap();
    world.run(&["audit", "verify"]).with(2);
    world.run(&["audit", "verify", "--anchor", seal.to_str().unwrap()]).with(2);
    fs::remove_file(world.0.home().join("audit.key")).unwrap();
    world.run(&["audit", "verify", "--anchor", seal.to_str().unwrap()]).with(3);
}

#[test]
fn rows_can_be_shown_found_and_taken_along() {
    let world = World::default();
    world.run(&["run", "hello"]).with(0);
    let long = format!("read {}.txt", "very-".repeat(60));
    let id = world.run(&["run", "--json", &long]).with(0).json()["session_id"].as_str().unwrap().to_owned();
    let shown = world.run(&["audit", "show"]).with(0).out;
    assert!(shown.lines().count() > 8 && shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert_eq!(world.run(&["audit", "show", "-n", "2"]).with(0).out.lines().count(), 2);
    let found = |arguments: &[&str]| {
        let found = world.run(&[&["audit", "query", "--json"], arguments].concat()).with(0).json();
        let rows = found["rows"].as_array().unwrap().clone();
        rows.iter().map(|row| row["event_type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["--type", "tool.call"]), ["tool.call"]);
    assert_eq!(found(&["--session", &id[..8], "--type", "session."]), ["session.created", "session.closed"]);
    assert_eq!(found(&["--actor", "run"]), ["acp.prompt", "acp.prompt"]);
    assert_eq!(found(&["--since", "2999-01-01"]), Vec::<String>::new());
    assert_eq!(found(&["--since", "1h"]).len(), world.rows().len());
    let exported = world.run(&["audit", "export"]).with(0).out;
    assert_eq!(exported, fs::read_to_string(world.newest_file()).unwrap());
    world.run(&["audit", "export", "--format", "csv", "-o", "rows.csv"]).with(0);
    let table = fs::read_to_string(world.0.project().join("rows.csv")).unwrap();
    assert_eq!(table.matches("\r\n").count(), world.rows().len() + 1);
}

#[test]
fn copies_do_not_repeat_what_they_copied_and_removals_are_told() {
    let world = World::default();
    let run = world.run(&["run", "--json", "read nothing.txt"]).with(0).json();
    let id = run["session_id"].as_str().unwrap();
    let copy = world.run(&["sessions", "fork", "--json", id]).with(0).json();
    let copy = copy["session_id"].as_str().unwrap();
    world.run(&["sessions", "export", id, "-o", "x.json"]).with(0);
    let imported = world.run(&["sessions", "import", "--json", "x.json"]).with(0).json();
    let imported = imported["session_id"].as_str().unwrap();
    assert_eq!(world.types(copy), ["session.forked", "session.closed"]);
    assert_eq!(world.types(imported), ["session.imported", "session.closed"]);
    assert_eq!(world.rows_of("session.forked")[0]["details"]["parent"], id);
    world.run(&["run", "--resume", copy, "hello"]).with(0);
    let added = ["session.opened", "acp.prompt", "turn.ended", "session.closed"];
    assert_eq!(world.types(copy)[2..], added);
    world.run(&["sessions", "delete", "--yes", copy]).with(0);
    assert_eq!(world.types(copy).last().unwrap(), "session.deleted");
    world.check_whole();
}

/// Work goes on where the audit cannot be written, and the rows follow.
#[test]
fn rows_follow_when_the_audit_can_be_written_again() {
    let world = World::default();
    fs::create_dir(world.0.home()).unwrap();
    fs::write(world.folder(), "not a folder").unwrap();
    let run = world.run(&["run", "--json", "read nothing.txt"]).with(0);
    assert!(run.err.contains("could not write the audit log"), "{}", run.err);
    let lost = world.run(&["run", "--json", "hello"]).with(0).json();
    fs::remove_file(world.folder()).unwrap();
    // Removed before anybody caught up.
    let lost = lost["session_id"].as_str().unwrap();
    world.run(&["sessions", "delete", "--yes", lost]).with(0);
    let types = world.types(lost);
    for wanted in ["session.created", "acp.prompt", "turn.ended", "session.deleted"] {
        assert_eq!(types.iter().filter(|found| *found == wanted).count(), 1, "{wanted} in {types:?}");
    }
    let server = world.serve();
    let began = Instant::now();
    while world.rows_of("tool.call").is_empty() {
        assert!(began.elapsed() < DEADLINE, "the audit does not catch up");
    }
    server.stop();
    assert_eq!(world.types(run.json()["session_id"].as_str().unwrap()).first().unwrap(), "session.created");
    world.check_whole();
}

/// Kills at twenty different moments, in the middle of turns, tools and the audit's own writing.
#[test]
fn kills_lose_no_row_and_double_none() {
    const KILLS: usize = 20;
    let world = World::default();
    let mut session = None;
    for round in 0..KILLS {
        let mut server = world.serve();
        server.greet("editor");
        // Now and then a session that an earlier server was killed with is taken up again.
        let id = match session.take().filter(|_| round % 3 != 0) {
            Some(id) => {
                let place = json!({ "sessionId": id, "cwd": world.0.project(), "mcpServers": [] });
                server.call("session/resume", place);
                id
            }
            None => server.session(),
        };
        let mut last = 0;
        for _ in 0..3 {
            last = server
                .prompt(&id, "read nothing.txt && then run echo hello && then list && then stream 20 5");
        }
        for _ in 0..round * 6 {
            let frame = server.frame();
            server.allow(&frame);
            if frame["id"] == last && frame.get("method").is_none() {
                break;
            }
        }
        server.kill();
        session = Some(id);
    }
    let mut server = world.serve();
    server.greet("editor");
    world.wait_until_audited();
    server.stop();
    let (told, due) = world.positions();
    assert_eq!(told, due);
    let rows = told.values().map(Vec::len).sum::<usize>();
    assert!(rows > 100, "{rows} rows are too few to say anything");
    let report = world.run(&["audit", "verify", "--json"]).with(0).json();
    assert!(report["ok"] == true, "{report}");
    world.verify_independently().with(0);
}

#[test]
fn two_servers_at_once_write_one_chain() {
    let world = World::default();
    let mut servers = [world.serve(), world.serve()];
    for server in &mut servers {
        server.greet("editor");
    }
    for _ in 0..4 {
        let turns = servers.each_mut().map(|server| {
            let session = server.session();
            server.prompt(&session, "read nothing.txt && then list && then read nothing.txt")
        });
        for (server, turn) in servers.iter_mut().zip(turns) {
            assert_eq!(server.reply(turn)["stopReason"], "end_turn");
        }
    }
    servers.into_iter().for_each(Serve::stop);
    let (told, due) = world.positions();
    assert_eq!((told.len(), &told), (8, &due));
    world.check_whole();
}

/// W6: a chain whose beginning is compressed is verified by both verifiers.
#[test]
fn old_days_are_compressed_and_stay_verifiable() {
    let world = World::default();
    world.run(&["run", "hello"]).with(0);
    // The newest file is never compressed, so an older one is made of it and the chain goes on after it.
    let newest = world.newest_file();
    fs::rename(&newest, world.folder().join("2001-01-01.jsonl")).unwrap();
    let done = world.run(&["audit", "archive", "--json"]).with(0).json();
    assert_eq!(done["archived"], json!([]));
    world.run(&["run", "hello again"]).with(0);
    assert!(world.folder().join("archive/2001-01-01.jsonl.gz").exists());
    assert!(!world.folder().join("2001-01-01.jsonl").exists());
    let report = world.run(&["audit", "verify", "--json"]).with(0).json();
    assert_eq!((&report["ok"], &report["files"]), (&json!(true), &json!(2)));
    world.check_whole();
    let rows = world.rows();
    assert_eq!(rows[0]["file"], "archive/2001-01-01.jsonl.gz");
}

/// The key is kept, the record is not: that is no beginning.
#[test]
fn a_record_that_was_removed_is_said_and_told_of_until_it_is_acknowledged() {
    let world = World::default();
    world.run(&["run", "hello"]).with(0);
    world.run(&["audit", "verify"]).with(0);
    fs::remove_dir_all(world.folder()).unwrap();
    let run = world.run(&["run", "hello"]).with(0);
    assert!(run.err.contains("rows are missing in the audit log"), "{}", run.err);
    assert!(!world.run(&["run", "hello"]).with(0).err.contains("are missing"));
    let cut = world.run(&["audit", "verify"]).with(2);
    assert!(cut.err.contains("audit acknowledge"), "{}", cut.err);
    assert_eq!(world.rows_of("audit.rewound").len(), 1);
    world.run(&["audit", "acknowledge", "a test removed it"]).with(0);
    let known = world.run(&["audit", "verify"]).with(0);
    assert!(known.err.contains("; acknowledged"), "{}", known.err);
    let known = world.run(&["audit", "verify", "--json"]).with(0).json();
    assert_eq!((&known["ok"], known["acknowledged"].as_array().map(Vec::len)), (&json!(true), Some(1)));
}

/// W8: also those of the turn that asks, which is the first.
#[test]
fn a_new_session_shows_the_rows_up_to_now() {
    let world = World::default();
    let shown = world.run(&["run", "/audit"]).with(0).out;
    for row in ["session.created", "acp.prompt"] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
}

/// W8.
#[test]
fn a_session_shows_its_owner_what_the_audit_says_of_it() {
    let world = World::default();
    fs::write(world.0.project().join("notes.txt"), "one").unwrap();
    let id = world.run(&["run", "--json", "read notes.txt"]).with(0).json()["session_id"].clone();
    let other = world.run(&["run", "--json", "list"]).with(0).json()["session_id"].clone();
    let shown = world.run(&["run", "--resume", id.as_str().unwrap(), "/audit"]).with(0).out;
    let row = |what: &str| {
        shown.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {shown}"))
    };
    assert!(row("acp.prompt").contains("run"), "{shown}");
    assert!(row("tool.call").contains("done") && row("tool.call").contains("notes.txt"), "{shown}");
    assert!(row("turn.ended").contains("end_turn"), "{shown}");
    assert!(!shown.contains(other.as_str().unwrap()), "{shown}");
    assert!(!shown.contains("list"), "{shown}");
}
