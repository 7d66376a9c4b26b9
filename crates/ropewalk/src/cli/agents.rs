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

    /// Note everything that this agent says in a new file, frame by frame, for `ropewalk agents replay`. In a
    /// folder, each start gets a file of its own
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

const AGENTS_HELP: &str = "\
Any program that speaks the Agent Client Protocol can work behind Ropewalk:

  ropewalk serve --agent opencode
  ropewalk serve -- my-agent --acp

Your own stand in config.toml as [agents.NAME] with command, args, env, pass, own_folders, own_settings and sandbox.
Exit codes: 0 well, 1 an agent does not answer or is not installed, or a journal differs, 2 wrong usage,
5 no such agent or file.";

const REPLAY_HELP: &str = "\
A journal is what an agent said, frame by frame, written by --journal FILE:

  ropewalk run --agent opencode --journal one.jsonl \"say hello\"
  ropewalk agents replay one.jsonl
  ropewalk agents replay one.jsonl --against two.jsonl

The first step that differs is named. Names that agents make up (of sessions, calls, messages) are compared
by the order in which they appear, and times not at all.
Exit codes: 0 nothing differs, 1 something does, 2 wrong usage, 5 no such file.";

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
    /// Hear a journal again, and say at which step it is not what was recorded
    #[command(after_help = REPLAY_HELP)]
    Replay(AgentsReplayOptions),
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
pub struct AgentsReplayOptions {
    /// The journal
    pub file: PathBuf,

    /// Another journal of the same prompt, to compare it with
    #[arg(long, value_name = "OTHER")]
    pub against: Option<PathBuf>,

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
