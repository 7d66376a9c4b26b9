//! Bernstein's native ACP bridge.
//!
//! What stays different on purpose:
//! - `differs_loopback_is_no_authentication`: every program and every page on this machine reaches loopback.
//! - `differs_a_server_elsewhere_needs_no_tunnel_wrapper`: TLS or a tunnel of any kind stands before the same door.
//! - `differs_the_model_is_the_persons_choice`: nothing is routed by what it costs; budgets hold for every client.
//! - `differs_the_adapters_are_those_of_this_server`: a client cannot choose one, so others would be an empty promise.
//! - `differs_the_one_sandbox_is_our_own`: a client does not choose what holds commands in, the owner does.
//! - `differs_auto_asks_what_a_rule_says_to_ask`: what a person wrote down is not lifted by a client.
//! - `differs_auto_goes_no_further_than_the_owner_lets`: with `--approval-max` it is refused (-32003).
//! - `differs_the_audit_says_who_it_was`: an audit that did not would be of little use.
//! - `differs_a_run_puts_the_approval_back`: what is allowed for one prompt is not for whoever opens the session next.
//! - `differs_the_audit_says_which_approval_held`: these clients begin in manual mode, the command line with the usual approval.
//! - `differs_a_post_says_that_it_is_json`: a page elsewhere can make a browser send anything else without being asked.
//! - `differs_sessions_of_other_dialects_are_counted_as_active`: every client of the server reaches the same sessions.
//! - `differs_a_server_on_stdio_is_measured_by_itself`: there is no task server behind it that would have its numbers.
//! - `differs_an_official_client_is_answered_in_the_official_protocol`: the recipe is Zed's, and that is what Zed speaks.

mod audit;

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::doors::clients::events::{Event, follow};
use crate::doors::web::{Answer, Ask, Server};
use crate::seeds::program::{DEADLINE, Program, TOKEN, command, ended, home, http_server, link};

const STDIO: [&str; 3] = ["acp", "serve", "--stdio"];

fn greeted() -> Program {
    let mut bernstein = Program::named(&home(), "bernstein", &STDIO);
    let (_, hello) = bernstein.call(1, "initialize", &json!({ "protocolVersion": "2025-04-01" }));
    assert_eq!(hello["result"]["protocolVersion"], "2025-04-01", "{hello}");
    bernstein.send(&json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} }));
    bernstein
}

#[track_caller]
fn until(bernstein: &mut Program, mut wanted: impl FnMut(&Value) -> bool) -> Value {
    loop {
        let frame = bernstein.next();
        if wanted(&frame) {
            return frame;
        }
    }
}

fn is_delta(frame: &Value, kind: &str) -> bool {
    frame["method"] == "streamUpdate" && frame["params"]["delta"]["type"] == kind
}

/// "Transports", "stdio": line-delimited frames over the pipes, by its own name and by a link.
#[test]
fn it_serves_stdio_as_an_editor_starts_it() {
    let home = home();
    for name in ["bernstein", "ropewalk"] {
        let mut bernstein = Program::named(&home, name, &STDIO);
        let (_, hello) = bernstein.call(1, "initialize", &json!({}));
        assert_eq!(hello["result"]["protocolVersion"], "2025-04-01", "no version is ours: {hello}");
        let (code, log) = bernstein.close();
        assert_eq!(code, Some(0), "{log}");
        // A client may also begin with a prompt.
        let mut bernstein = Program::named(&home, name, &STDIO);
        let (_, opened) = bernstein.call(1, "prompt", &json!({ "prompt": "list" }));
        assert!(opened["result"]["sessionId"].is_string(), "{opened}");
        until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    }
}

/// "Transports", "HTTP / SSE": the command as it is written, and 8062 where no port is named. The test holds that port, so that
/// nothing else can, and what the program says shows which address it means.
#[test]
fn its_http_port_is_8062() {
    let _held = crate::seeds::program::hold_port(8062);
    let home = home();
    for arguments in [
        &["acp", "serve", "--http", ":8062"][..],
        &["acp", "serve", "--http=:8062"],
        &["acp", "serve", "--http"],
    ] {
        let refused = ended(&home, "bernstein", arguments).with(1);
        assert!(refused.err.contains("could not listen on 127.0.0.1:8062"), "{arguments:?}: {}", refused.err);
    }
}

