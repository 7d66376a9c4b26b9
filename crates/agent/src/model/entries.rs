//! The conversation as all wires want it: alternating, without empty parts, every call with an id.
//!
//! A reply that this very model made in this turn is given back in its own words; any other is told
//! plainly, with ids of ours. Ours are made of nine letters and digits, the one form that every
//! provider accepts, and count the calls, so that the same conversation is always the same text and
//! is found in a provider's cache.

use serde_json::{Map, Value, json};

use super::wire::Asking;
use super::{Image, Message, ModelRequest, Native, ToolCall, ToolSpec, schema};

pub(super) const NO_OUTPUT: &str = "(no output)";
const SUMMARY: &str = "Summary of the conversation so far:";
const UNSEEN: &str = "[an image that this model cannot see]";

pub(super) enum Entry<'a> {
    User { texts: Vec<String>, images: Vec<&'a Image> },
    Said { text: String, calls: Vec<Said<'a>>, native: Option<Value> },
    Results(Vec<Result<'a>>),
}

pub(super) struct Said<'a> {
    pub(super) id: String,
    pub(super) name: &'a str,
    pub(super) arguments: Map<String, Value>,
}

pub(super) struct Result<'a> {
    pub(super) id: String,
    pub(super) tool: &'a str,
    pub(super) text: String,
    pub(super) images: Vec<&'a Image>,
    pub(super) failed: bool,
}

pub(super) fn entries<'a>(request: &'a ModelRequest, asking: &Asking) -> Vec<Entry<'a>> {
    let mut making = Making { entries: Vec::new(), ids: Vec::new(), calls: 0, blind: asking.blind };
    for message in &request.messages {
        match message {
            Message::Summary(text) => making.user(format!("{SUMMARY}\n\n{text}"), &[]),
            Message::User { text, images } => making.user(text.to_string(), images),
            Message::Assistant { text, calls, native } => {
                let native = native.as_ref().and_then(|native| usable(native, request, calls.len()));
                making.said(text, calls, native);
            }
            Message::ToolResult { call, tool, text, images, failed } => {
                making.result(call, tool, text, images, *failed);
            }
        }
    }
    making.entries
}

/// The system prompt and everything after it, each as the messages that a wire has for it.
pub(super) fn conversation(
    request: &ModelRequest,
    asking: &Asking,
    messages: impl Fn(Entry<'_>) -> Vec<Value>,
) -> Vec<Value> {
    let system =
        (!request.system.trim().is_empty()).then(|| json!({ "role": "system", "content": &*request.system }));
    let said = entries(request, asking).into_iter().flat_map(messages);
    system.into_iter().chain(said).collect()
}

/// The tools in the form that others took over from OpenAI.
pub(super) fn functions(request: &ModelRequest) -> Vec<Value> {
    let function = |tool: &ToolSpec| {
        let (name, description) = (&*tool.name, &*tool.description);
        let parameters = schema::object(&tool.schema);
        json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
    };
    request.tools.iter().map(function).collect()
}

/// What the model said, with the calls it made, if it made any.
pub(super) fn said(text: Value, calls: Vec<Value>) -> Value {
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Results that hold text only. Images are shown after all of them, for results must follow their calls.
pub(super) fn answered<'a>(
    results: Vec<Result<'a>>,
    message: impl Fn(&Result<'a>) -> Value,
    user: impl Fn(Vec<String>, Vec<&'a Image>) -> Value,
) -> Vec<Value> {
    let (mut messages, mut texts, mut images) = (Vec::new(), Vec::new(), Vec::new());
    for result in results {
        messages.push(message(&result));
        if !result.images.is_empty() {
            texts.push(format!("What {} has shown:", result.tool));
            images.extend(result.images);
        }
    }
    if !images.is_empty() {
        messages.push(user(texts, images));
    }
    messages
}

/// Only whoever made it can read it; and it must hold the calls that were carried out, no others.
fn usable<'a>(native: &'a Native, request: &ModelRequest, calls: usize) -> Option<(&'a Native, Value)> {
    let own = native.provider == request.model && native.ids.len() == calls;
    let json = own.then(|| serde_json::from_str(&native.json).ok()).flatten()?;
    Some((native, json))
}

struct Making<'a> {
    entries: Vec<Entry<'a>>,
    /// Our id of a call, and the one on the wire.
    ids: Vec<(&'a str, String)>,
    calls: usize,
    blind: bool,
}

impl<'a> Making<'a> {
    fn user(&mut self, text: String, images: &'a [Image]) {
        let (mut new, seen) = self.looked_at(text, images);
        new.retain(|text| !text.trim().is_empty());
        if let Some(Entry::User { texts, images }) = self.entries.last_mut() {
            texts.append(&mut new);
            images.extend(seen);
        } else if !new.is_empty() || !seen.is_empty() {
            self.entries.push(Entry::User { texts: new, images: seen });
        }
    }

    fn said(&mut self, text: &str, calls: &'a [ToolCall], native: Option<(&Native, Value)>) {
        let mut said = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            self.calls += 1;
            let id = match &native {
                Some((native, _)) => native.ids[at].to_string(),
                None => format!("call{:05}", self.calls),
            };
            self.ids.push((&call.id, id.clone()));
            said.push(Said { id, name: &call.name, arguments: object(&call.arguments) });
        }
        let native = native.map(|(_, json)| json);
        let plain = native.is_none() && said.is_empty();
        match self.entries.last_mut() {
            _ if plain && text.trim().is_empty() => {}
            Some(Entry::Said { text: before, calls, native: None }) if calls.is_empty() && plain => {
                before.push_str("\n\n");
                before.push_str(text);
            }
            _ => self.entries.push(Entry::Said { text: text.to_owned(), calls: said, native }),
        }
    }

    fn result(&mut self, call: &str, tool: &'a str, text: &str, images: &'a [Image], failed: bool) {
        let Some(id) = self.ids.iter().rev().find(|(ours, _)| *ours == call).map(|(_, id)| id.clone()) else {
            return;
        };
        let (texts, images) = self.looked_at(text.to_owned(), images);
        let text = texts.join("\n");
        let text = if text.trim().is_empty() { NO_OUTPUT.to_owned() } else { text };
        let result = Result { id, tool, text, images, failed };
        match self.entries.last_mut() {
            Some(Entry::Results(results)) => results.push(result),
            _ => self.entries.push(Entry::Results(vec![result])),
        }
    }

    fn looked_at(&self, text: String, images: &'a [Image]) -> (Vec<String>, Vec<&'a Image>) {
        if self.blind {
            let unseen = images.iter().map(|_| UNSEEN.to_owned());
            (std::iter::once(text).chain(unseen).collect(), Vec::new())
        } else {
            (vec![text], images.iter().collect())
        }
    }
}

/// Providers want an object. Whatever else a model wrote was answered with an error already.
fn object(arguments: &str) -> Map<String, Value> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}
