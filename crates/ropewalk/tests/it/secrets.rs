//! Secrets in the real binary: what is printed, stored and exported, and what commands can see.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::work_folder::WorkFolder;

const TOKEN: &str = "ghp_4fGh7Jk2Lm9Np3Qr5St8Uv1Wx6Yz0AbCdEfG";
/// Nothing about it looks like a secret but the name of its variable.
const KNOWN: &str = "correcthorsebattery";
/// The same as other programs write it: in base64 alone, behind `bob:` and behind `x:`, in hexadecimal digits, in an
/// address with all of it and with one letter escaped, in JSON.
const ENCODED: [&str; 7] = [
    "Y29ycmVjdGhvcnNlYmF0dGVyeQ==",
    "Ym9iOmNvcnJlY3Rob3JzZWJhdHRlcnk=",
    "eDpjb3JyZWN0aG9yc2ViYXR0ZXJ5",
    "636f7272656374686f72736562617474657279",
    "%63%6F%72%72%65%63%74%68%6F%72%73%65%62%61%74%74%65%72%79",
    "correct%68orsebattery",
    "correct\\u0068orsebattery",
];

/// A home of its own for each test, a folder to work in, and an environment full of dangers.
#[derive(Default)]
struct World(WorkFolder);

impl World {
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = self.0.command(arguments);
        command.env("ROPEWALK_HOME", self.0.home());
        command.env("DB_PASSWORD", KNOWN).env("GITHUB_TOKEN", TOKEN);
        command.env("LC_ALL", "C.UTF-8").env("NODE_OPTIONS", "--require ./evil.js").env("GIT_DIR", "/evil");
        command.env("SSH_AUTH_SOCK", "/evil").env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/evil");
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(status.success(), "{text}");
        text
    }
}

fn all_bytes(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        bytes.extend(if path.is_dir() { all_bytes(&path) } else { fs::read(path).unwrap() });
    }
    bytes
}

#[test]
fn a_secret_is_neither_printed_nor_stored_nor_exported() {
    let world = World::default();
    fs::write(world.0.project().join("keys"), format!("{TOKEN}\nthe {KNOWN} staple\npassword=hunter2\n"))
        .unwrap();
    let prompt = format!("read keys && then run cat keys && then write copy: {TOKEN}");
    for format in ["text", "json", "stream-json"] {
        let shown = world.run(&["run", "--approval", "full", "-v", "--format", format, &prompt]);
        assert!(shown.contains("[REDACTED]"), "{shown}");
        assert_clean(&shown);
    }
    // The tools worked with the secret itself.
    assert_eq!(fs::read_to_string(world.0.project().join("copy")).unwrap().trim_end(), TOKEN);
    let listed = world.run(&["sessions", "list", "--json"]);
    assert_clean(&listed);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    for arguments in [
        &["sessions", "show", "--full", id][..],
        &["sessions", "show", "--json", id],
        &["sessions", "export", "--format", "markdown", id],
        &["sessions", "export", "--format", "html", id],
        &["sessions", "export", "--format", "json", id],
        &["sessions", "export", "--format", "chimera", id],
    ] {
        let shown = world.run(arguments);
        assert!(shown.contains("[REDACTED]"), "{arguments:?}: {shown}");
        assert_clean(&shown);
    }
    // Undo keeps files as they were, to the byte, and is worth nothing otherwise.
    fs::remove_dir_all(world.0.home().join("undo")).unwrap();
    let stored = all_bytes(&world.0.home());
    assert_clean(&String::from_utf8_lossy(&stored));
}

#[test]
fn a_known_secret_is_not_shown_in_another_form_either() {
    let world = World::default();
    let lines = ENCODED.map(|form| format!("a {form} b\n"));
    fs::write(world.0.project().join("keys"), lines.concat()).unwrap();
    let said = ENCODED.join(" and ");
    // What is asked, what a file holds, what a command prints and what it is told, and the title of it all.
    let prompt =
        format!("read keys && then run cat keys && then run echo {} && then write copy: {said}", ENCODED[1]);
    for format in ["text", "json", "stream-json"] {
        let shown = world.run(&["run", "--approval", "full", "-v", "--format", format, &prompt]);
        assert!(shown.contains("[REDACTED]"), "{shown}");
        assert_clean(&shown);
    }
    assert_eq!(fs::read_to_string(world.0.project().join("copy")).unwrap().trim_end(), said);
    let listed = world.run(&["sessions", "list", "--json"]);
    assert_clean(&listed);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    for format in ["markdown", "html", "json", "chimera"] {
        assert_clean(&world.run(&["sessions", "export", "--format", format, id]));
    }
    assert_clean(&world.run(&["sessions", "show", "--full", id]));
    fs::remove_dir_all(world.0.home().join("undo")).unwrap();
    assert_clean(&String::from_utf8_lossy(&all_bytes(&world.0.home())));
}

#[track_caller]
fn assert_clean(text: &str) {
    for secret in [&TOKEN[4..], KNOWN, "hunter2"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    for form in ENCODED {
        // Inside of longer base64 up to three letters stay, and those of what stands before.
        let own = &form[form.len() / 2..form.len() - 4];
        assert!(!text.contains(own), "{form} in {text}");
    }
}

#[test]
fn commands_see_a_clean_environment() {
    let world = World::default();
    world.run(&["run", "--approval", "full", "run env > seen"]);
    let seen = fs::read_to_string(world.0.project().join("seen")).unwrap();
    let names: Vec<_> = seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    for name in ["PATH", "LC_ALL", "GIT_TERMINAL_PROMPT", "PAGER"] {
        assert!(names.contains(&name), "{name}: {seen}");
    }
    for name in [
        "DB_PASSWORD",
        "GITHUB_TOKEN",
        "NODE_OPTIONS",
        "GIT_DIR",
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "ROPEWALK_HOME",
    ] {
        assert!(!names.contains(&name), "{name}: {seen}");
    }
    assert!(seen.lines().any(|line| line == "TERM=dumb"), "{seen}");
}

#[test]
fn a_file_in_the_workspace_sets_none_of_our_variables() {
    let world = World::default();
    let evil = world.0.path("evil");
    for name in [".env", ".envrc", ".ropewalk.env"] {
        fs::write(world.0.project().join(name), format!("export ROPEWALK_HOME={}\n", evil.display()))
            .unwrap();
    }
    world.run(&["run", "hello"]);
    assert!(world.0.home().join("sessions.db").exists() && !evil.exists());
}
