//! zeph-acp's README, over the three transports that it names: standard input and output, HTTP with server-sent events,
//! and WebSocket.
//!
//! What the README promises to programs that embed the crate (`AgentSpawner`, `SendAgentSpawner`, `AcpContext`,
//! `SessionContext`, `ProviderFactory`, `serve_stdio`, `serve_connection`, `acp_router`, `acp_mcp_servers_to_entries`) is the
//! crate `embed`; `crates/embed/tests/embed` proves it (`what_the_client_cannot_do_is_not_there`,
//! `the_row_of_a_session_is_there_before_its_agent_hears_of_it`, `a_cancel_of_the_client_is_seen_by_the_running_turn`,
//! `a_router_serves_the_same_sessions_beside_routes_of_ones_own`, `a_key_leads_to_its_provider_and_an_unknown_one_is_refused`,
//! `tool_servers_of_the_client_reach_the_agent_in_all_three_ways`). What needs another model, an editor's terminal or paused
//! time is proven by tests that have them, which are named where the README comes to it. Its settings are in `settings.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{self, Program};
use crate::web::{self, Answer, Ask, Server, Socket, TOKEN};

/// A client on one of the three transports.
struct Client {
    way: Way,
    home: Arc<TempDir>,
    last_id: u64,
}

enum Way {
    Stdio(Box<Program>),
    Http { server: Box<Server>, connection: Option<String> },
    Socket { _server: Box<Server>, socket: Socket },
}

/// Updates and questions up to the answer, and the answer.
type Answered = (Vec<Value>, Value);

fn serve_http(home: &Arc<TempDir>, arguments: &[&str]) -> Server {
    let all: Vec<&str> = ["-v", "serve", "--http", ":0"].iter().chain(arguments).copied().collect();
    let mut command = web::ropewalk(&home.path().join("work"), &all);
    command.env("HOME", home.path()).env("ROPEWALK_HOME", home.path().join("state"));
    command.env("ROPEWALK_OFFLINE", "1").env("ZEPH_ACP_AUTH_TOKEN", TOKEN);
    Server::run(Arc::clone(home), command)
}

impl Client {
    fn stdio(home: &Arc<TempDir>, arguments: &[&str]) -> Self {
        let all: Vec<&str> = ["--acp"].iter().chain(arguments).copied().collect();
        let mut command = program::command(env!("CARGO_BIN_EXE_ropewalk").as_ref(), home, &all);
        command.env("ROPEWALK_HOME", home.path().join("state"));
        let program = Program::run(home, command);
        Self { way: Way::Stdio(Box::new(program)), home: Arc::clone(home), last_id: 0 }
    }

    fn http(home: &Arc<TempDir>, arguments: &[&str]) -> Self {
        let server = Box::new(serve_http(home, arguments));
        Self { way: Way::Http { server, connection: None }, home: Arc::clone(home), last_id: 0 }
    }

    fn socket(home: &Arc<TempDir>, arguments: &[&str]) -> Self {
        let server = Box::new(serve_http(home, arguments));
        let socket = Socket::asked(server.address(), TOKEN, |mut ask| {
            ask.path = "/acp/ws".into();
            ask
        });
        Self { way: Way::Socket { _server: server, socket }, home: Arc::clone(home), last_id: 0 }
    }

    fn work(&self) -> PathBuf {
        self.home.path().join("work").canonicalize().unwrap()
    }

    /// Calls a method and waits for its answer.
    #[track_caller]
    fn call(&mut self, method: &str, params: &Value) -> Answered {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        match &mut self.way {
            Way::Stdio(program) => {
                program.send(&request);
                program.until_answer(&json!(self.last_id))
            }
            Way::Http { server, connection } => {
                let answer = post(server, connection.as_deref(), &request);
                assert_eq!(answer.status, 200, "{answer:?}");
                let named = answer.header("acp-session-id").unwrap().to_owned();
                assert_eq!(connection.get_or_insert(named.clone()), &named);
                let mut frames = events(&answer);
                let last = frames.pop().unwrap();
                assert_eq!(last["id"], self.last_id, "the stream ends with the answer");
                (frames, last)
            }
            Way::Socket { socket, .. } => {
                socket.send(&request);
                let mut frames = Vec::new();
                loop {
                    let frame = socket.frame().unwrap();
                    if frame["id"] == self.last_id && frame.get("method").is_none() {
                        return (frames, frame);
                    }
                    frames.push(frame);
                }
            }
        }
    }

