//! MCP servers that nobody here wrote, used through the agent. They are installed by `cargo xtask setup` and
//! run by `cargo xtask rigs mcp`; a plain test run leaves them out.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::{McpConfig, Message};
use engine::{ServerState, ServerTransport, ToolServer};
use serde_json::{Value, json};
use testkit::{Script, call, say};

use crate::harness::Harness;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn npm(package: &str) -> String {
    let entry = format!("tests/servers/node_modules/@modelcontextprotocol/{package}/dist/index.js");
    repository().join(entry).display().to_string()
}

fn child(name: &str, command: PathBuf, arguments: &[&str]) -> ToolServer {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    ToolServer {
        name: name.into(),
        transport: ServerTransport::Child { command, arguments, environment: Vec::new() },
    }
}

/// Starts the program of a test itself.
#[expect(clippy::disallowed_methods, reason = "the test's own children")]
fn program(name: &str) -> Command {
    Command::new(name)
}

/// Each call in a reply of its own; what the model was told of each, and of how many images.
async fn told(server: ToolServer, calls: &[(&str, Value)]) -> (Harness, Vec<(bool, String, usize)>, String) {
    let name = server.name.clone();
    let replies = calls
        .iter()
        .map(|(tool, arguments)| vec![call(format!("mcp__{name}__{tool}"), arguments.to_string())]);
    let script = Script::new(replies.chain([vec![say("Done.")]]));
    let config = McpConfig { grace: TEST_TIMEOUT, start_timeout: TEST_TIMEOUT, ..McpConfig::default() };
    let mut harness = Harness::serving(script.clone(), config, vec![server]).await;
    harness.write("a.txt", "from the workspace\n");
    let events = harness.prompt("go").await;
    let lines = harness.lines(&events);
    let view = &harness.session.servers().unwrap().list()[0];
    assert_eq!(view.state, ServerState::Ready, "{lines}");
    let results = script.requests().pop().unwrap().messages.into_iter().filter_map(|message| match message {
        Message::ToolResult { text, images, failed, .. } => Some((failed, text.to_string(), images.len())),
        _ => None,
    });
    (harness, results.collect(), lines)
}

/// What the everything server must give, however it is reached.
async fn everything(server: ToolServer) {
    let (harness, results, lines) = told(
        server,
        &[
            ("get-sum", json!({ "a": 2, "b": 40 })),
            ("get-tiny-image", json!({})),
            ("get-structured-content", json!({ "location": "Chicago" })),
            ("get-resource-links", json!({ "count": 2 })),
            ("get-resource-reference", json!({ "resourceType": "Text", "resourceId": 1 })),
            ("trigger-long-running-operation", json!({ "duration": 0.4, "steps": 4 })),
            ("get-sum", json!({ "a": "two" })),
            ("echo", json!({ "message": "ä€😀" })),
        ],
    )
    .await;
    let [sum, image, structured, links, resource, long, wrong, echo] = &results[..] else {
        panic!("{lines}")
    };
    assert!(!sum.0 && sum.1.contains("42"), "{sum:?}");
    assert_eq!((image.0, image.2), (false, 1), "{image:?}");
    assert!(!structured.0 && structured.1.contains("temperature"), "{structured:?}");
    assert!(!links.0 && links.1.matches("[link ").count() == 2, "{links:?}");
    assert!(!resource.0 && resource.1.contains("Resource 1"), "{resource:?}");
    assert!(!long.0 && lines.matches("of 4]").count() >= 3, "{lines}");
    assert!(wrong.0, "{wrong:?}");
    assert!(!echo.0 && echo.1.contains("ä€😀"), "{echo:?}");
    harness.shutdown().await;
}

#[tokio::test]
#[ignore = "needs what cargo xtask setup installs; cargo xtask rigs mcp runs it"]
async fn real_everything_over_stdio() {
    everything(child("all", "node".into(), &[&npm("server-everything"), "stdio"])).await;
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "needs what cargo xtask setup installs; cargo xtask rigs mcp runs it"]
async fn real_everything_over_http() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = program("node");
    command.arg(npm("server-everything")).arg("streamableHttp").env("PORT", port.to_string());
    let _running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let url = format!("http://127.0.0.1:{port}/mcp").into();
    everything(ToolServer {
        name: "all".into(),
        transport: ServerTransport::Http { url, headers: Vec::new() },
    })
    .await;
}

#[tokio::test]
#[ignore = "needs what cargo xtask setup installs; cargo xtask rigs mcp runs it"]
async fn real_filesystem() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let file = folder.join("made.txt");
    let server = child("files", "node".into(), &[&npm("server-filesystem"), folder.to_str().unwrap()]);
    let calls = [
        ("write_file", json!({ "path": file, "content": "one\ntwo\n" })),
        ("edit_file", json!({ "path": file, "edits": [{ "oldText": "two", "newText": "2" }] })),
        ("read_text_file", json!({ "path": file })),
        ("read_text_file", json!({ "path": "/etc/hostname" })),
    ];
    let (_harness, results, lines) = told(server, &calls).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n2\n", "{lines}");
    assert!(!results[2].0 && results[2].1.contains("one\n2"), "{results:?}");
    assert!(results[3].0 && results[3].1.contains("denied"), "{results:?}");
}

#[tokio::test]
#[ignore = "needs what cargo xtask setup installs; cargo xtask rigs mcp runs it"]
async fn real_time() {
    let server = child("time", repository().join(".setup/mcp/bin/mcp-server-time"), &[]);
    let noon = json!({ "source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Etc/UTC" });
    let (_harness, results, _) =
        told(server, &[("convert_time", noon), ("convert_time", json!({ "time": 1 }))]).await;
    assert!(!results[0].0 && results[0].1.contains("T03:00:00"), "{results:?}");
    assert!(results[1].0, "{results:?}");
}

#[tokio::test]
#[ignore = "needs what cargo xtask setup installs; cargo xtask rigs mcp runs it"]
async fn real_git() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    for arguments in
        [&["init", "-q", "-b", "trunk"][..], &["config", "user.email", "a@b"], &["config", "user.name", "A"]]
    {
        assert!(program("git").arg("-C").arg(&path).args(arguments).status().unwrap().success());
    }
    std::fs::write(path.join("a.txt"), "hello\n").unwrap();
    let server = child(
        "git",
        repository().join(".setup/mcp/bin/mcp-server-git"),
        &["--repository", path.to_str().unwrap()],
    );
    let calls = [
        ("git_status", json!({ "repo_path": path })),
        ("git_add", json!({ "repo_path": path, "files": ["a.txt"] })),
        ("git_commit", json!({ "repo_path": path, "message": "by a tool" })),
        ("git_log", json!({ "repo_path": path })),
        ("git_status", json!({ "repo_path": "/" })),
    ];
    let (_harness, results, lines) = told(server, &calls).await;
    assert!(!results[0].0 && results[0].1.contains("a.txt"), "{results:?}");
    assert!(!results[3].0 && results[3].1.contains("by a tool"), "{lines}");
    assert!(results[4].0, "{results:?}");
}
