//! The real binary with state files that are locked, dangling links or not regular files.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use tempfile::TempDir;

use crate::command_output::CommandOutput;

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-token-for-this-test-alone-0123456789";

/// A folder of state, and commands on it.
struct World(TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        fs::create_dir(world.0.path().join("project")).unwrap();
        world
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.state().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(arguments).current_dir(self.0.path().join("project"));
        command.env("ROPEWALK_HOME", self.state()).env("ROPEWALK_SERVER_TOKEN", TOKEN);
        command.env("ROPEWALK_OFFLINE", "1").env_remove("ROPEWALK_AUDIT_KEY_PATH");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// How the command ends. One that hangs fails the test.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> CommandOutput {
        ended(self.command(arguments).spawn().unwrap(), arguments)
    }
}

#[track_caller]
fn ended(child: Child, what: &[&str]) -> CommandOutput {
    let pid = pid_of(&child);
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(CommandOutput::of(child)));
    ended.recv_timeout(DEADLINE).unwrap_or_else(|_| {
        kill_process(pid, Signal::KILL).ok();
        panic!("{what:?} hangs");
    })
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// A process that locked a file and was stopped then.
struct PausedProcess(Child);

impl PausedProcess {
    #[expect(clippy::disallowed_methods, reason = "somebody else holds the lock")]
    fn holding(file: &Path) -> Self {
        let script = "import fcntl, os, signal, sys\nf = open(sys.argv[1], 'a')\n\
            fcntl.flock(f, fcntl.LOCK_EX)\nos.kill(os.getpid(), signal.SIGSTOP)";
        let child = Command::new("python3").args(["-c", script]).arg(file).spawn().unwrap();
        let stopped = waitpid(Some(pid_of(&child)), WaitOptions::UNTRACED).unwrap().unwrap().1;
        assert!(stopped.stopped());
        Self(child)
    }

