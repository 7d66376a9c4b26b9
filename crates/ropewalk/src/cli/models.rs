//! Options about models and costs.

use std::num::NonZeroUsize;

use clap::{Args, Subcommand};

use crate::sessions::PastTime;

/// Options that limit costs.
#[derive(Debug, Clone, Default, Args)]
pub struct BudgetOptions {
    /// Stop calling models after this many US dollars: per prompt with `run`, otherwise per session
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<f64>,

    /// Maximum number of model calls per turn (default: 50)
    #[arg(long, value_name = "N")]
    pub max_turns: Option<NonZeroUsize>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum ModelsCommand {
    /// List available models, where they come from, and what others need
    #[command(alias = "ls")]
    List(ModelsOptions),
    /// Send each provider one short prompt; this costs a little
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct CostOptions {
    /// Session id or prefix, to show its costs turn by turn (default: all sessions)
    #[arg(conflicts_with_all = ["since", "model", "limit"])]
    pub id: Option<String>,

    /// Only sessions that used this model; part of its name is enough
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Only the latest N sessions; the totals are for these
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// Only sessions active since: 30m, 2h, 3d, 1w or 2026-01-31
    #[arg(long, value_name = "WHEN", value_parser = PastTime::parse)]
    pub since: Option<PastTime>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.strip_prefix('$').unwrap_or(text).parse::<f64>().ok();
    amount
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| "expected an amount in US dollars, such as 0.50".to_owned())
}
