//! A transcript as plain text, for a terminal or a pager.

use engine::{Content, NoticeLevel, PlanEntry, SessionRow, StepStatus, Timestamp};

use crate::diff;
use crate::timestamp::rfc3339;
use crate::transcript::{Row, ToolRow, ToolState, Transcript, block_text, stop_text, totals_text};

/// How many lines of a tool's output are shown, unless all are requested.
const OUTPUT_LINES_MAX: usize = 12;

/// `2026-01-31 09:05`, in UTC.
pub fn minute(at: Timestamp) -> String {
    rfc3339(at).chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

/// A session's title, or a default.
pub fn title_of(row: &SessionRow) -> &str {
    row.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or("(untitled)")
}

/// The part of an id that people need: the beginning of a random id, all of an id with a common prefix.
pub fn short_id(id: &str) -> &str {
    let random = id.len() == 36 && id.as_bytes().get(8) == Some(&b'-');
    id.get(..8).filter(|_| random).unwrap_or(id)
}

pub fn render(row: &SessionRow, transcript: &Transcript, full: bool) -> String {
    let mut out = String::new();
    put_head(&mut out, row, transcript);
    for row in &transcript.rows {
        out.push('\n');
        put_row(&mut out, row, full);
    }
    out
}

/// Everything before the first row.
pub(crate) fn put_head(out: &mut String, row: &SessionRow, transcript: &Transcript) {
    out.push_str(&format!("{}\n{}\n", title_of(row), facts(row, transcript).join("  ")));
    if transcript.cleared {
        out.push_str("\n(earlier messages were cleared)\n");
    }
}

/// The parts of the line under the title.
pub(crate) fn facts(row: &SessionRow, transcript: &Transcript) -> Vec<String> {
    let mut facts = vec![row.id.to_string(), row.cwd.display().to_string()];
    facts.extend(transcript.agent.as_ref().map(|agent| format!("with {agent}")));
    facts.extend(transcript.first_at.map(|at| format!("{} UTC", minute(at))));
    facts.push(match transcript.turns {
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    });
    facts.extend(Some(totals_text(&transcript.totals)).filter(|text| !text.is_empty()));
    facts
}

pub(crate) fn put_row(out: &mut String, row: &Row, full: bool) {
    match row {
        Row::Prompt { from, at, content } => {
            out.push_str(&format!("You ({from}, {})\n", minute(*at)));
            indent(out, &blocks(content), "  > ");
        }
        Row::AgentMessage { text, .. } => indent(out, text.trim_end(), ""),
        Row::Thought { text, .. } => indent(out, text.trim(), "  ~ "),
        Row::Plan { entries } => indent(out, &plan(entries), "  "),
        Row::Tool(tool) => put_tool(out, tool, full),
        Row::Notice { level, text } => {
            let word = match level {
                NoticeLevel::Info => "note",
                NoticeLevel::Warning => "warning",
                NoticeLevel::Error | NoticeLevel::Damage => "error",
            };
            indent(out, &format!("{word}: {text}"), "  ");
        }
        Row::Note { text } => indent(out, &format!("({text})"), "  "),
        Row::TurnEnded { stop, error } => {
            let why = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            indent(out, &format!("({}{why})", stop_text(*stop)), "  ");
        }
    }
}

pub(crate) fn blocks(content: &[Content]) -> String {
    content.iter().map(block_text).collect::<Vec<_>>().join("\n")
}

pub(crate) fn plan(entries: &[PlanEntry]) -> String {
    let line = |entry: &PlanEntry| {
        let mark = match entry.status {
            StepStatus::Pending => " ",
            StepStatus::InProgress => ">",
            StepStatus::Completed => "x",
        };
        format!("[{mark}] {}", entry.content)
    };
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The symbol before a tool's title.
pub(crate) fn mark(state: &ToolState) -> &'static str {
    match state {
        ToolState::Running => "…",
        ToolState::Done => "✓",
        ToolState::Failed => "✗",
        ToolState::Refused { .. } => "⊘",
    }
}

fn put_tool(out: &mut String, tool: &ToolRow, full: bool) {
    let remark = tool.remark();
    let remark = if remark.is_empty() { remark } else { format!(" ({remark})") };
    out.push_str(&format!("  {} {}{remark}\n", mark(&tool.state), tool.title));
    for change in &tool.changes {
        let lines: Vec<_> = diff::lines(change).into_iter().map(diff::DiffLine::text).collect();
        out.push_str(&format!("    {}\n", change.path.display()));
        cut(out, &lines, full);
    }
    if let Some(task) = &tool.task {
        let mut inner = String::new();
        task.rows.iter().for_each(|row| put_row(&mut inner, row, full));
        indent(out, &inner, "    | ");
    }
    if tool.changes.is_empty() && !tool.output_is_told() {
        let lines: Vec<_> = tool.output.trim_end().lines().map(str::to_owned).collect();
        cut(out, &lines, full);
    }
}

fn cut(out: &mut String, lines: &[String], full: bool) {
    let shown = if full || lines.len() <= OUTPUT_LINES_MAX + 1 { lines.len() } else { OUTPUT_LINES_MAX };
    for line in &lines[..shown] {
        out.push_str(format!("    {line}").trim_end());
        out.push('\n');
    }
    if shown < lines.len() {
        out.push_str(&format!("    … {} more lines\n", lines.len() - shown));
    }
}

fn indent(out: &mut String, text: &str, prefix: &str) {
    for line in text.lines() {
        out.push_str(format!("{prefix}{line}").trim_end());
        out.push('\n');
    }
}
