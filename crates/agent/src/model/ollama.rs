//! Ollama's native API: one JSON value per line.
//!
//! It is used instead of Ollama's OpenAI-compatible API because only here can the context size be set;
//! without that, Ollama silently drops the beginning of longer conversations.

use engine::Usage;
use serde_json::{Map, Value, json};

use super::anthropic::{rounded, sum};
use super::conversation_entries::{
    Entry, EntryResult, assistant_message, conversation, functions, text_results,
};
use super::model_call::bare_model;
use super::wire::{Decode, ReplyBuilder, WireOptions};
use super::{Image, ModelError, ModelRequest, ModelStop, Thinking, provider_error};

pub(super) fn encode(request: &ModelRequest, options: &WireOptions) -> Value {
    let model = bare_model(&request.model);
    let messages = conversation(request, options, messages);
    let mut body = json!({ "model": model, "stream": true, "messages": messages });
    let tools = functions(request);
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    if !options.omit.thinking {
        body["think"] = think(model, request.thinking);
    }
    let mut settings = Map::new();
    if let Some(tokens) = options.context_tokens {
        settings.insert("num_ctx".into(), tokens.into());
    }
    if let Some(tokens) = request.output_tokens_max {
        settings.insert("num_predict".into(), tokens.into());
    }
    if let Some(temperature) = request.temperature.filter(|_| !options.omit.temperature) {
        settings.insert("temperature".into(), rounded(temperature));
    }
    if !settings.is_empty() {
        body["options"] = settings.into();
    }
    body
}

/// On or off, except for the one model family that has levels and cannot be switched off.
fn think(model: &str, level: Thinking) -> Value {
    match level {
        Thinking::Off | Thinking::Low if model.contains("gpt-oss") => "low".into(),
        Thinking::Medium if model.contains("gpt-oss") => "medium".into(),
        Thinking::High if model.contains("gpt-oss") => "high".into(),
        level => (level != Thinking::Off).into(),
    }
}

fn messages(entry: Entry<'_>) -> Vec<Value> {
    match entry {
        Entry::User { texts, images } => vec![user(&texts, &images)],
        Entry::Assistant { native: Some(message), .. } => vec![message],
        Entry::Assistant { text, calls, .. } => {
            let calls = calls
                .into_iter()
                .map(|call| json!({ "function": { "name": call.name, "arguments": call.arguments } }))
                .collect();
            vec![assistant_message(text.into(), calls)]
        }
        Entry::Results(results) => {
            let message = |result: &EntryResult<'_>| json!({ "role": "tool", "tool_name": result.tool, "content": result.text });
            text_results(results, message, |texts, images| user(&texts, &images))
        }
    }
}

fn user(texts: &[String], images: &[&Image]) -> Value {
    let mut message = json!({ "role": "user", "content": texts.join("\n\n") });
    if !images.is_empty() {
        message["images"] = images.iter().map(|image| Value::from(&*image.data)).collect::<Vec<_>>().into();
    }
    message
}

#[derive(Default)]
pub(super) struct Reader {
    text: String,
    thinking: String,
    calls: Vec<Value>,
}

impl Decode for Reader {
    fn event(&mut self, _: Option<&str>, data: Value, reply: &mut ReplyBuilder) -> Result<(), ModelError> {
        if !data["error"].is_null() && reply.stop().is_none() {
            return Err(provider_error::stream_error(&data));
        }
        let message = &data["message"];
        let text = |key: &str| message[key].as_str().unwrap_or_default();
        reply.thinking(text("thinking"));
        reply.text(text("content"));
        self.thinking.push_str(text("thinking"));
        self.text.push_str(text("content"));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let (id, name) =
                (call["id"].as_str().unwrap_or_default(), function["name"].as_str().unwrap_or_default());
            let Some(key) = reply.begin_call(id, name) else { continue };
            if !function["arguments"].is_null() {
                reply.set_arguments(key, &function["arguments"].to_string());
            }
            reply.complete_call(key);
            self.calls.push(call.clone());
        }
        if data["done"] == true {
            reply.set_usage(usage_of(&data));
            let length = data["done_reason"] == "length";
            reply.set_stop(if length { ModelStop::MaxTokens } else { ModelStop::Finished });
            reply.end();
        }
        Ok(())
    }

    /// The native form is needed only for replies with thinking.
    fn native(&mut self, _: &ReplyBuilder) -> Option<Value> {
        if self.thinking.is_empty() {
            return None;
        }
        let (text, thinking) = (std::mem::take(&mut self.text), std::mem::take(&mut self.thinking));
        let mut message = json!({ "role": "assistant", "content": text, "thinking": thinking });
        if !self.calls.is_empty() {
            message["tool_calls"] = std::mem::take(&mut self.calls).into();
        }
        Some(message)
    }
}

fn usage_of(told: &Value) -> Usage {
    let tokens = |key: &str| told[key].as_u64().unwrap_or(0);
    let (input, output) = (tokens("prompt_eval_count"), tokens("eval_count"));
    Usage { context_used: sum(&[input, output]), input, output, ..Usage::default() }
}
