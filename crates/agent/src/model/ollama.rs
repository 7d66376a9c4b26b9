//! Ollama's own wire: one JSON value per line.
//!
//! It is spoken instead of Ollama's imitation of OpenAI because only here can the size of the context
//! be asked for; without, Ollama silently forgets the beginning of longer conversations.

use engine::Usage;
use serde_json::{Map, Value, json};

use super::anthropic::{rounded, sum};
use super::call::bare;
use super::entries::{Entry, Result as ToolResult, answered, conversation, functions, said};
use super::wire::{Asking, Decode, Reply};
use super::{Image, ModelError, ModelRequest, ModelStop, Thinking, trouble};

pub(super) fn encode(request: &ModelRequest, asking: &Asking) -> Value {
    let model = bare(&request.model);
    let messages = conversation(request, asking, messages);
    let mut body = json!({ "model": model, "stream": true, "messages": messages });
    let tools = functions(request);
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    if !asking.omit.thinking {
        body["think"] = think(model, request.thinking);
    }
    let mut options = Map::new();
    if let Some(tokens) = asking.context_tokens {
        options.insert("num_ctx".into(), tokens.into());
    }
    if let Some(tokens) = request.output_tokens_max {
        options.insert("num_predict".into(), tokens.into());
    }
    if let Some(temperature) = request.temperature.filter(|_| !asking.omit.temperature) {
        options.insert("temperature".into(), rounded(temperature));
    }
    if !options.is_empty() {
        body["options"] = options.into();
    }
    body
}

/// A switch, except for the one family that knows levels and cannot be switched off.
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
        Entry::Said { native: Some(message), .. } => vec![message],
        Entry::Said { text, calls, .. } => {
            let calls = calls
                .into_iter()
                .map(|call| json!({ "function": { "name": call.name, "arguments": call.arguments } }))
                .collect();
            vec![said(text.into(), calls)]
        }
        Entry::Results(results) => {
            let message = |result: &ToolResult<'_>| json!({ "role": "tool", "tool_name": result.tool, "content": result.text });
            answered(results, message, |texts, images| user(&texts, &images))
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
    fn event(&mut self, _: Option<&str>, data: Value, reply: &mut Reply) -> Result<(), ModelError> {
        if !data["error"].is_null() && reply.stop().is_none() {
            return Err(trouble::in_band(&data));
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
            reply.set_usage(counted(&data));
            let length = data["done_reason"] == "length";
            reply.set_stop(if length { ModelStop::MaxTokens } else { ModelStop::Finished });
            reply.end();
        }
        Ok(())
    }

    /// Only what has thoughts says more than the plain form.
    fn native(&mut self, _: &Reply) -> Option<Value> {
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

fn counted(told: &Value) -> Usage {
    let tokens = |key: &str| told[key].as_u64().unwrap_or(0);
    let (input, output) = (tokens("prompt_eval_count"), tokens("eval_count"));
    Usage { context_used: sum(&[input, output]), input, output, ..Usage::default() }
}
