//! The conversation so far, for an agent that has lost it or never had it.

use std::sync::Arc;

use engine::{Content, Event, Stop};

use crate::plain;
use crate::transcript::{Row, ToolRow, ToolState, Transcript, stop_text};

/// All of it. The newest is kept.
const PRIMER_BYTES_MAX: usize = 100 << 10;
/// One message.
const SAID_BYTES_MAX: usize = 16 << 10;
/// What one tool call came to.
const OUTPUT_BYTES_MAX: usize = 1 << 10;

const BEGINNING: &str = "This session goes on from an earlier conversation, which follows as it was \
recorded. It is background: do not answer it, and do not do again what was done in it.\n\n\
<earlier_conversation>\n";
const LEFT_OUT: &str = "[what was said before this is left out]\n\n";
const END: &str = "</earlier_conversation>";

/// What was said and done, as one block to put before the next prompt. Nothing if nothing was.
pub fn primer(history: &[Arc<Event>]) -> Option<Content> {
    let transcript = Transcript::of(history.iter().map(AsRef::as_ref));
    let rows: Vec<_> = transcript.rows.iter().filter_map(told).collect();
    let mut room = PRIMER_BYTES_MAX.saturating_sub(BEGINNING.len() + LEFT_OUT.len() + END.len());
    let mut kept = rows.len();
    for row in rows.iter().rev() {
        if row.len() > room {
            break;
        }
        room -= row.len();
        kept -= 1;
    }
    if rows.is_empty() {
        return None;
    }
    let left_out = if kept > 0 || transcript.cleared { LEFT_OUT } else { "" };
    Some(Content::text(format!("{BEGINNING}{left_out}{}{END}", rows[kept..].concat())))
}

/// Thoughts, notices and changes of settings are no part of what was said.
fn told(row: &Row) -> Option<String> {
    let text = match row {
        Row::Prompt { content, .. } => format!("User: {}", short(&plain::blocks(content), SAID_BYTES_MAX)),
        Row::Said { text, .. } => format!("Assistant: {}", short(text.trim(), SAID_BYTES_MAX)),
        Row::Plan { entries } => format!("Plan:\n{}", short(&plain::plan(entries), SAID_BYTES_MAX)),
        Row::Tool(tool) => tool_text(tool),
        Row::Ended { stop: Stop::EndTurn, .. }
        | Row::Thought { .. }
        | Row::Notice { .. }
        | Row::Note { .. } => {
            return None;
        }
        Row::Ended { stop, .. } => format!("[the turn ended: {}]", stop_text(*stop)),
    };
    Some(format!("{text}\n\n"))
}

fn tool_text(tool: &ToolRow) -> String {
    let state = match &tool.state {
        ToolState::Running => "not finished".to_owned(),
        ToolState::Done => "done".to_owned(),
        ToolState::Failed => "failed".to_owned(),
        ToolState::Refused { reason } => format!("refused: {reason}"),
    };
    let mut text = format!("[tool {}: {} ({state})]", tool.tool, short(&tool.title, OUTPUT_BYTES_MAX));
    for change in &tool.changes {
        text.push_str(&format!("\n  changed {}", change.path.display()));
    }
    let output = tool.output.trim();
    if !output.is_empty() {
        text.push_str(&format!("\n{}", short(output, OUTPUT_BYTES_MAX)));
    }
    text
}

fn short(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}… [{} bytes in all]", &text[..text.floor_char_boundary(bytes_max)], text.len())
}
