//! Metrics of the real binary, as a scraper reads them from a running server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::work_folder::{KilledOnDrop, address_said, answer_to, piped};

/// No wait is longer. Generous, because test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-token-for-this-test-alone-0123456789";

/// A server with an editor on its standard input and a door for HTTP.
struct Server {
    _child: KilledOnDrop,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: String,
    home: TempDir,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "the test starts the program that it tests")]
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(["serve", "--http", "127.0.0.1:0", "--stdio"]).current_dir(home.path());
        command.env("ROPEWALK_HOME", home.path().join("state")).env("ROPEWALK_SERVER_TOKEN", TOKEN);
        let mut child = piped(&mut command);
        let address = address_said(child.stderr.take().unwrap());
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { _child: KilledOnDrop(child), input, output, address, home }
    }

    fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{frame}").unwrap();
        answer_to(&mut self.output, id)["result"].take()
    }

    fn get(&self, token: Option<&str>) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let host = &self.address;
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {host}\r\n{token}connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// The names of all metrics of a server that has just started.
pub fn metric_names() -> Vec<String> {
    let (server, until) = (Server::start(), Instant::now() + DEADLINE);
    let mut page = server.get(Some(TOKEN));
    while page.starts_with("HTTP/1.1 503 ") {
        assert!(Instant::now() < until, "the server is ready in time: {page}");
        std::thread::yield_now();
        page = server.get(Some(TOKEN));
    }
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<_> = types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert!(!names.is_empty(), "{page}");
    names
}

fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{page}")).parse().unwrap()
}

/// V3.
#[test]
fn the_process_that_serves_shows_its_numbers_to_whoever_has_the_token() {
    let mut server = Server::start();
    assert!(server.get(None).starts_with("HTTP/1.1 401 "));
    assert!(server.get(Some("wrong")).starts_with("HTTP/1.1 401 "));
    server.call(1, "initialize", json!({ "protocolVersion": 1 }));
    let cwd = server.home.path().to_owned();
    let session = server.call(2, "session/new", json!({ "cwd": cwd, "mcpServers": [] }));
    let block = json!({ "type": "text", "text": "list" });
    server.call(3, "session/prompt", json!({ "sessionId": session["sessionId"], "prompt": [block] }));
    let began = Instant::now();
    let page = loop {
        // The metrics read the log like everybody else, so they may come to the end of the turn later.
        let page = server.get(Some(TOKEN));
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        if value(&page, "ropewalk_turns_total{stop=\"end_turn\"}") == 1.0 {
            break page;
        }
        assert!(began.elapsed() < DEADLINE, "{page}");
    };
    assert_eq!(value(&page, "bernstein_acp_active_sessions"), 1.0);
    assert_eq!(value(&page, "ropewalk_sessions{state=\"idle\"}"), 1.0);
    assert!(value(&page, "ropewalk_events_appended_total") >= 5.0);
    assert!(value(&page, "ropewalk_append_seconds_count") >= 1.0);
    assert!(value(&page, "ropewalk_process_resident_memory_bytes") > 1e6);
    assert!(!page.contains(TOKEN));
}
