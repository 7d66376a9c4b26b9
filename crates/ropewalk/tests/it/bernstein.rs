//! The real binary as a Bernstein client starts it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// Runs the program in a folder of its own with this input, to its end.
#[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
fn run(home: &Path, arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(arguments)
        .env("ROPEWALK_HOME", home.join("state"))
        .envs(environment.iter().copied())
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(input.as_bytes()).unwrap();
    drop(pipe);
    child.wait_with_output().unwrap()
}

fn frames(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// A19, C26, C27.
#[test]
fn a_last_line_without_its_end_is_served_and_the_session_is_listed() {
    let home = tempfile::tempdir().unwrap();
    let first = request(1, "initialize", &json!({ "protocolVersion": "2025-04-01" }));
    let last = request(2, "prompt", &json!({ "prompt": "hello" }));
    let output = run(home.path(), &["serve", "--stdio"], &[], &format!("{first}\n{last}"));
    let frames = frames(&output);
    let opened = &frames.iter().find(|frame| frame["id"] == 2).unwrap()["result"];
    assert_eq!(opened["cwd"], json!(home.path().canonicalize().unwrap()), "the server's own folder");
    let output = run(home.path(), &["sessions", "list", "--json"], &[], "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let session = opened["sessionId"].as_str().unwrap();
    let listed: Value = serde_json::from_str(&text).unwrap();
    let listed = listed.as_array().or_else(|| listed["sessions"].as_array()).unwrap();
    let row = listed.iter().find(|row| row["id"] == session || row["session_id"] == session).unwrap();
    assert_eq!(row["source"], "acp", "{text}");
}

/// B7, Q13: what holds commands in here, and the agent that stands behind a session. Programs that are installed and not used
/// are not named (`differs_the_one_sandbox_is_our_own`, `differs_the_adapters_are_those_of_this_server`).
#[test]
fn the_handshake_lists_what_is_really_there() {
    let home = tempfile::tempdir().unwrap();
    let hello = request(1, "initialize", &json!({ "protocolVersion": "2025-04-01" }));
    let output = run(home.path(), &["serve", "--dialect", "bernstein"], &[], &hello);
    let frames = frames(&output);
    let said = &frames.first().unwrap()["result"];
    assert_eq!(said["adapters"], json!(["ropewalk"]));
    let doctor = run(home.path(), &["doctor", "--json"], &[], "");
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let names = if doctor["enforces_sandbox"] == true { json!(["namespaces"]) } else { json!([]) };
    assert_eq!(said["sandboxBackends"], names, "{doctor}");
}
