//! `ropewalk mcp` as a person or a script calls it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::command_output::CommandOutput;
use crate::work_folder::WorkFolder;

struct World(WorkFolder);

impl World {
    fn new() -> Self {
        let world = Self(WorkFolder::default());
        fs::create_dir(world.0.path("project/.ropewalk")).unwrap();
        world
    }

    fn settings(&self) -> String {
        fs::read_to_string(self.0.path(".config/ropewalk/config.toml")).unwrap()
    }

    fn mcp(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(arguments).spawn().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(&[&["mcp"], arguments].concat());
        command.env_clear().env("HOME", self.0.path(""));
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("WORD", "looked up");
        command
    }

    /// What a server of ours answers to these lines.
    fn served(&self, arguments: &[&str], lines: &[Value]) -> Vec<Value> {
        let all: Vec<&str> = std::iter::once("serve").chain(arguments.iter().copied()).collect();
        let mut child = self.command(&all).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        for line in lines {
            match line {
                Value::String(raw) => writeln!(input, "{raw}").unwrap(),
                line => writeln!(input, "{line}").unwrap(),
            }
        }
        drop(input);
        let ended = CommandOutput::of(child).with(0);
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// X5: the official client (ours uses it) is content with our server.
#[test]
fn a_server_of_ours_brings_the_tools_that_look() {
    let world = World::new();
    world.mcp(&["add", "own", "--", env!("CARGO_BIN_EXE_ropewalk"), "mcp", "serve"]).with(0);
    let checked = world.mcp(&["check", "--json"]).with(0);
    for tool in ["read", "list", "glob", "search"] {
        assert!(checked.out.contains(&format!("mcp__own__{tool}")), "{tool}: {}", checked.out);
    }
    for tool in ["write", "edit", "shell", "task"] {
        assert!(!checked.out.contains(&format!("mcp__own__{tool}\"")), "{tool}: {}", checked.out);
    }
}

/// X5.
#[test]
fn what_a_server_of_ours_shows_is_what_the_guard_lets_through() {
    let world = World::new();
    fs::write(world.0.path("project/a.txt"), "one\ntwo\n").unwrap();
    fs::write(world.0.path("secret.txt"), "hush").unwrap();
    let rules = world.0.path(".config/ropewalk/permissions.toml");
    fs::create_dir_all(rules.parent().unwrap()).unwrap();
    fs::write(world.0.path("project/denied.txt"), "denied").unwrap();
    fs::write(rules, "deny = [\"read(denied.txt)\"]\n").unwrap();
    let call = |id: u32, name: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let answers = world.served(
        &[],
        &[
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}),
            call(1, "read", json!({"path": "a.txt"})),
            call(2, "read", json!({"path": "../secret.txt"})),
            call(3, "write", json!({"path": "b.txt", "text": "x"})),
            call(4, "search", json!({"text": "two"})),
            call(5, "read", json!({"path": "denied.txt"})),
            call(6, "read", json!({"no": "path"})),
            json!({"jsonrpc": "2.0", "id": 7, "method": "resources/list"}),
            json!("not json"),
            json!({"jsonrpc": "2.0", "id": 8}),
        ],
    );
    let by_id = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    let text = |id: u32| by_id(json!(id))["result"]["content"][0]["text"].as_str().unwrap();
    let failed = |id: u32| by_id(json!(id))["result"]["isError"].as_bool().unwrap();
    assert_eq!(answers.len(), 11, "{answers:?}");
    let hello = &by_id(json!(0))["result"];
    assert_eq!(
        (&hello["protocolVersion"], &hello["serverInfo"]["name"]),
        (&json!("2025-03-26"), &json!("ropewalk"))
    );
    assert_eq!(by_id(json!("p"))["result"], json!({}));
    assert!(!failed(1) && text(1).contains("two"), "{}", text(1));
    assert!(
        failed(2) && text(2).contains("outside the workspace") && !text(2).contains("hush"),
        "{}",
        text(2)
    );
    assert_eq!(by_id(json!(3))["error"]["code"], -32602);
    assert!(!failed(4) && text(4).contains("a.txt"), "{}", text(4));
    assert!(failed(5) && !text(5).contains("denied\n"), "{}", text(5));
    assert!(failed(6), "{}", text(6));
    assert_eq!(by_id(json!(7))["error"]["code"], -32601);
    assert_eq!(by_id(json!(8))["error"]["code"], -32600);
    assert!(!world.0.path("project/b.txt").exists());
    assert!(answers.iter().any(|answer| answer["error"]["code"] == -32700), "{answers:?}");
}

