//! Anthropic Messages.
//!
//! The prompt is cached with up to four cache marks: after the tools, after the system prompt, and after the
//! last two user messages, so that each call finds what the previous one has cached.

use engine::Usage;
use serde_json::{Map, Value, json};

use super::conversation_entries::{Entry, EntryResult, entries};
use super::model_call::bare_model;
use super::wire::{CallKey, Decode, ReplyBuilder, WireOptions};
use super::{Image, ModelError, ModelRequest, ModelStop, Thinking, provider_error, tool_schema};

/// The default, if neither the settings nor the catalog have a maximum.
const OUTPUT_TOKENS: u64 = 8192;
const OUTPUT_TOKENS_USUAL_MAX: u64 = 32_000;
/// The smallest budget that the provider accepts.
const BUDGET_MIN: u64 = 1024;
/// Bounded because looking up a block takes linear time.
const BLOCKS_MAX: usize = 1024;

pub(super) fn encode(request: &ModelRequest, options: &WireOptions) -> Value {
    let model = bare_model(&request.model);
    let entries = entries(request, options);
    let usual = options.output_tokens_max.map_or(OUTPUT_TOKENS, |most| most.min(OUTPUT_TOKENS_USUAL_MAX));
    let most = options.output_tokens_max.unwrap_or(u64::MAX);
    let max_tokens = request.output_tokens_max.unwrap_or(usual).min(most).max(1);
    let mut body = json!({ "model": model, "max_tokens": max_tokens, "stream": true });
    let thinks = think(request, options, &entries, max_tokens, &mut body);
    if let Some(temperature) = request.temperature.filter(|_| !thinks && !options.omit.temperature) {
        body["temperature"] = rounded(temperature);
    }
    if !request.system.trim().is_empty() {
        body["system"] = json!([{ "type": "text", "text": &*request.system, "cache_control": ephemeral() }]);
    }
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            let (name, description) = (&*tool.name, &*tool.description);
            json!({ "name": name, "description": description, "input_schema": tool_schema::object(&tool.schema) })
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        last["cache_control"] = ephemeral();
        body["tools"] = tools.into();
    }
    body["messages"] = messages(entries).into();
    body
}

/// Sets the thinking fields, and returns whether the model thinks.
fn think(
    request: &ModelRequest,
    options: &WireOptions,
    entries: &[Entry<'_>],
    max_tokens: u64,
    body: &mut Value,
) -> bool {
    let (effort, budget) = match request.thinking {
        Thinking::Off => return false,
        Thinking::Low => ("low", 4096),
        Thinking::Medium => ("medium", 12_288),
        Thinking::High => ("high", 24_576),
    };
    let version = version(bare_model(&request.model));
    if options.omit.thinking || version.is_some_and(|version| version < (3, 7)) {
        return false;
    }
    if version.is_some_and(|version| version >= (4, 6)) {
        body["thinking"] = json!({ "type": "adaptive" });
        if version >= Some((4, 7)) && !options.omit.summary {
            body["thinking"]["display"] = "summarized".into();
        }
        body["output_config"] = json!({ "effort": effort });
        return true;
    }
    let budget = budget.min(max_tokens / 2);
    if budget < BUDGET_MIN || !may_start_thinking(entries) {
        return false;
    }
    body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
    true
}

/// Between tool calls, thinking can continue but not start: the provider rejects tool results whose reply has
/// no thinking block.
fn may_start_thinking(entries: &[Entry<'_>]) -> bool {
    let [.., said, Entry::Results(_)] = entries else { return true };
    let Entry::Assistant { native: Some(native), .. } = said else { return false };
    let first = native.get(0).and_then(|block| block["type"].as_str());
    first.is_some_and(|first| first.ends_with("thinking"))
}

/// `claude-sonnet-4-5-20250929` is (4, 5), `claude-3-7-sonnet-latest` is (3, 7). `None` for other names.
fn version(model: &str) -> Option<(u64, u64)> {
    let name = &model[model.find("claude")?..];
    let number = |part: &str| part.parse::<u64>().ok().filter(|number| *number < 100);
    let mut numbers = name.split(['-', '.', '@', ':']).map(number).skip_while(Option::is_none);
    let major = numbers.next()??;
    Some((major, numbers.next().flatten().unwrap_or(0)))
}

fn messages(entries: Vec<Entry<'_>>) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in entries {
        let (role, content) = match entry {
            Entry::User { texts, images } => {
                let texts = texts.into_iter().map(|text| json!({ "type": "text", "text": text }));
                ("user", images.into_iter().map(image).chain(texts).collect())
            }
            Entry::Assistant { native: Some(Value::Array(blocks)), .. } => ("assistant", blocks),
            Entry::Assistant { text, calls, .. } => {
                let text =
                    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text.trim_end() }));
                let calls = calls.into_iter().map(|call| {
                    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments })
                });
                ("assistant", text.into_iter().chain(calls).collect())
            }
            Entry::Results(results) => ("user", results.into_iter().map(result).collect()),
        };
        match messages.last_mut() {
            // Text of the user next to results goes after them, in the same message.
            Some((before, parts)) if *before == role => parts.extend::<Vec<Value>>(content),
            _ => messages.push((role, content)),
        }
    }
    let mut marks = 2;
    for (role, content) in messages.iter_mut().rev() {
        if let Some(last) = content.last_mut().filter(|_| *role == "user" && marks > 0) {
            last["cache_control"] = ephemeral();
            marks -= 1;
        }
    }
    messages.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