    fn goes_on(mut self) {
        kill_process(pid_of(&self.0), Signal::CONT).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for PausedProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Server {
    /// Taken when it is to end.
    child: Option<Child>,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Server {
    fn start(world: &World) -> Self {
        let mut child = world.command(&["serve", "--http", "127.0.0.1:0"]).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = errors.by_ref().find_map(|line| {
            Some(line.unwrap().split_once("http://")?.1.split_whitespace().next()?.to_owned())
        });
        std::thread::spawn(move || errors.for_each(drop));
        Self { child: Some(child), address: address.expect("an address") }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\
            content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// Asks until the answer has this status.
    fn until_ready(&self, status: u16) -> String {
        let began = Instant::now();
        loop {
            let (found, body) = self.request("GET", "/ready", "");
            if found == status {
                return body;
            }
            assert!(began.elapsed() < DEADLINE, "/ready says {found}: {body}");
        }
    }

    fn until_started(&self) {
        let began = Instant::now();
        while self.request("GET", "/health", "").0 != 200 {
            assert!(began.elapsed() < DEADLINE, "the server does not start");
        }
    }

    fn ends(mut self) -> i32 {
        let child = self.child.take().unwrap();
        kill_process(pid_of(&child), Signal::TERM).unwrap();
        ended(child, &["serve"]).code
    }
}

#[test]
fn a_stopped_process_that_holds_the_audits_lock_is_named_and_hangs_nobody() {
    let world = World::new();
    world.run(&["run", "list"]).with(0);
    let holder = PausedProcess::holding(&world.file("audit/lock"));
    let named = format!("locked by process {} (python3), which is stopped", holder.0.id());
    let run = world.run(&["run", "list"]).with(0);
    assert!(run.err.contains(&named), "{}", run.err);
    for command in [
        &["audit", "verify"][..],
        &["audit", "acknowledge", "why"],
        &["audit", "archive"],
        &["permissions", "add", "deny", "shell(make:*)"],
        &["doctor", "--store", "--deep"],
    ] {
        let failed = world.run(command).with(1);
        let told = format!("{}{}", failed.out, failed.err);
        assert!(told.contains(&named) && told.contains("kill -CONT"), "{command:?}: {told}");
    }
    let rules = fs::read_to_string(world.file("permissions.toml")).unwrap_or_default();
    assert!(!rules.contains("make"), "a rule was changed and not audited: {rules}");
    holder.goes_on();
    world.run(&["run", "-c", "list"]).with(0);
    world.run(&["audit", "verify"]).with(0);
}

#[test]
fn a_server_says_that_the_audits_lock_is_held_and_ends_all_the_same() {
    let world = World::new();
    world.run(&["run", "list"]).with(0);
    let server = Server::start(&world);
    server.until_ready(200);
    let holder = PausedProcess::holding(&world.file("audit/lock"));
    let body = world.0.path().join("project").display().to_string();
    server.request("POST", "/session", &serde_json::json!({ "cwd": body }).to_string());
    let told: Value = serde_json::from_str(&server.until_ready(503)).unwrap();
    let reason = told["reason"].as_str().unwrap();
    assert!(reason.contains("which is stopped") && !reason.contains('/'), "{reason}");
    holder.goes_on();
    server.until_ready(200);
    let holder = PausedProcess::holding(&world.file("audit/lock"));
    assert_eq!(server.ends(), 0);
    holder.goes_on();
}

/// What has a name and leads nowhere.
fn lead_nowhere(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
    symlink("/nowhere/at/all", path).unwrap();
}

#[test]
fn a_backup_without_a_file_that_leads_nowhere_is_not_made() {
    for name in ["permissions.toml", "config.toml", "sessions.db", "audit.key", "audit", "devices.json"] {
        let world = World::new();
        world.run(&["run", "list"]).with(0);
        let target = world.0.path().join("all.backup");
        let target = target.to_str().unwrap();
        lead_nowhere(&world.file(name));
        let failed = world.run(&["backup", target]).with(1);
        assert!(failed.err.contains(name) && failed.err.contains("a broken link"), "{name}: {}", failed.err);
        assert!(!Path::new(target).exists());
        let doctor = world.run(&["doctor", "--store"]).with(1);
        assert!(doctor.out.contains(name) && doctor.out.contains("a broken link"), "{name}: {}", doctor.out);
    }
}

#[test]
fn a_backup_of_a_state_folder_that_leads_nowhere_is_not_made() {
    let world = World::new();
    lead_nowhere(&world.state());
    let target = world.0.path().join("all.backup");
    let failed = world.run(&["backup", target.to_str().unwrap()]).with(1);
    assert!(failed.err.contains("a broken link"), "{}", failed.err);
    world.run(&["doctor", "--store"]).with(1);
}

#[test]
fn a_backup_has_the_archived_days_of_the_audit_and_files_behind_links() {
    let world = World::new();
    world.run(&["run", "list"]).with(0);
    let elsewhere = world.0.path().join("rules.toml");
    fs::write(&elsewhere, "deny = [\"read(secret.txt)\"]\n").unwrap();
    symlink(&elsewhere, world.file("permissions.toml")).unwrap();
    // An older day, which is archived.
    let audit = world.file("audit");
    let days = fs::read_dir(&audit).unwrap().map(|entry| entry.unwrap().path());
    let day = days.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).max().unwrap();
    let archived = audit.join("archive").join("kept.gz");
    fs::create_dir_all(archived.parent().unwrap()).unwrap();
    fs::copy(day, &archived).unwrap();
    let (target, into) = (world.0.path().join("all.backup"), world.0.path().join("other"));
    world.run(&["backup", target.to_str().unwrap()]).with(0);
    world.run(&["restore", target.to_str().unwrap(), "--into", into.to_str().unwrap()]).with(0);
    assert!(fs::read_to_string(into.join("permissions.toml")).unwrap().contains("secret"));
    assert_eq!(fs::read(into.join("audit/archive/kept.gz")).unwrap(), fs::read(archived).unwrap());
}

#[test]
fn a_deleted_session_that_is_put_back_is_audited() {
    let world = World::new();
    let id = world.run(&["run", "--json", "list"]).with(0).json()["session_id"].as_str().unwrap().to_owned();
    let kept = fs::read(world.file("sessions.db")).unwrap();
    world.run(&["run", "-c", "list"]).with(0);
    world.run(&["sessions", "delete", &id, "--yes"]).with(0);
    let before = world.rows();
    assert_eq!(before.last().unwrap()["event_type"], "session.deleted");
    world.put_back(&kept);
    for _ in 0..2 {
        world
            .run(&["run", "--resume", &id, "--approval", "full", "--mode", "code", "run touch here"])
            .with(0);
    }
    let rows = world.rows();
    let seq = |row: &Value| row["details"]["seq"].as_u64().unwrap_or_default();
    let known = before.iter().map(seq).max().unwrap();
    let of =
        |kind: &str| rows[before.len()..].iter().filter(|row| row["event_type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("session.returned").len(), 1);
    let calls = of("tool.call");
    assert!(calls.len() == 2 && calls.iter().all(|row| seq(row) > known), "{calls:?}");
    world.run(&["audit", "verify"]).with(0);
}

#[test]
fn settings_that_lead_nowhere_are_an_error_and_not_the_usual_ones() {
    let world = World::new();
    fs::create_dir(world.state()).unwrap();
    lead_nowhere(&world.file("config.toml"));
    for command in [&["run", "list"][..], &["mcp", "add", "one", "--", "true"], &["mcp", "list"]] {
        let failed = world.run(command).with(1);
        assert!(failed.err.contains("config.toml") && failed.err.contains("a broken link"), "{}", failed.err);
    }
    assert!(world.file("config.toml").is_symlink());
    // One that leads somewhere is followed and stays.
    let elsewhere = world.0.path().join("settings.toml");
    fs::write(&elsewhere, "approval = \"read-only\"\n").unwrap();
    fs::remove_file(world.file("config.toml")).unwrap();
    symlink(&elsewhere, world.file("config.toml")).unwrap();
    world.run(&["mcp", "add", "one", "--", "true"]).with(0);
    assert!(world.file("config.toml").is_symlink());
    let text = fs::read_to_string(&elsewhere).unwrap();
    assert!(text.contains("read-only") && text.contains("[mcp.servers.one]"), "{text}");
}

#[test]
fn servers_that_are_added_and_removed_at_the_same_time_are_all_kept() {
    let world = World::new();
    let names: Vec<_> = (0..8).map(|number| format!("server-{number}")).collect();
    let all_of = |verb: &str, end: &[&str]| {
        let children: Vec<_> = names
            .iter()
            .map(|name| world.command(&[&["mcp", verb, name], end].concat()).spawn().unwrap())
            .collect();
        for child in children {
            ended(child, &["mcp", verb]).with(0);
        }
        let listed = world.run(&["mcp", "list", "--json"]).with(0).json();
        listed["servers"].as_array().unwrap().len()
    };
    assert_eq!(all_of("add", &["--", "true"]), names.len());
    assert_eq!(all_of("remove", &[]), 0);
}

impl World {
    /// Stops short of what was written since `kept` was copied.
    fn put_back(&self, kept: &[u8]) {
        fs::write(self.file("sessions.db"), kept).unwrap();
        for end in ["-wal", "-shm"] {
            drop(fs::remove_file(self.file(&format!("sessions.db{end}"))));
        }
    }

    fn rows(&self) -> Vec<Value> {
        let shown = self.run(&["audit", "show", "-n", "1000000", "--json"]).with(0).json();
        shown["rows"].as_array().unwrap().clone()
    }
}

#[test]
fn a_session_whose_end_was_lost_goes_on_after_everything_that_was_audited() {
    let world = World::new();
    world.run(&["run", "list"]).with(0);
    let kept = fs::read(world.file("sessions.db")).unwrap();
    for _ in 0..2 {
        world.run(&["run", "-c", "list"]).with(0);
    }
    let before = world.rows();
    let number = |row: &Value, name: &str| row["details"][name].as_u64().unwrap_or_default();
    let highest = |name: &str| before.iter().map(|row| number(row, name)).max().unwrap();
    let (seq, turn) = (highest("seq"), highest("turn"));
    world.put_back(&kept);
    let doctor = world.run(&["doctor", "--store"]).with(1);
    assert!(doctor.out.contains("the audit log has events up to"), "{}", doctor.out);
    let verified = world.run(&["audit", "verify"]).with(0);
    assert!(verified.err.contains("the audit log has events up to"), "{}", verified.err);

    world.run(&["run", "-c", "--approval", "full", "--mode", "code", "run touch UNAUDITED"]).with(0);
    assert!(world.0.path().join("project/UNAUDITED").exists());
    let rows = world.rows();
    let new: Vec<_> = rows[before.len()..].iter().collect();
    for kind in ["acp.prompt", "acp.permission", "tool.call", "turn.ended"] {
        let row =
            new.iter().find(|row| row["event_type"] == kind).unwrap_or_else(|| panic!("no {kind}: {new:?}"));
        assert!(number(row, "seq") > seq, "{row}");
    }
    let prompt = new.iter().find(|row| row["event_type"] == "acp.prompt").unwrap();
    assert!(number(prompt, "turn") > turn, "a turn has a number that was given before: {prompt}");
    let id = prompt["resource_id"].as_str().unwrap();
    let shown = world.run(&["sessions", "show", "--full", id]).with(0).out;
    assert!(shown.contains("but the store does not"), "{shown}");
    world.run(&["doctor", "--store"]).with(0);
    // What was left out stays left out.
    world.run(&["run", "-c", "list"]).with(0);
    let rows = world.rows();
    let prompts = rows.iter().filter(|row| row["event_type"] == "acp.prompt");
    let mut turns: Vec<_> = prompts.map(|row| number(row, "turn")).collect();
    let all = turns.len();
    turns.sort_unstable();
    turns.dedup();
    assert_eq!(turns.len(), all, "a turn's number was given twice");
    world.run(&["audit", "verify"]).with(0);
}

#[test]
fn a_store_in_which_no_session_can_be_claimed_is_not_ready_and_says_so_without_a_path() {
    let world = World::new();
    world.run(&["run", "list"]).with(0);
    let server = Server::start(&world);
    server.until_ready(200);
    drop(fs::remove_dir_all(world.file("owners")));
    fs::write(world.file("owners"), "").unwrap();
    let body = server.until_ready(503);
    assert!(
        body.contains("it is not a folder") && !body.contains(&world.state().display().to_string()),
        "{body}"
    );
    let doctor = world.run(&["doctor"]).with(1);
    assert!(doctor.out.contains("owners: it is not a folder"), "{}", doctor.out);
    fs::remove_file(world.file("owners")).unwrap();
    server.until_ready(200);
    assert_eq!(server.ends(), 0);
}

#[test]
fn readiness_names_no_path_where_the_database_cannot_be_opened() {
    let world = World::new();
    fs::create_dir_all(world.file("sessions.db")).unwrap();
    let server = Server::start(&world);
    server.until_started();
    let body = server.until_ready(503);
    assert!(body.contains("the session store cannot be used"), "{body}");
    assert!(!body.contains(&world.state().display().to_string()), "{body}");
    assert_eq!(server.ends(), 0);
}

#[test]
fn a_pipe_in_the_place_of_a_file_of_the_state_hangs_nobody() {
    let tried: [(&str, &[&str]); 7] = [
        ("audit.key", &["run", "list"]),
        ("audit.key", &["audit", "verify"]),
        ("audit/head.json", &["audit", "verify"]),
        ("audit/2020-01-01.jsonl", &["audit", "verify"]),
        ("restore-plan.json", &["sessions", "list"]),
        ("sessions.db", &["backup", "all.backup"]),
        ("devices.json", &["backup", "all.backup"]),
    ];
    for (name, command) in tried {
        let world = World::new();
        world.run(&["run", "list"]).with(0);
        drop(fs::remove_file(world.file(name)));
        let mode = Mode::RUSR | Mode::WUSR;
        mkfifoat(CWD, world.file(name), mode).unwrap();
        let failed = world.run(command);
        assert!(failed.code != 0 && failed.err.contains("not a regular file"), "{name}: {}", failed.err);
    }
    // What only saves time is made anew.
    let world = World::new();
    world.run(&["run", "list"]).with(0);
    fs::remove_file(world.file("audit/cursors.json")).unwrap();
    mkfifoat(CWD, world.file("audit/cursors.json"), Mode::RUSR | Mode::WUSR).unwrap();
    world.run(&["run", "-c", "list"]).with(0);
    world.run(&["audit", "verify"]).with(0);
}

#[test]
fn an_empty_secret_is_refused() {
    for name in ["http.secret", "http.token"] {
        let world = World::new();
        world.run(&["run", "list"]).with(0);
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(world.file(name)).unwrap();
        let mut command = world.command(&["serve", "--http", "127.0.0.1:0"]);
        let failed = ended(command.env_remove("ROPEWALK_SERVER_TOKEN").spawn().unwrap(), &["serve"]);
        assert!(failed.code != 0 && failed.err.contains(name), "{}", failed.err);
        assert!(failed.err.contains("it is empty"), "{}", failed.err);
    }
}

#[test]
fn a_backup_never_replaces_a_file_of_the_state() {
    let world = World::new();
    world.run(&["run", "list"]).with(0);
    for name in ["sessions.db", "sessions.db-wal", "permissions.toml", "audit.key", "audit/all.backup"] {
        let before = fs::read(world.file(name)).ok();
        let refused = world.run(&["backup", "--force", world.file(name).to_str().unwrap()]).with(1);
        assert!(refused.err.contains("part of the state"), "{name}: {}", refused.err);
        assert_eq!(fs::read(world.file(name)).ok(), before, "{name}");
    }
    world.run(&["backup", world.file("mine.backup").to_str().unwrap()]).with(0);
}

#[test]
fn what_a_killed_export_left_is_removed_by_the_next() {
    let world = World::new();
    let id = world.run(&["run", "--json", "list"]).with(0).json()["session_id"].as_str().unwrap().to_owned();
    let project = world.0.path().join("project");
    let left = project.join(format!(".all.json.{id}.part"));
    let other = project.join(".all.json.mine.part");
    fs::write(&left, "half").unwrap();
    fs::write(&other, "somebody else's").unwrap();
    world.run(&["sessions", "export", &id, "-o", "all.json"]).with(0);
    assert!(!left.exists() && other.exists());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a shell sets the limit")]
fn too_few_open_files_are_an_error_and_no_panic() {
    let world = World::new();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -n 8; exec \"$0\" run list", env!("CARGO_BIN_EXE_ropewalk")]);
    command.env("ROPEWALK_HOME", world.state()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = ended(command.spawn().unwrap(), &["run"]).with(1);
    assert!(failed.err.contains("ulimit -n"), "{}", failed.err);
}
