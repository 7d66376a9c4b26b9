//! What providers' error replies mean: can it be asked again, is it too long, what does a person do.

use std::collections::BTreeMap;

use agent::{ModelErrorKind, Provider, ProviderConfig, Secret, Wire};
use expect_test::expect;

use crate::models::recorded;

fn provider() -> Provider {
    let mut config = ProviderConfig::new("acme", Wire::Chat);
    config.key = Some(Secret::new("sk-very-secret"));
    config.key_name = Some("ACME_API_KEY".into());
    Provider::new(config)
}

fn kind(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::Transient { .. } => "passing",
        ModelErrorKind::TooLong => "too long",
        ModelErrorKind::Permanent => "lasting",
    }
}

#[test]
fn a_person_is_told_what_to_do() {
    let cases = [
        (401, r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#),
        (429, r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#),
        (402, r#"{"error":{"message":"This request requires more credits","code":402}}"#),
        (404, r#"{"error":{"message":"The model `m1` does not exist","code":"model_not_found"}}"#),
        (404, r#"{"error":"model \"m1\" not found, try pulling it first"}"#),
        (404, "404 page not found"),
        (400, r#"{"error":{"message":"Too much","code":"context_length_exceeded"}}"#),
        (400, r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#),
        (413, r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#),
        (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
        (502, "<html><head><title>502 Bad Gateway</title></head><body>...</body></html>"),
        (302, ""),
        (422, r#"{"detail":[{"loc":["body"],"msg":"Extra inputs are not permitted"}]}"#),
        (400, r#"{"error":{"message":"key sk-very-secret\n\u0007 is   odd"}}"#),
    ];
    let told = cases.map(|(status, body)| {
        let error = provider().explain("acme:m1", status, body);
        format!("{}: {error}\n", kind(error.kind))
    });
    expect![[r#"
        lasting: acme says the key is not valid (401): invalid x-api-key; set ACME_API_KEY
        lasting: acme says there is no credit left (429): You exceeded your quota; add credit at acme or choose another model
        lasting: acme says there is no credit left (402): This request requires more credits; add credit at acme or choose another model
        lasting: acme has no model "m1" (404): The model `m1` does not exist; list the models with `ropewalk models list`
        lasting: acme has no model "m1" (404): model "m1" not found, try pulling it first; list the models with `ropewalk models list`
        lasting: acme was not found at this address (404): 404 page not found; check its base URL
        too long: the conversation is too long for m1 (acme, 400): Too much; /compact shortens it
        too long: the conversation is too long for m1 (acme, 400): prompt is too long: 210000 tokens > 200000 maximum; /compact shortens it
        too long: the conversation is too long for m1 (acme, 413): Request exceeds the maximum size; /compact shortens it
        passing: acme is busy (529): Overloaded
        passing: acme failed (502): 502 Bad Gateway
        lasting: acme was not found at this address (302); check its base URL
        lasting: acme refused the request (422): Extra inputs are not permitted
        lasting: acme refused the request (400): key *** is odd
    "#]].assert_eq(&told.concat());
}

#[test]
fn without_a_key_one_is_asked_for() {
    let error = Provider::new(ProviderConfig::new("acme", Wire::Chat)).explain("acme:m1", 401, "{}");
    expect!["acme requires a key (401); set its key"].assert_eq(&error.text);
}

#[test]
fn recorded_errors_are_understood() {
    let Some(rows) = recorded::file("model-errors.json") else { return };
    let mut table: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.as_array().unwrap() {
        let status = u16::try_from(row["status"].as_u64().unwrap()).unwrap();
        let body = row["body"].as_str().map_or_else(|| row["body"].to_string(), str::to_owned);
        let error = provider().explain("acme:m1", status, &body);
        let text: String = error.text.chars().take(56).collect();
        *table.entry(format!("{}: {text}", kind(error.kind))).or_default() += 1;
    }
    let table: String = table.iter().map(|(line, count)| format!("{count} {line}\n")).collect();
    expect![[r#"
          2 lasting: acme does not allow this with this key (403): Forbidden;
          2 lasting: acme has no model "m1" (400): Invalid model: definitely-
          1 lasting: acme has no model "m1" (400): Model not found: grok-none
          2 lasting: acme has no model "m1" (400): The requested model 'gpt-4
          2 lasting: acme has no model "m1" (400): The requested model 'gpt-5
          3 lasting: acme has no model "m1" (400): The requested model 'gpt-n
          1 lasting: acme has no model "m1" (400): The supported API model na
          1 lasting: acme has no model "m1" (400): openai/gpt-nonexistent-rou
          2 lasting: acme has no model "m1" (404): Specified model not found:
          1 lasting: acme has no model "m1" (404): The model `gpt-5.2-proo` d
          1 lasting: acme has no model "m1" (404): The model `groq-nonexisten
          1 lasting: acme has no model "m1" (404): The model `llama-3.3-70b-v
          1 lasting: acme has no model "m1" (404): The model `non-existent` d
          2 lasting: acme has no model "m1" (404): The model `rig/definitely-
          4 lasting: acme has no model "m1" (404): model: claude-nonexistent-
          1 lasting: acme has no model "m1" (404): model: claude-sonet-4-5; l
          1 lasting: acme has no model "m1" (404): models/gemini-nonexistent-
          7 lasting: acme refused the request (400): Failed to deserialize th
          1 lasting: acme refused the request (400): Failed to load image or 
          1 lasting: acme refused the request (400): Field 'temperature': [js
          6 lasting: acme refused the request (400): Invalid 'messages[3]'. C
          2 lasting: acme refused the request (400): Invalid 'temperature': d
          2 lasting: acme refused the request (400): Invalid file data: 'inpu
          1 lasting: acme refused the request (400): Item 'rs_68c42de022c8819
          4 lasting: acme refused the request (400): Logprobs are not enabled
          1 lasting: acme refused the request (400): No tool output found for
          1 lasting: acme refused the request (400): Previous response with i
          2 lasting: acme refused the request (400): Schema is too complex fo
          2 lasting: acme refused the request (400): Schemas contains too man
          2 lasting: acme refused the request (400): The file type you upload
          2 lasting: acme refused the request (400): Thinking mode does not s
          1 lasting: acme refused the request (400): This model does not supp
          1 lasting: acme refused the request (400): Too many strict tools (2
          1 lasting: acme refused the request (400): Tool call validation fai
          1 lasting: acme refused the request (400): Tool choice is required,
          2 lasting: acme refused the request (400): Unsupported value: 'mess
          2 lasting: acme refused the request (400): Validation: Temperature 
          1 lasting: acme refused the request (400): Web search options not s
          1 lasting: acme refused the request (400): messages.1: `tool_use` i
          1 lasting: acme refused the request (400): temperature: range: 0..1
          8 lasting: acme refused the request (400): tools.0.custom.input_sch
          1 lasting: acme refused the request (400): tools.0.custom: For 'obj
          1 lasting: acme refused the request (400): tools.0.custom: Invalid 
          1 lasting: acme refused the request (400): unsupported content[].ty
          1 lasting: acme refused the request (500): Cannot use both json_sch
          1 lasting: acme refused the request (500): image input is not suppo
          1 lasting: acme refused the request (500): tools param requires --j
          1 lasting: acme says the key is not valid (400): Incorrect API key 
          3 lasting: acme says the key is not valid (401): API key is invalid
          1 lasting: acme says the key is not valid (401): Authentication Fai
          1 lasting: acme says the key is not valid (401): Could not parse yo
          4 lasting: acme says the key is not valid (401): Incorrect API key 
          3 lasting: acme says the key is not valid (401): Invalid API Key; s
          1 passing: acme failed (500): error: cannot make GET request
          3 passing: acme is busy (429): Provider returned error - google/gem
          2 too long: the conversation is too long for m1 (acme, 400): request
    "#]]
    .assert_eq(&table);
}
