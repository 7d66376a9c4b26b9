//! `ropewalk permissions`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

const PERMISSIONS_HELP: &str = "\
A rule is TOOL or TOOL(PATTERN). Deny beats ask, ask beats allow, and allow beats the
presets auto, suggest and strict. The preset read-only refuses everything but reading, whatever is allowed.

  shell(cargo test:*)   every command that starts with these words
  shell(npm run *)      a pattern for one command
  shell(make all)       exactly this command
  edit(src/**)          files, relative to the workspace, or starting with / or ~/
  read(.env)            a file in any folder; for deny and ask
  fetch(url:https://docs.*)  an argument of the tool
  mcp__github           every tool of an MCP server";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = PERMISSIONS_HELP)]
pub enum PermissionsCommand {
    /// List all rule files with their rules and problems
    #[command(alias = "ls")]
    List(PermissionsListOptions),
    /// Add a rule, or change the effect of an existing one
    Add(PermissionsAddOptions),
    /// Remove a rule
    #[command(alias = "rm")]
    Remove(PermissionsRemoveOptions),
    /// Explain whether an action would be allowed, and which rules decide
    Why(PermissionsWhyOptions),
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsListOptions {
    /// Folder whose rules to show (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options that choose the rule file and the folder.
#[derive(Debug, Clone, Args)]
pub struct RuleLocationArgs {
    /// Apply the rule in the current folder only
    #[arg(long)]
    pub here: bool,

    /// Apply the rule in this folder only
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Use the project's file, .ropewalk/permissions.toml, which can only deny or ask
    #[arg(long, alias = "project", conflicts_with = "here")]
    pub project_file: bool,
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsAddOptions {
    /// Effect of the rule
    #[arg(value_enum)]
    pub effect: EffectArg,

    /// Rule, such as shell(cargo test:*), edit(src/**), read(.env), mcp__server
    pub rule: String,

    #[command(flatten)]
    pub place: RuleLocationArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EffectArg {
    Allow,
    Ask,
    Deny,
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsRemoveOptions {
    /// Rule as shown by `permissions list`, or the digest of a command outside the sandbox
    pub rule: String,

    #[command(flatten)]
    pub place: RuleLocationArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct PermissionsWhyOptions {
    /// Tool: shell, read, edit, write, search, list or another
    pub tool: String,

    /// What the tool would act on: a command or a path
    pub subject: String,

    /// Folder to work in (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Approval preset to assume: read-only, strict, suggest, auto, full
    #[arg(long, value_name = "PRESET", default_value = "auto")]
    pub approval: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
