//! The part of the command line about settings: `config`.

use clap::{Args, Subcommand};

use super::ServeOptions;

#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Show what `serve` would use, with the same options after it
    Show(Box<ConfigShowOptions>),
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The order is: the command line, variables of other programs (ZEPH_ACP_.., .._MODEL), a profile, the settings file, other variables,\n\
    .codex/config.toml (which can only make the sandbox and the approval stricter), the default. docs/guide/coming-from.md says more."
)]
pub struct ConfigShowOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub serve: ServeOptions,
}
