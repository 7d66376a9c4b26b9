//! The HTTP door of the real binary: options, files and shutdown.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use serde_json::{Value, json};

use crate::doors::web::{Answer, Ask, DEADLINE, Server, Socket, TOKEN, home, ropewalk, run, secured};

/// K8, L2.
#[test]
fn health_is_public_and_says_nothing_of_sessions() {
    let server = Server::start(&[]);
    let health = Ask::get("/health").bare().send(&server);
    assert_eq!(health.status, 200);
    let fields = health.json();
    assert_eq!(fields["status"], "ok");
    assert_eq!(fields["version"], env!("CARGO_PKG_VERSION"));
    assert!(fields["uptime_secs"].is_u64() && fields["started_at"].is_u64(), "{fields}");
    assert_eq!(fields.as_object().unwrap().len(), 4, "{fields}");
    assert_eq!(Ask::get("/healthz").bare().send(&server).json(), json!({ "status": "ok" }));
    assert_eq!(Ask::get("/ready").bare().send(&server).json(), json!({ "status": "ready" }));
    assert_eq!(server.stop().0, Some(0));
}

/// A6, L1.
#[test]
fn with_http_standard_input_is_not_read_and_its_end_ends_nothing() {
    let mut server = Server::start(&[]);
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    let mut input = server.input.take().unwrap();
    input
        .write_all(
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n",
        )
        .unwrap();
    drop(input);
    server.must_serve();
    assert!(server.lines.try_recv().is_err(), "nothing is answered");
    assert_eq!(server.stop().0, Some(0));
}

/// A6: both doors in one process.
#[test]
fn with_stdio_too_both_doors_serve_and_http_goes_on_when_the_editor_leaves() {
    let mut server = Server::start(&["--stdio"]);
    let mut input = server.input.take().unwrap();
    input
        .write_all(
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n",
        )
        .unwrap();
    let line = server.lines.recv_timeout(DEADLINE).unwrap();
    let reply: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(reply["result"]["protocolVersion"], 1, "{reply}");
    let params = json!({ "cwd": server.home.path(), "mcpServers": [] });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new", "params": params });
    input.write_all(format!("{call}\n").as_bytes()).unwrap();
    let reply: Value = serde_json::from_str(&server.lines.recv_timeout(DEADLINE).unwrap()).unwrap();
    drop(input);
    server.until_log("the editor closed the connection");
    server.must_serve();
    let listed = Socket::open(&server, TOKEN).call("session/list", &json!({}));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], reply["result"]["sessionId"], "{listed}");
    assert_eq!(server.stop().0, Some(0));
}

/// A7.
#[test]
fn a_bad_address_is_wrong_usage() {
    let home = home();
    for arguments in [
        &["serve", "--http", ":99999"][..],
        &["acp", "serve", "--http", ":99999"],
        &["serve", "--http", "example.org:80"],
        &["serve", "--http", ":1", "--port", "2"],
        &["serve", "--http", "--port", "99999"],
        &["serve", "--port", "80"],
        &["serve", "--no-auth"],
        &["serve", "--http", ":0", "--cors", "example.org"],
        &["serve", "--http", ":0", "--cors", "https://example.org/path"],
        &["serve", "--http", ":0", "--cors", "null"],
        &["serve", "--http", ":0", "--allow-host", "http://x"],
    ] {
        let ended = run(&home, arguments).with(2);
        assert!(ended.out.is_empty() && !ended.err.is_empty(), "{arguments:?}: {}", ended.err);
    }
}

/// A7, L1: `--http`, `--port` and `acp serve` say the same thing.
#[test]
fn the_port_is_the_one_that_was_asked_for() {
    // A port that was free a moment ago; whoever took it since makes the server fail, not pass.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let home = home();
    let text = port.to_string();
    let mut command = ropewalk(home.path(), &["acp", "serve", "--http", "--port", &text]);
    command.env("ROPEWALK_SERVER_TOKEN", TOKEN);
    let server = Server::run(home, command);
    assert_eq!(server.url, format!("http://127.0.0.1:{port}"));
    server.must_serve();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_port_that_is_taken_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = run(&home(), &["serve", "--http", "--port", &port]).with(1);
    assert!(ended.err.contains("could not listen on") && ended.err.contains("--port"), "{}", ended.err);
}

