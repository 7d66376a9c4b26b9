//! The log's events as ferret's flat `session/update` notifications.
//!
//! What changed (a preset, what was used so far) is told with what was before it, so the encoder follows
//! the settings and the sums through everything it is shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    APPROVAL, AskId, AskRequest, Body, CallId, Content, Event, MODE, MODEL, Origin, OutputStream, Resolution,
    Seq, SessionHandle, SessionId, SettingSpec, Settings, Snapshot, ToolEnd, ToolStart, Totals, Usage,
};
use serde_json::{Value, json};

use super::decode::ask_name;
use super::tools::TOOLS;
use crate::acp::write_notification;
use crate::dialect::{Counted, Piece, View};
use crate::encoder::{Encoder, Step};
use crate::merge::merged;
use crate::money;
use crate::otter::updates_of;
use crate::siblings;

pub struct Updates {
    session: SessionId,
    /// Where the session works.
    folder: Arc<PathBuf>,
    settings: Settings,
    totals: Totals,
    turn_usage: Totals,
    /// The call whose sub-agent caused the event that is told.
    parent: Option<CallId>,
    /// Everything that counts is seen here. Otherwise the sums begin with what the session says.
    from_start: bool,
    /// The place that it is at, and what otter counts up to there: a resume is answered in those numbers.
    counted: Counted,
}

impl Encoder for Updates {
    fn step<'a>(&mut self, rest: &'a [Arc<Event>], view: View, out: &mut Vec<u8>) -> Step<'a> {
        let [event, ..] = rest else { return (0, None) };
        let (mut taken, mut piece) = (1, None);
        if let Some(merged) = merged(rest) {
            taken = merged.taken;
            self.parent = merged.parent.cloned();
            self.update(merged.voice.chunk(), json!({ "text": merged.text }), out);
        } else {
            self.parent = event.origin.task().cloned();
            piece = self.event(event, view, out);
        }
        self.parent = None;
        // What was on its way to the client comes before the place that it goes on after.
        for event in rest.iter().take(taken) {
            if event.seq > self.counted.seq {
                self.counted.add(event, updates_of(event));
            }
        }
        (taken, piece)
    }
}

impl Updates {
    /// For a client that begins at a place in the log.
    pub(crate) fn new(session: &SessionHandle, counted: Counted) -> Self {
        let mut updates = Self::of(session.id(), &session.specs(), &session.snapshot());
        if counted.seq > Seq::START && updates.from_start {
            let snapshot = session.snapshot();
            updates.begin_with((*snapshot.settings).clone(), snapshot.totals);
        }
        updates.counted = counted;
        updates
    }

    /// The number of the last update, as otter counts: right for a client that began at a number.
    pub(crate) fn resumed_up_to(&self) -> u64 {
        self.counted.updates
    }

