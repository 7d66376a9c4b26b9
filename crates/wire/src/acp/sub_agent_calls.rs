//! Open tool calls of sub-agents, and the parent call that each belongs to.
//!
//! Editors show what a sub-agent does under its parent call. They find that call in
//! `_meta.claudeCode.parentToolUseId`, a convention that the adapter of another agent introduced.

use std::collections::BTreeMap;

use engine::{Body, CallId, Event};
use serde_json::{Value, json};

pub(super) const CLAUDE_CODE: &str = "claudeCode";
pub(super) const PARENT: &str = "parentToolUseId";

#[derive(Default)]
pub(super) struct SubAgentCalls {
    parents: BTreeMap<CallId, CallId>,
}

impl SubAgentCalls {
    pub(super) fn observe(&mut self, event: &Event) {
        if let (Body::ToolStarted(start), Some(parent)) = (&event.body, event.origin.task()) {
            self.parents.insert(start.call.clone(), parent.clone());
        }
    }

    pub(super) fn forget(&mut self, event: &Event) {
        if let Body::ToolEnded(end) = &event.body {
            self.parents.remove(&end.call);
        }
    }

    pub(super) fn clear(&mut self) {
        self.parents.clear();
    }

    pub(super) fn parent_of(&self, call: &CallId) -> Option<&CallId> {
        self.parents.get(call)
    }

    /// The parent call of an event that comes from a sub-agent or is about one: the session itself also ends
    /// and refuses calls.
    pub(super) fn parent<'a>(&'a self, event: &'a Event) -> Option<&'a CallId> {
        let about = if let Body::ToolEnded(end) = &event.body {
            Some(&end.call)
        } else if let Body::PolicyBlocked { call, .. } = &event.body {
            call.as_ref()
        } else {
            None
        };
        event.origin.task().or_else(|| self.parent_of(about?))
    }
}

/// Adds the parent call to every update from `offset` on.
pub(super) fn mark(parent: &CallId, offset: usize, out: &mut Vec<u8>) {
    let frames = out.split_off(offset);
    for frame in frames.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice::<Value>(frame) {
            Ok(mut told) if told["params"]["update"].is_object() => {
                let meta = &mut told["params"]["update"]["_meta"];
                if !meta.is_object() {
                    *meta = json!({});
                }
                if !meta[CLAUDE_CODE].is_object() {
                    meta[CLAUDE_CODE] = json!({});
                }
                meta[CLAUDE_CODE][PARENT] = json!(parent.0.as_ref());
                // Writing JSON into a vector cannot fail.
                drop(serde_json::to_writer(&mut *out, &told));
                out.push(b'\n');
            }
            _ => out.extend_from_slice(frame),
        }
    }
}
