//! The part of the command line about the rules for what the agent may do.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

const PERMISSIONS_HELP: &str = "\
A rule is Tool or Tool(pattern). Deny beats ask, ask beats the approval preset, that beats allow.

  shell(cargo test:*)   every command that begins with these words
  shell(npm run *)      a pattern for one command
  shell(make all)       exactly this
  edit(src/**)          files, from the workspace, from / or from ~/
  read(.env)            a file; denied or asked, in every folder
  fetch(url:https://docs.*)  an argument of the tool
  mcp__github           every tool of a server";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = PERMISSIONS_HELP)]
pub enum PermissionsCommand {
    /// Show every file of rules, what is wrong with it, and its rules
    #[command(alias = "ls")]
    List(PermissionsListOptions),
    /// Write a rule down; the same rule with another effect is replaced
    Add(PermissionsAddOptions),
    /// Take a rule out
    #[command(alias = "rm")]
    Remove(PermissionsRemoveOptions),
    /// Say what would come of a wish, and which rules decide it
    Why(PermissionsWhyOptions),
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsListOptions {
    /// The folder whose rules to show; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Which file, and for which folder.
#[derive(Debug, Clone, Args)]
pub struct RulePlace {
    /// The rule holds in this folder only
    #[arg(long)]
    pub here: bool,

    /// The rule holds in this folder only
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// In the file of the project, .ropewalk/permissions.toml, which may deny and ask
    #[arg(long, alias = "project", conflicts_with = "here")]
    pub project_file: bool,
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsAddOptions {
    /// What the rule does
    #[arg(value_enum)]
    pub effect: RuleWord,

    /// The rule: shell(cargo test:*), edit(src/**), read(.env), mcp__server
    pub rule: String,

    #[command(flatten)]
    pub place: RulePlace,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuleWord {
    Allow,
    Ask,
    Deny,
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsRemoveOptions {
    /// The rule as `permissions list` shows it, or the digest of a command outside the sandbox
    pub rule: String,

    #[command(flatten)]
    pub place: RulePlace,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsWhyOptions {
    /// The tool: shell, read, edit, write, search, list, or any other
    pub tool: String,

    /// What it would be used on: a command, a path
    pub subject: String,

    /// The folder to work in; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// The approval preset to judge by: read-only, strict, suggest, auto, full
    #[arg(long, value_name = "PRESET", default_value = "auto")]
    pub approval: String,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}
