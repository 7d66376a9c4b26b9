//! A row of the transcript, set in lines.
//!
//! A row is set again only when it changed or the screen did. Text that only grew goes on where it was.

pub mod set;

use ratatui_core::text::Line;
use wire::native::{Append, Row, ToolState, What};

use crate::diff;
use crate::look::Look;
use crate::prose::Prose;

/// What is kept of an output that goes on and on; the server keeps all of it.
const OUTPUT_BYTES_MAX: usize = 2 * wire::native::OUTPUT_BYTES_MAX;
/// An edit of so many lines is shown at once.
const DIFF_LINES_SMALL: usize = 14;
const PEEK_RUNNING: usize = 3;
const PEEK_FAILED: usize = 10;

#[derive(Debug)]
pub struct Entry {
    pub row: Row,
    /// What a person wanted, if somebody did.
    opened: Option<bool>,
    /// How deep below other rows it is.
    pub depth: usize,
    lines: Vec<Line<'static>>,
    prose: Option<Prose>,
    stale: bool,
}

/// How much of a row's inside is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    Folded,
    /// So many of its last lines.
    Peek(usize),
    Open,
}

impl Entry {
    pub fn new(row: Row, depth: usize) -> Self {
        Self { row, opened: None, depth, lines: Vec::new(), prose: None, stale: true }
    }

    /// Takes a newer form of the same row.
    pub fn replace(&mut self, row: Row) {
        let grew = match (text_of(&self.row), text_of(&row)) {
            (Some(old), Some(new)) => new.starts_with(old),
            _ => false,
        };
        if !grew {
            self.prose = None;
        }
        self.row = row;
        self.stale = true;
    }

    /// Takes more of the row's text, once.
    pub fn append(&mut self, append: &Append) {
        if append.rev <= self.row.rev {
            return;
        }
        self.row.rev = append.rev;
        self.stale = true;
        match &mut self.row.what {
            What::Said { text, .. } | What::Thought { text, .. } => text.push_str(&append.text),
            What::Tool(tool) => {
                tool.output.push_str(&append.text);
                tool.more += cut_front(&mut tool.output, OUTPUT_BYTES_MAX);
            }
            What::Prompt { .. }
            | What::Plan(_)
            | What::Question { .. }
            | What::Notice { .. }
            | What::Note { .. }
            | What::Ended(_) => {}
        }
    }

    /// Whether there is anything to unfold.
    pub fn folds(&self) -> bool {
        matches!(self.row.what, What::Tool(_) | What::Thought { .. } | What::Plan(_))
    }

    /// Whether the server has more of it than was sent.
    pub fn has_more(&self) -> bool {
        match &self.row.what {
            What::Prompt { more, .. } | What::Said { more, .. } | What::Thought { more, .. } => *more > 0,
            What::Tool(tool) => tool.more > 0,
            What::Plan(_)
            | What::Question { .. }
            | What::Notice { .. }
            | What::Note { .. }
            | What::Ended(_) => false,
        }
    }

    pub fn toggle(&mut self) {
        self.opened = Some(self.opening() != Opening::Open);
        self.stale = true;
    }

    pub fn open(&mut self) {
        self.opened = Some(true);
        self.stale = true;
    }

    /// Sets it, if something changed.
    pub fn prepare(&mut self, width: usize, look: Look, resized: bool) {
        if resized {
            self.prose = None;
        }
        if self.stale || resized {
            self.lines = set::lines(self, width, look);
            self.stale = false;
        }
    }

    pub fn lines(&self) -> &[Line<'static>] {
        &self.lines
    }

    fn opening(&self) -> Opening {
        match (self.opened, &self.row.what) {
            (Some(true), _) => Opening::Open,
            (Some(false), _) => Opening::Folded,
            (None, What::Tool(tool)) => match tool.state {
                ToolState::Running => Opening::Peek(PEEK_RUNNING),
                ToolState::Failed => Opening::Peek(PEEK_FAILED),
                ToolState::Done
                    if !tool.diffs.is_empty() && diff::height(&tool.diffs) <= DIFF_LINES_SMALL =>
                {
                    Opening::Open
                }
                ToolState::Done | ToolState::Refused => Opening::Folded,
            },
            (None, _) => Opening::Folded,
        }
    }
}

fn text_of(row: &Row) -> Option<&str> {
    match &row.what {
        What::Said { text, .. } | What::Thought { text, .. } => Some(text),
        What::Prompt { .. }
        | What::Tool(_)
        | What::Plan(_)
        | What::Question { .. }
        | What::Notice { .. }
        | What::Note { .. }
        | What::Ended(_) => None,
    }
}

/// Takes away from the front until so many bytes are left. Answers how many went.
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