fn result(result: EntryResult<'_>) -> Value {
    let mut content = vec![json!({ "type": "text", "text": result.text })];
    content.extend(result.images.into_iter().map(image));
    let mut block = json!({ "type": "tool_result", "tool_use_id": result.id, "content": content });
    if result.failed {
        block["is_error"] = true.into();
    }
    block
}

fn image(image: &Image) -> Value {
    json!({ "type": "image", "source": { "type": "base64", "media_type": &*image.mime, "data": &*image.data } })
}

fn ephemeral() -> Value {
    json!({ "type": "ephemeral" })
}

/// Writes 0.2 as 0.2, not as the nearest double of the `f32`.
pub(super) fn rounded(number: f32) -> Value {
    json!((f64::from(number) * 1000.0).round() / 1000.0)
}

#[derive(Default)]
pub(super) struct Reader {
    /// By the index in the events.
    blocks: Vec<(u64, Block)>,
    usage: UsageCounter,
}

struct Block {
    /// The block as it is sent back.
    json: Map<String, Value>,
    text: String,
    signature: String,
    call: Option<CallKey>,
}

#[derive(Default)]
struct UsageCounter {
    usage: Usage,
    any: bool,
}

impl Decode for Reader {
    fn event(&mut self, _: Option<&str>, data: Value, reply: &mut ReplyBuilder) -> Result<(), ModelError> {
        let index = data["index"].as_u64().unwrap_or(0);
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => self.usage.take(&data["message"]["usage"], reply),
            "content_block_start" => self.start(index, &data["content_block"], reply),
            "content_block_delta" => self.delta(index, &data["delta"], reply),
            "content_block_stop" => self.stop(index, reply),
            "message_delta" => {
                self.usage.take(&data["usage"], reply);
                if let Some(reason) = data["delta"]["stop_reason"].as_str() {
                    if reason == "tool_use" {
                        reply.announce_calls();
                    }
                    reply.set_stop(stop(reason));
                }
            }
            "message_stop" => reply.end(),
            "error" if reply.stop().is_none() => return Err(provider_error::stream_error(&data)),
            _ => {}
        }
        Ok(())
    }

    fn mark(&mut self, data: &str, _: &mut ReplyBuilder) -> bool {
        data == "[DONE]"
    }

    fn native(&mut self, _: &ReplyBuilder) -> Option<Value> {
        let blocks = std::mem::take(&mut self.blocks);
        let blocks: Vec<Value> = blocks.into_iter().filter_map(|(_, block)| block.sendable()).collect();
        (!blocks.is_empty()).then_some(Value::Array(blocks))
    }
}

