//! OpenAI Responses.
//!
//! Nothing is stored at the provider: reasoning comes back encrypted, and is sent along within the turn.

use engine::Usage;
use serde_json::{Value, json};

use super::anthropic::{rounded, sum};
use super::conversation_entries::{Entry, EntryResult, entries};
use super::model_call::bare_model;
use super::openai_chat::{cost, effort, is_reasoner};
use super::wire::{CallKey, Decode, ReplyBuilder, WireOptions};
use super::{Image, ModelError, ModelRequest, ModelStop, Thinking, provider_error, tool_schema};

/// The provider's limit for a cache key.
const CACHE_KEY_CHARS_MAX: usize = 64;
/// More than any reply has; bounded because looking one up takes linear time.
const ITEMS_MAX: usize = 1024;

pub(super) fn encode(request: &ModelRequest, options: &WireOptions) -> Value {
    let model = bare_model(&request.model);
    let mut body = json!({ "model": model, "stream": true, "store": false });
    body["prompt_cache_key"] = cache_key(&request.conversation).into();
    if !request.system.trim().is_empty() {
        body["instructions"] = (*request.system).into();
    }
    body["input"] = entries(request, options).into_iter().flat_map(items).collect::<Vec<_>>().into();
    if let Some(tokens) = request.output_tokens_max {
        body["max_output_tokens"] = tokens.into();
    }
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            let (name, description) = (&*tool.name, &*tool.description);
            let parameters = tool_schema::object(&tool.schema);
            json!({ "type": "function", "name": name, "description": description, "parameters": parameters,
            "strict": false })
        })
        .collect();
    if !tools.is_empty() {
        body["tools"] = tools.into();
        body["parallel_tool_calls"] = true.into();
    }
    let reasons = is_reasoner(model);
    if reasons && !options.omit.thinking {
        body["include"] = json!(["reasoning.encrypted_content"]);
        if let Some(effort) = effort(model, request.thinking) {
            body["reasoning"] = json!({ "effort": effort });
            if request.thinking != Thinking::Off && !options.omit.summary {
                body["reasoning"]["summary"] = "auto".into();
            }
        }
    }
    if let Some(temperature) = request.temperature.filter(|_| !reasons && !options.omit.temperature) {
        body["temperature"] = rounded(temperature);
    }
    body
}

pub(super) fn cache_key(conversation: &str) -> String {
    conversation.chars().take(CACHE_KEY_CHARS_MAX).collect()
}

