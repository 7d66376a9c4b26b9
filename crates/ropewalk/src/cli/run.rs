//! The part of the command line about one prompt: `run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{AgentOptions, BudgetOptions, GuardOptions, SessionChoice};

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Nobody can be asked here: what would need a permission is refused, unless --approval full allows it.\n\n\
    Exit codes: 0 done, 1 the turn failed, 2 wrong usage, or --max-cost, --max-turns or --timeout ended it,\n\
    5 no such session or agent, 130 interrupted."
)]
pub struct RunOptions {
    /// What to ask; `-` reads it from standard input
    pub prompt: String,

    /// text: the answer as it is given; json: one object at the end; stream-json: a line per event
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RunFormat::Text)]
    pub format: RunFormat,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,

    #[command(flatten)]
    pub session: SessionChoice,

    #[command(flatten)]
    pub agent: AgentOptions,

    /// The agent that works, as one line: a command that speaks the Agent Client Protocol and its arguments
    #[arg(long, value_name = "COMMAND", conflicts_with = "agent")]
    pub command: Option<String>,

    /// Seconds after which it is given up, the start of the agent included
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,

    #[command(flatten)]
    pub budget: BudgetOptions,

    /// Say what asking the model would cost, and ask nobody
    #[arg(long, conflicts_with_all = ["resume", "newest"])]
    pub estimate_cost: bool,

    /// What the agent is to do: code, ask, architect
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    #[command(flatten)]
    pub guard: GuardOptions,

    /// A file to send along; repeat for more, `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,

    /// An image to send along: jpeg, png, gif or webp; repeat for more
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    Text,
    Json,
    StreamJson,
}
