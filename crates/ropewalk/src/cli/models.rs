//! The options about models and money.

use std::num::NonZeroUsize;

use clap::{Args, Subcommand};

use crate::sessions::Since;

/// What a piece of work may cost.
#[derive(Debug, Clone, Default, Args)]
pub struct BudgetOptions {
    /// US dollars: no model is asked any more once so much is spent. With `run` for that prompt, else for
    /// each session
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<f64>,

    /// How often a model may be asked in one turn; without it, 50
    #[arg(long, value_name = "N")]
    pub max_turns: Option<NonZeroUsize>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum ModelsCommand {
    /// Show which models were found and where, and what is missing for the others
    #[command(alias = "ls")]
    List(ModelsOptions),
    /// Ask each provider one short question, which costs a little
    Check(ModelsOptions),
}

impl ModelsCommand {
    pub fn json(&self) -> bool {
        match self {
            Self::List(options) | Self::Check(options) => options.json,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct ModelsOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct CostOptions {
    /// The session, turn by turn; the beginning of its id is enough. Without it, all sessions
    #[arg(conflicts_with_all = ["since", "model", "limit"])]
    pub id: Option<String>,

    /// Only sessions in which this model was asked; a part of its name is enough
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// At most so many sessions, the latest; the sums are of these
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// Only sessions that were active since then: 30m, 2h, 3d, 1w or 2026-01-31
    #[arg(long, value_name = "WHEN", value_parser = Since::parse)]
    pub since: Option<Since>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.strip_prefix('$').unwrap_or(text).parse::<f64>().ok();
    amount
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| "an amount of US dollars, as in 0.50".to_owned())
}
