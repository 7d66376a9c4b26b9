//! JSON schemas of tools, in the forms that providers accept.
//!
//! Schemas also come from tool servers and may refer to themselves, many times over, so depth and number of
//! parts are bounded.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// Deeper than any tool's arguments; a schema that refers to itself ends here.
const DEPTH_MAX: usize = 12;
const PARTS_MAX: usize = 4096;

/// A schema with an object at the top: most providers reject alternatives there.
pub(super) fn object(schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    for key in ["anyOf", "oneOf", "allOf", "not", "enum", "$schema"] {
        schema.remove(key);
    }
    schema.insert("type".into(), "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    Value::Object(schema)
}

/// The subset of JSON Schema that Gemini accepts; it rejects requests with anything else. `None` if there are
/// no arguments.
pub(super) fn for_gemini(schema: &Value) -> Option<Value> {
    let top = object(schema);
    let reduced = RootSchema { top: &top, remaining_parts: Cell::new(PARTS_MAX) }.reduce(&top, 0);
    let any = reduced.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    any.then_some(reduced)
}

/// The root schema, which references point into.
struct RootSchema<'a> {
    top: &'a Value,
    remaining_parts: Cell<usize>,
}

impl RootSchema<'_> {
    fn may_continue(&self, depth: usize) -> bool {
        self.remaining_parts.set(self.remaining_parts.get().saturating_sub(1));
        depth < DEPTH_MAX && self.remaining_parts.get() > 0
    }

    fn reduce(&self, schema: &Value, depth: usize) -> Value {
        let Some(schema) = schema.as_object().filter(|_| self.may_continue(depth)) else {
            return json!({ "type": "string" });
        };
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let found = target.strip_prefix('#').and_then(|pointer| self.top.pointer(pointer));
            return found.map_or_else(|| json!({ "type": "string" }), |found| self.reduce(found, depth + 1));
        }
        let mut reduced = Map::new();
        for key in KEPT {
            if let Some(value) = schema.get(*key).filter(|value| !value.is_null()) {
                reduced.insert((*key).into(), value.clone());
            }
        }
        types(schema, &mut reduced);
        choices(schema, &mut reduced);
        for key in ["anyOf", "oneOf", "allOf"] {
            let Some(options) = schema.get(key).and_then(Value::as_array) else { continue };
            self.alternatives(options, depth, &mut reduced);
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let inner = properties.iter().map(|(name, inner)| (name.clone(), self.reduce(inner, depth + 1)));
            let inner: Map<String, Value> = inner.collect();
            let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            let known = |name: &Value| name.as_str().is_some_and(|name| inner.contains_key(name));
            let required: Vec<Value> = required.into_iter().filter(known).collect();
            if !required.is_empty() {
                reduced.insert("required".into(), required.into());
            }
            if !inner.is_empty() {
                reduced.insert("properties".into(), inner.into());
            }
        }
        if !reduced.contains_key("type") && !reduced.contains_key("anyOf") {
            reduced.insert("type".into(), "string".into());
        }
        if reduced.get("type").is_some_and(|kind| kind == "array") {
            let items = schema
                .get("items")
                .map_or_else(|| json!({ "type": "string" }), |items| self.reduce(items, depth + 1));
            reduced.insert("items".into(), items);
        }
        Value::Object(reduced)
    }

    fn alternatives(&self, options: &[Value], depth: usize, reduced: &mut Map<String, Value>) {
        let is_null = |option: &Value| option.get("type").is_some_and(|kind| kind == "null");
        let real: Vec<&Value> = options.iter().filter(|option| !is_null(option)).collect();
        if real.len() < options.len() {
            reduced.insert("nullable".into(), true.into());
        }
        if let [only] = real[..] {
            if let Value::Object(inner) = self.reduce(only, depth + 1) {
                for (key, value) in inner {
                    reduced.entry(key).or_insert(value);
                }
            }
        } else if !real.is_empty() {
            let inner = real.into_iter().map(|option| self.reduce(option, depth + 1)).collect::<Vec<_>>();
            reduced.insert("anyOf".into(), inner.into());
        }
    }
}

const KEPT: &[&str] = &[
    "title",
    "description",
    "nullable",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
];

/// `["string", "null"]` is a string that may be missing.
fn types(schema: &Map<String, Value>, reduced: &mut Map<String, Value>) {
    match schema.get("type") {
        Some(Value::String(kind)) if kind != "null" => {
            reduced.insert("type".into(), kind.as_str().into());
        }
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>();
            let all = kinds.len();
            kinds.retain(|kind| *kind != "null");
            if kinds.len() < all {
                reduced.insert("nullable".into(), true.into());
            }
            reduced.insert("type".into(), (*kinds.first().unwrap_or(&"string")).into());
        }
        _ if schema.contains_key("properties") => {
            reduced.insert("type".into(), "object".into());
        }
        _ => {}
    }
}

/// Only strings are possible as choices.
fn choices(schema: &Map<String, Value>, reduced: &mut Map<String, Value>) {
    let listed = schema.get("enum").and_then(Value::as_array).cloned();
    let listed = listed.or_else(|| schema.get("const").map(|only| vec![only.clone()]));
    let texts: Vec<Value> = listed.into_iter().flatten().filter(Value::is_string).collect();
    if !texts.is_empty() {
        reduced.insert("type".into(), "string".into());
        reduced.insert("enum".into(), texts.into());
    }
}
