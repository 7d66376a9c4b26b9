//! Older spellings of `serve` and `run`, as users of other programs type them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Subcommand};

use super::{Cli, Command, ServeArguments, ServeOptions};

/// `acp`, or `acp serve` as Bernstein's users type it: both are `serve`. Zeph's `acp run-agent` is `run`.
#[derive(Debug, Clone, Args)]
pub struct AcpOptions {
    #[command(subcommand)]
    command: Option<AcpCommand>,

    #[command(flatten)]
    serve: ServeOptions,
}

#[derive(Debug, Clone, Subcommand)]
enum AcpCommand {
    Serve(Box<ServeOptions>),
    RunAgent(RunAgentOptions),
}

#[derive(Debug, Clone, Args)]
struct RunAgentOptions {
    #[arg(long)]
    command: String,
    #[arg(long, allow_hyphen_values = true)]
    prompt: String,
    #[arg(short = 'C', long)]
    cwd: Option<PathBuf>,
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

impl AcpOptions {
    pub fn serves(&self) -> bool {
        !matches!(self.command, Some(AcpCommand::RunAgent(_)))
    }

    /// The command that was meant.
    pub fn command(self) -> Result<Command, clap::Error> {
        let serve = |options| Command::Serve(Box::new(ServeArguments { command: None, options }));
        match self.command {
            Some(AcpCommand::Serve(options)) => Ok(serve(*options)),
            Some(AcpCommand::RunAgent(options)) => options.run(),
            None => Ok(serve(self.serve)),
        }
    }
}

impl RunAgentOptions {
    /// The same in the words of `run`.
    fn run(self) -> Result<Command, clap::Error> {
        let mut line: Vec<OsString> = vec!["ropewalk".into(), "run".into()];
        line.extend([OsString::from("--command"), self.command.into()]);
        line.extend([OsString::from("--timeout"), self.timeout.to_string().into()]);
        if let Some(cwd) = self.cwd {
            line.extend([OsString::from("--cwd"), cwd.into()]);
        }
        line.extend([OsString::from("--"), self.prompt.into()]);
        let cli = Cli::of(&<Cli as CommandFactory>::command().try_get_matches_from(line)?)?;
        Ok(cli.command(false))
    }
}
