//! Anthropic Messages: named events, content in numbered blocks.

use agent::ModelStop;
use engine::Usage;
use serde_json::{Value, json};

use super::{Frame, argument_pieces, named_event, pieces};
use crate::Line;

const SIGNATURE: &str = "EqQBCkYIBBgCIkBtb2NrIHNpZ25hdHVyZSBvZiBhIHRob3VnaHQ=";

pub(super) fn frames(lines: &[Line], model: &str) -> Vec<Frame> {
    let usage = usage(lines);
    let mut writer = Writer { frames: Vec::new(), blocks: 0 };
    writer.event(&json!({
        "type": "message_start",
        "message": {
            "id": "msg_01Mock", "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {
                "input_tokens": usage.input,
                "cache_creation_input_tokens": usage.cache_write,
                "cache_read_input_tokens": usage.cache_read,
                "output_tokens": 1,
                "service_tier": "standard",
            },
        },
    }));
    let mut stop = "end_turn";
    for line in lines {
        match line {
            Line::Text(text) => writer.text(text),
            Line::Thinking(text) => writer.thinking(text),
            Line::Call(tool, arguments) => {
                stop = "tool_use";
                writer.call(tool, arguments);
            }
            Line::Usage(_) => {}
            Line::Error(reason) => {
                writer.event(
                    &json!({ "type": "error", "error": { "type": "overloaded_error", "message": reason } }),
                );
                return writer.frames;
            }
            Line::Hang => {
                writer.frames.push(Frame::Hang);
                return writer.frames;
            }
            Line::Stop(ModelStop::Finished) => {}
            Line::Stop(ModelStop::MaxTokens) => stop = "max_tokens",
            Line::Stop(ModelStop::Refusal) => stop = "refusal",
        }
    }
    writer.event(&json!({
        "type": "message_delta",
        "delta": { "stop_reason": stop, "stop_sequence": null },
        "usage": { "output_tokens": usage.output },
    }));
    writer.frames.push(Frame::Terminator(named_event(&json!({ "type": "message_stop" }))));
    writer.frames
}

pub(super) fn error_body(status: u16, message: &str) -> String {
    let kind = match status {
        401 => "authentication_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_mock" })
        .to_string()
}

/// The numbers of a reply, whose place in the script does not matter here.
pub(super) fn usage(lines: &[Line]) -> Usage {
    let said = lines.iter().rev().find_map(|line| match line {
        Line::Usage(usage) => Some(*usage),
        _ => None,
    });
    said.unwrap_or(Usage { input: 10, output: 5, ..Usage::default() })
}

struct Writer {
    frames: Vec<Frame>,
    blocks: usize,
}

impl Writer {
    fn event(&mut self, data: &Value) {
        self.frames.push(Frame::Event(named_event(data)));
    }

    fn block(&mut self, start: Value, deltas: impl IntoIterator<Item = Value>) {
        let index = self.blocks;
        self.blocks += 1;
        self.event(&json!({ "type": "content_block_start", "index": index, "content_block": start }));
        if index == 0 {
            self.event(&json!({ "type": "ping" }));
        }
        for delta in deltas {
            self.event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        self.event(&json!({ "type": "content_block_stop", "index": index }));
    }

    fn text(&mut self, text: &str) {
        let deltas = pieces(text).into_iter().map(|piece| json!({ "type": "text_delta", "text": piece }));
        self.block(json!({ "type": "text", "text": "" }), deltas);
    }

    fn thinking(&mut self, text: &str) {
        let thoughts =
            pieces(text).into_iter().map(|piece| json!({ "type": "thinking_delta", "thinking": piece }));
        let signed = json!({ "type": "signature_delta", "signature": SIGNATURE });
        let start = json!({ "type": "thinking", "thinking": "", "signature": "" });
        self.block(start, thoughts.chain(std::iter::once(signed)));
    }

    fn call(&mut self, tool: &str, arguments: &str) {
        let id = format!("toolu_01Mock{}", self.blocks);
        let empty = std::iter::once("");
        let deltas = empty.chain(argument_pieces(arguments));
        let deltas = deltas.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
        self.block(json!({ "type": "tool_use", "id": id, "name": tool, "input": {} }), deltas);
    }
}
