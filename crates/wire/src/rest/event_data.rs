//! Event data that both stream formats share.

use std::path::Path;

use engine::{
    AskRequest, Body, Family, PermissionEvent, Resolution, Resolver, SetupEvent, ToolContent, ToolEnd,
    ToolStart, Totals, TurnEvent, Usage,
};
use serde_json::{Value, json};

use super::event_stream::RestStream;
use super::permission_id;
use crate::ferret_otter_common::{CHIMERA, change, choices, plan, prompt_text};
use crate::money;
use crate::transcript::block_text;

/// The name of an event for which neither format has a kind of its own; `None` for all others.
pub(super) fn remark(body: &Body) -> Option<&'static str> {
    match body {
        Body::TurnQueued { .. } => Some("queued"),
        Body::Plan { .. } => Some("plan"),
        Body::FileEdited { .. } => Some("file_edit"),
        Body::FileShown { .. } => Some("file_open"),
        // Permission requests that a rule or the policy settled were never shown here.
        Body::Resolved { by: Resolver::Surface { .. } | Resolver::Engine, .. } => Some("permission_resolved"),
        Body::CancelRequested { .. } => Some("cancel_requested"),
        Body::PolicyBlocked { .. } => Some("sandbox_violation"),
        Body::SettingChanged { .. } => Some("setting_changed"),
        Body::Title { .. } => Some("title"),
        Body::Notice { .. } => Some("notice"),
        Body::Cleared => Some("cleared"),
        Body::Moved { .. } => Some("moved"),
        Body::Resolved { by: Resolver::Policy { .. } | Resolver::Rule { .. }, .. }
        | Body::TurnStarted
        | Body::UserMessage { .. }
        | Body::Text { .. }
        | Body::Thought { .. }
        | Body::ToolStarted(_)
        | Body::ToolOutput { .. }
        | Body::ToolTerminal { .. }
        | Body::ToolEnded(_)
        | Body::Asked { .. }
        | Body::Usage(_)
        | Body::Commands { .. }
        | Body::Compacting { .. }
        | Body::Compacted { .. }
        | Body::ToolChanged(_)
        | Body::Offered { .. }
        | Body::Joined { .. }
        | Body::Foreign { .. }
        | Body::TurnEnded { .. } => None,
    }
}

/// The data of such an event, beside its name.
pub(super) fn remark_data(stream: &RestStream, body: &Body) -> Value {
    match body.family() {
        Family::Turn(TurnEvent::Queued { content }) => json!({ "text": prompt_text(content) }),
        Family::Permission(PermissionEvent::Resolved { ask, resolution, by, reply, .. }) => {
            let mut data = resolved(resolution, by);
            if let Some(reply) = reply {
                data["answer"] = json!(&**reply);
            }
            data["permission_id"] = json!(permission_id(&stream.session, ask));
            data
        }
        Family::Setup(SetupEvent::Setting { id, value }) => json!({ "id": &**id, "value": &**value }),
        Family::Setup(SetupEvent::Title { title }) => json!({ "title": &**title }),
        Family::Setup(SetupEvent::Moved { cwd, .. }) => json!({ "working_dir": cwd.to_string_lossy() }),
        Family::Turn(_)
        | Family::Speech(_)
        | Family::Tool(_)
        | Family::Permission(PermissionEvent::Asked { .. })
        | Family::Usage(_)
        | Family::Setup(_)
        | Family::Context(_) => json!({}),
        Family::Other => other_data(stream, body),
    }
}

fn other_data(stream: &RestStream, body: &Body) -> Value {
    if let Body::Plan { entries } = body {
        json!({ "entries": plan(entries) })
    } else if let Body::FileEdited { call, change: edited } = body {
        let (path, diff) = change(edited, &stream.folder);
        json!({ "id": call.as_ref().map(|call| &*call.0), "path": path, "diff": diff })
    } else if let Body::FileShown { location } = body {
        json!({ "path": location.path.to_string_lossy(), "line": location.line })
    } else if let Body::PolicyBlocked { call, tool, path, mode, reason } = body {
        json!({
            "id": call.as_ref().map(|call| &*call.0),
            "tool": CHIMERA.name(tool),
            "path": path.as_ref().map(|path| path.to_string_lossy()),
            "mode": mode.as_ref(),
            "reason": reason.as_ref(),
        })
    } else if let Body::Notice { level, text } = body {
        json!({ "level": level.as_str(), "text": text.as_ref() })
    } else {
        json!({})
    }
}

pub(super) fn tool_use(start: &ToolStart) -> Value {
    json!({
        "id": start.call.0.as_ref(),
        "name": CHIMERA.name(&start.tool),
        "title": start.title.as_ref(),
        "kind": start.kind.as_str(),
        "input": CHIMERA.input(&start.tool, &start.input),
    })
}

/// Its diffs apply in `folder`.
pub(super) fn tool_result(end: &ToolEnd, folder: &Path) -> Value {
    let mut result = json!({
        "id": end.call.0.as_ref(),
        "is_error": end.failed,
        "content": CHIMERA.result(end, folder),
        "duration_ms": end.elapsed_ms,
    });
    if let Some(exit) = &end.exit {
        result["exit_code"] = json!(exit.code);
        result["signal"] = json!(exit.signal.as_deref());
    }
    result
}

pub(super) fn question(stream: &RestStream, ask: engine::AskId, request: &AskRequest) -> Value {
    let session = &stream.session;
    let mut asked = json!({
        "permission_id": permission_id(session, ask),
        "session_id": session.as_str(),
        "call_id": request.call.as_ref().map(|call| &*call.0),
        "tool": CHIMERA.name(&request.tool),
        "title": request.title.as_ref(),
        "input": CHIMERA.input(&request.tool, &request.input),
        "path": request.path.as_ref().map(|path| path.to_string_lossy()),
        "risk": request.risk.as_str(),
        "reason": request.reason.as_ref(),
        "preview": content_text(&request.preview, &stream.folder),
        "options": ["allow", "always", "deny", "never"],
    });
    if let Some(question) = &request.question {
        asked["question"] = json!(&*question.text);
        asked["choices"] = choices(question);
        asked["free_text"] = json!(question.free_text || question.choices.is_empty());
        asked["options"] = json!(["answer", "deny"]);
    }
    asked
}

pub(super) fn usage(usage: &Usage) -> Value {
    let told = json!({
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
        "context_used": usage.context_used,
        "context_size": usage.context_size,
        "cost_usd": usage.known_usd(),
    });
    money::mark(told, "cost_unknown", usage.unpriced)
}

pub(super) fn tokens(totals: &Totals) -> u64 {
    totals.input.saturating_add(totals.output)
}

fn resolved(resolution: Resolution, by: &Resolver) -> Value {
    let by = match by {
        Resolver::Surface { name, .. } => name.as_ref(),
        Resolver::Engine => "engine",
        Resolver::Policy { .. } => "policy",
        Resolver::Rule { .. } => "rule",
    };
    json!({ "approved": resolution.allows(), "decision": resolution.as_str(), "by": by })
}

/// The content of a permission request, as one text. Its diffs apply in `folder`.
fn content_text(content: &[ToolContent], folder: &Path) -> String {
    let part = |content: &ToolContent| match content {
        ToolContent::Block(block) => block_text(block),
        ToolContent::Diff(edited) => change(edited, folder).1,
    };
    content.iter().map(part).collect::<Vec<_>>().join("\n")
}
