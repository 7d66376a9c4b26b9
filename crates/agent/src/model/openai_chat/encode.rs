//! Encodes a Chat Completions request, with the fields that the given provider understands.

use serde_json::{Value, json};

use super::super::anthropic::rounded;
use super::super::conversation_entries::{
    Entry, EntryResult, assistant_message, conversation, functions, text_results,
};
use super::super::model_call::bare_model;
use super::super::openai_responses::cache_key;
use super::super::wire::WireOptions;
use super::super::{Image, ModelRequest, Thinking};

/// The provider, as far as it matters for the fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    OpenAi,
    OpenRouter,
    /// Thinking can only be switched on or off.
    Switched,
    Mistral,
    Other,
}

impl Host {
    fn of(base_url: &str) -> Self {
        let host =
            base_url.split("://").nth(1).unwrap_or_default().split(['/', ':']).next().unwrap_or_default();
        let below = |domain: &str| {
            host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if below("openai.com") {
            Self::OpenAi
        } else if below("openrouter.ai") {
            Self::OpenRouter
        } else if below("deepseek.com") || below("z.ai") || below("moonshot.ai") {
            Self::Switched
        } else if below("mistral.ai") {
            Self::Mistral
        } else {
            Self::Other
        }
    }
}

pub(in super::super) fn encode(request: &ModelRequest, options: &WireOptions) -> Value {
    let (model, host) = (bare_model(&request.model), Host::of(&options.base_url));
    let mut body = json!({ "model": model, "stream": true });
    if host != Host::Mistral {
        // Mistral always sends usage, and rejects the option.
        body["stream_options"] = json!({ "include_usage": true });
    }
    body["messages"] = conversation(request, options, messages).into();
    let tools = functions(request);
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    if let Some(tokens) = request.output_tokens_max {
        let key = if host == Host::OpenAi { "max_completion_tokens" } else { "max_tokens" };
        body[key] = tokens.into();
    }
    if host == Host::OpenAi {
        body["prompt_cache_key"] = cache_key(&request.conversation).into();
    }
    think(request, options, host, &mut body);
    let fixed = is_reasoner(model) && matches!(host, Host::OpenAi | Host::OpenRouter);
    if let Some(temperature) = request.temperature.filter(|_| !fixed && !options.omit.temperature) {
        body["temperature"] = rounded(temperature);
    }
    body
}

fn think(request: &ModelRequest, options: &WireOptions, host: Host, body: &mut Value) {
    let (model, level) = (bare_model(&request.model), request.thinking);
    let word = level_word(level);
    match (host, word) {
        _ if options.omit.thinking => {}
        (Host::OpenAi, _) => {
            if let Some(effort) = effort(model, level).filter(|_| is_reasoner(model)) {
                body["reasoning_effort"] = effort.into();
            }
        }
        (Host::OpenRouter, Some(word)) => body["reasoning"] = json!({ "effort": word }),
        (Host::Switched, Some(_)) => body["thinking"] = json!({ "type": "enabled" }),
        (Host::Switched, None) => body["thinking"] = json!({ "type": "disabled" }),
        (Host::Other, Some(word)) => body["reasoning_effort"] = word.into(),
        // Some of its models think and some do not; there is no level to choose.
        (Host::Mistral, _) | (Host::OpenRouter | Host::Other, None) => {}
    }
}

fn level_word(level: Thinking) -> Option<&'static str> {
    match level {
        Thinking::Off => None,
        Thinking::Low => Some("low"),
        Thinking::Medium => Some("medium"),
        Thinking::High => Some("high"),
    }
}

/// Whether an OpenAI model is a reasoning model. Those accept no temperature.
pub(in super::super) fn is_reasoner(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let numbered =
        name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    let five = name.starts_with("gpt-5") && !name.contains("-chat");
    numbered || five || name.starts_with("codex") || name.starts_with("gpt-oss") || name.starts_with("grok-4")
}

/// The reasoning effort for a level. "Off" is a different value for nearly every model; where there is none,
/// the lowest effort is used.
pub(in super::super) fn effort(model: &str, level: Thinking) -> Option<&'static str> {
    let name = model.rsplit('/').next().unwrap_or(model);
    match level_word(level) {
        Some(word) => Some(word),
        None if name.contains("-pro") || name.starts_with("grok") => None,
        None if name.contains("codex") || !name.starts_with("gpt-5") => Some("low"),
        None if name.starts_with("gpt-5.") => Some("none"),
        None => Some("minimal"),
    }
}

fn messages(entry: Entry<'_>) -> Vec<Value> {
    match entry {
        Entry::User { texts, images } => vec![user(texts, images)],
        Entry::Assistant { native: Some(message), .. } => vec![message],
        Entry::Assistant { text, calls, .. } => {
            let text = if text.trim().is_empty() { Value::Null } else { text.into() };
            let calls = calls
                .into_iter()
                .map(|call| {
                    let arguments = Value::Object(call.arguments).to_string();
                    let function = json!({ "name": call.name, "arguments": arguments });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            vec![assistant_message(text, calls)]
        }
        Entry::Results(results) => {
            let message = |result: &EntryResult<'_>| json!({ "role": "tool", "tool_call_id": result.id, "content": result.text });
            text_results(results, message, user)
        }
    }
}

/// A single text is sent as a string, because many servers do not support parts.
fn user(texts: Vec<String>, images: Vec<&Image>) -> Value {
    if images.is_empty() {
        return json!({ "role": "user", "content": texts.join("\n\n") });
    }
    let texts = texts.into_iter().map(|text| json!({ "type": "text", "text": text }));
    let images = images.into_iter().map(|image| {
        let url = format!("data:{};base64,{}", image.mime, image.data);
        json!({ "type": "image_url", "image_url": { "url": url } })
    });
    json!({ "role": "user", "content": texts.chain(images).collect::<Vec<_>>() })
}
