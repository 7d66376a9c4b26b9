//! The OpenAPI document of these routes (`docs/reference/rest.openapi.json`), which every answer in these tests has to fit.

use std::sync::OnceLock;

use serde_json::Value;

/// A body without a description fails a test; so does a field without one, and a required field that is missing.
pub fn check(method: &str, path: &str, request: &[u8], status: u16, media_type: &str, answer: &str) {
    let document = document();
    let Some(operation) = operation(document, method, path) else { return };
    let place = format!("{method} {path}: {status}");
    let responses = &operation["responses"];
    let told = responses.get(status.to_string()).unwrap_or(&responses["default"]);
    let told = resolved(document, told);
    if answer.is_empty() {
        assert!(told.get("content").is_none() || !status.to_string().starts_with('2'), "{place}: no body");
        return;
    }
    let media_type = media_type.split(';').next().unwrap_or_default();
    let schema = &told["content"][media_type]["schema"];
    assert!(!schema.is_null(), "{place}: {media_type} is not in the document");
    if media_type == "application/json" {
        let answer = serde_json::from_str(answer).unwrap();
        fit(document, schema, &answer, true).unwrap_or_else(|wrong| panic!("{place}: answer{wrong}"));
    }
    let asked = &operation["requestBody"]["content"]["application/json"]["schema"];
    // A route that needs nothing of its body does not read it.
    let request = serde_json::from_slice(request).ok().filter(Value::is_object);
    if let Some(request) = request.filter(|_| (200..300).contains(&status) && !asked.is_null()) {
        fit(document, asked, &request, false).unwrap_or_else(|wrong| panic!("{place}: request{wrong}"));
    }
}

/// Whether there may be a stream at this address: other routes are none of this document's.
pub fn may_stream(method: &str, path: &str) -> bool {
    let Some(operation) = operation(document(), method, path) else { return true };
    !operation["responses"]["200"]["content"]["text/event-stream"].is_null()
}

fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let text = include_str!("../../../../../docs/reference/rest.openapi.json");
        serde_json::from_str(text).unwrap()
    })
}

fn operation<'a>(document: &'a Value, method: &str, path: &str) -> Option<&'a Value> {
    let path = path.split('?').next().unwrap();
    let is_here = |template: &str| {
        let mut parts = path.split('/');
        let same = template.split('/').all(|wanted| {
            parts.next().is_some_and(|part| part == wanted || (wanted.starts_with('{') && !part.is_empty()))
        });
        same && parts.next().is_none()
    };
    let paths = document["paths"].as_object().unwrap();
    let exact = paths.get(path);
    let found = exact.or_else(|| paths.iter().find(|(template, _)| is_here(template)).map(|(_, item)| item));
    found?.get(method.to_lowercase())
}

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let Some(reference) = schema.get("$ref") else { return schema };
    let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
    document.pointer(pointer).unwrap()
}

/// Says what does not fit, after its place. With `whole`, fields that are not described do not fit either.
fn fit(document: &Value, schema: &Value, value: &Value, whole: bool) -> Result<(), String> {
    let schema = resolved(document, schema);
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let fits = choices.iter().filter(|choice| fit(document, choice, value, whole).is_ok()).count();
        return if fits == 1 { Ok(()) } else { Err(format!(": fits {fits} of {choices:?}: {value}")) };
    }
    let kinds = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        kinds => kinds.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind, value)) {
        return Err(format!(": {value} is not {kinds:?}"));
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array)
        && !words.contains(value)
    {
        return Err(format!(": {value} is none of {words:?}"));
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(items) = schema.get("items") {
            fit(document, items, item, whole).map_err(|wrong| format!("[{at}]{wrong}"))?;
        }
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!(": {name} is missing in {value}"));
        }
    }
    for (name, field) in fields {
        let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        match known {
            Some(known) => {
                fit(document, known, field, whole).map_err(|wrong| format!(".{name}{wrong}"))?;
            }
            None if whole && schema.get("type").is_some() => {
                return Err(format!(": {name} is not described"));
            }
            None => {}
        }
    }
    Ok(())
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type {other}"),
    }
}

#[test]
fn what_does_not_fit_the_document_is_found() {
    let ask = |status: u16, answer: &'static str| {
        let check = || check("POST", "/session/s-1/message", b"{}", status, "application/json", answer);
        std::panic::catch_unwind(check).is_ok()
    };
    assert!(ask(202, "{\"message_id\":\"m1.s-1\"}"));
    assert!(ask(418, "{\"error\":\"a\",\"message\":\"b\"}"), "any other refusal");
    for wrong in ["", "[]", "{}", "{\"message_id\":1}", "{\"message_id\":\"a\",\"more\":1}"] {
        assert!(!ask(202, wrong), "{wrong}");
    }
    assert!(may_stream("GET", "/sessions/s-1/events?from=live") && !may_stream("GET", "/sessions/s-1"));
}
