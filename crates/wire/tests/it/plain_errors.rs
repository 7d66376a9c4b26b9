//! Errors about unreadable frames are written for people, in every dialect and for every method.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::json_errors::names_internals;
use wire::{Client, Decoder, Dialect};

const METHODS: [&str; 39] = [
    "initialize",
    "authenticate",
    "logout",
    "session/new",
    "session/load",
    "session/resume",
    "session/fork",
    "session/list",
    "session/close",
    "session/delete",
    "session/prompt",
    "session/message",
    "session/cancel",
    "session/set_mode",
    "session/set_model",
    "session/configure",
    "session/set_config_option",
    "session/setMode",
    "session/setModel",
    "session/setSandbox",
    "session/setApproval",
    "session/bridgeStatus",
    "permission/respond",
    "tool/approve",
    "prompt",
    "setMode",
    "cancel",
    "requestPermission",
    "$/cancel_request",
    "_session/list",
    "_session/get",
    "_session/delete",
    "_session/export",
    "_session/import",
    "_agent/tools",
    "_agent/working_dir/update",
    "_agent/mcp/list",
    "_agent/mcp/add",
    "_agent/mcp/remove",
];

/// Members of various methods, so that each gets a value of the wrong type.
const MEMBERS: [&str; 34] = [
    "sessionId",
    "session_id",
    "cwd",
    "mcpServers",
    "additionalDirectories",
    "protocolVersion",
    "clientInfo",
    "clientCapabilities",
    "methodId",
    "prompt",
    "message",
    "content",
    "modeId",
    "mode",
    "modelId",
    "model",
    "configId",
    "value",
    "sandbox",
    "approval",
    "requestId",
    "permissionId",
    "reply",
    "decision",
    "answer",
    "id",
    "cursor",
    "events",
    "name",
    "transport",
    "args",
    "env",
    "limit",
    "after",
];

fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(7),
        json!(-1),
        json!(1.5),
        json!("word"),
        json!([]),
        json!([7]),
        json!([{}]),
        json!([{ "type": "dance" }]),
        json!([{ "type": "resource", "resource": { "uri": 5 } }]),
        json!([{ "type": "resource", "resource": {} }]),
        json!([{ "type": "image" }]),
        json!([{ "type": 7 }]),
        json!([{ "name": "n", "command": 7 }]),
        json!({}),
        json!({ "a": 1 }),
        json!({ "type": "dance" }),
    ]
}

fn odd_params() -> Vec<Value> {
    let mut odd = odd_values();
    for member in MEMBERS {
        for value in odd_values() {
            odd.push(json!({ member: value }));
            let mut whole = json!({
                "sessionId": "s-1", "session_id": "s-1", "cwd": "/tmp", "mcpServers": [], "prompt": [], "message": "hi",
                "modeId": "m", "modelId": "m", "configId": "c", "value": "v", "requestId": "r1.s-1",
            });
            whole[member] = value;
            odd.push(whole);
        }
    }
    odd
}

#[test]
fn no_dialect_says_anything_of_our_types_whatever_the_parameters_are() {
    let mut said = 0;
    let all = odd_params();
    for dialect in [Dialect::Acp, Dialect::Ferret, Dialect::Otter, Dialect::Bernstein] {
        for method in METHODS {
            for params in &all {
                let raw: Box<RawValue> = serde_json::from_str(&params.to_string()).unwrap();
                let mut decoder = Decoder::for_client(Client { dialect, ..Client::default() });
                let requested = decoder.request(method, Some(&raw), 100).err();
                let notified = decoder.notification(method, Some(&raw)).err();
                for fault in [requested, notified].into_iter().flatten() {
                    let text = fault.text();
                    assert!(!names_internals(&text), "{dialect:?} {method} {params}: {text}");
                    said += 1;
                }
            }
        }
    }
    assert!(said > 10_000, "{said}");
}

#[test]
fn a_frame_that_is_no_message_is_refused_in_plain_words() {
    for frame in [
        "",
        "{",
        "[",
        "[1",
        "{bad",
        "nul",
        "12",
        "true",
        "\"text\"",
        "null",
        "{}",
        "[]",
        "[{}]",
        "{\"jsonrpc\":2}",
        "{\"jsonrpc\":\"2.0\",\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"m\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"m\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1e999}",
        "{} {}",
        "{\"method\":\"\\ud800\"}",
        "{\"method\":\"a\u{1}\"}",
    ] {
        let (_, fault) = wire::parse(frame.as_bytes()).unwrap_err();
        assert!(!names_internals(&fault.text()), "{frame}: {}", fault.text());
    }
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let (_, fault) = wire::parse(deep.as_bytes()).unwrap_err();
    assert!(!names_internals(&fault.text()), "{}", fault.text());
}
