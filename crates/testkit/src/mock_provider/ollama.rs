//! Ollama's own `/api/chat`: one JSON object a line.

use agent::ModelStop;
use serde_json::{Value, json};

use super::anthropic::usage;
use super::{Frame, pieces};
use crate::Line;

pub(super) fn frames(lines: &[Line], model: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut reason = "stop";
    let mut calls = 0;
    let message = |message: Value| Frame::Event(line(model, &message, &json!({ "done": false })));
    for said in lines {
        match said {
            Line::Text(text) => frames.extend(
                pieces(text).iter().map(|piece| message(json!({ "role": "assistant", "content": piece }))),
            ),
            Line::Thinking(text) => frames.extend(
                pieces(text)
                    .iter()
                    .map(|piece| message(json!({ "role": "assistant", "content": "", "thinking": piece }))),
            ),
            Line::Call(tool, arguments) => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
                let call = json!({
                    "id": format!("call_mock{calls}"),
                    "function": { "index": calls, "name": tool, "arguments": arguments },
                });
                calls += 1;
                frames.push(message(json!({ "role": "assistant", "content": "", "tool_calls": [call] })));
            }
            Line::Usage(_) | Line::Stop(ModelStop::Finished | ModelStop::Refusal) => {}
            Line::Error(reason) => {
                frames.push(Frame::Event(format!("{}\n", json!({ "error": reason }))));
                return frames;
            }
            Line::Hang => {
                frames.push(Frame::Hang);
                return frames;
            }
            Line::Stop(ModelStop::MaxTokens) => reason = "length",
        }
    }
    let usage = usage(lines);
    let end = json!({
        "done": true, "done_reason": reason, "total_duration": 5_645_304_708_u64, "load_duration": 55_095_250,
        "prompt_eval_count": usage.input + usage.cache_read + usage.cache_write,
        "prompt_eval_duration": 710_671_250, "eval_count": usage.output, "eval_duration": 4_466_025_455_u64,
    });
    frames.push(Frame::Terminator(line(model, &json!({ "role": "assistant", "content": "" }), &end)));
    frames
}

pub(super) fn error_body(message: &str) -> String {
    json!({ "error": message }).to_string()
}

fn line(model: &str, message: &Value, more: &Value) -> String {
    let mut all = json!({ "model": model, "created_at": "2026-08-04T19:58:15.115854Z", "message": message });
    if let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) {
        all.extend(more.clone());
    }
    format!("{all}\n")
}