/// "Generic ACP client": the command, the transport and the version of the recipe; the version comes back word for word.
#[test]
fn a_generic_client_gets_its_protocol_version() {
    let recipe = json!({
        "name": "bernstein", "transport": "stdio", "command": ["bernstein", "acp", "serve", "--stdio"],
        "protocolVersion": "2025-04-01",
    });
    let words: Vec<&str> =
        recipe["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut agent = Program::named(&home(), words[0], &words[1..]);
    let (_, hello) = agent.call(1, "initialize", &json!({ "protocolVersion": recipe["protocolVersion"] }));
    assert_eq!(hello["result"]["protocolVersion"], recipe["protocolVersion"], "{hello}");
    assert_eq!(hello["result"]["capabilities"]["modes"], json!(["auto", "manual"]));
}

/// "Zed settings.json": the command of the recipe, and the words that Zed says to it. The document says nothing of these, and
/// Bernstein's own would not be understood.
#[test]
fn differs_an_official_client_is_answered_in_the_official_protocol() {
    let mut agent = Program::named(&home(), "bernstein", &STDIO);
    let capabilities = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
    let (_, hello) =
        agent.call(0, "initialize", &json!({ "protocolVersion": 1, "clientCapabilities": capabilities }));
    assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
    let cwd = agent.home.path().join("work");
    let (_, new) = agent.call(1, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let text = json!([{ "type": "text", "text": "hello" }]);
    let prompt = json!({ "sessionId": new["result"]["sessionId"], "prompt": text });
    assert_eq!(agent.call(2, "session/prompt", &prompt).1["result"]["stopReason"], "end_turn");
}

/// "Methods supported": `initialize`, `initialized`, `prompt`, `streamUpdate`.
#[test]
fn a_prompt_opens_a_session_and_is_streamed() {
    let mut bernstein = Program::named(&home(), "bernstein", &STDIO);
    let (_, hello) = bernstein.call(1, "initialize", &json!({ "protocolVersion": "2025-04-01" }));
    let hello = &hello["result"];
    assert!(hello["capabilities"].is_object() && hello["adapters"].is_array(), "{hello}");
    assert!(hello["sandboxBackends"].is_array(), "{hello}");
    bernstein.send(&json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} }));
    let (before, opened) = bernstein.call(2, "prompt", &json!({ "prompt": "hello" }));
    assert_eq!(before, Vec::<Value>::new(), "initialized is acknowledged silently");
    let opened = &opened["result"];
    assert_eq!((&opened["mode"], &opened["role"]), (&json!("manual"), &json!("backend")));
    let said = until(&mut bernstein, |frame| {
        frame["method"] == "streamUpdate" && frame["params"]["delta"].is_string()
    });
    assert_eq!(said["params"]["sessionId"], opened["sessionId"]);
    assert!(said.get("id").is_none());
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    // It is a real session: other commands know it.
    let home = std::sync::Arc::clone(&bernstein.home);
    bernstein.close();
    let listed = ended(&home, "ropewalk", &["sessions", "list", "--json"]).with(0);
    assert!(listed.out.contains(opened["sessionId"].as_str().unwrap()), "{}", listed.out);
}

