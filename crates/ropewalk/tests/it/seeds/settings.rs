//! The settings, variables and recipes that people bring along from the programs of these documents, and `config show`,
//! which says what became of them.
//!
//! What stays different on purpose:
//! - `differs_a_token_in_the_settings_is_not_used`: a token in a file is read by everybody who reads
//!   the file.
//! - `differs_command_timeout_is_the_name_of_zephs_terminal_timeout`: it holds for every command, in whatever terminal.
//! - `differs_settings_for_codex_are_below_our_own_and_never_loosen`: they were written for another program, or by whoever
//!   wrote the project.
//! - `differs_a_bridges_address_comes_from_the_homes_file_and_never_from_a_projects`: a project does not choose where a token goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::web::{Ask, Server};
use crate::seeds::program::{Program, command, home};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

struct World {
    home: Arc<TempDir>,
}

impl World {
    fn new() -> Self {
        Self { home: home() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file below the home folder.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn settings(&self, text: &str) -> PathBuf {
        self.file(".config/ropewalk/config.toml", text)
    }

    fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = command(Path::new(PROGRAM), &self.home, arguments);
        command.envs(variables.iter().copied());
        command
    }

    /// Runs to its end: the code, standard output, standard error.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
        let output = self.command(arguments, variables).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    fn serve(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Program {
        let all: Vec<&str> = ["serve"].iter().chain(arguments).copied().collect();
        Program::run(&self.home, self.command(&all, variables))
    }

    /// What `config show` says of a setting: its value, the kind of place it comes from, and which.
    #[track_caller]
    fn shown(&self, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Value, String, String) {
        let all: Vec<&str> = ["config", "show", "--json"].iter().chain(arguments).copied().collect();
        let (code, out, err) = self.run(&all, variables);
        assert_eq!(code, 0, "{err}");
        let shown: Value = serde_json::from_str(&out).unwrap();
        let row = shown["settings"].as_array().unwrap().iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("no {name} in {out}"));
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        (row["value"].clone(), text("source"), text("where"))
    }
}

fn text(value: &str, source: &str, place: impl AsRef<Path>) -> (Value, String, String) {
    (json!(value), source.to_owned(), place.as_ref().display().to_string())
}

fn number(value: u64, source: &str, place: &str) -> (Value, String, String) {
    (json!(value), source.to_owned(), place.to_owned())
}

/// Starts a session in the program's folder and answers what `initialize` and `session/new` answered.
fn begin(program: &mut Program) -> (Value, Value) {
    let (_, hello) = program.call(1, "initialize", &json!({ "protocolVersion": 1 }));
    let work = program.home.path().join("work").canonicalize().unwrap();
    let (_, new) = program.call(2, "session/new", &json!({ "cwd": work, "mcpServers": [] }));
    (hello["result"].clone(), new["result"].clone())
}

fn option<'a>(new: &'a Value, id: &str) -> &'a Value {
    let options = new["configOptions"].as_array().unwrap();
    &options.iter().find(|option| option["id"] == id).unwrap()["currentValue"]
}

/// Z1, Z2, Z4: zeph's numbers, its table and its variables, which go before the file; the command line goes before both.
#[test]
fn zephs_numbers_come_from_flag_variable_file_and_default_in_this_order() {
    let world = World::new();
    let rows = [
        ("acp.max_sessions", 16, "ZEPH_ACP_MAX_SESSIONS", "--max-sessions"),
        ("acp.session_idle_timeout_secs", 1800, "ZEPH_ACP_SESSION_IDLE_TIMEOUT_SECS", "--idle-timeout"),
        ("command_timeout", 120, "ZEPH_ACP_TERMINAL_TIMEOUT_SECS", ""),
    ];
    for (name, usual, ..) in rows {
        assert_eq!(world.shown(name, &[], &[]), number(usual, "default", ""), "{name}");
    }
    let file =
        world.settings("[acp]\nmax_sessions = 3\nsession_idle_timeout_secs = 4\nterminal_timeout_secs = 5\n");
    for ((name, _, variable, flag), written) in rows.into_iter().zip([3, 4, 5]) {
        let in_file = number(written, "file", &file.display().to_string());
        assert_eq!(world.shown(name, &[], &[]), in_file, "{name}");
        let said = number(7, "variable", variable);
        assert_eq!(world.shown(name, &[], &[(variable, "7")]), said, "{name}");
        if !flag.is_empty() {
            assert_eq!(world.shown(name, &[flag, "8"], &[(variable, "7")]), number(8, "flag", flag));
        }
        let (code, _, err) = world.run(&["config", "show"], &[(variable, "soon")]);
        assert!(code == 2 && err.contains(variable) && err.contains("a number"), "{err}");
    }
    let (code, out, _) = world.run(&["config", "show"], &[]);
    let line = out.lines().find(|line| line.starts_with("acp.max_sessions")).unwrap();
    assert!(code == 0 && line.contains('3') && line.ends_with("config.toml"), "{line}");
}

