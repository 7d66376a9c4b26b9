//! The part of the command line about talking to the agent in a terminal: `chat` and `attach`.

use std::path::PathBuf;

use clap::Args;

use super::{AgentOptions, BudgetOptions, GuardOptions};

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "On a terminal it takes the whole screen; ? explains the keys. Otherwise, and with --plain, every line of\n\
    standard input is a prompt, answers go to standard output, and what would need a permission is refused\n\
    unless somebody sits there to be asked.\n\n\
    If a server works in this folder (`ropewalk up`), the session is there, and a phone or a browser can take\n\
    part in it; leaving does not end a turn. Otherwise everything runs in this program.\n\n\
    Exit codes: 0 done, 1 the last turn failed, 2 wrong usage, or a limit ended it, 5 no such session, 130 interrupted."
)]
pub struct ChatOptions {
    /// What to ask first
    pub prompt: Option<String>,

    #[command(flatten)]
    pub session: SessionChoice,

    /// What the agent is to do: code, ask, architect
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    /// Run everything in this program, also if a server runs
    #[arg(long)]
    pub alone: bool,

    /// Line by line, also on a terminal
    #[arg(long)]
    pub plain: bool,

    #[command(flatten)]
    pub agent: AgentOptions,

    #[command(flatten)]
    pub budget: BudgetOptions,

    #[command(flatten)]
    pub guard: GuardOptions,
}

#[derive(Debug, Clone, Args)]
pub struct AttachOptions {
    /// The session; the beginning of its id is enough. Without it, the one that waits for you, else the
    /// newest
    pub session: Option<String>,

    /// Line by line, also on a terminal
    #[arg(long)]
    pub plain: bool,
}

impl AttachOptions {
    pub fn chat(self) -> ChatOptions {
        ChatOptions {
            prompt: None,
            session: SessionChoice { resume: self.session, ..SessionChoice::default() },
            mode: None,
            alone: false,
            plain: self.plain,
            agent: AgentOptions::default(),
            budget: BudgetOptions::default(),
            guard: GuardOptions::default(),
        }
    }
}

/// Where an agent works, with which model, and whether a session goes on: of `chat`, `bridge` and `run`.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionChoice {
    /// The folder to work in; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Go on with this session; the beginning of its id is enough
    #[arg(short, long, value_name = "ID", conflicts_with = "newest")]
    pub resume: Option<String>,

    /// Go on with the newest session of this folder
    #[arg(short = 'c', long = "continue")]
    pub newest: bool,

    /// The model to use, from here on
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
}
