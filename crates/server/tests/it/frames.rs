//! Lines in, lines out: what a byte stream is answered, whatever stands on it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Abilities, Backend, BackendSession, Principal, SessionSpec, Stop};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use server::Connection;
use testkit::Turns;
use testkit::server::{DEADLINE, Server, Setup};

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":1}}"#;

fn quiet() -> Setup {
    Setup::new(Turns::new(|_, _| async { Ok(Stop::EndTurn) }))
}

/// Sends these bytes to a server and returns all that comes back until it has nothing more to say.
async fn talk(setup: Setup, input: impl AsRef<[u8]>) -> String {
    let server = Server::start(setup);
    let (their_input, mut our_output) = std::io::pipe().unwrap();
    let (mut our_input, their_output) = std::io::pipe().unwrap();
    let (link, written) = server::stdio::over(their_input, their_output).unwrap();
    let mut connection = Connection::start(server.connection_parts(Principal::local()), link);
    let input = input.as_ref().to_owned();
    let writer = std::thread::spawn(move || our_output.write_all(&input).unwrap());
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        our_input.read_to_string(&mut output).unwrap();
        output
    });
    tokio::time::timeout(DEADLINE, connection.input_ended()).await.unwrap();
    connection.finish().await;
    server.stop().await;
    tokio::time::timeout(DEADLINE, written).await.unwrap().unwrap();
    writer.join().unwrap();
    reader.join().unwrap()
}

/// Sends lines after an `initialize` and shows the answers to them: id, then result or error.
async fn check(lines: &[&str], expected: Expect) {
    let input: String = std::iter::once(&INITIALIZE).chain(lines).map(|line| format!("{line}\n")).collect();
    let shown: String = replies(&talk(quiet(), input).await).iter().skip(1).map(show).collect();
    expected.assert_eq(&shown);
}

fn replies(output: &str) -> Vec<Value> {
    let frames = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    frames.filter(|frame| frame.get("method").is_none()).collect()
}

fn show(frame: &Value) -> String {
    match frame.get("error") {
        Some(error) => format!("{}: {} {}\n", frame["id"], error["code"], error["message"].as_str().unwrap()),
        None => format!("{}: {}\n", frame["id"], frame["result"]),
    }
}

