//! OpenAI Responses: a response made of items, each announced, streamed and closed.

use agent::ModelStop;
use serde_json::{Value, json};

use super::anthropic::usage;
use super::{Frame, argument_pieces, named_event, pieces};
use crate::Line;

pub(super) fn frames(lines: &[Line], model: &str) -> Vec<Frame> {
    let mut writer = Writer { model, frames: Vec::new(), sequence: 0, output: Vec::new() };
    let begun = writer.response("in_progress", Value::Null, Value::Null);
    writer.event("response.created", json!({ "response": begun.clone() }));
    writer.event("response.in_progress", json!({ "response": begun }));
    let (mut status, mut details) = ("completed", Value::Null);
    for line in lines {
        match line {
            Line::Text(text) => writer.text(text),
            Line::Thinking(text) => writer.thinking(text),
            Line::Call(tool, arguments) => writer.call(tool, arguments),
            Line::Usage(_) | Line::Stop(ModelStop::Finished) => {}
            Line::Error(reason) => {
                let error = json!({ "code": "server_error", "message": reason });
                writer.event("error", json!({ "code": "server_error", "message": reason, "param": null }));
                let mut failed = writer.response("failed", Value::Null, Value::Null);
                failed["error"] = error;
                writer.event("response.failed", json!({ "response": failed }));
                return writer.frames;
            }
            Line::Hang => {
                writer.frames.push(Frame::Hang);
                return writer.frames;
            }
            Line::Stop(ModelStop::MaxTokens) => {
                (status, details) = ("incomplete", json!({ "reason": "max_output_tokens" }));
            }
            Line::Stop(ModelStop::Refusal) => {
                (status, details) = ("incomplete", json!({ "reason": "content_filter" }));
            }
        }
    }
    let response = writer.response(status, details, counted(lines));
    writer.event(&format!("response.{status}"), json!({ "response": response }));
    if let Some(Frame::Event(last)) = writer.frames.pop() {
        writer.frames.push(Frame::Terminator(last));
    }
    writer.frames
}

fn counted(lines: &[Line]) -> Value {
    let usage = usage(lines);
    let input = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": { "cached_tokens": usage.cache_read },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": input + usage.output,
    })
}

struct Writer<'a> {
    model: &'a str,
    frames: Vec<Frame>,
    sequence: u64,
    output: Vec<Value>,
}

impl Writer<'_> {
    fn event(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.frames.push(Frame::Event(named_event(&data)));
    }

    fn response(&self, status: &str, details: Value, usage: Value) -> Value {
        json!({
            "id": "resp_mock", "object": "response", "created_at": 1_785_967_715, "status": status,
            "background": false, "error": null, "incomplete_details": details, "model": self.model,
            "output": self.output, "parallel_tool_calls": true, "store": false, "usage": usage,
        })
    }

    fn item(&mut self, added: Value, done: Value, within: impl FnOnce(&mut Self, usize)) {
        let index = self.output.len();
        self.event("response.output_item.added", json!({ "output_index": index, "item": added }));
        within(self, index);
        self.event("response.output_item.done", json!({ "output_index": index, "item": done }));
        self.output.push(done);
    }

    fn text(&mut self, text: &str) {
        let id = format!("msg_mock{}", self.output.len());
        let part =
            |text: &str| json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text });
        let item = |status: &str, content: Vec<Value>| json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content });
        self.item(item("in_progress", vec![]), item("completed", vec![part(text)]), |writer, index| {
            let at = json!({ "item_id": id, "output_index": index, "content_index": 0 });
            let with = |more: Value| merged(&at, more);
            writer.event("response.content_part.added", with(json!({ "part": part("") })));
            for piece in pieces(text) {
                writer.event("response.output_text.delta", with(json!({ "delta": piece, "logprobs": [] })));
            }
            writer.event("response.output_text.done", with(json!({ "text": text, "logprobs": [] })));
            writer.event("response.content_part.done", with(json!({ "part": part(text) })));
        });
    }

    fn thinking(&mut self, text: &str) {
        let id = format!("rs_mock{}", self.output.len());
        let part = |text: &str| json!({ "type": "summary_text", "text": text });
        let item = |summary: Vec<Value>| json!({ "id": id, "type": "reasoning", "summary": summary, "encrypted_content": "gAAAAABmock" });
        self.item(item(vec![]), item(vec![part(text)]), |writer, index| {
            let at = json!({ "item_id": id, "output_index": index, "summary_index": 0 });
            let with = |more: Value| merged(&at, more);
            writer.event("response.reasoning_summary_part.added", with(json!({ "part": part("") })));
            for piece in pieces(text) {
                writer.event("response.reasoning_summary_text.delta", with(json!({ "delta": piece })));
            }
            writer.event("response.reasoning_summary_text.done", with(json!({ "text": text })));
            writer.event("response.reasoning_summary_part.done", with(json!({ "part": part(text) })));
        });
    }

    fn call(&mut self, tool: &str, arguments: &str) {
        let index = self.output.len();
        let (id, call) = (format!("fc_mock{index}"), format!("call_Mock{index}"));
        // A tool of a server has a namespace here: `SERVER::TOOL` in a script.
        let (namespace, tool) =
            tool.split_once("::").map_or((None, tool), |(space, tool)| (Some(space), tool));
        let item = |status: &str, arguments: &str| {
            let mut item = json!({ "id": id, "type": "function_call", "status": status, "arguments": arguments, "call_id": call, "name": tool });
            if let Some(namespace) = namespace {
                item["namespace"] = namespace.into();
            }
            item
        };
        self.item(item("in_progress", ""), item("completed", arguments), |writer, index| {
            let at = json!({ "item_id": id, "output_index": index });
            for piece in argument_pieces(arguments) {
                let delta = merged(&at, json!({ "delta": piece }));
                writer.event("response.function_call_arguments.delta", delta);
            }
            let done = merged(&at, json!({ "arguments": arguments }));
            writer.event("response.function_call_arguments.done", done);
        });
    }
}

fn merged(base: &Value, more: Value) -> Value {
    let mut all = base.clone();
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    all
}
