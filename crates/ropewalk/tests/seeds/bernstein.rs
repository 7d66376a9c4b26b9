//! Bernstein's native ACP bridge.
//!
//! What stays different on purpose:
//! - `differs_loopback_is_no_authentication`: every program and every page on this machine reaches loopback.
//! - `differs_the_audit_says_who_it_was`: an audit that did not would be of little use.
//! - `differs_a_server_on_stdio_is_measured_by_itself`: there is no task server behind it that would have its numbers.
//! - `differs_an_official_client_is_answered_in_the_official_protocol`: the recipe is Zed's, and that is what Zed speaks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events::{Event, follow};
use crate::program::{DEADLINE, Program, TOKEN, ended, home, http_server};
use crate::web::{Answer, Ask, Server};

const STDIO: [&str; 3] = ["acp", "serve", "--stdio"];

fn greeted() -> Program {
    let mut bernstein = Program::named(&home(), "bernstein", &STDIO);
    let (_, hello) = bernstein.call(1, "initialize", &json!({ "protocolVersion": "2025-04-01" }));
    assert_eq!(hello["result"]["protocolVersion"], "2025-04-01", "{hello}");
    bernstein.send(&json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} }));
    bernstein
}

#[track_caller]
fn until(bernstein: &mut Program, wanted: impl Fn(&Value) -> bool) -> Value {
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
    let _held = crate::program::hold_port(8062);
    let home = home();
    for arguments in [
        &["acp", "serve", "--http", ":8062"][..],
        &["acp", "serve", "--http=:8062"],
        &["acp", "serve", "--http"],
    ] {
        let refused = ended(&home, "bernstein", arguments).with(1);
        assert!(
            refused.err.contains("127.0.0.1:8062 cannot be listened on"),
            "{arguments:?}: {}",
            refused.err
        );
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
    let mut methods = Vec::new();
    loop {
        let event = events.recv_timeout(DEADLINE).unwrap();
        assert_eq!(event.name.as_deref(), Some("notification"));
        methods.push(event.data["method"].clone());
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

/// "Observability": both metrics, with every outcome of the list.
#[test]
fn the_metrics_have_every_outcome() {
    let server = served();
    let call = |id: u64, method: &str, params: Value| {
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        post(&server, &frame.to_string()).json()
    };
    call(1, "initialize", json!({ "protocolVersion": "2025-04-01" }));
    call(2, "prompt", json!({}));
    let prompt = r#"{"jsonrpc":"2.0","id":3,"method":"prompt","params":{"prompt":"run touch made; true"}}"#;
    let events = stream(&server, prompt);
    let session = events.recv_timeout(DEADLINE).unwrap().data["result"]["sessionId"].clone();
    let asked = loop {
        let event = events.recv_timeout(DEADLINE).unwrap();
        if event.data["method"] == "requestPermission" {
            break event.data["params"]["promptId"].clone();
        }
    };
    let decision = json!({ "sessionId": session, "promptId": asked, "decision": "rejected" });
    call(4, "requestPermission", decision.clone());
    call(5, "requestPermission", decision);
    assert!(metrics(&server).lines().any(|line| line == "bernstein_acp_active_sessions 1"));
    call(6, "setMode", json!({ "sessionId": session, "mode": "auto" }));
    call(7, "cancel", json!({ "sessionId": session }));
    call(8, "cancel", json!({ "sessionId": session }));
    let page = metrics(&server);
    assert!(page.lines().any(|line| line == "bernstein_acp_active_sessions 0"), "{page}");
    let has = |method: &str, outcome: &str, count: u32| {
        let line =
            format!("bernstein_acp_messages_total{{method=\"{method}\",outcome=\"{outcome}\"}} {count}");
        page.lines().any(|found| found == line)
    };
    for (method, outcome) in [
        ("initialize", "ok"),
        ("prompt", "ok"),
        ("prompt", "rejected"),
        ("requestPermission", "permission_denied"),
        ("requestPermission", "rejected"),
        ("setMode", "ok"),
        ("cancel", "ok"),
        ("cancel", "rejected"),
    ] {
        assert!(has(method, outcome, 1), "{method} {outcome}: {page}");
    }
    // Every outcome of the list is there from the beginning, so that whoever watches them can add them up.
    for outcome in ["ok", "error", "rejected", "cancelled", "permission_denied"] {
        assert!(has("unknown", outcome, 0), "{outcome}: {page}");
    }
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

/// One turn by the bridge and the same by the command line, and what the audit says of both: the rows of each.
fn audited() -> (Arc<TempDir>, [Vec<Value>; 2]) {
    let home = home();
    let mut bernstein = Program::named(&home, "bernstein", &STDIO);
    bernstein.call(1, "prompt", &json!({ "prompt": "run echo hi > made; true", "mode": "auto" }));
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    bernstein.close();
    ended(&home, "ropewalk", &["run", "--approval", "full", "run echo hi > made; true"]).with(0);
    let shown = ended(&home, "ropewalk", &["audit", "show", "--json"]).with(0);
    let shown = shown.json();
    let rows = shown["rows"].as_array().unwrap();
    let mut sessions: Vec<&str> = rows.iter().filter_map(|row| row["resource_id"].as_str()).collect();
    sessions
        .retain(|id| rows.iter().any(|row| row["resource_id"] == **id && row["event_type"] == "acp.prompt"));
    sessions.dedup();
    assert_eq!(sessions.len(), 2, "{shown}");
    let entries = |session: &&str| -> Vec<Value> {
        let kinds = ["acp.prompt", "acp.permission", "tool.call", "turn.ended"];
        let own = |row: &&Value| {
            row["resource_id"] == **session && kinds.iter().any(|kind| row["event_type"] == *kind)
        };
        let same = |row: &Value| {
            let mut row: Value = serde_json::from_str(&row.to_string().replace(*session, "SESSION")).unwrap();
            for name in ["timestamp", "hmac", "prev_hmac", "file", "line"] {
                row.as_object_mut().unwrap().remove(name);
            }
            for name in ["elapsed_ms", "seq", "call"] {
                row["details"].as_object_mut().unwrap().remove(name);
            }
            row
        };
        rows.iter().filter(own).map(same).collect()
    };
    let both = [&sessions[0], &sessions[1]].map(entries);
    assert_eq!(both[0].len(), 4, "{shown}");
    (home, both)
}

/// "Audit": what is driven over ACP has the same entries as on the command line, but for time, chain, numbers and who it was.
#[test]
fn the_audit_has_the_same_entries_as_for_the_command_line() {
    let (home, mut both) = audited();
    for row in both.iter_mut().flatten() {
        row["details"].as_object_mut().unwrap().remove("peer");
    }
    assert_eq!(both[0], both[1]);
    ended(&home, "ropewalk", &["audit", "verify"]).with(0);
}

/// "Byte-identical (modulo timestamp + chain HMAC)": here the rows also say through which client it was done.
#[test]
fn differs_the_audit_says_who_it_was() {
    let (_home, both) = audited();
    let peers = both.map(|rows| rows[0]["details"]["peer"].clone());
    assert_eq!(peers, [json!("client"), json!("run")]);
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