impl Reader {
    fn start(&mut self, index: u64, block: &Value, reply: &mut ReplyBuilder) {
        let kind = block["type"].as_str().unwrap_or_default();
        let call = match kind {
            "text" => {
                reply.text(block["text"].as_str().unwrap_or_default());
                None
            }
            "thinking" => {
                reply.thinking(block["thinking"].as_str().unwrap_or_default());
                None
            }
            "tool_use" => {
                let text = |key: &str| block[key].as_str().unwrap_or_default();
                let call = reply.begin_call(text("id"), text("name"));
                let whole = block["input"].as_object().filter(|input| !input.is_empty());
                if let (Some(call), Some(_)) = (call, whole) {
                    reply.set_arguments(call, &block["input"].to_string());
                }
                call
            }
            _ => None,
        };
        let json = block.as_object().cloned().unwrap_or_default();
        let text = block[text_of(kind)].as_str().unwrap_or_default().to_owned();
        let signature = block["signature"].as_str().unwrap_or_default().to_owned();
        if self.blocks.len() < BLOCKS_MAX {
            self.blocks.push((index, Block { json, text, signature, call }));
        }
    }

    fn delta(&mut self, index: u64, delta: &Value, reply: &mut ReplyBuilder) {
        let Some((_, block)) = self.blocks.iter_mut().rev().find(|(of, _)| *of == index) else { return };
        let text = |key: &str| delta[key].as_str().unwrap_or_default();
        match (delta["type"].as_str().unwrap_or_default(), block.call) {
            ("text_delta", _) => {
                reply.text(text("text"));
                block.text.push_str(text("text"));
            }
            ("thinking_delta", _) => {
                reply.thinking(text("thinking"));
                block.text.push_str(text("thinking"));
            }
            ("signature_delta", _) => block.signature.push_str(text("signature")),
            ("input_json_delta", Some(call)) => reply.arguments(call, text("partial_json")),
            _ => {}
        }
    }

    fn stop(&mut self, index: u64, reply: &mut ReplyBuilder) {
        let Some((_, block)) = self.blocks.iter_mut().rev().find(|(of, _)| *of == index) else { return };
        if let Some(call) = block.call {
            let input = serde_json::from_str(reply.arguments_of(call)).ok();
            block.json.insert("input".into(), input.filter(Value::is_object).unwrap_or_else(|| json!({})));
            reply.complete_call(call);
        }
    }
}

impl Block {
    /// The block to send back. Only kinds that may be sent; the provider's own tools are not used.
    fn sendable(mut self) -> Option<Value> {
        let kind = self.json.get("type")?.as_str()?.to_owned();
        match kind.as_str() {
            "text" if self.text.trim().is_empty() => return None,
            "text" => self.json = Map::from_iter([("type".into(), "text".into())]),
            // The provider rejects thinking blocks without a signature.
            "thinking" if self.signature.is_empty() => return None,
            "thinking" => drop(self.json.insert("signature".into(), self.signature.into())),
            "redacted_thinking" => {}
            "tool_use" => self.json.retain(|key, _| matches!(key.as_str(), "type" | "id" | "name" | "input")),
            _ => return None,
        }
        if kind == "text" || kind == "thinking" {
            self.json.insert(text_of(&kind).into(), self.text.into());
        }
        Some(Value::Object(self.json))
    }
}

fn text_of(kind: &str) -> &str {
    if kind == "thinking" { "thinking" } else { "text" }
}

impl UsageCounter {
    /// Counts come in several events: later ones add to or correct earlier ones.
    fn take(&mut self, told: &Value, reply: &mut ReplyBuilder) {
        let usage = &mut self.usage;
        let fields = [
            ("/input_tokens", &mut usage.input),
            ("/output_tokens", &mut usage.output),
            ("/cache_read_input_tokens", &mut usage.cache_read),
            ("/cache_creation_input_tokens", &mut usage.cache_write),
            ("/output_tokens_details/thinking_tokens", &mut usage.reasoning),
        ];
        for (pointer, field) in fields {
            if let Some(tokens) = told.pointer(pointer).and_then(Value::as_u64) {
                *field = tokens;
                self.any = true;
            }
        }
        if let Some(cost) = told["cost"].as_f64() {
            usage.cost_usd = cost;
        }
        usage.context_used = sum(&[usage.input, usage.cache_read, usage.cache_write, usage.output]);
        if self.any {
            reply.set_usage(*usage);
        }
    }
}

/// Adds numbers of a provider, which may be anything, without overflow.
pub(super) fn sum(tokens: &[u64]) -> u64 {
    tokens.iter().fold(0, |sum, tokens| sum.saturating_add(*tokens))
}

fn stop(reason: &str) -> ModelStop {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => ModelStop::MaxTokens,
        "refusal" => ModelStop::Refusal,
        _ => ModelStop::Finished,
    }
}
