//! OpenAI Chat Completions: chunks with deltas, tool calls by index, `[DONE]`.

use agent::ModelStop;
use serde_json::{Value, json};

use super::anthropic::usage;
use super::{Frame, argument_pieces, pieces};
use crate::Line;

pub(super) fn frames(lines: &[Line], model: &str) -> Vec<Frame> {
    let mut writer = Writer { model, frames: Vec::new() };
    writer.delta(&json!({ "role": "assistant", "content": "", "refusal": null }));
    let mut finish = "stop";
    let mut calls = 0;
    for line in lines {
        match line {
            Line::Text(text) => {
                pieces(text).iter().for_each(|piece| writer.delta(&json!({ "content": piece })))
            }
            Line::Thinking(text) => {
                pieces(text).iter().for_each(|piece| writer.delta(&json!({ "reasoning_content": piece })));
            }
            Line::Call(tool, arguments) => {
                finish = "tool_calls";
                writer.call(calls, tool, arguments);
                calls += 1;
            }
            Line::Usage(_) | Line::Stop(ModelStop::Finished) => {}
            Line::Error(reason) => {
                let error = json!({ "error": { "message": reason, "type": "server_error", "param": null, "code": null } });
                writer.frames.push(event(&error));
                return writer.frames;
            }
            Line::Hang => {
                writer.frames.push(Frame::Hang);
                return writer.frames;
            }
            Line::Stop(ModelStop::MaxTokens) => finish = "length",
            Line::Stop(ModelStop::Refusal) => finish = "content_filter",
        }
    }
    writer
        .chunk(json!([{ "index": 0, "delta": {}, "logprobs": null, "finish_reason": finish }]), &Value::Null);
    writer.chunk(json!([]), &counted(lines));
    writer.frames.push(Frame::Terminator("data: [DONE]\n\n".into()));
    writer.frames
}

pub(super) fn error_body(status: u16, message: &str) -> String {
    let (kind, code) = match status {
        401 => ("invalid_request_error", json!("invalid_api_key")),
        404 => ("invalid_request_error", json!("model_not_found")),
        429 => ("requests", json!("rate_limit_exceeded")),
        500.. => ("server_error", Value::Null),
        _ => ("invalid_request_error", Value::Null),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } }).to_string()
}

/// What was read from a cache is a part of the prompt here, and thoughts are a part of the completion.
fn counted(lines: &[Line]) -> Value {
    let usage = usage(lines);
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.cache_read, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

fn event(data: &Value) -> Frame {
    Frame::Event(format!("data: {data}\n\n"))
}

struct Writer<'a> {
    model: &'a str,
    frames: Vec<Frame>,
}

impl Writer<'_> {
    fn chunk(&mut self, choices: Value, usage: &Value) {
        let chunk = json!({
            "id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1_782_955_817,
            "model": self.model, "service_tier": "default", "system_fingerprint": "fp_mock",
            "choices": choices, "usage": usage,
        });
        self.frames.push(event(&chunk));
    }

    fn delta(&mut self, delta: &Value) {
        let choice = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null }]);
        self.chunk(choice, &Value::Null);
    }

    fn call(&mut self, index: usize, tool: &str, arguments: &str) {
        let function = json!({ "name": tool, "arguments": "" });
        let id = format!("call_Mock{index}");
        self.delta(&json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] }));
        for piece in argument_pieces(arguments) {
            self.delta(&json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }));
        }
    }
}
