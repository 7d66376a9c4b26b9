//! The part of the command line about agents: which one works, and `ropewalk agents`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Who works, if not our own agent.
#[derive(Debug, Clone, Default, Args)]
pub struct AgentOptions {
    /// The agent that works, by its name: `ropewalk agents list` says which there are. Without it, the one
    /// in the settings, else Ropewalk's own, whose name is ropewalk
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// A variable of yours that this agent is given too, by its name; repeat for more
    #[arg(long, value_name = "VARIABLE")]
    pub agent_env: Vec<String>,
}

const AGENTS_HELP: &str = "\
Any program that speaks the Agent Client Protocol can work behind Ropewalk:

  ropewalk serve --agent opencode
  ropewalk serve -- my-agent --acp

Your own stand in config.toml as [agents.NAME] with command, args, env, pass, own_folders and sandbox.
Exit codes: 0 well, 1 an agent does not answer or is not installed, 2 wrong usage, 5 no such agent.";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = AGENTS_HELP)]
pub enum AgentsCommand {
    /// Show the agents that are known by name, and which of them are installed
    #[command(alias = "ls")]
    List(AgentsListOptions),
    /// Start an agent, greet it, and show what it answers
    Check(AgentsCheckOptions),
    /// Say how an agent is installed
    InstallHint(AgentsHintOptions),
    /// Show the modes of Ropewalk's own agent and the helpers that it can send off
    #[command(alias = "mode")]
    Modes(AgentsModesOptions),
}

#[derive(Debug, Clone, Args)]
pub struct AgentsListOptions {
    /// Only those that are installed
    #[arg(long)]
    pub installed: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AgentsCheckOptions {
    /// The agent; without it, all that are installed
    pub name: Option<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AgentsHintOptions {
    /// The agent
    pub name: String,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AgentsModesOptions {
    /// Only this one, with its instructions
    pub name: Option<String>,

    /// The project's folder; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}
