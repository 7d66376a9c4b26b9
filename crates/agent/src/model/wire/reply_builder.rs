//! A reply while it is decoded: its text, the calls in progress, how it ends.
//!
//! **Invariant:** calls are reported when they are complete, in the order in which they began.
//! **Invariant:** pieces of arguments are joined only once, so decoding a call takes time linear in its length.

use std::sync::Arc;

use engine::Usage;
use serde_json::Value;

use super::super::{ModelEvent, ModelStop, NativeReply};

/// Calls in one reply; further ones are ignored.
const CALLS_MAX: usize = 256;

#[derive(Default)]
pub(in super::super) struct ReplyBuilder {
    ready_events: Vec<ModelEvent>,
    calls: Vec<PartialCall>,
    delivered_calls: usize,
    stop: Option<ModelStop>,
    usage: Option<Usage>,
    refused: bool,
    /// The finish reason announces calls.
    calls_announced: bool,
    /// The size so far: text, thoughts and arguments.
    bytes: usize,
    state: State,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Ended,
    Delivered,
}

struct PartialCall {
    id: String,
    name: String,
    arguments: String,
    complete: bool,
}

/// Identifies a call of this reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct CallKey(usize);

impl ReplyBuilder {
    pub(in super::super) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.ready_events.last_mut() {
            Some(ModelEvent::Text(said)) => said.push_str(text),
            _ => self.ready_events.push(ModelEvent::Text(text.to_owned())),
        }
    }

    pub(in super::super) fn thinking(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.ready_events.last_mut() {
            Some(ModelEvent::Thinking(said)) => said.push_str(text),
            _ => self.ready_events.push(ModelEvent::Thinking(text.to_owned())),
        }
    }

    /// Refusal text. It is reported like other text, and the reply counts as a refusal.
    pub(in super::super) fn refusal(&mut self, text: &str) {
        if !text.is_empty() {
            self.refused = true;
            self.text(text);
        }
    }

    /// `None` if there are too many calls already.
    pub(in super::super) fn begin_call(&mut self, id: &str, name: &str) -> Option<CallKey> {
        if self.calls.len() >= CALLS_MAX {
            return None;
        }
        self.calls.push(PartialCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: String::new(),
            complete: false,
        });
        Some(CallKey(self.calls.len() - 1))
    }

    pub(in super::super) fn call_id(&self, key: CallKey) -> &str {
        &self.calls[key.0].id
    }

    pub(in super::super) fn call_name(&self, key: CallKey) -> &str {
        &self.calls[key.0].name
    }

    /// Sets the id and name if they are not known yet: some servers send them only in the second piece.
    pub(in super::super) fn name_call(&mut self, key: CallKey, id: &str, name: &str) {
        let call = &mut self.calls[key.0];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
    }

    pub(in super::super) fn arguments(&mut self, key: CallKey, piece: &str) {
        self.bytes += piece.len();
        self.calls[key.0].arguments.push_str(piece);
    }

    /// Sets the whole arguments, if a wire repeats them at the end.
    pub(in super::super) fn set_arguments(&mut self, key: CallKey, arguments: &str) {
        let known = &mut self.calls[key.0].arguments;
        self.bytes += arguments.len().saturating_sub(known.len());
        arguments.clone_into(known);
    }

    pub(in super::super) fn arguments_of(&self, key: CallKey) -> &str {
        &self.calls[key.0].arguments
    }

    pub(in super::super) fn complete_call(&mut self, key: CallKey) {
        self.calls[key.0].complete = true;
        while let Some(call) = self.calls.get_mut(self.delivered_calls).filter(|call| call.complete) {
            // For a tool without arguments, several wires send nothing at all.
            if call.arguments.trim().is_empty() {
                call.arguments = "{}".to_owned();
            }
            let (id, name, arguments) = (call.id.clone(), call.name.clone(), call.arguments.clone());
            self.ready_events.push(ModelEvent::ToolCall { id, name, arguments });
            self.delivered_calls += 1;
        }
    }

    pub(in super::super) fn complete_calls(&mut self) {
        for at in self.delivered_calls..self.calls.len() {
            self.complete_call(CallKey(at));
        }
    }

    pub(in super::super) fn set_stop(&mut self, stop: ModelStop) {
        self.stop = Some(stop);
    }

    pub(in super::super) fn stop(&self) -> Option<ModelStop> {
        self.stop
    }

    /// Records that the reply must contain calls, or it is incomplete.
    pub(in super::super) fn announce_calls(&mut self) {
        self.calls_announced = true;
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Why a reply that has ended is incomplete.
    pub(super) fn incomplete_reason(&self) -> Option<&'static str> {
        let nothing = self.bytes == 0 && self.calls.is_empty() && !self.refused;
        match self.stop {
            None if nothing => Some("the answer ended without any content"),
            Some(ModelStop::Finished) if self.calls_announced && self.calls.is_empty() => {
                Some("the model announced tool calls and sent none")
            }
            None | Some(ModelStop::Finished | ModelStop::MaxTokens | ModelStop::Refusal) => None,
        }
    }

    /// Discards the end of an incomplete reply, so that it is not reported.
    pub(super) fn withdraw(&mut self) {
        self.state = State::Delivered;
    }

    pub(in super::super) fn set_usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// Records the end of the reply.
    pub(in super::super) fn end(&mut self) {
        if self.state == State::Open {
            self.complete_calls();
            self.state = State::Ended;
        }
    }

    pub(super) fn ended(&self) -> bool {
        self.state != State::Open
    }

    /// It has ended, and the end was not reported yet.
    pub(super) fn end_is_due(&self) -> bool {
        self.state == State::Ended
    }

    pub(super) fn deliver(&mut self, id: &Arc<str>, native: Option<Value>, events: &mut Vec<ModelEvent>) {
        events.append(&mut self.ready_events);
        if self.state != State::Ended {
            return;
        }
        self.state = State::Delivered;
        if let Some(json) = native {
            let ids = self.calls.iter().map(|call| call.id.as_str().into()).collect();
            let native = NativeReply { provider: Arc::clone(id), json: json.to_string().into(), ids };
            events.push(ModelEvent::Native(native));
        }
        events.extend(self.usage.map(ModelEvent::Usage));
        let stop = match self.stop {
            _ if self.refused => ModelStop::Refusal,
            Some(stop) => stop,
            None => ModelStop::Finished,
        };
        events.push(ModelEvent::Done { stop });
    }
}
