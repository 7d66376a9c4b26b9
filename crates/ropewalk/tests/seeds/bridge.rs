//! Ferret's cloud bridge.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Lines, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{self, DEADLINE};
use crate::receiver::{Receiver, Socket};

/// `openssl rand -hex 32`.
const TOKEN: &str = "5d1c0f2be0a94c7c8f37d3a1b6e2f4905d1c0f2be0a94c7c8f37d3a1b6e2f490";

/// `chimera ferret bridge`, and what it says on standard error.
struct Bridge {
    child: Child,
    lines: Lines<String>,
    said: Vec<String>,
    home: Arc<TempDir>,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Bridge {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_in(&program::home(), arguments, variables)
    }

    fn start_in(home: &Arc<TempDir>, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let arguments = [&["ferret", "bridge"], arguments].concat();
        let mut command = program::command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), home, &arguments);
        command.env("NO_PROXY", "*").envs(variables.iter().copied());
        let pipes = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let errors = child.stderr.take().unwrap();
        let (send, lines) = sync_channel(1 << 12);
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                send.send(line).ok();
            }
        });
        Self { child, lines, said: Vec::new(), home: Arc::clone(home) }
    }

    /// Waits for a line that begins so.
    #[track_caller]
    fn says(&mut self, beginning: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let line = self.lines.recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("{beginning:?} was not said: {:#?}", self.said));
            self.said.push(line.clone());
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    /// Its exit code, and everything that it said.
    #[track_caller]
    fn ends(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            self.said.push(line);
        }
        (code, self.said.join("\n"))
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }
}

/// A bridge that is connected over TLS, the receiver's end of its socket, and the session.
async fn connected(arguments: &[&str]) -> (Receiver, Bridge, Socket, String) {
    let home = program::home();
    let mut receiver = Receiver::secure(home.path()).await;
    let authority = receiver.authority.as_ref().unwrap().to_str().unwrap().to_owned();
    let arguments = [&["--remote-url", &receiver.url, "--auth-token", TOKEN], arguments].concat();
    let mut bridge = Bridge::start_in(&home, &arguments, &[("SSL_CERT_FILE", &authority)]);
    let socket = receiver.socket().await;
    let line = bridge.says("[ferret] bridge connected: ");
    assert_eq!(bridge.said, [line.as_str()], "a one-line status");
    let session = line.rsplit_once(" session=").unwrap().1.to_owned();
    assert_eq!(line, format!("[ferret] bridge connected: {} session={session}", receiver.url));
    (receiver, bridge, socket, session)
}

/// "Prerequisites" and "Auth-token format": the start, the status line, the token on every request.
#[tokio::test(flavor = "multi_thread")]
async fn it_starts_with_url_and_token_and_prints_a_one_line_status() {
    let (receiver, bridge, _socket, session) = connected(&[]).await;
    let register = receiver.seen("POST /api/sessions", 1).await.remove(0);
    let cwd = bridge.home.path().join("work").canonicalize().unwrap();
    // "POST /api/sessions": the five members and no other.
    let body = json!({
        "session_id": session, "model": "offline:plain", "sandbox": "workspace-write", "approval": "auto",
        "cwd": cwd.display().to_string(),
    });
    assert_eq!(register.body, body);
    // "WSS /ws/<session_id>".
    assert_eq!(receiver.seen("GET /ws/", 1).await[0].what, format!("GET /ws/{session}"));
    // "DELETE /api/sessions/<session_id>": sent on Ctrl-C.
    bridge.interrupt();
    receiver.seen("DELETE ", 1).await;
    let (code, said) = bridge.ends();
    assert_eq!(code, Some(0), "{said}");
    let all = receiver.all();
    let what: Vec<&str> = all.iter().map(|request| request.what.as_str()).collect();
    let (ws, delete) = (format!("GET /ws/{session}"), format!("DELETE /api/sessions/{session}"));
    assert_eq!(what, ["POST /api/sessions", ws.as_str(), delete.as_str()], "and no other endpoint");
    let bearer = format!("Bearer {TOKEN}");
    assert!(all.iter().all(|request| request.headers["authorization"] == bearer), "{all:#?}");
    assert!(!said.contains(TOKEN));
}

