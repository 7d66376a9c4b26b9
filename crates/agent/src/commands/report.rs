//! `/status` and `/cost`: where a session stands.

use std::fmt::Write;

use engine::{APPROVAL, MODE, MODEL, Settings, THINKING, Totals};

use crate::context::Ledger;
use crate::knowledge::Knowledge;

pub(super) fn status(
    settings: &Settings,
    mode: sandbox::Mode,
    ledger: &Ledger,
    knowledge: &Knowledge,
) -> String {
    let mut text = String::new();
    for id in [MODEL, MODE, THINKING, APPROVAL] {
        writeln!(text, "- {id}: {}", settings.get(id)).ok();
    }
    writeln!(text, "- sandbox: {mode}").ok();
    let Totals { context_used, context_size, .. } = ledger.total;
    match context_used.saturating_mul(100).checked_div(context_size) {
        Some(share) => writeln!(text, "- context: {context_used} of {context_size} tokens ({share} %)").ok(),
        None => writeln!(text, "- context: nothing was asked yet").ok(),
    };
    writeln!(text, "- cost: {}", money(&ledger.total)).ok();
    if !knowledge.rules.names.is_empty() {
        writeln!(text, "- rules: {}", knowledge.rules.names.join(", ")).ok();
    }
    if !knowledge.skills.is_empty() {
        let names: Vec<_> = knowledge.skills.iter().map(|skill| skill.name.as_ref()).collect();
        writeln!(text, "- skills: {}", names.join(", ")).ok();
    }
    text
}

pub(super) fn cost(ledger: &Ledger) -> String {
    let mut text = String::new();
    for (turn, totals) in &ledger.turns {
        writeln!(text, "- turn {}: {}", turn.0, line(totals)).ok();
    }
    if ledger.turns.is_empty() {
        return "Nothing was used yet.".to_owned();
    }
    writeln!(text, "In all: {}.", line(&ledger.total)).ok();
    text
}

fn line(totals: &Totals) -> String {
    let cached = match totals.cache_read {
        0 => String::new(),
        read => format!(" and {read} from the cache"),
    };
    format!("{} tokens in{cached}, {} out, {}", totals.input, totals.output, money(totals))
}

/// What is not known is never shown as nothing.
fn money(totals: &Totals) -> String {
    match (totals.unpriced, totals.cost_usd > 0.0) {
        (false, _) => format!("${:.4}", totals.cost_usd),
        (true, true) => format!("${:.4} and an unknown part", totals.cost_usd),
        (true, false) => "cost unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cost_is_never_nothing() {
        let totals = |cost_usd, unpriced| Totals { cost_usd, unpriced, ..Totals::default() };
        assert_eq!(money(&totals(0.0, false)), "$0.0000");
        assert_eq!(money(&totals(0.0, true)), "cost unknown");
        assert_eq!(money(&totals(0.5, true)), "$0.5000 and an unknown part");
    }
}
