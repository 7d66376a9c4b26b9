//! Encodes the log's events as `streamUpdate` notifications: the agent's text as a string, everything else
//! as an object with a `type`.
//!
//! Adjacent chunks of one text are merged, so a slow client gets fewer updates instead of late ones. Events
//! that need the connection itself are returned as a [`ConnectionEvent`], in order with the updates.

use std::path::Path;
use std::sync::Arc;

use engine::{
    APPROVAL, AskId, AskRequest, Body, CallId, Event, FileChange, MessageId, Origin, OutputStream, PlanEntry,
    Resolution, SessionId, StepStatus, Stop, ToolContent, ToolEnd, ToolStart, Totals, Usage,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{mode, prompt_id};
use crate::acp::write_notification;
use crate::dialect::{ConnectionEvent, EncodeContext};
use crate::event_encoder::{EncodeStep, Encoder};
use crate::ferret_otter_common as common;
use crate::money;
use crate::transcript::block_text;
use crate::transcript_text::blocks;

/// Limit for the merged text of one update. Longer answers become several updates.
const MERGED_BYTES_MAX: usize = 32 << 10;

pub struct Updates {
    session: SessionId,
    turn_usage: Totals,
    /// The parent call of the event that is being encoded, if a sub-agent caused it.
    parent: Option<CallId>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a, D> {
    session_id: &'a str,
    delta: D,
    /// The parent call, if a sub-agent caused the update.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
}

/// What chunks of a stream must have in common to be merged.
#[derive(PartialEq)]
enum TextStream<'a> {
    Text(MessageId),
    Thought(MessageId),
    Output(&'a CallId, OutputStream),
}

impl Encoder for Updates {
    fn step<'a>(
        &mut self,
        rest: &'a [Arc<Event>],
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> EncodeStep<'a> {
        let [event, ..] = rest else { return (0, None) };
        self.parent = event.origin.task().cloned();
        let step = match strand(&event.body) {
            Some((strand, _)) => (self.merged(rest, &strand, out), None),
            None => (1, self.event(event, context, out)),
        };
        self.parent = None;
        step
    }
}

impl Updates {
    pub fn new(session: &SessionId) -> Self {
        Self { session: session.clone(), turn_usage: Totals::default(), parent: None }
    }

    pub(crate) fn ask(&self, ask: AskId, request: &AskRequest) -> Vec<u8> {
        let mut out = Vec::new();
        let mut params = json!({
            "sessionId": self.session.as_str(),
            "promptId": prompt_id(&self.session, ask),
            "tool": request.tool.as_ref(),
            "detail": detail(request),
        });
        common::ask_question(request.question.as_ref(), &mut params);
        write_notification(&mut out, "requestPermission", params);
        out
    }

    pub(crate) fn withdraw(&self, ask: AskId, resolution: Resolution, out: &mut Vec<u8>) {
        let word = match resolution {
            Resolution::AllowedOnce | Resolution::AllowedAlways => "approved",
            Resolution::DeniedOnce | Resolution::DeniedAlways => "rejected",
            Resolution::Cancelled => "cancelled",
            Resolution::TimedOut => "timed_out",
            Resolution::EndedByRestart => "interrupted",
        };
        let delta = json!({
            "type": "permission_withdrawn",
            "promptId": prompt_id(&self.session, ask),
            "decision": word,
        });
        self.delta(delta, out);
    }

    /// Writes one update for as many adjacent chunks as fit. Returns how many events that were.
    fn merged(&self, events: &[Arc<Event>], of: &TextStream<'_>, out: &mut Vec<u8>) -> usize {
        let mut text = String::new();
        let mut taken = 0;
        for event in events {
            let Some((strand, piece)) = strand(&event.body) else { break };
            if strand != *of
                || event.origin.task() != self.parent.as_ref()
                || (taken > 0 && text.len() + piece.len() > MERGED_BYTES_MAX)
            {
                break;
            }
            text.push_str(piece);
            taken += 1;
        }
        match of {
            // A plain string is the agent's answer, and a sub-agent's text is not part of it.
            TextStream::Text(_) if self.parent.is_some() => {
                self.delta(json!({ "type": "text", "text": text }), out);
            }
            TextStream::Text(_) => self.delta(&text, out),
            TextStream::Thought(_) => self.delta(json!({ "type": "thought", "text": text }), out),
            TextStream::Output(call, stream) => {
                let stream = stream.as_str();
                let delta =
                    json!({ "type": "tool_output", "callId": &*call.0, "stream": stream, "text": text });
                self.delta(delta, out);
            }
        }
        taken
    }

    fn event<'a>(
        &mut self,
        event: &'a Event,
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> Option<ConnectionEvent<'a>> {
        let delta = match &event.body {
            Body::Asked { ask, request } => return Some(ConnectionEvent::Asked { ask: *ask, request }),
            Body::Resolved { ask, call, resolution, by, .. } => {
                return Some(ConnectionEvent::resolved(*ask, call.as_ref(), *resolution, by));
            }
            Body::TurnEnded { stop, error } => return self.turn_ended(event, *stop, error.as_ref(), out),
            Body::UserMessage { content } => {
                let own = matches!(&event.origin, Origin::Surface { id, .. } if *id == context.own);
                if own && !context.replay {
                    return None;
                }
                json!({ "type": "user_message", "text": blocks(content) })
            }
            Body::TurnStarted => {
                self.turn_usage = Totals::default();
                json!({ "type": "turn_started" })
            }
            Body::Plan { entries } => {
                json!({ "type": "plan", "entries": entries.iter().map(step).collect::<Vec<_>>() })
            }
            Body::ToolStarted(start) => started(start),
            Body::ToolEnded(end) => ended(end),
            Body::FileEdited { call, change } => edited(call.as_ref(), change),
            Body::FileShown { location } => {
                json!({ "type": "file_shown", "path": location.path.to_string_lossy(), "line": location.line })
            }
            Body::CancelRequested { .. } => json!({ "type": "cancel_requested" }),
            Body::PolicyBlocked { call, tool, path, mode, reason } => json!({
                "type": "blocked",
                "callId": call.as_ref().map(|call| &*call.0),
                "tool": &**tool,
                "path": path.as_ref().map(|path| path.to_string_lossy()),
                "sandbox": &**mode,
                "reason": &**reason,
            }),
            Body::SettingChanged { id, value } if **id == *APPROVAL => {
                json!({ "type": "mode", "mode": mode(value) })
            }
            Body::SettingChanged { id, value } => {
                json!({ "type": "setting", "id": &**id, "value": &**value })
            }
            Body::Usage(usage) => self.usage(usage),
            Body::Title { title } => json!({ "type": "title", "title": &**title }),
            Body::Notice { level, text } => {
                json!({ "type": "notice", "level": common::level(*level), "text": &**text })
            }
            Body::Cleared => json!({ "type": "cleared" }),
            Body::Compacting { given_up } => json!({ "type": "compacting", "givenUp": given_up }),
            Body::Compacted { summary } => json!({ "type": "compacted", "summary": &**summary }),
            Body::Moved { cwd, .. } => json!({ "type": "moved", "cwd": cwd.to_string_lossy() }),
            // Streams are merged by the caller; the rest has no representation in this dialect: a queued
            // prompt is sent when its turn starts, and commands and verbatim updates of another agent are
            // for editors.
            Body::Text { .. }
            | Body::Thought { .. }
            | Body::ToolOutput { .. }
            | Body::ToolTerminal { .. }
            | Body::TurnQueued { .. }
            | Body::Commands { .. }
            | Body::ToolChanged(_)
            | Body::Offered { .. }
            | Body::Joined { .. }
            | Body::Foreign { .. } => return None,
        };
        self.delta(delta, out);
        None
    }

    fn turn_ended(
        &mut self,
        event: &Event,
        stop: Stop,
        error: Option<&Arc<str>>,
        out: &mut Vec<u8>,
    ) -> Option<ConnectionEvent<'static>> {
        let usage = std::mem::take(&mut self.turn_usage);
        let mut delta = json!({
            "type": "turn_ended",
            "stopReason": stop.as_str(),
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "costUsd": usage.known_usd(),
        });
        delta = money::mark(delta, "costUnknown", usage.unpriced);
        if let (Some(error), Some(delta)) = (error, delta.as_object_mut()) {
            delta.insert("error".into(), (&**error).into());
        }
        self.delta(delta, out);
        event.turn.map(|turn| ConnectionEvent::TurnEnded {
            turn,
            stop,
            error: error.cloned(),
            usage,
            words: None,
        })
    }

    fn usage(&mut self, usage: &Usage) -> Value {
        self.turn_usage.add(usage);
        let told = json!({
            "type": "usage",
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "contextUsed": usage.context_used,
            "contextSize": usage.context_size,
            "costUsd": usage.known_usd(),
        });
        money::mark(told, "costUnknown", usage.unpriced)
    }

    fn delta(&self, delta: impl Serialize, out: &mut Vec<u8>) {
        let parent = self.parent.as_ref().map(|call| &*call.0);
        write_notification(out, "streamUpdate", Params { session_id: self.session.as_str(), delta, parent });
    }
}

