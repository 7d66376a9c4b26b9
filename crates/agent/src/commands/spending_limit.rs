//! `/max-cost` and `/force-send`: a spending limit that a person sets for the session, and one prompt that
//! ignores it.
//!
//! **Invariant:** neither loosens the limits of the owner's settings and flags.

use std::fmt::Write;

use engine::Content;

use super::{SlashCommand, parse};
use crate::budget::{Budget, Limit};
use crate::tools::blocking;

/// How the answer begins when the limit was changed. The log is searched for this.
pub(crate) const DONE: &str = "The limit of this session is ";
const USAGE: &str =
    "Write `/max-cost 0.50` (US dollars that this session may spend from here on) or `/max-cost off`.";
const UNATTENDED: &str = "No client is connected to see this, so the limit of this session was not changed.";
const FORCE: &str = "/force-send";
pub(super) const FORCE_USAGE: &str =
    "Write `/force-send TEXT`: the text is sent to the agent even if the limit of /max-cost is reached.";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MaxCostCommand {
    Show,
    /// US dollars.
    Set(f64),
    Remove,
    /// It could not be parsed.
    Unclear,
}

pub(super) fn parse_argument(argument: Option<&str>) -> MaxCostCommand {
    let Some(argument) = argument else { return MaxCostCommand::Show };
    if argument.eq_ignore_ascii_case("off") {
        return MaxCostCommand::Remove;
    }
    let amount = argument.strip_prefix('$').unwrap_or(argument);
    let plain = amount.chars().all(|c| c.is_ascii_digit() || c == '.');
    match amount.parse::<f64>().ok().filter(|usd| plain && usd.is_finite()) {
        Some(usd) if usd > 0.0 => MaxCostCommand::Set(usd),
        Some(_) => MaxCostCommand::Remove,
        None => MaxCostCommand::Unclear,
    }
}

/// The command in a prompt's content, if it is this one.
pub(crate) fn parse_content(content: &[Content]) -> Option<MaxCostCommand> {
    match parse(content, &[]) {
        Some(SlashCommand::MaxCost(command)) => Some(command),
        _ => None,
    }
}

/// The prompt after `/force-send`, if it starts with that.
pub(crate) fn forced(content: &[Content]) -> Option<Vec<Content>> {
    let Some(Content::Text(text)) = content.first() else { return None };
    let mut rest = after_force(text)?;
    while let Some(again) = after_force(rest) {
        rest = again;
    }
    if rest.is_empty() && content.len() == 1 {
        return None;
    }
    let mut content = content.to_vec();
    content[0] = Content::text(rest);
    Some(content)
}

fn after_force(text: &str) -> Option<&str> {
    let rest = text.trim_start().strip_prefix(FORCE)?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
}

/// The answer to a command: its result, or the current limits.
pub(super) async fn answer(
    command: MaxCostCommand,
    current: Option<Limit>,
    spent_usd: f64,
    budget: &Budget,
    attended: bool,
) -> String {
    let left = current.map_or(f64::INFINITY, |limit| limit.left(spent_usd));
    match command {
        MaxCostCommand::Unclear => format!("Nothing was changed. {USAGE}"),
        MaxCostCommand::Show => holds(current, spent_usd, budget).await,
        MaxCostCommand::Set(usd) if !attended && usd > left => UNATTENDED.into(),
        MaxCostCommand::Remove if !attended && current.is_some() => UNATTENDED.into(),
        MaxCostCommand::Set(usd) => format!(
            "{DONE}now ${usd:.4} from here on. The limits of this machine still apply. `/force-send TEXT` sends one prompt despite the limit."
        ),
        MaxCostCommand::Remove if current.is_some() => {
            format!("{DONE}removed. The limits of this machine still apply.")
        }
        MaxCostCommand::Remove => "This session has no limit set with /max-cost.".into(),
    }
}

/// Every limit on what this session may spend.
async fn holds(current: Option<Limit>, spent_usd: f64, budget: &Budget) -> String {
    let mut text = String::new();
    if let Some(limit) = current {
        let spent = limit.spent(spent_usd);
        writeln!(text, "- this session, by /max-cost: ${spent:.4} of ${:.4} spent", limit.usd).ok();
    }
    if let Some(usd) = budget.turn_usd {
        writeln!(text, "- each prompt, by --max-cost: ${usd:.4}").ok();
    }
    if let Some(usd) = budget.session_usd {
        writeln!(text, "- this session, by --max-cost or session_usd: ${spent_usd:.4} of ${usd:.4} spent")
            .ok();
    }
    if let Some(usd) = budget.day_usd {
        let spending = budget.spending.clone();
        let today = blocking(move || spending.and_then(|spending| spending.today().ok())).await;
        let spent = today.ok().flatten().map_or_else(|| "unknown".into(), |spent| format!("${spent:.4}"));
        writeln!(text, "- all sessions of a day, by day_usd: {spent} of ${usd:.4} spent").ok();
    }
    match text.is_empty() {
        true => format!("This session has no spending limit. {USAGE}"),
        false => format!("Spending limits:\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_dollars_or_nothing() {
        assert_eq!(parse_argument(None), MaxCostCommand::Show);
        assert_eq!(parse_argument(Some("0.50")), MaxCostCommand::Set(0.5));
        assert_eq!(parse_argument(Some("$2")), MaxCostCommand::Set(2.0));
        for none in ["0", "0.00", "off", "OFF", "$0"] {
            assert_eq!(parse_argument(Some(none)), MaxCostCommand::Remove, "{none}");
        }
        for unclear in ["-1", "1e9", "inf", "NaN", "a lot", "1 2", "$", "1,50"] {
            assert_eq!(parse_argument(Some(unclear)), MaxCostCommand::Unclear, "{unclear}");
        }
    }

    #[test]
    fn what_is_forced_is_the_rest_of_the_prompt() {
        let rest = |text: &str| {
            forced(&[Content::text(text)]).map(|content| match &content[0] {
                Content::Text(text) => text.to_string(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(rest("/force-send go on").as_deref(), Some("go on"));
        assert_eq!(rest(" /force-send\ngo on").as_deref(), Some("go on"));
        assert_eq!(rest("/force-send /force-send /compact").as_deref(), Some("/compact"));
        for other in ["/force-send", "/force-sendx y", "go on", "x /force-send y"] {
            assert_eq!(rest(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn nobody_unseen_loosens_the_limit() {
        let (limit, budget) = (Some(Limit { usd: 1.0, since_usd: 2.0 }), Budget::default());
        let told = async |command, attended| answer(command, limit, 2.5, &budget, attended).await;
        for command in [MaxCostCommand::Remove, MaxCostCommand::Set(0.6)] {
            assert_eq!(told(command, false).await, UNATTENDED, "{command:?}");
            assert!(told(command, true).await.starts_with(DONE), "{command:?}");
        }
        assert!(told(MaxCostCommand::Set(0.5), false).await.starts_with(DONE), "as much as is left, or less");
    }
}
