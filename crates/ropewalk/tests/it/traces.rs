//! Traces from the real binary, with a collector that is reachable and one that is not.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// How the program ended, and what it printed.
struct CommandOutput {
    out: String,
    err: String,
}

impl CommandOutput {
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
fn start(home: &TempDir, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.args(arguments).env("ROPEWALK_HOME", home.path().join("state")).current_dir(home.path());
    command.env_remove(ENDPOINT);
    command.envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Says these things to the server one after the other, each when the one before was answered.
fn converse(home: &TempDir, arguments: &[&str], endpoint: Option<&str>, prompt: &str) -> CommandOutput {
    let variables = endpoint.map(|endpoint| (ENDPOINT, endpoint));
    converse_with(home, arguments, variables.as_slice(), prompt)
}

fn converse_with(
    home: &TempDir,
    arguments: &[&str],
    variables: &[(&str, &str)],
    prompt: &str,
) -> CommandOutput {
    let mut child = start(home, arguments, variables);
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
    CommandOutput::of(child, 0)
}

/// Takes every request, answers it well, and shows the bodies.
fn collector() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (shown, bodies) = sync_channel(16);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            shown.send(take(stream.unwrap())).ok();
        }
    });
    (address, bodies)
}

/// One request, which is answered well.
fn take(stream: impl Read + Write) -> Value {
    let mut stream = BufReader::new(stream);
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
    stream.get_mut().flush().unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// The same over TLS, with this certificate. Whoever does not accept it has said nothing.
fn secured_collector(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> (String, Receiver<Value>) {
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let (shown, bodies) = sync_channel(16);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let server = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(server, stream.unwrap());
            if stream.flush().is_ok() && stream.conn.complete_io(&mut stream.sock).is_ok() {
                shown.send(take(stream)).ok();
            }
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
fn a_collector_over_https_is_told_if_it_proves_its_name() {
    let home = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (address, bodies) = secured_collector(&made);
    let roots = home.path().join("roots.pem");
    for (certificate, told) in [
        (made.cert.pem(), true),
        (rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem(), false),
    ] {
        std::fs::write(&roots, certificate).unwrap();
        let trusted = [("SSL_CERT_FILE", roots.to_str().unwrap())];
        let ended = converse_with(&home, &["serve", "--otlp", &address], &trusted, "list");
        assert_eq!(ended.err.contains("dropping traces"), !told, "{}", ended.err);
        if told {
            let body = bodies.recv_timeout(DEADLINE).expect("a trace");
            assert_eq!(names(&body), ["model call", "tool list", "model call", "turn"]);
        }
    }
    assert!(bodies.try_recv().is_err(), "nothing is told to a stranger");
}

#[test]
fn a_server_whose_collector_is_away_answers_and_ends_as_ever() {
    let home = tempfile::tempdir().unwrap();
    // Held, so that nobody else gets the port, and never listened on.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = format!("http://{}", held.local_addr().unwrap());
    let ended = converse(&home, &["serve", "--otlp", &gone], None, "list");
    assert!(ended.err.contains("dropping traces until the collector accepts them"), "{}", ended.err);
}

#[test]
fn a_collector_that_cannot_be_spoken_to_is_refused_before_anything_is_served() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, endpoint, told) in [
        (&["serve", "--otlp", "grpc://collector"][..], None, "only http and https URLs are supported"),
        (&["serve", "--otlp", "127.0.0.1:4318"], None, "--otlp is not a valid collector URL"),
        (&["serve"], Some("grpc://collector"), "OTEL_EXPORTER_OTLP_ENDPOINT is not a valid collector URL"),
        (&["serve", "--otlp", "https://me:hunter2@host"], None, "must not contain a user name"),
        (&["serve", "--otlp", "http://me:hunter2@host"], None, "must not contain a user name"),
    ] {
        let variables = endpoint.map(|endpoint| (ENDPOINT, endpoint));
        let ended = CommandOutput::of(start(&home, arguments, variables.as_slice()), 2);
        assert!(ended.err.contains(told), "{}", ended.err);
        assert!(ended.out.is_empty() && !ended.err.contains("hunter2"), "{}", ended.err);
    }
}
