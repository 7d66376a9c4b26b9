//! The limits of the official dialect: the last value that is accepted, and the first that is not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use expect_test::{Expect, expect};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use wire::acp::{IMPORT_EVENTS_MAX, PROMPT_TEXT_BYTES_MAX};
use wire::{ClientRequest, Decoder, Dialect, DialectSelection, LINE_FRAME_BYTES_MAX, RequestError};

const MIB: usize = 1 << 20;

fn connection() -> Decoder {
    let mut acp = Decoder::new(DialectSelection::Only(Dialect::Acp));
    acp.request("initialize", Some(&raw(&json!({ "protocolVersion": 1 }))), 100).unwrap();
    acp
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

fn request(method: &str, params: &Value) -> Result<ClientRequest, RequestError> {
    connection().request(method, Some(&raw(params)), 100)
}

fn check_refused(method: &str, params: &Value, expected: Expect) {
    expected.assert_eq(&format!("{:?}", request(method, params).unwrap_err()));
}

/// Every method that names a session, with the id in question.
fn naming(id: &str) -> Vec<(&'static str, Value)> {
    let place = json!({ "sessionId": id, "cwd": "/project", "mcpServers": [] });
    let just = json!({ "sessionId": id });
    vec![
        ("session/load", place.clone()),
        ("session/resume", place.clone()),
        ("session/fork", place),
        ("session/close", just.clone()),
        ("session/delete", just.clone()),
        ("session/cancel", just.clone()),
        ("session/prompt", json!({ "sessionId": id, "prompt": [{ "type": "text", "text": "x" }] })),
        ("session/set_mode", json!({ "sessionId": id, "modeId": "ask" })),
        ("session/set_config_option", json!({ "sessionId": id, "configId": "mode", "value": "ask" })),
        ("_session/get", json!({ "session_id": id })),
        ("_session/delete", json!({ "session_id": id })),
        ("_session/export", json!({ "session_id": id })),
        ("_agent/tools", json!({ "session_id": id })),
        ("_agent/working_dir/update", json!({ "session_id": id, "path": "/x" })),
    ]
}

#[test]
fn session_ids_have_up_to_128_characters_everywhere() {
    for (method, params) in naming(&"x".repeat(128)) {
        request(method, &params).unwrap_or_else(|fault| panic!("{method}: {fault:?}"));
    }
    for bad in [&"x".repeat(129), "", "../etc", "a b", "ä", "a\0"] {
        for (method, params) in naming(bad) {
            let refused = request(method, &params).err();
            assert!(
                matches!(refused, Some(RequestError::InvalidRequest(_))),
                "{method} {bad:?}: {refused:?}"
            );
        }
    }
    let mut acp = connection();
    let params = raw(&json!({ "sessionId": "x".repeat(129) }));
    assert!(matches!(
        acp.notification("session/cancel", Some(&params)),
        Err(RequestError::InvalidRequest(_))
    ));
}

fn prompt(texts: &[String]) -> Value {
    let mut blocks: Vec<_> = texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
    // The size of an image does not count as text.
    blocks.push(json!({ "type": "image", "mimeType": "image/png", "data": "A".repeat(MIB) }));
    json!({ "sessionId": "s", "prompt": blocks })
}

#[test]
fn a_prompt_has_up_to_one_mebibyte_of_text_over_all_its_blocks() {
    assert_eq!(PROMPT_TEXT_BYTES_MAX, MIB);
    request("session/prompt", &prompt(&["x".repeat(MIB)])).unwrap();
    request("session/prompt", &prompt(&["x".repeat(MIB - 10), "y".repeat(10)])).unwrap();
    request("session/prompt", &prompt(&["ä".repeat(MIB / 2)])).unwrap();
    check_refused(
        "session/prompt",
        &prompt(&["x".repeat(MIB + 1)]),
        expect![[
            r#"InvalidRequest("prompt too large: 1048577 bytes of text, the limit is 1048576; put it in a file and name the file")"#
        ]],
    );
    assert!(request("session/prompt", &prompt(&["x".repeat(MIB), "y".into()])).is_err());
    assert!(request("session/prompt", &prompt(&["ä".repeat(MIB / 2), "y".into()])).is_err());
    let resource =
        json!({ "type": "resource", "resource": { "uri": "file:///a", "text": "x".repeat(MIB + 1) } });
    assert!(request("session/prompt", &json!({ "sessionId": "s", "prompt": [resource] })).is_err());
}

#[test]
fn an_empty_prompt_is_refused() {
    check_refused(
        "session/prompt",
        &json!({ "sessionId": "s", "prompt": [] }),
        expect![[r#"InvalidParams("the prompt is empty: send at least one content block")"#]],
    );
}

#[test]
fn an_import_takes_ten_thousand_events_and_no_more() {
    assert_eq!(IMPORT_EVENTS_MAX, 10_000);
    let events = |count| {
        let event = json!({ "event_type": "turn_started", "turn": 1, "payload": {} });
        json!({ "events": vec![event; count] })
    };
    let ClientRequest::Import { events: taken } = request("_session/import", &events(10_000)).unwrap() else {
        panic!("not an import")
    };
    assert_eq!(taken.len(), 10_000);
    check_refused(
        "_session/import",
        &events(10_001),
        expect![[r#"InvalidRequest("too many events: 10001, and at most 10000 can be imported at once")"#]],
    );
    check_refused(
        "_session/import",
        &json!({ "events": [{ "event_type": "turn_started", "payload": {} }, { "event_type": "song", "payload": {} }] }),
        expect![[r#"InvalidParams("event 1: unknown kind of event \"song\"")"#]],
    );
}

#[test]
fn only_prompts_and_imports_come_in_big_frames() {
    for (method, params) in naming("s") {
        let raw = raw(&params);
        connection().request(method, Some(&raw), MIB).unwrap();
        let big = connection().request(method, Some(&raw), MIB + 1);
        if method == "session/prompt" {
            big.unwrap();
            connection().request(method, Some(&raw), LINE_FRAME_BYTES_MAX).unwrap();
        } else {
            assert_eq!(big.err(), Some(RequestError::FrameTooLong { limit_bytes: MIB }), "{method}");
        }
    }
    let import = raw(&json!({ "events": [] }));
    connection().request("_session/import", Some(&import), LINE_FRAME_BYTES_MAX).unwrap();
    let unknown = connection().request("no/such", None, MIB + 1);
    assert_eq!(unknown.err(), Some(RequestError::FrameTooLong { limit_bytes: MIB }));
}

#[test]
fn nothing_comes_before_initialize() {
    let mut acp = Decoder::new(DialectSelection::Only(Dialect::Acp));
    let refused = acp.request("session/new", None, 100).unwrap_err();
    assert_eq!(refused, RequestError::NotInitialized { method: "session/new".into() });
}