/// Z2: a session that nobody uses leaves memory, and is found again.
#[test]
fn a_session_that_is_idle_for_the_time_in_the_settings_leaves_memory_and_is_loaded_again() {
    let world = World::new();
    world.settings("[acp]\nsession_idle_timeout_secs = 0\nmax_sessions = 1\n");
    let mut program = world.serve(&[], &[]);
    let (_, first) = begin(&mut program);
    let say =
        |session: &Value| json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "hello" }] });
    let (_, ended) = program.call(3, "session/prompt", &say(&first["sessionId"]));
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let work = world.path("work").canonicalize().unwrap();
    let (_, second) = program.call(4, "session/new", &json!({ "cwd": work, "mcpServers": [] }));
    assert!(second["result"]["sessionId"].is_string(), "the least recently used one makes room: {second}");
    let (_, ended) = program.call(5, "session/prompt", &say(&first["sessionId"]));
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert_eq!(program.close().0, Some(0));
}

/// Z4: zeph's number is for commands in the editor's terminal; here it holds for commands in the fence too, so it is shown by
/// its own name. 0 means that they may take as long as they like.
#[test]
fn differs_command_timeout_is_the_name_of_zephs_terminal_timeout() {
    let world = World::new();
    let file = world.settings("[acp]\nterminal_timeout_secs = 0\n");
    assert_eq!(world.shown("command_timeout", &[], &[]), number(0, "file", &file.display().to_string()));
    let mut program = world.serve(&["--approval", "full"], &[]);
    let (_, new) = begin(&mut program);
    let prompt = json!({ "sessionId": new["sessionId"], "prompt": [{ "type": "text", "text": "run sleep 0.2; echo late" }] });
    let (updates, ended) = program.call(3, "session/prompt", &prompt);
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let done = updates.iter().map(|frame| &frame["params"]["update"]);
    let done = done.filter(|update| update["status"] == "completed").map(Value::to_string);
    assert!(done.collect::<String>().contains("late"), "{updates:?}");
    assert_eq!(program.close().0, Some(0));
}

/// Z4: a command that takes longer is ended, and its output so far is told.
#[test]
fn a_command_is_ended_after_the_time_in_the_variable() {
    let world = World::new();
    let mut program = world.serve(&["--approval", "full"], &[("ZEPH_ACP_TERMINAL_TIMEOUT_SECS", "1")]);
    let (_, new) = begin(&mut program);
    let prompt = json!({ "sessionId": new["sessionId"], "prompt": [{ "type": "text", "text": "run echo early; sleep 600" }] });
    let (updates, ended) = program.call(3, "session/prompt", &prompt);
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let failed = updates.iter().map(|frame| &frame["params"]["update"]);
    let failed = failed.filter(|update| update["status"] == "failed").map(Value::to_string);
    let failed: Vec<String> = failed.collect();
    assert!(failed.len() == 1 && failed.concat().contains("it took too long"), "{updates:?}");
    assert!(failed.concat().contains("early"), "{failed:?}");
    assert_eq!(program.close().0, Some(0));
}

