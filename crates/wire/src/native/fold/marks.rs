//! Where the turns of a log begin, so that rows can be made from the middle of it.
//!
//! Made from an outline of the log: it has every event but the pieces of streams.

use std::collections::BTreeMap;

use engine::{Body, Event, TurnId};

use super::rows::{Prompt, Rows};
use super::text::{name_of, prompt};

/// A place in the log at which no turn runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The last position before the turn.
    pub after: u64,
    /// At least so many rows were made before it.
    rows_before: u64,
    queued: BTreeMap<TurnId, Prompt>,
}

#[derive(Debug, Default)]
pub struct Marks {
    marks: Vec<Mark>,
    rows: u64,
    queued: BTreeMap<TurnId, Prompt>,
    /// Where history was forgotten.
    cleared: u64,
}

impl Marks {
    pub fn observe(&mut self, event: &Event) {
        if let Body::TurnQueued { content } = &event.body {
            let waits = Prompt { from: name_of(&event.origin), text: prompt(content).0 };
            self.queued.extend(event.turn.map(|turn| (turn, waits)));
        } else if let Body::TurnStarted = &event.body {
            let after = event.seq.0.saturating_sub(1);
            let (rows_before, queued) = (self.rows, self.queued.clone());
            self.marks.push(Mark { after, rows_before, queued });
            self.queued.retain(|turn, _| Some(*turn) != event.turn);
        } else if let Body::TurnEnded { .. } = &event.body {
            self.queued.retain(|turn, _| Some(*turn) != event.turn);
        } else if let Body::Cleared = &event.body {
            // The turn that forgets goes on: it is made from its beginning, and forgets again.
            let first = self.marks.len().saturating_sub(1);
            self.marks.drain(..first);
            self.cleared = event.seq.0;
        }
        self.rows += u64::from(makes_row(&event.body));
    }

    /// Rows from where at least so many are made up to where the log stands; all, if there are fewer.
    pub fn last_rows(&self, rows_min: usize) -> Rows {
        self.rows_from(enough(&self.marks, self.rows, rows_min))
    }

    /// Rows from where at least so many are made before a position; all, if there are fewer. How many of
    /// the turn that the position is in stand before it is not known, so the turns before it must do.
    pub fn rows_before(&self, position: u64, rows_min: usize) -> Rows {
        let end = self.marks.partition_point(|mark| mark.after < position);
        let before = self.marks.get(..end).unwrap_or_default();
        let rows = before.last().map_or(0, |mark| mark.rows_before);
        self.rows_from(enough(before, rows, rows_min))
    }

    /// Rows of the turn that a position is in.
    pub fn rows_around(&self, position: u64) -> Rows {
        let end = self.marks.partition_point(|mark| mark.after < position);
        self.rows_from(self.marks.get(..end).and_then(<[Mark]>::last))
    }

    /// Where the turn after this position begins; nothing in the last one.
    pub fn next_after(&self, position: u64) -> Option<u64> {
        let end = self.marks.partition_point(|mark| mark.after < position);
        self.marks.get(end).map(|mark| mark.after)
    }

    fn rows_from(&self, mark: Option<&Mark>) -> Rows {
        let first = self.marks.first().filter(|_| self.cleared > 0);
        match mark.or(first) {
            Some(mark) => {
                let earlier = mark.rows_before > 0 && (self.cleared == 0 || Some(mark) != first);
                Rows::after(mark.after, mark.queued.clone(), earlier)
            }
            None => Rows::default(),
        }
    }
}

/// The last place from which so many rows are made until there are `rows` of them.
fn enough(marks: &[Mark], rows: u64, rows_min: usize) -> Option<&Mark> {
    marks.iter().rev().find(|mark| rows.saturating_sub(mark.rows_before) >= rows_min as u64)
}

/// Whether an event of an outline makes a row of its own, whatever stands around it. A kind that is not counted
/// here only makes more rows than were asked for.
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
