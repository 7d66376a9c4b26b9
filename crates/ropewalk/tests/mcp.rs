//! `ropewalk mcp` as a person or a script calls it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ended;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::ended::Ended;

struct World {
    directory: TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("project/.ropewalk")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn settings(&self) -> String {
        fs::read_to_string(self.path(".config/ropewalk/config.toml")).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is what this starts")]
    fn mcp(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.arg("mcp").args(arguments).current_dir(self.path("project")).env_clear();
        command
            .env("HOME", self.path(""))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("WORD", "looked up");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ended::of(command.spawn().unwrap())
    }
}

/// X5.
#[test]
fn servers_are_added_listed_and_removed_and_the_rest_of_the_file_stays() {
    let world = World::new();
    let file = world.path(".config/ropewalk/config.toml");
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
        world.path("project/.ropewalk/config.toml"),
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
    assert!(!world.path(".config/ropewalk/config.toml").exists());
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
    assert!(world.path("project/looked up").exists());
    world.mcp(&["add", "bad", "--", "python3", script, "dies"]).with(0);
    world.mcp(&["add", "worse", "--", "no-such-program"]).with(0);
    let checked = world.mcp(&["check"]).with(1);
    for said in [
        "good  works, 11 tools",
        "bad  does not work: the program ended (exit status: 3): no licence",
        "worse  does not work: there is no program",
    ] {
        assert!(checked.out.contains(said), "{}", checked.out);
    }
    world.mcp(&["check", "good"]).with(0);
    world.mcp(&["check", "none"]).with(5);
}