/// Z3: zeph's answers for good, wherever its file is.
#[test]
fn zephs_permission_file_is_read_where_the_settings_or_the_variable_say() {
    let world = World::new();
    let usual = world.path(".config/zeph/acp-permissions.toml");
    assert_eq!(
        world.shown("acp.permission_file", &[], &[]),
        text(&usual.display().to_string(), "default", "")
    );
    let (one, other) = (world.file("one.toml", ""), world.file("other.toml", ""));
    let rule = "[tools]\nrun_command = \"allow\"\n";
    fs::write(&one, rule).unwrap();
    let settings = world.settings("[acp]\npermission_file = \"~/one.toml\"\n");
    let name = "acp.permission_file";
    assert_eq!(world.shown(name, &[], &[]), text(&one.display().to_string(), "file", settings));
    let listed = |variables: &[(&str, &str)]| world.run(&["permissions", "list", "--json"], variables).1;
    assert!(listed(&[]).contains(one.to_str().unwrap()), "{}", listed(&[]));
    let moved = [("ZEPH_ACP_PERMISSION_FILE", other.to_str().unwrap())];
    assert_eq!(world.shown(name, &[], &moved), text(other.to_str().unwrap(), "variable", moved[0].0));
    assert!(listed(&moved).contains(other.to_str().unwrap()) && !listed(&moved).contains("one.toml"));
}

/// The file that answers for good are written to is named, wherever it is.
#[test]
fn the_rules_file_that_is_written_is_shown() {
    let world = World::new();
    let usual = world.path(".config/ropewalk/permissions.toml");
    assert_eq!(world.shown("permissions", &[], &[]), text(usual.to_str().unwrap(), "default", ""));
    world.run(&["permissions", "add", "allow", "shell(ls)"], &[]);
    assert!(usual.exists(), "it is the one that is written");
    let other = world.path("mine.toml");
    let moved = [("ROPEWALK_PERMISSIONS", other.to_str().unwrap())];
    assert_eq!(world.shown("permissions", &[], &moved), text(moved[0].1, "variable", moved[0].0));
    let (_, out, _) = world.run(&["config", "show"], &moved);
    assert!(out.lines().any(|line| line.starts_with("permissions ") && line.contains(moved[0].1)), "{out}");
}

/// Z6, Z16: what else `[acp]` says.
#[test]
fn the_rest_of_zephs_table_holds_for_a_server() {
    let world = World::new();
    world.settings(
        "[acp]\nagent_name = \"zeph\"\nadditional_directories = [\"/opt\"]\n\
         available_models = [\"offline:terse\"]\ndisable = [\"session/fork\", \"session/resume\", \"logout\"]\nlsp = true\n",
    );
    let mut program = world.serve(&[], &[]);
    let (hello, new) = begin(&mut program);
    assert_eq!(hello["agentInfo"]["name"], "zeph");
    let sessions = hello["agentCapabilities"]["sessionCapabilities"].as_object().unwrap();
    assert!(
        !sessions.contains_key("fork") && !sessions.contains_key("resume") && sessions.contains_key("list")
    );
    assert_eq!(hello["agentCapabilities"]["auth"], json!({}));
    let named = json!({ "sessionId": new["sessionId"], "cwd": world.path("work"), "mcpServers": [] });
    for (id, method) in [(3, "session/fork"), (4, "session/resume"), (5, "logout")] {
        let (_, refused) = program.call(id, method, &named);
        assert_eq!(refused["error"]["code"], -32601, "{method}: {refused}");
    }
    let (code, log) = program.close();
    assert_eq!(code, Some(0));
    assert!(log.contains("unknown setting \"acp.lsp\""), "{log}");
    assert_eq!(world.shown("acp.additional_directories", &[], &[]).0, json!(["/opt"]));
    assert_eq!(world.shown("available_models", &[], &[]).0, json!(["offline:terse"]));

    let mut usual = World::new().serve(&[], &[]);
    let hello = begin(&mut usual).0;
    let sessions = hello["agentCapabilities"]["sessionCapabilities"].as_object().unwrap();
    assert!(sessions.contains_key("fork") && sessions.contains_key("resume"));
    assert_eq!(hello["agentCapabilities"]["auth"], json!({ "logout": {} }));
    assert_eq!(usual.close().0, Some(0));
}

