//! What the calls of a session used: in all, and in the turns that were last.

use std::collections::VecDeque;

use engine::{Origin, Totals, TurnId, Usage};

/// Turns that are told one by one.
const TURNS_MAX: usize = 10;

#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) total: Totals,
    pub(crate) turns: VecDeque<(TurnId, Totals)>,
}

impl Ledger {
    pub(crate) fn add(&mut self, turn: Option<TurnId>, origin: &Origin, usage: &Usage) {
        self.total.add_from(origin, usage);
        let Some(turn) = turn else { return };
        if self.turns.back().is_none_or(|(last, _)| *last != turn) {
            if self.turns.len() == TURNS_MAX {
                self.turns.pop_front();
            }
            self.turns.push_back((turn, Totals::default()));
        }
        if let Some((_, totals)) = self.turns.back_mut() {
            totals.add_from(origin, usage);
        }
    }
}