/// "Methods supported": `requestPermission` in both directions, `setMode`.
#[test]
fn permissions_are_asked_in_manual_mode_and_not_in_auto() {
    let mut bernstein = greeted();
    let (_, opened) = bernstein.call(2, "prompt", &json!({ "prompt": "run touch made; true" }));
    let session = opened["result"]["sessionId"].clone();
    let asked = until(&mut bernstein, |frame| frame["method"] == "requestPermission");
    let params = &asked["params"];
    assert!(asked.get("id").is_none() && params["sessionId"] == session, "{asked}");
    assert!(params["tool"].is_string() && params["promptId"].is_string(), "{asked}");
    assert!(params["detail"].as_str().unwrap().contains("touch made"), "{asked}");
    let decision = json!({ "sessionId": session, "promptId": params["promptId"], "decision": "rejected" });
    let (_, answer) = bernstein.call(3, "requestPermission", &decision);
    assert_eq!(answer["result"]["decision"], "rejected");
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    assert!(!bernstein.home.path().join("work/made").exists());
    for mode in ["auto", "manual"] {
        let (_, set) = bernstein.call(4, "setMode", &json!({ "sessionId": session, "mode": mode }));
        assert_eq!(set["result"], json!({ "sessionId": session, "mode": mode }));
    }
    let auto = json!({ "prompt": "run touch made; true", "mode": "auto" });
    bernstein.call(5, "prompt", &auto);
    loop {
        let frame = bernstein.next();
        assert_ne!(frame["method"], "requestPermission", "{frame}");
        if is_delta(&frame, "turn_ended") {
            break;
        }
    }
    assert!(bernstein.home.path().join("work/made").exists());
}

/// "Methods supported": `setMode`, whose `auto` is always-allow. What waits already is allowed too, by whoever switched: the
/// client is told that its question is settled, and the audit who did it.
#[test]
fn auto_mode_allows_the_question_that_waits() {
    let mut bernstein = greeted();
    let (_, opened) = bernstein.call(2, "prompt", &json!({ "prompt": "run touch made; true" }));
    let session = opened["result"]["sessionId"].clone();
    let asked = until(&mut bernstein, |frame| frame["method"] == "requestPermission");
    let auto = json!({ "sessionId": session, "mode": "auto" });
    let (frames, set) = bernstein.call(3, "setMode", &auto);
    assert_eq!(set["result"], auto, "{set}");
    let settled = frames.iter().find(|frame| is_delta(frame, "permission_withdrawn"));
    let settled = &settled.unwrap_or_else(|| panic!("{frames:?}"))["params"]["delta"];
    let expected = json!({ "type": "permission_withdrawn", "promptId": asked["params"]["promptId"], "decision": "approved" });
    assert_eq!(*settled, expected);
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    assert!(bernstein.home.path().join("work/made").exists());
    let home = std::sync::Arc::clone(&bernstein.home);
    bernstein.close();
    let shown = ended(&home, "ropewalk", &["audit", "show", "--json"]).with(0).json();
    let rows = shown["rows"].as_array().unwrap();
    let allowed = rows.iter().find(|row| row["event_type"] == "acp.permission").unwrap();
    let changed = rows.iter().rfind(|row| row["event_type"] == "session.setting").unwrap();
    assert_eq!(changed["details"]["value"], "full", "{changed}");
    let (allowed, changed) = (&allowed["details"], &changed["details"]);
    assert_eq!((&allowed["decision"], &allowed["resolver"]), (&json!("approved"), &json!("client")));
    assert_eq!((&allowed["peer"], &allowed["preset"]), (&changed["peer"], &json!("full")), "{allowed}");
}

/// "Methods supported": `cancel`.
#[test]
fn cancel_drains_the_session() {
    let mut bernstein = greeted();
    let (_, opened) = bernstein.call(2, "prompt", &json!({ "prompt": "sleep 60000" }));
    let session = opened["result"]["sessionId"].clone();
    let (frames, answer) = bernstein.call(3, "cancel", &json!({ "sessionId": session }));
    assert_eq!(answer["result"]["cancelled"], true);
    let ended = frames.iter().find(|frame| is_delta(frame, "turn_ended")).unwrap();
    assert_eq!(ended["params"]["delta"]["stopReason"], "cancelled");
    assert_eq!(bernstein.call(4, "cancel", &json!({ "sessionId": session })).1["error"]["code"], -32001);
}

fn served() -> Server {
    http_server(&home(), "bernstein", &["acp", "serve", "--http", ":0"], "ROPEWALK_SERVER_TOKEN")
}

fn post(server: &Server, body: &str) -> Answer {
    Ask::post("/acp", body).token(TOKEN).send(server)
}

