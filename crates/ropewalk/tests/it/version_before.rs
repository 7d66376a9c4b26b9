//! What people have from the version before: a store, settings, rules, an audit; and the flags, settings and metrics that
//! they know. `tests/states/make.sh` made it with the program of that version.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command_output::CommandOutput;
use crate::metrics::metric_names;
use crate::work_folder::WorkFolder;

/// What that version left, and the lists of what it knew.
fn before() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/states/2026-11-18")
}

fn lines(list: &str) -> Vec<String> {
    fs::read_to_string(before().join(list)).unwrap().lines().map(str::to_owned).collect()
}

/// A copy of the state, and a project to work in.
struct World(WorkFolder);

impl World {
    fn new() -> Self {
        let world = Self(WorkFolder::default());
        copy(&before().join("state"), &world.state());
        world
    }

    fn state(&self) -> PathBuf {
        self.0.path("state")
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.0.bare_command(arguments);
        CommandOutput::of(command.env("ROPEWALK_HOME", self.state()).spawn().unwrap())
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        self.run(arguments).with(0).json()
    }
}

/// With the rights that the program gives its files; a repository keeps none.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

#[test]
fn sessions_of_the_version_before_are_listed_shown_and_gone_on_with() {
    let world = World::new();
    let listed = world.json(&["sessions", "list", "--json"]);
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "the session and its fork: {listed}");
    for session in sessions {
        let id = session["id"].as_str().unwrap();
        assert_eq!(session["title"], "think of the walrus");
        assert_eq!(session["cwd"], "/srv/walrus");
        let shown = world.run(&["sessions", "show", id]).with(0).out;
        for said in ["think of the walrus", "notes.txt", "rm -rf notes.txt"] {
            assert!(shown.contains(said), "{said}: {shown}");
        }
    }
    let parent = sessions.iter().find(|session| session["parent_id"].is_null()).unwrap();
    let id = parent["id"].as_str().unwrap();
    let answer = world.run(&["run", "--resume", id, "what did I say?"]).with(0).out;
    assert!(answer.contains("walrus"), "{answer}");
    let exported = world.run(&["sessions", "export", id, "--format", "json"]).with(0).out;
    assert!(exported.contains("what did I say?"), "{exported}");
}

#[test]
fn the_audit_of_the_version_before_is_intact_and_goes_on() {
    let world = World::new();
    let rows = |world: &World| world.json(&["audit", "verify", "--json"])["rows"].as_u64().unwrap();
    let before = rows(&world);
    world.run(&["run", "list"]).with(0);
    assert!(rows(&world) > before, "{before}");
    let refused = world.json(&["audit", "show", "--json"]).to_string();
    assert!(refused.contains("rm -rf notes.txt"), "{refused}");
}

#[test]
fn rules_of_the_version_before_decide() {
    let world = World::new();
    let decided = |tool: &str, subject: &str| {
        let why = world.json(&["permissions", "why", tool, subject, "--json"]);
        why["ruling"].as_str().unwrap().to_owned()
    };
    assert_eq!(decided("read", ".env"), "deny");
    assert_eq!(decided("shell", "git push"), "ask");
    let listed = world.run(&["permissions", "list"]).with(0).out;
    assert!(listed.contains("shell(cargo test:*)") && listed.contains("/srv/walrus"), "{listed}");
}

#[test]
fn settings_of_the_version_before_hold() {
    let world = World::new();
    let shown = world.json(&["config", "show", "--json"]);
    let value = |name: &str| {
        let settings = shown["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["name"] == name).unwrap_or(&Value::Null)["value"].clone()
    };
    assert_eq!(value("approval_max"), "auto");
    assert_eq!(value("ask_timeout"), 30);
    assert_eq!(value("command_timeout"), 60);
    assert_eq!(value("acp.max_sessions"), 7);
    assert_eq!(value("acp.agent_name"), "walrus");
    assert_eq!(value("bridge.replay_window"), 40);
    assert_eq!(shown["warnings"], Value::Array(Vec::new()));
    for name in lines("settings.txt") {
        let rows = shown["settings"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["name"] == *name), "{name} is no setting any more");
    }
}

/// Whether its help shows it or not. One that is not known is refused before the help is shown.
#[test]
fn flags_of_the_version_before_are_taken() {
    let world = WorkFolder::default();
    let mut commands: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for line in lines("flags.txt") {
        let (flags, command): (Vec<_>, Vec<_>) =
            line.split(' ').map(str::to_owned).partition(|word| word.starts_with("--"));
        match commands.last_mut() {
            Some((last, known)) if *last == command => known.extend(flags),
            _ => commands.push((command, flags)),
        }
    }
    for (command, flags) in commands {
        let asked: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = CommandOutput::of(world.bare_command(&asked).spawn().unwrap()).with(0).out;
        // As the first words of a line: another option's description may name it, too.
        let shown = |flag: &str| {
            help.lines().any(|line| {
                line.split([' ', ',', '['])
                    .take_while(|word| !word.starts_with('<'))
                    .filter(|word| !word.is_empty())
                    .take(2)
                    .any(|word| word == flag)
            })
        };
        for flag in flags.iter().filter(|flag| !shown(flag)) {
            let hidden: Vec<&str> =
                command.iter().map(String::as_str).chain([flag.as_str(), "--help"]).collect();
            let tried = CommandOutput::of(world.bare_command(&hidden).spawn().unwrap());
            assert!(!tried.err.contains("unexpected argument"), "{command:?} {flag}: {}", tried.err);
        }
    }
}

#[test]
fn metrics_of_the_version_before_are_counted() {
    let names = metric_names();
    for name in lines("metrics.txt") {
        assert!(names.contains(&name), "{name} is no metric any more: {names:?}");
    }
}
