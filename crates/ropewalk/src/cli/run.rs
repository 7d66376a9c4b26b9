//! `ropewalk run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{AgentOptions, BudgetOptions, GuardOptions, SessionChoice};

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "`run` cannot ask: anything that needs permission is refused, unless --approval full allows it.\n\n\
    Exit codes: 0 done, 1 the turn failed, 2 wrong usage, or stopped by --max-cost, --max-turns or --timeout,\n\
    5 no such session or agent, 130 interrupted."
)]
pub struct RunOptions {
    /// Prompt to send; `-` reads it from standard input
    pub prompt: String,

    /// text: the answer as it arrives; json: one object at the end; stream-json: one line per event
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RunFormat::Text)]
    pub format: RunFormat,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,

    #[command(flatten)]
    pub session: SessionChoice,

    #[command(flatten)]
    pub agent: AgentOptions,

    /// Command line of an agent that speaks the Agent Client Protocol, as one argument
    #[arg(long, value_name = "COMMAND", conflicts_with = "agent")]
    pub command: Option<String>,

    /// Seconds until the run is cancelled, including the start of the agent
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,

    #[command(flatten)]
    pub budget: BudgetOptions,

    /// Print the estimated cost without calling the model
    #[arg(long, conflicts_with_all = ["resume", "newest"])]
    pub estimate_cost: bool,

    /// Mode of the agent: code, ask or architect
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    #[command(flatten)]
    pub guard: GuardOptions,

    /// File to attach; repeatable, `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,

    /// Image to attach (jpeg, png, gif or webp); repeatable
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    Text,
    Json,
    StreamJson,
}