    /// What a method answers.
    #[track_caller]
    fn result(&mut self, method: &str, params: &Value) -> Value {
        let (_, answer) = self.call(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The code with which a method is refused.
    #[track_caller]
    fn refused(&mut self, method: &str, params: &Value) -> i64 {
        let (_, answer) = self.call(method, params);
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    fn notify(&mut self, method: &str, params: &Value) {
        let notification = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        match &mut self.way {
            Way::Stdio(program) => program.send(&notification),
            Way::Http { server, connection } => {
                assert_eq!(post(server, connection.as_deref(), &notification).status, 202);
            }
            Way::Socket { socket, .. } => socket.send(&notification),
        }
    }

    #[track_caller]
    fn hello(&mut self) -> Value {
        self.result(
            "initialize",
            &json!({ "protocolVersion": 1, "clientCapabilities": { "_meta": { "terminal_output": true } } }),
        )
    }

    #[track_caller]
    fn new_session(&mut self) -> String {
        let new = self.result("session/new", &json!({ "cwd": self.work(), "mcpServers": [] }));
        new["sessionId"].as_str().unwrap().to_owned()
    }

    /// The updates of a turn, and why it stopped.
    #[track_caller]
    fn prompt(&mut self, session: &str, text: &str) -> (Vec<Value>, String) {
        self.send(session, &json!([{ "type": "text", "text": text }]))
    }

    #[track_caller]
    fn send(&mut self, session: &str, blocks: &Value) -> (Vec<Value>, String) {
        let (frames, answer) =
            self.call("session/prompt", &json!({ "sessionId": session, "prompt": blocks }));
        let stop = answer["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (frames.iter().map(|frame| frame["params"]["update"].clone()).collect(), stop)
    }
}

fn post(server: &Server, connection: Option<&str>, message: &Value) -> Answer {
    let ask = Ask::post("/acp", &message.to_string()).header("accept", "text/event-stream");
    match connection {
        Some(id) => ask.header("acp-session-id", id).send(server),
        None => ask.send(server),
    }
}

/// The messages of a stream of events, each named `message`.
fn events(answer: &Answer) -> Vec<Value> {
    let text = String::from_utf8(without_chunks(&answer.body)).unwrap();
    let mut frames = Vec::new();
    for event in text.split("\n\n") {
        let line = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        if let Some(data) = line("data: ") {
            assert_eq!(line("event: "), Some("message"), "{event}");
            frames.push(serde_json::from_str(data).unwrap());
        }
    }
    frames
}

/// The body of an answer that came in chunks.
fn without_chunks(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap().trim(), 16).unwrap();
        whole.extend(&body[end + 2..end + 2 + size]);
        body = &body[(end + 4 + size).min(body.len())..];
    }
    whole
}

/// Runs a part of the README over every transport that it names.
fn everywhere(test: impl Fn(Client)) {
    for open in [Client::stdio, Client::http, Client::socket] {
        test(open(&program::home(), &[]));
    }
}

fn of_kind<'a>(updates: &'a [Value], kind: &str) -> Vec<&'a Value> {
    updates.iter().filter(|update| update["sessionUpdate"] == kind).collect()
}

fn said(updates: &[Value]) -> String {
    let chunks = of_kind(updates, "agent_message_chunk");
    chunks.iter().map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
}

fn option<'a>(options: &'a Value, id: &str) -> &'a Value {
    options.as_array().unwrap().iter().find(|option| option["id"] == id).unwrap()
}

/// `SessionContext`: sessions do not share a conversation, a fork takes it along, and a server that starts again knows it.
#[test]
fn sessions_are_isolated_forked_and_resumed() {
    everywhere(|mut client| {
        client.hello();
        let (one, other) = (client.new_session(), client.new_session());
        assert!([&one, &other].iter().all(|id| id.parse::<uuid_shape::Uuid>().is_ok()), "{one} {other}");
        client.prompt(&one, "think of the walrus");
        let asked = "what did I say?";
        assert!(said(&client.prompt(&one, asked).0).contains("walrus"));
        assert!(!said(&client.prompt(&other, asked).0).contains("walrus"));
        let place = json!({ "sessionId": one, "cwd": client.work(), "mcpServers": [] });
        let (_, fork) = client.call("session/fork", &place);
        let forked = fork["result"]["sessionId"].as_str().unwrap().to_owned();
        assert_eq!(option(&fork["result"]["configOptions"], "model")["currentValue"], "offline:plain");
        assert!(said(&client.prompt(&forked, asked).0).contains("walrus"), "the fork remembers");
        client.prompt(&forked, "think of the carpenter");
        assert!(!said(&client.prompt(&one, asked).0).contains("carpenter"), "and goes its own way");
    });
}

