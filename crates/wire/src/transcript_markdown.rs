//! A transcript as Markdown, to paste into an issue or a review.

use engine::{Content, SessionRow};

use crate::diff;
use crate::transcript::{Row, ToolRow, Transcript, block_text, stop_text};
use crate::transcript_text::{blocks, facts, minute, plan, title_of};

pub fn render(row: &SessionRow, transcript: &Transcript) -> String {
    let mut out = String::new();
    put_head(&mut out, row, transcript);
    for row in &transcript.rows {
        out.push('\n');
        put_row(&mut out, row);
    }
    out
}

/// Everything before the first row.
pub(crate) fn put_head(out: &mut String, row: &SessionRow, transcript: &Transcript) {
    out.push_str(&format!("# {}\n\n", one_line(title_of(row))));
    for fact in facts(row, transcript) {
        out.push_str(&format!("- {}\n", one_line(&fact)));
    }
    if transcript.cleared {
        out.push_str("\n*Earlier messages were cleared.*\n");
    }
}

pub(crate) fn put_row(out: &mut String, row: &Row) {
    match row {
        Row::Prompt { from, at, content } => {
            out.push_str(&format!("## You\n\n*{}, {} UTC*\n\n", one_line(from), minute(*at)));
            quote(out, &blocks(content));
            attachments(out, content);
        }
        Row::AgentMessage { text, .. } => out.push_str(&format!("{}\n", text.trim_end())),
        Row::Thought { text, .. } => {
            out.push_str("<details><summary>Thinking</summary>\n\n");
            fence(out, "text", text);
            out.push_str("\n</details>\n");
        }
        Row::Plan { entries } => {
            for line in plan(entries).lines() {
                out.push_str(&format!("- {}\n", line.replacen("[>]", "[ ] (now)", 1)));
            }
        }
        Row::Tool(tool) => put_tool(out, tool),
        Row::Notice { text, .. } => quote(out, text),
        Row::Note { text } => out.push_str(&format!("*{}*\n", one_line(text))),
        Row::TurnEnded { stop, error } => {
            let why = error.as_ref().map(|error| format!(": {}", one_line(error))).unwrap_or_default();
            out.push_str(&format!("*{}{why}*\n", stop_text(*stop)));
        }
    }
}

fn put_tool(out: &mut String, tool: &ToolRow) {
    let remark = tool.remark();
    let remark = if remark.is_empty() { remark } else { format!(" ({remark})") };
    out.push_str(&format!("**{}**: {}{remark}\n", one_line(&tool.tool), code(&tool.title)));
    for change in &tool.changes {
        let text: String = diff::lines(change).into_iter().map(|line| line.text() + "\n").collect();
        out.push_str(&format!("\n{}\n\n", code(&change.path.display().to_string())));
        fence(out, "diff", &text);
    }
    if let Some(task) = &tool.task {
        let mut inner = String::new();
        for row in &task.rows {
            inner.push('\n');
            put_row(&mut inner, row);
        }
        out.push('\n');
        quote(out, inner.trim_start());
    }
    if tool.changes.is_empty() && !tool.output.trim().is_empty() && !tool.output_is_told() {
        out.push('\n');
        fence(out, "text", &tool.output);
    }
}

/// The texts that were attached to a prompt.
fn attachments(out: &mut String, content: &[Content]) {
    for block in content {
        if let Content::Resource { text, .. } = block {
            out.push_str(&format!("\n<details><summary>{}</summary>\n\n", escape(&block_text(block))));
            fence(out, "text", text);
            out.push_str("\n</details>\n");
        }
    }
}

fn quote(out: &mut String, text: &str) {
    for line in text.trim_end().lines() {
        out.push_str(format!("> {line}").trim_end());
        out.push('\n');
    }
}

/// A code block. Its fence is longer than any run of backticks inside, so the text cannot close it.
fn fence(out: &mut String, language: &str, text: &str) {
    let marks = "`".repeat(longest_run(text).max(2) + 1);
    out.push_str(&format!("{marks}{language}\n{}\n{marks}\n", text.trim_end()));
}

fn code(text: &str) -> String {
    let marks = "`".repeat(longest_run(text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{marks}{pad}{}{pad}{marks}", one_line(text))
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
