//! `ropewalk chat` and `ropewalk attach`, and the options that choose a session.

use std::path::PathBuf;

use clap::Args;

use super::{AgentOptions, BudgetOptions, GuardOptions};

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "On a terminal, chat uses the full screen; press ? for the keys. Otherwise, and with --plain, every line of\n\
    standard input is a prompt and answers go to standard output. Anything that needs permission is refused if\n\
    nobody is at the terminal to answer.\n\n\
    If a server runs for this folder (`ropewalk up`), the session runs there, and a phone or browser can join it;\n\
    leaving does not end a turn. Otherwise everything runs in this process.\n\n\
    Exit codes: 0 done, 1 the last turn failed, 2 wrong usage, or a limit ended it, 5 no such session, 130 interrupted."
)]
pub struct ChatOptions {
    /// First prompt
    pub prompt: Option<String>,

    #[command(flatten)]
    pub session: SessionChoice,

    /// Mode of the agent: code, ask or architect
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    /// Run everything in this process, even if a server is running
    #[arg(long)]
    pub alone: bool,

    /// Use plain line-by-line input and output, even on a terminal
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
    /// Session id, or a unique prefix of it. Default: the session that waits for you, otherwise the newest
    pub session: Option<String>,

    /// Use plain line-by-line input and output, even on a terminal
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

/// Options of `chat`, `bridge` and `run` that choose the folder, the model and the session.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionChoice {
    /// Folder to work in (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Continue this session; a prefix of its id is enough
    #[arg(short, long, value_name = "ID", conflicts_with = "newest")]
    pub resume: Option<String>,

    /// Continue the newest session of this folder
    #[arg(short = 'c', long = "continue")]
    pub newest: bool,

    /// Model to use from now on
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
}
