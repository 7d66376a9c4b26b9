//! `ropewalk mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::GuardOptions;

const MCP_HELP: &str = "\
Servers of yours are used in every session; they run outside the sandbox, with your rights.
A project may name servers in .ropewalk/config.toml: they run inside the sandbox, and you are asked at
this machine before one is started, whatever the approval is. `mcp trust` allows one ahead.

  ropewalk mcp add time -- uvx mcp-server-time
  ropewalk mcp add docs --url https://example.org/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'
  ropewalk mcp check";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = MCP_HELP)]
pub enum McpCommand {
    /// Show the servers of your settings and of this project
    #[command(alias = "ls")]
    List(McpListOptions),
    /// Add a server to your settings; one of the same name is replaced
    Add(McpAddOptions),
    /// Take a server out of your settings
    #[command(alias = "rm")]
    Remove(McpRemoveOptions),
    /// Start your servers and show what they bring
    Check(McpCheckOptions),
    /// Allow a server that this project names to start here without asking; without NAME, show what it names
    Trust(McpTrustOptions),
    /// Take that back: you are asked again
    Untrust(McpUntrustOptions),
    /// Be an MCP server: tools that look at a folder and change nothing, on standard input and output
    Serve(Box<McpServeOptions>),
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "What the tools may see is what the agent's own tools may see: the sandbox, your rules and the folders that\n\
    are hidden hold here too. Nothing is kept of what is read.\n\n  \
    claude mcp add loom -- ropewalk mcp serve -C ~/loom"
)]
pub struct McpServeOptions {
    /// The folder to look at; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    #[command(flatten)]
    pub guard: GuardOptions,
}

#[derive(Debug, Clone, Args)]
pub struct McpTrustOptions {
    /// The server, as the project calls it
    pub name: Option<String>,

    /// The folder whose project names it; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Show everything that is trusted on this machine
    #[arg(long, conflicts_with = "name")]
    pub list: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpUntrustOptions {
    /// The server, by its name or digest, as `mcp trust --list` shows it
    pub name: String,

    /// Only in this folder; without it, everywhere
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpListOptions {
    /// The folder whose project to look at; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpAddOptions {
    /// What it is called: its tools are mcp__NAME__TOOL
    pub name: String,

    /// The address of a server over HTTP
    #[arg(long, conflicts_with = "command", required_unless_present = "command")]
    pub url: Option<String>,

    /// A header for the address, as NAME: VALUE; repeat for more
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub header: Vec<String>,

    /// A variable for the program, as NAME=VALUE; repeat for more. ${VARIABLE} is looked up at its start
    #[arg(short, long, value_name = "NAME=VALUE", requires = "command")]
    pub env: Vec<String>,

    /// The program and its arguments, after --
    #[arg(last = true)]
    pub command: Vec<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpRemoveOptions {
    /// The server, as `mcp list` shows it
    pub name: String,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpCheckOptions {
    /// Only this server
    pub name: Option<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}
