//! The binary: reads the command line and the environment, wires the crates together, runs.

mod agents;
mod audit;
mod backup;
mod bridge;
mod chat;
mod chimera_event_log;
mod cli;
mod cli_error;
mod command_environment;
mod config;
mod devices;
mod doctor;
mod editor_snippets;
mod external_agents;
mod guard_settings;
mod hidden_paths;
mod http_door;
mod http_tokens;
mod hub;
mod lan;
mod logging;
mod mcp;
mod mcp_trust;
mod metrics;
mod models;
mod open_browser;
mod output;
mod pair;
mod paths;
mod permissions;
mod pushes;
#[cfg(test)]
mod reference_tests;
mod registry;
mod restore;
mod rule_list;
mod run;
mod running_servers;
mod sandbox_backends;
mod sandbox_run;
mod sealed_devices;
mod secrets_to_redact;
mod serve;
mod server_client;
mod session_store;
mod sessions;
mod state_lock;
mod traces;
mod up;

use std::io::IsTerminal;
use std::process::ExitCode;

use rustix::process::{Resource, getrlimit};

use crate::cli::{Cli, CliCommand};
use crate::cli_error::CliError;

fn main() -> ExitCode {
    // First of all: the sandbox helper must stay single-threaded and start fast.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == sandbox::HELPER_ARGUMENT) {
        return sandbox::helper_main();
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return cli_error::bad_usage(&error),
    };
    if let Err(error) = enough_files() {
        return error.report(false);
    }
    config::set_flags(config::ConfigFlags { file: cli.config.clone(), profile: cli.profile.clone() });
    let verbose = cli.verbose.max(u8::from(logging::wants_requests()));
    let command = match cli.command(std::io::stdin().is_terminal()) {
        Ok(command) => command,
        Err(error) => return cli_error::bad_usage(&error),
    };
    session_store::set_flags(command.store());
    if !command.draws() || !std::io::stderr().is_terminal() {
        logging::start(verbose, command.serves());
    }
    // Held until the command ends.
    let _state = match &command {
        // It takes the state folder exclusively.
        CliCommand::Restore(_) => None,
        other => match restore::lock_state(other.makes_state()) {
            Ok(lock) => lock,
            Err(error) => return error.report(false),
        },
    };
    match carry_out(command) {
        Ok(code) => code,
        Err(error) => {
            // The chain in full: the last cause usually names what to do.
            output::say(&format!("ropewalk: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// With fewer, the runtime itself fails before anything can report why.
const OPEN_FILES_MIN: u64 = 16;

fn enough_files() -> Result<(), CliError> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_MIN => {
            Err(CliError::failed(format!("the limit of open files is too low: {limit}"))
                .because(format!("ropewalk needs at least {OPEN_FILES_MIN}"))
                .fix("raise it with `ulimit -n 1024`"))
        }
        _ => Ok(()),
    }
}

fn carry_out(command: CliCommand) -> anyhow::Result<ExitCode> {
    match command {
        CliCommand::Up(options) => up::run(&options),
        CliCommand::Chat(options) => chat::run(&options),
        CliCommand::Attach(options) => chat::attach(&options.chat()),
        CliCommand::Bridge(options) => bridge::run(&options),
        CliCommand::Link(options) => Ok(up::link(&options)),
        CliCommand::Pair(options) => Ok(pair::run(&options)),
        CliCommand::Devices(command) => Ok(devices::run(&command)),
        CliCommand::Serve(arguments) => match &arguments.command {
            Some(command) => Ok(running_servers::run(command)),
            None => serve::run(&arguments.options),
        },
        CliCommand::Hub(arguments) => hub::run(&arguments),
        CliCommand::Run(options) => run::run(&options),
        CliCommand::Sessions(arguments) => sessions::run(arguments.command),
        CliCommand::Models(command) => models::run(&command),
        CliCommand::Doctor(options) => doctor::run(&options),
        CliCommand::Backup(options) => Ok(backup::run(&options)),
        CliCommand::Restore(options) => Ok(restore::run(&options)),
        CliCommand::Permissions(command) => Ok(permissions::run(&command)),
        CliCommand::Mcp(command) => Ok(mcp::run(&command)),
        CliCommand::Sandbox(command) => sandbox_run::run(command),
        CliCommand::Audit(command) => audit::run(command),
        CliCommand::Agents(command) => Ok(agents::run(&command)),
        CliCommand::Editors(options) => editor_snippets::run(&options),
        CliCommand::Config(command) => Ok(config::run(&command)),
    }
}
