//! Otter's ACP server.

use serde_json::{Value, json};

use crate::program::Program;

#[test]
fn malformed_json_is_answered_and_the_stream_stays_alive() {
    let mut otter = Program::start(&["serve", "--acp", "--dialect", "otter"]);
    otter.line("{not json");
    let (_, answer) = otter.until_answer(&Value::Null);
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    let (_, answer) = otter.call(1, "initialize", &json!({}));
    assert_eq!(answer["result"]["protocolVersion"], "0.1", "{answer}");
    let (code, log) = otter.close();
    assert_eq!(code, Some(0), "{log}");
}
