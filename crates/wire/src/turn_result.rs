//! The result of one turn as one JSON object, for scripts that want the answer.

use engine::{Event, SessionId, Stop, Totals};
use serde_json::{Value, json};

use crate::event_json;
use crate::money;
use crate::transcript::{ToolRow, ToolState, Transcript};

/// The turn whose events `transcript` was made from.
pub fn encode(session: &SessionId, transcript: &Transcript, stop: Stop, error: Option<&str>) -> Value {
    let mut result = json!({
        "type": "result",
        "session_id": session.as_str(),
        "stop_reason": stop.as_str(),
        "text": transcript.said_text(),
        "usage": usage(&transcript.totals),
        "tools": transcript.tools().map(tool).collect::<Vec<_>>(),
    });
    if let Some(error) = error {
        result["error"] = json!(error);
    }
    result
}

/// An event on a line of its own, with its session.
pub fn event_line(session: &SessionId, event: &Event) -> Value {
    let mut line = event_json::encode(event);
    line["type"] = json!("event");
    line["session_id"] = json!(session.as_str());
    line
}

fn usage(totals: &Totals) -> Value {
    let usage = json!({
        "input_tokens": totals.input,
        "output_tokens": totals.output,
        "cache_read_tokens": totals.cache_read,
        "cache_write_tokens": totals.cache_write,
        "reasoning_tokens": totals.reasoning,
        "context_used": totals.context_used,
        "context_size": totals.context_size,
        "cost_usd": totals.known_usd(),
    });
    money::mark(usage, "cost_unknown", totals.unpriced)
}

fn tool(row: &ToolRow) -> Value {
    let (status, reason) = match &row.state {
        ToolState::Running => ("running", None),
        ToolState::Done => ("completed", None),
        ToolState::Failed => ("failed", None),
        ToolState::Refused { reason } => ("refused", Some(reason.as_ref())),
    };
    let mut value = json!({
        "id": row.call.0.as_ref(),
        "tool": row.tool.as_ref(),
        "title": row.title.as_ref(),
        "status": status,
        "elapsed_ms": row.elapsed_ms,
    });
    if let Some(code) = row.exit.as_ref().and_then(|exit| exit.code) {
        value["exit_code"] = json!(code);
    }
    if let Some(parent) = &row.parent {
        value["parent"] = json!(parent.0.as_ref());
    }
    if let Some(reason) = reason {
        value["reason"] = json!(reason);
    }
    value
}
