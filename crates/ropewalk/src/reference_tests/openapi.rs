//! `rest.openapi.json`: the REST routes as OpenAPI 3.1.
//!
//! Paths are compared with the table of routes, which is compared with the router; the words of errors with the source;
//! and the schemas with real answers, by the test that executes the examples of `docs/dialects/rest.md`
//! (`server/tests/it/rest/page.rs`).

mod operations;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::check_page;
use super::http::routes::{REST, RouteCaller};
use operations::{OPERATIONS, Operation, OperationAnswer};
use schemas::{schema_of, schemas};

const ABOUT: &str = "Sessions of coding agents over HTTP. The page with examples, limits and the events of streams is \
    docs/dialects/rest.md. Fields that are not described here may be added.";

/// The words in `error` of refusals: the status, the word, and when.
pub const ERRORS: [(u16, &str, &str); 53] = [
    (400, "args_must_be_list", "`args` of a command is not a list"),
    (400, "bad_authorization", "the header `Authorization` is there twice or malformed"),
    (400, "bad_host", "the header `Host` is missing, there twice or malformed"),
    (400, "bad_link", "the link is malformed"),
    (400, "bad_protocols", "the sub-protocols of a WebSocket are malformed"),
    (400, "bad_request", "the request cannot be carried out as it is; `message` says why"),
    (400, "bad_sink", "`sink` is not one that there is"),
    (400, "bad_title", "the title is empty, too long, or has more than one line"),
    (400, "bad_working_dir", "`working_dir` is not a folder"),
    (400, "broken_body", "the body ended too early"),
    (400, "invalid_field", "a field is not a string"),
    (400, "invalid_json", "the body is not a JSON object"),
    (400, "invalid_query", "a parameter is malformed"),
    (400, "kwargs_must_be_object", "`kwargs` of a command is not an object"),
    (400, "missing_approved", "the answer to a permission request is missing"),
    (400, "missing_prompt", "`prompt` is missing"),
    (400, "missing_session_id", "`session_id` is missing"),
    (400, "missing_session_id_or_permission_id", "one of the two is missing"),
    (400, "missing_text", "`text` is missing"),
    (400, "not_an_answer", "the question cannot be answered like this"),
    (400, "token_in_url", "a token is in the address, where it ends up in logs"),
    (400, "unknown_approval", "there is no such approval"),
    (400, "unknown_choice", "there is no such value of this setting"),
    (400, "unknown_mode", "there is no such mode"),
    (400, "unknown_model", "there is no such model; 422 for a link"),
    (400, "unsupported_field", "the field cannot be met here, and is not ignored"),
    (401, "unauthorized", "the token is missing, unknown, or does not open this route"),
    (403, "admin_only", "this takes another token than a session's"),
    (403, "forbidden", "the caller may not do this"),
    (403, "host_not_allowed", "this is not a name of this server"),
    (403, "origin_not_allowed", "this page may not talk to this server"),
    (403, "working_dir_not_allowed", "the folder is not open to clients"),
    (404, "command_not_found", "there is no such command"),
    (404, "not_found", "there is no such route"),
    (404, "permission_not_found", "there is no such permission request, or it was answered already"),
    (404, "session_not_found", "there is no such session, or it is somebody else's"),
    (405, "method_not_allowed", "the route has other methods; see the header `Allow`"),
    (408, "body_timeout", "the body did not arrive in time"),
    (409, "busy_elsewhere", "another process is in the middle of a turn of this session"),
    (409, "conflict", "the session cannot do this now"),
    (413, "session_too_long", "the session is too long for one answer; read it as a stream"),
    (413, "too_large", "the body is too large"),
    (415, "unsupported_media_type", "the body is not `application/json`"),
    (429, "queue_full", "too many prompts wait in this session"),
    (429, "too_many_wrong_tokens", "too many wrong tokens came from this address; see `Retry-After`"),
    (500, "internal", "something went wrong inside the server"),
    (500, "store_failed", "the session store could not be used"),
    (501, "sink_not_supported", "this server does not write or send anything for its clients"),
    (502, "agent_unavailable", "the agent could not be started"),
    (503, "starting", "the server is starting; try again in a moment. `stopping`: it is stopping"),
    (503, "store_busy", "the session store is busy. `store_unavailable`: it cannot be used"),
    (503, "too_many_sessions", "all sessions in memory are busy"),
    (503, "too_many_streams", "too many streams are open"),
];

fn document() -> Value {
    let mut paths = Map::new();
    for operation in &OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.to_lowercase()] = described(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Ropewalk REST", "version": "1", "description": ABOUT },
        "servers": [{ "url": "http://127.0.0.1:5173", "description": "ropewalk serve --http" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The server's own token, or that of a client.",
                },
                "session_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of the session in the path.",
                },
            },
            "schemas": schemas(),
            "responses": { "Error": {
                "description": "A refusal. `error` says which.",
                "content": { "application/json": { "schema": schema_of("#Error") } },
            }},
        },
    })
}

/// With sorted keys: their order would depend on how serde_json is built.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> = fields.into_iter().collect();
            Value::Object(fields.into_iter().map(|(name, value)| (name, sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        plain => plain,
    }
}

fn described(operation: &Operation) -> Value {
    let caller = caller_of(operation);
    let mut value = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": responses(operation, caller),
    });
    match caller {
        RouteCaller::Anyone => value["security"] = json!([]),
        RouteCaller::SessionToken => value["security"] = json!([{ "token": [] }, { "session_token": [] }]),
        _ => {}
    }
    let parameters = parameters(operation);
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    if let Some(body) = operation.body {
        let schema = json!({ "application/json": { "schema": schema_of(&format!("#{body}")) } });
        value["requestBody"] = json!({ "required": operation.body_required, "content": schema });
    }
    value
}

