//! Google Gemini.
//!
//! A stream has no terminator: it ends with the connection, and may give a finish reason more than once.
//! Calls often have no ids; their results are then matched by the tool's name and order.

use engine::Usage;
use serde_json::{Map, Value, json};

use super::anthropic::{rounded, sum};
use super::conversation_entries::{Entry, entries};
use super::model_call::bare_model;
use super::wire::{Decode, ReplyBuilder, WireOptions};
use super::{Image, ModelError, ModelRequest, ModelStop, Thinking, provider_error, tool_schema};

pub(super) fn encode(request: &ModelRequest, options: &WireOptions) -> Value {
    let mut body =
        json!({ "contents": contents(entries(request, options), signs(bare_model(&request.model))) });
    if !request.system.trim().is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": &*request.system }] });
    }
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            let mut declared = json!({ "name": &*tool.name, "description": &*tool.description });
            if let Some(parameters) = tool_schema::for_gemini(&tool.schema) {
                declared["parameters"] = parameters;
            }
            declared
        })
        .collect();
    if !tools.is_empty() {
        body["tools"] = json!([{ "functionDeclarations": tools }]);
    }
    let mut config = Map::new();
    if let Some(tokens) = request.output_tokens_max {
        config.insert("maxOutputTokens".into(), tokens.into());
    }
    if let Some(temperature) = request.temperature.filter(|_| !options.omit.temperature) {
        config.insert("temperature".into(), rounded(temperature));
    }
    if let Some(thinking) =
        thinking(bare_model(&request.model), request.thinking).filter(|_| !options.omit.thinking)
    {
        config.insert("thinkingConfig".into(), thinking);
    }
    if !config.is_empty() {
        body["generationConfig"] = config.into();
    }
    body
}

/// A level from the third generation on, a token budget before that, and nothing for the oldest.
fn thinking(model: &str, level: Thinking) -> Option<Value> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let pro = name.contains("pro");
    if name.starts_with("gemini-2.5") {
        let tokens = match level {
            Thinking::Off if pro => 128,
            Thinking::Off => 0,
            Thinking::Low => 2048,
            Thinking::Medium => 8192,
            Thinking::High => 24_576,
        };
        Some(json!({ "thinkingBudget": tokens, "includeThoughts": level != Thinking::Off }))
    } else if name.starts_with("gemini-1") || name.starts_with("gemini-2") || !name.starts_with("gemini") {
        None
    } else {
        let word = match level {
            Thinking::Off if pro => "low",
            Thinking::Off => "minimal",
            Thinking::Low => "low",
            Thinking::Medium if pro => "high",
            Thinking::Medium => "medium",
            Thinking::High => "high",
        };
        Some(json!({ "thinkingLevel": word, "includeThoughts": level != Thinking::Off }))
    }
}

/// Whether a model rejects calls in the conversation without a Gemini signature.
fn signs(model: &str) -> bool {
    let generation = model.rsplit('/').next().unwrap_or(model).strip_prefix("gemini-");
    generation.is_some_and(|name| !name.starts_with(['1', '2']))
}

fn contents(entries: Vec<Entry<'_>>, signs: bool) -> Vec<Value> {
    let mut contents: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in entries {
        let (role, parts) = match entry {
            Entry::User { texts, images } => {
                let texts = texts.into_iter().map(|text| json!({ "text": text }));
                ("user", texts.chain(images.into_iter().map(image)).collect())
            }
            Entry::Assistant { native: Some(Value::Array(parts)), .. } => ("model", parts),
            Entry::Assistant { text, calls, .. } => {
                let text = (!text.trim().is_empty()).then(|| json!({ "text": text }));
                let calls = calls.into_iter().enumerate().map(|(at, call)| {
                    let mut part = json!({ "functionCall": { "name": call.name, "args": call.arguments } });
                    if at == 0 && signs {
                        // A call without a signature needs this placeholder, or it is rejected.
                        part["thoughtSignature"] = "skip_thought_signature_validator".into();
                    }
                    part
                });
                ("model", text.into_iter().chain(calls).collect())
            }
            Entry::Results(results) => {
                let mut parts: Vec<Value> = Vec::new();
                let mut shown = Vec::new();
                for result in results {
                    let key = if result.failed { "error" } else { "output" };
                    let mut response = json!({ "name": result.tool, "response": { key: result.text } });
                    if !result.id.is_empty() && !result.id.starts_with("call0") {
                        response["id"] = result.id.into();
                    }
                    parts.push(json!({ "functionResponse": response }));
                    shown.extend(result.images.into_iter().map(image));
                }
                parts.append(&mut shown);
                ("user", parts)
            }
        };
        match contents.last_mut() {
            Some((before, known)) if *before == role => known.extend::<Vec<Value>>(parts),
            _ => contents.push((role, parts)),
        }
    }
    contents.into_iter().map(|(role, parts)| json!({ "role": role, "parts": parts })).collect()
}