/// The same after a restart: `load_session` tells the history, `resume_session` does not.
#[test]
fn a_session_is_loaded_with_its_history_and_resumed_without_after_a_restart() {
    for open in [Client::stdio, Client::http, Client::socket] {
        let home = program::home();
        let mut first = Client::stdio(&home, &[]);
        first.hello();
        let session = first.new_session();
        first.prompt(&session, "think of the walrus");
        let Way::Stdio(program) = first.way else { unreachable!() };
        assert_eq!(program.close().0, Some(0));

        let mut client = open(&home, &[]);
        client.hello();
        let place = json!({ "sessionId": session, "cwd": client.work(), "mcpServers": [] });
        let (frames, answer) = client.call("session/resume", &place);
        assert!(answer["result"].is_object(), "{answer}");
        let told =
            |frames: &[Value]| frames.iter().any(|frame| frame.to_string().contains("user_message_chunk"));
        assert!(!told(&frames), "nothing is replayed: {frames:?}");
        let (frames, answer) = client.call("session/load", &place);
        assert!(answer["result"].is_object() && told(&frames), "{frames:?}");
        assert!(said(&client.prompt(&session, "what did I say?").0).contains("walrus"));
    }
}

/// A store that cannot be used refuses, and says why: a conversation that would be forgotten is not begun.
#[test]
fn differs_without_a_store_no_session_begins() {
    let home = program::home();
    fs::create_dir_all(home.path().join("state/sessions.db")).unwrap();
    let mut client = Client::stdio(&home, &[]);
    client.hello();
    let (_, answer) = client.call("session/new", &json!({ "cwd": client.work(), "mcpServers": [] }));
    assert!(answer["error"]["message"].is_string(), "{answer}");
}

/// Resolution failures and schemes that nobody knows are not fatal. What the model is given and what is refused (1 MiB, binary,
/// `.ssh`, `/proc`, private addresses) is proven by `crates/net/tests/prompts.rs`, and by `reach.rs` and `web.rs` in
/// `crates/agent/tests/it`.
#[test]
fn links_that_cannot_be_resolved_do_not_end_the_turn() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        fs::write(client.work().join("notes.txt"), "a note").unwrap();
        let link = |uri: String| json!({ "type": "resource_link", "uri": uri, "name": "it" });
        let blocks = json!([
            { "type": "text", "text": "what did I say?" },
            link(format!("file://{}/notes.txt", client.work().display())),
            link("file:///etc/passwd".into()),
            link("ftp://example.org/x".into()),
            link("http://127.0.0.1:1/x".into()),
        ]);
        let (updates, stop) = client.send(&session, &blocks);
        assert_eq!(stop, "end_turn");
        let told = Value::from(updates).to_string();
        assert!(!told.contains("root:"), "{told}");
    });
}

/// The README's table: normal completion, `max_turns`, cancel. `MaxTokens` needs a model that is cut off:
/// `every_way_to_stop_has_its_reason` in `crates/net/tests/cancel.rs`.
#[test]
fn stop_reasons_are_mapped() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        assert_eq!(client.prompt(&session, "hello").1, "end_turn");
    });
    for open in [Client::stdio, Client::http, Client::socket] {
        let mut client = open(&program::home(), &["--max-turns", "1"]);
        client.hello();
        let session = client.new_session();
        assert_eq!(client.prompt(&session, "list").1, "max_turn_requests");
    }
    let mut client = Client::stdio(&program::home(), &[]);
    client.hello();
    let session = client.new_session();
    let Way::Stdio(program) = &mut client.way else { unreachable!() };
    let prompt = json!([{ "type": "text", "text": "sleep 600000" }]);
    program.send(&json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": { "sessionId": session, "prompt": prompt } }));
    program
        .send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(program.until_answer(&json!(90)).1["result"]["stopReason"], "cancelled");
}

