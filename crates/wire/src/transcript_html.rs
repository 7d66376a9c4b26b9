//! A transcript as one self-contained web page: no script, no font and no image from elsewhere.
//!
//! **Invariant:** all content of a session reaches the page escaped, through [`escape`] alone; the page's
//! content security policy also forbids scripts and every connection.

mod markdown;
pub mod strip_ansi;

use engine::{Content, NoticeLevel, SessionRow};

use crate::diff;
use crate::transcript::{Row, ToolRow, ToolState, Transcript, block_text, stop_text};
use crate::transcript_text::{facts, mark, minute, plan, title_of};

const STYLE: &str = include_str!("transcript_html/style.css");

/// Image types that are shown; everything else, SVG above all, is only named.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Everything after the last row.
pub(crate) const TAIL: &str = "</main>\n</body>\n</html>\n";

pub fn render(row: &SessionRow, transcript: &Transcript) -> String {
    let mut out = String::new();
    put_head(&mut out, row, transcript);
    for row in &transcript.rows {
        put_row(&mut out, row);
    }
    out.push_str(TAIL);
    out
}

/// Everything before the first row.
pub(crate) fn put_head(out: &mut String, row: &SessionRow, transcript: &Transcript) {
    let title = escape(title_of(row));
    let facts =
        facts(row, transcript).iter().map(|fact| format!("<li>{}</li>", escape(fact))).collect::<String>();
    out.push_str(&format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}</h1>\n<ul class=\"facts\">{facts}</ul>\n</header>\n"
    ));
    if transcript.cleared {
        out.push_str("<p class=\"note\">Earlier messages were cleared.</p>\n");
    }
}

/// Escapes text for HTML. Terminal control sequences have no meaning there and are removed.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in strip_ansi::strip(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

pub(crate) fn put_row(out: &mut String, row: &Row) {
    match row {
        Row::Prompt { from, at, content } => {
            out.push_str(&format!(
                "<section class=\"you\">\n<h2>You <small>{}, {} UTC</small></h2>\n",
                escape(from),
                minute(*at)
            ));
            content.iter().for_each(|block| put_block(out, block));
            out.push_str("</section>\n");
        }
        Row::AgentMessage { text, .. } => {
            out.push_str(&format!("<section class=\"agent\">\n{}</section>\n", markdown::render(text)));
        }
        Row::Thought { text, .. } => folded(out, "Thinking", text),
        Row::Plan { entries } => {
            let items: String =
                plan(entries).lines().map(|line| format!("<li>{}</li>", escape(line))).collect();
            out.push_str(&format!("<ul class=\"plan\">{items}</ul>\n"));
        }
        Row::Tool(tool) => put_tool(out, tool),
        Row::Notice { level, text } => {
            let class = match level {
                NoticeLevel::Info => "note",
                NoticeLevel::Warning => "note warning",
                NoticeLevel::Error | NoticeLevel::Damage => "note error",
            };
            out.push_str(&format!("<p class=\"{class}\">{}</p>\n", escape(text)));
        }
        Row::Note { text } => out.push_str(&format!("<p class=\"note\">{}</p>\n", escape(text))),
        Row::TurnEnded { stop, error } => {
            let why = error.as_ref().map(|error| format!(": {}", escape(error))).unwrap_or_default();
            out.push_str(&format!("<p class=\"note\">{}{why}</p>\n", stop_text(*stop)));
        }
    }
}

fn put_block(out: &mut String, block: &Content) {
    match block {
        Content::Text(text) => out.push_str(&format!("<p class=\"plain\">{}</p>\n", escape(text.trim_end()))),
        Content::Image { mime, data, .. } if is_picture(mime, data) => {
            out.push_str(&format!("<img alt=\"\" src=\"data:{mime};base64,{data}\">\n"));
        }
        Content::Resource { uri, text, .. } => folded(out, uri, text),
        Content::Image { .. } | Content::Audio { .. } | Content::Link(_) | Content::Binary { .. } => {
            out.push_str(&format!("<p class=\"plain\">{}</p>\n", escape(&block_text(block))));
        }
    }
}

fn is_picture(mime: &str, data: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    PICTURES.contains(&mime) && data.bytes().all(plain)
}

fn put_tool(out: &mut String, tool: &ToolRow) {
    let class = match tool.state {
        ToolState::Running | ToolState::Done => "tool",
        ToolState::Failed | ToolState::Refused { .. } => "tool bad",
    };
    let remark = tool.remark();
    let remark = if remark.is_empty() { remark } else { format!(" <small>{}</small>", escape(&remark)) };
    let head = format!("<i>{}</i> <code>{}</code>{remark}", mark(&tool.state), escape(&tool.title));
    let mut body = String::new();
    for change in &tool.changes {
        body.push_str(&format!(
            "<p class=\"path\">{}</p>\n<pre class=\"diff\">",
            escape(&change.path.display().to_string())
        ));
        diff::lines(change).into_iter().for_each(|line| put_line(&mut body, line));
        body.push_str("</pre>\n");
    }
    if let Some(task) = &tool.task {
        body.push_str("<div class=\"task\">\n");
        task.rows.iter().for_each(|row| put_row(&mut body, row));
        body.push_str("</div>\n");
    }
    if tool.changes.is_empty() && !tool.output.trim().is_empty() && !tool.output_is_told() {
        body.push_str(&format!("<pre>{}</pre>\n", escape(tool.output.trim_end())));
    }
    if body.is_empty() {
        out.push_str(&format!("<p class=\"{class}\">{head}</p>\n"));
    } else {
        out.push_str(&format!("<details class=\"{class}\"><summary>{head}</summary>\n{body}</details>\n"));
    }
}

fn put_line(out: &mut String, line: diff::DiffLine<'_>) {
    let class = match line {
        diff::DiffLine::Same(_) => "",
        diff::DiffLine::Gone(_) => " class=\"gone\"",
        diff::DiffLine::Came(_) => " class=\"came\"",
        diff::DiffLine::Skipped(_) => " class=\"skipped\"",
    };
    out.push_str(&format!("<span{class}>{}</span>\n", escape(&line.text())));
}

fn folded(out: &mut String, title: &str, text: &str) {
    out.push_str(&format!(
        "<details><summary>{}</summary>\n<pre>{}</pre>\n</details>\n",
        escape(title),
        escape(text.trim_end())
    ));
}