fn image(image: &Image) -> Value {
    json!({ "inlineData": { "mimeType": &*image.mime, "data": &*image.data } })
}

#[derive(Default)]
pub(super) struct Reader {
    parts: Vec<Value>,
}

impl Decode for Reader {
    fn event(&mut self, _: Option<&str>, data: Value, reply: &mut ReplyBuilder) -> Result<(), ModelError> {
        if !data["error"].is_null() && reply.stop().is_none() {
            return Err(provider_error::stream_error(&data));
        }
        if data["usageMetadata"].is_object() {
            reply.set_usage(usage_of(&data["usageMetadata"]));
        }
        let candidates = data["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(candidate) = candidates.iter().find(|one| one["index"].as_u64().unwrap_or(0) == 0) {
            for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                self.part(part, reply);
            }
            stop(candidate, reply)?;
        }
        if let Some(reason) = data["promptFeedback"]["blockReason"].as_str() {
            reply.refusal(&format!("The provider blocked the prompt: {reason}."));
            reply.set_stop(ModelStop::Refusal);
        }
        Ok(())
    }

    fn native(&mut self, _: &ReplyBuilder) -> Option<Value> {
        let parts = std::mem::take(&mut self.parts);
        (!parts.is_empty()).then_some(Value::Array(parts))
    }
}

impl Reader {
    fn part(&mut self, part: &Value, reply: &mut ReplyBuilder) {
        if let Some(text) = part["text"].as_str() {
            if part["thought"] == true { reply.thinking(text) } else { reply.text(text) }
        }
        let call = &part["functionCall"];
        if call.is_object() {
            let text = |key: &str| call[key].as_str().unwrap_or_default();
            let Some(key) = reply.begin_call(text("id"), text("name")) else { return };
            if !call["args"].is_null() {
                reply.set_arguments(key, &call["args"].to_string());
            }
            reply.complete_call(key);
        }
        self.keep(part);
    }

    /// Keeps the parts to send back: text, calls, and everything signed, but not the thoughts themselves.
    fn keep(&mut self, part: &Value) {
        let signed = part["thoughtSignature"].is_string();
        let plain = part.as_object().is_some_and(|keys| keys.len() == 1) && part["text"].is_string();
        if part["thought"] == true && !signed || plain && part["text"] == "" {
            return;
        }
        let kept = signed || part["text"].is_string() || part["functionCall"].is_object();
        match (self.parts.last_mut(), part["text"].as_str()) {
            (Some(Value::Object(last)), Some(text)) if plain && last.len() == 1 => match last.get_mut("text")
            {
                Some(Value::String(before)) => before.push_str(text),
                _ => self.parts.push(part.clone()),
            },
            _ if kept => self.parts.push(part.clone()),
            _ => {}
        }
    }
}

fn stop(candidate: &Value, reply: &mut ReplyBuilder) -> Result<(), ModelError> {
    let Some(reason) = candidate["finishReason"].as_str() else { return Ok(()) };
    match reason {
        "MAX_TOKENS" => reply.set_stop(ModelStop::MaxTokens),
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "IMAGE_SAFETY" => {
            let told = candidate["finishMessage"].as_str().unwrap_or(reason);
            reply.refusal(&format!("The provider stopped the answer: {}.", provider_error::shown(told, 200)));
            reply.set_stop(ModelStop::Refusal);
        }
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "OTHER" if reply.stop().is_none() => {
            let told = candidate["finishMessage"].as_str().unwrap_or_default();
            let told = provider_error::shown(told, 200);
            return Err(ModelError::transient(
                format!("the model stopped early ({reason}) {told}").trim_end().to_owned(),
            ));
        }
        _ => reply.set_stop(ModelStop::Finished),
    }
    Ok(())
}

fn usage_of(told: &Value) -> Usage {
    let tokens = |key: &str| told[key].as_u64().unwrap_or(0);
    let prompt = sum(&[tokens("promptTokenCount"), tokens("toolUsePromptTokenCount")]);
    let cache_read = tokens("cachedContentTokenCount").min(prompt);
    let reasoning = tokens("thoughtsTokenCount");
    let output = sum(&[tokens("candidatesTokenCount"), reasoning]);
    Usage {
        context_used: sum(&[prompt, output]),
        input: prompt - cache_read,
        output,
        cache_read,
        reasoning,
        ..Usage::default()
    }
}