fn caller_of(operation: &Operation) -> RouteCaller {
    let same = |route: &&super::http::routes::HttpRoute| {
        (route.method, route.path) == (operation.method, operation.path)
    };
    let route = REST.iter().find(same);
    route.unwrap_or_else(|| panic!("there is no route {} {}", operation.method, operation.path)).caller
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let in_path = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        let what = if name == "id" { "The session's id." } else { "The command's name, without the slash." };
        json!({
            "name": name, "in": "path", "required": true, "description": what, "schema": { "type": "string" },
        })
    });
    let others = operation.parameters.iter().map(|(place, name, kind, what)| {
        json!({ "name": name, "in": place, "description": what, "schema": schema_of(kind) })
    });
    in_path.chain(others).collect()
}

fn responses(operation: &Operation, caller: RouteCaller) -> Value {
    let mut responses = Map::new();
    for OperationAnswer { status, what, content } in operation.answers {
        let mut answer = json!({ "description": what });
        if !content.is_empty() {
            let kinds = content
                .iter()
                .map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema_of(schema) })));
            answer["content"] = Value::Object(kinds.collect());
        }
        responses.insert(status.to_string(), answer);
    }
    let mut codes: Vec<u16> = operation.errors.to_vec();
    if caller != RouteCaller::Anyone {
        codes.extend([401, 403]);
    }
    if operation.path.contains("{id}") {
        codes.push(404);
    }
    if operation.body.is_some() {
        codes.extend([400, 413, 415]);
    }
    for code in codes {
        responses.insert(code.to_string(), json!({ "$ref": "#/components/responses/Error" }));
    }
    responses.insert("default".into(), json!({ "$ref": "#/components/responses/Error" }));
    Value::Object(responses)
}

#[test]
fn the_reference_describes_rest_in_openapi() {
    check_page("rest.openapi.json", &format!("{:#}\n", sorted(document())));
}

#[test]
fn the_openapi_document_has_every_rest_route() {
    let told: BTreeSet<_> = OPERATIONS.iter().map(|operation| (operation.method, operation.path)).collect();
    assert_eq!(told.len(), OPERATIONS.len(), "an operation stands twice");
    assert_eq!(told, REST.iter().map(|route| (route.method, route.path)).collect());
    let ids: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), OPERATIONS.len(), "an operationId stands twice");
}

/// Every reference leads somewhere, and every schema is used.
#[test]
fn the_openapi_documents_references_lead_to_its_schemas() {
    let document = document();
    let text = document.to_string();
    let used: BTreeSet<&str> =
        text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let known = document["components"]["schemas"].as_object().unwrap();
    assert_eq!(used, known.keys().map(String::as_str).collect());
}

/// The words of refusals that the sources of these routes and of the gate have, and those of the page.
#[test]
fn the_references_errors_are_those_of_the_sources() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut written = BTreeSet::new();
    for place in ["server/src/http.rs", "server/src/http/rest", "access/src"] {
        collect_codes(&crates.join(place), &mut written);
    }
    // Of signing in, which is a way of our own clients.
    let other = ["too_many_wrong_codes", "not_written", "failed"];
    written.retain(|code| !other.contains(&code.as_str()));
    let told: BTreeSet<String> = ERRORS
        .iter()
        .flat_map(|(_, code, when)| std::iter::once(*code).chain(quoted_codes(when)))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = written.difference(&told).collect();
    assert!(missing.is_empty(), "not in ERRORS: {missing:?}");
    let stale: Vec<_> = told.difference(&written).collect();
    assert!(stale.is_empty(), "in ERRORS, and nowhere else: {stale:?}");
}

/// Further words of the same status, which a row explains: "`stopping`: it is stopping".
fn quoted_codes(when: &str) -> impl Iterator<Item = &str> {
    when.split('`').skip(1).step_by(2).filter(|word| when.contains(&format!("`{word}`: ")))
}

/// The second argument of `Refusal::new(..)`, and the first of the functions that call it.
fn collect_codes(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            collect_codes(&entry.unwrap().path(), found);
        }
        return;
    }
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let signs_in = ["sign_in.rs", "sealed.rs", "document_upload.rs", "devices.rs"].contains(&name.as_str());
    if name == "tests.rs" || signs_in || path.components().any(|part| part.as_os_str() == "devices") {
        return;
    }
    let text = std::fs::read_to_string(path).unwrap();
    let code_after = |start: &str| {
        let arguments = text.split(start).skip(1).filter_map(|rest| rest.split('"').nth(1));
        let codes = arguments.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        codes.map(str::to_owned).collect::<Vec<_>>()
    };
    for start in ["Refusal::new(", "Self::new(StatusCode", "bad_field(", " bad(", "(bad("] {
        let codes = code_after(start);
        found.extend(codes.into_iter().filter(|code| !code.is_empty()));
    }
    let choices = text.split("=> \"unknown_").skip(1).filter_map(|rest| rest.split('"').next());
    found.extend(choices.map(|rest| format!("unknown_{rest}")));
}