/// X5.
#[test]
fn servers_are_added_listed_and_removed_and_the_rest_of_the_file_stays() {
    let world = World::new();
    let file = world.0.path(".config/ropewalk/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "# mine\napproval = \"suggest\"\n").unwrap();
    world.mcp(&["add", "time", "-e", "KEY=hush", "--", "uvx", "mcp-server-time", "--local"]).with(0);
    let url = "https://example.org/mcp";
    world.mcp(&["add", "docs", "--url", url, "--header", "Authorization: Bearer ${TOKEN}"]).with(0);
    expect_test::expect![[r#"
        # mine
        approval = "suggest"

        [mcp.servers.time]
        command = "uvx"
        args = ["mcp-server-time", "--local"]
        env = { KEY = "hush" }

        [mcp.servers.docs]
        url = "https://example.org/mcp"
        headers = { Authorization = "Bearer ${TOKEN}" }
    "#]]
    .assert_eq(&world.settings());
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    fs::write(
        world.0.path("project/.ropewalk/config.toml"),
        "[mcp.servers.theirs]\ncommand = \"./tool\"\nargs = [\"a b\"]\n",
    )
    .unwrap();
    let listed = world.mcp(&["list", "--json"]).with(0).json();
    let entry = |name: &str, from: &str, server: &str| json!({ "name": name, "from": from, "enabled": true, "server": server });
    let expected = json!({ "servers": [
        entry("time", "user", "uvx mcp-server-time --local"),
        entry("docs", "user", url),
        entry("theirs", "project", "./tool \"a b\""),
    ] });
    assert_eq!(listed, expected);
    world.mcp(&["remove", "time"]).with(0);
    world.mcp(&["remove", "time"]).with(5);
    world.mcp(&["remove", "theirs"]).with(5);
    assert!(!world.settings().contains("time") && world.settings().contains("docs"));
}

/// X5.
#[test]
fn what_cannot_be_a_server_is_refused_and_nothing_is_written() {
    let world = World::new();
    for wrong in [
        &["add", "x"][..],
        &["add", "x/y", "--", "cmd"],
        &["add", "", "--", "cmd"],
        &["add", "x", "--url", "http://a", "--", "cmd"],
        &["add", "x", "-e", "KEY", "--", "cmd"],
        &["add", "x", "--url", "http://a", "--header", "no colon"],
    ] {
        world.mcp(wrong).with(2);
    }
    assert!(!world.0.path(".config/ropewalk/config.toml").exists());
}

/// X5.
#[test]
fn check_starts_the_servers_and_says_what_they_bring_or_why_not() {
    let world = World::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/it/servers/server.py");
    world.mcp(&["add", "good", "--", "python3", script, "all", "${WORD:-x}"]).with(0);
    let checked = world.mcp(&["check", "--json"]).with(0).json();
    assert_eq!(
        (&checked["servers"][0]["ok"], &checked["servers"][0]["tools"][0]),
        (&json!(true), &json!("mcp__good__echo"))
    );
    // The variable was looked up: the server's notes are in a file of that name.
    assert!(world.0.path("project/looked up").exists());
    world.mcp(&["add", "bad", "--", "python3", script, "dies"]).with(0);
    world.mcp(&["add", "worse", "--", "no-such-program"]).with(0);
    let checked = world.mcp(&["check"]).with(1);
    for said in [
        "good  ok, 11 tools",
        "bad  failed: the program ended (exit status: 3): no licence",
        "worse  failed: program no-such-program not found",
    ] {
        assert!(checked.out.contains(said), "{}", checked.out);
    }
    world.mcp(&["check", "good"]).with(0);
    world.mcp(&["check", "none"]).with(5);
}
