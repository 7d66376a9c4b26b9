//! `ropewalk up`, `link`, `pair` and `devices`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use wire::native::Role;

use super::{
    AgentOptions, BudgetOptions, DialectChoice, GuardOptions, HttpOptions, ServeBridgeOptions, ServeOptions,
};

#[derive(Debug, Clone, Default, Args)]
#[command(
    after_help = "The link signs in one browser, once, within five minutes; `ropewalk link` prints a new one.\n\
    If a server is already running, `up` prints a link for it and starts nothing."
)]
pub struct UpOptions {
    /// Folder that sessions work in (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Allow sessions to work in this folder too; repeatable
    #[arg(long, value_name = "DIR")]
    pub allow_dir: Vec<PathBuf>,

    /// Port to use; 0 picks a free one (default: 5173 or the next free port)
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,

    /// Model for new sessions
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,

    #[command(flatten)]
    pub agent: AgentOptions,

    /// Do not open a browser
    #[arg(long)]
    pub no_open: bool,

    /// Also serve phones on the local network, over https. ADDRESS is this machine's address there, if it has
    /// more than one
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1)]
    pub lan: Option<Option<IpAddr>>,

    /// Certificate in PEM format for --lan (default: a self-signed one, which browsers warn about)
    #[arg(long, value_name = "FILE", requires_all = ["lan", "tls_key"])]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires_all = ["lan", "tls_cert"])]
    pub tls_key: Option<PathBuf>,

    /// Accept this host name too, such as the one in the certificate; repeatable
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<access::HostName>,

    #[command(flatten)]
    pub bridge: ServeBridgeOptions,

    #[command(flatten)]
    pub budget: BudgetOptions,

    #[command(flatten)]
    pub guard: GuardOptions,
}

impl UpOptions {
    /// The options for `serve`.
    pub fn serve(&self) -> ServeOptions {
        let http = HttpOptions {
            http: "".parse().ok(),
            port: self.port,
            allow_host: self.allow_host.clone(),
            ..HttpOptions::default()
        };
        ServeOptions {
            max_sessions: None,
            idle_timeout: None,
            ask_timeout: None,
            max_history: super::HISTORY_MAX,
            allow_dir: self.allow_dir.clone(),
            cwd: self.cwd.clone(),
            dialect: DialectChoice::Auto,
            preferred: None,
            model: self.model.clone(),
            budget: self.budget.clone(),
            agent: self.agent.clone(),
            agent_name: None,
            otlp: None,
            guard: self.guard.clone(),
            http,
            bridge: self.bridge.clone(),
            stdio: false,
            acp: false,
            command: Vec::new(),
        }
    }
}

/// Options that choose a running server.
#[derive(Debug, Clone, Args)]
pub struct ServerChoice {
    /// Port of the server, if more than one is running
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct LinkOptions {
    #[command(flatten)]
    pub server: ServerChoice,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The phone must be able to reach this machine: start the server with `ropewalk up --lan`. While this machine is\n\
    bridged with --e2e, the code is for the hub instead: whoever opens it there is paired and gets keys that the hub\n\
    does not have.\n\n\
    Exit codes: 0 paired, 1 declined or no device connected, 2 wrong usage."
)]
pub struct PairOptions {
    /// What the device may do: viewer watches, approver answers permission requests, driver also prompts,
    /// owner also manages devices
    #[arg(long, value_enum, value_name = "ROLE", default_value_t = RoleArg::Driver)]
    pub role: RoleArg,

    /// Accept any device with the code, without asking
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub server: ServerChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    Viewer,
    Approver,
    Driver,
    Owner,
}

impl RoleArg {
    pub fn role(self) -> Role {
        match self {
            Self::Viewer => Role::Viewer,
            Self::Approver => Role::Approver,
            Self::Driver => Role::Driver,
            Self::Owner => Role::Owner,
        }
    }
}

#[derive(Debug, Clone, Subcommand)]
pub enum DevicesCommand {
    /// List paired devices and their roles
    #[command(alias = "ls")]
    List(DevicesListOptions),
    /// Revoke a device, immediately and permanently
    #[command(alias = "rm")]
    Revoke(DevicesRevokeOptions),
}

#[derive(Debug, Clone, Args)]
pub struct DevicesListOptions {
    #[command(flatten)]
    pub server: ServerChoice,
}

#[derive(Debug, Clone, Args)]
pub struct DevicesRevokeOptions {
    /// Devices, by id or name
    #[arg(required = true)]
    pub devices: Vec<String>,

    #[command(flatten)]
    pub server: ServerChoice,
}