/// Two steps for every tool call, under one UUID, with the file it is about; failures say so.
#[test]
fn a_tool_call_is_announced_and_then_completed_or_failed() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        fs::write(client.work().join("notes.txt"), "a note").unwrap();
        for (text, ended) in [("read notes.txt", "completed"), ("read missing.txt", "failed")] {
            let (updates, stop) = client.prompt(&session, text);
            assert_eq!(stop, "end_turn");
            let (calls, results) = (of_kind(&updates, "tool_call"), of_kind(&updates, "tool_call_update"));
            assert_eq!((calls.len(), calls[0]["status"].as_str()), (1, Some("in_progress")), "{updates:?}");
            let id = calls[0]["toolCallId"].as_str().unwrap();
            assert!(id.parse::<uuid_shape::Uuid>().is_ok(), "{id}");
            let last = results.last().unwrap();
            assert_eq!((last["toolCallId"].as_str(), last["status"].as_str()), (Some(id), Some(ended)));
            let place = calls[0]["locations"][0]["path"].as_str().unwrap();
            assert!(place.starts_with(client.work().to_str().unwrap()), "{place}");
        }
    });
}

/// Output comes while the command runs, the exit code at its end. That an editor's terminal is released after the update
/// that shows it, and killed when its time is over, is in `crates/net/tests/host.rs`
/// (`a_command_runs_in_the_editors_terminal_which_is_given_back_last`,
/// `a_command_that_takes_too_long_is_killed_and_what_it_wrote_is_told`); that a sub-agent's updates name their parent is in
/// `crates/wire/tests/sub_agents.rs`.
#[test]
fn a_commands_output_is_streamed_and_its_exit_code_told() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "run echo hi");
        let results = of_kind(&updates, "tool_call_update");
        let output: String =
            results.iter().filter_map(|update| update["_meta"]["terminal_output"]["data"].as_str()).collect();
        assert_eq!(output, "hi\n", "{updates:?}");
        assert_eq!(results.last().unwrap()["_meta"]["terminal_exit"]["exit_code"], 0, "{updates:?}");
    });
}

/// `AgentCapabilities` and the auth hint, as the README lists them.
#[test]
fn initialize_advertises_what_the_readme_lists() {
    everywhere(|mut client| {
        let hello = client.hello();
        let can = &hello["agentCapabilities"];
        assert_eq!(can["loadSession"], true);
        assert_eq!(can["mcpCapabilities"], json!({ "http": true, "sse": true }));
        assert_eq!(can["_meta"], json!({ "config_options": true, "ext_methods": true }));
        for ability in ["list", "fork", "resume"] {
            assert!(can["sessionCapabilities"][ability].is_object(), "{ability}: {can}");
        }
        assert!(can["auth"]["logout"].is_object());
        assert_eq!(hello["_meta"]["auth_hint"], "authentication required");
        assert_eq!(client.result("logout", &json!({})), json!({}));
    });
}

/// `set_session_mode` of a session that there is; notifications that nobody knows are accepted in silence.
#[test]
fn a_mode_is_set_and_unknown_notifications_are_accepted() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        client.result("session/set_mode", &json!({ "sessionId": session, "modeId": "architect" }));
        for method in ["_zeph/editor_focused", "_lsp/didSave", "nobody/knows"] {
            client.notify(method, &json!({ "sessionId": session }));
        }
        assert_eq!(client.prompt(&session, "hello").1, "end_turn");
    });
}

/// An unknown session is -32002 as in the official protocol and not `invalid_request`; modes are enforced here, so one that
/// there is not is refused where zeph acknowledges anything.
#[test]
fn differs_an_unknown_session_is_not_found_and_an_unknown_mode_is_refused() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        assert_eq!(
            client.refused("session/set_mode", &json!({ "sessionId": "nobody", "modeId": "ask" })),
            -32002
        );
        let unknown =
            client.refused("session/set_mode", &json!({ "sessionId": session, "modeId": "nonsense" }));
        assert!([-32600, -32602].contains(&unknown), "{unknown}");
        client.result("session/set_mode", &json!({ "sessionId": session, "modeId": "ask" }));
        let (updates, _) = client.prompt(&session, "write a.txt: no");
        assert_eq!(of_kind(&updates, "tool_call_update").last().unwrap()["status"], "failed");
        assert!(!client.work().join("a.txt").exists());
    });
}

