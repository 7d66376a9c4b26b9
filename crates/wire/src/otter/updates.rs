//! Encodes the log's events as otter's numbered `session/update` notifications.
//!
//! Nothing is merged and nothing is left out for any client, not even a client's own input: otherwise a
//! number would depend on the client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Body, Event, MODE, Resolution, Resolver, SessionId, Stop, ToolEnd, ToolStart, Totals,
    TurnId,
};
use serde_json::{Map, Value, json};

use super::decode::ask_name;
use super::tool_names::TOOLS;
use crate::acp::write_notification;
use crate::dialect::{ConnectionEvent, FrameOffset, UpdateCount, UpdateStart};
use crate::ferret_otter_common as common;
use crate::money;
use crate::turn_text::{TOLD_AGAIN_BYTES_MAX, TurnText};

/// How many updates the dialect sends for an event.
pub fn updates_of(event: &Event) -> u64 {
    match &event.body {
        Body::TurnStarted
        | Body::UserMessage { .. }
        | Body::Text { .. }
        | Body::Thought { .. }
        | Body::Plan { .. }
        | Body::ToolStarted(_)
        | Body::ToolOutput { .. }
        | Body::ToolEnded(_)
        | Body::FileEdited { .. }
        | Body::FileShown { .. }
        | Body::Asked { .. }
        | Body::PolicyBlocked { .. }
        | Body::SettingChanged { .. }
        | Body::Usage(_)
        | Body::Title { .. }
        | Body::Notice { .. }
        | Body::Compacting { .. }
        | Body::Compacted { .. } => 1,
        // The text before a cancel is sent once more.
        Body::TurnEnded { stop, .. } => 1 + u64::from(*stop == Stop::Cancelled),
        Body::Resolved { by, .. } => match by {
            Resolver::Surface { .. } | Resolver::Engine => 1,
            // Nobody was asked, so nobody needs to be told.
            Resolver::Policy { .. } | Resolver::Rule { .. } => 0,
        },
        Body::TurnQueued { .. }
        | Body::ToolTerminal { .. }
        | Body::CancelRequested { .. }
        | Body::Commands { .. }
        | Body::Cleared
        | Body::Moved { .. }
        | Body::ToolChanged(_)
        | Body::Offered { .. }
        | Body::Joined { .. }
        | Body::Foreign { .. } => 0,
    }
}

pub struct Updates {
    session: SessionId,
    /// The session's working directory.
    folder: Arc<PathBuf>,
    counted: UpdateCount,
    since: u64,
    /// The agent's text in the running turn.
    said: TurnText,
}

impl Updates {
    pub fn new(session: &SessionId, start: UpdateStart) -> Self {
        let UpdateStart { counted, since, said } = start;
        Self { session: session.clone(), folder: Arc::default(), counted, since, said }
    }

    /// The same for a session that works in this folder.
    pub fn in_folder(self, folder: Arc<PathBuf>) -> Self {
        Self { folder, ..self }
    }

    /// The number of the last update.
    pub(crate) fn last(&self) -> u64 {
        self.counted.updates
    }

