//! The tool calls of the turn that is shown: what each is called, and whether a sub-agent made it.
//!
//! Editors show what a sub-agent does under the call that it works for. They know it by
//! `_meta.claudeCode.parentToolUseId`, which the adapter of another agent made known.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Body, CallId, Event, Timestamp};
use serde_json::{Value, json};

pub(super) const CLAUDE_CODE: &str = "claudeCode";
pub(super) const PARENT: &str = "parentToolUseId";

/// A call that has begun and not ended.
pub(super) struct Known {
    pub(super) tool: Arc<str>,
    pub(super) at: Timestamp,
    parent: Option<CallId>,
}

#[derive(Default)]
pub(super) struct Calls {
    open: BTreeMap<CallId, Known>,
}

impl Calls {
    pub(super) fn observe(&mut self, event: &Event) {
        if let Body::ToolStarted(start) = &event.body {
            let parent = event.origin.task().cloned();
            let known = Known { tool: Arc::clone(&start.tool), at: event.at, parent };
            self.open.insert(start.call.clone(), known);
        }
    }

    pub(super) fn forget(&mut self, event: &Event) {
        if let Body::ToolEnded(end) = &event.body {
            self.open.remove(&end.call);
        }
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    pub(super) fn get(&self, call: &CallId) -> Option<&Known> {
        self.open.get(call)
    }

    pub(super) fn parent_of(&self, call: &CallId) -> Option<&CallId> {
        self.open.get(call)?.parent.as_ref()
    }

    /// The call whose sub-agent an event comes from, or is about: the session itself ends calls and refuses
    /// them too.
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

/// Puts the parent into every update from `offset` on.
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