/// The three ways to reach a tool server, `sse` as `http`; and servers that come and go at run time.
#[test]
fn tool_servers_are_taken_in_all_three_ways_and_managed() {
    everywhere(|mut client| {
        client.hello();
        let servers = json!([
            { "name": "child", "command": "/nonexistent/server", "args": [], "env": [{ "name": "A", "value": "b" }] },
            { "type": "http", "name": "web", "url": "http://127.0.0.1:1/mcp", "headers": [] },
            { "type": "sse", "name": "old", "url": "http://127.0.0.1:1/sse", "headers": [] },
        ]);
        let new = client.result("session/new", &json!({ "cwd": client.work(), "mcpServers": servers }));
        let session = new["sessionId"].as_str().unwrap().to_owned();
        let listed = |client: &mut Client| {
            let list = client.result("_agent/mcp/list", &json!({ "session_id": session }));
            let pair =
                |server: &Value| format!("{} {}", server["name"], server["transport"]).replace('"', "");
            list["servers"].as_array().unwrap().iter().map(pair).collect::<Vec<_>>()
        };
        assert_eq!(listed(&mut client), ["child stdio", "web http", "old http"]);
        let transport = json!({ "type": "stdio", "command": "/nonexistent/other", "args": [], "env": {} });
        let add = json!({ "session_id": session, "id": "more", "transport": transport });
        assert_eq!(client.result("_agent/mcp/add", &add)["added"], "more");
        assert_eq!(listed(&mut client).len(), 4);
        let remove = json!({ "session_id": session, "id": "more" });
        assert_eq!(client.result("_agent/mcp/remove", &remove)["removed"], "more");
        assert_eq!(listed(&mut client).len(), 3);
    });
}

/// The three endpoints, the header, and the statuses that can be had from outside. 500 and 503, and the reaper that looks
/// every 60 s, are in `crates/net/tests/http_zeph.rs`; 503 before the server is ready is
/// `until_it_is_ready_the_server_says_that_it_is_starting`.
#[test]
fn the_http_endpoints_are_the_three_of_the_readme() {
    let home = program::home();
    let server = serve_http(&home, &[]);
    let hello =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
    let first = post(&server, None, &hello);
    assert_eq!((first.status, first.header("content-type")), (200, Some("text/event-stream")));
    let connection = first.header("acp-session-id").unwrap().to_owned();
    assert!(connection.parse::<uuid_shape::Uuid>().is_ok(), "{connection}");
    assert_eq!(events(&first)[0]["result"]["protocolVersion"], 1);
    let work = home.path().join("work").canonicalize().unwrap();
    let new = json!({ "jsonrpc": "2.0", "id": 5, "method": "session/new", "params": { "cwd": work, "mcpServers": [] } });
    assert_eq!(events(&post(&server, Some(&connection), &new)).last().unwrap()["id"], 5);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/list", "params": {} });
    let second = post(&server, Some(&connection), &list);
    assert_eq!((second.status, second.header("acp-session-id")), (200, Some(connection.as_str())));

    // The stream is taken up again after the first event, and then has everything since: the commands of the new session,
    // which came after the answer that names it, and the answer to the last call.
    let ask = Ask::get("/acp").header("accept", "text/event-stream");
    let again = ask.clone().header("acp-session-id", &connection).header("last-event-id", "1");
    let mut stream = web::connect(server.address());
    std::io::Write::write_all(&mut stream, &again.bytes(server.port)).unwrap();
    let mut seen = Vec::new();
    while !["\"sessions\"", "available_commands_update"]
        .iter()
        .all(|word| String::from_utf8_lossy(&seen).contains(word))
    {
        let mut some = [0; 4096];
        let count = std::io::Read::read(&mut stream, &mut some).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend(&some[..count]);
    }
    drop(stream);

    assert_eq!(ask.send(&server).status, 400, "a GET needs the header");
    for (id, status) in [("nonsense", 400), ("6b1f5c8e-3c5f-4a49-9a2b-000000000000", 404)] {
        assert_eq!(post(&server, Some(id), &list).status, status);
        assert_eq!(ask.clone().header("acp-session-id", id).send(&server).status, status);
    }
    assert_eq!(Ask::get("/acp/ws").websocket().send(&server).status, 101);
    assert_eq!(server.stop().0, Some(0));
}