/// N7: what others can reach needs a token of the person's own, and TLS.
#[test]
fn a_bind_beyond_loopback_needs_a_token_and_tls() {
    let home = home();
    for (arguments, said) in [
        (&["--http", "0.0.0.0:0"][..], "unencrypted"),
        (&["--http", "[::]:0"], "unencrypted"),
        (&["--http", "0.0.0.0:0", "--auth-token", TOKEN], "unencrypted"),
        (&["--http", "0.0.0.0:0", "--behind-proxy"], "no token is set"),
        (&["--http", "0.0.0.0:0", "--no-auth"], "loopback only"),
        (&["--http", "0.0.0.0:0", "--no-auth", "--behind-proxy"], "cannot be used with"),
    ] {
        let all: Vec<&str> = ["serve"].iter().chain(arguments).copied().collect();
        let ended = run(&home, &all).with(2);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    let all = ["serve", "--http", "0.0.0.0:0", "--auth-token", TOKEN, "--behind-proxy"];
    let command = ropewalk(home.path(), &all);
    let server = Server::run(home, command);
    assert!(server.url.starts_with("http://0.0.0.0:"), "{}", server.url);
    // The address that stands for all of them is nobody's name.
    let host = format!("0.0.0.0:{}", server.port);
    assert_eq!(Ask::get("/health").header("host", &host).send(&server).status, 403);
    assert_eq!(server.stop().0, Some(0));
}

/// N8.
#[test]
fn tls_needs_both_files_and_answers_nobody_in_the_clear() {
    let home = home();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    run(&home, &["serve", "--http", ":0", "--tls-cert", certificate]).with(2);
    run(&home, &["serve", "--http", ":0", "--tls-key", key]).with(2);
    let swapped = run(&home, &["serve", "--http", ":0", "--tls-cert", key, "--tls-key", certificate]).with(2);
    assert!(swapped.err.contains("certificate"), "{}", swapped.err);

    let all = ["serve", "--http", ":0", "--auth-token", TOKEN, "--tls-cert", certificate, "--tls-key", key];
    let server = Server::run(home.clone(), ropewalk(home.path(), &all));
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    let ask = |ask: Ask| {
        let mut secure = secured(server.connect(), made.cert.der().clone());
        secure.write_all(&ask.bytes(server.port)).unwrap();
        Answer::read(&mut secure)
    };
    let began = Instant::now();
    while ask(Ask::get("/health")).json()["status"] != "ok" {
        assert!(began.elapsed() < DEADLINE, "it does not get ready");
    }
    let origin = format!("https://127.0.0.1:{}", server.port);
    assert_eq!(ask(Ask::get("/no").header("origin", &origin)).status, 404);

    let mut plain = server.connect();
    plain.write_all(&Ask::get("/health").bytes(server.port)).unwrap();
    let refused = Answer::read(&mut plain);
    assert_eq!(
        (refused.status, &refused.json()["error"]),
        (400, &"tls_required".into()),
        "it says how to ask"
    );
    assert_eq!(server.stop().0, Some(0));
}

/// V7, N11.
#[test]
fn the_file_of_a_running_server_is_private_and_has_the_tokens_digest_only() {
    let server = Server::start(&[]);
    let path = server.home.path().join(format!("state/run/http-{}.json", server.port));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(TOKEN), "{text}");
    let facts: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(facts["pid"], server.child.id());
    assert_eq!(facts["address"], server.url);
    assert_eq!(facts["token_sha256"].as_str().unwrap().len(), 64);
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    assert!(facts["started_at"].is_i64());
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(!path.exists() && !log.contains(TOKEN), "{log}");
}

/// V7.
#[test]
fn status_and_stop_find_the_servers_that_run() {
    let home = home();
    run(&home, &["serve", "status"]).with(1);
    assert_eq!(run(&home, &["serve", "status", "--json"]).with(1).json(), json!({ "running": [] }));
    run(&home, &["serve", "stop"]).with(1);
    let all = ["serve", "--http", ":0", "--auth-token", TOKEN];
    let mut one = Server::run(home.clone(), ropewalk(home.path(), &all));
    let mut two = Server::run(home.clone(), ropewalk(home.path(), &all));
    let status = run(&home, &["serve", "status", "--json"]).with(0);
    let running = status.json()["running"].as_array().unwrap().clone();
    let mut addresses: Vec<&str> = running.iter().map(|facts| facts["address"].as_str().unwrap()).collect();
    addresses.sort_unstable();
    let mut expected = [one.url.as_str(), two.url.as_str()];
    expected.sort_unstable();
    assert_eq!(addresses, expected);
    let which = run(&home, &["serve", "stop"]).with(2);
    assert!(which.err.contains(&one.url) && which.err.contains(&two.url), "{}", which.err);
    run(&home, &["serve", "stop", "--port", "1"]).with(1);
    run(&home, &["serve", "stop", "--port", &one.port.to_string()]).with(0);
    assert_eq!(one.exit_code(), Some(0));
    run(&home, &["serve", "stop", "--all"]).with(0);
    assert_eq!(two.exit_code(), Some(0));
    run(&home, &["serve", "status"]).with(1);
}

/// V7: what a killed server left is no server, and its port's file is taken over.
#[test]
fn a_file_that_a_dead_server_left_is_taken_over() {
    let mut server = Server::start(&[]);
    let home = server.home.clone();
    server.child.kill().unwrap();
    server.exit_code();
    let path = home.path().join(format!("state/run/http-{}.json", server.port));
    assert!(path.exists());
    run(&home, &["serve", "status"]).with(1);
    run(&home, &["serve", "stop"]).with(1);
    let port = format!(":{}", server.port);
    let again =
        Server::run(home.clone(), ropewalk(home.path(), &["serve", "--http", &port, "--auth-token", TOKEN]));
    let facts: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(facts["pid"], again.child.id());
    assert_eq!(again.stop().0, Some(0));
}

/// V7: one that does not end when it is asked to.
#[test]
fn a_server_that_does_not_end_is_ended_by_force() {
    let mut server = Server::start(&[]);
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    run(&server.home, &["serve", "stop", "--timeout", "0"]).with(0);
    assert_eq!(server.exit_code(), None, "it was killed");
}
