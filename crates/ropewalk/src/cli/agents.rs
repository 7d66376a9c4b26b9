//! Options that choose an agent, and `ropewalk agents`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options that choose an external agent.
#[derive(Debug, Clone, Default, Args)]
pub struct AgentOptions {
    /// Name of the agent to use; see `ropewalk agents list`. Default: the one in your settings, otherwise
    /// Ropewalk's built-in agent, named ropewalk
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// Pass this environment variable on to the agent; repeatable
    #[arg(long, value_name = "VARIABLE")]
    pub agent_env: Vec<String>,

    /// Record every frame from the agent in a new file, for `ropewalk agents replay`. If FILE is a
    /// folder, each start creates its own file in it
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

const AGENTS_HELP: &str = "\
Any program that speaks the Agent Client Protocol can work behind Ropewalk:

  ropewalk serve --agent opencode
  ropewalk serve -- my-agent --acp

Define your own in config.toml as [agents.NAME] with command, args, env, pass, own_folders, own_settings and sandbox.
Exit codes: 0 success, 1 an agent does not answer or is not installed, or a journal differs, 2 wrong usage,
5 no such agent or file.";

const REPLAY_HELP: &str = "\
A journal records every frame that an agent sent. --journal FILE writes one:

  ropewalk run --agent opencode --journal one.jsonl \"say hello\"
  ropewalk agents replay one.jsonl
  ropewalk agents replay one.jsonl --against two.jsonl

Prints the first step that differs. Generated ids (of sessions, calls, messages) are compared by the order in
which they appear; times are ignored.
Exit codes: 0 no difference, 1 a difference, 2 wrong usage, 5 no such file.";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = AGENTS_HELP)]
pub enum AgentsCommand {
    /// List known agents and whether they are installed
    #[command(alias = "ls")]
    List(AgentsListOptions),
    /// Start an agent and check that it answers
    Check(AgentsCheckOptions),
    /// Show how to install an agent
    InstallHint(AgentsInstallHintOptions),
    /// Verify a journal, or compare it with another
    #[command(after_help = REPLAY_HELP)]
    Replay(AgentsReplayOptions),
    /// Show the modes and subagents of the built-in agent
    #[command(alias = "mode")]
    Modes(AgentsModesOptions),
}

#[derive(Debug, Clone, Args)]
pub struct AgentsListOptions {
    /// Only installed agents
    #[arg(long)]
    pub installed: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AgentsCheckOptions {
    /// Agent to check (default: all installed agents)
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AgentsInstallHintOptions {
    /// Name of the agent
    pub name: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AgentsReplayOptions {
    /// Journal file
    pub file: PathBuf,

    /// Journal of the same prompt to compare with
    #[arg(long, value_name = "OTHER")]
    pub against: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AgentsModesOptions {
    /// Show only this one, with its instructions
    pub name: Option<String>,

    /// Project folder (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