/// Being on this machine proves nothing about who calls: HTTP asks for a token, `ZEPH_ACP_AUTH_TOKEN` or another.
#[test]
fn differs_http_asks_for_a_token() {
    let home = program::home();
    let server = serve_http(&home, &[]);
    let hello =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
    let ask = Ask::post("/acp", &hello.to_string()).header("accept", "text/event-stream");
    assert_eq!(ask.clone().bare().send(&server).status, 401);
    assert_eq!(ask.token("somebody-elses-token").send(&server).status, 401);
    assert_eq!(Ask::get("/acp/ws").websocket().bare().send(&server).status, 401);
    assert_eq!(server.stop().0, Some(0));
}

/// Images, embedded resources and thoughts; what cannot be shown is skipped with a warning.
#[test]
fn rich_content_is_taken_and_thoughts_are_streamed() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let blocks = json!([
            { "type": "text", "text": "what did I say?" },
            { "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" },
            { "type": "image", "mimeType": "image/tiff", "data": "AAAA" },
            { "type": "resource", "resource": { "uri": "file:///x.txt", "text": "inside" } },
        ]);
        let (updates, stop) = client.send(&session, &blocks);
        assert_eq!(stop, "end_turn");
        assert!(said(&updates).contains("file:///x.txt"), "the model has the resource: {updates:?}");
        let warned = Value::from(updates).to_string();
        assert!(warned.contains("images") && warned.contains("left out"), "{warned}");
        let (updates, _) = client.prompt(&session, "think");
        assert!(!of_kind(&updates, "agent_thought_chunk").is_empty(), "{updates:?}");
    });
}

/// `session/configure` with `config_id = "model"`, the same by the official name and by `set_session_model`.
#[test]
fn the_model_is_switched_in_all_the_ways_of_the_readme() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let current = |options: &Value| option(options, "model")["currentValue"].clone();
        let configure = json!({ "session_id": session, "config_id": "model", "value": "offline:terse" });
        let (frames, answer) = client.call("session/configure", &configure);
        assert_eq!(current(&answer["result"]["configOptions"]), "offline:terse");
        let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
        let told = of_kind(&updates, "config_option_update");
        assert_eq!(current(&told[0]["configOptions"]), "offline:terse", "the update has the changed option");
        let configure = json!({ "sessionId": session, "configId": "model", "value": "offline:plain" });
        assert_eq!(
            current(&client.result("session/configure", &configure)["configOptions"]),
            "offline:plain"
        );
        for params in [
            json!({ "sessionId": session, "modelId": "offline:terse" }),
            json!({ "session_id": session, "model_id": "offline:plain" }),
        ] {
            assert_eq!(client.result("session/set_model", &params), json!({}));
        }
        let official = json!({ "sessionId": session, "configId": "model", "value": "offline:terse" });
        assert_eq!(
            current(&client.result("session/set_config_option", &official)["configOptions"]),
            "offline:terse"
        );
        let unknown = json!({ "sessionId": session, "configId": "model", "value": "no:such" });
        assert!([-32600, -32602].contains(&client.refused("session/configure", &unknown)));
    });
}

/// The official protocol wants every option in the update, so that a client need not keep the others.
#[test]
fn differs_the_update_has_every_option() {
    let mut client = Client::http(&program::home(), &[]);
    client.hello();
    let session = client.new_session();
    let (frames, _) = client.call(
        "session/configure",
        &json!({ "session_id": session, "config_id": "model", "value": "offline:terse" }),
    );
    let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
    assert!(of_kind(&updates, "config_option_update")[0]["configOptions"].as_array().unwrap().len() > 1);
}

/// The README's categories, on its own transport; `auto_approve` is a name for `approval`.
#[test]
fn config_options_have_the_categories_of_the_readme() {
    let mut client = Client::http(&program::home(), &[]);
    client.hello();
    let new = client.result("session/new", &json!({ "cwd": client.work(), "mcpServers": [] }));
    for (id, category) in [("model", "model"), ("thinking", "model"), ("approval", "other")] {
        assert_eq!(option(&new["configOptions"], id)["category"], category);
    }
    let approve = json!({ "session_id": new["sessionId"], "config_id": "auto_approve", "value": "strict" });
    let options = client.result("session/configure", &approve)["configOptions"].clone();
    assert_eq!(option(&options, "approval")["currentValue"], "strict");
}

