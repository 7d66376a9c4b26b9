//! `ropewalk hub`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};

const AFTER_HELP: &str = "\
The first start prints a setup link; whoever opens it becomes the admin. Options take precedence over
variables, and an empty variable counts as unset.

Exit codes: 0 stopped, 1 cannot serve, 2 wrong usage.";

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct HubArguments {
    #[command(subcommand)]
    pub command: Option<HubCommand>,

    #[command(flatten)]
    pub options: HubOptions,
}

#[derive(Debug, Clone, Subcommand)]
pub enum HubCommand {
    /// Show the hub's audit log
    Audit(HubAuditOptions),
    /// List the sessions that the hub mirrors, latest first
    Sessions(HubSessionsOptions),
    /// Export a mirrored session to a file for `ropewalk sessions import`, e.g. if its machine is lost
    Export(HubExportOptions),
    /// Print a sign-in link for someone without a passkey
    Link(HubLinkOptions),
    /// Create a token for a machine; it is printed only once
    Token(HubTokenOptions),
    /// Check whether the hub on this machine is ready
    Status(HubStatusOptions),
}

#[derive(Debug, Clone, Default, Args)]
pub struct HubOptions {
    /// Address to listen on (default: 127.0.0.1:8090)
    #[arg(long, value_name = "ADDR", env = "ROPEWALK_HUB_LISTEN")]
    pub listen: Option<SocketAddr>,

    #[command(flatten)]
    pub store: HubStoreOptions,

    /// Certificate in PEM format, to serve https
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "ROPEWALK_HUB_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "ROPEWALK_HUB_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// Set if a reverse proxy in front of the hub handles TLS
    #[arg(long, env = "ROPEWALK_HUB_BEHIND_PROXY", value_parser = FalseyValueParser::new())]
    pub behind_proxy: bool,

    /// Token for /metrics; machine tokens work there too. Prefer the variable
    /// ROPEWALK_HUB_METRICS_TOKEN
    #[arg(long, value_name = "TOKEN", env = "ROPEWALK_HUB_METRICS_TOKEN", hide_env_values = true)]
    pub metrics_token: Option<String>,

    /// Days until a session whose bridge is silent is no longer listed (default: 7)
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650), env = "ROPEWALK_HUB_PRUNE_DAYS")]
    pub prune_days: Option<u64>,

    /// Days until such a session and its mirrored data are deleted (default: never)
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650), env = "ROPEWALK_HUB_FORGET_DAYS")]
    pub forget_days: Option<u64>,

    /// Days to keep the hub's audit log, see `ropewalk hub audit` (default: 90)
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650), env = "ROPEWALK_HUB_AUDIT_DAYS")]
    pub audit_days: Option<u64>,
}

/// Options that choose the hub's database.
#[derive(Debug, Clone, Default, Args)]
pub struct HubStoreOptions {
    /// Database: a file, or postgres://USER@HOST/NAME to run several hubs as one (default: hub.db in
    /// --data)
    #[arg(long, value_name = "FILE|URL", env = "ROPEWALK_HUB_STORE", hide_env_values = true)]
    pub store: Option<String>,

    /// NATS server that notifies the other hubs faster than PostgreSQL does: nats://HOST:PORT or
    /// tls://HOST:PORT, with USER:PASSWORD@ or TOKEN@ before the host
    #[arg(long, value_name = "URL", env = "ROPEWALK_HUB_BUS", hide_env_values = true)]
    pub bus: Option<String>,

    /// URL at which people and machines reach the hub, e.g. https://hub.example.com
    #[arg(long, value_name = "URL", env = "ROPEWALK_HUB_PUBLIC_URL")]
    pub public_url: Option<String>,

    /// Folder for the hub's data on this machine (default: the state folder)
    #[arg(long, value_name = "DIR", env = "ROPEWALK_HUB_DATA")]
    pub data: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct HubAuditOptions {
    /// Maximum number of rows to show, newest first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: u64,

    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
pub struct HubSessionsOptions {
    /// Maximum number to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Works while the hub is running: the database is only read. A sealed session is exported sealed;\n\
    `ropewalk sessions import` opens it with the key of its machine.\n\n\
    Exit codes: 0 exported, 1 failed, 5 no such session."
)]
pub struct HubExportOptions {
    /// Session id, or a unique prefix of it
    pub id: String,

    /// File to write to (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print what was written as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
pub struct HubLinkOptions {
    /// Name of the person the link is for
    #[arg(long, value_name = "NAME")]
    pub person: String,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
pub struct HubTokenOptions {
    /// Name for the token, such as the machine's name
    pub name: String,

    /// Name of the person who owns the machine
    #[arg(long, value_name = "NAME")]
    pub person: String,

    /// Days until the token expires (default: never)
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub days: Option<u32>,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 ready, 1 not ready.")]
pub struct HubStatusOptions {
    /// Address of the hub (default: 127.0.0.1:8090)
    #[arg(long, value_name = "ADDR", env = "ROPEWALK_HUB_LISTEN")]
    pub listen: Option<SocketAddr>,
}