    /// Encodes events up to and including the first that needs the connection: the end of a turn.
    pub fn encode<'a>(
        &mut self,
        events: &'a [Arc<Event>],
        positions: &mut Vec<FrameOffset>,
        out: &mut Vec<u8>,
    ) -> (usize, Option<ConnectionEvent<'a>>) {
        for (event, taken) in events.iter().zip(1..) {
            positions.push(FrameOffset { offset: out.len(), seq: event.seq });
            let count = updates_of(event);
            let running = self.counted.turn.map(|(turn, _)| turn);
            self.counted.add(event, count);
            let cancelled = self.follow(event, running);
            let first = self.counted.updates.saturating_sub(count) + 1;
            let updates = cancelled.into_iter().chain(self.update(event));
            for (update, number) in updates.zip(first..).filter(|(_, number)| *number > self.since) {
                self.write(update, number, event, out);
            }
            if let Body::TurnEnded { stop, error } = &event.body
                && let Some(turn) = event.turn
            {
                // Its response has no token counts: the updates before it have them.
                let usage = Totals::default();
                return (
                    taken,
                    Some(ConnectionEvent::TurnEnded {
                        turn,
                        stop: *stop,
                        error: error.clone(),
                        usage,
                        words: None,
                    }),
                );
            }
        }
        (events.len(), None)
    }

    fn write(&self, mut update: Value, number: u64, event: &Event, out: &mut Vec<u8>) {
        if let Some(call) = event.origin.task() {
            update["parent"] = json!(call.0.as_ref());
        }
        // Null members are left out.
        update.as_object_mut().unwrap_or(&mut Map::new()).retain(|_, value| !value.is_null());
        let params = json!({ "sessionId": self.session.as_str(), "eventId": number, "update": update });
        write_notification(out, "session/update", params);
    }

    /// Collects the text of the running turn for the last chunk of a cancelled turn: all of it once more,
    /// marked, so that the client replaces the text it has.
    fn follow(&mut self, event: &Event, running: Option<TurnId>) -> Option<Value> {
        let of_running = running.is_some() && event.turn == running;
        if let Body::Moved { cwd, .. } = &event.body {
            self.folder = Arc::new(cwd.clone());
        } else if let Body::TurnStarted = &event.body {
            self.said = TurnText::default();
        } else if of_running && let Body::Text { .. } = &event.body {
            self.said.observe(event, TOLD_AGAIN_BYTES_MAX);
        } else if let Body::TurnEnded { stop, .. } = &event.body {
            let said = if of_running { std::mem::take(&mut self.said) } else { TurnText::default() };
            return (*stop == Stop::Cancelled).then(|| {
                let mut chunk = self::text_update("agent_message_chunk", &said.text);
                chunk["final"] = json!(true);
                chunk["cancelled"] = json!(true);
                chunk["turnId"] = json!(common::turn(event.turn));
                chunk["truncated"] = if said.cut { json!(true) } else { Value::Null };
                chunk
            });
        }
        None
    }

    fn update(&self, event: &Event) -> Option<Value> {
        let update = match &event.body {
            Body::TurnStarted => {
                json!({ "sessionUpdate": "turn_start", "turnId": common::turn(event.turn) })
            }
            Body::UserMessage { content } => text_update("user_message_chunk", &common::prompt_text(content)),
            Body::Text { text, .. } => text_update("agent_message_chunk", text),
            Body::Thought { text, .. } => text_update("agent_thought_chunk", text),
            Body::Plan { entries } => {
                json!({ "sessionUpdate": "plan", "entries": common::plan(entries) })
            }
            Body::ToolStarted(start) => started(start),
            Body::ToolOutput { call, stream, text } => json!({
                "sessionUpdate": "tool_progress",
                "callId": call.0.as_ref(),
                "stream": stream.as_str(),
                "text": text.as_ref(),
            }),
            Body::ToolEnded(end) => ended(end, &self.folder),
            Body::FileEdited { call, change } => {
                let (path, diff) = common::change(change, &self.folder);
                let call = call.as_ref().map(|call| call.0.as_ref());
                json!({ "sessionUpdate": "file_edit", "callId": call, "path": path, "diff": diff })
            }
            Body::FileShown { location } => json!({
                "sessionUpdate": "file_open",
                "path": common::path_text(&location.path),
                "line": location.line,
            }),
            Body::Asked { ask, request } => self.ask_update(*ask, request),
            Body::Resolved { ask, resolution, by, reply, .. } => match by {
                Resolver::Surface { .. } | Resolver::Engine => {
                    self.resolved(*ask, *resolution, reply.as_deref())
                }
                Resolver::Policy { .. } | Resolver::Rule { .. } => return None,
            },
            Body::PolicyBlocked { call, tool, path, mode, reason } => json!({
                "sessionUpdate": "sandbox_violation",
                "callId": call.as_ref().map(|call| call.0.as_ref()),
                "tool": TOOLS.name(tool),
                "path": path.as_deref().map(common::path_text),
                "mode": common::agent_name(mode),
                "reason": reason.as_ref(),
            }),
            Body::SettingChanged { id, value } => setting(id, value),
            Body::Usage(_) => usage(&self.counted.totals),
            Body::Title { title } => {
                json!({ "sessionUpdate": "session_info_update", "title": title.as_ref() })
            }
            Body::Notice { level, text } => notice(common::level(*level), text),
            Body::Compacting { given_up } => notice("info", common::summing_up(*given_up)),
            Body::Compacted { summary } => notice("info", &common::summed_up(summary)),
            Body::TurnEnded { stop, error } => json!({
                "sessionUpdate": "turn_end",
                "turnId": common::turn(event.turn),
                "stopReason": common::stop_reason(*stop),
                "error": error.as_deref(),
            }),
            Body::TurnQueued { .. }
            | Body::ToolTerminal { .. }
            | Body::CancelRequested { .. }
            | Body::Commands { .. }
            | Body::Cleared
            | Body::Moved { .. }
            | Body::ToolChanged(_)
            | Body::Offered { .. }
            | Body::Joined { .. }
            | Body::Foreign { .. } => return None,
        };
        Some(update)
    }

    fn resolved(&self, ask: AskId, resolution: Resolution, answer: Option<&str>) -> Value {
        let mut resolved = json!({
            "sessionUpdate": "permission_resolved",
            "requestId": ask_name(&self.session, ask),
            "reply": common::decision(resolution),
        });
        if let Some(answer) = answer {
            resolved["answer"] = answer.into();
        }
        resolved
    }

    fn ask_update(&self, ask: AskId, request: &AskRequest) -> Value {
        let name = ask_name(&self.session, ask);
        let mut asked = json!({
            "sessionUpdate": "permission_request",
            "requestId": name,
            // The name in otter's own sources.
            "permissionId": name,
            "callId": request.call.as_ref().map(|call| call.0.as_ref()),
            "tool": TOOLS.name(&request.tool),
            "input": TOOLS.input(&request.tool, &request.input),
            "options": ["allow", "always", "deny"],
            "title": request.title.as_ref(),
            "risk": request.risk.as_str(),
            "reason": request.reason.as_ref(),
        });
        common::ask_question(request.question.as_ref(), &mut asked);
        asked
    }
}