    /// For a session that is known by its parts alone. Its history is shown from where it was last
    /// cleared, so only one that never was is shown from the start.
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
            counted: Counted::default(),
        }
    }

    /// The session was like this before what is shown first.
    pub(crate) fn begin_with(&mut self, settings: Settings, totals: Totals) {
        (self.settings, self.totals) = (settings, totals);
        self.from_start = false;
    }

    /// What the session has used in all.
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
        siblings::ask_question(request.question.as_ref(), &mut payload);
        let mut out = Vec::new();
        self.update("permission_request", payload, &mut out);
        out
    }

    pub(crate) fn withdraw(&self, ask: AskId, resolution: Resolution, out: &mut Vec<u8>) {
        let payload = json!({ "id": ask_name(ask), "decision": siblings::decision(resolution) });
        self.update("permission_resolved", payload, out);
    }

    fn event<'a>(&mut self, event: &'a Event, view: View, out: &mut Vec<u8>) -> Option<Piece<'a>> {
        match &event.body {
            Body::UserMessage { content } => self.user_message(event, content, view, out),
            Body::Plan { entries } => {
                self.update("plan", json!({ "entries": siblings::plan(entries) }), out);
            }
            Body::ToolStarted(start) => self.update("tool_call_start", started(start), out),
            Body::ToolOutput { call, stream, text } => {
                self.update("tool_call_progress", output(call, *stream, text), out);
            }
            Body::ToolEnded(end) => self.update("tool_call_end", ended(end, &self.folder), out),
            Body::FileEdited { change, .. } => {
                let (path, diff) = siblings::change(change, &self.folder);
                self.update("file_edit", json!({ "path": path, "diff": diff }), out);
            }
            // A place that the agent pointed at then: nobody wants their editor to jump there when they load it.
            Body::FileShown { .. } if view.replay => {}
            Body::FileShown { location } => {
                let path = siblings::path_text(&location.path);
                self.update("file_open", json!({ "path": path, "line": location.line }), out);
            }
            Body::Asked { ask, request } => return Some(Piece::Asked { ask: *ask, request }),
            Body::Resolved { ask, call, resolution, by, .. } => {
                return Some(Piece::resolved(*ask, call.as_ref(), *resolution, by));
            }
            Body::PolicyBlocked { tool, path, mode, reason, .. } => {
                let path = path.as_deref().map(siblings::path_text);
                let (tool, mode, reason) = (TOOLS.name(tool), siblings::agent_name(mode), reason.as_ref());
                self.update(
                    "sandbox_violation",
                    json!({ "tool": tool, "path": path, "mode": mode, "reason": reason }),
                    out,
                );
            }
            Body::SettingChanged { id, value } => self.setting(id, value, view, out),
            Body::Usage(usage) => self.usage(usage, view, out),
            Body::Title { title } => self.update("title", json!({ "title": title.as_ref() }), out),
            Body::Notice { level, text } => self.notice(siblings::level(*level), text, out),
            Body::Compacting { given_up } => self.notice("info", siblings::summing_up(*given_up), out),
            Body::Compacted { summary } => self.notice("info", &siblings::summed_up(summary), out),
            Body::TurnStarted => self.turn_usage = Totals::default(),
            Body::TurnEnded { stop, error } => {
                let payload = json!({
                    "id": siblings::turn(event.turn),
                    "stop_reason": siblings::stop_reason(*stop),
                    "error": error.as_deref(),
                });
                self.update("turn_end", payload, out);
                let usage = std::mem::take(&mut self.turn_usage);
                return Some(Piece::TurnEnded {
                    turn: event.turn?,
                    stop: *stop,
                    error: error.clone(),
                    usage,
                    words: None,
                });
            }
            // Text and thoughts are merged by the caller; the rest has no shape in this dialect.
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

    fn user_message(&self, event: &Event, content: &[Content], view: View, out: &mut Vec<u8>) {
        let (own, from) = match &event.origin {
            Origin::Surface { id, name, .. } => (*id == view.own, name.as_ref()),
            Origin::Engine | Origin::Agent | Origin::Task { .. } => (false, ""),
        };
        if own && !view.replay {
            return;
        }
        self.update("user_message", json!({ "text": siblings::prompt_text(content), "from": from }), out);
    }

    /// The answer to a load has the settings as they are, so history does not repeat how they came.
    fn setting(&mut self, id: &Arc<str>, value: &Arc<str>, view: View, out: &mut Vec<u8>) {
        let old = self.settings.get(id).to_owned();
        self.settings.set(Arc::clone(id), Arc::clone(value));
        if view.replay {
            return;
        }
        let new = value.as_ref();
        match id.as_ref() {
            APPROVAL => self.update("approval_changed", json!({ "old": old, "new": new }), out),
            MODE => {
                let (old, new) = (siblings::agent_name(&old), siblings::agent_name(new));
                self.update("mode_changed", json!({ "old": old, "new": new }), out);
            }
            MODEL => self.update("model_changed", json!({ "old": old, "new": new }), out),
            other => {
                self.update("setting_changed", json!({ "setting": other, "old": old, "new": new }), out);
            }
        }
    }

    fn usage(&mut self, usage: &Usage, view: View, out: &mut Vec<u8>) {
        self.turn_usage.add(usage);
        if self.from_start || !view.replay {
            self.totals.add(usage);
        }
        if !view.replay {
            self.totals(&self.totals, out);
        }
    }

    fn notice(&self, level: &str, text: &str, out: &mut Vec<u8>) {
        self.update("notice", json!({ "level": level, "text": text }), out);
    }

    /// What there is nothing to say about is left out.
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
