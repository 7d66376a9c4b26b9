//! Parts of events in the form of both dialects.

use std::path::Path;

use engine::{
    Content, FileChange, NoticeLevel, Opaque, PlanEntry, Question, Resolution, ToolContent, ToolEnd, TurnId,
};
use serde_json::{Value, json};

use crate::diff;
use crate::transcript::block_text;

/// The parsed JSON, or the text itself if it is not JSON.
pub(crate) fn opaque(opaque: &Opaque) -> Value {
    serde_json::from_str(&opaque.0).unwrap_or_else(|_| Value::String(opaque.0.to_string()))
}

/// JSON strings must be Unicode.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A prompt as one text; content that is not text is named.
pub(crate) fn prompt_text(content: &[Content]) -> String {
    content.iter().map(block_text).collect::<Vec<_>>().join("\n")
}

/// The result of a tool call as one text. Its diffs apply in `folder`.
pub(crate) fn result_text(end: &ToolEnd, folder: &Path) -> String {
    let piece = |content: &ToolContent| match content {
        ToolContent::Block(content) => block_text(content),
        ToolContent::Diff(change) => diff::unified(change, folder),
    };
    if end.content.is_empty()
        && let Some(raw) = &end.raw
    {
        // A JSON string is shown as its text.
        return serde_json::from_str::<String>(&raw.0).unwrap_or_else(|_| raw.0.to_string());
    }
    end.content.iter().map(piece).collect::<Vec<_>>().join("\n")
}

/// The path of a change, and a diff that applies in `folder` to the file as it was.
pub(crate) fn change(change: &FileChange, folder: &Path) -> (String, String) {
    (path_text(&change.path), diff::unified(change, folder))
}

pub(crate) fn plan(entries: &[PlanEntry]) -> Value {
    let entry = |entry: &PlanEntry| {
        let (priority, status) = (entry.priority.as_str(), entry.status.as_str());
        json!({ "content": entry.content.as_ref(), "priority": priority, "status": status })
    };
    entries.iter().map(entry).collect()
}

pub(crate) fn level(level: NoticeLevel) -> &'static str {
    match level {
        NoticeLevel::Info => "info",
        NoticeLevel::Warning => "warning",
        NoticeLevel::Error | NoticeLevel::Damage => "error",
    }
}

/// How a permission request was settled, in the words that clients answer with.
pub(crate) fn decision(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::AllowedOnce => "allow",
        Resolution::AllowedAlways => "always",
        Resolution::DeniedOnce => "deny",
        Resolution::DeniedAlways => "never",
        Resolution::Cancelled => "cancelled",
        Resolution::TimedOut => "timed_out",
        Resolution::EndedByRestart => "ended_by_restart",
    }
}

/// The older agents' name of a mode of ours; other modes keep their names.
pub(crate) fn agent_name(mode: &str) -> &str {
    match mode {
        "code" => "build",
        "architect" => "plan",
        "ask" => "explore",
        other => other,
    }
}

pub(crate) fn summing_up(given_up: bool) -> &'static str {
    match given_up {
        false => "Summarizing the conversation for the model, to make room.",
        true => "The conversation was not summarized.",
    }
}

/// A question is added to the fields of a permission request, which older clients understand.
pub(crate) fn ask_question(question: Option<&Question>, asked: &mut Value) {
    if let Some(question) = question {
        asked["question"] = json!(&*question.text);
        asked["choices"] = choices(question);
        asked["freeText"] = json!(question.free_text || question.choices.is_empty());
    }
}

pub(crate) fn choices(question: &Question) -> Value {
    question.choices.iter().map(|choice| choice.as_ref()).collect()
}

pub(crate) fn summed_up(summary: &str) -> String {
    format!("The conversation so far was summarized for the model:\n{summary}")
}

pub(crate) fn turn(turn: Option<TurnId>) -> String {
    turn.map_or_else(String::new, |turn| format!("turn-{}", turn.0))
}
