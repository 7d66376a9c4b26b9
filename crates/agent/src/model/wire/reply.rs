//! A reply while it is read: what was said, the calls in progress, how it ends.
//!
//! **Invariant:** calls are told when they are complete, in the order in which they began.
//! **Invariant:** pieces of arguments are joined once; a call of any number of pieces is read in time
//! that grows with its length.

use std::sync::Arc;

use engine::Usage;
use serde_json::Value;

use super::super::{ModelEvent, ModelStop, Native};

/// More calls at once than anybody means; the rest is not carried out.
const CALLS_MAX: usize = 256;

#[derive(Default)]
pub(in super::super) struct Reply {
    said: Vec<ModelEvent>,
    calls: Vec<PartialCall>,
    told: usize,
    stop: Option<ModelStop>,
    usage: Option<Usage>,
    refused: bool,
    /// The provider has announced calls.
    promised: bool,
    /// How much was said so far: text, thoughts and arguments.
    bytes: usize,
    state: State,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Ended,
    Told,
}

struct PartialCall {
    id: String,
    name: String,
    arguments: String,
    complete: bool,
}

/// Names a call of this reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct CallKey(usize);

impl Reply {
    pub(in super::super) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.said.last_mut() {
            Some(ModelEvent::Text(said)) => said.push_str(text),
            _ => self.said.push(ModelEvent::Text(text.to_owned())),
        }
    }

    pub(in super::super) fn thinking(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.said.last_mut() {
            Some(ModelEvent::Thinking(said)) => said.push_str(text),
            _ => self.said.push(ModelEvent::Thinking(text.to_owned())),
        }
    }

    /// Words with which the model declines. They are said like others, and the reply is a refusal.
    pub(in super::super) fn refusal(&mut self, text: &str) {
        if !text.is_empty() {
            self.refused = true;
            self.text(text);
        }
    }

    /// None if there are too many calls already.
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

    /// Adds what is not known yet: some servers name a call only in its second piece.
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

    /// The arguments as a whole, where a wire repeats them.
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
        while let Some(call) = self.calls.get_mut(self.told).filter(|call| call.complete) {
            // A tool without arguments: several wires then send nothing at all.
            if call.arguments.trim().is_empty() {
                call.arguments = "{}".to_owned();
            }
            let (id, name, arguments) = (call.id.clone(), call.name.clone(), call.arguments.clone());
            self.said.push(ModelEvent::ToolCall { id, name, arguments });
            self.told += 1;
        }
    }

    pub(in super::super) fn complete_calls(&mut self) {
        for at in self.told..self.calls.len() {
            self.complete_call(CallKey(at));
        }
    }

    pub(in super::super) fn set_stop(&mut self, stop: ModelStop) {
        self.stop = Some(stop);
    }

    pub(in super::super) fn stop(&self) -> Option<ModelStop> {
        self.stop
    }

    /// Calls have to come, or the reply is not what it says it is.
    pub(in super::super) fn promise_calls(&mut self) {
        self.promised = true;
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Why a reply that has ended is none.
    pub(super) fn flaw(&self) -> Option<&'static str> {
        let nothing = self.bytes == 0 && self.calls.is_empty() && !self.refused;
        match self.stop {
            None if nothing => Some("the answer ended before anything was said"),
            Some(ModelStop::Finished) if self.promised && self.calls.is_empty() => {
                Some("the model announced tool calls and sent none")
            }
            None | Some(ModelStop::Finished | ModelStop::MaxTokens | ModelStop::Refusal) => None,
        }
    }

    /// It is over and was no reply: nobody is told that it ended.
    pub(super) fn withdraw(&mut self) {
        self.state = State::Told;
    }

    pub(in super::super) fn set_usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// The provider says that this was all.
    pub(in super::super) fn end(&mut self) {
        if self.state == State::Open {
            self.complete_calls();
            self.state = State::Ended;
        }
    }

    pub(super) fn ended(&self) -> bool {
        self.state != State::Open
    }

    /// It has ended, and nobody was told yet.
    pub(super) fn is_due(&self) -> bool {
        self.state == State::Ended
    }

    pub(super) fn tell(&mut self, id: &Arc<str>, native: Option<Value>, events: &mut Vec<ModelEvent>) {
        events.append(&mut self.said);
        if self.state != State::Ended {
            return;
        }
        self.state = State::Told;
        if let Some(json) = native {
            let ids = self.calls.iter().map(|call| call.id.as_str().into()).collect();
            let native = Native { provider: Arc::clone(id), json: json.to_string().into(), ids };
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
