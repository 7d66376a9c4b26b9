//! OpenAI Chat Completions, and the many providers with a similar API.
//!
//! The differences are the work here: which provider is used (by its address) decides which fields a request
//! may have, because some refuse what others need. Replies are read leniently: calls without an index, whole
//! calls instead of deltas, thoughts under three names, usage early, late, twice or never.

mod encode;

use engine::Usage;
use serde_json::{Map, Value, json};

pub(super) use encode::{effort, encode, is_reasoner};

use super::anthropic::sum;
use super::wire::{CallKey, Decode, ReplyBuilder};
use super::{ModelError, ModelStop, provider_error};

/// More than any reply has; bounded because looking one up takes linear time.
const DETAILS_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Reader {
    /// By the provider's index, if it gives one.
    calls: Vec<(Option<u64>, CallKey, Map<String, Value>)>,
    text: String,
    /// Sent back under the name that the provider uses.
    reasoning: String,
    details: Vec<Value>,
}

impl Decode for Reader {
    fn event(&mut self, name: Option<&str>, data: Value, reply: &mut ReplyBuilder) -> Result<(), ModelError> {
        if let Some(usage) =
            [&data["usage"], &data["x_groq"]["usage"]].into_iter().find(|told| told.is_object())
        {
            reply.set_usage(usage_of(usage));
        }
        let choices = data["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(choice) = choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            self.choice(choice, reply)?;
        }
        let failed = !data["error"].is_null() || name == Some("error");
        // Some report an error after the end that was already given as the finish reason.
        if failed && reply.stop().is_none() {
            return Err(provider_error::stream_error(&data));
        }
        Ok(())
    }

    fn mark(&mut self, data: &str, reply: &mut ReplyBuilder) -> bool {
        let known = data.trim() == "[DONE]";
        if known {
            reply.end();
        }
        known
    }

    fn native(&mut self, reply: &ReplyBuilder) -> Option<Value> {
        let sealed = self.calls.iter().any(|(_, _, extra)| !extra.is_empty());
        if self.reasoning.is_empty() && self.details.is_empty() && !sealed {
            return None;
        }
        let mut message = json!({ "role": "assistant", "content": std::mem::take(&mut self.text) });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = std::mem::take(&mut self.reasoning).into();
        }
        if !self.details.is_empty() {
            message["reasoning_details"] = std::mem::take(&mut self.details).into();
        }
        let calls = std::mem::take(&mut self.calls);
        let calls: Vec<Value> =
            calls.into_iter().map(|(_, key, extra)| sendable(reply, key, extra)).collect();
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        Some(message)
    }
}

/// A call to send back. Servers parse the arguments, so they must be valid JSON.
fn sendable(reply: &ReplyBuilder, key: CallKey, mut extra: Map<String, Value>) -> Value {
    let arguments = reply.arguments_of(key);
    let object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
    let arguments = if object { arguments } else { "{}" };
    let function = json!({ "name": reply.call_name(key), "arguments": arguments });
    extra.extend([
        ("id".into(), reply.call_id(key).into()),
        ("type".into(), "function".into()),
        ("function".into(), function),
    ]);
    Value::Object(extra)
}

