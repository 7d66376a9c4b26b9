//! Encodes the log's events as ferret's flat `session/update` notifications.
//!
//! A change (of a preset, of the usage) is sent together with the previous value, so the encoder tracks
//! settings and totals through all events that it sees.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    APPROVAL, AskId, AskRequest, Body, CallId, Content, Event, MODE, MODEL, Origin, OutputStream, Resolution,
    Seq, SessionHandle, SessionId, SettingSpec, Settings, Snapshot, ToolEnd, ToolStart, Totals, Usage,
};
use serde_json::{Value, json};

use super::decode::ask_name;
use super::tool_names::TOOLS;
use crate::acp::write_notification;
use crate::dialect::{ConnectionEvent, EncodeContext, UpdateCount};
use crate::event_encoder::{EncodeStep, Encoder};
use crate::ferret_otter_common as common;
use crate::merged_chunk::merge_chunks;
use crate::money;
use crate::otter::updates_of;

pub struct Updates {
    session: SessionId,
    /// The session's working directory.
    folder: Arc<PathBuf>,
    settings: Settings,
    totals: Totals,
    turn_usage: Totals,
    /// The parent call of the event that is being encoded, if a sub-agent caused it.
    parent: Option<CallId>,
    /// The encoder sees all usage from the start. Otherwise the totals begin with the session's own.
    from_start: bool,
    /// The current position, with otter's count of updates up to it: responses to a resume use those
    /// numbers.
    counted: UpdateCount,
}

impl Encoder for Updates {
    fn step<'a>(
        &mut self,
        rest: &'a [Arc<Event>],
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> EncodeStep<'a> {
        let [event, ..] = rest else { return (0, None) };
        let (mut taken, mut piece) = (1, None);
        if let Some(merged) = merge_chunks(rest) {
            taken = merged.taken;
            self.parent = merged.parent.cloned();
            self.update(merged.voice.chunk(), json!({ "text": merged.text }), out);
        } else {
            self.parent = event.origin.task().cloned();
            piece = self.event(event, context, out);
        }
        self.parent = None;
        // Frames on their way to the client come before the position that it resumes from.
        for event in rest.iter().take(taken) {
            if event.seq > self.counted.seq {
                self.counted.add(event, updates_of(event));
            }
        }
        (taken, piece)
    }
}

impl Updates {
    /// For a client that starts at a position in the log.
    pub(crate) fn new(session: &SessionHandle, counted: UpdateCount) -> Self {
        let mut updates = Self::of(session.id(), &session.specs(), &session.snapshot());
        if counted.seq > Seq::START && updates.from_start {
            let snapshot = session.snapshot();
            updates.begin_with((*snapshot.settings).clone(), snapshot.totals);
        }
        updates.counted = counted;
        updates
    }

    /// The number of the last update as otter counts: valid for a client that started at a number.
    pub(crate) fn resumed_up_to(&self) -> u64 {
        self.counted.updates
    }

    /// For tests and tools that have the session's parts without a running session. A history is shown from
    /// where it was last cleared, so only a session that never was is shown from the start.
    pub fn of(session: &SessionId, specs: &[SettingSpec], snapshot: &Snapshot) -> Self {
        let from_start = snapshot.replay_from == Seq::START;
        let (settings, totals) = if from_start {
            (Settings::defaults(specs), Totals::default())
        } else {
            ((*snapshot.settings).clone(), snapshot.totals)
        };
        Self {
            session: session.clone(),
            folder: Arc::clone(&snapshot.cwd),
            settings,
            totals,
            turn_usage: Totals::default(),
            parent: None,
            from_start,
            counted: UpdateCount::default(),
        }
    }

    /// The session's state before the first event shown.
    pub(crate) fn begin_with(&mut self, settings: Settings, totals: Totals) {
        (self.settings, self.totals) = (settings, totals);
        self.from_start = false;
    }

