//! One client's position in the rows: what to tell it so that it has what there is.

use std::collections::{HashMap, HashSet};

use super::rows::Rows;
use crate::native::{Append, Row, SessionState, ToolState, View, WINDOW_ROWS, What};

/// Rows whose told length is kept before those that cannot grow are forgotten.
const TOLD_MAX: usize = 256;

#[derive(Debug, Default)]
pub struct Viewer {
    /// Everything up to here was told; nothing was told without.
    upto: Option<u64>,
    /// How much of the text of growing rows was told.
    told_bytes: HashMap<u64, usize>,
}

/// What a client is told.
#[derive(Debug, Default, PartialEq)]
pub struct Delta {
    pub upto: u64,
    pub reset: bool,
    pub earlier: bool,
    pub rows: Vec<Row>,
    pub appends: Vec<Append>,
}

impl Delta {
    /// There is nothing to tell but a position.
    pub fn is_empty(&self) -> bool {
        !self.reset && self.rows.is_empty() && self.appends.is_empty()
    }

    /// The same as a client is told it, with the state of the session where that is another one.
    pub fn view(self, session: String, state: Option<SessionState>) -> View {
        let Self { upto, reset, earlier, rows, appends } = self;
        View { session, upto, reset, earlier, rows, appends, state }
    }
}

impl Viewer {
    /// A client that has everything up to a position, or nothing.
    pub fn new(after: Option<u64>) -> Self {
        Self { upto: after, told_bytes: HashMap::new() }
    }

    /// What was not told yet; afterwards it was.
    pub fn tell(&mut self, rows: &Rows) -> Delta {
        let mut delta = Delta { upto: rows.upto(), ..Delta::default() };
        match self.upto.filter(|upto| rows.covers(*upto)) {
            Some(after) => self.changes(rows, after, &mut delta),
            None => {
                let first = rows.len().saturating_sub(WINDOW_ROWS);
                (delta.reset, delta.earlier) = (true, rows.earlier() || first > 0);
                delta.rows = rows.iter().skip(first).cloned().collect();
            }
        }
        for row in &delta.rows {
            self.note(row);
        }
        if self.told_bytes.len() > TOLD_MAX {
            let growing: HashSet<u64> = rows.iter().filter(|row| is_growing(row)).map(|row| row.id).collect();
            self.told_bytes.retain(|id, _| growing.contains(id));
        }
        self.upto = Some(rows.upto());
        delta
    }

    fn changes(&mut self, rows: &Rows, after: u64, delta: &mut Delta) {
        for entry in rows.entries().filter(|entry| entry.row.rev > after) {
            let row = &entry.row;
            let told = self.told_bytes.get(&row.id).copied().filter(|_| entry.whole_rev <= after);
            let grown = told.and_then(|told| growing_text(row)?.get(told..));
            match grown {
                Some(text) => {
                    delta.appends.push(Append { row: row.id, rev: row.rev, text: text.to_owned() });
                    self.note(row);
                }
                None => delta.rows.push(row.clone()),
            }
        }
    }

    fn note(&mut self, row: &Row) {
        if let Some(text) = growing_text(row) {
            self.told_bytes.insert(row.id, text.len());
        }
    }
}

fn growing_text(row: &Row) -> Option<&str> {
    match &row.what {
        What::Said { text, .. } | What::Thought { text, .. } => Some(text),
        What::Tool(tool) => Some(&tool.output),
        What::Prompt { .. }
        | What::Plan(_)
        | What::Question { .. }
        | What::Notice { .. }
        | What::Note { .. }
        | What::Ended(_) => None,
    }
}

fn is_growing(row: &Row) -> bool {
    match &row.what {
        What::Said { .. } | What::Thought { .. } => true,
        What::Tool(tool) => tool.state == ToolState::Running,
        What::Prompt { .. }
        | What::Plan(_)
        | What::Question { .. }
        | What::Notice { .. }
        | What::Note { .. }
        | What::Ended(_) => false,
    }
}
