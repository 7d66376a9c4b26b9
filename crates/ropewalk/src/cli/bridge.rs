//! `ropewalk bridge`, and the `--bridge` options of the commands that serve.

use ::bridge::RemoteAnswers;
use clap::{Args, ValueEnum};
use wire::Dialect;

use super::{AgentOptions, BudgetOptions, ChatOptions, GuardOptions, SessionChoice};

/// Bridge options of the commands that serve.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeBridgeOptions {
    /// Connect the sessions to the hub at this URL; without a value, the one in your settings
    #[arg(long = "bridge", value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    pub bridge: Option<String>,

    /// Token for the hub. Other users of this machine can see it here; prefer the variable
    /// ROPEWALK_BRIDGE_TOKEN
    #[arg(long, value_name = "TOKEN", requires = "bridge")]
    pub bridge_token: Option<String>,

    /// Who may answer permission requests: anyone (default), approver (people at the hub may watch and
    /// answer, but not prompt), local-only (only this machine answers)
    #[arg(long, value_enum, value_name = "WHO", requires = "bridge")]
    pub answers: Option<RemoteAnswersArg>,

    /// Number of events to send again after a reconnect to a receiver that keeps no copy (default: from your
    /// settings, or 50)
    #[arg(long, value_name = "EVENTS", requires = "bridge")]
    pub replay_window: Option<u64>,

    /// Encrypt everything end to end for devices paired with this machine (ropewalk pair): the hub stores and
    /// forwards only what it cannot read
    #[arg(long, requires = "bridge")]
    pub e2e: bool,

    /// Allow plain http and any certificate for the hub; for development only
    #[arg(long, requires = "bridge")]
    pub insecure: bool,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The token comes from --auth-token, ROPEWALK_BRIDGE_TOKEN or FERRET_BRIDGE_TOKEN, never from a file.\n\
    On a terminal, the session is shown here too, and both sides can steer it. Otherwise the bridge runs until it is\n\
    interrupted and reports its status on standard error.\n\n\
    Exit codes: 0 ended, 1 cannot continue, 2 wrong usage, or no token or one that the hub rejects, 5 no such session."
)]
pub struct BridgeOptions {
    /// URL of the hub or another receiver (default: from your settings)
    #[arg(long, value_name = "URL")]
    pub remote_url: Option<String>,

    /// Token for the hub. Other users of this machine can see it here; prefer the variable
    /// ROPEWALK_BRIDGE_TOKEN
    #[arg(long, value_name = "TOKEN", alias = "bridge-token")]
    pub auth_token: Option<String>,

    /// Who may answer permission requests: anyone (default), approver (people at the hub may watch and
    /// answer, but not prompt), local-only (only this machine answers)
    #[arg(long, value_enum, value_name = "WHO")]
    pub answers: Option<RemoteAnswersArg>,

    /// Number of events to send again after a reconnect to a receiver that keeps no copy (default: from your
    /// settings, or 50)
    #[arg(long, value_name = "EVENTS")]
    pub replay_window: Option<u64>,

    /// Encrypt everything end to end for devices paired with this machine (ropewalk pair): the hub stores and
    /// forwards only what it cannot read
    #[arg(long)]
    pub e2e: bool,

    /// Allow plain http and any certificate; for development only
    #[arg(long)]
    pub insecure: bool,

    #[command(flatten)]
    pub session: SessionChoice,

    /// Mode of the agent: code, ask or architect
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    /// Use plain line-by-line input and output, even on a terminal
    #[arg(long)]
    pub plain: bool,

    #[command(flatten)]
    pub agent: AgentOptions,

    #[command(flatten)]
    pub budget: BudgetOptions,

    #[command(flatten)]
    pub guard: GuardOptions,

    /// The dialect whose command was typed: a new session gets an id of that kind.
    #[arg(skip)]
    pub dialect: Dialect,
}

impl BridgeOptions {
    /// The options for the terminal client that shows this session.
    pub fn chat(&self, session: String) -> ChatOptions {
        ChatOptions {
            prompt: None,
            session: SessionChoice { resume: Some(session), newest: false, ..self.session.clone() },
            mode: self.mode.clone(),
            alone: true,
            plain: self.plain,
            agent: self.agent.clone(),
            budget: self.budget.clone(),
            guard: self.guard.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RemoteAnswersArg {
    Anyone,
    Approver,
    LocalOnly,
}

impl RemoteAnswersArg {
    pub fn answers(self) -> RemoteAnswers {
        match self {
            Self::Anyone => RemoteAnswers::Anyone,
            Self::Approver => RemoteAnswers::Approver,
            Self::LocalOnly => RemoteAnswers::LocalOnly,
        }
    }
}