/// `FERRET_BRIDGE_TOKEN`, and only it or the flag: a token in a settings file is not honored.
#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_read_from_the_flag_or_the_variable_and_never_from_a_file() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--insecure"];
    let mut bridge = Bridge::start(&arguments, &[("FERRET_BRIDGE_TOKEN", TOKEN)]);
    let _socket = receiver.socket().await;
    bridge.says("[ferret] bridge connected: ");
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
    assert_eq!(receiver.all()[0].headers["authorization"], format!("Bearer {TOKEN}"));
    let home = program::home();
    let settings = home.path().join(".config/ropewalk");
    std::fs::create_dir_all(&settings).unwrap();
    let text = format!("[bridge]\nremote_url = \"{}\"\nauth_token = \"{TOKEN}\"\n", receiver.url);
    std::fs::write(settings.join("config.toml"), text).unwrap();
    let requests = receiver.all().len();
    let (code, said) = Bridge::start_in(&home, &["--insecure"], &[]).ends();
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("the token in the settings file is not used"), "{said}");
    assert!(!said.contains(TOKEN) && receiver.all().len() == requests, "{said}");
}

/// "WSS /ws/<session_id>", "Composition with sandbox + approval" and "Observability": the remote drives.
#[tokio::test(flavor = "multi_thread")]
async fn the_remote_sends_messages_cancels_answers_and_changes_the_approval_within_the_local_guardrails() {
    let (_receiver, mut bridge, mut socket, session) = connected(&[]).await;
    let of_session = |mut params: Value| {
        params["sessionId"] = json!(session);
        params
    };
    socket.call(1, "initialize", json!({ "clientInfo": { "name": "alice" } })).await;
    // session/message: every update, then the answer.
    let message = of_session(json!({ "message": "list" }));
    let (answer, updates) = socket.call(2, "session/message", message).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    for kind in ["agent_message_chunk", "tool_call_start", "tool_call_end", "cost_update", "turn_end"] {
        let kind = format!("\"kind\":\"{kind}\"");
        assert!(updates.iter().any(|update| update.contains(&kind)), "{kind}: {updates:#?}");
    }
    // Permission prompts are routed to the remote too; permission/respond.
    let params = of_session(json!({ "message": "run echo x >> made" }));
    socket.send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "session/message", "params": params })).await;
    let asked = socket.kind("permission_request").await;
    let respond = of_session(json!({ "id": asked["id"], "decision": "allow" }));
    let (answer, _) = socket.call(4, "permission/respond", respond).await;
    assert_eq!(answer["result"], json!({ "ok": true }));
    socket.until(|frame| frame["id"] == 3).await;
    assert!(bridge.home.path().join("work/made").exists());
    // session/cancel.
    let params = of_session(json!({ "message": "sleep 50000" }));
    socket.send(&json!({ "jsonrpc": "2.0", "id": 5, "method": "session/message", "params": params })).await;
    socket.send(&json!({ "jsonrpc": "2.0", "id": 6, "method": "session/cancel", "params": of_session(json!({})) })).await;
    let frames = socket.until(|frame| frame["id"] == 5).await;
    assert!(frames.last().unwrap().contains("cancel"), "{frames:#?}");
    // The sandbox cannot be widened; the approval can be changed, and the local side prints a banner.
    let (answer, _) = socket.call(7, "session/setSandbox", of_session(json!({ "sandbox": "off" }))).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("restart required"), "{answer}");
    let (answer, _) = socket.call(8, "session/setApproval", of_session(json!({ "approval": "full" }))).await;
    assert!(answer["result"].is_object(), "{answer}");
    bridge.says("[ferret] bridge: alice set the approval to full");
    // session/load: the history, then the answer.
    let (answer, history) = socket.call(9, "session/load", of_session(json!({}))).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(history.iter().filter(|update| update.contains("\"kind\":\"user_message\"")).count(), 3);
    // session/list: this session.
    let (answer, _) = socket.call(10, "session/list", json!({})).await;
    assert_eq!(answer["result"]["sessions"].as_array().unwrap().len(), 1, "{answer}");
    let home = Arc::clone(&bridge.home);
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
    // Every remote-originated event carries a bridge field.
    let show = ["sessions", "show", &session, "--json"];
    let shown = program::command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &home, &show).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let field = "\"bridge\":{\"origin\":\"bridge\",\"remote_user\":\"alice\"}";
    let compact: String = shown.split_whitespace().collect();
    assert!(compact.matches(field).count() >= 5, "{shown}");
}

