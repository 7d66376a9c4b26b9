//! A row of the transcript, rendered in lines.
//!
//! A row is rendered again only when it or the screen changed. Text that only grew is continued.

pub mod render;

use ratatui_core::text::Line;
use wire::native::{Row, RowContent, TextAppend, ToolCallState};

use crate::diff;
use crate::markdown::Markdown;
use crate::theme::Theme;

/// Bytes of an output that are kept here; the server has all of it.
const OUTPUT_BYTES_MAX: usize = 2 * wire::native::OUTPUT_BYTES_MAX;
/// A diff of at most this many lines is unfolded at once.
const DIFF_LINES_SMALL: usize = 14;
const PEEK_RUNNING: usize = 3;
const PEEK_FAILED: usize = 10;

#[derive(Debug)]
pub struct Entry {
    pub row: Row,
    /// Whether the person unfolded or folded it; `None` if they did neither.
    unfolded: Option<bool>,
    /// Its depth below other rows.
    pub depth: usize,
    lines: Vec<Line<'static>>,
    markdown: Option<Markdown>,
    stale: bool,
}

/// How much of a row's contents is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoldState {
    Folded,
    /// This many of its last lines.
    Peek(usize),
    Open,
}

impl Entry {
    pub fn new(row: Row, depth: usize) -> Self {
        Self { row, unfolded: None, depth, lines: Vec::new(), markdown: None, stale: true }
    }

    /// Takes a newer version of the same row.
    pub fn replace(&mut self, row: Row) {
        let grew = match (text_of(&self.row), text_of(&row)) {
            (Some(old), Some(new)) => new.starts_with(old),
            _ => false,
        };
        if !grew {
            self.markdown = None;
        }
        self.row = row;
        self.stale = true;
    }

    /// Appends text to the row, once per revision.
    pub fn append(&mut self, append: &TextAppend) {
        if append.rev <= self.row.rev {
            return;
        }
        self.row.rev = append.rev;
        self.stale = true;
        match &mut self.row.what {
            RowContent::AgentMessage { text, .. } | RowContent::Thought { text, .. } => {
                text.push_str(&append.text)
            }
            RowContent::Tool(tool) => {
                tool.output.push_str(&append.text);
                tool.more += cut_front(&mut tool.output, OUTPUT_BYTES_MAX);
            }
            RowContent::Prompt { .. }
            | RowContent::Plan(_)
            | RowContent::Question { .. }
            | RowContent::Notice { .. }
            | RowContent::Note { .. }
            | RowContent::TurnEnd(_) => {}
        }
    }

    /// Whether there is anything to unfold.
    pub fn folds(&self) -> bool {
        matches!(self.row.what, RowContent::Tool(_) | RowContent::Thought { .. } | RowContent::Plan(_))
    }

    /// Whether the server has more of it than was sent.
    pub fn has_more(&self) -> bool {
        match &self.row.what {
            RowContent::Prompt { more, .. }
            | RowContent::AgentMessage { more, .. }
            | RowContent::Thought { more, .. } => *more > 0,
            RowContent::Tool(tool) => tool.more > 0,
            RowContent::Plan(_)
            | RowContent::Question { .. }
            | RowContent::Notice { .. }
            | RowContent::Note { .. }
            | RowContent::TurnEnd(_) => false,
        }
    }

    pub fn toggle(&mut self) {
        self.unfolded = Some(self.fold_state() != FoldState::Open);
        self.stale = true;
    }

    pub fn open(&mut self) {
        self.unfolded = Some(true);
        self.stale = true;
    }

    /// Renders it, if something changed.
    pub fn prepare(&mut self, width: usize, theme: Theme, resized: bool) {
        if resized {
            self.markdown = None;
        }
        if self.stale || resized {
            self.lines = render::lines(self, width, theme);
            self.stale = false;
        }
    }

    pub fn lines(&self) -> &[Line<'static>] {
        &self.lines
    }

    fn fold_state(&self) -> FoldState {
        match (self.unfolded, &self.row.what) {
            (Some(true), _) => FoldState::Open,
            (Some(false), _) => FoldState::Folded,
            (None, RowContent::Tool(tool)) => match tool.state {
                ToolCallState::Running => FoldState::Peek(PEEK_RUNNING),
                ToolCallState::Failed => FoldState::Peek(PEEK_FAILED),
                ToolCallState::Done
                    if !tool.diffs.is_empty() && diff::height(&tool.diffs) <= DIFF_LINES_SMALL =>
                {
                    FoldState::Open
                }
                ToolCallState::Done | ToolCallState::Refused => FoldState::Folded,
            },
            (None, _) => FoldState::Folded,
        }
    }
}

fn text_of(row: &Row) -> Option<&str> {
    match &row.what {
        RowContent::AgentMessage { text, .. } | RowContent::Thought { text, .. } => Some(text),
        RowContent::Prompt { .. }
        | RowContent::Tool(_)
        | RowContent::Plan(_)
        | RowContent::Question { .. }
        | RowContent::Notice { .. }
        | RowContent::Note { .. }
        | RowContent::TurnEnd(_) => None,
    }
}

/// Cuts the text at the front to this many bytes. Returns how many were removed.
fn cut_front(text: &mut String, bytes_max: usize) -> u64 {
    if text.len() <= bytes_max {
        return 0;
    }
    let mut at = text.len() - bytes_max;
    while !text.is_char_boundary(at) {
        at += 1;
    }
    text.drain(..at);
    at as u64
}
