use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

use super::super::connection::{AgentMessage, RequestOptions};
use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn launch(folder: &TempDir, line: &str) -> LaunchSpec {
    LaunchSpec {
        name: "mock".into(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), line.into()],
        environment: vec![("PATH".into(), PATH.into())],
        folder: folder.path().to_owned(),
        fence: None,
        limits: CommandLimits::default(),
        connection: ConnectionLimits::default(),
        notes: None,
    }
}

async fn ended(launch: LaunchSpec) -> ProcessEnd {
    let (mut process, _receiver) = ChildProcess::start(launch, &TaskTracker::new()).await.unwrap();
    timeout(TEST_TIMEOUT, process.ended()).await.unwrap()
}

/// AA2.
#[tokio::test]
async fn an_agent_has_only_the_environment_that_its_entry_allows() {
    let folder = tempfile::tempdir().unwrap();
    let ours = [("HOME", "/home/me"), ("PATH", PATH), ("GITHUB_TOKEN", "secret"), ("OPENAI_API_KEY", "key")];
    let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let set = [("MODE".to_owned(), "test".to_owned())];
    let environment = environment(ours, &["OPENAI_API_KEY".into()], &set);
    let print =
        LaunchSpec { program: "env".into(), arguments: Vec::new(), environment, ..launch(&folder, "") };
    let (mut process, mut receiver) = ChildProcess::start(print, &TaskTracker::new()).await.unwrap();
    let mut lines = Vec::new();
    // `env` speaks no protocol: each of its lines is noise, and told.
    while let AgentMessage::InvalidOutput { what, .. } = timeout(TEST_TIMEOUT, receiver.next()).await.unwrap()
    {
        lines.push(what.to_string().replace("a line is not a message: ", ""));
    }
    lines.sort();
    let path = format!("PATH={PATH}");
    assert_eq!(lines, ["HOME=/home/me", "MODE=test", "OPENAI_API_KEY=key", &path]);
    assert_eq!(timeout(TEST_TIMEOUT, process.ended()).await.unwrap().status.and_then(|s| s.code()), Some(0));
}

#[tokio::test]
async fn an_agent_is_asked_and_ends_when_its_input_does() {
    let folder = tempfile::tempdir().unwrap();
    let line = r#"while read line; do echo '{"jsonrpc":"2.0","id":1,"result":{"ok":true}}'; done; echo bye >&2; exit 4"#;
    let tasks = TaskTracker::new();
    let (process, mut receiver) = ChildProcess::start(launch(&folder, line), &tasks).await.unwrap();
    let asked = process.connection().request("initialize", &json!({}), RequestOptions::default());
    assert!(matches!(timeout(TEST_TIMEOUT, receiver.next()).await.unwrap(), AgentMessage::Reply(_)));
    assert_eq!(timeout(TEST_TIMEOUT, asked).await.unwrap().unwrap().get(), r#"{"ok":true}"#);
    let end = timeout(TEST_TIMEOUT, process.end(TEST_TIMEOUT)).await.unwrap();
    assert_eq!(end.to_string(), "mock ended with code 4: bye");
    assert!(matches!(timeout(TEST_TIMEOUT, receiver.next()).await.unwrap(), AgentMessage::Ended(_)));
    tasks.close();
    timeout(TEST_TIMEOUT, tasks.wait()).await.unwrap();
}

#[tokio::test]
async fn how_an_agent_ended_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let end = ended(launch(&folder, "echo one >&2; echo two >&2; exit 1")).await;
    assert_eq!(end.to_string(), "mock ended with code 1: one\ntwo");
    let end = ended(launch(&folder, "kill -9 $$")).await;
    assert_eq!(end.to_string(), "mock was ended (signal: 9 (SIGKILL))");
    let missing = LaunchSpec { program: "no-such-agent".into(), ..launch(&folder, "") };
    let error = ChildProcess::start(missing, &TaskTracker::new()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "mock could not be started: program no-such-agent not found; install it, or use its full path"
    );
    let nowhere = LaunchSpec { folder: folder.path().join("gone"), ..launch(&folder, "") };
    let error = ChildProcess::start(nowhere, &TaskTracker::new()).await.err().unwrap();
    assert!(error.to_string().contains("the folder does not exist"), "{error}");
}

#[tokio::test]
async fn an_agent_that_does_not_want_to_end_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let line = "trap '' TERM; echo '{\"jsonrpc\":\"2.0\",\"method\":\"up\"}'; while :; do sleep 0.1; done";
    let (process, mut receiver) =
        ChildProcess::start(launch(&folder, line), &TaskTracker::new()).await.unwrap();
    assert!(matches!(
        timeout(TEST_TIMEOUT, receiver.next()).await.unwrap(),
        AgentMessage::Notification { .. }
    ));
    let end = timeout(TEST_TIMEOUT, process.end(Duration::from_millis(50))).await.unwrap();
    assert_eq!(end.to_string(), "mock was ended (signal: 9 (SIGKILL))");
}

#[tokio::test]
async fn a_flood_on_standard_error_neither_stops_the_agent_nor_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let end = ended(launch(&folder, "yes 0123456789 | head -n 300000 >&2; echo last >&2; exit 2")).await;
    assert!(
        end.to_string().ends_with("0123456789\nlast") && end.stderr_tail.len() <= 4096,
        "{}",
        end.stderr_tail.len()
    );
}