    /// The session's total usage.
    pub(crate) fn totals(&self, totals: &Totals, out: &mut Vec<u8>) {
        let payload = json!({
            "input": totals.input,
            "output": totals.output,
            "cache": totals.cache_read.saturating_add(totals.cache_write),
            "reasoning": totals.reasoning,
            "total_usd": totals.known_usd(),
        });
        let payload = money::mark(payload, "cost_unknown", totals.unpriced);
        self.update("cost_update", payload, out);
    }

    pub fn ask(&self, ask: AskId, request: &AskRequest) -> Vec<u8> {
        let mut payload = json!({
            "id": ask_name(ask),
            "tool": TOOLS.name(&request.tool),
            "args": TOOLS.input(&request.tool, &request.input),
            "risk": request.risk.as_str(),
            "title": request.title.as_ref(),
            "reason": request.reason.as_ref(),
            "call": request.call.as_ref().map(|call| call.0.as_ref()),
        });
        common::ask_question(request.question.as_ref(), &mut payload);
        let mut out = Vec::new();
        self.update("permission_request", payload, &mut out);
        out
    }

    pub(crate) fn withdraw(&self, ask: AskId, resolution: Resolution, out: &mut Vec<u8>) {
        let payload = json!({ "id": ask_name(ask), "decision": common::decision(resolution) });
        self.update("permission_resolved", payload, out);
    }