fn strand(body: &Body) -> Option<(TextStream<'_>, &str)> {
    if let Body::Text { message, text } = body {
        return Some((TextStream::Text(*message), text));
    }
    if let Body::Thought { message, text } = body {
        return Some((TextStream::Thought(*message), text));
    }
    if let Body::ToolOutput { call, stream, text } = body {
        return Some((TextStream::Output(call, *stream), text));
    }
    None
}

/// What a person must know to decide: the action, its exact subject, and why it is asked.
fn detail(request: &AskRequest) -> String {
    if let Some(question) = &request.question {
        let choices = question.choices.join(" / ");
        return if choices.is_empty() {
            question.text.to_string()
        } else {
            format!("{} ({choices})", question.text)
        };
    }
    let mut detail = request.title.to_string();
    if !detail.contains(&*request.subject) {
        detail.push_str(": ");
        detail.push_str(&request.subject);
    }
    if !request.reason.is_empty() {
        detail.push_str(&format!(" ({})", request.reason));
    }
    detail
}

fn step(entry: &PlanEntry) -> Value {
    let status = match entry.status {
        StepStatus::Pending => "pending",
        StepStatus::InProgress => "in_progress",
        StepStatus::Completed => "completed",
    };
    json!({ "content": &*entry.content, "status": status })
}

