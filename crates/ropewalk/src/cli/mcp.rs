//! `ropewalk mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::GuardOptions;

const MCP_HELP: &str = "\
Your servers are available in every session; they run outside the sandbox, with your permissions.
A project can name servers in .ropewalk/config.toml: they run inside the sandbox, and you are asked on
this machine before one starts, whatever the approval preset. `mcp trust` allows one in advance.

  ropewalk mcp add time -- uvx mcp-server-time
  ropewalk mcp add docs --url https://example.org/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'
  ropewalk mcp check";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = MCP_HELP)]
pub enum McpCommand {
    /// List the servers in your settings and in this project
    #[command(alias = "ls")]
    List(McpListOptions),
    /// Add a server to your settings, or replace the one with that name
    Add(McpAddOptions),
    /// Remove a server from your settings
    #[command(alias = "rm")]
    Remove(McpRemoveOptions),
    /// Start your servers and list their tools
    Check(McpCheckOptions),
    /// Allow one of this project's servers to start without asking; without NAME, list them
    Trust(McpTrustOptions),
    /// Undo `mcp trust`: you are asked again
    Untrust(McpUntrustOptions),
    /// Run an MCP server with read-only tools for a folder, on standard input and output
    Serve(Box<McpServeOptions>),
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The tools see what the agent's own tools see: the sandbox, your permission rules and hidden folders\n\
    apply here too. Nothing that they read is stored.\n\n  \
    claude mcp add loom -- ropewalk mcp serve -C ~/loom"
)]
pub struct McpServeOptions {
    /// Folder to read (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    #[command(flatten)]
    pub guard: GuardOptions,
}

#[derive(Debug, Clone, Args)]
pub struct McpTrustOptions {
    /// Name of the server in the project's settings
    pub name: Option<String>,

    /// Project folder (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// List all trusted servers on this machine
    #[arg(long, conflicts_with = "name")]
    pub list: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpUntrustOptions {
    /// Name or digest of the server, as shown by `mcp trust --list`
    pub name: String,

    /// Only in this folder (default: everywhere)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpListOptions {
    /// Project folder (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpAddOptions {
    /// Name for the server; its tools are called mcp__NAME__TOOL
    pub name: String,

    /// URL of a server over HTTP
    #[arg(long, conflicts_with = "command", required_unless_present = "command")]
    pub url: Option<String>,

    /// HTTP header to send, as NAME: VALUE; repeatable
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub header: Vec<String>,

    /// Environment variable for the command, as NAME=VALUE; repeatable. ${VARIABLE} is replaced when it starts
    #[arg(short, long, value_name = "NAME=VALUE", requires = "command")]
    pub env: Vec<String>,

    /// Command and its arguments, after --
    #[arg(last = true)]
    pub command: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpRemoveOptions {
    /// Name of the server, as shown by `mcp list`
    pub name: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct McpCheckOptions {
    /// Only this server
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
