//! What providers' error replies mean: can it be asked again, is it too long, what does a person do.

use std::collections::BTreeMap;

use agent::{ModelErrorKind, Provider, ProviderConfig, Secret, Wire};
use expect_test::{Expect, expect};

use crate::recorded;

fn provider() -> Provider {
    let mut config = ProviderConfig::new("acme", Wire::Chat);
    config.key = Some(Secret::new("sk-very-secret"));
    config.key_name = Some("ACME_API_KEY".into());
    Provider::new(config)
}

fn kind(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::Passing { .. } => "passing",
        ModelErrorKind::TooLong => "too long",
        ModelErrorKind::Lasting => "lasting",
    }
}

fn check(status: u16, body: &str, expected: Expect) {
    let error = provider().explain("acme:m1", status, body);
    expected.assert_eq(&format!("{}: {error}", kind(error.kind)));
}

#[test]
fn a_person_is_told_what_to_do() {
    check(
        401,
        r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
        expect![
            "lasting: acme says the key is not valid for this (401): invalid x-api-key; set ACME_API_KEY"
        ],
    );
    check(
        429,
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        expect![
            "lasting: acme says there is no credit left (429): You exceeded your current quota; add credit at acme or choose another model"
        ],
    );
    check(
        404,
        r#"{"error":{"message":"The model `m1` does not exist","code":"model_not_found"}}"#,
        expect![[
            r#"lasting: acme has no model "m1" (404): The model `m1` does not exist; `ropewalk models list` shows what there is"#
        ]],
    );
    check(
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
        expect![
            "too long: the conversation is too long for m1 (acme, 400): This model's maximum context length is 8192 tokens; /compact shortens it"
        ],
    );
    check(
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        expect!["passing: acme is busy (529): Overloaded"],
    );
    check(
        502,
        "<html><head><title>502 Bad Gateway</title></head><body>...</body></html>",
        expect!["passing: acme failed (502): 502 Bad Gateway"],
    );
    check(302, "", expect!["lasting: acme is not at this address (302); check its base URL"]);
    check(
        400,
        r#"{"error":{"message":"key sk-very-secret\n\u0007 is   odd"}}"#,
        expect!["lasting: acme refused the request (400): key *** is odd"],
    );
    check(
        404,
        r#"{"error":"model \"m1\" not found, try pulling it first"}"#,
        expect![[
            r#"lasting: acme has no model "m1" (404): model "m1" not found, try pulling it first; `ropewalk models list` shows what there is"#
        ]],
    );
}

#[test]
fn without_a_key_one_is_asked_for() {
    let error = Provider::new(ProviderConfig::new("acme", Wire::Chat)).explain("acme:m1", 401, "{}");
    expect!["acme wants a key (401); set its key"].assert_eq(&error.text);
}