fn text_update(kind: &str, text: &str) -> Value {
    json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } })
}

fn started(start: &ToolStart) -> Value {
    json!({
        "sessionUpdate": "tool_call",
        "callId": start.call.0.as_ref(),
        "tool": TOOLS.name(&start.tool),
        "input": TOOLS.input(&start.tool, &start.input),
        "title": start.title.as_ref(),
    })
}

fn ended(end: &ToolEnd, folder: &Path) -> Value {
    let text = TOOLS.result(end, folder);
    let (output, error) = if end.failed { (None, Some(text)) } else { (Some(text), None) };
    json!({
        "sessionUpdate": "tool_result",
        "callId": end.call.0.as_ref(),
        "success": !end.failed,
        "output": output,
        "error": error,
        "exitCode": end.exit.as_ref().and_then(|exit| exit.code),
        "durationMs": end.elapsed_ms,
    })
}

fn setting(id: &str, value: &str) -> Value {
    if id == MODE {
        return json!({ "sessionUpdate": "current_mode_update", "currentModeId": common::agent_name(value) });
    }
    json!({ "sessionUpdate": "config_option_update", "configId": id, "value": value })
}

fn usage(totals: &Totals) -> Value {
    let usage = json!({
        "sessionUpdate": "usage_update",
        "input": totals.input,
        "output": totals.output,
        "cacheRead": totals.cache_read,
        "cacheWrite": totals.cache_write,
        "reasoning": totals.reasoning,
        "contextUsed": totals.context_used,
        "contextSize": totals.context_size,
        "costUsd": totals.known_usd(),
    });
    money::mark(usage, "costUnknown", totals.unpriced)
}

fn notice(level: &str, text: &str) -> Value {
    json!({ "sessionUpdate": "notice", "level": level, "text": text })
}
