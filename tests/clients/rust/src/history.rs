//! Folds a stream of session updates into what a person would have seen at the end.
//!
//! A replay may cut text into other chunks than the live stream did, and may send a tool call in
//! one piece instead of several: both are the same history. So two streams are compared after
//! folding, where only the contents and their order remain.

use serde_json::{Map, Value, json};

const TOOL_FIELDS: [&str; 7] = [
    "title",
    "kind",
    "status",
    "content",
    "locations",
    "rawInput",
    "rawOutput",
];

/// Messages, tool calls and plans in the order of their first appearance; `updates` are the
/// `params.update` objects of the protocol.
pub fn fold(updates: &[Value]) -> Vec<Value> {
    let mut items: Vec<Map<String, Value>> = Vec::new();
    for update in updates {
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            kind @ ("user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk") => {
                add_text(&mut items, kind, update);
            }
            "tool_call" | "tool_call_update" => add_tool(&mut items, update),
            // Each plan replaces the one before it.
            "plan" => match items.iter_mut().find(|item| item.contains_key("plan")) {
                Some(plan) => drop(plan.insert("plan".into(), update["entries"].clone())),
                None => items.push(Map::from_iter([("plan".into(), update["entries"].clone())])),
            },
            _ => {}
        }
    }
    items.into_iter().map(Value::Object).collect()
}

/// The history without message ids and without what the user said.
pub fn answers(updates: &[Value]) -> Vec<Value> {
    let mut items = fold(updates);
    items.retain(|item| item["message"] != "user_message_chunk");
    for item in &mut items {
        if let Some(fields) = item.as_object_mut() {
            fields.remove("id");
        }
    }
    items
}

/// What the user said, message by message.
pub fn questions(updates: &[Value]) -> Vec<String> {
    let spoken = |item: &Value| item["message"] == "user_message_chunk";
    let text = |item: Value| item["text"].as_str().unwrap_or_default().to_owned();
    fold(updates).into_iter().filter(spoken).map(text).collect()
}

fn add_text(items: &mut Vec<Map<String, Value>>, kind: &str, update: &Value) {
    let content = &update["content"];
    let text = content["text"]
        .as_str()
        .map_or_else(|| content.to_string(), str::to_owned);
    let id = update["messageId"].clone();
    if let Some(last) = items.last_mut()
        && last.get("message") == Some(&json!(kind))
        && last.get("id") == Some(&id)
        && let Some(Value::String(so_far)) = last.get_mut("text")
    {
        so_far.push_str(&text);
        return;
    }
    let message = [
        ("message".into(), json!(kind)),
        ("id".into(), id),
        ("text".into(), json!(text)),
    ];
    items.push(Map::from_iter(message));
}

fn add_tool(items: &mut Vec<Map<String, Value>>, update: &Value) {
    let id = &update["toolCallId"];
    let index = items
        .iter()
        .position(|item| item.get("tool") == Some(id))
        .unwrap_or_else(|| {
            items.push(Map::from_iter([("tool".into(), id.clone())]));
            items.len() - 1
        });
    for field in TOOL_FIELDS {
        if !update[field].is_null() {
            items[index].insert(field.into(), update[field].clone());
        }
    }
}
