//! `file_edit`: "structured diff for in-place apply". The judge is git.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::seeds::program::{Program, home};

/// What `git apply` says of a diff in a folder.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "git is the one who judges")]
fn apply(folder: &Path, arguments: &[&str], diff: &str) {
    let mut command = Command::new("git");
    command.arg("apply").args(arguments).arg("--whitespace=nowarn").current_dir(folder);
    // What is above the folder is no repository for it.
    command.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap()).env_remove("GIT_DIR");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut git = pipes.spawn().unwrap();
    git.stdin.take().unwrap().write_all(diff.as_bytes()).unwrap();
    let output = git.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{diff}", String::from_utf8_lossy(&output.stderr));
}

/// The files of a folder and what is in them.
fn files(folder: &Path) -> Vec<(String, String)> {
    let named = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = files.filter(|entry| entry.path().is_file()).map(named).collect();
    files.sort();
    files
}

fn diffs(updates: &[Value]) -> Vec<String> {
    let edits = updates.iter().map(|update| &update["params"]).filter(|edit| edit["kind"] == "file_edit");
    edits.map(|edit| edit["diff"].as_str().unwrap().to_owned()).collect()
}

/// Applied one after the other to a copy of the project as it was, they make it what it is; backwards, they check in
/// the project itself.
#[test]
fn gits_apply_takes_every_diff_of_a_file_edit() {
    let home = home();
    let (work, copy) = (home.path().join("work"), home.path().join("copy"));
    fs::create_dir(&copy).unwrap();
    for folder in [&work, &copy] {
        fs::create_dir(folder.join("src")).unwrap();
        fs::write(folder.join("bare.txt"), "one\ntwo").unwrap();
        fs::write(folder.join("a.txt"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    }
    let arguments = ["ferret", "serve", "--approval", "full"];
    let mut ferret = Program::named(&home, "chimera", &arguments);
    ferret.call(1, "initialize", &json!({}));
    let session = ferret.call(2, "session/new", &json!({})).1["result"]["sessionId"].clone();
    let told = [
        ("edit a.txt: 8=>eight", "a/a.txt"),
        ("write src/new.txt: one", "b/src/new.txt"),
        ("edit bare.txt: two=>three", "a/bare.txt"),
        ("edit bare.txt: one=>1", "a/bare.txt"),
        ("write größe mit blank.txt: x", "b/größe mit blank.txt"),
        ("edit größe mit blank.txt: x=>y", "a/größe mit blank.txt"),
        ("write gone.txt: here\nfor a while", "b/gone.txt"),
        // What was written goes again: the file was not there before.
        ("/undo", "a/gone.txt"),
    ];
    let mut all = Vec::new();
    for (number, (message, name)) in (3..).zip(told) {
        let params = json!({ "sessionId": session, "message": message });
        let (updates, said) = ferret.call(number, "session/message", &params);
        let [diff] = &diffs(&updates)[..] else { panic!("{message}: {updates:?} {said}") };
        assert!(diff.lines().take(2).any(|line| line.trim_end().ends_with(name)), "{diff}");
        apply(&work, &["--check", "--reverse"], diff);
        apply(&copy, &["--check"], diff);
        apply(&copy, &[], diff);
        all.push(diff.clone());
    }
    assert_eq!(files(&work), files(&copy));
    assert_eq!(files(&work.join("src")), files(&copy.join("src")));
    // The history has the same.
    let (history, _) = ferret.call(40, "session/load", &json!({ "sessionId": session }));
    assert_eq!(diffs(&history), all);
    assert_eq!(ferret.close().0, Some(0));
}