#[test]
fn recorded_errors_are_understood() {
    let Some(rows) = recorded::file("model-errors.json") else { return };
    let mut table: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.as_array().unwrap() {
        let status = u16::try_from(row["status"].as_u64().unwrap()).unwrap();
        let body = row["body"].as_str().map_or_else(|| row["body"].to_string(), str::to_owned);
        let error = provider().explain("acme:m1", status, &body);
        let text: String = error.text.chars().take(120).collect();
        *table.entry(format!("{}: {text}", kind(error.kind))).or_default() += 1;
    }
    let table: String = table.iter().map(|(line, count)| format!("{count:3} {line}\n")).collect();
    expect![[r#"
          2 lasting: acme has no model "m1" (400): Invalid model: definitely-not-a-model; `ropewalk models list` shows what there is
          1 lasting: acme has no model "m1" (400): Model not found: grok-nonexistent-model-for-identity-edge; `ropewalk models list` shows wh
          2 lasting: acme has no model "m1" (400): The requested model 'gpt-4o-mini-nonexistent-rig-test' does not exist.; `ropewalk models l
          2 lasting: acme has no model "m1" (400): The requested model 'gpt-5.2-proo' does not exist.; `ropewalk models list` shows what ther
          2 lasting: acme has no model "m1" (400): The requested model 'gpt-nonexistent-model-for-error-edge' does not exist.; `ropewalk mode
          1 lasting: acme has no model "m1" (400): The requested model 'gpt-nonexistent-model-for-identity-edge' does not exist.; `ropewalk m
          1 lasting: acme has no model "m1" (400): The supported API model names are deepseek-v4-pro or deepseek-v4-flash, but you passed dee
          1 lasting: acme has no model "m1" (400): openai/gpt-nonexistent-routed-model is not a valid model ID; `ropewalk models list` shows 
          2 lasting: acme has no model "m1" (404): Specified model not found: venice-nonexistent-rig-test. Did you mean: venice-uncensored-1-
          1 lasting: acme has no model "m1" (404): The model `gpt-5.2-proo` does not exist or you do not have access to it.; `ropewalk models
          1 lasting: acme has no model "m1" (404): The model `groq-nonexistent-model-for-identity-edge` does not exist or you do not have acc
          1 lasting: acme has no model "m1" (404): The model `llama-3.3-70b-versatlie` does not exist or you do not have access to it.; `rope
          1 lasting: acme has no model "m1" (404): The model `non-existent` does not exist or you do not have access to it.; `ropewalk models
          2 lasting: acme has no model "m1" (404): The model `rig/definitely-not-a-doubleword-model` does not exist or you do not have access
          1 lasting: acme has no model "m1" (404): model: claude-nonexistent-model-for-error-edge; `ropewalk models list` shows what there is
          1 lasting: acme has no model "m1" (404): model: claude-nonexistent-model-for-identity-edge; `ropewalk models list` shows what there
          2 lasting: acme has no model "m1" (404): model: claude-nonexistent-rig-test; `ropewalk models list` shows what there is
          1 lasting: acme has no model "m1" (404): model: claude-sonet-4-5; `ropewalk models list` shows what there is
          1 lasting: acme has no model "m1" (404): models/gemini-nonexistent-rig-test is not found for API version v1beta, or is not supporte
          7 lasting: acme refused the request (400): Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `
          1 lasting: acme refused the request (400): Failed to load image or audio file
          1 lasting: acme refused the request (400): Field 'temperature': [json.exception.type_error.302] type must be number, but is string
          6 lasting: acme refused the request (400): Invalid 'messages[3]'. Content blocks are expected to be either text or image_url type.
          1 lasting: acme refused the request (400): Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 99.0 
          1 lasting: acme refused the request (400): Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -1 in
          1 lasting: acme refused the request (400): Invalid file data: 'input[3].output[0].file_data'. Expected a base64-encoded data URL wi
          1 lasting: acme refused the request (400): Invalid file data: 'input[4].content[0].file_data'. Expected a base64-encoded data URL w
          1 lasting: acme refused the request (400): Item 'rs_68c42de022c881948db7ed1cc2529f2e0202c9ad459e0d23' of type 'reasoning' was provi
          4 lasting: acme refused the request (400): Logprobs are not enabled for this model
          1 lasting: acme refused the request (400): No tool output found for tool call call-a.
          1 lasting: acme refused the request (400): Previous response with id 'resp_REDACTED_1' not found.
          2 lasting: acme refused the request (400): Schema is too complex for compilation. Try reducing the number of tools or simplifying t
          1 lasting: acme refused the request (400): Schemas contains too many optional parameters (25), which would make grammar compilation
          1 lasting: acme refused the request (400): Schemas contains too many parameters with union types (17 parameters with type arrays or
          2 lasting: acme refused the request (400): The file type you uploaded is not supported. Please try again with a pdf
          2 lasting: acme refused the request (400): Thinking mode does not support this tool_choice
          1 lasting: acme refused the request (400): This model does not support effort level 'xhigh'. Supported levels: high, low, max, medi
          1 lasting: acme refused the request (400): Too many strict tools (21). The maximum number of strict tools supported is 20. Try redu
          1 lasting: acme refused the request (400): Tool call validation failed: tool call validation failed: parameters for tool get_someth
          1 lasting: acme refused the request (400): Tool choice is required, but model did not call a tool
          1 lasting: acme refused the request (400): Unsupported value: 'messages[0].role' does not support 'developer' with this model.
          1 lasting: acme refused the request (400): Unsupported value: 'messages[0].role' does not support 'system' with this model.
          2 lasting: acme refused the request (400): Validation: Temperature must be between 0 and 2, got 100
          1 lasting: acme refused the request (400): Web search options not supported with this model.
          1 lasting: acme refused the request (400): messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: ca
          1 lasting: acme refused the request (400): temperature: range: 0..1
          5 lasting: acme refused the request (400): tools.0.custom.input_schema.type: Field required
          2 lasting: acme refused the request (400): tools.0.custom.input_schema.type: Input should be 'object'
          1 lasting: acme refused the request (400): tools.0.custom.input_schema: Input does not match the expected shape.
          1 lasting: acme refused the request (400): tools.0.custom: For 'object' type, property 'properties' is not supported
          1 lasting: acme refused the request (400): tools.0.custom: Invalid schema: Circular reference detected in schema definitions: Node 
          1 lasting: acme refused the request (400): unsupported content[].type
          1 lasting: acme refused the request (500): Cannot use both json_schema and grammar
          1 lasting: acme refused the request (500): image input is not supported - hint: if this is unexpected, you may need to provide the 
          1 lasting: acme refused the request (500): tools param requires --jinja flag
          1 lasting: acme says the key is not valid for this (400): Incorrect API key provided. You can obtain an API key from https://consol
          3 lasting: acme says the key is not valid for this (401): API key is invalid.; set ACME_API_KEY
          1 lasting: acme says the key is not valid for this (401): Authentication Fails, Your api key: ****-key is invalid; set ACME_API_KEY
          1 lasting: acme says the key is not valid for this (401): Could not parse your authentication token. Please try signing in again.; 
          3 lasting: acme says the key is not valid for this (401): Incorrect API key provided: sk-inval************************-key. You can
          1 lasting: acme says the key is not valid for this (401): Incorrect API key provided: sk-inval**************-key. You can find your
          3 lasting: acme says the key is not valid for this (401): Invalid API Key; set ACME_API_KEY
          2 lasting: acme says the key is not valid for this (403): Forbidden; set ACME_API_KEY
          1 passing: acme failed (500): error: cannot make GET request
          3 passing: acme is busy (429): Provider returned error - google/gemini-2.0-flash-exp:free is temporarily rate-limited upstream. Ple
          2 too long: the conversation is too long for m1 (acme, 400): request (2009 tokens) exceeds the available context size (512 tokens), 
    "#]].assert_eq(&table);
}
