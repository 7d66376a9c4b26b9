//! `ropewalk config`.

use clap::{Args, Subcommand};

use super::ServeOptions;

#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Show the settings that `serve` would use; takes the same options
    Show(Box<ConfigShowOptions>),
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Precedence: command line, ZEPH_ACP_* and *_MODEL variables, profile, settings file, other variables,\n\
    .codex/config.toml (which can only make the sandbox and the approval stricter), default. See docs/guide/coming-from.md."
)]
pub struct ConfigShowOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub serve: ServeOptions,
}