    fn event<'a>(
        &mut self,
        event: &'a Event,
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> Option<ConnectionEvent<'a>> {
        match &event.body {
            Body::UserMessage { content } => self.user_message(event, content, context, out),
            Body::Plan { entries } => {
                self.update("plan", json!({ "entries": common::plan(entries) }), out);
            }
            Body::ToolStarted(start) => self.update("tool_call_start", started(start), out),
            Body::ToolOutput { call, stream, text } => {
                self.update("tool_call_progress", output(call, *stream, text), out);
            }
            Body::ToolEnded(end) => self.update("tool_call_end", ended(end, &self.folder), out),
            Body::FileEdited { change, .. } => {
                let (path, diff) = common::change(change, &self.folder);
                self.update("file_edit", json!({ "path": path, "diff": diff }), out);
            }
            // A location that the agent pointed at in the past: the editor must not jump there when it loads
            // the session.
            Body::FileShown { .. } if context.replay => {}
            Body::FileShown { location } => {
                let path = common::path_text(&location.path);
                self.update("file_open", json!({ "path": path, "line": location.line }), out);
            }
            Body::Asked { ask, request } => return Some(ConnectionEvent::Asked { ask: *ask, request }),
            Body::Resolved { ask, call, resolution, by, .. } => {
                return Some(ConnectionEvent::resolved(*ask, call.as_ref(), *resolution, by));
            }
            Body::PolicyBlocked { tool, path, mode, reason, .. } => {
                let path = path.as_deref().map(common::path_text);
                let (tool, mode, reason) = (TOOLS.name(tool), common::agent_name(mode), reason.as_ref());
                self.update(
                    "sandbox_violation",
                    json!({ "tool": tool, "path": path, "mode": mode, "reason": reason }),
                    out,
                );
            }
            Body::SettingChanged { id, value } => self.setting(id, value, context, out),
            Body::Usage(usage) => self.usage(usage, context, out),
            Body::Title { title } => self.update("title", json!({ "title": title.as_ref() }), out),
            Body::Notice { level, text } => self.notice(common::level(*level), text, out),
            Body::Compacting { given_up } => self.notice("info", common::summing_up(*given_up), out),
            Body::Compacted { summary } => self.notice("info", &common::summed_up(summary), out),
            Body::TurnStarted => self.turn_usage = Totals::default(),
            Body::TurnEnded { stop, error } => {
                let payload = json!({
                    "id": common::turn(event.turn),
                    "stop_reason": common::stop_reason(*stop),
                    "error": error.as_deref(),
                });
                self.update("turn_end", payload, out);
                let usage = std::mem::take(&mut self.turn_usage);
                return Some(ConnectionEvent::TurnEnded {
                    turn: event.turn?,
                    stop: *stop,
                    error: error.clone(),
                    usage,
                    words: None,
                });
            }
            // Text and thoughts are merged by the caller; the rest has no representation in this dialect.
            Body::Text { .. }
            | Body::Thought { .. }
            | Body::TurnQueued { .. }
            | Body::ToolTerminal { .. }
            | Body::CancelRequested { .. }
            | Body::Commands { .. }
            | Body::Cleared
            | Body::ToolChanged(_)
            | Body::Offered { .. }
            | Body::Joined { .. }
            | Body::Foreign { .. } => {}
            Body::Moved { cwd, .. } => self.folder = Arc::new(cwd.clone()),
        }
        None
    }

    fn user_message(&self, event: &Event, content: &[Content], context: EncodeContext, out: &mut Vec<u8>) {
        let (own, from) = match &event.origin {
            Origin::Surface { id, name, .. } => (*id == context.own, name.as_ref()),
            Origin::Engine | Origin::Agent | Origin::Task { .. } => (false, ""),
        };
        if own && !context.replay {
            return;
        }
        self.update("user_message", json!({ "text": common::prompt_text(content), "from": from }), out);
    }

    /// The response to `session/load` has the current settings, so a replay does not repeat the changes.
    fn setting(&mut self, id: &Arc<str>, value: &Arc<str>, context: EncodeContext, out: &mut Vec<u8>) {
        let old = self.settings.get(id).to_owned();
        self.settings.set(Arc::clone(id), Arc::clone(value));
        if context.replay {
            return;
        }
        let new = value.as_ref();
        match id.as_ref() {
            APPROVAL => self.update("approval_changed", json!({ "old": old, "new": new }), out),
            MODE => {
                let (old, new) = (common::agent_name(&old), common::agent_name(new));
                self.update("mode_changed", json!({ "old": old, "new": new }), out);
            }
            MODEL => self.update("model_changed", json!({ "old": old, "new": new }), out),
            other => {
                self.update("setting_changed", json!({ "setting": other, "old": old, "new": new }), out);
            }
        }
    }

    fn usage(&mut self, usage: &Usage, context: EncodeContext, out: &mut Vec<u8>) {
        self.turn_usage.add(usage);
        if self.from_start || !context.replay {
            self.totals.add(usage);
        }
        if !context.replay {
            self.totals(&self.totals, out);
        }
    }

    fn notice(&self, level: &str, text: &str, out: &mut Vec<u8>) {
        self.update("notice", json!({ "level": level, "text": text }), out);
    }

    /// Null members are left out.
    fn update(&self, kind: &str, payload: Value, out: &mut Vec<u8>) {
        let mut params = json!({ "sessionId": self.session.as_str(), "kind": kind });
        if let (Some(params), Value::Object(payload)) = (params.as_object_mut(), payload) {
            params.extend(payload.into_iter().filter(|(_, value)| !value.is_null()));
            params.extend(self.parent.iter().map(|call| ("parent".to_owned(), json!(call.0.as_ref()))));
        }
        write_notification(out, "session/update", params);
    }
}

fn started(start: &ToolStart) -> Value {
    json!({
        "id": start.call.0.as_ref(),
        "tool": TOOLS.name(&start.tool),
        "args": TOOLS.input(&start.tool, &start.input),
        "title": start.title.as_ref(),
    })
}

fn output(call: &CallId, stream: OutputStream, text: &str) -> Value {
    match stream {
        OutputStream::Stdout => json!({ "id": call.0.as_ref(), "stdout": text }),
        OutputStream::Stderr => json!({ "id": call.0.as_ref(), "stderr": text }),
    }
}

fn ended(end: &ToolEnd, folder: &Path) -> Value {
    json!({
        "id": end.call.0.as_ref(),
        "result": TOOLS.result(end, folder),
        "duration_ms": end.elapsed_ms,
        "failed": end.failed,
        "exit_code": end.exit.as_ref().and_then(|exit| exit.code),
    })
}
