//! `ropewalk bridge` and `--bridge`: the real binary against a minimal receiver.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and starts the program that it tests"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crate::command_output::CommandOutput;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

const DEADLINE: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct World {
    home: TempDir,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        std::fs::create_dir(home.path().join("state")).unwrap();
        Self { home }
    }

    fn settings(&self, text: &str) {
        std::fs::write(self.home.path().join("state/config.toml"), text).unwrap();
    }

    fn start(&self, arguments: &[&str], token: Option<&str>) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command
            .args(arguments)
            .env("ROPEWALK_HOME", self.home.path().join("state"))
            .env("HOME", self.home.path())
            .env("ROPEWALK_OFFLINE", "1")
            .env_remove("ROPEWALK_BRIDGE_TOKEN")
            .env_remove("FERRET_BRIDGE_TOKEN")
            .env_remove("HTTP_PROXY")
            .env_remove("http_proxy")
            .env("NO_PROXY", "*")
            .current_dir(self.home.path().join("work"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(token) = token {
            command.env("FERRET_BRIDGE_TOKEN", token);
        }
        command.spawn().unwrap()
    }

    fn run(&self, arguments: &[&str], token: Option<&str>) -> CommandOutput {
        CommandOutput::of(self.start(arguments, token))
    }
}

/// A receiver that registers, opens the socket and says nothing, or answers everything with one status.
struct Remote {
    url: String,
    requests: Receiver<String>,
}

fn remote(status: Option<&'static str>) -> Remote {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let (seen, requests) = sync_channel(1024);
    let url = format!("http://{host}");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, seen, host) = (stream.unwrap(), seen.clone(), host.clone());
            std::thread::spawn(move || serve(stream, &host, status, |line| drop(seen.send(line))));
        }
    });
    Remote { url, requests }
}

fn serve(stream: TcpStream, host: &str, status: Option<&str>, seen: impl Fn(String)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let (mut head, mut length, mut key, mut authorization) = (String::new(), 0, None, String::new());
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let Some((name, value)) = line.trim().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "sec-websocket-key" => key = Some(value.trim().to_owned()),
                "authorization" => authorization = value.trim().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let head = head.trim().trim_end_matches(" HTTP/1.1").to_owned();
        seen(format!("{head} | {authorization} | {}", String::from_utf8_lossy(&body)));
        let answer = match (status, key) {
            (Some(status), _) => format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
            (None, _) if head.contains("/ws/machine/") => {
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            (None, Some(key)) => {
                let accept = derive_accept_key(key.as_bytes());
                format!(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
                )
            }
            (None, None) => {
                let session = String::from_utf8_lossy(&body);
                let session =
                    session.split("session_id\":\"").nth(1).unwrap_or("x").split('"').next().unwrap();
                let body = format!(
                    "{{\"ui_url\":\"http://{host}/s/{session}\",\"ws_url\":\"ws://{host}/ws/{session}\"}}"
                );
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            }
        };
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

impl Remote {
    /// The next request that begins so.
    fn next(&self, what: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let request = self.requests.recv_timeout(left).unwrap_or_else(|_| panic!("no {what}"));
            if request.starts_with(what) {
                return request;
            }
        }
    }
}

fn stop(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// O22.
#[test]
fn without_a_token_it_does_not_start_and_says_how_to_get_one() {
    let ended = World::new().run(&["bridge", "--remote-url", "https://hub.example.com"], None).with(2);
    assert!(ended.err.contains("a bridge needs a token"), "{}", ended.err);
    assert!(ended.err.contains("ROPEWALK_BRIDGE_TOKEN"), "{}", ended.err);
    let served = World::new().run(&["serve", "--bridge", "https://hub.example.com"], None).with(2);
    assert!(served.err.contains("a bridge needs a token"), "{}", served.err);
}

/// O2: never from a file.
#[test]
fn a_token_in_the_settings_is_not_used_and_that_is_said() {
    let world = World::new();
    world.settings("[bridge]\nremote_url = \"https://hub.example.com\"\nauth_token = \"hush-hush-hush\"\n");
    let ended = world.run(&["bridge"], None).with(2);
    assert!(ended.err.contains("ignoring the token in the settings file"), "{}", ended.err);
    assert!(ended.err.contains("a bridge needs a token"), "{}", ended.err);
    assert!(!ended.err.contains("hush-hush-hush"), "{}", ended.err);
}

/// O5: loopback is no exception.
#[test]
fn plain_http_is_refused_unless_somebody_insists_and_then_it_is_loud() {
    let remote = remote(Some("401 Unauthorized"));
    let world = World::new();
    let refused = world.run(&["bridge", "--remote-url", &remote.url], Some(TOKEN)).with(2);
    assert!(refused.err.contains("plain http") && refused.err.contains("--insecure"), "{}", refused.err);
    assert!(remote.requests.try_recv().is_err(), "nothing was sent");
    let insisted = world.run(&["bridge", "--remote-url", &remote.url, "--insecure"], Some(TOKEN)).with(2);
    assert!(insisted.err.contains("INSECURE"), "{}", insisted.err);
    assert!(!insisted.err.contains(TOKEN), "{}", insisted.err);
}

/// O13, O19.
#[test]
fn a_token_that_is_not_let_in_ends_it_with_a_clear_error() {
    let remote = remote(Some("401 Unauthorized"));
    let world = World::new();
    let arguments = ["bridge", "--remote-url", &remote.url, "--insecure", "--auth-token", TOKEN];
    let ended = world.run(&arguments, None).with(2);
    assert!(ended.err.contains("bridge: 401 Unauthorized"), "{}", ended.err);
    assert!(ended.err.contains("the receiver does not know the token"), "{}", ended.err);
    // Whichever of its connections was first, it showed the token.
    assert!(remote.next("").contains(&format!("Bearer {TOKEN}")));
}

/// O1, O3, O4, O6, O11: the address from the settings, and a farewell however it is ended.
#[test]
fn it_connects_says_so_and_takes_leave_when_it_is_ended() {
    for signal in [Signal::INT, Signal::TERM] {
        let remote = remote(None);
        let world = World::new();
        world.settings(&format!("[bridge]\nremote_url = \"{}\"\n", remote.url));
        let mut child = world.start(&["bridge", "--insecure", "--bridge-token", TOKEN], None);
        let registered = remote.next("POST /api/sessions");
        assert!(registered.contains("\"sandbox\":\"workspace-write\""), "{registered}");
        remote.next("GET /ws/");
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let (mut said, mut line) = (String::new(), String::new());
        while !line.contains("bridge connected") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0, "{said}");
            said.push_str(&line);
        }
        assert!(line.starts_with(&format!("[ferret] bridge connected: {} session=", remote.url)), "{line}");
        let session = line.trim().rsplit('=').next().unwrap().to_owned();
        stop(&child, signal);
        assert!(remote.next("DELETE ").starts_with(&format!("DELETE /api/sessions/{session}")));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
        assert!(Path::new(&world.home.path().join("state/bridge/machine.id")).exists());
    }
}

/// A server goes on serving when its bridge is not let in.
#[test]
fn a_server_goes_on_without_its_bridge() {
    let remote = remote(Some("403 Forbidden"));
    let world = World::new();
    let arguments = ["serve", "--http", ":0", "--bridge", &remote.url, "--insecure"];
    let mut child = world.start(&arguments, Some(TOKEN));
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("bridge: 403 Forbidden") {
        assert!(errors.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(child.try_wait().unwrap().is_none(), "it serves on: {said}");
    stop(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
