//! The real binary: sandbox modes, approval presets and `doctor`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::command_output::CommandOutput;
use crate::work_folder::WorkFolder;

/// A workspace, a folder beside it and a home.
struct World(WorkFolder);

impl World {
    fn new() -> Self {
        let folder = WorkFolder::beside_the_sources(&["project", "beside", "home/.ssh"]);
        fs::write(folder.path("home/.ssh/id"), "a private key").unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// Whether a command would find the folder beside the workspace. Where the sources are below the
    /// folder for temporary files it does not, and there is nothing to refuse.
    fn is_seen(&self) -> bool {
        !["/tmp", "/var/tmp"].iter().any(|private| self.path("").starts_with(private))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.0.bare_command(arguments)
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        finished(self.command(arguments))
    }

    /// The program where the system's user database has another home for us, or no entry at all.
    #[expect(clippy::disallowed_methods, reason = "the program under test is what this starts")]
    fn with_account(&self, home: Option<&str>, variable: Option<&str>, arguments: &[&str]) -> CommandOutput {
        let entry = home.map(|home| format!("root:x:0:0::{}:/bin/sh\n", self.path(home).display()));
        fs::write(self.path("passwd"), entry.unwrap_or_default()).unwrap();
        fs::write(self.path("nsswitch.conf"), "passwd: files\n").unwrap();
        let script = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/nsswitch.conf && shift 2 \
                      && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.args([self.path("passwd"), self.path("nsswitch.conf")]).arg(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(arguments).current_dir(self.path("project")).env_clear();
        command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("ROPEWALK_OFFLINE", "1");
        command.env("ROPEWALK_HOME", self.path("state"));
        command.envs(variable.map(|home| ("HOME", home)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finished(command)
    }

    /// What the log of the newest session says was refused.
    fn refused(&self) -> Vec<String> {
        let listed = self.run(&["sessions", "list", "--json"]).with(0).json();
        let id = listed["sessions"][0]["id"].as_str().unwrap().to_owned();
        let shown = self.run(&["sessions", "show", "--json", &id]).with(0).json();
        let events = shown["events"].as_array().unwrap().iter();
        let refused = events.filter(|event| event["event_type"] == "policy_blocked").map(|event| {
            let body = &event["payload"];
            format!("{} {} {}", body["mode"], body["tool"], body["path"]).replace('"', "")
        });
        refused.map(|line| line.replace(self.path("").to_str().unwrap(), "")).collect()
    }
}

fn finished(mut command: Command) -> CommandOutput {
    CommandOutput::of(command.spawn().unwrap())
}

/// What is tried in every mode: by a command and by a tool, inside, beside, at protected and hidden
/// places. Each leaves a trace if it works.
const TRIES: &str =
    "run echo x > made; echo x > ../beside/made; mkdir .vscode; cat ~/.ssh/id; cat ~/.ssh/id > key
write tool.txt: x
write ../beside/tool.txt: x
write .vscode/tasks.json: x";

const TRACES: [&str; 6] = [
    "project/made",
    "project/tool.txt",
    "beside/made",
    "beside/tool.txt",
    "project/.vscode/tasks.json",
    "project/key",
];

fn traces(world: &World) -> Vec<&'static str> {
    let left = |name: &&str| fs::metadata(world.path(name)).is_ok_and(|data| data.len() > 0);
    TRACES.into_iter().filter(left).collect()
}

#[test]
fn every_mode_holds_for_commands_and_tools() {
    for (mode, left) in [
        ("read-only", &[][..]),
        ("workspace-write", &["project/made", "project/tool.txt"]),
        ("workspace-write-network", &["project/made", "project/tool.txt"]),
        ("off", &TRACES),
    ] {
        let world = World::new();
        world.run(&["run", "--sandbox", mode, "--approval", "full", TRIES]);
        assert_eq!(traces(&world), left, "{mode}");
        let refused = world.refused();
        if mode == "off" {
            assert_eq!(refused, [""; 0], "nothing is refused where there is no fence");
            continue;
        }
        for expected in ["shell beside/made", "shell home/.ssh/id", "write beside/tool.txt"] {
            if expected.starts_with("shell") && !world.is_seen() {
                continue;
            }
            let expected = format!("{mode} {expected}");
            assert!(refused.contains(&expected), "{expected} is not in {refused:?}");
        }
        let protected = refused.iter().filter(|line| line.contains("project/.vscode")).count();
        assert!(protected >= 2, "{mode}: by command and by tool: {refused:?}");
    }
}

#[test]
fn further_folders_are_written_where_they_are_named() {
    let world = World::new();
    let beside = world.path("beside");
    let add = ["run", "--add-dir", beside.to_str().unwrap(), "--approval", "full", TRIES];
    world.run(&add);
    let left = ["project/made", "project/tool.txt", "beside/made", "beside/tool.txt"];
    assert_eq!(traces(&world), left);
}

/// Who started us may have left out `HOME`, or given another one's.
#[test]
fn what_the_home_of_the_account_holds_is_hidden_without_its_variable() {
    let world = World::new();
    let key = world.path("home/.ssh/id");
    let key = key.to_str().unwrap();
    let look = ["sandbox", "run", "workspace-write", "--", "cat", key];
    for variable in [None, Some("/no/such/folder"), Some("relative"), Some("/")] {
        let hidden = world.with_account(Some("home"), variable, &look);
        assert!(hidden.code != 0 && !hidden.out.contains("a private key"), "{variable:?} {}", hidden.err);
        // With another home it is a file like others.
        let seen = world.with_account(Some("beside"), variable, &look).with(0);
        assert!(seen.out.contains("a private key"), "{variable:?}");
        let doctor = world.with_account(Some("home"), variable, &["doctor"]).out;
        let home = world.path("home").display().to_string();
        let line = doctor.lines().find(|line| line.contains("keys and credentials")).unwrap();
        assert!(line.starts_with("ok") && line.ends_with(&home), "{variable:?} {doctor}");
    }
    let both = world.with_account(Some("beside"), Some(world.path("home").to_str().unwrap()), &look);
    assert!(!both.out.contains("a private key"), "{}", both.out);
}

#[test]
fn where_no_home_is_known_no_agent_is_started() {
    let world = World::new();
    for variable in [None, Some("/no/such/folder"), Some("relative")] {
        for (code, arguments) in [
            (125, &["sandbox", "run", "workspace-write", "--", "true"][..]),
            (1, &["run", "run echo hello"]),
            (1, &["serve"]),
        ] {
            let refused = world.with_account(None, variable, arguments).with(code);
            let said = "could not find your home folder, so its secrets cannot be hidden";
            assert!(refused.err.contains(said), "{arguments:?} {}", refused.err);
            assert!(refused.err.contains("set HOME to your home folder"), "{}", refused.err);
        }
        let doctor = world.with_account(None, variable, &["doctor"]).with(1).out;
        let line = doctor.lines().find(|line| line.contains("keys and credentials")).unwrap();
        assert!(line.starts_with("BAD"), "{doctor}");
        world.with_account(None, variable, &["run", "--sandbox", "off", "hello"]).with(0);
    }
}

#[test]
fn a_project_may_narrow_and_never_widen() {
    let world = World::new();
    fs::create_dir(world.path("project/.ropewalk")).unwrap();
    let settings = world.path("project/.ropewalk/config.toml");
    fs::write(&settings, "sandbox = \"off\"\n").unwrap();
    world.run(&["run", "--approval", "full", TRIES]);
    assert_eq!(traces(&world), ["project/made", "project/tool.txt"]);
    for narrow in ["sandbox = \"read-only\"\n", "sandbox = nonsense\n"] {
        let world = World::new();
        fs::create_dir(world.path("project/.ropewalk")).unwrap();
        fs::write(world.path("project/.ropewalk/config.toml"), narrow).unwrap();
        world.run(&["run", "--approval", "full", TRIES]);
        assert_eq!(traces(&world), [""; 0], "{narrow}");
    }
}

/// What comes of `touch made`, which is asked for by default, and of an edit.
fn allowed(world: &World, mut command: Command) -> (bool, bool) {
    command.args(["run", "run touch made && then write tool.txt: x"]);
    finished(command);
    let made = |name: &str| {
        let path = world.path("project").join(name);
        let exists = path.exists();
        drop(fs::remove_file(path));
        exists
    };
    (made("made"), made("tool.txt"))
}

#[test]
fn the_preset_is_taken_from_flag_settings_environment_and_default_in_this_order() {
    let world = World::new();
    let plain = || world.command(&[]);
    assert_eq!(allowed(&world, plain()), (false, true), "auto, and nobody to ask");
    let in_environment = || {
        let mut command = plain();
        command.env("FERRET_APPROVAL", "read-only");
        command
    };
    assert_eq!(allowed(&world, in_environment()), (false, false));
    fs::create_dir_all(world.path("home/.config/ropewalk")).unwrap();
    fs::write(world.path("home/.config/ropewalk/config.toml"), "approval = \"full\"\n").unwrap();
    assert_eq!(allowed(&world, in_environment()), (true, true));
    let mut named = world.command(&["run", "--approval", "suggest", "write tool.txt: x"]);
    named.env("FERRET_APPROVAL", "full");
    finished(named);
    assert!(!world.path("project/tool.txt").exists());
    let run = world.run(&["run", "--approval", "suggest", "--permission-mode", "yolo", "write tool.txt: x"]);
    assert!(run.err.contains("everything runs without asking"), "{}", run.err);
    assert!(world.path("project/tool.txt").exists(), "a permission mode wins over the approval");
}

#[test]
fn whatever_takes_a_fence_away_is_said() {
    let world = World::new();
    for (arguments, said) in [
        (&["--sandbox", "off"][..], "the sandbox is off"),
        (&["--os-sandbox", "off"], "the sandbox is off"),
        (&["--approval", "full"], "everything runs without asking"),
        (&["--yolo"], "everything runs without asking"),
        (&["--full-auto"], "everything runs without asking"),
    ] {
        let run = world.run(&[&["run", "hello"], arguments].concat());
        assert!(run.err.contains("warning") && run.err.contains(said), "{arguments:?}: {}", run.err);
    }
    assert!(!world.run(&["run", "hello"]).err.contains("warning"));
}

#[test]
fn a_wrong_choice_is_said_with_the_right_ones() {
    let world = World::new();
    for (arguments, said) in [
        (&["--sandbox", "wide"][..], "workspace-write-network"),
        (&["--approval", "sometimes"], "read-only, strict, suggest, auto, full"),
        (&["--add-dir", "nowhere"], "nowhere"),
    ] {
        let run = world.run(&[&["run", "hello"], arguments].concat());
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(said), "{arguments:?}: {}", run.err);
    }
    fs::create_dir_all(world.path("home/.config/ropewalk")).unwrap();
    fs::write(world.path("home/.config/ropewalk/config.toml"), "sandbox = 7\n").unwrap();
    let run = world.run(&["run", "hello"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("config.toml") && run.err.contains("must be a string"), "{}", run.err);
}

#[test]
fn a_sandbox_can_be_tried_by_hand() {
    let world = World::new();
    let run = world.run(&[
        "sandbox",
        "run",
        "workspace-write",
        "--",
        "sh",
        "-c",
        "echo hi; echo x > ../beside/f; exit 3",
    ]);
    assert_eq!((run.code, run.out.as_str()), (3, "hi\n"));
    let said = run.err.contains("beside/f refused: it is outside the workspace");
    assert!(said || !world.is_seen(), "{}", run.err);
    let killed = world.run(&["sandbox", "run", "read-only", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code, 137);
    let missing = world.run(&["sandbox", "run", "read-only", "--", "no-such-program"]);
    assert!((125..=127).contains(&missing.code), "{}: {}", missing.code, missing.err);
}

#[test]
fn doctor_tries_what_it_says() {
    let world = World::new();
    let run = world.run(&["doctor", "--json"]);
    let report = run.json();
    assert_eq!(run.code == 0, report["ok"] == json!(true), "{}", run.out);
    assert_eq!(report["enforces_sandbox"], json!(true), "{}", run.out);
    assert!(world.run(&["doctor"]).out.contains("in a sandbox that the kernel enforces"));
}

#[test]
fn doctor_tells_what_else_decides_about_the_sandbox() {
    let world = World::new();
    let told = |what: &str| {
        let run = world.run(&["doctor", "--store"]);
        let line = run.out.lines().find(|line| line.contains(what)).unwrap_or_default().to_owned();
        (run.code, line)
    };
    assert_eq!(told("trusted servers").0, 0);
    assert_eq!((told("project's sandbox").1, told("editor's terminal").1), (String::new(), String::new()));
    fs::create_dir(world.path("project/.ropewalk")).unwrap();
    let settings = world.path("project/.ropewalk/config.toml");
    fs::write(&settings, "sandbox = \"read-only\"\n").unwrap();
    let (code, line) = told("project's sandbox");
    assert!(code == 0 && line.starts_with("ok"), "{line}");
    assert!(line.contains("read-only, stricter than yours (workspace-write)"), "{line}");
    fs::write(&settings, "sandbox = nonsense\n").unwrap();
    let (code, line) = told("project's sandbox");
    assert!(code == 1 && line.starts_with("BAD") && line.contains("are read-only"), "{line}");
    fs::remove_file(&settings).unwrap();
    let home = world.path("home/.config/ropewalk");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("config.toml"), "terminal = \"editor\"\n").unwrap();
    let (code, line) = told("editor's terminal");
    assert!(code == 0 && line.starts_with("note") && line.contains("outside the sandbox"), "{line}");
    fs::write(home.join("trusted_servers.toml"), "[[server]\n").unwrap();
    let (code, line) = told("trusted servers");
    assert!(code == 1 && line.starts_with("BAD") && line.contains("nothing in it is trusted"), "{line}");
}

/// An editor's view: what the server says of its fence, and that nobody can change it.
#[test]
fn no_client_widens_the_sandbox() {
    let world = World::new();
    let mut server = world
        .command(&["serve", "--sandbox", "read-only", "--approval", "full"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut call = |id: u64, method: &str, params: Value| -> Value {
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{frame}").unwrap();
        let answers = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let mut answers = answers;
        answers.find(|frame| frame["id"] == id && frame.get("method").is_none()).unwrap()
    };
    let hello = call(1, "initialize", json!({ "protocolVersion": 1 }));
    assert_eq!(hello["result"]["_meta"]["sandbox"]["mode"], "read-only");
    let new = call(2, "session/new", json!({ "cwd": world.path("project"), "mcpServers": [] }));
    let session = new["result"]["sessionId"].clone();
    let option = json!({ "sessionId": session, "configId": "sandbox", "value": "off" });
    assert!(call(3, "session/set_config_option", option)["error"].is_object());
    for (id, text) in [(4, "/sandbox off"), (5, TRIES)] {
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        assert_eq!(call(id, "session/prompt", prompt)["result"]["stopReason"], "end_turn");
    }
    assert_eq!(traces(&world), [""; 0]);
    drop(input);
    assert!(server.wait().unwrap().success());
    let id = session.as_str().unwrap();
    assert!(world.run(&["sessions", "show", id]).out.contains("restart the server with --sandbox"));
}