/// "POST /api/sessions/<session_id>/heartbeat" and "Reconnection semantics": 30 s, 5 s, the last 50.
#[tokio::test(flavor = "multi_thread")]
async fn it_beats_every_30_seconds_and_replays_the_last_50_events_5_seconds_after_a_cut() {
    let (mut receiver, mut bridge, mut socket, session) = connected(&[]).await;
    let message = json!({ "sessionId": session, "message": vec!["list"; 30].join("\n") });
    let (_, updates) = socket.call(1, "session/message", message).await;
    let known = updates.len() as u64;
    assert!(known > 60, "{known}");
    drop(socket);
    bridge.says("bridge: WS closed (code=1006)");
    let cut = tokio::time::Instant::now();
    let mut socket = receiver.socket().await;
    let connected = receiver.seen("GET /ws/", 2).await[1].at;
    assert!(connected - cut > Duration::from_secs(4), "a 5-second initial backoff");
    let again = socket.until(|frame| frame["params"]["replaySeq"] == known).await;
    let expected: Vec<String> = updates[updates.len() - 50..]
        .iter()
        .zip(known - 49..)
        .map(|(update, number)| {
            let inner = update.strip_suffix("}}").unwrap();
            format!("{inner},\"replay\":true,\"replaySeq\":{number}}}}}")
        })
        .collect();
    assert_eq!(again, expected);
    let beat = receiver.seen(&format!("POST /api/sessions/{session}/heartbeat"), 1).await.remove(0);
    assert_eq!(beat.body, json!({ "sandbox": "workspace-write", "approval": "auto", "cost_total_usd": 0.0 }));
    let registered = receiver.all()[0].at;
    assert_eq!((beat.at - registered).as_secs_f64().round() as u64 / 30, 1);
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// "Ferret will refuse to connect over plain HTTP unless --insecure is passed"; the CLI prints a loud warning.
#[tokio::test(flavor = "multi_thread")]
async fn plain_http_is_refused_unless_insecure_is_passed() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN];
    let (code, said) = Bridge::start(&arguments, &[]).ends();
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("plain http") && receiver.all().is_empty(), "{said}");
    let mut bridge = Bridge::start(&[&arguments[..], &["--insecure"]].concat(), &[]);
    let _socket = receiver.socket().await;
    bridge.says("[ferret] bridge connected: ");
    assert!(bridge.said.iter().any(|line| line.contains("INSECURE")), "{:?}", bridge.said);
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// "If the remote returns 401 / 403 the bridge does not retry", and "Troubleshooting".
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_mended_by_waiting_ends_it_with_the_documents_words() {
    for (endpoint, status, words) in [
        ("POST /api/sessions", 401, "bridge: 401 Unauthorized"),
        ("POST /api/sessions", 403, "bridge: 403 Forbidden"),
        ("GET /ws/", 401, "bridge: 401 Unauthorized"),
        ("GET /ws/", 403, "bridge: 403 Forbidden"),
    ] {
        let receiver = Receiver::plain().await;
        receiver.answers(endpoint, status);
        let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
        let (code, said) = Bridge::start(&arguments, &[]).ends();
        assert_ne!(code, Some(0), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(receiver.seen(endpoint, 1).await.len(), 1, "no retry");
    }
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::secure(folder.path()).await;
    let (code, said) = Bridge::start(&["--remote-url", &receiver.url, "--auth-token", TOKEN], &[]).ends();
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("bridge: TLS verification failed"), "{said}");
    assert!(receiver.all().is_empty());
}

/// "bridge: replay window exceeded. A long disconnect dropped events. The remote UI will need a session/load to resync."
#[tokio::test(flavor = "multi_thread")]
async fn more_than_50_missed_events_are_said_and_session_load_tells_them() {
    let (mut receiver, mut bridge, mut socket, session) = connected(&[]).await;
    let text = [vec!["sleep 1000"], vec!["list"; 40]].concat().join("\n");
    let params = json!({ "sessionId": session, "message": text });
    socket.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/message", "params": params })).await;
    socket.kind("agent_message_chunk").await;
    drop(socket);
    let mut socket = receiver.socket().await;
    let notice = socket.kind("notice").await;
    assert!(notice["text"].as_str().unwrap().starts_with("bridge: replay window exceeded"), "{notice}");
    bridge.says("bridge: replay window exceeded");
    // The message that was under way is answered all the same.
    let frames = socket.until(|frame| frame["id"] == 1).await;
    assert!(frames.last().unwrap().contains("end_turn"), "{frames:#?}");
    let (answer, history) = socket.call(2, "session/load", json!({ "sessionId": session })).await;
    assert!(answer["result"].is_object(), "{answer}");
    let ends = history.iter().filter(|update| update.contains("\"kind\":\"tool_call_end\"")).count();
    assert_eq!(ends, 40);
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// The document lets the remote send any request. A bridge carries one session, which is registered under its id: another one
/// could be seen by nobody, so it is not begun.
#[tokio::test(flavor = "multi_thread")]
async fn differs_a_bridge_begins_no_other_session() {
    let (_receiver, bridge, mut socket, session) = connected(&[]).await;
    for (method, params) in [("session/new", json!({})), ("session/fork", json!({ "sessionId": session }))] {
        let (answer, _) = socket.call(1, method, params).await;
        assert!(answer["error"]["message"].as_str().unwrap().contains("one session"), "{answer}");
    }
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}