/// An answer for good is a rule in a file that only its owner reads, and the next session is not asked. A file that is
/// missing has no rules; one that is damaged is told of (`docs/permissions.md`).
#[test]
fn an_answer_for_good_is_kept_in_a_file_for_its_owner_alone() {
    let home = program::home();
    for asked in [true, false] {
        let mut client = Client::stdio(&home, &[]);
        client.hello();
        let session = client.new_session();
        let Way::Stdio(program) = &mut client.way else { unreachable!() };
        let prompt = json!([{ "type": "text", "text": "run git push nowhere main" }]);
        program.send(&json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": { "sessionId": session, "prompt": prompt } }));
        let mut questions = 0;
        loop {
            let frame = program.next();
            if frame["method"] == "session/request_permission" {
                questions += 1;
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_always" } });
                program.send(&json!({ "jsonrpc": "2.0", "id": frame["id"], "result": outcome }));
            } else if frame["id"] == 90 && frame.get("method").is_none() {
                break;
            }
        }
        assert_eq!(questions, usize::from(asked));
        let file = fs::metadata(home.path().join("state/permissions.toml")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        let Way::Stdio(program) = client.way else { unreachable!() };
        assert_eq!(program.close().0, Some(0));
    }
}

/// Zeph's own file of answers is read and never written: Ropewalk's rules say more than it can hold.
#[test]
fn differs_zephs_permission_file_is_only_read() {
    let home = program::home();
    let file = home.path().join(".config/zeph/acp-permissions.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "[tools]\nread_file = \"allow\"\n").unwrap();
    let mut client = Client::stdio(&home, &[]);
    client.hello();
    let session = client.new_session();
    client.prompt(&session, "run echo hi");
    assert_eq!(fs::read_to_string(&file).unwrap(), "[tools]\nread_file = \"allow\"\n");
}

/// The seven custom methods, in the README's order.
#[test]
fn custom_methods_list_read_copy_and_remove_sessions() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        fs::create_dir_all(client.work().join("inner")).unwrap();
        client.prompt(&session, "hello");
        let id = json!({ "session_id": session });
        let list = client.result("_session/list", &json!({}));
        assert_eq!(list["sessions"][0]["session_id"], session);
        let got = client.result("_session/get", &id);
        assert!(got["session_id"] == *session && !got["events"].as_array().unwrap().is_empty());
        let exported = client.result("_session/export", &id);
        assert!(exported["exported_at"].is_string());
        let imported = client.result("_session/import", &json!({ "events": exported["events"] }));
        let copy = imported["session_id"].as_str().unwrap().to_owned();
        assert!(
            copy != session && copy.parse::<uuid_shape::Uuid>().is_ok(),
            "a UUID from the server: {copy}"
        );
        let tools = client.result("_agent/tools", &id);
        assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "read"));
        let inner = client.work().join("inner");
        let moved =
            client.result("_agent/working_dir/update", &json!({ "session_id": session, "path": inner }));
        assert_eq!(moved["working_dir"], inner.to_str().unwrap());
        assert_eq!(client.result("_session/delete", &json!({ "session_id": copy }))["deleted"], true);
        assert_eq!(client.refused("_session/get", &json!({ "session_id": copy })), -32002);
        assert_eq!(client.refused("_nobody/knows", &json!({})), -32601);
    });
}

/// The README's guards: 128 characters of `[a-zA-Z0-9_-]`, no `..`, 10,000 events.
#[test]
fn custom_methods_are_guarded() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        for bad in ["a/b", "a b", "a\u{7}b", &"a".repeat(129)] {
            assert_eq!(client.refused("_session/get", &json!({ "session_id": bad })), -32600, "{bad:?}");
        }
        assert_eq!(client.refused("_session/get", &json!({ "session_id": "a".repeat(128) })), -32002);
        let up = json!({ "session_id": session, "path": format!("{}/../x", client.work().display()) });
        assert_eq!(client.refused("_agent/working_dir/update", &up), -32600);
        let event = json!({ "event_type": "user_message", "payload": { "content": [] } });
        if let Way::Stdio(_) = client.way {
            let many = vec![event; 10_001];
            assert_eq!(client.refused("_session/import", &json!({ "events": many })), -32600);
        }
    });
}

