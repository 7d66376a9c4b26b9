//! Where the turns of a log start, so that rows can be made from the middle of the log.
//!
//! Made from an outline of the log, which has every event except the chunks of streams.

use std::collections::BTreeMap;

use engine::{Body, Event, TurnId};

use super::row_text::{name_of, prompt};
use super::rows::{PromptText, Rows};

/// A position in the log at which no turn runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnStart {
    /// The last position before the turn.
    pub after: u64,
    /// At least this many rows were made before it.
    rows_before: u64,
    queued: BTreeMap<TurnId, PromptText>,
}

#[derive(Debug, Default)]
pub struct TurnStarts {
    starts: Vec<TurnStart>,
    rows: u64,
    queued: BTreeMap<TurnId, PromptText>,
    /// Where the history was cleared.
    cleared: u64,
}

impl TurnStarts {
    pub fn observe(&mut self, event: &Event) {
        if let Body::TurnQueued { content } = &event.body {
            let waits = PromptText { from: name_of(&event.origin), text: prompt(content).0 };
            self.queued.extend(event.turn.map(|turn| (turn, waits)));
        } else if let Body::TurnStarted = &event.body {
            let after = event.seq.0.saturating_sub(1);
            let (rows_before, queued) = (self.rows, self.queued.clone());
            self.starts.push(TurnStart { after, rows_before, queued });
            self.queued.retain(|turn, _| Some(*turn) != event.turn);
        } else if let Body::TurnEnded { .. } = &event.body {
            self.queued.retain(|turn, _| Some(*turn) != event.turn);
        } else if let Body::Cleared = &event.body {
            // The turn that clears the history continues: its rows are made from its start, and cleared
            // again.
            let first = self.starts.len().saturating_sub(1);
            self.starts.drain(..first);
            self.cleared = event.seq.0;
        }
        self.rows += u64::from(makes_row(&event.body));
    }

    /// Rows from a turn start after which at least `rows_min` rows are made; all, if there are fewer.
    pub fn last_rows(&self, rows_min: usize) -> Rows {
        self.rows_from(enough(&self.starts, self.rows, rows_min))
    }

    /// Rows from a turn start after which at least `rows_min` rows are made before a position; all, if there
    /// are fewer. It is not known how many rows of the position's own turn come before it, so only earlier
    /// turns count.
    pub fn rows_before(&self, position: u64, rows_min: usize) -> Rows {
        let end = self.starts.partition_point(|start| start.after < position);
        let before = self.starts.get(..end).unwrap_or_default();
        let rows = before.last().map_or(0, |start| start.rows_before);
        self.rows_from(enough(before, rows, rows_min))
    }

    /// Rows of the turn that a position is in.
    pub fn rows_around(&self, position: u64) -> Rows {
        let end = self.starts.partition_point(|start| start.after < position);
        self.rows_from(self.starts.get(..end).and_then(<[TurnStart]>::last))
    }

    /// Where the turn after this position starts; `None` in the last turn.
    pub fn next_after(&self, position: u64) -> Option<u64> {
        let end = self.starts.partition_point(|start| start.after < position);
        self.starts.get(end).map(|start| start.after)
    }

    fn rows_from(&self, start: Option<&TurnStart>) -> Rows {
        let first = self.starts.first().filter(|_| self.cleared > 0);
        match start.or(first) {
            Some(start) => {
                let earlier = start.rows_before > 0 && (self.cleared == 0 || Some(start) != first);
                Rows::after(start.after, start.queued.clone(), earlier)
            }
            None => Rows::default(),
        }
    }
}

/// The last turn start with at least `rows_min` rows between it and row number `rows`.
fn enough(starts: &[TurnStart], rows: u64, rows_min: usize) -> Option<&TurnStart> {
    starts.iter().rev().find(|start| rows.saturating_sub(start.rows_before) >= rows_min as u64)
}

/// Whether an event of an outline makes a row of its own, whatever comes before or after it. A kind that is
/// missing here only makes more rows than requested.
fn makes_row(body: &Body) -> bool {
    if let Body::Asked { request, .. } = body {
        return request.question.is_some();
    }
    matches!(
        body,
        Body::UserMessage { .. }
            | Body::ToolStarted(_)
            | Body::CancelRequested { .. }
            | Body::SettingChanged { .. }
            | Body::Notice { .. }
            | Body::Compacted { .. }
            | Body::Moved { .. }
            | Body::TurnEnded { .. }
    )
}
