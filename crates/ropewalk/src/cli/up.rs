//! The part of the command line about people: `up`, `link`, `pair` and `devices`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use wire::native::Role;

use super::{
    AgentOptions, AlsoBridge, BudgetOptions, DialectChoice, GuardOptions, HttpOptions, ServeOptions,
};

#[derive(Debug, Clone, Default, Args)]
#[command(
    after_help = "The link signs one browser in, once, within five minutes; `ropewalk link` prints another.\n\
    If a server runs already, its link is printed and nothing else is started."
)]
pub struct UpOptions {
    /// The folder that sessions work in; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// A further folder that sessions may work in; repeat for more
    #[arg(long, value_name = "DIR")]
    pub allow_dir: Vec<PathBuf>,

    /// The port, and no other; 0 takes any that is free. Without it, 5173 or the next that is free
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,

    /// The model of new sessions
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,

    #[command(flatten)]
    pub agent: AgentOptions,

    /// Do not open the browser
    #[arg(long)]
    pub no_open: bool,

    /// Let phones of this network come in too, over https; ADDRESS is this machine's address in it, if
    /// there is more than one
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1)]
    pub lan: Option<Option<IpAddr>>,

    /// A certificate in PEM form for --lan; without it, one is made, which browsers warn about
    #[arg(long, value_name = "FILE", requires_all = ["lan", "tls_key"])]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires_all = ["lan", "tls_cert"])]
    pub tls_key: Option<PathBuf>,

    /// A further name that this server is reached by, such as the certificate's; repeat for more
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<access::HostName>,

    #[command(flatten)]
    pub bridge: AlsoBridge,

    #[command(flatten)]
    pub budget: BudgetOptions,

    #[command(flatten)]
    pub guard: GuardOptions,
}

impl UpOptions {
    /// The same for the command that serves.
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

/// Which server is meant, where several run.
#[derive(Debug, Clone, Args)]
pub struct ServerChoice {
    /// The server on this port, if more than one runs
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,

    /// As JSON
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
    after_help = "The phone must reach this machine: start the server with `ropewalk up --lan`. While this machine is bridged with\n\
    --e2e, the code is for the hub instead: whoever opens it there is let in by it, and holds keys that the hub has not.\n\n\
    Exit codes: 0 it is in, 1 it was not let in or nobody came, 2 wrong usage."
)]
pub struct PairOptions {
    /// What it may do: viewer looks, approver answers what is asked, driver says what is to be done,
    /// owner lets others in
    #[arg(long, value_enum, value_name = "ROLE", default_value_t = RoleWord::Driver)]
    pub role: RoleWord,

    /// Let in whoever comes with the code, without asking
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub server: ServerChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleWord {
    Viewer,
    Approver,
    Driver,
    Owner,
}

impl RoleWord {
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
    /// Show which devices may come in, and as what
    #[command(alias = "ls")]
    List(DevicesListOptions),
    /// Shut a device out, at once and for good
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
    /// The devices, by id or by name
    #[arg(required = true)]
    pub devices: Vec<String>,

    #[command(flatten)]
    pub server: ServerChoice,
}