fn stream(server: &Server, body: &str) -> Receiver<Event> {
    let (send, heard) = sync_channel(1 << 10);
    let ask = Ask::post("/acp", body).token(TOKEN).header("accept", "text/event-stream");
    let (status, head) = follow(server.address(), &ask, move |event| drop(send.send(event)));
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    heard
}

/// "Transports", "HTTP": one frame per request, its answer as JSON.
#[test]
fn over_http_one_frame_has_one_answer() {
    let server = served();
    // Without a version it is ours, also in the first request.
    for params in [json!({}), json!({ "protocolVersion": "2025-04-01" })] {
        let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let answer = post(&server, &frame.to_string());
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        assert_eq!(answer.json()["result"]["protocolVersion"], "2025-04-01");
    }
    let silent = post(&server, r#"{"jsonrpc":"2.0","method":"initialized","params":{}}"#);
    assert_eq!((silent.status, silent.body.len()), (202, 0));
    for (body, code) in [
        ("{not json", -32700),
        ("", -32700),
        (r#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":3,"method":"prompt","params":{}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":4,"method":"cancel","params":{"sessionId":"nobody"}}"#, -32001),
        (r#"[{"jsonrpc":"2.0","id":5,"method":"initialize"}]"#, -32600),
    ] {
        let answer = post(&server, body);
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (200, &json!(code)), "{body}");
    }
    for (method, path) in
        [("GET", "/acp"), ("DELETE", "/acp"), ("PUT", "/acp"), ("POST", "/health"), ("GET", "/no/such")]
    {
        assert_eq!(Ask::new(method, path).token(TOKEN).send(&server).status, 404, "{method} {path}");
    }
    // A client of the official protocol is served beside it.
    let official = r#"{"jsonrpc":"2.0","id":6,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#;
    let answer = post(&server, official);
    assert_eq!(answer.json()["result"]["protocolVersion"], 1);
    assert!(answer.header("acp-connection-id").is_some());
}

/// "Generic ACP client": `Accept: text/event-stream` streams `streamUpdate` and `requestPermission`.
#[test]
fn over_http_updates_and_questions_are_streamed() {
    let server = served();
    let prompt = r#"{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"prompt":"run touch made; true"}}"#;
    let events = stream(&server, prompt);
    let first = events.recv_timeout(DEADLINE).unwrap();
    assert_eq!(first.name.as_deref(), Some("response"));
    let session = first.data["result"]["sessionId"].clone();
    let (mut methods, mut settled) = (Vec::new(), Vec::new());
    loop {
        let event = events.recv_timeout(DEADLINE).unwrap();
        assert_eq!(event.name.as_deref(), Some("notification"));
        methods.push(event.data["method"].clone());
        if is_delta(&event.data, "permission_withdrawn") {
            settled.push(event.data["params"]["delta"]["decision"].clone());
        }
        if event.data["method"] == "requestPermission" {
            let params = json!({ "sessionId": session, "promptId": event.data["params"]["promptId"], "decision": "approved" });
            let frame = json!({ "jsonrpc": "2.0", "id": 2, "method": "requestPermission", "params": params });
            assert_eq!(post(&server, &frame.to_string()).json()["result"]["decision"], "approved");
        }
        if is_delta(&event.data, "turn_ended") {
            break;
        }
    }
    assert!(methods.contains(&json!("streamUpdate")) && methods.contains(&json!("requestPermission")));
    // The stream cannot know that it was its own client that answered, by another request.
    assert_eq!(settled, ["approved"]);
    assert!(server.home.path().join("work/made").exists());
}

/// The same over HTTP, where the switch is a request of its own.
#[test]
fn over_http_auto_mode_allows_the_question_that_waits() {
    let server = served();
    let prompt = r#"{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"prompt":"run touch made; true"}}"#;
    let events = stream(&server, prompt);
    let session = events.recv_timeout(DEADLINE).unwrap().data["result"]["sessionId"].clone();
    let next = |wanted: &dyn Fn(&Value) -> bool| loop {
        let event = events.recv_timeout(DEADLINE).unwrap();
        if wanted(&event.data) {
            return event.data;
        }
    };
    let asked = next(&|frame| frame["method"] == "requestPermission");
    let auto = json!({ "sessionId": session, "mode": "auto" });
    let frame = json!({ "jsonrpc": "2.0", "id": 2, "method": "setMode", "params": auto });
    assert_eq!(post(&server, &frame.to_string()).json()["result"], auto);
    let settled = next(&|frame| is_delta(frame, "permission_withdrawn"));
    assert_eq!(settled["params"]["delta"]["promptId"], asked["params"]["promptId"]);
    next(&|frame| is_delta(frame, "turn_ended"));
    assert!(server.home.path().join("work/made").exists());
}

fn metrics(server: &Server) -> String {
    String::from_utf8(Ask::get("/metrics").token(TOKEN).send(server).body).unwrap()
}

fn counted(server: &Server, method: &str, outcome: &str) -> Option<u32> {
    let series = format!("bernstein_acp_messages_total{{method=\"{method}\",outcome=\"{outcome}\"}} ");
    let page = metrics(server);
    page.lines().find_map(|line| line.strip_prefix(&series)).map(|count| count.parse().unwrap())
}

/// Until a number is what it comes to: a prompt is counted when its turn has ended, which its stream may have told before.
#[track_caller]
fn until_counted(server: &Server, method: &str, outcome: &str, count: u32) {
    let began = Instant::now();
    while counted(server, method, outcome) != Some(count) {
        assert!(began.elapsed() < DEADLINE, "{method} {outcome}: {}", metrics(server));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// "Observability": both metrics, and every outcome of the list, each brought about by a client. What comes of a prompt is
/// known when its turn ends, as in the dialects that answer it then.
#[test]
fn the_metrics_have_every_outcome() {
    let server = served();
    // Every outcome of the list is there from the beginning, so that whoever watches them can add them up.
    for outcome in ["ok", "error", "rejected", "cancelled", "permission_denied"] {
        assert_eq!(counted(&server, "unknown", outcome), Some(0), "{outcome}");
    }
    let call = |id: u64, method: &str, params: Value| {
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        post(&server, &frame.to_string()).json()
    };
    let prompt = |text: &str| {
        let params = json!({ "prompt": text });
        let events = stream(
            &server,
            &json!({ "jsonrpc": "2.0", "id": 3, "method": "prompt", "params": params }).to_string(),
        );
        let session = events.recv_timeout(DEADLINE).unwrap().data["result"]["sessionId"].clone();
        (events, session)
    };
    call(1, "initialize", json!({ "protocolVersion": "2025-04-01" }));
    call(2, "prompt", json!({}));
    let (events, session) = prompt("run touch made; true");
    let asked = loop {
        let event = events.recv_timeout(DEADLINE).unwrap();
        if event.data["method"] == "requestPermission" {
            break event.data["params"]["promptId"].clone();
        }
    };
    assert!(metrics(&server).lines().any(|line| line == "bernstein_acp_active_sessions 1"));
    assert_eq!(counted(&server, "prompt", "ok"), None, "its turn runs");
    let decision = json!({ "sessionId": session, "promptId": asked, "decision": "rejected" });
    call(4, "requestPermission", decision.clone());
    call(5, "requestPermission", decision);
    until_counted(&server, "prompt", "ok", 1);
    call(6, "setMode", json!({ "sessionId": session, "mode": "auto" }));
    call(7, "cancel", json!({ "sessionId": session }));
    call(8, "cancel", json!({ "sessionId": session }));
    let (_events, session) = prompt("sleep 600000");
    call(9, "cancel", json!({ "sessionId": session }));
    until_counted(&server, "prompt", "cancelled", 1);
    let (_events, session) = prompt("fail");
    until_counted(&server, "prompt", "error", 1);
    call(10, "cancel", json!({ "sessionId": session }));
    for (method, outcome, count) in [
        ("initialize", "ok", 1),
        ("prompt", "ok", 1),
        ("prompt", "rejected", 1),
        ("prompt", "cancelled", 1),
        ("prompt", "error", 1),
        ("requestPermission", "permission_denied", 1),
        ("requestPermission", "rejected", 1),
        ("setMode", "ok", 1),
        ("cancel", "ok", 3),
        ("cancel", "rejected", 1),
    ] {
        assert_eq!(
            counted(&server, method, outcome),
            Some(count),
            "{method} {outcome}: {}",
            metrics(&server)
        );
    }
    assert!(metrics(&server).lines().any(|line| line == "bernstein_acp_active_sessions 0"));
}

/// "Observability": a session is live, whoever opened it.
#[test]
fn differs_sessions_of_other_dialects_are_counted_as_active() {
    let server = served();
    let active = |count: &str| {
        let line = format!("bernstein_acp_active_sessions {count}");
        assert!(metrics(&server).lines().any(|found| found == line), "{}", metrics(&server));
    };
    active("0");
    assert_eq!(Ask::post("/session", "{}").token(TOKEN).send(&server).status, 201);
    active("1");
}

/// "The running task server's /metrics endpoint scrapes them automatically": a server on standard input and output has the
/// sessions itself and tells nobody else its numbers. With `--http` beside `--stdio` it shows them.
#[test]
fn differs_a_server_on_stdio_is_measured_by_itself() {
    let other = served();
    let mut bernstein = Program::named(&other.home, "bernstein", &STDIO);
    bernstein.call(1, "prompt", &json!({ "prompt": "list" }));
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    let page = metrics(&other);
    assert!(page.lines().any(|line| line == "bernstein_acp_active_sessions 0"), "{page}");
    assert!(!page.contains("method=\"prompt\""), "{page}");
}

/// Every request needs the token, also from this machine: any page in a browser and any program can connect to loopback,
/// and whoever drives the agent runs commands.
#[test]
fn differs_loopback_is_no_authentication() {
    let server = served();
    let frame = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let ask = Ask::post("/acp", frame).bare().header("content-type", "application/json");
    assert_eq!(ask.send(&server).status, 401);
}

/// A request of another site's page can have the content types of forms without asking first; JSON it must ask for, and is
/// refused. So what does not say that it is JSON is not taken, however right its body and its token are.
#[test]
fn differs_a_post_says_that_it_is_json() {
    let server = served();
    let frame = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let ask = Ask::new("POST", "/acp").token(TOKEN).body(frame.as_bytes());
    assert_eq!(ask.send(&server).status, 415);
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        assert_eq!(ask.clone().header("content-type", kind).send(&server).status, 415, "{kind}");
    }
    assert_eq!(ask.header("content-type", "application/json").send(&server).status, 200);
}

/// The handshake of a server that was started with these arguments, with this folder first on the path.
#[expect(
    clippy::disallowed_methods,
    reason = "the path of the program under test is that of the test and one more"
)]
fn hello(home: &std::sync::Arc<tempfile::TempDir>, path: &std::path::Path, arguments: &[&str]) -> Value {
    let mut command = command(&link(home, "bernstein"), home, arguments);
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    command.env("PATH", path);
    let mut agent = Program::run(home, command);
    agent.call(1, "initialize", &json!({})).1["result"].clone()
}

fn executable(file: &std::path::Path) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// "Available adapters": those that a prompt can reach, which is the one agent that this server runs (`--agent`). Which ones
/// are installed is another question: `ropewalk agents list --installed`.
#[test]
fn differs_the_adapters_are_those_of_this_server() {
    let home = home();
    let bin = home.path().join("bin");
    executable(&bin.join("opencode"));
    assert_eq!(hello(&home, &bin, &STDIO)["adapters"], json!(["ropewalk"]));
    let other = [&STDIO[..], &["--agent", "opencode"]].concat();
    assert_eq!(hello(&home, &bin, &other)["adapters"], json!(["opencode"]));
}

/// "Sandbox-backend selection": the owner's `--sandbox` decides how much commands may do, and one fence of our own holds them
/// in. Other programs that could are not used, so the handshake does not name them, and a client's choice has no effect.
#[test]
fn differs_the_one_sandbox_is_our_own() {
    let home = home();
    let bin = home.path().join("bin");
    for name in ["bwrap", "docker", "podman"] {
        executable(&bin.join(name));
    }
    let doctor = ended(&home, "ropewalk", &["doctor", "--json"]).json();
    let ours: Vec<Value> = hello(&home, &bin, &STDIO)["sandboxBackends"].as_array().unwrap().clone();
    assert_eq!(ours.len(), usize::from(doctor["enforces_sandbox"] == true), "{ours:?} {doctor}");
    assert!(!["bwrap", "docker", "podman"].iter().any(|name| ours.contains(&json!(name))), "{ours:?}");
    let mut bernstein = greeted();
    let prompt = json!({ "prompt": "list", "sandbox": "docker", "sandboxBackend": "docker" });
    assert!(bernstein.call(2, "prompt", &prompt).1["result"]["sessionId"].is_string());
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
}

/// "Cost-aware routing": the model is the one that the person chose, whatever a prompt costs, and nothing that a client names
/// routes it. The offline model `plain` says again what it can do where `terse` does not.
#[test]
fn differs_the_model_is_the_persons_choice() {
    for (chosen, lists) in [("offline:plain", 2), ("offline:terse", 1)] {
        let home = home();
        let arguments = [&STDIO[..], &["--model", chosen]].concat();
        let mut bernstein = Program::named(&home, "bernstein", &arguments);
        let params = json!({ "prompt": "gibberish", "model": "offline:terse", "budget": 0, "role": "qa" });
        bernstein.call(1, "prompt", &params);
        let mut said = String::new();
        until(&mut bernstein, |frame| {
            said.push_str(frame["params"]["delta"].as_str().unwrap_or_default());
            is_delta(frame, "turn_ended")
        });
        assert_eq!(said.matches("I can do: ").count(), lists, "{chosen}: {said}");
    }
}

/// "Remote HTTP usage rides the existing tunnel wrapper": there is no command that wraps a tunnel. A tunnel or a proxy of
/// one's own stands before the same door, which asks it for the token and takes its name with `--allow-host`.
#[test]
fn differs_a_server_elsewhere_needs_no_tunnel_wrapper() {
    let home = home();
    let refused = ended(&home, "bernstein", &["tunnel"]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    let arguments = ["acp", "serve", "--http", ":0", "--allow-host", "agent.example.com"];
    let server = http_server(&home, "bernstein", &arguments, "ROPEWALK_SERVER_TOKEN");
    let frame = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let ask = |host: &str| Ask::post("/acp", frame).header("host", host).token(TOKEN).send(&server).status;
    assert_eq!((ask("agent.example.com"), ask("other.example.com")), (200, 403));
}

/// "`auto` (always-allow)": what a person wrote down to be asked is asked in `auto` too.
#[test]
fn differs_auto_asks_what_a_rule_says_to_ask() {
    let home = home();
    ended(&home, "ropewalk", &["permissions", "add", "ask", "shell(touch:*)"]).with(0);
    let mut bernstein = Program::named(&home, "bernstein", &STDIO);
    bernstein.call(1, "prompt", &json!({ "prompt": "run touch made", "mode": "auto" }));
    let asked = until(&mut bernstein, |frame| frame["method"] == "requestPermission");
    assert!(asked["params"]["detail"].as_str().unwrap().contains("touch made"), "{asked}");
    assert!(!home.path().join("work/made").exists());
}

/// The owner says how far clients may go with `--approval-max`; `auto` beyond that is -32003, and what was set stays.
#[test]
fn differs_auto_goes_no_further_than_the_owner_lets() {
    let home = home();
    let limited = [&STDIO[..], &["--approval-max", "suggest"]].concat();
    let mut bernstein = Program::named(&home, "bernstein", &limited);
    let refused = bernstein.call(1, "prompt", &json!({ "prompt": "list", "mode": "auto" })).1;
    assert_eq!(refused["error"]["code"], -32003, "{refused}");
    let session = bernstein.call(2, "prompt", &json!({ "prompt": "list" })).1["result"]["sessionId"].clone();
    let auto = json!({ "sessionId": session, "mode": "auto" });
    assert_eq!(bernstein.call(3, "setMode", &auto).1["error"]["code"], -32003);
}