/// Z6: a file is read by whoever may read the settings, and copied with them. So a token in it opens no door, and whoever
/// wrote it there is told.
#[test]
fn differs_a_token_in_the_settings_is_not_used() {
    let world = World::new();
    world.settings("[acp]\nauth_token = \"hush-hush-hush-hush\"\n");
    let (code, log) = world.serve(&[], &[]).close();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("ignoring the token in [acp] of the settings file") && !log.contains("hush"),
        "{log}"
    );
    let http = Server::run(Arc::clone(&world.home), world.command(&["-v", "serve", "--http", ":0"], &[]));
    let frame = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    assert_eq!(Ask::post("/acp", frame).token("hush-hush-hush-hush").send(&http).status, 401);
}

/// `OTTER_LOG`: every message by its method, also one that no dialect has.
#[test]
fn otter_log_names_every_message_by_its_method() {
    let world = World::new();
    let mut program = world.serve(&[], &[("OTTER_LOG", "1")]);
    begin(&mut program);
    program.call(3, "session/list", &json!({}));
    assert_eq!(program.call(4, "nobody/knows", &json!({})).1["error"]["code"], -32601);
    program.send(&json!({ "jsonrpc": "2.0", "method": "_zeph/editor_focused", "params": {} }));
    program.send(&json!({ "jsonrpc": "2.0", "method": "forged\nWARN x", "params": {} }));
    let (_, log) = program.close();
    let methods =
        ["initialize", "session/new", "session/list", "nobody/knows", "_zeph/editor_focused", "forged\\n"];
    for method in methods {
        assert!(log.lines().any(|line| line.contains("request") && line.contains(method)), "{method}: {log}");
    }
    assert!(!log.lines().any(|line| line.starts_with("WARN")), "{log}");
}

/// Z6: how clients come in, where the command line does not say.
#[test]
fn the_settings_say_how_clients_come_in_and_the_command_line_goes_before_them() {
    let world = World::new();
    assert_eq!(world.shown("acp.transport", &[], &[]), text("stdio", "default", ""));
    assert_eq!(world.shown("acp.http_bind", &[], &[]), text("127.0.0.1:5173", "default", ""));
    let file = world
        .settings("[acp]\ntransport = \"both\"\nhttp_bind = \"127.0.0.1:9800\"\ndiscovery_enabled = false\n");
    assert_eq!(world.shown("acp.transport", &[], &[]), text("both", "file", &file));
    assert_eq!(world.shown("acp.http_bind", &[], &[]), text("127.0.0.1:9800", "file", &file));
    assert_eq!(world.shown("acp.transport", &["--stdio"], &[]), text("stdio", "flag", "--stdio"));
    assert_eq!(world.shown("acp.http_bind", &["--http", ":0"], &[]), text("127.0.0.1:0", "flag", "--http"));
    assert_eq!(world.shown("discovery_enabled", &[], &[]).0, json!(false));
    world.settings("[acp]\ntransport = \"http\"\nhttp_bind = \"nowhere\"\n");
    let (code, _, err) = world.run(&["serve"], &[]);
    assert!(code == 2 && err.contains("http_bind"), "{err}");
}

/// Z7.
#[test]
fn the_options_of_serve_hold_for_the_sessions_of_editors() {
    let world = World::new();
    world.file("work/inner/only-here.txt", "found it");
    let options = [
        "--cwd",
        "inner",
        "--model",
        "offline:terse",
        "--sandbox",
        "read-only",
        "--approval",
        "strict",
        "--allowed-tools",
        "Read",
    ];
    let mut program = world.serve(&options, &[]);
    let (hello, new) = begin(&mut program);
    assert_eq!(hello["_meta"]["sandbox"]["mode"], "read-only");
    assert_eq!(
        (option(&new, "model"), option(&new, "approval")),
        (&json!("offline:terse"), &json!("strict"))
    );
    let (_, tools) = program.call(3, "_agent/tools", &json!({ "session_id": new["sessionId"] }));
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["read"]);
    assert_eq!(program.close().0, Some(0));

    // An official client always names a folder.
    let mut program = world.serve(&["--cwd", "inner", "--dialect", "ferret"], &[]);
    program.call(1, "initialize", &json!({}));
    let (_, new) = program.call(2, "session/new", &json!({}));
    let read = json!({ "sessionId": new["result"]["sessionId"], "message": "read only-here.txt" });
    let (updates, _) = program.call(3, "session/message", &read);
    assert!(updates.iter().any(|frame| frame.to_string().contains("found it")), "{updates:?}");
    assert_eq!(program.close().0, Some(0));
}

