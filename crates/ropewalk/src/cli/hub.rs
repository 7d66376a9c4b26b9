//! The part of the command line about hubs.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};

const AFTER_HELP: &str = "\
The first start prints a link that makes the first admin. An option goes before its variable, and an empty
variable counts as none.

Exit codes: 0 ended, 1 it cannot serve, 2 wrong usage.";

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
    /// Show who did what at the hub
    Audit(HubAuditOptions),
    /// Show which sessions are mirrored at the hub, the latest first
    Sessions(HubSessionsOptions),
    /// Write a mirrored session to a file that `ropewalk sessions import` takes, for a machine that is gone
    Export(HubExportOptions),
    /// Print a link that signs somebody in who has no passkey at hand
    Link(HubLinkOptions),
    /// Make a token for a machine, and print it this once
    Token(HubTokenOptions),
    /// Say whether the hub of this machine can serve
    Status(HubStatusOptions),
}

#[derive(Debug, Clone, Default, Args)]
pub struct HubOptions {
    /// Where to listen; without it, 127.0.0.1:8090
    #[arg(long, value_name = "ADDR", env = "ROPEWALK_HUB_LISTEN")]
    pub listen: Option<SocketAddr>,

    #[command(flatten)]
    pub store: HubStoreOptions,

    /// A certificate in PEM form, for https
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "ROPEWALK_HUB_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "ROPEWALK_HUB_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// A proxy stands before the hub and speaks TLS for it
    #[arg(long, env = "ROPEWALK_HUB_BEHIND_PROXY", value_parser = FalseyValueParser::new())]
    pub behind_proxy: bool,

    /// A token that opens /metrics; those of machines do too. The variable ROPEWALK_HUB_METRICS_TOKEN is the
    /// better place
    #[arg(long, value_name = "TOKEN", env = "ROPEWALK_HUB_METRICS_TOKEN", hide_env_values = true)]
    pub metrics_token: Option<String>,

    /// Days after which a session whose bridge is silent is not listed any more; without it, 7
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650), env = "ROPEWALK_HUB_PRUNE_DAYS")]
    pub prune_days: Option<u64>,

    /// Days after which such a session is forgotten with all that was mirrored of it; without it, never
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650), env = "ROPEWALK_HUB_FORGET_DAYS")]
    pub forget_days: Option<u64>,

    /// Days for which it is kept who did what (`ropewalk hub audit`); without it, 90
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650), env = "ROPEWALK_HUB_AUDIT_DAYS")]
    pub audit_days: Option<u64>,
}

/// Where a hub keeps what it knows.
#[derive(Debug, Clone, Default, Args)]
pub struct HubStoreOptions {
    /// Where everything is kept: a file, or postgres://USER@HOST/NAME for several hubs that are one;
    /// without it, hub.db in --data
    #[arg(long, value_name = "FILE|URL", env = "ROPEWALK_HUB_STORE", hide_env_values = true)]
    pub store: Option<String>,

    /// A NATS server that wakes the other hubs faster than PostgreSQL does: nats://HOST:PORT, or tls://HOST:PORT;
    /// with USER:PASSWORD@ or TOKEN@ before the host
    #[arg(long, value_name = "URL", env = "ROPEWALK_HUB_BUS", hide_env_values = true)]
    pub bus: Option<String>,

    /// How people and machines reach the hub, as in https://hub.example.com
    #[arg(long, value_name = "URL", env = "ROPEWALK_HUB_PUBLIC_URL")]
    pub public_url: Option<String>,

    /// The folder of everything that is kept on this machine; without it, the one of the sessions
    #[arg(long, value_name = "DIR", env = "ROPEWALK_HUB_DATA")]
    pub data: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct HubAuditOptions {
    /// At most so many, the newest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: u64,

    /// As JSON, one object a line
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
pub struct HubSessionsOptions {
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: u64,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The hub may run meanwhile: its database is only read. A sealed session is written sealed,\n\
    and opened by `ropewalk sessions import` where the key of its machine is.\n\n\
    Exit codes: 0 it is written, 1 it is not, 5 there is no such session."
)]
pub struct HubExportOptions {
    /// The session; the beginning of its id is enough
    pub id: String,

    /// Where to write; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Say as JSON what was written
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
pub struct HubLinkOptions {
    /// Who it is for, by name
    #[arg(long, value_name = "NAME")]
    pub person: String,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
pub struct HubTokenOptions {
    /// What to call it, such as the machine's name
    pub name: String,

    /// Whose machine it is, by name
    #[arg(long, value_name = "NAME")]
    pub person: String,

    /// Days until it ends; without it, it does not
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub days: Option<u32>,

    #[command(flatten)]
    pub store: HubStoreOptions,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 it can serve, 1 it cannot.")]
pub struct HubStatusOptions {
    /// Where it listens; without it, 127.0.0.1:8090
    #[arg(long, value_name = "ADDR", env = "ROPEWALK_HUB_LISTEN")]
    pub listen: Option<SocketAddr>,
}