fn started(start: &ToolStart) -> Value {
    // Input that is not JSON is shown as text.
    let input: Value = serde_json::from_str(&start.input.0).unwrap_or_else(|_| Value::from(&*start.input.0));
    json!({
        "type": "tool_call",
        "callId": &*start.call.0,
        "tool": &*start.tool,
        "title": &*start.title,
        "input": input,
    })
}

fn ended(end: &ToolEnd) -> Value {
    let block = |content: &ToolContent| match content {
        ToolContent::Block(block) => Some(block_text(block)),
        // An edit has an update of its own.
        ToolContent::Diff(_) => None,
    };
    let text = match end.content.is_empty() {
        true => common::result_text(end, Path::new("")),
        false => end.content.iter().filter_map(block).collect::<Vec<_>>().join("\n"),
    };
    let mut delta = json!({
        "type": "tool_result",
        "callId": &*end.call.0,
        "status": if end.failed { "failed" } else { "completed" },
        "text": text,
        "elapsedMs": end.elapsed_ms,
    });
    if let (Some(exit), Some(delta)) = (&end.exit, delta.as_object_mut()) {
        delta.insert("exitCode".into(), exit.code.into());
        delta.insert("signal".into(), exit.signal.as_deref().into());
    }
    delta
}

/// Both texts, so that the client can show the difference as it likes. No `before` means a new file.
fn edited(call: Option<&CallId>, change: &FileChange) -> Value {
    json!({
        "type": "file_edit",
        "callId": call.map(|call| &*call.0),
        "path": change.path.to_string_lossy(),
        "before": change.before.as_deref(),
        "after": change.after.as_deref(),
    })
}
