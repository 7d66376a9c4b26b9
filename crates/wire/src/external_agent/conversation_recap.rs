//! The conversation so far, as text, for an agent that lost it or never had it.

use std::collections::VecDeque;

use engine::{Body, Content, Event, Stop};

use crate::transcript::{Row, ToolRow, ToolState, Transcript, stop_text};
use crate::transcript_text;

/// Limit for the whole recap. The newest rows are kept.
const RECAP_BYTES_MAX: usize = 100 << 10;
/// Limit for one message.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Limit for the result of one tool call.
const OUTPUT_BYTES_MAX: usize = 1 << 10;

const BEGINNING: &str = "This session continues an earlier conversation, which follows as it was recorded. It is background: do not answer it, and do not repeat what was done in it.\n\n\
<earlier_conversation>\n";
const LEFT_OUT: &str = "[earlier messages are left out]\n\n";
const END: &str = "</earlier_conversation>";

/// The conversation as one content block to put before the next prompt. It is built while the log is read,
/// and holds no more than the recap itself and the rows that may still change.
#[derive(Default)]
pub struct ConversationRecap {
    transcript: Transcript,
    /// The newest rows that fit.
    rows: VecDeque<String>,
    bytes: usize,
    left_out: bool,
    unsettled: usize,
}

/// After this many events, settled rows are moved into the recap.
const LOOK_AFTER: usize = 256;

impl ConversationRecap {
    pub fn observe(&mut self, event: &Event) {
        self.transcript.observe(event);
        if matches!(event.body, Body::Cleared) && event.origin.task().is_none() {
            self.rows.clear();
            self.bytes = 0;
        }
        self.unsettled += 1;
        if self.unsettled >= LOOK_AFTER {
            self.unsettled = 0;
            let rows = self.transcript.take_settled();
            self.take_over(&rows);
        }
    }

    /// `None` if nothing was said.
    pub fn finish(mut self) -> Option<Content> {
        let rows = self.transcript.take_rest();
        self.take_over(&rows);
        if self.rows.is_empty() && !self.left_out {
            return None;
        }
        let left_out = if self.left_out || self.transcript.cleared { LEFT_OUT } else { "" };
        let told: String = self.rows.iter().map(String::as_str).collect();
        Some(Content::text(format!("{BEGINNING}{left_out}{told}{END}")))
    }

    fn take_over(&mut self, rows: &[Row]) {
        let room = RECAP_BYTES_MAX.saturating_sub(BEGINNING.len() + LEFT_OUT.len() + END.len());
        for row in rows.iter().filter_map(row_text) {
            self.bytes += row.len();
            self.rows.push_back(row);
            while self.bytes > room {
                let Some(oldest) = self.rows.pop_front() else { break };
                self.bytes -= oldest.len();
                self.left_out = true;
            }
        }
    }
}

/// Thoughts, notices and changes of settings are not part of the recap.
fn row_text(row: &Row) -> Option<String> {
    let text = match row {
        Row::Prompt { content, .. } => {
            format!("User: {}", short(&transcript_text::blocks(content), MESSAGE_BYTES_MAX))
        }
        Row::AgentMessage { text, .. } => format!("Assistant: {}", short(text.trim(), MESSAGE_BYTES_MAX)),
        Row::Plan { entries } => {
            format!("Plan:\n{}", short(&transcript_text::plan(entries), MESSAGE_BYTES_MAX))
        }
        Row::Tool(tool) => tool_text(tool),
        Row::TurnEnded { stop: Stop::EndTurn, .. }
        | Row::Thought { .. }
        | Row::Notice { .. }
        | Row::Note { .. } => {
            return None;
        }
        Row::TurnEnded { stop, .. } => format!("[the turn ended: {}]", stop_text(*stop)),
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
    format!("{}… [{} bytes in total]", &text[..text.floor_char_boundary(bytes_max)], text.len())
}
