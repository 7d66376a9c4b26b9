//! The example program, and the page that shows it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::test_server::{TestServer, check};

#[path = "../../examples/countdown.rs"]
#[expect(dead_code, reason = "its main is for programs")]
mod countdown;

const LINES_MAX: usize = 60;

async fn run(test: impl AsyncFnOnce(&mut TestServer)) {
    check(|_| countdown::parts().unwrap(), test).await;
}

/// CC1.
#[tokio::test(start_paused = true)]
async fn the_example_counts_down_asks_and_launches_or_does_not() {
    run(async |test_server| {
        let mut client = test_server.connect();
        let hello = client.initialize().await;
        assert_eq!(hello["agentInfo"]["name"], "countdown");
        let session = client.new_session().await;
        for (option, end) in [("allow_once", "lift-off!"), ("reject_once", "not launched: ")] {
            client.forget_updates();
            let turn = client.send_prompt(&session, "3").await;
            let ask = client.next_ask().await;
            assert_eq!(ask["params"]["toolCall"]["title"], "Launch the rocket");
            assert_eq!(client.said(), "3 ... 2 ... 1 ... ");
            client.answer(&ask, option).await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert!(client.said().starts_with(&format!("3 ... 2 ... 1 ... {end}")), "{}", client.said());
        }
    })
    .await;
}

/// CC8.
#[tokio::test(start_paused = true)]
async fn the_example_stops_when_it_is_told_to() {
    run(async |test_server| {
        let mut client = test_server.client().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "1000000").await;
        client.next_update_of("agent_message_chunk").await;
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        let turn = client.send_prompt(&session, "1").await;
        let _asked = client.next_ask().await;
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        client.drain_withdrawn();
    })
    .await;
}

#[test]
fn the_example_is_short_and_the_guide_shows_it_as_it_is() {
    let example = include_str!("../../examples/countdown.rs");
    assert!(example.lines().count() < LINES_MAX);
    let guide = include_str!("../../../../docs/guide/embedding.md");
    assert!(guide.contains(example), "docs/guide/embedding.md shows another example");
}

/// The real program, on standard input and output.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test of a program starts it")]
fn the_example_serves_an_editor_as_a_program() {
    if std::env::var_os("SLOW").is_none() {
        return;
    }
    let program = program();
    assert!(program.exists(), "examples are built first: cargo build -p embed --examples");
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut say = |message: Value| writeln!(input, "{message}").unwrap();
    let mut hear = |wanted: &dyn Fn(&Value) -> bool| loop {
        let frame: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if wanted(&frame) {
            return frame;
        }
    };
    let call = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    say(call(1, "initialize", json!({ "protocolVersion": 1 })));
    assert_eq!(hear(&|frame| frame["id"] == 1)["result"]["agentInfo"]["version"], "1.0.0");
    say(call(2, "session/new", json!({ "cwd": "/", "mcpServers": [] })));
    let session = hear(&|frame| frame["id"] == 2)["result"]["sessionId"].clone();
    let prompt = json!([{ "type": "text", "text": "1" }]);
    say(call(3, "session/prompt", json!({ "sessionId": session, "prompt": prompt })));
    let ask = hear(&|frame| frame["method"] == "session/request_permission");
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    say(json!({ "jsonrpc": "2.0", "id": ask["id"], "result": outcome }));
    assert_eq!(
        hear(&|frame| frame["id"] == 3 && frame["result"].is_object())["result"]["stopReason"],
        "end_turn"
    );
    drop(input);
    assert!(child.wait().unwrap().success(), "it ends when its input does");
}

/// Beside the folder of this test's own program.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).map(Path::to_owned).unwrap();
    built.join("examples/countdown")
}