/// `session/list` with and without a folder; usage and a title after the first turn.
#[test]
fn sessions_are_listed_by_folder_and_a_turn_tells_usage_and_a_title() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (frames, answer) = client.call(
            "session/prompt",
            &json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "hello walrus" }] }),
        );
        let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
        assert!(!of_kind(&updates, "usage_update").is_empty());
        assert_eq!(of_kind(&updates, "session_info_update")[0]["title"], "hello walrus");
        let usage = &answer["result"]["usage"];
        assert!(
            usage["inputTokens"].as_u64() > Some(0) && usage["outputTokens"].as_u64() > Some(0),
            "{usage}"
        );
        let ids = |list: &Value| -> Vec<String> {
            let sessions = list["sessions"].as_array().unwrap().iter();
            sessions.map(|session| session["sessionId"].as_str().unwrap().to_owned()).collect()
        };
        let here = client.result("session/list", &json!({ "cwd": client.work() }));
        assert_eq!(ids(&here), [session.as_str()]);
        assert!(here["sessions"][0]["cwd"].is_string() && here["sessions"][0]["updatedAt"].is_string());
        assert_eq!(ids(&client.result("session/list", &json!({}))), [session.as_str()]);
        assert!(ids(&client.result("session/list", &json!({ "cwd": "/" }))).is_empty());
    });
}

/// The official schema names the numbers of a turn differently from the README (`inputTokens` in the answer; the update says
/// how full the context is). The tokens of a provider's cache are `cachedReadTokens` and `cachedWriteTokens`.
#[test]
fn differs_usage_has_the_official_names() {
    let mut client = Client::stdio(&program::home(), &[]);
    client.hello();
    let session = client.new_session();
    let (updates, _) = client.prompt(&session, "hello");
    let usage = of_kind(&updates, "usage_update")[0].clone();
    assert!(
        usage["used"].is_u64() && usage["size"].is_u64() && usage.get("input_tokens").is_none(),
        "{usage}"
    );
}

/// A plan is told as it is made.
#[test]
fn a_plan_is_told() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "plan");
        assert!(
            of_kind(&updates, "plan")[0]["entries"].as_array().is_some_and(|entries| !entries.is_empty())
        );
    });
}

/// The five commands of the README are offered when a session begins, and answered without the model.
#[test]
fn slash_commands_are_offered_and_dispatched() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "/help");
        let told = said(&updates);
        for command in ["/help", "/model", "/mode", "/clear", "/compact"] {
            assert!(told.contains(command), "{told}");
        }
        let offered = |updates: &[Value]| -> Vec<String> {
            let commands = of_kind(updates, "available_commands_update");
            let names = commands.iter().flat_map(|update| update["availableCommands"].as_array().unwrap());
            names.map(|command| command["name"].as_str().unwrap().to_owned()).collect()
        };
        // Over HTTP the offer comes after the answer that ends the stream of `session/new`: `GET /acp` has it, as in
        // `the_http_endpoints_are_the_three_of_the_readme`.
        if matches!(client.way, Way::Stdio(_) | Way::Socket { .. }) {
            let names = offered(&updates);
            for command in ["help", "model", "mode", "clear", "compact"] {
                assert!(names.iter().any(|name| name == command), "{names:?}");
            }
        }
        assert!(said(&client.prompt(&session, "/mode ask").0).contains("ask"));
        assert!(said(&client.prompt(&session, "/model offline:terse").0).contains("offline:terse"));
        assert_eq!(client.prompt(&session, "/clear").1, "end_turn");
        assert_eq!(client.prompt(&session, "/compact").1, "end_turn");
    });
}

/// How an id is written.
mod uuid_shape {
    pub struct Uuid;

    impl std::str::FromStr for Uuid {
        type Err = ();

        fn from_str(text: &str) -> Result<Self, ()> {
            let groups: Vec<&str> = text.split('-').collect();
            let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
            let hex = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
            if lengths == [8, 4, 4, 4, 12] && hex { Ok(Self) } else { Err(()) }
        }
    }
}
