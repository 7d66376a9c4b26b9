//! The part of the command line about the bridge: `bridge`, and `--bridge` of the commands that serve.

use ::bridge::Answers;
use clap::{Args, ValueEnum};
use wire::Dialect;

use super::{AgentOptions, BudgetOptions, ChatOptions, GuardOptions, SessionChoice};

/// Of the commands that serve.
#[derive(Debug, Clone, Default, Args)]
pub struct AlsoBridge {
    /// Let people drive the sessions from this address too; without a value, the one in the settings
    #[arg(long = "bridge", value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    pub bridge: Option<String>,

    /// The token for that address. Others on this machine can see it here: the variable
    /// ROPEWALK_BRIDGE_TOKEN is the better place
    #[arg(long, value_name = "TOKEN", requires = "bridge")]
    pub bridge_token: Option<String>,

    /// Who answers what the agent asks: anyone (the default), approver (people elsewhere look and answer,
    /// and do not drive), local-only (it is answered here alone)
    #[arg(long, value_enum, value_name = "WHO", requires = "bridge")]
    pub answers: Option<AnswersWord>,

    /// Events that a receiver without a mirror is sent again after a cut; without it, what the settings
    /// say, or 50
    #[arg(long, value_name = "EVENTS", requires = "bridge")]
    pub replay_window: Option<u64>,

    /// Seal everything for devices that are paired with this machine (ropewalk pair): that address passes on
    /// and keeps what it cannot read
    #[arg(long, requires = "bridge")]
    pub e2e: bool,

    /// Speak plain http to that address, and accept any certificate: for development only
    #[arg(long, requires = "bridge")]
    pub insecure: bool,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The token is taken from --auth-token, ROPEWALK_BRIDGE_TOKEN or FERRET_BRIDGE_TOKEN, and never from a file.\n\
    On a terminal the session is shown here too, and both sides drive it. Otherwise it runs until it is\n\
    interrupted, and says on standard error how it is.\n\n\
    Exit codes: 0 ended, 1 it cannot go on, 2 wrong usage, no token, or one that is not let in, 5 no such session."
)]
pub struct BridgeOptions {
    /// Where people are: a hub, or another receiver; without it, the one in the settings
    #[arg(long, value_name = "URL")]
    pub remote_url: Option<String>,

    /// The token for it. Others on this machine can see it here: the variable ROPEWALK_BRIDGE_TOKEN is
    /// the better place
    #[arg(long, value_name = "TOKEN", alias = "bridge-token")]
    pub auth_token: Option<String>,

    /// Who answers what the agent asks: anyone (the default), approver (people elsewhere look and answer,
    /// and do not drive), local-only (it is answered here alone)
    #[arg(long, value_enum, value_name = "WHO")]
    pub answers: Option<AnswersWord>,

    /// Events that a receiver without a mirror is sent again after a cut; without it, what the settings
    /// say, or 50
    #[arg(long, value_name = "EVENTS")]
    pub replay_window: Option<u64>,

    /// Seal everything for devices that are paired with this machine (ropewalk pair): the hub passes on and
    /// keeps what it cannot read
    #[arg(long)]
    pub e2e: bool,

    /// Speak plain http, and accept any certificate: for development only
    #[arg(long)]
    pub insecure: bool,

    #[command(flatten)]
    pub session: SessionChoice,

    /// What the agent is to do: code, ask, architect
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    /// Line by line, also on a terminal
    #[arg(long)]
    pub plain: bool,

    #[command(flatten)]
    pub agent: AgentOptions,

    #[command(flatten)]
    pub budget: BudgetOptions,

    #[command(flatten)]
    pub guard: GuardOptions,

    /// The dialect whose command it was typed as: a new session has an id of that kind.
    #[arg(skip)]
    pub dialect: Dialect,
}

impl BridgeOptions {
    /// The same for the client in the terminal, which shows this session.
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
pub enum AnswersWord {
    Anyone,
    Approver,
    LocalOnly,
}

impl AnswersWord {
    pub fn answers(self) -> Answers {
        match self {
            Self::Anyone => Answers::Anyone,
            Self::Approver => Answers::Approver,
            Self::LocalOnly => Answers::LocalOnly,
        }
    }
}
