//! What the turns of a session cost, computed from its log.

use engine::{Body, Origin, Totals, TurnId};

/// Older turns are only included in the total.
const TURNS_MAX: usize = 100;

/// The total cost, and the cost of each of the latest turns.
#[derive(Debug, Clone, Default)]
pub struct TurnCosts {
    pub total: Totals,
    /// In chronological order.
    pub turns: Vec<(TurnId, Totals)>,
}

impl TurnCosts {
    /// Processes the next event of the log.
    pub fn observe(&mut self, turn: Option<TurnId>, origin: &Origin, body: &Body) {
        let Body::Usage(usage) = body else { return };
        self.total.add_from(origin, usage);
        let Some(turn) = turn else { return };
        match self.turns.last_mut() {
            Some((last, totals)) if *last == turn => totals.add_from(origin, usage),
            _ => {
                if self.turns.len() == TURNS_MAX {
                    self.turns.remove(0);
                }
                let mut totals = Totals::default();
                totals.add_from(origin, usage);
                self.turns.push((turn, totals));
            }
        }
    }

    /// A text with one line per turn and the total.
    pub fn text(&self) -> String {
        if self.turns.is_empty() {
            return "Nothing has been spent yet.".into();
        }
        let mut lines = Vec::new();
        let first = self.turns.len().saturating_sub(10);
        for (at, (_, totals)) in self.turns.iter().enumerate().skip(first) {
            let number = at + 1;
            lines.push(format!("- turn {number}: {}", line(totals)));
        }
        if first > 0 {
            lines.insert(0, format!("- {first} earlier turns"));
        }
        lines.push(format!("- **session: {}**", line(&self.total)));
        lines.join("\n")
    }
}

fn line(totals: &Totals) -> String {
    let mut parts = vec![format!("{} in, {} out", totals.input, totals.output)];
    if totals.cache_read > 0 || totals.cache_write > 0 {
        parts.push(format!("cache {} read, {} written", totals.cache_read, totals.cache_write));
    }
    if totals.reasoning > 0 {
        parts.push(format!("{} of it thinking", totals.reasoning));
    }
    parts.push(money(totals));
    parts.join("; ")
}

/// `$0.1200`, `cost unknown`, or `$0.1200 + unknown`.
pub(crate) fn money(totals: &Totals) -> String {
    match (totals.unpriced, totals.cost_usd > 0.0) {
        (false, _) => format!("${:.4}", totals.cost_usd),
        (true, false) => "cost unknown".into(),
        (true, true) => format!("${:.4} + unknown", totals.cost_usd),
    }
}
