//! Gemini's `streamGenerateContent?alt=sse`: whole parts, lines that end as in HTTP.

use agent::ModelStop;
use serde_json::{Value, json};

use super::anthropic::usage;
use super::{Frame, pieces};
use crate::Line;

const SIGNATURE: &str = "EpIDCo8DAQw51scLbW9jayB0aG91Z2h0IHNpZ25hdHVyZQ==";

pub(super) fn frames(lines: &[Line], model: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut finish = "STOP";
    let mut signed = false;
    for line in lines {
        match line {
            Line::Text(text) => {
                frames.extend(pieces(text).iter().map(|piece| part(&json!({ "text": piece }), lines, model)));
            }
            Line::Thinking(text) => frames.extend(
                pieces(text)
                    .iter()
                    .map(|piece| part(&json!({ "text": piece, "thought": true }), lines, model)),
            ),
            Line::Call(tool, arguments) => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
                let mut call = json!({ "functionCall": { "name": tool, "args": arguments } });
                if !std::mem::replace(&mut signed, true) {
                    call["thoughtSignature"] = SIGNATURE.into();
                }
                frames.push(part(&call, lines, model));
            }
            Line::Usage(_) | Line::Stop(ModelStop::Finished) => {}
            Line::Error(reason) => {
                let error = json!({ "error": { "code": 503, "message": reason, "status": "UNAVAILABLE" } });
                frames.push(Frame::Event(format!("data: {error}\r\n\r\n")));
                return frames;
            }
            Line::Hang => {
                frames.push(Frame::Hang);
                return frames;
            }
            Line::Stop(ModelStop::MaxTokens) => finish = "MAX_TOKENS",
            Line::Stop(ModelStop::Refusal) => finish = "SAFETY",
        }
    }
    let last = json!({
        "content": { "parts": [{ "text": "" }], "role": "model" }, "finishReason": finish, "index": 0,
    });
    frames.push(Frame::Terminator(chunk(&last, lines, model)));
    frames
}

pub(super) fn error_body(status: u16, message: &str) -> String {
    let word = match status {
        401 => "UNAUTHENTICATED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    };
    let error = json!({ "error": { "code": status, "message": message, "status": word } });
    serde_json::to_string_pretty(&error).unwrap_or_default()
}

fn part(part: &Value, lines: &[Line], model: &str) -> Frame {
    let candidate = json!({ "content": { "parts": [part], "role": "model" }, "index": 0 });
    Frame::Event(chunk(&candidate, lines, model))
}

/// Thoughts are counted beside what is said, and what was cached is a part of the prompt.
fn chunk(candidate: &Value, lines: &[Line], model: &str) -> String {
    let usage = usage(lines);
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    let mut counted = json!({
        "promptTokenCount": prompt,
        "candidatesTokenCount": usage.output.saturating_sub(usage.reasoning),
        "totalTokenCount": prompt + usage.output,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": prompt }],
    });
    if usage.cache_read > 0 {
        counted["cachedContentTokenCount"] = usage.cache_read.into();
    }
    if usage.reasoning > 0 {
        counted["thoughtsTokenCount"] = usage.reasoning.into();
    }
    let chunk = json!({
        "candidates": [candidate], "usageMetadata": counted, "modelVersion": model, "responseId": "mock",
    });
    format!("data: {chunk}\r\n\r\n")
}
