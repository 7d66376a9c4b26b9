//! The conversation as all wires need it: alternating roles, no empty parts, every call with an id.
//!
//! A reply that the same model made in this turn is given back in its native form; any other is given in
//! plain form, with ids of ours. Our ids have nine letters and digits, the one form that every provider
//! accepts, and number the calls. So the same conversation always gives the same text, and is found in a
//! provider's cache.

use serde_json::{Map, Value, json};

use super::wire::WireOptions;
use super::{Image, Message, ModelRequest, NativeReply, ToolCall, ToolSpec, tool_schema};

pub(super) const NO_OUTPUT: &str = "(no output)";
const SUMMARY: &str = "Summary of the conversation so far:";
const IMAGE_PLACEHOLDER: &str = "[an image that this model cannot see]";

pub(super) enum Entry<'a> {
    User { texts: Vec<String>, images: Vec<&'a Image> },
    Assistant { text: String, calls: Vec<EntryCall<'a>>, native: Option<Value> },
    Results(Vec<EntryResult<'a>>),
}

pub(super) struct EntryCall<'a> {
    pub(super) id: String,
    pub(super) name: &'a str,
    pub(super) arguments: Map<String, Value>,
}

pub(super) struct EntryResult<'a> {
    pub(super) id: String,
    pub(super) tool: &'a str,
    pub(super) text: String,
    pub(super) images: Vec<&'a Image>,
    pub(super) failed: bool,
}

pub(super) fn entries<'a>(request: &'a ModelRequest, options: &WireOptions) -> Vec<Entry<'a>> {
    let mut builder =
        EntryBuilder { entries: Vec::new(), ids: Vec::new(), calls: 0, text_only: options.text_only };
    for message in &request.messages {
        match message {
            Message::Summary(text) => builder.user(format!("{SUMMARY}\n\n{text}"), &[]),
            Message::User { text, images } => builder.user(text.to_string(), images),
            Message::Assistant { text, calls, native } => {
                let native = native.as_ref().and_then(|native| usable(native, request, calls.len()));
                builder.assistant_message(text, calls, native);
            }
            Message::ToolResult { call, tool, text, images, failed } => {
                builder.result(call, tool, text, images, *failed);
            }
        }
    }
    builder.entries
}

/// The system prompt and all entries, converted to a wire's messages.
pub(super) fn conversation(
    request: &ModelRequest,
    options: &WireOptions,
    messages: impl Fn(Entry<'_>) -> Vec<Value>,
) -> Vec<Value> {
    let system =
        (!request.system.trim().is_empty()).then(|| json!({ "role": "system", "content": &*request.system }));
    let said = entries(request, options).into_iter().flat_map(messages);
    system.into_iter().chain(said).collect()
}

/// The tools in OpenAI's form, which others use too.
pub(super) fn functions(request: &ModelRequest) -> Vec<Value> {
    let function = |tool: &ToolSpec| {
        let (name, description) = (&*tool.name, &*tool.description);
        let parameters = tool_schema::object(&tool.schema);
        json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
    };
    request.tools.iter().map(function).collect()
}

/// An assistant message with its tool calls, if there are any.
pub(super) fn assistant_message(text: Value, calls: Vec<Value>) -> Value {
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Tool results that can only contain text. Images follow after all of them, because results must follow
/// their calls directly.
pub(super) fn text_results<'a>(
    results: Vec<EntryResult<'a>>,
    message: impl Fn(&EntryResult<'a>) -> Value,
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

/// The native reply, if this model made it and it contains exactly the calls that were run.
fn usable<'a>(
    native: &'a NativeReply,
    request: &ModelRequest,
    calls: usize,
) -> Option<(&'a NativeReply, Value)> {
    let own = native.provider == request.model && native.ids.len() == calls;
    let json = own.then(|| serde_json::from_str(&native.json).ok()).flatten()?;
    Some((native, json))
}

struct EntryBuilder<'a> {
    entries: Vec<Entry<'a>>,
    /// Maps our ids of calls to those on the wire.
    ids: Vec<(&'a str, String)>,
    calls: usize,
    text_only: bool,
}

impl<'a> EntryBuilder<'a> {
    fn user(&mut self, text: String, images: &'a [Image]) {
        let (mut new, seen) = self.visible_images(text, images);
        new.retain(|text| !text.trim().is_empty());
        if let Some(Entry::User { texts, images }) = self.entries.last_mut() {
            texts.append(&mut new);
            images.extend(seen);
        } else if !new.is_empty() || !seen.is_empty() {
            self.entries.push(Entry::User { texts: new, images: seen });
        }
    }

    fn assistant_message(
        &mut self,
        text: &str,
        calls: &'a [ToolCall],
        native: Option<(&NativeReply, Value)>,
    ) {
        let mut said = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            self.calls += 1;
            let id = match &native {
                Some((native, _)) => native.ids[at].to_string(),
                None => format!("call{:05}", self.calls),
            };
            self.ids.push((&call.id, id.clone()));
            said.push(EntryCall { id, name: &call.name, arguments: object(&call.arguments) });
        }
        let native = native.map(|(_, json)| json);
        let plain = native.is_none() && said.is_empty();
        match self.entries.last_mut() {
            _ if plain && text.trim().is_empty() => {}
            Some(Entry::Assistant { text: before, calls, native: None }) if calls.is_empty() && plain => {
                before.push_str("\n\n");
                before.push_str(text);
            }
            _ => self.entries.push(Entry::Assistant { text: text.to_owned(), calls: said, native }),
        }
    }

    fn result(&mut self, call: &str, tool: &'a str, text: &str, images: &'a [Image], failed: bool) {
        let Some(id) = self.ids.iter().rev().find(|(ours, _)| *ours == call).map(|(_, id)| id.clone()) else {
            return;
        };
        let (texts, images) = self.visible_images(text.to_owned(), images);
        let text = texts.join("\n");
        let text = if text.trim().is_empty() { NO_OUTPUT.to_owned() } else { text };
        let result = EntryResult { id, tool, text, images, failed };
        match self.entries.last_mut() {
            Some(Entry::Results(results)) => results.push(result),
            _ => self.entries.push(Entry::Results(vec![result])),
        }
    }

    fn visible_images(&self, text: String, images: &'a [Image]) -> (Vec<String>, Vec<&'a Image>) {
        if self.text_only {
            let unseen = images.iter().map(|_| IMAGE_PLACEHOLDER.to_owned());
            (std::iter::once(text).chain(unseen).collect(), Vec::new())
        } else {
            (vec![text], images.iter().collect())
        }
    }
}

/// The arguments as an object, which providers require. Anything else was already answered with an error.
fn object(arguments: &str) -> Map<String, Value> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}
