//! zeph-acp's README, over the three transports that it names: standard input and output, HTTP with server-sent events,
//! and WebSocket.
//!
//! What the README promises to programs that embed the crate (`AgentSpawner`, `SendAgentSpawner`, `AcpContext`,
//! `SessionContext`, `ProviderFactory`, `serve_stdio`, `serve_connection`, `acp_router`, `acp_mcp_servers_to_entries`) is the
//! crate `embed`; `crates/embed/tests/it` proves it (`what_the_client_cannot_do_is_not_there`,
//! `the_row_of_a_session_is_there_before_its_agent_hears_of_it`, `a_cancel_of_the_client_is_seen_by_the_running_turn`,
//! `a_router_serves_the_same_sessions_beside_routes_of_ones_own`, `a_key_leads_to_its_provider_and_an_unknown_one_is_refused`,
//! `tool_servers_of_the_client_reach_the_agent_in_all_three_ways`). What needs another model, an editor's terminal or paused
//! time is proven by tests that have them, which are named where the README comes to it. Its settings are in `settings.rs`.
//! Which name of the crate is which here says one table (`docs/guide/embedding.md`, "Coming from zeph-acp"). Different there: a
//! newer Rust, the `unstable-*` features and `acp-http` are always on, permission and cancel are always there, and the HTTP
//! handlers are only to be had together.
//!
//! What stays different on purpose (`docs/dialects/acp.md` and `http.md` say more):
//! - `differs_without_a_store_no_session_begins`: a conversation that would be forgotten is not begun.
//! - `differs_a_session_with_work_makes_no_room`: a turn is not ended because somebody else opens a session.
//! - `differs_the_list_has_sessions_that_are_not_in_memory`: a client that starts again asks it which there are.
//! - `differs_sessions_are_not_in_zephs_tables`: one layout for every dialect.
//! - `differs_zephs_permission_file_is_only_read`: our rules say more than it can hold.
//! - `differs_with_a_malformed_permission_file_everything_is_asked`: nobody can tell what it refuses.
//! - `differs_terminal_output_needs_the_clients_capability`: clients drop updates with terminals that they do not know.
//! - `differs_the_place_of_a_tool_call_has_its_official_name`: `locations` and `path` are in the schema.
//! - `differs_usage_has_the_official_names_too`: on standard input and output zeph's names are in `_meta`.
//! - `differs_an_unknown_session_is_not_found_and_an_unknown_mode_is_refused`: official codes; modes are enforced.
//! - `differs_the_update_has_every_option`: the schema says that it is the complete list.
//! - `differs_auto_approve_is_a_choice_that_a_switch_sets_too`: there are five degrees of it.
//! - `differs_a_first_post_is_zephs_only_if_it_accepts_events_alone`: the official transport has the same address.
//! - `differs_http_asks_for_a_token`: being on this machine proves nothing.
//! - `differs_commands_run_in_a_terminal_of_our_own_behind_the_fence`: no sandbox holds the editor's terminal.
//! - `differs_an_editors_own_terminal_shows_its_own_output`: a second one would stay empty.
//! - `differs_tool_servers_belong_to_a_session`: a server is a program of one session, and starts with its next prompt: sessions
//!   that are only opened start no programs.
//! - `differs_a_session_moves_only_within_its_folders`: the folder decides what the agent may write.
//! - `differs_thinking_is_a_thought_level_on_standard_input_and_output`: editors find the option by its official category.
//! - `differs_a_socket_has_no_session_header`: there is no later request that could name it.

mod methods;
mod sessions;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::web::{self, Answer, Ask, Server, Socket, TOKEN};
use crate::seeds::program::{self, Program};

/// A client on one of the three transports.
struct Client {
    transport: Transport,
    home: Arc<TempDir>,
    last_id: u64,
}

enum Transport {
    Stdio(Box<Program>),
    Http { server: Box<Server>, connection: Option<String> },
    Socket { _server: Box<Server>, socket: Socket },
}

/// Updates and questions up to the answer, and the answer.
type Exchange = (Vec<Value>, Value);

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
        Self { transport: Transport::Stdio(Box::new(program)), home: Arc::clone(home), last_id: 0 }
    }

    fn http(home: &Arc<TempDir>, arguments: &[&str]) -> Self {
        let server = Box::new(serve_http(home, arguments));
        Self { transport: Transport::Http { server, connection: None }, home: Arc::clone(home), last_id: 0 }
    }

    fn socket(home: &Arc<TempDir>, arguments: &[&str]) -> Self {
        let server = Box::new(serve_http(home, arguments));
        let socket = Socket::asked(server.address(), TOKEN, |mut ask| {
            ask.path = "/acp/ws".into();
            ask
        });
        Self { transport: Transport::Socket { _server: server, socket }, home: Arc::clone(home), last_id: 0 }
    }

    fn work(&self) -> PathBuf {
        self.home.path().join("work").canonicalize().unwrap()
    }

    /// Calls a method and waits for its answer.
    #[track_caller]
    fn call(&mut self, method: &str, params: &Value) -> Exchange {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        match &mut self.transport {
            Transport::Stdio(program) => {
                program.send(&request);
                program.until_answer(&json!(self.last_id))
            }
            Transport::Http { server, connection } => {
                let answer = post(server, connection.as_deref(), &request);
                assert_eq!(answer.status, 200, "{answer:?}");
                let named = answer.header("acp-session-id").unwrap().to_owned();
                assert_eq!(connection.get_or_insert(named.clone()), &named);
                let mut frames = events(&answer);
                let last = frames.pop().unwrap();
                assert_eq!(last["id"], self.last_id, "the stream ends with the answer");
                (frames, last)
            }
            Transport::Socket { socket, .. } => {
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
        match &mut self.transport {
            Transport::Stdio(program) => program.send(&notification),
            Transport::Http { server, connection } => {
                assert_eq!(post(server, connection.as_deref(), &notification).status, 202);
            }
            Transport::Socket { socket, .. } => socket.send(&notification),
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