/// Z8: the project's words win where it may say something, and neither file makes Ropewalk looser.
#[test]
fn differs_settings_for_codex_are_below_our_own_and_never_loosen() {
    let world = World::new();
    let home = world.file(
        ".codex/config.toml",
        "model = \"offline:terse\"\nsandbox_mode = \"read-only\"\napproval_policy = \"on-request\"\n[tui]\ntheme = 1\n",
    );
    let named = |file: &Path| file.canonicalize().unwrap().display().to_string();
    assert_eq!(world.shown("model", &[], &[]), text("offline:terse", "file", &home));
    assert_eq!(world.shown("sandbox", &[], &[]), text("read-only", "file", &home));
    let project =
        world.file("work/.codex/config.toml", "model = \"offline:plain\"\napproval_policy = \"untrusted\"\n");
    assert_eq!(world.shown("model", &[], &[]), text("offline:terse", "file", &home), "the person's choice");
    assert_eq!(world.shown("approval", &[], &[]), text("suggest", "file", named(&project)));
    let mut program = world.serve(&[], &[]);
    let (hello, new) = begin(&mut program);
    assert_eq!(hello["_meta"]["sandbox"]["mode"], "read-only");
    assert_eq!(
        (option(&new, "model"), option(&new, "approval")),
        (&json!("offline:terse"), &json!("suggest"))
    );
    assert_eq!(program.close().0, Some(0));

    let variable = [("ROPEWALK_SANDBOX", "workspace-write")];
    assert_eq!(
        world.shown("sandbox", &[], &variable),
        text("workspace-write", "variable", "ROPEWALK_SANDBOX")
    );
    let own =
        world.settings("sandbox = \"workspace-write\"\napproval = \"strict\"\nmodel = \"offline:terse\"\n");
    for (name, value) in [("sandbox", "workspace-write"), ("approval", "strict"), ("model", "offline:terse")]
    {
        assert_eq!(world.shown(name, &[], &[]), text(value, "file", &own), "{name}");
    }

    for file in [&home, &project] {
        fs::write(file, "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"\n").unwrap();
    }
    world.settings("");
    assert_eq!(world.shown("sandbox", &[], &[]), text("workspace-write", "default", ""));
    assert_eq!(world.shown("approval", &[], &[]), text("auto", "default", ""));
    let (_, _, err) = world.run(&["config", "show"], &[]);
    assert_eq!(err.matches("can only make Ropewalk stricter").count(), 4, "{err}");
}

/// Z8: a project may narrow the sessions that work in it.
#[test]
fn a_projects_settings_for_codex_narrow_its_sessions() {
    let world = World::new();
    world.file("work/.codex/config.toml", "sandbox_mode = \"read-only\"\n");
    let (_, out, err) = world.run(&["run", "--json", "write a.txt: no"], &[]);
    assert!(!world.path("work/a.txt").exists(), "{out}\n{err}");
    fs::remove_dir_all(world.path("work/.codex")).unwrap();
    let (code, out, err) = world.run(&["run", "--json", "write a.txt: yes"], &[]);
    assert!(code == 0 && world.path("work/a.txt").exists(), "{out}\n{err}");
}

/// Z8: a malformed file is told of; `--config` is read in place of all of them.
#[test]
fn a_malformed_file_for_codex_is_a_warning_and_config_replaces_all_of_them() {
    let world = World::new();
    world.file(".codex/config.toml", "model = ");
    world.file("work/.codex/config.toml", "approval_policy = \"untrusted\"\n");
    world.settings("approval = \"strict\"\n");
    let (code, _, err) = world.run(&["run", "hello"], &[]);
    assert!(code == 0 && err.contains("ignoring ") && err.contains(".codex/config.toml: "), "{err}");
    let other = world.file("other.toml", "[acp]\nmax_sessions = 2\n");
    let chosen = ["--config", other.to_str().unwrap()];
    assert_eq!(world.shown("acp.max_sessions", &chosen, &[]), number(2, "file", chosen[1]));
    assert_eq!(world.shown("approval", &chosen, &[]), text("auto", "default", ""));
    let (code, _, err) = world.run(&["run", "--config", chosen[1], "hello"], &[]);
    assert!(code == 0 && !err.contains(".codex"), "{err}");
    let (code, _, err) = world.run(&["config", "show", "--config", "missing.toml"], &[]);
    assert!(code == 2 && err.contains("missing.toml"), "{err}");
}

/// Z8, seed 002: where a bridge leads to comes from the home's file alone, below our own settings and the command line,
/// and a token in either file is not used.
#[test]
fn differs_a_bridges_address_comes_from_the_homes_file_and_never_from_a_projects() {
    let world = World::new();
    let token = [("ROPEWALK_BRIDGE_TOKEN", "a-token-that-is-long-enough")];
    let bridged = |arguments: &[&str]| {
        let all: Vec<&str> = ["bridge"].iter().chain(arguments).copied().collect();
        let (code, _, err) = world.run(&all, &token);
        assert_eq!(code, 2, "{err}");
        err
    };
    let nowhere = bridged(&[]);
    let bridge = |url: &str| format!("[bridge]\nremote_url = \"{url}\"\nauth_token = \"hush\"\n");
    world.file("work/.codex/config.toml", &bridge("http://project.invalid"));
    assert_eq!(bridged(&[]), nowhere, "a project's file changes nothing");
    // Plain http is refused by its address, before anybody is called.
    world.file(".codex/config.toml", &bridge("http://home.invalid"));
    assert!(bridged(&[]).contains("http://home.invalid"), "{}", bridged(&[]));
    let home = world.path(".codex/config.toml");
    assert_eq!(world.shown("bridge.remote_url", &[], &[]), text("http://home.invalid", "file", home));
    assert_eq!(world.shown("bridge.replay_window", &[], &[]), number(50, "default", ""));
    let flags = ["--bridge", "https://hub.example.com", "--replay-window", "9"];
    let nine = world.shown("bridge.replay_window", &flags, &[]);
    assert_eq!(nine, number(9, "flag", "--replay-window"));
    let warned = world.run(&["config", "show"], &[]).2;
    assert!(warned.contains("a project cannot choose your hub"), "{warned}");
    assert!(
        warned.contains("because such files get copied and shared") && !warned.contains("hush"),
        "{warned}"
    );
    world.settings("[bridge]\nremote_url = \"http://own.invalid\"\n");
    assert!(bridged(&[]).contains("http://own.invalid"));
    assert!(bridged(&["--remote-url", "http://said.invalid"]).contains("http://said.invalid"));
}

/// Z10.
#[test]
fn a_profile_goes_before_the_rest_of_the_settings() {
    let world = World::new();
    let file = world.settings("approval = \"auto\"\nsandbox = \"read-only\"\n[profiles.careful]\napproval = \"strict\"\n[profiles.careful.acp]\nmax_sessions = 2\n");
    let careful = ["--profile", "careful"];
    assert_eq!(world.shown("approval", &[], &[]), text("auto", "file", &file));
    assert_eq!(world.shown("approval", &careful, &[]), text("strict", "profile", "careful"));
    assert_eq!(world.shown("sandbox", &careful, &[]), text("read-only", "file", &file));
    assert_eq!(world.shown("acp.max_sessions", &careful, &[]), number(2, "profile", "careful"));
    let mut program = world.serve(&careful, &[]);
    assert_eq!(option(&begin(&mut program).1, "approval"), "strict");
    assert_eq!(program.close().0, Some(0));
    let (code, _, err) = world.run(&["run", "--profile", "wild", "hello"], &[]);
    assert!(code == 2 && err.contains("\"wild\"") && err.contains("one of careful"), "{err}");
}

/// Z11: the rules and the kept copies of files are where chimera's variables say.
#[test]
fn chimeras_variables_move_its_rules_and_the_copies_for_undo() {
    let world = World::new();
    let rules = world.file("elsewhere/permissions.json", "{}");
    let other = world.file("home-of-chimera/permissions.json", "{}");
    let listed = |name: &str, value: &str| world.run(&["permissions", "list", "--json"], &[(name, value)]).1;
    assert!(listed("CHIMERA_PERMISSIONS_FILE", rules.to_str().unwrap()).contains(rules.to_str().unwrap()));
    let home = other.parent().unwrap().to_str().unwrap();
    assert!(listed("CHIMERA_HOME", home).contains(other.to_str().unwrap()));
    let root = world.path("snapshots");
    let moved = [("CHIMERA_SNAPSHOT_ROOT", root.to_str().unwrap())];
    world.file("work/a.txt", "before\n");
    let (code, out, err) = world.run(&["run", "--json", "write a.txt: after"], &moved);
    assert_eq!(code, 0, "{err}");
    assert!(root.join("ropewalk").is_dir(), "{out}");
    assert!(!world.path(".local/state/ropewalk/undo").exists(), "nowhere else");
}

/// Z12: how the answer is printed, and how the program ends: done 0, wrong usage 2, a turn that did not succeed 1.
/// Interrupted, 130, is `an_interrupted_turn_ends_properly` in `cli.rs`.
#[test]
fn a_run_prints_text_an_object_or_a_line_per_event_and_ends_with_the_right_code() {
    let world = World::new();
    let (code, out, _) = world.run(&["run", "--format", "text", "hello"], &[]);
    assert!(code == 0 && serde_json::from_str::<Value>(&out).is_err() && !out.is_empty());
    let (code, out, _) = world.run(&["run", "--format", "json", "hello"], &[]);
    assert!(code == 0 && serde_json::from_str::<Value>(&out).unwrap().is_object());
    let (code, out, _) = world.run(&["run", "--format", "stream-json", "hello"], &[]);
    assert!(code == 0 && out.lines().count() > 1);
    assert!(out.lines().all(|line| serde_json::from_str::<Value>(line).unwrap().is_object()));
    assert_eq!(world.run(&["run", "--format", "smoke", "hello"], &[]).0, 2);
    let (code, _, err) = world.run(&["run", "--agent", "odd", "hello"], &[]);
    assert_eq!(code, 5, "no such agent: {err}");
    world.settings("[agents.odd]\ncommand = \"/bin/false\"\n");
    let (code, _, err) = world.run(&["run", "--agent", "odd", "hello"], &[]);
    assert_eq!(code, 1, "it ends before it answers: {err}");
}

/// Z11: no colours where nobody wants them, not even on a terminal.
#[test]
fn no_colour_means_no_colour() {
    let world = World::new();
    let (_, _, err) =
        world.run(&["run", "--sandbox", "off", "hello"], &[("NO_COLOR", "1"), ("TERM", "xterm")]);
    assert!(err.contains("the sandbox is off") && !err.contains('\u{1b}'), "{err}");
}

/// The JSON between the first brace and the last of what `editors` prints.
fn snippet(world: &World, editor: &str) -> Value {
    let (code, out, _) = world.run(&["editors", editor], &[]);
    assert_eq!(code, 0);
    let (_, rest) = out.split_once("\n\n").unwrap();
    let rest = rest.trim();
    let whole = if rest.starts_with('{') { rest.to_owned() } else { format!("{{{rest}}}") };
    serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{error}: {whole}"))
}

/// Z14, Z15: what is printed for an editor starts a server that the editor can talk to.
#[test]
fn the_recipes_for_editors_start_a_server_that_answers_an_official_client() {
    let world = World::new();
    for (editor, place) in
        [("zed", "agent_servers"), ("jetbrains", "agent_servers"), ("vscode", "acp.agents")]
    {
        let recipe = &snippet(&world, editor)[place]["Ropewalk"];
        let program = Path::new(recipe["command"].as_str().unwrap());
        let arguments: Vec<&str> =
            recipe["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect();
        let mut started = Program::run(&world.home, command(program, &world.home, &arguments));
        let abilities = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": abilities, "clientInfo": { "name": editor, "version": "1" } });
        let (_, answer) = started.call(1, "initialize", &hello);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{editor}: {answer}");
        let work = world.path("work").canonicalize().unwrap();
        let (_, new) = started.call(2, "session/new", &json!({ "cwd": work, "mcpServers": [] }));
        let prompt = json!({ "sessionId": new["result"]["sessionId"], "prompt": [{ "type": "text", "text": "hello" }] });
        let (updates, ended) = started.call(3, "session/prompt", &prompt);
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{editor}");
        assert!(
            updates.iter().any(|frame| frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
        );
        assert_eq!(started.close().0, Some(0), "{editor}");
    }
}
