//! `ropewalk agents`: the known agents, and the modes of the built-in one.

mod check;
mod list;
mod modes;
mod replay;

use std::future::Future;
use std::process::ExitCode;

use crate::cli::{AgentsCommand, AgentsInstallHintOptions};
use crate::cli_error::CliError;
use crate::{config, external_agents, output};

pub fn run(command: &AgentsCommand) -> ExitCode {
    let (outcome, as_json) = match command {
        AgentsCommand::List(options) => (in_runtime(list::run(options)), options.json),
        AgentsCommand::Check(options) => (in_runtime(check::run(options)), options.json),
        AgentsCommand::InstallHint(options) => (hint(options).map(|()| ExitCode::SUCCESS), options.json),
        AgentsCommand::Replay(options) => (replay::run(options), options.json),
        AgentsCommand::Modes(options) => (modes::run(options).map(|()| ExitCode::SUCCESS), options.json),
    };
    outcome.unwrap_or_else(|error| error.report(as_json))
}

fn in_runtime(work: impl Future<Output = Result<ExitCode, CliError>>) -> Result<ExitCode, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| CliError::failed("could not start the async runtime").because(error))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// `agents install-hint`: prints the steps to install an agent, one per line.
fn hint(options: &AgentsInstallHintOptions) -> Result<(), CliError> {
    let entry = external_agents::named(&config::user()?, &options.name)?;
    if options.json {
        let program = entry.program();
        return output::put_json(&serde_json::json!({
            "name": entry.name,
            "installed": program.is_some(),
            "program": program,
            "install": entry.install,
        }));
    }
    output::put(&entry.install.iter().map(|line| format!("{line}\n")).collect::<String>())
}
