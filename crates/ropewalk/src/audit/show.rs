//! `audit show` and `audit query`: a table, or JSON.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock, Weak};

use agent::ReadAudit;
use engine::{Clock, SessionId, SystemClock};
use serde_json::{Map, Value, json};
use store::audit::{Audit, AuditRow, ChainLine};

use super::unreadable;
use crate::cli::{AuditQueryOptions, AuditShowOptions};
use crate::cli_error::CliError;
use crate::output::{self, cut, one_line};
use crate::paths;

const WHO_CHARS_MAX: usize = 12;
const WHAT_CHARS_MAX: usize = 36;
const SHORT_CHARS_MAX: usize = 120;
const SESSION_CHARS: usize = 8;

pub fn latest(options: &AuditShowOptions) -> Result<ExitCode, CliError> {
    let mut rows = VecDeque::new();
    each(|placed| {
        rows.push_back(placed);
        if rows.len() > options.limit {
            rows.pop_front();
        }
    })?;
    print(&rows.into_iter().collect::<Vec<_>>(), options.json)
}

pub fn query(options: &AuditQueryOptions) -> Result<ExitCode, CliError> {
    let since = options.since.map(|since| since.moment(SystemClock.now()));
    let wanted = |row: &AuditRow| {
        options.session.as_ref().is_none_or(|id| row.resource_id.starts_with(id))
            && options.event_type.as_ref().is_none_or(|wanted| is_type(&row.event_type, wanted))
            && options
                .actor
                .as_ref()
                .is_none_or(|name| row.actor == *name || peer(row) == Some(name.as_str()))
            && since.is_none_or(|since| wire::timestamp::parse(&row.timestamp).is_some_and(|at| at >= since))
    };
    let mut rows = Vec::new();
    each(|placed| {
        if placed.row.as_ref().is_some_and(wanted) {
            rows.push(placed);
        }
    })?;
    print(&rows, options.json)
}

/// The audit of this process, set once it is started: agents are created earlier.
pub type StartedAudit = Arc<OnceLock<Weak<Audit>>>;

/// For the agent command that shows the rows of its own session.
pub fn reader(started: StartedAudit) -> ReadAudit {
    Arc::new(move |id, upto, limit| {
        let audit = started.get().and_then(Weak::upgrade);
        Box::pin(async move {
            if let Some(audit) = audit {
                audit.wait_written(&id, upto).await;
            }
            let read = tokio::task::spawn_blocking(move || of_session(&id, limit)).await;
            read.map_err(|error| error.to_string())?
        })
    })
}

/// The last rows about a session, oldest first, one line each: when, who, what, and the result.
fn of_session(id: &SessionId, limit: usize) -> Result<Vec<String>, String> {
    let mut rows: VecDeque<AuditRow> = VecDeque::new();
    let read = each(|placed| {
        let of_session = |row: &AuditRow| row.resource_type == "session" && row.resource_id == id.as_str();
        if let Some(row) = placed.row.filter(of_session) {
            rows.push_back(row);
            if rows.len() > limit {
                rows.pop_front();
            }
        }
    });
    read.map_err(|error| error.text())?;
    Ok(rows.iter().map(short).collect())
}

fn short(row: &AuditRow) -> String {
    let time: String = row.timestamp.chars().take(19).collect::<String>().replace('T', " ");
    let who = cut(&one_line(peer(row).unwrap_or(&row.actor)), WHO_CHARS_MAX);
    // A tool call has both a decision and a result.
    let decided = match row.event_type.as_str() {
        "tool.call" => text_of(&row.details, "decision"),
        _ => String::new(),
    };
    let what = cut(&one_line(&format!("{decided} {}", what(row))), SHORT_CHARS_MAX);
    format!("{time}  {}  {who}  {what}", one_line(&row.event_type)).trim_end().to_owned()
}

fn each(mut take: impl FnMut(ChainLine)) -> Result<(), CliError> {
    let folder = paths::audit()?;
    let read = store::audit::rows(&folder, |placed| {
        take(placed);
        true
    });
    read.map_err(unreadable)
}

fn is_type(event_type: &str, wanted: &str) -> bool {
    event_type == wanted || (wanted.ends_with('.') && event_type.starts_with(wanted))
}

fn peer(row: &AuditRow) -> Option<&str> {
    row.details.get("peer").and_then(Value::as_str)
}

fn print(rows: &[ChainLine], as_json: bool) -> Result<ExitCode, CliError> {
    if as_json {
        let object = |placed: &ChainLine| {
            let mut row: Value = serde_json::from_slice(&placed.text).unwrap_or(Value::Null);
            row["file"] = placed.file.as_str().into();
            row["line"] = placed.line.into();
            row
        };
        // `verify` reports lines that are not rows.
        let rows: Vec<_> = rows.iter().filter(|placed| placed.row.is_some()).map(object).collect();
        output::put_json(&json!({ "rows": rows }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        output::say("No rows match.");
    }
    let mut out = String::new();
    for placed in rows {
        match &placed.row {
            Some(row) => out.push_str(line(row).trim_end()),
            None => out.push_str(&format!("{}:{} is not a valid row", placed.file, placed.line)),
        }
        out.push('\n');
    }
    output::put(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// At most 100 columns.
fn line(row: &AuditRow) -> String {
    let time: String = row.timestamp.chars().take(19).collect::<String>().replace('T', " ");
    let who = cut(&one_line(peer(row).unwrap_or(&row.actor)), WHO_CHARS_MAX);
    let session: String = match row.resource_type.as_str() {
        "session" => row.resource_id.chars().take(SESSION_CHARS).collect(),
        other => cut(&one_line(other), SESSION_CHARS),
    };
    let what = cut(&one_line(&what(row)), WHAT_CHARS_MAX);
    format!(
        "{time}  {:16}  {who:WHO_CHARS_MAX$}  {session:SESSION_CHARS$}  {what}",
        one_line(&row.event_type)
    )
}

/// What happened, in a few words.
fn what(row: &AuditRow) -> String {
    let text = |name: &str| text_of(&row.details, name);
    let words: &[String] = match row.event_type.as_str() {
        "acp.prompt" => &[format!("{} bytes", text("bytes")), text("cwd")],
        "acp.permission" => &[text("decision"), text("tool"), text("subject")],
        "permission.asked" => &[text("tool"), text("subject"), text("risk")],
        "tool.call" => &[text("outcome"), exit(&text("exit_code")), text("title")],
        "sandbox.refused" => &[text("tool"), text("path"), text("reason")],
        "session.setting" => &[text("setting"), text("value")],
        "acp.set_mode" => &[text("mode")],
        "turn.ended" => &[text("stop"), text("error")],
        _ => &[rest(&row.details)],
    };
    words.join(" ")
}

fn exit(code: &str) -> String {
    if code.is_empty() { String::new() } else { format!("({code})") }
}

fn rest(details: &Map<String, Value>) -> String {
    let shown = details.keys().filter(|name| !matches!(name.as_str(), "seq" | "peer" | "turn"));
    shown.map(|name| format!("{name}={}", text_of(details, name))).collect::<Vec<_>>().join(" ")
}

fn text_of(details: &Map<String, Value>, name: &str) -> String {
    match details.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
