use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

use super::super::peer::{Heard, Terms};
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn launch(folder: &TempDir, line: &str) -> Launch {
    Launch {
        name: "mock".into(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), line.into()],
        environment: vec![("PATH".into(), PATH.into())],
        folder: folder.path().to_owned(),
        fence: None,
        limits: Limits::default(),
        peer: PeerLimits::default(),
        notes: None,
    }
}

async fn ended(launch: Launch) -> ProcessEnd {
    let (mut process, _ears) = Process::start(launch, &TaskTracker::new()).await.unwrap();
    timeout(PATIENCE, process.ended()).await.unwrap()
}

/// AA2.
#[tokio::test]
async fn an_agent_has_only_the_environment_that_its_entry_allows() {
    let folder = tempfile::tempdir().unwrap();
    let ours = [("HOME", "/home/me"), ("PATH", PATH), ("GITHUB_TOKEN", "secret"), ("OPENAI_API_KEY", "key")];
    let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let set = [("MODE".to_owned(), "test".to_owned())];
    let environment = environment(ours, &["OPENAI_API_KEY".into()], &set);
    let print = Launch { program: "env".into(), arguments: Vec::new(), environment, ..launch(&folder, "") };
    let (mut process, mut ears) = Process::start(print, &TaskTracker::new()).await.unwrap();
    let mut lines = Vec::new();
    // `env` speaks no protocol: each of its lines is noise, and told.
    while let Heard::Noise { what, .. } = timeout(PATIENCE, ears.next()).await.unwrap() {
        lines.push(what.to_string().replace("a line is no message: ", ""));
    }
    lines.sort();
    let path = format!("PATH={PATH}");
    assert_eq!(lines, ["HOME=/home/me", "MODE=test", "OPENAI_API_KEY=key", &path]);
    assert_eq!(timeout(PATIENCE, process.ended()).await.unwrap().status.and_then(|s| s.code()), Some(0));
}

#[tokio::test]
async fn an_agent_is_asked_and_ends_when_its_input_does() {
    let folder = tempfile::tempdir().unwrap();
    let line = r#"while read line; do echo '{"jsonrpc":"2.0","id":1,"result":{"ok":true}}'; done; echo bye >&2; exit 4"#;
    let tasks = TaskTracker::new();
    let (process, mut ears) = Process::start(launch(&folder, line), &tasks).await.unwrap();
    let asked = process.peer().request("initialize", &json!({}), Terms::default());
    assert!(matches!(timeout(PATIENCE, ears.next()).await.unwrap(), Heard::Answered(_)));
    assert_eq!(timeout(PATIENCE, asked).await.unwrap().unwrap().get(), r#"{"ok":true}"#);
    let end = timeout(PATIENCE, process.end(PATIENCE)).await.unwrap();
    assert_eq!(end.to_string(), "mock ended with code 4: bye");
    assert!(matches!(timeout(PATIENCE, ears.next()).await.unwrap(), Heard::Ended(_)));
    tasks.close();
    timeout(PATIENCE, tasks.wait()).await.unwrap();
}

#[tokio::test]
async fn how_an_agent_ended_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let end = ended(launch(&folder, "echo one >&2; echo two >&2; exit 1")).await;
    assert_eq!(end.to_string(), "mock ended with code 1: one\ntwo");
    let end = ended(launch(&folder, "kill -9 $$")).await;
    assert_eq!(end.to_string(), "mock was ended (signal: 9 (SIGKILL))");
    let missing = Launch { program: "no-such-agent".into(), ..launch(&folder, "") };
    let error = Process::start(missing, &TaskTracker::new()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "mock could not be started: there is no program no-such-agent; install it, or name it by its whole path"
    );
    let nowhere = Launch { folder: folder.path().join("gone"), ..launch(&folder, "") };
    let error = Process::start(nowhere, &TaskTracker::new()).await.err().unwrap();
    assert!(error.to_string().contains("there is no such folder"), "{error}");
}

#[tokio::test]
async fn an_agent_that_does_not_want_to_end_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let line = "trap '' TERM; echo '{\"jsonrpc\":\"2.0\",\"method\":\"up\"}'; while :; do sleep 0.1; done";
    let (process, mut ears) = Process::start(launch(&folder, line), &TaskTracker::new()).await.unwrap();
    assert!(matches!(timeout(PATIENCE, ears.next()).await.unwrap(), Heard::Notification { .. }));
    let end = timeout(PATIENCE, process.end(Duration::from_millis(50))).await.unwrap();
    assert_eq!(end.to_string(), "mock was ended (signal: 9 (SIGKILL))");
}

#[tokio::test]
async fn a_flood_on_standard_error_neither_stops_the_agent_nor_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let end = ended(launch(&folder, "yes 0123456789 | head -n 300000 >&2; echo last >&2; exit 2")).await;
    assert!(end.to_string().ends_with("0123456789\nlast") && end.words.len() <= 4096, "{}", end.words.len());
}
