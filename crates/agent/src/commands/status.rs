//! `/status`: the state of a session.

use std::fmt::Write;

use engine::{APPROVAL, MODE, MODEL, Settings, THINKING, Totals};

use crate::budget::{TurnCosts, money};
use crate::knowledge::Knowledge;

pub(super) fn status(
    settings: &Settings,
    mode: sandbox::Mode,
    costs: &TurnCosts,
    knowledge: &Knowledge,
) -> String {
    let mut text = String::new();
    for id in [MODEL, MODE, THINKING, APPROVAL] {
        writeln!(text, "- {id}: {}", settings.get(id)).ok();
    }
    writeln!(text, "- sandbox: {mode}").ok();
    let Totals { context_used, context_size, .. } = costs.total;
    match context_used.saturating_mul(100).checked_div(context_size) {
        Some(share) => writeln!(text, "- context: {context_used} of {context_size} tokens ({share} %)").ok(),
        None => writeln!(text, "- context: no model call yet").ok(),
    };
    writeln!(text, "- cost: {}", money(&costs.total)).ok();
    if !knowledge.instructions.names.is_empty() {
        writeln!(text, "- rules: {}", knowledge.instructions.names.join(", ")).ok();
    }
    if !knowledge.skills.is_empty() {
        let names: Vec<_> = knowledge.skills.iter().map(|skill| skill.name.as_ref()).collect();
        writeln!(text, "- skills: {}", names.join(", ")).ok();
    }
    text
}