/// A1.
#[tokio::test]
async fn one_line_gives_one_line_without_headers() {
    let output = talk(quiet(), format!("{INITIALIZE}\n")).await;
    assert!(output.starts_with(r#"{"jsonrpc":"2.0","id":"hello","result":{"#), "{output}");
    assert_eq!((output.lines().count(), output.ends_with("}\n")), (1, true));
}

/// A2.
#[tokio::test]
async fn an_answer_has_the_id_of_its_request_as_it_was_written() {
    check(
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"logout","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"logout","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":"abc","method":"logout","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":"a\u0062\n","method":"logout","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":-3,"method":"logout"}"#,
        ],
        expect![[r#"
            1: {}
            7: {}
            "abc": {}
            "ab\n": {}
            -3: {}
        "#]],
    )
    .await;
}

/// A3.
#[tokio::test]
async fn updates_have_no_id() {
    let workspace = tempfile::tempdir().unwrap();
    let new = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new",
        "params": { "cwd": workspace.path(), "mcpServers": [] } });
    let output = talk(Setup::offline(), format!("{INITIALIZE}\n{new}\n")).await;
    let updates: Vec<&str> = output.lines().filter(|line| line.contains("session/update")).collect();
    assert_eq!(updates.len(), 1, "{output}");
    assert!(updates.iter().all(|line| !line.contains("\"id\"")), "{updates:?}");
}

/// A10.
#[tokio::test]
async fn malformed_json_is_answered_and_the_stream_goes_on() {
    check(
        &["{bad", "\u{1}", "{\"jsonrpc\":\"2.0\"", r#"{"jsonrpc":"2.0","id":1,"method":"logout"}"#],
        expect![[r#"
            null: -32700 not valid JSON: key must be a string, at position 2
            null: -32700 not valid JSON: expected value, at position 1
            null: -32700 not valid JSON: it ends too early
            1: {}
        "#]],
    )
    .await;
}

/// A11.
#[tokio::test]
async fn an_unknown_method_is_refused_and_an_unknown_notification_ignored() {
    check(
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"foo/bar"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"_foo/bar","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"foo/bar"}"#,
            r#"{"jsonrpc":"2.0","method":"_foo/bar","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"$/whatever"}"#,
        ],
        expect![[r#"
            1: -32601 method not found: foo/bar
            2: -32601 method not found: _foo/bar
        "#]],
    )
    .await;
}

/// A12.
#[tokio::test]
async fn what_is_no_request_is_refused_as_one() {
    check(
        &[
            r#"{"id":1}"#,
            "[1]",
            r#"[{"jsonrpc":"2.0","id":1,"method":"logout"}]"#,
            r#"{"jsonrpc":"1.0","id":2,"method":"logout"}"#,
            r#"{"jsonrpc":"2.0","id":3}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"logout"}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"logout","result":1}"#,
            "true",
        ],
        expect![[r#"
            1: -32600 jsonrpc must be "2.0"
            null: -32600 batches are not supported: send each message by itself
            null: -32600 batches are not supported: send each message by itself
            2: -32600 jsonrpc must be "2.0"
            3: -32600 a message needs a method, or exactly one of result and error
            null: -32600 id must be an integer, a string or null
            4: -32600 a message has either a method, or a result or an error
            null: -32600 not a JSON-RPC message: the message must be an object, not true
        "#]],
    )
    .await;
}

/// A13.
#[tokio::test]
async fn wrong_parameters_are_refused_with_what_is_wrong() {
    check(
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"prompt":[]}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"mcpServers":[]}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"here","mcpServers":[]}}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"session/load"}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#,
            r#"{"jsonrpc":"2.0","id":6,"method":"initialize","params":{"protocolVersion":"1"}}"#,
        ],
        expect![[r#"
            1: -32602 invalid params: `sessionId` is missing
            2: -32602 invalid params: `cwd` is missing
            3: -32602 here is not an absolute path
            4: -32602 params are missing
            5: -32602 the prompt is empty: send at least one content block
            6: -32602 invalid params: `protocolVersion` must be a whole number, 0 or more, not a string
        "#]],
    )
    .await;
}

/// Breaks when the first session is opened.
struct Breaking {
    broken: AtomicBool,
    inner: Turns,
}

impl Backend for Breaking {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn open(&self, spec: SessionSpec, context: engine::SessionContext) -> std::sync::Arc<dyn BackendSession> {
        assert!(self.broken.swap(true, Ordering::SeqCst), "injected");
        self.inner.open(spec, context)
    }

    fn project_rules(&self, cwd: &std::path::Path) -> Vec<String> {
        self.inner.project_rules(cwd)
    }
}

/// A14.
#[tokio::test]
async fn a_handler_that_breaks_is_answered_and_the_server_goes_on() {
    let inner = Turns::new(|_, _| async { Ok(Stop::EndTurn) });
    let setup = Setup::new(Breaking { broken: AtomicBool::new(false), inner });
    testkit::server::run(setup, async |server| {
        let mut client = server.client().await;
        let cwd = server.workspace();
        let refused = client.refused("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        assert_eq!(refused.code, -32603, "{refused:?}");
        let session = client.new_session().await;
        assert_eq!(client.prompt(&session, "hello").await, "end_turn");
    })
    .await;
}

/// A16.
#[tokio::test]
async fn nothing_works_before_initialize() {
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"_session/list"}"#,
        INITIALIZE,
        r#"{"jsonrpc":"2.0","id":3,"method":"_session/list"}"#,
    ];
    let replies = replies(&talk(quiet(), lines.join("\n")).await);
    let shown: String = replies.iter().filter(|frame| frame["id"] != "hello").map(show).collect();
    expect![[r#"
        1: -32600 session/new came before initialize: send initialize first
        2: -32600 _session/list came before initialize: send initialize first
        3: {"sessions":[]}
    "#]]
    .assert_eq(&shown);
}

/// A17.
#[tokio::test]
async fn a_request_needs_an_id_and_a_notification_must_not_have_one() {
    check(
        &[
            r#"{"jsonrpc":"2.0","method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#,
            r#"{"jsonrpc":"2.0","method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"$/cancel_request","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"initialized"}"#,
        ],
        expect![[r#"
            null: -32600 session/prompt is a request: send it with an id
            null: -32600 session/new is a request: send it with an id
            1: -32600 $/cancel_request is a notification: send it without id
            2: -32600 initialized is a notification: send it without id
        "#]],
    )
    .await;
}

/// A18.
#[tokio::test]
async fn a_frame_that_is_too_long_is_refused_and_the_server_stays_up() {
    testkit::server::run(quiet(), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        assert_eq!(client.prompt(&session, &"x".repeat(900_000)).await, "end_turn");
        let padded = |bytes: usize| json!({ "cwd": "x".repeat(bytes) });
        let around = json!({ "jsonrpc": "2.0", "id": 4, "method": "session/list", "params": padded(0) });
        let room = (1 << 20) - around.to_string().len();
        client.call("session/list", padded(room)).await;
        let refused = client.refused("session/list", padded(room + 1)).await;
        assert_eq!(refused.code, -32700);
        assert!(refused.message.starts_with("frame exceeds size limit"), "{refused:?}");
        client.call("session/list", json!({})).await;
    })
    .await;
    let long = format!("{INITIALIZE}\n{}\n{INITIALIZE}\n", "x".repeat((32 << 20) + 1));
    let replies = replies(&talk(quiet(), long).await);
    assert_eq!(replies.len(), 3);
    assert_eq!((&replies[1]["id"], &replies[1]["error"]["code"]), (&Value::Null, &json!(-32700)));
    assert_eq!(replies[2]["id"], "hello");
}

/// A19, without a process around it.
#[tokio::test]
async fn a_last_line_without_its_end_is_answered() {
    let input = format!("{INITIALIZE}\n{}", r#"{"jsonrpc":"2.0","id":9,"method":"logout"}"#);
    let replies = replies(&talk(quiet(), input).await);
    assert_eq!(replies.last().unwrap()["id"], 9);
}