impl Reader {
    fn choice(&mut self, choice: &Value, reply: &mut ReplyBuilder) -> Result<(), ModelError> {
        // A server that does not stream sends a message instead of deltas.
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        self.thoughts(delta, reply);
        match &delta["content"] {
            Value::String(text) => self.say(text, reply),
            Value::Array(parts) => self.parts(parts, reply),
            _ => {}
        }
        reply.refusal(delta["refusal"].as_str().unwrap_or_default());
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(piece, reply);
        }
        let reason = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty());
        match reason {
            None => {}
            Some("error" | "insufficient_system_resource") => {
                let error = if choice["error"].is_null() {
                    json!({ "message": reason, "type": "server_error" })
                } else {
                    choice["error"].clone()
                };
                return Err(provider_error::stream_error(&error));
            }
            Some(reason) => {
                if reason == "tool_calls" {
                    reply.announce_calls();
                }
                reply.set_stop(match reason {
                    "length" | "model_length" => ModelStop::MaxTokens,
                    "content_filter" => ModelStop::Refusal,
                    _ => ModelStop::Finished,
                });
            }
        }
        Ok(())
    }

    fn say(&mut self, text: &str, reply: &mut ReplyBuilder) {
        self.text.push_str(text);
        reply.text(text);
    }

    /// Mistral's content parts, which include thinking.
    fn parts(&mut self, parts: &[Value], reply: &mut ReplyBuilder) {
        for part in parts {
            match &part["thinking"] {
                Value::String(text) => reply.thinking(text),
                Value::Array(inner) => {
                    inner
                        .iter()
                        .filter_map(|part| part["text"].as_str())
                        .for_each(|text| reply.thinking(text));
                }
                _ => self.say(part["text"].as_str().unwrap_or_default(), reply),
            }
        }
    }

    /// The same thought may come under several names at once; it is reported once.
    fn thoughts(&mut self, delta: &Value, reply: &mut ReplyBuilder) {
        let details = delta["reasoning_details"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |key: &str| delta[key].as_str().filter(|text| !text.is_empty());
        if let Some(thought) = text("reasoning_content") {
            self.reasoning.push_str(thought);
            reply.thinking(thought);
        } else if let Some(thought) = text("reasoning") {
            reply.thinking(thought);
        } else {
            for detail in details {
                let thought = detail["text"].as_str().or_else(|| detail["summary"].as_str());
                reply.thinking(thought.unwrap_or_default());
            }
        }
        details.iter().for_each(|detail| self.detail(detail));
    }

    /// Joins the pieces of a reasoning detail, which have the same index and kind.
    fn detail(&mut self, piece: &Value) {
        let same = |known: &Value| known["index"] == piece["index"] && known["type"] == piece["type"];
        let Some(known) = self.details.last_mut().filter(|known| same(known)) else {
            if self.details.len() < DETAILS_MAX && piece.is_object() {
                self.details.push(piece.clone());
            }
            return;
        };
        for key in ["text", "summary", "data"] {
            match (&mut known[key], piece[key].as_str()) {
                (Value::String(whole), Some(piece)) => whole.push_str(piece),
                (empty, Some(piece)) if empty.is_null() => *empty = piece.into(),
                _ => {}
            }
        }
        for key in ["signature", "id", "format"] {
            if let Some(value) = piece[key].as_str().filter(|value| !value.is_empty()) {
                known[key] = value.into();
            }
        }
        if let Some(known) = known.as_object_mut() {
            known.retain(|_, value| !value.is_null());
        }
    }

    fn call(&mut self, piece: &Value, reply: &mut ReplyBuilder) {
        let index = piece["index"].as_u64();
        let (id, function) = (piece["id"].as_str().unwrap_or_default(), &piece["function"]);
        let name = function["name"].as_str().unwrap_or_default();
        let known = self.calls.iter().rposition(|(of, key, _)| match index {
            // Servers that send whole calls give all of them the same index.
            Some(_) => *of == index && (id.is_empty() || name.is_empty() || reply.call_id(*key) == id),
            None => id.is_empty() && name.is_empty() || !id.is_empty() && reply.call_id(*key) == id,
        });
        let at = match known {
            Some(at) => at,
            None => {
                let Some(key) = reply.begin_call(id, name) else { return };
                self.calls.push((index, key, Map::new()));
                self.calls.len() - 1
            }
        };
        let (_, key, extra) = &mut self.calls[at];
        reply.name_call(*key, id, name);
        match &function["arguments"] {
            Value::String(piece) => reply.arguments(*key, piece),
            whole @ Value::Object(_) => reply.set_arguments(*key, &whole.to_string()),
            _ => {}
        }
        if let Some(sealed) = piece.get("extra_content").filter(|sealed| sealed.is_object()) {
            extra.insert("extra_content".into(), sealed.clone());
        }
    }
}

/// The cost of a call, if the provider reports it.
pub(super) fn cost(usage: &Value) -> f64 {
    let dollars = usage["cost"].as_f64().or_else(|| usage["cost"]["total_cost"].as_f64());
    let ticks = || usage["cost_in_usd_ticks"].as_f64().map(|ticks| ticks / 1e10);
    dollars.or_else(ticks).filter(|cost| cost.is_finite() && *cost >= 0.0).unwrap_or(0.0)
}

fn usage_of(usage: &Value) -> Usage {
    let tokens = |pointers: &[&str]| {
        let told = pointers.iter().filter_map(|pointer| usage.pointer(pointer)?.as_u64());
        told.max().unwrap_or(0)
    };
    let prompt = tokens(&["/prompt_tokens"]);
    let cache_read = tokens(&[
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
        "/cache_read_input_tokens",
    ]);
    let cache_write = tokens(&["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]);
    let reasoning = tokens(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    let (total, completion) = (tokens(&["/total_tokens"]), tokens(&["/completion_tokens"]));
    // Some count reasoning tokens in addition to the output, most within it.
    let beside = reasoning > 0 && total == sum(&[prompt, completion, reasoning]);
    let output = if beside { sum(&[completion, reasoning]) } else { completion };
    let cache_read = cache_read.min(prompt);
    let cache_write = cache_write.min(prompt - cache_read);
    Usage {
        context_used: sum(&[prompt, output]),
        input: prompt - cache_read - cache_write,
        output,
        cache_read,
        cache_write,
        reasoning: reasoning.min(output),
        cost_usd: cost(usage),
        ..Usage::default()
    }
}