fn items(entry: Entry<'_>) -> Vec<Value> {
    match entry {
        Entry::User { texts, images } => {
            let texts = texts.into_iter().map(|text| json!({ "type": "input_text", "text": text }));
            let content: Vec<Value> = texts.chain(images.into_iter().map(image)).collect();
            vec![json!({ "role": "user", "content": content })]
        }
        Entry::Assistant { native: Some(Value::Array(items)), .. } => items,
        Entry::Assistant { text, calls, .. } => {
            let content = json!([{ "type": "output_text", "text": text }]);
            let said = (!text.trim().is_empty()).then(|| json!({ "role": "assistant", "content": content }));
            let calls = calls.into_iter().map(|call| {
                let arguments = Value::Object(call.arguments).to_string();
                json!({ "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments })
            });
            said.into_iter().chain(calls).collect()
        }
        Entry::Results(results) => results.into_iter().map(result).collect(),
    }
}

fn result(result: EntryResult<'_>) -> Value {
    let output = if result.images.is_empty() {
        Value::String(result.text)
    } else {
        let text = json!({ "type": "input_text", "text": result.text });
        std::iter::once(text).chain(result.images.into_iter().map(image)).collect()
    };
    json!({ "type": "function_call_output", "call_id": result.id, "output": output })
}

fn image(image: &Image) -> Value {
    json!({ "type": "input_image", "image_url": format!("data:{};base64,{}", image.mime, image.data) })
}

#[derive(Default)]
pub(super) struct Reader {
    items: Vec<Item>,
}

struct Item {
    index: u64,
    call: Option<CallKey>,
    /// Some of it was streamed.
    streamed: bool,
    /// The item as it is sent back.
    done: Option<Value>,
}

impl Decode for Reader {
    fn event(&mut self, name: Option<&str>, data: Value, reply: &mut ReplyBuilder) -> Result<(), ModelError> {
        let index = data["output_index"].as_u64().unwrap_or(0);
        let delta = data["delta"].as_str().unwrap_or_default();
        match data["type"].as_str().or(name).unwrap_or_default() {
            "response.output_item.added" => self.added(index, &data["item"], reply),
            "response.output_item.done" => self.done(index, &data["item"], reply),
            "response.output_text.delta" => {
                self.mark_streamed(index);
                reply.text(delta);
            }
            "response.refusal.delta" => {
                self.mark_streamed(index);
                reply.refusal(delta);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.mark_streamed(index);
                reply.thinking(delta);
            }
            // A reasoning summary part begins with a headline.
            "response.reasoning_summary_part.added" if data["summary_index"].as_u64() > Some(0) => {
                reply.thinking("\n\n");
            }
            "response.function_call_arguments.delta" => {
                if let Some(call) = self.item(index).and_then(|item| item.call) {
                    reply.arguments(call, delta);
                }
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                self.completed(&data["response"], reply);
            }
            "response.failed" if reply.stop().is_none() => {
                return Err(provider_error::stream_error(&data["response"]));
            }
            "error" if reply.stop().is_none() => return Err(provider_error::stream_error(&data)),
            _ => {}
        }
        Ok(())
    }

    fn mark(&mut self, data: &str, _: &mut ReplyBuilder) -> bool {
        data == "[DONE]"
    }

    fn native(&mut self, _: &ReplyBuilder) -> Option<Value> {
        let items: Vec<Value> = self.items.drain(..).filter_map(|item| item.done).collect();
        (!items.is_empty()).then_some(Value::Array(items))
    }
}

impl Reader {
    fn item(&mut self, index: u64) -> Option<&mut Item> {
        self.items.iter_mut().rev().find(|item| item.index == index)
    }

    fn mark_streamed(&mut self, index: u64) {
        if let Some(item) = self.item(index) {
            item.streamed = true;
        }
    }

    fn added(&mut self, index: u64, item: &Value, reply: &mut ReplyBuilder) {
        if self.items.len() >= ITEMS_MAX {
            return;
        }
        let text = |key: &str| item[key].as_str().unwrap_or_default();
        let call = match text("type") {
            "function_call" => reply.begin_call(text("call_id"), text("name")),
            _ => None,
        };
        self.items.push(Item { index, call, streamed: false, done: None });
    }

    fn done(&mut self, index: u64, item: &Value, reply: &mut ReplyBuilder) {
        if self.item(index).is_none_or(|known| known.done.is_some()) {
            self.added(index, item, reply);
        }
        let Some(known) = self.item(index) else { return };
        if !known.streamed {
            say_whole(item, reply);
        }
        if let Some(call) = known.call {
            reply.name_call(
                call,
                item["call_id"].as_str().unwrap_or_default(),
                item["name"].as_str().unwrap_or_default(),
            );
            if let Some(arguments) = item["arguments"].as_str().filter(|arguments| !arguments.is_empty()) {
                reply.set_arguments(call, arguments);
            }
            reply.complete_call(call);
        }
        known.done = sendable(item);
    }

    fn completed(&mut self, response: &Value, reply: &mut ReplyBuilder) {
        // A server that streams no items still sends them at the end.
        if self.items.is_empty() {
            for (index, item) in response["output"].as_array().into_iter().flatten().enumerate() {
                self.done(index as u64, item, reply);
            }
        }
        let usage = &response["usage"];
        if usage.is_object() {
            reply.set_usage(usage_of(usage));
        }
        reply.set_stop(match response["incomplete_details"]["reason"].as_str() {
            Some("content_filter") => ModelStop::Refusal,
            Some(_) => ModelStop::MaxTokens,
            None => ModelStop::Finished,
        });
        reply.end();
    }
}

/// The whole item, from a server that does not stream it.
fn say_whole(item: &Value, reply: &mut ReplyBuilder) {
    let parts = |key: &str| item[key].as_array().cloned().unwrap_or_default();
    for part in parts("summary").into_iter().chain(parts("content")) {
        let text = part["text"].as_str().unwrap_or_default();
        match part["type"].as_str().unwrap_or_default() {
            "output_text" => reply.text(text),
            "refusal" => reply.refusal(part["refusal"].as_str().unwrap_or_default()),
            "summary_text" | "reasoning_text" => reply.thinking(text),
            _ => {}
        }
    }
}

/// The item without its ids: they refer to stored objects, and nothing of ours is stored at the provider.
fn sendable(item: &Value) -> Option<Value> {
    let mut item = item.as_object()?.clone();
    let kept: &[&str] = match item.get("type")?.as_str()? {
        "reasoning" => {
            let sealed = item.get("encrypted_content").is_some_and(Value::is_string);
            let open = item.get("content").and_then(Value::as_array).is_some_and(|parts| !parts.is_empty());
            if !sealed && !open {
                return None;
            }
            &["type", "summary", "content", "encrypted_content"]
        }
        "message" => &["type", "role", "content", "phase"],
        "function_call" => &["type", "call_id", "name", "arguments"],
        _ => return None,
    };
    item.retain(|key, value| kept.contains(&key.as_str()) && !value.is_null());
    Some(Value::Object(item))
}

fn usage_of(usage: &Value) -> Usage {
    let tokens = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let cache_read = tokens("/input_tokens_details/cached_tokens");
    let cache_write = tokens("/input_tokens_details/cache_write_tokens");
    let input = tokens("/input_tokens").saturating_sub(sum(&[cache_read, cache_write]));
    let output = tokens("/output_tokens");
    Usage {
        context_used: sum(&[input, cache_read, cache_write, output]),
        input,
        output,
        cache_read,
        cache_write,
        reasoning: tokens("/output_tokens_details/reasoning_tokens"),
        cost_usd: cost(usage),
        ..Usage::default()
    }
}
