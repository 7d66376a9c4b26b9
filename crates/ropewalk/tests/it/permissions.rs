//! `ropewalk permissions` as a person or a script calls it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::command_output::CommandOutput;
use crate::work_folder::WorkFolder;

#[derive(Default)]
struct World(WorkFolder);

impl World {
    fn file(&self) -> PathBuf {
        self.0.path(".config/ropewalk/permissions.toml")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command
            .env_clear()
            .env("HOME", self.0.path(""))
            .env("PATH", "/usr/bin:/bin")
            .env("ROPEWALK_OFFLINE", "1");
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(arguments).spawn().unwrap())
    }

    fn permissions(&self, arguments: &[&str]) -> CommandOutput {
        self.run(&[&["permissions"], arguments].concat())
    }

    /// The text with the test's folder left out.
    fn plain(&self, text: &str) -> String {
        text.replace(self.0.path("").to_str().unwrap().trim_end_matches('/'), "")
    }

    fn rules(&self) -> Vec<String> {
        let listed = self.permissions(&["list", "--json"]).with(0).json();
        assert_eq!(listed["sources"][0]["warnings"], Value::Array(Vec::new()));
        let rules = listed["sources"][0]["rules"].as_array().unwrap();
        rules.iter().map(|rule| rule["rule"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn rules_are_listed_added_and_removed() {
    let world = World::default();
    let added = world.permissions(&["add", "allow", "shell(cargo test:*)"]).with(0);
    assert_eq!(
        world.plain(&added.out),
        "shell(cargo test:*) is now set to allow.\n/.config/ropewalk/permissions.toml\n"
    );
    world.permissions(&["add", "deny", "read(.env)", "--here"]).with(0);
    world.permissions(&["add", "ask", "shell(make deploy:*)", "--project-file"]).with(0);
    world.permissions(&["add", "deny", "Bash(cargo test:*)"]).with(0);
    let listed = world.permissions(&["list"]).with(0);
    expect_test::expect![[r#"
        Your rules: /.config/ropewalk/permissions.toml
          deny   Bash(cargo test:*)
          deny   read(.env)  in /project
        This project's rules, which can only restrict: /project/.ropewalk/permissions.toml
          ask    shell(make deploy:*)
    "#]]
    .assert_eq(&world.plain(&listed.out));
    assert_eq!(listed.err, "");
    assert_eq!(fs::metadata(world.file()).unwrap().mode() & 0o777, 0o600);
    world.permissions(&["remove", "read(.env)"]).with(0);
    world.permissions(&["remove", "shell(cargo test:*)"]).with(0);
    world.permissions(&["remove", "shell(cargo test:*)"]).with(1);
    assert_eq!(world.rules(), Vec::<String>::new());
}

#[test]
fn what_is_wrong_is_said_with_what_to_write() {
    let world = World::default();
    let bad = world.permissions(&["add", "allow", "shell(ls"]).with(2);
    assert!(bad.err.contains("the bracket is not closed; write shell(..) or shell"), "{}", bad.err);
    let widening = world.permissions(&["add", "allow", "shell(ls)", "--project-file", "--json"]).with(2);
    assert_eq!(widening.json()["error"]["code"], "usage");
    assert!(!world.0.path("project/.ropewalk").exists());
    world.permissions(&["why", "shell", "ls", "--approval", "sometimes"]).with(2);
    fs::create_dir_all(world.file().parent().unwrap()).unwrap();
    fs::write(world.file(), "allow = [").unwrap();
    let listed = world.permissions(&["list"]).with(0);
    assert!(listed.err.contains("line 1 is not TOML"), "{}", listed.err);
    let refused = world.permissions(&["add", "deny", "shell"]).with(1);
    assert!(refused.err.contains("fix it first"), "{}", refused.err);
    assert_eq!(fs::read_to_string(world.file()).unwrap(), "allow = [");
}

#[test]
fn a_wish_is_explained_in_words() {
    let world = World::default();
    world.permissions(&["add", "allow", "shell(git status:*)"]).with(0);
    world.permissions(&["add", "deny", "shell(git push --force:*)"]).with(0);
    world.permissions(&["add", "ask", "shell(git push:*)", "--project-file"]).with(0);
    let mut told = String::new();
    for arguments in [
        ["why", "shell", "git status -s", "--approval", "suggest"],
        ["why", "Bash", "cd x && git -C y push --force", "--approval", "full"],
        ["why", "shell", "git push", "--approval", "full"],
        ["why", "edit", "src/a.rs", "--approval", "auto"],
        ["why", "edit", "src/a.rs", "--approval", "read-only"],
    ] {
        told.push_str(&world.plain(&world.permissions(&arguments).with(0).out));
    }
    expect_test::expect![[r#"
        shell: git status -s
          folder:  /project
          risk:    low, only reads: git status -s
          preset:  suggest: it needs permission; if nobody can be asked, it is refused
          rules:   allow shell(git status:*) (~/.config/ropewalk/permissions.toml line 4)
        Result: it runs without asking: allowed by the rule shell(git status:*) (~/.config/ropewalk/permissions.toml line 4).
        shell: cd x && git -C y push --force
          folder:  /project
          risk:    high, overwrites what others may have on the server: git -C y push --force
          preset:  full: it runs without asking: approval is set to full
          rules:   deny shell(git push --force:*) (~/.config/ropewalk/permissions.toml line 5)
                   ask shell(git push:*) (~/project/.ropewalk/permissions.toml line 4)
        Result: it is refused by the rule shell(git push --force:*) (~/.config/ropewalk/permissions.toml line 5).
        shell: git push
          folder:  /project
          risk:    medium, sends commits to a server: git push
          preset:  full: it runs without asking: approval is set to full
          rules:   ask shell(git push:*) (~/project/.ropewalk/permissions.toml line 4)
        Result: it needs permission; if nobody can be asked, it is refused.
        edit: /project/src/a.rs
          folder:  /project
          risk:    medium, changes a file
          preset:  auto: it runs without asking: edits inside the workspace are allowed
          rules:   none match
        Result: it runs without asking: edits inside the workspace are allowed.
        edit: /project/src/a.rs
          folder:  /project
          risk:    medium, changes a file
          preset:  read-only: it is refused: approval is set to read-only: only reading is allowed
          rules:   none match
        Result: it is refused: approval is set to read-only: only reading is allowed.
    "#]].assert_eq(&told);
    let json = world.permissions(&["why", "shell", "git push --force", "--json"]).with(0).json();
    assert_eq!((json["ruling"].as_str(), json["rules"][0]["effect"].as_str()), (Some("deny"), Some("deny")));
}

/// G4, G5: what a rule allows needs nobody to ask, whoever wrote it.
#[test]
fn a_rule_is_enough_where_nobody_can_be_asked() {
    let world = World::default();
    let made = |name: &str| world.0.path("project").join(name).exists();
    world.run(&["run", "run touch a.txt"]).with(0);
    assert!(!made("a.txt"));
    world.permissions(&["add", "allow", "shell(touch a.txt)", "--here"]).with(0);
    world.run(&["run", "run touch a.txt"]).with(0);
    assert!(made("a.txt"));
    let zeph = world.0.path(".config/zeph/acp-permissions.toml");
    fs::create_dir_all(zeph.parent().unwrap()).unwrap();
    fs::write(&zeph, "[tools.bash.patterns]\ntouch = \"allow\"\n").unwrap();
    fs::set_permissions(&zeph, fs::Permissions::from_mode(0o600)).unwrap();
    world.run(&["run", "run touch b.txt"]).with(0);
    assert!(made("b.txt"));
    world.permissions(&["add", "deny", "shell(touch:*)"]).with(0);
    world.run(&["run", "--approval", "full", "run touch c.txt"]).with(0);
    assert!(!made("c.txt"));
}

/// G6: a writer that is killed leaves the file as it was or as it should be.
#[test]
fn a_kill_while_writing_never_leaves_half_a_file() {
    let world = World::default();
    world.permissions(&["add", "deny", "read(first)"]).with(0);
    for round in 0..30_u64 {
        let rule = format!("read(file-{round})");
        let mut child = world.command(&["permissions", "add", "deny", &rule]).spawn().unwrap();
        // Every round ends it a little later, from before it has begun to after it is done.
        std::thread::sleep(Duration::from_millis(round));
        child.kill().unwrap();
        child.wait().unwrap();
        let rules = world.rules();
        assert!(rules.iter().any(|rule| rule == "read(first)"), "{rules:?}");
    }
    world.permissions(&["add", "deny", "read(last)"]).with(0);
    let left: Vec<_> = fs::read_dir(world.file().parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing but the file is left: {left:?}");
    assert_eq!(fs::metadata(world.file()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn two_programs_that_add_rules_at_once_lose_none() {
    let world = World::default();
    let add = |name: &str, nth: usize| {
        world.command(&["permissions", "add", "ask", &format!("read({name}-{nth})")]).spawn().unwrap()
    };
    for nth in 0..10 {
        for mut child in [add("a", nth), add("b", nth)] {
            assert!(child.wait().unwrap().success());
        }
    }
    assert_eq!(world.rules().len(), 20);
}

#[test]
fn the_file_is_where_the_environment_says() {
    let world = World::default();
    for (name, value, file) in [
        ("ROPEWALK_PERMISSIONS", "own/rules.toml", "own/rules.toml"),
        ("ROPEWALK_HOME", "moved", "moved/permissions.toml"),
        ("XDG_CONFIG_HOME", "xdg", "xdg/ropewalk/permissions.toml"),
    ] {
        let mut command = world.command(&["permissions", "add", "deny", "shell"]);
        assert!(command.env(name, world.0.path(value)).output().unwrap().status.success());
        assert!(Path::exists(&world.0.path(file)), "{name}");
    }
}

#[test]
fn every_changed_rule_is_in_the_audit() {
    let world = World::default();
    world.permissions(&["add", "deny", "shell(git push:*)"]).with(0);
    world.permissions(&["add", "deny", "shell(git push:*)"]).with(0);
    world.permissions(&["remove", "shell(git push:*)"]).with(0);
    let unattended = world.run(&["run", "/permissions add allow shell(make all)"]).with(0);
    assert!(unattended.out.contains("nothing was changed"), "{}", unattended.out);
    world.permissions(&["add", "allow", "shell(make all)", "--here"]).with(0);
    let rows = world.run(&["audit", "query", "--type", "rule.", "--json"]).with(0).json();
    let told: Vec<_> = rows["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{} {} {}", row["event_type"], row["resource_id"], row["details"]["effect"]))
        .collect();
    let expected = [
        r#""rule.added" "shell(git push:*)" "deny""#,
        r#""rule.removed" "shell(git push:*)" null"#,
        r#""rule.added" "shell(make all)" "allow""#,
    ];
    assert_eq!(told, expected, "{rows}");
    world.run(&["audit", "verify"]).with(0);
}
