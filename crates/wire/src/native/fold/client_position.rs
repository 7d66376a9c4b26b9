//! One client's position in the rows, and what it must be sent to be current.

use std::collections::{HashMap, HashSet};

use super::rows::Rows;
use crate::native::{Row, RowContent, SessionState, TextAppend, ToolCallState, ViewUpdate, WINDOW_ROWS};

/// How many lengths are kept before those of complete rows are forgotten.
const GROWING_ROWS_MAX: usize = 256;

#[derive(Debug, Default)]
pub struct Viewer {
    /// Everything up to here was sent; `None` if nothing was.
    upto: Option<u64>,
    /// How much text of the growing rows was sent.
    sent_bytes: HashMap<u64, usize>,
}

/// What to send to a client.
#[derive(Debug, Default, PartialEq)]
pub struct ViewDelta {
    pub upto: u64,
    pub reset: bool,
    pub earlier: bool,
    pub rows: Vec<Row>,
    pub appends: Vec<TextAppend>,
}

impl ViewDelta {
    /// There is nothing to send but a position.
    pub fn is_empty(&self) -> bool {
        !self.reset && self.rows.is_empty() && self.appends.is_empty()
    }

    /// The same as a [`ViewUpdate`], with the session's state if it changed.
    pub fn view(self, session: String, state: Option<SessionState>) -> ViewUpdate {
        let Self { upto, reset, earlier, rows, appends } = self;
        ViewUpdate { session, upto, reset, earlier, rows, appends, state }
    }
}

impl Viewer {
    /// A client that has everything up to a position, or nothing.
    pub fn new(after: Option<u64>) -> Self {
        Self { upto: after, sent_bytes: HashMap::new() }
    }

    /// What was not sent yet; after this call it counts as sent.
    pub fn next_delta(&mut self, rows: &Rows) -> ViewDelta {
        let mut delta = ViewDelta { upto: rows.upto(), ..ViewDelta::default() };
        match self.upto.filter(|upto| rows.covers(*upto)) {
            Some(after) => self.changes(rows, after, &mut delta),
            None => {
                let first = rows.len().saturating_sub(WINDOW_ROWS);
                (delta.reset, delta.earlier) = (true, rows.earlier() || first > 0);
                delta.rows = rows.iter().skip(first).cloned().collect();
            }
        }
        for row in &delta.rows {
            self.remember(row);
        }
        if self.sent_bytes.len() > GROWING_ROWS_MAX {
            let growing: HashSet<u64> = rows.iter().filter(|row| is_growing(row)).map(|row| row.id).collect();
            self.sent_bytes.retain(|id, _| growing.contains(id));
        }
        self.upto = Some(rows.upto());
        delta
    }

    fn changes(&mut self, rows: &Rows, after: u64, delta: &mut ViewDelta) {
        for entry in rows.entries().filter(|entry| entry.row.rev > after) {
            let row = &entry.row;
            let sent = self.sent_bytes.get(&row.id).copied().filter(|_| entry.rewritten_rev <= after);
            let grown = sent.and_then(|sent| growing_text(row)?.get(sent..));
            match grown {
                Some(text) => {
                    delta.appends.push(TextAppend { row: row.id, rev: row.rev, text: text.to_owned() });
                    self.remember(row);
                }
                None => delta.rows.push(row.clone()),
            }
        }
    }

    fn remember(&mut self, row: &Row) {
        if let Some(text) = growing_text(row) {
            self.sent_bytes.insert(row.id, text.len());
        }
    }
}

fn growing_text(row: &Row) -> Option<&str> {
    match &row.what {
        RowContent::AgentMessage { text, .. } | RowContent::Thought { text, .. } => Some(text),
        RowContent::Tool(tool) => Some(&tool.output),
        RowContent::Prompt { .. }
        | RowContent::Plan(_)
        | RowContent::Question { .. }
        | RowContent::Notice { .. }
        | RowContent::Note { .. }
        | RowContent::TurnEnd(_) => None,
    }
}

fn is_growing(row: &Row) -> bool {
    match &row.what {
        RowContent::AgentMessage { .. } | RowContent::Thought { .. } => true,
        RowContent::Tool(tool) => tool.state == ToolCallState::Running,
        RowContent::Prompt { .. }
        | RowContent::Plan(_)
        | RowContent::Question { .. }
        | RowContent::Notice { .. }
        | RowContent::Note { .. }
        | RowContent::TurnEnd(_) => false,
    }
}
