//! Traces from the real program: to a collector that listens, and to one that does not.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// How the program ended, and what it printed.
struct Ended {
    out: String,
    err: String,
}

impl Ended {
    #[track_caller]
    fn of(child: Child, code: i32) -> Self {
        let output = child.wait_with_output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
        Self { out, err }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
fn start(home: &TempDir, arguments: &[&str], endpoint: Option<&str>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.args(arguments).env("ROPEWALK_HOME", home.path().join("state")).current_dir(home.path());
    command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    command.envs(endpoint.map(|endpoint| ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Says these things to the server one after the other, each when the one before was answered.
fn converse(home: &TempDir, arguments: &[&str], endpoint: Option<&str>, prompt: &str) -> Ended {
    let mut child = start(home, arguments, endpoint);
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut call = |id: u64, method: &str, params: Value| -> Value {
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{frame}").unwrap();
        loop {
            let line = lines.next().expect("an answer").unwrap();
            let frame: Value = serde_json::from_str(&line).expect("every line is JSON");
            if frame["id"] == id && frame.get("method").is_none() {
                return frame["result"].clone();
            }
        }
    };
    call(1, "initialize", json!({ "protocolVersion": 1 }));
    let session = call(2, "session/new", json!({ "cwd": home.path(), "mcpServers": [] }));
    let block = json!({ "type": "text", "text": prompt });
    let ended = call(3, "session/prompt", json!({ "sessionId": session["sessionId"], "prompt": [block] }));
    assert_eq!(ended["stopReason"], "end_turn");
    drop(input);
    Ended::of(child, 0)
}

/// Takes every request, answers it well, and shows the bodies.
fn collector() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (shown, bodies) = sync_channel(16);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(text) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = text.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            shown.send(serde_json::from_slice(&body).unwrap()).ok();
        }
    });
    (address, bodies)
}

fn names(body: &Value) -> Vec<String> {
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_served_turn_is_traced_and_nothing_that_was_said_is_in_the_trace() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("hidden-plans"), "the contents").unwrap();
    for by_option in [true, false] {
        let (address, bodies) = collector();
        match by_option {
            true => converse(&home, &["serve", "--otlp", &address], None, "read hidden-plans"),
            false => converse(&home, &["serve"], Some(&address), "read hidden-plans"),
        };
        let body = bodies.recv_timeout(DEADLINE).expect("a trace");
        assert_eq!(names(&body), ["model call", "tool read", "model call", "turn"]);
        let text = body.to_string();
        assert!(!text.contains("hidden") && !text.contains("contents"), "{text}");
    }
}

#[test]
fn a_server_whose_collector_is_away_answers_and_ends_as_ever() {
    let home = tempfile::tempdir().unwrap();
    // Held, so that nobody else gets the port, and never listened on.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = format!("http://{}", held.local_addr().unwrap());
    let ended = converse(&home, &["serve", "--otlp", &gone], None, "list");
    assert!(ended.err.contains("traces are dropped until the collector takes them"), "{}", ended.err);
}

#[test]
fn a_collector_that_cannot_be_spoken_to_is_refused_before_anything_is_served() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, endpoint, told) in [
        (&["serve", "--otlp", "https://collector"][..], None, "https is not spoken here"),
        (&["serve", "--otlp", "127.0.0.1:4318"], None, "--otlp names no collector"),
        (&["serve"], Some("https://collector"), "OTEL_EXPORTER_OTLP_ENDPOINT names no collector"),
        (&["serve", "--otlp", "http://me:hunter2@host"], None, "leave it out"),
    ] {
        let ended = Ended::of(start(&home, arguments, endpoint), 2);
        assert!(ended.err.contains(told), "{}", ended.err);
        assert!(ended.out.is_empty() && !ended.err.contains("hunter2"), "{}", ended.err);
    }
}
