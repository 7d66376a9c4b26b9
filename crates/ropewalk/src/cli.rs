//! The command line. Older spellings of the same thing are accepted and not shown.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    about = "Many hands, one line: coding sessions that survive, served to any editor",
    after_help = "Without a command, ropewalk serves the Agent Client Protocol on standard input and output.",
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: ServeOptions,

    /// Say more on standard error; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Serve the Agent Client Protocol on standard input and output
    #[command(alias = "acp")]
    Serve(ServeOptions),
    /// Show what to paste into Zed, JetBrains, Neovim, Emacs or VS Code
    Editors(EditorOptions),
}

#[derive(Debug, Clone, Args)]
pub struct ServeOptions {
    /// Sessions kept in memory at once; the one idle longest makes room
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: u32,

    /// Seconds after which an idle session leaves memory; it stays on disk
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub idle_timeout: u64,

    /// Seconds a permission request waits before it is refused; without it, as long as it takes
    #[arg(long, value_name = "SECONDS")]
    pub ask_timeout: Option<u64>,

    /// Sessions on one page of a listing; 0 lists all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub max_history: usize,

    /// A further folder that sessions may work in; repeat for more. Without it, any the editor names
    #[arg(long, value_name = "DIR")]
    pub allow_dir: Vec<PathBuf>,

    /// How the agent introduces itself to the editor
    #[arg(long, value_name = "NAME", default_value = "ropewalk")]
    pub agent_name: String,

    #[arg(long, hide = true)]
    pub acp: bool,
    #[arg(long, hide = true)]
    pub stdio: bool,
    /// The word that Bernstein's users type after `acp`.
    #[arg(hide = true, value_parser = ["serve"])]
    pub word: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct EditorOptions {
    /// Only this one
    #[arg(value_parser = crate::editors::NAMES)]
    pub editor: Option<String>,
}

impl Cli {
    pub fn command(self) -> Command {
        self.command.unwrap_or(Command::Serve(self.serve))
    }
}
